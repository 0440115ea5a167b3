"""One running query on its driver: which rows there are, which make the next batch, and what is done with.

Everything that Spark asks is answered from the log, which tells what is durable (`wal.reading`); the network is the
ingests' business, other processes that this one only starts, watches and tells how far Spark is.  So nothing here waits
for the network but `freeze`, which has to.  Knows nothing of Spark's classes, so that it is tested without.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from onceway.spark.errors import DataLoss
from onceway.spark.gaps import GapFile
from onceway.spark.ingests import Ingests
from onceway.spark.offsets import Offset, offset_of
from onceway.spark.options import MIB, SourceOptions
from onceway.spark.wal import SlotReader, Wal

INLINE_BYTES: Final = 64 * MIB  # of a batch that travels through the driver, unless maxBytesPerTrigger says otherwise
_NEW_LOG: Final = "give the query a new checkpoint, or go on with what there is by failOnDataLoss=false"


@dataclass(frozen=True, slots=True)
class Range:
    """Rows start .. end - 1 of a slot, for one task."""

    reader: SlotReader
    start: int
    end: int

    @property
    def slot(self) -> int:
        return self.reader.number


class Receiving(Protocol):
    """What a stream needs of the ingests; tests bring their own."""

    def begin(self) -> None: ...

    def recovered(self, slot: int) -> bool:
        """Its log is as long as it will be found: recovered by its ingest, or none has it."""
        ...

    def check(self) -> None:
        """Raises IngestFailed if one of them cannot go on."""
        ...

    def drain(self, timeout_s: float) -> dict[int, int]:
        """Receives what the network holds for us now; the end of each slot that has it all."""
        ...

    def processed(self, positions: Mapping[int, int]) -> None: ...
    def trim(self, positions: Mapping[int, int]) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def stop(self) -> None: ...


def say(text: str) -> None:
    """To the driver's log."""
    print(f"onceway: {text}", file=sys.stderr, flush=True)  # noqa: T201


