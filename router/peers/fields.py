"""The fields of messages between routers: strings, terms, tags, payloads, ranges, as bytes.

Big-endian. Strings and tags follow their length; lists follow their number, lengths packed and items joined, so that a
batch costs the same few calls whatever its size. `Reader` trusts nothing: every length is checked against the bytes
that are left before anything is built. `router.peers.wire` says which fields a message has.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, starmap
from typing import Any, Final

from router.core.intervals import OPEN, Range
from router.core.messages import UNKNOWN, Expected, KeptItem, PeerProtocolError, SubscriptionName
from router.core.ports import MapState, Term
from router.core.traffic import Rejection

MAX_TAG: Final = 32
_NO_PAYLOAD: Final = 0xFFFFFFFF
_FOREVER: Final = 1e9  # seconds; longer durations are refused

U16: Final = struct.Struct(">H")
U32: Final = struct.Struct(">I")
U64: Final = struct.Struct(">Q")
F64: Final = struct.Struct(">d")
_TAGS: Final = struct.Struct(">IB")  # how many, the length of each
_PAYLOADS: Final = struct.Struct(">BI")  # whether all have one length, and this
RANGE: Final = struct.Struct(">QQ")
REJECTION: Final = struct.Struct(">QQI")


def write_string(value: str) -> bytes:
    data = value.encode()
    return U16.pack(len(data)) + data


def write_binary(value: bytes) -> bytes:
    return U16.pack(len(value)) + value


def write_kept(items: list[KeptItem]) -> bytes:
    marks = [state << 16 | identifier for _, state, identifier in items]
    return write_tags([tag for tag, _, _ in items]) + struct.pack(f">{len(marks)}I", *marks)


def write_term(term: Term) -> bytes:
    return U64.pack(term[0]) + write_string(term[1])


def write_maybe_term(term: Term | None) -> bytes:
    return b"\0" if term is None else b"\1" + write_term(term)


def write_name(name: SubscriptionName) -> bytes:
    return write_string(name[0]) + write_string(name[1])


def write_tags(tags: list[bytes]) -> bytes:
    """Number, lengths (one byte where they are all equal), the tags joined."""
    n = len(tags)
    if n == 1:
        return _TAGS.pack(1, len(tags[0])) + tags[0]
    lengths = bytes(map(len, tags))
    if n and lengths.count(lengths[0]) == n:
        return _TAGS.pack(n, lengths[0]) + b"".join(tags)
    return U32.pack(n) + b"\xff" + lengths + b"".join(tags)


def write_payload_lengths(payloads: list[bytes]) -> bytes:
    """What stands before the payloads, as many as there are tags: lengths, one where they are all equal."""
    if len(payloads) == 1:
        return _PAYLOADS.pack(1, len(payloads[0]))
    lengths = list(map(len, payloads))
    if lengths and lengths.count(lengths[0]) == len(lengths):
        return _PAYLOADS.pack(1, lengths[0])
    return b"\0" + struct.pack(f">{len(lengths)}I", *lengths)


def write_sparse_payloads(payloads: list[bytes | None]) -> bytes:
    lengths = [_NO_PAYLOAD if payload is None else len(payload) for payload in payloads]
    return struct.pack(f">{len(lengths)}I", *lengths) + b"".join([payload for payload in payloads if payload])


def write_ranges(ranges: list[Range]) -> bytes:
    return U32.pack(len(ranges)) + b"".join(starmap(RANGE.pack, ranges))


def write_rejections(ranges: list[Rejection]) -> bytes:
    return U32.pack(len(ranges)) + b"".join(starmap(REJECTION.pack, ranges))


def write_expected(expected: Expected | None) -> bytes:
    if expected is None:
        return b"\0"
    return b"\1" if expected is UNKNOWN else b"\2" + write_tags(expected)


class Reader:
    """Reads a message; raises PeerProtocolError for anything malformed."""

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

    def fields(self, form: struct.Struct) -> tuple[Any, ...]:
        try:
            values = form.unpack_from(self.data, self.at)
        except struct.error:
            raise PeerProtocolError(f"message ends after {len(self.data)} bytes, inside a field") from None
        self.at += form.size
        return values

    def u8(self, limit: int = 255) -> int:
        data, at = self.data, self.at
        if at >= len(data):
            raise PeerProtocolError(f"message ends after {len(data)} bytes, {at + 1} are needed")
        value = data[at]
        if value > limit:
            raise PeerProtocolError(f"{value} at {at} is above {limit}")
        self.at = at + 1
        return value

    def flag(self) -> bool:
        return self.u8(1) == 1

    def u32(self) -> int:
        return int(self.fields(U32)[0])

    def u64(self) -> int:
        return int(self.fields(U64)[0])

    def seconds(self) -> float:
        value = float(self.fields(F64)[0])
        if not 0 <= value <= _FOREVER:
            raise PeerProtocolError(f"{value} is no duration")
        return value

    def string(self) -> str:
        """Written out, as most fields of most messages are names."""
        data, start = self.data, self.at + 2
        if start > len(data):
            raise PeerProtocolError(f"message ends after {len(data)} bytes, inside a field")
        stop = start + (data[start - 2] << 8 | data[start - 1])
        if stop > len(data):
            raise PeerProtocolError(f"message ends after {len(data)} bytes, {stop} are needed")
        self.at = stop
        try:
            return data[start:stop].decode()
        except UnicodeDecodeError:
            raise PeerProtocolError("a string is not UTF-8") from None

    def binary(self) -> bytes:
        """Length and bytes."""
        return self.take(int(self.fields(U16)[0]))

    def term(self) -> Term:
        return (self.fields(U64)[0], self.string())

    def maybe_term(self) -> Term | None:
        return self.term() if self.flag() else None

    def name(self) -> SubscriptionName:
        return (self.string(), self.string())

    def publisher(self) -> bytes:
        return self.take(8)

    def many(self, size: int) -> int:
        """The number of entries, which take at least `size` bytes each: never more than there is room for."""
        n = self.u32()
        if n * size > len(self.data) - self.at:
            raise PeerProtocolError(f"{n} entries announced, {len(self.data) - self.at} bytes left")
        return n

    def tags(self) -> list[bytes]:
        return self.tags_of(*self.fields(_TAGS))

    def tags_of(self, n: int, length: int) -> list[bytes]:
        """The same behind their number and their length."""
        if length != 0xFF:
            if length > MAX_TAG or (length == 0 and n > 1):
                raise PeerProtocolError(f"{n} tags of {length} bytes")
            joined = self.take(n * length)
            if n == 1:
                return [joined]
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
        if n == 1:  # either form is the same
            flag, length = self.fields(_PAYLOADS)
            if flag > 1:
                raise PeerProtocolError(f"{flag} in place of a flag")
            return [self.take(length)]
        if self.flag():
            length = self.u32()
            joined = self.take(n * length)
            if not length:
                return [b""] * n
            return [joined[i : i + length] for i in range(0, n * length, length)]
        lengths = self._lengths(n)
        ends = list(accumulate(lengths))
        joined = self.take(ends[-1] if ends else 0)
        return [joined[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def _lengths(self, n: int) -> tuple[int, ...]:
        return struct.unpack(f">{n}I", self.take(4 * n))

    def kept(self) -> list[KeptItem]:
        tags = self.tags()
        marks = struct.unpack(f">{len(tags)}I", self.take(4 * len(tags)))
        items = [(tag, mark >> 16, mark & 0xFFFF) for tag, mark in zip(tags, marks, strict=True)]
        for _, state, _ in items:
            if not MapState.RECEIVED <= state <= MapState.REJECTED:
                raise PeerProtocolError(f"{state} is no state of a delivery in a kept map")
        identifiers = [identifier for _, _, identifier in items if identifier]
        if len(set(identifiers)) < len(identifiers):
            raise PeerProtocolError("two deliveries of a kept map have the same identifier")
        return items

    def sparse_payloads(self, n: int) -> list[bytes | None]:
        lengths = struct.unpack(f">{n}I", self.take(4 * n))
        return [None if length == _NO_PAYLOAD else self.take(length) for length in lengths]

    def ranges(self, form: struct.Struct = RANGE) -> list[Any]:
        """Their number, and these. form: `RANGE` or `REJECTION`."""
        data, start = self.data, self.at + 4
        stop = start + int.from_bytes(data[start - 4 : start], "big") * form.size
        if stop > len(data):
            raise PeerProtocolError(f"message ends after {len(data)} bytes, {stop} are needed")
        self.at = stop
        found = list(form.iter_unpack(data[start:stop]))
        for row in found:
            if not row[0] < row[1] < OPEN:
                raise PeerProtocolError(f"{row[0]}..{row[1]} is no range")
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


class PartsReader(Reader):
    """Reads a message with payloads that has come in parts: all but the payloads lies in the first one."""

    __slots__ = ("_rest",)

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        super().__init__(bytes(parts[0]))
        self._rest = parts[1:]

    def payloads(self, n: int) -> list[bytes]:
        lengths = [self.u32()] * n if self.flag() else self._lengths(n)
        rest = [memoryview(self.data)[self.at :], *[memoryview(part) for part in self._rest]]
        there = sum(map(len, rest))
        if there != sum(lengths):
            raise PeerProtocolError(f"payloads of {sum(lengths)} bytes, {there} are there")
        self.at = len(self.data)
        rest.reverse()
        return [self._next(rest, length) for length in lengths]

    def _next(self, rest: list[memoryview], length: int) -> bytes:
        """The next bytes of the rest, which is in reverse order; copied once."""
        taken: list[memoryview] = []
        while length:
            piece = rest.pop()
            if len(piece) > length:
                rest.append(piece[length:])
                piece = piece[:length]
            taken.append(piece)
            length -= len(piece)
        return b"".join(taken)
