"""Composite types (AMQP 1.4): lists with a descriptor whose entries are the fields of a class.

Knows how fields are read and written by type, and names a wrong one by its place. A class is made with
`@composite(code, name, *field types)` on a dataclass whose attributes are the fields, in the specification's order and
with its defaults. Next: outcomes.py, termini.py, performatives.py, sections.py.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import attrgetter, is_not
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast

from amqp10.decoder import (
    ARRAY_TYPES,
    MAX_FIELD_VALUES,
    check_count,
    check_end,
    compound_head,
    decode_symbol,
    decode_utf8,
    decode_value,
    skip_value,
)
from amqp10.encoder import (
    encode_binary,
    encode_list,
    encode_map,
    encode_string,
    encode_symbol,
    encode_uint,
    encode_ulong,
    encode_value,
    register_encoder,
)
from amqp10.errors import DECODE_ERROR, INVALID_FIELD, DecodeError, EncodeError
from amqp10.types import Array, Symbol, Timestamp, ULong

Reader = Callable[[bytes, int, int, str], tuple[Any, int]]
"""(buf, offset of a value that is not null and not missing, end, name of the field) -> (value, offset behind it)."""
Writer = Callable[[Any], bytes]

MAX_TAG: Final = 32
"""Bytes of a delivery-tag (AMQP 2.8.7)."""
_unpack_u16 = Struct(">H").unpack_from
_unpack_u32 = Struct(">I").unpack_from
_unpack_u64 = Struct(">Q").unpack_from


class FieldType(NamedTuple):
    read: Reader
    write: Writer
    required: bool = False
    absent: Any = None


class Field(NamedTuple):
    name: str
    where: str
    read: Reader
    write: Writer
    required: bool
    default: Any


class Composite:
    """Base of all classes that are a described list on the wire."""

    __slots__ = ()
    descriptor_code: ClassVar[int]
    type_name: ClassVar[str]
    descriptor: ClassVar[bytes]
    fields: ClassVar[tuple[Field, ...]]
    defaults: ClassVar[tuple[Any, ...]]
    minimum_count: ClassVar[int]
    """How many entries a list must have: up to the last required field."""
    values_of: ClassVar[Callable[[Any], tuple[Any, ...]]]
    """All fields of an instance, in order."""
    numbers: ClassVar[range]
    writers: ClassVar[tuple[tuple[Writer, Any], ...]]
    """Of each field: its writer, and the value for which it is left out, besides None."""
    omitted: ClassVar[tuple[Any, ...]]
    """The defaults; for a required field an object that no field has."""
    readers: ClassVar[tuple[tuple[int, Reader, str, bool], ...]]
    """Of each field: its number, its reader, its name, whether it is required."""

    def encode(self) -> bytes:
        """Descriptor and list; fields that have their default are left out. EncodeError names a field that is wrong."""
        cls = self.__class__
        values = cls.values_of(self)
        entries = [b"\x40"] * len(values)
        number = -1
        # Most fields of most performatives have their default, and are skipped here.
        for number in compress(cls.numbers, map(is_not, values, cls.omitted)):
            value = values[number]
            write, default = cls.writers[number]
            if value is None:
                if cls.fields[number].required:
                    raise EncodeError(f"{cls.fields[number].where} is missing")
            elif default is None or value != default:
                try:
                    entries[number] = write(value)
                except (EncodeError, TypeError, AttributeError) as e:
                    raise EncodeError(f"{cls.fields[number].where}: {e}") from None
        del entries[number + 1 :]
        while entries and entries[-1] == b"\x40":
            del entries[-1]
        return cls.descriptor + encode_list(entries)


_NOTHING: Final = object()
C = TypeVar("C", bound=type[Composite])
BY_CODE: Final[dict[int, type[Composite]]] = {}
CODES: Final[dict[str, int]] = {}
"""Descriptor codes by symbolic descriptor: peers may send either."""


def composite(code: int, name: str, *types: FieldType) -> Callable[[C], C]:
    """Class decorator; `types` are those of the dataclass's attributes, in order."""

    def define(cls: C) -> C:
        attributes = dataclasses.fields(cast(Any, cls))
        assert len(attributes) == len(types), cls
        short = name.split(":")[1]
        cls.descriptor_code = code
        cls.type_name = short
        cls.descriptor = b"\x00\x53" + bytes((code,))
        cls.fields = tuple(
            Field(
                a.name,
                f"{short}.{a.name.replace('_', '-')}",
                t.read,
                t.write,
                t.required,
                None if a.default is dataclasses.MISSING else a.default,
            )
            for a, t in zip(attributes, types, strict=True)
        )
        cls.defaults = tuple(field.default for field in cls.fields)
        cls.numbers = range(len(cls.fields))
        cls.writers = tuple((f.write, None if f.required else f.default) for f in cls.fields)
        cls.omitted = tuple(_NOTHING if f.required else f.default for f in cls.fields)
        cls.readers = tuple((number, f.read, f.where, f.required) for number, f in enumerate(cls.fields))
        cls.minimum_count = max((number for number, field in enumerate(cls.fields, 1) if field.required), default=0)
        cls.values_of = staticmethod(_getter([field.name for field in cls.fields]))
        for field, t in zip(cls.fields, types, strict=True):
            assert t.absent is None or field.default == t.absent, field
        BY_CODE[code] = cls
        CODES[name] = code
        return cls

    return define


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def required(field_type: FieldType) -> FieldType:
    return field_type._replace(required=True)


