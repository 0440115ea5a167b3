"""A member of a shared queue on the network: two topics, a clock and, over the protocol like Paxos, a file.

It decides nothing: `paxos`, `lamport` and `group` do. Reliability, order and failover are the network's.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import onceway
from amqp10.sections import AmqpValue, Message
from edges.queue.codec import Kept, plain, read
from edges.queue.group import Event, Group
from edges.queue.lamport import Lamport
from edges.queue.messages import Dequeued, Element, Keep, Output, Record, Send
from edges.queue.messages import Message as Said
from edges.queue.paxos import Paxos
from edges.reading import read_or_reject, room_in
from onceway.base import waits
from onceway.client.delivery import Delivery
from onceway.client.publications import Publication
from onceway.client.publisher import Publisher
from onceway.client.subscriber import Subscriber
from onceway.errors import OncewayError, SubscriptionBroken, UsageError

TICK_S = 0.25
BESIDE = 16 << 10  # octets of a message of the network beside an element: names, numbers, the others of an answer
SUBSCRIPTION_TIMEOUT_S = 30.0  # for so long a member that died holds what it has not accepted


class Member:
    """One member of the queue: `async with Member(...) as member`.

    Args:
        urls: URLs of routers.
        queue: The queue's name. Its addresses are this name with `/elements` and `/commands` behind it.
        name: This member's name. Two processes must never have it at once.
        members: The names of all, the same at each of them.
        directory: Where the protocol like Paxos keeps what must survive the process. None: over Lamport's mutual
            exclusion; then a member that ends must not come back under its name.
        on_event: Called with what happens to the group.
        connect_timeout_s: How long the first router may take to answer, in seconds.
        tls: As of `onceway.connect`.
        credentials: The same.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        queue: str,
        name: str,
        members: Iterable[str],
        *,
        directory: Path | None,
        on_event: Callable[[Event], None] | None = None,
        connect_timeout_s: float = 30.0,
        tls: ssl.SSLContext | None = None,
        credentials: onceway.Credentials | None = None,
    ) -> None:
        self.name = name
        self._addresses = (f"{queue}/elements", f"{queue}/commands")
        self._kept = None if directory is None else Kept(directory / f"{queue.replace('/', '_')}.{name}.queue")
        life = time.time_ns() if self._kept is None else self._kept.life
        self._queue: Lamport | Paxos = (
            Lamport(name, members, life) if self._kept is None else Paxos(name, members, life, self._kept.records())
        )
        self._group = Group(name, life, time.monotonic())
        self._on_event = on_event or (lambda event: None)
        self._connection = onceway.connect(
            urls,
            container=f"{queue}.{name}",
            connect_timeout_s=connect_timeout_s,
            close_timeout_s=waits.EDGE_LEAVE.s,
            tls=tls,
            credentials=credentials,
        )
        self._unsent: tuple[asyncio.Queue[tuple[Said, asyncio.Future[Publication] | None]], ...] = (
            waits.IDLE(asyncio.Queue()),
            waits.IDLE(asyncio.Queue()),
        )
        self._to_do: asyncio.Queue[Output | Delivery] = waits.IDLE(asyncio.Queue())
        self._disk = ThreadPoolExecutor(1)
        self._publications: dict[Element, asyncio.Future[Publication]] = {}
        self._answers: dict[int, asyncio.Future[bytes | None]] = {}
        self._view_changed = waits.MEMBERS(asyncio.Event())
        self._subscribers: list[Subscriber] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._most: int | None = None  # octets of an element, which all that is said of it has room for
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        await self._connection
        for address in self._addresses:
            self._subscribers.append(
                await self._connection.subscriber(
                    address, subscription_timeout_s=SUBSCRIPTION_TIMEOUT_S, on_gap=self._on_gap
                )
            )
        sent = [await self._connection.publisher(address, on_undecided=lambda _: None) for address in self._addresses]
        told = [publisher.max_message_bytes for publisher in sent if publisher.max_message_bytes is not None]
        self._most = room_in(min(told, default=None), BESIDE)
        if isinstance(self._queue, Paxos):
            self._queue.room = self._most
        work = [self._receive(subscriber) for subscriber in self._subscribers] + [self._tick(), self._carry_out()]
        work += [self._send(publisher, unsent) for publisher, unsent in zip(sent, self._unsent, strict=True)]
        for coroutine in work:
            task = asyncio.create_task(coroutine)
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        self._act()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._failure is None:
            self._group.leave()
            self._act()
            with suppress(TimeoutError):  # then the others notice that it is silent
                async with asyncio.timeout(waits.EDGE_LEAVE.s):
                    await self._to_do.join()
                    await self._unsent[1].join()
        await asyncio.gather(*(subscriber.close() for subscriber in self._subscribers), return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close(timeout_s=waits.EDGE_LEAVE.s)
        waits.DISK(self._disk).shutdown()
        if self._kept is not None:
            self._kept.close()

    async def enqueue(self, body: bytes) -> None:
        """Puts an element into the queue; returns when every member that is there holds it.

        Raises:
            DeliveryUndecided: The network cannot tell whether all hold it; it stays in the queue.
            SubscriptionBroken: This member cannot go on.
            UsageError: It is larger than what the routers take has room for; it is not in the queue.
        """
        self._check()
        if self._most is not None and len(body) > self._most:
            raise UsageError(f"an element of {len(body)} bytes: what the routers take has room for {self._most}")
        element = self._queue.enqueue(body)
        published: asyncio.Future[Publication] = waits.QUEUE(asyncio.get_running_loop().create_future())
        self._publications[element] = published
        self._act()
        await (await published)

    async def dequeue(self) -> bytes | None:
        """Takes an element; None if the queue is seen empty. A call that is cancelled may have taken one.

        Raises:
            SubscriptionBroken: This member cannot go on.
        """
        return await self._dequeue(wait=False)

    async def sdequeue(self) -> bytes:
        """Takes an element, and waits until there is one. A call that is cancelled takes one nevertheless.

        Raises:
            SubscriptionBroken: This member cannot go on.
        """
        body = await self._dequeue(wait=True)
        assert body is not None
        return body

    @property
    def length(self) -> int:
        """How many elements this member holds."""
        return len(self._queue.elements)

    @property
    def is_empty(self) -> bool:
        """Whether this member holds none."""
        return not self.length

    @property
    def view(self) -> tuple[str, ...]:
        """The members that are there, as far as this one knows."""
        return self._group.view

    @property
    def leader(self) -> str | None:
        """The first of the view."""
        return self._group.leader

    @property
    def epoch(self) -> int:
        """How many times the view has changed."""
        return self._group.epoch

    async def wait_for_view_size(self, size: int, timeout_s: float | None = None) -> None:
        """Returns when this many members are there.

        Raises:
            TimeoutError: They were not there in time.
        """
        async with waits.MEMBERS(asyncio.timeout(timeout_s)):
            while len(self.view) < size:
                self._check()
                self._view_changed.clear()
                await self._view_changed.wait()

    async def until_failed(self) -> None:
        """Never returns.

        Raises:
            SubscriptionBroken: This member cannot go on.
        """
        while True:
            self._check()
            self._view_changed.clear()
            await self._view_changed.wait()

    def declare_dead(self, member: str) -> None:
        """Says that this member has stopped for good (rule 2.6); over the protocol like Paxos it means nothing."""
        if isinstance(self._queue, Lamport):
            self._queue.declare_dead(member)
            self._act()

    async def _dequeue(self, *, wait: bool) -> bytes | None:
        self._check()
        answer: asyncio.Future[bytes | None] = waits.QUEUE(asyncio.get_running_loop().create_future())
        self._answers[self._queue.dequeue(wait=wait)] = answer
        self._act()
        return await answer

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _act(self) -> None:
        """Note what the queue and the group ask for; `_carry_out` does it, in this order."""
        if isinstance(self._queue, Paxos):
            if self._group.leader == self.name:
                self._queue.lead(time.monotonic())
            else:
                self._queue.follow()
        for output in self._queue.outputs():
            self._to_do.put_nowait(output)
        for message in self._group.messages():
            self._to_do.put_nowait(Send(message))
        for event in self._group.events():
            self._view_changed.set()
            self._on_event(event)

    async def _carry_out(self) -> None:
        """Keep first, then say, answer and accept. What comes up while the disk is busy is kept together after that."""
        while True:
            outputs = [await self._to_do.get()]
            while not self._to_do.empty():
                outputs.append(self._to_do.get_nowait())
            records: list[Record] = [output.record for output in outputs if isinstance(output, Keep)]
            if records and self._kept is not None:
                await waits.DISK(asyncio.get_running_loop()).run_in_executor(self._disk, self._kept.keep, records)
            for output in outputs:
                if isinstance(output, Send):
                    self._say(output.message)
                elif isinstance(output, Dequeued):
                    answer = self._answers.pop(output.ticket)
                    if not answer.done():
                        answer.set_result(None if output.element is None else output.element.body)
                elif isinstance(output, Delivery):
                    output.accept()
                self._to_do.task_done()

    def _say(self, message: Said) -> None:
        if isinstance(message, Element):
            self._unsent[0].put_nowait((message, self._publications.pop(message, None)))
        else:
            self._unsent[1].put_nowait((message, None))

    async def _send(
        self, publisher: Publisher, unsent: asyncio.Queue[tuple[Said, asyncio.Future[Publication] | None]]
    ) -> None:
        while True:
            message, published = await waits.IDLE(unsent.get())
            publication = await publisher.put(Message(AmqpValue([self.name, plain(message)])))
            if published is not None and not published.done():
                published.set_result(publication)
            unsent.task_done()

    async def _receive(self, subscriber: Subscriber) -> None:
        async for delivery in subscriber:
            said = read_or_reject(delivery, self._read)
            if said is None:
                continue
            sender, message = said
            if sender != self.name:
                self._group.receive(sender, message, time.monotonic())
                self._queue.receive(sender, message, time.monotonic())
                self._act()
                if self._group.outdated is not None:
                    self._fail(SubscriptionBroken(self._why_not_heard()))
            self._to_do.put_nowait(delivery)

    def _read(self, body: object) -> tuple[str, Said]:
        sender, message = read(body)
        if isinstance(message, Element) and self._most is not None and len(message.body) > self._most:
            raise ValueError(f"an element of more than {self._most} bytes")
        return sender, message

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._group.tick(time.monotonic())
            self._act()
            self._queue.tick(time.monotonic())
            self._act()

    def _why_not_heard(self) -> str:
        where = f" in {self._kept.path}" if self._kept is not None else ""
        return (
            f"others know a later process of member {self.name} than this one{where}, and do not hear it: give it the "
            "directory that this member had, or another name"
        )

    def _on_gap(self, gap: object) -> None:
        """Lamport's members cannot go on without what they missed. The others ask again for it."""
        if isinstance(self._queue, Lamport):
            self._fail(SubscriptionBroken(f"member {self.name} was away for too long and may have missed messages"))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        waiting: list[asyncio.Future[Any]] = [*self._answers.values(), *self._publications.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(OncewayError(f"member {self.name} cannot go on: {error}"))
        self._view_changed.set()
