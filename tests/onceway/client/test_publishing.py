"""A recovering publisher's half of protocol 15, against a router that the test plays: what is sent, decided and sent again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amqp10.connection import Connection
from amqp10.events import LinkAttaching
from amqp10.outcomes import ACCEPTED, Error, Rejected
from amqp10.receiver import ReceiverLink
from amqp10.runs import LinkFlow
from amqp10.sasl import Anonymous, server_mechanisms
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from chaos.simulation.world.torn_journal import Disk, Listener
from onceway.client.journal import UNDECIDED, MemoryJournal, PublisherRecord
from onceway.client.protocol.events import Attached, Decided
from onceway.client.protocol.publishing import tag_of, tags_of
from tests.onceway.client.harness import Rig, attached_publisher, epoch_of, map_of, number_of, payload, put


def test_a_first_attach_has_no_map_and_an_incarnation_equal_to_its_epoch() -> None:
    """Protocol 15.2."""
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    link = rig.attaching()
    assert map_of(link) is None
    assert epoch_of(link) == number_of(link, "onceway:incarnation") == 1_000_000
    assert (link.remote_attach.snd_settle_mode, link.remote_attach.rcv_settle_mode) == (0, 1)
    assert publisher.room == 0


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
    """Protocol 15.7."""
    rig = Rig()
    _, link = attached_publisher(rig, credit=7)
    rig.take(LinkFlow)
    link.grant(8, echo=True)
    rig.run()
    assert [event.flow.link_credit for event in rig.take(LinkFlow)] == [8]


@pytest.mark.parametrize(("pipelined", "trips"), [(False, 4), (True, 2)])
def test_it_is_attached_two_round_trips_after_it_is_connected(pipelined: bool, trips: int) -> None:
    """Begin and attach wait for the router's open, which says how large a map may be, and for the journal."""
    rig = Rig()
    publisher = rig.publisher()
    rig.client.connect(ConnectionSettings(container_id="c", sasl=Anonymous(), pipelined=pipelined), rig.now)
    router = Connection(ConnectionSettings(container_id="r", sasl=server_mechanisms()), server=True, now=rig.now)
    taken = 0
    while publisher.state != "attached":
        taken += 1
        assert taken < 9
        for event in router.receive_data(rig.client.data_to_send(), rig.now):
            if isinstance(event, LinkAttaching):
                event.link.attach(source=Source(), target=Target(address="orders", timeout=120), unsettled={})
        rig.client.receive_data(router.data_to_send(), rig.now)
    assert taken == trips


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


def test_pre_settled_publications_are_decided_when_written() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher("at-most-once")
    link = rig.attaching()
    assert isinstance(link, ReceiverLink)
    assert link.remote_attach.snd_settle_mode == 1
    link.attach(source=link.remote_attach.source, target=link.remote_attach.target)
    link.grant(2)
    rig.run()
    publisher.take_events()
    put(rig, publisher, 0, 1)
    assert publisher.take_events() == [Decided(0, 1, ACCEPTED)]
    assert rig.received() == [payload(0), payload(1)]


def test_drain_is_answered_with_nothing_left() -> None:
    rig = Rig()
    _, link = attached_publisher(rig, credit=5)
    rig.take(LinkFlow)
    link.grant(5, drain=True)
    rig.run()
    assert link.credit == 0


def test_tags_stay_distinct_past_four_octets() -> None:
    assert tags_of(2**32 - 2, 4) == [tag_of(number) for number in range(2**32 - 2, 2**32 + 2)]
    assert len(set(tags_of(2**32 - 2, 4))) == 4


def test_attached_says_what_was_granted() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.answer_publisher(timeout=90)
    assert publisher.take_events() == [Attached(False, "exactly-once", 90.0)]


def test_what_is_put_while_it_is_detached_is_in_the_map_and_sent_once_it_is_attached() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0)
    rig.drop()
    put(rig, publisher, 1)
    rig.connect()
    link = rig.attaching()
    assert map_of(link) == {tag_of(0): None, tag_of(1): None}
    rig.heard.append(LinkAttaching(link))
    rig.answer_publisher()
    put(rig, publisher, 2)
    assert rig.received() == [payload(0), payload(1), payload(2)]


def test_what_is_put_while_the_epoch_is_written_is_new_and_in_no_map() -> None:
    """Its number would be used again if the process died before it is durable."""
    journal = Disk().open(Listener())
    rig = Rig(journal)
    rig.connect()
    publisher = rig.publisher()
    journal.advance()
    rig.run()
    rig.answer_publisher()
    put(rig, publisher, 0)
    while journal.waits():
        journal.advance()
    rig.run()
    rig.drop()
    rig.connect()
    assert publisher.state == "journalling"
    put(rig, publisher, 1)
    journal.advance()
    rig.run()
    assert rig.received() == []
    link = rig.attaching()
    assert map_of(link) == {tag_of(0): None}
    rig.heard.append(LinkAttaching(link))
    rig.answer_publisher()
    assert rig.received() == [payload(0)]
    while journal.waits():
        journal.advance()
    rig.run()
    assert rig.received() == [payload(1)]
