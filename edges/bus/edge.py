"""One edge of the bus: a subscriber and a publisher of the network, a store, and what is sent from it.

A push is a publication on the bus's address. The edge is an exactly-once subscriber of that address: it stores an event
in its topic's stream in the commit in which it accepts it, so each event is there once, however many subscribers there
are and whoever dies. A push is answered when its publication has its outcome: then the event is stored.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

import onceway
from edges.bus.core import Bus, Plan, Subscriber, Topic
from edges.bus.metrics import BusMetrics
from edges.bus.rules import BadRequest, event, text_of, topic_of
from edges.bus.sender import Sender
from edges.store import Batch, Retention, Store, StoreFull, open_store
from edges.store.journal import StoreJournal, cannot_go_on
from onceway.client.delivery import Batch as Received
from onceway.client.reports import SubscriptionGap
from onceway.client.signals import Changes
from onceway.errors import JournalFull, OncewayError
from onceway.logs import logger

EVENTS: Final = "bus/events/"  # stream of each topic
FOREIGN: Final = "bus/foreign"  # what somebody else sent to the bus's address, and is no event
FOREIGN_OCTETS: Final = 1 << 20  # of it that are kept
TOPICS: Final = "bus/topic/"
SUBSCRIBERS: Final = "bus/subscriber/"
TOKENS: Final = "bus/token/"
PROCESS: Final = "bus/process/"
PUSH_TIMEOUT_S: Final = 20.0
AGAIN_S: Final = 1.0  # between attempts after the store was full
CREDIT: Final = 10_000
MOST: Final = 2_000  # events in a commit
BATCH_OCTETS: Final = 8 << 20  # of events read for a batch
DROPPED_AT_ONCE: Final = 10_000


class Unavailable(OncewayError):
    """The bus cannot work now; says why."""


class Claimed(OncewayError):
    """The topic belongs to another client."""


@dataclass(frozen=True, slots=True)
class BusOptions:
    """How an edge is run.

    Attributes:
        place: Of its store.
        routers: URLs.
        name: Of this edge, unique in the network.
        address: Of the bus in the network.
        keep_s: How long events stay for replay after everybody has taken them.
        max_octets: How large the store may become; None: as large as the disk.
        min_free: Autodrop begins when less than this is free of `max_octets`; 0: never.
        check_every_s: How often storage is looked at.
        callback_schemes: Of the call-backs that are taken.
        callback_context: How their certificates are checked.
    """

    place: str
    routers: str
    name: str = "a"
    address: str = "bus"
    keep_s: float = 86_400.0
    max_octets: int | None = None
    min_free: int = 0
    check_every_s: float = 1.0
    callback_schemes: tuple[str, ...] = ("https",)
    callback_context: ssl.SSLContext | None = None


class Edge:
    """`await start()`, then it runs until `await stop()`; `failed` is set when it cannot go on."""

    def __init__(self, options: BusOptions) -> None:
        self.options = options
        self.bus = Bus(random.Random())
        self.metrics = BusMetrics()
        self.tokens: dict[str, str] = {}  # token -> name
        self.failed: asyncio.Future[None]
        self.store: Store
        self._sender: Sender
        self._log = logger("bus", edge=options.name)
        self._publisher: onceway.Publisher | None = None
        self._full = ""  # why nothing can be stored
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._claiming = asyncio.Lock()
        self._delivered = Changes()
        self._stopping = False
        self._counts = {"start": 0, "stop": 0}

    async def start(self) -> None:
        """StoreError if the store cannot be opened."""
        self.failed = asyncio.get_running_loop().create_future()
        self.store = open_store(self.options.place, limit_octets=self.options.max_octets)
        self._sender = Sender(self.options.callback_context)
        await self._load()
        for work in (self._attend(), self._deliver(), self._keep_house()):
            self._spawn(work)

    async def stop(self) -> None:
        """Lets what is under way end, for as long as a subscriber may take, then closes the store."""
        self._stopping = True
        self._wake.set()
        await self._delivered.until(lambda: not self.bus.under_way, 5.0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sender.close()
        if not self.failed.done():
            await self._count_process("stop")
        await self.store.close()

    # --- for requests

    async def push(self, identity: str, name: str, topic: str, data: dict[str, Any]) -> None:
        """Returns when the event is stored.

        Raises:
            BadRequest: It is no event.
            Claimed: The topic belongs to another client.
            Unavailable: It was not stored, or it is not known whether it was.
        """
        body = event(topic, data, time.time_ns() // 1_000_000)
        known = self.bus.topics.get(topic)
        if known is None:
            known = await self._claim(topic, identity, name)
        if known.publisher != identity:
            raise Claimed(f"topic {topic} belongs to another client")
        if (why := self.why_unable()) is not None:
            raise Unavailable(why)
        publisher = self._publisher
        assert publisher is not None
        try:
            async with asyncio.timeout(PUSH_TIMEOUT_S):
                publication = await publisher.put(body)
                await publication
        except TimeoutError:
            raise Unavailable("the network has not answered in time; the event may still come") from None
        except onceway.UsageError as error:
            raise BadRequest(str(error)) from error
        except OncewayError as error:
            raise Unavailable(f"{error}; the event may still come") from error
        self.metrics.published.labels(topic).inc()

    def why_unable(self) -> str | None:
        """Why the bus cannot take events now; None if it can."""
        if self.failed.done() or self._stopping:
            return "this edge is stopping"
        if self._full:
            return self._full
        return "not connected to the network" if self._publisher is None else None

    async def create_token(self, name: str) -> str:
        token = f"{name}--{secrets.token_hex(16)}"
        batch = Batch()
        batch.put(TOKENS + token, name.encode())
        await self.store.commit(batch)
        self.tokens[token] = name
        return token

    async def delete_token(self, token: str) -> None:
        if self.tokens.pop(token, None) is not None:
            batch = Batch()
            batch.delete(TOKENS + token)
            await self.store.commit(batch)

    async def save(self, *subscribers: Subscriber, removed: str | None = None, topic: str | None = None) -> None:
        """Makes durable what was changed: these subscribers, one that was removed, a topic that was deleted."""
        batch = Batch()
        for subscriber in subscribers:
            batch.put(SUBSCRIBERS + subscriber.identity, subscriber.row())
        if removed is not None:
            batch.delete(SUBSCRIBERS + removed)
        if topic is not None:
            batch.delete(TOPICS + topic)
        self._wake.set()
        await self.store.commit(batch)

    async def position_at(self, topic: str, time_ms: int) -> int:
        return await self.store.position_at(EVENTS + topic, time_ms * 1000)

    async def oldest_s(self, subscriber: Subscriber) -> float:
        """When its oldest queued event came, in seconds since 1970; now, if there is none."""
        times = [time.time()]
        for topic, first in self.bus.oldest(subscriber):
            for record in await self.store.read(EVENTS + topic, first, records=1):
                times.append(record.time_us / 1e6)
        return min(times)

    async def measure(self) -> bytes:
        """The metrics page."""
        metrics, bus, options = self.metrics, self.bus, self.options
        for gauge in (metrics.queue_batches, metrics.queue_events):
            gauge.clear()
        for subscriber in bus.subscribers.values():
            queued = bus.pending(subscriber)
            metrics.queue_events.labels(subscriber.name).set(queued)
            metrics.queue_batches.labels(subscriber.name).set(-(-queued // subscriber.max_events))
        now = time.monotonic()
        scheduled = sum(each.due_at is not None for each in bus.subscribers.values())
        metrics.jobs.labels("main", "running").set(bus.under_way)
        metrics.jobs.labels("main", "instant").set(bus.due(now))
        metrics.jobs.labels("main", "scheduled").set(scheduled - bus.due(now))
        metrics.used.set(await self.store.used())
        metrics.max.set(options.max_octets or 0)
        metrics.low_mark.set(options.min_free)
        metrics.high_mark.set(2 * options.min_free)
        return metrics.render()

    # --- the network

    async def _attend(self) -> None:
        """Is publisher and subscriber of the bus's address, as long as the edge runs."""
        while True:
            try:
                await self._attend_once()
            except OncewayError as error:
                if cannot_go_on(error):
                    raise
                if isinstance(error, StoreFull | JournalFull):
                    self._full = str(error)
                self._log.warning("bus_again", "{reason}", reason=str(error))
            finally:
                self._publisher = None
            await asyncio.sleep(AGAIN_S)

    async def _attend_once(self) -> None:
        options = self.options
        journal = await StoreJournal.of(self.store, "bus-journal")
        async with onceway.connect(
            options.routers,
            container=f"onceway-bus:{options.address}:{options.name}",
            journal=journal,
            connect_timeout_s=None,
            close_timeout_s=2.0,
        ) as connection:
            subscriber = await connection.subscriber(options.address, credit=CREDIT, on_gap=self._gap)
            self._publisher = await connection.publisher(options.address, on_undecided=lambda _: None)
            self._full = ""
            self._log.info("bus_attached", "attached to {address}", address=options.address)
            async for batch in subscriber.batches(max_messages=MOST):
                await self._store(journal, batch)

    async def _store(self, journal: StoreJournal, batch: Received) -> None:
        bodies = [body if isinstance(body, bytes) else b"" for body in batch.bodies]
        topics = [topic_of(body) for body in bodies]
        if None in topics:
            self._log.warning("bus_foreign", "{count} messages are no events of a bus", count=topics.count(None))
            journal.batch.keep(FOREIGN, Retention(octets=FOREIGN_OCTETS))
        await journal.accept(batch, [FOREIGN if topic is None else EVENTS + topic for topic in topics], bodies)
        now = time.monotonic()
        for topic in dict.fromkeys(topics):
            if topic is not None:
                await self._arrived(topic, now)
        self._wake.set()

    async def _arrived(self, topic: str, now: float) -> None:
        before = self.bus.ends.get(topic, 0)
        end = (await self.store.bounds(EVENTS + topic)).next
        self.bus.arrived(topic, end, now)
        for subscriber in self.bus.readers(topic):
            self.metrics.added.labels(subscriber.name).inc(end - before)

    def _gap(self, gap: SubscriptionGap) -> None:
        self._log.error("bus_gap", "events may be missing: {reason}", reason=gap.reason)

    # --- call-backs

    async def _deliver(self) -> None:
        while not self._stopping:
            now = time.monotonic()
            for plan in self.bus.take(now):
                self._spawn(self._send(plan))
            deadline = self.bus.deadline(now)
            self._wake.clear()
            try:
                async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _send(self, plan: Plan) -> None:
        subscriber, metrics = plan.subscriber, self.metrics
        bodies = await self._read(plan)
        began = time.monotonic()
        if plan.attempts == 1:
            metrics.latency_count.labels(subscriber.name).inc()
            metrics.latency_first.labels(subscriber.name).inc(began - plan.created_at)
        batch = " ".join([str(plan.generation), *(f"{t}:{first}-{end - 1}" for t, (first, end) in plan.parts.items())])
        body = b"[" + b",".join(bodies) + b"]"
        why = await self._sender.send(subscriber.callback, subscriber.uuid, body, batch) if bodies else None
        took, status = time.monotonic() - began, "success" if why is None else "failure"
        metrics.delivery_events.labels(subscriber.name, status).inc(len(bodies))
        metrics.delivery_batches.labels(subscriber.name, status).inc()
        metrics.delivery_time.labels(subscriber.name, status).inc(took)
        metrics.delivery_time2.labels(subscriber.name, status).inc(took * took)
        if why is None:
            metrics.latency_last.labels(subscriber.name).inc(time.monotonic() - plan.created_at)
            metrics.removed.labels(subscriber.name).inc(len(bodies))
            taken = self.bus.acknowledge(plan, len(bodies))
            if taken is not None:
                await self._save_surely(taken)
            self.bus.succeeded(plan)
        else:
            self._log.warning(
                "bus_delivery_failed", "{subscriber}: attempt {attempt} of {count} events failed: {reason}",
                subscriber=subscriber.name, attempt=plan.attempts, count=len(bodies), reason=why,
            )  # fmt: skip
            self.bus.failed(plan, time.monotonic(), why)
        self._delivered.notify()
        self._wake.set()

    async def _save_surely(self, subscriber: Subscriber) -> None:
        """Before the next batch: what is sent again after a death is then one batch at most."""
        while True:
            try:
                if self.bus.subscribers.get(subscriber.identity) is subscriber:
                    await self.save(subscriber)
                return
            except StoreFull as error:
                self._log.warning("bus_full", "{reason}", reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def _read(self, plan: Plan) -> list[bytes]:
        """The batch's events; what does not fit a batch is left for the next one."""
        found: list[bytes] = []
        octets = 0
        for topic, (first, end) in list(plan.parts.items()):
            position = first
            while position < end and octets < BATCH_OCTETS:
                records = await self.store.read(EVENTS + topic, position, records=end - position)
                records = [record for record in records if record.position < end]
                position = records[-1].position + 1 if records else end  # none: they were dropped
                found += [text_of(record.payload) for record in records]
                octets += sum(len(record.payload) for record in records)
            if position == first:
                del plan.parts[topic]
            else:
                plan.parts[topic] = (first, position)
        return found

    # --- housekeeping

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(self.options.check_every_s)
            try:
                await self._trim(self.options.keep_s)
                await self._autodrop()
            except StoreFull as error:
                self._log.warning("bus_full", "{reason}", reason=str(error))

    async def _trim(self, keep_s: float) -> None:
        """Removes events that everybody has taken and that are older."""
        batch = Batch()
        before_us = int((time.time() - keep_s) * 1e6)
        for stream in await self.store.streams(EVENTS):
            needed = self.bus.needed(stream.removeprefix(EVENTS))
            first = (await self.store.bounds(stream)).first
            if needed > first:
                before = min(needed, await self.store.position_at(stream, before_us))
                if before > first:
                    batch.trim(stream, before)
        if batch.trimmed:
            await self.store.commit(batch)

    async def _autodrop(self) -> None:
        """Where too little is free: first what is only kept for replay, then the stalest queue's oldest events."""
        limit, least = self.options.max_octets, self.options.min_free
        if limit is None or not least or limit - await self.store.used() >= least:
            return
        await self._trim(0.0)
        while limit - await self.store.used() < 2 * least:
            stalest = [
                (await self.oldest_s(each), each.identity, each)
                for each in self.bus.subscribers.values()
                if self.bus.pending(each)
            ]
            if not stalest:
                return
            _, _, subscriber = min(stalest)
            oldest = []
            for topic, first in self.bus.oldest(subscriber):
                records = await self.store.read(EVENTS + topic, first, records=1)
                oldest.append((records[0].time_us if records else 0, topic))
            if not oldest:
                continue
            topic = min(oldest)[1]
            dropped = self.bus.drop(subscriber, DROPPED_AT_ONCE, topic)
            self.metrics.autodropped.labels(subscriber.name).inc(dropped)
            self._log.error(
                "bus_autodrop", "storage is full: dropped {count} events of {topic} for {subscriber}",
                count=dropped, topic=topic, subscriber=subscriber.name,
            )  # fmt: skip
            await self.save(subscriber)
            await self._trim(0.0)

    # --- helpers

    async def _claim(self, topic: str, identity: str, name: str) -> Topic:
        async with self._claiming:
            found = self.bus.topics.get(topic)
            if found is None:
                found = Topic(identity, name, self.bus.ends.get(topic, 0))
                batch = Batch()
                batch.put(TOPICS + topic, found.row())
                await self.store.commit(batch)
                self.bus.topics[topic] = found
            return found

    async def _load(self) -> None:
        now = time.monotonic()
        for stream in await self.store.streams(EVENTS):
            self.bus.ends[stream.removeprefix(EVENTS)] = (await self.store.bounds(stream)).next
        for key, value in await self.store.scan(TOKENS):
            self.tokens[key.removeprefix(TOKENS)] = value.decode()
        for key, value in await self.store.scan(TOPICS):
            self.bus.topics[key.removeprefix(TOPICS)] = Topic.of_row(value)
        for key, value in await self.store.scan(SUBSCRIBERS):
            self.bus.add(Subscriber.of_row(key.removeprefix(SUBSCRIBERS), value))
        for status in self._counts:
            self._counts[status] = int(await self.store.get(PROCESS + status) or b"0")
            self.metrics.process.labels(status, "edge").inc(self._counts[status])
        await self._count_process("start")
        self._log.info(
            "bus_loaded", "{topics} topics, {subscribers} subscribers", topics=len(self.bus.topics),
            subscribers=len(self.bus.subscribers), took=time.monotonic() - now,
        )  # fmt: skip

    async def _count_process(self, status: str) -> None:
        self._counts[status] += 1
        self.metrics.process.labels(status, "edge").inc()
        batch = Batch()
        batch.put(PROCESS + status, b"%d" % self._counts[status])
        try:
            await self.store.commit(batch)
        except StoreFull as error:
            self._log.warning("bus_full", "{reason}", reason=str(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)
