"""The writing side of a slot: rows in, groups made durable by a thread (group commit).

The event loop only appends to a list.  The thread takes what has gathered, up to groupRows or after groupMs, writes it
as one frame, waits for one fdatasync, moves the mark, and tells the owner: now those rows may be accepted.  While it
waits for the disk the next group gathers, so the slower the disk, the larger the groups.

After any disk error the writer stops: nothing more is written or becomes durable, and `failure` says why.  What was
durable stays; a new writer recovers it (`storage`).  `SlotWriter(...)` locks the slot and finds its end; `fence`
claims, recovers and opens its epoch (once the link is attached: see `fencing`); then come rows.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa

from onceway.base import waits
from onceway.spark.errors import WalError, explain, fenced_off
from onceway.spark.wal.frames import encode_batch
from onceway.spark.wal.storage import Retention, Storage, Tail

# Fractions of groupMs: after so long without a row no more is expected; groups that are not full are so far apart.
QUIET: Final = 0.02
APART: Final = 0.1


@dataclass(frozen=True, slots=True)
class WalSettings:
    """`groupRows`, `groupMs`, `segmentBytes`, `leaseTimeout`, `lockTimeout`."""

    group_rows: int = 5000  # one group: one frame, one fdatasync
    group_bytes: int = 16 << 20  # of payload; a single larger message is a group of its own
    group_ms: float = 50.0  # how long a group waits for more rows at most; a fiftieth where none come (`Gathering`)
    segment_bytes: int = 64 << 20
    lease_s: float = 10.0
    lock_timeout_s: float = 10.0  # how long to wait for another process's lock (a killed driver's: up to 4 s)


class SlotWriter:
    """One slot, under its lock."""

    def __init__(
        self,
        storage: Storage,
        slot: int,
        topic: str,
        settings: WalSettings,
        on_change: Callable[[SlotWriter], None],
    ) -> None:
        """Claims the slot (waits up to lockTimeout) and finds its end.  Raises WalError."""
        self.slot = slot
        self.topic = topic
        self.storage = storage
        storage.on_lost = self._lost
        self.place = storage.place
        self.durable = 0  # the number after the last durable row
        self.failure: WalError | None = None  # why nothing more becomes durable
        self.settings = settings
        self._on_change = on_change
        self._condition = waits.LOG_WRITTEN(threading.Condition())
        self._gathering = Gathering(settings, storage.apart_s)
        self._writing = 0  # payload bytes of the group that is being written
        self.unsettled = Unsettled()
        self._task: Callable[[], None] | None = None  # a small write for the journal
        self._task_at = 0.0
        self._trim: tuple[int, Retention] | None = None
        self._closing = False
        self._fenced = False
        self._thread: threading.Thread | None = None
        try:
            self.tail: Tail = storage.claim(settings.lock_timeout_s)
        except OSError as error:
            storage.close()
            raise explain(error, self.place, "recovering the log") from error
        except BaseException:
            storage.close()
            raise
        self.durable = self._end = self.tail.end

    @property
    def end(self) -> int:
        """The number after the last row appended."""
        return self._end

    @property
    def start(self) -> int:
        """The first row that is still there."""
        return self.storage.start

    @property
    def pending_bytes(self) -> int:
        """Payload bytes appended and not durable yet."""
        return self._gathering.size + self._writing

    # -- fencing

    def fence(self, epoch: int) -> None:
        """Takes the log over: from now on, rows that an older writer adds do not count.

        Blocks for a few fsyncs.  A second call, by a link that has attached again, only checks that the log is still
        ours.  Raises WalError (WalFenced where a later process has taken it over).
        """
        if self.failure is not None:
            raise self.failure
        if self._fenced:
            self.check_ours()
            return
        try:
            tail = self.storage.take_over(epoch, self.settings.segment_bytes)
        except OSError as error:
            raise self.fail(explain(error, self.place, "taking the log over")) from error
        except WalError as error:
            raise self.fail(error) from error
        self._fenced = True
        with self._condition:
            self.tail = tail
            self.durable = self._end = tail.end
        self._thread = threading.Thread(target=self._work, name=f"wal {self.place}", daemon=True)
        self._thread.start()

    def _lost(self) -> None:
        self.fail(fenced_off(self.place))

    def check_ours(self) -> None:
        """Raises WalFenced where a later process has taken over.  Else every row that is durable counts."""
        if not self.storage.is_ours():
            raise self.fail(fenced_off(self.place))

    # -- rows

    def append(
        self, payloads: Sequence[bytes], tags: Sequence[bytes], received_us: int | None = None, *, settled: bool = False
    ) -> int:
        """Appends rows, in order; returns `end` after them: accept them when `durable` has reached it.

        Never waits.  received_us: wall clock, now unless given.  settled: deliveries that need no outcome, whose tags
        are not remembered.  Raises the `failure`, if there is one.
        """
        if received_us is None:
            received_us = time.time_ns() // 1000
        size = sum(map(len, payloads))
        with self._condition:
            if self.failure is not None:
                raise self.failure
            assert self._fenced, "rows before fence()"
            assert len(payloads) == len(tags)
            if payloads:
                waiting = self._gathering.rows
                self._gathering.add(Run(payloads, tags, received_us, size), time.monotonic())
                if not settled:
                    self.unsettled.add(tags, self._end)
                self._end += len(payloads)
                if not waiting or self._gathering.full():
                    self._condition.notify_all()
            return self._end

    def flush(self) -> None:
        """Writes the rows appended so far without waiting for more."""
        with self._condition:
            self._gathering.flush()
            self._condition.notify_all()

    def drain(self) -> None:
        """Waits until all appended rows are durable.  Raises the failure, if there is one."""
        self.flush()
        with self._condition:
            self._condition.wait_for(lambda: self.durable >= self._end or self.failure is not None)
        if self.failure is not None:
            raise self.failure

    def trim(self, up_to: int, retention: Retention | None = None) -> None:
        """Spark has committed the rows before up_to: whole segments of them are removed, in the background."""
        with self._condition:
            self._trim = (min(up_to, self.durable), retention or Retention())
            self._condition.notify_all()

    def settle(self, tags: Sequence[bytes]) -> None:
        """The network has settled these deliveries: they will not come again."""
        with self._condition:
            self.unsettled.remove(tags)

    def settled(self) -> tuple[int, list[tuple[int, int]]]:
        """(a row, the ranges of rows before it that the network has not settled).

        Only of durable rows: after a restart the numbers of others may belong to other deliveries.
        """
        with self._condition:
            durable = self.durable
            return durable, [(low, min(high, durable)) for low, high in self.unsettled.ranges() if low < durable]

    def note(self, task: Callable[[], None], within_s: float = 0.0) -> None:
        """Runs a task, which may raise OSError, in the thread (before `fence`: here); a later one replaces it."""
        if self.failure is not None:
            return
        if self._thread is None:
            try:
                task()
            except OSError as error:
                self.fail_on(error, "writing the link's state")
            return
        with self._condition:
            due = time.monotonic() + within_s
            self._task_at = due if self._task is None else min(self._task_at, due)
            self._task = task
            self._condition.notify_all()

    def close(self) -> None:
        """Makes the appended rows durable, then releases the slot.  May block briefly."""
        if self._thread is not None:
            with self._condition:
                self._closing = True
                self._condition.notify_all()
            waits.LOG_WRITTEN(self._thread).join()
            self._thread = None
        self.storage.close()

    # -- the thread

    def _work(self) -> None:
        try:
            while self._step():
                pass
        except OSError as error:
            self.fail_on(error, "writing the log")
        except WalError as error:
            self.fail(error)
        except BaseException as error:
            self.fail(WalError(f"{self.place}: a defect in onceway: {error!r}; stopped, nothing is lost"))
            raise

    def _step(self) -> bool:
        """Waits for something to do, and does it; False when the thread is to end."""
        with self._condition:
            while True:
                now = time.monotonic()
                wait = self._wait_s(now)
                if wait is not None and wait <= 0:
                    break
                self._condition.wait(wait)
            due = self._gathering.wait_s(now)
            group = self._gathering.take(now) if due is not None and (due <= 0 or self._closing) else []
            self._writing = sum(run.size for run in group)
            task = None
            if self._task is not None and (self._task_at <= now or self._closing):
                task, self._task = self._task, None
            trim, self._trim = self._trim, None
            ending = self._closing and not self._gathering.rows
        if group:
            self._commit(group)
        if task is not None:
            task()
        if trim is not None:
            self._trim_now(*trim)
        return not ending

    def _wait_s(self, now: float) -> float | None:
        """How long until there is something to do; None: until notified."""
        if self._closing or self._trim is not None:
            return 0.0
        waits = [self._gathering.wait_s(now), self._task_at - now if self._task is not None else None]
        return min((wait for wait in waits if wait is not None), default=None)

    def _commit(self, group: list[Run]) -> None:
        """Writes one frame and makes it durable."""
        self.check_ours()
        payloads = [payload for run in group for payload in run.payloads]
        times = [pa.repeat(pa.scalar(run.received_us, pa.int64()), len(run.payloads)) for run in group]
        received: Any = times[0] if len(times) == 1 else pa.concat_arrays(times)
        batch = encode_batch(payloads, [tag for run in group for tag in run.tags], received)
        self.storage.append(self.storage.encode(batch, self._writing, group[-1].received_us), len(payloads))
        end = self.durable + len(payloads)
        with self._condition:
            self.durable = end
            self._writing = 0
            self._condition.notify_all()
        self._on_change(self)

    def _trim_now(self, up_to: int, retention: Retention) -> None:
        with self._condition:
            up_to = min(up_to, self.unsettled.lowest(up_to))
        self.storage.trim(up_to, retention)

    def fail_on(self, error: OSError, doing: str) -> None:
        """The disk refused something; of a log that was taken over, the successor has removed what was unfinished."""
        failure: WalError = explain(error, self.place, doing)
        with contextlib.suppress(OSError, WalError):
            if self._fenced and not self.storage.is_ours():
                failure = fenced_off(self.place)
        self.fail(failure)

    def fail(self, error: WalError) -> WalError:
        with self._condition:
            if self.failure is None:
                self.failure = error
            error = self.failure
            self._condition.notify_all()
        self._on_change(self)
        return error


class Run(NamedTuple):
    """Rows that were appended together."""

    payloads: Sequence[bytes]
    tags: Sequence[bytes]
    received_us: int
    size: int  # payload bytes


class Gathering:
    """Rows for the next group, until it is full, no more rows come, or the first row has waited long enough.

    A publisher may send only so many messages ahead of their outcome (the router's window), so waiting for more than
    these would hold it up to one window per groupMs.  Not thread-safe.
    """

    __slots__ = ("_apart_s", "_flush", "_last", "_runs", "_settings", "_since", "_taken", "rows", "size")

    def __init__(self, settings: WalSettings, apart_s: float = 0.0) -> None:
        """apart_s: groups are so far apart, even if they are full: each costs a request."""
        self.rows = 0
        self.size = 0
        self._apart_s = apart_s
        self._settings = settings
        self._runs: deque[Run] = deque()
        self._since = 0.0  # when the first row was added
        self._last = 0.0  # and the last
        self._taken = -math.inf  # when the last group was taken
        self._flush = 0  # how many of the first rows wait for no others

    def add(self, run: Run, now: float) -> None:
        if not self._runs:
            self._since = now
        self._last = now
        self._runs.append(run)
        self.rows += len(run.payloads)
        self.size += run.size

    def flush(self) -> None:
        """The present rows wait for no others."""
        self._flush = self.rows

    def full(self) -> bool:
        return self.rows >= self._settings.group_rows or self.size >= self._settings.group_bytes

    def wait_s(self, now: float) -> float | None:
        """How long until a group is due (0 or less: now); None: there are no rows."""
        if not self.rows:
            return None
        earliest = self._taken + self._apart_s - now
        if self._flush or self.full():
            return earliest if self._apart_s else 0.0
        longest = self._settings.group_ms / 1000
        due = min(self._since + longest, max(self._last + longest * QUIET, self._taken + longest * APART)) - now
        return max(due, earliest) if self._apart_s else due

    def take(self, now: float) -> list[Run]:
        """The rows of one group, at least one; the last run may be split."""
        room, size = self._settings.group_rows, self._settings.group_bytes
        group: list[Run] = []
        while self._runs and room:
            run = self._runs[0]
            if len(run.payloads) <= room and run.size <= size:
                group.append(self._runs.popleft())
                room -= len(run.payloads)
                size -= run.size
                continue
            sizes = list(accumulate(map(len, run.payloads[:room])))
            fits = bisect_right(sizes, size) or (0 if group else 1)
            if fits:
                fitting = sizes[fits - 1]
                group.append(Run(run.payloads[:fits], run.tags[:fits], run.received_us, fitting))
                left = Run(run.payloads[fits:], run.tags[fits:], run.received_us, run.size - fitting)
                if left.payloads:
                    self._runs[0] = left
                else:
                    self._runs.popleft()
            break
        count = sum(len(run.payloads) for run in group)
        self.rows -= count
        self.size -= sum(run.size for run in group)
        self._flush = max(0, self._flush - count)
        self._since = self._taken = now
        return group


class Unsettled:
    """The tags of rows that the network has not settled: their deliveries may come again and must be recognised.

    Bounded by the deliveries that the network has under way to this link.  Not thread-safe.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}  # tag -> row

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, tags: Sequence[bytes], first: int) -> None:
        """Adds the tags of rows first, first + 1 ...

        A known tag now names the later row: the earlier delivery was settled, or its tag would not be in use again.
        """
        self._rows.update(zip(tags, range(first, first + len(tags)), strict=True))

    def remove(self, tags: Iterable[bytes]) -> None:
        """Unknown tags are ignored."""
        deque(map(self._rows.pop, tags, repeat(None)), maxlen=0)

    def clear(self) -> None:
        self._rows.clear()

    def tags(self) -> list[bytes]:
        """In the order of rows."""
        return sorted(self._rows, key=self._rows.__getitem__)

    def lowest(self, default: int) -> int:
        """The first of these rows."""
        return min(self._rows.values(), default=default)

    def ranges(self) -> list[tuple[int, int]]:
        """The rows as (first, end), ascending."""
        ranges: list[tuple[int, int]] = []
        for row in sorted(self._rows.values()):
            if ranges and ranges[-1][1] == row:
                ranges[-1] = (ranges[-1][0], row + 1)
            else:
                ranges.append((row, row + 1))
        return ranges
