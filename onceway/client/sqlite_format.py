"""What is in the file of the embedded journal: its tables, their checksums, and how older formats become this one.

Every row that somebody relies on has a checksum over its key and its values.  Opening checks SQLite's own structures,
the rows of all links, and that no other row has lost its link; the rest is checked where it is read.

Format 1 had no checksum over links and keys, knew contacts by the wall clock alone, and did not count commits
(`sqlite_mark`).  It is converted on opening.
"""

from __future__ import annotations

import secrets
import sqlite3
import zlib
from typing import Any

APPLICATION_ID = 0x4F6E6365  # "Once"
VERSION = 2

_MARK = "CREATE TABLE mark (filler BLOB NOT NULL);"

_SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE link (
    id INTEGER PRIMARY KEY, role TEXT NOT NULL, address TEXT NOT NULL, name TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0, identity INTEGER NOT NULL DEFAULT 0, sequence INTEGER NOT NULL DEFAULT 0,
    contact_us INTEGER NOT NULL DEFAULT 0, timeout_s REAL NOT NULL DEFAULT 0,
    contact_mark TEXT NOT NULL DEFAULT '', crc INTEGER NOT NULL DEFAULT 0,
    UNIQUE (role, address, name));
CREATE TABLE publications (
    link INTEGER NOT NULL, first INTEGER NOT NULL, lengths BLOB NOT NULL, payloads BLOB NOT NULL,
    crc INTEGER NOT NULL, live BLOB, PRIMARY KEY (link, first)) WITHOUT ROWID;
CREATE TABLE accepted (
    id INTEGER PRIMARY KEY, link INTEGER NOT NULL, outcome BLOB NOT NULL, lengths BLOB NOT NULL, tags BLOB NOT NULL,
    crc INTEGER NOT NULL);
{_MARK}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""

LINK_COLUMNS = "id, role, address, name, epoch, identity, sequence, contact_us, timeout_s, contact_mark"

COMMITS = (0, "journal", "", "")
"""Key of the row in which the journal counts its commits, as its sequence.  It stands among the links because their
page is written anyway."""


class Damaged(Exception):
    """What is damaged, in words that go before "is damaged"."""


class Foreign(Exception):
    """Why this is not a journal that can be used, in words, with the remedy."""


def crc_of(*values: object) -> int:
    """Over values as SQLite returns them: a bit that makes a number a text is noticed as well."""
    return zlib.crc32(repr(values).encode())


def run_crc(key: tuple[object, ...], lengths: bytes, joined: bytes) -> int:
    """Over a row of messages or tags, with what the row is found by."""
    return zlib.crc32(joined, zlib.crc32(lengths, crc_of(*key)))


def prepare(database: sqlite3.Connection, container: str | None) -> str:
    """Creates or checks the tables; returns the container-id.  Raises Damaged, Foreign, sqlite3.Error."""
    run = database.execute
    run("BEGIN IMMEDIATE")
    try:
        return _prepare(database, container)
    finally:
        if database.in_transaction:
            run("ROLLBACK")


