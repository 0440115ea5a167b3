"""Where rows lie in a segment, from the heads of its frames, as far as somebody has asked.

Heads are 64 octets in every frame and have a checksum of their own, so an index costs one small read for each group
and grows with the file.  It holds five numbers for each frame.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right

from onceway.spark.wal.errors import WalDamaged, WalForeign, WalMissing
from onceway.spark.wal.frames import FRAME_HEAD, SEGMENT_HEAD, Frame, Segment, check_segment_head, read_frame_head

DAMAGED = (
    "restore the file from a copy, or start with a new walLocation and a new checkpoint and expect the rows from there "
    "on that were not processed to be lost"
)


class SegmentIndex:
    """Frames of one segment; `end` is the row behind the last one known, `stop` the offset behind it."""

    __slots__ = (
        "_crcs",
        "_firsts",
        "_lengths",
        "_octets",
        "_offsets",
        "_times",
        "_uuid",
        "end",
        "path",
        "segment",
        "stop",
    )

    def __init__(self, directory: str, segment: Segment, uuid: bytes) -> None:
        self.segment = segment
        self.path = os.path.join(directory, segment.name)
        self.end = segment.first
        self.stop = 0  # 0: not even the head was looked at
        self._uuid = uuid
        self._firsts = array("Q")
        self._offsets = array("Q")
        self._lengths = array("L")
        self._crcs = array("L")
        self._times = array("Q")
        self._octets = array("Q", [0])  # of payload before each frame, and behind the last

    def __len__(self) -> int:
        return len(self._firsts)

    def extend(self, to_row: int) -> None:
        """Until `end` is at least to_row, or no further frame is there.  Raises WalError, OSError."""
        if self.end >= to_row:
            return
        file = open_segment(self.path)
        try:
            if not self.stop:
                problem = check_segment_head(os.pread(file, SEGMENT_HEAD, 0), self.segment, self._uuid)
                if problem is not None:
                    kind = WalForeign if "another log" in problem else WalDamaged
                    raise kind(f"{self.path}: offset 0: {problem}; {DAMAGED}")
                self.stop = SEGMENT_HEAD
            while self.end < to_row:
                frame = read_frame_head(os.pread(file, FRAME_HEAD, self.stop), self.stop, self.segment.epoch)
                if frame is None or frame.first != self.end:
                    return
                self.add(frame)
        finally:
            os.close(file)

    def add(self, frame: Frame) -> None:
        self._firsts.append(frame.first)
        self._offsets.append(frame.offset)
        self._lengths.append(frame.length)
        self._crcs.append(frame.crc)
        self._times.append(frame.received_us)
        self._octets.append(self._octets[-1] + frame.octets)
        self.end = frame.end
        self.stop = frame.stop

    def at(self, row: int) -> int:
        """The number of the frame that holds this row (which must be known)."""
        return bisect_right(self._firsts, row) - 1

    def frame(self, number: int) -> Frame:
        firsts = self._firsts
        end = firsts[number + 1] if number + 1 < len(firsts) else self.end
        return Frame(
            firsts[number],
            end - firsts[number],
            self._octets[number + 1] - self._octets[number],
            self._times[number],
            self._offsets[number],
            self._lengths[number],
            self._crcs[number],
        )

    def octets_before(self, row: int) -> int:
        """Of payload, from the segment's first row on; inside a frame in proportion."""
        if row >= self.end:
            return self._octets[-1]
        frame = self.frame(self.at(row))
        return self._octets[self.at(row)] + frame.octets * (row - frame.first) // frame.rows

    def row_at(self, octets: int) -> int:
        """The largest row with at most so many octets of payload before it."""
        number = bisect_right(self._octets, octets) - 1
        if number >= len(self._firsts):
            return self.end
        frame = self.frame(number)
        return frame.first + (octets - self._octets[number]) * frame.rows // max(1, frame.octets)


def open_segment(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise WalMissing(
            f"{path}: not there any more: trimmed because Spark had committed its rows, or removed by somebody; "
            "set walRetention for checkpoints that are rolled back"
        ) from None
