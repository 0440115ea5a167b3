"""An outbox publishes each batch exactly once, wherever its process dies; what cannot be is said with a remedy."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from amqp10.events import Event, LinkAttaching
from amqp10.outcomes import ACCEPTED, Error, Rejected, Released
from amqp10.runs import Dispositions, Transfers
from onceway.client.connection import Connection, connect
from onceway.errors import JournalCorrupt, JournalFull
from onceway.spark.errors import OutboxBehind, OutboxError, OutboxLocked, PublishFailed, RowsInDoubt, RowsRefused
from onceway.spark.options import Terms
from onceway.spark.sink import journal, publishing
from onceway.spark.sink.journal import OutboxJournal
from onceway.spark.sink.outbox import Manifest, Outbox
from onceway.spark.sink.publishing import commit_batch
from tests.onceway.client.fake_network import FakeNetwork
from tests.spark.outbox_world import BOUND_S, OWNER, Network, commit, ended, rows, share, staged, start

Part = list[tuple[str, bytes]]


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "outbox"


def parts(batch: int, count: int = 60) -> list[Part]:
    """Two partitions with rows of two topics each, mixed."""
    made: list[Part] = []
    for first in (0, count):
        made.append([])
        for order, goods in zip(rows(batch, "orders", first, count), rows(batch, "returns", first, count), strict=True):
            made[-1] += [("orders", order), ("returns", goods)]
    return made


def expected(batch: int, topic: str, count: int = 60) -> list[bytes]:
    return rows(batch, topic, 0, 2 * count)


def check(network: Network, *batches: int, count: int = 60) -> None:
    """Every row of these batches once, each topic's in the order of partitions and rows."""
    bodies = network.bodies()
    for topic in ("orders", "returns"):
        of_topic = [body for body in bodies if topic.encode() in body]
        assert of_topic == [body for batch in batches for body in expected(batch, topic, count)]
    assert network.faults() == []


def test_a_batch_is_published_in_order_and_a_repeat_publishes_nothing(network: Network, location: Path) -> None:
    files = staged(location, "batch-0", parts(0))
    commit(location, network.url, "batch-0", files)
    check(network, 0)
    assert network.unsettled() == 0
    attaches = network.do(lambda fake: len(fake.attaches))
    commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    check(network, 0)
    assert network.do(lambda fake: len(fake.attaches)) == attaches
    commit(location, network.url, "batch-1", staged(location, "batch-1", parts(1)))
    check(network, 0, 1)


def test_a_batch_without_rows_needs_no_network(location: Path) -> None:
    commit(location, "amqp://127.0.0.1:1", "batch-0", [])
    outbox = Outbox(str(location))
    with outbox.held(OWNER, 0):
        assert outbox.published("batch-0")


def test_an_empty_outbox_under_a_checkpoint_that_has_batches_behind_it_is_refused(
    network: Network, location: Path
) -> None:
    before = location.with_name("before")
    for number in range(3):
        commit(before, network.url, f"batch-{number}", staged(before, f"batch-{number}", parts(number)))
    said = (
        r"outbox: this outbox has published nothing yet, and the query is at batch 2, by its checkpoint /c: .* once wi"
    )
    for _ in range(2):  # nor does it help to try again
        with pytest.raises(OutboxBehind, match=said):
            commit(location, network.url, "batch-2", staged(location, "batch-2", parts(2)), checkpoint="/c")
    check(network, 0, 1, 2)
    commit(location, network.url, "batch-3", staged(location, "batch-3", parts(3)), on_missing="ignore")
    commit(location, network.url, "batch-4", staged(location, "batch-4", parts(4)))
    check(network, 0, 1, 2, 3, 4)


def test_an_outbox_that_is_an_older_copy_is_refused_and_a_batch_under_way_is_not(
    network: Network, location: Path
) -> None:
    commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    files = staged(location, "batch-1", parts(1))
    network.do(lambda fake: setattr(fake, "refuse_with", "amqp:not-found"))
    with pytest.raises(PublishFailed):
        commit(location, network.url, "batch-1", files)
    network.do(lambda fake: setattr(fake, "refuse_with", None))
    with pytest.raises(OutboxBehind, match="has published batches up to 1 only, and the query is at batch 3"):
        commit(location, network.url, "batch-3", staged(location, "batch-3", parts(3)))
    commit(location, network.url, "batch-2", staged(location, "batch-2", parts(2)))
    check(network, 0, 1, 2)


