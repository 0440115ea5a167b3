"""A journal in the application's own database: what a message did, and that it was accepted, are one commit.

    journal = onceway.DatabaseJournal(lambda: sqlite3.connect("shop.db"))
    async with onceway.connect(url, container="shop", journal=journal) as connection:
        subscriber = await connection.subscriber("orders")
        async for delivery in subscriber:
            with subscriber.transaction(database) as transaction:
                database.execute("INSERT INTO orders VALUES (?)", [delivery.body])
                transaction.accept(delivery)

The journal is one table, TABLE, in SQLite or PostgreSQL. Its rows, by link:

- tag empty: the link's state, as JSON. `number` is its *owner*: each process that opens the link counts it up, and
  nothing that is written under an earlier owner is committed.
- a tag: a message that was accepted or rejected, and that the network has not settled; `number` is 0, `body` the
  outcome.
- no tag: a message that is to be sent. `number` is its sequence once it is about to be sent.

The journal has a connection of its own, in a thread of its own. What an application accepts in a transaction is written
on the application's connection; so is what `Outbox.put` hands over (`onceway.client.outbox`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from amqp10.outcomes import ACCEPTED, Accepted, write_state
from onceway.base import waits
from onceway.client import clock
from onceway.client.delivery import Batch, Delivery
from onceway.client.journal import UNDECIDED, PublisherRecord, SubscriberRecord
from onceway.errors import JournalError, JournalLocked, UsageError
from router.json_text import write_json

if TYPE_CHECKING:
    from onceway.client.subscriber import Subscriber

_COLUMNS: Final = "link TEXT NOT NULL, tag {octets}, number BIGINT, body {octets} NOT NULL, UNIQUE (link, tag, number)"
TABLE: Final = {
    "sqlite": f"CREATE TABLE onceway (id INTEGER PRIMARY KEY, {_COLUMNS.format(octets='BLOB')})",
    "postgresql": "CREATE TABLE onceway (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    f"{_COLUMNS.format(octets='BYTEA')})",
}
"""The statement that creates the table, by database."""

_LOG: Final = logging.getLogger("onceway")
STATE: Final = b""
LEFT: Final = ("rejected", "undecided")  # stand before the link of a message that was not accepted
_ACCEPTED: Final = write_state(ACCEPTED)
BUSY_S: Final = 0.05  # a database that another one writes to is asked again
_KINDS: Final = {"sqlite3": "sqlite", "psycopg": "postgresql"}
Write = tuple[str, list[tuple[Any, ...]]]
"""A statement and the parameters of each time that it is executed."""


class Database:
    """A connection of sqlite3, psycopg or SQLAlchemy (also an ORM session), with `?` for parameters.

    Raises:
        UsageError: It is none of these.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        modules = [kind.__module__.partition(".")[0] for kind in type(connection).mro()]
        self._alchemy = "sqlalchemy" in modules
        driver = next((module for module in modules if module in _KINDS), "")
        if not (driver or self._alchemy) or hasattr(connection, "__aenter__"):
            raise UsageError(
                f"{type(connection).__module__}.{type(connection).__name__}: not a connection of sqlite3, psycopg or "
                "SQLAlchemy (each without async)"
            )
        self.kind = self._core.dialect.name if self._alchemy else _KINDS[driver]
        if self.kind not in TABLE:
            raise UsageError(f"the database is {self.kind}: a journal is in one of {', '.join(TABLE)}")
        self._mark = "?" if self.kind == "sqlite" else "%s"
        home, name = ("sqlalchemy.exc", "SQLAlchemyError") if self._alchemy else (driver, "Error")
        self.errors: type[Exception] = getattr(sys.modules[home], name)

    def run(self, statement: str, *parameters: tuple[Any, ...]) -> Any:
        """Executes it for each of these, and returns the cursor."""
        statement = statement.replace("?", self._mark)
        if self._alchemy:
            return self._core.exec_driver_sql(statement, parameters[0] if len(parameters) == 1 else list(parameters))
        if len(parameters) == 1:
            return self._connection.execute(statement, parameters[0])
        cursor = self._connection.cursor()
        cursor.executemany(statement, parameters)
        return cursor

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def check(self) -> None:
        """UsageError where what is written now is not left to `commit`."""
        raw = self._core.connection.dbapi_connection if self._alchemy else self._connection
        if isinstance(raw, sqlite3.Connection):
            by_itself = not raw.in_transaction and (
                raw.isolation_level is None or getattr(raw, "autocommit", False) is True
            )
        else:
            by_itself = raw.autocommit and not raw.info.transaction_status  # 0: in no transaction
        if by_itself:
            raise UsageError("the connection commits each statement by itself (autocommit): begin a transaction before")

    def busy(self, error: Exception) -> bool:
        """Somebody else writes to the file."""
        cause = getattr(error, "orig", error)
        return isinstance(cause, sqlite3.OperationalError) and cause.sqlite_errorcode & 0xFF in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
        )

    @property
    def _core(self) -> Any:
        """SQLAlchemy's connection; a session has another one in each transaction."""
        connection = self._connection
        return connection if hasattr(connection, "exec_driver_sql") else connection.connection()