def read_descriptor(buf: bytes, offset: int, end: int) -> tuple[int | None, int]:
    """(code of the descriptor at offset, None if unknown, offset of the value behind it); 0x00 must be at offset."""
    if end - offset >= 3 and buf[offset] == 0x00 and buf[offset + 1] == 0x53:
        return buf[offset + 2], offset + 3
    if offset >= end or buf[offset] != 0x00:
        raise DecodeError(DECODE_ERROR, "a described value is missing", offset)
    descriptor, offset = decode_value(buf, offset + 1, end, [MAX_FIELD_VALUES])
    if isinstance(descriptor, ULong):
        return int(descriptor), offset
    if isinstance(descriptor, Symbol):
        return CODES.get(descriptor), offset
    return None, offset


def read_list_head(buf: bytes, offset: int, end: int, what: str) -> tuple[int, int, int]:
    """(offset of the first entry, offset behind the last, count) of the list at offset."""
    if offset >= end:
        raise DecodeError(DECODE_ERROR, f"the list of {what} is missing", offset)
    code = buf[offset]
    if code == 0xC0 and offset + 3 <= end:
        stop, count = offset + 2 + buf[offset + 1], buf[offset + 2]
        if stop <= end and count <= stop - offset - 3:
            return offset + 3, stop, count
    if code == 0x45:
        return offset + 1, offset + 1, 0
    if code != 0xC0 and code != 0xD0:
        raise wrong_type(buf, offset, end, what, "list")
    first, stop, count = compound_head(buf, offset + 1, end, code == 0xD0, offset)
    check_count(count, stop - first, offset)
    return first, stop, count


def read_fields(cls: type[Composite], buf: bytes, offset: int, end: int) -> tuple[Any, int]:
    """(instance of the class, offset behind it) from the list at offset, behind the descriptor."""
    at = offset
    offset, stop, count = read_list_head(buf, offset, end, cls.type_name)
    values = [*cls.defaults]
    if count > len(values):
        raise DecodeError(INVALID_FIELD, f"{cls.type_name} has {len(values)} fields, not {count}", at)
    for number, read, where, required in cls.readers[:count]:
        if offset >= stop:
            raise DecodeError(DECODE_ERROR, f"{where} is cut off", offset)
        if buf[offset] != 0x40:
            values[number], offset = read(buf, offset, stop, where)
        elif required:
            raise DecodeError(INVALID_FIELD, f"{where} is missing", offset)
        else:
            offset += 1
    if offset != stop:
        check_end(offset, stop)
    if count < cls.minimum_count:
        missing = next(field for field in cls.fields[count:] if field.required)
        raise DecodeError(INVALID_FIELD, f"{missing.where} is missing", stop)
    return cls(*values), stop


def wrong_type(buf: bytes, offset: int, end: int, where: str, expected: str) -> DecodeError:
    if offset >= end:
        return DecodeError(DECODE_ERROR, f"{where} is missing", offset)
    skip_value(buf, offset, end)  # raises if this is no value at all
    code = buf[offset]
    found = "described value" if code == 0x00 else ARRAY_TYPES[code]
    return DecodeError(INVALID_FIELD, f"{where} must be of type {expected}, not {found}", offset)


# Readers and writers by type


def _read_uint(buf: bytes, offset: int, end: int, where: str) -> tuple[int, int]:
    code = buf[offset]
    if code == 0x52 and offset + 2 <= end:
        return buf[offset + 1], offset + 2
    if code == 0x43:
        return 0, offset + 1
    if code == 0x70 and offset + 5 <= end:
        return _unpack_u32(buf, offset + 1)[0], offset + 5
    raise wrong_type(buf, offset, end, where, "uint")


def _read_boolean(buf: bytes, offset: int, end: int, where: str) -> tuple[bool, int]:
    code = buf[offset]
    if code == 0x41:
        return True, offset + 1
    if code == 0x42:
        return False, offset + 1
    return cast("tuple[bool, int]", read_typed(buf, offset, end, where, ((0x56,), "boolean")))


