"""The reading side of a slot, in any process: only rows that are durable and not fenced off.

A reader locks nothing and writes nothing.  Executors use `read`, which needs only the files; the driver uses `end`,
`bounds` and `split`, on an index that grows with the log.  What a reader may believe: `fencing`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from onceway.spark import columns as decoding
from onceway.spark.errors import DAMAGE_REMEDY, WalDamaged, WalForeign, WalMissing
from onceway.spark.wal.fencing import EpochReader, Epochs
from onceway.spark.wal.frames import (
    FRAME_HEAD,
    SEGMENT_HEAD,
    Frame,
    Segment,
    body_is_good,
    check_segment_head,
    decode_body,
    read_frame_head,
    segments,
)
from onceway.spark.wal.storage import read_start

BATCH_ROWS: Final = 20_000
_BATCH_BYTES: Final = 32 << 20
_READ_BYTES: Final = 4 << 20  # of a segment in one read, about


@dataclass(frozen=True, slots=True)
class Part:
    """A segment that counts, and the row where the log continues in another one (None: not known to)."""

    index: SegmentIndex
    limit: int | None


class SlotReader(ABC):
    """Rows of one slot by number.  Picklable; a copy builds its own index."""

    def __init__(self, location: str, number: int, topic: str, uuid: str) -> None:
        self.location = location
        self.number = number
        self.topic = topic
        self.uuid = uuid
        self.directory = f"{location}/{number}"
        self._end = 0
        self._uuid = bytes.fromhex(uuid.replace("-", ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.location, self.number, self.topic, self.uuid)

    def for_task(self, start: int) -> SlotReader:
        """The reader that a task is given which begins at this row."""
        return self

    # -- bounds

    @abstractmethod
    def start(self) -> int:
        """The first row that can still be read."""

    def end(self, *, fresh: bool = False) -> int:
        """The number after the last durable row; where looking costs a request, as it was a moment ago unless `fresh`.

        Never decreases within one reader.  After a power cut, until an ingest has recovered the log, a new reader may
        see less than an earlier one did, so never answer Spark with less than the start that it gave.
        """
        self._end = max(self._end, self._durable_end(fresh=fresh))
        return self._end

    @abstractmethod
    def _durable_end(self, *, fresh: bool) -> int: ...

    def bounds(self, start: int, max_rows: int | None = None, max_bytes: int | None = None) -> int:
        """The end of a batch from `start`: at most max_rows, about max_bytes of payload (one row at least), and end().

        Raises WalMissing where `start` was trimmed.
        """
        limit = self.end()
        if max_rows is not None:
            limit = min(limit, start + max(1, max_rows))
        if limit <= start:
            return start
        if max_bytes is None:
            return limit
        left = max_bytes
        for part in self._cover(start, limit):
            index = part.index
            before = index.bytes_before(max(start, index.first))
            row = index.row_at(before + left)
            if row < min(limit, index.end):
                return max(start + 1, row)
            left -= index.bytes_before(min(limit, index.end)) - before
        return limit

    def bytes_between(self, start: int, end: int) -> int:
        """Payload bytes of these rows; inside a frame in proportion."""
        total = 0
        for part in self._cover(start, end):
            index = part.index
            total += index.bytes_before(min(end, index.end)) - index.bytes_before(max(start, index.first))
        return total

    def split(self, start: int, end: int, parts: int) -> list[tuple[int, int]]:
        """Up to `parts` adjacent ranges of about equal size, none empty, cut between frames where that is near."""
        rows = end - start
        if rows <= 0:
            return []
        parts = max(1, min(parts, rows))
        near = rows // (4 * parts)
        covering = self._cover(start, end) if parts > 1 else []
        cuts = [start]
        for number in range(1, parts):
            wanted = start + rows * number // parts
            index = next(part.index for part in covering if wanted < part.index.end)
            frame = index.frame(index.at(wanted))
            edge = frame.first if wanted - frame.first <= frame.end - wanted else frame.end
            cut = edge if abs(edge - wanted) <= near else wanted
            if cuts[-1] < cut < end:
                cuts.append(cut)
        return list(zip(cuts, [*cuts[1:], end], strict=True))

    def received_us(self, row: int) -> int:
        """When the group that has this row was complete, in microseconds since 1970.  Raises WalMissing."""
        index = self._cover(row, row + 1)[0].index
        return index.frame(index.at(row)).received_us

    def row_since(self, received_us: int) -> int:
        """The first row that was received at this time or later; end() where there is none."""
        start, end = self.start(), self.end()
        for part in self._cover(start, end):
            for number in range(len(part.index)):
                frame = part.index.frame(number)
                if frame.received_us < received_us or frame.end <= start or frame.first >= end:
                    continue
                for first, batch in self.stored(max(start, frame.first), min(end, frame.end)):
                    for row, at_us in enumerate(batch.column(2).to_pylist(), first):
                        if at_us >= received_us:
                            return row
        return end

    # -- rows

    def read(
        self, start: int, end: int, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Exactly rows start .. end - 1 as RecordBatches of `onceway.spark.columns.schema(columns)`.

        Batches hold about batch_rows.  Raises WalMissing where rows are trimmed or not there, WalDamaged.  Does not
        check end(): rows that were once durable can be read at any time, even before an ingest has started.
        """
        for first, batch in self.stored(start, end, batch_rows=batch_rows):
            yield decoding.decode(
                batch.column(0),
                batch.column(1),
                batch.column(2),
                topic=self.topic,
                partition=self.number,
                first=first,
                columns=columns,
            )

    def stored(self, start: int, end: int, *, batch_rows: int = BATCH_ROWS) -> Iterator[tuple[int, Any]]:
        """(first row, RecordBatch of `frames.SCHEMA`) each, undecoded, in batches of about batch_rows."""
        gathered: list[Any] = []
        first, rows, size = start, 0, 0
        for frame, batch in self._frames(start, end):
            low, high = max(start, frame.first), min(end, frame.end)
            if high - low < frame.rows:
                batch = batch.slice(low - frame.first, high - low)
            if gathered and (rows + high - low > batch_rows or size + frame.length > _BATCH_BYTES):
                yield first, _joined(gathered)
                gathered, first, rows, size = [], low, 0, 0
            gathered.append(batch)
            rows += high - low
            size += frame.length
        if gathered:
            yield first, _joined(gathered)

    @abstractmethod
    def _frames(self, start: int, end: int) -> Iterator[tuple[Frame, Any]]:
        """The frames that hold these rows, checked."""

    @abstractmethod
    def _cover(self, start: int, end: int) -> list[Part]:
        """The segments that hold rows start .. end - 1, in order, each indexed up to there."""


