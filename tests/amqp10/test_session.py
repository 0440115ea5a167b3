"""Begin and end, delivery-ids, dispositions, handles; and which link or session ends for what."""

from __future__ import annotations

import pytest

from amqp10 import (
    ACCEPTED,
    RELEASED,
    ConnectionClosed,
    Dispositions,
    Error,
    LinkAttaching,
    LinkDetached,
    LocalProtocolError,
    SenderLink,
    SessionBegun,
    SessionEnded,
    Source,
    Target,
    Transfers,
)
from amqp10.errors import ERRANT_LINK, FRAMING_ERROR, HANDLE_IN_USE, INVALID_FIELD, UNATTACHED_HANDLE
from amqp10.performatives import Attach, Begin, Detach, Disposition, End, Flow, Transfer
from tests.amqp10.pair import Pair, Wire, ended_with, flow, frames, kinds, only, transfer

# Begin and end ----------------------------------------------------------------------------------------------------------


def test_end_is_answered() -> None:
    pair = Pair()
    mine, theirs = pair.begin()
    mine.end()
    at_client, at_server = pair.pump()
    assert at_client == [SessionEnded(mine, None, True)]
    assert at_server == [SessionEnded(theirs, None, False)]
    assert pair.client.channels.sessions == []
    assert pair.server.channels.sessions == []


def test_end_carries_its_error_and_takes_the_links_with_it() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    error = Error("amqp:internal-error", "sorry")
    link.session.end(error)
    at_client, at_server = pair.pump()
    assert at_client == [SessionEnded(sender.session, error, False)]
    assert at_server == [SessionEnded(link.session, error, True)]
    assert sender.session.links == [sender]
    assert sender.detached
    assert sender.capacity() == 0


def test_a_session_ended_by_both_at_once_ends_once() -> None:
    pair = Pair()
    mine, theirs = pair.begin()
    mine.end()
    theirs.end()
    at_client, at_server = pair.pump()
    assert at_client == [SessionEnded(mine, None, True)]
    assert at_server == [SessionEnded(theirs, None, True)]


def test_what_comes_after_our_end_is_discarded() -> None:
    wire = Wire()
    link = wire.attach_sender()
    link.session.end()
    wire.events.clear()
    wire.send(transfer(0), b"x")
    wire.send(Detach(9))
    wire.send(Attach("another", 1, True))
    assert wire.events == []
    assert kinds(wire.send(End())) == ["SessionEnded"]


def test_a_session_may_be_ended_before_it_was_answered() -> None:
    pair = Pair()
    session = pair.client.begin()
    session.sender("x").attach(source=Source("a"), target=Target("b"))
    session.end()
    at_client, at_server = pair.pump()
    assert at_client == [SessionEnded(session, None, True)]
    assert kinds(at_server) == ["SessionBegun", "LinkAttaching", "SessionEnded"]


# Delivery-ids -----------------------------------------------------------------------------------------------------------


def test_ids_run_over_the_wrap() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    first = sender.send([b"a"] * 30, [b""] * 30, id_hint=2**32 - 10)
    assert first == 2**32 - 10
    _, at_server = pair.pump()
    run = only(at_server, Transfers)
    assert (run.first_id, len(run.tags)) == (2**32 - 10, 30)
    link.dispose(run.first_id, run.first_id + 29, ACCEPTED, False)
    at_client, _ = pair.pump()
    assert only(at_client, Dispositions) == Dispositions(sender, first, first + 29, ACCEPTED, False)
    sender.settle(first + 5, first + 20)
    _, at_server = pair.pump()
    assert only(at_server, Dispositions) == Dispositions(link, first + 5, first + 20, None, True)


@pytest.mark.parametrize("wrong", [8, 10, 7, 2**32 - 1, 2**31 + 9])
def test_an_id_out_of_sequence_ends_the_session(wrong: int) -> None:
    wire = Wire()
    wire.attach_sender()
    wire.send(transfer(7), b"")
    wire.send(transfer(8), b"")
    ended_with(wire.send(transfer(wrong), b""), INVALID_FIELD)


def test_a_delivery_that_was_refused_has_had_its_id() -> None:
    wire = Wire()
    wire.attach_sender(credit=0)
    wire.attach_sender("other", 1)
    wire.send(transfer(0), b"")
    wire.send(transfer(1), b"")
    wire.send(Detach(0))
    assert kinds(wire.send(transfer(2, handle=1), b"")) == ["Transfers"]


