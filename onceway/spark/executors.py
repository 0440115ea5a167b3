"""Publishing from executors, where one driver is the sink's limit.

    query = frame.writeStream.foreachBatch(publisher({"url": ..., "topic": ..., "outboxLocation": ...}, 8)).start()

Spark calls the sink's `commit` where there is no session, so that it cannot start tasks; foreachBatch has one.  Two
jobs are run for each batch: one stages its rows, as the sink's tasks do (`writer`), and when the driver has decided the
batch (its manifest), the other one publishes, each of its tasks as a recovering publisher with a journal of its own
(`sink.publishing`).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter

from onceway.spark.errors import SinkError, first_line, outbox_errors
from onceway.spark.options import SinkOptions
from onceway.spark.sink.outbox import Manifest, Outbox
from onceway.spark.sink.staging import StagedFile
from onceway.spark.writer import QUERY_ID, Staged, checked, files_of, stage_partition
from router.json_text import write_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_FORMAT: Final = "onceway-staging"
_LIST: Final = "staging_list"  # options of that format, beside the sink's
_BATCH: Final = "staging_batch"


def publisher(options: Mapping[str, str], publishers: int) -> Callable[[DataFrame, int], None]:
    """For `writeStream.foreachBatch`: the sink's options, and how many tasks publish at once.

    Rows keep their order within a partition of the DataFrame.  The function raises the sink's errors.
    """
    if publishers < 1:
        raise SinkError(f"{publishers} publishers; there must be at least one")

    def publish(frame: DataFrame, batch: int) -> None:
        found = checked(options, frame.schema, False, "stream")
        context = getattr(frame.sparkSession, "sparkContext", None)
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        if context is None or query is None:
            raise SinkError("publisher() is for foreachBatch of a query of this process, not for Spark Connect")
        name = f"batch-{batch}"

        def spread(manifest: Manifest) -> None:
            numbers = range(1, len(manifest.shares) + 1)
            context.parallelize(numbers, len(numbers)).foreachPartition(_Publish(found, manifest.name))

        from onceway.spark.sink.publishing import commit_batch

        outbox = Outbox(found.location)
        files = _stage(frame, options, outbox, name)
        commit_batch(outbox, f"query {query}", name, files, found.terms, publishers, spread)

    return publish


@dataclass(frozen=True)
class _Publish:
    """A task of the second job."""

    options: SinkOptions
    name: str

    def __call__(self, numbers: Iterable[int]) -> None:
        from onceway.spark.sink.publishing import publish_share

        for number in numbers:
            with first_line():
                publish_share(Outbox(self.options.location), self.name, number, self.options.terms, os.getppid())


# -- the first job: a batch write that only stages, and says in a file which files the tasks that count have staged


def _stage(frame: DataFrame, options: Mapping[str, str], outbox: Outbox, name: str) -> list[StagedFile]:
    with outbox_errors(outbox.location):
        outbox.directory(name).mkdir(parents=True, exist_ok=True)
    found = outbox.directory(name) / f"{secrets.token_hex(8)}.list"
    frame.sparkSession.dataSource.register(_Staging)
    writer = frame.write.format(_FORMAT).mode("append").options(**options)
    writer.options(**{_LIST: str(found), _BATCH: name}).save()
    with outbox_errors(outbox.location):
        files = [StagedFile(**one, runs=tuple(map(tuple, runs))) for *_, one, runs in json.loads(found.read_text())]
        found.unlink()
    return files


class _Staging(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    @first_line()
    def writer(self, schema: StructType, overwrite: bool) -> Any:
        given = dict(self.options)
        path, name = given.pop(_LIST), given.pop(_BATCH)
        return _StagingWriter(checked(given, schema, overwrite, "stream"), name, path)


class _StagingWriter(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, options: SinkOptions, name: str, path: str) -> None:
        self.options = options
        self.name = name
        self.path = path

    @first_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """On an executor."""
        return stage_partition(self.options, self.name, None, iterator)

    @first_line()
    def commit(self, messages: list[Staged | None]) -> None:
        """On the driver, in a process of Spark's."""
        files = [asdict(file) for file in files_of(messages)]
        with outbox_errors(self.options.location):
            Path(self.path).write_text(write_json([[one, one.pop("runs")] for one in files]))

    @first_line()
    def abort(self, messages: list[Staged | None]) -> None:
        Outbox(self.options.location).discard(self.name, files_of(messages))
