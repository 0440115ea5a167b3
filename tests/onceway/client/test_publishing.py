"""A recovering publisher's half of PROTOCOL 15, against a router that the test plays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amqp10.connection import Connection
from amqp10.events import LinkAttaching, LinkDetached, LinkFlow
from amqp10.frames import EMPTY_FRAME
from amqp10.outcomes import ACCEPTED, Error, Rejected
from amqp10.receiver import ReceiverLink
from amqp10.sasl import Anonymous, server_mechanisms
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from onceway.client.journal import UNDECIDED, MemoryJournal, PublisherRecord
from onceway.client.protocol.events import Attached, Decided, Failed, Undecided
from onceway.client.protocol.link import LATER_US
from onceway.client.protocol.publishing import PublisherLink, tag_of, tags_of
from onceway.errors import LinkRefused, LinkStolen
from tests.onceway.client.harness import Rig, epoch_of, kinds, map_of, number_of, payload


def attached_publisher(rig: Rig, *, credit: int = 100) -> tuple[PublisherLink, ReceiverLink]:
    rig.connect()
    publisher = rig.publisher()
    link = rig.answer_publisher(credit=credit)
    publisher.take_events()
    return publisher, link


def put(rig: Rig, publisher: PublisherLink, *numbers: int) -> None:
    publisher.put([payload(number) for number in numbers], rig.now)
    rig.run()


def test_a_first_attach_has_no_map_and_an_incarnation_equal_to_its_epoch() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    link = rig.attaching()
    assert map_of(link) is None
    assert epoch_of(link) == number_of(link, "onceway:incarnation") == 1_000_000
    assert link.remote_attach is not None
    assert (link.remote_attach.snd_settle_mode, link.remote_attach.rcv_settle_mode) == (0, 1)
    assert publisher.room == 0


def test_a_later_attach_repeats_the_incarnation_with_a_higher_epoch_although_the_clock_stands_still() -> None:
    rig = Rig()
    attached_publisher(rig)
    rig.reconnect()
    link = rig.attaching()
    assert epoch_of(link) == 1_000_001
    assert number_of(link, "onceway:incarnation") == 1_000_000
    assert map_of(link) == {}


def test_puts_become_one_run_of_transfers() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    assert publisher.room == 100
    put(rig, publisher, 0, 1, 2)
    assert rig.received() == [payload(0), payload(1), payload(2)]
    assert publisher.room == 97
    assert publisher.unsettled == 3


def test_accepted_is_settled_and_told_as_one_range() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0, 1, 2)
    rig.accept(link, 0, 2)
    assert publisher.take_events() == [Decided(0, 2, ACCEPTED)]
    assert rig.settled() == [(0, 2)]
    assert publisher.unsettled == 0


def test_in_mode_first_nothing_is_settled_twice() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher("at-least-once")
    link = rig.attaching()
    assert isinstance(link, ReceiverLink)
    assert link.remote_attach is not None
    link.attach(source=link.remote_attach.source, target=link.remote_attach.target, unsettled={})
    link.grant(10)
    rig.run()
    publisher.take_events()
    put(rig, publisher, 0, 1)
    rig.accept(link, 0, 1, settled=True)
    assert publisher.take_events() == [Decided(0, 1, ACCEPTED)]
    assert rig.settled() == []


def test_a_rejected_publication_is_told_with_its_error_and_settled() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0)
    state = Rejected(Error("onceway:rejected", "by 2"))
    rig.accept(link, 0, 0, state=state)
    assert publisher.take_events() == [Decided(0, 0, state)]
    assert rig.settled() == [(0, 0)]


def test_an_outcome_that_is_told_twice_counts_once() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0, 1)
    link.dispose(1, 1, ACCEPTED, False)
    link.dispose(0, 1, ACCEPTED, False)
    rig.run()
    assert sum(event.last - event.first + 1 for event in publisher.take_events() if isinstance(event, Decided)) == 2


def test_the_undecided_are_in_the_map_and_sent_again_in_order_before_anything_new() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0, 1, 2, 3, 4)
    rig.accept(link, 1, 2)
    rig.received()
    rig.reconnect()
    attach = rig.attaching()
    assert map_of(attach) == {tag_of(0): None, tag_of(3): None, tag_of(4): None}
    rig.heard.append(LinkAttaching(attach))
    link = rig.answer_publisher(credit=4)
    assert publisher.room == 1
    put(rig, publisher, 5)
    assert rig.received() == [payload(0), payload(3), payload(4), payload(5)]
    assert not [event for event in rig.heard if type(event).__name__ == "ResumedTransfer"]


def test_outcomes_after_a_failover_find_the_right_messages() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0, 1, 2, 3)
    rig.accept(link, 1, 1)
    publisher.take_events()
    rig.reconnect()
    link = rig.answer_publisher()
    rig.accept(link, 0, 2)
    assert [(event.first, event.last) for event in publisher.take_events() if isinstance(event, Decided)] == [
        (0, 0),
        (2, 3),
    ]
    assert publisher.unsettled == 0


def test_credit_bounds_what_is_sent_again() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, *range(10))
    rig.received()
    rig.reconnect()
    link = rig.answer_publisher(credit=4)
    assert len(rig.received()) == 4
    assert publisher.room == 0
    link.grant(10)
    rig.run()
    assert rig.received() == [payload(number) for number in range(4, 10)]
    assert publisher.room == 4


def test_an_idle_publisher_shows_its_credit_so_that_it_is_claimed_at_once() -> None:
    rig = Rig()
    attached_publisher(rig, credit=7)
    flows = [event.flow for event in rig.take(LinkFlow)]
    assert [flow.link_credit for flow in flows] == [7]


def test_an_echo_is_answered_at_once() -> None:
    rig = Rig()
    _, link = attached_publisher(rig, credit=7)
    rig.take(LinkFlow)
    link.grant(8, echo=True)
    rig.run()
    assert [event.flow.link_credit for event in rig.take(LinkFlow)] == [8]


def test_an_attach_refused_with_a_later_epoch_is_made_once_more_above_it() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.refuse("amqp:link:stolen", {"onceway:epoch": 5_000_000})
    link = rig.attaching()
    assert 5_000_001 <= epoch_of(link) <= 5_000_000 + LATER_US
    assert publisher.take_events() == []


def test_two_lives_that_are_refused_for_the_same_epoch_begin_different_incarnations() -> None:
    """At routers that are apart: with the same one their tags would be taken for each other's repeats."""
    begun = []
    for seed in (1, 2):
        rig = Rig(seed=seed)
        rig.connect()
        rig.publisher()
        rig.refuse("amqp:link:stolen", {"onceway:epoch": 5_000_000})
        begun.append(number_of(rig.attaching(), "onceway:incarnation"))
    assert begun[0] != begun[1]