def test_a_hint_counts_only_before_the_first_delivery() -> None:
    pair = Pair()
    sender, _ = pair.publishing()
    assert sender.send([b"1"], [b""], id_hint=500) == 500
    assert sender.send([b"2"], [b""], id_hint=9000) == 501


# Dispositions -----------------------------------------------------------------------------------------------------------


def test_dispositions_are_split_by_link() -> None:
    pair = Pair()
    one, _ = pair.subscribing(name="one")
    two, link_two = pair.subscribing(one.session, name="two")
    link_one = link_two.session.links[0]
    assert isinstance(link_one, SenderLink)
    link_one.send([b"1", b"2"], [b""] * 2)
    link_two.send([b"3"], [b""])
    link_one.send([b"4"], [b""])
    pair.pump()
    one.dispose(0, 1, ACCEPTED, False)
    two.dispose(2, 2, ACCEPTED, False)
    one.dispose(3, 3, ACCEPTED, False)
    sent = len(pair.sent_by_client)
    _, at_server = pair.pump()
    assert len(frames(pair.sent_by_client[sent:])) == 1  # one range on the wire
    assert at_server == [
        Dispositions(link_one, 0, 1, ACCEPTED, False),
        Dispositions(link_two, 2, 2, ACCEPTED, False),
        Dispositions(link_one, 3, 3, ACCEPTED, False),
    ]


def test_settled_deliveries_are_not_spoken_of_again() -> None:
    wire = Wire()
    link = wire.attach_receiver()
    link.send([b"%d" % n for n in range(10)], [b""] * 10)
    wire.send(Disposition(True, 2, 4, True, ACCEPTED))
    link.settle(7, 7)
    wire.events.clear()
    wire.send(Disposition(True, 0, 9, False, RELEASED))
    assert wire.events == [
        Dispositions(link, 0, 1, RELEASED, False),
        Dispositions(link, 5, 6, RELEASED, False),
        Dispositions(link, 8, 9, RELEASED, False),
    ]


def test_settling_what_the_receiver_has_settled_is_not_told() -> None:
    wire = Wire()
    link = wire.attach_receiver()
    link.send([b"1", b"2"], [b""] * 2)
    wire.send(Disposition(True, 0, 1, True, ACCEPTED))
    wire.read()
    link.settle(0, 1)
    assert wire.read() == []


def test_a_receiver_may_echo_the_senders_settlement() -> None:
    wire = Wire()
    link = wire.attach_sender()
    wire.send(transfer(0), b"")
    wire.send(Disposition(False, 0, None, True, ACCEPTED))
    wire.read()
    link.dispose(0, 0, ACCEPTED, True)
    assert wire.read() == [Disposition(True, 0, None, True, ACCEPTED)]


@pytest.mark.parametrize(
    ("first", "last", "meant"),
    [
        (0, 10, (0, 9)),
        (10, 10, None),
        (10, 2**31, None),
        (5, 3, None),
        (2**31 + 5, 2**31 + 5, None),
        (2**32 - 1, 2, (0, 2)),
    ],
)
def test_a_disposition_counts_only_for_what_was_sent(first: int, last: int, meant: tuple[int, int] | None) -> None:
    wire = Wire()
    wire.send(Disposition(True, first, last, True, ACCEPTED))
    link = wire.attach_receiver()
    link.send([b"%d" % n for n in range(10)], [b""] * 10)
    events = wire.send(Disposition(True, first, last, True, ACCEPTED))
    assert events == ([] if meant is None else [Dispositions(link, *meant, ACCEPTED, True)])


def test_links_that_take_turns_leave_nothing_behind() -> None:
    pair = Pair()
    one, _ = pair.subscribing(name="one", credit=10_000)
    two, link_two = pair.subscribing(one.session, name="two", credit=10_000)
    link_one = link_two.session.links[0]
    assert isinstance(link_one, SenderLink)
    for _ in range(1000):
        link_one.send([b"1"], [b""])
        link_two.send([b"2"], [b""])
    pair.pump()
    session = link_one.session
    assert len(session.outgoing.unsettled) == 2000
    one.dispose(0, 1999, ACCEPTED, True)
    _, at_server = pair.pump()
    assert len(at_server) == 2000
    assert len(session.outgoing.unsettled) == 0
    assert len(two.session.incoming.unsettled) == 0


# Handles ----------------------------------------------------------------------------------------------------------------


def test_a_handle_in_use_ends_the_session() -> None:
    wire = Wire()
    wire.attach_sender(handle=3)
    ended_with(wire.send(Attach("other", 3, True)), HANDLE_IN_USE)