Kind = tuple[tuple[int, ...], str]
"""A type, or several that may stand in one place: their constructors, and the name that errors give them."""
BINARIES: Final[Kind] = (0xA0, 0xB0), "binary"
MAPS: Final[Kind] = (0xC1, 0xD1), "map"


def read_typed(
    buf: bytes, offset: int, end: int, where: str, kind: Kind, budget: list[int] | None = None
) -> tuple[Any, int]:
    """A value of this kind. budget: as for `decode_value`; that of a field, unless given."""
    if offset >= end or buf[offset] not in kind[0]:
        raise wrong_type(buf, offset, end, where, kind[1])
    return decode_value(buf, offset, end, [MAX_FIELD_VALUES] if budget is None else budget)


def _reader(kind: Kind) -> Reader:
    return lambda buf, offset, end, where: read_typed(buf, offset, end, where, kind)


def _integer_reader(kind: Kind) -> Reader:
    def read(buf: bytes, offset: int, end: int, where: str) -> tuple[int, int]:
        value, stop = read_typed(buf, offset, end, where, kind)
        return int(value), stop

    return read


def _text_reader(kind: Kind, decode: Callable[[bytes, int, int], str]) -> Reader:
    """Of string or symbol. The first constructor is the one with a length of one byte, which nearly all have."""
    short = kind[0][0]

    def read(buf: bytes, offset: int, end: int, where: str) -> tuple[Any, int]:
        if buf[offset] == short and offset + 2 <= end:
            stop = offset + 2 + buf[offset + 1]
            if stop <= end:
                return decode(buf, offset + 2, stop), stop
        return read_typed(buf, offset, end, where, kind)

    return read


def _read_tag(buf: bytes, offset: int, end: int, where: str) -> tuple[bytes, int]:
    tag, stop = read_typed(buf, offset, end, where, BINARIES)
    if len(tag) > MAX_TAG:
        raise DecodeError(INVALID_FIELD, f"{where} has more than 32 bytes", offset)
    return tag, stop


def _read_symbols(buf: bytes, offset: int, end: int, where: str) -> tuple[tuple[Symbol, ...], int]:
    """multiple="true" (AMQP 1.4): null, one value, or an array."""
    value, stop = read_typed(buf, offset, end, where, ((0xA3, 0xB3, 0xE0, 0xF0), "symbol"))
    if isinstance(value, Symbol):
        return (value,), stop
    if value.type != "symbol" or value.descriptors:
        raise DecodeError(INVALID_FIELD, f"{where} must be an array of symbol, not of {value.type}", offset)
    return value.values, stop


def _read_map(
    buf: bytes, offset: int, end: int, where: str, *, ulong_keys: bool = False, budget: list[int] | None = None
) -> tuple[Mapping[Any, Any], int]:
    """A map with symbols as keys; strings, as some clients send, are accepted."""
    value, stop = read_typed(buf, offset, end, where, MAPS, budget)
    for key in value:
        if not (isinstance(key, str) or (ulong_keys and isinstance(key, ULong))):
            raise DecodeError(INVALID_FIELD, f"{where} has the key {key!r:.60}, which is no symbol", offset)
    return value, stop


def read_annotations(
    buf: bytes, offset: int, end: int, where: str, budget: list[int] | None = None
) -> tuple[Mapping[Any, Any], int]:
    return _read_map(buf, offset, end, where, ulong_keys=True, budget=budget)


def _read_message_id(buf: bytes, offset: int, end: int, where: str) -> tuple[Any, int]:
    codes = (0x44, 0x53, 0x80, 0x98, 0xA0, 0xB0, 0xA1, 0xB1)
    return read_typed(buf, offset, end, where, (codes, "ulong, uuid, binary or string"))


def within(minimum: int, maximum: int, field_type: FieldType) -> FieldType:
    """The type restricted to a range."""
    read, write = field_type.read, field_type.write

    def read_within(buf: bytes, offset: int, end: int, where: str) -> tuple[Any, int]:
        value, stop = read(buf, offset, end, where)
        if not minimum <= value <= maximum:
            raise DecodeError(INVALID_FIELD, f"{where} must lie in {minimum} to {maximum}, not be {value}", offset)
        return value, stop

    def write_within(value: Any) -> bytes:
        if not minimum <= value <= maximum:
            raise EncodeError(f"must lie in {minimum} to {maximum}, not be {value!r}")
        return write(value)

    return field_type._replace(read=read_within, write=write_within)


