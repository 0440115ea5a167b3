"""One store process: its pipes, as primary or replica, and the listener for readers.

The primary takes the pipe's messages as its declared subscription, gives each its position and writes it. Where there
are several stores it then publishes the record to NAME.log; every store follows that topic with a declared subscription
of its own, so a publication is accepted when all stores have it. Only then readers see the record, and the message is
accepted. So a push that has returned is at every store, and a primary whose epoch is over cannot make any return: the
others reject what it publishes.

A delivery that comes again after a death is recognised by its tag, which is written with its record: by this store
while it is the primary, and by the store that is promoted, because whatever one store gets from another carries the
tags.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import onceway
from amqp10.errors import DECODE_ERROR, MESSAGE_SIZE_EXCEEDED, DecodeError
from edges.pipe.listener import Listener
from edges.pipe.log import FULL_RETRY_S, UNKNOWN, PipeLog, apply, found, open_log, parted
from edges.pipe.messages import (
    MARK,
    Entry,
    checksum,
    control,
    decode_entry,
    encode_entry,
    has_no_publisher,
    number_of,
    octets_of_entry,
    read_control,
    reset_id,
    with_position,
)
from edges.pipe.reader import Reader
from edges.store import Retention, Store, StoreFull, open_store
from edges.store.journal import StoreJournal, cannot_go_on
from onceway.base.logs import Log, logger
from onceway.base.private import make_directory
from onceway.base.values import format_host_port
from onceway.base.waits import CONNECTION, PIPE_FILL, PIPE_LEADS, PIPE_OTHERS, PIPE_WRITING, STOP
from onceway.client.bodies import with_format
from onceway.client.credentials import Who
from onceway.client.delivery import Batch
from onceway.client.reports import SubscriptionGap
from onceway.errors import DeliveryRejected, OncewayError, UsageError
from onceway.serve.guard import Guard
from onceway.topology.pipes import log_name, log_subscription, primary_subscription
from router.policies import ANONYMOUS

if TYPE_CHECKING:
    from edges.pipe.metrics import StoreMetrics

CREDIT: Final = 10_000  # deliveries that the primary may hold
MOST: Final = 5_000  # of them in a commit
MOST_OCTETS: Final = 8 << 20
FENCED: Final = "onceway:pipe-fenced"
T = TypeVar("T")
Connect = Callable[..., onceway.Connection]
KEEP_ALL: Final = Retention()
DROP_EVERY_S: Final = 1.0  # how often the primary looks for what is more than is to be kept
NO_ENTRY: Final = (0, 0, Entry(b""))
AGAIN_S: Final = 1.0  # between attempts to become what the state says


class PipeError(OncewayError):
    """A command cannot be followed; says why."""


@dataclass(frozen=True, slots=True)
class PipePlan:
    """One pipe as a store is told of it.

    Attributes:
        name: The address.
        stores: Names and URLs of all its stores, the primary first.
        retention: What is older or more is dropped.
        owner: The user as whom its stores attach.
    """

    name: str
    stores: tuple[tuple[str, str], ...]
    retention: Retention = KEEP_ALL
    owner: str = ANONYMOUS


class StoreProcess:
    """`await start()`, then it runs until `await stop()`; `failed` is set when it cannot go on."""

    def __init__(
        self,
        name: str,
        pipes: Sequence[PipePlan],
        *,
        routers: str,
        data: Path | str,
        host: str = "127.0.0.1",
        port: int = 0,
        metrics: tuple[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
        credentials: onceway.Credentials | None = None,
        guard: Guard | None = None,
    ) -> None:
        """data: a directory, or the URL of a PostgreSQL database. metrics: where Prometheus is answered. tls,
        credentials: as of `onceway.connect`. guard: of its listener; None: everyone may read, without TLS."""
        self.name = name
        self.port = port
        self.failed: asyncio.Future[None] | None = None
        self._plans = pipes
        self._who = Who(tls=tls, credentials=credentials)
        self._connect = partial(onceway.connect, routers, **self._who)
        self._data = data
        self._host = host
        self._log = logger("pipe", store=name)
        self._pipes: dict[str, StoredPipe] = {}
        self._logs: dict[str, PipeLog] = {}
        owners = {plan.name: plan.owner for plan in pipes}
        self._guard = guard or Guard(name, self._log)
        self._listener = Listener(name, self._logs, self._command, self._log, self._guard, owners)
        self._tasks: list[asyncio.Task[None]] = []
        self._store: Store | None = None
        self._metrics = metrics
        self._pages: StoreMetrics | None = None

    async def start(self) -> None:
        """StoreError if the data cannot be opened, OSError if a port cannot be bound."""
        self.failed = STOP(asyncio.get_running_loop().create_future())
        store = self._store = open_store(_place(self._data))
        self._say_what_is_there(store.place, await found(store))
        for plan in self._plans:
            log = self._logs[plan.name] = await open_log(store, plan.name, self.name, plan.stores[0][0], self._log)
            self._pipes[plan.name] = StoredPipe(
                self.name, plan, log, self._connect, self._listener, self._log, self._who
            )
        if self._metrics is not None:
            from edges.pipe.metrics import StoreMetrics, Told

            self._pages = StoreMetrics(Told(self.name, store, self._logs, self._pipes, self._guard))
            try:
                await self._pages.start(self._metrics, self._guard.admin_tls)
            except OSError as error:
                error.filename = format_host_port(self._metrics)
                raise
        self.port = await self._listener.start(self._host, self.port)
        for pipe in self._pipes.values():
            for work in pipe.tasks():
                task = asyncio.create_task(work)
                task.add_done_callback(self._done)
                self._tasks.append(task)

    def read_again(self) -> None:
        """Follows changed users, policies and certificates of its listener."""
        self._listener.read_again()
        if self._pages is not None:
            self._pages.show(self._guard.admin_tls)

    def _say_what_is_there(self, place: str, pipes: dict[str, tuple[int, int]]) -> None:
        known = "; ".join(
            f"{name}, {messages} messages, next position {end}" for name, (messages, end) in pipes.items()
        )
        self._log.info(
            "pipe_store_opened",
            "{place}: {pipes}",
            place=place,
            pipes=known or "new, nothing was in it",
            count=len(pipes),
        )

    async def stop(self) -> None:
        if self._pages is not None:
            await self._pages.stop()
        await self._listener.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for log in self._logs.values():
            await log.close()
        if self._store is not None:
            await self._store.close()

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self.failed is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _command(self, name: str, text: str) -> None:
        await self._pipes[name].command(text)


def _place(data: Path | str) -> str:
    """Of a database, its URL; of a directory, which is made, the file in it."""
    if "://" in str(data):
        if not str(data).startswith(("postgresql://", "postgres://")):
            raise UsageError(f"{data}: a store keeps its data in a directory or in postgresql://...")
        return str(data)
    directory = Path(data)
    make_directory(directory)
    return str(directory / "store")


class StoredPipe:
    """One pipe at this store."""

    def __init__(
        self,
        store: str,
        plan: PipePlan,
        log: PipeLog,
        connect: Connect,
        listener: Listener,
        say: Log,
        who: Who | None = None,
    ) -> None:
        self.pushes: int = 0  # that this process has given a position
        self._publishing_since: float | None = None
        self._store = store
        self._plan = plan
        self._log = log
        self._connect_to = connect
        self._who = who or Who()
        self._listener = listener
        self._say = say
        self._several = len(plan.stores) > 1
        self._turned = PIPE_LEADS(asyncio.Event())  # it was promoted
        self._writing = PIPE_WRITING(asyncio.Lock())
        self._waiting: asyncio.Timeout | None = None  # while it waits for another store
        if self._several and log.state.primary == store:  # it may have more than the others
            log.visible = min(log.visible, log.state.replicated)
        log.trim_soon()

    @property
    def is_primary(self) -> bool:
        return self._log.state.primary == self._store and self._log.state.fence == self._log.state.epoch

    def waited_s(self, now: float) -> float:
        """How long the primary has waited for the other stores."""
        since = self._publishing_since
        return 0.0 if since is None or not self.is_primary else now - since

    def tasks(self) -> list[Any]:
        return [self._lead(), self._follow()] if self._several else [self._lead()]

    async def _connect(self, container: str) -> onceway.Connection:
        """Its journal is in the pipe's store."""
        journal = await StoreJournal.of(self._log.store, f"pipe-journal/{container}")
        return self._connect_to(container=container, journal=journal, connect_timeout_s=None, close_timeout_s=2.0)

    def _gap(self, gap: SubscriptionGap) -> None:
        self._say.error(
            "pipe_gap", "{pipe}: messages may be missing: {reason}", pipe=self._plan.name, reason=gap.reason
        )

    # --- the primary

    async def _lead(self) -> None:
        """The primary's half, as long as this store is the primary."""
        while True:
            if not self.is_primary:
                self._turned.clear()
                await self._turned.wait()
                continue
            epoch = self._log.state.epoch
            try:
                await self._lead_once()
            except DeliveryRejected:
                self._say.warning(
                    "pipe_fenced", "{pipe}: the other stores refuse what this one says: another one was promoted, or "
                    "this one has lost records; promote one that has them", pipe=self._plan.name,
                )  # fmt: skip
                async with self._writing:
                    await self._log.change(fence=max(self._log.state.fence, epoch + 1))
            except OncewayError as error:
                if cannot_go_on(error):
                    raise
                self._say.warning("pipe_again", "{pipe}: {reason}", pipe=self._plan.name, reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def _lead_once(self) -> None:
        container, link = primary_subscription(self._plan.name)
        async with CONNECTION(AsyncExitStack()) as stack:
            publisher: onceway.Publisher | None = None
            if self._several:  # first: a store that is fenced must not take messages
                talker = await stack.enter_async_context(await self._connect(f"{container}:{self._store}:log"))
                name = f"{self._store}-{number_of(self._log.state.epoch)}"
                publisher = await talker.publisher(log_name(self._plan.name), name=name, on_undecided=lambda _: None)
                await self._publish_rest(publisher)
            connection = await stack.enter_async_context(await self._connect(container))
            subscriber = await connection.subscriber(self._plan.name, name=link, credit=CREDIT, on_gap=self._gap)
            self._say.info(
                "pipe_primary", "{pipe}: primary, epoch {epoch}", pipe=self._plan.name,
                epoch=number_of(self._log.state.epoch),
            )  # fmt: skip
            batches = subscriber.batches(max_messages=MOST, max_bytes=MOST_OCTETS)
            await self._take_all(batches, publisher)

    async def _take_all(self, batches: AsyncIterator[Batch], publisher: onceway.Publisher | None) -> None:
        """What is more than is to be kept is dropped between two batches, or while none comes."""
        drops = self._plan.retention != KEEP_ALL
        coming = asyncio.ensure_future(anext(batches, None))
        drop_at = 0.0
        try:
            while self.is_primary:
                if drops and (now := time.monotonic()) >= drop_at:
                    drop_at = now + DROP_EVERY_S
                    await self._drop(publisher)
                await asyncio.wait([coming], timeout=max(0.0, drop_at - time.monotonic()) if drops else None)
                if coming.done():
                    if (batch := coming.result()) is None:
                        return
                    await self._take(batch, publisher)
                    coming = asyncio.ensure_future(anext(batches, None))  # with all that came meanwhile
        finally:
            coming.cancel()

    async def _drop(self, publisher: onceway.Publisher | None) -> None:
        """Drops what is more than is to be kept: with a record, so that every store drops the same. A full disk has
        room for that, or the next look is another attempt."""
        async with self._writing:
            before = await self._log.surplus(self._plan.retention)
            if not self.is_primary or before == self._log.state.start:
                return
            first = self._log.next
            entries = [Entry(control(dropped=before))]
            try:
                await self._log.append(entries, waits=False)
            except StoreFull:
                return
        await self._replicate(publisher, first, entries)

    async def _publish_rest(self, publisher: onceway.Publisher) -> None:
        """Says that it is there, and publishes again what not all stores may have. Raises DeliveryRejected if a store
        knows a later epoch."""
        log = self._log
        epoch = log.state.epoch
        here = Entry(control(epochs=log.state.epochs, next=log.next))
        log.state.replicated = max(log.state.replicated, await log.first())  # what is gone has been shown
        log.show(log.state.replicated)  # a store that is new reads from here on, before it takes anything
        await self._until_all_have(publisher, [encode_entry(epoch, log.state.replicated, here)])
        while log.state.replicated < log.next:
            chunk = await log.chunk(log.state.replicated)
            records = chunk.payloads[log.state.replicated - chunk.first :]
            await self._publish(publisher, log.state.replicated, log.entries(log.state.replicated, records))

    async def _publish(self, publisher: onceway.Publisher, first: int, entries: list[Entry]) -> None:
        """Returns when all stores have them."""
        epoch = self._log.state.epoch
        await self._until_all_have(
            publisher, [encode_entry(epoch, position, entry) for position, entry in enumerate(entries, first)]
        )
        self._log.state.replicated = first + len(entries)  # durable with the next commit: until then it is less
        self._log.show(first + len(entries))

    async def _until_all_have(self, publisher: onceway.Publisher, payloads: list[bytes]) -> None:
        if self._publishing_since is None:
            self._publishing_since = time.monotonic()
        await (await publisher.put_payloads(payloads))
        self._publishing_since = None

    async def _take(self, batch: Batch, publisher: onceway.Publisher | None) -> None:
        """Writes a batch, has it replicated, and accepts it. On a full disk it waits for room, which dropping makes."""
        while True:
            async with self._writing:
                if not self.is_primary:
                    return
                first = self._log.next
                entries, refused = self._entries(batch, None if publisher is None else publisher.max_message_bytes)
                try:
                    if entries:
                        await self._log.append(entries, waits=False)
                    break
                except StoreFull:
                    pass
            await self._drop(publisher)
            await asyncio.sleep(FULL_RETRY_S)
        self.pushes += len(entries)
        for index, error in refused:
            batch[index].reject(error.condition, error.description)
        await self._replicate(publisher, first, entries)
        await batch.accept()
        self._log.accepted(batch.tags)

    async def _replicate(self, publisher: onceway.Publisher | None, first: int, entries: list[Entry]) -> None:
        if publisher is not None:
            await self._publish(publisher, first, entries)
        else:
            self._log.show(self._log.next)

    def _entries(self, batch: Batch, most: int | None) -> tuple[list[Entry], list[tuple[int, DecodeError]]]:
        """What is to be written of it, and what is to be rejected. most: octets of an entry that the network takes."""
        log, unaccepted = self._log, self._log.unaccepted
        state = replace(log.state)
        formats = batch.other_formats
        position = log.next
        entries: list[Entry] = []
        refused = []
        for index, (tag, payload) in enumerate(zip(batch.tags, batch.payloads, strict=True)):
            check = checksum(payload)
            if tag in unaccepted and log.knows(tag, check):
                continue
            message_format = formats.get(index, 0)
            marked = not message_format and MARK in payload  # few are
            identity = reset_id(payload) if marked else None
            try:
                if marked and has_no_publisher(payload):
                    raise DecodeError(DECODE_ERROR, "a message that is like a record of the pipe", 0)
                if message_format:
                    record = with_format(payload, message_format)
                elif identity is None:
                    record = with_position(payload, position)
                else:
                    removed = position - state.start - len(state.controls)
                    record = control(reset=identity, removed=removed, epoch=state.epoch)
                    apply(state, record, position)
                entry = Entry(record, tag, check)
                if most is not None and (octets := octets_of_entry(entry)) > most:
                    text = f"with what stores add it has {octets} bytes, and they tell each other {most} at most"
                    raise DecodeError(MESSAGE_SIZE_EXCEEDED, text, 0)
            except DecodeError as error:
                refused.append((index, error))
                continue
            entries.append(entry)
            position += 1
        return entries, refused

    # --- every store of several

    async def _follow(self) -> None:
        container, link = log_subscription(self._plan.name, self._store)
        while True:
            try:
                async with CONNECTION(await self._connect(container)) as connection:
                    subscriber = await connection.subscriber(
                        log_name(self._plan.name), name=link, credit=CREDIT, on_gap=self._gap
                    )
                    async for batch in subscriber.batches(max_messages=MOST, max_bytes=MOST_OCTETS):
                        await self.read_log(batch)
            except OncewayError as error:
                if cannot_go_on(error):
                    raise
                self._say.warning("pipe_log", "{pipe}: {reason}", pipe=self._plan.name, reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def read_log(self, batch: Batch) -> None:
        """Writes what the primary has published, and accepts it."""
        log = self._log
        received: list[tuple[int, int, Entry]] = []
        for index, payload in enumerate(batch.payloads):
            try:
                received.append(decode_entry(payload))
            except DecodeError as error:  # of somebody who is no store, and may send there
                batch[index].reject(error.condition, error.description)
                received.append(NO_ENTRY)
        async with self._writing:
            latest = max((epoch for epoch, _, _ in received), default=0)
            if latest > log.state.fence:  # what older primaries said may wait for stores that are gone
                await log.change(fence=latest)
            new: list[Entry] = []
            for index, (epoch, position, entry) in enumerate(received):
                if entry is NO_ENTRY[2]:
                    continue
                if epoch < log.state.fence:
                    batch[index].reject(FENCED, f"epoch {number_of(epoch)} is over")
                    continue
                if epoch == log.state.epoch and self.is_primary:
                    continue  # its own
                what = read_control(entry.record) or {}
                here = "epochs" in what  # what a primary says first
                if epoch > log.state.epoch:
                    await log.append(new)
                    new = []
                    wanted = what["next"] if here else position
                    if log.next and (not here or parted(log.state.epochs, what["epochs"], log.next)):
                        await self._begin_anew(wanted)
                    wanted = wanted if log.state.wanted == UNKNOWN else log.state.wanted
                    await log.change(epoch=epoch, fence=epoch, primary="", wanted=wanted)
                elif here and log.next > what["next"]:
                    batch[index].reject(FENCED, f"{self._store} has later records: the primary has lost some")
                    continue
                expected = log.next + len(new)
                if position > expected:
                    await log.append(new)
                    new = []
                    await self._fill(position, [url for name, url in self._plan.stores if name != self._store])
                    expected = log.next
                if not here and position == expected:
                    new.append(entry)
            if new:
                await log.append(new)
            if not self.is_primary and log.state.epoch == log.state.fence:
                # Else what it has written as the primary, and not got to all stores, would be seen.
                log.show(log.next)
        await batch.accept()

    async def _begin_anew(self, wanted: int) -> None:
        """Its log has parted from the pipe's: what this store has beyond was never accepted."""
        self._say.warning("pipe_anew", "{pipe}: records were not accepted: reads all again", pipe=self._plan.name)
        await self._log.begin_anew(0, [], wanted)
        self._listener.detach_readers(self._log)

    async def _fill(self, before: int, stores: list[str]) -> None:
        """Reads what is missing before this position from one of these stores."""
        log = self._log
        reader = Reader(
            self._plan.name, stores=stores, start=log.next, entries=before, timeout_s=PIPE_FILL.s, **self._who
        )
        reader.epoch = log.state.epoch  # a store that knows less may have parted, too
        async with PIPE_FILL(AsyncExitStack()) as stack:
            await self._unless_fenced(stack.enter_async_context(reader))
            same = not parted(log.state.epochs, reader.epochs, log.next)
            if same:
                first = reader.next or 0
                if first > log.next:  # a reset has removed what is between
                    await log.begin_anew(first, [each for each in reader.epochs if each[1] < first], log.state.wanted)
                batches = reader.batches(until=before)
                while batch := await self._unless_fenced(anext(batches, None)):
                    await log.append([decode_entry(each.payload)[2] for each in batch])
                log.show(log.next)
        if not same:
            await self._begin_anew(before)
            await self._fill(before, stores)

    async def _unless_fenced(self, work: Awaitable[T]) -> T:
        """Waits for another store until a promotion makes that needless."""
        try:
            async with PIPE_OTHERS(asyncio.timeout(None)) as self._waiting:
                return await work
        except TimeoutError:
            raise PipeError("a store was promoted meanwhile") from None
        finally:
            self._waiting = None

    # --- commands

    async def command(self, text: str) -> None:
        """Follows a command of `onceway pipe promote`."""
        match text.split():
            case ["may-lead"]:
                self.may_lead()
            case ["fence", epoch]:
                await self.fence(int(epoch))
            case ["promote", epoch, *source]:
                await self.promote(int(epoch), source)
            case _:
                raise PipeError(f"no command {text!r:.60}")

    async def fence(self, epoch: int) -> None:
        """From now on nothing of an earlier epoch is taken."""
        if epoch > self._log.state.fence:
            if self._waiting is not None and not self._waiting.expired():
                self._waiting.reschedule(0)
            async with self._writing:
                await self._log.change(fence=epoch)

    def may_lead(self) -> None:
        """PipeError if a promotion would be refused."""
        if not self._several:
            raise PipeError(f"{self._plan.name} has one store; start others with a file that names them in stores")
        if self.is_primary:
            raise PipeError(f"{self._store} is the primary of {self._plan.name} already")

    async def promote(self, epoch: int, source: list[str]) -> None:
        """Becomes the primary, with what `source` has, too: empty, or the name of a store and the position before which
        it has all."""
        log = self._log
        self.may_lead()
        if epoch < log.state.fence:
            raise PipeError(f"{self._store} knows epoch {number_of(log.state.fence)}")
        async with self._writing:
            await log.change(fence=epoch)
            if source:
                await self._fill(int(source[1]), [url for name, url in self._plan.stores if name == source[0]])
                await log.change(wanted=0)
            if log.lacks:
                raise PipeError(f"{self._store} has not all of the pipe")
            replicated = log.state.replicated if log.state.primary == self._store else log.next
            record = control(promoted=self._store, epoch=epoch)
            await log.append([Entry(record)], epoch=epoch, primary=self._store, replicated=replicated)
            log.show(replicated)
        self._say.info("pipe_promoted", "{pipe}: promoted, epoch {epoch}", pipe=self._plan.name, epoch=number_of(epoch))
        self._turned.set()