def test_what_is_staged_again_after_the_decision_is_ignored(network: Network, location: Path) -> None:
    first = staged(location, "batch-0", parts(0))
    network.do(lambda fake: setattr(fake, "refuse_with", "amqp:not-found"))
    with pytest.raises(PublishFailed, match=r"batch-0 of container onceway-outbox-.*not-found.*restart the query"):
        commit(location, network.url, "batch-0", first)
    network.do(lambda fake: setattr(fake, "refuse_with", None))
    other = staged(location, "batch-0", [[("orders", b"another result of the same query")]])
    commit(location, network.url, "batch-0", other)
    check(network, 0)
    assert not Outbox(str(location)).directory("batch-0").exists()


@pytest.mark.parametrize("begin", [1, 2, 3])
def test_killed_before_any_step_on_the_disk_a_repeat_publishes_the_rest(
    network: Network, location: Path, begin: int
) -> None:
    """Every third step from `begin` on, each in a batch of its own of one outbox: later ones find what earlier left."""
    done = []
    step, batch = begin, 0
    while True:
        name = f"batch-{batch}"
        files = staged(location, name, parts(batch, 20))
        code = ended(start(location, network.url, name, files, step=step, ahead=8))
        assert code in (0, -signal.SIGKILL)
        if code:
            commit(location, network.url, name, staged(location, name, parts(batch, 20)))
        done.append(batch)
        check(network, *done, count=20)
        if not code:
            break
        step, batch = step + 3, batch + 1
    assert batch >= 5
    assert not list(location.glob("*.new"))  # what the killed had not renamed
    assert network.unsettled() == 0


WINDOWS: dict[str, Callable[[Event, dict[str, int]], bool]] = {
    "attach arrived": lambda event, seen: isinstance(event, LinkAttaching),
    "first messages lost": lambda event, seen: isinstance(event, Transfers),
    "half published": lambda event, seen: isinstance(event, Transfers) and seen["messages"] > 60,
    "settlement lost": lambda event, seen: isinstance(event, Dispositions) and event.settled,
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("handled", [False, True])
def test_killed_at_what_the_network_sees_a_repeat_publishes_the_rest(
    network: Network, location: Path, window: str, handled: bool
) -> None:
    files = staged(location, "batch-0", parts(0, 300))
    seen = {"messages": 0}
    pid: Future[int] = Future()

    def dies(event: Event) -> bool:
        if isinstance(event, Transfers):
            seen["messages"] += len(event.tags)
        if seen["messages"] >= 0 and WINDOWS[window](event, seen):
            seen["messages"] = -(1 << 40)  # once
            os.kill(pid.result(BOUND_S), signal.SIGKILL)
            return True
        return False

    network.do(lambda fake: setattr(fake, "drop_unsent" if handled else "drop_when", dies))
    process = start(location, network.url, "batch-0", files, ahead=50)
    pid.set_result(process.pid)
    assert ended(process) == -signal.SIGKILL
    network.do(lambda fake: (setattr(fake, "drop_unsent", None), setattr(fake, "drop_when", None)))
    commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0, 300)))
    check(network, 0, count=300)


