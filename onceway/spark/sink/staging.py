"""Staged files: encoded messages of one partition, written by an executor, read by the driver when it publishes.

An Arrow IPC file with one binary column.  Each of its record batches holds messages of one topic, in the order of the
rows; the commit message, and later the manifest, name the topic and the count.  A file is fsynced before its name is
passed on.  Names are never reused, because a stage that is repeated after a restart has the same partition and attempt
numbers.  A file that no manifest names is garbage.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from onceway.spark.columns import encoding
from onceway.spark.errors import OutboxError, outbox_errors
from onceway.spark.files import sync_path

_SCHEMA: Final = pa.schema([pa.field("payload", pa.large_binary(), nullable=False)])
_ROWS: Final = 8192  # of a record batch in a staged file, about
_BYTES: Final = 8 << 20
_ALL_BYTES: Final = 64 << 20  # gathered for all topics before everything is written


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file as the commit message describes it."""

    name: str  # in the batch's directory
    size: int  # bytes
    runs: tuple[tuple[str, int], ...]  # (topic, rows) of each record batch

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.runs)

    @property
    def partition(self) -> int:
        return int(self.name.partition("-")[0])


def stage(
    directory: Path, partition: int, attempt: int, batches: Iterable[pa.RecordBatch], topic: str | None
) -> StagedFile | None:
    """Encodes and stores rows; None where there are none.  topic: of all rows, or None: the column has it.

    Raises OutboxError where the file cannot be written, SinkOptionError where a cell cannot be sent.
    """
    writer = _Writer(directory, f"{partition}-{attempt}-{secrets.token_hex(4)}.arrow")
    try:
        for batch in batches:
            if batch.num_rows:
                with outbox_errors(directory):
                    writer.add(batch, topic)
        with outbox_errors(directory):
            return writer.finish()
    finally:
        writer.abandon()


@dataclass(slots=True)
class _Gathered:
    arrays: list[pa.Array] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class _Writer:
    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._path = directory / name
        self._name = name
        self._file: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._gathered: dict[str, _Gathered] = {}
        self._size = 0
        self._runs: list[tuple[str, int]] = []
        self._finished = False

    def add(self, batch: pa.RecordBatch, topic: str | None) -> None:
        payloads = encoding.payloads(batch)
        if topic is not None:
            self._gather(topic, payloads)
            return
        names = encoding.topics(batch)
        places: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            places.setdefault(name, []).append(row)
        for name, rows in places.items():
            self._gather(name, payloads if len(places) == 1 else payloads.take(pa.array(rows, pa.int64())))

    def _gather(self, topic: str, payloads: pa.Array) -> None:
        gathered = self._gathered.setdefault(topic, _Gathered())
        size = pc.sum(pc.binary_length(payloads)).as_py() or 0
        gathered.arrays.append(payloads)
        gathered.rows += len(payloads)
        gathered.size += size
        self._size += size
        if gathered.rows >= _ROWS or gathered.size >= _BYTES:
            self._write(topic, gathered)
        elif self._size >= _ALL_BYTES:
            for name, each in self._gathered.items():
                self._write(name, each)

    def _write(self, topic: str, gathered: _Gathered) -> None:
        if not gathered.rows:
            return
        if self._writer is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._file = pa.OSFile(os.fspath(self._path), "wb")
            self._writer = pa.ipc.new_file(self._file, _SCHEMA)
        self._writer.write_batch(pa.record_batch([pa.concat_arrays(gathered.arrays)], schema=_SCHEMA))
        self._runs.append((topic, gathered.rows))
        self._size -= gathered.size
        self._gathered[topic] = _Gathered()

    def finish(self) -> StagedFile | None:
        for topic, gathered in self._gathered.items():
            self._write(topic, gathered)
        if self._writer is None or self._file is None:
            return None
        self._writer.close()
        self._file.close()
        sync_path(self._path)
        sync_path(self._directory)
        sync_path(self._directory.parent)
        self._finished = True
        return StagedFile(self._name, self._path.stat().st_size, tuple(self._runs))

    def abandon(self) -> None:
        """After a failure: closes and removes the file."""
        if self._finished or self._file is None:
            return
        self._file.close()
        self._path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Run:
    """Messages first, first + 1 ... of a topic, in one record batch of a staged file."""

    first: int
    rows: int
    path: Path
    index: int  # of the record batch

    def payloads(self) -> list[bytes]:
        """Raises OutboxError where the file is not what the manifest says."""
        try:
            with pa.memory_map(os.fspath(self.path)) as source:
                batch = pa.ipc.open_file(source).get_batch(self.index)
                found: list[bytes] = batch.column(0).to_pylist()
        except (OSError, pa.ArrowInvalid) as error:
            raise OutboxError(
                f"{self.path}: a staged file of an unfinished batch cannot be read ({error}); restore it: "
                "the batch cannot be published without it"
            ) from error
        if len(found) != self.rows:
            raise OutboxError(
                f"{self.path}: {len(found)} messages in record batch {self.index}, the manifest says {self.rows}; "
                "restore the file: the batch cannot be published without it"
            )
        return found


def payloads_of(runs: Sequence[Run], first: int, end: int) -> Iterator[bytes]:
    """Messages first .. end - 1 of ascending runs, with one record batch in memory at a time."""
    for run in runs:
        if run.first + run.rows <= first:
            continue
        if run.first >= end:
            return
        yield from run.payloads()[max(first - run.first, 0) : end - run.first]
