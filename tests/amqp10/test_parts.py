"""Deliveries that are passed on while they arrive, and sent before their end is known: raw frames, and proton as judge."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10 import (
    ACCEPTED,
    RELEASED,
    Dispositions,
    LinkAttaching,
    LocalProtocolError,
    Received,
    ReceiverLink,
    ResumedTransfer,
    SenderLink,
    SessionFlow,
    TransferPart,
    Transfers,
)
from amqp10.errors import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, NOT_ALLOWED
from amqp10.performatives import Disposition, Transfer
from amqp10.receiver import CHUNK_OVERHEAD
from tests.amqp10.pair import Pair, Wire, detached_with, flow, frames, only, transfer
from tests.amqp10.test_proton import Proton, accept_everything, proton, read

KIB = 1024


def parts(events: list[Any]) -> list[tuple[int, bytes, bool]]:
    """(offset, payload, more) of each part."""
    return [(each.offset, each.payload, each.more) for each in events if isinstance(each, TransferPart)]


def streaming(size: int = 4, **server: Any) -> tuple[Wire, ReceiverLink]:
    wire = Wire(**server)
    link = wire.attach_sender()
    link.part_size = size
    return wire, link


# Receiving ----------------------------------------------------------------------------------------------------------


def test_a_large_delivery_is_passed_on_while_it_arrives() -> None:
    wire, link = streaming(4)
    assert wire.send(transfer(0, more=True), b"ab") == [], "it may still be a small one"
    assert wire.server.incomplete_size == 2 + CHUNK_OVERHEAD
    (first,) = wire.send(Transfer(0, more=True), b"cde")
    assert first == TransferPart(link, 0, b"tag", b"abcde", 0, True, False, False, None, False, 0)
    assert wire.server.incomplete_size == 0, "nothing is held of it"
    assert parts(wire.send(Transfer(0, more=True), b"f")) == [(5, b"f", True)]
    (last,) = wire.send(Transfer(0, settled=True), b"gh")
    assert last == TransferPart(link, 0, b"tag", b"gh", 6, False, False, True, None, False, 0)
    assert link.delivery_count == 1
    assert len(link.session.incoming.unsettled) == 0
    assert only(wire.send(transfer(1), b"a small one"), Transfers).payloads == [b"a small one"]
    wire.server.check_invariants()


def test_a_small_delivery_in_several_frames_comes_whole() -> None:
    wire, link = streaming(100)
    wire.send(transfer(0, more=True), b"a")
    assert wire.send(Transfer(0), b"b" * 99) == [Transfers(link, 0, [b"tag"], [b"a" + b"b" * 99], False, 0)]


@pytest.mark.parametrize("fields", [{"settled": True}, {"message_format": 7}])
def test_one_that_begins_settled_or_is_of_another_format_is_joined(fields: dict[str, Any]) -> None:
    wire, _ = streaming(4)
    assert wire.send(transfer(0, more=True, **fields), b"abcde") == []
    assert only(wire.send(Transfer(0), b"f"), Transfers).payloads == [b"abcdef"]


@pytest.mark.parametrize("first", [b"abcde", b"a"])
def test_an_aborted_delivery_ends_without_its_last_payload(first: bytes) -> None:
    wire, link = streaming(4)
    wire.send(transfer(0, more=True), first)
    events = wire.send(Transfer(0, aborted=True), b"void")
    if len(first) > 4:
        assert events == [TransferPart(link, 0, b"tag", b"", 5, False, True, True, None, False, 0)]
    else:
        assert events == [ResumedTransfer(link, 0, b"tag", None, None, True, True, False, None)], (
            "none of it was passed on"
        )
    assert len(link.session.incoming.unsettled) == 0
    assert wire.server.incomplete_size == 0
    wire.send(transfer(1), b"next")
    assert only(wire.events, Transfers).payloads == [b"next"]


def test_deliveries_of_other_links_come_in_between() -> None:
    wire, link = streaming(1)
    other = wire.attach_sender("two", 1)
    wire.send(transfer(300, more=True), b"a")
    wire.send(transfer(301, handle=1), b"x")
    wire.send(Transfer(0, more=True), b"b")
    wire.send(transfer(302, handle=1), b"y")
    wire.send(Transfer(0), b"c")
    seen = [
        (each.link, parts([each]) or each.payloads)
        for each in wire.events
        if hasattr(each, "payloads") or parts([each])
    ]
    assert seen == [
        (link, [(0, b"a", True)]),
        (other, [b"x"]),
        (link, [(1, b"b", True)]),
        (other, [b"y"]),
        (link, [(2, b"c", False)]),
    ]


def test_a_settlement_between_its_frames_settles_it() -> None:
    wire, _ = streaming(1)
    wire.send(transfer(0, more=True), b"a")
    assert only(wire.send(Disposition(False, 0, 0, True)), Dispositions).settled
    (last,) = wire.send(Transfer(0), b"b")
    assert isinstance(last, TransferPart)
    assert last.settled


def test_parts_say_what_they_resume_and_in_which_state() -> None:
    wire, _ = streaming(1)
    (first,) = wire.send(transfer(0, more=True, resume=True, state=Received(3, 17)), b"a")
    assert isinstance(first, TransferPart)
    assert (first.resume, first.state) == (True, Received(3, 17))


def test_the_largest_message_is_that_of_joined_ones() -> None:
    wire, _ = streaming(4, max_message_size=10)
    wire.send(transfer(0, more=True), b"12345678")
    assert parts(wire.send(Transfer(0), b"9ab")) == [(8, b"9ab", False)]
    wire.send(transfer(1, more=True, settled=True), b"12345678")
    detached_with(wire.send(Transfer(0, more=True), b"9ab"), MESSAGE_SIZE_EXCEEDED)


def test_the_rules_of_a_delivery_hold_for_parts() -> None:
    wire, _ = streaming(1)
    wire.send(transfer(0, more=True), b"a")
    detached_with(wire.send(transfer(1, b"other"), b"b"), NOT_ALLOWED)
    wire, _ = streaming(1)
    wire.send(transfer(0, more=True), b"a")
    detached_with(wire.send(Transfer(0, delivery_tag=b"other"), b"b"), INVALID_FIELD)


def test_the_window_bounds_what_comes_of_it() -> None:
    """Credit counts deliveries, so only the session's window holds a large one back (AMQP 2.5.6)."""
    pair = Pair(server={"incoming_window": 4, "max_frame_size": 1024})
    sender, receiver = pair.publishing()
    receiver.part_size = 1
    receiver.session.pause_incoming()
    sender.begin(b"t", b"x" * 500)
    came = sum(len(payload) for _, payload, _ in parts(pair.pump()[1]))
    while sender.part_capacity():
        sender.add(b"x" * min(sender.part_capacity(), 1000), more=True)
        came += sum(len(payload) for _, payload, _ in parts(pair.pump()[1]))
    assert 500 < came < 4 * 1024
    with pytest.raises(LocalProtocolError):
        sender.add(b"x", more=True)
    receiver.session.resume_incoming()
    at_client, _ = pair.pump()
    assert only(at_client, SessionFlow)
    assert sender.part_capacity() > 3 * 800


