"""Journals of simulated clients: what is written is durable when an event says so, and a crash tears what is not.

There are three kinds. Beside `onceway.client.journal.Journal` each has `advance`, which makes durable what the first
pending `sync` asked for, and `crash`, which ends the process after so many of the pending writes.

- `TornJournal` tears at any write: a run of messages may be kept in part. Several processes may have its disk open; the
  one whose attach was answered last holds it, and the writes of others fail.
- `SteppedSqlite` is the product's journal on a database in memory: whole transactions or nothing, and one process.
- `Forgetful` is the product's journal without a disk.
"""

from __future__ import annotations

import copy
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from onceway.client.journal import (
    Journal,
    MemoryJournal,
    PublisherJournal,
    PublisherRecord,
    SubscriberJournal,
    SubscriberRecord,
    _MemoryPublisher,
    _MemorySubscriber,
)
from onceway.client.journal_links import PublisherRows, Run, SubscriberRows
from onceway.client.sqlite_journal import SqliteJournal
from onceway.errors import JournalError, JournalFull


class Listener:
    """What the simulation wants to know of a process's journal."""

    def forgetting(self, first: int, last: int) -> None:
        """The protocol part has an outcome for these publications."""

    def accepted(self, tags: Sequence[bytes], outcome: bytes) -> None:
        """These outcomes are durable now."""

    def took_over(self) -> None:
        """This process holds the disk now: outcomes of deliveries in another process's hands have no effect any
        more."""


class Steps(Journal, Protocol):
    """A journal whose disk waits for the simulation."""

    def waits(self) -> bool:
        """Whether somebody waits for it: `advance` has something to do."""

    def advance(self) -> None: ...

    def pending(self) -> int:
        """How many writes a crash may tear at."""

    def crash(self, keep: int) -> None:
        """The process dies; the first `keep` pending writes are on the disk nevertheless."""

    def fill(self) -> None:
        """No room is left: what is pending is lost, and the process told."""

    def left(self) -> list[str]:
        """What is on the disk, or will be after all pending writes, although it should be forgotten in the end."""


class Storage(Protocol):
    """What outlives a process."""

    shared: bool  # more than one process may have it open
    lasting: bool

    def open(self, listener: Listener) -> Steps: ...


class Disk:
    """What a `TornJournal` leaves behind, for one link of each role."""

    shared = lasting = True

    def __init__(self) -> None:
        self.publisher = PublisherRecord()
        self.subscriber = SubscriberRecord()
        self.holder: TornJournal | None = None
        self.tenure = 0  # counts holders

    def open(self, listener: Listener) -> TornJournal:
        return TornJournal(self, listener)


Write = Callable[[], None]


class TornJournal:
    """One process's way to the disk: writes in order, some of which `sync` has asked for."""

    def __init__(self, disk: Disk, listener: Listener) -> None:
        self.disk = disk
        self.listener = listener
        self.durable = 0
        self.failure: JournalError | None = None
        self._writes: deque[Write] = deque()
        self._written = self._done = 0
        self._marks: deque[tuple[int, int]] = deque()  # (writes before it, number)
        self._number = 0
        self._subscriber: _TornSubscriber | None = None

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        assert container is not None
        return container

    def publisher(self, address: str, name: str) -> PublisherJournal:
        return _TornPublisher(self)

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        self._subscriber = _TornSubscriber(self)
        return self._subscriber

    def note(self, tags: Sequence[bytes]) -> None:
        """Stores tags without payload, as an application's own journal may."""
        assert self._subscriber is not None
        self._subscriber.note(tags)

    def write(self, write: Write) -> None:
        self._writes.append(write)
        self._written += 1

    def sync(self) -> int:
        if self._written > (self._marks[-1][0] if self._marks else self._done):
            self._number += 1
            self._marks.append((self._written, self._number))
        return self._number

    def waits(self) -> bool:
        return bool(self._marks) and self.failure is None

    def advance(self) -> None:
        until, number = self._marks.popleft()
        while self._done < until:
            self._apply()
            if self.failure is not None:
                return
        self.durable = number

    def pending(self) -> int:
        return len(self._writes) if self.failure is None else 0

    def crash(self, keep: int) -> None:
        for _ in range(min(keep, self.pending())):
            if self.failure is None:
                self._apply()
        self._writes.clear()

    def fill(self) -> None:
        self.failure = JournalFull("no room left on the simulated disk")

    def left(self) -> list[str]:
        while self._writes and self.failure is None:
            self._apply()
        disk = self.disk
        return [f"undecided {disk.publisher.undecided}"] * bool(disk.publisher.undecided) + [
            f"accepted {[*disk.subscriber.unsettled]}"
        ] * bool(disk.subscriber.unsettled)

    def close(self) -> None:
        raise NotImplementedError("simulated processes crash")

    def _apply(self) -> None:
        self._writes.popleft()()
        self._done += 1


