"""A publisher for asyncio: bodies go in, outcomes come out as awaitables.

A put only appends to a list.  Once per turn of the event loop the list becomes one run of messages (`publishing`), one
journal group and one block of transfers.  A message costs a number, a payload and, unless `put_many` was used, a small
`Publication`; there is a future only where somebody awaits a publication before it is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from amqp10.outcomes import Accepted
from onceway.base.waits import CLOSING, DETACH, OUTCOME
from onceway.client.bodies import Body, encode_body
from onceway.client.clock import now_s
from onceway.client.protocol.events import (
    Attached,
    Decided,
    Detached,
    Failed,
    LinkEvent,
    Lost,
    Undecided,
    Waits,
)
from onceway.client.protocol.link import CLOSED
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.publications import Publication, Publications, not_accepted
from onceway.client.reports import PublicationsUndecided, PublisherWaiting, waiting_from
from onceway.client.signals import Changes
from onceway.errors import (
    ConnectionClosed,
    DeliveryUndecided,
    JournalError,
    PublisherFull,
    SendTimeout,
    UndecidedPublications,
    UsageError,
)

if TYPE_CHECKING:
    from onceway.client.driver import Driver
    from onceway.client.tracing import Sending

_CHUNK = 1024  # messages that put_many hands over at a time


class Publisher:
    """Publishes messages to one address; `Connection.publisher` makes it.

    Attributes:
        address: The topic.
        name: The link name.
        guarantee: What was negotiated: `exactly-once`, `at-least-once` or `at-most-once`.
        sequence: The number of the next message: how many were ever published under this name.
        accepted: How many publications every subscriber has accepted.
        rejected: How many had another outcome.
        waiting: Why it gets no credit, where that has been so for some seconds and the router has said why; else None.
        recovered: What an earlier process left undecided.  It is sent again, first, and has outcomes like any other.
        journalled: What it publishes is in a journal until it has its outcome.
    """

    def __init__(
        self,
        driver: Driver,
        link: PublisherLink,
        on_undecided: Callable[[PublicationsUndecided], None] | None,
        *,
        journalled: bool,
    ) -> None:
        self.address = link.address
        self.name = link.name
        self.guarantee: str = link.guarantee
        self.accepted = 0
        self.rejected = 0
        self.sequence = link.sequence
        self.waiting: PublisherWaiting | None = None
        self._waiting_told = False  # to the application
        self._waiters = 0  # calls that wait for credit
        self._driver = driver
        self._link = link
        self._on_undecided = on_undecided
        self._queue: list[bytes] = []  # taken in this turn of the loop
        self._scheduled = False
        self._room = 0
        self._open: dict[int, Publication] = {number: Publication(self, number) for number, _ in link.undecided}
        self._many: list[Publications] = []
        self._changes = Changes()
        self._attached = False
        self._error: Exception | None = None
        self._closed = False
        self._closing = False
        self._unreported: UndecidedPublications | None = None
        self.recovered: list[Publication] = list(self._open.values())
        self.journalled = journalled
        tracing = driver.tracing
        self._spans = None if tracing is None else tracing.publisher(link.address, lambda: self.max_message_bytes)

    def __repr__(self) -> str:
        state = "closed" if self._closed or self._error is not None else self._link.state
        counts = f"accepted: {self.accepted}, rejected: {self.rejected}, unsettled: {self.unsettled}"
        return f"<Publisher {self.name!r} of {self.address!r}, {self.guarantee}, {state}; {counts}>"

    # -- for applications

    @property
    def unsettled(self) -> int:
        """How many messages were taken and have no outcome yet."""
        return self._link.unsettled + len(self._queue)

    @property
    def waits(self) -> bool:
        """Whether a call waits for credit."""
        return self._waiters > 0

    @property
    def room(self) -> int:
        """How many messages `put_nowait` would take now."""
        return max(0, self._room)

    @property
    def max_message_bytes(self) -> int | None:
        """The largest message that the router takes, as octets of AMQP.  None: of any size, or it has not said so."""
        link = self._link.link
        return None if link is None else link.remote_max_message_size or None

    async def send(self, body: Body, *, timeout_s: float | None = None) -> None:
        """Publishes a message; returns when every subscriber has accepted it and it is settled.

        A `send` that is cancelled or has timed out does not take the message back.  Once it had credit, the message is
        published (and journalled), stays so, and goes on to its subscribers.  **Do not send it again: that would be
        another message, a duplicate.**  To learn its outcome, await the `publication` of the `SendTimeout`.  Code that
        may be cancelled calls `put` instead and keeps the publication, which may be awaited any number of times.

        A program that publishes to an address from which it receives itself uses `put` inside its receive loop: `send`
        would wait for the program's own accept.

        Args:
            body: bytes, str, or a `Message`.
            timeout_s: How long to wait, in seconds.  None: for ever.

        Raises:
            SendTimeout: There was no outcome in time.  Its `publication` is None if there was no credit either; only
                then the message was not published and may be sent again.
            DeliveryRejected: A subscriber has rejected it.
            DeliveryNotAccepted: It got another outcome.
            DeliveryUndecided: The network cannot tell its outcome any more.
            UsageError: The body has no AMQP type, or is larger than the router takes.
            LinkStolen, ConnectionClosed, JournalError: The publisher cannot go on.
        """
        publication: Publication | None = None
        try:
            async with OUTCOME(asyncio.timeout(timeout_s)):
                publication = await self.put(body)
                await publication
        except TimeoutError as error:
            what = f"publisher {self.name} of {self.address}"
            if publication is None:
                text = f"{what} had no credit within {timeout_s:g} s; the message was not published"
            else:
                text = (
                    f"{what}: message {publication.sequence} has no outcome after {timeout_s:g} s; it stays published: "
                    "sending it again would duplicate it; await this error's publication for its outcome"
                )
            raise SendTimeout(text, publication) from error

    async def put(self, body: Body) -> Publication:
        """Publishes a message; waits only for credit, not for the outcome.

        If it is cancelled, the message was not published.

        With a journal, the message is durable a moment later, before it is sent, and also without a connection; its
        outcome, which `send` waits for, says that it was.

        Returns:
            The message under way: await it for the outcome, now or later or never.

        Raises:
            UsageError: The body has no AMQP type, or is larger than the router takes.
            LinkStolen, ConnectionClosed, JournalError: The publisher cannot go on.
        """
        payload = self._encode(body)
        sending = None if self._spans is None else self._spans.send(body, payload)
        if self._room <= 0 or self._unreported is not None:
            await self._wait_for_room(sending)
        return self._take(payload, sending)

    def put_nowait(self, body: Body) -> Publication:
        """As `put`; raises `PublisherFull` where `put` would wait."""
        payload = self._encode(body)
        self._check()
        if self._room <= 0:
            raise PublisherFull(f"publisher {self.name} of {self.address} has no credit now")
        return self._take(payload, None if self._spans is None else self._spans.send(body, payload))

    async def put_many(self, bodies: Iterable[Body]) -> Publications:
        """Publishes all of them, in order, and waits for credit in between; the cheapest way to publish.

        If it is cancelled, the first of them are published: `sequence` says how far it got.

        Returns:
            The messages under way, as one awaitable.
        """
        return await self._put_all(bodies, encoded=False)

    async def put_payloads(self, payloads: Iterable[bytes]) -> Publications:
        """As `put_many`, of messages that are encoded already: what `Message.encode` returns."""
        return await self._put_all(payloads, encoded=True)

    async def _put_all(self, source: Iterable[Any], *, encoded: bool) -> Publications:
        self._check()
        publications = Publications(self, self.sequence)
        bodies = iter(source)
        while chunk := list(islice(bodies, _CHUNK)):
            payloads = list(map(self._checked if encoded else self._encode, chunk))
            if self._spans is None:
                await self._put_chunk(payloads, publications, None)
                continue
            sending = self._spans.send_many(None if encoded else chunk, payloads)
            try:
                await self._put_chunk(sending.payloads, publications, sending)
            except BaseException as error:
                sending.abandon(error)
                raise
        return publications

    async def _put_chunk(self, payloads: list[bytes], publications: Publications, sending: Sending | None) -> None:
        at = 0
        while at < len(payloads):
            if self._room <= 0 or self._unreported is not None:
                await self._wait_for_room()
            if self.sequence != publications.last + 1:
                raise UsageError("put_many and other puts of one publisher cannot be mixed while it waits")
            taken = payloads[at : at + self._room]
            at += len(taken)
            if sending is not None:
                sending.took(self.sequence, len(taken))
            publications.last += len(taken)
            if not publications._left:
                self._many.append(publications)
            publications._left += len(taken)
            self.sequence += len(taken)
            self._room -= len(taken)
            self._queue += taken
            self._schedule()

    @OUTCOME
    async def drain(self) -> None:
        """Waits until everything published so far has its outcome; `accepted` and `rejected` count them.

        It may be cancelled and called again.
        """
        await self._changes.until(lambda: self._error is not None or self._closed or not self.unsettled)
        self._check(closing=True)

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Waits for the outcomes, then closes the link for good: the network and the journal forget this publisher.

        If there are publications without outcome after the timeout, the publisher is only detached: with a journal they
        are sent again when it is next opened; without one they raise `DeliveryUndecided`.

        Args:
            timeout_s: How long to wait, in seconds.  None: the connection's `close_timeout_s`.
        """
        if not self._closed:
            self._closing = True
            bound_s = self._driver.close_timeout_s if timeout_s is None else timeout_s
            await CLOSING(self._changes).until(lambda: self._closed or not self.unsettled, bound_s)
            await self._leave(closed=True)
        if self._error is not None:
            raise self._error

    # -- taking

    def _encode(self, body: Body) -> bytes:
        return self._checked(encode_body(body))

    def _checked(self, payload: bytes) -> bytes:
        limit = self.max_message_bytes
        if limit is not None and len(payload) > limit:
            raise UsageError(f"a message of {len(payload)} bytes exceeds what the router takes, {limit}")
        return payload

    def _take(self, payload: bytes, sending: Sending | None) -> Publication:
        number = self.sequence
        if sending is not None:
            payload = sending.payloads[0]
            sending.took(number)
        publication = self._open[number] = Publication(self, number)
        self.sequence = number + 1
        self._room -= 1
        self._queue.append(payload)
        if not self._scheduled:
            self._schedule()
        return publication

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._driver.soon()

    @OUTCOME
    async def _wait_for_room(self, sending: Sending | None = None) -> None:
        self._waiters += 1
        try:
            self._tell_waiting()
            await self._changes.until(
                lambda: self._room > 0 or self._error or self._closed or self._closing or self._unreported
            )
            self._check()
        except BaseException as error:
            if sending is not None:
                sending.abandon(error)
            raise
        finally:
            self._waiters -= 1

    def _tell_waiting(self) -> None:
        """Reports why it waits, once, and only if somebody waits."""
        if self.waiting is not None and not self._waiting_told and (self._waiters or self.unsettled):
            self._waiting_told = True
            self._driver.report(self.waiting)

    def _raise_unreported(self) -> None:
        """Raises what the application has not been told of yet, once."""
        error, self._unreported = self._unreported, None
        if error is not None:
            raise error

    def _check(self, *, closing: bool = False) -> None:
        self._raise_unreported()
        if self._error is not None:
            raise self._error
        if self._closed or (self._closing and not closing):
            raise ConnectionClosed(f"publisher {self.name} of {self.address} is closed")

    @OUTCOME
    def _future(self) -> asyncio.Future[None]:
        return self._driver.loop.create_future()

    # -- for the connection

    def _flush(self, now: float) -> None:
        """Once per turn of the loop: what was taken becomes one run."""
        self._scheduled = False
        link = self._link
        if self._queue and link.state is not CLOSED:
            queue, self._queue = self._queue, []
            link.put(queue, now)

    def _handle(self, events: list[LinkEvent]) -> None:
        for event in events:
            if isinstance(event, Decided):
                self._decided(event)
                continue
            if isinstance(event, Waits):
                self._waits(event.waiting)
                continue
            if isinstance(event, Lost | Failed | Detached):
                self.waiting = None
            self._driver.note_link(self._link, event)
            if isinstance(event, Undecided):
                self._undecided(event.reason, event.publications)
            elif isinstance(event, Attached):
                self._attached = True
                self.guarantee = event.guarantee
            elif isinstance(event, Failed):
                self._error = event.error
                self._finish_all(event.error)
            elif isinstance(event, Detached):
                self._closed = True
        self._refresh()

    def _waits(self, told: Mapping[str, Any] | None) -> None:
        self.waiting = None
        self._waiting_told = False
        if told is not None:
            self.waiting = waiting_from(self.address, self.name, self._driver.router or "", told)
            self._tell_waiting()

    def _refresh(self) -> None:
        self._room = 0 if self._error or self._closing else self._link.room - len(self._queue)
        self._changes.notify()

    def _decided(self, event: Decided) -> None:
        first, last = event.first, event.last
        if isinstance(event.state, Accepted):
            self.accepted += last - first + 1
            error = None
        else:
            self.rejected += last - first + 1
            error = not_accepted(event.state)
        self._finish(first, last, error)

    def _finish(self, first: int, last: int, error: Exception | None) -> None:
        if self._spans is not None:
            self._spans.finish(first, last, error)
        publications = self._open
        if publications:
            for number in range(first, last + 1):
                publication = publications.pop(number, None)
                if publication is not None:
                    publication._finish(error)
        if self._many:
            for many in self._many:
                many._finish(first, last, error)
            self._many = [many for many in self._many if many._left]

    def _finish_all(self, error: Exception) -> None:
        if self._open or self._many:
            first = min([*islice(self._open, 1), *(many.first for many in self._many)])
            self._finish(first, self.sequence - 1, error)
        self._queue.clear()

    def _undecided(self, reason: str, items: list[tuple[int, bytes]]) -> None:
        what = f"publisher {self.name} of {self.address}"
        for number, _ in items:
            self._finish(number, number, DeliveryUndecided(f"{what}: message {number} is undecided: {reason}"))
        report = PublicationsUndecided(self.address, self.name, reason, tuple(items))
        self._driver.report(report)
        if self._on_undecided is not None:
            self._driver.loop.call_soon(self._on_undecided, report)
        else:
            message = f"{what}: {len(items)} publications may or may not have arrived and are not sent again: {reason}"
            self._unreported = UndecidedPublications(message, items)

    def _left_undecided(self) -> PublicationsUndecided:
        """What the connection's end leaves without outcome."""
        undecided, unsent = self._link.undecided, list(enumerate(self._queue, self._link.sequence))
        reason = "the connection was closed before they had an outcome"
        kept = self.journalled
        if isinstance(self._driver.error, JournalError):
            reason = "the journal failed; the next process sends again what it had confirmed, the rest was never sent"
        elif kept:
            reason += f"; {len(undecided)} are in the journal, and the next process sends them again"
        return PublicationsUndecided(self.address, self.name, reason, (*undecided, *unsent), kept)

    def _retire(self, closed: bool) -> None:
        """Begins to leave: takes nothing more."""
        self._closing = True
        self._flush(now_s())
        self._refresh()

    @property
    def _busy(self) -> bool:
        """Whether something is still under way for which it waits before it leaves."""
        return self._error is None and not self._closed and self.unsettled > 0

    async def _leave(self, closed: bool) -> None:
        """Detaches, or closes the link where nothing is undecided."""
        self._closing = True
        left = self._link.undecided
        if left and closed:
            # to close now would make the network settle what some subscribers have not seen
            closed = False
        if not self._closed and self._error is None:
            self._driver.leave(self._link, closed)
            await DETACH(self._changes).until(lambda: self._closed or self._error, self._driver.leave_timeout_s)
        self._closed = True
        if not self.journalled:
            for number, _ in left:
                text = f"publisher {self.name} of {self.address}: message {number} had no outcome when it was closed"
                self._finish(number, number, DeliveryUndecided(text))
        self._finish_all(ConnectionClosed(f"publisher {self.name} of {self.address} is closed"))
        self._driver.forget(self._link)
        self._refresh()
