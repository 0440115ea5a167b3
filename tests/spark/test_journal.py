"""The log as the client's journal: against a router played by hand, over lives of the process."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from amqp10.events import LinkAttaching
from amqp10.link import Link
from amqp10.outcomes import ACCEPTED, DeliveryState, Rejected
from amqp10.runs import Dispositions, LinkFlow
from amqp10.sender import SenderLink
from onceway.client.protocol.events import Arrived
from onceway.errors import UsageError
from onceway.spark.errors import WalDamaged, WalError
from onceway.spark.source.journal import WalJournal
from onceway.spark.wal import Wal, WalSettings
from onceway.spark.wal.fencing import DOCUMENTS
from tests.onceway.client.harness import Rig, epoch_of, map_of, number_of, payload
from tests.spark.disks import Quick
from tests.spark.slots import SUBSCRIPTION, TOPIC, WITHIN_S, Life, log, tag

SETTINGS = WalSettings(group_ms=0.0, lock_timeout_s=0.2)


class Watched(WalJournal):
    """Tells a test when something has become durable."""

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        self.moved = threading.Condition()
        return super().open(container, self._note)

    def _note(self) -> None:
        with self.moved:
            self.moved.notify_all()


class Ingest:
    """A process that receives into the log; what it receives from is `rig.router`."""

    def __init__(self, wal: Wal) -> None:
        self.wal = wal
        self.disk = Quick()
        self.journal = Watched(wal, [0], SETTINGS, disk=self.disk)
        self.rig = Rig(self.journal)
        self.writer = self.journal.writer(0)
        self.rig.connect()
        self.link = self.rig.subscriber(address=TOPIC, name=SUBSCRIPTION)

    def attaching(self) -> Link:
        """Its attach, which is still to be answered."""
        link = self.rig.attaching()
        self.rig.heard.append(LinkAttaching(link))
        return link

    def answer(self, unsettled: Mapping[bytes, DeliveryState | None] | None = None) -> SenderLink:
        link = self.rig.answer_subscriber(unsettled)
        self.catch_up()
        return link

    def catch_up(self) -> None:
        """What was written becomes durable, and the link goes on."""
        number = self.journal.sync()
        with self.journal.moved:
            assert self.journal.moved.wait_for(lambda: self.journal.durable >= number, timeout=WITHIN_S)
        self.rig.run()

    def deliver(self, link: SenderLink, *numbers: int) -> int:
        first = link.send([tag(number) for number in numbers], [payload(number) for number in numbers])
        self.rig.run()
        return first

    def take(self, accept: bool = True) -> list[bytes]:
        """Appends what has arrived, and accepts it when it is durable; returns the tags."""
        new: list[bytes] = []
        for event in self.link.take_events():
            if isinstance(event, Arrived):
                self.writer.append(event.payloads, event.tags)
                self.writer.drain()
                new += event.tags
                if accept:
                    self.link.decide(event.position, event.position + len(event.tags) - 1, ACCEPTED, self.rig.now)
        self.rig.run()
        return new

    def told(self) -> list[tuple[int, int, DeliveryState | None, bool]]:
        """Its dispositions since the last time."""
        return [(event.first_id, event.last_id, event.state, event.settled) for event in self.rig.take(Dispositions)]

    def close(self) -> None:
        self.journal.close()

    def die(self) -> None:
        """As if killed."""
        self.disk.alive = False
        with contextlib.suppress(WalError):
            self.journal.close()


def stored(wal: Wal) -> list[bytes]:
    """The tags of the log's rows."""
    reader = wal.slot(0)
    return [tag for batch in reader.read(0, reader.end(), ["delivery_tag"]) for tag in batch.column(0).to_pylist()]


def tags(*numbers: int) -> list[bytes]:
    return [tag(number) for number in numbers]


