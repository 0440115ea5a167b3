"""A subscriber for asyncio: deliveries one by one, or batches as columns, and their outcomes.

What arrives stays in the runs in which it came until it is asked for; a `Delivery` is made only when deliveries are
taken one by one.  Outcomes name positions (`subscribing`), as ranges; awaiting one waits for the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from itertools import accumulate
from time import time_ns
from typing import TYPE_CHECKING, Any

from amqp10.outcomes import ACCEPTED, RELEASED, Outcome
from onceway.base import waits
from onceway.client.clock import now_s
from onceway.client.delivery import Batch, Delivery
from onceway.client.protocol.events import Arrived, Attached, Detached, Drained, Failed, Gap, LinkEvent, Settled
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.client.reports import SubscriptionGap
from onceway.client.signals import DONE, Changes, Done
from onceway.errors import ConnectionClosed, SubscriptionBroken, UsageError

if TYPE_CHECKING:
    from onceway.client.database_journal import Transaction
    from onceway.client.driver import Driver


class _Durable:
    """Awaited, it waits until the journal has the outcomes given so far."""

    __slots__ = ("_subscriber",)

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber

    def __await__(self) -> Generator[Any, None, None]:
        subscriber = self._subscriber
        subscriber._flush(now_s())
        return subscriber._driver.durably(subscriber._number).__await__()


class _Batches(AsyncIterator[Batch]):
    """Not a generator: a generator that has raised is finished, and SubscriptionBroken must not end an iteration."""

    __slots__ = ("_max_bytes", "_max_messages", "_max_wait", "_subscriber")

    def __init__(self, subscriber: Subscriber, max_messages: int, max_bytes: int, max_wait: float) -> None:
        self._subscriber = subscriber
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._max_wait = max_wait

    async def __anext__(self) -> Batch:
        batch = await self._subscriber._next_batch(self._max_messages, self._max_bytes, self._max_wait)
        if batch is None:
            raise StopAsyncIteration
        return batch


class Subscriber:
    """Receives the messages of one address; `Connection.subscriber` makes it.

    Take deliveries with `async for`, `receive` or `batches`, and give each delivery or batch an outcome: `accept`,
    `reject` or `release`.

    Attributes:
        address: The topic.
        name: The link name.
        guarantee: What was negotiated: `exactly-once`, `at-least-once` or `at-most-once`.
        resumed: The last attach resumed an earlier attachment: nothing was missed since.
        granted_timeout_s: How long the network keeps messages for it while it is disconnected, in seconds.
        accepted: How many deliveries were accepted.
    """

    def __init__(self, driver: Driver, link: SubscriberLink, on_gap: Callable[[SubscriptionGap], None] | None) -> None:
        self.address = link.address
        self.name = link.name
        self.guarantee: str = link.guarantee
        self.resumed = False
        self.granted_timeout_s = 0.0
        self.accepted = 0
        self._driver = driver
        self._link = link
        self._on_gap = on_gap
        self._runs: deque[Arrived | SubscriptionBroken] = deque()
        self._offset = 0  # into the first run
        self._waiting = 0  # messages in the runs
        self._pending: tuple[int, int, Outcome] | None = None  # a run of outcomes of this turn of the loop
        self._number = 0  # what the journal must reach for all outcomes to be durable
        self._drained: list[bool] = []  # the answer to a drain
        self._changes = Changes()
        self._attached = False
        self._error: Exception | None = None
        self._closed = False
        tracing = driver.tracing
        self._spans = None if tracing is None else tracing.subscriber(link.address, link.name)
        link.tells_settled = self._spans is not None

    def __repr__(self) -> str:
        state = "closed" if self._closed or self._error is not None else self._link.state
        undecided = max(0, self._link.holdings.undecided - self._waiting)
        counts = f"waiting: {self._waiting}, undecided: {undecided}, accepted: {self.accepted}"
        return f"<Subscriber {self.name!r} of {self.address!r}, {self.guarantee}, {state}; {counts}>"

    @property
    def journalled(self) -> bool:
        """Its outcomes are in a journal."""
        return self._driver.journalled

    # -- one by one

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """Deliveries, each publisher's in order; ends when the subscriber is closed.

        Raises:
            SubscriptionBroken: Messages may have been missed, and there is no `on_gap`.  Iterate again to go on.
            LinkStolen, LinkRefused, JournalError: The subscriber cannot go on.
        """
        return self

    async def __anext__(self) -> Delivery:
        since_ns = 0
        if not self._runs:
            since_ns = await self._wait()
            if not self._runs:
                raise StopAsyncIteration
        return self._next(since_ns)

    async def receive(self) -> Delivery:
        """The next delivery.  A cancelled or timed-out `receive` loses nothing.

        Raises:
            ConnectionClosed: The subscriber is closed.
            SubscriptionBroken, LinkStolen, LinkRefused, JournalError: As iterating does.
        """
        since_ns = 0
        if not self._runs:
            since_ns = await self._wait()
            if not self._runs:
                raise ConnectionClosed(f"subscriber {self.name} of {self.address} is closed")
        return self._next(since_ns)

    def _next(self, since_ns: int) -> Delivery:
        run = self._runs[0]
        if isinstance(run, SubscriptionBroken):
            self._runs.popleft()
            raise run
        at = self._offset
        position = -1 if run.settled else run.position + at
        delivery = Delivery(self, position, run.tags[at], run.payloads[at], run.message_format, run.settled)
        at += 1
        self._waiting -= 1
        if run.settled:
            self._took(1)
        if at == len(run.tags):
            self._runs.popleft()
            at = 0
        self._offset = at
        if self._spans is not None:
            self._spans.receive([delivery.payload], {0: delivery.message_format}, [position], since_ns, batch=False)
        return delivery

    @waits.MESSAGE
    async def _wait(self) -> int:
        """Waits until there is something to take, or the subscriber is closed. Returns since when, for its spans."""
        since_ns = 0 if self._spans is None else time_ns()
        await self._changes.until(lambda: self._runs or self._error or self._closed)
        if self._error is not None and not self._runs:
            raise self._error
        return since_ns

    # -- in batches

    def batches(
        self, max_messages: int = 1000, max_bytes: int = 1 << 20, max_wait: float = 0.0
    ) -> AsyncIterator[Batch]:
        """What has arrived, in batches.  Raises as iterating over deliveries does.

        Args:
            max_messages: How many messages a batch has at most.
            max_bytes: About how many bytes of payload it has at most; one message at least.
            max_wait: How long to wait for a batch to fill after its first message, in seconds.
        """
        if max_messages < 1:
            raise UsageError("max_messages must be at least 1")
        return _Batches(self, max_messages, max_bytes, max_wait)

    @waits.MESSAGE
    async def _next_batch(self, max_messages: int, max_bytes: int, max_wait: float) -> Batch | None:
        since_ns = 0
        if not self._runs:
            since_ns = await self._wait()
        if max_wait and self._waiting < max_messages:
            await self._changes.until(
                lambda: self._waiting >= max_messages or self._error or self._closed or self._gapped(), max_wait
            )
        if not self._runs:
            if self._error is not None:
                raise self._error
            return None
        run = self._runs[0]
        if isinstance(run, SubscriptionBroken):
            self._runs.popleft()
            raise run
        batch = self._batch(max_messages, max_bytes)
        if self._spans is not None:
            self._spans.receive(batch.payloads, batch.other_formats, batch._positions, since_ns, batch=True)
        return batch

    def _gapped(self) -> bool:
        return isinstance(self._runs[-1], SubscriptionBroken) if self._runs else False

    def _batch(self, max_messages: int, max_bytes: int) -> Batch:
        batch = Batch(self)
        room = max_messages
        size = max_bytes
        while self._runs and room > 0:
            run = self._runs[0]
            if isinstance(run, SubscriptionBroken):
                break
            start = self._offset
            end = min(len(run.tags), start + room)
            sizes = list(accumulate(map(len, run.payloads[start:end])))
            if sizes[-1] > size:
                fitting = sum(1 for total in sizes if total <= size)
                if not fitting and len(batch):
                    break
                end = start + max(1, fitting)
            size -= sizes[end - start - 1]
            room -= end - start
            batch._add(run, start, end)
            if run.settled:
                self._took(end - start)
            self._waiting -= end - start
            if end == len(run.tags):
                self._runs.popleft()
                self._offset = 0
            else:
                self._offset = end
                break
        return batch

    # -- in the application's database

    def transaction(self, connection: Any) -> Transaction:
        """`with subscriber.transaction(connection) as transaction`: what the block writes on this connection, and what
        it gives to `transaction.accept`, are one commit. The block may run in another thread.

        Args:
            connection: Of sqlite3, psycopg or SQLAlchemy, to the database of the connection's `DatabaseJournal`.

        Raises:
            UsageError: The connection has another journal, or none; or the database is none of these.
        """
        from onceway.client.database_journal import SubscriberPart, Transaction

        part = self._link._part
        if not isinstance(part, SubscriberPart):
            raise UsageError(
                "a transaction needs the journal of its database: connect(..., journal=DatabaseJournal(...))"
            )
        return Transaction(self, part, connection)

    # -- how much there is

    @property
    def waiting(self) -> int:
        """How many messages have arrived and were not taken yet."""
        return self._waiting

    async def drain(self) -> bool:
        """Makes the router send what it holds for this subscription; returns when that has arrived.

        One call at a time.  Where all credit is used up it waits until deliveries get their outcomes.

        Returns:
            True if the router had nothing more at that moment; False if credit ran out first: call it again.

        Raises:
            ConnectionClosed: The subscriber is closed.
        """
        self._drained.clear()
        if self._error is None and not self._closed:
            self._link.drain()
            self._driver.soon()
        await waits.MESSAGE(self._changes).until(lambda: self._drained or self._error or self._closed)
        if not self._drained:
            raise self._error or ConnectionClosed(f"subscriber {self.name} of {self.address} is closed")
        return self._drained.pop()

    def _took(self, settled: int) -> None:
        self._link.taken(settled)
        self._driver.soon()

    # -- outcomes

    def _decide(self, ranges: list[tuple[int, int]], outcome: Outcome, *, batch: bool) -> Awaitable[None]:
        """Gathers outcomes until the end of this turn of the loop, neighbours as one range."""
        if self._error is not None:
            return Done(self._error)
        if self._closed:
            return Done(ConnectionClosed(f"subscriber {self.name} of {self.address} is closed: this has no effect"))
        if self._spans is not None:
            self._spans.settle(ranges, outcome, batch)
        if outcome is ACCEPTED:
            self.accepted += sum(last - first + 1 for first, last in ranges)
        pending = self._pending
        if pending is None:
            self._driver.soon()
        elif pending[2] is outcome and pending[1] == ranges[0][0] - 1:
            ranges = [(pending[0], ranges[0][1]), *ranges[1:]]
        else:
            self._flush(now_s())
        if len(ranges) > 1:
            for first, last in ranges[:-1]:
                self._pending = (first, last, outcome)
                self._flush(now_s())
        first, last = ranges[-1]
        self._pending = (first, last, outcome)
        return _Durable(self) if self.journalled else DONE

    def _flush(self, now: float) -> None:
        if self._pending is not None:
            first, last, outcome = self._pending
            self._pending = None
            self._number = max(self._number, self._link.decide(first, last, outcome, now))

    # -- leaving

    async def detach(self) -> None:
        """Stops receiving.  The network keeps messages for this subscription, for `granted_timeout_s`."""
        self._retire(closed=False)
        await self._leave(closed=False, bound_s=self._driver.close_timeout_s)

    async def close(self) -> None:
        """Ends the subscription for good: the network and the journal forget it.

        A consumer of a queue gives back what nobody has taken, and waits until what it has accepted is settled, for the
        connection's `close_timeout_s` at most: if it closed before and its router died, another would get it again.
        """
        self._retire(closed=True)
        await self._leave(closed=True, bound_s=self._driver.close_timeout_s)

    # -- for the connection

    def _refresh(self) -> None:
        pass

    def _handle(self, events: list[LinkEvent]) -> None:
        for event in events:
            if isinstance(event, Arrived):
                self._runs.append(event)
                self._waiting += len(event.tags)
                if self._link.stopped:
                    self._driver.loop.call_soon(self._give_back)
                continue
            if isinstance(event, Settled):
                if self._spans is not None:
                    self._spans.finish(event.first, event.last)
                continue
            self._driver.note_link(self._link, event)
            if isinstance(event, Attached):
                self._attached = True
                self.resumed = event.resumed
                self.guarantee = event.guarantee
                self.granted_timeout_s = event.timeout_s
            elif isinstance(event, Gap):
                self._gap(event)
            elif isinstance(event, Drained):
                self._drained = [event.empty]
            elif isinstance(event, Failed):
                self._error = event.error
                self._clear(event.error)  # outcomes have no effect any more
            elif isinstance(event, Detached):
                self._closed = True
        self._changes.notify()

    def _gap(self, gap: Gap) -> None:
        report = SubscriptionGap(self.address, self.name, gap.reason, gap.dropped)
        self._driver.report(report)
        if self._on_gap is not None:
            self._driver.loop.call_soon(self._on_gap, report)
        else:
            self._runs.append(
                SubscriptionBroken(
                    f"subscriber {self.name} of {self.address} may have missed messages: {gap.reason}; "
                    "it was created again: receive again for what is published from now on"
                )
            )

    def _clear(self, error: Exception | None = None) -> None:
        if self._spans is not None:
            self._spans.finish_all(error)
        self._pending = None
        self._runs.clear()
        self._offset = self._waiting = 0

    def _retire(self, closed: bool) -> None:
        """Begins to leave: says what is decided, and takes nothing more."""
        self._flush(now_s())
        if closed and not self._closed and self._error is None:
            self._link.stop()
            if self._link.stopped:
                self._give_back()

    def _give_back(self) -> None:
        """What nobody has taken goes to other consumers."""
        if self._closed or self._error is not None:
            return
        runs, taken = self._runs, self._offset  # of the first run
        self._runs = deque()
        self._offset = 0
        for run in runs:
            if isinstance(run, SubscriptionBroken):
                self._runs.append(run)
            else:
                last = run.position + len(run.tags) - 1
                self._link.decide(run.position + taken, last, RELEASED, now_s())
                self._waiting -= len(run.tags) - taken
            taken = 0
        self._driver.soon()

    @property
    def _busy(self) -> bool:
        """Whether something is still under way for which it waits before it leaves."""
        if self._closed or self._error is not None:
            return False
        return self._link.deciding > 0 or self._link.owes

    async def _leave(self, closed: bool, bound_s: float | None = 0.0) -> None:
        if self._closed:
            return
        await waits.CLOSING(self._changes).until(lambda: not self._busy, bound_s)  # a disk may hang
        if not self._closed and self._error is None:
            self._driver.leave(self._link, closed)
            await waits.DETACH(self._changes).until(lambda: self._closed or self._error, self._driver.leave_timeout_s)
        self._closed = True
        self._clear()
        self._driver.forget(self._link)
        self._changes.notify()
