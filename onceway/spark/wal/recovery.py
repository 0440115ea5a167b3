"""What an earlier life left in the open epoch: where its rows end, what was torn, whether anything is damaged.

Only the last segment can be torn, and in it only the last frame (`frames`), so what is wrong in front of a good frame,
or in front of the durable mark, is damage: an error, never a silent cut.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

from onceway.spark.wal.disk import Disk
from onceway.spark.wal.errors import WalDamaged
from onceway.spark.wal.fencing import Epochs, read_mark
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
    segments,
)
from onceway.spark.wal.indexing import DAMAGED


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the log as an earlier life left it."""

    end: int  # the row behind the last good one
    segment: Segment | None  # where that ends; None: in none of the open epoch's
    offset: int  # in it, behind the last good frame
    torn: int  # octets behind it that belong to a group that nobody has accepted

    def report(self, directory: str) -> str:
        """One line for people."""
        text = f"{directory}: recovered, {self.end} rows"
        if self.torn and self.segment is not None:
            text += f"; cut {self.torn} octets of an unfinished group at {self.segment.name}:{self.offset}"
        return text


def find_tail(directory: str, epochs: Epochs | None, start: int, uuid: bytes) -> Tail:
    """Reads the open epoch's last segment.  start: `trim.json`'s row.  Raises WalDamaged, OSError."""
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
                f"removed; {DAMAGED}"
            )
        tail = _scan(directory, own[-1], uuid)
    if mark is not None and mark.end > tail.end:
        raise WalDamaged(
            f"{os.path.join(directory, mark.segment.name)}: offset {tail.offset}: rows {tail.end} to {mark.end - 1} "
            f"were durable and are not there; {DAMAGED}"
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
            later = _good_frame_behind(data, view, at, segment)
            if later is not None:
                raise WalDamaged(
                    f"{path}: offset {at}: {problem or f'row {end} should follow here'}, and a good frame with row "
                    f"{later.first} lies behind it at offset {later.offset}, so this was durable once; {DAMAGED}"
                )
            return Tail(end, segment, at, size - at)


def _good_frame(data: mmap.mmap, view: memoryview, at: int, segment: Segment) -> Frame | None:
    frame = read_frame_head(data[at : at + FRAME_HEAD], at, segment.epoch)
    if frame is None:
        return None
    with view[frame.body : frame.stop] as body:
        return frame if body_is_good(frame, body) else None


def _good_frame_behind(data: mmap.mmap, view: memoryview, at: int, segment: Segment) -> Frame | None:
    """A whole frame of this segment's further on."""
    found = data.find(FRAME_MAGIC, at + 1)
    while found >= 0:
        if found % ALIGNMENT == 0:
            frame = _good_frame(data, view, found, segment)
            if frame is not None:
                return frame
        found = data.find(FRAME_MAGIC, found + 1)
    return None


def make_durable(disk: Disk, directory: str, epochs: Epochs, tail: Tail) -> None:
    """Writes once more what no mark covers, and waits for the disk.

    A life that ended with a failed fdatasync may have left frames that are good in the page cache, which counts them
    as clean, and not on the disk: reading them back proves nothing.  At most one segment.
    """
    if tail.segment is None:
        return
    mark = read_mark(directory, epochs.open)
    begin = mark.offset if mark is not None and mark.segment == tail.segment else 0
    path = os.path.join(directory, tail.segment.name)
    file = disk.open(path)
    try:
        if begin < tail.offset:
            disk.write(file, [os.pread(file, tail.offset - begin, begin)], begin)
        disk.sync(file)
    finally:
        disk.close(file)
    disk.sync_directory(directory)
