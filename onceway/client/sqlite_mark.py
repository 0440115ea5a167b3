"""The mark: how many commits the embedded journal has confirmed, so that a lost log is noticed.

SQLite keeps the latest commits in the log (`-wal`) and copies them into the file now and then.  Without the log, or
with a damaged one, it opens the file as it was copied last, and says nothing.  A client that goes on from there uses
numbers again that it has used, and sends and receives again what was done.  So each commit counts itself in the
database, and once it is durable, its number is written into the file past SQLite and its log: this is the mark.  A
database that does not reach its mark has lost its log.

The mark stands in a page that belongs to a row which nobody reads or changes.  SQLite writes only pages that have
changed, so it never writes this one; it was in the log once, and is placed after that log has been emptied.  The mark
is never ahead of what is durable: it is written after the commit.  It need not be durable itself, except that

- the first mark after the log was copied is, so that also after a power cut it is ahead of the file without the log;
- while the log is being copied, the file is newer in part, so the mark says that the log must be there.

The descriptor is closed after SQLite's own: POSIX drops a process's locks on a file when any descriptor of it is
closed.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import zlib
from struct import Struct

from onceway.client.sqlite_format import Damaged, count_of

_MARK = Struct(">16sQ?")
_MAGIC = b"onceway's mark 1"
_CRC = Struct(">I")
_SIZE = _MARK.size + _CRC.size
_IN_PAGE = 512  # where in the page: one sector, which a disk writes as a whole


class Mark:
    """The mark in the file at `path`, which SQLite has locked for us."""

    __slots__ = ("_at", "_file", "_fresh")

    def __init__(self, path: str, database: sqlite3.Connection) -> None:
        self._fresh = True  # the next mark is made durable
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115
        try:
            row = database.execute("SELECT value FROM meta WHERE key = 'mark'").fetchone()
            self._at = self._place(database) if row is None else int(row[0])
        except BaseException:
            database.close()
            self._file.close()
            raise

    def _place(self, database: sqlite3.Connection) -> int:
        """Makes the row, finds a page of it, and writes the first mark there."""
        run = database.execute
        (page_size,) = run("PRAGMA page_size").fetchone()
        filler = secrets.token_bytes(8)
        run("BEGIN IMMEDIATE")
        run("DELETE FROM mark")  # of a process that was killed here
        run("INSERT INTO mark VALUES (?)", (filler * (page_size // 2),))
        number = count_of(database)
        run("COMMIT")
        run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._at = _find(self._file.fileno(), filler, page_size) + _IN_PAGE
        self.write(number)
        run("INSERT INTO meta VALUES ('mark', ?)", (str(self._at),))
        return self._at

    def read(self) -> tuple[int, bool]:
        """The number, and whether the log was being copied.  Raises Damaged."""
        self._file.seek(self._at)
        data = self._file.read(_SIZE)
        if len(data) == _SIZE and _CRC.unpack(data[_MARK.size :])[0] == zlib.crc32(data[: _MARK.size]):
            magic, number, copying = _MARK.unpack(data[: _MARK.size])
            if magic == _MAGIC:
                return number, copying
        raise Damaged("the mark (was the file written by another program?)")

    def write(self, number: int, *, copying: bool | None = None) -> None:
        """A commit is durable.  copying: the log is about to be copied (True), or has been (False)."""
        data = _MARK.pack(_MAGIC, number, bool(copying))
        self._file.seek(self._at)
        self._file.write(data + _CRC.pack(zlib.crc32(data)))
        if self._fresh or copying is not None:
            os.fsync(self._file.fileno())
            self._fresh = copying is not None

    def close(self) -> None:
        self._file.close()


def _find(descriptor: int, filler: bytes, page_size: int) -> int:
    """Where a page begins that holds nothing but filler behind the number of the next page."""
    with os.fdopen(os.dup(descriptor), "rb", closefd=False) as file:
        file.seek(0)
        at = 0
        while page := file.read(page_size):
            if page[4:] == (page[4:12] * page_size)[: page_size - 4] and page[4:12] in filler * 2:
                return at
            at += page_size
    raise Damaged("the file (the row of its mark is not there)")
