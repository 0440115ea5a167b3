"""Runs the endpoint in the event loop: bytes and time go in, bytes and events come out, once per turn of the loop.

The driver owns the socket, the timer and the journal's wake-ups.  It passes puts and outcomes of publishers and
subscribers to the endpoint, and the endpoint's events back.  `connection` decides which router is used next.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import random
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

from amqp10.errors import CONNECTION_FORCED, CONNECTION_REDIRECT, UNAUTHORIZED_ACCESS
from amqp10.events import ConnectionClosed as EngineClosed
from amqp10.settings import ConnectionSettings
from onceway.access.certificates import end_point
from onceway.access.contexts import reason
from onceway.base import waits
from onceway.base.websocket import DialledWebSocket
from onceway.client import clock
from onceway.client.clock import now_s
from onceway.client.journal import Journal, MemoryJournal
from onceway.client.protocol.endpoint import Endpoint
from onceway.client.protocol.events import Attached, Detached, Failed, LinkEvent, Lost
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.client.publisher import Publisher
from onceway.client.reports import (
    LinkAttached,
    PublicationsUndecided,
    PublisherWaiting,
    Report,
    RouterConnected,
    RouterLost,
    SubscriptionGap,
)
from onceway.client.signals import DONE, Changes, Done
from onceway.client.subscriber import Subscriber
from onceway.client.tracing import Tracing
from onceway.client.transport import Wire
from onceway.client.urls import RouterUrl
from onceway.errors import AttachTimeout, AuthenticationFailed, ConnectionClosed, InternalError, OncewayError

PRODUCT = "onceway"  # what our routers call themselves in open
NOT_REACHED = (OSError, ValueError, OverflowError)
"""What connecting to a host and port raises. It is not OSError alone where they could be nobody's: asyncio raises
UnicodeError for a host such as `a..b`, and OverflowError for port 70000, and a peer may have named both."""

logger = logging.getLogger("onceway")
logger.addHandler(logging.NullHandler())  # silent unless the application configures logging


class Driver:
    """Drives one connection, from router to router; `open` is called first, `shut` last."""

    loop: asyncio.AbstractEventLoop
    endpoint: Endpoint

    def __init__(
        self,
        journal: Journal,
        on_report: Callable[[Report], None] | None,
        close_timeout_s: float | None,
        tls: ssl.SSLContext | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.tracing = tracing
        if tracing is not None:
            tracing.driver = self
        self.url = ""  # of the router it is connected to now, or was last
        self._heard = False  # it has said something on this connection
        self.server: tuple[str, int] | None = None  # the host and port of that URL
        self.router: str | None = None  # its container-id; None while there is no connection
        self.pipelines = False  # routers accept a whole handshake at once
        self.journalled = not isinstance(journal, MemoryJournal)
        self.owners: dict[int, Publisher | Subscriber] = {}  # by id of their links
        self.changes = Changes()
        self.close_timeout_s = close_timeout_s
        self.leave_timeout_s = waits.DETACH.s
        self.closing = False
        self.closed = False
        self.error: OncewayError | None = None
        self._tls = tls
        self._journal = journal
        self._on_report = on_report
        self._wire: Wire | None = None
        self.sent_to: tuple[str, int] | None = None  # the host and port that the router named when it closed
        self._lost: asyncio.Future[str] | None = None  # why the current connection has ended
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # kept here: uvloop's handle for a time that has passed has no `when`
        self._scheduled = False
        self._durable: list[tuple[int, int, asyncio.Future[None]]] = []  # (number, tie, waiter), a heap
        self._ties = count()

    # -- from beginning to end

    def open(self, container: str | None, rng: random.Random) -> str:
        """Opens the journal; returns the container-id."""
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        container = self._journal.open(container, self._journal_moved)
        self.endpoint = Endpoint(container, self._journal, wall_us=clock.wall_us, rng=rng)
        return container

    @property
    def connected(self) -> bool:
        """Whether there is a socket; AMQP's open may not have come yet."""
        return self._wire is not None

    async def use(
        self,
        url: RouterUrl,
        settings: Callable[[RouterUrl, bytes | None], ConnectionSettings],
        connect_timeout_s: float = waits.CONNECT.s,
    ) -> str:
        """Connects to this router; returns when the connection has ended, with the reason. `sent_to` is where the
        router has sent us, if it has. settings: by the router's URL and the channel binding of its certificate."""
        self.url = str(url)
        self.server = url.host, url.port
        self.sent_to = None
        self._heard = False
        self._lost = waits.CONNECTION(self.loop.create_future())
        websocket = DialledWebSocket(url.host, url.port, "amqp", os.urandom) if url.in_websocket else None
        wire = Wire(self, websocket)
        try:
            async with waits.CONNECT(asyncio.timeout(connect_timeout_s)):
                transport, _ = await self.loop.create_connection(
                    lambda: wire, url.host, url.port, ssl=self._tls if url.secure else None
                )
        except TimeoutError:
            return f"no answer within {connect_timeout_s:g} s"
        except NOT_REACHED as error:
            return why_failed(error)
        self._wire = wire
        ours = settings(url, end_point_of(transport))
        self.pipelines = False  # until this one is open
        self.endpoint.connect(ours, now_s())
        self.step()
        try:
            return await self._lost
        finally:
            self._wire = None
            wire.close()
            self.endpoint.lost(now_s(), "the connection was lost")
            self._hand_over()

    async def close_current(self) -> None:
        """Closes the current connection, if there is one, and waits for the answer."""
        lost = self._lost
        if self._wire is not None and lost is not None:
            self.endpoint.close()
            self.step()
            await asyncio.wait([lost], timeout=waits.DETACH.s)

    async def shut(self) -> None:
        """Closes what is open, in any state, and wakes every waiter."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._wire is not None:
            self._wire.abort()
        self.closed = True
        self.router = None
        try:
            if self._journal.failure is None:
                await waits.DISK(asyncio.to_thread(self._journal.close))
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
        self._heard = True
        try:
            self._ended(self.endpoint.receive_data(data, now_s()))
            # The application is told now, and bytes are written in the next turn: what it does in response (another
            # message, an accept) leaves together with our answers, in one system call.
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
            self._give_up("the connection was lost" if error is None else why_failed(error))

    def _ended(self, closed: EngineClosed | None) -> None:
        if closed is None:
            return
        self._write()  # the answer to a close
        if closed.error is None:
            lost = "the router ended the connection"
            if not self._heard and self.url.startswith("amqp://"):
                lost += " without a word: for a port with TLS, write amqps://"
            self._give_up(lost if closed.lost else "closed by the router")
            return
        reason = f"{closed.error.condition}: {closed.error.description or ''}".rstrip(": ")
        if closed.error.condition in (CONNECTION_FORCED, CONNECTION_REDIRECT):
            self.sent_to = _place(closed.error.info or {})
        if closed.error.condition == UNAUTHORIZED_ACCESS and not self.endpoint.opened:
            self._refused(reason)
        self._give_up(reason)

    def _refused(self, reason: str) -> None:
        """User or password were refused. That is final only before the first connection: later, another router may
        accept them."""
        if not self.owners and self.router is None:
            self.error = AuthenticationFailed(f"{self.url} does not accept this client: {reason}", {self.url: reason})

    def _give_up(self, reason: str) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)

    # -- once per turn

    def soon(self) -> None:
        """Schedules a step at the end of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.step()

    def step(self) -> None:
        """Passes puts in and events out, writes, and sets the timer."""
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

    def runner_ended(self, runner: asyncio.Task[None]) -> None:
        """Whoever uses one router after the other has ended: after an error nobody would end what waits for them."""
        error = None if runner.cancelled() else runner.exception()
        if error is not None:
            self._defect(error)

    def _defect(self, error: BaseException) -> None:
        """Stops on a defect of this library: sends nothing more, and wakes every waiter."""
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
        # Other products may misread a pipelined handshake.  If one router is ours, so are the others.
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
        """Sets the timer to the next deadline or before, so that a deadline that moves back costs nothing.

        The event loop's timer stops while the machine sleeps, so it may be late by what was left of it.
        """
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
        """Called in the journal's thread; a journal that has none calls it on the loop, with nothing else under way."""
        if threading.get_ident() == self._thread:
            self._journal_advanced()
        elif not self.loop.is_closed():
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

    @waits.DISK
    def durably(self, number: int) -> Awaitable[None]:
        """An awaitable that is done when the journal has reached this number."""
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
                waiter.exception()  # asyncio must not complain where nobody awaits an outcome

    # -- for publishers and subscribers

    async def attach(
        self, link: PublisherLink | SubscriberLink, owner: Publisher | Subscriber, timeout_s: float | None
    ) -> None:
        self.owners[id(link)] = owner
        self.step()
        answered = False
        try:
            answered = await waits.ATTACH(owner._changes).until(
                lambda: owner._attached or owner._error or owner._closed or self.closed, timeout_s
            )
        finally:
            if not answered:
                owner._closed = True
                self.leave(link, closed=False)
                self.forget(link)
        if owner._error is not None:
            self.forget(link)
            raise owner._error
        if answered and not owner._attached:
            raise ConnectionClosed("the connection was closed before the router had answered")
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

    def note_link(self, link: PublisherLink | SubscriberLink, event: LinkEvent) -> None:
        """Reports and logs what happened to a link."""
        what = f"{link.role} {link.name!r} of {link.address!r}"
        if isinstance(event, Attached):
            router = self.router or ""
            self.report(LinkAttached(link.role, link.address, link.name, router, event.resumed, event.guarantee))
        elif isinstance(event, Lost):
            logger.info("%s detached: %s", what, event.reason)
        elif isinstance(event, Failed) and not isinstance(event.error, ConnectionClosed):
            logger.error("%s failed: %s", what, event.error)
        elif isinstance(event, Detached):
            logger.info("%s %s", what, "closed" if event.closed else "detached by the application")

    def report(self, report: Report) -> None:
        """Logs a report and gives it to the application, whose callback runs by itself: what it raises is its own."""
        lasting = isinstance(report, RouterLost | SubscriptionGap | PublicationsUndecided | PublisherWaiting)
        logger.log(logging.WARNING if lasting else logging.INFO, "%s", report)
        if self._on_report is not None:
            self.loop.call_soon(self._on_report, report)


def end_point_of(transport: asyncio.BaseTransport) -> bytes | None:
    tls = transport.get_extra_info("ssl_object")
    certificate = tls.getpeercert(binary_form=True) if tls is not None else None
    return end_point(certificate) if certificate else None


def _place(info: Mapping[Any, Any]) -> tuple[str, int] | None:
    """Where a router that closes the connection sends its client (AMQP 2.8.16)."""
    host, port = info.get("network-host"), info.get("port")
    return (host, port) if isinstance(host, str) and host and isinstance(port, int) and port else None


def why_failed(error: Exception) -> str:
    """What to say of an error of the socket, or of TLS."""
    if isinstance(error, ssl.SSLError):
        return reason(error)
    if not isinstance(error, OSError):
        return str(error)
    known = (error.errno or 0) > 0  # else a name that is not known; asyncio's own texts differ from loop to loop
    return os.strerror(error.errno or 0) if known else error.strerror or str(error)
