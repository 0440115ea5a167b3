"""Rows of a DataFrame as AMQP messages: columns in, encoded payloads out, without an object for each message.

The inverse of `onceway.spark.columns`: a DataFrame of the source can be written as it is.  Cells, sections and messages
are joined by Arrow's kernels from bytes and a head that depends only on the length, so a row costs tens of nanoseconds
for each of its columns.  Knows neither files nor links.
"""

from __future__ import annotations

import difflib
from array import array
from collections.abc import Sequence
from sys import byteorder
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from onceway.spark.errors import SinkOptionError

KEY: Final = "x-opt-partition-key"  # the message annotation that carries the column `key`, as others do it

OURS: Final = "x-opt-onceway-"  # prefix of the routers' annotations

# AMQP 3.2.4: places in the list of the properties section.
_PROPERTIES: Final = {
    "message_id": 0,
    "subject": 3,
    "reply_to": 4,
    "correlation_id": 5,
    "content_type": 6,
    "timestamp": 9,  # creation-time
    "group_id": 10,
}
_TEXT: Final = ("string",)
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "value": ("string", "binary"),
    "topic": _TEXT,
    "key": ("string", "binary"),
    "headers": ("map<string,string>", "array<struct<key:string,value:binary>>"),
    **dict.fromkeys(_PROPERTIES, _TEXT),
    "timestamp": ("timestamp",),
}
# Columns of our source, and of Kafka's, that describe how a message arrived: accepted and not written.
IGNORED: Final = ("partition", "offset", "received_at", "delivery_tag", "raw", "timestampType")
COLUMNS: Final = tuple(_TYPES)

_BINARY: Final = pa.large_binary()  # 32-bit offsets end at 2 GiB a batch
_NULL: Final = pa.scalar(b"\x40", _BINARY)
_NOTHING: Final = pa.scalar(b"", _BINARY)
_NULL_BODY: Final = pa.scalar(b"\x00\x53\x77\x40", _BINARY)


def _heads(prefix: bytes, constructor: int, more: int = 0) -> pa.Array:
    """Heads of variable-width values by their length, 0 to 255."""
    return pa.array([prefix + bytes((constructor, length + more & 255)) for length in range(256)], _BINARY)


_KEY_SYMBOL: Final = pa.scalar(b"\xa3" + bytes((len(KEY),)) + KEY.encode(), _BINARY)
_DATA: Final = b"\x00\x53\x75"
_SHORT_DATA: Final = _heads(_DATA, 0xA0)
_SHORT_STRING: Final = _heads(b"", 0xA1)
_SHORT_SYMBOL: Final = _heads(b"", 0xA3)
_SHORT_BINARY: Final = _heads(b"", 0xA0)
_BYTES: Final = pa.array([bytes((value,)) for value in range(256)], _BINARY)


def check_columns(columns: Sequence[tuple[str, str]], *, topic_given: bool) -> None:
    """columns: (name, Spark's simple type) each.  Raises SinkOptionError with every problem at once."""
    problems = []
    names = [name for name, _ in columns]
    for name, kind in columns:
        wanted = _TYPES.get(name)
        if wanted is None:
            if name not in IGNORED:
                close = difflib.get_close_matches(name.lower(), _TYPES, 1, 0.7)
                known = f"known are {', '.join(_TYPES)}: put it into value or headers, or drop it"
                meant = f"did you mean {close[0]}?" if close else known
                problems.append(f"column {name}: the sink does not know it; {meant}")
        elif kind not in wanted and not kind.startswith(("varchar(", "char(")):
            remedy = (
                "make it string or binary, for example with to_json" if name == "value" else f"cast it to {wanted[0]}"
            )
            problems.append(f"column {name}: is {kind}; {remedy}")
    if "value" not in names:
        problems.append('column value: is missing; add it, as in select(to_json(struct("*")).alias("value"))')
    if not topic_given and "topic" not in names:
        problems.append('column topic: is missing; add it, or give the option, as in .option("topic", "orders")')
    if problems:
        raise SinkOptionError("\n".join(problems))


