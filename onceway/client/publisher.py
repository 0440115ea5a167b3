"""The asyncio face of a publisher.  Skeleton of the API; the body follows."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from amqp10.sections import Message

Body = bytes | str | Message


class Publication:
    """One message under way.  `await publication` returns when it is accepted by every subscriber and settled.

    Raises DeliveryRejected / DeliveryNotAccepted (another outcome), DeliveryUndecided (PROTOCOL 15),
    ConnectionClosed, JournalError.  Not awaiting it is fine: `publisher.drain()` waits for all of them.
    """

    sequence: int  # 0, 1, 2 ... for ever under this publisher's name (with a journal, over restarts)

    @property
    def done(self) -> bool:
        raise NotImplementedError

    def __await__(self) -> Generator[None, None, None]:
        raise NotImplementedError


class Publications:
    """Many messages under way as one awaitable: sequences `first` to `last`.  Raises what the first failure raises."""

    first: int
    last: int

    @property
    def done(self) -> bool:
        raise NotImplementedError

    def __await__(self) -> Generator[None, None, None]:
        raise NotImplementedError


class Publisher:
    address: str
    name: str
    guarantee: str
    recovered: list[Publication]  # what an earlier process left undecided; it is being sent again
    sequence: int  # number of the next message: how many were ever taken under this name
    accepted: int  # outcomes so far
    rejected: int

    @property
    def unsettled(self) -> int:
        """Messages taken and not settled yet."""
        raise NotImplementedError

    @property
    def room(self) -> int:
        """How many put_nowait would be taken now."""
        raise NotImplementedError

    async def send(self, body: Body) -> None:
        """Returns when every subscriber has accepted it and it is settled.  bytes: one data section; str: an
        amqp-value string; Message: as it is."""
        raise NotImplementedError

    async def put(self, body: Body) -> Publication:
        """Waits for credit only.  Puts of one loop turn become one run of transfers."""
        raise NotImplementedError

    def put_nowait(self, body: Body) -> Publication:
        """As put; raises PublisherFull where put would wait."""
        raise NotImplementedError

    async def put_many(self, bodies: Iterable[Body]) -> Publications:
        """Takes all of them (waiting for credit in between), in order; the cheapest way."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Waits until everything taken so far is decided and settled.  Raises nothing for single outcomes:
        see `accepted`, `rejected`."""
        raise NotImplementedError

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Drains, then closes the link for good (a journal forgets it)."""
        raise NotImplementedError
