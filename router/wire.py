"""The bytes of the messages between routers.

`encode` and `decode` are each other's inverse; `decode` believes nothing: every length is checked against the bytes
that are there before anything is built, and what is malformed is a `PeerProtocolError`, upon which the owner of the
session resets it.

Form: one byte kind, the address, then the fields; big-endian; strings and tags behind their length.  DATA keeps tags
and payloads joined, with their lengths packed, so that a batch costs the same few calls whatever its size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from router.intervals import OPEN, Range
from router.messages import (
    UNKNOWN,
    Accept,
    AcceptSync,
    Data,
    Entries,
    Expected,
    Flush,
    Hello,
    Join,
    Joined,
    JoinKind,
    JoinResult,
    Leave,
    Message,
    Orphan,
    PeerProtocolError,
    Pub,
    PubAck,
    PubClose,
    PubDown,
    PublisherNews,
    Rejection,
    Settle,
    SettleTags,
    SubscriptionName,
    SubscriptionNews,
    Sync,
)
from router.ports import Term

MAX_TAG: Final = 32
_NO_PAYLOAD: Final = 0xFFFFFFFF
_FOREVER: Final = 1e9  # seconds; durations of peers are cut there

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_F64 = struct.Struct(">d")
_RANGE = struct.Struct(">QQ")
_REJECTION = struct.Struct(">QQI")
_DATA = struct.Struct(">QI?I")  # position, message format, settled, how many


def _string(value: str) -> bytes:
    data = value.encode()
    return _U16.pack(len(data)) + data


def _binary(value: bytes) -> bytes:
    return _U16.pack(len(value)) + value


def _term(term: Term) -> bytes:
    return _U64.pack(term[0]) + _string(term[1])


def _maybe_term(term: Term | None) -> bytes:
    return b"\0" if term is None else b"\1" + _term(term)


def _name(name: SubscriptionName) -> bytes:
    return _string(name[0]) + _string(name[1])


def _tags(tags: list[bytes]) -> bytes:
    """Number, lengths (one byte where they are all equal), the tags joined."""
    n = len(tags)
    lengths = bytes(map(len, tags))
    if n and lengths.count(lengths[0]) == n:
        return _U32.pack(n) + lengths[:1] + b"".join(tags)
    return _U32.pack(n) + b"\xff" + lengths + b"".join(tags)


def _payloads(payloads: list[bytes]) -> bytes:
    """As many as there are tags: lengths (one where they are all equal), the payloads joined."""
    lengths = list(map(len, payloads))
    if lengths and lengths.count(lengths[0]) == len(lengths):
        return b"\1" + _U32.pack(lengths[0]) + b"".join(payloads)
    return b"\0" + struct.pack(f">{len(lengths)}I", *lengths) + b"".join(payloads)


def _sparse_payloads(payloads: list[bytes | None]) -> bytes:
    lengths = [_NO_PAYLOAD if payload is None else len(payload) for payload in payloads]
    return struct.pack(f">{len(lengths)}I", *lengths) + b"".join([payload for payload in payloads if payload])


def _ranges(ranges: list[Range]) -> bytes:
    return _U32.pack(len(ranges)) + b"".join([_RANGE.pack(*item) for item in ranges])


def _rejections(ranges: list[Rejection]) -> bytes:
    return _U32.pack(len(ranges)) + b"".join([_REJECTION.pack(*item) for item in ranges])


def _expected(expected: Expected | None) -> bytes:
    if expected is None:
        return b"\0"
    return b"\1" if expected is UNKNOWN else b"\2" + _tags(expected)


class _Reader:
    """Reads a message; whatever is not as it should be is the peer's error."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        start = self.at
        stop = start + length
        if stop > len(self.data):
            raise PeerProtocolError(f"message ends after {len(self.data)} bytes, {stop} are needed")
        self.at = stop
        return self.data[start:stop]

    def fields(self, form: struct.Struct) -> tuple[int, ...]:
        try:
            values = form.unpack_from(self.data, self.at)
        except struct.error:
            raise PeerProtocolError(f"message ends after {len(self.data)} bytes, inside a field") from None
        self.at += form.size
        return values

    def u8(self, limit: int = 255) -> int:
        value = self.take(1)[0]
        if value > limit:
            raise PeerProtocolError(f"{value} at {self.at - 1} is above {limit}")
        return value

    def flag(self) -> bool:
        return self.u8(1) == 1

    def u32(self) -> int:
        return self.fields(_U32)[0]

    def u64(self) -> int:
        return self.fields(_U64)[0]

    def seconds(self) -> float:
        value = float(self.fields(_F64)[0])
        if not 0 <= value <= _FOREVER:
            raise PeerProtocolError(f"{value} is no duration")
        return value

    def string(self) -> str:
        data = self.binary()
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise PeerProtocolError("a string is not UTF-8") from None

    def binary(self) -> bytes:
        return self.take(self.fields(_U16)[0])

    def term(self) -> Term:
        return (self.u64(), self.string())

    def maybe_term(self) -> Term | None:
        return self.term() if self.flag() else None

    def name(self) -> SubscriptionName:
        return (self.string(), self.string())

    def publisher(self) -> bytes:
        return self.take(8)

    def many(self, size: int) -> int:
        """A number of things of at least `size` bytes each: never more than there is room for."""
        n = self.u32()
        if n * size > len(self.data) - self.at:
            raise PeerProtocolError(f"{n} entries announced, {len(self.data) - self.at} bytes left")
        return n

    def tags(self) -> list[bytes]:
        n = self.u32()
        length = self.u8()
        if length != 0xFF:
            if length > MAX_TAG or (length == 0 and n > 1):
                raise PeerProtocolError(f"{n} tags of {length} bytes")
            joined = self.take(n * length)
            if not length:
                return [b""] * n
            return [joined[i : i + length] for i in range(0, n * length, length)]
        lengths = self.take(n)
        if n and max(lengths) > MAX_TAG:
            raise PeerProtocolError(f"a tag of {max(lengths)} bytes")
        ends = list(accumulate(lengths))
        joined = self.take(ends[-1] if ends else 0)
        return [joined[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def payloads(self, n: int) -> list[bytes]:
        if self.flag():
            length = self.u32()
            joined = self.take(n * length)
            if not length:
                return [b""] * n
            return [joined[i : i + length] for i in range(0, n * length, length)]
        lengths = struct.unpack(f">{n}I", self.take(4 * n))
        ends = list(accumulate(lengths))
        joined = self.take(ends[-1] if ends else 0)
        return [joined[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def sparse_payloads(self, n: int) -> list[bytes | None]:
        lengths = struct.unpack(f">{n}I", self.take(4 * n))
        return [None if length == _NO_PAYLOAD else self.take(length) for length in lengths]

    def range(self) -> Range:
        start, stop = self.fields(_RANGE)
        return _checked(start, stop)

    def ranges(self) -> list[Range]:
        return [self.range() for _ in range(self.many(_RANGE.size))]

    def rejections(self) -> list[Rejection]:
        found: list[Rejection] = []
        for _ in range(self.many(_REJECTION.size)):
            start, stop, rejected = self.fields(_REJECTION)
            found.append((*_checked(start, stop), rejected))
        return found

    def expected(self) -> Expected | None:
        match self.u8(2):
            case 0:
                return None
            case 1:
                return UNKNOWN
        return self.tags()

    def end(self) -> None:
        if self.at != len(self.data):
            raise PeerProtocolError(f"{len(self.data) - self.at} bytes behind the message")


def _checked(start: int, stop: int) -> Range:
    if not start < stop < OPEN:
        raise PeerProtocolError(f"{start}..{stop} is no range")
    return (start, stop)


# ---------------------------------------------------------------------------------------------------- one by one


def _encode_hello(m: Hello) -> bytes:
    parts = [b"\0\0", _U64.pack(m.incarnation), b"\1" if m.established else b"\0", _U16.pack(len(m.up))]
    parts += [_string(router) + _U64.pack(incarnation) for router, incarnation in m.up]
    parts.append(_U32.pack(len(m.publishers)))
    for p in m.publishers:
        parts += [_string(p.address), p.publisher, _U64.pack(p.incarnation), _term(p.term), _F64.pack(p.age_s)]
    parts.append(_U32.pack(len(m.subscriptions)))
    for s in m.subscriptions:
        parts += [_string(s.address), _name(s.name), _maybe_term(s.born), _term(s.term)]
        parts += [_F64.pack(s.timeout_s), _F64.pack(s.age_s)]
    return b"".join(parts)


def _decode_hello(r: _Reader, address: str) -> Hello:
    incarnation, established = r.u64(), r.flag()
    up = tuple([(r.string(), r.u64()) for _ in range(r.fields(_U16)[0])])
    publishers = [PublisherNews(r.string(), r.publisher(), r.u64(), r.term(), r.seconds()) for _ in range(r.many(36))]
    subscriptions = [
        SubscriptionNews(r.string(), r.name(), r.maybe_term(), r.term(), r.seconds(), r.seconds())
        for _ in range(r.many(33))
    ]
    return Hello(incarnation, established, up, publishers, subscriptions)


def _encode_pub(m: Pub) -> bytes:
    return _string(m.address) + m.publisher + _U64.pack(m.incarnation) + _term(m.term) + _expected(m.expected)


def _decode_pub(r: _Reader, address: str) -> Pub:
    return Pub(address, r.publisher(), r.u64(), r.term(), r.expected())


def _encode_puback(m: PubAck) -> bytes:
    head = _string(m.address) + m.publisher + _term(m.term)
    if m.stale is None:
        return head + b"\0"
    term, incarnation, real = m.stale
    return head + b"\1" + _term(term) + _U64.pack(incarnation) + (b"\1" if real else b"\0")


def _decode_puback(r: _Reader, address: str) -> PubAck:
    publisher, term = r.publisher(), r.term()
    return PubAck(address, publisher, term, (r.term(), r.u64(), r.flag()) if r.flag() else None)


def _encode_pubdown(m: PubDown) -> bytes:
    return _string(m.address) + m.publisher + _term(m.term)


def _decode_pubdown(r: _Reader, address: str) -> PubDown:
    return PubDown(address, r.publisher(), r.term())


def _encode_incarnation(m: PubClose | Flush) -> bytes:
    return _string(m.address) + m.publisher + _U64.pack(m.incarnation) + _term(m.term)


def _decode_pubclose(r: _Reader, address: str) -> PubClose:
    return PubClose(address, r.publisher(), r.u64(), r.term())


def _decode_flush(r: _Reader, address: str) -> Flush:
    return Flush(address, r.publisher(), r.u64(), r.term())


def _encode_join(m: Join) -> bytes:
    head = _string(m.address) + _name(m.name) + _maybe_term(m.born) + _term(m.term)
    return head + bytes([m.kind, m.history, m.heard]) + _F64.pack(m.timeout_s)


def _decode_join(r: _Reader, address: str) -> Join:
    name, born, term = r.name(), r.maybe_term(), r.term()
    kind, history, heard = JoinKind(r.u8(2)), r.flag(), r.flag()
    return Join(address, name, born, term, kind, history, r.seconds(), heard)


def _encode_joined(m: Joined) -> bytes:
    head = _string(m.address) + _name(m.name) + _term(m.term) + bytes([m.result, m.known])
    return head + _maybe_term(m.mark) + _maybe_term(m.other)


def _decode_joined(r: _Reader, address: str) -> Joined:
    return Joined(address, r.name(), r.term(), JoinResult(r.u8(3)), r.flag(), r.maybe_term(), r.maybe_term())


def _encode_orphan(m: Orphan) -> bytes:
    return _string(m.address) + _name(m.name) + _term(m.term) + _F64.pack(m.timeout_s)


def _decode_orphan(r: _Reader, address: str) -> Orphan:
    return Orphan(address, r.name(), r.term(), r.seconds())


def _encode_leave(m: Leave) -> bytes:
    return _string(m.address) + _name(m.name) + _term(m.term)


def _decode_leave(r: _Reader, address: str) -> Leave:
    return Leave(address, r.name(), r.term())


def _encode_sync(m: Sync) -> bytes:
    parts = [_string(m.address), m.publisher, _U64.pack(m.incarnation), _term(m.term), _name(m.name)]
    parts += [_term(m.subscription_term), _expected(m.expected), _U32.pack(len(m.entries))]
    for e in m.entries:
        parts += [_U64.pack(e.position), _U32.pack(e.message_format), _tags(e.tags)]
        parts += [_sparse_payloads(e.payloads), _ranges(e.owed)]
    return b"".join(parts)


def _decode_sync(r: _Reader, address: str) -> Sync:
    publisher, incarnation, term = r.publisher(), r.u64(), r.term()
    name, subscription_term, expected = r.name(), r.term(), r.expected()
    if expected is None:
        raise PeerProtocolError("SYNC without expected tags")
    entries: list[Entries] = []
    for _ in range(r.many(21)):
        position, message_format, tags = r.u64(), r.u32(), r.tags()
        if position + len(tags) >= OPEN or not tags:
            raise PeerProtocolError(f"{len(tags)} entries at position {position}")
        entry = Entries(position, message_format, tags, r.sparse_payloads(len(tags)), r.ranges())
        for start, stop in entry.owed:
            if start < position or stop > position + len(tags):
                raise PeerProtocolError(f"tokens {start}..{stop} outside of the entries at {position}")
        entries.append(entry)
    return Sync(address, publisher, incarnation, term, name, subscription_term, entries, expected)


def _encode_data(m: Data) -> bytes:
    head = _DATA.pack(m.position, m.message_format, m.settled, len(m.tags))
    return b"".join([_string(m.address), m.publisher, _term(m.term), head, _tags(m.tags), _payloads(m.payloads)])


def _decode_data(r: _Reader, address: str) -> Data:
    publisher, term = r.publisher(), r.term()
    position, message_format, settled, n = r.fields(_DATA)
    tags = r.tags()
    if len(tags) != n or not n or position + n >= OPEN:
        raise PeerProtocolError(f"DATA of {n} messages at {position} with {len(tags)} tags")
    return Data(address, publisher, term, position, message_format, bool(settled), tags, r.payloads(n))


def _encode_accept(m: Accept) -> bytes:
    return _string(m.address) + _rejections(m.ranges)


def _decode_accept(r: _Reader, address: str) -> Accept:
    return Accept(address, r.rejections())


def _encode_accept_sync(m: AcceptSync) -> bytes:
    return _string(m.address) + _name(m.name) + _term(m.term) + _rejections(m.ranges)


def _decode_accept_sync(r: _Reader, address: str) -> AcceptSync:
    return AcceptSync(address, r.name(), r.term(), r.rejections())


def _encode_settle(m: Settle) -> bytes:
    return _string(m.address) + _ranges(m.ranges)


def _decode_settle(r: _Reader, address: str) -> Settle:
    return Settle(address, r.ranges())


def _encode_settle_tags(m: SettleTags) -> bytes:
    return _string(m.address) + m.publisher + _term(m.term) + _tags(m.tags)


def _decode_settle_tags(r: _Reader, address: str) -> SettleTags:
    return SettleTags(address, r.publisher(), r.term(), r.tags())


_DECODERS: Final[list[Callable[[_Reader, str], Message]]] = [
    _decode_hello,
    _decode_pub,
    _decode_puback,
    _decode_pubdown,
    _decode_pubclose,
    _decode_flush,
    _decode_join,
    _decode_joined,
    _decode_orphan,
    _decode_leave,
    _decode_sync,
    _decode_data,
    _decode_accept,
    _decode_accept_sync,
    _decode_settle,
    _decode_settle_tags,
]


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    match message:
        case Data():
            return b"\x0b" + _encode_data(message)
        case Accept():
            return b"\x0c" + _encode_accept(message)
        case Settle():
            return b"\x0e" + _encode_settle(message)
        case AcceptSync():
            return b"\x0d" + _encode_accept_sync(message)
        case SettleTags():
            return b"\x0f" + _encode_settle_tags(message)
        case Hello():
            return b"\x00" + _encode_hello(message)
        case Pub():
            return b"\x01" + _encode_pub(message)
        case PubAck():
            return b"\x02" + _encode_puback(message)
        case PubDown():
            return b"\x03" + _encode_pubdown(message)
        case PubClose():
            return b"\x04" + _encode_incarnation(message)
        case Flush():
            return b"\x05" + _encode_incarnation(message)
        case Join():
            return b"\x06" + _encode_join(message)
        case Joined():
            return b"\x07" + _encode_joined(message)
        case Orphan():
            return b"\x08" + _encode_orphan(message)
        case Leave():
            return b"\x09" + _encode_leave(message)
        case Sync():
            return b"\x0a" + _encode_sync(message)


def decode(data: bytes) -> Message:
    """The message of these bytes, all of them.  Raises PeerProtocolError."""
    reader = _Reader(data)
    message = _DECODERS[reader.u8(len(_DECODERS) - 1)](reader, reader.string())
    reader.end()
    return message
