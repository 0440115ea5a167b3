"""Writers and readers of one address of the network."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, Unpack

import onceway
from amqp10.sections import AmqpValue, Message
from edges.caches.cache import Sample
from edges.caches.repair import Heard, Readers, Relay
from edges.reading import read_or_reject
from onceway.base import waits
from onceway.client.credentials import Who
from onceway.client.publications import Publication
from onceway.client.publisher import Publisher
from onceway.client.signals import Changes
from onceway.client.subscriber import Subscriber
from onceway.errors import (
    DeliveryNotAccepted,
    DeliveryUndecided,
    OncewayError,
    PublisherFull,
    UsageError,
)

ALIVE_S: Final = 1.0  # a writer with nothing to write says that it is there
TICK_S: Final = 0.25
SUBSCRIPTION_TIMEOUT_S: Final = 30.0  # for so long a reader that died holds up writers

# What is said, as a body of one AMQP value: a list that begins with one of these.
SAMPLE: Final = "sample"  # writer, number, everywhere, key, value
ALIVE: Final = "alive"  # writer, everywhere
ENDED: Final = "ended"  # writer
RELAY: Final = "relay"  # as sample
HEARD: Final = "heard"  # writer, number


class _End:
    """What writers and readers have in common: a connection, tasks, and the error that ended them."""

    def __init__(self, urls: str | Sequence[str], address: str, name: str, connect_timeout_s: float, who: Who) -> None:
        self._address = address
        self._connection = onceway.connect(
            urls,
            container=f"{address}.{name}",
            connect_timeout_s=connect_timeout_s,
            close_timeout_s=waits.EDGE_LEAVE.s,
            **who,
        )
        self._changes = Changes()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self._changes.notify()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close(timeout_s=waits.EDGE_LEAVE.s)


class Writer(_End):
    """Writes samples: `async with Writer(...) as writer`.

    Args:
        urls: URLs of routers.
        address: The topic that writers and readers share.
        name: This writer's name. Two processes must never have it at once.
        reliable: Every reliable reader gets every sample. If not: a write never waits, and samples may get lost.
        connect_timeout_s: How long the first router may take to answer, in seconds.
        who: `tls` and `credentials`, as of `onceway.connect`.

    Attributes:
        written: How many samples were written.
        everywhere: Every reader has the samples up to this number.
        dropped: How many samples were lost here, for want of credit. Only of a writer that is not reliable.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        address: str,
        name: str,
        *,
        reliable: bool = True,
        connect_timeout_s: float = 30.0,
        **who: Unpack[Who],
    ) -> None:
        super().__init__(urls, address, name, connect_timeout_s, who)
        self.written = 0
        self.everywhere = 0
        self.dropped = 0
        self._name = f"{name}.{time.time_ns():x}"
        self._reliable = reliable
        self._publisher: Publisher | None = None
        self._turn = waits.OUTCOME(asyncio.Lock())  # numbers are in the order of publishing
        self._open: deque[tuple[str, Any, Publication]] = deque()  # the samples after `everywhere`
        self._said = 0  # of `everywhere`

    async def __aenter__(self) -> Self:
        await self._connection
        guarantee = "exactly-once" if self._reliable else "at-most-once"
        self._publisher = await self._connection.publisher(
            self._address, guarantee=guarantee, on_undecided=lambda _: None
        )
        if self._reliable:
            self._spawn(self._alive(self._publisher))
            self._spawn(self._settle(self._publisher))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reliable and self._failure is None and self._publisher is not None:
            with suppress(TimeoutError, OncewayError):  # then readers notice that it is silent
                async with asyncio.timeout(waits.CACHE_END.s):
                    await self.flush()
                    await (await self._publisher.put(_message(ENDED, self._name)))
        await self._stop()

    async def write(self, key: str, value: Any) -> int:
        """Writes a sample; waits only for credit, and a writer that is not reliable for nothing.

        A call that is cancelled has written nothing.

        Args:
            key: Which instance it is a value of.
            value: Anything that AMQP has a type for.

        Returns:
            The sample's number.

        Raises:
            ConnectionClosed, LinkStolen: The writer cannot go on.
            UsageError: The value has no AMQP type or is too large; nothing was written.
        """
        self._check()
        assert self._publisher is not None, "write inside `async with`"
        if not self._reliable:
            message = _message(SAMPLE, self._name, self.written + 1, self.written + 1, key, value)
            try:
                self._publisher.put_nowait(message)
            except PublisherFull:
                self.dropped += 1
            self.written += 1
            return self.written
        async with self._turn:
            everywhere = self.everywhere
            message = _message(SAMPLE, self._name, self.written + 1, everywhere, key, value)
            publication = await self._publisher.put(message)
            self.written += 1
            self._said = everywhere
            self._open.append((key, value, publication))
            self._changes.notify()
            return self.written

    async def flush(self) -> None:
        """Returns when every reader has every sample.

        Raises:
            ConnectionClosed, LinkStolen: The writer cannot go on.
        """
        await waits.OUTCOME(self._changes).until(lambda: not self._open or self._failure is not None)
        self._check()

    async def _settle(self, publisher: Publisher) -> None:
        """Learns of one sample after the other that every reader has it."""
        while True:
            await waits.IDLE(self._changes).until(lambda: self._open)
            key, value, publication = self._open[0]
            try:
                await publication
            except DeliveryNotAccepted as error:  # by a subscriber that is no reader
                logging.getLogger(__name__).warning("sample %d of %r: %s", self.everywhere + 1, self._name, error)
            except DeliveryUndecided:  # then it is said again, and whoever has it knows it
                again = _message(RELAY, self._name, self.everywhere + 1, self.everywhere, key, value)
                self._open[0] = key, value, await publisher.put(again)
                continue
            self._open.popleft()
            self.everywhere += 1
            self._changes.notify()

    async def _alive(self, publisher: Publisher) -> None:
        while True:
            await asyncio.sleep(ALIVE_S)
            if not self._open or self._said < self.everywhere:
                await publisher.put(_message(ALIVE, self._name, self.everywhere))
                self._said = self.everywhere


