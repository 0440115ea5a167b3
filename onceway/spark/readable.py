"""A log's slots as one: which rows of it can be read, from where to where, and what is missing.

For the driver, of a stream or of a batch read.  It asks the log's readers and the gap files, and nobody else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from onceway.spark.errors import DataLoss, OptionError
from onceway.spark.gaps import GapFile
from onceway.spark.offsets import Offset, offset_of
from onceway.spark.options import SourceOptions
from onceway.spark.wal import SlotReader, Wal

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


def say(text: str) -> None:
    """To the driver's log."""
    print(f"onceway: {text}", file=sys.stderr, flush=True)  # noqa: T201


class Log:
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
    """Of a batch read: everything that the log holds (of `topic`, where that is given), or from startingOffsets to
    endingOffsets."""
    wal = Wal.open(options.location)
    log = Log(wal, options.fail_on_data_loss)
    begins = starting(log, options.starting)
    ends = log.ends()
    if options.ending != "latest":
        known = log.known(offset_of(options.ending))
        for slot, position in known.items():
            if position > ends[slot]:
                log.lost(f"slot {slot} ends at {ends[slot]}, before endingOffsets' {position}", "lower it")
            if position < begins[slot]:
                raise OptionError(
                    f"option endingOffsets: row {position} of slot {slot} is before the first one, {begins[slot]} "
                    "(startingOffsets, or what has been trimmed); raise it"
                )
        ends = {slot: min(known.get(slot, end), end) for slot, end in ends.items()}
    if options.topics:
        ends = {slot: ends[slot] for slot in map(wal.slot_of, options.topics)}
    return tasks(log.readers, begins, ends, options.min_partitions)


def tasks(
    readers: Mapping[int, SlotReader], begins: Mapping[int, int], ends: Mapping[int, int], least: int | None
) -> list[Range]:
    """One for each slot with rows; more, by its share of the rows, where at least so many are wanted."""
    sizes = {slot: ends[slot] - begins[slot] for slot in ends if ends[slot] > begins[slot]}
    total = sum(sizes.values())
    made = []
    for slot, size in sizes.items():
        parts = 1 if least is None else -(-least * size // total)
        whole = [(begins[slot], ends[slot])]
        pieces = whole if parts == 1 else readers[slot].split(begins[slot], ends[slot], parts)
        made += [Range(readers[slot], low, high) for low, high in pieces]
    return made


def starting(log: Log, wanted: str) -> dict[int, int]:
    if wanted == "earliest":
        return log.starts()
    if wanted == "latest":
        return log.ends()
    return log.begins(offset_of(wanted))
