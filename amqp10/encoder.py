"""Values to bytes, in the shortest form there is.

Knows the Python classes of types.py; others are added with `register_encoder`. The public functions for one type, and
those that take encoded entries, are for modules that encode composites. The other direction: decoder.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from struct import Struct, error
from typing import Any, Final

from amqp10.decoder import F32, F64, I8, I16, I32, I64, MAX_DEPTH, U16, U32, U64
from amqp10.errors import EncodeError
from amqp10.types import (
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

_pack_u32: Final = U32.pack
# By value, or by length: nearly all are small.
_UINT8: Final = [b"\x43", *(bytes((0x52, value)) for value in range(1, 256))]
_ULONG8: Final = [b"\x44", *(bytes((0x53, value)) for value in range(1, 256))]
BINARY8: Final = [bytes((0xA0, size)) for size in range(256)]
_STRING8: Final = [bytes((0xA1, size)) for size in range(256)]
_SYMBOL8: Final = [bytes((0xA3, size)) for size in range(256)]


def encode_value(value: Any) -> bytes:
    """EncodeError if the value, or anything in it, has no AMQP form."""
    return _encode(value, 0)


def register_encoder(cls: type, encoder: Callable[[Any, int], bytes]) -> None:
    """Teach the codec a class (and its subclasses) that isn't one of types.py; `encoder(value, depth)`."""
    _ENCODERS[cls] = encoder


def _encode(value: Any, depth: int) -> bytes:
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        encoder = _encoder_of_base(type(value))
    return encoder(value, depth)


def _encoder_of_base(cls: type) -> Callable[[Any, int], bytes]:
    for base in cls.__mro__[1:]:
        encoder = _ENCODERS.get(base)
        if encoder is not None:
            return encoder
    raise EncodeError(f"AMQP has no type for {cls.__module__}.{cls.__qualname__}")


def _out_of_range(name: str, value: Any) -> EncodeError:
    return EncodeError(f"{value!r} is no {name}")


def encode_uint(value: int) -> bytes:
    if 0 <= value < 256:
        return _UINT8[value]
    try:
        return b"\x70" + _pack_u32(value)
    except error:
        raise _out_of_range("uint", value) from None


def encode_ulong(value: int) -> bytes:
    if 0 <= value < 256:
        return _ULONG8[value]
    return b"\x80" + _packed(U64, "ulong", value)


def encode_binary(value: bytes) -> bytes:
    size = len(value)
    if size < 256:
        return BINARY8[size] + value
    return b"\xb0" + _size(size) + value


def encode_string(value: str) -> bytes:
    data = _utf8(value)
    size = len(data)
    if size < 256:
        return _STRING8[size] + data
    return b"\xb1" + _size(size) + data


def encode_symbol(value: str) -> bytes:
    data = _ascii(value)
    size = len(data)
    if size < 256:
        return _SYMBOL8[size] + data
    return b"\xb3" + _size(size) + data


def encode_list(entries: list[bytes]) -> bytes:
    """A list of values that are encoded already."""
    if not entries:
        return b"\x45"
    return _compound(0xC0, entries)


def encode_map(entries: list[bytes]) -> bytes:
    """A map of keys and values, in turn, that are encoded already."""
    return _compound(0xC1, entries)


def _compound(code: int, entries: list[bytes]) -> bytes:
    data = b"".join(entries)
    size = len(data) + 1
    if size < 256:  # so there are fewer than 256 entries
        return bytes((code, size, len(entries))) + data
    return bytes((code | 0x10,)) + _size(size + 3) + _size(len(entries)) + data


def _size(size: int) -> bytes:
    try:
        return _pack_u32(size)
    except error:
        raise EncodeError(f"{size} bytes are more than a value can hold") from None


def _packed(form: Struct, name: str, value: Any) -> bytes:
    try:
        return form.pack(value)
    except (error, OverflowError):
        raise _out_of_range(name, value) from None


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as e:
        raise EncodeError(f"not text that UTF-8 can hold: {e.reason} at {e.start}") from None


