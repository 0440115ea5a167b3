"""Each form of the store, for tests that hold for all of them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from edges.store import Batch, Committed, Store, open_store
from tests.edges.store.postgres import Server
from tests.edges.store.served import Served

Opened = Callable[[], AbstractAsyncContextManager[Store]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that may die."""
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


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An embedded store for other processes."""
    made = Served(tmp_path / "served.store")
    made.start()
    yield made
    made.close()


@pytest.fixture(params=["embedded", "postgresql", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store may be, of each form."""
    if request.param == "embedded":
        return str(tmp_path / "edge.store")
    if request.param == "remote":
        served: Served = request.getfixturevalue("served")
        return served.url
    url: str = request.getfixturevalue("database")
    return url


@pytest.fixture
def opened_store(place: str) -> Opened:
    """An open store; called again, the same store opened again."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store = open_store(place)
        try:
            yield store
        finally:
            await store.close()

    return opened


async def append(store: Store, stream: str, *payloads: bytes) -> Committed:
    batch = Batch()
    batch.append(stream, payloads)
    return await store.commit(batch)


async def all_of(store: Store, stream: str) -> list[bytes]:
    records = await store.read(stream, 0, records=1 << 30, octets=1 << 30)
    assert [record.position for record in records] == list(range(len(records)))
    return [record.payload for record in records]