def test_killed_with_outcomes_on_their_way_it_settles_them_at_the_next_batch(network: Network, location: Path) -> None:
    network.do(lambda fake: setattr(fake, "hold_outcomes", True))
    process = start(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    _until(lambda: len(network.bodies()) == 240)
    os.kill(process.pid, signal.SIGKILL)
    assert ended(process) == -signal.SIGKILL
    network.do(lambda fake: fake.release_outcomes())
    commit(location, network.url, "batch-0", [])
    check(network, 0)
    assert network.unsettled() == 0


def test_a_router_lost_in_between_does_not_matter(network: Network, location: Path) -> None:
    lost = []

    def drops(event: Event) -> bool:
        if isinstance(event, Transfers) and len(lost) < 3:
            lost.append(event)
            return True
        return False

    network.do(lambda fake: setattr(fake, "drop_unsent", drops))
    commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    assert len(lost) == 3
    check(network, 0)
    assert network.unsettled() == 0


# -- publishers beside the driver


def in_shares(batch: int, count: int) -> list[Part]:
    """Four partitions with rows of two topics each."""
    return [
        [(topic, body) for topic in ("orders", "returns") for body in rows(batch, f"{topic}-{part}", 0, count)]
        for part in range(4)
    ]


def check_shares(network: Network, *batches: int, count: int) -> None:
    """Every row of these batches once, each partition's in their order."""
    bodies = network.bodies()
    for part in range(4):
        for topic in ("orders", "returns"):
            name = f"{topic}-{part}"
            of_part = [body for body in bodies if name.encode() in body]
            assert of_part == [body for batch in batches for body in rows(batch, name, 0, count)]
    assert network.faults() == []


class Died(Exception):
    """Of a job that was to publish the shares."""


def dies(manifest: Manifest) -> None:
    raise Died


def decided(network: Network, location: Path, batch: int, count: int) -> str:
    """A batch whose shares nobody has published yet."""
    name = f"batch-{batch}"
    with pytest.raises(Died):
        commit(location, network.url, name, staged(location, name, in_shares(batch, count)), publishers=2, spread=dies)
    return name


def test_publishers_beside_the_driver_share_the_partitions_and_a_repeat_publishes_nothing(
    network: Network, location: Path
) -> None:
    for batch, publishers in enumerate((2, 2, 3, 0, 1)):  # their number may change
        name = f"batch-{batch}"
        commit(location, network.url, name, staged(location, name, in_shares(batch, 20)), publishers=publishers)
        check_shares(network, *range(batch + 1), count=20)
    attaches = network.do(lambda fake: len(fake.attaches))
    commit(location, network.url, "batch-4", staged(location, "batch-4", in_shares(4, 20)), publishers=2)
    assert network.do(lambda fake: len(fake.attaches)) == attaches
    check_shares(network, 0, 1, 2, 3, 4, count=20)
    assert json.loads((location / "batch-2.done").read_text())["topics"]["orders"] == {"accepted": 80}
    assert network.unsettled() == 0


@pytest.mark.parametrize("begin", [1, 2, 3])
@pytest.mark.parametrize("publisher", [0, 1])
def test_killed_before_any_step_on_the_disk_a_repeat_publishes_the_rest_of_the_shares(
    network: Network, location: Path, begin: int, publisher: int
) -> None:
    """Of a driver with all of its tasks, or of the task of a publisher."""
    done = []
    step, batch = begin, 0
    while True:
        if publisher:
            name = decided(network, location, batch, 20)
        else:
            name = f"batch-{batch}"
        files = staged(location, name, in_shares(batch, 20))
        code = ended(start(location, network.url, name, files, step=step, ahead=8, publisher=publisher, **(
            {} if publisher else {"publishers": 2}
        )))  # fmt: skip
        assert code in (0, -signal.SIGKILL)
        if code or publisher:
            commit(location, network.url, name, staged(location, name, in_shares(batch, 20)), publishers=2)
        done.append(batch)
        check_shares(network, *done, count=20)
        if not code:
            break
        step, batch = step + 3, batch + 1
    assert batch >= 2
    assert network.unsettled() == 0


def test_a_batch_without_rows_needs_no_tasks(location: Path) -> None:
    commit(location, "amqp://127.0.0.1:1", "batch-0", [], publishers=2, spread=dies)
    assert Outbox(str(location)).decided("batch-0")


def test_without_tasks_the_driver_publishes_what_was_decided_in_shares(network: Network, location: Path) -> None:
    name = decided(network, location, 0, 20)
    commit_batch(Outbox(str(location)), OWNER, name, [], Terms(network.url))  # writeStream.format("onceway") again
    check_shares(network, 0, count=20)


def test_an_attempt_that_comes_when_its_batch_is_done_publishes_nothing(network: Network, location: Path) -> None:
    decided(network, location, 0, 20)
    for batch in range(2):
        name = f"batch-{batch}"
        commit(location, network.url, name, staged(location, name, in_shares(batch, 20)), publishers=2)
    share(location, network.url, "batch-0", 1)
    check_shares(network, 0, 1, count=20)


def test_a_second_attempt_of_a_share_takes_its_link_where_no_lock_holds_it_back(
    network: Network, location: Path
) -> None:
    name = decided(network, location, 0, 200)
    network.do(lambda fake: setattr(fake, "hold_outcomes", True))
    first = start(location, network.url, name, [], publisher=1)
    _until(lambda: len(network.bodies()) == 800)
    (location / "lock-1").unlink()  # as on a file system whose locks do not reach other hosts
    second = start(location, network.url, name, [], publisher=1)
    assert ended(first) == 1  # LinkStolen
    network.do(lambda fake: fake.release_outcomes())
    assert ended(second) == 0
    commit(location, network.url, name, [], publishers=2)
    check_shares(network, 0, count=200)


def test_what_the_tasks_publish_is_judged_by_the_driver(network: Network, location: Path) -> None:
    rejected = Rejected(Error("amqp:decode-error", "no"))
    network.do(lambda fake: setattr(fake, "state_of", lambda body: rejected if b"orders-3 7" in body else ACCEPTED))
    files = staged(location, "batch-0", in_shares(0, 20))
    with pytest.raises(RowsRefused, match=r"orders: 39 accepted, 1 rejected of 40; returns: .*orders number 27 "):
        commit(location, network.url, "batch-0", files, publishers=2)
    check_shares(network, 0, count=20)
    commit(location, network.url, "batch-0", [], publishers=2, on_reject="ignore")
    assert json.loads((location / "batch-0.done").read_text())["topics"]["orders"] == {"accepted": 79, "rejected": 1}


def test_a_lost_journal_of_a_share_is_not_begun_anew(network: Network, location: Path) -> None:
    commit(location, network.url, "batch-0", staged(location, "batch-0", in_shares(0, 20)), publishers=2)
    (location / "journal-2").unlink()
    with pytest.raises(OutboxError, match=r"journal-2: is missing, though batches were published"):
        commit(location, network.url, "batch-1", staged(location, "batch-1", in_shares(1, 20)), publishers=2)


# -- two at once


def test_two_processes_on_one_outbox_are_told_apart(network: Network, location: Path) -> None:
    network.do(lambda fake: setattr(fake, "hold_outcomes", True))
    process = start(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    _until(lambda: len(network.bodies()) == 240)
    with pytest.raises(OutboxLocked, match=rf"process {process.pid} on .* publishes from this outbox; give each query"):
        commit(location, network.url, "batch-0", [], lock_timeout_s=0.2)
    network.do(lambda fake: fake.release_outcomes())
    commit(location, network.url, "batch-0", [])
    assert ended(process) == 0
    check(network, 0)


def test_a_zombie_on_a_copy_of_the_outbox_loses_its_link(network: Network, location: Path, tmp_path: Path) -> None:
    """Where locks do not reach: the later attach takes the link, and the earlier process says so and stops."""
    network.do(lambda fake: setattr(fake, "hold_outcomes", True))
    process = start(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    _until(lambda: len(network.bodies()) == 240)
    os.unlink(location / "lock")  # as if it were on another host
    second = start(location, network.url, "batch-0", [])
    assert ended(process) == 1
    network.do(lambda fake: fake.release_outcomes())
    assert ended(second) == 0
    check(network, 0)


def test_an_outbox_of_another_query_is_refused(network: Network, location: Path) -> None:
    commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    files = staged(location, "batch-1", parts(1))
    with pytest.raises(OutboxError, match="belongs to query q, this is query r; give it an outboxLocation of its own"):
        commit_batch(Outbox(str(location)), "query r", "batch-1", files, Terms(network.url))
    check(network, 0)


# -- outcomes that are not accepted, and no outcome at all


def test_rejected_rows_fail_the_batch_when_all_is_decided_and_each_repeat_says_so(
    network: Network, location: Path
) -> None:
    refusals = {b"0 orders 3": Rejected(Error("x")), b"0 orders 4": Rejected(Error("x")), b"0 returns 9": Released()}
    network.do(lambda fake: setattr(fake, "state_of", lambda payload: _by_body(payload, refusals)))
    files = staged(location, "batch-0", parts(0))
    for _ in range(2):
        with pytest.raises(
            RowsRefused, match=r"orders: 118 accepted, 2 rejected of 120; returns: 119 accepted, 1 released of 120"
        ) as caught:
            commit(location, network.url, "batch-0", files)
    assert "orders number 3 and the 1 after it (record batch 0 of 0-0-" in str(caught.value)
    assert "restart with onReject=ignore" in str(caught.value)
    check(network, 0)
    assert network.unsettled() == 0
    commit(location, network.url, "batch-0", files, on_reject="ignore")
    commit(location, network.url, "batch-1", staged(location, "batch-1", parts(1)))
    check(network, 0, 1)


def test_rejected_rows_are_ignored_where_that_is_asked_for(network: Network, location: Path) -> None:
    network.do(lambda fake: setattr(fake, "state_of", lambda payload: Rejected()))
    commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)), on_reject="ignore")
    outbox = Outbox(str(location))
    with outbox.held(OWNER, 0):
        done = json.loads((location / "batch-0.done").read_text())
    assert done["topics"] == {"orders": {"rejected": 120}, "returns": {"rejected": 120}}


