"""A recovering subscriber's half of PROTOCOL 15, against a router that the test plays."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

import pytest

from amqp10.events import Dispositions, LinkAttaching, LinkDetached, LinkFlow
from amqp10.outcomes import ACCEPTED, RELEASED, DeliveryState, Error, Received, Rejected
from amqp10.sender import SenderLink
from amqp10.types import ULong
from onceway.client.journal import MemoryJournal, SubscriberJournal, SubscriberRecord
from onceway.client.protocol.events import Attached, Drained, Failed, Gap
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.errors import JournalError, LinkStolen
from tests.onceway.client.harness import Rig, arrived, epoch_of, kinds, map_of, number_of, payload

NEEDED = Received(section_number=0, section_offset=0)


def attached_subscriber(rig: Rig, *, credit: int = 100) -> tuple[SubscriberLink, SenderLink]:
    rig.connect()
    subscriber = rig.subscriber(credit=credit)
    link = rig.answer_subscriber()
    subscriber.take_events()
    return subscriber, link


def tag(number: int) -> bytes:
    return b"tag %d" % number


def deliver(rig: Rig, link: SenderLink, *numbers: int, settled: bool = False) -> int:
    first = link.send([tag(number) for number in numbers], [payload(number) for number in numbers], settled=settled)
    rig.run()
    return first


def told(rig: Rig) -> list[tuple[int, int, DeliveryState | None, bool]]:
    """The client's dispositions since the last time."""
    return [(event.first_id, event.last_id, event.state, event.settled) for event in rig.take(Dispositions)]


def credit(rig: Rig) -> list[int | None]:
    return [event.flow.link_credit for event in rig.take(LinkFlow)]


def test_a_first_attach_has_no_map_is_born_at_its_epoch_and_asks_to_be_waited_for() -> None:
    rig = Rig()
    rig.connect()
    rig.subscriber()
    link = rig.attaching()
    assert map_of(link) is None
    assert epoch_of(link) == number_of(link, "onceway:born") == 1_000_000
    assert link.remote_attach is not None
    assert link.remote_attach.source is not None
    assert link.remote_attach.source.expiry_policy == "never"
    assert link.remote_attach.source.timeout == 0xFFFFFFFF
    assert (link.remote_attach.snd_settle_mode, link.remote_attach.rcv_settle_mode) == (0, 1)


def test_credit_is_given_when_the_attach_is_answered_and_not_before() -> None:
    rig = Rig()
    rig.connect()
    rig.subscriber(credit=10)
    assert credit(rig) == []
    rig.answer_subscriber()
    assert credit(rig) == [10]


def test_deliveries_arrive_as_runs_and_an_accept_is_one_range() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    first = deliver(rig, link, 0, 1, 2)
    assert arrived(subscriber) == [payload(0), payload(1), payload(2)]
    subscriber.decide(0, 2, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(first, first + 2, ACCEPTED, False)]


def test_what_the_network_has_settled_is_held_no_more() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    first = deliver(rig, link, 0, 1, 2)
    subscriber.decide(0, 2, ACCEPTED, rig.now)
    rig.run()
    link.settle(first, first + 1)
    rig.run()
    assert subscriber.held == 1
    link.settle(first + 2, first + 2)
    rig.run()
    assert subscriber.held == 0
    assert subscriber.holdings.segments == []
    assert not subscriber.holdings.accepted


@pytest.mark.parametrize("seed", range(20))
def test_settled_in_any_pieces_each_tag_is_forgotten_once(seed: int) -> None:
    rng = random.Random(seed)
    journal = stored()
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber(credit=100)
    journal.catch_up()
    rig.run()
    link = rig.answer_subscriber({})
    journal.catch_up()
    rig.run()
    first, numbers = 0, iter(range(60))
    while run := list(islice(numbers, rng.randint(1, 20))):
        first = deliver(rig, link, *run) - run[0]
    subscriber.decide(0, 59, ACCEPTED, rig.now)
    journal.catch_up()
    rig.run()
    cuts = sorted({0, 60, *rng.sample(range(1, 60), rng.randint(0, 12))})
    pieces = list(pairwise(cuts))
    if seed % 2:
        rng.shuffle(pieces)
    for low, behind in pieces:
        link.settle(first + low, first + behind - 1)
        rig.run()
    assert sorted(journal.part.settles) == sorted(map(tag, range(60)))
    assert subscriber.held == 0
    assert subscriber.holdings.segments == []


