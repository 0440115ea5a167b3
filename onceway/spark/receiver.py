"""One topic's way into the log: batches from its link are appended, and accepted when the disk has them.

Credit is what bounds it: a delivery counts against the link's credit until it is accepted, so a slow disk slows the
network down, and who stops taking batches (`Backlog`) stops it.  Runs on the ingest's event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from onceway.client.delivery import Batch
from onceway.client.signals import Changes
from onceway.client.subscriber import Subscriber
from onceway.errors import SubscriptionBroken
from onceway.spark.wal import SlotReader, SlotWriter

QUIET_S: Final = 0.25  # a publisher's answer to the credit that a drain has freed comes within
BATCH_BYTES: Final = 4 << 20


class Backlog:
    """What lies in these slots and Spark has not processed; `room` waits while it is more than `limit` bytes."""

    def __init__(self, limit: int, readers: Mapping[int, SlotReader]) -> None:
        self.octets = 0
        self._limit = limit
        self._readers = readers
        self._processed: dict[int, int] = {}
        self._sizes = dict.fromkeys(readers, 0)
        self._changes = Changes()

    @property
    def full(self) -> bool:
        return self.octets >= self._limit

    def begin(self, slot: int, end: int) -> None:
        """The log as it was recovered.  Much of it may be kept only for a repeat: what Spark has not said is missing
        counts as processed."""
        self._count(slot, end)

    def appended(self, slot: int, octets: int) -> None:
        self._sizes[slot] += octets
        self.octets += octets

    def processed(self, slot: int, position: int, durable: int, pending: int) -> None:
        """Spark has got to `position`; `pending` bytes are behind `durable`."""
        if position != self._processed.get(slot):
            self._processed[slot] = position
            self._count(slot, durable, pending)

    def _count(self, slot: int, durable: int, pending: int = 0) -> None:
        reader = self._readers[slot]
        start = max(reader.start(), min(self._processed.get(slot, durable), durable))
        self._sizes[slot] = (reader.bytes_between(start, durable) if start < durable else 0) + pending
        self.octets = sum(self._sizes.values())
        self._changes.notify()

    async def room(self) -> None:
        await self._changes.until(lambda: not self.full)

    async def crowded(self) -> None:
        """Until there is no room."""
        await self._changes.until(lambda: self.full)

    def notify(self) -> None:
        self._changes.notify()


class Receiver:
    """`run` for as long as the ingest lives; `durable` when the writer says so."""

    def __init__(self, subscriber: Subscriber, writer: SlotWriter, backlog: Backlog, group_rows: int) -> None:
        self.writer = writer
        self.taken = 0  # messages
        self.accepted = 0
        self._subscriber = subscriber
        self._backlog = backlog
        self._group_rows = group_rows
        self._waiting: deque[tuple[int, Batch]] = deque()  # (number that `durable` must reach, batch)
        self._changes = Changes()

    async def run(self) -> None:
        """Returns when the subscriber is closed.  Raises what it raises, and WalError."""
        batches = self._subscriber.batches(self._group_rows, BATCH_BYTES)
        while True:
            if self._backlog.full:
                await self._backlog.room()
            try:
                batch = await anext(batches)
            except StopAsyncIteration:
                return
            except SubscriptionBroken:
                continue  # the watch has written it down
            number = self.writer.append(batch.payloads, batch.tags)
            self.taken += len(batch)
            self._waiting.append((number, batch))
            self._backlog.appended(self.writer.slot, sum(map(len, batch.payloads)))
            if self._backlog.full:
                self._backlog.notify()
            self.durable()  # a disk that was quicker than we were

    def durable(self) -> None:
        """Accepts what the disk has."""
        reached = self.writer.durable
        waiting = self._waiting
        if waiting and waiting[0][0] <= reached:
            while waiting and waiting[0][0] <= reached:
                batch = waiting.popleft()[1]
                batch.accept()
                self.accepted += len(batch)
            self._changes.notify()

    async def drain(self) -> int:
        """Until the router has nothing more for this topic, or the backlog is full; the end of the log by then."""
        crowded = asyncio.ensure_future(self._backlog.crowded())
        emptied = asyncio.ensure_future(self._emptied())
        try:
            await asyncio.wait([crowded, emptied], return_when=asyncio.FIRST_COMPLETED)
            if emptied.done():
                emptied.result()
        finally:
            crowded.cancel()
            emptied.cancel()
        return await self.settled()

    async def _emptied(self) -> None:
        while True:
            while not await self._subscriber.drain():
                pass
            before = self.taken + self._subscriber.waiting
            await asyncio.sleep(QUIET_S)
            if before == self.taken + self._subscriber.waiting and await self._subscriber.drain():
                return

    async def settled(self) -> int:
        """Everything that has been taken is durable; the end of the log by then."""
        if not self._backlog.full:
            there = self.taken + self._subscriber.waiting
            await self._changes.until(lambda: self.accepted >= there or self._backlog.full)
        there = self.taken
        self.writer.flush()
        await self._changes.until(lambda: self.accepted >= there)
        return self.writer.durable
