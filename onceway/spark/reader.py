"""What Spark calls when it reads: a stream on the driver, a batch, and `read` on executors, which only opens files.

Spark builds a stream's reader twice: in a planner, where it is pickled for the executors, and in a process that lives
as long as the query and serves every other call.  So making one is cheap, and its `Stream` begins with the first of
those calls.  Knows Spark's classes and nothing of the network; `source.stream` does the work.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from onceway.spark.columns import COLUMNS, decode
from onceway.spark.columns.fields import BINARY_HEADERS
from onceway.spark.columns.pieces import BINARY_HEADERS_TYPE
from onceway.spark.errors import OptionError, first_line
from onceway.spark.options import SourceOptions
from onceway.spark.source.stream import Range, Stream, batch_ranges, offset_of
from onceway.spark.wal.frames import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

UNLIMITED: Final = (1 << 63) - 1  # rows


class Rows(InputPartition):  # type: ignore[misc]
    """Rows of one slot in the log."""

    def __init__(self, rows: Range) -> None:
        super().__init__((rows.slot, rows.start, rows.end))
        self.rows = rows

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        return self.rows.reader.read(self.rows.start, self.rows.end, names)


class InlineRows(Rows):
    """The stored rows themselves, for executors that cannot read the log (transport=inline)."""

    def __init__(self, rows: Range) -> None:
        super().__init__(rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            for _, batch in rows.reader.stored(rows.start, rows.end):
                stream.write_batch(batch)
        self.data = sink.getvalue().to_pybytes()

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        first = self.rows.start
        slot = self.rows.reader
        with pa.ipc.open_stream(self.data) as stream:
            for stored in stream:
                yield decode(*stored.columns, topic=slot.topic, partition=slot.number, first=first, columns=names)
                first += stored.num_rows


class _Reading:
    """Both kinds of reader: their columns in Spark's exact schema."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.options = options
        self.schema = to_arrow_schema(schema, timezone="UTC")
        _check_columns(self.schema)
        self.names = [BINARY_HEADERS if _bytes(field) else field.name for field in self.schema]

    def partition(self, rows: Range) -> Rows:
        return Rows(rows) if self.options.transport == "file" else InlineRows(rows)

    def read(self, partition: Any) -> Iterator[Any]:
        """On an executor.  In exactly Spark's schema, since it checks the first batch only."""
        if not isinstance(partition, Rows):
            return  # Spark's placeholder where a batch read has no partitions
        with first_line():
            for batch in partition.batches(self.names):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """`spark.readStream.format("onceway")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._stream: Stream | None = None  # only in the process that serves the query
        self._available_now = False

    @property
    def stream(self) -> Stream:
        if self._stream is None:
            self._stream = Stream(self.options)
            signal.signal(signal.SIGTERM, self._terminated)
            self._stream.begin()
            if self._available_now:
                self._stream.freeze()
        return self._stream

    def _terminated(self, number: int, frame: object) -> None:
        """query.stop() sends SIGTERM; it may come again."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.stop()
        os._exit(0)  # Spark's loop would log an error that nobody reads

    @first_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self.stream.initial().as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows one limit at a time and passes it back.  `latestOffset` only asks whether it is ReadAllAvailable.

        That is what Spark asks with for the only batch of Trigger.Once, whatever this is: so it is never that.
        """
        options = self.options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_rows is not None:
            return ReadMinRows(options.min_rows)
        return ReadMaxRows(UNLIMITED)

    @first_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if isinstance(limit, ReadAllAvailable):
            self.stream.freeze()
        return self.stream.latest(offset_of(start), limited=not isinstance(limit, ReadAllAvailable)).as_dict()

    @first_line()
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self.stream.report()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Only noted: until all sources of a query have been prepared, Spark ends none of their processes when one
        fails, and what this one had begun would hold the log as long as the driver lives."""
        self._available_now = True

    @first_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [self.partition(rows) for rows in self.stream.ranges(offset_of(start), offset_of(end))]

    @first_line()
    def commit(self, end: dict[str, Any]) -> None:
        self.stream.commit(offset_of(end))

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.stop()


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """In place of a reader whose options or schema are wrong.  It says so when it is asked for anything: where making
    a reader raises an error, PySpark of Spark 4.3 stumbles over it and reports an UnboundLocalError."""

    def __init__(self, error: OptionError) -> None:
        self.error = error

    @first_line()
    def _refuse(self, *_: object) -> NoReturn:
        raise self.error

    initialOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse  # noqa: N815
    partitions = commit = read = _refuse

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:  # noqa: N802
        self._refuse()


class BatchReader(_Reading, DataSourceReader):  # type: ignore[misc]
    """`spark.read.format("onceway")`: the rows of a log, for replays and inspection.  Needs no network."""

    @first_line()
    def partitions(self) -> Sequence[InputPartition]:
        return [self.partition(rows) for rows in batch_ranges(self.options)]


def _check_columns(schema: Any) -> None:
    """A schema that the user gives may leave columns out; their types are fixed."""
    types = dict(COLUMNS)
    problems = []
    for field in schema:
        if field.name not in types:
            problems.append(f"schema: no column {field.name!r}; there are {', '.join(types)}")
        elif not field.type.equals(types[field.name]) and not _bytes(field):
            problems.append(
                f"schema: column {field.name!r} is {types[field.name]}, not {field.type}; read it so and cast it"
            )
    if problems:
        raise OptionError("\n".join(problems))


def _bytes(field: Any) -> bool:
    """Headers as an array of keys and bytes."""
    return bool(field.name == "headers" and field.type.equals(BINARY_HEADERS_TYPE))