def test_refused_with_a_later_epoch_and_nothing_undecided_it_begins_an_incarnation_above_that_of_its_last_life() -> (
    None
):
    """5.5: the old one would be refused again, whatever its epoch: its last life's clock was ahead of this one's."""
    rig = Rig()
    rig.connect()
    rig.publisher()
    rig.refuse("amqp:link:stolen", {"onceway:epoch": 5_000_000})
    link = rig.attaching()
    assert number_of(link, "onceway:incarnation") == epoch_of(link) > 5_000_000
    assert map_of(link) is None


def test_refused_with_a_later_epoch_and_something_undecided_it_keeps_its_incarnation() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.answer_publisher()
    publisher.put([payload(0)], rig.now)
    rig.reconnect()
    rig.refuse("amqp:link:stolen", {"onceway:epoch": 5_000_000})
    link = rig.attaching()
    assert epoch_of(link) > 5_000_000
    assert number_of(link, "onceway:incarnation") == 1_000_000
    assert map_of(link) == {tag_of(0): None}


def test_refused_again_it_belongs_to_somebody_else() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.refuse("amqp:link:stolen", {"onceway:epoch": 5_000_000})
    rig.refuse("amqp:link:stolen", {"onceway:epoch": 6_000_000})
    (event,) = publisher.take_events()
    assert isinstance(event, Failed)
    assert isinstance(event.error, LinkStolen)
    assert rig.take(type(None)) == []


def test_a_link_that_worked_and_was_stolen_is_not_taken_back() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0, 1)
    rig.accept(link, 0, 0)
    publisher.take_events()
    rig.detach(link, "amqp:link:stolen", {"onceway:epoch": 9_000_000})
    events = publisher.take_events()
    assert kinds(events) == ["Lost", "Failed"]
    assert isinstance(events[1], Failed)
    assert isinstance(events[1].error, LinkStolen)


def test_an_address_that_does_not_exist_is_final() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.refuse("amqp:not-found")
    (event,) = publisher.take_events()
    assert isinstance(event, Failed)
    assert isinstance(event.error, LinkRefused)
    assert event.error.condition == "amqp:not-found"


def test_a_link_detached_for_a_passing_reason_is_attached_again_after_a_while() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0)
    rig.detach(link, "amqp:link:detach-forced")
    assert rig.take(LinkDetached)
    deadline = publisher.next_deadline()
    assert deadline is not None
    assert 0.049 <= deadline - rig.now <= 5
    rig.now = deadline
    rig.client.handle_timer(rig.now)
    rig.run()
    assert map_of(rig.attaching()) == {tag_of(0): None}


