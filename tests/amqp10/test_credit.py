"""Credit, drain, echo."""

from __future__ import annotations

import pytest

from amqp10 import LinkAttaching, LinkFlow, LocalProtocolError, ReceiverLink, SenderLink, Source, Target, Transfers
from amqp10.errors import TRANSFER_LIMIT_EXCEEDED
from amqp10.frames import encode_frame
from amqp10.performatives import Attach, Detach, Flow
from tests.amqp10.pair import Pair, Wire, detached_with, flow, kinds, only, transfer


def test_credit_is_what_the_receiver_granted() -> None:
    pair = Pair()
    sender, link = pair.publishing(credit=5)
    assert sender.capacity() == 5
    sender.send([b"1", b"2"], [b"", b""])
    assert sender.capacity() == 3
    with pytest.raises(LocalProtocolError):
        sender.send([b"x"] * 4, [b""] * 4)
    pair.pump()
    assert (link.delivery_count, link.granted.limit, link.credit) == (2, 5, 3)


def test_a_grant_replaces_the_one_before() -> None:
    pair = Pair()
    sender, link = pair.publishing(credit=5)
    link.grant(50)
    link.grant(2)
    at_client, _ = pair.pump()
    only(at_client, LinkFlow)
    assert sender.credit == 2


def test_credit_counts_from_what_the_receiver_had_seen() -> None:
    pair = Pair()
    sender, link = pair.publishing(credit=5)
    link.grant(5)
    grant = pair.server.data_to_send()
    sender.send([b"1", b"2", b"3"], [b""] * 3)
    pair.client.receive_data(grant, 0.0)
    assert sender.credit == 2


def test_credit_may_be_granted_with_the_attach() -> None:
    pair = Pair()
    receiver = pair.client.begin().receiver("x")
    receiver.attach(source=Source("a"), target=Target("b"))
    receiver.grant(7)
    _, at_server = pair.pump()
    link = only(at_server, LinkAttaching).link
    assert isinstance(link, SenderLink)
    assert link.credit == 7
    link.send([b"1"], [b""])
    pair.pump()
    assert receiver.credit == 6


@pytest.mark.parametrize("initial", [5, 2**32 - 3])
def test_delivery_counts_start_where_the_sender_says_and_wrap(initial: int) -> None:
    pair = Pair()
    sender = pair.client.begin().sender("x")
    sender.attach(source=Source("a"), target=Target("b"), initial_delivery_count=initial)
    _, at_server = pair.pump()
    link = only(at_server, LinkAttaching).link
    assert isinstance(link, ReceiverLink)
    assert link.delivery_count == initial
    sender.send([b"%d" % n for n in range(10)], [b""] * 10)
    pair.pump()
    assert link.delivery_count == initial + 10
    link.grant(20)
    pair.pump()
    assert sender.credit == 20
    sender.send([b"%d" % n for n in range(20)], [b""] * 20)
    _, at_server = pair.pump()
    assert len(only(at_server, Transfers).tags) == 20


@pytest.mark.parametrize("start", [0, 1, 300])
def test_transfers_without_credit_detach_the_link_alone(start: int) -> None:
    wire = Wire()
    link = wire.attach_sender(credit=3)
    other = wire.attach_sender(name="other", handle=1)
    for number in range(3):
        wire.send(transfer(start + number), b"")
    events = wire.send(transfer(start + 3), b"")
    assert detached_with(events, TRANSFER_LIMIT_EXCEEDED).link is link
    assert [type(performative) for performative in wire.read()] == [Detach]
    assert wire.send(transfer(start + 4), b"") == []
    assert only(wire.send(transfer(start + 5, handle=1), b""), Transfers).link is other
    assert wire.send(Detach(0)) == []


def test_credit_that_is_taken_back_may_cross_transfers() -> None:
    wire = Wire()
    link = wire.attach_sender(credit=10)
    link.grant(0)
    wire.read()
    assert [kinds(wire.send(transfer(number), b"")) for number in range(10)] == [["Transfers"]] * 10
    assert link.credit == -10
    detached_with(wire.send(transfer(10), b""), TRANSFER_LIMIT_EXCEEDED)


