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
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import onceway
from amqp10.errors import DecodeError
from edges.pipe.listener import Listener
from edges.pipe.log import PipeLog, State, apply, open_log
from edges.pipe.messages import (
    Entry,
    checksum,
    control,
    decode_entry,
    encode_entry,
    reset_id,
    with_position,
)
from edges.pipe.reader import Reader
from edges.store import Store, StoreError, StoreFull, open_store
from edges.store.journal import StoreJournal
from onceway.client.delivery import Batch
from onceway.client.reports import SubscriptionGap
from onceway.errors import DeliveryRejected, JournalError, JournalFull, OncewayError
from onceway.logs import Log, logger
from onceway.topology.pipes import log_name, log_subscription, primary_subscription

CREDIT: Final = 10_000  # deliveries that the primary may hold
MOST: Final = 5_000  # of them in a commit
MOST_OCTETS: Final = 8 << 20
AGAIN_S: Final = 1.0  # between attempts to become what the state says


class PipeError(OncewayError):
    """A command cannot be followed; says why."""


@dataclass(frozen=True, slots=True)
class PipePlan:
    """One pipe as a store is told of it.

    Attributes:
        name: The address.
        stores: Names and URLs of all its stores, the primary first.
    """

    name: str
    stores: tuple[tuple[str, str], ...]


