"""What a subscriber is handed: deliveries one by one, or a run of them as columns.  Both take verdicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any

from amqp10.outcomes import ACCEPTED, RELEASED, Error, Modified, Outcome, Rejected
from amqp10.sections import Message
from onceway.client.bodies import decode_body, publisher_of
from onceway.client.protocol.events import Arrived
from onceway.client.signals import DONE
from onceway.errors import UsageError

if TYPE_CHECKING:
    from onceway.client.subscriber import Subscriber

REJECTED_BY_APPLICATION = "onceway:rejected"


class _Decidable(ABC):
    """A verdict takes effect when it is called; awaiting it waits until the journal has it."""

    __slots__ = ()

    def accept(self) -> Awaitable[None]:
        """This subscriber takes it, once and for all."""
        return self._decide(ACCEPTED)

    def reject(self, condition: str = REJECTED_BY_APPLICATION, description: str | None = None) -> Awaitable[None]:
        """This subscriber's final no; the publisher is told (contract 14)."""
        return self._decide(Rejected(Error(condition, description)))

    def release(self) -> Awaitable[None]:
        """Again, to this subscriber (contract 14)."""
        return self._decide(RELEASED)

    @abstractmethod
    def _decide(self, outcome: Outcome) -> Awaitable[None]: ...


class Delivery(_Decidable):
    """One delivery."""

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
        self.payload = payload  # the encoded message as it came
        self.decided = settled  # it has its verdict, or (at most once) never wanted one
        self._subscriber = subscriber
        self._position = position
        self._batch = batch

    @property
    def body(self) -> Any:
        """bytes of data sections, the value of an amqp-value, or the lists of amqp-sequences."""
        return decode_body(self.payload)

    @property
    def message(self) -> Message:
        return Message.decode(self.payload)

    @property
    def publisher(self) -> tuple[str, str] | None:
        """(container-id, link name) of its publisher."""
        return publisher_of(self.payload)

    def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> Awaitable[None]:
        return self._decide(Modified(delivery_failed=delivery_failed, undeliverable_here=undeliverable_here))

    def _decide(self, outcome: Outcome) -> Awaitable[None]:
        if self.decided:
            if self._position < 0 or self._subscriber.guarantee == "at-most-once":
                return DONE
            raise UsageError("this delivery has its verdict already")
        self.decided = True
        if self._batch is not None:
            self._batch._take_out(self._position)
        return self._subscriber._decide([(self._position, self._position)], outcome)


class Batch(_Decidable):
    """A run of deliveries as columns.  `await batch.accept()` accepts all of it as ranges."""

    __slots__ = ("_positions", "_ranges", "_subscriber", "_taken_out", "payloads", "tags")

    def __init__(self, subscriber: Subscriber) -> None:
        self.tags: list[bytes] = []
        self.payloads: list[bytes] = []
        self._subscriber = subscriber
        self._positions: list[tuple[int, int, int]] = []  # (index, position, count) of each run
        self._ranges: list[tuple[int, int]] = []  # positions that want a verdict, inclusive
        self._taken_out: dict[int, None] = {}  # those that got one of their own

    def __len__(self) -> int:
        return len(self.tags)

    def __iter__(self) -> Iterator[Delivery]:
        return (self[index] for index in range(len(self.tags)))

    def __getitem__(self, index: int) -> Delivery:
        if index < 0:
            index += len(self.tags)
        for first, position, count in self._positions:
            if first <= index < first + count:
                number = position + index - first
                decided = number in self._taken_out or not any(low <= number <= high for low, high in self._ranges)
                return Delivery(self._subscriber, number, self.tags[index], self.payloads[index], decided, self)
        raise IndexError(index)

    @property
    def bodies(self) -> list[Any]:
        return [decode_body(payload) for payload in self.payloads]

    @property
    def messages(self) -> list[Message]:
        return [Message.decode(payload) for payload in self.payloads]

    @property
    def publishers(self) -> list[tuple[str, str] | None]:
        return [publisher_of(payload) for payload in self.payloads]

    def _decide(self, outcome: Outcome) -> Awaitable[None]:
        """For everything in it that has no verdict of its own."""
        ranges, self._ranges = self._ranges, []
        for position in self._taken_out:
            ranges = [
                part
                for low, high in ranges
                for part in ((low, min(high, position - 1)), (max(low, position + 1), high))
                if part[0] <= part[1]
            ]
        return self._subscriber._decide(ranges, outcome) if ranges else DONE

    def _take_out(self, position: int) -> None:
        self._taken_out[position] = None

    def _add(self, run: Arrived, start: int, end: int) -> None:
        whole = start == 0 and end == len(run.tags)
        tags = run.tags if whole else run.tags[start:end]
        payloads = run.payloads if whole else run.payloads[start:end]
        self._positions.append((len(self.tags), run.position + start, end - start))
        if self.tags:
            self.tags = self.tags + tags
            self.payloads = self.payloads + payloads
        else:
            self.tags, self.payloads = tags, payloads
        if not run.settled:
            first, last = run.position + start, run.position + end - 1
            if self._ranges and self._ranges[-1][1] == first - 1:
                self._ranges[-1] = (self._ranges[-1][0], last)
            else:
                self._ranges.append((first, last))
