"""The store in PostgreSQL when the server fails: a full disk, deaths under load, a standby, connections that are cut."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edges.store import Batch, Retention, Store, StoreFull, open_store
from tests.edges.store.conftest import all_of, append
from tests.edges.store.postgres import Server
from tests.edges.store.served import Loop
from tests.live import wait_until

pytest.importorskip("psycopg", reason="psycopg is missing: pip install 'onceway[postgresql]'")

from edges.store import postgresql
from edges.store.postgresql import Database


class Load:
    """A store in a thread of its own, and commits in it, some at a time; each also counts itself in a key.

    The test's own thread starts servers: they die with the thread that started them.
    """

    def __init__(self, url: str) -> None:
        self._loop = Loop()
        self._ended = False
        self._store = self._loop.run(self._open(url))
        self._loading = asyncio.run_coroutine_threadsafe(self._load(), self._loop.loop)

    async def _open(self, url: str) -> Store:
        return open_store(url)

    async def _load(self) -> int:
        committed = 0
        while not self._ended:
            many = []
            for number in range(committed, committed + 5):
                batch = Batch()
                batch.append("a", [b"%d" % number])
                batch.put("count", b"%d" % (number + 1))
                many.append(self._store.commit(batch))
            await asyncio.gather(*many)
            committed += 5
        return committed

    def more(self, records: int) -> None:
        """Returns when there are so many more."""

        async def wait() -> None:
            end = (await self._store.bounds("a")).next
            await self._store.grown("a", end + records - 1)

        self._loop.run(wait())

    def end(self) -> int:
        """How many it has committed."""
        self._ended = True
        committed = self._loading.result(60)
        self._loop.run(self._store.close())
        self._loop.close()
        return committed


async def look(url: str, committed: int) -> None:
    store = open_store(url)
    assert [int(payload) for payload in await all_of(store, "a")] == list(range(committed))
    assert await store.get("count") == b"%d" % committed
    await store.close()


def test_a_full_disk_at_any_statement_loses_nothing_and_stops_nothing(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Database.execute
    failing = range(0)
    statements = 0

    def execute(self: Database, statement: str, arguments: Any = ()) -> Any:
        nonlocal statements
        statements += 1
        if statements - 1 in failing and statement != "ROLLBACK":
            if statement == "BEGIN IMMEDIATE":
                real(self, "BEGIN")  # its second part fails
            real(self, "DO $$ BEGIN RAISE disk_full; END $$")
        return real(self, statement, arguments)

    async def life(name: str, at: int, many: int) -> int:
        """Returns how many statements there were."""
        nonlocal failing, statements
        store = open_store(database)
        failing, statements = range(at, at + many), 0
        full = 0
        for number in range(2):
            batch = Batch()
            batch.append(name, [b"%d" % number])
            batch.put(name, b"%d" % (number + 1))
            batch.trim(name, number - 1)
            while True:
                try:
                    await store.commit(batch)
                    break
                except StoreFull:
                    full += 1
        failing, ended = range(0), statements
        assert bool(full) is (at >= 0)
        assert await all_of(store, name) == [b"0", b"1"]
        assert await store.get(name) == b"2"
        await store.close()
        return ended

    monkeypatch.setattr(Database, "execute", execute)
    whole = asyncio.run(life("whole", -1, 1))
    assert whole > 10
    for at in range(whole):
        asyncio.run(life(f"at {at}", at, 1 + at % 3))


async def test_what_is_read_on_a_full_disk_waits_for_room(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may refuse it; the listener is refused, too."""
    real = Database.execute
    refused: list[str] = []

    def execute(self: Database, statement: str, arguments: Any = ()) -> Any:
        writes = threading.current_thread().name.endswith("writer")
        if not writes and statement.startswith("SELECT") and statement not in refused:
            refused.append(statement)
            real(self, "DO $$ BEGIN RAISE disk_full; END $$")
        return real(self, statement, arguments)

    store = open_store(database)
    monkeypatch.setattr(Database, "execute", execute)
    grown = asyncio.create_task(store.grown("a", 0))
    await append(store, "a", b"x")
    async with asyncio.timeout(30):
        await grown
    assert await all_of(store, "a") == [b"x"]
    assert await store.get("key") is None
    assert await store.scan("key") == []
    assert await store.streams() == ["a"]
    assert await store.position_at("a", 0) == 0
    assert await store.surplus("a", Retention()) == 0
    assert await store.used() > 0
    assert len(refused) > 7
    await store.close()


