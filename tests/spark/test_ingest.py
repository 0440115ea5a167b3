"""The ingest in a process of its own, on a real router: killed at every crash window, doubled, starved of disk.

What is judged is always the same: the log holds every message that was published once, in the publisher's order.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from amqp10.sections import Message
from onceway.spark.errors import DataLoss, IngestFailed, WalForeign
from onceway.spark.source.journal import GAPS, Gap, GapFile
from onceway.spark.source.stream import Offset, Stream
from onceway.spark.wal import Step, Wal
from tests.live import LiveNetwork, wait_until
from tests.spark import logs
from tests.spark.logs import gap_file
from tests.spark.networks import PATIENT, WITHIN_S, Publishing, Source, away, batch, bodies, ends, left_waiting

MakeSource = Callable[..., Source]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    """One router for all that leave it alone; each test has a topic of its own."""
    addresses = [
        {"match": "brief-declared", "subscription_timeout": "1s", "subscriptions": ["billing"]},
        {"match": "brief*", "subscription_timeout": "1s"},
    ]
    with LiveNetwork(tmp_path_factory.mktemp("network"), ("a",), addresses=addresses, settings=PATIENT) as network:
        yield network.start()


@pytest.fixture
def source(network: LiveNetwork, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MakeSource]:
    made: list[Source] = []

    def make(topic: str = request.node.name, urls: str = "", **options: str) -> Source:
        made.append(Source(urls or network.urls(), topic, tmp_path / f"wal{len(made)}", **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def process(stream: Stream) -> subprocess.Popen[bytes]:
    """Of its one ingest."""
    (ingest,) = stream._ingests._ingests
    return ingest._process


def failure(stream: Stream) -> str:
    """Why its ingest cannot go on, once it cannot."""
    (ingest,) = stream._ingests._ingests
    return str(wait_until(lambda: ingest.failure, "the ingest fails"))


def restarted(stream: Stream, times: int = 1) -> None:
    """Its ingest has died so often, and the next one is attached."""
    wait_until(lambda: stream.report()["restarts"] >= times, f"the ingest is started again, {times} times")
    up(stream)


def up(stream: Stream) -> None:
    (ingest,) = stream._ingests._ingests
    wait_until(lambda: ingest.ready or stream._ingests.check(), "the ingest has recovered the log")


def crash_at(monkeypatch: pytest.MonkeyPatch, place: str, count: int) -> None:
    command = (sys.executable, "-m", "tests.spark.crashing_ingest", place, str(count))
    monkeypatch.setattr("onceway.spark.source.ingests.COMMAND", command)


def test_available_now_receives_what_is_waiting_and_no_more(network: LiveNetwork, source: MakeSource) -> None:
    orders = source("waiting")
    first = orders.start()
    first.freeze()
    first.stop()
    publishing = left_waiting(network["a"], "waiting", bodies(500))
    again = orders.start()
    again.freeze()
    assert again.report()["accepted"] == 500
    end, values = batch(again)
    publishing.join()
    assert values == bodies(500)
    Publishing(network.urls(), "waiting", bodies(1)).join()
    assert again.latest(end, limited=False) == end


@pytest.mark.parametrize(("place", "count"), [("torn", 3), ("unaccepted", 2)])  # each: test_wal_crash, test_journal
def test_killed_at_a_crash_window_it_is_started_again_and_every_row_is_there_once(
    network: LiveNetwork,
    source: MakeSource,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    count: int,
) -> None:
    orders = source(f"killed-{place}")
    with monkeypatch.context() as patch:
        crash_at(patch, place, count)
        stream = orders.start()
    dying = process(stream).pid
    Publishing(network.urls(), f"killed-{place}", bodies(2000), pace_s=0.002).join()
    _, rows = batch(stream)
    assert rows == bodies(2000)
    assert orders.everything() == bodies(2000)
    assert stream.report()["restarts"] == 1
    said = f"onceway: the ingest (process {dying}) was killed by signal 9; starting it again in 0.5 s\n"
    assert capsys.readouterr().err == said


def test_an_ingest_to_which_nothing_happens_is_not_silent(network: LiveNetwork, source: MakeSource) -> None:
    stream = source("idle").start()
    up(stream)
    (ingest,) = stream._ingests._ingests
    heard: list[dict[str, Any]] = []
    ingest._hear = lambda text: heard.append(json.loads(text))  # type: ignore[method-assign]
    wait_until(lambda: len(heard) >= 3, "three words")
    states = [line["state"]["state"] for line in heard]
    assert states == ["receiving"] * len(states)


def test_available_now_has_an_end_while_a_publisher_goes_on(network: LiveNetwork, source: MakeSource) -> None:
    orders = source("steady", subscription="steady")
    first = orders.start()
    first.freeze()
    publishing = Publishing(network.urls(), "steady", bodies(20_000), pace_s=0.05)  # for 10 s at least
    log = first.wal.slot(0)
    wait_until(lambda: log.end() > 100, "some rows are there", WITHIN_S)
    there = log.end()
    first.freeze()
    assert not publishing.over
    end, values = batch(first)
    assert there <= len(values) < 20_000
    publishing.join()
    assert log.end() == 20_000
    assert first.latest(end, limited=False) == end


def test_an_ingest_that_is_being_started_again_says_so_in_the_progress(
    network: LiveNetwork, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.spark.source.ingests.AGAIN_AFTER_S", 3600.0)
    stream = source("progress").start()
    Publishing(network.urls(), "progress", bodies(10)).join()
    wait_until(lambda: stream.report()["accepted"] == 10, "they are in the log")
    process(stream).kill()
    wait_until(lambda: stream.report()["state"] == "restarting", "its death is seen")
    report = stream.report()
    assert (report["attached"], report["accepted"], report["restarts"]) == (0, 10, 0)
    assert batch(stream)[1] == bodies(10)
    stream.stop()  # does not wait for it


def test_available_now_asks_the_next_ingest_where_one_died(
    network: LiveNetwork, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = source("now")
    first = orders.start()
    first.freeze()
    first.stop()
    publishing = left_waiting(network["a"], "now", bodies(500))
    with monkeypatch.context() as patch:
        crash_at(patch, "synced", 2)
        second = orders.start()
    second.freeze()
    assert second.report()["restarts"] == 1
    assert batch(second)[1] == bodies(500)
    publishing.join()


def test_a_gap_goes_with_the_rows_around_it(network: LiveNetwork, source: MakeSource) -> None:
    orders = source("gap", segmentBytes="64KiB", walRetention="0s", failOnDataLoss="false")
    first = orders.start()
    Publishing(network.urls(), "gap", bodies(2000, size=100)).join()
    first.stop()
    gaps = gap_file(orders.location)
    gaps.write(gaps.read().born, [Gap(5, "away for 90 s")])
    stream = orders.start()
    up(stream)
    at = stream.initial()
    for _ in range(3):
        at, _ = batch(stream, at)
        stream.commit(at)
        Publishing(network.urls(), "gap", bodies(2000, size=100)).join()

    def gone() -> bool:
        nonlocal at
        at, _ = batch(stream, at)
        stream.commit(at)
        Publishing(network.urls(), "gap", bodies(1)).join()
        return not gaps.read().known

    wait_until(gone, "the gap is taken out")
    assert stream.wal.slot(0).start() > 5


def test_a_zombie_loses_link_and_log_where_no_lock_holds_it_back(
    network: LiveNetwork, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.spark.source.ingests.SILENT_S", 3600.0)  # nobody takes it for hung
    orders = source("zombie")
    zombie = orders.start()
    publishing = Publishing(network.urls(), "zombie", bodies(4000), pace_s=0.005)
    wait_until(lambda: zombie.wal.slot(0).end() > 500, "some rows are durable")
    os.kill(process(zombie).pid, signal.SIGSTOP)
    (orders.location / "0" / "lock").unlink()  # as on a file system whose locks do not reach other hosts
    second = orders.start()
    up(second)
    os.kill(process(zombie).pid, signal.SIGCONT)
    assert failure(zombie).startswith(("LinkStolen: ", "WalFenced: "))
    publishing.join()
    assert batch(second)[1] == bodies(4000)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounts a small tmpfs: needs root")
def test_a_disk_that_is_really_full(network: LiveNetwork, source: MakeSource, tmp_path: Path) -> None:
    small = tmp_path / "wal0"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        orders = source("small")
        first = orders.start()
        publishing = Publishing(network.urls(), "small", bodies(2000, size=1000))
        said = failure(first)
        assert said.startswith("WalFull: ")
        assert "make room and start again" in said
        assert not publishing.over
        subprocess.run(["mount", "-o", "remount,size=16m", small], check=True)
        second = orders.start()
        publishing.join()
        assert batch(second)[1] == bodies(2000, size=1000)
        orders.close()
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_a_full_backlog_stops_credit_until_spark_has_processed(network: LiveNetwork, source: MakeSource) -> None:
    stream = source("backlog", maxBacklogBytes="1MiB", credit="200").start()
    publishing = Publishing(network.urls(), "backlog", bodies(6000, size=1000))
    wait_until(lambda: stream.report()["state"] == "backlogged", "receiving stops")
    at, values = batch(stream)
    assert len(values) < 2000
    assert not publishing.over

    def rest() -> bool:
        nonlocal at
        at, more = batch(stream, at)
        values.extend(more)
        stream.commit(at)
        return publishing.over

    wait_until(rest, "all are published", WITHIN_S)
    publishing.join()
    values += batch(stream, at)[1]
    assert values == bodies(6000, size=1000)


def test_a_checkpoint_rolled_back_within_the_retention_reads_the_same_rows(
    network: LiveNetwork, source: MakeSource
) -> None:
    orders = source("rolled", segmentBytes="64KiB", walRetention="1h")
    first = orders.start()
    start = first.initial()
    offsets = [start]
    for _ in range(4):
        Publishing(network.urls(), "rolled", bodies(500, size=100)).join()
        offsets.append(first.latest(offsets[-1], limited=False))
        first.commit(offsets[-1])
    first.stop()
    assert batch(orders.start(), start)[1] == bodies(500, size=100) * 4


def test_a_subscription_that_was_away_for_too_long_fails_the_query_until_that_is_acknowledged(
    network: LiveNetwork, source: MakeSource
) -> None:
    orders = source("brief")
    first = orders.start()
    Publishing(network.urls(), "brief", bodies(10)).join()
    at, _ = batch(first)
    first.stop()
    forgotten = lambda: not network["a"].status()["addresses"]["brief"]["subscriptions"]  # noqa: E731
    wait_until(forgotten, "the network has given the subscription up")
    second = orders.start()
    up(second)
    Publishing(network.urls(), "brief", bodies(5)).join()
    second.stop()
    for _ in range(2):
        again = orders.start()
        with pytest.raises(DataLoss, match=r"messages of topic brief may be missing before row 10 of slot 0") as said:
            again.latest(at, limited=False)
        again.stop()
    loss = str(said.value).removeprefix("loss ").partition(":")[0]
    assert batch(orders.start(acknowledgeLoss=loss), at)[1] == bodies(5)


def test_available_now_less_often_than_the_timeout_misses_nothing_of_a_declared_subscription(
    network: LiveNetwork, source: MakeSource
) -> None:
    attached, declared = source("brief-attached"), source("brief-declared")

    def run(orders: Source, start: Offset | None = None) -> tuple[Offset, list[bytes]]:
        stream = orders.start()
        try:
            stream.freeze()
            return batch(stream, start)
        finally:
            stream.stop()

    at, _ = run(declared)
    other, _ = run(attached)
    for waiting in (0, 1):  # at first nothing was published
        wait_until(
            lambda: "brief-attached" not in network["a"].status()["addresses"],
            "an attached one is given up after as long",
        )
        publishing = left_waiting(network["a"], "brief-declared", bodies(waiting))
        at, values = run(declared, at)
        publishing.join()
        assert values == bodies(waiting)
        with pytest.raises(DataLoss, match="declare it in the topology file"):
            run(attached, other)


def test_partitions_share_a_topic_and_keep_each_publishers_order_though_receivers_are_killed(
    network: LiveNetwork, source: MakeSource
) -> None:
    orders = source("shared", partitions="3", receivers="2")
    stream = orders.start()
    wait_until(lambda: stream.report()["attached"] == 3, "all partitions are attached")
    messages = [
        Message(b"%d" % number, message_annotations={"x-opt-partition-key": f"k{number % 7}"}) for number in range(3000)
    ]
    keyed = Publishing(network.urls(), "shared", messages, pace_s=0.01)
    wait_until(lambda: stream.wal.slot(0).end() > 100, "some rows are durable")
    for ingest in stream._ingests._ingests:  # type: ignore[attr-defined]
        ingest._process.kill()
    keyed.join()
    start = stream.initial()
    end = stream.latest(start, limited=False)
    found = logs.rows(stream.ranges(start, end), "partition", "key", "value")
    assert sorted(int(value) for _, _, value in found) == list(range(3000))
    partitions = {key: {slot for slot, other, _ in found if other == key} for _, key, _ in found}
    assert all(len(slots) == 1 for slots in partitions.values())
    assert len(set().union(*partitions.values())) > 1
    for key in partitions:
        values = [int(value) for _, other, value in found if other == key]
        assert values == sorted(values)
    names = {one["name"] for one in network["a"].status()["addresses"]["shared"]["subscriptions"]}
    assert names == {"billing.0-of-3", "billing.1-of-3", "billing.2-of-3"}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place in an object store."""
    from tests.spark.buckets import Server

    server = Server()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield "s3://logs/orders"
    server.stop()


