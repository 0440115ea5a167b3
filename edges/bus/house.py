"""What an edge does with its storage beside events: what everybody has taken goes after a while, and autodrop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from edges.bus.core import Subscriber
from edges.bus.registry import EVENTS
from edges.store import Batch, StoreFull
from onceway.base.logs import logger

if TYPE_CHECKING:
    from edges.bus.edge import Edge

DROPPED_AT_ONCE: Final = 10_000


class House:
    """Keeps the store of an edge.

    Args:
        edge: Started.
        mine: Whether this edge does it now: of several that share a store, one does.
    """

    def __init__(self, edge: Edge, mine: Callable[[], bool]) -> None:
        self._edge = edge
        self._mine = mine
        self._log = logger("bus", edge=edge.options.name)

    async def keep(self) -> None:
        """For ever."""
        edge = self._edge
        while True:
            await asyncio.sleep(edge.options.check_every_s)
            if not self._mine():
                continue
            await edge.look()
            try:
                await self._trim(edge.options.keep_s)
                await self._autodrop()
            except StoreFull as error:
                self._log.warning("bus_full", "{reason}", reason=str(error))

    async def _trim(self, keep_s: float) -> None:
        """Removes events that everybody has taken and that are older."""
        store, bus = self._edge.store, self._edge.bus
        batch = Batch()
        before_us = int((time.time() - keep_s) * 1e6)
        for stream in await store.streams(EVENTS):
            needed = bus.needed(stream.removeprefix(EVENTS))
            first = (await store.bounds(stream)).first
            if needed > first:
                before = min(needed, await store.position_at(stream, before_us))
                if before > first:
                    batch.trim(stream, before)
        if batch.trimmed:
            await store.commit(batch)

    async def _drop(self, subscriber: Subscriber, topic: str) -> int:
        dropped = 0

        def drop() -> None:
            nonlocal dropped
            dropped = self._edge.bus.drop(subscriber, DROPPED_AT_ONCE, topic)

        await self._edge.registry.change(subscriber.identity, drop, taken=True)
        return dropped

    async def _autodrop(self) -> None:
        """Where too little is free: first what is only kept for replay, then the stalest queue's oldest events."""
        edge, store, bus = self._edge, self._edge.store, self._edge.bus
        limit, least = edge.options.max_octets, edge.options.min_free
        if limit is None or not least or limit - await store.used() >= least:
            return
        await self._trim(0.0)
        while limit - await store.used() < 2 * least:
            queues = [
                (*each, one.identity) for one in list(bus.subscribers.values()) for each in await edge.oldest(one)
            ]
            if not queues:
                return
            _, topic, identity = min(queues)
            if (subscriber := bus.subscribers.get(identity)) is None:
                continue  # it has gone meanwhile
            dropped = await self._drop(subscriber, topic)
            edge.metrics.autodropped[subscriber.name] += dropped
            self._log.error(
                "bus_autodrop", "storage is full: dropped {count} events of {topic} for {subscriber}",
                count=dropped, topic=topic, subscriber=subscriber.name,
            )  # fmt: skip
            await self._trim(0.0)
