"""The demo's publishers and subscribers: what an application written for `onceway.connect` looks like.

Each has a journal and the whole list of routers, first the one it starts at; the rest is the library's work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onceway
from onceway.demo.ledger import PublisherNotes, SubscriberNotes

ADDRESS = "orders"
TICK_S = 0.02
Tell = Callable[[str, Any], None]


async def publish(
    name: str, urls: Sequence[str], journal: Path, count: int, rate: float, notes: PublisherNotes, tell: Tell
) -> None:
    """Publishes 0, 1, 2 ... at `rate` a second, and notes what is accepted."""

    def report(event: Any) -> None:
        tell(name, event)

    async with onceway.connect(urls, container=name, journal=journal, ordered=True, on_report=report) as connection:
        publisher = await connection.publisher(ADDRESS)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while notes.published < count:
            due = min(count, int((loop.time() - began) * rate) + 1)
            if due > notes.published:
                bodies = [b"%s %d" % (name.encode(), number) for number in range(notes.published, due)]
                await publisher.put_many(bodies)
                notes.published = due
            notes.accepted = publisher.accepted
            await asyncio.sleep(TICK_S)
        await publisher.drain()
        notes.accepted = publisher.accepted


async def subscribe(
    name: str, urls: Sequence[str], journal: Path, notes: SubscriberNotes, tell: Tell, attached: asyncio.Event
) -> None:
    """Takes what comes and accepts it, until cancelled."""

    def report(event: Any) -> None:
        tell(name, event)

    async with onceway.connect(urls, container=name, journal=journal, ordered=True, on_report=report) as connection:
        subscriber = await connection.subscriber(ADDRESS)
        attached.set()
        async for batch in subscriber.batches(max_messages=200):
            for body in batch.bodies:
                publisher, number = body.split()
                notes.handed.append((publisher.decode(), int(number)))
            await batch.accept()