@pytest.fixture
def doubtful(network: Network, location: Path) -> None:
    """Killed with 100 rows of one topic under way, all of which arrived; and the network has forgotten the publisher."""
    network.do(lambda fake: setattr(fake, "hold_outcomes", True))
    part: Part = [("orders", body) for body in rows(0, "orders", 0, 2000)]
    process = start(location, network.url, "batch-0", staged(location, "batch-0", [part]), ahead=10)
    _until(lambda: len(network.bodies()) == 500)  # its credit
    os.kill(process.pid, signal.SIGKILL)
    assert ended(process) == -signal.SIGKILL
    network.do(lambda fake: setattr(fake, "hold_outcomes", False))
    journal = OutboxJournal(location / "journal", _uuid(location))
    state = journal.topic("orders")
    journal.open("x", lambda: None)
    journal._write_later(["contact", "orders", state.contact_us - 1_000_000_000, state.timeout_s])
    journal.close()
    journal.release()


def _uuid(location: Path) -> str:
    outbox = Outbox(str(location))
    with outbox.held(OWNER, 0):
        return outbox.uuid


@pytest.mark.usefixtures("doubtful")
def test_rows_in_doubt_fail_the_batch_until_somebody_decides(network: Network, location: Path) -> None:
    for _ in range(2):
        with pytest.raises(
            RowsInDoubt, match=r"orders: 51\d in doubt of 2000; namely orders number 0 and the"
        ) as caught:
            commit(location, network.url, "batch-0", [])
        assert "restart with onUndecided=resend" in str(caught.value)
    assert network.bodies() == rows(0, "orders", 0, 500)


