"""The bytes between neighbours: packets, and how several of them share one transfer.

A transfer's payload is a row of packets, each preceded by its length. HEARTBEAT and LINK_STATE go to neighbours; OPEN,
STREAM and ACK travel over any number of hops, addressed to router incarnations. STREAM and ACK have one form: entries,
one for each destination, then the messages for all of them. A transit hop reads only the destinations.

`decode` functions trust nothing: malformed bytes raise `PacketError`. Nothing here has state. Read stream.py for the
fields of an entry, linkstate.py for LINK_STATE, session.py for OPEN.

    packet     = u32 length of the rest | u8 kind | ...
    LINK_STATE = name | u64 incarnation | u64 sequence | u32 age in ms | n (u64 neighbour, u32 cost) | n u64 former
    OPEN       = u8 hops left | u64 source | u64 destination | u64 number | u64 echo
    STREAM     = u8 hops left | u16 entries | entries | u16 n | n u32 (more follows: bit 31; length) | n messages
    ACK        = STREAM without messages, and urgent
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

HEARTBEAT: Final = 1
LINK_STATE: Final = 2
OPEN: Final = 3
STREAM: Final = 4
ACK: Final = 5

MAX_HOPS: Final = 128
MAX_NAME: Final = 255
MAX_LINKS: Final = 4096
MAX_COST: Final = 1_000_000

GAP: Final = 1  # entry flag: the message at the acknowledged position is missing; send again from there
PROBE: Final = 2  # entry flag: everything before this position has been sent; acknowledge at once

MORE: Final = 0x80000000  # bit of a message's length: the message continues in the next one of the stream

Entry = tuple[int, int, int, int, int, int, int]
"""Destination incarnation, session token, number of the first message, acknowledged up to, round, round of the gap,
flags."""

_ENTRY: Final = struct.Struct(">QQQQHHB")
ENTRY_SIZE: Final = _ENTRY.size
_HEAD: Final = struct.Struct(">IBBH")
_ONE: Final = struct.Struct(">IBBHQQQQHHBH")  # the head, a single entry, and how many messages
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_OPEN: Final = struct.Struct(">BBQQQQ")
_STATE: Final = struct.Struct(">QQI")
_LINK: Final = struct.Struct(">QI")
_LENGTHS: Final = [struct.Struct(f">{n}I") for n in range(65)]
HEARTBEAT_PACKET: Final = _U32.pack(1) + bytes((HEARTBEAT,))
HEAD_SIZE: Final = _HEAD.size  # with the packet's length
ENTRIES_AT: Final = HEAD_SIZE - _U32.size  # from the packet's start, which is behind its length

_unpack_u16 = _U16.unpack_from
_unpack_u32 = _U32.unpack_from
_unpack_u64 = _U64.unpack_from
_unpack_entry = _ENTRY.unpack_from


class PacketError(Exception):
    """A neighbour's bytes are malformed: its trunk is closed."""


class BodyError(Exception):
    """The far end's part of a STREAM packet is malformed: its session is reset."""


@dataclass
class LinkStatePacket:
    name: str
    incarnation: int
    sequence: int
    age_ms: int
    links: tuple[tuple[int, int], ...]
    """(Neighbour's incarnation, cost)."""
    former: tuple[int, ...]
    """Earlier incarnations of this router."""


@dataclass
class OpenPacket:
    source: int
    destination: int
    number: int
    echo: int
    """The receiver's number as its sender knows it; 0: not known."""


def split(payload: bytes) -> list[tuple[int, int]]:
    """(start, end) of each packet in a transfer, without its length."""
    found = []
    offset, size = 0, len(payload)
    while offset < size:
        start = offset + 4
        if start >= size:
            raise PacketError(f"a packet is cut off at byte {offset}")
        offset = start + _unpack_u32(payload, offset)[0]
        if offset == start or offset > size:
            raise PacketError(f"the packet at byte {start - 4} has {offset - start} bytes, {size - start} are there")
        found.append((start, offset))
    return found


# LINK_STATE and OPEN --------------------------------------------------------------------------------------------------


def encode_link_state(state: LinkStatePacket) -> bytes:
    name = state.name.encode()
    parts = [
        bytes((LINK_STATE, len(name))),
        name,
        _STATE.pack(state.incarnation, state.sequence, min(state.age_ms, 0xFFFFFFFF)),
        _U16.pack(len(state.links)),
        *(_LINK.pack(*link) for link in state.links),
        _U16.pack(len(state.former)),
        *(_U64.pack(former) for former in state.former),
    ]
    body = b"".join(parts)
    return _U32.pack(len(body)) + body


