"""`connect`: one logical connection to a network, over whichever router of the URL list answers.

This module is what applications call first, and it decides which router is tried next when one is lost.  `driver` moves
bytes between the socket and the `Endpoint`, once per turn of the event loop; `publisher` and `subscriber` are opened
here; `protocol` holds the rules.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import ssl
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from amqp10.settings import ConnectionSettings
from onceway.access.contexts import tls_context
from onceway.base import waits
from onceway.client.clock import now_s
from onceway.client.credentials import Credentials, Login, login_for
from onceway.client.driver import Driver
from onceway.client.journal import Journal, MemoryJournal
from onceway.client.protocol.contact import backoff_s
from onceway.client.publisher import Publisher
from onceway.client.reports import PublicationsUndecided, Report, RouterLost, SubscriptionGap
from onceway.client.subscriber import Subscriber
from onceway.client.tracing import tracing_of
from onceway.client.urls import RouterUrl, parse_urls
from onceway.errors import ConnectionClosed, ConnectionFailed, UndecidedPublications, UsageError
from router.names import GUARANTEES, Guarantee

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from onceway.client.outbox import Outbox

REDIRECT_EVERY_S = 1.0  # a second router that sends us away sooner counts as a failure: all may be stopping
CREDIT_BYTES = 64 * 1024 * 1024  # about so much payload handed out or waiting
CLOSE_TIMEOUT_S = 90.0  # longer than the network waits, by default, for a subscriber that holds a message


def connect(
    urls: str | Sequence[str],
    *,
    container: str | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    ordered: bool = False,
    connect_timeout_s: float | None = 30.0,
    close_timeout_s: float | None = CLOSE_TIMEOUT_S,
    on_report: Callable[[Report], None] | None = None,
    idle_timeout_s: float = 16.0,
    max_frame_size: int = 8 * 1024 * 1024,
    tls: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
    tracing: TracerProvider | bool = True,
) -> Connection:
    """Connects to the network: `async with connect(...) as connection:`, or `connection = await connect(...)`.

    Args:
        urls: `amqp://[user:password@]host[:port]`, or `amqps://` for TLS, several separated by commas or as a list.
            `ws://` and `wss://` are the same in a WebSocket.
            The client starts with a random one, and goes to the next after a failure, with a back-off from 50 ms to
            5 s.
        container: The container-id.  With the link names it identifies publishers and subscriptions for ever.  Leave it
            out where no other process has to resume them: the journal's is taken, or a random one.
        journal: A path (embedded SQLite), a `Journal`, or None: then links survive the deaths of routers, but not this
            process's own.
        ordered: Start with the first URL.
        connect_timeout_s: How long the first connection may take, in seconds; None: for ever.  Later ones are tried for
            ever.
        close_timeout_s: How long `close`, and leaving `async with`, wait for outcomes, in seconds; None: for ever.
        on_report: Called with each `Report`: what happens to the connection and its links by itself.
        idle_timeout_s: A router that is silent for so long, in seconds, is taken for lost.
        max_frame_size: The largest frame that routers may send, in bytes.
        tls: For `amqps://`: what `onceway.tls_context` or Python's `ssl` makes.  None: routers show certificates that
            the system trusts, and this client shows none.
        credentials: Who this client is, to all routers.  None: what the URLs say, or nobody in particular.
        tracing: Who makes OpenTelemetry's spans, where `opentelemetry-api` is installed (docs/tracing.md).  True: the
            global tracer provider, if one is configured when a publisher or subscriber is opened.  False: nobody; no
            message gets a trace context.

    Raises:
        UsageError: A URL or an argument is wrong.
        ConnectionFailed: No router answered in time; `reasons` says why, by URL.
        AuthenticationFailed: A router does not let this client in.
        JournalError: The journal cannot be opened.

    Example:
        ```python
        async with onceway.connect("amqp://127.0.0.1:5672", journal="shop.journal") as connection:
            publisher = await connection.publisher("orders")
            await publisher.send(b"one order")
        ```
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
        close_timeout_s=close_timeout_s,
        on_report=on_report,
        idle_timeout_s=idle_timeout_s,
        max_frame_size=max_frame_size,
        tls=tls,
        credentials=credentials,
        tracing=tracing,
    )


