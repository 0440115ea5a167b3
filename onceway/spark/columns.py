"""AMQP messages as columns: encoded payloads in, Arrow RecordBatches out."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("key", pa.string()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("received_at", pa.timestamp("us", tz="UTC")),
    ("message_id", pa.string()),
    ("correlation_id", pa.string()),
    ("subject", pa.string()),
    ("content_type", pa.string()),
    ("reply_to", pa.string()),
    ("group_id", pa.string()),
    ("delivery_tag", pa.binary()),
    ("headers", pa.map_(pa.string(), pa.string())),
)


def schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of these columns, in this order (all of them, headers last, unless named)."""
    types = dict(COLUMNS)
    return pa.schema([(name, types[name]) for name in (columns or types)])


def decode(
    payloads: pa.BinaryArray,
    tags: pa.BinaryArray,
    received_us: pa.Int64Array,
    *,
    topic: str,
    partition: int,
    first: int,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Rows first, first + 1 ... of a slot as a RecordBatch of `schema(columns)`."""
    raise NotImplementedError
