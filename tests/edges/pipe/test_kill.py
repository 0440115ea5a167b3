"""Stores and routers killed under load: nothing lost, nothing twice, one order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import onceway
from edges.pipe import Reader, pull, push
from tests.cli.conftest import onceway as onceway_command
from tests.edges.pipe.conftest import PipeNetworks
from tests.edges.pipe.network import PipeNetwork
from tests.live import wait_until

PUBLISHERS = 3
GROUP = 40


async def write(urls: str, directory: Path, name: int, stop: asyncio.Event) -> list[bytes]:
    """Pushes until told to stop; returns what it has pushed, in order."""
    bodies: list[bytes] = []
    journal = directory / f"publisher-{name}"
    async with onceway.connect(urls, journal=journal, connect_timeout_s=60, close_timeout_s=None) as connection:
        publisher = await connection.publisher("jobs")
        while not stop.is_set():
            group = [b"%d %d" % (name, len(bodies) + number) for number in range(GROUP)]
            bodies += group
            await (await publisher.put_many(group))
    return bodies


async def read(network: PipeNetwork, until: asyncio.Future[int]) -> list[tuple[int, object]]:
    """Reads until so many messages have come, from whichever store is there."""
    found: list[tuple[int, object]] = []
    async for each in pull("jobs", stores=network.store_url(), follow=True):
        found.append((each.position, each.body))
        if until.done() and len(found) >= until.result():
            break
    return found


def judge(pushed: list[list[bytes]], readings: list[list[tuple[int, object]]]) -> None:
    every = sorted(body for bodies in pushed for body in bodies)
    for reading in readings:
        assert reading == readings[0]
        assert sorted(body for _, body in reading if isinstance(body, bytes)) == every
        positions = [position for position, _ in reading]
        assert positions == sorted(set(positions))
    for name, bodies in enumerate(pushed):
        mine = [body for _, body in readings[0] if isinstance(body, bytes) and body.startswith(b"%d " % name)]
        assert mine == bodies


async def run(
    network: PipeNetwork, directory: Path, kills: list[str], deaths: Mapping[str, Callable[[], None]] | None = None
) -> None:
    """Writes and reads while each of `kills` dies in turn and comes again: a store or a router; +NAME promotes a store;
    one of `deaths` is called."""
    stop = asyncio.Event()
    total: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    writers = [asyncio.create_task(write(network.urls(), directory, name, stop)) for name in range(PUBLISHERS)]
    readers = [asyncio.create_task(read(network, total)) for _ in range(2)]
    rng = random.Random(7)
    async with Reader("jobs", stores=network.store_url(), start="end") as watching:
        batches = watching.batches()
        for victim in kills:
            seen = 0
            while seen < rng.randrange(200, 600):  # under load: messages come before each death
                seen += len(await anext(batches))
            if victim.startswith("+"):
                done = await asyncio.to_thread(
                    onceway_command, "pipe", "promote", network.topology_path, "jobs", victim[1:]
                )
                assert done.returncode == 0, done.stderr
            elif deaths and victim in deaths:
                await asyncio.to_thread(deaths[victim])
            elif victim in network.ports:
                network.kill_store(victim)
                await asyncio.to_thread(network.start_store, victim)
            else:
                network.kill(victim)
                await asyncio.to_thread(network.start, victim)
        await anext(batches)
    stop.set()
    pushed = await asyncio.gather(*writers)
    total.set_result(sum(map(len, pushed)))
    await push(network.urls(), "jobs", b"9 last")  # wakes the readers that have all of it already
    readings = [[each for each in await reader if each[1] != b"9 last"] for reader in readers]
    late = [(each.position, each.body) async for each in pull("jobs", stores=network.store_url())]
    judge(list(pushed), [*readings, [each for each in late if each[1] != b"9 last"]])


@pytest.mark.slow
@pytest.mark.parametrize(("stores", "victims"), [("s", "s a s b"), ("st", "t s a b"), ("st", "+t s +s t")])
def test_stores_and_routers_are_killed_and_stores_promoted_under_load(
    pipe_network: PipeNetworks, tmp_path: Path, stores: str, victims: str
) -> None:
    network = pipe_network("a", "b", jobs=tuple(stores))
    asyncio.run(asyncio.wait_for(run(network, tmp_path, victims.split()), 280))
    if promotions := victims.count("+"):
        wait_until(lambda: f"jobs: primary, epoch {1 + promotions}" in network.logs(), "the last promoted store leads")
