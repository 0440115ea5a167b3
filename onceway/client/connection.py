"""`connect`: one logical connection to a network, over whichever router of the URL list answers.

Skeleton of the API; the body follows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from types import TracebackType

from onceway.client.journal import Journal
from onceway.client.publisher import Publisher
from onceway.client.reports import PublicationsUndecided, Report, SubscriptionGap
from onceway.client.subscriber import Subscriber


def connect(
    urls: str | Sequence[str],
    *,
    container: str | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    ordered: bool = False,
    connect_timeout_s: float | None = 30.0,
    on_report: Callable[[Report], None] | None = None,
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
    return Connection()


class Connection:
    """Made by `connect`.  Publishers and subscribers opened on it follow it from router to router."""

    url: str  # of the router it is connected to now, or was last
    router: str | None  # that router's container-id; None while there is no connection
    container: str

    def __await__(self) -> Generator[None, None, Connection]:
        raise NotImplementedError

    async def __aenter__(self) -> Connection:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    async def publisher(
        self,
        address: str,
        *,
        name: str | None = None,
        guarantee: str = "exactly-once",
        on_undecided: Callable[[PublicationsUndecided], None] | None = None,
        timeout_s: float | None = 30.0,
    ) -> Publisher:
        """Attaches a sending link; returns when the router has answered it.

        name: the link name (default: the address).  guarantee: exactly-once, at-least-once, at-most-once; what
        was negotiated is `publisher.guarantee`, never silently less: LinkRefused if the router offers less.
        With a journal, what an earlier process left undecided is sent again first (`publisher.recovered`).
        """
        raise NotImplementedError

    async def subscriber(
        self,
        address: str,
        *,
        name: str | None = None,
        guarantee: str = "exactly-once",
        credit: int = 1000,
        subscription_timeout_s: float | None = None,
        on_gap: Callable[[SubscriptionGap], None] | None = None,
        timeout_s: float | None = 30.0,
    ) -> Subscriber:
        """Attaches a receiving link; returns when every router knows of it: what is published from then on comes.

        name: the link name (default: the address).  credit: deliveries handed out or waiting here that are not
        accepted yet, at most.  subscription_timeout_s: how long the network waits for it while it is away (None:
        as long as the address allows).  on_gap: told when messages may have been missed; without it the
        subscriber raises SubscriptionBroken once.
        """
        raise NotImplementedError

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Waits for the outcomes under way and for accepts to be on the wire, then detaches and closes.

        With a journal, subscriptions and publishers are only detached: the next process goes on with them.
        Without one they are closed: nothing is kept waiting for somebody who cannot come back.
        timeout_s bounds the wait; what is undecided then stays in the journal, or is reported.
        """
        raise NotImplementedError