class _TornPublisher:
    def __init__(self, journal: TornJournal) -> None:
        self._journal = journal
        self._stored = journal.disk.publisher
        self.record = copy.deepcopy(self._stored)

    def attach(self, epoch: int, incarnation: int) -> None:
        self._set(epoch=epoch, incarnation=incarnation)

    def contact(self, wall_us: int, timeout_s: float) -> None:
        self._set(contact_us=wall_us, timeout_s=timeout_s)

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        for number, payload in enumerate(payloads, first):
            self._journal.write(partial(self._publish, number, payload))

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        self._journal.listener.forgetting(first, last)
        for number in range(first, last + 1):
            self._journal.write(partial(self._forget, number))

    def close(self) -> None:
        self._set(undecided=[], incarnation=0)

    def _set(self, **values: object) -> None:
        self._journal.write(partial(set_fields, self._stored, values))

    def _publish(self, number: int, payload: bytes) -> None:
        self._stored.undecided.append((number, payload))
        self._stored.sequence = number + 1

    def _forget(self, number: int) -> None:
        self._stored.undecided = [each for each in self._stored.undecided if each[0] != number]


class _TornSubscriber:
    def __init__(self, journal: TornJournal) -> None:
        self._journal = journal
        self._stored = journal.disk.subscriber
        self.record = copy.deepcopy(self._stored)
        self._known = dict(self.record.unsettled)  # what this process has read or written
        self._born = self._stored.born
        self._tenure = 0

    def _write(self, write: Callable[..., object], *arguments: object) -> None:
        """Only while the disk is ours: a process that was fenced off has written nothing."""
        tenure = self._tenure

        def checked() -> None:
            if self._journal.disk.tenure != tenure:
                self._journal.failure = JournalError("another process has taken over this journal")
            else:
                write(*arguments)

        self._journal.write(checked)

    def attach(self, epoch: int, born: int) -> None:
        self._born = born
        self._journal.write(lambda: set_fields(self._stored, {"epoch": max(epoch, self._stored.epoch)}))

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        disk = self._journal.disk
        if disk.holder is not self._journal:
            disk.holder = self._journal
            disk.tenure += 1
            self._tenure = disk.tenure
            self._journal.listener.took_over()
        known = self._known
        meanwhile = {
            tag: outcome
            for tag, outcome in self._stored.unsettled.items()
            if tag not in known or (known[tag] is None and outcome is not None)  # noted then, decided now
        }
        self._known.update(meanwhile)
        self._write(set_fields, self._stored, {"born": self._born})
        return meanwhile

    def contact(self, wall_us: int, timeout_s: float) -> None:
        self._write(set_fields, self._stored, {"contact_us": wall_us, "timeout_s": timeout_s})

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        for tag in tags:
            self._known[tag] = outcome
            self._write(self._accept, tag, outcome)

    def _accept(self, tag: bytes, outcome: bytes) -> None:
        self._stored.unsettled[tag] = outcome
        self._journal.listener.accepted([tag], outcome)

    def note(self, tags: Sequence[bytes]) -> None:
        for tag in tags:
            self._known[tag] = None
            self._write(lambda tag=tag: self._stored.unsettled.setdefault(tag, None))

    def settle(self, tags: Sequence[bytes]) -> None:
        for tag in tags:
            self._known.pop(tag, None)
            self._write(lambda tag=tag: self._stored.unsettled.pop(tag, None))

    def close(self) -> None:
        self._journal.write(partial(set_fields, self._stored, {"unsettled": {}, "born": 0}))


