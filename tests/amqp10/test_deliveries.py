"""Multi-frame deliveries, settlement, resumption, states and dispositions; and faults of one link."""

from __future__ import annotations

import tracemalloc

import pytest

from amqp10 import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Dispositions,
    Error,
    LocalProtocolError,
    Modified,
    Received,
    Rejected,
    ResumedTransfer,
    Transfers,
)
from amqp10.errors import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, NOT_ALLOWED, TRANSFER_LIMIT_EXCEEDED
from amqp10.frames import LARGE
from amqp10.performatives import Disposition, Transfer
from tests.amqp10.pair import Pair, Wire, detached_with, frames, kinds, only, transfer

# Transfers --------------------------------------------------------------------------------------------------------------


def test_a_multi_frame_message_is_put_together() -> None:
    wire = Wire()
    link = wire.attach_sender()
    assert wire.send(transfer(0, more=True, message_format=7), b"one ") == []
    assert wire.send(Transfer(0, more=True), b"two ") == []
    assert wire.send(Transfer(0, settled=True), b"three") == [Transfers(link, 0, [b"tag"], [b"one two three"], True, 7)]
    assert link.delivery_count == 1


def test_frames_of_two_links_may_be_interleaved() -> None:
    wire = Wire()
    one, two = wire.attach_sender(), wire.attach_sender("two", 1)
    wire.send(transfer(300, more=True), b"a")
    wire.send(transfer(301, handle=1), b"x")
    wire.send(transfer(302, handle=1), b"y")
    wire.send(Transfer(0), b"b")
    assert [(event.link, event.first_id, event.payloads) for event in wire.events if isinstance(event, Transfers)] == [
        (two, 301, [b"x"]),
        (two, 302, [b"y"]),
        (one, 300, [b"ab"]),
    ]
    wire.events.clear()
    wire.send(Disposition(False, 300, 302, True))
    assert [
        (event.link, event.first_id, event.last_id) for event in wire.events if isinstance(event, Dispositions)
    ] == [
        (one, 300, 300),
        (two, 301, 302),
    ]


def test_an_aborted_delivery_is_as_if_it_had_never_been() -> None:
    wire = Wire()
    link = wire.attach_sender()
    wire.send(transfer(0, more=True), b"a")
    (event,) = wire.send(Transfer(0, aborted=True), b"")
    assert event == ResumedTransfer(link, 0, b"tag", None, None, True, True, False, None), "it has used credit"
    assert link.delivery_count == 1
    wire.send(transfer(1), b"next")
    assert only(wire.events, Transfers).payloads == [b"next"]
    assert len(link.session.incoming.unsettled) == 1


def test_a_delivery_that_begins_inside_another_detaches_the_link() -> None:
    wire = Wire()
    wire.attach_sender()
    wire.send(transfer(0, more=True), b"a")
    detached_with(wire.send(transfer(1, b"other"), b"b"), NOT_ALLOWED)


@pytest.mark.parametrize(
    "fields",
    [
        Transfer(0, None, b"tag", 0),
        Transfer(0, 0, None, 0),
        Transfer(0, 0, b"tag", 0, rcv_settle_mode=1),
    ],
)
def test_a_transfer_that_lacks_what_it_needs_detaches_the_link(fields: Transfer) -> None:
    wire = Wire()
    wire.attach_sender()
    detached_with(wire.send(fields, b""), INVALID_FIELD)


def test_a_sender_that_said_settled_is_held_to_it() -> None:
    wire = Wire()
    wire.attach_sender(snd_settle_mode=1)
    assert kinds(wire.send(transfer(0, settled=True), b"")) == ["Transfers"]
    detached_with(wire.send(transfer(1, settled=False), b""), INVALID_FIELD)


def test_a_sender_that_settles_early_may_write_settled_in_any_mode() -> None:
    wire = Wire()
    wire.attach_sender(snd_settle_mode=0)
    assert only(wire.send(transfer(0, settled=True), b""), Transfers).settled


def test_rcv_settle_mode_of_a_transfer_is_told() -> None:
    wire = Wire()
    wire.attach_sender(rcv_settle_mode=1)
    wire.send(transfer(0, rcv_settle_mode=0), b"")
    wire.send(transfer(1), b"")
    assert [event.rcv_settle_mode for event in wire.events if isinstance(event, Transfers)] == [0, None]


@pytest.mark.parametrize("start", [0, 300])
@pytest.mark.parametrize("pieces", [1, 4])
def test_a_message_above_max_message_size_detaches_the_link(start: int, pieces: int) -> None:
    wire = Wire(max_message_size=1000)
    link = wire.attach_sender()
    wire.send(transfer(start), b"x" * 1000)
    wire.send(transfer(start + 1), b"x" * 1000)
    assert link.delivery_count == 2
    wire.events.clear()
    if pieces == 1:
        wire.send(transfer(start + 2), b"x" * 1001)
    else:
        wire.send(transfer(start + 2, more=True), b"x" * 400)
        wire.send(Transfer(0, more=True), b"x" * 400)
        wire.send(Transfer(0), b"x" * 400)
    detached_with(wire.events, MESSAGE_SIZE_EXCEEDED)
    assert link._partial is None


