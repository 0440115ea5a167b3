"""Fencing: who may write a slot, how far earlier writers count, and what a reader may believe.

Three things keep two writers apart.  `lock` (flock) tells a second query that there is a first one.  The router
detaches the earlier link when a later epoch attaches.  And `epoch`, a document, fences off what an older process still
writes, should it be alive after all (on a file system whose locks do not reach other hosts):

    claim    {epoch: 20, open: 10, ends: [...], told: T}     durable, before the new writer looks at what 10 wrote
    fence    {epoch: 20, open: 20, ends: [... 10 ended at row R]}     durable, before it writes or grants credit

Segments carry their epoch in name and head.  Rows at or after their epoch's end do not exist, whatever the files
hold; neither does an epoch that the document does not mention.

A writer tells readers in other processes what is durable by a mark, `end-<epoch>`, written after fdatasync has
returned and before anything is accepted.  A reader reads the epoch, then that epoch's mark, then checks that the epoch
has not changed (`durable_end`).  This is correct because:

- The mark is never ahead of the disk: it is written after fdatasync.  It is not synced itself.  After kill -9 the
  kernel has it; after a power cut it may be older, so a reader may see fewer rows for a while, never more.
- No fence removes rows that a reader has seen: the reader saw the epoch unclaimed after it read the mark, so the claim
  came later, and the new writer looks at the old one's frames only when its claim is durable.
- During a claim, and afterwards, the old epoch's mark is ignored: only its end counts, once that is fixed.  Until then
  readers see the end that they saw before the claim (T).  Those rows are durable, so R is at least T: a reader that
  begins during a takeover finds the rows that were there before it.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from onceway.spark.errors import DAMAGE_REMEDY, TWO_READERS, WalDamaged, WalLocked, explain
from onceway.spark.files import Disk, Documents, Lock, LockHeld, sync_path
from onceway.spark.wal.frames import Segment

DOCUMENTS: Final = Documents(WalDamaged, DAMAGE_REMEDY, checksum=True)
_MARK: Final = Struct("<4sIQQQQ")  # magic, crc32 of the rest, epoch, end, first row of the segment, offset in it
_MARK_MAGIC: Final = b"OWe\x01"


@dataclass(slots=True)
class Epochs:
    """The document `epoch`."""

    epoch: int  # the latest writer
    open: int  # the epoch whose end is not fixed: `epoch`, or during a claim the one before; 0: none
    ends: dict[int, int] = field(default_factory=dict)  # epoch -> the row after its last one, ascending
    readers_end: int = 0  # during a claim: where the log ended for readers before it

    @property
    def claimed(self) -> bool:
        return self.open != self.epoch

    @property
    def last_end(self) -> int:
        """The row where the open epoch begins."""
        return next(reversed(self.ends.values())) if self.ends else 0

    def counts(self, segment: Segment) -> bool:
        """Whether this segment may hold rows of the log."""
        end = self.ends.get(segment.epoch)
        if end is not None:
            return segment.first < end
        return segment.epoch == self.open and segment.first >= self.last_end


def read_epochs(directory: str) -> Epochs | None:
    return EpochReader(directory).get()


def write_epochs(disk: Disk, directory: str, epochs: Epochs) -> None:
    """Durable when it returns.  Raises OSError."""
    content = {"epoch": epochs.epoch, "open": epochs.open, "ends": [list(item) for item in epochs.ends.items()]}
    if epochs.claimed:
        content["told"] = epochs.readers_end
    DOCUMENTS.write(os.path.join(directory, "epoch"), content, disk)


@dataclass(frozen=True, slots=True)
class Mark:
    """Rows before `end` are durable; the last of them lies in `segment` before `offset`."""

    epoch: int
    end: int
    segment: Segment
    offset: int

    def encode(self) -> bytes:
        rest = _MARK.pack(_MARK_MAGIC, 0, self.epoch, self.end, self.segment.first, self.offset)[8:]
        return _MARK_MAGIC + zlib.crc32(rest).to_bytes(4, "little") + rest


def mark_path(directory: str, epoch: int) -> str:
    return os.path.join(directory, f"end-{epoch:020d}")


def sync_marks(directory: str) -> None:
    """Raises OSError."""
    for name in os.listdir(directory):
        if name.startswith("end-"):
            sync_path(os.path.join(directory, name))
    sync_path(directory)


def read_mark(directory: str, epoch: int) -> Mark | None:
    """None where there is no mark, or (after a power cut) an unreadable one."""
    try:
        with open(mark_path(directory, epoch), "rb") as file:
            data = file.read(_MARK.size)
    except FileNotFoundError:
        return None
    if len(data) < _MARK.size:
        return None
    magic, crc, written, end, first, offset = _MARK.unpack(data)
    if magic != _MARK_MAGIC or zlib.crc32(data[8:]) != crc or written != epoch:
        return None
    return Mark(epoch, end, Segment(first, epoch), offset)


class EpochReader:
    """The document `epoch` for frequent readers: parsed again only when it has changed."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, "epoch")
        self._data: bytes | None = None
        self._epochs: Epochs | None = None

    def get(self) -> Epochs | None:
        """The same object for as long as the document is unchanged.  Raises WalDamaged, OSError."""
        # compares bytes, not file times: two replacements can fall into one clock tick, and inodes are reused
        data = self._read()
        if data != self._data:
            self._epochs = None if data is None else self._parse(data)
            self._data = data
        return self._epochs

    def _parse(self, data: bytes) -> Epochs:
        content = DOCUMENTS.parse(self._path, data)
        try:
            return Epochs(content["epoch"], content["open"], dict(content["ends"]), content.get("told", 0))
        except (KeyError, TypeError, ValueError):
            raise WalDamaged(f"{self._path}: not what this onceway writes; use the onceway that wrote it") from None

    def durable_end(self) -> int:
        """The row after the last one that is durable and will never be fenced off."""
        while True:
            epochs = self.get()
            if epochs is None:
                return 0
            if epochs.claimed:
                return max(epochs.last_end, epochs.readers_end)
            mark = read_mark(self._directory, epochs.epoch)
            if self._read() == self._data:
                return epochs.last_end if mark is None else mark.end

    def _read(self) -> bytes | None:
        try:
            with open(self._path, "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            return None


def take_lock(path: str, timeout_s: float) -> Lock:
    """Raises WalLocked after timeout_s, WalError."""
    try:
        return Lock(path, timeout_s)
    except LockHeld as held:
        raise WalLocked(
            f"{path}: two readers of one log: {held.holder} writes it.  Stop the other query; {TWO_READERS}.  Waited "
            f"{timeout_s:g} s (lockTimeout); the ingest of a driver that was killed releases it within a few seconds"
        ) from None
    except OSError as error:
        doing = "locking; walLocation needs a file system with flock (mount it with locks)"
        raise explain(error, path, doing) from error
