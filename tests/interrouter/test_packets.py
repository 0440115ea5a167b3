"""The bytes between neighbours: what is written is read again, and nothing else is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interrouter.packets import (
    ACK,
    ENTRY_SIZE,
    HEARTBEAT_PACKET,
    MAX_HOPS,
    MORE,
    STREAM,
    BodyError,
    Entry,
    LinkStatePacket,
    OpenPacket,
    PacketError,
    branch,
    decode_body,
    decode_link_state,
    decode_open,
    destinations,
    encode_link_state,
    encode_open,
    encode_stream,
    entry_at,
    forwarded,
    split,
)

u64 = st.integers(0, 2**64 - 1)
u16 = st.integers(0, 2**16 - 1)
entries = st.tuples(u64, u64, u64, u64, u16, u16, st.integers(0, 255))
bodies = st.lists(st.tuples(st.binary(max_size=50), st.booleans()), max_size=80)


def stream(entries: list[Entry], messages: list[tuple[bytes, bool]], kind: int = STREAM) -> bytes:
    lengths = [len(body) | MORE if more else len(body) for body, more in messages]
    return b"".join(encode_stream(kind, entries, lengths, [body for body, _ in messages]))


@given(st.lists(entries, min_size=1, max_size=70), bodies)
def test_stream_packets_are_read_as_they_were_written(wanted: list[Entry], messages: list[tuple[bytes, bool]]) -> None:
    payload = HEARTBEAT_PACKET + stream(wanted, messages) + HEARTBEAT_PACKET
    (_, (start, end), _) = split(payload)
    nodes, body = destinations(payload, start, end)
    assert nodes == [entry[0] for entry in wanted]
    assert [entry_at(payload, start, index) for index in range(len(nodes))] == wanted
    lengths, offset = decode_body(payload, body, end)
    read = []
    for length in lengths:
        size = length & ~MORE
        read.append((payload[offset : offset + size], length >= MORE))
        offset += size
    assert read == messages


@given(st.lists(entries, min_size=2, max_size=9), bodies, st.data())
def test_a_branch_has_its_entries_and_the_same_body(
    wanted: list[Entry], messages: list[tuple[bytes, bool]], data: st.DataObject
) -> None:
    payload = stream(wanted, messages)
    indices = sorted(data.draw(st.sets(st.integers(0, len(wanted) - 1), min_size=1)))
    _, body = destinations(payload, 4, len(payload))
    further = branch(payload, 4, len(payload), body, indices)
    assert further is not None
    expected = bytearray(stream([wanted[i] for i in indices], messages))
    expected[5] = MAX_HOPS - 1
    assert further == bytes(expected)


def test_hops_run_out() -> None:
    entry = (1, 2, 3, 4, 5, 6, 7)
    packet: bytes | None = stream([entry, entry], [(b"x", False)])
    for _ in range(MAX_HOPS):
        assert packet is not None
        packet = forwarded(packet, 4, len(packet))
    assert packet is not None
    assert forwarded(packet, 4, len(packet)) is None
    assert branch(packet, 4, len(packet), 10 + 2 * ENTRY_SIZE, [0]) is None


@given(
    st.text(min_size=1, max_size=60),
    u64,
    u64,
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(u64, st.integers(1, 1_000_000)), max_size=20),
    st.lists(u64, max_size=5),
)
def test_link_states_are_read_as_they_were_written(
    name: str, incarnation: int, sequence: int, age: int, links: list[tuple[int, int]], former: list[int]
) -> None:
    state = LinkStatePacket(name, incarnation, sequence, age, tuple(links), tuple(former))
    packet = encode_link_state(state)
    assert decode_link_state(packet, 4, len(packet)) == state


@given(u64, u64, u64, u64)
def test_opens_are_read_as_they_were_written(source: int, destination: int, number: int, echo: int) -> None:
    packet = encode_open(OpenPacket(source, destination, number, echo))
    assert decode_open(packet, 4, len(packet)) == OpenPacket(source, destination, number, echo)


@given(st.binary(max_size=200))
def test_octets_at_random_are_a_packet_error_or_packets(data: bytes) -> None:
    try:
        found = split(data)
    except PacketError:
        return
    assert b"".join(data[start - 4 : end] for start, end in found) == data
    for start, end in found:
        for decode in (decode_link_state, decode_open):
            try:
                decode(data, start, end)
            except PacketError:
                pass
        try:
            nodes, body = destinations(data, start, end)
            assert nodes
            lengths, offset = decode_body(data, body, end)
            assert offset + sum(length & ~MORE for length in lengths) == end
        except (PacketError, BodyError):
            pass


@pytest.mark.parametrize("cost", [0, 1_000_001])
def test_costs_out_of_range_are_no_link_state(cost: int) -> None:
    packet = encode_link_state(LinkStatePacket("a", 1, 1, 0, ((2, cost),), ()))
    with pytest.raises(PacketError):
        decode_link_state(packet, 4, len(packet))


def test_an_ack_is_a_stream_packet_without_messages() -> None:
    packet = stream([(1, 2, 3, 4, 5, 6, 7)], [], ACK)
    _, body = destinations(packet, 4, len(packet))
    assert decode_body(packet, body, len(packet)) == ((), len(packet))
