"""A slot's files on the writing side: what an earlier process left, frames appended, segments trimmed.

Recovery finds where the open epoch's rows end.  Only the last segment can be torn, and in it only the last frame
(`frames`), so anything wrong before a good frame, or before the durable mark, is damage: an error, never a silent cut.

Trimming removes whole segments that Spark has committed.  `trim.json` says at which row the log begins, and is durable
before the first file is removed.  A crash in between leaves files that nobody counts; the next trimming or recovery
removes them.  Two things besides Spark hold a segment back: a tag in it that the network has not settled (its delivery
may come again and must be recognised), and the retention, for a checkpoint that is rolled back.

Nothing here knows threads or rows other than their numbers; the caller is `writing`.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from onceway.spark.errors import DAMAGE_REMEDY, WalDamaged
from onceway.spark.files import BytesLike, Disk
from onceway.spark.wal.fencing import DOCUMENTS, Epochs, Mark, mark_path, read_mark
from onceway.spark.wal.frames import (
    ALIGNMENT,
    FRAME_HEAD,
    FRAME_MAGIC,
    SEGMENT_HEAD,
    Frame,
    Segment,
    body_is_good,
    check_segment_head,
    read_frame_head,
    segment_head,
    segments,
)


@dataclass(frozen=True, slots=True)
class Retention:
    """`walRetention`: what is kept after Spark has committed it, for checkpoints that are rolled back.

    A segment is kept while either asks for it.
    """

    seconds: float = 0.0  # since the segment's last row was written
    size: int = 0  # bytes of committed segments, the newest ones


# -- recovery


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the log as an earlier process left it."""

    end: int  # the row after the last good one
    segment: Segment | None  # where that ends; None: in none of the open epoch's
    offset: int  # in it, after the last good frame
    torn: int  # bytes after it, of a group that nobody has accepted

    def report(self, directory: str) -> str:
        """One line for people."""
        text = f"{directory}: recovered, {self.end} rows"
        if self.torn and self.segment is not None:
            text += f"; cut {self.torn} bytes of an unfinished group at {self.segment.name}:{self.offset}"
        return text


def find_tail(directory: str, epochs: Epochs | None, start: int, uuid: bytes) -> Tail:
    """Reads the open epoch's last segment.  start: the first row in `trim.json`.  Raises WalDamaged, OSError."""
    if epochs is None:
        return Tail(0, None, 0, 0)
    begin = max(start, epochs.last_end)
    own = [segment for segment in segments(directory) if segment.epoch == epochs.open and epochs.counts(segment)]
    mark = read_mark(directory, epochs.open)
    tail = Tail(begin, None, 0, 0)
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
            return Tail(segment.first, segment, 0, 0)
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
        self._end = end
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
        self._end += rows
        self._mark(segment)

    def _roll(self) -> Segment:
        """Begins a new segment; the one before is durable to its last byte."""
        if self._segment is not None:
            self.whole.append(self._segment)
            self._disk.close(self._file)
            self._file = -1
        self._segment = Segment(self._end, self._epoch)
        self._file = self._disk.open(os.path.join(self._directory, self._segment.name))
        return self._segment

    def _mark(self, segment: Segment) -> None:
        mark = Mark(self._epoch, self._end, segment, self.offset)
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
        ends.append(self._end if self._segment is None else self._segment.first)
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
