"""The embedded journal: one SQLite file for one container, written ahead, many writes to a commit.

The event loop only appends to a list; a thread of its own turns what has gathered into one transaction and waits
for the disk (synchronous=FULL), so the slower the disk, the larger the groups.  What is gathered of each link, and the
rows it becomes, is in `sqlite_links`.

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
from collections.abc import Callable
from typing import Any

from onceway.client.sqlite_links import Operation, Run, SqliteLink, SqlitePublisher, SqliteSubscriber
from onceway.errors import JournalCorrupt, JournalError, JournalFull, JournalLocked

APPLICATION_ID = 0x4F6E6365  # "Once"
VERSION = 1

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


class SqliteJournal:
    """A journal in the file `path`; see the module."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.durable = 0
        self.failure: JournalError | None = None
        self._lock = threading.Condition()  # over what is gathered
        self._access = threading.Lock()  # over the database itself
        self._pending: list[Operation | Run] = []
        self._touched: dict[SqliteLink, None] = {}  # links whose row has to be written again
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

    def publisher(self, address: str, name: str) -> SqlitePublisher:
        self._settle_down()
        return SqlitePublisher(self, address, name)

    def subscriber(self, address: str, name: str) -> SqliteSubscriber:
        self._settle_down()
        return SqliteSubscriber(self, address, name)

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
    def _commit(database: sqlite3.Connection, pending: list[Operation | Run], links: list[tuple[Any, ...]]) -> None:
        run = database.execute
        try:
            run("BEGIN")
            for operation in pending:
                if isinstance(operation, Run):
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
