"""When the network last had a publisher's link: what counts as contact, and what is too late (protocol 15)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amqp10.frames import EMPTY_FRAME
from amqp10.outcomes import ACCEPTED, Error
from amqp10.receiver import ReceiverLink
from amqp10.runs import LinkFlow
from amqp10.termini import Target
from onceway.client.journal import MemoryJournal, PublisherRecord
from onceway.client.protocol.events import Attached, Undecided
from onceway.client.protocol.publishing import PublisherLink, tag_of
from tests.onceway.client.harness import Rig, ask, attached_publisher, map_of, payload, put


def test_that_it_is_attached_is_no_contact_where_nothing_comes() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0)
    for _ in range(2):
        ask(rig, publisher)
    assert publisher.contact.absence_s(rig.now) == 2 * 120 / 16
    rig.drop()
    publisher.take_events()
    rig.now += 120 - 5 - 15 + 0.1
    rig.connect()
    (event,) = publisher.take_events()
    assert isinstance(event, Undecided)
    assert event.publications == [(0, payload(0))]


def test_answered_it_has_had_contact_when_it_asked() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0)
    ask(rig, publisher)
    asked_at = rig.now
    rig.now += 2.0
    rig.run()
    assert publisher.contact.absence_s(rig.now) == 2.0
    assert publisher.next_deadline() == asked_at + 120 / 16
    for _ in range(40):
        ask(rig, publisher)
        rig.run()
    assert len(rig.client.connection.channels.sessions) == 1
    rig.drop()
    rig.now += 114
    rig.connect()
    assert map_of(rig.attaching()) == {tag_of(0): None}


@pytest.mark.parametrize("what", ["credit", "heartbeat", "disposition", "detach", "close"])
def test_what_was_written_before_it_stood_still_is_no_contact(what: str) -> None:
    """The process is suspended; the router gives it up, and the network forgets it. Then it reads what is there."""
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0, 1)
    assert rig.router is not None
    if what == "credit":
        link.grant(50)
    elif what == "disposition":
        link.dispose(0, 0, ACCEPTED, False)
    elif what == "detach":
        link.detach(Error("amqp:link:detach-forced", "for a test"), closed=True)
    elif what == "close":
        rig.router.close(Error("amqp:resource-limit-exceeded", "nothing heard for 16 s"))
    written = rig.router.data_to_send() or EMPTY_FRAME
    rig.now += 130
    rig.client.receive_data(written, rig.now)
    rig.client.handle_timer(rig.now)
    rig.client.durable(rig.now)
    rig.drop()
    rig.connect()
    (undecided,) = [event for event in publisher.take_events() if isinstance(event, Undecided)]
    left = [1] if what == "disposition" else [0, 1]
    assert undecided.publications == [(number, payload(number)) for number in left]


def test_an_attach_that_was_answered_before_it_stood_still_is_as_old_as_the_attach() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.now += 100
    rig.answer_publisher()
    assert publisher.contact.absence_s(rig.now) == 100


def away_for_a_minute() -> tuple[Rig, PublisherLink]:
    """It has one publication without an outcome, and is connected again."""
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0)
    rig.drop()
    rig.now += 60
    rig.connect()
    return rig, publisher


def test_once_it_has_shown_that_it_is_here_it_asks_and_that_counts() -> None:
    rig, publisher = away_for_a_minute()
    rig.answer_publisher()
    assert rig.received() == [payload(0)]
    assert publisher.contact.absence_s(rig.now) == 0
    assert len(rig.client.connection.channels.sessions) == 1


def test_credit_that_comes_when_the_network_may_have_forgotten_it_sends_nothing_again() -> None:
    """Its attach was answered in time, but its router has heard nothing of it since, and told nobody."""
    rig, publisher = away_for_a_minute()
    link = rig.attaching()
    assert isinstance(link, ReceiverLink)
    link.attach(source=link.remote_attach.source, target=Target(address="orders", timeout=120), unsettled={})
    rig.run()
    publisher.take_events()
    rig.received()
    rig.now += 60
    link.grant(10)
    rig.run()
    (undecided,) = publisher.take_events()
    assert isinstance(undecided, Undecided)
    assert rig.received() == []
    link.detach(closed=False)
    rig.run()
    assert map_of(rig.attaching()) is None


def test_without_credit_it_shows_that_it_is_here_too() -> None:
    """Nobody is subscribed (protocol 6.10)."""
    rig, publisher = away_for_a_minute()
    link = rig.answer_publisher(credit=0)
    assert [flow.link for flow in rig.take(LinkFlow)] == [link]
    assert publisher.contact.absence_s(rig.now) == 0


def test_a_router_that_allows_one_session_is_taken_at_its_last_word() -> None:
    rig = Rig(channels=1)
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0)
    rig.now += 5
    link.grant(50)
    rig.run()
    ask(rig, publisher)
    assert publisher.contact.absence_s(rig.now) == rig.now - 105.0


def test_links_leave_a_channel_for_asking() -> None:
    rig = Rig(channels=3)
    rig.connect()
    for number in range(4):
        rig.publisher(name=f"p{number}")
        rig.answer_publisher()
    assert sorted(len(session.links) for session in rig.client.connection.channels.sessions) == [2, 2]
    rig.now += 7.5
    rig.client.handle_timer(rig.now)
    assert len(rig.client.connection.channels.sessions) == 3
    rig.run()
    assert [link.contact.absence_s(rig.now) for link in rig.client.links] == [0] * 4


def test_with_nothing_undecided_a_late_answer_is_as_good_as_any() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    rig.drop()
    rig.now += 120 - 5 - 0.1
    rig.connect()
    rig.now += 11
    publisher.take_events()
    rig.answer_publisher()
    assert publisher.take_events() == [Attached(True, "exactly-once", 120.0)]
    put(rig, publisher, 0)
    assert rig.received() == [payload(0)]


def test_where_the_clock_was_set_back_between_two_processes_nobody_knows_for_how_long_it_was_away() -> None:
    """What it sent again might have been forgotten by everybody, and come twice."""

    class Part:
        record = PublisherRecord(900_000, 800_000, 1, contact_us=90_000_000, timeout_s=120.0)

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *arguments: None

    class Kept(MemoryJournal):
        def publisher(self, address: str, name: str) -> Part:  # type: ignore[override]
            return Part()

    Part.record.undecided.append((0, payload(0)))
    rig = Rig(Kept())
    rig.wall_us = 80_000_000
    rig.connect()
    publisher = rig.publisher()
    (event,) = publisher.take_events()
    assert isinstance(event, Undecided)
    assert event.publications == [(0, payload(0))]
    assert "the clock was set back" in event.reason
    assert map_of(rig.attaching()) is None
