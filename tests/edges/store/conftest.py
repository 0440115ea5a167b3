"""Each form of the store, for tests that hold for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from edges.store import Batch, Committed, Store, open_store

With = Callable[[Callable[[Store], Awaitable[None]]], None]


@pytest.fixture(params=["embedded"])
def with_store(request: pytest.FixtureRequest, tmp_path: Path) -> With:
    """Runs a coroutine function with an open store; called again, with the same store opened again."""

    def run(test: Callable[[Store], Awaitable[None]]) -> None:
        async def go() -> None:
            store = open_store(str(tmp_path / "edge.store"))
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
