"""A slot's files on the writing side: what an earlier process left, frames appended, segments trimmed.

Recovery finds where the open epoch's rows end.  Only the last segment can be torn, and in it only the last frame
(`frames`), so anything wrong before a good frame, or before the durable mark, is damage: an error, never a silent cut.

Trimming removes whole segments that Spark has committed.  `trim.json` says at which row the log begins, and is durable
before the first file is removed.  A crash in between leaves files that nobody counts; the next trimming or recovery
removes them.  Two things besides Spark hold a segment back: a tag in it that the network has not settled (its delivery
may come again and must be recognised), and the retention, for a checkpoint that is rolled back.

Nothing here knows threads or rows other than their numbers; the caller is `writing`, which knows `Storage` only:
`DirectoryStorage` here, `bucket.BucketStorage` for object stores.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from onceway.spark.errors import DAMAGE_REMEDY, WalDamaged, explain
from onceway.spark.files import BytesLike, Disk, Documents, Lock, remove_unfinished
from onceway.spark.wal.documents import Document, FileDocument
from onceway.spark.wal.fencing import (
    DOCUMENTS,
    EpochReader,
    Epochs,
    Mark,
    mark_path,
    read_epochs,
    read_mark,
    take_lock,
    write_epochs,
)
from onceway.spark.wal.frames import (
    ALIGNMENT,
    FRAME_HEAD,
    FRAME_MAGIC,
    SEGMENT_HEAD,
    Frame,
    Segment,
    body_is_good,
    check_segment_head,
    encode_frame,
    read_frame_head,
    segment_head,
    segments,
)
from onceway.spark.wal.leases import LASTS_S, Lease


@dataclass(frozen=True, slots=True)
class Retention:
    """`walRetention`: what is kept after Spark has committed it, for checkpoints that are rolled back.

    A segment is kept while either asks for it.
    """

    seconds: float = 0.0  # since the segment's last row was written
    size: int = 0  # bytes of committed segments, the newest ones


class Storage(Protocol):
    """Where one slot's writer keeps its frames.  Used by one thread at a time; methods raise OSError and WalError."""

    place: str  # for people
    start: int  # the first row that is there
    apart_s: float  # groups are at least so far apart
    was_fenced: bool  # a writer has taken over before, when it was claimed
    on_lost: Callable[[], None]  # called, from another thread, when a lease was lost

    def claim(self, timeout_s: float) -> Tail:
        """Keeps other writers away as well as the place allows, for messages' sake, and finds the end."""
        ...

    def take_over(self, epoch: int, segment_bytes: int) -> Tail:
        """From now on rows of earlier writers do not count.  The end may be behind that of `claim`."""
        ...

    def is_ours(self) -> bool:
        """Whether no later writer has taken over.  Correctness does not depend on it."""
        ...

    def encode(self, batch: Any, payload_bytes: int, received_us: int) -> Sequence[BytesLike]: ...

    def append(self, frame: Sequence[BytesLike], rows: int) -> None:
        """Durable when it returns."""
        ...

    def trim(self, up_to: int, retention: Retention) -> None:
        """Removes rows before up_to that retention does not keep, and moves `start`."""
        ...

    def document(self, name: str, documents: Documents) -> Document: ...

    def close(self) -> None: ...


# -- recovery


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the log as an earlier process left it."""

    end: int  # the row after the last good one
    segment: Segment | None = None  # where that ends; None: in none of the open epoch's
    offset: int = 0  # in it, after the last good frame
    torn: int = 0  # bytes after it, of a group that nobody has accepted

    def report(self, directory: str) -> str:
        """One line for people."""
        text = f"{directory}: recovered, {self.end} rows"
        if self.torn and self.segment is not None:
            text += f"; cut {self.torn} bytes of an unfinished group at {self.segment.name}:{self.offset}"
        return text


def find_tail(directory: str, epochs: Epochs | None, start: int, uuid: bytes) -> Tail:
    """Reads the open epoch's last segment.  start: the first row in `trim.json`.  Raises WalDamaged, OSError."""
    if epochs is None:
        return Tail(0)
    begin = max(start, epochs.last_end)
    own = [segment for segment in segments(directory) if segment.epoch == epochs.open and epochs.counts(segment)]
    mark = read_mark(directory, epochs.open)
    tail = Tail(begin)
    if own:
        if own[0].first > begin:
            raise WalDamaged(
                f"{directory}: rows {begin} to {own[0].first - 1} are missing: the segment before {own[0].name} was "
                f"removed; {DAMAGE_REMEDY}"
            )
        tail = _scan(directory, own[-1], uuid)
    if mark is not None and mark.end > tail.end:
        raise WalDamaged(
            f"{os.path.join(directory, mark.segment.name)}: offset {tail.offset}: rows {tail.end} to {mark.end - 1} "
            f"were durable and are not there; {DAMAGE_REMEDY}"
        )
    return tail


