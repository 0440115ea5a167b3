"""One running query on its driver: which rows there are, which make the next batch, and what is done with.

Everything that Spark asks is answered from the log, which tells what is durable (`wal.reading`); the network is the
ingests' business, other processes that this one only starts, watches and tells how far Spark is.  So nothing here waits
for the network but `freeze`, which has to.  Knows nothing of Spark's classes, so that it is tested without.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from onceway.spark.ingests import Ingests
from onceway.spark.offsets import Offset, OffsetError, offset_of
from onceway.spark.options import MIB, SourceOptions
from onceway.spark.readable import Log, Range, say, starting, tasks
from onceway.spark.wal import Wal

INLINE_BYTES: Final = 64 * MIB  # of a batch that travels through the driver, unless maxBytesPerTrigger says otherwise


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
        self._log = Log(self.wal, options.fail_on_data_loss, self._ingests.recovered)
        self._initial: Offset | None = None
        self._frozen: dict[int, int] | None = None
        self._planned = clock()  # when the last batch was
        self._at: dict[int, int] = {}  # how far batches have been planned
        self._committed = _Committed(self.wal.location)

    def begin(self) -> None:
        self._ingests.begin()

    def initial(self) -> Offset:
        """Where a query without a checkpoint starts; the same each time it is asked."""
        if self._initial is None:
            positions = starting(self._log, self._options.starting)
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
        return tasks(self._log.readers, begins, ends, self._options.min_partitions)

    def commit(self, end: Offset) -> None:
        """Spark has written down that everything before `end` is done.

        Trimming lags one batch, also from one run to the next: a run of Trigger.AvailableNow may have a single one.
        """
        if end.wal != self.wal.uuid:
            return
        self._ingests.processed(end.positions)
        before = self._committed.read(self.wal.uuid)
        if before == end.positions:
            return  # said again after a restart
        if before is not None and all(position <= end.positions.get(slot, -1) for slot, position in before.items()):
            self._ingests.trim(before)  # else the checkpoint was rolled back
        self._committed.write(end)

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


class _Committed:
    """Where Spark's last commit was, remembered over restarts.  To know less, or nothing, only delays trimming."""

    def __init__(self, location: str) -> None:
        self._path = os.path.join(location, "committed.json")

    def read(self, wal: str) -> Mapping[int, int] | None:
        try:
            with open(self._path, encoding="utf-8") as file:
                offset = offset_of(file.read())
        except (FileNotFoundError, OffsetError):
            return None
        return offset.positions if offset.wal == wal else None

    def write(self, end: Offset) -> None:
        fresh = f"{self._path}.new"
        try:
            with open(fresh, "w", encoding="utf-8") as file:
                json.dump(end.as_dict(), file)
            os.replace(fresh, self._path)
        except OSError as error:
            say(f"warning: {self._path}: {error.strerror}: the log keeps a batch more")


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