# Sending ------------------------------------------------------------------------------------------------------------


def test_a_delivery_is_sent_before_its_end_is_known() -> None:
    wire = Wire()
    link = wire.attach_receiver()
    assert link.begin(b"t", b"ab", message_format=7) == 0
    assert link.open_delivery == 0
    assert link.capacity() == 0, "nothing else goes out on this link"
    assert (link.credit, link.delivery_count) == (99, 1)
    link.add(b"c", more=True)
    link.add(b"", more=True)
    link.add(b"", more=False)
    assert frames(wire.server.data_to_send()) == [
        (Transfer(0, 0, b"t", 7, False, True), b"ab"),
        (Transfer(0, more=True), b"c"),
        (Transfer(0), b""),
    ]
    assert link.open_delivery is None
    assert link.capacity() == 99
    assert link.send([b"u"], [b"next"]) == 1
    wire.server.check_invariants()


def test_parts_are_cut_to_the_peers_frame_size() -> None:
    pair = Pair(client={"max_frame_size": 1024})
    _, sender = pair.subscribing()
    sender.begin(b"t", b"a" * 3000)
    sender.add(b"b" * 5000, more=True)
    sender.add(b"c" * 2000, more=False)
    at_client, _ = pair.pump()
    assert only(at_client, Transfers).payloads == [b"a" * 3000 + b"b" * 5000 + b"c" * 2000]


def test_an_aborted_delivery_is_settled_at_both_sides() -> None:
    wire = Wire()
    link = wire.attach_receiver()
    link.begin(b"t", b"ab")
    link.abort()
    assert frames(wire.server.data_to_send())[1:] == [(Transfer(0, aborted=True), b"")]
    assert link.open_delivery is None
    assert len(link.session.outgoing.unsettled) == 0
    assert wire.send(Disposition(True, 0, 0, True, ACCEPTED)) == [], "it is not unsettled any more"
    assert link.send([b"u"], [b"next"]) == 1


def test_an_abort_waits_for_the_window() -> None:
    wire = Wire()
    link = wire.attach_receiver()
    wire.send(flow(incoming_window=1))
    link.begin(b"t", b"ab")
    assert link.part_capacity() == 0
    link.abort()
    assert [type(each) for each in wire.read()] == [Transfer]
    wire.send(flow(next_incoming_id=1, incoming_window=1))
    assert [each.aborted for each in wire.read() if isinstance(each, Transfer)] == [True]


