"""The embedded store's own: locks, full disks, damage, and deaths."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edges.store import Batch, Bounds, StoreError, StoreFull, tails
from edges.store.embedded import EmbeddedStore
from tests.edges.store.conftest import all_of, append
from tests.live import ROOT, dying_with_us


def opened(path: Path, **options: int) -> EmbeddedStore:
    return EmbeddedStore(path, **options)  # type: ignore[arg-type]


async def test_a_second_process_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    with pytest.raises(StoreError, match=rf"s: process {os.getpid()} has the store open; stop it, or"):
        opened(tmp_path / "s")
    await store.close()
    await opened(tmp_path / "s").close()


async def test_commits_share_transactions_and_wait_for_no_reader(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    await append(store, "a", b"0")
    reading, commits = threading.Event(), 0
    ended, transaction = threading.Event(), store._transaction

    def slow(database: sqlite3.Connection) -> int:
        database.execute("BEGIN")
        rows = "SELECT count(*) FROM blocks"
        before = database.execute(rows).fetchone()
        reading.set()
        assert ended.wait(60)
        assert database.execute(rows).fetchone() == before
        database.execute("COMMIT")
        return int(before[0])

    def counted(write: Callable[[], Any]) -> Any:
        nonlocal commits
        commits += 1
        return transaction(write)

    store._transaction = counted  # type: ignore[method-assign]
    read = asyncio.create_task(store._reading(slow))
    await asyncio.to_thread(reading.wait)
    await asyncio.gather(*(append(store, "a", b"%d" % number) for number in range(1, 500)))
    assert commits < 10
    ended.set()
    assert await read == 1
    assert await all_of(store, "a") == [b"%d" % number for number in range(500)]
    await store.close()


async def test_files_that_are_no_store_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello" * 1000)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE t (a)")
    other.close()
    for name, why in (
        ("text", "text: file is not a database; put a whole copy back"),
        ("other", "not a store of edg"),
    ):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(StoreError, match=why):
            opened(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    with pytest.raises(StoreError, match="is the directory there"):
        opened(tmp_path / "none" / "s")
    await opened(tmp_path / "new").close()
    with sqlite3.connect(tmp_path / "new") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="has format 99, this version of onceway reads format 2"):
        opened(tmp_path / "new")


async def test_a_full_store_refuses_what_does_not_fit_and_goes_on(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", limit_octets=1_000_000)
    await append(store, "a", b"x" * 300_000)
    small, large = Batch(), Batch()
    small.append("b", [b"y"])
    large.append("a", [b"x" * 900_000])
    results = await asyncio.gather(*map(store.commit, (large, small)), return_exceptions=True)
    assert isinstance(results[0], StoreFull)
    assert "full; make room" in str(results[0])
    assert not isinstance(results[1], BaseException)
    assert await store.bounds("a") == Bounds(0, 1)
    room = Batch()
    room.trim("a")
    assert (await store.commit(room)).removed == {"a": 1}
    await append(store, "a", b"x" * 600_000)
    assert await store.bounds("a") == Bounds(1, 2)
    await store.close()


async def test_a_disk_that_fails_stops_the_store_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s")
    await append(store, "a", b"1")

    def fail(batch: Batch) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    waiting = asyncio.ensure_future(store.grown("a", 5))
    await asyncio.sleep(0)
    monkeypatch.setattr(store, "_apply", fail)
    with pytest.raises(StoreError, match="s: disk I/O error; look at the disk"):
        await append(store, "a", b"2")
    with pytest.raises(StoreError, match="disk I/O error"):
        await waiting
    with pytest.raises(StoreError, match="disk I/O error"):
        await append(store, "a", b"3")
    with pytest.raises(StoreError, match="disk I/O error"):
        await store.read("a", 0)
    await store.close()
    again = opened(tmp_path / "s")
    assert [record.payload for record in await again.read("a", 0)] == [b"1"]
    await again.close()


WRITER = """
import asyncio, sys
from edges.store import Batch
from edges.store.embedded import EmbeddedStore

async def go():
    store = EmbeddedStore(sys.argv[1])
    number = (await store.bounds("a")).next
    async def one(number):
        batch = Batch()
        batch.append("a", [b"%d" % number, b"%d" % (number + 1)])
        batch.put("count", b"%d" % (number + 2))
        if number % 50 == 0:
            batch.trim("a", number - 100)
        await store.commit(batch)
        print(number + 2, flush=True)
    waiting = set()
    while True:
        waiting.add(asyncio.ensure_future(one(number)))
        number += 2
        if len(waiting) > 20:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

asyncio.run(go())
"""


def test_a_killed_process_leaves_all_that_it_said_and_nothing_half(tmp_path: Path) -> None:
    rng = random.Random(1)
    said = 0
    for _ in range(10):
        process = subprocess.Popen(
            dying_with_us([sys.executable, "-c", WRITER, str(tmp_path / "s")]), cwd=ROOT, stdout=subprocess.PIPE
        )
        for _ in range(rng.randrange(1, 200)):
            process.stdout.readline()
        process.kill()
        lines = process.stdout.read().split(b"\n")[:-1]
        process.wait()
        process.stdout.close()
        said = max([said, *map(int, lines)])

        async def look(said: int = said) -> int:
            store = opened(tmp_path / "s")
            first, end = await store.bounds("a")
            records = await store.read("a", 0, records=1 << 30, octets=1 << 30)
            assert [(record.position, int(record.payload)) for record in records] == [(n, n) for n in range(first, end)]
            assert int(await store.get("count") or 0) == end >= said
            await store.close()
            return end

        said = asyncio.run(look())
    assert said > 100


async def test_what_is_read_from_memory_is_what_the_database_has(tmp_path: Path) -> None:
    rng = random.Random(5)
    store = opened(tmp_path / "s")
    for _ in range(300):
        stream = f"s{rng.randrange(tails.STREAMS + 5)}" if rng.random() < 0.5 else "s"
        batch = Batch()
        batch.append(stream, [rng.randbytes(rng.choice([1, 10, 500])) for _ in range(rng.choice([1, 2, 30, 200]))])
        if rng.random() < 0.2:
            batch.trim(stream, rng.randrange(300))
        await store.commit(batch)
        first = max(0, (await store.bounds(stream)).next - rng.choice([1, 5, 100, 300]))
        most = rng.choice([1, 3, 40])
        read = [await store.read(stream, first, records=most, octets=each) for each in (1 << 20, tails.OCTETS - 1)]
        assert read[0] == read[1]
    await store.close()
