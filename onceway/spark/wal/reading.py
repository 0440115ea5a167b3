"""The reading side of a slot, in any process: only what is durable and not fenced off.

Nothing is locked and nothing is written.  Executors use `read`, which needs no more than the files; the driver uses
`end`, `bounds` and `split`, on an index that grows as the log does.  What may be believed: `fencing`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceway.spark import columns as decoding
from onceway.spark.wal.errors import WalDamaged, WalMissing
from onceway.spark.wal.fencing import EpochReader, Epochs
from onceway.spark.wal.frames import FRAME_HEAD, Frame, body_is_good, decode_body, segments
from onceway.spark.wal.indexing import DAMAGED, SegmentIndex, open_segment
from onceway.spark.wal.trimming import read_start

BATCH_ROWS = 20_000
_BATCH_OCTETS = 32 << 20
_READ_OCTETS = 4 << 20  # about so much of a segment in one read


@dataclass(frozen=True, slots=True)
class _Part:
    """A counted segment, and where the log leaves it (None: wherever it ends)."""

    index: SegmentIndex
    limit: int | None


class SlotReader:
    """Rows of one slot by number.  Picklable: the index is rebuilt where it is used."""

    def __init__(self, location: str, number: int, topic: str, uuid: str) -> None:
        self.location = location
        self.number = number
        self.topic = topic
        self.uuid = uuid
        self.directory = os.path.join(location, str(number))
        self._epochs = EpochReader(self.directory)
        self._end = 0
        self._parts: list[_Part] = []
        self._listed: Epochs | None = None  # what the parts rest on
        self._uuid = bytes.fromhex(uuid.replace("-", ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return SlotReader, (self.location, self.number, self.topic, self.uuid)

    # -- what there is

    def start(self) -> int:
        """The first row that can still be read."""
        return read_start(self.directory)

    def end(self) -> int:
        """The number behind the last durable row.

        Never goes back within one reader.  A new reader may be told less than an earlier one while no ingest has
        recovered the log after a power cut, so never answer Spark with less than the start that it gave.
        """
        self._end = max(self._end, self._epochs.durable_end())
        return self._end

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
            before = index.octets_before(max(start, index.segment.first))
            row = index.row_at(before + left)
            if row < min(limit, index.end):
                return max(start + 1, row)
            left -= index.octets_before(min(limit, index.end)) - before
        return limit

    def bytes_between(self, start: int, end: int) -> int:
        """Payload octets of these rows; inside a frame in proportion."""
        total = 0
        for part in self._cover(start, end):
            index = part.index
            total += index.octets_before(min(end, index.end)) - index.octets_before(max(start, index.segment.first))
        return total

    def split(self, start: int, end: int, parts: int) -> list[tuple[int, int]]:
        """Up to `parts` neighbouring ranges of about equal size, none empty, cut between frames where that is near."""
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

    # -- rows

    def read(
        self, start: int, end: int, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Exactly rows start .. end - 1 as RecordBatches of `onceway.spark.columns.schema(columns)`.

        Batches hold about batch_rows.  Raises WalMissing where rows are trimmed or not there, WalDamaged.  Does not ask
        for end(): what was once told to be durable can be read at any time, also before an ingest has started.
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
        """(first row, RecordBatch of `frames.SCHEMA`), as they lie in the log but for their size."""
        gathered: list[Any] = []
        first, rows, octets = start, 0, 0
        for frame, batch in self._frames(start, end):
            low, high = max(start, frame.first), min(end, frame.end)
            if high - low < frame.rows:
                batch = batch.slice(low - frame.first, high - low)
            if gathered and (rows + high - low > batch_rows or octets + frame.length > _BATCH_OCTETS):
                yield first, _joined(gathered)
                gathered, first, rows, octets = [], low, 0, 0
            gathered.append(batch)
            rows += high - low
            octets += frame.length
        if gathered:
            yield first, _joined(gathered)

    def _frames(self, start: int, end: int) -> Iterator[tuple[Frame, Any]]:
        """The frames that hold these rows, checked.  Each read is of several that lie together."""
        for part in self._cover(start, end):
            index = part.index
            number = index.at(max(start, index.segment.first))
            file = open_segment(index.path)
            try:
                while number < len(index) and index.frame(number).first < end:
                    run = [index.frame(number)]
                    number += 1
                    while number < len(index) and run[-1].end < end and run[-1].stop - run[0].offset < _READ_OCTETS:
                        run.append(index.frame(number))
                        number += 1
                    data = _pread(file, run[-1].stop - run[0].offset, run[0].offset)
                    whole = pa.py_buffer(data)
                    for frame in run:
                        at = frame.offset - run[0].offset + FRAME_HEAD
                        if not body_is_good(frame, memoryview(data)[at : at + frame.length]):
                            raise WalDamaged(
                                f"{index.path}: offset {frame.offset}: rows {frame.first} to {frame.end - 1} are "
                                f"damaged (checksum); {DAMAGED}"
                            )
                        yield frame, decode_body(whole.slice(at, frame.length))
            finally:
                os.close(file)

    # -- which segments

    def _cover(self, start: int, end: int) -> list[_Part]:
        """The segments that hold rows start .. end - 1, in order, each indexed up to there."""
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

    def _covered(self, start: int, end: int) -> list[_Part] | None:
        """None where what is listed does not reach."""
        covering = []
        at = start
        for part in self._parts:
            index = part.index
            if part.limit is not None and part.limit <= at:
                continue
            if index.segment.first > at:
                return None
            to = end if part.limit is None else min(end, part.limit)
            index.extend(to)
            if index.end > at:
                covering.append(part)
            at = min(to, index.end)
            if at >= end:
                return covering
            if at < to:
                return None  # the frames stop short of where the next segment begins
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
        for segment, following in zip(counted, [*counted[1:], None], strict=False):  # none, where all are lost
            end = epochs.ends.get(segment.epoch)
            limits = [row for row in (following and following.first, end) if row is not None]
            limit = min(limits) if limits else None
            if limit is None or limit > start:
                parts.append(_Part(known.get(segment) or SegmentIndex(self.directory, segment, self._uuid), limit))
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
                continue  # nobody has looked into it
            if index.segment.first > at:
                break
            at = max(at, index.end)
            if part.limit is not None and index.end < part.limit:
                return WalDamaged(
                    f"{index.path}: offset {index.stop}: row {index.end} should follow and no good frame is "
                    f"there, though the log goes on to row {part.limit}: damaged, or a segment behind it was removed; "
                    f"{DAMAGED}"
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
    if 0 < len(data) < length:  # a read of more than 2 GiB, or a signal
        parts = [data]
        got = len(data)
        while got < length:
            more = os.pread(file, length - got, offset + got)
            if not more:
                break
            parts.append(more)
            got += len(more)
        data = b"".join(parts)
    return data