class DirectoryReader(SlotReader):
    """A slot in a directory.

    begin: a segment, and row and offset of the first of its frames that are read (`for_task`).
    """

    def __init__(
        self, location: str, number: int, topic: str, uuid: str, begin: tuple[Segment, int, int] | None = None
    ) -> None:
        super().__init__(location, number, topic, uuid)
        self._begin = begin
        self._epochs = EpochReader(self.directory)
        self._parts: list[Part] = []
        self._listed: Epochs | None = None  # the epochs that the parts were listed by

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectoryReader, (self.location, self.number, self.topic, self.uuid, self._begin)

    def for_task(self, start: int) -> DirectoryReader:
        """A task need not index its segment from the beginning, where each group has a head to read."""
        index = self._cover(start, start + 1)[0].index
        frame = index.frame(index.at(start))
        begin = (index.segment, frame.first, frame.offset)
        return DirectoryReader(self.location, self.number, self.topic, self.uuid, begin)

    def start(self) -> int:
        return read_start(self.directory)

    def _durable_end(self, *, fresh: bool) -> int:
        return self._epochs.durable_end()

    def _frames(self, start: int, end: int) -> Iterator[tuple[Frame, Any]]:
        # one read covers several adjacent frames
        for part in self._cover(start, end):
            index = part.index
            number = index.at(max(start, index.first))
            file = open_segment(index.path)
            try:
                while number < len(index) and index.frame(number).first < end:
                    run = [index.frame(number)]
                    number += 1
                    while number < len(index) and run[-1].end < end and run[-1].stop - run[0].offset < _READ_BYTES:
                        run.append(index.frame(number))
                        number += 1
                    data = _pread(file, run[-1].stop - run[0].offset, run[0].offset)
                    whole = pa.py_buffer(data)
                    for frame in run:
                        at = frame.offset - run[0].offset + FRAME_HEAD
                        if not body_is_good(frame, memoryview(data)[at : at + frame.length]):
                            raise WalDamaged(
                                f"{index.path}: offset {frame.offset}: rows {frame.first} to {frame.end - 1} are "
                                f"damaged (checksum); {DAMAGE_REMEDY}"
                            )
                        yield frame, decode_body(whole.slice(at, frame.length))
            finally:
                os.close(file)

    # -- which segments

    def _cover(self, start: int, end: int) -> list[Part]:
        if start >= end:
            return []
        # after a fence, a segment that was open ends somewhere
        covering = self._covered(start, end) if self._epochs.get() is self._listed else None
        if covering is None:
            self._list()
            covering = self._covered(start, end)
        if covering is None:
            raise self._missing(start, end)
        return covering

    def _covered(self, start: int, end: int) -> list[Part] | None:
        """None where the listed segments do not reach."""
        covering = []
        at = start
        for part in self._parts:
            index = part.index
            if part.limit is not None and part.limit <= at:
                continue
            if index.first > at:
                return None
            to = end if part.limit is None else min(end, part.limit)
            index.extend(to)
            if index.end > at:
                covering.append(part)
            at = min(to, index.end)
            if at >= end:
                return covering
            if at < to:
                return None  # the frames end before the next segment begins
        return None

    def _list(self) -> None:
        epochs = self._listed = self._epochs.get()
        if epochs is None:
            self._parts = []
            return
        known = {part.index.segment: part.index for part in self._parts}
        start = self.start()
        counted = [segment for segment in segments(self.directory) if epochs.counts(segment)]
        parts = []
        for segment, following in zip(counted, [*counted[1:], None], strict=False):  # empty where all are lost
            end = epochs.ends.get(segment.epoch)
            limits = [row for row in (following and following.first, end) if row is not None]
            limit = min(limits) if limits else None
            if limit is None or limit > start:
                begin = self._begin[1:] if self._begin is not None and self._begin[0] == segment else ()
                index = known.get(segment) or SegmentIndex(self.directory, segment, self._uuid, *begin)
                parts.append(Part(index, limit))
        self._parts = parts

    def _missing(self, start: int, end: int) -> WalMissing | WalDamaged:
        first = self.start()
        if start < first:
            return WalMissing(
                f"{self.directory}: rows {start} to {min(end, first) - 1} were trimmed, the log begins at row {first}; "
                "walRetention keeps rows for checkpoints that are rolled back"
            )
        at = start
        for part in self._parts:
            index = part.index
            if part.limit is not None and part.limit <= start:
                continue  # not indexed
            if index.first > at:
                break
            at = max(at, index.end)
            if part.limit is not None and index.end < part.limit:
                return WalDamaged(
                    f"{index.path}: offset {index.stop}: row {index.end} should follow and no good frame is "
                    f"there, though the log continues to row {part.limit}: damaged, or a later segment was removed; "
                    f"{DAMAGE_REMEDY}"
                )
        return WalMissing(
            f"{self.directory}: rows {at} to {end - 1} are not in the log, which ends at row {at}; is it an older copy "
            "of the one that the checkpoint was made with?"
        )