def _prepare(database: sqlite3.Connection, container: str | None) -> str:
    run = database.execute
    (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = run("PRAGMA application_id").fetchone()
    (version,) = run("PRAGMA user_version").fetchone()
    if not tables and not application:
        _execute(database, _SCHEMA)
    elif application != APPLICATION_ID:
        raise Foreign("a database of another program, no onceway journal; give another path")
    elif version not in (1, VERSION):
        raise Foreign(
            f"a journal of format {version}, this onceway reads {VERSION}; "
            "drain it with the onceway that wrote it, or give another path"
        )
    problems = run("PRAGMA quick_check(1)").fetchone()[0]
    if problems != "ok":
        raise Damaged(f"the file ({problems})")
    if version == 1:
        _convert(database)
    if not tables or version == 1:
        insert_link(database, COMMITS)
    _check_links(database)
    container = _check_container(database, container)
    run("COMMIT")
    return container


def _check_container(database: sqlite3.Connection, container: str | None) -> str:
    run = database.execute
    values = dict(run("SELECT key, value FROM meta").fetchall())
    known = values.get("container")
    if known is None:
        if run("SELECT count(*) FROM link").fetchone()[0] > 1:
            raise Damaged("the container-id")
        container = container or f"onceway-{secrets.token_hex(8)}"
        rows = [("container", container), ("container-crc", str(crc_of(container)))]
        database.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        return container
    if values.get("container-crc") != str(crc_of(known)):
        raise Damaged("the container-id")
    if container is not None and container != known:
        raise Foreign(
            f"the journal belongs to container {known!r}, not {container!r}; connect as {known!r}, or give another path"
        )
    return str(known)


def insert_link(database: sqlite3.Connection, key: tuple[int, str, str, str]) -> tuple[Any, ...]:
    row = (*key, 0, 0, 0, 0, 0.0, "")
    insert = f"INSERT INTO link ({LINK_COLUMNS}, crc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    database.execute(insert, (*row, crc_of(*row)))
    return row


def count_row(commits: int) -> tuple[Any, ...]:
    """The values of the row that counts commits, as `LinkRows.row` has those of a link."""
    state = (0, 0, commits, 0, 0.0, "")
    return (*state, crc_of(*COMMITS, *state), COMMITS[0])


def count_of(database: sqlite3.Connection) -> int:
    """The number of commits.  Raises Damaged."""
    row = database.execute("SELECT sequence FROM link WHERE id = ?", COMMITS[:1]).fetchone()
    if row is None:
        raise Damaged("the number of commits")
    return int(row[0])


def _check_links(database: sqlite3.Connection) -> None:
    for *values, crc in database.execute(f"SELECT {LINK_COLUMNS}, crc FROM link"):
        if crc != crc_of(*values):
            raise Damaged(f"the state of link {values[0]}")
    for table, role in (("publications", "publisher"), ("accepted", "subscriber")):
        query = f"SELECT count(*) FROM {table} WHERE link NOT IN (SELECT id FROM link WHERE role = ?)"
        if database.execute(query, (role,)).fetchone()[0]:
            raise Damaged("the list of links")


def _convert(database: sqlite3.Connection) -> None:
    """Makes a journal of format 1 one of format 2, in the transaction that is open."""
    run = database.execute
    run(_MARK)
    run("ALTER TABLE link ADD COLUMN contact_mark TEXT NOT NULL DEFAULT ''")
    run("ALTER TABLE link ADD COLUMN crc INTEGER NOT NULL DEFAULT 0")
    for values in run(f"SELECT {LINK_COLUMNS} FROM link").fetchall():
        run("UPDATE link SET crc = ? WHERE id = ?", (crc_of(*values), values[0]))
    for link, first, lengths, payloads, crc, live in run("SELECT * FROM publications").fetchall():
        _check_1(lengths, payloads, crc)
        new = (run_crc((link, first), lengths, payloads), with_crc(live, link, first), link, first)
        run("UPDATE publications SET crc = ?, live = ? WHERE link = ? AND first = ?", new)
    for row, link, outcome, lengths, tags, crc in run("SELECT * FROM accepted").fetchall():
        _check_1(lengths, tags, crc)
        run("UPDATE accepted SET crc = ? WHERE id = ?", (run_crc((row, link, outcome), lengths, tags), row))
    known = run("SELECT value FROM meta WHERE key = 'container'").fetchone()
    if known is not None:
        run("INSERT INTO meta VALUES ('container-crc', ?)", (str(crc_of(known[0])),))
    run(f"PRAGMA user_version = {VERSION}")


def _check_1(lengths: Any, joined: Any, crc: Any) -> None:
    blobs = isinstance(lengths, bytes) and isinstance(joined, bytes)
    if not blobs or zlib.crc32(joined, zlib.crc32(lengths)) != crc:
        raise Damaged("a row of messages or tags")


def with_crc(live: bytes | None, link: int, first: int) -> bytes | None:
    """The ranges of a run that have no outcome, with their checksum behind them."""
    return None if live is None else live + crc_of(link, first, live).to_bytes(4, "big")


def without_crc(live: bytes | None, link: int, first: int) -> bytes | None:
    """The other way.  Raises Damaged."""
    if live is None:
        return None
    if not isinstance(live, bytes) or crc_of(link, first, live[:-4]) != int.from_bytes(live[-4:], "big"):
        raise Damaged(f"the row of messages from {first} on")
    return live[:-4]


def _execute(database: sqlite3.Connection, script: str) -> None:
    """As `executescript`, which would commit what is open."""
    for statement in script.split(";\n"):
        if statement.strip():
            database.execute(statement)
