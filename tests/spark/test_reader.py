"""What Spark's classes make of the stream: schemas, limits, partitions; without a session."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest

if find_spec("pyspark") is None:
    pytest.skip("pyspark is not installed", allow_module_level=True)

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from onceway.spark.columns.fields import BINARY_HEADERS
from onceway.spark.datasource import HEADERS, OncewayDataSource
from onceway.spark.errors import OptionError
from onceway.spark.options import source_options
from onceway.spark.reader import BatchReader, InlineRows, Rows, StreamReader
from onceway.spark.source.stream import Offset
from tests.spark.logs import Log

NEEDED = {"url": "amqp://nowhere", "topic": "orders", "subscription": "s", "wallocation": "/nowhere"}


def struct(**types: Any) -> StructType:
    return StructType([StructField(name, made) for name, made in types.items()])


def reader(schema: StructType | None = None, **options: str) -> StreamReader:
    return StreamReader(source_options({**NEEDED, **options}, "stream"), schema or struct(value=BinaryType()))


def test_a_reader_is_cheap_and_pickled_before_it_has_begun() -> None:
    again = pickle.loads(pickle.dumps(reader()))
    assert again.names == ["value"]
    again.stop()  # of a reader that served nobody
    assert not Path("/nowhere").exists()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadMaxRows((1 << 63) - 1)),
        ({"maxRowsPerTrigger": "5", "maxBytesPerTrigger": "1KiB"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1KiB", "minRowsPerTrigger": "2"}, ReadMaxBytes(1024)),
        ({"minRowsPerTrigger": "2"}, ReadMinRows(2)),
    ],
)
def test_spark_is_told_of_a_limit_where_there_is_any(options: dict[str, str], limit: object) -> None:
    assert reader(**options).getDefaultReadLimit() == limit


def test_who_asks_for_all_in_one_batch_gets_what_the_network_holds_at_that_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trigger.Once says nothing else of itself (docs/spark.md)."""
    calls: list[str] = []

    class Stream:
        def freeze(self) -> None:
            calls.append("freeze")

        def latest(self, start: Offset, *, limited: bool) -> Offset:
            calls.append(f"latest limited={limited}")
            return start

    one = reader()
    one._stream = cast("Any", Stream())
    start = Offset("log", {0: 0}).as_dict()
    for limit in (one.getDefaultReadLimit(), ReadMinRows(5), ReadAllAvailable()):
        assert one.latestOffset(start, limit) == start
    assert calls == ["latest limited=True"] * 2 + ["freeze", "latest limited=False"]


def test_a_source_that_is_prepared_begins_nothing_before_spark_knows_how_to_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    class Stream:
        def __init__(self, options: object) -> None:
            calls.append("made")

        def begin(self) -> None:
            calls.append("begin")

        def freeze(self) -> None:
            calls.append("freeze")

        def initial(self) -> Offset:
            return Offset("log", {0: 0})

    monkeypatch.setattr("onceway.spark.reader.Stream", Stream)
    monkeypatch.setattr("onceway.spark.reader.signal.signal", lambda *_: None)
    one = reader()
    one.prepareForTriggerAvailableNow()
    one.getDefaultReadLimit()
    assert calls == []
    for _ in range(2):
        assert one.initialOffset() == Offset("log", {0: 0}).as_dict()
    assert calls == ["made", "begin", "freeze"]


def test_a_schema_may_leave_columns_out_and_no_more() -> None:
    reader(struct(headers=MapType(StringType(), StringType()), timestamp=TimestampType()))
    as_bytes = ArrayType(struct(key=StringType(), value=BinaryType()))
    assert f", headers {as_bytes.simpleString()}" == HEADERS["binary"]
    assert reader(struct(headers=as_bytes)).names == [BINARY_HEADERS]
    with pytest.raises(OptionError) as caught:
        reader(struct(value=StringType(), colour=StringType(), offset=LongType()))
    assert str(caught.value).split("\n") == [
        "schema: column 'value' is binary, not string; read it so and cast it",
        "schema: no column 'colour'; there are key, value, topic, partition, offset, timestamp, received_at, message_id, "
        "correlation_id, subject, content_type, reply_to, group_id, delivery_tag, raw, headers",
    ]


def test_the_source_declares_every_column_as_it_reads_it() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from onceway.spark.columns import schema

    declared = OncewayDataSource({"includeheaders": "true"}).schema()
    pairs = [
        part.strip().replace("`", "").split(" ", 1) for part in declared.replace("string, string", "string").split(", ")
    ]
    types = {
        "string": StringType(), "binary": BinaryType(), "int": "int", "bigint": LongType(), "timestamp": TimestampType(),
    }  # fmt: skip
    assert [name for name, _ in pairs] == schema().names
    for name, word in pairs:
        if isinstance(types.get(word), str) or word not in types:
            continue
        (field,) = to_arrow_schema(struct(x=types[word]), timezone="UTC")
        assert field.type.equals(schema([name]).field(0).type), name


@pytest.mark.parametrize("transport", ["file", "inline"])
def test_rows_come_out_of_a_pickled_partition_in_sparks_exact_schema(tmp_path: Path, transport: str) -> None:
    schema = StructType([StructField("offset", LongType(), False), StructField("value", BinaryType())])
    with Log(tmp_path / "wal") as log:
        log.append(450)
        options = source_options({"path": str(tmp_path / "wal"), "transport": transport, "minPartitions": "2"}, "batch")
        there = BatchReader(options, schema)
        partitions = pickle.loads(pickle.dumps(there.partitions()))
        assert [type(one) for one in partitions] == [InlineRows if transport == "inline" else Rows] * 2
        found = [batch for one in partitions for batch in pickle.loads(pickle.dumps(there)).read(one)]
    assert all(batch.schema.equals(there.schema) for batch in found)
    assert not there.schema.field("offset").nullable
    rows = [(row["offset"], row["value"]) for batch in found for row in batch.to_pylist()]
    assert rows == [(number, b"orders %d" % number) for number in range(450)]