@pytest.mark.parametrize(
    ("place", "kind"),
    [("begun", ""), ("drained", ""), ("ended", ""), ("ended", "declared"), ("drained", "bucket")],
)
def test_the_number_of_partitions_changes_under_load_though_the_change_is_killed(
    network: LiveNetwork, source: MakeSource, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
    place: str, kind: str,
) -> None:  # fmt: skip
    topic = f"rearranged-{kind}-{place}"
    where = {"walLocation": request.getfixturevalue("bucket"), "groupRows": "50000"} if kind == "bucket" else {}
    orders = source(topic, partitions="2", receivers="1", **where)
    location = where.get("walLocation", str(orders.location))

    def declare(*numbers: int) -> None:
        if kind == "declared":
            names = [f"billing.{one}-of-{number}" for number in numbers for one in range(number)]
            _redeclare(network, topic, names)

    declare(2)
    stream = orders.start()
    wait_until(lambda: stream.report()["attached"] == 2, "all partitions are attached")
    publishing = [
        Publishing(
            network.urls(),
            topic,
            [
                Message(b"%d" % number, message_annotations={"x-opt-partition-key": f"{name}{number % 7}"})
                for number in range(6000)
            ],
            pace_s=0.02,
            name=f"{name} of {topic}",
        )
        for name in ("left", "right")
    ]
    wait_until(lambda: stream.wal.slot(0).end() > 200, "some rows are durable")
    at, found = _next(stream, stream.initial())
    stream.stop()
    with pytest.raises(WalForeign, match=r"partitions=2, not 3.*changePartitions=true"):
        orders.start(partitions="3")
    declare(2, 3)
    with monkeypatch.context() as patch:
        crash_at(patch, f"change-{place}", 1)
        patch.setattr("onceway.spark.source.ingests.Lives.died", lambda *_, **__: None)  # nor is there a driver
        with pytest.raises(IngestFailed, match="died"):
            orders.start(partitions="3", changePartitions="true")
    changed = Wal.open(location)
    assert changed.in_change()
    if place == "begun":  # one that froze behind its first attach leaves this
        GapFile(changed.document("2/gaps.json", GAPS)).write(1, ())
    with pytest.raises(WalForeign, match=r"is being changed to partitions=3"):
        orders.start(partitions="4", changePartitions="true")
    stream = orders.start(partitions="3")  # the query said it once
    assert not all(each.over for each in publishing)  # the change was under load
    declare(3)
    for each in publishing:
        each.join()
    before = set(stream.wal.before)
    at, old = _next(stream, at)
    assert {slot for slot, _, _ in old} <= before
    at, new = _next(stream, at)
    assert not before & {slot for slot, _, _ in new}
    found += old + new
    names = {one["name"] for one in network["a"].status()["addresses"][topic]["subscriptions"]}
    assert names == {"billing.0-of-3", "billing.1-of-3", "billing.2-of-3"}
    for name in ("left", "right"):
        assert sorted(int(value) for _, key, value in found if key.startswith(name)) == list(range(6000))
    for key in {key for _, key, _ in found}:
        values = [int(value) for _, other, value in found if other == key]
        assert values == sorted(values)
    orders.close()  # before the store