def test_max_message_size_is_advertised() -> None:
    pair = Pair(server={"max_message_size": 12345})
    sender, _ = pair.publishing()
    assert sender.remote_max_message_size == 12345


@pytest.mark.parametrize("size", [0, 100, 400, 505, 506, 507, 512, 513, 5000])
def test_messages_are_cut_to_the_peers_frame_size(size: int) -> None:
    pair = Pair(server={"max_frame_size": 512})
    sender, _ = pair.publishing()
    sender.send([b"a", b"b"], [b"x" * size, b"y" * size], message_format=9, settled=True)
    data = pair.client.data_to_send()
    offset = 0
    while offset < len(data):
        frame = int.from_bytes(data[offset : offset + 4], "big")
        assert frame <= 512
        offset += frame
    run = only(pair.server.receive_data(data, 0.0), Transfers)
    assert (run.payloads, run.message_format, run.settled) == ([b"x" * size, b"y" * size], 9, True)


def test_large_and_small_messages_mix_in_one_run() -> None:
    pair = Pair(server={"max_frame_size": 600}, client={"max_frame_size": 600})
    sender, _ = pair.publishing()
    payloads = [b"s" * 10, b"L" * 5000, b"s" * 20, b"M" * 600, b"s" * 30]
    first = sender.send([b"%d" % n for n in range(5)], payloads)
    _, at_server = pair.pump()
    run = only(at_server, Transfers)
    assert (run.first_id, run.payloads) == (first, payloads)


# Resumption -------------------------------------------------------------------------------------------------------------


def test_a_resumed_delivery_comes_alone() -> None:
    pair = Pair()
    receiver, link = pair.subscribing()
    link.send([b"0"], [b"new"])
    resumed = link.resume(b"1", ACCEPTED)
    settled = link.resume(b"2", settled=True)
    again = link.resume(b"3", payload=b"again", message_format=5)
    aborted = link.resume(b"4", aborted=True)
    link.send([b"5"], [b"newer"])
    assert link.credit == 94
    at_client, _ = pair.pump()
    assert at_client == [
        Transfers(receiver, 0, [b"0"], [b"new"], False, 0),
        ResumedTransfer(receiver, resumed, b"1", None, ACCEPTED, False, False, True, 0),
        ResumedTransfer(receiver, settled, b"2", None, None, True, False, True, 0),
        ResumedTransfer(receiver, again, b"3", b"again", None, False, False, True, 5),
        ResumedTransfer(receiver, aborted, b"4", None, None, True, True),
        Transfers(receiver, 5, [b"5"], [b"newer"], False, 0),
    ]
    receiver.dispose(0, 5, ACCEPTED, True)
    _, at_server = pair.pump()
    assert [(event.first_id, event.last_id) for event in at_server if isinstance(event, Dispositions)] == [
        (0, 1),
        (3, 3),
        (5, 5),
    ]


def test_a_large_resumed_delivery_is_cut_and_put_together() -> None:
    pair = Pair(client={"max_frame_size": 512})
    receiver, link = pair.subscribing()
    link.resume(b"1", payload=b"z" * 3000)
    at_client, _ = pair.pump()
    assert at_client == [ResumedTransfer(receiver, 0, b"1", b"z" * 3000, None, False, False, True, 0)]


def test_a_transfer_with_a_state_comes_alone() -> None:
    wire = Wire()
    link = wire.attach_sender()
    events = wire.send(transfer(0, state=Received(0, 0)), b"x")
    assert events == [ResumedTransfer(link, 0, b"tag", b"x", Received(0, 0), False, False, False, 0)]


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        RELEASED,
        Rejected(Error("amqp:internal-error", "d" * 400, {"n": 1})),
        Modified(True, False, {"x-opt-a": 1}),
        Received(1, 2),
        None,
    ],
)
@pytest.mark.parametrize("settled", [True, False])
def test_outcomes_and_settlements_pass_both_ways(state: DeliveryState | None, settled: bool) -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.send([b"1", b"2", b"3"], [b""] * 3)
    pair.pump()
    link.dispose(0, 1, state, False)
    sender.dispose(2, 2, state, settled)
    at_client, at_server = pair.pump()
    outcome = state is not None and not isinstance(state, Received)
    assert at_client == ([Dispositions(sender, 0, 1, state, False)] if outcome else [])
    assert at_server == ([Dispositions(link, 2, 2, state, settled)] if settled else [])


def test_an_outcome_is_told_once_and_is_final() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.send([b"1", b"2", b"3"], [b""] * 3)
    pair.pump()
    link.dispose(0, 1, ACCEPTED, False)
    assert pair.pump()[0] == [Dispositions(sender, 0, 1, ACCEPTED, False)]
    link.dispose(0, 2, RELEASED, False)
    assert pair.pump()[0] == [Dispositions(sender, 2, 2, RELEASED, False)]
    link.dispose(0, 2, ACCEPTED, True)
    assert pair.pump()[0] == [Dispositions(sender, 0, 2, ACCEPTED, True)]