@pytest.mark.parametrize("frame", [transfer(0, handle=4), flow(handle=4), Detach(4)])
def test_an_unattached_handle_ends_the_session(frame: Transfer | Flow | Detach) -> None:
    wire = Wire()
    ended_with(wire.send(frame), UNATTACHED_HANDLE)


def test_a_handle_above_handle_max_closes_the_connection() -> None:
    wire = Wire(handle_max=3)
    error = only(wire.send(Attach("x", 4, True)), ConnectionClosed).error
    assert error.condition == FRAMING_ERROR


def test_no_more_links_than_the_peer_takes() -> None:
    pair = Pair(server={"handle_max": 1})
    session, _ = pair.begin()
    for name in ("one", "two"):
        session.sender(name).attach(source=Source("a"), target=Target("b"))
    pair.pump()
    with pytest.raises(LocalProtocolError):
        session.sender("three").attach(source=Source("a"), target=Target("b"))


def test_handles_are_used_again_after_both_detaches() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    assert sender.handle == 0
    sender.detach()
    _, at_server = pair.pump()
    assert only(at_server, LinkDetached).link is link
    again, _ = pair.publishing(sender.session, name="again")
    assert again.handle == 0
    assert sender.session.links == [again]


def test_a_transfer_on_a_link_that_receives_ends_the_session() -> None:
    wire = Wire()
    wire.attach_receiver()
    ended_with(wire.send(transfer(0), b""), ERRANT_LINK)


def test_what_was_under_way_at_our_detach_is_discarded() -> None:
    wire = Wire(incoming_window=10)
    link = wire.attach_sender()
    link.detach(Error("amqp:link:stolen"))
    wire.events.clear()
    for number in range(10):
        wire.send(transfer(number), b"x")
    assert wire.events == []
    detached = only(wire.send(Detach(0, True)), LinkDetached)
    assert detached.local
    assert detached.error == Error("amqp:link:stolen")


def test_what_was_sent_after_our_detach_is_an_errant_link() -> None:
    wire = Wire(incoming_window=10)
    link = wire.attach_sender()
    link.detach(Error("amqp:link:stolen"))
    for number in range(10):
        wire.send(transfer(number), b"x")
    assert wire.server.data_to_send()  # the window is renewed: a peer that uses it has read our detach
    ended_with(wire.send(transfer(10), b"x"), ERRANT_LINK)


def test_a_second_attach_of_a_name_is_another_link() -> None:
    wire = Wire()
    first = wire.attach_sender(name="same", handle=0)
    second = only(
        wire.send(Attach("same", 1, False, target=Target("there"), initial_delivery_count=0)), LinkAttaching
    ).link
    assert second is not first
    first.detach(Error("amqp:link:stolen"), closed=False)
    wire.send(Detach(0))
    assert second.attached


def test_the_same_name_serves_both_directions() -> None:
    pair = Pair()
    sender, _ = pair.publishing(name="same")
    receiver, _ = pair.subscribing(sender.session, name="same")
    assert sender.attached
    assert receiver.attached


def test_a_sender_without_a_delivery_count_ends_the_session() -> None:
    wire = Wire()
    ended_with(wire.send(Attach("x", 0, False, target=Target("there"))), INVALID_FIELD)


def test_a_violation_ends_one_session_and_leaves_the_other() -> None:
    wire = Wire()
    session = only(wire.send(Begin(None, 0, 100, 100), channel=1), SessionBegun).session
    wire.send(transfer(0, handle=9), b"")
    assert not session.ended
    assert kinds(wire.send(Attach("x", 0, True), channel=1)) == ["LinkAttaching"]
    wire.send(End())
    assert wire.server.channels.sessions == [session]


def test_ids_of_deliveries_that_never_began_are_used_again() -> None:
    pair = Pair(server={"incoming_window": 4, "max_frame_size": 512})
    sender, link = pair.publishing()
    other, _ = pair.publishing(sender.session, name="other")
    link.session.pause_incoming()
    first = sender.send([b"1", b"2", b"3"], [b"x" * 1000, b"y" * 5000, b"z" * 5000])
    sender.settle(first, first + 2)
    pair.pump()
    sender.detach()
    link.session.resume_incoming()
    pair.pump()
    assert other.send([b"4", b"5"], [b"a", b"b"]) == first + 2
    _, at_server = pair.pump()
    assert only(at_server, Transfers).payloads == [b"a", b"b"]
    assert len(other.session.outgoing.unsettled) == 1