@pytest.mark.usefixtures("doubtful")
def test_rows_in_doubt_are_skipped_where_that_is_asked_for(network: Network, location: Path) -> None:
    commit(location, network.url, "batch-0", [], on_undecided="skip")
    bodies = network.bodies()
    assert len(bodies) == len(set(bodies))
    missing = set(rows(0, "orders", 0, 2000)) - set(bodies)
    assert missing <= set(rows(0, "orders", 500, 20))  # counted as sent, though they were not


@pytest.mark.usefixtures("doubtful")
def test_rows_in_doubt_are_sent_again_where_that_is_asked_for(network: Network, location: Path) -> None:
    with pytest.raises(RowsInDoubt):
        commit(location, network.url, "batch-0", [])
    commit(location, network.url, "batch-0", [], on_undecided="resend")
    bodies = network.bodies()
    assert bodies[:500] == rows(0, "orders", 0, 500)
    assert bodies[500:] == rows(0, "orders", 0, 2000)
    assert network.faults() == []


@pytest.fixture
def forgetful(network: Network) -> None:
    """Loses the connection with 500 messages under way, once, and says then that it knows the publisher no more."""
    events: list[str] = []

    def refuses(event: Event) -> bool:
        if isinstance(event, LinkAttaching):
            events.append("attach")
            network.fake.refuse_with = "onceway:publisher-expired" if len(events) == 3 else None
        return False

    def drops(event: Event) -> bool:
        if isinstance(event, Transfers) and len(network.fake.published) == 500 and events == ["attach"]:
            events.append("drop")
            network.fake.hold_outcomes = False
            return True
        return False

    def prepare(fake: FakeNetwork) -> None:
        fake.hold_outcomes, fake.drop_when, fake.drop_unsent = True, refuses, drops

    network.do(prepare)


@pytest.mark.usefixtures("forgetful")
def test_a_publisher_forgotten_while_it_is_away_stops_and_says_why(network: Network, location: Path) -> None:
    part: Part = [("orders", body) for body in rows(0, "orders", 0, 2000)]
    with pytest.raises(
        RowsInDoubt, match=r"\(orders: onceway:publisher-expired.*in doubt of 2000; namely orders number 0"
    ):
        commit(location, network.url, "batch-0", staged(location, "batch-0", [part]))
    commit(location, network.url, "batch-0", [], on_undecided="skip")
    bodies = network.bodies()
    assert len(bodies) == len(set(bodies))
    assert bodies[-1] == part[-1][1]


