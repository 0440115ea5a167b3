"""`connect`: one logical connection to a network, over whichever router of the URL list answers.

The outermost layer of the client: sockets, clock, event loop.  It moves bytes between a socket and the `Endpoint`,
once per turn of the loop gives publishers' puts to their links, and when a router is lost goes on to the next.  Read
`publisher` and `subscriber` next, and `protocol` for what is really said.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import count
from types import TracebackType
from typing import get_args

from amqp10.errors import UNAUTHORIZED_ACCESS
from amqp10.events import ConnectionClosed as EngineClosed
from amqp10.sasl import Anonymous, Plain
from amqp10.settings import ConnectionSettings
from onceway.client.clock import now_s
from onceway.client.journal import Journal, MemoryJournal
from onceway.client.protocol.backoff import backoff_s
from onceway.client.protocol.endpoint import Endpoint
from onceway.client.protocol.events import Attached
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.client.publisher import Publisher
from onceway.client.reports import (
    LinkAttached,
    PublicationsUndecided,
    Report,
    RouterConnected,
    RouterLost,
    SubscriptionGap,
)
from onceway.client.signals import DONE, Changes, Done
from onceway.client.subscriber import Subscriber
from onceway.client.transport import Wire
from onceway.client.urls import RouterUrl, parse_urls
from onceway.errors import (
    AttachTimeout,
    AuthenticationFailed,
    ConnectionClosed,
    ConnectionFailed,
    InternalError,
    OncewayError,
    UsageError,
)
from router.config import Guarantee

TCP_TIMEOUT_S = 5.0  # for one router to take the connection
CLOSE_TIMEOUT_S = 5.0  # for a router to answer detach and close
PRODUCT = "onceway"  # what our routers call themselves in open
CREDIT_BYTES = 64 * 1024 * 1024  # of payload handed out or waiting, about


def connect(
    urls: str | Sequence[str],
    *,
    container: str | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    ordered: bool = False,
    connect_timeout_s: float | None = 30.0,
    on_report: Callable[[Report], None] | None = None,
    idle_timeout_s: float = 16.0,
    max_frame_size: int = 8 * 1024 * 1024,
) -> Connection:
    """A connection to the network: `async with connect(...) as connection:`, or `await connect(...)`.

    urls: `amqp://[user:password@]host[:port]`, several separated by commas or as a list.  The first one tried is
    chosen at random unless `ordered`; after a failure the next, with back-off from 50 ms to 5 s.
    container: the container-id.  Together with link names it identifies publishers and subscriptions for ever;
    leave it out only where nothing has to be resumed by another process (a random one is drawn, or the journal's
    is taken).
    journal: a path (embedded SQLite), a Journal, or None: then links survive routers' deaths, not their own.
    connect_timeout_s: how long the first connection may take (None: for ever); later ones are tried for ever.
    Raises UsageError, ConnectionFailed, AuthenticationFailed, JournalError.
    """
    if journal is None or isinstance(journal, str | os.PathLike):
        from onceway.client.sqlite_journal import SqliteJournal

        kept: Journal = MemoryJournal() if journal is None else SqliteJournal(journal)
        if journal is None and container is None:
            container = f"onceway-{secrets.token_hex(8)}"
    else:
        kept = journal
    return Connection(
        parse_urls(urls),
        container,
        kept,
        ordered=ordered,
        connect_timeout_s=connect_timeout_s,
        on_report=on_report,
        idle_timeout_s=idle_timeout_s,
        max_frame_size=max_frame_size,
    )


class Connection:
    """Made by `connect`.  Publishers and subscribers opened on it follow it from router to router."""

    def __init__(
        self,
        urls: list[RouterUrl],
        container: str | None,
        journal: Journal,
        *,
        ordered: bool,
        connect_timeout_s: float | None,
        on_report: Callable[[Report], None] | None,
        idle_timeout_s: float,
        max_frame_size: int,
    ) -> None:
        self.container = container or ""
        self.url = ""  # of the router it is connected to now, or was last
        self.router: str | None = None  # its container-id; None while there is no connection
        self._urls = urls
        self._journal = journal
        self._journalled = not isinstance(journal, MemoryJournal)
        self._connect_timeout_s = connect_timeout_s
        self._on_report = on_report
        self._idle_timeout_s = idle_timeout_s
        self._max_frame_size = max_frame_size
        self._leave_timeout_s = CLOSE_TIMEOUT_S
        self._rng = random.Random()
        self._next_url = 0 if ordered else self._rng.randrange(len(urls))
        self._reasons: dict[str, str] = {}
        self._pipelines = False  # routers are known to take a whole handshake at once
        self._owners: dict[int, Publisher | Subscriber] = {}  # by id of their links
        self._changes = Changes()
        self._wire: Wire | None = None
        self._lost: asyncio.Future[str] | None = None  # set when the connection at hand is over: why
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # ours to remember: uvloop's handle for a time that has come is none with a `when`
        self._scheduled = False
        self._durable: list[tuple[int, int, asyncio.Future[None]]] = []  # (number, tie, waiter), a heap
        self._ties = count()
        self._closing = False
        self._closed = False
        self._error: OncewayError | None = None
        self._runner: asyncio.Task[None] | None = None

    def __await__(self) -> Generator[object, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(timeout_s=None if error is None else 0.0)

    # -- for applications

    async def publisher(
        self,
        address: str,
        *,
        name: str | None = None,
        guarantee: str = "exactly-once",
        on_undecided: Callable[[PublicationsUndecided], None] | None = None,
        timeout_s: float | None = None,
    ) -> Publisher:
        """Attaches a sending link; returns when the router has answered it.

        name: the link name (default: the address).  guarantee: exactly-once, at-least-once, at-most-once; what
        was negotiated is `publisher.guarantee`, never silently less: LinkRefused if the router offers less.
        With a journal, what an earlier process left undecided is sent again first (`publisher.recovered`).
        on_undecided: told of publications that cannot be resumed; without it UndecidedPublications is raised, once.
        timeout_s: for the answer (None: as long as it takes; a network that recovers answers when it has).
        """
        self._check_usable()
        link = self._endpoint.publisher(address, name or address, _guarantee(guarantee), now_s())
        publisher = Publisher(self, link, on_undecided)
        await self._attach(link, publisher, timeout_s)
        if publisher._untold is not None:
            error = publisher._untold
            publisher._untold = None
            await publisher._leave(closed=False)
            raise error
        return publisher

    async def subscriber(
        self,
        address: str,
        *,
        name: str | None = None,
        guarantee: str = "exactly-once",
        credit: int = 1000,
        credit_bytes: int = CREDIT_BYTES,
        subscription_timeout_s: float | None = None,
        on_gap: Callable[[SubscriptionGap], None] | None = None,
        timeout_s: float | None = None,
    ) -> Subscriber:
        """Attaches a receiving link; returns when every router knows of it: what is published from then on comes.

        name: the link name (default: the address).  credit: deliveries handed out or waiting here that are not
        accepted yet, at most; credit_bytes: about so much of payload.  subscription_timeout_s: how long the network
        waits for it while it is away (None: as long as the address allows).  on_gap: told when messages may have been
        missed; without it the subscriber raises SubscriptionBroken once.
        """
        self._check_usable()
        if credit < 1:
            raise UsageError("credit must be at least 1")
        link = self._endpoint.subscriber(
            address,
            name or address,
            _guarantee(guarantee),
            now_s(),
            credit=credit,
            credit_bytes=credit_bytes,
            subscription_timeout_s=subscription_timeout_s,
        )
        subscriber = Subscriber(self, link, on_gap)
        await self._attach(link, subscriber, timeout_s)
        return subscriber

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Waits for the outcomes under way and for accepts to be on the wire, then detaches and closes.

        With a journal, subscriptions and publishers are only detached: the next process goes on with them.
        Without one they are closed: nothing is kept waiting for somebody who cannot come back.
        timeout_s bounds the wait; what is undecided then stays in the journal, or ends as DeliveryUndecided.
        """
        if self._closed:
            return
        self._closing = True
        owners = list(self._owners.values())
        for owner in owners:
            owner._closing = True
            owner._flush(now_s())
            owner._refresh()
        await self._changes.until(lambda: self._error or not any(_busy(owner) for owner in owners), timeout_s)
        if self._wire is None:
            self._leave_timeout_s = 0.0
        await asyncio.gather(*(owner._leave(closed=not self._journalled) for owner in owners))
        await self._shut()

    # -- opening and closing

    async def _open(self) -> Connection:
        if self._runner is not None or self._closed:
            raise UsageError("a connection is opened once")
        self._loop = asyncio.get_running_loop()
        self.container = self._journal.open(self.container or None, self._journal_moved)
        self._endpoint = Endpoint(self.container, self._journal, wall_us=_wall_us, rng=self._rng)
        self._runner = asyncio.create_task(self._run(), name=f"onceway {self.container}")
        try:
            up = await self._changes.until(lambda: self.router is not None or self._error, self._connect_timeout_s)
        except BaseException:
            await self._shut()
            raise
        if self._error is not None or not up:
            await self._shut()
            reasons = "; ".join(f"{url}: {reason}" for url, reason in self._reasons.items())
            raise self._error or ConnectionFailed(
                f"no router reached within {self._connect_timeout_s:g} s ({reasons})", self._reasons
            )
        return self

    async def _shut(self) -> None:
        """Close what there is, whatever state it is in."""
        self._closing = True
        if self._runner is not None:
            lost = self._lost
            if self._wire is not None and lost is not None:
                self._endpoint.close()
                self._step()
                await asyncio.wait([lost], timeout=CLOSE_TIMEOUT_S)
            self._runner.cancel()
            await asyncio.wait([self._runner])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._wire is not None:
            self._wire.abort()
        self._closed = True
        self.router = None
        try:
            if not self._runner or self._journal.failure is None:
                await asyncio.to_thread(self._journal.close)
        finally:
            gone = ConnectionClosed("the connection is closed")
            for owner in list(self._owners.values()):
                owner._link.fail(self._error or gone)
                owner._handle(owner._link.take_events())
            self._wake_durable(final=True)
            self._changes.notify()

    async def _run(self) -> None:
        """One router after the other."""
        failures = 0
        while not self._closing:
            url = self._urls[self._next_url]
            self._next_url = (self._next_url + 1) % len(self._urls)
            self.url = str(url)
            reason = await self._use(url)
            if self.router is not None:
                failures = 0
            self.router = None
            self._reasons[self.url] = reason
            if self._error is not None or self._closing:
                self._changes.notify()
                return
            delay = backoff_s(failures, self._rng)
            failures += 1
            self._report(RouterLost(self.url, reason, delay))
            await asyncio.sleep(delay)

    async def _use(self, url: RouterUrl) -> str:
        """Connect to this router and stay until that is over; returns why it is."""
        self._lost = self._loop.create_future()
        wire = Wire(self)
        try:
            async with asyncio.timeout(TCP_TIMEOUT_S):
                await self._loop.create_connection(lambda: wire, url.host, url.port)
        except TimeoutError:
            return f"no answer within {TCP_TIMEOUT_S:g} s"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
        self._wire = wire
        settings = ConnectionSettings(
            container_id=self.container,
            hostname=url.host,
            max_frame_size=self._max_frame_size,
            idle_timeout_s=self._idle_timeout_s,
            sasl=Anonymous() if url.user is None else Plain(url.user, url.password or ""),
            pipelined=url.user is None and self._pipelines,
        )
        self._pipelines = False  # until this one is open
        self._endpoint.connect(settings, now_s())
        self._step()
        try:
            return await self._lost
        finally:
            self._wire = None
            wire.close()
            self._endpoint.lost(now_s(), "the connection was lost")
            self._hand_over()

    # -- the socket

    def wire_received(self, wire: Wire, data: bytes) -> None:
        if wire is not self._wire or self._endpoint.connection is None:
            return
        try:
            self._ended(self._endpoint.receive_data(data, now_s()))
            # Tell the application now and write in the next turn: what it does about it (the next message, an accept)
            # leaves together with our answers, in one system call.
            self._hand_over()
        except Exception as error:
            self._defect(error)
            raise
        self._soon()

    def wire_ended(self, wire: Wire) -> None:
        if wire is self._wire and self._endpoint.connection is not None:
            self._ended(self._endpoint.receive_eof(now_s()))
            self._step()

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
        if closed.error.condition == UNAUTHORIZED_ACCESS and not self._endpoint.opened:
            self._refused(reason)
        self._give_up(reason)

    def _refused(self, reason: str) -> None:
        """Who we are is not accepted.  Final only before the first connection: later another router may be right."""
        if not self._owners and self.router is None:
            self._error = AuthenticationFailed(
                f"{self.url} does not accept this user and password ({reason})", {self.url: reason}
            )

    def _give_up(self, reason: str) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)

    # -- once per turn

    def _soon(self) -> None:
        """Somebody has put something: a step at the end of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._step()

    def _step(self) -> None:
        """Puts go in, events go out, bytes go out, the timer is set."""
        if self._closed:
            return
        now = now_s()
        try:
            for owner in list(self._owners.values()):
                owner._flush(now)
            self._hand_over()
            self._write()
            self._arm(now)
        except Exception as error:
            self._defect(error)
            raise

    def _defect(self, error: Exception) -> None:
        """Something here is not as it must be: send nothing more, and tell everybody who waits."""
        if self._error is None:
            self._error = InternalError(f"onceway's client failed: {type(error).__name__}: {error}")
            self._error.__cause__ = error
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.abort()
            self._give_up(str(self._error))
            for owner in list(self._owners.values()):
                owner._link.fail(self._error)
                owner._handle(owner._link.take_events())
            self._wake_durable(final=True)
            self._changes.notify()

    def _write(self) -> None:
        if self._wire is not None:
            self._wire.write(self._endpoint.data_to_send())

    def _opened(self) -> None:
        connection = self._endpoint.connection
        assert connection is not None
        assert connection.remote_open is not None
        self.router = connection.remote_open.container_id
        # Other brokers may take what comes early for something else: once one router is ours, the others will be.
        self._pipelines = (connection.remote_open.properties or {}).get("product") == PRODUCT
        self._report(RouterConnected(self.url, self.router))
        self._changes.notify()

    def _hand_over(self) -> None:
        if self._endpoint.opened and self.router is None:
            self._opened()
        for owner in list(self._owners.values()):
            if owner._link.events:
                owner._handle(owner._link.take_events())
            else:
                owner._refresh()
        if self._durable:
            self._wake_durable()
        if self._closing:
            self._changes.notify()

    def _arm(self, now: float) -> None:
        """The timer runs at or before the next deadline: a deadline that moves back costs nothing.  While the machine
        sleeps it stands still, so that it may be late by what it had left."""
        deadline = self._endpoint.next_deadline()
        timer = self._timer
        if deadline is None:
            return
        if timer is not None:
            if self._timer_at <= deadline:
                return
            timer.cancel()
        self._timer_at = max(deadline, now)
        self._timer = self._loop.call_later(self._timer_at - now, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._closed:
            return
        try:
            self._ended(self._endpoint.handle_timer(now_s()))
        except Exception as error:
            self._defect(error)
            raise
        self._step()

    # -- the journal

    def _journal_moved(self) -> None:
        """From the journal's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._journal_advanced)

    def _journal_advanced(self) -> None:
        if self._closed:
            return
        try:
            failure = self._endpoint.durable(now_s())
        except Exception as error:
            self._defect(error)
            raise
        if failure is not None and self._error is None:
            self._error = failure
            self._give_up(str(failure))
        self._step()

    def _durably(self, number: int) -> Awaitable[None]:
        """Done when the journal has got to this number."""
        if number <= self._journal.durable:
            return DONE
        if self._journal.failure is not None:
            return Done(self._journal.failure)
        waiter: asyncio.Future[None] = self._loop.create_future()
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
                waiter.set_exception(failure or self._error or ConnectionClosed("the connection is closed"))
                waiter.exception()  # a verdict that nobody awaits is no forgotten error

    # -- for publishers and subscribers

    async def _attach(
        self, link: PublisherLink | SubscriberLink, owner: Publisher | Subscriber, timeout_s: float | None
    ) -> None:
        self._owners[id(link)] = owner
        self._step()
        answered = False
        try:
            answered = await owner._changes.until(lambda: owner._attached or owner._error, timeout_s)
        finally:
            if not answered:
                owner._over = True
                self._leave(link, closed=False)
                self._forget(link)
        if owner._error is not None:
            self._forget(link)
            raise owner._error
        if not answered:
            raise AttachTimeout(
                f"{link.role} {link.name} of {link.address} was not attached within {timeout_s:g} s; "
                "the network may be recovering: its routers' /readyz says so"
            )

    def _leave(self, link: PublisherLink | SubscriberLink, closed: bool) -> None:
        link.leave(closed, now_s())
        self._step()

    def _forget(self, link: PublisherLink | SubscriberLink) -> None:
        if self._owners.pop(id(link), None) is not None:
            self._endpoint.remove(link)
            self._step()

    def _tell_attached(self, link: PublisherLink | SubscriberLink, event: Attached) -> None:
        self._report(
            LinkAttached(link.role, link.address, link.name, self.router or "", event.resumed, event.guarantee)
        )

    def _report(self, report: Report) -> None:
        """The application's callbacks run by themselves: what they raise is theirs."""
        if self._on_report is not None:
            self._loop.call_soon(self._on_report, report)

    def _check_usable(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closing or self._runner is None:
            raise ConnectionClosed("the connection is closed")


def _busy(owner: Publisher | Subscriber) -> bool:
    """Something of it is still under way."""
    if owner._error is not None or owner._over:
        return False
    return owner.unsettled > 0 if isinstance(owner, Publisher) else owner._link.deciding > 0


def _guarantee(word: str) -> Guarantee:
    for guarantee in get_args(Guarantee):
        if word == guarantee:
            found: Guarantee = guarantee
            return found
    raise UsageError(f"guarantee {word!r}: one of {', '.join(get_args(Guarantee))}")


def _wall_us() -> int:
    return time.time_ns() // 1000
