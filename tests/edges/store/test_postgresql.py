"""The store in PostgreSQL: several processes on one database, lost connections, lost answers, and deaths."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import psycopg
import pytest

from edges.store import Batch, Bounds, StoreError, open_store
from edges.store.postgresql import _lost
from onceway.base import waits
from tests.edges.store.conftest import all_of, append
from tests.edges.store.postgres import Server
from tests.live import ROOT, dying_with_us

WRITER = """
import asyncio, sys
from edges.store import Batch, open_store

async def go(url, who):
    store = open_store(url)
    async def one(number):
        batch = Batch()
        batch.append("a", [b"%s %d" % (who.encode(), number)])
        batch.put(who, b"%d" % number)
        await store.commit(batch)
        print(number, flush=True)
    number = int(await store.get(who) or b"-1")
    waiting = set()
    while True:
        number += 1
        waiting.add(asyncio.ensure_future(one(number)))
        if len(waiting) > 5:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

asyncio.run(go(*sys.argv[1:]))
"""


def writer(url: str, who: str) -> subprocess.Popen[bytes]:
    command = dying_with_us([sys.executable, "-c", WRITER, url, who])
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes]) -> int:
    """Kills it; the last number that it said."""
    process.kill()
    said = [int(line) for line in process.stdout.read().split(b"\n")[:-1]]
    process.stdout.close()
    process.wait()
    return max(said, default=-1)


async def test_processes_that_write_one_stream_and_are_killed_leave_each_record_once_in_their_order(
    database: str,
) -> None:
    rng = random.Random(3)
    said = {"x": -1, "y": -1}
    for _ in range(4):
        processes = {who: writer(database, who) for who in said}
        for process in processes.values():
            for _ in range(rng.randrange(1, 60)):
                assert process.stdout.readline()
        said = {who: max(said[who], ended(process)) for who, process in processes.items()}
    store = open_store(database)
    payloads = [payload.split() for payload in await all_of(store, "a")]
    for who, last in said.items():
        numbers = [int(number) for name, number in payloads if name == who.encode()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > last
    await store.close()


async def test_another_process_is_told_of_growth_and_sees_what_was_committed(database: str) -> None:
    one, other = open_store(database), open_store(database)
    waiting = asyncio.ensure_future(other.grown("a", 1))
    assert (await append(one, "a", b"1")).positions == {"a": range(1)}
    assert await other.bounds("a") == Bounds(0, 1)
    assert (await append(other, "a", b"2")).positions == {"a": range(1, 2)}
    await asyncio.wait_for(waiting, 60)
    await asyncio.wait_for(one.grown("a", 1), 60)
    late = asyncio.ensure_future(one.grown("a", 2))
    batch = Batch()
    batch.trim("a", 1)
    await other.commit(batch)
    assert await one.bounds("a") == Bounds(1, 2)
    await append(other, "a", b"3")
    await asyncio.wait_for(late, 60)
    assert [record.payload for record in await one.read("a", 0)] == [b"2", b"3"]
    await one.close()
    await other.close()


async def test_a_server_that_dies_and_comes_back_is_waited_for(own_server: Server) -> None:
    store = open_store(own_server.url())
    await append(store, "a", b"0")
    waiting = asyncio.ensure_future(store.grown("a", 2))
    await store.bounds("a")
    for number in range(1, 3):
        own_server.kill()
        commit = asyncio.ensure_future(append(store, "a", b"%d" % number))
        read = asyncio.ensure_future(store.get("key"))
        await asyncio.sleep(0)
        await asyncio.to_thread(own_server.start)
        assert (await asyncio.wait_for(commit, 60)).positions == {"a": range(number, number + 1)}
        assert await asyncio.wait_for(read, 60) is None
    await asyncio.wait_for(waiting, 60)
    assert await all_of(store, "a") == [b"0", b"1", b"2"]
    own_server.kill()
    last = asyncio.ensure_future(append(store, "a", b"3"))
    await asyncio.sleep(0)
    await store.close()  # nobody waits for ever
    with pytest.raises(StoreError, match="database postgres at /tmp/pg"):
        await last


async def test_a_server_that_stands_still_is_lost_and_that_is_told(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    row = replace(waits.STORE_DATABASE, bound=0.5)
    monkeypatch.setattr(waits, "STORE_DATABASE", row)
    store = open_store(own_server.url())
    await append(store, "a", b"0")
    still = own_server.stand_still()
    try:
        commit = await asyncio.wait_for(append(store, "a", b"1"), 60)
    finally:
        for pid in still:
            os.kill(pid, signal.SIGCONT)
    assert commit.positions == {"a": range(1, 2)}
    assert waits.ENDED[row.name] == 1
    assert await all_of(store, "a") == [b"0", b"1"]
    assert "waits for the store: no answer within 0.5 s" in caplog.text
    await store.close()


def test_a_connection_that_the_server_ends_or_does_not_take_now_is_opened_again() -> None:
    # While a statement is sent, libpq says so without a code, and psycopg gives that the class that others derive from.
    assert _lost(psycopg.errors._class_for_state("")("server closed the connection unexpectedly"))
    assert _lost(psycopg.errors.TooManyConnections("sorry, too many clients already"))
    assert _lost(psycopg.errors.IdleSessionTimeout("terminating connection due to idle-session timeout"))
    assert not _lost(psycopg.errors.InvalidCatalogName('database "bus" does not exist'))
    assert not _lost(psycopg.ProgrammingError("the query has 1 placeholders but 0 parameters were passed"))


async def test_another_format_and_a_database_that_is_not_there_are_refused(database: str, postgres: Server) -> None:
    import psycopg

    with pytest.raises(StoreError, match=r'database none at .*"none" does not exist'):
        open_store(postgres.url("none"))
    await open_store(database).close()
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE store_format SET format = 99")
    with pytest.raises(StoreError, match="has format 99, this version of onceway reads format 2"):
        open_store(database)
    with pytest.raises(StoreError, match="the server's to set"):
        open_store(database, limit_octets=1)