def test_a_grant_that_was_never_written_is_no_credit() -> None:
    wire = Wire()
    link = wire.attach_sender(credit=1)
    link.grant(10)
    wire.send(transfer(0), b"")
    detached_with(wire.send(transfer(1), b""), TRANSFER_LIMIT_EXCEEDED)


def test_a_run_stops_where_the_credit_ends() -> None:
    wire = Wire()
    wire.attach_sender(credit=20)
    events = wire.feed(b"".join(encode_frame(0, 0, transfer(300 + n).encode() + b"x") for n in range(30)))
    assert kinds(events) == ["Transfers", "LinkDetached"]
    assert len(only(events, Transfers).tags) == 20


def test_a_transfer_on_a_link_not_answered_yet_refuses_it() -> None:
    wire = Wire(on_attaching=None)
    wire.send(Attach("x", 0, False, target=Target("b"), initial_delivery_count=0))
    detached_with(wire.send(transfer(0), b""), TRANSFER_LIMIT_EXCEEDED)
    attach, detach = wire.read()
    assert attach.target is None
    assert detach.error.condition == TRANSFER_LIMIT_EXCEEDED


def test_drain_asks_for_all_that_there_is() -> None:
    pair = Pair()
    receiver, link = pair.subscribing(credit=0)
    receiver.grant(10, drain=True)
    _, at_server = pair.pump()
    assert only(at_server, LinkFlow).link is link
    assert link.drain
    link.send([b"1", b"2"], [b"a", b"b"])
    link.drained()
    assert link.capacity() == 0
    at_client, _ = pair.pump()
    assert kinds(at_client) == ["Transfers", "LinkFlow"]
    assert (receiver.credit, receiver.delivery_count) == (0, 10)
    receiver.grant(5)
    pair.pump()
    assert not link.drain
    assert link.credit == 5


def test_drained_sender_sends_no_transfer() -> None:
    pair = Pair()
    receiver, link = pair.subscribing(credit=3)
    receiver.grant(3, drain=True)
    pair.pump()
    link.drained()
    with pytest.raises(LocalProtocolError):
        link.send([b"1"], [b""])


def test_an_echo_is_answered_with_our_state() -> None:
    wire = Wire()
    link = wire.attach_receiver(credit=10)
    link.send([b"1"], [b""])
    wire.read()
    wire.send(flow(handle=0, delivery_count=0, link_credit=10, echo=True))
    (answer,) = wire.read()
    assert isinstance(answer, Flow)
    assert (answer.handle, answer.delivery_count, answer.link_credit, answer.available) == (0, 1, 9, 0)
    assert not answer.echo


def test_an_echo_before_our_attach_is_answered_with_it() -> None:
    wire = Wire(on_attaching=None)
    link = only(wire.send(Attach("x", 0, True, source=Source("a"))), LinkAttaching).link
    wire.send(flow(handle=0, link_credit=10, echo=True))
    assert wire.read() == []
    link.attach(source=Source("a"), target=Target("b"))
    assert [type(performative) for performative in wire.read()] == [Attach, Flow]
    assert isinstance(link, SenderLink)
    assert link.credit == 10


def test_an_echo_can_be_asked_for_with_and_without_credit() -> None:
    pair = Pair()
    sender, link = pair.publishing(credit=10)
    link.grant(0, echo=True)
    at_client, at_server = pair.pump()
    assert only(at_client, LinkFlow).flow.echo
    assert only(at_server, LinkFlow).flow.link_credit == 0
    sender.flow(echo=True)
    at_client, _ = pair.pump()
    assert only(at_client, LinkFlow).link is sender


def test_a_window_may_be_as_large_as_can_be_said() -> None:
    wire = Wire()
    link = wire.attach_receiver(credit=10)
    link.send([b"1", b"2"], [b"", b""])
    wire.send(flow(next_incoming_id=1, incoming_window=2**32 - 1, handle=0, delivery_count=1, link_credit=2**32 - 1))
    assert link.capacity() == 2**32 - 2
    wire.send(flow(next_incoming_id=2, incoming_window=0))
    assert link.capacity() == 0