def _joined(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    arrays = [pa.concat_arrays([batch.column(at) for batch in batches]) for at in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=batches[0].schema)


def _pread(file: int, length: int, offset: int) -> bytes:
    data = os.pread(file, length, offset)
    while 0 < len(data) < length:  # a read of more than 2 GiB, or a signal
        more = os.pread(file, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


class SegmentIndex:
    """Where rows lie in one segment, from the heads of its frames, as far as somebody has asked.

    Heads have a checksum of their own, so indexing costs one small read for each frame.  `first` is the first row that
    is indexed, `end` the row after the last one, `stop` the offset after it.
    """

    __slots__ = (
        "_crcs",
        "_firsts",
        "_lengths",
        "_offsets",
        "_sizes",
        "_times",
        "_uuid",
        "end",
        "first",
        "path",
        "segment",
        "stop",
    )

    def __init__(
        self, directory: str, segment: Segment, uuid: bytes, first: int | None = None, offset: int = SEGMENT_HEAD
    ) -> None:
        """first, offset: of the frame to begin with, if not the first."""
        self.segment = segment
        self.path = os.path.join(directory, segment.name)
        self.first = self.end = segment.first if first is None else first
        self.stop = offset
        self._uuid = uuid
        self._firsts = array("Q")
        self._offsets = array("Q")
        self._lengths = array("L")
        self._crcs = array("L")
        self._times = array("Q")
        self._sizes = array("Q", [0])  # payload bytes before each frame, and after the last

    def __len__(self) -> int:
        return len(self._firsts)

    def extend(self, to_row: int) -> None:
        """Indexes until `end` is at least to_row, or there is no further frame.  Raises WalError, OSError."""
        if self.end >= to_row:
            return
        file = open_segment(self.path)
        try:
            if not self._firsts:
                problem = check_segment_head(os.pread(file, SEGMENT_HEAD, 0), self.segment, self._uuid)
                if problem is not None:
                    kind = WalForeign if "another log" in problem else WalDamaged
                    raise kind(f"{self.path}: offset 0: {problem}; {DAMAGE_REMEDY}")
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
        self._sizes.append(self._sizes[-1] + frame.payload_bytes)
        self.end = frame.end
        self.stop = frame.stop

    def at(self, row: int) -> int:
        """The number of the frame that holds this row (which must be indexed)."""
        return bisect_right(self._firsts, row) - 1

    def frame(self, number: int) -> Frame:
        firsts = self._firsts
        end = firsts[number + 1] if number + 1 < len(firsts) else self.end
        return Frame(
            firsts[number],
            end - firsts[number],
            self._sizes[number + 1] - self._sizes[number],
            self._times[number],
            self._offsets[number],
            self._lengths[number],
            self._crcs[number],
        )

    def bytes_before(self, row: int) -> int:
        """Payload bytes before this row in the segment; inside a frame in proportion."""
        if row >= self.end:
            return self._sizes[-1]
        number = self.at(row)
        frame = self.frame(number)
        return self._sizes[number] + frame.payload_bytes * (row - frame.first) // frame.rows

    def row_at(self, size: int) -> int:
        """The largest row with at most so many payload bytes before it."""
        number = bisect_right(self._sizes, size) - 1
        if number >= len(self._firsts):
            return self.end
        frame = self.frame(number)
        return frame.first + (size - self._sizes[number]) * frame.rows // max(1, frame.payload_bytes)


def open_segment(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise WalMissing(
            f"{path}: no longer there: trimmed because Spark had committed its rows, or removed by somebody; "
            "set walRetention for checkpoints that are rolled back"
        ) from None
