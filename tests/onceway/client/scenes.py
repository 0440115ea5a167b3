"""Scenes of the asyncio client and a network of fake routers, and what many of them need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import onceway
from tests.onceway.client.fake_network import FakeNetwork

BOUND_S = 120.0


@asynccontextmanager
async def playing(routers: int = 1, **options: Any) -> AsyncIterator[FakeNetwork]:
    """A network of so many fake routers, within a bound."""
    network = FakeNetwork()
    for number in range(routers):
        await network.router(f"r{number}", **options)
    try:
        async with asyncio.timeout(BOUND_S):
            yield network
    finally:
        await network.stop()


def messages(count: int, start: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(start, start + count)]


async def take(subscriber: onceway.Subscriber, count: int) -> list[Any]:
    """Take and accept so many."""
    bodies = []
    async for delivery in subscriber:
        bodies.append(delivery.body)
        await delivery.accept()
        if len(bodies) == count:
            break
    return bodies


async def settled(publisher: onceway.Publisher) -> None:
    await publisher.drain()
    assert publisher.unsettled == 0


async def eventually(condition: Callable[[], object]) -> bool:
    end = asyncio.get_running_loop().time() + BOUND_S / 2  # a journal's disk may be busy
    while not (true := bool(condition())):
        if asyncio.get_running_loop().time() > end:
            break
        await asyncio.sleep(0.001)
    return true