def decode_link_state(payload: bytes, start: int, end: int) -> LinkStatePacket:
    try:
        offset = start + 2 + payload[start + 1]
        name = payload[start + 2 : offset].decode()
        incarnation, sequence, age_ms = _STATE.unpack_from(payload, offset)
        offset += _STATE.size
        (count,) = _unpack_u16(payload, offset)
        offset += 2
        if count > MAX_LINKS or offset + count * _LINK.size > end:
            raise PacketError(f"a link state with {count} links in {end - offset} bytes")
        links = tuple(_LINK.iter_unpack(payload[offset : offset + count * _LINK.size]))
        offset += count * _LINK.size
        (count,) = _unpack_u16(payload, offset)
        offset += 2
        if offset + count * 8 != end:
            raise PacketError(f"a link state with {count} former incarnations in {end - offset} bytes")
        former = tuple(value for (value,) in _U64.iter_unpack(payload[offset:end]))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise PacketError(f"a link state that cannot be read: {error}") from None
    if not name or not all(0 < cost <= MAX_COST for _, cost in links):
        raise PacketError(f"the link state of {name!r} has no name, or a cost out of range")
    return LinkStatePacket(name, incarnation, sequence, age_ms, links, former)


def encode_open(packet: OpenPacket) -> bytes:
    return _U32.pack(_OPEN.size) + _OPEN.pack(
        OPEN, MAX_HOPS, packet.source, packet.destination, packet.number, packet.echo
    )


def decode_open(payload: bytes, start: int, end: int) -> OpenPacket:
    if end - start != _OPEN.size:
        raise PacketError(f"an open of {end - start} bytes")
    return OpenPacket(*_OPEN.unpack_from(payload, start)[2:])


# STREAM and ACK -------------------------------------------------------------------------------------------------------


def encode_stream(
    kind: int, entries: Sequence[Entry], lengths: Sequence[int], bodies: Sequence[bytes | memoryview]
) -> list[bytes | memoryview]:
    """The packet in parts, so that large bodies are joined once. lengths: with MORE where it applies."""
    count = len(lengths)
    size = 6 + len(entries) * ENTRY_SIZE + 4 * count
    for body in bodies:
        size += len(body)
    if len(entries) == 1:
        head = _ONE.pack(size, kind, MAX_HOPS, 1, *entries[0], count)
    else:
        head = b"".join(
            [
                _HEAD.pack(size, kind, MAX_HOPS, len(entries)),
                *(_ENTRY.pack(*entry) for entry in entries),
                _U16.pack(count),
            ]
        )
    if count == 1:
        return [head + _U32.pack(lengths[0]), bodies[0]]
    if not count:
        return [head]
    packer = _LENGTHS[count] if count < len(_LENGTHS) else struct.Struct(f">{count}I")
    return [head + packer.pack(*lengths), *bodies]


def destinations(payload: bytes, start: int, end: int) -> tuple[list[int], int]:
    """The destinations of a STREAM or ACK (incarnations), and where its body begins. All that a transit hop reads."""
    if end - start < ENTRIES_AT + ENTRY_SIZE + 2:
        raise PacketError(f"a stream packet of {end - start} bytes")
    (count,) = _unpack_u16(payload, start + 2)
    body = start + ENTRIES_AT + count * ENTRY_SIZE
    if not count or body + 2 > end:
        raise PacketError(f"a stream packet for {count} routers in {end - start} bytes")
    if count == 1:
        return [_unpack_u64(payload, start + ENTRIES_AT)[0]], body
    return [_unpack_u64(payload, at)[0] for at in range(start + ENTRIES_AT, body, ENTRY_SIZE)], body


def entry_at(payload: bytes, start: int, index: int) -> Entry:
    return _unpack_entry(payload, start + ENTRIES_AT + index * ENTRY_SIZE)


def forwarded(payload: bytes, start: int, end: int) -> bytes | None:
    """The packet for the next hop, with its length; None if its hop limit is reached."""
    hops = payload[start + 1]
    if not hops:
        return None
    view = memoryview(payload)
    return b"".join((view[start - 4 : start + 1], _BYTES[hops - 1], view[start + 2 : end]))


def branch(payload: bytes, start: int, end: int, body: int, indices: Sequence[int]) -> bytes | None:
    """The packet for one branch of the tree: the entries of these destinations, the same body."""
    hops = payload[start + 1]
    if not hops:
        return None
    first = start + ENTRIES_AT
    head = _HEAD.pack(ENTRIES_AT + len(indices) * ENTRY_SIZE + end - body, payload[start], hops - 1, len(indices))
    entries = [payload[first + i * ENTRY_SIZE : first + (i + 1) * ENTRY_SIZE] for i in indices]
    return b"".join((head, *entries, memoryview(payload)[body:end]))


def decode_body(payload: bytes, body: int, end: int) -> tuple[tuple[int, ...], int]:
    """Lengths (with MORE) of a STREAM's messages, and where the first begins. BodyError unless they fill the packet."""
    (count,) = _unpack_u16(payload, body)
    offset = body + 2 + 4 * count
    if offset > end:
        raise BodyError(f"{count} messages in {end - body} bytes")
    lengths: tuple[int, ...]
    if count == 1:
        lengths = _unpack_u32(payload, body + 2)
        total = lengths[0] & ~MORE
    else:
        unpacker = _LENGTHS[count] if count < len(_LENGTHS) else struct.Struct(f">{count}I")
        lengths = unpacker.unpack_from(payload, body + 2)
        total = sum([length & ~MORE for length in lengths])
    if offset + total != end:
        raise BodyError(f"{count} messages of {total} bytes, {end - offset} are there")
    return lengths, offset


_BYTES: Final = [bytes((value,)) for value in range(256)]