def test_in_mode_first_an_accept_settles() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber("at-least-once")
    link = rig.answer_subscriber()
    first = deliver(rig, link, 0, 1)
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(first, first + 1, ACCEPTED, True)]
    assert subscriber.held == 0


def test_pre_settled_deliveries_are_handed_on_and_not_held() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber("at-most-once")
    link = rig.answer_subscriber()
    deliver(rig, link, 0, 1, settled=True)
    assert arrived(subscriber) == [payload(0), payload(1)]
    assert subscriber.held == 0


def test_credit_for_pre_settled_deliveries_comes_back_when_they_are_taken() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber("at-most-once", credit=4)
    link = rig.answer_subscriber()
    deliver(rig, link, 0, 1, 2, 3, settled=True)
    assert link.credit == 0
    subscriber.taken(3)
    rig.run()
    assert link.credit == 3


def test_credit_comes_back_with_verdicts_not_with_deliveries() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=8)
    credit(rig)
    deliver(rig, link, *range(8))
    assert not link.capacity()
    assert credit(rig) == []
    subscriber.decide(0, 3, ACCEPTED, rig.now)
    rig.run()
    assert link.credit == 4
    subscriber.decide(4, 4, ACCEPTED, rig.now)  # less than a quarter of the window: not worth a flow
    rig.run()
    assert link.credit == 4
    subscriber.decide(5, 7, ACCEPTED, rig.now)
    rig.run()
    assert link.credit == 8


def test_large_messages_get_less_credit() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.client.subscriber(
        "orders", "s", "exactly-once", rig.now, credit=100, credit_bytes=10_000, subscription_timeout_s=None
    )
    rig.run()
    link = rig.answer_subscriber()
    assert link.credit == 100
    link.send([tag(0)], [bytes(5000)])
    rig.run()
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.run()
    while link.capacity():
        link.send([tag(link.delivery_count)], [bytes(5000)])
    rig.run()
    subscriber.decide(1, 99, ACCEPTED, rig.now)
    rig.run()
    assert link.credit == 2


def test_a_verdict_is_told_after_a_failover_when_its_delivery_is_resumed() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1, 2, 3)
    arrived(subscriber)
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.run()
    rig.reconnect()
    attach = rig.attaching()
    assert map_of(attach) == {tag(0): ACCEPTED, tag(1): ACCEPTED, tag(2): None, tag(3): None}
    assert number_of(attach, "onceway:born") == 1_000_000
    assert epoch_of(attach) == 1_000_001
    rig.heard.append(LinkAttaching(attach))
    listed = {tag(1): ACCEPTED, tag(2): None, tag(3): None}
    link = rig.answer_subscriber(listed)
    assert subscriber.held == 3  # 0 is not listed: settled, forgotten
    ids = [link.resume(name, state) for name, state in listed.items()]
    rig.run()
    assert told(rig) == [(ids[0], ids[0], ACCEPTED, False)]
    subscriber.decide(2, 3, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(ids[1], ids[2], ACCEPTED, False)]
    assert arrived(subscriber) == []


def test_a_verdict_given_while_away_is_in_the_map() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    rig.drop()
    subscriber.decide(1, 1, ACCEPTED, rig.now)
    rig.connect()
    assert map_of(rig.attaching()) == {tag(0): None, tag(1): ACCEPTED}


def test_credit_used_by_resumptions_is_given_beside_the_window() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=10)
    deliver(rig, link, *range(6))
    subscriber.decide(0, 3, ACCEPTED, rig.now)
    rig.run()
    rig.reconnect()
    credit(rig)
    listed = {tag(number): None for number in range(6)}
    link = rig.answer_subscriber(listed)
    assert credit(rig) == [8 + 6]  # ten less two undecided, and one for each resumption
    for name in listed:
        link.resume(name)
    rig.run()
    assert link.credit == 8


def test_a_resumption_that_is_settled_ends_the_delivery() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.run()
    rig.reconnect()
    link = rig.answer_subscriber({tag(0): ACCEPTED, tag(1): None})
    link.resume(tag(0), settled=True)
    link.resume(tag(1), settled=True)
    rig.run()
    assert subscriber.held == 0
    told(rig)
    subscriber.decide(1, 1, ACCEPTED, rig.now)  # the application could not know
    rig.run()
    assert told(rig) == []
    assert subscriber.holdings.settled_early == {}


