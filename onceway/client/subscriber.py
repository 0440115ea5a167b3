"""The asyncio face of a subscriber.  Skeleton of the API; the body follows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable

from amqp10.sections import Message


class Delivery:
    """One delivery.  Its verdicts take effect when they are called; awaiting them waits for the journal."""

    tag: bytes
    payload: bytes  # the encoded message as it came

    @property
    def body(self) -> object:
        """bytes of a data section (several joined), the value of an amqp-value, or the lists of amqp-sequence."""
        raise NotImplementedError

    @property
    def message(self) -> Message:
        raise NotImplementedError

    @property
    def publisher(self) -> tuple[str, str] | None:
        """(container-id, link name) of its publisher, from x-opt-onceway-publisher."""
        raise NotImplementedError

    def accept(self) -> Awaitable[None]:
        """Once and for all: this subscriber takes it."""
        raise NotImplementedError

    def reject(self, condition: str = "", description: str = "") -> Awaitable[None]:
        """This subscriber's final no; the publisher is told (contract 14)."""
        raise NotImplementedError

    def release(self) -> Awaitable[None]:
        """Give it to me again, later."""
        raise NotImplementedError

    def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> Awaitable[None]:
        raise NotImplementedError


class Batch:
    """A run of deliveries as columns."""

    tags: list[bytes]
    payloads: list[bytes]

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Delivery:
        raise NotImplementedError

    @property
    def bodies(self) -> list[object]:
        raise NotImplementedError

    @property
    def messages(self) -> list[Message]:
        raise NotImplementedError

    @property
    def publishers(self) -> list[tuple[str, str] | None]:
        raise NotImplementedError

    def accept(self) -> Awaitable[None]:
        raise NotImplementedError

    def reject(self, condition: str = "", description: str = "") -> Awaitable[None]:
        raise NotImplementedError

    def release(self) -> Awaitable[None]:
        raise NotImplementedError


class Subscriber:
    address: str
    name: str
    guarantee: str
    resumed: bool  # an earlier attachment goes on: nothing was missed since
    granted_timeout_s: float  # how long the network waits for it while it is away
    accepted: int

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """Deliveries in each publisher's order, for ever; ends when the subscriber is closed.

        Raises SubscriptionBroken (once, unless on_gap is given), LinkStolen, LinkRefused, JournalError.
        """
        raise NotImplementedError

    async def receive(self) -> Delivery:
        """The next delivery.  Raises as the iterator does, and ConnectionClosed once the subscriber is closed."""
        raise NotImplementedError

    def batches(
        self, max_messages: int = 1000, max_bytes: int = 1 << 20, max_wait: float = 0.0
    ) -> AsyncIterator[Batch]:
        """Batches of what has arrived; waits up to max_wait s after the first message for a batch to fill."""
        raise NotImplementedError

    async def detach(self) -> None:
        """Stops receiving; the network goes on waiting for this subscription (granted_timeout_s)."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends the subscription for good: nobody waits for it any more."""
        raise NotImplementedError
