"""One edge of the bus: a subscriber and a publisher of the network, a store, and what is sent from it.

A push is a publication on the bus's address. The edge is an exactly-once subscriber of that address: it stores an event
in its topic's stream in the commit in which it accepts it, so each event is there once, however many subscribers there
are and whoever dies. A push is answered when its publication has its outcome: then the event is stored.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import onceway
from amqp10.errors import DECODE_ERROR
from edges.bus.core import Bus, Plan, Subscriber
from edges.bus.house import House
from edges.bus.metrics import STATUSES, BusMetrics, Told
from edges.bus.options import BusOptions
from edges.bus.places import NotAllowed
from edges.bus.registry import EVENTS, Forbidden, Registry
from edges.bus.rules import BadRequest, event, is_event, read_event, text_of
from edges.bus.sender import Sender
from edges.bus.shares import NETWORK, TICK_S, Shares, slot_of
from edges.store import Batch, Conflict, Store, StoreError, StoreFull, open_store
from edges.store.journal import StoreJournal, cannot_go_on
from onceway.base import waits
from onceway.base.logs import logger
from onceway.client.bodies import why_raw
from onceway.client.delivery import Batch as Received
from onceway.client.reports import SubscriptionGap
from onceway.client.signals import Changes
from onceway.errors import DeliveryRejected, JournalFull, JournalLocked, OncewayError

JOURNAL: Final = "bus-journal"
PROCESS: Final = "bus/process/"
AGAIN_S: Final = 1.0  # between attempts after the store was full
CREDIT: Final = 10_000
MOST: Final = 2_000  # events in a commit
BATCH_OCTETS: Final = 8 << 20  # of events read for a batch
TURN_OCTETS: Final = 1 << 20  # of events that are read in one turn of the loop
TOLD: Final = 10  # call-backs that a line of the log names
NOT_CONNECTED: Final = "not connected to the network"


class Unavailable(OncewayError):
    """The bus cannot work now; says why."""


class Edge:
    """`await start()`, then it runs until `await stop()`; `failed` is set when it cannot go on."""

    def __init__(self, options: BusOptions) -> None:
        self.options = options
        self.bus = Bus(random.Random(), serves=self._serves)
        self.metrics = BusMetrics()
        self.failed: asyncio.Future[None]
        self.store: Store
        self.registry: Registry
        self._shares: Shares | None = None  # None: this edge is the whole bus
        self._sender: Sender
        self._log = logger("bus", edge=options.name)
        self._connection: onceway.Connection | None = None
        self._collecting: onceway.Connection | None = None  # where it has the role of speaking to the network
        self._speaking: asyncio.Timeout | None = None  # while it has that role
        self._publisher: onceway.Publisher | None = None
        self._broken: asyncio.Future[None] | None = None  # fails when the publisher has
        self._full = ""  # why nothing can be stored
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None  # of what is due next
        self._tasks: set[asyncio.Task[None]] = set()
        self._served: set[str] = set()  # of the roles that this edge holds: those whose rows it has read since
        self._sending: Counter[str] = Counter()  # by role
        self._pushes: dict[asyncio.Task[Any], float] = {}  # that are under way, and since when
        self._changed = Changes()
        self._started = False
        self._stopping = False

    async def start(self) -> None:
        """StoreError if the store cannot be opened."""
        options = self.options
        self._loop = asyncio.get_running_loop()
        self.failed = waits.STOP(self._loop.create_future())
        self.store = open_store(
            options.place, limit_octets=options.max_octets, key=options.root_key, client=quote(options.name, safe=""),
            context=options.callback_context,
        )  # fmt: skip
        shared = options.shared
        self.registry = Registry(self.store, self.bus, self._arrived, self._wake, shared=shared)
        self._sender = Sender(options.places, options.callback_context)
        if shared:
            self._shares = Shares(self.store, options.name)  # before anything is loaded: it serves nobody yet
        await self._check_owner()
        await self._load()
        work = [self._end_late_pushes(), House(self, self._keeps).keep()]
        if self._shares is not None:
            await self._tick(self._shares)
            work += [
                self._share(self._shares), self.registry.follow(), self._watch_topics(),
                self._attend(self._publish), self._attend(partial(self._collect, self._shares)),
            ]  # fmt: skip
        else:
            work += [self._attend(self._publish_and_collect)]
        for each in work:
            self._spawn(each)
        self._started = True

    async def stop(self) -> None:
        """Lets what is under way end, for as long as a subscriber may take, then closes the store. A start that waits
        for the store is to be cancelled before."""
        self._stopping = True
        await self._changed.until(lambda: not self.bus.under_way, waits.BUS_BATCHES.s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sender.close()
        if self._started and not self.failed.done():
            try:
                async with asyncio.timeout(waits.BUS_STOP.s):
                    await self._count_process("stop")
                    if self._shares is not None:
                        await self._shares.leave()
            except (TimeoutError, StoreFull) as error:
                reason = str(error) or f"the store does not answer: {self.store.place}"
                self._log.warning("bus_left", "stopped while {reason}", reason=reason)
        await self.store.close()

    # --- for requests

    async def push(self, identity: str, name: str, topic: str, data: dict[str, Any]) -> None:
        """Returns when the event is stored.

        Raises:
            BadRequest: It is no event.
            Forbidden: The topic belongs to another client.
            Unavailable: It was not stored, or it is not known whether it was.
        """
        body = event(topic, data, time.time_ns() // 1_000_000)
        known = self.bus.topics.get(topic)
        if known is None or not known.publisher:
            self._able()  # a push that is refused makes no topic
            known = await self.registry.claim(topic, identity, name)
        if known.publisher != identity:
            raise Forbidden(f"topic {topic} belongs to another client")
        publisher = self._able()
        task = asyncio.current_task()
        assert task is not None
        self._pushes[task] = time.monotonic()
        try:
            await (await publisher.put(body))
        except asyncio.CancelledError:
            if task in self._pushes:
                raise
            task.uncancel()
            raise Unavailable("the network has not answered in time; the event may still come") from None
        except onceway.UsageError as error:
            raise BadRequest(str(error)) from error
        except OncewayError as error:
            if not isinstance(error, DeliveryRejected):  # by another subscriber of the address: the publisher goes on
                self._break(error)
            raise Unavailable(f"{error}; the event may still come") from error
        finally:
            self._pushes.pop(task, None)
        self.metrics.published[topic] += 1

    async def _end_late_pushes(self) -> None:
        """One timer for all: a timer for each was a tenth of what an event costs."""
        while True:
            await asyncio.sleep(1.0)
            late = time.monotonic() - waits.BUS_STORE.s
            for task in [task for task, began in self._pushes.items() if began < late]:
                del self._pushes[task]
                task.cancel()

    def _able(self) -> onceway.Publisher:
        if (why := self._why_refused()) is not None:
            raise Unavailable(why)
        assert self._publisher is not None
        return self._publisher

    def why_unable(self) -> str | None:
        """Why the bus does not work now; None if it does."""
        if (why := self._why_refused()) is not None:
            return why
        if self._connection is None or self._connection.router is None:
            return NOT_CONNECTED
        return None

    def _why_refused(self) -> str | None:
        """Why a push is refused at once. While the connection to a router is made again, pushes wait."""
        if self.failed.done() or self._stopping:
            return "this edge is stopping"
        if self._full:
            return self._full
        if self._publisher is None:
            return NOT_CONNECTED
        if self._shares is not None and not self._shares.attached:
            return "no edge has attached to the network yet"  # what is pushed would come to nobody
        return None

    async def look(self) -> None:
        """Memory knows what other edges have stored and delivered by now."""
        if self._shares is not None:
            for topic in list(self.bus.topics):
                await self._arrived(topic)
            await self.registry.refresh()

    async def position_at(self, topic: str, time_ms: int) -> int:
        return await self.store.position_at(EVENTS + topic, time_ms * 1000)

    async def oldest_s(self, subscriber: Subscriber) -> float:
        """When its oldest queued event came, in seconds since 1970; now, if there is none."""
        return min([time.time(), *(came_s for came_s, _ in await self.oldest(subscriber))])

    async def oldest(self, subscriber: Subscriber) -> list[tuple[float, str]]:
        """(when it came, its topic) of the oldest queued event of each topic."""
        firsts = self.bus.oldest(subscriber)
        found = [(topic, await self.store.read(EVENTS + topic, first, records=1)) for topic, first in firsts]
        return [(records[0].time_us / 1e6, topic) for topic, records in found if records]

    async def told(self) -> Told:
        """For the metrics page."""
        used, free, limit = await self.store.used(), self.store.free(), self.options.max_octets
        if free is not None and limit is not None:
            free = min(free, limit - used)
        return Told(self.metrics, self.bus, time.monotonic(), used, limit or 0, self.options.min_free, free)

    # --- the network

    async def _attend(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Does its part in the network as long as the edge runs."""
        while True:
            try:
                await work()
            except OncewayError as error:
                if cannot_go_on(error):
                    raise
                if isinstance(error, StoreFull | JournalFull):
                    self._full = str(error)
                    self._break(error)  # what waits for an outcome is answered now
                self._log.warning("bus_again", "{reason}", reason=str(error))
            await asyncio.sleep(AGAIN_S)

    def _container(self, *name: str) -> str:
        return ":".join(("onceway-bus", self.options.address, *name))

    async def _check_owner(self) -> None:
        """The store's journal is of one address, and of one edge where it has no others."""
        mine = self._container(*(() if self.options.shared else (self.options.name,)))
        kept = (await self.store.get(f"{JOURNAL}/container") or mine.encode()).decode()
        if kept != mine:
            raise StoreError(
                f"{self.store.place} belongs to {kept}, and this is {mine} (onceway-bus:ADDRESS:NAME; an edge "
                "with a shared store has no name there); give another place, --address or --name"
            )

    def _connect(self, journal: StoreJournal | None, *container: str) -> onceway.Connection:
        return onceway.connect(
            self.options.routers,
            container=self._container(*container), journal=journal,
            connect_timeout_s=None, close_timeout_s=2.0,
            tls=self.options.tls, credentials=self.options.credentials,
        )  # fmt: skip

    async def _publish_and_collect(self) -> None:
        """At one router, so that no push is settled where the network has forgotten the subscription."""
        journal = await StoreJournal.of(self.store, JOURNAL)
        async with self._connect(journal, self.options.name) as connection:
            subscriber = await connection.subscriber(self.options.address, credit=CREDIT, on_gap=self._gap)
            async with self._publishing(connection):
                await self._store_all(journal, subscriber)

    async def _publish(self) -> None:
        self._broken = waits.CONNECTION(asyncio.get_running_loop().create_future())
        name = self.options.name, secrets.token_hex(4)
        async with self._connect(None, *name) as connection, self._publishing(connection):
            await self._broken

    def _break(self, error: OncewayError) -> None:
        """The publisher begins anew."""
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _collect(self, shares: Shares) -> None:
        """Stores for the whole bus what comes to its address, while that is this edge's role."""
        await waits.BUS_ROLE(self._changed).until(lambda: NETWORK in shares.held)
        if not shares.on_time():
            return
        try:
            async with waits.BUS_SPEAKS(asyncio.timeout(None)) as self._speaking:
                journal = await StoreJournal.of(self.store, JOURNAL)
                async with self._connect(journal) as self._collecting:
                    subscriber = await self._collecting.subscriber(
                        self.options.address, credit=CREDIT, on_gap=self._gap
                    )
                    await shares.say_attached()
                    await self._store_all(journal, subscriber)
        except (JournalLocked, Conflict, TimeoutError) as error:
            self._log.info("bus_deposed", "gives the network up: {reason}", reason=str(error) or "others may have it")
        finally:
            self._speaking = self._collecting = None

    @asynccontextmanager
    async def _publishing(self, connection: onceway.Connection) -> AsyncIterator[None]:
        """A push that had no answer when its edge died is owed to nobody, so publishers are in no journal."""
        self._publisher = await connection.publisher(
            self.options.address, name=secrets.token_hex(8), journalled=False, on_undecided=lambda _: None
        )
        self._connection = connection
        self._full = ""
        self._log.info("bus_attached", "attached to {address}", address=self.options.address)
        try:
            yield
        finally:
            self._connection, self._publisher = None, None

    async def _store_all(self, journal: StoreJournal, subscriber: onceway.Subscriber) -> None:
        self._full = ""
        async for batch in subscriber.batches(max_messages=MOST):
            await self._store(journal, batch)

    async def _store(self, journal: StoreJournal, batch: Received) -> None:
        bodies = batch.bodies
        streams: list[str | None] = []
        octets = 0
        for index, body in enumerate(bodies):
            try:
                topic, text = read_event(body)
            except BadRequest as error:
                batch[index].reject(DECODE_ERROR, why_raw(body) or str(error))
                streams.append(None)
                bodies[index] = b""
                continue
            streams.append(EVENTS + topic)
            octets += len(text)
            if octets >= TURN_OCTETS:  # a few that are compressed well are much to read
                octets = 0
                await asyncio.sleep(0)
        await journal.accept(batch, streams, bodies)
        for stream in dict.fromkeys(streams):
            if stream is not None:
                await self._arrived(stream.removeprefix(EVENTS))
        self._deliver()

    async def _arrived(self, topic: str) -> None:
        end = (await self.store.bounds(EVENTS + topic)).next
        before = self.bus.ends.get(topic, 0)
        self.bus.arrived(topic, end, time.monotonic())
        self.store.hurry()  # who has taken a batch may get this one once that is durable
        for subscriber in self.bus.readers(topic):
            if self.bus.serves(subscriber.identity):
                self.metrics.added[subscriber.name] += max(0, end - before)

    def _gap(self, gap: SubscriptionGap) -> None:
        self._log.error("bus_gap", "events may be missing: {reason}", reason=gap.reason)

    # --- what several edges share

    async def _share(self, shares: Shares) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self._tick(shares)

    async def _tick(self, shares: Shares) -> None:
        used = [each for each in (self._connection, self._collecting) if each is not None]
        connected = self._connection is not None and all(each.router is not None for each in used)
        try:
            await shares.tick(connected=connected, idle=lambda role: not self._sending[role])
        except StoreFull as error:
            self._served.clear()  # without a beat this edge does nothing until there is room
            self._log.warning("bus_full", "{reason}", reason=str(error))
            return
        speaking = self._speaking
        if speaking is not None and (NETWORK not in shares.held or NETWORK in shares.taken) and not speaking.expired():
            speaking.reschedule(0)  # its link, too, is another edge's now, or was meanwhile
        self._served &= shares.held - shares.taken
        if self._served != shares.held:
            await self.registry.refresh()  # as the edges before have left them
            self._served = set(shares.held)
            self._log.info("bus_roles", "this edge has {count} roles", count=len(self._served))
        self.bus.reschedule()
        self._changed.notify()
        self._deliver()

    def _keeps(self) -> bool:
        """This edge looks after the store: the one whose file it is, or one of those that have a database."""
        if self._shares is None or self.options.share:
            return True
        return self.options.place.startswith("postgres") and NETWORK in self._shares.held

    def _serves(self, identity: str) -> bool:
        return self._shares is None or ((slot := slot_of(identity)) in self._served and slot in self._shares.held)

    async def _watch_topics(self) -> None:
        """Knows what other edges store."""
        watched: dict[str, asyncio.Task[None]] = {}
        while True:
            for topic in watched.keys() - self.bus.topics.keys():
                watched.pop(topic).cancel()
            for topic in self.bus.topics.keys() - watched.keys():
                watched[topic] = self._spawn(self._watch(topic))
            await asyncio.sleep(TICK_S)

    async def _watch(self, topic: str) -> None:
        while True:
            await self.store.grown(EVENTS + topic, self.bus.ends.get(topic, 0))
            await self._arrived(topic)
            self._deliver()

    # --- call-backs

    def _deliver(self) -> None:
        """Sends what is due, and looks again when more is. Called when something may have become due: at once, since
        each turn of the loop that an event waits for costs it as long as all other work of that turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopping or (self._shares is not None and not self._shares.on_time()):
            return  # the next beat calls
        now = time.monotonic()
        for plan in self.bus.take(now):
            self._sending[slot_of(plan.subscriber.identity)] += 1
            self._spawn(self._send(plan))
        if (deadline := self.bus.deadline(now)) is not None:
            self._timer = self._loop.call_later(max(0.0, deadline - now), self._deliver)

    def _wake(self) -> None:
        """Calls `_deliver` when what is done now is done."""
        self._loop.call_soon(self._deliver)

    async def _send(self, plan: Plan) -> None:
        subscriber, batches = plan.subscriber, self.metrics.batches[plan.subscriber.name]
        bodies = await self._read(plan)
        began = time.monotonic()
        if plan.attempts == 1:
            batches.number += 1
            batches.first_attempt_s += began - plan.created_at
        batch = " ".join([str(plan.generation), *(f"{t}:{first}-{end - 1}" for t, (first, end) in plan.parts.items())])
        body = b"[" + b",".join(bodies) + b"]"
        why = await self._sender.send(subscriber.callback, subscriber.uuid, body, batch) if bodies else None
        took, status = time.monotonic() - began, "success" if why is None else "failure"
        self.metrics.delivered(subscriber.name, status, len(bodies), took)
        if why is None:
            batches.last_attempt_s += time.monotonic() - plan.created_at
            self.metrics.removed[subscriber.name] += len(bodies)
            await self._save_surely(subscriber.identity, partial(self.bus.acknowledge, plan, len(bodies)))
            self.bus.succeeded(plan)
        else:
            self._log.warning(
                "bus_delivery_failed", "{subscriber}: attempt {attempt} of {count} events failed: {reason}",
                subscriber=subscriber.name, attempt=plan.attempts, count=len(bodies), reason=why.detail,
            )  # fmt: skip
            self.bus.failed(plan, time.monotonic(), why.kind)
        self._sending[slot_of(subscriber.identity)] -= 1
        self._changed.notify()
        self._deliver()

    async def check_callback(self, callback: str, uuid: str) -> None:
        """BadRequest if the bus does not call back there, in the same words whatever is there."""
        try:
            taken = not self.options.places.check(callback) or await self._sender.is_callback(callback, uuid)
        except NotAllowed:
            taken = False
        if not taken:
            raise BadRequest("callback: not a place that the bus calls back; its operator allows others")

    async def _save_surely(self, identity: str, apply: Callable[[], object]) -> None:
        """Before the next batch: what is sent again after a death is then one batch at most."""
        while True:
            try:
                fence = None if self._shares is None else self._shares.fence(slot_of(identity))
                await self.registry.change(identity, apply, taken=True, fence=fence)
                return
            except Conflict:
                self._served.discard(slot_of(identity))  # another edge has it, and sends this batch again
                return
            except StoreFull as error:
                self._log.warning("bus_full", "{reason}", reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def _read(self, plan: Plan) -> list[bytes]:
        """The batch's events; what does not fit a batch is left for the next one. What an earlier version has stored
        and is no event is left out: at once where it cannot be decompressed, else when the batch was not taken."""
        found: list[bytes] = []
        octets = 0
        for topic, (first, end) in list(plan.parts.items()):
            position = first
            while position < end and octets < BATCH_OCTETS:
                records = await self.store.read(EVENTS + topic, position, records=end - position)
                if not records or records[0].position >= end:  # they were dropped
                    position = end
                for record in records:
                    if record.position >= end or octets >= BATCH_OCTETS:
                        break
                    position = record.position + 1
                    text = text_of(record.payload)
                    if text is None or (plan.attempts > 1 and not is_event(record.payload)):
                        self._log.warning(
                            "bus_no_event", "{topic}: position {position} is no event and is left out",
                            topic=topic, position=record.position,
                        )  # fmt: skip
                        continue
                    found.append(text)
                    octets += len(text)
            if position == first:
                del plan.parts[topic]
            else:
                plan.parts[topic] = (first, position)
        return found

    # --- helpers

    async def _load(self) -> None:
        now = time.monotonic()
        await self.registry.load()
        for status in STATUSES:
            self.metrics.process[status] = int(await self.store.get(self._process(status)) or b"0")
        await self._count_process("start")
        bus, place = self.bus, self.store.place
        if not (bus.ends or bus.topics or bus.subscribers or self.registry.tokens):
            self._log.info("bus_new", "{place}: new, nothing was in it", place=place)
            return
        self._log.info(
            "bus_loaded", "{place}: {topics} topics, the longest up to position {next}, {subscribers} subscribers",
            place=place, topics=len(bus.topics), next=max(bus.ends.values(), default=0),
            subscribers=len(bus.subscribers), tokens=len(self.registry.tokens), took=time.monotonic() - now,
        )  # fmt: skip
        refused = self.options.places.refused(each.callback for each in bus.subscribers.values())
        if refused:
            text = (
                "{count} call-backs are to places that this bus does not call; --callback-allow allows networks: {some}"
            )
            self._log.warning("bus_callbacks_refused", text, count=len(refused), some=refused[:TOLD])

    async def _count_process(self, status: str) -> None:
        self.metrics.process[status] += 1
        batch = Batch()
        batch.put(self._process(status), b"%d" % self.metrics.process[status])
        try:
            await self.store.commit(batch)
        except StoreFull as error:
            self._log.warning("bus_full", "{reason}", reason=str(error))

    def _process(self, status: str) -> str:
        return PROCESS + status + (f"/{self.options.name}" if self.options.shared else "")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)
