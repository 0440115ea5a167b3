"""What the edges' store costs: appends in batches, and four readers of one stream, beside LMDB.

    python -m bench store [--records 300000] [--octets 100] [--dir /tmp] [--postgresql URL] [--held-s 20]

The last figures are of a stream that is held to RETAINED octets, and appended to at RATE records/s, 100 a commit, so
that old records are removed all the time: how long a commit takes, in the middle and at most.

LMDB (`pip install lmdb`) is measured where it is installed: the same blocks, written in one transaction for each group,
with its own fsync. PostgreSQL is measured in the empty database that is named. CPU is that of the process, of all its
threads, without the database's.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from edges.store import Batch, Retention, Store, open_store
from edges.store.blocks import decode, encode

OUTSTANDING = 64  # commits that are not awaited yet
READERS = 4
RATE = 50_000
RETAINED = 50_000_000
HELD_SIZE = 100  # records of a commit, at that rate


async def measured(what: str, records: int, work: Awaitable[None]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:<44} {records / wall:>12,.0f} records/s {cpu / records * 1e6:>8.2f} us of CPU each", flush=True)


async def append(store: Store, stream: str, records: int, size: int, payload: bytes) -> None:
    room = asyncio.Semaphore(OUTSTANDING)

    async def one() -> None:
        batch = Batch()
        batch.append(stream, [payload] * size)
        await store.commit(batch)
        room.release()

    tasks = []
    for _ in range(records // size):
        await room.acquire()
        tasks.append(asyncio.create_task(one()))
    await asyncio.gather(*tasks)


async def read(store: Store, stream: str, readers: int) -> None:
    async def one() -> None:
        position, end = await store.bounds(stream)
        while position < end:
            position += len(await store.read(stream, position, records=5000))

    await asyncio.gather(*(one() for _ in range(readers)))


async def hold(form: str, store: Store, seconds: float, payload: bytes) -> None:
    """At a fixed rate into a stream that keeps all, and one that is held to a size: in turn, so that whatever else the
    machine does slows both."""
    kept = Batch()
    kept.keep("held", Retention(octets=RETAINED))
    await store.commit(kept)
    await append(store, "held", RETAINED // len(payload), 1000, payload)
    taken: dict[str, list[float]] = {"kept": [], "held": []}
    cpu = dict.fromkeys(taken, 0.0)
    for stream in ("kept", "held") * 2:
        before = time.process_time()
        taken[stream] += await steadily(store, stream, seconds / 4, payload)
        cpu[stream] += time.process_time() - before
    for stream, waits in taken.items():
        removed = (await store.bounds(stream)).first
        half, most, longest = (sorted(waits)[int(part * (len(waits) - 1))] * 1000 for part in (0.5, 0.99, 1))
        print(
            f"{form}: {stream}, {RATE:,} records/s, {removed:,} removed: a commit takes {half:.1f} ms, "
            f"99 % below {most:.1f} ms, the longest {longest:.1f} ms; "
            f"{cpu[stream] / (len(waits) * HELD_SIZE) * 1e6:.2f} us of CPU each",
            flush=True,
        )


async def steadily(store: Store, stream: str, seconds: float, payload: bytes) -> list[float]:
    """How long each commit took."""
    start = time.perf_counter()
    taken: list[float] = []

    async def one() -> None:
        batch = Batch()
        batch.append(stream, [payload] * HELD_SIZE)
        began = time.perf_counter()
        await store.commit(batch)
        taken.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as tasks:
        for number in range(int(seconds * RATE / HELD_SIZE)):
            await asyncio.sleep(start + number * HELD_SIZE / RATE - time.perf_counter())
            tasks.create_task(one())
    return taken


async def store(form: str, place: Callable[[int], str], options: argparse.Namespace) -> None:
    payload = bytes(options.octets)
    for size in (1, 100, 1000):
        records = options.records // (20 if size == 1 else 1)
        opened = open_store(place(size))
        stream = f"{size} a commit"
        await measured(f"{form}: append, {size} a commit", records, append(opened, stream, records, size, payload))
        if size == 1000:
            await measured(f"{form}: 1 reader", records, read(opened, stream, 1))
            await measured(
                f"{form}: {READERS} readers at once, all of them", READERS * records, read(opened, stream, READERS)
            )
        await opened.close()
    opened = open_store(place(0))
    await hold(form, opened, options.held_s, payload)
    await opened.close()


def lmdb_append(environment: Any, records: int, size: int, payload: bytes) -> None:
    group = OUTSTANDING * size
    for first in range(0, records, group):
        with environment.begin(write=True) as transaction:
            for at in range(first, min(records, first + group), 1000):
                transaction.put(at.to_bytes(8, "big"), encode([payload] * min(1000, group)))


def lmdb_read(environment: Any) -> None:
    with environment.begin(buffers=False) as transaction:
        for _, body in transaction.cursor():
            decode(body)


async def lmdb(place: Path, options: argparse.Namespace) -> None:
    try:
        import lmdb
    except ImportError:
        print("LMDB: not measured, `pip install lmdb`")
        return
    payload = bytes(options.octets)
    for size in (1, 100, 1000):
        records = options.records // (20 if size == 1 else 1)
        environment = lmdb.open(str(place / f"lmdb-{size}"), map_size=1 << 32)

        def run(work: Callable[..., None], *arguments: Any) -> Awaitable[None]:
            return asyncio.to_thread(work, *arguments)

        work = run(lmdb_append, environment, records, size, payload)
        await measured(f"LMDB: append, {size} a commit, {OUTSTANDING} a group", records, work)
        if size == 1000:
            await measured("LMDB: 1 reader", records, run(lmdb_read, environment))
        environment.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--octets", type=int, default=100)
    parser.add_argument("--held-s", type=float, default=20.0)
    parser.add_argument("--dir", help="where the files go: on the disk that is to be measured")
    parser.add_argument("--postgresql", metavar="URL", help="an empty database that is measured, too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        asyncio.run(store("SQLite", lambda size: f"{directory}/store-{size}", options))
        asyncio.run(lmdb(Path(directory), options))
    if options.postgresql:
        asyncio.run(store("PostgreSQL", lambda size: options.postgresql, options))
    return 0
