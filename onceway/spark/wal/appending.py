"""The files of a slot in one epoch: frames are put behind each other into segments, each durable before the next.

The mark (`fencing`) follows each frame and says to readers what is durable.  Knows nothing of rows but their numbers,
and nothing of threads: its owner is `writing`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from onceway.spark.wal import trimming
from onceway.spark.wal.disk import Disk, Octets
from onceway.spark.wal.fencing import Mark, mark_octets, mark_path
from onceway.spark.wal.frames import SEGMENT_HEAD, Segment, segment_head
from onceway.spark.wal.settings import Retention


class Appending:
    """From row `end` on, in `directory`, by the process that opened `epoch`.  Everything here raises OSError."""

    def __init__(self, disk: Disk, directory: str, uuid: bytes, epoch: int, end: int, segment_bytes: int) -> None:
        self.whole: list[Segment] = []  # segments that no row is added to any more; older ones are the owner's to name
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

    def append(self, frame: Sequence[Octets], rows: int) -> None:
        """One frame, one fdatasync, then the mark."""
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
        """On to a new file; the one before is durable to its last octet."""
        if self._segment is not None:
            self.whole.append(self._segment)
            self._disk.close(self._file)
            self._file = -1
        self._segment = Segment(self._end, self._epoch)
        self._file = self._disk.open(os.path.join(self._directory, self._segment.name))
        return self._segment

    def _mark(self, segment: Segment) -> None:
        mark = Mark(self._epoch, self._end, segment, self.offset)
        self._disk.write(self._mark_file, [mark_octets(mark)], 0)

    def trim(self, start: int, up_to: int, retention: Retention) -> int:
        """Removes whole segments of rows before up_to; the log began at `start`, and begins where this says."""
        behind = self._end if self._segment is None else self._segment.first
        begin = trimming.new_start(self._directory, self.whole, behind, start, up_to, retention)
        if begin > start:
            trimming.write_start(self._disk, self._directory, begin)
            self.whole = [segment for segment in self.whole if segment.first >= begin]
            trimming.remove_leftovers(self._disk, self._directory, begin)
        return begin

    def close(self) -> None:
        for file in (self._file, self._mark_file):
            if file >= 0:
                os.close(file)
        self._file = self._mark_file = -1
