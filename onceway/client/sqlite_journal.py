"""The embedded journal: one SQLite file for one container, written ahead, many writes to a commit.

The event loop only appends to a list; a thread of its own turns what has gathered into one transaction and waits
for the disk (synchronous=FULL), so the slower the disk, the larger the groups.  Messages and accepted tags lie in
one row per run, not one each; what is left of a run is a short list of ranges beside it.

A killed process leaves whole transactions or none (SQLite's WAL has checksums).  The file is held exclusively; a
second process is told so.  Damage is looked for when the file is opened, and each row carries a CRC.  When the disk
is full the transaction is rolled back and the journal stops with `JournalFull`: what it had not confirmed was not
sent.  Knows nothing of links and protocols: `onceway.client.journal` says what its methods mean.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any

from onceway.client.journal import PublisherRecord, SubscriberRecord
from onceway.errors import JournalCorrupt, JournalError, JournalFull, JournalLocked

APPLICATION_ID = 0x4F6E6365  # "Once"
VERSION = 1
_RUN_BYTES = 1 << 20  # a run of publications grows to about this size before a new row is begun
_RANGE = Struct(">QQ")

_SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE link (
    id INTEGER PRIMARY KEY, role TEXT NOT NULL, address TEXT NOT NULL, name TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0, identity INTEGER NOT NULL DEFAULT 0, sequence INTEGER NOT NULL DEFAULT 0,
    contact_us INTEGER NOT NULL DEFAULT 0, timeout_s REAL NOT NULL DEFAULT 0,
    UNIQUE (role, address, name));
CREATE TABLE publications (
    link INTEGER NOT NULL, first INTEGER NOT NULL, lengths BLOB NOT NULL, payloads BLOB NOT NULL,
    crc INTEGER NOT NULL, live BLOB, PRIMARY KEY (link, first)) WITHOUT ROWID;
CREATE TABLE accepted (
    id INTEGER PRIMARY KEY, link INTEGER NOT NULL, outcome BLOB NOT NULL, lengths BLOB NOT NULL, tags BLOB NOT NULL,
    crc INTEGER NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""

Operation = tuple[str, tuple[Any, ...]]


class SqliteJournal:
    """A journal in the file `path`; see the module."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.durable = 0
        self.failure: JournalError | None = None
        self._lock = threading.Condition()  # over what is gathered
        self._access = threading.Lock()  # over the database itself
        self._pending: list[Operation | _Run] = []
        self._touched: dict[_Link, None] = {}  # links whose row has to be written again
        self._group = 1  # number of the transaction being gathered
        self._wanted = 0  # highest group that somebody waits for
        self._closing = False
        self._next_row = 1
        self._wake: Callable[[], None] = _nobody
        self._thread: threading.Thread | None = None
        self._database: sqlite3.Connection | None = None

    # -- opening

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        if self._database is not None:
            raise JournalError(f"{self.path}: is open already; every connection needs a journal of its own")
        try:
            # check_same_thread: opened here, then used by the writing thread alone
            database = sqlite3.connect(self.path, timeout=0.0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise JournalError(f"{self.path}: cannot open the journal: {error}; is the directory there?") from error
        try:
            container = self._prepare(database, container)
        except sqlite3.Error as error:
            database.close()
            raise self._translate(error) from error
        except JournalError:
            database.close()
            raise
        self._database = database
        self._wake = wake
        self._thread = threading.Thread(target=self._write, name=f"journal {self.path}", daemon=True)
        self._thread.start()
        return container

    def _prepare(self, database: sqlite3.Connection, container: str | None) -> str:
        run = database.execute
        run("PRAGMA locking_mode = EXCLUSIVE")  # the lock of the first write is kept, and needs no shared memory
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("PRAGMA journal_size_limit = 16777216")
        run("BEGIN IMMEDIATE")
        (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = run("PRAGMA application_id").fetchone()
        (version,) = run("PRAGMA user_version").fetchone()
        if not tables and not application:
            run("ROLLBACK")
            database.executescript("BEGIN IMMEDIATE;" + _SCHEMA)
        elif application != APPLICATION_ID:
            run("ROLLBACK")
            raise JournalCorrupt(f"{self.path}: a database of another program, no onceway journal; give another path")
        elif version != VERSION:
            run("ROLLBACK")
            raise JournalCorrupt(
                f"{self.path}: a journal of format {version}, this onceway reads {VERSION}; "
                "drain it with the onceway that wrote it, or give another path"
            )
        problems = run("PRAGMA quick_check(1)").fetchone()[0]
        if problems != "ok":
            run("ROLLBACK")
            raise JournalCorrupt(f"{self.path}: the journal is damaged ({problems}); {_DAMAGED}")
        row = run("SELECT value FROM meta WHERE key = 'container'").fetchone()
        if row is None:
            container = container or f"onceway-{secrets.token_hex(8)}"
            run("INSERT INTO meta VALUES ('container', ?)", (container,))
        elif container is not None and container != row[0]:
            run("ROLLBACK")
            raise JournalCorrupt(
                f"{self.path}: the journal belongs to container {row[0]!r}, not {container!r}; "
                f"connect as {row[0]!r}, or give another path"
            )
        else:
            container = row[0]
        (last,) = run("SELECT coalesce(max(id), 0) FROM accepted").fetchone()
        self._next_row = int(last) + 1
        run("COMMIT")
        assert container is not None
        return container

    def publisher(self, address: str, name: str) -> _Publisher:
        self._settle_down()
        return _Publisher(self, address, name)

    def subscriber(self, address: str, name: str) -> _Subscriber:
        self._settle_down()
        return _Subscriber(self, address, name)

    def _settle_down(self) -> None:
        """Waits until what was gathered is in the file: a link opened again must find what its last life wrote."""
        number = self.sync()
        with self._lock:
            while self.durable < number and self.failure is None:
                self._lock.wait()
        self._reader()

    # -- writing: on the caller's side

    def sync(self) -> int:
        with self._lock:
            if not self._pending and not self._touched:
                return self._group - 1
            if self._wanted != self._group:
                self._wanted = self._group
                self._lock.notify_all()
            return self._group

    def close(self) -> None:
        if self._thread is not None:
            with self._lock:
                self._closing = True
                self._wanted = self._group
                self._lock.notify_all()
            self._thread.join()
            self._thread = None
        if self._database is not None:
            self._database.close()
            self._database = None
        if self.failure is not None:
            raise self.failure

    # -- writing: the thread

    def _write(self) -> None:
        database = self._database
        assert database is not None
        while True:
            with self._lock:
                while self._wanted < self._group and not self._closing:
                    self._lock.wait()
                pending, self._pending = self._pending, []
                links, self._touched = [link.row() for link in self._touched], {}
                group = self._group
                self._group += 1
                closing = self._closing
            if pending or links:
                try:
                    with self._access:
                        self._commit(database, pending, links)
                except sqlite3.Error as error:
                    with self._lock:
                        self.failure = self._translate(error)
                        self._lock.notify_all()
                    self._wake()
                    return
            with self._lock:
                self.durable = group
                self._lock.notify_all()
            self._wake()
            if closing:
                return

    @staticmethod
    def _commit(database: sqlite3.Connection, pending: list[Operation | _Run], links: list[tuple[Any, ...]]) -> None:
        run = database.execute
        try:
            run("BEGIN")
            for operation in pending:
                if isinstance(operation, _Run):
                    operation = operation.insert()
                run(*operation)
            if links:
                database.executemany(
                    "UPDATE link SET epoch = ?, identity = ?, sequence = ?, contact_us = ?, timeout_s = ? WHERE id = ?",
                    links,
                )
            run("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                run("ROLLBACK")
            raise

    def _translate(self, error: sqlite3.Error) -> JournalError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return JournalLocked(
                f"{self.path}: another process has this journal open; stop it, or give this one a journal of its own"
            )
        if code == sqlite3.SQLITE_FULL:
            return JournalFull(
                f"{self.path}: no room left for the journal; make room and start again: nothing confirmed is lost"
            )
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return JournalCorrupt(f"{self.path}: not a journal, or damaged ({error}); {_DAMAGED}")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return JournalError(f"{self.path}: the journal cannot be written ({error}); check permissions")
        return JournalError(f"{self.path}: the journal failed ({error}); nothing confirmed is lost, start again")

    # -- used by links

    def _load_link(self, role: str, address: str, name: str) -> tuple[Any, ...]:
        database = self._reader()
        with self._access:
            query = "SELECT id, epoch, identity, sequence, contact_us, timeout_s FROM link"
            where = " WHERE role = ? AND address = ? AND name = ?"
            row = database.execute(query + where, (role, address, name)).fetchone()
            if row is None:
                database.execute("INSERT INTO link (role, address, name) VALUES (?, ?, ?)", (role, address, name))
                row = database.execute(query + where, (role, address, name)).fetchone()
            assert row is not None
            return tuple(row)

    def _rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._access:
            return self._reader().execute(query, parameters).fetchall()

    def _reader(self) -> sqlite3.Connection:
        if self.failure is not None:
            raise self.failure
        if self._database is None:
            raise JournalError(f"{self.path}: the journal is not open")
        return self._database

    def _damaged(self, what: str) -> JournalCorrupt:
        return JournalCorrupt(f"{self.path}: {what} is damaged; {_DAMAGED}")


_DAMAGED = (
    "restore it from a copy of the whole machine, or move it away and start with a new one: "
    "deliveries it knew may then be lost or come twice"
)


def _nobody() -> None:
    pass


class _Link:
    __slots__ = ("_contact_us", "_epoch", "_id", "_identity", "_journal", "_sequence", "_timeout_s")

    def __init__(self, journal: SqliteJournal, role: str, address: str, name: str) -> None:
        self._journal = journal
        (self._id, self._epoch, self._identity, self._sequence, self._contact_us, self._timeout_s) = journal._load_link(
            role, address, name
        )

    def row(self) -> tuple[Any, ...]:
        return (self._epoch, self._identity, self._sequence, self._contact_us, self._timeout_s, self._id)

    def attach(self, epoch: int, identity: int) -> None:
        with self._journal._lock:
            self._epoch, self._identity = epoch, identity
            self._journal._touched[self] = None

    def contact(self, wall_us: int, timeout_s: float) -> None:
        with self._journal._lock:
            self._contact_us, self._timeout_s = wall_us, timeout_s
            self._journal._touched[self] = None


class _Run:
    """A run of publications or of tags that becomes one row; grows until its transaction begins."""

    __slots__ = ("group", "items", "key", "link", "live", "outcome", "size")

    def __init__(self, group: int, link: int, key: int, outcome: bytes | None) -> None:
        self.group = group
        self.link = link
        self.key = key  # first sequence, or number of the row
        self.outcome = outcome  # None: publications
        self.items: list[bytes] = []
        self.size = 0
        self.live: list[tuple[int, int]] = []  # publications: what has no outcome yet, ascending, inclusive

    def insert(self) -> Operation:
        lengths = array("I", map(len, self.items)).tobytes()
        joined = b"".join(self.items)
        crc = zlib.crc32(joined, zlib.crc32(lengths))
        self.items = []  # the row has them now; kept alive only by whoever still sends them
        if self.outcome is None:
            return (
                "INSERT INTO publications (link, first, lengths, payloads, crc) VALUES (?, ?, ?, ?, ?)",
                (self.link, self.key, lengths, joined, crc),
            )
        return (
            "INSERT INTO accepted (id, link, outcome, lengths, tags, crc) VALUES (?, ?, ?, ?, ?, ?)",
            (self.key, self.link, self.outcome, lengths, joined, crc),
        )


def _split(lengths: bytes, joined: bytes, crc: int) -> list[bytes] | None:
    """The items of a row; None where it is damaged."""
    if zlib.crc32(joined, zlib.crc32(lengths)) != crc:
        return None
    sizes = array("I")
    sizes.frombytes(lengths)
    ends = list(accumulate(sizes))
    if (ends[-1] if ends else 0) != len(joined):
        return None
    return [joined[end - size : end] for end, size in zip(ends, sizes, strict=True)]


class _Publisher(_Link):
    __slots__ = ("_firsts", "_runs", "record")

    def __init__(self, journal: SqliteJournal, address: str, name: str) -> None:
        super().__init__(journal, "publisher", address, name)
        self._firsts: list[int] = []  # of the runs, ascending
        self._runs: list[_Run] = []
        undecided: list[tuple[int, bytes]] = []
        rows = journal._rows(
            "SELECT first, lengths, payloads, crc, live FROM publications WHERE link = ? ORDER BY first", self._id
        )
        for first, lengths, payloads, crc, live in rows:
            items = _split(lengths, payloads, crc)
            if items is None or (live is not None and len(live) % _RANGE.size):
                raise journal._damaged(f"the row of messages from {first} on")
            run = _Run(0, self._id, first, None)
            run.live = [(first, first + len(items) - 1)] if live is None else list(_RANGE.iter_unpack(live))
            self._firsts.append(first)
            self._runs.append(run)
            for low, high in run.live:
                undecided.extend((number, items[number - first]) for number in range(low, high + 1))
        self.record = PublisherRecord(
            epoch=self._epoch,
            incarnation=self._identity,
            sequence=self._sequence,
            contact_us=self._contact_us,
            timeout_s=self._timeout_s,
            undecided=undecided,
        )

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        journal = self._journal
        with journal._lock:
            run = self._runs[-1] if self._runs else None
            fits = (
                run is not None
                and run.group == journal._group
                and run.size < _RUN_BYTES
                and run.live[-1][1] == first - 1
                and run.live[0][0] == run.key
                and len(run.live) == 1
            )
            if run is None or not fits:
                run = _Run(journal._group, self._id, first, None)
                run.live = [(first, first - 1)]
                self._firsts.append(first)
                self._runs.append(run)
                journal._pending.append(run)
            run.items.extend(payloads)
            run.size += sum(map(len, payloads))
            self._sequence = first + len(payloads)
            run.live[0] = (run.live[0][0], self._sequence - 1)
            journal._touched[self] = None

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        journal = self._journal
        with journal._lock:
            at = max(bisect_right(self._firsts, first) - 1, 0)
            while at < len(self._runs) and self._firsts[at] <= last:
                run = self._runs[at]
                left = _without(run.live, first, last)
                if left == run.live:
                    at += 1
                    continue
                run.live = left
                if left:
                    blob = b"".join([_RANGE.pack(low, high) for low, high in left])
                    journal._pending.append(
                        ("UPDATE publications SET live = ? WHERE link = ? AND first = ?", (blob, self._id, run.key))
                    )
                    at += 1
                else:
                    journal._pending.append(
                        ("DELETE FROM publications WHERE link = ? AND first = ?", (self._id, run.key))
                    )
                    del self._runs[at], self._firsts[at]

    def close(self) -> None:
        with self._journal._lock:
            self._journal._pending.append(("DELETE FROM publications WHERE link = ?", (self._id,)))
            self._runs, self._firsts = [], []
            self._identity = 0
            self._journal._touched[self] = None


class _Subscriber(_Link):
    __slots__ = ("_born", "_counts", "_open", "_rows", "record")

    def __init__(self, journal: SqliteJournal, address: str, name: str) -> None:
        super().__init__(journal, "subscriber", address, name)
        self._rows: dict[bytes, int] = {}  # tag -> row that holds it
        self._counts: dict[int, int] = {}  # row -> tags not settled
        self._open: _Run | None = None
        self._born = self._identity
        unsettled: dict[bytes, bytes | None] = {}
        rows = journal._rows(
            "SELECT id, outcome, lengths, tags, crc FROM accepted WHERE link = ? ORDER BY id", self._id
        )
        for row, outcome, lengths, joined, crc in rows:
            tags = _split(lengths, joined, crc)
            if tags is None:
                raise journal._damaged(f"row {row} of accepted tags")
            # settled tags of a row that is not empty yet come back: the next attach settles them again
            self._note(row, tags)
            unsettled.update(dict.fromkeys(tags, outcome))
        self.record = SubscriberRecord(
            epoch=self._epoch,
            born=self._identity,
            contact_us=self._contact_us,
            timeout_s=self._timeout_s,
            unsettled=unsettled,
        )

    def _note(self, row: int, tags: Iterable[bytes]) -> None:
        rows, counts = self._rows, self._counts
        for tag in tags:
            old = rows.get(tag)
            if old is not None and old != row:
                self._drop(old)
            if old != row:
                counts[row] = counts.get(row, 0) + 1
            rows[tag] = row

    def _drop(self, row: int) -> None:
        left = self._counts[row] - 1
        if left:
            self._counts[row] = left
        else:
            del self._counts[row]
            if self._open is not None and self._open.key == row:
                self._open = None
            self._journal._pending.append(("DELETE FROM accepted WHERE id = ?", (row,)))

    def attach(self, epoch: int, born: int) -> None:
        self._born = born
        super().attach(epoch, self._identity)

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        # only a subscription that was answered exists: resuming another one would be told that it is broken
        if self._identity != self._born:
            super().attach(self._epoch, self._born)
        return {}  # the file is locked: no other process has added anything

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        journal = self._journal
        with journal._lock:
            run = self._open
            if run is None or run.group != journal._group or run.outcome != outcome:
                run = self._open = _Run(journal._group, self._id, journal._next_row, outcome)
                journal._next_row += 1
                journal._pending.append(run)
            run.items.extend(tags)
            self._note(run.key, tags)

    def settle(self, tags: Sequence[bytes]) -> None:
        with self._journal._lock:
            rows = self._rows
            for tag in tags:
                row = rows.pop(tag, None)
                if row is not None:
                    self._drop(row)

    def close(self) -> None:
        with self._journal._lock:
            self._journal._pending.append(("DELETE FROM accepted WHERE link = ?", (self._id,)))
            self._rows, self._counts, self._open = {}, {}, None
            self._identity = 0
            self._journal._touched[self] = None


def _without(ranges: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    left = []
    for low, high in ranges:
        if high < first or low > last:
            left.append((low, high))
            continue
        if low < first:
            left.append((low, first - 1))
        if high > last:
            left.append((last + 1, high))
    return left