class DatabaseJournal:
    """The journal of one container in the application's database. Several containers may have one table.

    Args:
        connect: Opens a connection of sqlite3, psycopg or SQLAlchemy; called once, in the journal's thread.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self.durable = 0
        self.failure: JournalError | None = None
        self._open_database = connect
        self._database: Database | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="onceway journal")
        self._lock = waits.MUTEX(threading.Lock())  # guards what is gathered
        self._pending: list[Write | Link] = []
        self._group = 1  # number of the commit being gathered
        self._wake: Callable[[], None] = lambda: None
        self._container = ""
        self._closing = False

    # -- the connection's methods

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        if not container:
            raise UsageError("a journal in a database is found by its container: connect(..., container=NAME)")
        if self._database is not None:
            raise JournalError("this journal is open already; every connection needs one of its own")
        self._container, self._wake = container, wake
        self.call(lambda: None)
        return container

    def publisher(self, address: str, name: str) -> PublisherPart:
        return PublisherPart(self, self._link("publisher", address, name))

    def subscriber(self, address: str, name: str) -> SubscriberPart:
        return SubscriberPart(self, self._link("subscriber", address, name))

    def sync(self) -> int:
        with self._lock:
            if not self._pending:
                return self._group - 1
            group, self._group = self._group, self._group + 1
            pending, self._pending = self._pending, []
        self._thread.submit(self._write, group, pending)
        return group

    def close(self) -> None:
        if self.failure is None:
            self.sync()
        self._closing = True
        if self._database is not None:
            self._thread.submit(self._database.close)
        waits.DISK(self._thread).shutdown()

    # -- for its parts

    def call(self, work: Callable[[], Any]) -> Any:
        """What the work returns; done, and committed, behind everything written so far."""
        self.sync()
        return waits.DISK(self._thread.submit(self._work, work).result)()

    def write(self, link: Link, statement: str = "", *parameters: tuple[Any, ...]) -> None:
        """With the next commit: the link's state, before anything else of it, and this."""
        with self._lock:
            if link not in self._pending:
                self._pending.append(link)
            if parameters:
                self._pending.append((statement, list(parameters)))

    def run(self, statement: str, *parameters: tuple[Any, ...]) -> Any:
        """In the thread."""
        if self._database is None:
            self._database = Database(self._open_database())
        return self._database.run(statement, *parameters)

    # -- the thread

    def _link(self, role: str, address: str, name: str) -> Link:
        return Link(self, name_of(role, self._container, address, name))

    def _write(self, group: int, pending: Sequence[Write | Link]) -> None:
        if self.failure is None:
            try:
                self._work(partial(self._write_all, pending))
            except JournalError as error:
                self.failure = error
            else:
                self.durable = group
            self._wake()

    def _write_all(self, pending: Sequence[Write | Link]) -> None:
        for each in pending:
            if isinstance(each, Link):
                each.save()
            else:
                self.run(each[0], *each[1])

    def _work(self, work: Callable[[], Any]) -> Any:
        """Again where the application, or another process, writes to the file."""
        while True:
            try:
                if self._database is None:
                    self._database = Database(self._open_database())
                result = work()
                self._database.commit()
            except JournalLocked:
                assert self._database is not None
                self._database.rollback()
                raise
            except (sqlite3.Error, self._errors) as error:
                if self._database is None:
                    raise JournalError(f"cannot open the database: {error}") from error
                self._database.rollback()
                if self._database.busy(error) and not self._closing:
                    threading.Event().wait(waits.PAUSE(BUSY_S))
                    continue
                raise JournalError(f"{error}; is the table there? {TABLE[self._database.kind]}") from error
            return result

    @property
    def _errors(self) -> type[Exception]:
        return sqlite3.Error if self._database is None else self._database.errors


def name_of(role: str, container: str, address: str, name: str) -> str:
    """What the column `link` says of a link."""
    return write_json([role, container, address, name])