def test_a_delivery_whose_tag_is_held_is_not_handed_on_again() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    arrived(subscriber)
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.run()
    rig.reconnect()
    link = rig.answer_subscriber({tag(0): None, tag(1): None})
    told(rig)
    first = deliver(rig, link, 0, 1, 2)  # a router that does not resume but sends again
    assert arrived(subscriber) == [payload(2)]
    assert told(rig) == [(first, first, ACCEPTED, False)]
    subscriber.decide(1, 2, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(first + 1, first + 2, ACCEPTED, False)]


def test_a_tag_twice_in_one_run_is_handed_on_once() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 0, 1)
    assert arrived(subscriber) == [payload(0), payload(1)]
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.run()
    accepted = {number for first, last, _, _ in told(rig) for number in range(first, last + 1)}
    assert accepted == {0, 1, 2}


def test_a_released_delivery_is_settled_and_comes_again_as_new() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    first = deliver(rig, link, 0)
    arrived(subscriber)
    subscriber.decide(0, 0, RELEASED, rig.now)
    rig.run()
    assert told(rig) == [(first, first, RELEASED, False)]
    link.settle(first, first)
    deliver(rig, link, 0)
    assert arrived(subscriber) == [payload(0)]
    subscriber.decide(1, 1, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(first + 1, first + 1, ACCEPTED, False)]


def test_a_rejection_is_repeated_after_a_failover() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0)
    state = Rejected(Error("app:bad"))
    subscriber.decide(0, 0, state, rig.now)
    rig.run()
    rig.reconnect()
    attach = rig.attaching()
    assert map_of(attach) == {tag(0): state}
    rig.heard.append(LinkAttaching(attach))
    link = rig.answer_subscriber({tag(0): None})
    told(rig)
    number = link.resume(tag(0))
    rig.run()
    assert told(rig) == [(number, number, state, False)]


def test_broken_it_joins_again_with_another_born_keeps_its_map_and_tells_of_the_gap() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    arrived(subscriber)
    rig.reconnect()
    rig.refuse("onceway:subscription-broken")
    attach = rig.attaching()
    assert number_of(attach, "onceway:born") == epoch_of(attach) == 1_000_002
    assert map_of(attach) == {tag(0): None, tag(1): None}
    rig.heard.append(LinkAttaching(attach))
    rig.answer_subscriber({tag(1): None})
    events = subscriber.take_events()
    (gap,) = [event for event in events if isinstance(event, Gap)]
    assert "subscription-broken" in gap.reason
    assert gap.dropped == 1
    assert not [event for event in events if isinstance(event, Failed)]


def test_away_for_longer_than_it_was_granted_it_does_not_try_to_resume() -> None:
    rig = Rig()
    subscriber, _ = attached_subscriber(rig)
    rig.drop()
    rig.now += 60 - 5 + 0.1
    rig.connect()
    attach = rig.attaching()
    assert number_of(attach, "onceway:born") == epoch_of(attach)
    rig.heard.append(LinkAttaching(attach))
    rig.answer_subscriber({})
    assert "Gap" in kinds(subscriber.take_events())


def test_away_for_less_it_resumes_without_a_word() -> None:
    rig = Rig()
    subscriber, _ = attached_subscriber(rig)
    rig.drop()
    rig.now += 54
    rig.connect()
    rig.answer_subscriber({})
    assert kinds(subscriber.take_events()) == ["Lost", "Attached"]


def test_a_mark_that_was_not_there_before_is_told_as_a_gap() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber()
    rig.answer_subscriber(properties={"onceway:marks": [[ULong(5), "a"]]})
    rig.reconnect()
    rig.answer_subscriber({}, properties={"onceway:marks": [[ULong(5), "a"]]})
    assert "Gap" not in kinds(subscriber.take_events())
    rig.reconnect()
    rig.answer_subscriber({}, properties={"onceway:marks": [[ULong(5), "a"], [ULong(9), "b"]]})
    assert "Gap" in kinds(subscriber.take_events())


