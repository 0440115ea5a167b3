"""Options that Spark adds by itself, collected from Spark, and tables, whose options it keeps to itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from onceway.spark.errors import OptionError, SinkOptionError
from onceway.spark.options import adds, of_new_table, sink_options, source_options
from tests.spark.logs import Log

OURS = {"path"}  # what load(), save() and start() are given is an option of ours
GIVEN = "Colour"


class Reader(DataSourceReader):
    def partitions(self) -> list[Any]:
        return [InputPartition(0)]

    def read(self, partition: Any) -> Iterator[tuple[str]]:
        yield ("red",)


class StreamReader(Reader, DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"at": 1}

    def partitions(self, start: Any, end: Any) -> list[Any]:
        return [InputPartition(0)]

    def commit(self, end: Any) -> None: ...


class Writer(DataSourceWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class StreamWriter(Writer, DataSourceStreamWriter):
    def commit(self, messages: Any, batchId: int) -> None: ...  # noqa: N803

    def abort(self, messages: Any, batchId: int) -> None: ...  # noqa: N803


def recording(file: Path) -> type[DataSource]:
    """A source and sink that writes down what it is given, a line for each call of Spark."""

    class Recording(DataSource):
        def note(self, what: str) -> None:
            with file.open("a") as lines:
                lines.write(json.dumps([what, dict(self.options)]) + "\n")

        @classmethod
        def name(cls) -> str:
            return "recording"

        def schema(self) -> str:
            self.note("schema")
            return "value string"

        def reader(self, schema: Any) -> Any:
            self.note("reader")
            return Reader()

        def streamReader(self, schema: Any) -> Any:
            self.note("streamReader")
            return StreamReader()

        def writer(self, schema: Any, overwrite: bool) -> Any:
            self.note("writer")
            return Writer()

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            self.note("streamWriter")
            return StreamWriter()

    return Recording


@pytest.fixture
def passed(spark: Any, tmp_path: Path) -> Callable[[Callable[[], object]], dict[str, dict[str, str]]]:
    """What Spark passes to each of the format's methods while a function runs."""
    file = tmp_path / "passed"
    spark.dataSource.register(recording(file))

    def passed(does: Callable[[], object]) -> dict[str, dict[str, str]]:
        file.write_text("")
        does()
        return dict(map(json.loads, file.read_text().splitlines()))

    return passed


@pytest.fixture
def table(spark: Any) -> Iterator[str]:
    yield "shelf"
    spark.sql("DROP TABLE IF EXISTS shelf")


def test_what_spark_adds_to_options_is_known(spark: Any, tmp_path: Path, table: str, passed: Any) -> None:
    def run(frame: Any, *path: str, named: str = "", into: str = "") -> None:
        sink = frame.writeStream.option("checkpointLocation", f"{tmp_path}/{named or 'unnamed'}")
        sink = sink.trigger(availableNow=True).format("recording").option(GIVEN, "red")
        sink = sink.queryName(named) if named else sink
        query = sink.toTable(into) if into else sink.start(*path)
        query.awaitTermination()

    place = str(tmp_path)
    stream = spark.readStream.format("recording").option(GIVEN, "red").load(place)
    rows = spark.range(1).selectExpr("CAST(id AS string) AS value")
    create = f"CREATE TABLE {table} USING recording OPTIONS ({GIVEN} 'red') LOCATION '{place}' COMMENT 'x'"
    found = {
        "batch read": passed(spark.read.format("recording").option(GIVEN, "red").load(place).collect)["reader"],
        "batch write": passed(lambda: rows.write.format("recording").option(GIVEN, "red").mode("append").save(place))[
            "writer"
        ],
        "source": passed(lambda: run(stream, named="source"))["streamReader"],
        "sink": passed(lambda: run(stream, place, named="sink"))["streamWriter"],
        "new table": passed(lambda: spark.sql(create))["schema"],
        "table's source": passed(lambda: run(spark.readStream.option(GIVEN, "red").table(table), named="t"))[
            "streamReader"
        ],
        "table's sink": passed(lambda: run(stream, into=table))["streamWriter"],
        "table's reader": passed(spark.sql(f"SELECT * FROM {table} WITH ({GIVEN} = 'red')").collect)["reader"],
        "table's writer": passed(lambda: rows.writeTo(table).option(GIVEN, "red").append())["writer"],
    }
    assert all(GIVEN.lower() in options for options in found.values())
    added = {use: sorted(set(options) - {GIVEN.lower()} - OURS) for use, options in found.items()}
    assert added["sink"] == ["checkpointlocation", "queryname"]
    unknown = {use: [name for name in names if not adds(name)] for use, names in added.items()}
    assert not any(unknown.values()), unknown
    # The reason why a table takes no options: once it is there, Spark passes none of those it was created with.
    assert passed(spark.table(table).collect) == {"reader": {}}
    assert passed(lambda: run(spark.readStream.table(table), named="bare"))["streamReader"] == {}
    assert passed(lambda: rows.writeTo(table).append()) == {"writer": {}}


def test_what_spark_adds_is_never_refused() -> None:
    added = {"queryName": "till", "checkpointLocation": "/c", "owner": "root", "provider": "onceway", "option.url": "x"}
    sink = sink_options({"url": "amqp://h", "outboxLocation": "/o", **added}, "stream")
    assert sink.terms.checkpoint == "/c"
    del added["checkpointLocation"]
    assert source_options({"walLocation": "/log", **added}, "batch").location == "/log"


def test_a_table_takes_no_options_since_spark_would_lose_them() -> None:
    added = {"provider": "onceway", "owner": "root"}
    assert of_new_table({**added, "location": "/warehouse/t", "is_managed_location": "true", "a": "property"})
    assert not of_new_table({"url": "amqp://h"})
    with pytest.raises(OptionError, match=r"CREATE TABLE with options \(topic, url\): Spark does not tell .* STREAM t"):
        of_new_table({**added, "url": "x", "option.url": "x", "topic": "y", "option.topic": "y"})
    with pytest.raises(OptionError, match=r"CREATE TABLE with options \(LOCATION\)"):
        of_new_table({**added, "location": "file:/log", "path": "file:/log"})
    for refused, options in ((OptionError, source_options), (SinkOptionError, sink_options)):
        with pytest.raises(refused, match=r"^no option is given.  If this is a table: Spark does not tell"):
            options({}, "stream")


def test_a_table_gets_its_options_at_each_use(spark: Any, table: str, tmp_path: Path) -> None:
    with Log(tmp_path / "log", "orders") as log:
        log.append(3)
        with pytest.raises(Exception, match=r"^[^\n]*OptionError: CREATE TABLE with options \(wallocation\): Spark"):
            spark.sql(f"CREATE TABLE {table} USING onceway OPTIONS (walLocation '{tmp_path}/log')")
        spark.sql(f"CREATE TABLE {table} USING onceway")
        with pytest.raises(Exception, match=r"OptionError: no option is given.  If this is a table: Spark"):
            spark.table(table).collect()
        with_options = spark.sql(f"SELECT value FROM {table} WITH (walLocation = '{tmp_path}/log')")
        assert with_options.count() == 3
        assert spark.read.option("walLocation", f"{tmp_path}/log").table(table).count() == 3