def test_a_change_of_partitions_that_was_frozen_in_its_write_and_followed_by_another_ends_nothing(
    network: LiveNetwork, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.spark.source.ingests.SILENT_S", 3600.0)  # nobody takes it for hung
    monkeypatch.setattr("onceway.spark.source.ingests.Lives.died", lambda *_, **__: None)
    orders = source("followed", partitions="2", receivers="1")
    orders.start().freeze()
    Publishing(network.urls(), "followed", bodies(100)).join()
    orders.close()
    with monkeypatch.context() as patch, ThreadPoolExecutor() as thread:
        crash_at(patch, "change-frozen", 2)  # between its look at the manifest and its write of a step
        frozen = thread.submit(orders.start, partitions="3", changePartitions="true")
        pid = wait_until(lambda: _stopped(orders.location / "0" / "lock"), "it has drained, and stands still")
        for slot in range(5):
            (orders.location / str(slot) / "lock").unlink()  # as on a file system whose locks do not reach other hosts
        crash_at(patch, "change-begun", 1)
        with pytest.raises(IngestFailed, match="died"):
            orders.start(partitions="3")
        os.kill(pid, signal.SIGCONT)
        with pytest.raises(IngestFailed, match="WalFenced"):
            frozen.result(WITHIN_S)
    assert Wal.open(str(orders.location)).in_change(Step.DRAINING)
    stream = orders.start(partitions="3")
    assert sorted(batch(stream)[1]) == sorted(bodies(100))


def _stopped(lock: Path) -> int | None:
    """The process that holds it, once it stands still."""
    pid = int(json.loads(lock.read_text())["pid"])
    try:
        return pid if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T" else None
    except FileNotFoundError:
        return None


def _redeclare(network: LiveNetwork, topic: str, names: list[str]) -> None:
    """The topology file declares these of the topic from now on."""
    content = yaml.safe_load(network.topology_path.read_text())
    others = [one for one in content["addresses"] if one["match"] != topic]
    declared = [{"container": "billing", "name": name} for name in names]
    content["addresses"] = [*others, {"match": topic, "subscriptions": declared}]
    network.topology_path.write_text(yaml.safe_dump(content))
    os.kill(network["a"].pid, signal.SIGHUP)
    known = lambda: network["a"].status()["addresses"].get(topic, {}).get("subscriptions", [])  # noqa: E731
    wait_until(lambda: {one["name"] for one in known()} == set(names), "the router follows the file")


def _next(stream: Stream, start: Offset) -> tuple[Offset, list[tuple[int, str, bytes]]]:
    end = stream.latest(start, limited=False)
    return end, logs.rows(stream.ranges(start, end), "partition", "key", "value")


def test_a_lost_log_is_told_and_what_waits_for_its_subscription_is_taken_over_if_wanted(
    network: LiveNetwork, source: MakeSource
) -> None:
    orders = source("lost")
    first = orders.start()
    Publishing(network.urls(), "lost", bodies(10)).join()
    batch(first)
    second = source("lost")  # another log of this name
    said = failure(second.start())
    assert "subscription 'billing' of topic 'lost' has another log than" in said
    assert "is attached at router a" in said
    Publishing(network.urls(), "lost", bodies(10, 10)).join()
    assert batch(first)[1] == bodies(20)  # and the first one has not noticed
    first.stop()
    shutil.rmtree(orders.location)
    publishing = left_waiting(network["a"], "lost", bodies(5, 20))
    said = failure(orders.start())
    assert "is away, and waited for" in said
    assert "(adopt=true), or have it forgotten" in said
    assert "onceway admin subscription drop lost billing billing" in said
    adopting = orders.start(adopt="true")
    publishing.join()
    assert batch(adopting)[1] == bodies(5, 20)


def test_topics_are_spread_over_receivers_whose_number_may_change_while_a_batch_is_pending(
    network: LiveNetwork, source: MakeSource
) -> None:
    topics = ["spread0", "spread1", "spread2"]
    orders = source(",".join(topics), receivers="2")

    def publish() -> None:
        for publishing in [Publishing(network.urls(), topic, bodies(500)) for topic in topics]:
            publishing.join()

    stream = orders.start()
    publish()
    assert [ingest.slots for ingest in stream._ingests._ingests] == [(0, 2), (1,)]
    start = stream.initial()
    end, values = batch(stream, start)
    assert sorted(values) == sorted(bodies(500) * 3)
    stream.stop()
    fewer = orders.start(receivers="1")
    assert logs.rows(fewer.ranges(start, end)) == values  # the first call after a restart
    publish()
    assert sorted(batch(fewer, end)[1]) == sorted(bodies(500) * 3)


def test_sigterm_ends_an_ingest_in_good_order_however_often_it_comes(
    network: LiveNetwork, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.spark.source.ingests.AGAIN_AFTER_S", 3600.0)
    stream = source("terminated").start()
    up(stream)
    for _ in range(3):
        process(stream).terminate()
    assert process(stream).wait(WITHIN_S) == 0
    away(network["a"], "terminated")


def test_nobody_at_the_url_is_said_with_what_each_answered(source: MakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceway.spark.source.ingests.CONNECT_WITHIN_S", 2.0)
    stream = source("nobody", urls="amqp://127.0.0.1:1").start()
    assert failure(stream) == (
        "ConnectionFailed: no router reached within 2 s (amqp://127.0.0.1:1: Connection refused)"
    )
    with pytest.raises(IngestFailed, match="Connection refused"):
        stream.freeze()


def test_an_ingest_dies_with_the_process_that_started_it(network: LiveNetwork, tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from onceway.spark.options import source_options\n"
        "from onceway.spark.source.stream import Stream\n"
        f"stream = Stream(source_options({{'url': {network.urls()!r}, 'topic': 'orphan', 'subscription': 's',\n"
        f"    'walLocation': {str(tmp_path / 'wal')!r}}}, 'stream'))\n"
        "stream.begin()\n"
        "print(stream._ingests._ingests[0]._process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        pid = int(driver.stdout.readline())
        status = network["a"].status
        wait_until(lambda: status()["addresses"].get("orphan", {}).get("subscriptions"), "the ingest is attached")
        with ends(pid):
            driver.kill()
    assert Wal.open(str(tmp_path / "wal")).slot(0).end() == 0


def test_topics_by_pattern_are_taken_up_as_they_come(
    network: LiveNetwork, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.spark.source.topics.LOOK_EVERY_S", 0.1)
    shops = source("shop.*", topicPattern=r"shop\..*")
    del shops._options["topic"]

    def received(stream: Stream, *topics: tuple[str, list[bytes]]) -> Offset:
        """The end of a batch with all of it."""
        count = sum(len(rows) for _, rows in topics)
        end: Offset = wait_until(
            lambda: (end := stream.latest(start, limited=False)) and sum(end.positions.values()) >= count and end,
            f"{count} rows",
            WITHIN_S,
        )
        found = stream.ranges(start, end)
        for topic, wanted in topics:
            assert logs.rows([one for one in found if one.reader.topic == topic]) == wanted
        assert {one.reader.topic for one in found} == {topic for topic, _ in topics}
        return end

    first = shops.start()
    start = first.initial()
    assert start.positions == {}
    one = Publishing(network.urls(), "shop.one", bodies(300))  # held: nobody subscribes
    received(first, ("shop.one", bodies(300)))
    one.join()
    two = Publishing(network.urls(), "shop.two", bodies(20))
    received(first, ("shop.one", bodies(300)), ("shop.two", bodies(20)))
    two.join()
    first.stop()
    publishing = left_waiting(network["a"], "shop.two", bodies(5, 20))
    again = shops.start()
    again.freeze()
    received(again, ("shop.one", bodies(300)), ("shop.two", bodies(25)))
    publishing.join()