def test_a_stolen_subscription_is_not_taken_back() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    rig.detach(link, "amqp:link:stolen", {"onceway:epoch": ULong(7)})
    events = subscriber.take_events()
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, LinkStolen)


def test_a_map_larger_than_a_frame_goes_out_in_parts_of_one_epoch() -> None:
    rig = Rig(router_frame=2048)
    subscriber, link = attached_subscriber(rig, credit=1000)
    for start in range(0, 200, 50):
        deliver(rig, link, *range(start, start + 50))
    rig.reconnect()
    whole: dict[bytes, DeliveryState | None] = {}
    epochs = set()
    while True:
        attach = rig.attaching()
        assert attach.remote_attach is not None
        epochs.add(epoch_of(attach))
        whole.update(map_of(attach) or {})
        if not attach.remote_attach.incomplete_unsettled:
            break
        attach.attach(source=attach.remote_attach.source, target=attach.remote_attach.target, unsettled={})
        attach.detach(closed=False)
        rig.run()
    assert whole == {tag(number): None for number in range(200)}
    assert len(epochs) == 1
    assert subscriber.held == 200


def test_an_answer_that_is_not_whole_forgets_nothing_and_is_asked_for_again_when_resolved() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1, 2)
    rig.reconnect()
    link = rig.answer_subscriber({tag(0): None}, incomplete=True)
    assert subscriber.held == 3
    link.resume(tag(0), settled=True)
    rig.run()
    (detached,) = rig.take(LinkDetached)
    assert not detached.closed
    attach = rig.attaching()
    assert map_of(attach) == {tag(1): None, tag(2): None}
    rig.heard.append(LinkAttaching(attach))
    rig.answer_subscriber({})
    assert subscriber.held == 0


def test_an_answer_that_is_not_whole_is_resolved_by_verdicts_not_by_their_settlement() -> None:
    """Settled is what all subscribers have accepted, and another may be waiting in the same way for the rest of ours."""
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1, 2)
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.reconnect()
    link = rig.answer_subscriber({tag(1): None, tag(0): ACCEPTED}, incomplete=True)
    link.resume(tag(1))
    link.resume(tag(0))
    rig.run()
    assert rig.take(LinkDetached) == []
    subscriber.decide(1, 1, ACCEPTED, rig.now)
    rig.run()
    assert len(rig.take(LinkDetached)) == 1
    attach = rig.attaching()
    assert map_of(attach) == {tag(0): ACCEPTED, tag(1): ACCEPTED, tag(2): None}


def test_an_answer_that_is_not_whole_and_wants_no_verdict_is_resolved_when_it_is_settled() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.reconnect()
    link = rig.answer_subscriber({tag(0): ACCEPTED}, incomplete=True)
    link.resume(tag(0))
    rig.run()
    assert rig.take(LinkDetached) == [], "the same answer would come again"
    link.resume(tag(1), settled=True)
    link.resume(tag(0), settled=True)
    rig.run()
    assert len(rig.take(LinkDetached)) == 1
    assert map_of(rig.attaching()) == {}


def test_a_resumption_of_something_unknown_is_asked_for_whole() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    number = link.resume(b"never seen")
    rig.run()
    assert told(rig) == [(number, number, RELEASED, False)]
    assert subscriber.held == 0


def test_released_before_a_failover_it_is_in_the_map_as_released() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0)
    subscriber.decide(0, 0, RELEASED, rig.now)
    rig.run()
    rig.reconnect()
    assert map_of(rig.attaching()) == {tag(0): RELEASED}


class StoredJournal(MemoryJournal):
    """An application's own: durable only when the test says so, and with things from an earlier process."""

    def __init__(self, record: SubscriberRecord) -> None:
        super().__init__()
        self.part = StoredSubscriber(record)
        self.number = 0

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        return self.part

    def sync(self) -> int:
        self.number += 1
        return self.number

    def catch_up(self) -> None:
        self.durable = self.number


class StoredSubscriber:
    def __init__(self, record: SubscriberRecord) -> None:
        self.record = record
        self.accepts: list[tuple[list[bytes], bytes]] = []
        self.settles: list[bytes] = []
        self.meanwhile: dict[bytes, bytes | None] = {}

    def attach(self, epoch: int, born: int) -> None: ...

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        return self.meanwhile

    def contact(self, wall_us: int, timeout_s: float) -> None: ...

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        self.accepts.append((list(tags), outcome))

    def settle(self, tags: Sequence[bytes]) -> None:
        self.settles += tags

    def close(self) -> None: ...