class Stream:
    """`begin`, then Spark's calls in whatever order it makes them."""

    def __init__(
        self,
        options: SourceOptions,
        ingests: Callable[[SourceOptions, Wal], Receiving] = Ingests,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._clock = clock
        self.wal = Wal.open_or_create(options.location, options.subscription, options.topics)
        self._ingests = ingests(options, self.wal)
        self._log = _Log(self.wal, options.fail_on_data_loss, self._ingests.recovered)
        self._initial: Offset | None = None
        self._frozen: dict[int, int] | None = None
        self._planned = clock()  # when the last batch was
        self._at: dict[int, int] = {}  # how far batches have been planned
        self._committed: Offset | None = None

    def begin(self) -> None:
        self._ingests.begin()

    def initial(self) -> Offset:
        """Where a query without a checkpoint starts; the same each time it is asked."""
        if self._initial is None:
            positions = _starting(self._log, self._options.starting)
            self._initial = Offset(self.wal.uuid, positions)
        return self._initial

    def latest(self, start: Offset, *, limited: bool) -> Offset:
        """The end of the next batch; `start` itself where there is to be none yet.  Raises IngestFailed, DataLoss."""
        self._ingests.check()
        begins = self._log.begins(start)
        ends = {slot: max(begins[slot], end) for slot, end in self._available().items()}
        self._at = begins  # what is behind a batch that is planned now is what Spark lags by
        self._ingests.processed(begins)
        if start.wal != self.wal.uuid or any(begins.get(slot) != at for slot, at in start.positions.items()):
            # What is missing is passed over by a batch of its own, without rows, so that Spark writes down from where
            # it goes on: a log that went back will reach the old position again.
            return Offset(self.wal.uuid, begins)
        ends = self._log.stop_at_gaps(begins, ends)
        if ends == begins:
            return start
        if limited or self._options.transport == "inline":
            if limited and self._too_few(begins, ends):
                return start
            ends = self._within_limits(begins, ends, limited)
        self._planned = self._clock()
        self._at = ends
        return Offset(self.wal.uuid, ends)

    def _available(self) -> dict[int, int]:
        if self._frozen is not None:
            return self._frozen
        return self._log.ends()

    def _too_few(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> bool:
        """minRowsPerTrigger asks to wait.  Not where no more will come."""
        least = self._options.min_rows
        if least is None or self._frozen is not None:
            return False
        there = sum(ends[slot] - begins[slot] for slot in ends)
        return there < least and self._clock() - self._planned < self._options.max_delay_s

    def _within_limits(self, begins: Mapping[int, int], ends: Mapping[int, int], limited: bool) -> dict[int, int]:
        """Each slot gets its share of the rows and bytes, by what there is of it."""
        rows = self._options.max_rows if limited else None
        octets = self._options.max_bytes if limited else None
        if octets is None and self._options.transport == "inline":
            octets = INLINE_BYTES
        if rows is None and octets is None:
            return dict(ends)
        there = {slot: end - begins[slot] for slot, end in ends.items()}
        sizes = {slot: self._log.bytes_between(slot, begins[slot], end) for slot, end in ends.items()}
        row_shares = _shares(rows, there)
        octet_shares = _shares(octets, sizes)
        limits = {}
        for slot, end in ends.items():
            if not there[slot] or row_shares[slot] == 0:
                limits[slot] = begins[slot]
                continue
            bound = self._log.readers[slot].bounds(begins[slot], row_shares[slot], octet_shares[slot])
            limits[slot] = max(begins[slot], min(end, bound))
        return limits

    def freeze(self) -> None:
        """Trigger.AvailableNow: receive what is there, then behave as if nothing more came."""
        ends = self._ingests.drain(self._options.drain_timeout_s)
        self._frozen = {**self._log.ends(), **ends}

    def ranges(self, start: Offset, end: Offset) -> list[Range]:
        """The tasks of a batch.  May be the first call after a restart: needs no ingest.  Raises DataLoss."""
        begins, ends = self._log.batch(start, end)
        return _tasks(self._log.readers, begins, ends, self._options.min_partitions)

    def commit(self, end: Offset) -> None:
        """Spark has written down that everything before `end` is done.

        Trimming lags one batch: the batch that ended here may still be asked for until the next one is written down.
        """
        if end.wal != self.wal.uuid:
            return
        self._ingests.processed(end.positions)
        if self._committed is not None:
            self._ingests.trim(self._committed.positions)
        self._committed = end

    def report(self) -> dict[str, Any]:
        """For progress: the end of the log, how far Spark is behind it, and how the ingests are."""
        ends = self._log.ends()
        at = {slot: min(self._at.get(slot, end), end) for slot, end in ends.items()}
        return Offset(self.wal.uuid, ends).with_extra(
            lagRows=sum(ends[slot] - at[slot] for slot in ends),
            backlogBytes=sum(self._log.bytes_between(slot, at[slot], end) for slot, end in ends.items()),
            **self._ingests.state(),
        )

    def stop(self) -> None:
        self._ingests.stop()


class _Log:
    """The log's slots as one, and what is missing from it."""

    def __init__(self, wal: Wal, fail_on_data_loss: bool, recovered: Callable[[int], bool] = lambda slot: True) -> None:
        self._wal = wal
        self._recovered = recovered
        self._fail = fail_on_data_loss
        self.readers = {slot: wal.slot(slot) for slot in wal.slots}
        self._gaps = {slot: GapFile(wal.location, slot) for slot in wal.slots}
        self._told: dict[str, None] = {}

    def starts(self) -> dict[int, int]:
        return {slot: reader.start() for slot, reader in self.readers.items()}

    def ends(self) -> dict[int, int]:
        return {slot: reader.end() for slot, reader in self.readers.items()}

    def bytes_between(self, slot: int, start: int, end: int) -> int:
        return self.readers[slot].bytes_between(start, end) if end > start else 0

    def lost(self, what: str, remedy: str) -> None:
        """An error, or where that is wanted a warning, once."""
        if self._fail:
            raise DataLoss(f"{what}; {remedy}")
        if what not in self._told:
            self._told[what] = None
            say(f"warning: {what} (failOnDataLoss is false: going on without)")

    def known(self, offset: Offset) -> dict[int, int]:
        """Its positions in this log; none where it belongs to another one."""
        if offset.wal != self._wal.uuid:
            self.lost(
                f"the checkpoint goes on in the log {offset.wal}, but {self._wal.location} holds {self._wal.uuid}: "
                "the log was lost or replaced, and with it what was received and not processed",
                f"restore the directory, or {_NEW_LOG}",
            )
            return {}
        for slot in offset.positions:
            if slot not in self.readers:
                self.lost(
                    f"the checkpoint has a position in slot {slot}, which {self._wal.location} does not have",
                    f"restore the directory, or {_NEW_LOG}",
                )
        return {slot: position for slot, position in offset.positions.items() if slot in self.readers}

    def begins(self, start: Offset) -> dict[int, int]:
        """For every slot where to go on."""
        known = self.known(start)
        return {slot: self._readable(slot, known.get(slot, first), first) for slot, first in self.starts().items()}

    def _readable(self, slot: int, position: int, first: int) -> int:
        if position >= first:
            return self._there(slot, position)
        self.lost(
            f"rows {position} to {first - 1} of slot {slot} ({self._wal.slots[slot]}) in {self._wal.location} were "
            "trimmed: the checkpoint is older than what is kept",
            f"keep more by walRetention where checkpoints are rolled back; {_NEW_LOG}",
        )
        return first

    def _there(self, slot: int, position: int) -> int:
        """Not behind the end.  After a power cut readers are told less until an ingest has recovered the log."""
        if position <= self.readers[slot].end() or not self._recovered(slot):
            return position
        end = self.readers[slot].end()  # again: what was recovered may have come in between
        if position > end:
            self.lost(
                f"the checkpoint is at row {position} of slot {slot} ({self._wal.slots[slot]}), but the log in "
                f"{self._wal.location} ends at {end}: it is older than the checkpoint, or was damaged",
                f"restore the directory, or {_NEW_LOG}",
            )
        return min(position, end)

    def batch(self, start: Offset, end: Offset) -> tuple[dict[int, int], dict[int, int]]:
        """First and last positions of a batch that was planned, perhaps by an earlier process."""
        begins = self.begins(start)
        ends = {slot: self._there(slot, position) for slot, position in self.known(end).items()}
        return begins, ends

    def stop_at_gaps(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """Rows before a gap still make a batch; where it is reached, it is told."""
        stops = {}
        for slot, end in ends.items():
            stops[slot] = end
            for gap in self._gaps[slot].read().between(begins[slot], end):
                if self._fail and gap.at > begins[slot]:
                    stops[slot] = gap.at
                    break
                again = f", and {gap.dropped} rows before it may come twice" if gap.dropped else ""
                self.lost(
                    f"messages of topic {self._wal.slots[slot]} may be missing before row {gap.at} of slot {slot} "
                    f"({gap.reason}){again}",
                    "the network waits for a subscription as long as its address allows (subscription_timeout in the "
                    "topology); go on once by failOnDataLoss=false",
                )
        return stops


def batch_ranges(options: SourceOptions) -> list[Range]:
    """Of a batch read: everything that the log holds, or from startingOffsets to endingOffsets."""
    log = _Log(Wal.open(options.location), options.fail_on_data_loss)
    begins = _starting(log, options.starting)
    ends = log.ends()
    if options.ending != "latest":
        known = log.known(offset_of(options.ending))
        for slot, position in known.items():
            if position > ends[slot]:
                log.lost(f"slot {slot} ends at {ends[slot]}, before endingOffsets' {position}", "lower it")
        ends = {slot: min(known.get(slot, end), end) for slot, end in ends.items()}
    return _tasks(log.readers, begins, ends, options.min_partitions)


def _tasks(
    readers: Mapping[int, SlotReader], begins: Mapping[int, int], ends: Mapping[int, int], least: int | None
) -> list[Range]:
    """One for each slot with rows; more, by its share of the rows, where at least so many are wanted."""
    sizes = {slot: ends[slot] - begins[slot] for slot in ends if ends[slot] > begins[slot]}
    total = sum(sizes.values())
    tasks = []
    for slot, size in sizes.items():
        parts = 1 if least is None else -(-least * size // total)
        whole = [(begins[slot], ends[slot])]
        pieces = whole if parts == 1 else readers[slot].split(begins[slot], ends[slot], parts)
        tasks += [Range(readers[slot], low, high) for low, high in pieces]
    return tasks


def _starting(log: _Log, wanted: str) -> dict[int, int]:
    if wanted == "earliest":
        return log.starts()
    if wanted == "latest":
        return log.ends()
    return log.begins(offset_of(wanted))


def _shares(limit: int | None, there: Mapping[int, int]) -> dict[int, int | None]:
    """The limit divided by what there is of each, largest first so that rounding up never exceeds it."""
    if limit is None:
        return dict.fromkeys(there)
    shares: dict[int, int | None] = {}
    left, total = limit, sum(there.values())
    for slot in sorted(there, key=lambda slot: -there[slot]):
        share = min(there[slot], -(-left * there[slot] // total)) if total else 0
        shares[slot] = share
        left -= share
        total -= there[slot]
    return shares
