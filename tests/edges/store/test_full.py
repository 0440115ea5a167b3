"""The embedded store on a full disk: a limit of the size of files, a small file system, and an error at each write."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edges.store import Batch, Retention, StoreError, StoreFull, embedded
from edges.store.embedded import EmbeddedStore
from tests.edges.store.conftest import append
from tests.edges.store.postgres import mounting
from tests.live import ROOT, dying_with_us

WRITES = re.compile(r"BEGIN|COMMIT|INSERT|UPDATE|DELETE|PRAGMA (incremental_vacuum|wal_checkpoint)")


def full() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


class Failing:
    """A connection whose writes fail as they do on a full disk, from the `at`-th on, so many of them."""

    def __init__(self, real: sqlite3.Connection, at: int, many: int) -> None:
        self._real = real
        self._failing = range(at, at + many)
        self.writes = 0

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        if WRITES.match(statement):
            self.writes += 1
            if self.writes - 1 in self._failing:
                raise full()
        return self._real.execute(statement, *arguments)

    def executescript(self, script: str) -> None:
        if WRITES.match(script):
            self.writes += 1
            if self.writes - 1 in self._failing:
                raise full()
        self._real.executescript(script)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 the store has no event for it
            await asyncio.sleep(0.01)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background works a hundred times a second."""
    monkeypatch.setattr(embedded, "KEEP_EVERY_S", 0.01)
    monkeypatch.setattr(embedded, "FREE_PAGES", 4)


@pytest.mark.usefixtures("often")
def test_a_full_disk_at_any_write_loses_nothing_and_stops_nothing(tmp_path: Path) -> None:
    async def life(path: Path, at: int, many: int) -> int:
        store = EmbeddedStore(path)
        failing = Failing(store._database, at, many)
        store._database = failing
        for number in range(3):
            batch = Batch()
            batch.keep("a", Retention(age_s=1e6))
            batch.append("a", [b"%d" % number + bytes(30_000)])
            batch.append("b", [b"%d" % number])
            batch.put("count", b"%d" % (number + 1))
            batch.delete(f"key {number - 1}")
            batch.put(f"key {number}", b"")
            batch.trim("a", number - 1)
            while True:
                before = await store.get("count")
                try:
                    await store.commit(batch)
                    break
                except StoreFull:
                    assert await store.get("count") == before
            assert await store.get("count") == b"%d" % (number + 1)
        assert [int(record.payload) for record in await store.read("b", 0)] == list(range(3))
        assert [record.position for record in await store.read("a", 0)] == [1, 2]
        assert [key for key, _ in await store.scan("key")] == ["key 2"]
        await store.close()
        again = EmbeddedStore(path)
        assert [int(record.payload) for record in await again.read("b", 0)] == list(range(3))
        await again.close()
        return failing.writes

    whole = asyncio.run(life(tmp_path / "whole", -1, 1))
    assert whole > 20
    for at in range(whole):
        asyncio.run(life(tmp_path / f"s{at}", at, 1 + at % 3))


@pytest.mark.usefixtures("often")
async def test_a_disk_that_stays_full_in_the_background_does_not_stop_the_store(tmp_path: Path) -> None:
    now_us = 0
    store = EmbeddedStore(tmp_path / "s", wall_us=lambda: now_us)
    batch = Batch()
    batch.keep("a", Retention(age_s=1.0))
    batch.append("a", [b"1"])
    await store.commit(batch)
    failing = Failing(store._database, 0, 1 << 30)
    store._database = failing
    now_us = 2_000_000
    await until(lambda: failing.writes > 5)
    with pytest.raises(StoreFull):
        await store.commit(batch)
    failing._failing = range(0)
    await until(lambda: store._bounds["a"].first == 1)
    await store.commit(batch)
    await store.close()