def _scan(directory: str, segment: Segment, uuid: bytes) -> Tail:
    path = os.path.join(directory, segment.name)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return Tail(segment.first, segment)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            end, at = segment.first, 0
            problem = check_segment_head(data[:SEGMENT_HEAD], segment, uuid)
            if problem is None:
                at = SEGMENT_HEAD
                while True:
                    frame = _good_frame(data, view, at, segment)
                    if frame is None or frame.first != end:
                        break
                    end, at = frame.end, frame.stop
            later = _good_frame_after(data, view, at, segment)
            if later is not None:
                raise WalDamaged(
                    f"{path}: offset {at}: {problem or f'row {end} should follow here'}, and a good frame with row "
                    f"{later.first} follows at offset {later.offset}, so this was durable once; {DAMAGE_REMEDY}"
                )
            return Tail(end, segment, at, size - at)


def _good_frame(data: mmap.mmap, view: memoryview, at: int, segment: Segment) -> Frame | None:
    frame = read_frame_head(data[at : at + FRAME_HEAD], at, segment.epoch)
    if frame is None:
        return None
    with view[frame.body : frame.stop] as body:
        return frame if body_is_good(frame, body) else None


def _good_frame_after(data: mmap.mmap, view: memoryview, at: int, segment: Segment) -> Frame | None:
    """A whole frame of this segment further on."""
    found = data.find(FRAME_MAGIC, at + 1)
    while found >= 0:
        if found % ALIGNMENT == 0:
            frame = _good_frame(data, view, found, segment)
            if frame is not None:
                return frame
        found = data.find(FRAME_MAGIC, found + 1)
    return None


def make_durable(disk: Disk, directory: str, epochs: Epochs, tail: Tail) -> None:
    """Writes once more what no mark covers, at most one segment, and waits for the disk.

    A process that ended with a failed fdatasync may have left frames that are good in the page cache, which counts
    them as clean, and not on the disk: reading them back proves nothing.
    """
    if tail.segment is None:
        return
    mark = read_mark(directory, epochs.open)
    begin = mark.offset if mark is not None and mark.segment == tail.segment else 0
    file = disk.open(os.path.join(directory, tail.segment.name))
    try:
        if begin < tail.offset:
            disk.write(file, [os.pread(file, tail.offset - begin, begin)], begin)
        disk.sync(file)
    finally:
        disk.close(file)
    disk.sync_directory(directory)


# -- trimming


def read_start(directory: str) -> int:
    """The first row that can be read."""
    content = DOCUMENTS.read(os.path.join(directory, "trim.json"))
    return 0 if content is None else int(content["start"])


def remove_leftovers(disk: Disk, directory: str, start: int) -> None:
    """Removes the segments before `start`, counted or not.

    `start` is always where a counted segment ends, so none of those reaches beyond it.
    """
    for segment in segments(directory):
        if segment.first < start:
            disk.remove(os.path.join(directory, segment.name))


# -- one epoch


class SlotFiles:
    """The files of one epoch in `directory`, from row `end` on.  All methods raise OSError."""

    def __init__(self, disk: Disk, directory: str, uuid: bytes, epoch: int, end: int, segment_bytes: int) -> None:
        self.whole: list[Segment] = []  # segments that get no more rows; the caller adds those of earlier epochs
        self.offset = 0  # in the segment that is written
        self._disk = disk
        self._directory = directory
        self._uuid = uuid
        self._epoch = epoch
        self.end = end
        self._segment_bytes = segment_bytes
        self._segment: Segment | None = None
        self._file = -1
        self._mark_file = disk.open(mark_path(directory, epoch))
        self._mark(Segment(end, epoch))

    def append(self, frame: Sequence[BytesLike], rows: int) -> None:
        """Writes one frame, waits for one fdatasync, then moves the mark."""
        disk = self._disk
        length = sum(map(len, frame))
        if self._segment is None or self.offset + length > max(self._segment_bytes, SEGMENT_HEAD + length):
            segment = self._roll()
            disk.write(self._file, [segment_head(segment, self._uuid), *frame], 0)
            disk.sync(self._file)
            disk.sync_directory(self._directory)
            self.offset = SEGMENT_HEAD + length
        else:
            segment = self._segment
            disk.write(self._file, frame, self.offset)
            disk.sync(self._file)
            self.offset += length
        self.end += rows
        self._mark(segment)

    def _roll(self) -> Segment:
        """Begins a new segment; the one before is durable to its last byte."""
        if self._segment is not None:
            self.whole.append(self._segment)
            self._disk.close(self._file)
            self._file = -1
        self._segment = Segment(self.end, self._epoch)
        self._file = self._disk.open(os.path.join(self._directory, self._segment.name))
        return self._segment

    def _mark(self, segment: Segment) -> None:
        mark = Mark(self._epoch, self.end, segment, self.offset)
        self._disk.write(self._mark_file, [mark.encode()], 0)

    def trim(self, start: int, up_to: int, retention: Retention) -> int:
        """Removes whole segments of rows before up_to.  start: where the log begins; returns where it begins now."""
        begin = self._new_start(start, up_to, retention)
        if begin > start:
            DOCUMENTS.write(os.path.join(self._directory, "trim.json"), {"start": begin}, self._disk)
            self.whole = [segment for segment in self.whole if segment.first >= begin]
            remove_leftovers(self._disk, self._directory, begin)
        return begin

    def _new_start(self, start: int, up_to: int, retention: Retention) -> int:
        """The first row to keep."""
        ends = [segment.first for segment in self.whole[1:]]
        ends.append(self.end if self._segment is None else self._segment.first)
        kept = 0
        keep_from = time.time() - retention.seconds
        for segment, end in zip(reversed(self.whole), reversed(ends), strict=False):
            if end > up_to:
                continue
            # from the newest committed segment back to the first one that retention does not keep
            try:
                status = os.stat(os.path.join(self._directory, segment.name))
            except FileNotFoundError:
                return max(start, end)
            kept += status.st_size
            if kept > retention.size and (not retention.seconds or status.st_mtime < keep_from):
                return max(start, end)
        return start

    def close(self) -> None:
        for file in (self._file, self._mark_file):
            if file >= 0:
                os.close(file)
        self._file = self._mark_file = -1


