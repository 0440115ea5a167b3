"""The embedded store: one SQLite file in WAL mode, for one process at a time.

The loop only queues batches. One thread writes all that is queued in one transaction, so that many commits share one
wait for the disk; readers have threads and connections of their own, and see what was committed last. Records are
stored in blocks: what one transaction appends to a stream is one row, up to a bound. Why SQLite:
docs/decisions/edge-store.md.

A killed process leaves whole transactions or none. When the disk or the store's limit is full, the transaction is
rolled back, each of its batches is tried alone, and the store goes on. Nothing is appended while the disk has less room
than RESERVE_OCTETS: trims need some room to give room back. After any other error of the disk the store stops.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeVar

from edges.store import Batch, Bounds, Committed, Conflict, Record, Retention, StoreError, StoreFull
from edges.store.blocks import (
    BLOCK_RECORDS,
    Stream,
    block_crc,
    checked_value,
    encode,
    find,
    get,
    key_crc,
    position_at,
    read,
    split,
    streams,
    surplus,
)
from edges.store.sqlite_file import connect, lock, open_file, own_errors, room
from edges.store.tails import OCTETS, Tails, fresh
from onceway.base import waits

T = TypeVar("T")

GROUP_OCTETS: Final = 16 << 20  # of payload in a transaction, about
GROUP_BATCHES: Final = 2000
READERS: Final = 4
KEEP_EVERY_S: Final = 1.0  # how often streams are held to their retention by age
FREE_PAGES: Final = 256  # given back to the file system at a time, between two groups
HELD_BLOCKS: Final = 1000  # removed at most of a stream in a transaction, because it is held to its retention
HELD_OCTETS: Final = 4 * GROUP_OCTETS  # the same; to remove 64 MiB takes about 70 ms
LOOKED_AT: Final = 20_000  # blocks, to answer how much is more than somebody wants to keep
RESERVE_OCTETS: Final = 64 << 20  # what a checkpoint may need at most, and more; half of a small disk
WITH_NEXT_S: Final = 0.02  # how long a commit that has time waits for another one
FREE_PART: Final = 16  # of the file, one in so many pages may stay free for what is appended next


@dataclass(slots=True)
class _Commit:
    batch: Batch
    answer: asyncio.Future[Committed]


class EmbeddedStore:
    """A `Store` in the file `path` and the files beside it.

    Args:
        path: The SQLite file; made if it is missing.
        limit_octets: How large it may become; None: as large as the disk.
        wall_us: The clock that records are dated by, in microseconds since the epoch.

    Raises:
        StoreError: Another process has it open, it is no store, is damaged, or is of another version.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit_octets: int | None = None,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.path = Path(path)
        self.place = str(path)
        self._wall_us = wall_us
        self._loop = asyncio.get_running_loop()
        self._failure: StoreError | None = None
        self._closed = False
        self._touched: dict[str, None] = {}  # streams that the transaction changes
        self._freeing = False  # many pages of the file are free
        self._low = False  # the disk has less room than it is to keep
        self._queue: queue.SimpleQueue[_Commit | None] = waits.IDLE(queue.SimpleQueue())
        self._waiting: list[_Commit] = []  # for the next commit
        self._growing: dict[str, list[tuple[int, asyncio.Future[None]]]] = {}
        self._bounds: dict[str, Bounds] = {}  # replaced as a whole by the writer, once durable
        self._tails = Tails()
        self._database: Any
        with self._errors():
            self._database = self._open(limit_octets)
            try:
                self._streams = self._read_streams()
            except BaseException:
                self._database.close()
                self._unlock()
                raise
        self._publish_bounds(self._streams)
        self._local = threading.local()
        self._connections: list[Any] = []
        self._readers = ThreadPoolExecutor(READERS, f"store {self.path.name}")
        self._writer = threading.Thread(target=self._write, name=f"store {self.path.name} writer", daemon=True)
        self._writer.start()

    # --- the store's methods

    def commit(self, batch: Batch, *, with_next: bool = False) -> asyncio.Future[Committed]:
        answer: asyncio.Future[Committed] = waits.STORE(self._loop.create_future())
        if self._failure is not None or self._closed:
            answer.set_exception(self._failure or StoreError(f"{self.place}: the store is closed"))
        else:
            self._waiting.append(_Commit(batch, answer))
            if not with_next:
                self.hurry()
            elif len(self._waiting) == 1:
                self._loop.call_later(WITH_NEXT_S, self.hurry)
        return answer

    def hurry(self) -> None:
        for each in self._waiting:
            self._queue.put(each)
        self._waiting.clear()

    async def read(self, stream: str, first: int, *, records: int = 1000, octets: int = 1 << 20) -> list[Record]:
        bounds = self._bounds.get(stream)
        if bounds is None or max(first, bounds.first) >= bounds.next or records < 1:
            self._check()
            return []
        if octets >= OCTETS and (tail := self._tails.read(stream, max(first, bounds.first), bounds.next, records)):
            self._check()
            return tail
        return await self._reading(lambda database: read(database, stream, first, records, octets))

    async def bounds(self, stream: str) -> Bounds:
        self._check()
        return self._bounds.get(stream, Bounds(0, 0))

    async def position_at(self, stream: str, time_us: int) -> int:
        return await self._reading(lambda database: position_at(database, stream, time_us))

    async def surplus(self, stream: str, retention: Retention) -> int:
        oldest = 0 if retention.age_s is None else self._wall_us() - int(retention.age_s * 1e6)

        def ask(database: Any) -> int:
            found = find(database, stream)
            return 0 if found is None else surplus(database, found, oldest, retention.octets, LOOKED_AT, 1 << 62)

        return await self._reading(ask)

    async def grown(self, stream: str, position: int) -> None:
        self._check()
        if self._bounds.get(stream, Bounds(0, 0)).next > position:
            return
        grown: asyncio.Future[None] = waits.STORE_GROWS(self._loop.create_future())
        waiting = self._growing.setdefault(stream, [])
        waiting.append((position, grown))
        try:
            await grown
        finally:
            if (position, grown) in waiting:
                waiting.remove((position, grown))

    async def get(self, key: str) -> bytes | None:
        return await self._reading(lambda database: get(database, key))

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        def rows(database: Any) -> list[tuple[str, bytes]]:
            found = database.execute("SELECT key, value, crc FROM keys WHERE key >= ? ORDER BY key", (prefix,))
            return [(row[0], checked_value(*row)) for row in takewhile(lambda row: row[0].startswith(prefix), found)]

        return await self._reading(rows)

    async def streams(self, prefix: str = "") -> list[str]:
        self._check()
        return sorted(name for name in self._bounds if name.startswith(prefix))

    async def used(self) -> int:
        def octets(database: sqlite3.Connection) -> int:
            pages, free, size = (
                int(database.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "page_size")
            )
            return (pages - free) * size

        return await self._reading(octets)

    async def close(self) -> None:
        if self._closed:
            return
        self.hurry()
        self._closed = True
        self._queue.put(None)
        await waits.STORE(asyncio.to_thread(self._writer.join))
        waits.STORE(self._readers).shutdown()
        for connection in (*self._connections, self._database):
            connection.close()
        self._unlock()
        self._fail([], StoreError(f"{self.place}: the store is closed"))

    # --- readers

    async def _reading(self, query: Callable[[Any], T]) -> T:
        self._check()
        return await waits.STORE(self._loop.run_in_executor(self._readers, self._query, query))

    def _query(self, query: Callable[[Any], T]) -> T:
        with self._errors():
            database: sqlite3.Connection | None = getattr(self._local, "database", None)
            if database is None:
                database = connect(self.path)
                database.execute("PRAGMA query_only = ON")
                self._local.database = database
                self._connections.append(database)
            return query(database)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StoreError(f"{self.place}: the store is closed")

    # --- what the file has of its own

    def free(self) -> int | None:
        return room(self.path, RESERVE_OCTETS)

    def _open(self, limit_octets: int | None) -> Any:
        self._lock = lock(self.path)
        try:
            return open_file(self.path, limit_octets)
        except BaseException:
            os.close(self._lock)
            raise

    def _unlock(self) -> None:
        os.close(self._lock)

    def _errors(self) -> AbstractContextManager[None]:
        return own_errors(self.path)

    def _look_at_room(self) -> None:
        self._low = room(self.path, RESERVE_OCTETS) < 0

    # --- opening

    def _read_streams(self) -> dict[str, Stream]:
        return {stream.name: stream for stream in streams(self._database)}

    # --- the writer's thread

    def _write(self) -> None:
        stopping = False
        keep_at = time.monotonic() + KEEP_EVERY_S
        while not stopping:
            group, stopping = self._gather(0.0 if self._freeing else max(0.0, keep_at - time.monotonic()))
            try:
                if group:
                    self._write_group(group)
                if time.monotonic() >= keep_at:
                    keep_at = time.monotonic() + KEEP_EVERY_S
                    self._tidy(self._keep)
                if self._freeing:
                    self._tidy(self._free)
            except StoreError as error:
                self._failure = error
                self._tell(partial(self._fail, group, error))
                return

    def _gather(self, within_s: float) -> tuple[list[_Commit], bool]:
        """What is queued, at most one group of it; True: the store is closing."""
        group: list[_Commit] = []
        octets = 0
        try:
            one = self._queue.get(timeout=within_s)
            while one is not None:
                group.append(one)
                octets += sum(sum(map(len, payloads)) for payloads in one.batch.appended.values())
                if octets > GROUP_OCTETS or len(group) >= GROUP_BATCHES:
                    return group, False
                one = self._queue.get_nowait()
        except queue.Empty:
            return group, False
        return group, True

    def _write_group(self, group: Sequence[_Commit]) -> None:
        """Writes these in one transaction; where they do not fit, each in one of its own."""
        try:
            self._look_at_room()
            with self._errors():
                answers = self._transaction(lambda: [(one.answer, self._apply(one.batch)) for one in group])
        except StoreFull as error:
            if len(group) == 1:
                self._answer([(group[0].answer, error)])
            else:
                for one in group:
                    self._write_group([one])
        else:
            self._answer(answers)

    def _transaction(self, write: Callable[[], T]) -> T:
        """Runs it in a transaction, and publishes the streams' new bounds once that is durable."""
        self._touched = {}
        self._database.execute("BEGIN IMMEDIATE")
        try:
            result = write()
            self._write_touched()
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._streams = self._read_streams()
            raise
        self._publish_bounds(self._touched)
        return result

    def _write_touched(self) -> None:
        for name in self._touched:
            self._write_blocks(self._streams[name])
            self._hold(name)
            self._write_stream(self._streams[name])

    def _apply(self, batch: Batch) -> Committed | Conflict:
        database = self._database
        if self._low and batch.appended and not batch.frees:
            raise StoreFull(f"{self.path}: the disk is almost full; make room")
        for key, expected in batch.expected.items():
            if get(database, key) != expected:
                return Conflict(key)
        for key, value in batch.values.items():
            if value is None:
                database.execute("DELETE FROM keys WHERE key = ?", (key,))
            else:
                database.execute(
                    "INSERT INTO keys VALUES (?, ?, ?) "
                    "ON CONFLICT (key) DO UPDATE SET value = excluded.value, crc = excluded.crc",
                    (key, value, key_crc(key, value)),
                )
        removed = {name: self._trim(name, before) for name, before in batch.trimmed.items()}
        for name, retention in batch.kept.items():
            stream = self._stream(name)
            stream.keep_us = None if retention.age_s is None else int(retention.age_s * 1e6)
            stream.keep_octets = retention.octets
        positions = {}
        now = self._wall_us()
        for name, payloads in batch.appended.items():
            if payloads:
                stream = self._stream(name)
                stream.time_us = max(stream.time_us, now)
                positions[name] = range(stream.next, stream.next + len(payloads))
                stream.waiting += payloads
                stream.next += len(payloads)
                if len(stream.waiting) >= BLOCK_RECORDS:
                    self._write_blocks(stream)
        return Committed(positions, removed)

    def _stream(self, name: str) -> Stream:
        stream = self._streams.get(name)
        if stream is None:
            row = self._database.execute(
                "INSERT INTO streams (name, first, next, time_us, octets, crc) VALUES (?, 0, 0, 0, 0, 0) RETURNING id",
                (name,),
            ).fetchone()
            stream = self._streams[name] = Stream(row[0], name)
        self._touched[name] = None
        return stream

    def _write_blocks(self, stream: Stream) -> None:
        """Makes blocks of what was appended."""
        waiting = stream.waiting
        if not waiting:
            return
        stream.waiting = []
        first = stream.next - len(waiting)
        stream.fresh = fresh(first, stream.time_us, waiting)
        for payloads in split(waiting):
            body = encode(payloads)
            position = (first, first + len(payloads) - 1, stream.time_us)
            self._database.execute(
                "INSERT INTO blocks (stream, first, last, time_us, body, crc) VALUES (?, ?, ?, ?, ?, ?)",
                (stream.id, *position, body, block_crc(stream.id, *position, body)),
            )
            stream.octets += len(body)
            first += len(payloads)

    def _write_stream(self, stream: Stream) -> None:
        _, _, *values = stream.values()
        self._database.execute(
            "UPDATE streams SET first = ?, next = ?, time_us = ?, octets = ?, keep_us = ?, keep_octets = ?, crc = ? "
            "WHERE id = ?",
            (*values, stream.id),
        )

    def _trim(self, name: str, before: int | None) -> int:
        if name not in self._streams:
            return 0
        stream = self._streams[name]
        before = stream.next if before is None else min(before, stream.next)
        if before <= stream.first:
            return 0
        self._touched[name] = None
        self._write_blocks(stream)
        gone = "DELETE FROM blocks WHERE stream = ? AND last < ? RETURNING length(body)"
        stream.octets -= sum(octets for (octets,) in self._database.execute(gone, (stream.id, before)))
        removed = before - stream.first
        stream.first = before
        return removed

    def _hold(self, name: str) -> None:
        """Removes the oldest blocks of what is more than the stream is to keep."""
        stream = self._streams[name]
        if stream.keep_us is None and (stream.keep_octets is None or stream.octets <= stream.keep_octets):
            return
        oldest = 0 if stream.keep_us is None else self._wall_us() - stream.keep_us
        self._trim(name, surplus(self._database, stream, oldest, stream.keep_octets, HELD_BLOCKS, HELD_OCTETS))

    def _tidy(self, work: Callable[[], None]) -> None:
        """Work in the background. On a full disk it waits for its next turn: commits may free room before."""
        try:
            with self._errors():
                work()
        except StoreFull:
            self._freeing = False

    def _keep(self) -> None:
        """Holds streams to their age, and looks whether pages are to be given back to the file system."""

        def hold() -> None:
            for name, stream in self._streams.items():
                if stream.keep_us is not None and stream.first < stream.next:
                    self._hold(name)

        if any(stream.keep_us is not None for stream in self._streams.values()):
            self._transaction(hold)
        self._freeing = self._too_many_free()
        if self._low and not self._freeing:
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _free(self) -> None:
        """Gives some free pages back: so few that a commit does not wait for it."""
        # `execute` would stop after one page: SQLite steps once for each
        self._database.executescript(f"PRAGMA incremental_vacuum({FREE_PAGES})")
        self._freeing = self._too_many_free()

    def _too_many_free(self) -> bool:
        (free,) = self._database.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self._database.execute("PRAGMA page_count").fetchone()
        return bool(free > max(FREE_PAGES, pages // FREE_PART))

    def _publish_bounds(self, names: Iterable[str]) -> None:
        for name in names:
            stream = self._streams[name]
            if stream.fresh:
                self._tails.remember(name, stream.fresh)
                stream.fresh = []
            self._bounds[name] = Bounds(stream.first, stream.next)

    # --- from the writer's thread to the loop

    def _answer(self, answers: Sequence[tuple[asyncio.Future[Committed], Committed | StoreError]]) -> None:
        def answer() -> None:
            for future, result in answers:
                if future.done():  # cancelled
                    continue
                if isinstance(result, StoreError):
                    future.set_exception(result)
                else:
                    future.set_result(result)
            self._wake_growing()

        self._tell(answer)

    def _tell(self, call: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def _wake_growing(self) -> None:
        for name, waiting in self._growing.items():
            if waiting:
                end = self._bounds.get(name, Bounds(0, 0)).next
                for position, grown in waiting:
                    if position < end and not grown.done():
                        grown.set_result(None)

    def _fail(self, group: Iterable[_Commit], error: StoreError) -> None:
        """Whoever waits for the store is told."""
        waiting: list[asyncio.Future[Any]] = [one.answer for one in (*group, *self._waiting)]
        self._waiting.clear()
        while not self._queue.empty():
            one = self._queue.get()
            if one is not None:
                waiting.append(one.answer)
        waiting += [grown for many in self._growing.values() for _, grown in many]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