@pytest.fixture(autouse=True, scope="module")
def no_note_by_itself() -> Iterator[None]:
    """What is settled is noted when a life ends in good order, not after two seconds: a test may take its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onceway.spark.source.journal.SETTLED_EVERY_S", 3600.0)
        yield


@pytest.fixture
def wal(tmp_path: Path) -> Wal:
    return log(tmp_path)


def test_first_attach_makes_a_subscription_and_gets_no_credit_before_the_log_is_fenced(wal: Wal) -> None:
    ingest = Ingest(wal)
    attach = ingest.attaching()
    assert map_of(attach) is None
    assert epoch_of(attach) == number_of(attach, "onceway:born")
    assert not (Path(wal.location) / "0" / "epoch").exists()
    ingest.answer()
    assert (Path(wal.location) / "0" / "epoch").exists()
    assert [event.flow.link_credit for event in ingest.rig.take(LinkFlow)] == [100]
    ingest.close()


def test_accept_is_told_at_once_for_what_is_durable(wal: Wal) -> None:
    ingest = Ingest(wal)
    link = ingest.answer()
    first = ingest.deliver(link, 0, 1, 2)
    assert ingest.told() == []
    before = ingest.journal.sync()
    ingest.take()
    assert ingest.told() == [(first, first + 2, ACCEPTED, False)]
    assert ingest.journal.sync() == before  # it has written nothing
    assert stored(wal) == tags(0, 1, 2)
    ingest.close()


def test_accept_that_was_lost_in_a_crash_is_told_when_it_is_asked_for_and_nothing_is_appended_twice(wal: Wal) -> None:
    ingest = Ingest(wal)
    ingest.deliver(ingest.answer(), 0, 1, 2)
    ingest.take(accept=False)
    born = ingest.link._born
    ingest.die()
    ingest = Ingest(wal)
    attach = ingest.attaching()
    assert map_of(attach) == dict.fromkeys(tags(0, 1, 2), ACCEPTED)
    assert number_of(attach, "onceway:born") == born
    assert epoch_of(attach) > born
    link = ingest.answer({tag(1): None})
    assert ingest.writer.unsettled.tags() == tags(1)  # what the answer leaves out is settled
    resumed = link.resume(tag(1))
    first = ingest.deliver(link, 3)
    assert ingest.told() == [(resumed, resumed, ACCEPTED, False)]
    assert ingest.take() == tags(3)
    assert ingest.told() == [(first, first, ACCEPTED, False)]
    assert stored(wal) == tags(0, 1, 2, 3)
    ingest.close()


def test_repeat_of_a_whole_delivery_is_accepted_and_not_appended(wal: Wal) -> None:
    ingest = Ingest(wal)
    ingest.deliver(ingest.answer(), 0, 1)
    ingest.take(accept=False)
    ingest.die()
    ingest = Ingest(wal)
    link = ingest.answer({tag(0): None, tag(1): None})
    first = ingest.deliver(link, 0, 1, 2)  # from the start, as new transfers
    assert ingest.take() == tags(2)
    assert ingest.told() == [(first, first + 1, ACCEPTED, False), (first + 2, first + 2, ACCEPTED, False)]
    assert stored(wal) == tags(0, 1, 2)
    ingest.close()


def test_what_the_network_has_settled_is_not_presented_after_a_clean_end(wal: Wal) -> None:
    ingest = Ingest(wal)
    link = ingest.answer()
    first = ingest.deliver(link, 0, 1, 2, 3)
    ingest.take()
    link.settle(first + 1, first + 2)
    ingest.rig.run()
    assert ingest.writer.unsettled.tags() == tags(0, 3)
    ingest.close()
    ingest = Ingest(wal)
    assert map_of(ingest.attaching()) == dict.fromkeys(tags(0, 3), ACCEPTED)
    ingest.close()


def test_after_a_crash_too_much_may_be_presented_and_is_forgotten_with_the_answer(wal: Wal) -> None:
    ingest = Ingest(wal)
    link = ingest.answer()
    first = ingest.deliver(link, 0, 1, 2)
    ingest.take()
    link.settle(first, first + 2)
    ingest.rig.run()
    ingest.die()  # the note of it was not written
    ingest = Ingest(wal)
    assert map_of(ingest.attaching()) == dict.fromkeys(tags(0, 1, 2), ACCEPTED)
    ingest.answer({})
    assert ingest.writer.unsettled.tags() == []
    ingest.close()
    assert Ingest(wal).journal.subscriber(TOPIC, SUBSCRIPTION).record.unsettled == {}


def test_note_of_what_is_settled_never_covers_rows_that_are_not_durable(wal: Wal) -> None:
    """Their numbers are given again, to deliveries that are not settled."""
    life = Life(wal, settings=WalSettings(group_ms=1e9))
    life.append(tags(0, 1, 2))  # gathering
    life.part.settle(tags(0, 1, 2))  # the network dropped them meanwhile
    life.part.contact(1, 1.0)
    life.sync()
    life.die()
    life = Life(wal, epoch=20)
    assert life.writer.end == 0
    life.until(life.append([b"a", b"b", b"c"]))
    life.die()
    life = Life(wal, epoch=30)
    assert list(life.part.record.unsettled) == [b"a", b"b", b"c"]
    life.close()


def test_tags_that_are_not_settled_are_found_wherever_their_rows_lie(wal: Wal) -> None:
    life = Life(wal, settings=WalSettings(group_rows=700, group_ms=0.0, segment_bytes=50_000))
    life.append([tag(row) for row in range(30_000)])
    life.writer.drain()
    kept = [*range(3, 5000, 7), 18_000, 29_990, 29_999]
    life.part.settle([tag(row) for row in sorted(set(range(30_000)) - set(kept))])
    life.close()
    life = Life(wal, epoch=20)
    assert life.part.record.unsettled == dict.fromkeys(tags(*kept), b"\x00\x53\x24\x45")
    assert life.writer.unsettled.ranges()[-2:] == [(29_990, 29_991), (29_999, 30_000)]
    life.close()


def test_lost_connection_resumes_without_handing_on_what_is_in_the_log(wal: Wal) -> None:
    ingest = Ingest(wal)
    ingest.deliver(ingest.answer(), 0, 1)
    ingest.take()
    epochs = (Path(wal.location) / "0" / "epoch").read_bytes()
    ingest.rig.reconnect()
    ingest.catch_up()
    assert map_of(ingest.attaching()) == dict.fromkeys(tags(0, 1), ACCEPTED)
    link = ingest.answer(dict.fromkeys(tags(0, 1)))
    assert (Path(wal.location) / "0" / "epoch").read_bytes() == epochs  # one process, one epoch of the log
    first = ingest.deliver(link, 0, 1, 2)
    assert ingest.take() == tags(2)
    assert stored(wal) == tags(0, 1, 2)
    assert first >= 0
    ingest.close()


def test_epoch_born_contact_and_timeout_last(wal: Wal) -> None:
    life = Life(wal, epoch=77)
    life.part.contact(123, 60.0)
    life.sync()
    life.die()
    record = Watched(wal, [0], SETTINGS)
    record.open(None, lambda: None)
    known = record.subscriber(TOPIC, SUBSCRIPTION).record
    assert (known.epoch, known.born, known.timeout_s) == (77, 77, 60.0)
    assert known.contact_us == pytest.approx(123, abs=100_000)  # by the clock of the boot
    record.close()


def test_subscription_that_was_never_answered_has_no_born(wal: Wal) -> None:
    Ingest(wal).die()
    ingest = Ingest(wal)
    assert map_of(ingest.attaching()) is None
    assert number_of(ingest.attaching(), "onceway:born") == ingest.link._epoch
    ingest.close()


def test_link_closed_for_good_forgets_its_tags_and_the_rows_stay(wal: Wal) -> None:
    life = Life(wal)
    life.group(3)
    life.part.close()
    life.sync()
    life.close()
    life = Life(wal, epoch=20)
    assert (life.part.record.unsettled, life.part.record.born) == ({}, 20)
    assert wal.slot(0).end() == 3
    life.close()


def test_link_opened_again_in_one_process_knows_what_the_first_one_appended(wal: Wal) -> None:
    life = Life(wal, settings=WalSettings(group_ms=1e9))
    life.append(tags(0, 1))
    life.part.settle(tags(0))
    record = life.journal.subscriber(TOPIC, SUBSCRIPTION).record
    assert list(record.unsettled) == tags(1)
    assert life.writer.durable == 2
    life.close()


def test_only_accepts_of_its_own_subscription_and_topics(wal: Wal) -> None:
    life = Life(wal)
    with pytest.raises(UsageError, match="can only be accepted"):
        life.part.accept(tags(0), b"\x00\x53\x25\x45")
    with pytest.raises(UsageError, match="no slot that was opened here is that of link 'another'"):
        life.journal.subscriber(TOPIC, "another")
    with pytest.raises(UsageError, match="of topic 'elsewhere'"):
        life.journal.subscriber("elsewhere", SUBSCRIPTION)
    with pytest.raises(UsageError, match="a write-ahead log is for subscribers"):
        life.journal.publisher(TOPIC, "p")
    with pytest.raises(UsageError, match="connect as that, not 'somebody'"):
        Watched(wal, [0], SETTINGS).open("somebody", lambda: None)
    life.close()


def test_lost_or_stale_note_of_the_link_is_an_error_and_not_another_subscription(wal: Wal) -> None:
    life = Life(wal)
    life.group(3)
    life.close()
    path = Path(wal.location) / "0" / "link.json"
    content = json.loads(path.read_text())
    assert content.pop("crc32")
    path.unlink()
    with pytest.raises(WalDamaged, match=rf"{path}: missing, though the log has been written; restore it"):
        Life(wal, epoch=20)
    path.write_bytes(DOCUMENTS.dump({**content, "settled_to": 9}))
    with pytest.raises(WalDamaged, match="rows up to 9 were durable once, the log ends at row 3"):
        Life(wal, epoch=20)


def test_several_topics_share_a_journal_and_its_numbers(tmp_path: Path) -> None:
    wal = Wal.open_or_create(str(tmp_path / "wal"), SUBSCRIPTION, ["a", "b"], disk=Quick())
    journal = Watched(wal, None, SETTINGS, disk=Quick())
    journal.open(None, lambda: None)
    for number, topic in enumerate(("a", "b"), 1):
        part = journal.subscriber(topic, SUBSCRIPTION)
        part.attach(number, number)
        part.attached(number)
    number = journal.sync()
    with journal.moved:
        assert journal.moved.wait_for(lambda: journal.durable >= number, timeout=WITHIN_S)
    journal.writer(0).append([b"x"], [b"1"])
    journal.writer(1).append([b"y", b"z"], [b"1", b"2"])
    journal.close()
    assert (wal.slot(0).end(), wal.slot(1).end()) == (1, 2)


def test_rejections_are_not_for_a_log(wal: Wal) -> None:
    ingest = Ingest(wal)
    ingest.deliver(ingest.answer(), 0)
    (event,) = [event for event in ingest.link.take_events() if isinstance(event, Arrived)]
    with pytest.raises(UsageError):
        ingest.link.decide(event.position, event.position, Rejected(), ingest.rig.now)
    ingest.close()