class Connection:
    """One client's connection to the network; `connect` makes it.

    When a router is lost, the connection goes to the next one of its list, and its publishers and subscribers resume
    there.  An application need not do anything about that.  Use it from one event loop; `onceway.sync` is the same for
    threads.

    Attributes:
        container: The container-id.  With the link names it identifies publishers and subscriptions.
    """

    def __init__(
        self,
        urls: list[RouterUrl],
        container: str | None,
        journal: Journal,
        *,
        ordered: bool,
        connect_timeout_s: float | None,
        close_timeout_s: float | None,
        on_report: Callable[[Report], None] | None,
        idle_timeout_s: float,
        max_frame_size: int,
        tls: ssl.SSLContext | None,
        credentials: Credentials | None,
        tracing: TracerProvider | bool,
    ) -> None:
        self.container = container or ""
        self._urls = urls
        if credentials is not None and any(url.user is not None for url in urls):
            raise UsageError("credentials, and a user in a URL: give one of them")
        self._logins = {url: login_for(url, credentials) for url in urls}
        if tls is None and any(url.secure for url in urls):
            tls = tls_context()
        self._driver = Driver(journal, on_report, close_timeout_s, tls, tracing_of(tracing))
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._max_frame_size = max_frame_size
        self._rng = random.Random()
        self._next_url = 0 if ordered else self._rng.randrange(len(urls))
        self._reasons: dict[str, str] = {}
        self._runner: asyncio.Task[None] | None = None

    def __await__(self) -> Generator[object, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        undecided = await self.close(timeout_s=None if error is None else 0.0)
        lost = [report for report in undecided if not report.kept]
        if lost and error is None:
            publications = [publication for report in lost for publication in report.publications]
            raise UndecidedPublications("; ".join(map(str, lost)), publications)

    def __repr__(self) -> str:
        driver = self._driver
        publishers = sum(isinstance(owner, Publisher) for owner in driver.owners.values())
        if driver.closed:
            state = "closed"
        elif driver.router is not None:
            state = f"connected to router {driver.router!r} at {driver.url}"
        else:
            state = "not opened yet" if self._runner is None else f"connecting to {', '.join(map(str, self._urls))}"
        links = f"publishers: {publishers}, subscribers: {len(driver.owners) - publishers}"
        return f"<Connection of container {self.container!r}, {state}; {links}>"

    # -- for applications

    @property
    def url(self) -> str:
        """URL of the router that it is connected to now, or was last; without user and password."""
        return self._driver.url

    @property
    def router(self) -> str | None:
        """Container-id of the router; None while there is no connection."""
        return self._driver.router

    async def publisher(
        self,
        address: str,
        *,
        name: str | None = None,
        guarantee: str = "exactly-once",
        journalled: bool = True,
        on_undecided: Callable[[PublicationsUndecided], None] | None = None,
        timeout_s: float | None = None,
    ) -> Publisher:
        """Opens a publisher; returns when a router has answered its attach.

        With a journal, what an earlier process left undecided is sent again first (`publisher.recovered`).

        Args:
            address: The topic.
            name: The link name, unique among the publishers of this container and address.  Default: the address.
            guarantee: `exactly-once`, `at-least-once` or `at-most-once`.  `publisher.guarantee` is what was negotiated;
                it is never less.
            journalled: False: this publisher is not in the connection's journal. What has no outcome when the process
                dies may or may not have arrived, and is not sent again. No write to the disk is waited for, and the
                name must be one that no process has used before.
            on_undecided: Called with publications that the network cannot decide any more.  Without it, the publisher
                raises `UndecidedPublications` once.
            timeout_s: How long to wait for the answer, in seconds.  None: for ever; a network that is recovering
                answers when it has recovered.

        Raises:
            AttachTimeout: There was no answer in time.
            LinkRefused: The router refuses the address, or offers less than this guarantee.
            LinkStolen: Another process has this container-id and link name.
            UndecidedPublications: See `on_undecided`; open the publisher again to go on.
            UsageError: The name is in use on this connection.
            ConnectionClosed, JournalError: The connection or its journal cannot go on.
        """
        self._check_usable()
        journalled = journalled and self._driver.journalled
        asked = _guarantee(guarantee)
        link = self._driver.endpoint.publisher(address, name or address, asked, now_s(), journalled=journalled)
        publisher = Publisher(self._driver, link, on_undecided, journalled=journalled)
        await self._driver.attach(link, publisher, timeout_s)
        try:
            publisher._raise_unreported()
        except UndecidedPublications:
            await publisher._leave(closed=False)
            raise
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
        only_new: bool = False,
        filters: Mapping[str, Any] | None = None,
        on_gap: Callable[[SubscriptionGap], None] | None = None,
        timeout_s: float | None = None,
    ) -> Subscriber:
        """Opens a subscriber; returns when every router knows of it.  What is published from then on arrives.

        Args:
            address: The topic.
            name: The link name, unique among the subscribers of this container and address.  Default: the address.
            guarantee: `exactly-once`, `at-least-once` or `at-most-once`.  `subscriber.guarantee` is what was
                negotiated; it is never less.
            credit: How many deliveries without outcome the network may have sent here.
            credit_bytes: About how many bytes of payload these may be.
            subscription_timeout_s: How long the network keeps messages for this subscription while it is disconnected,
                in seconds.  None: as long as the address allows; `subscriber.granted_timeout_s` is what it got.
            only_new: Refuse (`LinkRefused`) where the network has a subscription of this name that the journal knows
                nothing of.  Without it, this one takes its place.
            filters: The filter set of the source (AMQP 3.5.8).  A subscription must keep its filters.
            on_gap: Called when messages may have been missed.  Without it, the subscriber raises `SubscriptionBroken`
                once.
            timeout_s: How long to wait for the answer, in seconds.  None: for ever.

        Raises:
            AttachTimeout: There was no answer in time.
            LinkRefused: The router refuses the address, or offers less than this guarantee.
            LinkStolen: Another process has this container-id and link name.
            UsageError: The name is in use on this connection, or `credit` is less than 1.
            ConnectionClosed, JournalError: The connection or its journal cannot go on.
        """
        self._check_usable()
        if credit < 1:
            raise UsageError("credit must be at least 1")
        link = self._driver.endpoint.subscriber(
            address,
            name or address,
            _guarantee(guarantee),
            now_s(),
            credit=credit,
            credit_bytes=credit_bytes,
            subscription_timeout_s=subscription_timeout_s,
            only_new=only_new,
            filters=filters,
        )
        subscriber = Subscriber(self._driver, link, on_gap)
        await self._driver.attach(link, subscriber, timeout_s)
        return subscriber

    def outbox(self, address: str, *, name: str | None = None, poll_s: float = 1.0) -> Outbox:
        """What applications hand over in their transactions (`onceway.client.outbox`), sent once each, in order.

        Args:
            address: The topic or queue.
            name: The publisher's link name. Default: the address.
            poll_s: How often it looks for what other processes have handed over, in seconds.

        Raises:
            UsageError: The connection's journal is no `DatabaseJournal`.
        """
        from onceway.client.database_journal import DatabaseJournal
        from onceway.client.outbox import Outbox

        if not isinstance(self._driver._journal, DatabaseJournal):
            raise UsageError("an outbox needs the journal of its database: connect(..., journal=DatabaseJournal(...))")
        return Outbox(self, address, name or address, poll_s)

    async def close(self, *, timeout_s: float | None = None) -> list[PublicationsUndecided]:
        """Waits for the outcomes of publications, then detaches and closes.  Leaving `async with` does this.

        With a journal, publishers and subscriptions are only detached, and the next process resumes them.  Without one
        they are closed: the network does not wait for a process that cannot come back.

        What has no outcome after the timeout is logged and reported.  With a journal it stays there, and the next
        process sends it again.  Without one it may or may not have arrived: its publications raise
        `DeliveryUndecided`, and leaving `async with` raises `UndecidedPublications`.  A block that is left by an
        exception does not wait for outcomes.

        Args:
            timeout_s: How long to wait, in seconds.  None: the connection's `close_timeout_s`.  Detaching and closing
                take at most 10 s more.

        Returns:
            What was left undecided, by publisher.  Empty as a rule.
        """
        driver = self._driver
        if driver.closed:
            return []
        driver.closing = True
        owners = list(driver.owners.values())
        for owner in owners:
            owner._retire(closed=not owner.journalled)
        bound_s = driver.close_timeout_s if timeout_s is None else timeout_s
        closed = driver.changes.until(lambda: driver.error or not any(owner._busy for owner in owners), bound_s)
        await waits.CLOSING(closed)
        if not driver.connected:
            driver.leave_timeout_s = 0.0
        undecided = [owner._left_undecided() for owner in owners if isinstance(owner, Publisher)]
        undecided = [report for report in undecided if report.publications]
        for report in undecided:
            driver.report(report)
        await asyncio.gather(*(owner._leave(closed=not owner.journalled) for owner in owners))
        await self._shut()
        return undecided

    # -- opening and closing

    async def _open(self) -> Connection:
        driver = self._driver
        if self._runner is not None or driver.closed:
            raise UsageError("a connection is opened once")
        self.container = driver.open(self.container or None, self._rng)
        self._runner = asyncio.create_task(self._run(), name=f"onceway {self.container}")
        self._runner.add_done_callback(driver.runner_ended)
        try:
            up = await waits.FIRST_CONNECTION(
                driver.changes.until(lambda: driver.router is not None or driver.error, self._connect_timeout_s)
            )
        except BaseException:
            await self._shut()
            raise
        if driver.error is not None or not up:
            await self._shut()
            reasons = "; ".join(f"{url}: {reason}" for url, reason in self._reasons.items())
            raise driver.error or ConnectionFailed(
                f"no router reached within {self._connect_timeout_s:g} s ({reasons})", self._reasons
            )
        return self

    async def _shut(self) -> None:
        """Close what there is, whatever state it is in."""
        self._driver.closing = True
        if self._runner is not None:
            await self._driver.close_current()
            self._runner.cancel()
            await asyncio.wait([self._runner])
        await self._driver.shut()

    async def _run(self) -> None:
        """Uses one router after the other."""
        driver = self._driver
        failures = 0
        named: RouterUrl | None = None  # by the router that was left
        followed_at = -REDIRECT_EVERY_S
        while not driver.closing:
            url = self._next(named)
            patience_s = (waits.CONNECT if url in self._urls else waits.CONNECT_NAMED).s
            reason = await driver.use(url, self._settings, patience_s)
            if driver.router is not None:
                failures = 0
            driver.router = None
            self._reasons[str(url)] = reason
            if driver.error is not None or driver.closing:
                driver.changes.notify()
                return
            named = self._named(url)
            if named is not None and now_s() - followed_at >= REDIRECT_EVERY_S:
                followed_at = now_s()
                driver.report(RouterLost(str(url), reason, 0.0))
                continue
            delay = backoff_s(failures // len(self._urls), self._rng)  # all of the list before a longer pause
            failures += 1
            driver.report(RouterLost(str(url), reason, delay))
            await asyncio.sleep(delay)

    def _next(self, named: RouterUrl | None) -> RouterUrl:
        """The router that was named, or the next of the list."""
        if named is None:
            named = self._urls[self._next_url]
        if named in self._urls:
            self._next_url = (self._urls.index(named) + 1) % len(self._urls)
        return named

    def _named(self, url: RouterUrl) -> RouterUrl | None:
        """The router that this one has sent us to. User and password go only to the hosts that the application has
        given."""
        place = self._driver.sent_to
        if place is None:
            return None
        named = RouterUrl(*place, url.user, url.password, url.scheme)
        return named if self._login(url).credentials is None or named in self._urls else None

    def _login(self, url: RouterUrl) -> Login:
        return self._logins.get(url) or login_for(url)

    def _settings(self, url: RouterUrl, end_point: bytes | None) -> ConnectionSettings:
        login = self._login(url)
        return ConnectionSettings(
            container_id=self.container,
            hostname=url.host,
            max_frame_size=self._max_frame_size,
            idle_timeout_s=self._idle_timeout_s,
            sasl=login.sasl(url.host, secure=url.secure, end_point=end_point),
            pipelined=login.credentials is None and self._driver.pipelines,
        )

    def _check_usable(self) -> None:
        if self._driver.error is not None:
            raise self._driver.error
        if self._driver.closing or self._runner is None:
            raise ConnectionClosed("the connection is closed")


def _guarantee(word: str) -> Guarantee:
    for guarantee in GUARANTEES:
        if word == guarantee:
            return guarantee
    raise UsageError(f"guarantee {word!r}: one of {', '.join(GUARANTEES)}")