def test_a_database_on_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    server = Server(small="24m")
    try:
        asyncio.run(fill(*server.small_database("full_one")))
    finally:
        server.close()


async def fill(url: str, make_room: Callable[[], None]) -> None:
    rng = random.Random(7)
    store = open_store(url)
    kept: list[bytes] = []

    async def keep() -> None:
        payload = rng.randbytes(100_000)
        await append(store, "a", payload)
        kept.append(payload)

    for _ in range(3):
        with pytest.raises(StoreFull, match="the disk of the database is full; make room"):
            while True:
                await keep()
        assert await all_of(store, "a") == kept
        assert len(kept) > 20
    make_room()
    for _ in range(10):
        await keep()
    assert await all_of(store, "a") == kept
    await store.close()


def test_a_server_that_is_killed_stopped_and_started_under_load_loses_nothing_and_writes_nothing_twice(
    own_server: Server,
) -> None:
    rng = random.Random(11)
    url = own_server.url()

    load = Load(url)
    for how in ["at once", "a backend", "stop", "crash"]:
        load.more(rng.randrange(1, 20))
        if how == "a backend":
            own_server.kill_a_backend()
        else:
            {"at once": own_server.kill_at_once, "crash": own_server.kill, "stop": own_server.stop}[how]()
            own_server.start()
    load.more(1)
    asyncio.run(look(url, load.end()))


def test_a_standby_that_is_promoted_takes_the_store_over_without_loss(own_server: Server) -> None:
    standby = Server(of=own_server)
    try:
        own_server.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        own_server.execute("SELECT pg_reload_conf()")
        load = Load(own_server.url(standby=standby))
        load.more(200)
        own_server.kill_at_once()
        connected = standby.connections()
        wait_until(lambda: standby.connections() > connected + 3, "the store asks the standby")
        standby.execute("SELECT pg_promote()")
        load.more(200)
        asyncio.run(look(standby.url(), load.end()))
    finally:
        standby.close()


class Cutter:
    """Stands between a store and the server's socket, and closes a connection at the `at`-th message from now on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._directory = Path(tempfile.mkdtemp(prefix="cut", dir=server.place))
        self.url = f"postgresql://edge@/postgres?host={self._directory}"
        self.messages = 0
        self.at = -1
        self.passes_on = False  # the message at which it closes

    async def listen(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._connected, self._directory / ".s.PGSQL.5432")

    async def _connected(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        far, to_far = await asyncio.open_unix_connection(self._server.place / ".s.PGSQL.5432")

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    self.messages += 1
                    if self.messages != self.at or self.passes_on:
                        target.write(data)
                    if self.messages == self.at:
                        break
            to_near.close()
            to_far.close()

        await asyncio.gather(pass_on(near, to_far), pass_on(far, to_near))


@pytest.mark.parametrize("passes_on", [False, True], ids=["before a message", "after a message"])
def test_a_connection_that_is_cut_anywhere_leaves_each_commit_done_once(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, passes_on: bool
) -> None:
    monkeypatch.setattr(postgresql, "PAUSES_S", (0.01,))
    cutter = Cutter(own_server)
    cutter.passes_on = passes_on
    done = 0

    async def life(at: int) -> int:
        nonlocal done
        store = open_store(cutter.url)
        assert await store.get("count") == (b"%d" % done if done else None)
        cutter.messages, cutter.at = 0, at
        for number in range(done, done + 2):
            batch = Batch()
            batch.append("a", [b"%d" % number])
            batch.put("count", b"%d" % (number + 1))
            assert (await store.commit(batch)).positions == {"a": range(number, number + 1)}
        done += 2
        messages = cutter.messages
        assert messages >= at
        cutter.at = -1
        await store.close()
        return messages

    async def go() -> None:
        await life(-1)  # which makes the stream
        whole = await life(-1)
        assert whole > 20
        for at in range(1, whole + 1):
            await life(at)

    loop = Loop()  # opening a store stands still
    loop.run(cutter.listen())
    asyncio.run(go())
    loop.close()
    asyncio.run(look(own_server.url(), done))
