"""The SQLite file of the embedded store: its tables, its lock, its errors, and what is checked when it is opened."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edges.store import StoreError, StoreFull
from edges.store.blocks import checked_value
from onceway.base import locks, private, waits
from onceway.client.sqlite_format import Damaged

FORMAT: Final = 2
REMEDY: Final = "put a whole copy back"
APPLICATION_ID: Final = 0x4F6E6377  # "Oncw"

_DAMAGE: Final = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)
_NOT_WRITTEN: Final = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_PROBE_OCTETS: Final = 1 << 20
_SCHEMA: Final = (
    "CREATE TABLE keys (key TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE streams ("
    "id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, first INTEGER NOT NULL, next INTEGER NOT NULL, "
    "time_us INTEGER NOT NULL, octets INTEGER NOT NULL, keep_us INTEGER, keep_octets INTEGER, crc INTEGER NOT NULL)",
    "CREATE TABLE blocks ("
    "id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, last INTEGER NOT NULL, first INTEGER NOT NULL, "
    "time_us INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL)",
    "CREATE UNIQUE INDEX block_by_position ON blocks (stream, last)",
)


def connect(path: Path) -> sqlite3.Connection:
    # check_same_thread: closed by another thread than the one that used it
    return sqlite3.connect(path, timeout=waits.STORE_FULL.s, isolation_level=None, check_same_thread=False)


def open_file(path: Path, limit_octets: int | None) -> sqlite3.Connection:
    if not path.exists():
        _make(path)
    elif path.stat().st_size == 0:
        raise Damaged("the file, which is empty,")
    for each in (path.with_name(path.name + end) for end in ("", "-wal", "-shm")):
        try:
            private.close_off(each)
        except OSError as error:
            raise StoreError(
                f"{each}: everyone on this host can read or change it, and this process may not change that "
                f"({error.strerror}): chmod o-rwx {path}* as their owner, or mount the volume with other modes"
            ) from error
    database = connect(path)
    try:
        application, version = (
            int(database.execute(query).fetchone()[0]) for query in ("PRAGMA application_id", "PRAGMA user_version")
        )
        if application != APPLICATION_ID:
            raise StoreError(f"{path}: this is not a store of edges; name another file, or put a whole copy back")
        if version != FORMAT:
            raise StoreError(
                f"{path}: the store has format {version}, this version of onceway reads format {FORMAT}; "
                "use the version that wrote it"
            )
        _check(database)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA secure_delete = OFF")  # Debian's default writes zeros over all that is removed
        database.execute("PRAGMA wal_autocheckpoint = 4000")
        database.execute("PRAGMA journal_size_limit = 67108864")
        if limit_octets is not None:
            (size,) = database.execute("PRAGMA page_size").fetchone()
            database.execute(f"PRAGMA max_page_count = {max(1, limit_octets // int(size))}")
    except BaseException:
        database.close()
        raise
    return database


def _make(path: Path) -> None:
    """Under another name first: a store is whole, or is not there."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    private.make_file(new)
    database = connect(new)
    try:
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("COMMIT")
    finally:
        database.close()
    new.rename(path)


def _check(database: sqlite3.Connection) -> None:
    """All but the blocks and what is free: blocks are checked where they are read."""
    made = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
    if [sql for (sql,) in database.execute(made)] != list(_SCHEMA):
        raise Damaged("the file")
    for table in ("keys", "streams"):
        if database.execute(f"PRAGMA integrity_check({table})").fetchone() != ("ok",):
            raise Damaged(f"the table of {table}")
    before = None
    for key, value, crc in database.execute("SELECT key, value, crc FROM keys ORDER BY key"):
        checked_value(key, value, crc)
        if before is not None and before >= key:
            raise Damaged("the table of keys")
        before = key


@contextmanager
def own_errors(path: Path) -> Iterator[None]:
    """Errors of SQLite become the store's."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_FULL or (code in _NOT_WRITTEN and no_room(path)):
            raise StoreFull(f"{path}: the disk or the store's limit is full; make room") from error
        damaged = code & 0xFF in _DAMAGE or "decode" in str(error)  # a text that is none has no code
        remedy = REMEDY if damaged else "look at the disk and the permissions"
        raise StoreError(f"{path}: {error}; {remedy}") from error
    except Damaged as error:
        raise StoreError(f"{path}: {error} is damaged; {REMEDY}") from error


def no_room(path: Path) -> bool:
    """Whether the files here cannot grow. SQLite knows a full disk, and takes a quota and a limit of the size of files
    (EDQUOT, EFBIG) for errors of the disk."""
    files = [path, path.with_name(path.name + "-wal")]
    size = max(file.stat().st_size if file.exists() else 0 for file in files)
    try:
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as probe:
            left = memoryview(bytes(_PROBE_OCTETS))
            while left:
                left = left[os.pwrite(probe.fileno(), left, size + _PROBE_OCTETS - len(left)) :]
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return False


def room(path: Path, reserve: int) -> int:
    """How many octets the disk has beyond `reserve`, or beyond half of it; below zero where it lacks some of these."""
    disk = os.statvfs(path.parent)
    return disk.f_bavail * disk.f_frsize - min(reserve, disk.f_blocks * disk.f_frsize // 2)


def lock(path: Path) -> int:
    """A descriptor that keeps other processes from the store."""
    place = path.with_name(path.name + ".lock")
    try:
        descriptor = private.open_file(place, os.O_RDWR)
    except OSError as error:
        raise StoreError(f"{place}: {error.strerror}; is the directory there, and may it be written?") from error
    if owner := locks.keep(descriptor):
        os.close(descriptor)
        raise StoreError(f"{path}: process {owner} has the store open; stop it, or give this one another place")
    return descriptor
