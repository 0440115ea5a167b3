"""A log under test: lives of its ingest one after the other, and what a reader finds."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

from onceway.client.bodies import encode_body
from onceway.spark.errors import WalError
from onceway.spark.source.journal import WalJournal
from onceway.spark.wal import SlotReader, SlotWriter, Wal, WalSettings
from tests.spark.disks import Quick, Recorded

GROUPS = WalSettings(group_rows=1000, group_ms=0.0, lock_timeout_s=0.2)
SUBSCRIPTION = "client"  # the container-id of the tests' rig
TOPIC = "orders"
WITHIN_S = 60.0


def log(root: Path) -> Wal:
    return Wal.open_or_create(str(root / "wal"), SUBSCRIPTION, [TOPIC], disk=Quick())


def message(row: int) -> bytes:
    return encode_body(b"row %d" % row)


def tag(row: int) -> bytes:
    return b"t%d" % row


class Life:
    """One process of the ingest: locked, attached with this epoch, ready for rows."""

    def __init__(self, wal: Wal, epoch: int = 10, settings: WalSettings = GROUPS, disk: Quick | None = None) -> None:
        self._moved = threading.Condition()
        self.disk = disk or Quick()
        self.wal = wal
        self.journal = WalJournal(wal, [0], settings, self._changed, self.disk)
        self.journal.open(None, self._wake)
        self.writer = self.journal.writer(0)
        try:
            self.part = self.journal.subscriber(TOPIC, SUBSCRIPTION)
            self.part.attach(epoch, self.part.record.born or epoch)
            self.sync()
            self.meanwhile = self.part.attached(epoch)
            self.sync()
        except BaseException:
            self.die()
            raise

    def _changed(self, writer: SlotWriter) -> None:
        if isinstance(self.disk, Recorded) and writer.failure is None:
            self.disk.durable(writer.durable)
        self._wake()

    def _wake(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def sync(self) -> None:
        number = self.journal.sync()
        with self._moved:
            assert self._moved.wait_for(
                lambda: self.journal.durable >= number or self.journal.failure, timeout=WITHIN_S
            )
        if self.journal.failure is not None:
            raise self.journal.failure

    def append(self, tags: Sequence[bytes], payloads: Sequence[bytes] | None = None) -> int:
        first = self.writer.end
        return self.writer.append(payloads or [message(first + n) for n in range(len(tags))], tags)

    def group(self, rows: int) -> int:
        """Rows numbered on, durable when it returns."""
        first = self.writer.end
        end = self.append([tag(first + n) for n in range(rows)])
        self.until(end)
        return end

    def until(self, end: int) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: self.writer.durable >= end or self.writer.failure, timeout=WITHIN_S)
        if self.writer.failure is not None:
            raise self.writer.failure

    def close(self) -> None:
        self.journal.close()

    def die(self) -> None:
        """As if killed: nothing more reaches the disk, its lock is free."""
        self.disk.alive = False
        with contextlib.suppress(WalError):
            self.journal.close()


def rows_of(reader: SlotReader, start: int | None = None, end: int | None = None) -> list[bytes]:
    """The values of these rows; all that are durable."""
    start = reader.start() if start is None else start
    end = reader.end() if end is None else end
    return [value for batch in reader.read(start, end, ["value"]) for value in batch.column(0).to_pylist()]


def numbered(start: int, end: int) -> list[bytes]:
    return [b"row %d" % row for row in range(start, end)]
