"""Receiving: from the links of some slots into the log (`Ingest`), by a process of its own (`ingest`).

A delivery counts against the link's credit until it is accepted.  So a slow disk slows the network down, and a receiver
that takes no batches (`Backlog`) stops it.  Another number of partitions: `changing`.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import onceway
from onceway.base import waits
from onceway.client.bodies import with_format
from onceway.client.connection import Connection
from onceway.client.delivery import Batch
from onceway.client.reports import LinkAttached, Report, RouterConnected, RouterLost, SubscriptionGap
from onceway.client.signals import Changes
from onceway.client.subscriber import Subscriber
from onceway.errors import LinkRefused, SubscriptionBroken
from onceway.spark.access import access_of
from onceway.spark.errors import SubscriptionExists
from onceway.spark.source.journal import WatchingJournal
from onceway.spark.wal import Retention, SlotReader, SlotWriter, Wal, WalSettings
from router.json_text import write_json
from router.names import PARTITION, SUBSCRIPTION_EXISTS

TELL_EVERY_S: Final = 0.2
BEAT_S: Final = 2.0  # `ingests` waits many times as long
LEAVE_WITHIN_S: Final = 3.0
RETAIN_EVERY_S: Final = 5.0
QUIET_S: Final = 0.25  # a publisher that waits for credit answers a drain within this time
STEADY_S: Final = 1.0  # within this time, what other routers held at an attach has come to the subscription's home
BATCH_BYTES: Final = 4 << 20


class Backlog:
    """The bytes in these slots that Spark has not processed; `room` waits while they are at `limit` or more."""

    def __init__(self, limit: int, readers: Mapping[int, SlotReader]) -> None:
        self.size = 0
        self._limit = limit
        self._readers = readers
        self._processed: dict[int, int] = {}
        self._sizes = dict.fromkeys(readers, 0)
        self._changes = Changes()

    @property
    def full(self) -> bool:
        return self.size >= self._limit

    def begin(self, slot: int, end: int) -> None:
        """Counts the recovered log.  Rows may be kept only for a repeat: those that Spark has not asked for count as
        processed."""
        self._count(slot, end)

    def appended(self, slot: int, size: int) -> None:
        self._sizes[slot] += size
        self.size += size

    def processed(self, slot: int, position: int, durable: int, pending: int) -> None:
        """Spark has processed the rows before `position`; `pending` bytes are not durable yet."""
        if position != self._processed.get(slot):
            self._processed[slot] = position
            self._count(slot, durable, pending)

    def _count(self, slot: int, durable: int, pending: int = 0) -> None:
        reader = self._readers[slot]
        start = max(reader.start(), min(self._processed.get(slot, durable), durable))
        self._sizes[slot] = (reader.bytes_between(start, durable) if start < durable else 0) + pending
        self.size = sum(self._sizes.values())
        self._changes.notify()

    async def room(self) -> None:
        await waits.BACKLOG(self._changes).until(lambda: not self.full)

    async def crowded(self) -> None:
        """Waits until there is no room."""
        await waits.BACKLOG(self._changes).until(lambda: self.full)

    def notify(self) -> None:
        self._changes.notify()


class Receiver:
    """One subscription's way into the log: batches from its link are appended, and accepted when they are durable.

    Runs on the ingest's event loop; `durable` is called after each group commit.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        writer: SlotWriter,
        backlog: Backlog,
        group_rows: int,
        repeats: set[bytes] | None = None,
    ) -> None:
        """repeats: tags of messages that are in the log already, each of which may come once more."""
        self.writer = writer
        self._repeats = repeats or set()
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
                batch = await waits.MESSAGE(anext(batches))
            except StopAsyncIteration:
                return
            except SubscriptionBroken:
                continue  # the journal has written the gap
            payloads, tags = batch.payloads, batch.tags
            if formats := batch.other_formats:
                payloads = [with_format(payload, formats.get(at, 0)) for at, payload in enumerate(payloads)]
            if self._repeats and not self._repeats.isdisjoint(tags):
                new = [index for index, tag in enumerate(tags) if not self._is_repeat(tag)]
                payloads, tags = [payloads[index] for index in new], [tags[index] for index in new]
            number = self.writer.append(payloads, tags)
            self.taken += len(batch)
            self._waiting.append((number, batch))
            self._backlog.appended(self.writer.slot, sum(map(len, payloads)))
            if self._backlog.full:
                self._backlog.notify()
            self.durable()  # the disk may have been quicker

    def _is_repeat(self, tag: bytes) -> bool:
        """Once: an identifier of MQTT comes again for other messages."""
        if tag not in self._repeats:
            return False
        self._repeats.remove(tag)
        return True

    def durable(self) -> None:
        """Accepts the batches that are durable."""
        reached = self.writer.durable
        waiting = self._waiting
        if waiting and waiting[0][0] <= reached:
            while waiting and waiting[0][0] <= reached:
                batch = waiting.popleft()[1]
                batch.accept()
                self.accepted += len(batch)
            self._changes.notify()

    async def drain(self, steady_s: float = math.inf) -> int:
        """Waits until the router has nothing more for this topic, or the backlog is full; returns the log's end.

        steady_s: where publishers never pause, it is enough that the router had nothing more at one moment after this.
        """
        crowded = asyncio.ensure_future(self._backlog.crowded())
        emptied = asyncio.ensure_future(self._emptied(steady_s))
        try:
            await asyncio.wait([crowded, emptied], return_when=asyncio.FIRST_COMPLETED)
            if emptied.done():
                emptied.result()
        finally:
            crowded.cancel()
            emptied.cancel()
        return await self.settled()

    async def _emptied(self, steady_s: float = math.inf) -> None:
        clock = asyncio.get_running_loop().time
        enough = clock() + steady_s
        while True:
            late = clock() >= enough
            while not await self._subscriber.drain():
                pass
            if late:
                return
            before = self.taken + self._subscriber.waiting
            await asyncio.sleep(QUIET_S)
            if before == self.taken + self._subscriber.waiting and await self._subscriber.drain():
                return

    async def settled(self) -> int:
        """Waits until everything that was taken is accepted; returns the log's end."""
        if not self._backlog.full:
            there = self.taken + self._subscriber.waiting
            await waits.LOG_WRITTEN(self._changes).until(lambda: self.accepted >= there or self._backlog.full)
        there = self.taken
        self.writer.flush()
        await waits.LOG_WRITTEN(self._changes).until(lambda: self.accepted >= there)
        return self.writer.durable