class Reader(_End):
    """Reads samples from a local cache: `async with Reader(...) as reader`.

    Args:
        urls: URLs of routers.
        address: The topic that writers and readers share.
        name: This reader's name. Two processes must never have it at once.
        reliable: It gets every sample of reliable writers from now on, also of one that crashes and that another
            reliable reader has heard. If not: it may miss samples, holds nobody up, and reads each only once.
        depth: How many samples of each key are kept, the newest (keep-last). None: all (keep-all).
        most: How many samples there may be with keep-all. Then a reliable reader holds up writers until the
            application takes some, and another one misses samples.
        connect_timeout_s: How long the first router may take to answer, in seconds.
        who: `tls` and `credentials`, as of `onceway.connect`.

    Attributes:
        missed: How often the network has said that samples may have been missed, or how many did not fit.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        address: str,
        name: str,
        *,
        reliable: bool = True,
        depth: int | None = 1,
        most: int = 100_000,
        connect_timeout_s: float = 30.0,
        **who: Unpack[Who],
    ) -> None:
        if depth is not None and depth < 1:
            raise UsageError(f"depth is {depth}: at least one sample of each key is kept; None keeps all")
        super().__init__(urls, address, name, connect_timeout_s, who)
        self.missed = 0
        self._readers = Readers(depth)
        self._reliable = reliable
        self._most = None if depth is not None else most
        self._subscriber: Subscriber | None = None
        self._publisher: Publisher | None = None

    async def __aenter__(self) -> Self:
        await self._connection
        guarantee = "exactly-once" if self._reliable else "at-most-once"
        timeout_s = SUBSCRIPTION_TIMEOUT_S if self._reliable else None
        self._subscriber = await self._connection.subscriber(
            self._address, guarantee=guarantee, subscription_timeout_s=timeout_s, on_gap=self._on_gap
        )
        if self._reliable:
            self._publisher = await self._connection.publisher(self._address, on_undecided=lambda _: None)
            self._spawn(self._repair(self._publisher))
        self._spawn(self._receive(self._subscriber))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._subscriber is not None:
            await asyncio.gather(self._subscriber.close(), return_exceptions=True)
        await self._stop()

    def read(self, key: str | None = None, *, new: bool = False) -> list[Sample]:
        """The samples in the cache, oldest first for each key; they stay there.

        Args:
            key: Only of this key.
            new: Only those that were not read before. A reader that is not reliable reads only those.

        Raises:
            ConnectionClosed, LinkStolen, SubscriptionBroken: The reader cannot go on.
        """
        self._check()
        return self._readers.cache.read(key, new=new or not self._reliable)

    def take(self, key: str | None = None) -> list[Sample]:
        """As `read`, and removes them from the cache."""
        self._check()
        taken = self._readers.cache.take(key)
        self._changes.notify()
        return taken

    async def wait(self, timeout_s: float | None = None) -> None:
        """Returns when there is a sample that was not read, or at once if there is one.

        Raises:
            TimeoutError: There was none in time.
            ConnectionClosed, LinkStolen, SubscriptionBroken: The reader cannot go on.
        """
        cache = self._readers.cache
        async with waits.CACHE_SAMPLE(asyncio.timeout(timeout_s)):
            await self._changes.until(lambda: cache.unread or self._failure is not None)
        self._check()

    async def _receive(self, subscriber: Subscriber) -> None:
        async for delivery in subscriber:
            if self._full and self._reliable:
                await waits.CACHE_SAMPLE(self._changes).until(lambda: not self._full)
            said = read_or_reject(delivery, read)
            if said is None:
                continue
            self._take_in(*said, time.monotonic())
            delivery.accept()
            self._changes.notify()

    @property
    def _full(self) -> bool:
        return self._most is not None and len(self._readers.cache) >= self._most

    def _take_in(self, kind: str, writer: str, rest: list[Any], now: float) -> None:
        if kind in (SAMPLE, RELAY):
            number, everywhere, key, value = rest
            sample = Sample(writer, number, key, value)
            if self._full:
                self.missed += 1
            elif kind == SAMPLE:
                self._readers.sample(sample, everywhere, now)
            else:
                self._readers.receive(Relay(sample, everywhere), now)
        elif kind == ALIVE:
            (everywhere,) = rest
            self._readers.alive(writer, everywhere, now)
        elif kind == ENDED:
            self._readers.ended(writer, now)
        elif self._reliable:
            (number,) = rest
            self._readers.receive(Heard(writer, number), now)

    async def _repair(self, publisher: Publisher) -> None:
        said = self._readers.said
        while True:
            await asyncio.sleep(TICK_S)
            if not self._full:  # else what it waits for may have been said long ago
                self._readers.tick(time.monotonic())
            messages = said[:]
            said.clear()
            for message in messages:
                if isinstance(message, Relay):
                    sample, everywhere = message
                    await publisher.put(
                        _message(RELAY, sample.writer, sample.number, everywhere, sample.key, sample.value)
                    )
                else:
                    await publisher.put(_message(HEARD, *message))

    def _on_gap(self, gap: object) -> None:
        self.missed += 1


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_key(value: object) -> bool:
    return isinstance(value, str)


def _is_value(value: object) -> bool:
    return True


_SAMPLE: Final = (_is_number, _is_number, _is_key, _is_value)
_FORMS: Final[dict[str, tuple[Callable[[object], bool], ...]]] = {
    SAMPLE: _SAMPLE, RELAY: _SAMPLE, ALIVE: (_is_number,), ENDED: (), HEARD: (_is_number,),
}  # fmt: skip
"""By kind: what follows the writer's name. A number that could not be counted on from is none."""


def read(body: Any) -> tuple[str, str, list[Any]]:
    """The kind, the writer and the rest of what a writer or reader says.

    Raises:
        ValueError: None says this.
    """
    kind, writer, *rest = body if isinstance(body, list) and len(body) > 1 else (None, None)
    form = _FORMS.get(kind) if isinstance(kind, str) else None
    fits = (
        form is not None and len(rest) == len(form) and all(is_it(each) for is_it, each in zip(form, rest, strict=True))
    )
    if not fits or not isinstance(writer, str):
        raise ValueError("not what a writer or reader of QoS caches says")
    return str(kind), writer, rest


def _message(*parts: Any) -> Message:
    return Message(AmqpValue(list(parts)))
