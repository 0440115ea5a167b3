"""A recovering subscriber and its journal: what must be durable first, and what another process has added."""

from __future__ import annotations

from amqp10.errors import DETACH_FORCED
from amqp10.events import LinkAttaching
from amqp10.outcomes import ACCEPTED, Error
from amqp10.sender import SenderLink
from onceway.client.protocol.events import Failed
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.errors import JournalError
from tests.onceway.client.harness import (
    NEEDED,
    Rig,
    arrived,
    credit,
    deliver,
    epoch_of,
    kinds,
    map_of,
    number_of,
    payload,
    tag,
    told,
)
from tests.onceway.client.stored import StoredJournal, stored


def answered() -> tuple[StoredJournal, Rig, SubscriberLink, SenderLink]:
    """A subscriber whose attach has been answered, with all that its journal had to write."""
    journal = stored()
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber()
    journal.catch_up()
    rig.run()
    link = rig.answer_subscriber({})
    journal.catch_up()
    rig.run()
    return journal, rig, subscriber, link


def test_the_attach_waits_for_its_epoch_to_be_durable_and_credit_for_the_fence() -> None:
    """Protocol 15.1."""
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


def needing(rig: Rig, journal: StoredJournal) -> tuple[SubscriberLink, SenderLink, int]:
    """A subscriber that needs the payload of a delivery, and the router's side in the middle of resuming it (protocol
    6.12.12)."""
    rig.connect()
    subscriber = rig.subscriber()
    journal.catch_up()
    rig.run()
    link = rig.answer_subscriber({b"needed": NEEDED})
    journal.catch_up()
    rig.run()
    delivery_id = link.begin(b"needed", payload(7)[:5], resume=True)
    rig.run()
    subscriber.take_events()
    return subscriber, link, delivery_id


def test_a_resumed_delivery_that_goes_on_after_a_pause_is_handed_on_once() -> None:
    journal = stored(unsettled={b"needed": None})
    rig = Rig(journal)
    subscriber, link, delivery_id = needing(rig, journal)
    rig.now += 20.0
    rig.client.handle_timer(rig.now)
    rig.run()
    assert arrived(subscriber) == []
    link.add(payload(7)[5:], more=False)
    rig.run()
    assert arrived(subscriber) == [payload(7)]
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    journal.catch_up()
    rig.run()
    assert told(rig) == [(delivery_id, delivery_id, ACCEPTED, False)]


def test_a_link_that_ends_in_the_middle_of_a_resumed_delivery_is_attached_again_with_it() -> None:
    journal = stored(unsettled={b"needed": None})
    rig = Rig(journal)
    subscriber, link, _ = needing(rig, journal)
    link.detach(Error(DETACH_FORCED, "it does not go on"), closed=False)
    rig.run()
    assert arrived(subscriber) == []
    deadline = subscriber.next_deadline()
    assert deadline is not None
    rig.now = deadline
    rig.client.handle_timer(rig.now)
    journal.catch_up()
    rig.run()
    attach = rig.attaching()
    assert map_of(attach) == {b"needed": NEEDED}
    rig.heard.append(LinkAttaching(attach))
    link = rig.answer_subscriber({b"needed": NEEDED})
    journal.catch_up()
    rig.run()
    link.resume(b"needed", payload=payload(7))
    rig.run()
    assert arrived(subscriber) == [payload(7)]


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


def test_an_accept_on_its_way_into_the_journal_when_the_link_is_lost_is_told_at_the_resumption() -> None:
    journal, rig, subscriber, link = answered()
    deliver(rig, link, 0)
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.reconnect()
    journal.catch_up()
    rig.run()
    attach = rig.attaching()
    assert map_of(attach) == {tag(0): ACCEPTED}  # its write came before the epoch's


def test_settled_while_the_accept_is_on_its_way_into_the_journal_nothing_is_left_over() -> None:
    journal, rig, subscriber, link = answered()
    first = deliver(rig, link, 0, 1)
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    link.settle(first, first)
    rig.run()
    journal.catch_up()
    rig.run()
    assert told(rig) == [(first + 1, first + 1, ACCEPTED, False)]
    assert subscriber.held == 1
    assert list(subscriber.holdings.accepted) == [(1, 1)]


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
    journal, rig, subscriber, link = answered()
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