class Link:
    """The state of one link, as this process owns it."""

    def __init__(self, journal: DatabaseJournal, name: str) -> None:
        self.name = name
        self.owner = 0
        self.epoch = self.identity = self.sequence = self.contact_us = 0
        self.timeout_s, self.contact_mark = 0.0, ""
        self.rows: list[tuple[bytes | None, int | None, bytes]] = []  # (tag, number, body), as it was opened
        self._journal = journal
        journal.call(self._take)

    def _take(self) -> None:
        """Nothing that another process writes from now on is committed."""
        run, name = self._journal.run, self.name
        run(
            "INSERT INTO onceway (link, tag, number, body) SELECT ?, ?, 0, ? WHERE NOT EXISTS "
            "(SELECT 1 FROM onceway WHERE link = ? AND tag = ?)",
            (name, STATE, self._state(), name, STATE),
        )
        run("UPDATE onceway SET number = number + 1 WHERE link = ? AND tag = ?", (name, STATE))
        found = run("SELECT tag, number, body FROM onceway WHERE link = ? ORDER BY number, id", (name,)).fetchall()
        self.rows = []
        for tag, number, body in found:
            if tag is None or bytes(tag) != STATE:
                self.rows.append((None if tag is None else bytes(tag), number, bytes(body)))
                continue
            self.owner = number
            state = json.loads(bytes(body))
            self.epoch, self.identity, self.sequence, self.contact_us, self.timeout_s, self.contact_mark = state
            self.contact_us = clock.restore(self.contact_us, self.contact_mark)

    def save(self) -> None:
        """In the journal's thread."""
        update = "UPDATE onceway SET body = ? WHERE link = ? AND tag = ? AND number = ?"
        if self._journal.run(update, (self._state(), self.name, STATE, self.owner)).rowcount != 1:
            raise JournalLocked(f"another process has opened {self.name}")

    def check(self, database: Database) -> None:
        """Until the transaction ends, no other process opens the link.

        Raises:
            UsageError: The journal is in another database.
            JournalLocked: Another process has opened it.
        """
        shared = " FOR SHARE" if database.kind == "postgresql" else ""
        query = f"SELECT number FROM onceway WHERE link = ? AND tag = ?{shared}"
        row = database.run(query, (self.name, STATE)).fetchone()
        if row is None:
            raise UsageError("the connection is to another database than the journal's")
        if row[0] != self.owner:
            raise JournalLocked(f"another process has opened {self.name}")

    def attach(self, epoch: int, identity: int) -> None:
        self.epoch, self.identity = epoch, identity
        self._journal.write(self)

    def contact(self, wall_us: int, timeout_s: float) -> None:
        self.contact_us, self.timeout_s, self.contact_mark = wall_us, float(timeout_s), clock.mark(wall_us)
        self._journal.write(self)

    def _state(self) -> bytes:
        state = [self.epoch, self.identity, self.sequence, self.contact_us, self.timeout_s, self.contact_mark]
        return write_json(state).encode()


class PublisherPart:
    """A publisher's part of the journal.

    Attributes:
        handed: Rows of what is put next: they have a row already.
        taken: Rows that are handed over and have no number yet.
    """

    def __init__(self, journal: DatabaseJournal, link: Link) -> None:
        self.link = link
        self.handed: list[int] = []
        self.taken: set[int] = set()
        self._journal = journal
        self.record = PublisherRecord(
            epoch=link.epoch,
            incarnation=link.identity,
            sequence=link.sequence,
            contact_us=link.contact_us,
            timeout_s=link.timeout_s,
            undecided=[(number, body) for tag, number, body in link.rows if number is not None],
        )
        self.attach, self.contact = link.attach, link.contact

    def fetch(self, most: int) -> list[tuple[int, bytes]]:
        """(row, payload) of what waits to be sent and is not handed over yet, in the order of the rows."""
        query = "SELECT id, body FROM onceway WHERE link = ? AND tag IS NULL AND number IS NULL ORDER BY id LIMIT ?"
        work = partial(self._journal.run, query, (self.link.name, most + len(self.taken)))
        rows = self._journal.call(lambda: work().fetchall())
        new = [(row, bytes(body)) for row, body in rows if row not in self.taken]
        self.taken.intersection_update(row for row, _ in rows)
        return new

    def leave(self, row: int, why: str) -> None:
        """It cannot be sent."""
        self._told_left(1, why, LEFT[0])
        update = "UPDATE onceway SET link = ? WHERE id = ?"
        self._journal.write(self.link, update, (LEFT[0] + self.link.name, row))

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        link = self.link
        link.sequence = first + len(payloads)
        numbers = range(first, first + len(payloads))
        if self.handed:
            rows = self.handed[: len(payloads)]
            del self.handed[: len(payloads)]
            update = "UPDATE onceway SET number = ? WHERE id = ?"
            self._journal.write(link, update, *zip(numbers, rows, strict=True))
            return
        insert = "INSERT INTO onceway (link, number, body) VALUES (?, ?, ?)"
        self._journal.write(link, insert, *((link.name, *each) for each in zip(numbers, payloads, strict=True)))

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        """What was not accepted stays, under another link, until a person has decided."""
        where = "WHERE link = ? AND tag IS NULL AND number BETWEEN ? AND ?"
        mine = (self.link.name, first, last)
        if outcome is None or isinstance(outcome, Accepted):  # a settlement without an outcome says no more
            self._journal.write(self.link, f"DELETE FROM onceway {where}", mine)
        else:
            kind = LEFT[outcome is UNDECIDED]
            self._told_left(last - first + 1, outcome, kind)
            left = kind + self.link.name
            self._journal.write(self.link, f"UPDATE onceway SET link = ?, number = NULL {where}", (left, *mine))

    def close(self) -> None:
        delete = "DELETE FROM onceway WHERE link = ? AND tag IS NULL AND number >= 0"
        self._journal.write(self.link, delete, (self.link.name,))
        self.link.attach(self.link.epoch, 0)

    def _told_left(self, count: int, why: object, kind: str) -> None:
        left = kind + self.link.name
        _LOG.warning("%d messages were not accepted, %s: they stay, as rows with the link %s", count, why, left)