def stored(rig_wall_us: int = 1_000_000, **fields: object) -> StoredJournal:
    record = SubscriberRecord(epoch=900_000, born=800_000, contact_us=rig_wall_us, timeout_s=60.0)
    for name, value in fields.items():
        setattr(record, name, value)
    return StoredJournal(record)


def test_the_attach_waits_for_its_epoch_to_be_durable_and_credit_for_the_fence() -> None:
    journal = stored()
    rig = Rig(journal)
    rig.connect()
    rig.subscriber(credit=10)
    assert rig.take(LinkAttaching) == []
    journal.catch_up()
    rig.run()
    rig.answer_subscriber({})
    assert credit(rig) == []
    journal.catch_up()
    rig.run()
    assert credit(rig) == [10]


def test_after_a_crash_it_resumes_with_what_the_journal_knows() -> None:
    journal = stored(unsettled={b"a": b"\x00\x53\x24\x45", b"needed": None})
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber()
    journal.catch_up()
    rig.run()
    attach = rig.attaching()
    assert map_of(attach) == {b"a": ACCEPTED, b"needed": NEEDED}
    assert number_of(attach, "onceway:born") == 800_000
    rig.heard.append(LinkAttaching(attach))
    link = rig.answer_subscriber({b"a": ACCEPTED, b"needed": NEEDED})
    journal.catch_up()
    rig.run()
    told(rig)
    subscriber.take_events()
    first = link.resume(b"a")
    second = link.resume(b"needed", payload=payload(7))
    rig.run()
    assert told(rig) == [(first, first, ACCEPTED, False)]
    assert arrived(subscriber) == [payload(7)]
    subscriber.decide(1, 1, ACCEPTED, rig.now)
    journal.catch_up()
    rig.run()
    assert told(rig) == [(second, second, ACCEPTED, False)]


def test_an_accept_is_sent_when_it_is_durable_and_not_before() -> None:
    journal = stored()
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber()
    journal.catch_up()
    rig.run()
    link = rig.answer_subscriber({})
    journal.catch_up()
    rig.run()
    first = deliver(rig, link, 0, 1)
    number = subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.run()
    assert journal.part.accepts == [([tag(0), tag(1)], b"\x00\x53\x24\x45")]
    assert told(rig) == []
    assert subscriber.deciding == 2
    assert number == journal.number
    journal.catch_up()
    rig.run()
    assert told(rig) == [(first, first + 1, ACCEPTED, False)]
    link.settle(first, first + 1)
    rig.run()
    assert journal.part.settles == [tag(0), tag(1)]


def test_an_accept_on_its_way_into_the_journal_when_the_link_is_lost_is_told_at_the_resumption() -> None:
    journal = stored()
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber()
    journal.catch_up()
    rig.run()
    link = rig.answer_subscriber({})
    journal.catch_up()
    rig.run()
    deliver(rig, link, 0)
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.reconnect()
    journal.catch_up()
    rig.run()
    attach = rig.attaching()
    assert map_of(attach) == {tag(0): ACCEPTED}  # its write came before the epoch's


def test_settled_while_the_accept_is_on_its_way_into_the_journal_nothing_is_left_over() -> None:
    journal = stored()
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber()
    journal.catch_up()
    rig.run()
    link = rig.answer_subscriber({})
    journal.catch_up()
    rig.run()
    first = deliver(rig, link, 0, 1)
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    link.settle(first, first)
    rig.run()
    journal.catch_up()
    rig.run()
    assert told(rig) == [(first + 1, first + 1, ACCEPTED, False)]
    assert subscriber.held == 1
    assert list(subscriber.holdings.accepted) == [(1, 2)]


