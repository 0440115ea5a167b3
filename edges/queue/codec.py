"""What members say and keep, as a body of one AMQP value: lists that begin with the name of what they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from amqp10.decoder import decode_value
from amqp10.encoder import encode_value
from edges.queue import messages
from onceway.base.private import make_file
from onceway.errors import UsageError

_KINDS: Final = {
    kind.__name__: kind
    for kind in vars(messages).values()
    if isinstance(kind, type) and kind.__module__ == messages.__name__
}


_FORMS: Final = {name: list(get_type_hints(kind).values()) for name, kind in _KINDS.items()}
MOST: Final = 1 << 62
"""A number from here on is none that a member says: those that count on from it would have no form."""


def plain(value: Any) -> Any:
    """Lists, numbers, strings and bytes, which AMQP has types for."""
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *(plain(getattr(value, field.name)) for field in fields(value))]
    if isinstance(value, tuple):
        name = type(value).__name__ if type(value).__name__ in _KINDS else ""
        return [name, *map(plain, value)]
    return value


def made(value: Any) -> Any:
    """The reverse of `plain`.

    Raises:
        ValueError: It is nothing that a member says.
    """
    if not isinstance(value, list):
        return value
    name, *parts = value or [None]
    if not isinstance(name, str):
        raise ValueError("nothing that a member says")
    if name == "":
        return tuple(map(made, parts))
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"nothing that a member says is called {name!r}")
    values = list(map(made, parts))
    forms = _FORMS[name]
    if len(values) != len(forms) or not all(map(_fits, values, forms)):
        raise ValueError(f"{name}: not what a member says")
    return kind(*values)


def read(body: object) -> tuple[str, messages.Message]:
    """The sender and what it says, of a message of either address.

    Raises:
        ValueError: No member says this.
    """
    sender, said = body if isinstance(body, list) and len(body) == 2 else (None, None)
    message = made(said)
    if not isinstance(sender, str) or not isinstance(message, messages.Message):
        raise ValueError("not what a member of a queue says")
    return sender, message


def _fits(value: object, form: Any) -> bool:
    """Whether a value is of this type, as it stands at a field."""
    if isinstance(form, UnionType):
        return any(_fits(value, each) for each in get_args(form))
    if get_origin(form) is tuple:
        return isinstance(value, tuple) and all(_fits(each, get_args(form)[0]) for each in value)
    if form is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST
    return isinstance(value, form)


class Kept:
    """What a member of the protocol like Paxos keeps: a file of SQLite, one for each member and queue (rule 3.9).

    Attributes:
        life: which process of this member it is, counted from 1.
    """

    def __init__(self, path: Path) -> None:
        """Raises UsageError: the file cannot be opened."""
        self.path = path
        try:
            make_file(path)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=0.0, check_same_thread=False)
            self._database.execute("PRAGMA locking_mode=EXCLUSIVE")  # a second process of this member is refused
            self._database.execute("PRAGMA journal_mode=WAL")  # one write to the disk for a transaction, not three
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute("CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, record BLOB)")
            self._database.execute("CREATE TABLE IF NOT EXISTS lives (life INTEGER PRIMARY KEY)")
            inserted = self._database.execute("INSERT INTO lives VALUES (NULL) RETURNING life")
            self.life = int(inserted.fetchone()[0])
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                remedy = "another process is this member; stop it, or give this one another name"
            else:
                remedy = f"{error}; is the directory there, may it be written, and is this a member's file?"
            raise UsageError(f"{path}: {remedy}") from error
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; is the directory there, and may it be written?") from error

    def records(self) -> list[messages.Record]:
        """What earlier processes kept, in that order."""
        rows = self._database.execute("SELECT record FROM records ORDER BY number")
        return [made(decode_value(record, 0, len(record))[0]) for (record,) in rows]

    def keep(self, records: Iterable[messages.Record]) -> None:
        """Returns when they are on the disk."""
        self._database.execute("BEGIN")
        rows = ((encode_value(plain(record)),) for record in records)
        self._database.executemany("INSERT INTO records (record) VALUES (?)", rows)
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()
