"""`connect`: one logical connection to a network, over whichever router of the URL list answers.

What applications call, and which router comes next when one is lost.  `driver` moves bytes between the socket and the
`Endpoint`, once per turn of the loop; `publisher` and `subscriber` are what is opened here; read `protocol` for what is
really said.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import get_args

from amqp10.sasl import Anonymous, Plain
from amqp10.settings import ConnectionSettings
from onceway.client.clock import now_s
from onceway.client.driver import Driver
from onceway.client.journal import Journal, MemoryJournal
from onceway.client.protocol.backoff import backoff_s
from onceway.client.publisher import Publisher
from onceway.client.reports import PublicationsUndecided, Report, RouterLost, SubscriptionGap
from onceway.client.subscriber import Subscriber
from onceway.client.urls import RouterUrl, parse_urls
from onceway.errors import ConnectionClosed, ConnectionFailed, UsageError
from router.config import Guarantee

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
        self._urls = urls
        self._driver = Driver(journal, on_report)
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
        await self.close(timeout_s=None if error is None else 0.0)

    # -- for applications

    @property
    def url(self) -> str:
        """Of the router it is connected to now, or was last."""
        return self._driver.url

    @property
    def router(self) -> str | None:
        """Its container-id; None while there is no connection."""
        return self._driver.router

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
        link = self._driver.endpoint.publisher(address, name or address, _guarantee(guarantee), now_s())
        publisher = Publisher(self._driver, link, on_undecided)
        await self._driver.attach(link, publisher, timeout_s)
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
        link = self._driver.endpoint.subscriber(
            address,
            name or address,
            _guarantee(guarantee),
            now_s(),
            credit=credit,
            credit_bytes=credit_bytes,
            subscription_timeout_s=subscription_timeout_s,
        )
        subscriber = Subscriber(self._driver, link, on_gap)
        await self._driver.attach(link, subscriber, timeout_s)
        return subscriber

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Waits for the outcomes under way and for accepts to be on the wire, then detaches and closes.

        With a journal, subscriptions and publishers are only detached: the next process goes on with them.
        Without one they are closed: nothing is kept waiting for somebody who cannot come back.
        timeout_s bounds the wait; what is undecided then stays in the journal, or ends as DeliveryUndecided.
        """
        driver = self._driver
        if driver.closed:
            return
        driver.closing = True
        owners = list(driver.owners.values())
        for owner in owners:
            owner._closing = True
            owner._flush(now_s())
            owner._refresh()
        await driver.changes.until(lambda: driver.error or not any(_busy(owner) for owner in owners), timeout_s)
        if not driver.connected:
            driver.leave_timeout_s = 0.0
        await asyncio.gather(*(owner._leave(closed=not driver.journalled) for owner in owners))
        await self._shut()

    # -- opening and closing

    async def _open(self) -> Connection:
        driver = self._driver
        if self._runner is not None or driver.closed:
            raise UsageError("a connection is opened once")
        self.container = driver.open(self.container or None, self._rng)
        self._runner = asyncio.create_task(self._run(), name=f"onceway {self.container}")
        try:
            up = await driver.changes.until(lambda: driver.router is not None or driver.error, self._connect_timeout_s)
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
            await self._driver.say_goodbye()
            self._runner.cancel()
            await asyncio.wait([self._runner])
        await self._driver.shut()

    async def _run(self) -> None:
        """One router after the other."""
        driver = self._driver
        failures = 0
        while not driver.closing:
            url = self._urls[self._next_url]
            self._next_url = (self._next_url + 1) % len(self._urls)
            reason = await driver.use(url, self._settings(url))
            if driver.router is not None:
                failures = 0
            driver.router = None
            self._reasons[str(url)] = reason
            if driver.error is not None or driver.closing:
                driver.changes.notify()
                return
            delay = backoff_s(failures, self._rng)
            failures += 1
            driver.report(RouterLost(str(url), reason, delay))
            await asyncio.sleep(delay)

    def _settings(self, url: RouterUrl) -> ConnectionSettings:
        return ConnectionSettings(
            container_id=self.container,
            hostname=url.host,
            max_frame_size=self._max_frame_size,
            idle_timeout_s=self._idle_timeout_s,
            sasl=Anonymous() if url.user is None else Plain(url.user, url.password or ""),
            pipelined=url.user is None and self._driver.pipelines,
        )

    def _check_usable(self) -> None:
        if self._driver.error is not None:
            raise self._driver.error
        if self._driver.closing or self._runner is None:
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