def one_of(*classes: type[Composite], name: str) -> FieldType:
    """A composite of one of these classes."""
    by_code = {cls.descriptor_code: cls for cls in classes}

    def read(buf: bytes, offset: int, end: int, where: str) -> tuple[Any, int]:
        if buf[offset] != 0x00:
            raise wrong_type(buf, offset, end, where, name)
        code: int | None
        if end - offset >= 3 and buf[offset + 1] == 0x53:
            code, position = buf[offset + 2], offset + 3
        else:
            code, position = read_descriptor(buf, offset, end)
        cls = None if code is None else by_code.get(code)
        if cls is None:
            skip_value(buf, offset, end)
            raise DecodeError(INVALID_FIELD, f"{where} must be of type {name}: unknown descriptor", offset)
        return read_fields(cls, buf, position, end)

    def write(value: Any) -> bytes:
        if not isinstance(value, classes):
            raise EncodeError(f"must be of type {name}, not {value!r}")
        return value.encode()

    return FieldType(read, write)


def _wrong(value: Any, name: str) -> EncodeError:
    return EncodeError(f"{value!r} is no {name}")


def _writer(cls: type, name: str, encode: Callable[[Any], bytes]) -> Writer:
    def write(value: Any) -> bytes:
        if not isinstance(value, cls):
            raise _wrong(value, name)
        return encode(value)

    return write


def _write_small(width: int, head: bytes, name: str) -> Writer:
    def write(value: int) -> bytes:
        try:
            return head + value.to_bytes(width, "big")
        except OverflowError:
            raise _wrong(value, name) from None

    return _writer(int, name, write)


_write_binary: Final = _writer(bytes, "binary", encode_binary)
_write_symbol: Final = _writer(str, "symbol", encode_symbol)


def _write_tag(value: Any) -> bytes:
    data = _write_binary(value)
    if len(value) > MAX_TAG:
        raise EncodeError(f"a delivery-tag has at most 32 bytes, not {len(value)}")
    return data


def _write_symbols(value: str | Sequence[str]) -> bytes:
    if isinstance(value, str):
        return _write_symbol(value)
    if not value:
        return b"\x40"
    if len(value) == 1:
        return _write_symbol(value[0])
    return encode_value(Array("symbol", value))


def _write_symbol_array(value: str | Sequence[str]) -> bytes:
    return encode_value(Array("symbol", (value,) if isinstance(value, str) else value))


def write_map(value: Mapping[Any, Any]) -> bytes:
    """A map whose str keys are written as symbols and whose int keys as ulongs."""
    if not isinstance(value, Mapping):
        raise _wrong(value, "map")
    entries = []
    for key, entry in value.items():
        if isinstance(key, str):
            entries.append(encode_symbol(key))
        elif isinstance(key, int):
            entries.append(encode_ulong(key))
        else:
            raise _wrong(key, "key of fields or annotations")
        entries.append(encode_value(entry))
    return encode_map(entries)


def _write_message_id(value: Any) -> bytes:
    if isinstance(value, int) and not isinstance(value, bool):
        return encode_ulong(value)
    if not isinstance(value, uuid.UUID | bytes | str):
        raise _wrong(value, "message-id")
    return encode_value(value)


UBYTE: Final = FieldType(_integer_reader(((0x50,), "ubyte")), _write_small(1, b"\x50", "ubyte"))
USHORT: Final = FieldType(_integer_reader(((0x60,), "ushort")), _write_small(2, b"\x60", "ushort"))
UINT: Final = FieldType(_read_uint, _writer(int, "uint", encode_uint))
ULONG: Final = FieldType(_integer_reader(((0x44, 0x53, 0x80), "ulong")), _writer(int, "ulong", encode_ulong))
BOOLEAN: Final = FieldType(_read_boolean, _writer(bool, "boolean", lambda value: b"\x41" if value else b"\x42"))
STRING: Final = FieldType(_text_reader(((0xA1, 0xB1), "string"), decode_utf8), _writer(str, "string", encode_string))
SYMBOL: Final = FieldType(_text_reader(((0xA3, 0xB3), "symbol"), decode_symbol), _write_symbol)
SYMBOLS: Final = FieldType(_read_symbols, _write_symbols, absent=())
SYMBOL_ARRAY: Final = FieldType(_read_symbols, _write_symbol_array, absent=())
BINARY: Final = FieldType(_reader(BINARIES), _write_binary)
DELIVERY_TAG: Final = FieldType(_read_tag, _write_tag)
TIMESTAMP: Final = FieldType(
    _reader(((0x83,), "timestamp")), _writer(int, "timestamp", lambda value: encode_value(Timestamp(value)))
)
MESSAGE_ID: Final = FieldType(_read_message_id, _write_message_id)
FIELDS: Final = FieldType(_read_map, write_map)
ANNOTATIONS: Final = FieldType(read_annotations, write_map)


def _encode_composite(value: Any, depth: int) -> bytes:
    return cast("Composite", value).encode()


register_encoder(Composite, _encode_composite)
