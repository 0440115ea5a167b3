"""Each form of the store, for tests that hold for all of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from edges.store import Batch, Committed, Store, open_store
from tests.edges.store.postgres import Server

With = Callable[[Callable[[Store], Awaitable[None]]], None]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


_numbers = itertools.count()


@pytest.fixture
def database(postgres: Server) -> str:
    """The URL of a new database."""
    name = f"t{next(_numbers)}"
    postgres.execute(f"CREATE DATABASE {name}")
    return postgres.url(name)


@pytest.fixture(params=["embedded", "postgresql"])
def with_store(request: pytest.FixtureRequest, tmp_path: Path) -> With:
    """Runs a coroutine function with an open store; called again, with the same store opened again."""
    place = str(tmp_path / "edge.store") if request.param == "embedded" else request.getfixturevalue("database")

    def run(test: Callable[[Store], Awaitable[None]]) -> None:
        async def go() -> None:
            store = open_store(place)
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(go())

    return run


async def append(store: Store, stream: str, *payloads: bytes) -> Committed:
    batch = Batch()
    batch.append(stream, payloads)
    return await store.commit(batch)