class Ingest:
    """The slots of one process over one connection."""

    def __init__(self, config: dict[str, Any], tell: Lines) -> None:
        self._config = config
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._wal = Wal.open(config["location"])
        self._slots: list[int] = config["slots"]
        self._receiving = [slot for slot in self._slots if slot not in self._wal.before]
        self._apart = config["ingest"] == "apart"
        self._backlog = Backlog(config["max_backlog"], {slot: self._wal.slot(slot) for slot in self._slots})
        self._journal = WatchingJournal(
            self._wal,
            self._slots,
            WalSettings(
                group_rows=config["group_rows"],
                group_ms=config["group_ms"],
                segment_bytes=config["segment_bytes"],
                lease_s=config["lease_s"],
                lock_timeout_s=config["lock_timeout_s"],
            ),
            self._writer_moved,
            apart=self._apart,
        )
        self._receivers: dict[int, Receiver] = {}
        self._router: str | None = None
        self._up = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled.  Raises OncewayError where it cannot continue."""
        connection = await self._connect(self._journal)
        try:
            await self._work(connection)
        finally:
            for receiver in self._receivers.values():
                receiver.writer.flush()
            await connection.close(timeout_s=LEAVE_WITHIN_S)

    async def _work(self, connection: Connection) -> None:
        """What is done with the connection; raises where it cannot continue."""
        tasks = [self._receive(connection, slot) for slot in self._receiving]
        await waits.OWN_WORK(all_of(*tasks, *([self._retain()] if self._apart else [])))

    # -- links

    async def _connect(self, journal: WatchingJournal | None) -> Connection:
        return await onceway.connect(
            self._config["url"],
            container=self._wal.subscription,
            journal=journal,
            connect_timeout_s=self._config["connect_timeout_s"],
            on_report=self._report,
            **access_of(self._config).arguments(),
        )

    async def _subscribe(
        self, connection: Connection, slot: int, credit: int, *, only_new: bool | None = None
    ) -> Subscriber:
        wal = self._wal
        partitions = wal.partitions_of(slot)
        try:
            return await connection.subscriber(
                wal.slots[slot],
                name=wal.link_of(slot),
                credit=credit,
                only_new=not self._config["adopt"] if only_new is None else only_new,
                filters={PARTITION: [wal.partition_of(slot), partitions]} if partitions > 1 else None,
            )
        except LinkRefused as error:
            raise self._exists(slot, error) if error.condition == SUBSCRIPTION_EXISTS else error from error

    async def _receive(self, connection: Connection, slot: int) -> None:
        subscriber = await self._subscribe(connection, slot, self._config["credit"])
        writer = self._journal.writer(slot)
        if writer.tail.end or writer.tail.torn:
            say(writer.tail.report(writer.place))
        repeats = self._wal.repeats(slot)
        self._receivers[slot] = Receiver(subscriber, writer, self._backlog, self._config["group_rows"], repeats)
        self._backlog.begin(slot, writer.durable)
        self._tell({"up": slot, "end": writer.durable})
        if len(self._receivers) == len(self._receiving):
            self._up.set()
        await self._receivers[slot].run()

    async def _retain(self) -> None:
        """Never returns: removes what is old, whoever has read it."""
        seconds, octets = self._config["retention"]
        while True:
            await asyncio.sleep(RETAIN_EVERY_S)
            for slot in self._receivers:
                self._trim(slot, self._receivers[slot].writer.durable, Retention(seconds, octets))

    def _trim(self, slot: int, position: int, retention: Retention) -> None:
        writer = self._receivers[slot].writer
        writer.trim(position, retention)
        self._journal.watches[slot].trimmed(writer.start)  # by trimmings before this one

    def _exists(self, slot: int, error: LinkRefused) -> SubscriptionExists:
        topic, name, location = self._wal.slots[slot], self._wal.link_of(slot), self._wal.location
        return SubscriptionExists(
            f"subscription {name!r} of topic {topic!r} has another log than {location}, which is new: {error}.  Either "
            "another query uses this name: give this one another subscription and walLocation.  Or that log is lost, "
            "and with it the messages that it had accepted and no batch has processed: restore it, or take over what "
            "waits for the subscription (adopt=true), or have it forgotten with all that waits for it (onceway admin "
            f"subscription drop {topic} {self._wal.subscription} {name})"
        )

    # -- the driver's lines

    async def hear(self, line: dict[str, Any]) -> None:
        """Carries out one line."""
        for slot, position in _positions(line.get("processed")):
            receiver = self._receivers.get(slot)
            if receiver is None:
                self._backlog.processed(slot, position, position, 0)  # the rest is counted after the attach
            else:
                self._backlog.processed(slot, position, receiver.writer.durable, receiver.writer.pending_bytes)
        for slot, position in _positions(line.get("trim")):
            if slot in self._receivers:
                self._trim(slot, position, Retention(*self._config["retention"]))
        if "drain" in line:
            await self._drain(line["drain"], line["within"])

    async def _drain(self, number: int, within_s: float) -> None:
        await waits.INGEST_UP(self._up).wait()
        try:
            async with waits.INGEST_DRAIN(asyncio.timeout(within_s)):
                await all_of(*(receiver.drain(STEADY_S) for receiver in self._receivers.values()))
        except TimeoutError:
            say(f"more comes than can be drained within {within_s:g} s (drainTimeout): stopping here")
        ends = {slot: await receiver.settled() for slot, receiver in self._receivers.items()}
        self._tell({"drained": number, "ends": ends})

    # -- callbacks

    def _writer_moved(self, writer: SlotWriter) -> None:
        """From the writer's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._durable, writer)

    def _durable(self, writer: SlotWriter) -> None:
        receiver = self._receivers.get(writer.slot)
        if receiver is not None:
            receiver.durable()

    def _report(self, report: Report) -> None:
        if isinstance(report, RouterConnected):
            self._router = report.router
            say(f"connected to router {report.router} at {report.url}")
        elif isinstance(report, RouterLost):
            self._router = None
            say(f"lost {report.url} ({report.reason}); trying the next in {report.retry_in_s:.1f} s")
        elif isinstance(report, LinkAttached):
            way = "resumed" if report.resumed else "new"
            say(f"subscription {report.name} of {report.address} at router {report.router} ({way})")
        elif isinstance(report, SubscriptionGap):
            self._journal.watches[self._journal.slot_named(report.address, report.name)].note_gap(report)
            say(f"messages of {report.address} may be missing: {report.reason}")

    async def tell_state(self) -> None:
        """Never returns.  It runs on the event loop, like all other work: if that hangs, so does this."""
        last: dict[str, Any] = {}
        sent = 0.0
        while True:
            state = self._state()
            now = self._loop.time()
            if (state != last or now - sent >= BEAT_S) and self._tell.idle:
                self._tell({"state": state})
                last, sent = state, now
            await asyncio.sleep(TELL_EVERY_S)

    def _state(self) -> dict[str, Any]:
        if self._router is None:
            state = "connecting"
        elif not self._up.is_set():
            state = "attaching"
        else:
            state = "backlogged" if self._backlog.full else "receiving"
        return {
            "state": state,
            "router": self._router,
            "pendingBytes": sum(receiver.writer.pending_bytes for receiver in self._receivers.values()),
        }


class Lines:
    """Writes lines to stdout."""

    def __init__(self, pipe: asyncio.WriteTransport) -> None:
        self._pipe = pipe

    @property
    def idle(self) -> bool:
        """The driver reads: no line waits."""
        return self._pipe.get_write_buffer_size() == 0

    def __call__(self, line: dict[str, Any]) -> None:
        self._pipe.write(write_json(line).encode() + b"\n")


async def all_of(*work: Coroutine[Any, Any, Any]) -> None:
    """Waits for all, or raises the first error; then the rest is cancelled and waited for."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await waits.OWN_WORK(asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION))
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await waits.OWN_WORK(asyncio.gather(*tasks, return_exceptions=True))


def _positions(value: dict[str, int] | None) -> list[tuple[int, int]]:
    return [(int(slot), position) for slot, position in (value or {}).items()]


def say(text: str) -> None:
    print(f"[onceway ingest] {text}", file=sys.stderr, flush=True)  # noqa: T201
