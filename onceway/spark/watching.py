"""The ingest's journal: the log's own, and an eye on whether the subscription goes on or was created anew.

A subscription that was away for too long is created again, with another `born`; messages between the two may be
missing.  The journal is told so before credit is granted, which is the moment to write the gap down (`gaps`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from onceway.client.journal import SubscriberJournal, SubscriberRecord
from onceway.client.reports import SubscriptionGap
from onceway.spark.gaps import Gap, GapFile
from onceway.spark.journal import WalJournal
from onceway.spark.wal import SlotWriter, Wal, WalSettings
from onceway.spark.wal.disk import explain

_CREATED_AGAIN = "the subscription was away for longer than the network waits and was created again"


class WatchingJournal(WalJournal):
    """A WalJournal whose slots have a gap file."""

    def __init__(
        self, wal: Wal, topics: Sequence[str], settings: WalSettings, on_durable: Callable[[SlotWriter], None]
    ) -> None:
        super().__init__(wal, topics, settings, on_durable)
        self.watches: dict[str, Watch] = {}  # by topic
        self._watched = wal

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        file = GapFile(self._watched.location, self._watched.slot_of(address))
        watch = Watch(super().subscriber(address, name), self.writer(address), file)
        self.watches[address] = watch
        return watch


class Watch:
    """A slot's SubscriberJournal that compares each attachment's `born` with the one before."""

    def __init__(self, part: SubscriberJournal, writer: SlotWriter, file: GapFile) -> None:
        self._part = part
        self._writer = writer
        self._file = file
        self._born = part.record.born
        self._written: Gap | None = None  # by this attachment

    @property
    def record(self) -> SubscriberRecord:
        return self._part.record

    def attach(self, epoch: int, born: int) -> None:
        self._born = born
        self._part.attach(epoch, born)

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        meanwhile = self._part.attached(epoch)
        known = self._file.read()
        self._written = None
        if known.born and known.born != self._born:
            self._written = Gap(self._writer.end, _CREATED_AGAIN)
            self._write([*known.known, self._written])
        elif known.born != self._born:
            self._write(known.known)
        return meanwhile

    def told(self, report: SubscriptionGap) -> None:
        """The client knows more: why, and how many rows may come again; or of a gap that `born` does not show."""
        known = [gap for gap in self._file.read().known if gap != self._written]
        if self._written is not None:
            at = self._written.at
        else:
            at = self._writer.end
        self._written = Gap(at, report.reason, report.dropped)
        self._write([*known, self._written])

    def trimmed(self, start: int) -> None:
        """The log begins with row `start`: gaps between rows that are gone are nobody's concern any more."""
        gaps = self._file.read()
        kept = [gap for gap in gaps.known if gap.at >= start]
        if len(kept) < len(gaps.known):
            # One that stays does no harm, and goes after a later trimming.  The file's `born`, not ours: a link that
            # is being attached may have learnt of a gap that `attached` has yet to find by it
            with contextlib.suppress(OSError):
                self._file.write(gaps.born, kept)

    def _write(self, gaps: Sequence[Gap]) -> None:
        try:
            self._file.write(self._born, gaps)
        except OSError as error:
            # the journal's failure from here on: no credit is granted and no row is appended
            self._writer.fail(explain(error, self._file.path, "noting a gap"))

    def contact(self, wall_us: int, timeout_s: float) -> None:
        self._part.contact(wall_us, timeout_s)

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        self._part.accept(tags, outcome)

    def settle(self, tags: Sequence[bytes]) -> None:
        self._part.settle(tags)

    def close(self) -> None:
        self._part.close()
