"""The asyncio face of a publisher: bodies in, awaitable outcomes out.

Puts only append to a list; once per turn of the event loop the list becomes one run of messages (`publishing`), one
journal group, one block of transfers.  Per message there is a number, a payload and, unless `put_many` was used, one
small `Publication`; a future exists only for those that somebody awaits before they are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from amqp10.outcomes import Accepted, Rejected
from onceway.client.bodies import Body, encode_body
from onceway.client.protocol.events import Attached, Decided, Detached, Failed, LinkEvent, Undecided
from onceway.client.protocol.link import ON
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.publication import Publication, Publications
from onceway.client.reports import PublicationsUndecided
from onceway.client.signals import Changes
from onceway.errors import (
    ConnectionClosed,
    DeliveryNotAccepted,
    DeliveryRejected,
    DeliveryUndecided,
    PublisherFull,
    UndecidedPublications,
    UsageError,
)
from router.identity import REJECTED

if TYPE_CHECKING:
    import asyncio

    from onceway.client.driver import Driver

_CHUNK = 1024  # messages that put_many hands over at a time


class Publisher:
    """Made by `connection.publisher(...)`."""

    def __init__(
        self,
        driver: Driver,
        link: PublisherLink,
        on_undecided: Callable[[PublicationsUndecided], None] | None,
    ) -> None:
        self.address = link.address
        self.name = link.name
        self.guarantee: str = link.guarantee
        self.accepted = 0
        self.rejected = 0  # and released, modified: every outcome but accepted
        self.sequence = link.sequence  # number of the next message: how many were ever taken under this name
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
        self._over = False
        self._closing = False
        self._untold: UndecidedPublications | None = None
        self.recovered: list[Publication] = list(self._open.values())
        """What an earlier process left undecided: it is sent again, first, and its outcomes come like any other."""

    # -- for applications

    @property
    def unsettled(self) -> int:
        """Messages taken and not settled yet."""
        return self._link.unsettled + len(self._queue)

    @property
    def room(self) -> int:
        """How many `put_nowait` would be taken now."""
        return max(0, self._room)

    async def send(self, body: Body) -> None:
        """Returns when every subscriber has accepted it and it is settled; raises as awaiting a Publication does."""
        await (await self.put(body))

    async def put(self, body: Body) -> Publication:
        """Waits for credit only."""
        payload = self._encode(body)
        if self._room <= 0 or self._untold is not None:
            await self._wait_for_room()
        return self._take(payload)

    def put_nowait(self, body: Body) -> Publication:
        """As put; raises PublisherFull where put would wait."""
        payload = self._encode(body)
        self._check()
        if self._room <= 0:
            raise PublisherFull(f"publisher {self.name} of {self.address} has no credit now")
        return self._take(payload)

    async def put_many(self, bodies: Iterable[Body]) -> Publications:
        """Takes all, in order, waiting for credit in between; the cheapest way to publish."""
        return await self._put_all(map(self._encode, bodies))

    async def put_payloads(self, payloads: Iterable[bytes]) -> Publications:
        """As put_many, of messages that are encoded already: what `amqp10.sections.Message.encode` gives."""
        return await self._put_all(map(self._checked, payloads))

    async def _put_all(self, source: Iterator[bytes]) -> Publications:
        self._check()
        publications = Publications(self, self.sequence)
        while payloads := list(islice(source, _CHUNK)):
            at = 0
            while at < len(payloads):
                if self._room <= 0 or self._untold is not None:
                    await self._wait_for_room()
                if self.sequence != publications.last + 1:
                    raise UsageError("put_many and other puts of one publisher cannot be mixed while it waits")
                taken = payloads[at : at + self._room]
                at += len(taken)
                publications.last += len(taken)
                if not publications._left:
                    self._many.append(publications)
                publications._left += len(taken)
                self.sequence += len(taken)
                self._room -= len(taken)
                self._queue += taken
                self._schedule()
        return publications

    async def drain(self) -> None:
        """Waits until everything taken so far is decided and settled.  How it was decided: `accepted`, `rejected`."""
        await self._changes.until(lambda: self._error is not None or self._over or not self.unsettled)
        self._check(closing=True)

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Drains, then closes the link for good: the network and the journal forget this publisher.

        What is undecided when timeout_s is over gets DeliveryUndecided.
        """
        if not self._over:
            self._closing = True
            await self._changes.until(lambda: self._over or not self.unsettled, timeout_s)
            await self._leave(closed=True)
        if self._error is not None:
            raise self._error

    # -- taking

    def _encode(self, body: Body) -> bytes:
        return self._checked(encode_body(body))

    def _checked(self, payload: bytes) -> bytes:
        link = self._link.link
        limit = None if link is None else link.remote_max_message_size
        if limit and len(payload) > limit:
            raise UsageError(f"a message of {len(payload)} octets exceeds what the router takes, {limit}")
        return payload

    def _take(self, payload: bytes) -> Publication:
        number = self.sequence
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

    async def _wait_for_room(self) -> None:
        await self._changes.until(lambda: self._room > 0 or self._error or self._over or self._closing or self._untold)
        self._check()

    def _check(self, *, closing: bool = False) -> None:
        if self._untold is not None:
            error, self._untold = self._untold, None
            raise error
        if self._error is not None:
            raise self._error
        if self._over or (self._closing and not closing):
            raise ConnectionClosed(f"publisher {self.name} of {self.address} is closed")

    def _future(self) -> asyncio.Future[None]:
        return self._driver.loop.create_future()

    # -- for the connection

    def _flush(self, now: float) -> None:
        """Once per turn of the loop: what was taken becomes one run.  While the link is away it waits."""
        self._scheduled = False
        link = self._link
        if self._queue and link.state is ON:
            queue, self._queue = self._queue, []
            link.put(queue, now)

    def _handle(self, events: list[LinkEvent]) -> None:
        for event in events:
            if isinstance(event, Decided):
                self._decided(event)
            elif isinstance(event, Undecided):
                self._undecided(event.reason, event.publications)
            elif isinstance(event, Attached):
                self._attached = True
                self.guarantee = event.guarantee
                self._driver.tell_attached(self._link, event)
                if self._queue:
                    self._schedule()
            elif isinstance(event, Failed):
                self._error = event.error
                self._finish_all(event.error)
            elif isinstance(event, Detached):
                self._over = True
        self._refresh()

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
            error = _not_accepted(event.state)
        self._finish(first, last, error)

    def _finish(self, first: int, last: int, error: Exception | None) -> None:
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
            self._untold = UndecidedPublications(message, items)

    async def _leave(self, closed: bool) -> None:
        """Detach, and be done."""
        self._closing = True
        left = self._link.undecided
        if left and closed:
            # to close now would make the network settle what some subscribers have not seen
            closed = False
        if not self._over and self._error is None:
            self._driver.leave(self._link, closed)
            await self._changes.until(lambda: self._over or self._error, self._driver.leave_timeout_s)
        self._over = True
        if not self._driver.journalled:
            for number, _ in left:
                self._finish(number, number, DeliveryUndecided(f"message {number} was undecided when it was closed"))
        self._finish_all(ConnectionClosed(f"publisher {self.name} of {self.address} is closed"))
        self._driver.forget(self._link)
        self._refresh()


def _not_accepted(state: object) -> Exception:
    if isinstance(state, Rejected):
        info = {} if state.error is None or state.error.info is None else state.error.info
        count = info.get(REJECTED)
        said = "" if state.error is None else f": {state.error.description or state.error.condition}"
        return DeliveryRejected(f"rejected{said}", state, count)
    return DeliveryNotAccepted(f"not accepted: {state!r}", state)
