"""The endpoint at work: bytes and time go in, bytes and events come out, once per turn of the event loop.

It has whichever socket the `Connection` got, the timer, and the publishers and subscribers whose puts and verdicts go
in and who are handed what came.  Which router comes next is `connection`'s business.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import time
from collections.abc import Awaitable, Callable
from itertools import count

from amqp10.errors import UNAUTHORIZED_ACCESS
from amqp10.events import ConnectionClosed as EngineClosed
from amqp10.settings import ConnectionSettings
from onceway.client.clock import now_s
from onceway.client.journal import Journal, MemoryJournal
from onceway.client.protocol.endpoint import Endpoint
from onceway.client.protocol.events import Attached
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.client.publisher import Publisher
from onceway.client.reports import LinkAttached, Report, RouterConnected
from onceway.client.signals import DONE, Changes, Done
from onceway.client.subscriber import Subscriber
from onceway.client.transport import Wire
from onceway.client.urls import RouterUrl
from onceway.errors import AttachTimeout, AuthenticationFailed, ConnectionClosed, InternalError, OncewayError

TCP_TIMEOUT_S = 5.0  # for one router to take the connection
CLOSE_TIMEOUT_S = 5.0  # for a router to answer detach and close
PRODUCT = "onceway"  # what our routers call themselves in open


class Driver:
    """Of one connection, from router to router; `open` comes first, `shut` last."""

    loop: asyncio.AbstractEventLoop
    endpoint: Endpoint

    def __init__(self, journal: Journal, on_report: Callable[[Report], None] | None) -> None:
        self.url = ""  # of the router it is connected to now, or was last
        self.router: str | None = None  # its container-id; None while there is no connection
        self.pipelines = False  # routers are known to take a whole handshake at once
        self.journalled = not isinstance(journal, MemoryJournal)
        self.owners: dict[int, Publisher | Subscriber] = {}  # by id of their links
        self.changes = Changes()
        self.leave_timeout_s = CLOSE_TIMEOUT_S
        self.closing = False
        self.closed = False
        self.error: OncewayError | None = None
        self._journal = journal
        self._on_report = on_report
        self._wire: Wire | None = None
        self._lost: asyncio.Future[str] | None = None  # set when the connection at hand is over: why
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # ours to remember: uvloop's handle for a time that has come is none with a `when`
        self._scheduled = False
        self._durable: list[tuple[int, int, asyncio.Future[None]]] = []  # (number, tie, waiter), a heap
        self._ties = count()

    # -- from beginning to end

    def open(self, container: str | None, rng: random.Random) -> str:
        """Opens the journal; returns the container-id."""
        self.loop = asyncio.get_running_loop()
        container = self._journal.open(container, self._journal_moved)
        self.endpoint = Endpoint(container, self._journal, wall_us=_wall_us, rng=rng)
        return container

    @property
    def connected(self) -> bool:
        """There is a socket, whatever has been said over it."""
        return self._wire is not None

    async def use(self, url: RouterUrl, settings: ConnectionSettings) -> str:
        """Connect to this router and stay until that is over; returns why it is."""
        self.url = str(url)
        self._lost = self.loop.create_future()
        wire = Wire(self)
        try:
            async with asyncio.timeout(TCP_TIMEOUT_S):
                await self.loop.create_connection(lambda: wire, url.host, url.port)
        except TimeoutError:
            return f"no answer within {TCP_TIMEOUT_S:g} s"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
        self._wire = wire
        self.pipelines = False  # until this one is open
        self.endpoint.connect(settings, now_s())
        self.step()
        try:
            return await self._lost
        finally:
            self._wire = None
            wire.close()
            self.endpoint.lost(now_s(), "the connection was lost")
            self._hand_over()

    async def say_goodbye(self) -> None:
        """Close the connection at hand, if there is one, and wait for the answer."""
        lost = self._lost
        if self._wire is not None and lost is not None:
            self.endpoint.close()
            self.step()
            await asyncio.wait([lost], timeout=CLOSE_TIMEOUT_S)

    async def shut(self) -> None:
        """Close what is left, whatever state it is in, and tell everybody who waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._wire is not None:
            self._wire.abort()
        self.closed = True
        self.router = None
        try:
            if self._journal.failure is None:
                await asyncio.to_thread(self._journal.close)
        finally:
            self._fail(self.error or ConnectionClosed("the connection is closed"))

    def _fail(self, error: OncewayError) -> None:
        for owner in list(self.owners.values()):
            owner._link.fail(error)
            owner._handle(owner._link.take_events())
        self._wake_durable(final=True)
        self.changes.notify()

    # -- the socket

    def wire_received(self, wire: Wire, data: bytes) -> None:
        if wire is not self._wire or self.endpoint.connection is None:
            return
        try:
            self._ended(self.endpoint.receive_data(data, now_s()))
            # Tell the application now and write in the next turn: what it does about it (the next message, an accept)
            # leaves together with our answers, in one system call.
            self._hand_over()
        except Exception as error:
            self._defect(error)
            raise
        self.soon()

    def wire_ended(self, wire: Wire) -> None:
        if wire is self._wire and self.endpoint.connection is not None:
            self._ended(self.endpoint.receive_eof(now_s()))
            self.step()

    def wire_lost(self, wire: Wire, error: Exception | None) -> None:
        if wire is self._wire:
            self._give_up("the connection was lost" if error is None else str(error))

    def _ended(self, closed: EngineClosed | None) -> None:
        if closed is None:
            return
        self._write()  # the answer to a close
        if closed.error is None:
            self._give_up("closed by the router" if not closed.lost else "the router ended the connection")
            return
        reason = f"{closed.error.condition}: {closed.error.description or ''}".rstrip(": ")
        if closed.error.condition == UNAUTHORIZED_ACCESS and not self.endpoint.opened:
            self._refused(reason)
        self._give_up(reason)

    def _refused(self, reason: str) -> None:
        """Who we are is not accepted.  Final only before the first connection: later another router may be right."""
        if not self.owners and self.router is None:
            self.error = AuthenticationFailed(
                f"{self.url} does not accept this user and password ({reason})", {self.url: reason}
            )

    def _give_up(self, reason: str) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)

    # -- once per turn

    def soon(self) -> None:
        """Somebody has put something: a step at the end of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.step()

    def step(self) -> None:
        """Puts go in, events go out, bytes go out, the timer is set."""
        if self.closed:
            return
        now = now_s()
        try:
            for owner in list(self.owners.values()):
                owner._flush(now)
            self._hand_over()
            self._write()
            self._arm(now)
        except Exception as error:
            self._defect(error)
            raise

    def _defect(self, error: Exception) -> None:
        """Something here is not as it must be: send nothing more, and tell everybody who waits."""
        if self.error is None:
            self.error = InternalError(f"onceway's client failed: {type(error).__name__}: {error}")
            self.error.__cause__ = error
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.abort()
            self._give_up(str(self.error))
            self._fail(self.error)

    def _write(self) -> None:
        if self._wire is not None:
            self._wire.write(self.endpoint.data_to_send())

    def _opened(self) -> None:
        connection = self.endpoint.connection
        assert connection is not None
        assert connection.remote_open is not None
        self.router = connection.remote_open.container_id
        # Other brokers may take what comes early for something else: once one router is ours, the others will be.
        self.pipelines = (connection.remote_open.properties or {}).get("product") == PRODUCT
        self.report(RouterConnected(self.url, self.router))
        self.changes.notify()

    def _hand_over(self) -> None:
        if self.endpoint.opened and self.router is None:
            self._opened()
        for owner in list(self.owners.values()):
            if owner._link.events:
                owner._handle(owner._link.take_events())
            else:
                owner._refresh()
        if self._durable:
            self._wake_durable()
        if self.closing:
            self.changes.notify()

    def _arm(self, now: float) -> None:
        """The timer runs at or before the next deadline: a deadline that moves back costs nothing.  While the machine
        sleeps it stands still, so that it may be late by what it had left."""
        deadline = self.endpoint.next_deadline()
        timer = self._timer
        if deadline is None:
            return
        if timer is not None:
            if self._timer_at <= deadline:
                return
            timer.cancel()
        self._timer_at = max(deadline, now)
        self._timer = self.loop.call_later(self._timer_at - now, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.closed:
            return
        try:
            self._ended(self.endpoint.handle_timer(now_s()))
        except Exception as error:
            self._defect(error)
            raise
        self.step()

    # -- the journal

    def _journal_moved(self) -> None:
        """From the journal's thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._journal_advanced)

    def _journal_advanced(self) -> None:
        if self.closed:
            return
        try:
            failure = self.endpoint.durable(now_s())
        except Exception as error:
            self._defect(error)
            raise
        if failure is not None and self.error is None:
            self.error = failure
            self._give_up(str(failure))
        self.step()

    def durably(self, number: int) -> Awaitable[None]:
        """Done when the journal has got to this number."""
        if number <= self._journal.durable:
            return DONE
        if self._journal.failure is not None:
            return Done(self._journal.failure)
        waiter: asyncio.Future[None] = self.loop.create_future()
        heapq.heappush(self._durable, (number, next(self._ties), waiter))
        return waiter

    def _wake_durable(self, final: bool = False) -> None:
        reached, failure = self._journal.durable, self._journal.failure
        while self._durable and (self._durable[0][0] <= reached or failure is not None or final):
            number, _, waiter = heapq.heappop(self._durable)
            if waiter.done():
                continue
            if number <= reached:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure or self.error or ConnectionClosed("the connection is closed"))
                waiter.exception()  # a verdict that nobody awaits is no forgotten error

    # -- for publishers and subscribers

    async def attach(
        self, link: PublisherLink | SubscriberLink, owner: Publisher | Subscriber, timeout_s: float | None
    ) -> None:
        self.owners[id(link)] = owner
        self.step()
        answered = False
        try:
            answered = await owner._changes.until(lambda: owner._attached or owner._error, timeout_s)
        finally:
            if not answered:
                owner._over = True
                self.leave(link, closed=False)
                self.forget(link)
        if owner._error is not None:
            self.forget(link)
            raise owner._error
        if not answered:
            raise AttachTimeout(
                f"{link.role} {link.name} of {link.address} was not attached within {timeout_s:g} s; "
                "the network may be recovering: its routers' /readyz says so"
            )

    def leave(self, link: PublisherLink | SubscriberLink, closed: bool) -> None:
        link.leave(closed, now_s())
        self.step()

    def forget(self, link: PublisherLink | SubscriberLink) -> None:
        if self.owners.pop(id(link), None) is not None:
            self.endpoint.remove(link)
            self.step()

    def tell_attached(self, link: PublisherLink | SubscriberLink, event: Attached) -> None:
        self.report(LinkAttached(link.role, link.address, link.name, self.router or "", event.resumed, event.guarantee))

    def report(self, report: Report) -> None:
        """The application's callbacks run by themselves: what they raise is theirs."""
        if self._on_report is not None:
            self.loop.call_soon(self._on_report, report)


def _wall_us() -> int:
    return time.time_ns() // 1000