# -- a slot in a directory


class DirectoryStorage:
    """`Storage` in a directory of a file system with fsync; `fencing` says what keeps two writers apart."""

    apart_s = 0.0
    was_fenced = False

    def __init__(
        self, directory: str, uuid: bytes, disk: Disk | None = None, lease_s: float = LASTS_S, *, apart: bool = False
    ) -> None:
        """apart: whose rights are a lease, which ends where its holder is frozen, as a lock does not."""
        self.place = directory
        self._lasts_s = lease_s
        self._apart = apart
        self._lease: Lease | None = None
        self.start = 0
        self.files: SlotFiles | None = None  # once taken over
        self.on_lost: Callable[[], None] = lambda: None
        self._disk = disk or Disk()
        self._uuid = uuid
        self._epoch = 0
        self._epochs = EpochReader(directory)
        self._lock: Lock | None = None

    def claim(self, timeout_s: float) -> Tail:
        directory = self.place
        try:
            if not os.path.isdir(directory):
                self._disk.make_directory(directory)
                self._disk.sync_directory(os.path.dirname(directory))
        except OSError as error:
            raise explain(error, directory, "making the slot's directory") from error
        self._lock = take_lock(os.path.join(directory, "lock"), timeout_s)
        lease = self.document("lease.json", DOCUMENTS)
        if self._apart or lease.read() is not None:
            note = "onceway ingest" if self._apart else ""
            self._lease = Lease(lease, directory, self._lease_lost, self._lasts_s, note)
            if self._apart:  # before it waits: whoever waits for a frozen one must not keep others waiting
                self._lock.release()
            self._lease.take(timeout_s)
        self.start = read_start(directory)
        epochs = read_epochs(directory)
        self.was_fenced = epochs is not None
        return find_tail(directory, epochs, self.start, self._uuid)

    def _lease_lost(self) -> None:
        self.on_lost()

    def take_over(self, epoch: int, segment_bytes: int) -> Tail:
        disk, directory = self._disk, self.place
        old = read_epochs(directory) or Epochs(0, 0)
        epoch = max(epoch, old.epoch + 1)
        readers_end = EpochReader(directory).durable_end()
        write_epochs(disk, directory, Epochs(epoch, old.open, old.ends, readers_end))  # the claim
        self.start = read_start(directory)
        tail = find_tail(directory, old, self.start, self._uuid)
        make_durable(disk, directory, old, tail)
        if tail.end > old.last_end and old.open:
            old.ends[old.open] = tail.end
        ends = {number: end for number, end in old.ends.items() if end > self.start or end == old.last_end}
        epochs = Epochs(epoch, epoch, ends)
        write_epochs(disk, directory, epochs)  # the fence
        self._epoch = epoch
        self.files = SlotFiles(disk, directory, self._uuid, epoch, tail.end, segment_bytes)
        remove_leftovers(disk, directory, self.start)
        # of a writer that is frozen, too: it cannot put its document back.  The lease is renewed meanwhile
        remove_unfinished(directory, ("epoch.", "gaps.", "link.", "trim."), disk)
        for number in {old.open, old.epoch} - {0}:
            if read_mark(directory, number) is not None:
                disk.remove(mark_path(directory, number))
        self.files.whole = [segment for segment in segments(directory) if epochs.counts(segment)]
        return tail

    def is_ours(self) -> bool:
        epochs = self._epochs.get()
        return epochs is not None and epochs.epoch == self._epoch

    def encode(self, batch: Any, payload_bytes: int, received_us: int) -> Sequence[BytesLike]:
        assert self.files is not None
        return encode_frame(batch, self.files.end, payload_bytes, self._epoch, received_us)

    def append(self, frame: Sequence[BytesLike], rows: int) -> None:
        assert self.files is not None
        self.files.append(frame, rows)

    def trim(self, up_to: int, retention: Retention) -> None:
        assert self.files is not None
        self.start = self.files.trim(self.start, up_to, retention)

    def document(self, name: str, documents: Documents) -> Document:
        return FileDocument(os.path.join(self.place, name), documents, self._disk)

    def close(self) -> None:
        if self.files is not None:
            self.files.close()
        if self._lease is not None:
            self._lease.release()
        if self._lock is not None:
            self._lock.release()