@pytest.mark.parametrize(("pipelined", "trips"), [(False, 4), (True, 2)])
def test_it_is_attached_two_round_trips_after_it_is_connected(pipelined: bool, trips: int) -> None:
    """Begin and attach wait for the router's open, which says how large a map may be, and for the journal."""
    rig = Rig()
    publisher = rig.publisher()
    rig.client.connect(ConnectionSettings(container_id="c", sasl=Anonymous(), pipelined=pipelined), rig.now)
    router = Connection(ConnectionSettings(container_id="r", sasl=server_mechanisms()), server=True, now=rig.now)
    taken = 0
    while publisher.state != "on":
        taken += 1
        assert taken < 9
        for event in router.receive_data(rig.client.data_to_send(), rig.now):
            if isinstance(event, LinkAttaching):
                event.link.attach(source=Source(), target=Target(address="orders", timeout=120), unsettled={})
        rig.client.receive_data(router.data_to_send(), rig.now)
    assert taken == trips


def test_away_for_longer_than_the_network_waits_it_reports_and_begins_anew() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0, 1)
    rig.drop()
    publisher.take_events()
    rig.now += 120 - 5 + 0.1
    rig.connect()
    (event,) = publisher.take_events()
    assert isinstance(event, Undecided)
    assert event.publications == [(0, payload(0)), (1, payload(1))]
    link = rig.attaching()
    assert map_of(link) is None
    assert number_of(link, "onceway:incarnation") == epoch_of(link)


def ask(rig: Rig, publisher: PublisherLink) -> None:
    """It is time to ask the router whether it is there: the question is written."""
    due = publisher.next_deadline()
    assert due is not None
    rig.now = due
    rig.client.handle_timer(rig.now)


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
    assert rig.client.connection is not None
    assert len(rig.client.connection.sessions) == 1
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


def test_an_answer_that_was_written_before_it_stood_still_is_as_old_as_its_question() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0)
    ask(rig, publisher)
    assert rig.router is not None
    rig.router.receive_data(rig.client.data_to_send(), rig.now)
    rig.now += 130
    rig.client.receive_data(rig.router.data_to_send(), rig.now)
    assert publisher.contact.absence_s(rig.now) == 130


def test_an_attach_that_was_answered_before_it_stood_still_is_as_old_as_the_attach() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.now += 100
    rig.answer_publisher()
    assert publisher.contact.absence_s(rig.now) == 100


def test_that_its_attach_is_answered_does_not_make_the_network_know_what_is_in_doubt_again() -> None:
    """5.1: the answer claims nothing. It is lost before its router has heard of it again: the time goes on."""
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0)
    for _ in range(2):
        rig.drop()
        publisher.take_events()
        rig.now += 60
        rig.connect()
        link = rig.attaching()
        assert link.remote_attach is not None
        link.attach(source=link.remote_attach.source, target=Target(address="orders", timeout=120), unsettled={})
        rig.run()
        assert publisher.state == "on"
    rig.reconnect()
    (undecided,) = [event for event in publisher.take_events() if isinstance(event, Undecided)]
    assert undecided.publications == [(0, payload(0))]


def test_once_it_has_shown_that_it_is_here_it_asks_and_that_counts() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0)
    rig.drop()
    rig.now += 60
    rig.connect()
    rig.answer_publisher()
    assert rig.received() == [payload(0)]
    assert publisher.contact.absence_s(rig.now) == 0
    assert rig.client.connection is not None
    assert len(rig.client.connection.sessions) == 1


def test_credit_that_comes_when_the_network_may_have_forgotten_it_sends_nothing_again() -> None:
    """Its attach was answered in time, but its router has heard nothing of it since, and told nobody."""
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0)
    rig.drop()
    rig.now += 60
    rig.connect()
    link = rig.attaching()
    assert isinstance(link, ReceiverLink)
    assert link.remote_attach is not None
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
    """Nobody is subscribed (6.10)."""
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0)
    rig.drop()
    rig.now += 60
    rig.connect()
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
    assert rig.client.connection is not None
    assert sorted(len(session.links) for session in rig.client.connection.sessions) == [2, 2]
    rig.now += 7.5
    rig.client.handle_timer(rig.now)
    assert len(rig.client.connection.sessions) == 3
    rig.run()
    assert [link.contact.absence_s(rig.now) for link in rig.client.links] == [0] * 4