def payloads(batch: pa.RecordBatch) -> pa.Array:
    """The messages of a record batch, in order, as large_binary.  SinkOptionError where a cell cannot be sent."""
    names = batch.schema.names
    sections = [_annotations(_text("key", batch.column("key")))] if "key" in names else []
    fields = {name: place for name, place in _PROPERTIES.items() if name in names}
    if fields:
        sections.append(_properties(batch, fields))
    if "headers" in names:
        sections.append(_application_properties(batch.column("headers"), has_key="key" in names))
    value = _binary(batch.column("value"))
    body = _with_heads(value, _SHORT_DATA, _DATA + b"\xb0")
    if value.null_count:
        body = pc.fill_null(body, _NULL_BODY)
    return _join(*sections, body) if sections else body


def topics(batch: pa.RecordBatch) -> list[str]:
    """The column `topic`.  SinkOptionError where a cell is null or empty."""
    column = batch.column("topic")
    names: list[str | None] = column.to_pylist()
    if column.null_count or "" in names:
        row = next(row for row, name in enumerate(names) if not name)
        raise SinkOptionError(
            f"column topic: is null or empty (row {row} of its partition's batch); fill it, filter such rows out, "
            'or give all rows one topic with .option("topic", "orders")'
        )
    return [name for name in names if name]


# -- sections before the body


def _properties(batch: pa.RecordBatch, fields: dict[str, int]) -> pa.Array:
    """Properties sections (AMQP 3.2.4); empty where a row has none of the fields."""
    count = max(fields.values()) + 1
    cells: list[Any] = [_NULL] * count
    for name, place in fields.items():
        column = batch.column(name)
        if name == "timestamp":
            cells[place] = _times(column)
        elif name == "content_type":
            cells[place] = _symbols(_binary(column))
        else:
            cells[place] = _strings(_binary(column))
    content = _join(*cells)
    return _compound(content, 0x73, 0xC0, pa.repeat(pa.scalar(count), len(content)), empty=count)


def _annotations(keys: pa.Array) -> pa.Array:
    """Message-annotations sections (AMQP 3.2.3); empty where a row has no key."""
    content = pc.if_else(keys.is_null(), _NOTHING, _join(_KEY_SYMBOL, _strings(keys)))
    return _compound(content, 0x72, 0xC1, pa.repeat(pa.scalar(2), len(content)), empty=0)


def _application_properties(headers: pa.Array, *, has_key: bool) -> pa.Array:
    """Application-properties sections (AMQP 3.2.5); empty where a row has no headers.

    The source shows message annotations among the headers.  Those that are written again stay out: the routers' own,
    because there is another publisher now, and the key.
    """
    offsets = headers.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()  # a slice keeps the whole child
    if pa.types.is_map(headers.type):
        names = headers.keys.slice(first, last - first)
        values = _strings(_binary(headers.items.slice(first, last - first)))
    else:
        names, octets = headers.values.slice(first, last - first).flatten()
        _check_names(names, headers)
        values = pc.fill_null(_with_heads(_binary(octets), _SHORT_BINARY, b"\xb0"), _NULL)
    pairs = _join(_strings(_binary(names)), values)
    bounds = pc.subtract(offsets, offsets[0]).cast(pa.int64())
    written_again = pc.starts_with(names, OURS)
    if has_key:
        written_again = pc.or_(written_again, pc.equal(names, KEY))
    pairs = pc.if_else(written_again, _NOTHING, pairs)
    kept = pc.cumulative_sum(pc.invert(written_again).cast(pa.int64()))
    kept = pa.concat_arrays([pa.array([0], pa.int64()), kept]).take(bounds)  # before each bound
    count = pc.multiply(pc.subtract(kept[1:], kept[:-1]), pa.scalar(2))
    return _compound(pc.binary_join(pa.LargeListArray.from_arrays(bounds, pairs), _NOTHING), 0x74, 0xC1, count, empty=0)


def _check_names(names: pa.Array, headers: pa.Array) -> None:
    """An array may hold what a map of AMQP may not (1.6.23).  Raises SinkOptionError."""
    if names.null_count:
        raise SinkOptionError("column headers: a key is null; leave such headers out")
    pairs = pa.table({"row": pc.list_parent_indices(headers), "key": names}).group_by(["row", "key"])
    counts = pairs.aggregate([([], "count_all")])
    if counts.num_rows < len(names):
        twice = counts.filter(pc.greater(counts["count_all"], 1))["key"][0]
        raise SinkOptionError(f"column headers: a row has key {twice.as_py()!r} twice; AMQP takes each key once")


