"""The bytes between neighbours: packets, and how several of them share one transfer.

A transfer's payload is a row of packets, each behind its length. Neighbours say HEARTBEAT and LINK_STATE to each other;
OPEN, STREAM and ACK travel over any number of hops, addressed by router incarnations. STREAM and ACK have one form:
entries, one for each destination, then the messages that all of them get. A transit hop reads only destinations.

`decode` functions believe nothing: what is malformed is a `PacketError`. Nothing here has state. Read stream.py for
what the fields of an entry mean, linkstate.py for LINK_STATE, session.py for OPEN.

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

GAP: Final = 1  # entry flag: something is missing at the acknowledged place; send again from there
PROBE: Final = 2  # entry flag: this is how far I have sent, answer at once

MORE: Final = 0x80000000  # of a message's length: the message goes on in the next one of the stream

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
    """A neighbour's bytes are no packets: its trunk is closed."""


class BodyError(Exception):
    """The far end's part of a STREAM packet is malformed: its session is reset."""


@dataclass(slots=True)
class LinkStatePacket:
    name: str
    incarnation: int
    sequence: int
    age_ms: int
    links: tuple[tuple[int, int], ...]
    """(Neighbour's incarnation, cost)."""
    former: tuple[int, ...]
    """Incarnations of this router that are no more."""


@dataclass(slots=True)
class OpenPacket:
    source: int
    destination: int
    number: int
    echo: int
    """The receiver's own number, 0 where it is not known."""


def split(payload: bytes) -> list[tuple[int, int]]:
    """(start, end) of each packet in a transfer, without its length."""
    found = []
    offset, size = 0, len(payload)
    while offset < size:
        start = offset + 4
        if start >= size:
            raise PacketError(f"a packet is cut off at octet {offset}")
        offset = start + _unpack_u32(payload, offset)[0]
        if offset == start or offset > size:
            raise PacketError(f"the packet at octet {start - 4} has {offset - start} octets, {size - start} are there")
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
            raise PacketError(f"a link state with {count} links in {end - offset} octets")
        links = tuple(_LINK.iter_unpack(payload[offset : offset + count * _LINK.size]))
        offset += count * _LINK.size
        (count,) = _unpack_u16(payload, offset)
        offset += 2
        if offset + count * 8 != end:
            raise PacketError(f"a link state with {count} former incarnations in {end - offset} octets")
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
        raise PacketError(f"an open of {end - start} octets")
    return OpenPacket(*_OPEN.unpack_from(payload, start)[2:])


# STREAM and ACK -------------------------------------------------------------------------------------------------------


def encode_stream(kind: int, entries: Sequence[Entry], lengths: Sequence[int], bodies: Sequence[bytes]) -> list[bytes]:
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
    """The incarnations a STREAM or ACK is for, and where its body begins. All that a transit hop reads."""
    if end - start < ENTRIES_AT + ENTRY_SIZE + 2:
        raise PacketError(f"a stream packet of {end - start} octets")
    (count,) = _unpack_u16(payload, start + 2)
    body = start + ENTRIES_AT + count * ENTRY_SIZE
    if not count or body + 2 > end:
        raise PacketError(f"a stream packet for {count} routers in {end - start} octets")
    if count == 1:
        return [_unpack_u64(payload, start + ENTRIES_AT)[0]], body
    return [_unpack_u64(payload, at)[0] for at in range(start + ENTRIES_AT, body, ENTRY_SIZE)], body


def entry_at(payload: bytes, start: int, index: int) -> Entry:
    return _unpack_entry(payload, start + ENTRIES_AT + index * ENTRY_SIZE)


def passed_on(payload: bytes, start: int, end: int) -> bytes | None:
    """The packet for the next hop, with its length; None where its hops are used up."""
    hops = payload[start + 1]
    if not hops:
        return None
    return b"".join((payload[start - 4 : start + 1], _BYTES[hops - 1], payload[start + 2 : end]))


def branch(payload: bytes, start: int, end: int, body: int, indices: Sequence[int]) -> bytes | None:
    """The packet for one branch of the tree: the entries of these destinations, the same body."""
    hops = payload[start + 1]
    if not hops:
        return None
    first = start + ENTRIES_AT
    head = _HEAD.pack(ENTRIES_AT + len(indices) * ENTRY_SIZE + end - body, payload[start], hops - 1, len(indices))
    entries = [payload[first + i * ENTRY_SIZE : first + (i + 1) * ENTRY_SIZE] for i in indices]
    return b"".join((head, *entries, payload[body:end]))


def decode_body(payload: bytes, body: int, end: int) -> tuple[tuple[int, ...], int]:
    """Lengths (with MORE) of a STREAM's messages, and where the first begins. BodyError unless they fill the packet."""
    (count,) = _unpack_u16(payload, body)
    offset = body + 2 + 4 * count
    if offset > end:
        raise BodyError(f"{count} messages in {end - body} octets")
    lengths: tuple[int, ...]
    if count == 1:
        lengths = _unpack_u32(payload, body + 2)
        total = lengths[0] & ~MORE
    else:
        unpacker = _LENGTHS[count] if count < len(_LENGTHS) else struct.Struct(f">{count}I")
        lengths = unpacker.unpack_from(payload, body + 2)
        total = sum([length & ~MORE for length in lengths])
    if offset + total != end:
        raise BodyError(f"{count} messages of {total} octets, {end - offset} are there")
    return lengths, offset


_BYTES: Final = [bytes((value,)) for value in range(256)]
