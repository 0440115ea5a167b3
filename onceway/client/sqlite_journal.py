"""The embedded journal: one SQLite file for one container, with many writes in a commit.

The event loop only appends to a list.  A thread turns what has gathered into one transaction and waits for the disk
(synchronous=FULL): the slower the disk, the larger the transactions.  `journal_links` gathers the writes of each link
and makes rows of them; `onceway.client.journal` says what the methods mean.

A killed process leaves whole transactions or none (SQLite's WAL has checksums), in the file and its log (`-wal`).  A
clean close leaves the file alone.  The file is locked exclusively, and a second process gets `JournalLocked`.  Opening
checks the file for damage (`sqlite_format`), and that no log has been lost (`sqlite_mark`).  When the disk is full, the
transaction is rolled back and the journal stops with `JournalFull`: nothing unconfirmed was sent.  No error of SQLite
leaves this module: each becomes a JournalError.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from onceway.base import waits
from onceway.base.private import make_file
from onceway.client import sqlite_format
from onceway.client.journal_links import (
    FORGOTTEN,
    LIVE,
    SETTLED,
    Gathering,
    Operation,
    PublisherRows,
    Run,
    SubscriberRows,
)
from onceway.client.sqlite_format import Damaged, Foreign
from onceway.client.sqlite_mark import Mark
from onceway.errors import JournalCorrupt, JournalError, JournalFull, JournalLocked

_INSERT_PUBLICATIONS = "INSERT INTO publications (link, first, lengths, payloads, crc) VALUES (?, ?, ?, ?, ?)"
_INSERT_ACCEPTED = "INSERT INTO accepted (id, link, outcome, lengths, tags, crc) VALUES (?, ?, ?, ?, ?, ?)"
_WRITES = {
    LIVE: "UPDATE publications SET live = ? WHERE link = ? AND first = ?",
    FORGOTTEN: "DELETE FROM publications WHERE link = ? AND first = ?",
    SETTLED: "DELETE FROM accepted WHERE id = ? AND link = ?",
}
_DAMAGE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT)
_COPY_AFTER = 8 << 20  # bytes in the log, about, after which it is copied into the file
_PER_COMMIT = 4 << 12  # bytes of pages in a commit, beside messages and tags: few pages, each whole


class SqliteJournal(Gathering):
    """The embedded journal, in the SQLite file `path`, for one process at a time.  `connect` makes it from a path.

    With the file, a new process continues where a killed one stopped: publications without outcome are sent again, and
    what was accepted is not delivered again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = os.fspath(path)
        self.durable = 0
        self.failure: JournalError | None = None
        self._access = waits.DISK(threading.Lock())  # guards the database
        self._wanted = 0  # the highest group that a waiter needs
        self._closing = False
        self._wake: Callable[[], None] = _nobody
        self._thread: threading.Thread | None = None
        self._database: sqlite3.Connection | None = None
        self._mark: Mark | None = None
        self._commits = 0  # as the database counts them
        self._logged = 0  # bytes in the log, about

    # -- opening

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        if self._database is not None:
            raise JournalError(f"{self.path}: is open already; every connection needs a journal of its own")
        try:
            make_file(self.path)
            # check_same_thread: opened here, then used by the writing thread alone
            database = waits.DISK(sqlite3.connect)(
                self.path, timeout=0.0, isolation_level=None, check_same_thread=False
            )
        except (sqlite3.Error, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise JournalError(f"{self.path}: cannot open the journal: {why}; is the directory there?") from error
        try:
            with self._own_errors():
                database.execute("PRAGMA locking_mode = EXCLUSIVE")  # kept from the first write on; no shared memory
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = FULL")
                database.execute("PRAGMA journal_size_limit = 16777216")
                database.execute("PRAGMA wal_autocheckpoint = 0")  # `_copy_log` does it
                database.execute("PRAGMA secure_delete = OFF")  # else each message is written again, as zeros
                container = self._prepare(database, container)
                self._compare(database)
        except JournalError:
            self._close_files(database)
            raise
        self._database = database
        self._wake = wake
        self._thread = threading.Thread(target=self._write, name=f"journal {self.path}", daemon=True)
        self._thread.start()
        return container

    def _prepare(self, database: sqlite3.Connection, container: str | None) -> str:
        container = sqlite_format.prepare(database, container)
        (last,) = database.execute("SELECT coalesce(max(id), 0) FROM accepted").fetchone()
        self._next_row = int(last) + 1
        return container

    def _compare(self, database: sqlite3.Connection) -> None:
        """The database must reach its mark; then the log of a killed process is copied into the file."""
        self._commits = sqlite_format.count_of(database)
        self._mark = Mark(self.path, database)
        number, copying = self._mark.read()
        whole = self._commits >= number
        if whole and copying:
            whole = _checkpoint(database) > 0
        if not whole:
            raise JournalCorrupt(
                f"{self.path}: the journal has lost commits: {self.path}-wal is missing or damaged; put back the one "
                f"that belongs to it, or {_DAMAGED}"
            )
        self._commit(database, [], [])  # what is copied must not be empty
        self._copy_log(database)

    def _copy_log(self, database: sqlite3.Connection) -> None:
        """Copies the log, which is not empty, into the file."""
        assert self._mark is not None
        self._mark.write(self._commits, copying=True)
        _checkpoint(database)
        self._mark.write(self._commits, copying=False)
        self._logged = 0

    def _close_files(self, database: sqlite3.Connection) -> None:
        database.close()
        if self._mark is not None:
            self._mark.close()
            self._mark = None

    def publisher(self, address: str, name: str) -> PublisherRows:
        self._settle_down()
        return PublisherRows(self, address, name)

    def subscriber(self, address: str, name: str) -> SubscriberRows:
        self._settle_down()
        return SubscriberRows(self, address, name)

    def _settle_down(self) -> None:
        """Waits until everything is in the file: a link that is opened again must find what it wrote before."""
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
            waits.DISK(self._thread).join()
            self._thread = None
        database, self._database = self._database, None
        if database is not None:
            with self._own_errors():
                try:
                    if self.failure is None and self._mark is not None:
                        self._copy_log(database)
                finally:
                    self._close_files(database)  # with an empty log, SQLite removes it
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
                    with self._access, self._own_errors():
                        self._logged += self._commit(database, pending, links) + _PER_COMMIT
                        assert self._mark is not None
                        self._mark.write(self._commits)
                except JournalError as error:
                    self._fail(error)
                    return
            with self._lock:
                self.durable = group
                self._lock.notify_all()
            self._wake()
            if closing:
                return
            if self._logged >= _COPY_AFTER:
                try:
                    with self._access, self._own_errors():
                        self._copy_log(database)
                except JournalError as error:
                    self._fail(error)
                    return

    def _fail(self, error: JournalError) -> None:
        with self._lock:
            self.failure = error
            self._lock.notify_all()
        self._wake()

    def _commit(
        self, database: sqlite3.Connection, pending: list[Operation | Run], links: list[tuple[Any, ...]]
    ) -> int:
        """One transaction.  Returns how many bytes of messages and tags are in it."""
        run = database.execute
        size = 0
        try:
            run("BEGIN")
            for operation in pending:
                if isinstance(operation, Run):
                    size += operation.size
                    run(_INSERT_ACCEPTED if operation.outcome is not None else _INSERT_PUBLICATIONS, operation.row())
                else:
                    run(_WRITES[operation[0]], operation[1])
            database.executemany(
                "UPDATE link SET epoch = ?, identity = ?, sequence = ?, contact_us = ?, timeout_s = ?, "
                "contact_mark = ?, crc = ? WHERE id = ?",
                [*links, sqlite_format.count_row(self._commits + 1)],
            )
            run("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                run("ROLLBACK")
            raise
        self._commits += 1
        return size

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Makes JournalErrors of what SQLite, the disk and the format say."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translate(error) from error
        except OSError as error:
            raise self._translate_os(error) from error
        except Damaged as error:
            raise self._damaged(str(error)) from error
        except ValueError as error:
            raise self._damaged(f"the file ({error})") from error
        except Foreign as error:
            raise JournalCorrupt(f"{self.path}: {error}") from error

    def _translate(self, error: sqlite3.Error) -> JournalError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return JournalLocked(
                f"{self.path}: another process has this journal open; stop it, or give this one a journal of its own"
            )
        if code == sqlite3.SQLITE_FULL:
            return self._full()
        undecodable = not code and isinstance(error, sqlite3.OperationalError)
        if undecodable or code in _DAMAGE:
            return JournalCorrupt(f"{self.path}: not a journal, or damaged ({error}); {_DAMAGED}")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return JournalError(f"{self.path}: the journal cannot be written ({error}); check permissions")
        return JournalError(f"{self.path}: the journal failed ({error}); nothing confirmed is lost, start again")

    def _translate_os(self, error: OSError) -> JournalError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return self._full()
        return JournalError(f"{self.path}: the journal failed ({error}); nothing confirmed is lost, start again")

    def _full(self) -> JournalFull:
        return JournalFull(
            f"{self.path}: no room left for the journal; make room and start again: nothing confirmed is lost"
        )

    # -- used by links

    def _load_link(self, role: str, address: str, name: str) -> tuple[Any, ...]:
        """id, epoch, identity, sequence, contact_us, timeout_s, contact_mark of a link, which is made if it is new."""
        database = self._reader()
        # not by the index, which opening does not check
        query = f"SELECT {sqlite_format.LINK_COLUMNS} FROM link NOT INDEXED WHERE role = ? AND address = ? AND name = ?"
        with self._access, self._own_errors():
            row = database.execute(query, (role, address, name)).fetchone()
            if row is None:
                (last,) = database.execute("SELECT max(id) FROM link").fetchone()
                row = sqlite_format.insert_link(database, (last + 1, role, address, name))
            return (row[0], *row[4:])

    def _load_publications(self, link: int) -> list[tuple[Any, ...]]:
        query = "SELECT first, lengths, payloads, crc, live FROM publications WHERE link = ? ORDER BY first"
        return self._rows(query, link)

    def _load_accepted(self, link: int) -> list[tuple[Any, ...]]:
        return self._rows("SELECT id, outcome, lengths, tags, crc FROM accepted WHERE link = ? ORDER BY id", link)

    def _rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._access, self._own_errors():
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


def _checkpoint(database: sqlite3.Connection) -> int:
    """Returns how many pages were in the log."""
    _, pages, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages)


def _nobody() -> None:
    pass
