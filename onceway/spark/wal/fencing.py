"""Who may write a slot, how far earlier writers count, and what a reader may believe.

Three things keep two writers apart.  `lock` (flock) says to a second query that there is a first one.  The router
takes the link away from whoever had it when a later epoch attaches.  And `epoch`, a document, fences off what an
older process still writes, should it be alive after all (a file system whose locks do not reach other hosts):

    claim    {epoch: 20, open: 10, ends: [...], told: T}     durable, before the new writer looks at what 10 wrote
    fence    {epoch: 20, open: 20, ends: [... 10 ended at row R]}     durable, before it writes or credit is granted

Segments carry their epoch in name and head.  Rows of an epoch at and behind its end do not exist, whatever lies
there; neither does an epoch that is not mentioned.

A writer tells readers in other processes what is durable by a mark, `end-<epoch>`, written after fdatasync has
returned and before anything is accepted.  A reader reads the epoch, then that epoch's mark, then sees whether the epoch
is still the same (`durable_end`).  Why that is right:

- The mark is never ahead of the disk: it is written after fdatasync.  It is not synced itself.  After kill -9 the
  kernel has it; after a power cut it may be older, so a reader may be told less for a while, never more.
- No fence cuts off what a reader was told: the reader has seen the epoch unclaimed after it read the mark, so the
  claim came later, and the new writer looks at the old one's frames only when its claim is durable.
- While it is claimed, and afterwards, the old epoch's mark is not looked at: only its end, once that is known.  Until
  then readers are told what they were told before the claim (T), which is durable, so R is not less: who begins to
  read during a takeover finds the rows that were there before it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import zlib
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from onceway.spark.lock_line import read_line, write_line
from onceway.spark.wal.disk import Disk, explain
from onceway.spark.wal.documents import parse, write_document
from onceway.spark.wal.errors import WalDamaged, WalLocked
from onceway.spark.wal.frames import Segment

_MARK = Struct("<4sIQQQQ")  # magic, crc32 of the rest, epoch, end, first row of the segment, offset in it
_MARK_MAGIC = b"OWe\x01"
_LOOK_AGAIN_S = 0.05


@dataclass(slots=True)
class Epochs:
    """The document `epoch`."""

    epoch: int  # the latest writer
    open: int  # the epoch whose end is not fixed: `epoch` itself, or while it is only claimed the one before; 0: none
    ends: dict[int, int] = field(default_factory=dict)  # epoch -> the row behind its last one, ascending
    told: int = 0  # while it is claimed: where the log ended for readers before that

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


@dataclass(frozen=True, slots=True)
class Mark:
    """Rows before `end` are durable; the last of them lies in `segment` before `offset`."""

    epoch: int
    end: int
    segment: Segment
    offset: int


def read_epochs(directory: str) -> Epochs | None:
    return EpochReader(directory).get()


def parse_epochs(path: str, data: bytes) -> Epochs:
    content = parse(path, data)
    try:
        return Epochs(content["epoch"], content["open"], dict(content["ends"]), content.get("told", 0))
    except (KeyError, TypeError, ValueError):
        raise WalDamaged(f"{path}: not what this onceway writes; use the onceway that wrote it") from None


def write_epochs(disk: Disk, directory: str, epochs: Epochs) -> None:
    """Durable when it returns.  Raises OSError."""
    content = {"epoch": epochs.epoch, "open": epochs.open, "ends": [list(item) for item in epochs.ends.items()]}
    if epochs.claimed:
        content["told"] = epochs.told
    write_document(disk, os.path.join(directory, "epoch"), content)


def mark_path(directory: str, epoch: int) -> str:
    return os.path.join(directory, f"end-{epoch:020d}")


def mark_octets(mark: Mark) -> bytes:
    rest = _MARK.pack(_MARK_MAGIC, 0, mark.epoch, mark.end, mark.segment.first, mark.offset)[8:]
    return _MARK_MAGIC + zlib.crc32(rest).to_bytes(4, "little") + rest


def read_mark(directory: str, epoch: int) -> Mark | None:
    """None where there is none, or (after a power cut) none that can be read."""
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
    """`epoch` for those who ask often: parsed again only when it says something else."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, "epoch")
        self._data: bytes | None = None
        self._epochs: Epochs | None = None

    def get(self) -> Epochs | None:
        """The same object for as long as it has not been replaced.  Raises WalDamaged, OSError."""
        # octets, not the file's times: two replacements can fall into one tick of its clock, and inodes are used again
        data = self._read()
        if data != self._data:
            self._epochs = None if data is None else parse_epochs(self._path, data)
            self._data = data
        return self._epochs

    def durable_end(self) -> int:
        """The row behind the last one that is durable and will never be fenced off."""
        while True:
            epochs = self.get()
            if epochs is None:
                return 0
            if epochs.claimed:
                return max(epochs.last_end, epochs.told)
            mark = read_mark(self._directory, epochs.epoch)
            if self._read() == self._data:
                return epochs.last_end if mark is None else mark.end

    def _read(self) -> bytes | None:
        try:
            with open(self._path, "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            return None


class Lock:
    """flock on a file that says who has it.  Let go by `release`, and by the kernel when the process ends."""

    def __init__(self, path: str, timeout_s: float) -> None:
        """Waits for up to timeout_s.  Raises WalLocked, WalError."""
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise explain(error, path, "opening the lock") from error
        try:
            self._take(timeout_s)
        except BaseException:
            os.close(self._file)
            raise

    def _take(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # flock knows no timeout, and a signal would be the whole process's: look again now and then
                if time.monotonic() >= deadline:
                    raise WalLocked(
                        f"{self.path}: two queries on one log: {_holder(self._file)} writes it; stop that query, or "
                        f"give this one a walLocation (and subscription) of its own.  Waited {timeout_s:g} s "
                        "(lockTimeout); the ingest of a driver that was killed lets go within a few seconds"
                    ) from None
                time.sleep(_LOOK_AGAIN_S)
            except OSError as error:
                raise explain(
                    error, self.path, "locking; walLocation needs a file system with flock (mount it with locks)"
                ) from error
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        try:
            write_line(self._file, json.dumps(who))
        except OSError:
            pass  # on a full disk it is held without a name; whatever is written next says that the disk is full

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _holder(lock: int) -> str:
    try:
        who: dict[str, Any] = json.loads(read_line(lock))
        return f"process {who['pid']} on {who['host']} (since {who['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