@pytest.mark.usefixtures("forgetful")
def test_a_publisher_forgotten_while_it_is_away_sends_again_where_that_is_asked_for(
    network: Network, location: Path
) -> None:
    part: Part = [("orders", body) for body in rows(0, "orders", 0, 2000)]
    commit(location, network.url, "batch-0", staged(location, "batch-0", [part]), on_undecided="resend")
    bodies = network.bodies()
    assert set(bodies) == {body for _, body in part}
    assert {body for body in bodies if bodies.count(body) > 1} == set(rows(0, "orders", 0, 500))  # those in doubt
    assert network.faults() == []
    assert network.unsettled() == 0


def test_no_outcome_for_too_long_fails_the_query_and_a_restart_goes_on(
    network: Network, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def patient(url: str, *, connect_timeout_s: float, **options: Any) -> Connection:
        """What is too long here is not what it may take to be connected."""
        return connect(url, connect_timeout_s=BOUND_S, **options)

    monkeypatch.setattr(publishing, "connect", patient)
    network.do(lambda fake: setattr(fake, "hold_outcomes", True))
    with pytest.raises(PublishFailed, match=r"no outcome for 0.5 s \(publishTimeout\); orders: none decided of 120"):
        commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)), timeout_s=0.5)
    network.do(lambda fake: fake.release_outcomes())
    commit(location, network.url, "batch-0", [])
    check(network, 0)


def test_no_router_fails_the_query_and_says_which(location: Path) -> None:
    files = staged(location, "batch-0", parts(0))
    with pytest.raises(PublishFailed, match=r"no router reached within 2 s \(amqp://127.0.0.1:1: Connection refused"):
        commit(location, "amqp://127.0.0.1:1", "batch-0", files, timeout_s=2.0)


def test_a_full_disk_stops_it_and_room_lets_it_go_on(
    network: Network, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = journal._append, []

    def full(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(*arguments)

    monkeypatch.setattr(journal, "_append", full)
    with pytest.raises(JournalFull, match="no room left for the outbox; make room and restart the query"):
        commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0, 400)))
    monkeypatch.undo()
    commit(location, network.url, "batch-0", [])
    check(network, 0, count=400)


