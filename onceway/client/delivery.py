"""What a subscriber gives to the application: deliveries one by one, or a run of them as columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any

from amqp10.outcomes import ACCEPTED, RELEASED, Error, Modified, Outcome, Rejected
from amqp10.sections import Message
from onceway.client.bodies import decode_body, publisher_of
from onceway.client.protocol.events import Arrived
from onceway.client.ranges import RangeSet
from onceway.client.signals import DONE
from onceway.errors import UsageError
from router.names import REJECTED

if TYPE_CHECKING:
    from onceway.client.subscriber import Subscriber


class _Decidable(ABC):
    """An outcome takes effect with the call; awaiting the call waits until the journal has it."""

    __slots__ = ()

    def accept(self) -> Awaitable[None]:
        """Takes responsibility for it: it is not delivered again. Awaiting waits until the journal has it."""
        return self._decide(ACCEPTED)

    def reject(self, condition: str = REJECTED, description: str | None = None) -> Awaitable[None]:
        """Refuses it for good.  The publisher's `send` raises `DeliveryRejected`, with the number of rejections.

        Args:
            condition: The AMQP error condition of the outcome, for the router.
            description: The same in words.
        """
        return self._decide(Rejected(Error(condition, description)))

    def release(self) -> Awaitable[None]:
        """Gives it back: it is delivered again, to this subscriber."""
        return self._decide(RELEASED)

    @abstractmethod
    def _decide(self, outcome: Outcome) -> Awaitable[None]: ...


class Delivery(_Decidable):
    """One message that a subscriber has received.

    Attributes:
        tag: The delivery-tag; the same at every router and after every reconnection.
        payload: The encoded message.
        decided: It has its outcome, or came settled (at most once) and needs none: outcomes are ignored then.
    """

    __slots__ = ("_batch", "_position", "_subscriber", "decided", "payload", "tag")

    def __init__(
        self,
        subscriber: Subscriber,
        position: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        batch: Batch | None = None,
    ) -> None:
        self.tag = tag
        self.payload = payload
        self.decided = settled
        self._subscriber = subscriber
        self._position = position
        self._batch = batch

    def __repr__(self) -> str:
        subscriber, state = self._subscriber, "decided" if self.decided else "undecided"
        what = f"{len(self.payload)} bytes for subscriber {subscriber.name!r} of {subscriber.address!r}"
        return f"<Delivery {self.tag.hex()}, {what}, {state}>"

    @property
    def body(self) -> Any:
        """The body: bytes of data sections, the value of an amqp-value, or the lists of amqp-sequences.

        Raises:
            DecodeError: The payload is not an AMQP message.
        """
        return decode_body(self.payload)

    @property
    def message(self) -> Message:
        """The message with all its sections.  Raises `DecodeError` as `body` does."""
        return Message.decode(self.payload)

    @property
    def publisher(self) -> tuple[str, str] | None:
        """(container-id, link name) of its publisher; None if the payload does not name it."""
        return publisher_of(self.payload)

    def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> Awaitable[None]:
        """Gives it back with AMQP's outcome modified.

        Args:
            delivery_failed: Count this as a failed delivery.
            undeliverable_here: Do not deliver it to this subscriber again.
        """
        return self._decide(Modified(delivery_failed=delivery_failed, undeliverable_here=undeliverable_here))

    def _decide(self, outcome: Outcome) -> Awaitable[None]:
        if self.decided:
            if self._position < 0:
                return DONE  # its publisher wants no outcome, whatever this subscriber's guarantee is
            raise UsageError("this delivery has its outcome already")
        self.decided = True
        if self._batch is not None:
            self._batch._undecided.remove(self._position, self._position)
        return self._subscriber._decide([(self._position, self._position)], outcome)


class Batch(_Decidable):
    """A run of deliveries as columns.  `await batch.accept()` accepts all of it at little cost.

    Iterating over it gives its deliveries, which may get outcomes of their own first.

    Attributes:
        tags: The delivery-tags.
        payloads: The encoded messages.
    """

    __slots__ = ("_positions", "_subscriber", "_undecided", "payloads", "tags")

    def __init__(self, subscriber: Subscriber) -> None:
        self.tags: list[bytes] = []
        self.payloads: list[bytes] = []
        self._subscriber = subscriber
        self._positions: list[tuple[int, int, int]] = []  # (index, position, count) of each run; -1: it came settled
        self._undecided = RangeSet()  # positions that have no outcome yet

    def __len__(self) -> int:
        return len(self.tags)

    def __repr__(self) -> str:
        undecided = sum(last - first + 1 for first, last in self._undecided)
        name, address = self._subscriber.name, self._subscriber.address
        return f"<Batch of {len(self)} deliveries for subscriber {name!r} of {address!r}, {undecided} undecided>"

    def __iter__(self) -> Iterator[Delivery]:
        return (self[index] for index in range(len(self.tags)))

    def __getitem__(self, index: int) -> Delivery:
        if index < 0:
            index += len(self.tags)
        for first, position, count in self._positions:
            if first <= index < first + count:
                number = position + index - first if position >= 0 else position
                decided = number not in self._undecided
                return Delivery(self._subscriber, number, self.tags[index], self.payloads[index], decided, self)
        raise IndexError(index)

    @property
    def bodies(self) -> list[Any]:
        """The body of each, as `Delivery.body`."""
        return [decode_body(payload) for payload in self.payloads]

    @property
    def messages(self) -> list[Message]:
        """Each as a message with all its sections."""
        return [Message.decode(payload) for payload in self.payloads]

    @property
    def publishers(self) -> list[tuple[str, str] | None]:
        """(container-id, link name) of the publisher of each."""
        return [publisher_of(payload) for payload in self.payloads]

    def _decide(self, outcome: Outcome) -> Awaitable[None]:
        """For everything in it that has no outcome of its own."""
        undecided, self._undecided = self._undecided, RangeSet()
        return self._subscriber._decide(list(undecided), outcome) if undecided else DONE

    def _add(self, run: Arrived, start: int, end: int) -> None:
        whole = start == 0 and end == len(run.tags)
        tags = run.tags if whole else run.tags[start:end]
        payloads = run.payloads if whole else run.payloads[start:end]
        self._positions.append((len(self.tags), -1 if run.settled else run.position + start, end - start))
        if self.tags:
            self.tags = self.tags + tags
            self.payloads = self.payloads + payloads
        else:
            self.tags, self.payloads = tags, payloads
        if not run.settled:
            self._undecided.add(run.position + start, run.position + end - 1)
