"""Pieces of many payloads at once, by Arrow's kernels: positions are a column, one for each payload.

Positions count from the start of the buffer that the payloads share.  No Python code runs for a single payload,
except in `distinct`: there once for each different piece.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from amqp10.errors import DecodeError

Texts: TypeAlias = Callable[[Any], Any]  # of pieces, a binary array; gives a string array, or raises Malformed

_LITTLE: Final = sys.byteorder == "little"
BINARY_HEADERS_TYPE: Final[Any] = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))  # as Kafka's
_SIGNED: Final = {1: ("b", pa.int8()), 2: ("h", pa.int16()), 4: ("i", pa.int32()), 8: ("q", pa.int64())}
_UNSIGNED: Final = {1: ("B", pa.uint8()), 2: ("H", pa.uint16()), 4: ("I", pa.uint32()), 8: ("Q", pa.uint64())}


def int64(value: int) -> Any:
    """Typed, as every scalar here: for an untyped one Arrow tries to import pandas, which takes 40 us."""
    return pa.scalar(value, pa.int64())


class Malformed(Exception):
    """Some pieces are not of their type; `good`: which ones are."""

    def __init__(self, good: Any) -> None:
        super().__init__()
        self.good = good


class Payloads:
    """The buffer of a binary array, and where each of its values begins and ends (int64)."""

    def __init__(self, payloads: Any) -> None:
        _, offsets, data = payloads.buffers()
        self._data = data
        self._bytes = pa.Array.from_buffers(pa.uint8(), data.size, [None, data])
        rows = len(payloads)
        bounds = pa.Array.from_buffers(pa.int32(), rows + 1, [None, offsets], offset=payloads.offset).cast(pa.int64())
        self.starts, self.ends = bounds[:-1], bounds[1:]
        self._last = int64(data.size - 1)

    def at(self, positions: Any) -> Any:
        """The byte at each position (uint8); any byte past the end of the buffer."""
        return pc.take(self._bytes, pc.min_element_wise(positions, self._last), boundscheck=False)

    def length(self, positions: Any, width: int) -> Any:
        """The number of `width` bytes, big-endian, at each position (int64)."""
        found = self.at(positions).cast(pa.int64())
        for place in range(1, width):
            found = pc.add(pc.shift_left(found, int64(8)), self.at(pc.add(positions, int64(place))).cast(pa.int64()))
        return found

    def are(self, positions: Any, expected: bytes) -> Any:
        """Whether each payload has these bytes at its position."""
        if len(expected) == 1:
            return pc.equal(self.at(positions), pa.scalar(expected[0], pa.uint8()))
        ends = pc.min_element_wise(pc.add(positions, int64(len(expected))), self.ends)
        found = self.pieces(pc.min_element_wise(positions, self.ends), ends)
        return pc.equal(found, pa.scalar(expected, pa.binary()))

    def pieces(self, starts: Any, ends: Any) -> Any:
        """From start to end, as a binary array; starts and ends may be of some payloads only.

        The interleaved bounds are the offsets of an array in which every other value is a piece, and the values between
        are the gaps.  It needs no copy of the bytes.
        """
        first, second = (starts, ends) if _LITTLE else (ends, starts)
        bounds = pc.bit_wise_or(pc.shift_left(second, int64(32)), first)  # two int32 in each int64
        rows = len(bounds)
        mixed = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, bounds.buffers()[1], self._data])
        return pc.take(mixed, pc.multiply(numbers(0, rows), int64(2)), boundscheck=False)


def numbers(first: int, count: int) -> Any:
    """first, first + 1 ... as int64."""
    return pc.cumulative_sum(pa.repeat(int64(1), count), start=int64(first - 1))


# -- pieces as text: `Texts`


def utf8(pieces: Any) -> Any:
    try:
        return pieces.cast(pa.string())
    except pa.ArrowInvalid:
        raise Malformed(pa.array([_is_utf8(piece) for piece in pieces.to_pylist()])) from None


def ascii_text(pieces: Any) -> Any:
    found = utf8(pieces)
    plain = pc.string_is_ascii(found)
    if plain.false_count:
        raise Malformed(plain)
    return found


def integers(pieces: Any, width: int, *, signed: bool) -> Any:
    """Integers of `width` bytes each, big-endian."""
    code, kind = (_SIGNED if signed else _UNSIGNED)[width]
    values = array.array(code, _joined(pieces))
    if _LITTLE:
        values.byteswap()
    return pa.Array.from_buffers(kind, len(pieces), [None, pa.py_buffer(values)])


def signed(width: int) -> Texts:
    return lambda pieces: integers(pieces, width, signed=True).cast(pa.string())


def unsigned(width: int) -> Texts:
    return lambda pieces: integers(pieces, width, signed=False).cast(pa.string())


def compact(widths: Iterable[int], *, signed: bool) -> Texts:
    """Texts of integers after their constructor, each in as few bytes as it needs; none: 0."""

    def texts(pieces: Any) -> Any:
        lengths = pc.binary_length(pieces)
        found = pa.repeat(pa.scalar("0", pa.string()), len(pieces))
        for width in widths:
            these = pc.equal(lengths, pa.scalar(1 + width, pa.int32()))
            if width and these.true_count:
                contents = pc.binary_slice(pieces.filter(these), 1, 1 + width)
                found = pc.replace_with_mask(found, these, integers(contents, width, signed=signed).cast(pa.string()))
        return found

    return texts


def booleans(pieces: Any) -> Any:
    """Texts of the constructors 0x41 (true) and 0x42."""
    yes = pc.equal(pieces, pa.scalar(b"\x41", pa.binary()))
    return pc.if_else(yes, pa.scalar("true", pa.string()), pa.scalar("false", pa.string()))


def hexadecimal(pieces: Any) -> Any:
    digits = pa.py_buffer(_joined(pieces).hex().encode())
    lengths = pc.multiply(pc.binary_length(pieces), pa.scalar(2, pa.int32()))
    bounds = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return pa.Array.from_buffers(pa.string(), len(pieces), [None, bounds.buffers()[1], digits])


def uuids(pieces: Any) -> Any:
    digits = hexadecimal(pieces)
    cuts = [pc.utf8_slice_codeunits(digits, *cut) for cut in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
    return pc.binary_join_element_wise(*cuts, pa.scalar("-", pa.string()))


def distinct(read: Callable[[bytes], str | None]) -> Texts:
    """Texts by this function, which may raise DecodeError, once for each different piece."""

    def texts(pieces: Any) -> Any:
        encoded = pieces.dictionary_encode()
        found: list[str | None] = []
        good: list[bool] = []
        for piece in encoded.dictionary.to_pylist():
            try:
                found.append(read(piece))
                good.append(True)
            except DecodeError:
                found.append(None)
                good.append(False)
        if not all(good):
            raise Malformed(pa.array(good).take(encoded.indices))
        return pa.array(found, pa.string()).take(encoded.indices)

    return texts


def _joined(pieces: Any) -> bytes:
    """All bytes, one piece after the other."""
    _, offsets, data = pieces.buffers()
    bounds = pa.Array.from_buffers(pa.int32(), len(pieces) + 1, [None, offsets], offset=pieces.offset)
    first, last = bounds[0].as_py(), bounds[-1].as_py()
    return bytes(data.slice(first, last - first)) if data is not None else b""


def _is_utf8(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