class StoreProcess:
    """`await start()`, then it runs until `await stop()`; `failed` is set when it cannot go on."""

    def __init__(
        self, name: str, pipes: Sequence[PipePlan], *, routers: str, data: Path, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.name = name
        self.port = port
        self.failed: asyncio.Future[None] | None = None
        self._plans = pipes
        self._routers = routers
        self._data = data
        self._host = host
        self._log = logger("pipe", store=name)
        self._pipes: dict[str, StoredPipe] = {}
        self._logs: dict[str, PipeLog] = {}
        self._listener = Listener(name, self._logs, self._command, self._log)
        self._tasks: list[asyncio.Task[None]] = []
        self._store: Store | None = None

    async def start(self) -> None:
        """StoreError if the data cannot be opened, OSError if the port cannot be bound."""
        self.failed = asyncio.get_running_loop().create_future()
        self._data.mkdir(parents=True, exist_ok=True)
        store = self._store = open_store(str(self._data / "store"))
        for plan in self._plans:
            log = self._logs[plan.name] = await open_log(store, plan.name, plan.stores[0][0], self._log)
            self._pipes[plan.name] = StoredPipe(self.name, plan, log, self._routers, self._listener, self._log)
        self.port = await self._listener.start(self._host, self.port)
        for pipe in self._pipes.values():
            for work in pipe.tasks():
                task = asyncio.create_task(work)
                task.add_done_callback(self._done)
                self._tasks.append(task)

    async def stop(self) -> None:
        await self._listener.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._store is not None:
            await self._store.close()

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self.failed is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _command(self, name: str, text: str) -> None:
        match text.split():
            case ["fence", epoch]:
                await self._pipes[name].fence(int(epoch))
            case ["promote", epoch, end]:
                await self._pipes[name].promote(int(epoch), int(end))
            case _:
                raise PipeError(f"no command {text!r:.60}")


class StoredPipe:
    """One pipe at this store."""

    def __init__(self, store: str, plan: PipePlan, log: PipeLog, routers: str, listener: Listener, say: Log) -> None:
        self._store = store
        self._plan = plan
        self._log = log
        self._routers = routers
        self._listener = listener
        self._say = say
        self._several = len(plan.stores) > 1
        self._turned = asyncio.Event()  # it was promoted
        self._writing = asyncio.Lock()
        if self._several and log.state.primary == store:  # it may have more than the others
            log.visible = min(log.visible, log.state.replicated)

    @property
    def is_primary(self) -> bool:
        return self._log.state.primary == self._store and self._log.state.fence == self._log.state.epoch

    def tasks(self) -> list[Any]:
        return [self._lead(), self._follow()] if self._several else [self._lead()]

    async def _connect(self, container: str) -> onceway.Connection:
        """Its journal is in the pipe's store."""
        journal = await StoreJournal.of(self._log.store, f"pipe-journal/{container}")
        return onceway.connect(
            self._routers, container=container, journal=journal, connect_timeout_s=None, close_timeout_s=2.0
        )

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
                self._say.warning("pipe_fenced", "{pipe}: another store was promoted", pipe=self._plan.name)
                async with self._writing:
                    await self._log.change(fence=max(self._log.state.fence, epoch + 1))
            except OncewayError as error:
                if isinstance(error, StoreError | JournalError) and not isinstance(error, StoreFull | JournalFull):
                    raise
                self._say.warning("pipe_again", "{pipe}: {reason}", pipe=self._plan.name, reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def _lead_once(self) -> None:
        container, link = primary_subscription(self._plan.name)
        async with AsyncExitStack() as stack:
            publisher: onceway.Publisher | None = None
            if self._several:  # first: a store that is fenced must not take messages
                talker = await stack.enter_async_context(await self._connect(f"{container}:{self._store}:log"))
                name = f"{self._store}-{self._log.state.epoch}"
                publisher = await talker.publisher(log_name(self._plan.name), name=name, on_undecided=lambda _: None)
                await self._publish_rest(publisher)
            connection = await stack.enter_async_context(await self._connect(container))
            subscriber = await connection.subscriber(self._plan.name, name=link, credit=CREDIT, on_gap=self._gap)
            self._say.info(
                "pipe_primary", "{pipe}: primary, epoch {epoch}", pipe=self._plan.name, epoch=self._log.state.epoch
            )
            async for batch in subscriber.batches(max_messages=MOST, max_bytes=MOST_OCTETS):
                await self._take(batch, publisher)
                if not self.is_primary:
                    return

    async def _publish_rest(self, publisher: onceway.Publisher) -> None:
        """Says that it is there, and publishes again what not all stores may have. Raises DeliveryRejected if a store
        knows a later epoch."""
        log = self._log
        epoch = log.state.epoch
        await (await publisher.put_payloads([encode_entry(epoch, log.state.replicated, Entry(b""))]))
        while log.state.replicated < log.next:
            chunk = await log.chunk(log.state.replicated)
            records = chunk.payloads[log.state.replicated - chunk.first :]
            await self._publish(publisher, log.state.replicated, log.entries(log.state.replicated, records))

    async def _publish(self, publisher: onceway.Publisher, first: int, entries: list[Entry]) -> None:
        """Returns when all stores have them."""
        epoch = self._log.state.epoch
        publications = await publisher.put_payloads(
            encode_entry(epoch, position, entry) for position, entry in enumerate(entries, first)
        )
        await publications
        self._log.state.replicated = first + len(entries)  # durable with the next commit: until then it is less
        self._log.show(first + len(entries))

    async def _take(self, batch: Batch, publisher: onceway.Publisher | None) -> None:
        """Writes a batch, has it replicated, and accepts it."""
        async with self._writing:
            if not self.is_primary:
                return
            first = self._log.next
            entries = self._entries(batch)
            if entries:
                await self._log.append(entries)
        if publisher is not None:
            await self._publish(publisher, first, entries)
        else:
            self._log.show(self._log.next)
        await batch.accept()
        self._log.accepted(batch.tags)

    def _entries(self, batch: Batch) -> list[Entry]:
        log = self._log
        state = State(**asdict(log.state))
        position = log.next
        entries: list[Entry] = []
        for index, (tag, payload) in enumerate(zip(batch.tags, batch.payloads, strict=True)):
            check = checksum(payload)
            if log.knows(tag, check):
                continue
            identity = reset_id(payload)
            try:
                if identity is None:
                    record = with_position(payload, position)
                else:
                    record = control(reset=identity, removed=position - state.start - state.controls, epoch=state.epoch)
                    apply(state, record, position)
            except DecodeError as error:
                batch[index].reject(error.condition, error.description)
                continue
            entries.append(Entry(record, tag, check))
            position += 1
        return entries

    # --- every store of several

    async def _follow(self) -> None:
        container, link = log_subscription(self._plan.name, self._store)
        while True:
            try:
                async with await self._connect(container) as connection:
                    subscriber = await connection.subscriber(
                        log_name(self._plan.name), name=link, credit=CREDIT, on_gap=self._gap
                    )
                    async for batch in subscriber.batches(max_messages=MOST, max_bytes=MOST_OCTETS):
                        await self.read_log(batch)
            except OncewayError as error:
                if isinstance(error, StoreError | JournalError) and not isinstance(error, StoreFull | JournalFull):
                    raise
                self._say.warning("pipe_log", "{pipe}: {reason}", pipe=self._plan.name, reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def read_log(self, batch: Batch) -> None:
        """Writes what the primary has published, and accepts it."""
        async with self._writing:
            new: list[Entry] = []
            for index, payload in enumerate(batch.payloads):
                epoch, position, entry = decode_entry(payload)
                log = self._log
                if epoch < log.state.fence:
                    batch[index].reject("onceway:pipe-fenced", f"epoch {epoch} is over")
                    continue
                if epoch == log.state.epoch and self.is_primary:
                    continue  # its own
                if epoch > log.state.epoch:
                    await self._log.append(new, fence=epoch)
                    new = []
                    await self._new_epoch(epoch, position)
                expected = log.next + len(new)
                if position > expected:
                    await self._log.append(new)
                    new = []
                    await self._fill(position)
                    expected = log.next
                if entry.record and position == expected:
                    new.append(entry)
            if new:
                await self._log.append(new)
            if not self.is_primary and self._log.state.epoch == self._log.state.fence:
                # Else what it has written as the primary, and not got to all stores, would be seen.
                self._log.show(self._log.next)
        await batch.accept()

    async def _new_epoch(self, epoch: int, position: int) -> None:
        """A store was promoted, and its content is what counts: what this one has beyond it was never accepted."""
        log = self._log
        if log.next > position:
            self._say.warning(
                "pipe_anew", "{pipe}: {count} records that were not accepted are dropped", pipe=self._plan.name,
                count=log.next - position,
            )  # fmt: skip
            await log.begin_anew(0, epoch=epoch, fence=epoch, primary="", replicated=0)
            self._listener.detach_readers(log)
        else:
            await log.change(epoch=epoch, fence=epoch, primary="")

    async def _fill(self, before: int) -> None:
        """Reads what is missing before this position from the other stores."""
        log = self._log
        others = [url for name, url in self._plan.stores if name != self._store]
        async with Reader(self._plan.name, stores=others, start=log.next, entries=True) as reader:
            if reader.next != log.next:
                await log.begin_anew(reader.next or 0)
            async for batch in reader.batches(until=before):
                await log.append([decode_entry(each.payload)[2] for each in batch])
        log.show(log.next)

    # --- commands

    async def fence(self, epoch: int) -> None:
        """From now on nothing of an earlier epoch is taken."""
        if epoch > self._log.state.fence:
            async with self._writing:
                await self._log.change(fence=epoch)

    async def promote(self, epoch: int, end: int) -> None:
        """Becomes the primary, with what the others have before position `end`, too."""
        if not self._several:
            raise PipeError(f"{self._plan.name} has one store")
        if self.is_primary:
            raise PipeError(f"{self._store} is the primary of {self._plan.name} already")
        if epoch < self._log.state.fence:
            raise PipeError(f"{self._store} knows epoch {self._log.state.fence}")
        async with self._writing:
            log = self._log
            await log.change(fence=epoch)
            if log.next < end:
                await self._fill(end)
            record = control(promoted=self._store, epoch=epoch)
            replicated = log.state.replicated if log.state.primary == self._store else log.next
            await log.append([Entry(record)], replicated=replicated)
        self._say.info("pipe_promoted", "{pipe}: promoted, epoch {epoch}", pipe=self._plan.name, epoch=epoch)
        self._turned.set()
