"""What all edges of a bus share, as rows of the store: tokens, topics, subscriptions.

Memory mirrors the rows. A change is a commit that expects the rows that it was made from; where another edge was
faster, they are read again and the change is made anew. Each such commit names its rows in a stream, which the other
edges follow. What a subscriber has taken is in its row, too, and is not told to the others: only its edge needs it
at once.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from edges.bus.core import Bus, Topic
from edges.store import Batch, Conflict, Retention, Store, StoreFull
from onceway.base import waits
from onceway.errors import OncewayError

EVENTS: Final = "bus/events/"  # stream of each topic
CHANGES: Final = "bus/changes"  # stream of the keys that were changed
TOPICS: Final = "bus/topic/"
SUBSCRIBERS: Final = "bus/subscriber/"
TOKENS: Final = "bus/token/"
KEPT: Final = Retention(age_s=3600.0, octets=1 << 20)  # of the changes; who has missed some reads all rows


class Missing(OncewayError):
    """There is no such topic or subscription."""


class Forbidden(OncewayError):
    """It belongs to another client."""


class Registry:
    """One edge's view.

    Args:
        store: Where the rows are.
        bus: The memory of topics and subscribers.
        look: Makes memory know of the events that a topic has by now.
        wake: Called after each change of memory.
        shared: Other processes use the store, too.

    Attributes:
        tokens: Names by token.
    """

    def __init__(
        self,
        store: Store,
        bus: Bus,
        look: Callable[[str], Awaitable[None]],
        wake: Callable[[], None],
        *,
        shared: bool,
    ) -> None:
        self.tokens: dict[str, str] = {}
        self._store = store
        self._bus = bus
        self._look = look
        self._wake = wake
        self._shared = shared
        self._rows: dict[str, bytes] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of rows, while somebody has one
        self._reading = waits.BUS_ROW(asyncio.Lock())
        self._seen = 0  # changes that memory has
        self._asked = 0  # calls of `current`
        self._answered = 0  # of these: whose changes are in memory

    async def load(self) -> None:
        """Reads all rows."""
        self._seen = (await self._store.bounds(CHANGES)).next
        for stream in await self._store.streams(EVENTS):
            topic, end = stream.removeprefix(EVENTS), (await self._store.bounds(stream)).next
            if self._bus.ends.setdefault(topic, end) < end:
                self._bus.arrived(topic, end, time.monotonic())
        for prefix in (TOKENS, TOPICS, SUBSCRIBERS):
            await self.refresh(prefix)
        self._bus.forget_unused()

    async def refresh(self, prefix: str = SUBSCRIBERS) -> None:
        """Reads all rows below the prefix."""
        rows = dict(await self._store.scan(prefix))
        for key in [*rows, *(key for key in self._rows if key.startswith(prefix) and key not in rows)]:
            if self._rows.get(key) != rows.get(key):
                await self._reload(key)

    async def current(self) -> None:
        """Returns once memory has what other edges had changed before the call."""
        if not self._shared:
            return
        self._asked += 1
        mine = self._asked
        async with self._reading:
            if self._answered < mine:
                asked = self._asked
                await self._read_changes()
                self._answered = asked

    async def follow(self) -> None:
        """Keeps memory as the rows are."""
        while True:
            await self._store.grown(CHANGES, self._seen)
            await self.current()

    # --- changes

    async def create_token(self, name: str, token: str | None) -> str:
        """Returns the token; None: a new one. One that is there already has this name from now on."""
        token = token or f"{name}--{secrets.token_hex(16)}"
        key = TOKENS + token
        async with self._turn(key):
            while self.tokens.get(token) != name:
                await self._try(key, name.encode())
        return token

    async def delete_token(self, token: str) -> None:
        key = TOKENS + token
        async with self._turn(key):
            while token in self.tokens:
                await self._try(key, None)

    async def claim(self, name: str, identity: str = "", client: str = "") -> Topic:
        """The topic, which belongs to whoever pushed to it first; without an identity it is made for nobody yet."""
        key = TOPICS + name
        while (found := self._bus.topics.get(name)) is None or (identity and not found.publisher):
            if found is None:
                await self._unsubscribe(name)
            async with self._turn(key):
                if self._bus.topics.get(name) is found:
                    base = (await self._store.bounds(EVENTS + name)).next if found is None else found.base
                    await self._try(key, Topic(identity, client, base).row())
        return found

    async def delete_topic(self, name: str, may: Callable[[Topic], bool]) -> None:
        """Unsubscribes its subscribers. Those that a full store, or the death of this edge, leaves subscribed are not
        shown the topic, and are unsubscribed before there is another one of its name.

        Raises:
            Missing: There is none.
            Forbidden: It is not for this client to delete.
        """
        key = TOPICS + name
        async with self._turn(key):
            if name not in self._bus.topics:
                raise Missing("there is no such topic")
            while (topic := self._bus.topics.get(name)) is not None:
                if not may(topic):
                    raise Forbidden("the topic belongs to another client")
                await self._try(key, None)
        await self.current()
        with suppress(StoreFull):
            await self._unsubscribe(name)

    async def change(
        self,
        identity: str,
        apply: Callable[[], object],
        *,
        topics: Iterable[str] = (),
        taken: bool = False,
        fence: tuple[str, bytes] | None = None,
    ) -> None:
        """Changes one subscription.

        Args:
            identity: Of its client.
            apply: Changes it in memory; called again where another edge has changed it meanwhile.
            topics: Topics of which the change holds only while they are, or are not, as memory has them.
            taken: The change is what it has taken: other edges need not know. While nothing is queued for it, that is
                written with the next commit: no other batch is sent before there is one.
            fence: A key and its value, which say that this edge serves the subscriber.

        Raises:
            Conflict: The fence is not so any more.
            StoreError: It could not be stored; memory is as the row is.
        """
        key = SUBSCRIBERS + identity
        async with self._turn(key):
            while True:
                if self._shared and not taken:
                    known = self._bus.subscribers.get(identity)
                    for topic in {*topics, *(known.topics if known else ())}:
                        await self._look(topic)
                apply()
                subscriber = self._bus.subscribers.get(identity)
                row = None if subscriber is None else subscriber.row()
                if row == self._rows.get(key):
                    return
                batch = Batch()
                for topic in topics:
                    batch.expect(TOPICS + topic, self._rows.get(TOPICS + topic))
                if fence is not None:
                    batch.expect(*fence)
                try:
                    idle = subscriber is not None and not self._bus.pending(subscriber)
                    await self._write({key: row}, batch, told=not taken, with_next=taken and idle)
                except Conflict as error:
                    await self._reload_now(key, again=True)
                    if fence is not None and error.key == fence[0]:
                        raise
                    if error.key != key:
                        await self._reload(error.key)
                except StoreFull:
                    await self._reload_now(key, again=True)
                    raise
                else:
                    return

    # --- helpers

    async def _unsubscribe(self, topic: str) -> None:
        """Unsubscribes everybody from a topic that is no more."""
        for identity, subscriber in list(self._bus.subscribers.items()):
            busy = self._turn(SUBSCRIBERS + identity).locked()  # memory may be ahead of the row
            if busy or topic in subscriber.topics:
                await self.change(identity, partial(self._bus.unsubscribe_gone, identity, topic), topics=[topic])

    def _turn(self, key: str) -> asyncio.Lock:
        return self._turns.setdefault(key, waits.BUS_ROW(asyncio.Lock()))

    async def _try(self, key: str, row: bytes | None) -> None:
        """Writes the row; where another edge was faster, memory has its row. The caller has the row's turn."""
        try:
            await self._write({key: row})
        except Conflict:
            await self._reload_now(key)

    async def _write(
        self,
        rows: dict[str, bytes | None],
        batch: Batch | None = None,
        *,
        told: bool = True,
        with_next: bool = False,
    ) -> None:
        """Conflict if a row is not as memory has it."""
        batch = batch or Batch()
        for key, row in rows.items():
            batch.expect(key, self._rows.get(key))
            batch.values[key] = row
        if told and self._shared:
            batch.append(CHANGES, [key.encode() for key in rows])
            batch.keep(CHANGES, KEPT)
        await self._store.commit(batch, with_next=with_next)
        for key, row in rows.items():
            self._know(key, row)

    def _know(self, key: str, row: bytes | None) -> None:
        if row is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = row
        self._wake()
        if key.startswith(TOKENS):
            token = key.removeprefix(TOKENS)
            if row is None:
                self.tokens.pop(token, None)
            else:
                self.tokens[token] = row.decode()
        elif key.startswith(TOPICS):
            topic = key.removeprefix(TOPICS)
            if row is None:
                self._bus.drop_topic(topic)
            else:
                self._bus.make_topic(topic, Topic.of_row(row))

    async def _reload(self, key: str) -> None:
        async with self._turn(key):
            await self._reload_now(key)

    async def _reload_now(self, key: str, *, again: bool = False) -> None:
        row = await self._store.get(key)
        if row != self._rows.get(key) or again:
            self._know(key, row)
            if key.startswith(SUBSCRIBERS):
                self._bus.put(key.removeprefix(SUBSCRIBERS), row, time.monotonic())

    async def _read_changes(self) -> None:
        end = (await self._store.bounds(CHANGES)).next
        while self._seen < end:
            records = await self._store.read(CHANGES, self._seen)
            if not records or records[0].position > self._seen:
                await self.load()
                return
            for key in dict.fromkeys(record.payload.decode() for record in records):
                await self._reload(key)
            self._seen = records[-1].position + 1