def test_other_links_send_while_a_delivery_is_open() -> None:
    pair = Pair()
    session = pair.client.begin()
    _, one = pair.subscribing(session)
    _, two = pair.subscribing(session, "two")
    one.begin(b"t", b"a")
    two.send([b"u"], [b"small"])
    one.add(b"b", more=False)
    at_client, _ = pair.pump()
    assert [(event.first_id, event.payloads) for event in at_client if isinstance(event, Transfers)] == [
        (1, [b"small"]),
        (0, [b"ab"]),
    ]


def test_a_receiver_may_speak_of_an_open_delivery() -> None:
    wire = Wire()
    link = wire.attach_receiver()
    delivery_id = link.begin(b"t", b"ab")
    assert wire.send(Disposition(True, 0, 0, False, Received(0, 2))) == []
    (event,) = wire.send(Disposition(True, 0, 0, False, RELEASED))
    assert event == Dispositions(link, delivery_id, delivery_id, RELEASED, False)
    assert link.open_delivery == delivery_id


def test_what_a_delivery_that_is_not_open_cannot_do() -> None:
    pair = Pair()
    _, link = pair.subscribing()
    with pytest.raises(LocalProtocolError):
        link.add(b"", more=False)
    with pytest.raises(LocalProtocolError):
        link.abort()
    link.begin(b"t", b"")
    with pytest.raises(LocalProtocolError):
        link.begin(b"u", b"")
    with pytest.raises(LocalProtocolError):
        link.send([b"u"], [b""])


def test_the_end_of_a_link_ends_its_open_delivery() -> None:
    pair = Pair()
    receiver, sender = pair.subscribing()
    sender.begin(b"t", b"ab")
    pair.pump()
    receiver.detach()
    pair.pump()
    assert sender.open_delivery is None
    assert pair.client.incomplete_size == 0
    assert sender.part_capacity() == 0


# Proton -------------------------------------------------------------------------------------------------------------


def test_proton_streams_to_us() -> None:
    peer = Proton()
    sender = peer.sender()
    link = only(peer.pump(), LinkAttaching).link
    assert isinstance(link, ReceiverLink)
    link.part_size = KIB
    delivery = sender.delivery("t")
    came = []
    for number in range(5):
        sender.stream(bytes([number]) * 3 * KIB)
        came += parts(peer.pump())
        assert sum(len(payload) for _, payload, _ in came) == 3 * KIB * (number + 1), (
            "passed on before the next is sent"
        )
    sender.advance()
    came += parts(peer.pump())
    assert b"".join(payload for _, payload, _ in came) == b"".join(bytes([n]) * 3 * KIB for n in range(5))
    assert [more for _, _, more in came] == [True] * (len(came) - 1) + [False]
    link.dispose(0, 0, ACCEPTED, True)
    peer.pump()
    assert delivery.remote_state == proton.Delivery.ACCEPTED
    assert delivery.settled


def test_proton_aborts_in_mid_message() -> None:
    peer = Proton()
    sender = peer.sender()
    link = only(peer.pump(), LinkAttaching).link
    assert isinstance(link, ReceiverLink)
    link.part_size = KIB
    delivery = sender.delivery("t")
    sender.stream(bytes(5 * KIB))
    assert sum(len(payload) for _, payload, _ in parts(peer.pump())) == 5 * KIB
    delivery.abort()
    last = only(peer.pump(), TransferPart)
    assert last.aborted
    assert last.offset == 5 * KIB
    sender.delivery("u")
    sender.stream(b"next")
    sender.advance()
    assert only(peer.pump(), Transfers).payloads == [b"next"]


@pytest.mark.parametrize("aborted", [False, True])
def test_proton_reads_what_we_stream_or_abort(aborted: bool) -> None:
    peer = Proton()
    receiver = peer.receiver()
    link = only(peer.pump(), LinkAttaching).link
    assert isinstance(link, SenderLink)
    receiver.flow(10)
    got: list[bytes] = []
    ended: list[bool] = []

    def handle(event: Any) -> None:
        accept_everything(peer)(event)
        if event.type is proton.Event.DELIVERY and event.delivery.readable:
            delivery = event.delivery
            if delivery.aborted:
                ended.append(True)
                delivery.settle()
                return
            got.append(read(delivery))
            if not delivery.partial:
                ended.append(False)
                delivery.update(proton.Delivery.ACCEPTED)
                delivery.settle()

    peer.pump(handle)
    link.begin(b"t", bytes(2 * KIB))
    peer.pump(handle)
    assert sum(map(len, got)) == 2 * KIB, "it has read the first part"
    link.add(bytes(100 * KIB), more=True)
    peer.pump(handle)
    if aborted:
        link.abort()
        peer.pump(handle)
    else:
        link.add(b"end", more=False)
        assert only(peer.pump(handle), Dispositions).state == ACCEPTED
        assert b"".join(got) == bytes(102 * KIB) + b"end"
    assert ended == [aborted]
    link.send([b"u"], [b"next"])
    assert only(peer.pump(handle), Dispositions).state == ACCEPTED
    assert got[-1] == b"next"