async def test_what_was_trimmed_goes_back_to_the_file_system_a_slice_with_each_commit(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = EmbeddedStore(path)
    for _ in range(15):
        await append(store, "a", *[bytes(1000)] * 3000)

    def pages(what: str) -> int:
        with sqlite3.connect(path) as database:
            return int(database.execute(f"PRAGMA {what}").fetchone()[0])

    most = pages("page_count")
    assert most > 10_000
    batch = Batch()
    batch.trim("a")
    await store.commit(batch)
    await until(lambda: pages("page_count") < most)  # the background looks once in a second
    turns = 0
    while pages("page_count") > 2_000:
        await append(store, "b", b"x")
        turns += 1
        assert turns < 200
    await store.close()


async def test_nothing_is_appended_while_the_disk_is_low_and_trims_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path / "s")
    await append(store, "a", b"1", b"2")
    monkeypatch.setattr(embedded, "room", lambda path, reserve: -1)
    with pytest.raises(StoreFull, match="s: the disk is almost full; make room"):
        await append(store, "a", b"3")
    batch = Batch()
    batch.put("key", b"value")
    batch.trim("a", 1)
    assert (await store.commit(batch)).removed == {"a": 1}
    monkeypatch.setattr(embedded, "room", lambda path, reserve: 0)
    assert (await append(store, "a", b"3")).positions == {"a": range(2, 3)}
    await store.close()


LIMITED = """
import asyncio, resource, sys
from edges.store import Batch, StoreFull, open_store

async def append(store, payload):
    batch = Batch()
    batch.append("a", [payload])
    await store.commit(batch)

async def go():
    store = open_store(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, resource.RLIM_INFINITY))
    kept = 0
    for _ in range(3):
        try:
            while True:
                await append(store, b"x" * 100_000)
                kept += 1
        except StoreFull as error:
            assert "full; make room" in str(error)
        assert (await store.bounds("a")).next == kept > 20
        assert len(await store.read("a", 0, records=1 << 30, octets=1 << 30)) == kept
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    for _ in range(10):
        await append(store, b"x" * 100_000)
    print(kept + 10)
    await store.close()

asyncio.run(go())
"""


def test_a_limit_of_the_size_of_files_is_a_full_disk_and_the_store_goes_on_when_it_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "s"
    command = dying_with_us([sys.executable, "-c", LIMITED, str(path)])
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr

    async def look() -> None:
        store = EmbeddedStore(path)
        assert (await store.bounds("a")).next == int(run.stdout)
        await store.close()

    asyncio.run(look())


SMALL = """
import asyncio, sys
from edges.store import Batch, StoreFull, open_store

async def append(store):
    batch = Batch()
    batch.append("a", [b"x" * 100_000])
    await store.commit(batch)

async def go():
    store = open_store(sys.argv[1])
    for part in (1, 2, 1):
        try:
            while True:
                await append(store)
        except StoreFull:
            pass
        first, end = await store.bounds("a")
        assert end - first > 100, (first, end)
        batch = Batch()
        batch.trim("a", first + (end - first) // part)
        assert (await store.commit(batch)).removed["a"] > 50
        async with asyncio.timeout(60):
            while True:
                try:
                    await append(store)
                    break
                except StoreFull:  # until the background has given the room back
                    await asyncio.sleep(0.05)
    bounds = await store.bounds("a")
    await store.close()
    again = open_store(sys.argv[1])
    assert await again.bounds("a") == bounds
    await again.close()

asyncio.run(go())
"""


def test_a_store_on_a_full_disk_gets_room_from_its_own_trims(tmp_path: Path) -> None:
    """On a file system of 96 MiB, which vanishes with the process."""
    command = [*mounting(tmp_path, "96m"), *dying_with_us([sys.executable, "-c", SMALL, str(tmp_path / "s")])]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr


async def test_an_error_that_is_not_of_room_stops_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EmbeddedStore(tmp_path / "s")
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE

    def fail(batch: Batch) -> None:
        raise error

    monkeypatch.setattr(store, "_apply", fail)
    with pytest.raises(StoreError, match="look at the disk") as caught:
        await append(store, "a", b"1")
    assert not isinstance(caught.value, StoreFull)
    await store.close()
