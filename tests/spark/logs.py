"""A write-ahead log that the test writes itself, as an ingest would, and reads as an executor would."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onceway.client.bodies import encode_body
from onceway.client.journal import SubscriberJournal
from onceway.spark.source.journal import GAPS, GapFile, WalJournal
from onceway.spark.source.stream import Range
from onceway.spark.wal import SlotWriter, Wal, WalSettings
from onceway.spark.wal.documents import FileDocument

WITHIN_S = 60.0


class Log:
    """Open for writing until `close`.  Rows are numbered texts: `topic 0`, `topic 1` ..."""

    def __init__(self, location: Path, *topics: str, group_rows: int = 100, segment_bytes: int = 1 << 20) -> None:
        self.wal = Wal.open_or_create(str(location), "billing", topics or ("orders",))
        self._moved = threading.Condition()
        settings = WalSettings(group_rows=group_rows, group_ms=0.0, segment_bytes=segment_bytes, lock_timeout_s=0.0)
        self._journal = WalJournal(self.wal, None, settings, self._durable)
        self._journal.open(self.wal.subscription, lambda: None)
        self._parts: dict[str, SubscriberJournal] = {}
        for topic in self.wal.slots.values():
            part = self._journal.subscriber(topic, "billing")
            epoch = part.record.epoch + 1
            part.attach(epoch, part.record.born or epoch)
            part.attached(epoch)
            self._parts[topic] = part

    def _durable(self, writer: SlotWriter) -> None:
        with self._moved:
            self._moved.notify_all()

    def writer(self, topic: str = "orders") -> SlotWriter:
        return self._journal.writer(self.wal.slots_of(topic)[0])

    def append(self, count: int, topic: str = "orders", *, size: int = 0) -> int:
        """So many more rows, of at least `size` bytes, settled when they are durable; returns then, with the end."""
        writer = self.writer(topic)
        first = writer.end
        bodies = [f"{topic} {number}".ljust(size).encode() for number in range(first, first + count)]
        tags = [b"%s %d" % (topic.encode(), number) for number in range(first, first + count)]
        end = writer.append([encode_body(body) for body in bodies], tags)
        writer.flush()
        with self._moved:
            assert self._moved.wait_for(lambda: writer.durable >= end or writer.failure, WITHIN_S)
        assert writer.failure is None, writer.failure
        self._parts[topic].settle(tags)
        return end

    def close(self) -> None:
        self._journal.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def gap_file(location: Path, slot: int = 0) -> GapFile:
    return GapFile(FileDocument(str(location / str(slot) / "gaps.json"), GAPS))


def rows(ranges: Iterable[Range], *names: str) -> list[Any]:
    """The values of these columns (of `value` alone unless named), row by row."""
    wanted: Sequence[str] = names or ("value",)
    found: list[Any] = []
    for one in ranges:
        for batch in one.reader.read(one.start, one.end, wanted):
            columns = [column.to_pylist() for column in batch.columns]
            found += columns[0] if len(wanted) == 1 else list(zip(*columns, strict=True))
    return found
