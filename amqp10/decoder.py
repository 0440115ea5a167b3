"""Bytes to values: every primitive type of AMQP 1.0 part 1, arrays and described types.

Knows encodings (AMQP 1.6), nothing of what values mean. Input may be hostile: nothing is allocated because of a claimed
count, nesting ends at MAX_DEPTH, one call yields at most MAX_VALUES values, and every error is a DecodeError that names
the byte. The other direction: encoder.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from amqp10.errors import DECODE_ERROR, NOT_IMPLEMENTED, RESOURCE_LIMIT_EXCEEDED, DecodeError
from amqp10.types import (
    SECRETLY_HASHED,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

MAX_DEPTH: Final = 32
"""Of lists, maps, arrays and described types within each other; the outermost value is at depth 0."""
MAX_VALUES: Final = 1_000_000
"""List and map entries and array elements in one value."""
MAX_FIELD_VALUES: Final = 2048
"""The same in one field of a performative, which is read at once: fields are small, and messages are not read here."""
MAX_EMPTY: Final = 1024
"""Elements without bytes in one array: a large count costs the sender nothing."""

U16: Final = Struct(">H")
U32: Final = Struct(">I")
U64: Final = Struct(">Q")
I8: Final = Struct(">b")
I16: Final = Struct(">h")
I32: Final = Struct(">i")
I64: Final = Struct(">q")
F32: Final = Struct(">f")
F64: Final = Struct(">d")
_II: Final = Struct(">II")
_unpack_u32: Final = U32.unpack_from
_unpack_ii: Final = _II.unpack_from


def decode_value(
    buf: bytes, offset: int = 0, end: int | None = None, budget: list[int] | None = None
) -> tuple[Any, int]:
    """(the value that begins at offset, the offset behind it). Nothing at or behind `end` is read.

    budget: how many values may be in it, less afterwards; MAX_VALUES, unless given."""
    return _decode(buf, offset, len(buf) if end is None else end, 0, [MAX_VALUES] if budget is None else budget)


def skip_value(buf: bytes, offset: int, end: int, depth: int = 0) -> int:
    """The offset behind the value at offset, which is not decoded."""
    at = offset
    code = _code(buf, offset, end)
    while code == 0x00:  # a descriptor, then the value
        depth = _deeper(depth, offset)
        offset = skip_value(buf, offset + 1, end, depth)
        code = _code(buf, offset, end)
    if code not in KNOWN_CODES:
        raise _unknown(code, offset)
    width = code >> 4
    offset += 1
    if width == 0x4:
        return offset
    if width < 0xA:
        offset += 1 << (width - 5)
    elif width in (0xA, 0xC, 0xE):
        if offset >= end:
            raise _truncated(at)
        offset += 1 + buf[offset]
    else:
        if end - offset < 4:
            raise _truncated(at)
        offset += 4 + int(_unpack_u32(buf, offset)[0])
    if offset > end:
        raise _truncated(at)
    return offset


def value_end(buf: bytes, offset: int, end: int) -> int:
    """The same where the value may end behind `end`: only its constructor and size have to be there."""
    at = offset
    while _code(buf, offset, end) == 0x00:
        offset = skip_value(buf, offset + 1, end)
    code = _code(buf, offset, end)
    if code not in KNOWN_CODES:
        raise _unknown(code, offset)
    width, offset = code >> 4, offset + 1
    if width == 0x4:
        return offset
    if width < 0xA:
        return offset + (1 << (width - 5))
    size = 1 if width in (0xA, 0xC, 0xE) else 4
    if end - offset < size:
        raise _truncated(at)
    return offset + size + int.from_bytes(buf[offset : offset + size], "big")


def _truncated(at: int) -> DecodeError:
    return DecodeError(DECODE_ERROR, "the value is cut off", at)


def _unknown(code: int, at: int) -> DecodeError:
    return DecodeError(DECODE_ERROR, f"0x{code:02x} is no constructor", at)


def _code(buf: bytes, offset: int, end: int) -> int:
    if offset >= end:
        raise DecodeError(DECODE_ERROR, "a value is missing", offset)
    return buf[offset]


def _decode(buf: bytes, offset: int, end: int, depth: int, budget: list[int]) -> tuple[Any, int]:
    if offset >= end:
        raise DecodeError(DECODE_ERROR, "a value is missing", offset)
    code = buf[offset]
    if code == 0x00:
        depth = _deeper(depth, offset)
        descriptor, position = _decode(buf, offset + 1, end, depth, budget)
        value, position = _decode(buf, position, end, depth, budget)
        return Described(descriptor, value), position
    short = _SHORT.get(code)
    if short is not None and offset + 2 <= end:
        stop = offset + 2 + buf[offset + 1]
        if stop <= end:
            return short(buf, offset + 2, stop), stop
    return _body(code, buf, offset + 1, end, offset, depth, budget)


def _deeper(depth: int, at: int) -> int:
    if depth >= MAX_DEPTH:
        raise DecodeError(RESOURCE_LIMIT_EXCEEDED, f"nested more than {MAX_DEPTH} deep", at)
    return depth + 1


def _body(code: int, buf: bytes, offset: int, end: int, at: int, depth: int, budget: list[int]) -> tuple[Any, int]:
    """The value behind a constructor. `at`: the offset that errors name."""
    if 0xA0 <= code <= 0xBF:
        if code < 0xB0:
            if offset >= end:
                raise _truncated(at)
            stop = offset + 1 + buf[offset]
            offset += 1
        else:
            if end - offset < 4:
                raise _truncated(at)
            stop = offset + 4 + int(_unpack_u32(buf, offset)[0])
            offset += 4
        if stop > end:
            raise _truncated(at)
        kind = code & 0x0F
        if kind == 1:
            return decode_utf8(buf, offset, stop), stop
        if kind == 3:
            return decode_symbol(buf, offset, stop), stop
        if kind == 0:
            return buf[offset:stop], stop
        raise _unknown(code, at)
    fixed = _FIXED.get(code)
    if fixed is not None:
        width, read = fixed
        stop = offset + width
        if stop > end:
            raise _truncated(at)
        return read(buf, offset), stop
    if code == 0x45:
        return [], offset
    if code in _ZERO_WIDTH:
        return _ZERO_WIDTH[code], offset
    compound = _COMPOUND.get(code)
    if compound is None:
        raise _unknown(code, at)
    wide, read_compound = compound
    head = compound_head(buf, offset, end, wide, at)
    return read_compound(buf, head, _deeper(depth, at), budget, at), head[1]


Head = tuple[int, int, int]
"""Of a list, map or array: offset of the first entry, offset behind the last, count."""


def compound_head(buf: bytes, offset: int, end: int, wide: bool, at: int) -> Head:
    """The head of the list, map or array whose size is at offset."""
    if wide:
        if end - offset < 8:
            raise _truncated(at)
        size, count = _unpack_ii(buf, offset)
        stop = offset + 4 + size
        offset += 8
    else:
        if end - offset < 2:
            raise _truncated(at)
        count = buf[offset + 1]
        stop = offset + 1 + buf[offset]
        offset += 2
    if stop > end:
        raise _truncated(at)
    if stop < offset:
        raise DecodeError(DECODE_ERROR, "the size leaves no room for the count", at)
    return offset, stop, count


def _spend(budget: list[int], count: int, at: int) -> None:
    budget[0] -= count
    if budget[0] < 0:
        raise DecodeError(RESOURCE_LIMIT_EXCEEDED, "too many values in one", at)


def check_count(count: int, room: int, at: int) -> None:
    """Every entry takes a byte at least."""
    if count > room:
        raise DecodeError(DECODE_ERROR, f"{count} entries cannot lie in {room} bytes", at)


def check_end(offset: int, stop: int) -> None:
    if offset != stop:
        raise DecodeError(DECODE_ERROR, f"{stop - offset} bytes are left over behind the last entry", offset)


def _list(buf: bytes, head: Head, depth: int, budget: list[int], at: int) -> list[Any]:
    offset, stop, count = head
    check_count(count, stop - offset, at)
    _spend(budget, count, at)
    values = []
    for _ in range(count):
        value, offset = _decode(buf, offset, stop, depth, budget)
        values.append(value)
    check_end(offset, stop)
    return values


def _map(buf: bytes, head: Head, depth: int, budget: list[int], at: int) -> dict[Any, Any] | Map:
    offset, stop, count = head
    check_count(count, stop - offset, at)
    if count & 1:
        raise DecodeError(DECODE_ERROR, f"a map cannot have {count} entries, an odd number", at)
    _spend(budget, count, at)
    values: dict[Any, Any] | Map = {}
    for _ in range(count >> 1):
        key_at = offset
        key, offset = _decode(buf, offset, stop, depth, budget)
        if key.__class__ not in SECRETLY_HASHED and values.__class__ is dict:
            values = Map(values)
        try:
            known = key in values
        except TypeError:
            raise DecodeError(NOT_IMPLEMENTED, "lists and maps are not supported as keys of a map", key_at) from None
        if known:
            raise _duplicate(values, key, key_at)
        values[key], offset = _decode(buf, offset, stop, depth, budget)
    check_end(offset, stop)
    return values


def _duplicate(values: dict[Any, Any] | Map, key: Any, at: int) -> DecodeError:
    other = next((k for k in values if k == key), key)  # no NaN equals itself
    if type(other) is type(key) and (not isinstance(key, float) or repr(key) == repr(other)):
        return DecodeError(DECODE_ERROR, f"the map has the key {key!r:.60} twice", at)
    # 1 as a long and as a uint are two keys to AMQP (AMQP 1.6.23), one to a dict.
    return DecodeError(NOT_IMPLEMENTED, f"map keys {other!r:.60} and {key!r:.60} differ in their type only", at)


def _array(buf: bytes, head: Head, depth: int, budget: list[int], at: int) -> Array:
    offset, stop, count = head
    descriptors = []
    code_at = offset
    code = _code(buf, offset, stop)
    while code == 0x00:  # AMQP 1.4: a described constructor, once for all elements
        depth = _deeper(depth, offset)
        descriptor, offset = _decode(buf, offset + 1, stop, depth, budget)
        descriptors.append(descriptor)
        code_at = offset
        code = _code(buf, offset, stop)
    offset += 1
    name = ARRAY_TYPES.get(code)
    if name is None:
        raise _unknown(code, code_at)
    if code & 0xF0 != 0x40:
        check_count(count, stop - offset, at)
    elif count > MAX_EMPTY:
        raise DecodeError(RESOURCE_LIMIT_EXCEEDED, f"more than {MAX_EMPTY} elements without bytes in an array", at)
    _spend(budget, count, at)
    values = []
    for _ in range(count):
        value, offset = _body(code, buf, offset, stop, offset, depth, budget)
        values.append(value)
    check_end(offset, stop)
    return Array(name, values, descriptors)


def decode_utf8(buf: bytes, offset: int, stop: int) -> str:
    """The text from offset to stop, which must lie in the buffer."""
    try:
        return buf[offset:stop].decode()
    except UnicodeDecodeError as e:
        raise DecodeError(DECODE_ERROR, f"not UTF-8: {e.reason}", offset + e.start) from None


def decode_symbol(buf: bytes, offset: int, stop: int) -> Symbol:
    try:
        return Symbol(buf[offset:stop].decode("ascii"))
    except UnicodeDecodeError as e:
        raise DecodeError(DECODE_ERROR, "a symbol holds ASCII only", offset + e.start) from None


def _boolean(buf: bytes, offset: int) -> bool:
    byte = buf[offset]
    if byte > 1:
        raise DecodeError(DECODE_ERROR, f"0x{byte:02x} is no boolean", offset)
    return byte == 1


def _char(buf: bytes, offset: int) -> Char:
    scalar = _unpack_u32(buf, offset)[0]
    if scalar > 0x10FFFF or 0xD800 <= scalar <= 0xDFFF:
        raise DecodeError(DECODE_ERROR, f"0x{scalar:x} is no Unicode character", offset)
    return Char(chr(scalar))


def _number(width: int, form: Struct, cls: Callable[[Any], Any]) -> tuple[int, Callable[[bytes, int], Any]]:
    unpack = form.unpack_from
    return width, lambda buf, offset: cls(unpack(buf, offset)[0])


def _raw(width: int, cls: Callable[[bytes], Any]) -> tuple[int, Callable[[bytes, int], Any]]:
    return width, lambda buf, offset: cls(buf[offset : offset + width])


_SHORT: Final[dict[int, Callable[[bytes, int, int], Any]]] = {
    0xA0: lambda buf, offset, stop: buf[offset:stop],
    0xA1: decode_utf8,
    0xA3: decode_symbol,
}
"""Values with a length of one byte, the most frequent in maps and lists."""
_ZERO_WIDTH: Final[dict[int, Any]] = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0)}
_FIXED: Final[dict[int, tuple[int, Callable[[bytes, int], Any]]]] = {
    0x50: (1, lambda buf, offset: UByte(buf[offset])),
    0x51: _number(1, I8, Byte),
    0x52: (1, lambda buf, offset: UInt(buf[offset])),
    0x53: (1, lambda buf, offset: ULong(buf[offset])),
    0x54: _number(1, I8, Int),
    0x55: _number(1, I8, Long),
    0x56: (1, _boolean),
    0x60: _number(2, U16, UShort),
    0x61: _number(2, I16, Short),
    0x70: _number(4, U32, UInt),
    0x71: _number(4, I32, Int),
    0x72: _number(4, F32, Float),
    0x73: (4, _char),
    0x74: _raw(4, Decimal32),
    0x80: _number(8, U64, ULong),
    0x81: _number(8, I64, Long),
    0x82: (8, lambda buf, offset: float(F64.unpack_from(buf, offset)[0])),
    0x83: _number(8, I64, Timestamp),
    0x84: _raw(8, Decimal64),
    0x94: _raw(16, Decimal128),
    0x98: _raw(16, lambda raw: uuid.UUID(bytes=raw)),
}
_COMPOUND: Final[dict[int, tuple[bool, Callable[[bytes, Head, int, list[int], int], Any]]]] = {
    0xC0: (False, _list),
    0xC1: (False, _map),
    0xD0: (True, _list),
    0xD1: (True, _map),
    0xE0: (False, _array),
    0xF0: (True, _array),
}
ARRAY_TYPES: Final[dict[int, str]] = {
    0x40: "null",
    0x41: "boolean",
    0x42: "boolean",
    0x56: "boolean",
    0x50: "ubyte",
    0x60: "ushort",
    0x43: "uint",
    0x52: "uint",
    0x70: "uint",
    0x44: "ulong",
    0x53: "ulong",
    0x80: "ulong",
    0x51: "byte",
    0x61: "short",
    0x54: "int",
    0x71: "int",
    0x55: "long",
    0x81: "long",
    0x72: "float",
    0x82: "double",
    0x73: "char",
    0x83: "timestamp",
    0x98: "uuid",
    0x74: "decimal32",
    0x84: "decimal64",
    0x94: "decimal128",
    0xA0: "binary",
    0xB0: "binary",
    0xA1: "string",
    0xB1: "string",
    0xA3: "symbol",
    0xB3: "symbol",
    0x45: "list",
    0xC0: "list",
    0xD0: "list",
    0xC1: "map",
    0xD1: "map",
    0xE0: "array",
    0xF0: "array",
}
KNOWN_CODES: Final = frozenset(ARRAY_TYPES)