class SubscriberPart:
    """A subscription's part of the journal."""

    def __init__(self, journal: DatabaseJournal, link: Link) -> None:
        self.link = link
        self._journal = journal
        self._born = link.identity
        self._stored: set[bytes] = set()  # tags that a transaction has committed
        self.record = SubscriberRecord(
            epoch=link.epoch,
            born=link.identity,
            contact_us=link.contact_us,
            timeout_s=link.timeout_s,
            unsettled={tag: body for tag, _, body in link.rows if tag is not None},
        )
        self.contact = link.contact

    def attach(self, epoch: int, born: int) -> None:
        self._born = born
        self.link.attach(epoch, self.link.identity)

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        if self.link.identity != self._born:
            self.link.attach(self.link.epoch, self._born)
        return {}  # the link has been this process's since it was opened

    def store(self, database: Database, tags: Iterable[bytes], outcome: bytes) -> None:
        """Writes them in the application's transaction."""
        insert = "INSERT INTO onceway (link, tag, number, body) VALUES (?, ?, 0, ?)"
        database.run(insert, *((self.link.name, tag, outcome) for tag in tags))

    def stored(self, tags: Iterable[bytes]) -> None:
        """That transaction has been committed."""
        self._stored.update(tags)

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        new = [tag for tag in tags if tag not in self._stored]
        self._stored.difference_update(tags)
        if new:  # a commit whose answer was lost may have written them
            insert = "INSERT INTO onceway (link, tag, number, body) VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING"
            self._journal.write(self.link, insert, *((self.link.name, tag, outcome) for tag in new))

    def settle(self, tags: Sequence[bytes]) -> None:
        delete = "DELETE FROM onceway WHERE link = ? AND tag = ? AND number = 0"
        self._journal.write(self.link, delete, *((self.link.name, tag) for tag in tags))

    def close(self) -> None:
        self._journal.write(self.link, "DELETE FROM onceway WHERE link = ? AND number = 0", (self.link.name,))
        self.link.attach(self.link.epoch, 0)


class Transaction:
    """One commit of the application: what messages did, and that they were accepted.

    Made by `Subscriber.transaction`. The block that it is of commits at its end, and rolls back where it raises: then
    nothing was accepted, and the deliveries may be given to another transaction.
    """

    def __init__(self, subscriber: Subscriber, part: SubscriberPart, connection: Any) -> None:
        self._subscriber = subscriber
        self._part = part
        self._database = Database(connection)
        self._received: list[Delivery | Batch] = []

    def accept(self, received: Delivery | Batch) -> None:
        """Takes responsibility for a delivery, or for all of a batch, with the commit.

        Raises:
            UsageError: It has its outcome; or the connection commits each statement by itself.
            The database's error: another transaction has accepted it, for example.
        """
        tags = [received.tag] if isinstance(received, Delivery) else received.tags
        if isinstance(received, Delivery) and received.decided:
            raise UsageError("this delivery has its outcome already")
        self._database.check()
        self._part.store(self._database, tags, _ACCEPTED)
        self._received.append(received)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self._database.rollback()
            return
        try:
            if self._received:
                self._part.link.check(self._database)
            self._database.commit()
        except BaseException:
            self._database.rollback()
            raise
        loop = self._subscriber._driver.loop
        if asyncio._get_running_loop() is loop:
            self._accept()
        else:
            loop.call_soon_threadsafe(self._accept)

    def _accept(self) -> None:
        for received in self._received:
            self._part.stored([received.tag] if isinstance(received, Delivery) else received.tags)
            received.accept()