def test_it_ends_with_the_driver(network: Network, location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network.do(lambda fake: setattr(fake, "hold_outcomes", True))
    monkeypatch.setattr(os, "getppid", lambda: 1 if network.bodies() else 4242)
    with pytest.raises(PublishFailed, match="the driver has gone; orders: none decided of 120"):
        commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    monkeypatch.undo()
    network.do(lambda fake: fake.release_outcomes())
    commit(location, network.url, "batch-0", [])
    check(network, 0)


def test_it_ends_with_the_driver_though_there_is_no_network(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver that is started in its place wants the outbox."""
    parents = iter([4242, 4242])
    monkeypatch.setattr(os, "getppid", lambda: next(parents, 1))
    with pytest.raises(PublishFailed, match="the driver has gone; orders: none decided of 120"):
        commit(location, "amqp://127.0.0.1:1", "batch-0", staged(location, "batch-0", parts(0)))


# -- what is kept


def test_a_batch_from_before_is_known_after_its_manifest_was_cleaned_away(network: Network, location: Path) -> None:
    for batch in range(3):
        name = f"batch-{batch}"
        commit(location, network.url, name, staged(location, name, parts(batch)), retention_s=0)
    assert sorted(path.name for path in location.iterdir()) == ["journal", "lock", "outbox.json"]
    commit(location, network.url, "batch-1", staged(location, "batch-1", parts(1)))
    check(network, 0, 1, 2)


def test_a_file_that_the_driver_does_not_see_is_named(network: Network, location: Path) -> None:
    files = staged(location, "batch-0", parts(0))
    path = Outbox(str(location)).directory("batch-0") / files[1].name
    path.unlink()
    with pytest.raises(OutboxError, match=r"the driver sees no such file; outboxLocation must be one directory"):
        commit(location, network.url, "batch-0", files)
    assert network.bodies() == []
    assert not Outbox(str(location)).decided("batch-0")


def test_an_aborted_batch_leaves_nothing_unless_it_was_decided(network: Network, location: Path) -> None:
    outbox = Outbox(str(location))
    files = staged(location, "batch-0", parts(0))
    outbox.discard("batch-0", files)
    assert not outbox.directory("batch-0").exists()
    files = staged(location, "batch-0", parts(0))
    network.do(lambda fake: setattr(fake, "refuse_with", "amqp:not-found"))
    with pytest.raises(PublishFailed):
        commit(location, network.url, "batch-0", files)
    outbox.discard("batch-0", files)  # as Spark does after a commit that failed
    network.do(lambda fake: setattr(fake, "refuse_with", None))
    commit(location, network.url, "batch-0", [])
    check(network, 0)


def test_what_killed_attempts_have_staged_is_cleaned_away(network: Network, location: Path) -> None:
    staged(location, "batch-0", parts(0))
    commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    staged(location, "batch-0", parts(0))
    staged(location, "batch-2", parts(2))  # not decided yet
    commit(location, network.url, "batch-1", staged(location, "batch-1", parts(1)), retention_s=0)
    assert sorted(path.name for path in location.iterdir() if path.is_dir()) == ["batch-2"]
    check(network, 0, 1)


def test_a_write_that_is_given_up_while_another_one_cleans_does_not_matter(
    network: Network, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Outbox._staged

    def given_up(outbox: Outbox) -> set[str]:
        """Its directory goes when it has been seen; no lock is asked for that."""
        files = staged(location, "job-0a", parts(1))
        names = looked(outbox)
        Outbox(str(location)).discard("job-0a", files)
        return names

    monkeypatch.setattr(Outbox, "_staged", given_up)
    commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    assert (location / "batch-0.done").exists()
    assert not (location / "job-0a").exists()
    check(network, 0)


def test_a_lost_journal_is_not_begun_anew(network: Network, location: Path) -> None:
    commit(location, network.url, "batch-0", staged(location, "batch-0", parts(0)))
    (location / "journal").unlink()
    with pytest.raises(OutboxError, match="journal: is missing, though batches were published"):
        commit(location, network.url, "batch-1", staged(location, "batch-1", parts(1)))


def test_a_torn_last_line_is_cut_and_damage_before_it_is_refused(location: Path) -> None:
    location.mkdir()
    path = location / "journal"

    def life(*operations: list[Any]) -> OutboxJournal:
        journal = OutboxJournal(path, "id")
        journal.open("x", lambda: None)
        for operation in operations:
            journal._write_later(operation)
        journal.close()
        journal.release()
        return journal

    life(["mark", "orders", 10])
    life(["forget", "orders", 0, 3, "accepted"])
    whole = path.read_bytes()
    life(["forget", "orders", 4, 9, "accepted"])
    longer = path.read_bytes()
    for cut in range(len(whole), len(longer)):
        path.write_bytes(longer[:cut])
        again = life()
        assert again.topic("orders").tally(0, 10) == {"accepted": 4}
        assert path.read_bytes() == whole
    path.write_bytes(longer.replace(b'"accepted"]]\n', b'"acceptee"]]\n', 1))
    with pytest.raises(JournalCorrupt, match="damaged, or the journal of another outbox"):
        life()


def test_a_long_journal_is_written_anew_and_says_the_same(location: Path) -> None:
    location.mkdir()
    journal = OutboxJournal(location / "journal", "id")
    journal.open("x", lambda: None)
    for number in range(20_000):
        journal._write_later(["contact", "orders", number, 120.0])
    journal._write_later(["attach", "orders", 7, 5])
    journal._write_later(["mark", "orders", 300])
    journal._write_later(["forget", "orders", 10, 20, "rejected"])
    journal.close()
    journal.release()
    before = (location / "journal").stat().st_size
    again = OutboxJournal(location / "journal", "id")
    again.release()
    assert (location / "journal").stat().st_size < before / 100
    third = OutboxJournal(location / "journal", "id")
    third.release()
    assert third.topics == again.topics
    state = third.topic("orders")
    assert (state.epoch, state.incarnation, state.contact_us, state.mark) == (7, 5, 19_999, 300)
    assert state.tally(0, 100) == {"rejected": 11}


def _by_body(payload: bytes, states: dict[bytes, Any]) -> Any:
    return next((state for body, state in states.items() if payload.endswith(body)), ACCEPTED)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end, "does not come"
        time.sleep(0.01)
