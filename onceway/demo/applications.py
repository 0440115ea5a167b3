"""The demo's publishers and subscribers: what an application written for `onceway.connect` looks like.

Each has a journal and the URLs of all routers, its first router first. The library does the rest.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import onceway
from onceway.demo.ledger import PublisherNotes, SubscriberNotes
from router.json_text import write_json

ADDRESS = "orders"
TICK_S = 0.02
LATE_EVERY, LATE_BY = 50, timedelta(hours=1)
Tell = Callable[[str, Any], None]


@dataclass(frozen=True, slots=True)
class Reach:
    """How an application reaches the network."""

    urls: Sequence[str]
    tls: ssl.SSLContext | None = None
    credentials: onceway.Credentials | None = None

    def connect(self, name: str, journal: Path, report: Callable[[Any], None]) -> onceway.Connection:
        return onceway.connect(
            self.urls,
            container=name,
            journal=journal,
            ordered=True,
            on_report=report,
            tls=self.tls,
            credentials=self.credentials,
        )


def cents(number: int) -> int:
    return 100 + number * 37 % 9_900


def late(number: int) -> bool:
    """Whether this order comes late, as from a shop that was offline."""
    return number % LATE_EVERY == LATE_EVERY - 1


def order(publisher: str, number: int, now: datetime) -> bytes:
    at = now - LATE_BY if late(number) else now
    body = {"publisher": publisher, "number": number, "at": at.isoformat(), "customer": f"c{number % 100}"}
    return write_json({**body, "cents": cents(number)}).encode()


async def publish(
    name: str, reach: Reach, journal: Path, count: int, rate: float, notes: PublisherNotes, tell: Tell
) -> None:
    """Publishes orders 0, 1, 2 ... at `rate` a second, and notes what is accepted."""

    def report(event: Any) -> None:
        tell(name, event)

    async with reach.connect(name, journal, report) as connection:
        publisher = await connection.publisher(ADDRESS)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while notes.published < count:
            due = min(count, int((loop.time() - began) * rate) + 1)
            if due > notes.published:
                numbers, now = range(notes.published, due), datetime.now(UTC)
                await publisher.put_many([order(name, number, now) for number in numbers])
                notes.published = due
                notes.cents += sum(map(cents, numbers))
                notes.late += sum(map(late, numbers))
            notes.accepted = publisher.accepted
            await asyncio.sleep(TICK_S)
        await publisher.drain()
        notes.accepted = publisher.accepted


async def subscribe(
    name: str, reach: Reach, journal: Path, notes: SubscriberNotes, tell: Tell, attached: asyncio.Event
) -> None:
    """Takes what comes and accepts it, until cancelled."""

    def report(event: Any) -> None:
        tell(name, event)

    async with reach.connect(name, journal, report) as connection:
        subscriber = await connection.subscriber(ADDRESS)
        attached.set()
        async for batch in subscriber.batches(max_messages=200):
            for body in batch.bodies:
                one = json.loads(body)
                notes.handed.append((one["publisher"], one["number"]))
            await batch.accept()