def test_adjacent_equal_dispositions_are_one_range() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.send([b"x"] * 20, [b""] * 20)
    pair.pump()
    for number in (3, 4, 5, 0, 1, 2, 8, 7, 6):
        link.dispose(number, number, ACCEPTED, False)
    link.dispose(9, 9, RELEASED, True)
    link.dispose(0, 3, None, True)
    found = [performative for performative, _ in frames(pair.server.data_to_send())]
    assert found == [
        Disposition(True, 0, 8, False, ACCEPTED),
        Disposition(True, 9, None, True, RELEASED),
        Disposition(True, 0, 3, True, None),
    ]


def test_a_tag_above_32_octets_is_our_error() -> None:
    pair = Pair()
    sender, _ = pair.publishing()
    with pytest.raises(LocalProtocolError):
        sender.send([b"x" * 33], [b""])


# Large payloads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [None, 1000, 40_000, 65_536, 200_000])
def test_large_frames_are_the_same_however_their_bytes_arrive(chunk: int | None) -> None:
    pair = Pair(chunk=chunk)
    sender, receiver = pair.publishing()
    payloads = [bytes([65 + i]) * size for i, size in enumerate((LARGE, 300_000, 5, 70_000, LARGE - 60, 90_000))]
    sender.send([b"%d" % i for i in range(3)], payloads[:3])
    sender.send([b"%d" % i for i in range(3, 6)], payloads[3:])
    sender.flow(echo=True)
    _, at_server = pair.pump()
    runs = [event for event in at_server if isinstance(event, Transfers)]
    assert [payload for run in runs for payload in run.payloads] == payloads
    assert [tag for run in runs for tag in run.tags] == [b"%d" % i for i in range(6)]
    assert kinds(at_server)[-1] == "LinkFlow"
    assert pair.server.reader.buffered == 0
    receiver.dispose(0, 5, ACCEPTED, True)
    at_client, _ = pair.pump()
    assert [(event.first_id, event.last_id) for event in at_client if isinstance(event, Dispositions)] == [(0, 5)]


def test_large_payloads_are_handed_to_the_transport_as_they_are() -> None:
    pair = Pair()
    sender, _ = pair.publishing()
    small, large, split = b"s" * 100, bytes(LARGE), bytes(3 * sender.session.connection.remote_max_frame_size)
    sender.send([b"1", b"2", b"3"], [small, large, small])
    sender.send([b"4"], [split])
    output = pair.client.buffers_to_send()
    whole = [part for part in output if part is large]
    views = [part for part in output if isinstance(part, memoryview) and part.obj is split]
    assert len(whole) == 1
    assert sum(map(len, views)) > len(split) - LARGE
    assert sum(map(len, output)) - sum(map(len, views)) - LARGE < LARGE, "what is left is frames' heads"
    events = pair.server.receive_data(b"".join(output), 0.0)
    assert [p for e in events if isinstance(e, Transfers) for p in e.payloads] == [small, large, small, split]


@pytest.mark.parametrize("chunk", [None, 30_000])
def test_a_fault_in_a_large_frame_ends_what_a_small_one_would(chunk: int | None) -> None:
    pair = Pair(server={"max_message_size": 50_000}, chunk=chunk)
    sender, _ = pair.publishing()
    sender.send([b"1"], [bytes(60_000)])
    _, at_server = pair.pump()
    detached_with(at_server, MESSAGE_SIZE_EXCEEDED)
    sender, _ = pair.publishing(name="another")
    sender.credit = 101
    sender.send([b"t"] * 101, [bytes(LARGE)] * 101)
    _, at_server = pair.pump()
    detached_with(at_server, TRANSFER_LIMIT_EXCEEDED)


def test_a_large_delivery_is_held_once_while_its_frames_are_joined() -> None:
    frame, count = bytes(64 * 1024), 256
    wire = Wire(max_message_size=0)
    wire.attach_sender()
    wire.send(transfer(0, more=True), frame)
    tracemalloc.start()
    for _ in range(count - 2):
        wire.send(Transfer(0, more=True), frame)
    (event,) = wire.send(Transfer(0), frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(event, Transfers)
    assert len(event.payloads[0]) == count * len(frame)
    assert peak < 1.3 * count * len(frame)


def test_a_settled_delivery_in_parts_arrives_as_one() -> None:
    pair = Pair()
    sender, receiver = pair.publishing()
    sender.send_settled(b"t", [b"head", memoryview(bytes(LARGE)), b"tail"])
    _, at_server = pair.pump()
    assert only(at_server, Transfers) == Transfers(receiver, 0, [b"t"], [b"head" + bytes(LARGE) + b"tail"], True, 0)
    with pytest.raises(LocalProtocolError):
        sender.send_settled(b"t", [bytes(sender.session.connection.remote_max_frame_size)])