def test_an_attach_that_lay_unread_until_the_network_may_have_forgotten_it_sends_nothing_again() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0, 1)
    rig.drop()
    publisher.take_events()
    rig.now += 120 - 5 - 0.1
    rig.connect()
    assert publisher.take_events() == []
    rig.received()
    rig.now += 11
    late = rig.answer_publisher()
    (event,) = publisher.take_events()
    assert isinstance(event, Undecided)
    assert event.publications == [(0, payload(0)), (1, payload(1))]
    assert "126 s" in event.reason
    late.detach(closed=False)
    rig.run()
    anew = rig.attaching()
    assert map_of(anew) is None
    assert number_of(anew, "onceway:incarnation") == epoch_of(anew)
    rig.heard.append(LinkAttaching(anew))
    rig.answer_publisher()
    put(rig, publisher, 2)
    assert rig.received() == [payload(2)]


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


def test_the_journal_is_told_with_which_outcome_a_number_is_forgotten() -> None:
    class Part:
        record = PublisherRecord()

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *arguments: written.append((name, *arguments))

    class Watched(MemoryJournal):
        def publisher(self, address: str, name: str) -> Part:  # type: ignore[override]
            return Part()

    written: list[tuple[object, ...]] = []
    rig = Rig(Watched())
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0, 1, 2)
    link.dispose(0, 0, ACCEPTED, False)
    link.dispose(1, 1, Rejected(), False)
    rig.run()
    rig.drop()
    rig.now += 120
    rig.connect()
    assert [entry for entry in written if entry[0] == "forget"] == [
        ("forget", 0, 0, ACCEPTED),
        ("forget", 1, 1, Rejected()),
        ("forget", 2, 2, UNDECIDED),
    ]


def test_away_for_less_it_resumes() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0, 1)
    rig.drop()
    rig.now += 114
    rig.connect()
    assert map_of(rig.attaching()) == {tag_of(0): None, tag_of(1): None}


def test_a_map_larger_than_a_frame_goes_out_in_parts_of_one_epoch() -> None:
    rig = Rig(router_frame=2048)
    publisher, _ = attached_publisher(rig, credit=1000)
    put(rig, publisher, *range(1000))
    rig.reconnect()
    whole: dict[bytes, object] = {}
    epochs = set()
    parts = 0
    while True:
        link = rig.attaching()
        assert link.remote_attach is not None
        epochs.add(epoch_of(link))
        whole.update(map_of(link) or {})
        parts += 1
        if not link.remote_attach.incomplete_unsettled:
            break
        link.attach(source=link.remote_attach.source, target=link.remote_attach.target, unsettled={})
        link.detach(closed=False)
        rig.run()
        assert publisher.state == "attaching"
    assert list(whole) == tags_of(0, 1000)
    assert len(epochs) == 1
    assert parts > 2
    rig.heard.append(LinkAttaching(link))
    rig.answer_publisher(credit=1000)
    assert len(rig.received()) == 1000


def test_pre_settled_publications_are_decided_when_written() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher("at-most-once")
    link = rig.attaching()
    assert isinstance(link, ReceiverLink)
    assert link.remote_attach is not None
    assert link.remote_attach.snd_settle_mode == 1
    link.attach(source=link.remote_attach.source, target=link.remote_attach.target)
    link.grant(2)
    rig.run()
    publisher.take_events()
    put(rig, publisher, 0, 1)
    assert publisher.take_events() == [Decided(0, 1, ACCEPTED)]
    assert rig.received() == [payload(0), payload(1)]


def test_less_than_what_was_asked_for_is_refused_by_us() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    link = rig.attaching()
    assert link.remote_attach is not None
    link.attach(source=link.remote_attach.source, target=link.remote_attach.target, unsettled={}, rcv_settle_mode=0)
    rig.run()
    (event,) = publisher.take_events()
    assert isinstance(event, Failed)
    assert isinstance(event.error, LinkRefused)
    assert rig.take(LinkDetached)


def test_drain_is_answered_with_nothing_left() -> None:
    rig = Rig()
    _, link = attached_publisher(rig, credit=5)
    rig.take(LinkFlow)
    link.grant(5, drain=True)
    rig.run()
    assert link.credit == 0


def test_a_session_that_ends_under_us_is_begun_again() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0)
    link.session.end(Error("amqp:session:window-violation", "for a test"))
    rig.run()
    assert publisher.state == "away"
    deadline = rig.client.next_deadline()
    assert deadline is not None
    rig.now = deadline
    rig.client.handle_timer(rig.now)
    rig.run()
    assert map_of(rig.attaching()) == {tag_of(0): None}


def test_tags_stay_distinct_past_four_octets() -> None:
    assert tags_of(2**32 - 2, 4) == [tag_of(number) for number in range(2**32 - 2, 2**32 + 2)]
    assert len(set(tags_of(2**32 - 2, 4))) == 4


def test_attached_says_what_was_granted() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.answer_publisher(timeout=90)
    assert publisher.take_events() == [Attached(False, "exactly-once", 90.0)]
