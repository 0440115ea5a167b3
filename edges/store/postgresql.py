"""The store in PostgreSQL, for the processes of several hosts: the embedded store's writer on another database.

Every transaction takes one advisory lock, so that the positions of a stream are contiguous and become visible in their
order, whichever process writes. What a process knows of the streams is read again when another has written since.
Others are told by NOTIFY.

A lost connection is opened again, with growing pauses, until the store is closed; what was asked for waits. When the
answer to a COMMIT was lost, the row of this writer says whether the transaction was done: it holds the number of its
last one. The advisory lock is taken first, so the lost transaction has ended. A server that stands still is lost, too.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, TypeVar

import psycopg
import psycopg.abc
import psycopg.conninfo

from edges.store import Bounds, Record, StoreError, StoreFull
from edges.store.blocks import checked_value, find, read
from edges.store.embedded import EmbeddedStore
from onceway.base import waits
from onceway.base.logs import logger
from onceway.client.sqlite_format import Damaged

T = TypeVar("T")

FORMAT: Final = 2
LOCK: Final = 0x4F6E6377  # of all writers of a database
CHANNEL: Final = "onceway_store"
LOOK_S: Final = 0.5  # how often the listener looks whether the store was closed
LOST: Final = (  # the server ended the connection, or takes none now
    *("57P01", "57P02", "57P03", "57P05"),  # it stops, has crashed, starts, or found the session idle for too long
    *("25P03", "25P04"),  # the transaction stood still, or took too long
    "53300",  # it has too many connections: those of clients that died are not all gone
    "25006",  # it has become a standby
)
PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
SETTINGS: Final = (
    "SET idle_in_transaction_session_timeout = '10s'",  # a writer that stands still does not hold the lock for ever
    "SET synchronous_commit = on",
)
_SCHEMA: Final = """
CREATE TABLE store_format (format INTEGER NOT NULL, version BIGINT NOT NULL);
CREATE TABLE writers (id TEXT PRIMARY KEY, number BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE keys (key TEXT COLLATE "C" PRIMARY KEY, value BYTEA NOT NULL, crc BIGINT NOT NULL);
CREATE TABLE streams (
    id BIGSERIAL PRIMARY KEY, name TEXT COLLATE "C" NOT NULL UNIQUE, first BIGINT NOT NULL, next BIGINT NOT NULL,
    time_us BIGINT NOT NULL, octets BIGINT NOT NULL, keep_us BIGINT, keep_octets BIGINT, crc BIGINT NOT NULL);
CREATE TABLE blocks (
    stream BIGINT NOT NULL, last BIGINT NOT NULL, first BIGINT NOT NULL,
    time_us BIGINT NOT NULL, body BYTEA NOT NULL, crc BIGINT NOT NULL, PRIMARY KEY (stream, last));
"""
_AGAIN: Final = "ON CONFLICT (id) DO UPDATE SET number = excluded.number, at = now()"


class Bounded(psycopg.Connection[Any]):
    """Is closed where the server has no answer within STORE_DATABASE: neither TCP nor libpq ends that wait."""

    def wait(self, gen: psycopg.abc.PQGen[T], *arguments: Any, **named: Any) -> T:
        try:
            return super().wait(_in_time(gen), *arguments, **named)
        except Late:
            waits.STORE_DATABASE.ended()
            self.close()
            raise


class Late(psycopg.OperationalError):
    """The server has stood still for so long."""


def _in_time(gen: psycopg.abc.PQGen[T]) -> Generator[Any, Any, T]:
    """The same, which psycopg resumes some times a second whether or not there is something to read."""
    until = time.monotonic() + waits.STORE_DATABASE.s
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= until:
                raise Late(f"no answer within {waits.STORE_DATABASE.s:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        answer: T = end.value
        return answer


class Database:
    """A connection that takes the embedded store's statements."""

    def __init__(self, conninfo: str) -> None:
        self.connection = waits.STORE_DATABASE(Bounded.connect)(
            conninfo,
            autocommit=True,
            target_session_attrs="read-write",  # of several hosts the primary, which is waited for
            connect_timeout=5,
            keepalives_idle=5,
            keepalives_interval=2,
            tcp_user_timeout=15000,
        )
        for setting in SETTINGS:
            self.connection.execute(setting)

    def execute(self, statement: str, arguments: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        if statement == "BEGIN IMMEDIATE":
            statement = f"BEGIN; SELECT pg_advisory_xact_lock({LOCK})"
        return self.connection.execute(statement.replace("?", "%s").encode(), arguments or None)

    @property
    def in_transaction(self) -> bool:
        connection = self.connection
        return not connection.closed and connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def close(self) -> None:
        self.connection.close()


class PostgresStore(EmbeddedStore):
    """A `Store` in the database that `conninfo` names: a URL `postgresql://...`.

    Raises:
        StoreError: It cannot be reached, or is of another version.
    """

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._id = secrets.token_hex(16)
        self._number = 0  # of this writer's last transaction
        self._version = -1  # of the streams as they are known
        self._listener: threading.Thread | None = None
        self._stopping = threading.Event()
        self._watched: dict[str, None] = {}  # streams that somebody waits for
        self._noting = waits.MUTEX(threading.Lock())
        self._away = 0  # threads that have lost the server
        self._log = logger("store")
        super().__init__(_place(conninfo))

    # --- opening

    def _open(self, limit_octets: int | None) -> Database:
        database = Database(self._conninfo)
        try:
            database.execute("BEGIN IMMEDIATE")
            (made,) = database.execute("SELECT to_regclass('store_format') IS NOT NULL").fetchone() or (False,)
            if not made:
                database.connection.execute(_SCHEMA.encode())
                database.execute("INSERT INTO store_format VALUES (?, 0)", (FORMAT,))
            row = database.execute("SELECT format FROM store_format").fetchone()
            if row is None or row[0] != FORMAT:
                raise StoreError(
                    f"{self.place}: the store has format {row and row[0]}, this version of onceway reads format "
                    f"{FORMAT}; use the version that wrote it"
                )
            database.execute("DELETE FROM writers WHERE at < now() - interval '7 days'")
            database.execute("COMMIT")
        except BaseException:
            database.close()
            raise
        return database

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.DiskFull as error:
            raise StoreFull(f"{self.place}: the disk of the database is full; make room") from error
        except psycopg.Error as error:
            raise StoreError(f"{self.place}: {' '.join(str(error).split())}; look at the database") from error
        except Damaged as error:
            raise StoreError(f"{self.place}: {error} is damaged; put a whole copy back") from error

    def _unlock(self) -> None:
        """Nobody has it alone."""

    def _look_at_room(self) -> None:
        """The server's disk cannot be seen from here."""

    # --- the writer's thread

    def _transaction(self, write: Callable[[], T]) -> T:
        self._number += 1
        done: list[T] = []  # by a transaction whose answer may have been lost

        def attempt() -> T:
            if self._database.connection.closed:
                self._database = Database(self._conninfo)
            database = self._database
            try:
                database.execute("BEGIN IMMEDIATE")
                known = "SELECT version, (SELECT number FROM writers WHERE id = ?) FROM store_format"
                version, number = database.execute(known, (self._id,)).fetchone() or (0, None)
                if done and number == self._number:
                    database.execute("ROLLBACK")
                    return done[0]
                done.clear()
                if version != self._version:
                    self._streams = self._read_streams()
                    self._version = version
                self._touched = {}
                result = write()
                self._write_touched()
                end = f"INSERT INTO writers VALUES ('{self._id}', {self._number}) {_AGAIN}; COMMIT"
                if self._touched:
                    end = f"UPDATE store_format SET version = version + 1; NOTIFY {CHANNEL}; {end}"
                    self._version += 1
                done.append(result)
                database.execute(end)
            except BaseException:
                self._version = -1
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            return result

        result = self._while_lost(attempt, self._drop_writer, reads=False)
        self._publish_bounds(self._touched)
        return result

    def _drop_writer(self) -> None:
        self._database.close()

    def _free(self) -> None:
        """The server's autovacuum does it."""

    def _too_many_free(self) -> bool:
        return False

    def _publish_bounds(self, names: Iterable[str]) -> None:
        for name in names:
            stream = self._streams[name]
            self._note(name, Bounds(stream.first, stream.next))

    # --- lost connections

    def _while_lost(self, work: Callable[[], T], drop: Callable[[], None], *, reads: bool = True) -> T:
        """Does it until the connection holds, or the store is closed. What reads waits for room on a full disk, too."""
        away = False
        try:
            for pause_s in chain(PAUSES_S, repeat(PAUSES_S[-1])):
                try:
                    return work()
                except psycopg.Error as error:
                    if not (_lost(error) or (reads and isinstance(error, psycopg.errors.DiskFull))):
                        raise
                    drop()
                    if not away:
                        away = True
                        self._tell(partial(self._lost_by_one, 1, " ".join(str(error).split())))
                    if waits.PAUSE(self._stopping).wait(pause_s):
                        raise
            raise AssertionError
        finally:
            if away:
                self._tell(partial(self._lost_by_one, -1))

    def _lost_by_one(self, more: int, reason: str = "") -> None:
        """Of several threads the first tells that the server is lost, and the last that it is there again."""
        self._away += more
        if more > 0 and self._away == 1:
            self._log.warning("store_away", "{place}: waits for the store: {reason}", place=self.place, reason=reason)
        elif not self._away and not self._stopping.is_set():
            self._log.info("store_back", "{place}: the store answers", place=self.place)

    def _query(self, query: Callable[[Database], T]) -> T:
        def ask() -> T:
            if getattr(self._local, "database", None) is None:
                self._local.database = Database(self._conninfo)
                self._connections.append(self._local.database)
            return query(self._local.database)

        def drop() -> None:
            if getattr(self._local, "database", None) is not None:
                self._local.database.close()
                self._connections.remove(self._local.database)
                self._local.database = None

        with self._errors():
            return self._while_lost(ask, drop)

    # --- readers

    async def read(self, stream: str, first: int, *, records: int = 1000, octets: int = 1 << 20) -> list[Record]:
        if records < 1:
            self._check()
            return []
        return await self._reading(lambda database: read(database, stream, first, records, octets))

    async def bounds(self, stream: str) -> Bounds:
        def ask(database: Database) -> Bounds:
            found = find(database, stream)
            return Bounds(found.first, found.next) if found else Bounds(0, 0)

        bounds: Bounds = await self._reading(ask)
        self._note(stream, bounds)
        return bounds

    async def grown(self, stream: str, position: int) -> None:
        self._check()
        self._watched[stream] = None  # before it is asked for: nothing is missed
        if self._listener is None:
            self._listener = threading.Thread(target=self._listen, name="store listener", daemon=True)
            self._listener.start()
        if (await self.bounds(stream)).next <= position:
            await super().grown(stream, position)

    async def streams(self, prefix: str = "") -> list[str]:
        def ask(database: Database) -> list[str]:
            found = database.execute("SELECT name FROM streams WHERE starts_with(name, ?) ORDER BY name", (prefix,))
            return [name for (name,) in found]

        return await self._reading(ask)

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        def ask(database: Database) -> list[tuple[str, bytes]]:
            query = "SELECT key, value, crc FROM keys WHERE key >= ? AND starts_with(key, ?) ORDER BY key"
            return [(row[0], checked_value(*row)) for row in database.execute(query, (prefix, prefix))]

        return await self._reading(ask)

    async def used(self) -> int:
        """Octets of records and of the table of keys: what is removed is used again by the server when it likes."""

        def ask(database: Database) -> int:
            query = "SELECT (SELECT coalesce(sum(octets), 0) FROM streams) + pg_total_relation_size('keys')"
            return int((database.execute(query).fetchone() or (0,))[0])

        return await self._reading(ask)

    def free(self) -> None:
        return None

    async def close(self) -> None:
        self._stopping.set()
        await super().close()
        if self._listener is not None:
            await waits.STORE_DATABASE(asyncio.to_thread(self._listener.join))

    # --- the listener's thread

    def _listen(self) -> None:
        database: list[Database] = []

        def listen() -> None:
            database.append(Database(self._conninfo))
            connection = database[-1].connection
            connection.execute(f"LISTEN {CHANNEL}")
            while not self._stopping.is_set():
                names = list(self._watched)
                query = "SELECT name, first, next FROM streams WHERE name = ANY(?)"
                for name, first, end in database[-1].execute(query, (names,)):
                    self._note(name, Bounds(first, end))
                self._tell(self._wake_growing)
                for _ in waits.PAUSE(connection).notifies(timeout=LOOK_S, stop_after=1):
                    pass

        def drop() -> None:
            while database:
                database.pop().close()

        try:
            with self._errors():
                self._while_lost(listen, drop)
        except StoreError as error:
            if not self._stopping.is_set():
                self._failure = error
                self._tell(partial(self._fail, [], error))
        finally:
            drop()

    def _note(self, name: str, bounds: Bounds) -> None:
        """Several threads tell of a stream; what is newer counts."""
        with self._noting:
            known = self._bounds.get(name, Bounds(0, 0))
            self._bounds[name] = Bounds(max(known.first, bounds.first), max(known.next, bounds.next))


def _lost(error: psycopg.Error) -> bool:
    """Whether the connection failed, and not what was asked."""
    if isinstance(error, psycopg.InterfaceError):
        return True
    state = error.sqlstate
    if state is None:  # a connection that was lost while a statement was sent is no OperationalError
        return isinstance(error, psycopg.OperationalError) or type(error) is psycopg.DatabaseError
    return state.startswith("08") or state in LOST


def _place(conninfo: str) -> str:
    """The database without its password."""
    parts = psycopg.conninfo.conninfo_to_dict(conninfo)
    return f"database {parts.get('dbname', '?')} at {parts.get('host', 'localhost')}"