def test_what_a_fenced_off_process_added_is_asked_about_before_there_is_credit() -> None:
    """It was not in the map: that the answer does not list it says nothing about whether it is settled."""
    journal = stored()
    journal.part.meanwhile = {tag(5): b"\x00\x53\x24\x45", tag(6): b"\x00\x53\x24\x45"}
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber()
    journal.catch_up()
    rig.run()
    rig.answer_subscriber({})
    journal.catch_up()
    rig.run()
    assert credit(rig) == []
    again = rig.attaching()
    assert map_of(again) == {tag(5): ACCEPTED, tag(6): ACCEPTED}
    rig.heard.append(LinkAttaching(again))
    link = rig.answer_subscriber({tag(6): ACCEPTED})
    journal.catch_up()
    rig.run()
    assert journal.part.settles == [tag(5)]
    assert subscriber.held == 1
    told(rig)
    first = link.resume(tag(6))
    rig.run()
    assert told(rig) == [(first, first, ACCEPTED, False)]
    assert arrived(subscriber) == []


def test_what_another_process_has_accepted_meanwhile_is_not_accepted_again() -> None:
    """In hand here when the link was lost: a process that came between has decided it, so this verdict is void."""
    journal = stored()
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber()
    journal.catch_up()
    rig.run()
    link = rig.answer_subscriber({})
    journal.catch_up()
    rig.run()
    deliver(rig, link, 0, 1)
    rig.reconnect()
    journal.catch_up()
    rig.run()
    journal.part.meanwhile = {tag(0): b"\x00\x53\x24\x45"}
    link = rig.answer_subscriber({tag(0): ACCEPTED, tag(1): None})
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    journal.catch_up()
    rig.run()
    assert journal.part.accepts == [([tag(1)], b"\x00\x53\x24\x45")]
    told(rig)
    first = link.resume(tag(0))
    rig.run()
    assert told(rig) == [(first, first, ACCEPTED, False)]
    link.settle(first, first)
    rig.run()
    assert subscriber.held == 1


def test_too_long_between_two_processes_is_a_gap() -> None:
    journal = stored(contact_us=1_000_000)
    rig = Rig(journal)
    rig.wall_us = 1_000_000 + 56_000_000
    rig.connect()
    subscriber = rig.subscriber()
    journal.catch_up()
    rig.run()
    attach = rig.attaching()
    assert number_of(attach, "onceway:born") == epoch_of(attach)
    rig.heard.append(LinkAttaching(attach))
    rig.answer_subscriber({})
    assert "Gap" in kinds(subscriber.take_events())


def test_a_failed_journal_fails_the_link() -> None:
    journal = stored()
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber()
    journal.failure = JournalError("for a test")
    rig.run()
    (event,) = subscriber.take_events()
    assert isinstance(event, Failed)
    assert event.error is journal.failure


def test_attached_says_what_was_granted() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber()
    rig.answer_subscriber(timeout=45)
    assert subscriber.take_events() == [Attached(False, "exactly-once", 45.0)]
    rig.reconnect()
    rig.answer_subscriber({}, timeout=45)
    assert kinds(subscriber.take_events()) == ["Lost", "Attached"]
    assert subscriber.resumed


def test_a_drain_asks_with_the_credit_there_is_and_is_over_when_the_router_gives_up_the_rest() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=10)
    credit(rig)
    subscriber.drain()
    rig.run()
    (flow,) = rig.take(LinkFlow)
    assert (flow.flow.link_credit, flow.flow.drain) == (10, True)
    deliver(rig, link, 0, 1)
    assert kinds(subscriber.take_events()) == ["Arrived"]
    link.drained()
    rig.run()
    assert subscriber.take_events() == [Drained(True)]
    assert credit(rig) == [8]


def test_a_drain_that_used_up_its_credit_does_not_say_that_the_router_is_empty() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=2)
    subscriber.drain()
    rig.run()
    deliver(rig, link, 0, 1)
    link.drained()
    rig.run()
    assert subscriber.take_events()[-1] == Drained(False)


def test_a_drain_waits_for_credit_where_all_of_it_is_outstanding_and_begins_again_after_a_loss() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=2)
    deliver(rig, link, 0, 1)
    credit(rig)
    subscriber.drain()
    rig.run()
    assert credit(rig) == []
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.run()
    assert [flow.flow.drain for flow in rig.take(LinkFlow)] == [True]
    rig.drop()
    rig.connect()
    link = rig.answer_subscriber({tag(0): ACCEPTED, tag(1): ACCEPTED})
    assert rig.take(LinkFlow)[-1].flow.drain
    link.drained()
    rig.run()
    assert subscriber.take_events()[-1] == Drained(True)