def _compound(content: pa.Array, section: int, constructor: int, count: Any, *, empty: int) -> pa.Array:
    """A section that is a list or map (AMQP 1.6.22): head by size and count, then the content.

    Rows whose content is of length `empty` get no section at all.
    """
    length = pc.binary_length(content)
    count = count.cast(pa.int64())
    short = pc.and_(pc.less(length, 255), pc.less(count, 256))
    head = bytes((0x00, 0x53, section))
    heads = _join(
        pa.scalar(head + bytes((constructor,)), _BINARY),
        _BYTES.take(pc.add(pc.if_else(short, length, 0), 1)),
        _BYTES.take(pc.if_else(short, count, 0)),
    )
    if not pc.all(short).as_py():
        long = _join(pa.scalar(head + bytes((constructor + 0x10,)), _BINARY), _be32(pc.add(length, 4)), _be32(count))
        heads = pc.if_else(short, heads, long)
    return pc.if_else(pc.equal(length, empty), _NOTHING, _join(heads, content))


# -- cells


def _binary(column: pa.Array) -> pa.Array:
    return column.cast(_BINARY)


def _text(name: str, column: pa.Array) -> pa.Array:
    """The octets of texts, which may come as binary.  Raises SinkOptionError."""
    octets = _binary(column)
    try:
        octets.cast(pa.large_string())
    except pa.ArrowInvalid:
        wrong = next(one for one in octets.to_pylist() if one is not None and not _is_text(one))
        raise SinkOptionError(
            f"column {name}: {wrong!r:.60} is not UTF-8, and {name} is a text; write hex({name}) or base64({name})"
        ) from None
    return octets


def _is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def _join(*parts: Any) -> pa.Array:
    """Row by row; a null part makes the row null."""
    return pc.binary_join_element_wise(*parts, _NOTHING)


def _with_heads(column: pa.Array, short: pa.Array, long: bytes) -> pa.Array:
    """Each value after the head for its length; nulls stay."""
    length = pc.binary_length(column)
    if (pc.max(length).as_py() or 0) < 256:
        return _join(short.take(length), column)
    fits = pc.less(length, 256)
    heads = pc.if_else(fits, short.take(pc.if_else(fits, length, 0)), _join(pa.scalar(long, _BINARY), _be32(length)))
    return _join(heads, column)


def _strings(column: pa.Array) -> pa.Array:
    return pc.fill_null(_with_heads(column, _SHORT_STRING, b"\xb1"), _NULL)


def _symbols(column: pa.Array) -> pa.Array:
    ascii_only = pc.string_is_ascii(column.cast(pa.large_string()))
    if pc.all(ascii_only).as_py() is False:  # None: there is none
        wrong = column.filter(pc.invert(ascii_only))[0].as_py().decode()
        raise SinkOptionError(f"column content_type: {wrong!r:.60} is not ASCII, which AMQP asks of it; clean it")
    return pc.fill_null(_with_heads(column, _SHORT_SYMBOL, b"\xb3"), _NULL)


def _times(column: pa.Array) -> pa.Array:
    """Milliseconds since 1970 (AMQP 1.6.17), rounded down, of any number of microseconds that Spark may have."""
    micros = pc.fill_null(column.cast(pa.int64()), 0)
    before = pc.subtract(pc.divide(pc.add(micros, 1), 1000), 1)
    values = pc.if_else(pc.less(micros, 0), before, pc.divide(micros, 1000))
    return pc.if_else(column.is_null(), _NULL, _join(pa.scalar(b"\x83", _BINARY), _big_endian(values, "q")))


def _be32(numbers: pa.Array) -> pa.Array:
    return _big_endian(pc.fill_null(numbers, 0).cast(pa.int32()), "i")


def _big_endian(numbers: pa.Array, code: str) -> pa.Array:
    """Numbers without nulls as bytes in network order; code: their type, as in `array`."""
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    width = array(code).itemsize
    swapped = array(code, memoryview(numbers.buffers()[1])[numbers.offset * width :][: len(numbers) * width].tobytes())
    if byteorder == "little":
        swapped.byteswap()
    return pa.Array.from_buffers(pa.binary(width), len(numbers), [None, pa.py_buffer(swapped)]).cast(_BINARY)
