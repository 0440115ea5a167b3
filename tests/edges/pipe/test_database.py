"""A pipe whose store is in PostgreSQL, when the server dies under load or its disk is full."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edges.pipe import pull, push
from tests.edges.pipe.conftest import PipeNetworks
from tests.edges.pipe.test_kill import run
from tests.edges.store.conftest import own_server
from tests.edges.store.postgres import Server
from tests.live import wait_until

__all__ = ["own_server"]


def test_a_database_that_is_killed_under_load_loses_and_repeats_nothing(
    pipe_network: PipeNetworks, own_server: Server, tmp_path: Path
) -> None:
    pipe_network.data = {"s": own_server.url()}
    network = pipe_network("a", jobs=("s", "t"))

    def restart() -> None:
        own_server.kill_at_once()
        own_server.start()

    deaths = {"server": restart, "backend": own_server.kill_a_backend}
    asyncio.run(asyncio.wait_for(run(network, tmp_path, ["server", "backend", "s", "server"], deaths), 240))


@pytest.fixture
def small_server() -> Iterator[Server]:
    """Its tablespace `small` has little room."""
    server = Server(small="40m")
    yield server
    server.close()


async def test_while_the_disk_of_the_database_is_full_pushes_wait(
    pipe_network: PipeNetworks, small_server: Server
) -> None:
    ballast = Path(f"/proc/{small_server.process.pid}/root{small_server.small}/ballast")
    ballast.write_bytes(bytes(20_000_000))
    small_server.execute(f"CREATE TABLESPACE small LOCATION '{small_server.small}'")
    small_server.execute("CREATE DATABASE pipe TABLESPACE small")
    small_server.execute("CHECKPOINT")
    pipe_network.data = {"s": small_server.url("pipe")}
    network = pipe_network("a", jobs=("s",))
    said = network.directory / "store-s.log"
    bodies = [b"%d " % number + os.urandom(50_000) for number in range(350)]
    pushing = asyncio.create_task(push(network.urls(), "jobs", bodies))
    await asyncio.to_thread(wait_until, lambda: "event=pipe_full" in said.read_text(), "the disk is full")
    assert not pushing.done()
    found = [each.body async for each in pull("jobs", stores=network.store_url())]  # what is there can be read
    assert found == bodies[: len(found)]
    await asyncio.to_thread(ballast.unlink)
    await asyncio.wait_for(pushing, 60)
    assert [each.body async for each in pull("jobs", stores=network.store_url())] == bodies
