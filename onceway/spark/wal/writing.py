"""The writing side of a slot: rows in, groups made durable by a thread.

The event loop only appends to a list.  The thread takes what has gathered, up to groupRows or after groupMs, writes it
as one frame, waits for one fdatasync, publishes the mark, and tells the owner: now those rows may be accepted.  While
it waits for the disk the next group gathers, so the slower the disk, the larger the groups.

After any error of the disk the writer is done for: nothing more is written, nothing more becomes durable, `failure`
says why.  What was durable stays; a new writer recovers it (`recovery`).  A writer's life: `SlotWriter(...)` locks and
looks; `fence` claims, recovers and opens its epoch (once the link is attached: see `fencing`); then rows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from onceway.spark.wal import trimming
from onceway.spark.wal.appending import Appending
from onceway.spark.wal.disk import Disk, explain
from onceway.spark.wal.errors import WalError, WalFenced
from onceway.spark.wal.fencing import (
    EpochReader,
    Epochs,
    Lock,
    mark_path,
    read_epochs,
    read_mark,
    write_epochs,
)
from onceway.spark.wal.frames import encode_batch, encode_frame, segments
from onceway.spark.wal.gathering import Gathering, Run
from onceway.spark.wal.recovery import Tail, find_tail, make_durable
from onceway.spark.wal.settings import Retention, WalSettings
from onceway.spark.wal.unsettled import Unsettled


class SlotWriter:
    """One slot, under its lock."""

    def __init__(
        self,
        directory: str,
        slot: int,
        topic: str,
        uuid: str,
        settings: WalSettings,
        on_change: Callable[[SlotWriter], None],
        disk: Disk | None = None,
    ) -> None:
        """Locks the slot (waits up to lockTimeout) and looks where it ends.  Raises WalError."""
        self.slot = slot
        self.topic = topic
        self.directory = directory
        self.durable = 0  # the number behind the last durable row
        self.failure: WalError | None = None  # why nothing more becomes durable
        self.settings = settings
        self._uuid = bytes.fromhex(uuid.replace("-", ""))
        self._on_change = on_change
        self._disk = disk or Disk()
        self._condition = threading.Condition()
        self._gathering = Gathering(settings)
        self._writing = 0  # octets of payload of the group that is on its way to the disk
        self.unsettled = Unsettled()
        self._task: Callable[[], None] | None = None  # something small to write, from the journal
        self._task_at = 0.0
        self._trim: tuple[int, Retention] | None = None
        self._closing = False
        self._epochs: Epochs | None = None
        self._epoch = 0  # ours, once fenced
        self._epoch_reader = EpochReader(directory)
        self._files: Appending | None = None  # once fenced
        self._thread: threading.Thread | None = None
        try:
            if not os.path.isdir(directory):
                self._disk.make_directory(directory)
                self._disk.sync_directory(os.path.dirname(directory))
        except OSError as error:
            raise explain(error, directory, "making the slot's directory") from error
        self._lock = Lock(os.path.join(directory, "lock"), settings.lock_timeout_s)
        try:
            self._look()
        except OSError as error:
            self._lock.release()
            raise explain(error, directory, "recovering the log") from error
        except BaseException:
            self._lock.release()
            raise

    def _look(self) -> None:
        self._epochs = read_epochs(self.directory)
        self._start = trimming.read_start(self.directory)
        # how the log ends, for whoever reports it
        self.tail: Tail = find_tail(self.directory, self._epochs, self._start, self._uuid)
        self.durable = self._end = self.tail.end

    @property
    def end(self) -> int:
        """The number behind the last row appended."""
        return self._end

    @property
    def start(self) -> int:
        """The first row that is still there."""
        return self._start

    @property
    def pending_bytes(self) -> int:
        """Payload octets appended and not durable yet."""
        return self._gathering.octets + self._writing

    # -- fencing

    def fence(self, epoch: int) -> None:
        """Takes the log over: whatever an older writer adds from now on does not exist.

        Blocks for a few fsyncs.  A second call, by a link that has been attached again, only makes sure that the log
        is still ours.  Raises WalError (WalFenced where a later process has taken it over).
        """
        if self.failure is not None:
            raise self.failure
        if self._epoch:
            self._check_ours()
            return
        try:
            self._take_over(epoch)
        except OSError as error:
            raise self.fail(explain(error, self.directory, "taking the log over")) from error
        self._thread = threading.Thread(target=self._work, name=f"wal {self.directory}", daemon=True)
        self._thread.start()

    def _take_over(self, epoch: int) -> None:
        disk, directory = self._disk, self.directory
        old = read_epochs(directory) or Epochs(0, 0)
        epoch = max(epoch, old.epoch + 1)
        told = EpochReader(directory).durable_end()
        write_epochs(disk, directory, Epochs(epoch, old.open, old.ends, told))  # the claim
        self._start = trimming.read_start(directory)
        tail = find_tail(directory, old, self._start, self._uuid)
        make_durable(disk, directory, old, tail)
        if tail.end > old.last_end and old.open:
            old.ends[old.open] = tail.end
        ends = {number: end for number, end in old.ends.items() if end > self._start or end == old.last_end}
        write_epochs(disk, directory, Epochs(epoch, epoch, ends))  # the fence
        self._epochs = Epochs(epoch, epoch, ends)
        self._epoch = epoch
        with self._condition:
            self.tail = tail
            self.durable = self._end = tail.end
        self._files = Appending(disk, directory, self._uuid, epoch, tail.end, self.settings.segment_bytes)
        trimming.remove_leftovers(disk, directory, self._start)
        for number in {old.open, old.epoch} - {0}:
            if read_mark(directory, number) is not None:
                disk.remove(mark_path(directory, number))
        self._files.whole = [segment for segment in segments(directory) if self._epochs.counts(segment)]

    def _check_ours(self) -> None:
        """Not what fencing rests on: it tells a process that was fenced off that it was."""
        epochs = self._epoch_reader.get()
        if epochs is None or epochs.epoch != self._epoch:
            raise self.fail(
                WalFenced(
                    f"{self.directory}: a later process has taken this log over; what this one received since comes "
                    "to that one.  Stop one of the two queries; if flock does not reach other hosts on this file "
                    "system, nothing else keeps them apart"
                )
            )

    # -- rows

    def append(
        self,
        payloads: Sequence[bytes],
        tags: Sequence[bytes],
        received_us: int | None = None,
        *,
        settled: bool = False,
    ) -> int:
        """Rows to be made durable, in order; returns `end` after them: accept them when `durable` has reached it.

        Never waits.  received_us: wall clock, now unless given.  settled: deliveries that want no verdict, whose tags
        are not kept in mind.  Raises the `failure`, if there is one.
        """
        if received_us is None:
            received_us = time.time_ns() // 1000
        octets = sum(map(len, payloads))
        with self._condition:
            if self.failure is not None:
                raise self.failure
            assert self._epoch, "rows before fence()"
            assert len(payloads) == len(tags)
            if payloads:
                waiting = self._gathering.rows
                self._gathering.add(Run(payloads, tags, received_us, octets), time.monotonic())
                if not settled:
                    self.unsettled.add(tags, self._end)
                self._end += len(payloads)
                if not waiting or self._gathering.full():
                    self._condition.notify_all()
            return self._end

    def flush(self) -> None:
        """The rows appended so far wait for no others."""
        with self._condition:
            self._gathering.flush()
            self._condition.notify_all()

    def drain(self) -> None:
        """Waits until all that was appended is durable.  Raises the failure, if there is one."""
        self.flush()
        with self._condition:
            self._condition.wait_for(lambda: self.durable >= self._end or self.failure is not None)
        if self.failure is not None:
            raise self.failure

    def trim(self, up_to: int, retention: Retention | None = None) -> None:
        """Rows before up_to are done with: whole segments of them may go, in the background."""
        with self._condition:
            self._trim = (min(up_to, self.durable), retention or Retention())
            self._condition.notify_all()

    def settle(self, tags: Sequence[bytes]) -> None:
        """The network is done with these: they will not come again."""
        with self._condition:
            self.unsettled.remove(tags)

    def settled(self) -> tuple[int, list[tuple[int, int]]]:
        """(up to which row this is known, the rows before it, as ranges, that the network has not settled).

        Of durable rows only: the numbers of others may be given again to other deliveries, by another life.
        """
        with self._condition:
            durable = self.durable
            return durable, [(low, min(high, durable)) for low, high in self.unsettled.ranges() if low < durable]

    def note(self, task: Callable[[], None], within_s: float = 0.0) -> None:
        """Has the thread (before `fence`: the caller) run this, which may raise OSError; a later one replaces it."""
        if self.failure is not None:
            return
        if self._thread is None:
            try:
                task()
            except OSError as error:
                self.fail(explain(error, self.directory, "writing what the link needs to remember"))
            return
        with self._condition:
            due = time.monotonic() + within_s
            self._task_at = due if self._task is None else min(self._task_at, due)
            self._task = task
            self._condition.notify_all()

    def close(self) -> None:
        """Makes durable what was appended, then lets go.  May block for a moment."""
        if self._thread is not None:
            with self._condition:
                self._closing = True
                self._condition.notify_all()
            self._thread.join()
            self._thread = None
        if self._files is not None:
            self._files.close()
        self._lock.release()

    # -- the thread

    def _work(self) -> None:
        try:
            while self._step():
                pass
        except OSError as error:
            self.fail(explain(error, self.directory, "writing the log"))
        except WalError as error:
            self.fail(error)
        except BaseException as error:
            self.fail(WalError(f"{self.directory}: a defect in onceway: {error!r}; stopped, nothing is lost"))
            raise

    def _step(self) -> bool:
        """Waits for something to do, and does it; False when it is time to end."""
        with self._condition:
            while True:
                now = time.monotonic()
                wait = self._wait_s(now)
                if wait is not None and wait <= 0:
                    break
                self._condition.wait(wait)
            due = self._gathering.wait_s(now)
            group = self._gathering.take(now) if due is not None and (due <= 0 or self._closing) else []
            self._writing = sum(run.octets for run in group)
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
        """Until there is something to do; None: until somebody says so."""
        if self._closing or self._trim is not None:
            return 0.0
        waits = [self._gathering.wait_s(now), self._task_at - now if self._task is not None else None]
        return min((wait for wait in waits if wait is not None), default=None)

    def _commit(self, group: list[Run]) -> None:
        """One frame, made durable."""
        self._check_ours()
        assert self._files is not None
        payloads = [payload for run in group for payload in run.payloads]
        batch = encode_batch(payloads, [tag for run in group for tag in run.tags], _times(group))
        frame = encode_frame(batch, self.durable, self._writing, self._epoch, group[-1].received_us)
        self._files.append(frame, len(payloads))
        end = self.durable + len(payloads)
        with self._condition:
            self.durable = end
            self._writing = 0
            self._condition.notify_all()
        self._on_change(self)

    def _trim_now(self, up_to: int, retention: Retention) -> None:
        assert self._files is not None
        with self._condition:
            up_to = min(up_to, self.unsettled.lowest(up_to))
        self._start = self._files.trim(self._start, up_to, retention)

    def fail(self, error: WalError) -> WalError:
        with self._condition:
            if self.failure is None:
                self.failure = error
            error = self.failure
            self._condition.notify_all()
        self._on_change(self)
        return error


def _times(group: list[Run]) -> Any:
    arrays = [pa.repeat(pa.scalar(run.received_us, pa.int64()), len(run.payloads)) for run in group]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