def set_fields(record: PublisherRecord | SubscriberRecord, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        setattr(record, name, value)


# ---------------------------------------------------------------------- the product's, on a database in memory
class File:
    """What a `SteppedSqlite` leaves behind."""

    shared, lasting = False, True

    def __init__(self) -> None:
        self.database: sqlite3.Connection | None = None

    def open(self, listener: Listener) -> SteppedSqlite:
        return SteppedSqlite(self, listener)


class SteppedSqlite(SqliteJournal):
    """The embedded journal without its thread: a transaction is an event."""

    def __init__(self, file: File, listener: Listener) -> None:
        super().__init__("journal of a simulated client")
        self._contacts_marked = False  # the simulation has clocks of its own
        self.file = file
        self.listener = listener

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        if self.file.database is None:
            self.file.database = sqlite3.connect(":memory:", isolation_level=None)
        self._database = self.file.database
        return self._prepare(self._database, container)

    def publisher(self, address: str, name: str) -> PublisherRows:
        return _HeardPublisher(self, address, name)

    def subscriber(self, address: str, name: str) -> SubscriberRows:
        return SubscriberRows(self, address, name)

    def waits(self) -> bool:
        return self._wanted == self._group and self.failure is None

    def advance(self) -> None:
        """What `SqliteJournal._write` does for each group."""
        assert self._database is not None
        pending, self._pending = self._pending, []
        links, self._touched = [link.row() for link in self._touched], {}
        runs = [(run.items, run.outcome) for run in pending if isinstance(run, Run) and run.outcome is not None]
        self._commit(self._database, pending, links)
        self.durable = self._group
        self._group += 1
        for tags, outcome in runs:
            self.listener.accepted(tags, outcome)

    def pending(self) -> int:
        return 1 if (self._pending or self._touched) and self.failure is None else 0

    def crash(self, keep: int) -> None:
        if keep and self.pending():
            self.advance()

    def fill(self) -> None:
        self.failure = JournalFull("no room left on the simulated disk")

    def left(self) -> list[str]:
        assert self._database is not None
        if self.pending():
            self.advance()
        counts = {table: self._rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("publications", "accepted")}
        return [f"{count} rows of {table}" for table, count in counts.items() if count]


class _HeardPublisher(PublisherRows):
    __slots__ = ("_listener",)

    def __init__(self, journal: SteppedSqlite, address: str, name: str) -> None:
        super().__init__(journal, address, name)
        self._listener = journal.listener

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        self._listener.forgetting(first, last)
        super().forget(first, last, outcome)


# ---------------------------------------------------------------------- the product's without a disk
class Nothing:
    shared = lasting = False

    def open(self, listener: Listener) -> Forgetful:
        return Forgetful(listener)


class Forgetful(MemoryJournal):
    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self.listener = listener

    def publisher(self, address: str, name: str) -> PublisherJournal:
        return _ForgetfulPublisher(self.listener)

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        return _ForgetfulSubscriber(self.listener)

    def waits(self) -> bool:
        return False

    def advance(self) -> None:
        raise AssertionError("nobody waits for it")

    def pending(self) -> int:
        return 0

    def crash(self, keep: int) -> None:
        pass

    def fill(self) -> None:
        raise AssertionError("it needs no room")

    def left(self) -> list[str]:
        return []


class _ForgetfulPublisher(_MemoryPublisher):
    __slots__ = ("_listener",)

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        self._listener.forgetting(first, last)


class _ForgetfulSubscriber(_MemorySubscriber):
    __slots__ = ("_listener",)

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        self._listener.accepted(tags, outcome)
