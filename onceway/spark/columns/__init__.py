"""AMQP messages as columns: encoded payloads in, Arrow RecordBatches out.

Messages of one publisher mostly begin with the same bytes (annotations, properties that do not change) and end in one
data section.  So the first message of a batch is read, and all others that begin like it and whose length fits their
data section are decoded together by Arrow's kernels, without a Python object for any of them.  Where few begin like it
(message-ids, creation times, keys, many publishers), the messages of its layout are decoded together in a few more
steps (`layouts`, on the kernels of `pieces`).  This is repeated for a few shapes; the rest (several data sections,
other bodies, invalid messages) is read one by one.  Only requested columns are made.  What each column means:
`fields`.  The other direction: `encoding`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from onceway.spark.columns.fields import BINARY_HEADERS, Fields, constant_part, read
from onceway.spark.columns.layouts import layout_of
from onceway.spark.columns.pieces import BINARY_HEADERS_TYPE, numbers

TIMESTAMP: Final[Any] = pa.timestamp("us", tz="UTC")
COLUMNS: Final[tuple[tuple[str, Any], ...]] = (
    ("key", pa.string()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", TIMESTAMP),
    ("received_at", TIMESTAMP),
    ("message_id", pa.string()),
    ("correlation_id", pa.string()),
    ("subject", pa.string()),
    ("content_type", pa.string()),
    ("reply_to", pa.string()),
    ("group_id", pa.string()),
    ("delivery_tag", pa.binary()),
    ("raw", pa.string()),
    ("headers", pa.map_(pa.string(), pa.string())),
)
_TYPES: Final[dict[str, Any]] = {**dict(COLUMNS), BINARY_HEADERS: BINARY_HEADERS_TYPE}
_OF_THE_MESSAGE: Final = (
    "key",
    "value",
    "timestamp",
    *(name for name, _ in COLUMNS[7:13]),
    "raw",
    "headers",
    BINARY_HEADERS,
)
_SHAPES: Final = 64  # tried in one batch, at most
_SAMPLES: Final = 4
_WORTH: Final = 64  # a shape of fewer rows costs more than reading them one by one
_WORTH_A_LAYOUT: Final = 128
_SHARE: Final = 3  # a common beginning is quicker to read than a layout, but not by this factor
_AT_ONCE: Final = 500
_LONGEST: Final = 0x7FFFFFFF  # of a binary value

Columns = dict[str, Any]


def schema(columns: Sequence[str] | None = None) -> Any:
    """The Arrow schema of these columns, in this order; all of them, headers last, where none are named."""
    return pa.schema([(name, _TYPES[name]) for name in (columns if columns is not None else dict(COLUMNS))])


def decode(
    payloads: Any,
    tags: Any,
    received_us: Any,
    *,
    topic: str,
    partition: int,
    first: int,
    columns: Sequence[str] | None = None,
) -> Any:
    """Rows first, first + 1 ... of a slot as a RecordBatch of `schema(columns)`.

    payloads, tags: binary arrays; received_us: int64.  A payload that is not a message becomes a row that says so.
    """
    wanted = schema(columns)
    rows = len(payloads)
    if not rows:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in wanted], schema=wanted)
    received = received_us.view(TIMESTAMP)
    made: Columns = {}
    needed = [name for name in wanted.names if name in _OF_THE_MESSAGE]
    if needed:
        made = _messages(payloads, needed)
        if "timestamp" in made:
            made["timestamp"] = pc.coalesce(made["timestamp"], received)
    others: dict[str, Callable[[], Any]] = {
        "topic": lambda: pa.repeat(pa.scalar(topic, pa.string()), rows),
        "partition": lambda: pa.repeat(pa.scalar(partition, pa.int32()), rows),
        "offset": lambda: numbers(first, rows),
        "received_at": lambda: received,
        "delivery_tag": lambda: tags,
    }
    arrays = [made[name] if name in made else others[name]() for name in wanted.names]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _messages(payloads: Any, needed: list[str]) -> Columns:
    """The needed columns of these payloads: shape by shape, the rest one by one, then in their order again."""
    pieces: list[tuple[Any, Columns]] = []  # (rows, their columns)
    rows = numbers(0, len(payloads))  # those left
    odd = 0  # samples in front that hardly any other payload resembles
    while odd < min(_SAMPLES, len(payloads)) and len(pieces) < _SHAPES:
        shape = _of_a_shape(payloads, payloads[odd].as_py(), needed)
        if shape is None:
            odd += 1
            continue
        odd = 0
        mask, made = shape
        if mask.true_count == len(payloads):
            pieces.append((rows, made))
            payloads = payloads[:0]
            break
        pieces.append((rows.filter(mask), made))
        others = pc.invert(mask)
        payloads, rows = payloads.filter(others), rows.filter(others)
    if len(payloads):
        pieces.append((rows, _one_by_one(payloads, needed)))
    if len(pieces) == 1:
        return pieces[0][1]
    order = pc.sort_indices(pa.concat_arrays([piece_rows for piece_rows, _ in pieces]))
    return {name: pa.concat_arrays([piece[name] for _, piece in pieces]).take(order) for name in needed}


def _of_a_shape(payloads: Any, sample: bytes, needed: list[str]) -> tuple[Any, Columns] | None:
    """(which payloads have the sample's shape, the columns of those); None where they are too few."""
    like = constant_part(sample)
    mask = None if like is None else _alike(payloads, like)
    count = 0 if mask is None else mask.true_count
    if count < len(payloads) // _SHARE and len(payloads) >= _WORTH_A_LAYOUT:
        layout = layout_of(sample)
        found = None if layout is None else layout.read(payloads, needed, _WORTH_A_LAYOUT)
        if found is not None:
            return found
    if like is None or count < min(_WORTH, len(payloads)):
        return None
    return mask, _beginning_alike(payloads if count == len(payloads) else payloads.filter(mask), sample, needed, like)


def _alike(payloads: Any, like: bytes) -> Any:
    """Which payloads are `like`, then the length of the rest, then the rest."""
    width = 1 if like[-1] == 0xA0 else 4
    body = len(like) + width
    lengths = pc.binary_length(payloads).dictionary_encode()
    heads = []
    for length in lengths.dictionary.to_pylist():
        fits = body <= length < body + 256 if width == 1 else body <= length
        heads.append(like + (length - body).to_bytes(width, "big") if fits else None)
    expected = pa.array(heads, pa.binary()).take(lengths.indices)
    return pc.fill_null(pc.equal(pc.binary_slice(payloads, 0, body), expected), pa.scalar(False, pa.bool_()))


def _beginning_alike(payloads: Any, sample: bytes, needed: list[str], like: bytes) -> Columns:
    """All columns but the value are the sample's."""
    fields = read(sample)
    body = len(like) + (1 if like[-1] == 0xA0 else 4)
    made: Columns = {}
    for name in needed:
        if name == "value":
            made[name] = pc.binary_slice(payloads, body, _LONGEST)
            continue
        constant = _cell(fields, name)
        rows, kind = len(payloads), _TYPES[name]
        if constant is None:
            made[name] = pa.nulls(rows, kind)
        elif isinstance(constant, list):  # headers: `repeat` would build each of them again
            made[name] = pa.array([constant], kind).take(pa.repeat(pa.scalar(0, pa.int64()), rows))
        else:
            made[name] = pa.repeat(pa.scalar(constant, kind), rows)
    return made


def _one_by_one(payloads: Any, needed: list[str]) -> Columns:
    pieces: list[Columns] = []
    # some at a time: the garbage collector would scan all of them again and again
    for start in range(0, len(payloads), _AT_ONCE):
        found = [read(payload) for payload in payloads.slice(start, _AT_ONCE).to_pylist()]
        pieces.append({name: pa.array([_cell(fields, name) for fields in found], _TYPES[name]) for name in needed})
    return {name: pa.concat_arrays([piece[name] for piece in pieces]) for name in needed}


def _cell(fields: Fields, name: str) -> Any:
    """As `pa.array` takes it."""
    if name == "timestamp":
        return fields.timestamp_us
    if name == BINARY_HEADERS:
        return fields.headers and [
            {"key": key, "value": value.encode() if isinstance(value, str) else value} for key, value in fields.headers
        ]
    if name == "headers":
        return fields.headers and [
            (key, value.hex() if isinstance(value, bytes) else value) for key, value in fields.headers
        ]
    return getattr(fields, name)