def _ascii(value: str) -> bytes:
    try:
        return value.encode("ascii")
    except UnicodeEncodeError:
        raise EncodeError(f"a symbol holds ASCII only: {value!r}") from None


def _encode_int32(value: int, depth: int) -> bytes:
    if -128 <= value <= 127:
        return b"\x54" + I8.pack(value)
    return b"\x71" + _packed(I32, "int", value)


def _encode_long(value: int, depth: int) -> bytes:
    if -128 <= value <= 127:
        return b"\x55" + I8.pack(value)
    return b"\x81" + _packed(I64, "long", value)


def _pack_char(value: str) -> bytes:
    if len(value) != 1 or 0xD800 <= ord(value) <= 0xDFFF:
        raise _out_of_range("char", value)
    return _pack_u32(ord(value))


def _within(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise EncodeError(f"nested more than {MAX_DEPTH} deep")
    return depth + 1


def _encode_list(value: list[Any] | tuple[Any, ...], depth: int) -> bytes:
    depth = _within(depth)
    return encode_list([_encode(entry, depth) for entry in value])


def _encode_map(value: dict[Any, Any] | Map, depth: int) -> bytes:
    depth = _within(depth)
    entries = []
    for key, entry in value.items():
        entries.append(_encode(key, depth))
        entries.append(_encode(entry, depth))
    return encode_map(entries)


def _encode_described(value: Described, depth: int) -> bytes:
    depth = _within(depth)
    return b"\x00" + _encode(value.descriptor, depth) + _encode(value.value, depth)


def _encode_array(value: Array, depth: int) -> bytes:
    code, data = _array_parts(value, depth)
    size = len(data) + (1 if code == 0xE0 else 4)
    if code == 0xE0:
        return bytes((code, size, len(value.values))) + data
    return bytes((code,)) + _size(size) + _size(len(value.values)) + data


def _array_parts(array: Array, depth: int) -> tuple[int, bytes]:
    """The code of the shortest encoding that holds the array, and everything behind its count."""
    parts = []
    for descriptor in array.descriptors:
        depth = _within(depth)
        parts.append(b"\x00" + _encode(descriptor, depth))
    code, bodies = _elements(array.type, array.values, _within(depth))
    parts.append(bytes((code,)))
    parts += bodies
    data = b"".join(parts)
    return (0xE0 if len(data) < 255 and len(array.values) < 256 else 0xF0), data


def _elements(name: str, values: tuple[Any, ...], depth: int) -> tuple[int, list[bytes]]:
    """One constructor for all values, and each value without it."""
    try:
        if name in _ARRAY_FIXED:
            code, pack = _ARRAY_FIXED[name]
            return code, [pack(value) for value in values]
        if name == "null":
            if any(value is not None for value in values):
                raise EncodeError("an array of null holds None only")
            return 0x40, []
        if name in _ARRAY_VARIABLE:
            code, pack = _ARRAY_VARIABLE[name]
            return _sized(code, [pack(value) for value in values])
        if name == "list" and not any(isinstance(value, str | bytes) for value in values):
            return _sized_compound(0xC0, [_entries(value, depth) for value in values])
        if name == "map":
            flat = [[side for item in value.items() for side in item] for value in values]
            return _sized_compound(0xC1, [_entries(value, depth) for value in flat])
        if name == "array":
            inner = [(len(value.values), _array_parts(value, depth)[1]) for value in values]
            return _sized_compound(0xE0, inner)
    except (TypeError, AttributeError):
        raise EncodeError(f"an array of {name} holds values of that type only") from None
    raise EncodeError(f"AMQP has no type {name!r}")


def _entries(values: Any, depth: int) -> tuple[int, bytes]:
    depth = _within(depth)
    return len(values), b"".join([_encode(value, depth) for value in values])


def _sized(code: int, bodies: list[bytes]) -> tuple[int, list[bytes]]:
    if all(len(body) < 256 for body in bodies):
        return code, [bytes((len(body),)) + body for body in bodies]
    return code | 0x10, [_size(len(body)) + body for body in bodies]


def _sized_compound(code: int, bodies: list[tuple[int, bytes]]) -> tuple[int, list[bytes]]:
    if all(len(body) < 255 and count < 256 for count, body in bodies):
        return code, [bytes((len(body) + 1, count)) + body for count, body in bodies]
    return code | 0x10, [_size(len(body) + 4) + _size(count) + body for count, body in bodies]


def _fixed(prefix: int, form: Struct, name: str) -> Callable[[Any, int], bytes]:
    head = bytes((prefix,))

    def encode(value: Any, depth: int) -> bytes:
        return head + _packed(form, name, value)

    return encode


def _element(form: Struct, name: str) -> Callable[[Any], bytes]:
    return lambda value: _packed(form, name, value)


def _raw_element(cls: type) -> Callable[[Any], bytes]:
    def pack(value: Any) -> bytes:
        if not isinstance(value, cls):
            raise TypeError
        raw: bytes = value.bytes if isinstance(value, uuid.UUID) else value.raw  # type: ignore[attr-defined]
        return raw

    return pack


def _binary_element(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(value)


_ARRAY_VARIABLE: Final[dict[str, tuple[int, Callable[[Any], bytes]]]] = {
    "binary": (0xA0, _binary_element),
    "string": (0xA1, _utf8),
    "symbol": (0xA3, _ascii),
}
_ARRAY_FIXED: Final[dict[str, tuple[int, Callable[[Any], bytes]]]] = {
    "boolean": (0x56, lambda value: b"\x01" if value else b"\x00"),
    "ubyte": (0x50, _element(Struct(">B"), "ubyte")),
    "ushort": (0x60, _element(U16, "ushort")),
    "uint": (0x70, _element(U32, "uint")),
    "ulong": (0x80, _element(U64, "ulong")),
    "byte": (0x51, _element(I8, "byte")),
    "short": (0x61, _element(I16, "short")),
    "int": (0x71, _element(I32, "int")),
    "long": (0x81, _element(I64, "long")),
    "float": (0x72, _element(F32, "float")),
    "double": (0x82, _element(F64, "double")),
    "char": (0x73, _pack_char),
    "timestamp": (0x83, _element(I64, "timestamp")),
    "uuid": (0x98, _raw_element(uuid.UUID)),
    "decimal32": (0x74, _raw_element(Decimal32)),
    "decimal64": (0x84, _raw_element(Decimal64)),
    "decimal128": (0x94, _raw_element(Decimal128)),
}
_ENCODERS: Final[dict[type, Callable[[Any, int], bytes]]] = {
    type(None): lambda value, depth: b"\x40",
    bool: lambda value, depth: b"\x41" if value else b"\x42",
    int: _encode_long,
    UByte: _fixed(0x50, Struct(">B"), "ubyte"),
    UShort: _fixed(0x60, U16, "ushort"),
    UInt: lambda value, depth: encode_uint(value),
    ULong: lambda value, depth: encode_ulong(value),
    Byte: _fixed(0x51, I8, "byte"),
    Short: _fixed(0x61, I16, "short"),
    Int: _encode_int32,
    Long: _encode_long,
    float: _fixed(0x82, F64, "double"),
    Float: _fixed(0x72, F32, "float"),
    Decimal32: lambda value, depth: b"\x74" + bytes(value.raw),
    Decimal64: lambda value, depth: b"\x84" + bytes(value.raw),
    Decimal128: lambda value, depth: b"\x94" + bytes(value.raw),
    Char: lambda value, depth: b"\x73" + _pack_char(value),
    Timestamp: _fixed(0x83, I64, "timestamp"),
    uuid.UUID: lambda value, depth: b"\x98" + value.bytes,
    bytes: lambda value, depth: encode_binary(value),
    bytearray: lambda value, depth: encode_binary(bytes(value)),
    memoryview: lambda value, depth: encode_binary(bytes(value)),
    str: lambda value, depth: encode_string(value),
    Symbol: lambda value, depth: encode_symbol(value),
    list: _encode_list,
    tuple: _encode_list,
    dict: _encode_map,
    Map: _encode_map,
    Array: _encode_array,
    Described: _encode_described,
}
