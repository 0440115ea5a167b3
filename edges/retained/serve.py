"""One store of retained messages: the latest of each topic on its disk, and all of them to a router that asks.

It takes the messages of the address as its declared subscription, and accepts when they are written. So a publisher is
told that a message is retained when every store has it. What routers and stores say to each other is in
`router.mqtt.retained`.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import onceway
from amqp10.errors import MESSAGE_SIZE_EXCEEDED
from edges.store import Batch as Changes
from edges.store import Store, open_store
from onceway.base.logs import logger
from onceway.client.delivery import Batch
from onceway.client.publisher import Publisher
from onceway.topology.mqtt import store_subscription
from router.mqtt.conversion import Stamp
from router.mqtt.retained import MOST_DELETED, digest_of, end, question, read

CREDIT: Final = 5_000
PREFIX: Final = "retained/"
DELETED_US: Final = 3_600 * 1_000_000  # how long it is known that a message was deleted


class RetainedStore:
    """`await run()` until it is cancelled, or cannot go on."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        routers: str | Sequence[str],
        data: Path | str,
        tls: ssl.SSLContext | None = None,
        credentials: onceway.Credentials | None = None,
    ) -> None:
        """data: a file, or the URL of a PostgreSQL database. tls, credentials: as of `onceway.connect`."""
        self._name = name
        self._address = address
        self._connect = partial(onceway.connect, routers, tls=tls, credentials=credentials)
        self._data = data
        self._log = logger("retained", store=name)
        self._stamps: dict[str, Stamp] = {}  # by key
        self._deleted: dict[str, Stamp] = {}  # the same of what has been deleted, the oldest first
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Raises StoreError, OncewayError."""
        store = open_store(str(self._data))
        try:
            for key, payload in await store.scan(PREFIX):
                found = read(payload)
                assert found is not None, f"{store.place}: {key} is no retained message"
                (self._deleted if found.empty else self._stamps)[key] = found.stamp
            self._deleted = dict(sorted(self._deleted.items(), key=lambda each: each[1]))
            await self._serve(store)
        finally:
            for task in self._answering:
                task.cancel()
            await store.close()

    async def _serve(self, store: Store) -> None:
        container, link = store_subscription(self._name)
        async with self._connect(container=container) as connection:
            name = f"{self._name}-{time.time_ns()}"
            publisher = await connection.publisher(self._address, name=name, on_undecided=lambda _: None)
            subscriber = await connection.subscriber(self._address, name=link, credit=CREDIT)
            await publisher.put_payloads([question(name)])  # the others say what this one lacks
            self._log.info("retained_serves", "{count} topics in {place}", count=len(self._stamps), place=store.place)
            async for batch in subscriber.batches():
                asked = await self._take(store, batch, publisher.max_message_bytes)
                await batch.accept()
                for who in asked:
                    task = asyncio.create_task(self._answer(store, publisher, who))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)

    async def _take(self, store: Store, batch: Batch, most: int | None = None) -> list[str]:
        """Writes what is later than what is there, and rejects what could not be told to anybody. Returns who asks.

        most: octets of a message that the network takes: routers have added to what has come."""
        changes, asked = Changes(), []
        formats = batch.other_formats
        for index, payload in enumerate(batch.payloads):
            found = read(payload) if index not in formats else None
            if found is None or found.ended:
                continue
            if most is not None and len(payload) > most:
                text = f"with what routers add it has {len(payload)} bytes, and a retained message {most} at most"
                batch[index].reject(MESSAGE_SIZE_EXCEEDED, text)
                continue
            if found.asked:
                asked.append(found.asked)
                continue
            key = PREFIX + digest_of(found.topic).hex()
            known = self._stamps.get(key) or self._deleted.get(key)
            if known is None or found.stamp > known:
                self._stamps.pop(key, None)
                self._deleted.pop(key, None)
                (self._deleted if found.empty else self._stamps)[key] = found.stamp
                changes.put(key, payload)
        before_us = int(time.time() * 1e6) - DELETED_US
        while self._deleted:
            key, stamp = next(iter(self._deleted.items()))
            if len(self._deleted) <= MOST_DELETED and stamp[0] >= before_us:
                break
            del self._deleted[key]
            changes.delete(key)
        if changes.values:
            await store.commit(changes)
        return asked

    async def _answer(self, store: Store, publisher: Publisher, who: str) -> None:
        """Says all that is here. What is published meanwhile has a later stamp, and comes by itself."""
        most = publisher.max_message_bytes
        found = [payload for _, payload in await store.scan(PREFIX)]
        payloads = [payload for payload in found if most is None or len(payload) <= most]
        if len(payloads) < len(found):  # the routers' limit was another one
            text = "{count} messages have more than the {most} bytes that routers take, and are told to nobody"
            self._log.error("retained_too_large", text, count=len(found) - len(payloads), most=most)
        await publisher.put_payloads([*payloads, end(who, self._name)])
        self._log.info("retained_answered", "{who} has asked: {count} topics", who=who, count=len(payloads))
