"""`df.writeStream.format("onceway")` and `df.write.format("onceway")`: what Spark calls when it writes.

`write` runs on executors and stages a file.  `commit` runs on the driver, perhaps in another process for each batch: it
decides the batch (its manifest) and publishes it (`sink.publishing`).  Spark repeats a batch that it does not know to
be committed, under the same number; then the manifest exists, and only rows without an outcome are published.  A batch
write has a number that nobody repeats, or the identity that `writeId` gives it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from onceway.spark.columns.encoding import check_columns
from onceway.spark.errors import SinkError, SinkOptionError, first_line
from onceway.spark.options import SinkOptions, sink_options
from onceway.spark.sink.outbox import IDENTIFIED, WRITES, Outbox
from onceway.spark.sink.staging import StagedFile, stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Use = Literal["stream", "batch"]
# Local properties of a streaming task
_BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"


def checked(options: Mapping[str, str], schema: StructType, overwrite: bool, use: Use) -> SinkOptions:
    """Raises SinkOptionError, before Spark runs anything."""
    if overwrite and use == "stream":
        raise SinkOptionError('output mode complete: a topic cannot be replaced; use outputMode("append") or "update"')
    if overwrite:
        raise SinkOptionError('mode overwrite: a topic cannot be replaced; use mode("append")')
    found = sink_options(options, use)
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    check_columns(columns, topic_given=found.topic is not None)
    return found


@dataclass(frozen=True)
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """A task's message to the driver; no file where it had no rows, or where its batch is decided already."""

    query: str | None
    partition: int
    file: StagedFile | None


def stage_partition(options: SinkOptions, name: str, query: str | None, iterator: Iterator[pa.RecordBatch]) -> Staged:
    context = TaskContext.get()
    if context is None:
        raise SinkError("the sink's write() runs in a task of Spark only")
    outbox = Outbox(options.location)
    if outbox.decided(name):
        for _ in iterator:  # read to its end all the same: the computation of these rows may keep state
            pass
        return Staged(query, context.partitionId(), None)
    file = stage(outbox.directory(name), context.partitionId(), context.taskAttemptId(), iterator, options.topic)
    return Staged(query, context.partitionId(), file)


def files_of(messages: Sequence[Staged | None]) -> list[StagedFile]:
    """The files in the order of partitions, which is the order of publishing."""
    found = [(message.partition, message.file) for message in messages if message is not None and message.file]
    return [file for _, file in sorted(found, key=lambda pair: pair[0])]


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """One for each batch, in each process that takes part."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    @first_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """On an executor."""
        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty(_BATCH_ID)
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        if batch is None or query is None:
            raise SinkError(f"Spark has not said which batch this is ({_BATCH_ID}, {QUERY_ID}); PySpark 4.3 does")
        return stage_partition(self.options, f"batch-{batch}", query, iterator)

    @first_line()
    def commit(self, messages: list[Staged | None], batchId: int) -> None:  # noqa: N803
        """On the driver.  Returns when every row has its outcome; the module describes repeats."""
        query = next((message.query for message in messages if message is not None), None)
        if query is None:
            return  # no task: no rows, and no query id
        from onceway.spark.sink.publishing import commit_batch  # the client: executors do without it

        outbox = Outbox(self.options.location)
        commit_batch(outbox, f"query {query}", f"batch-{batchId}", files_of(messages), self.options.terms)

    @first_line()
    def abort(self, messages: list[Staged | None], batchId: int) -> None:  # noqa: N803
        """On the driver, also after a commit that failed."""
        Outbox(self.options.location).discard(f"batch-{batchId}", files_of(messages))


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One for a write; pickled for the executors."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.name = f"{IDENTIFIED}{options.write_id}" if options.write_id else f"job-{secrets.token_hex(8)}"

    @first_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """On an executor."""
        return stage_partition(self.options, self.name, None, iterator)

    @first_line()
    def commit(self, messages: list[Staged | None]) -> None:
        """On the driver.  Returns when every row has its outcome."""
        from onceway.spark.sink.publishing import commit_batch  # as above

        commit_batch(Outbox(self.options.location), WRITES, self.name, files_of(messages), self.options.terms)

    @first_line()
    def abort(self, messages: list[Staged | None]) -> None:
        """On the driver, also after a commit that failed."""
        Outbox(self.options.location).discard(self.name, files_of(messages))
