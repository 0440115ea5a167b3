"""What a subscriber gives to the application: deliveries one by one, or a run of them as columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from amqp10.outcomes import ACCEPTED, RELEASED, Error, Modified, Outcome, Rejected
from amqp10.sections import Message
from onceway.client.bodies import publisher_of, read_body, why_raw
from onceway.client.protocol.events import Arrived
from onceway.client.ranges import RangeSet
from onceway.client.signals import DONE
from onceway.errors import UsageError
from router.names import REJECTED

if TYPE_CHECKING:
    from onceway.client.subscriber import Subscriber

T = TypeVar("T")


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
        message_format: What the payload is encoded as: 0 is AMQP's own message (AMQP 2.7.5).
        decided: It has its outcome, or came settled (at most once) and needs none: outcomes are ignored then.
    """

    __slots__ = ("_batch", "_position", "_subscriber", "decided", "message_format", "payload", "tag")

    def __init__(
        self,
        subscriber: Subscriber,
        position: int,
        tag: bytes,
        payload: bytes,
        message_format: int,
        settled: bool,
        batch: Batch | None = None,
    ) -> None:
        self.tag = tag
        self.payload = payload
        self.message_format = message_format
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
        """The body: bytes of data sections, the value of an amqp-value, or the lists of amqp-sequences; the payload, as
        a `Raw`, where the message cannot be decoded (`raw`)."""
        return read_body(self.payload, self.message_format)

    @property
    def message(self) -> Message:
        """The message with all its sections. Where it cannot be decoded its body is the payload, and its `raw` says
        why."""
        return Message.read(self.payload, self.message_format)

    @property
    def raw(self) -> str | None:
        """Why `body` is the payload as it came; None where it was decoded."""
        return why_raw(self.body)

    @property
    def publisher(self) -> tuple[str, str] | None:
        """(container-id, link name) of its publisher; None if the payload does not name it."""
        return publisher_of(self.payload)

    def process(self) -> AbstractContextManager[None]:
        """`with delivery.process():` around what is done with it: OpenTelemetry's span `process`, a child of the
        publisher's (docs/tracing.md). Without opentelemetry it does nothing."""
        spans = self._subscriber._spans
        return nullcontext() if spans is None else spans.process([self.payload], {0: self.message_format}, batch=False)

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
        return self._subscriber._decide([(self._position, self._position)], outcome, batch=False)


class Batch(_Decidable):
    """A run of deliveries as columns.  `await batch.accept()` accepts all of it at little cost.

    Iterating over it gives its deliveries, which may get outcomes of their own first.

    Attributes:
        tags: The delivery-tags.
        payloads: The encoded messages.
    """

    __slots__ = ("_runs", "_subscriber", "_undecided", "payloads", "tags")

    def __init__(self, subscriber: Subscriber) -> None:
        self.tags: list[bytes] = []
        self.payloads: list[bytes] = []
        self._subscriber = subscriber
        # (index, position, count, message-format) of each run; position -1: it came settled
        self._runs: list[tuple[int, int, int, int]] = []
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
        for first, position, count, message_format in self._runs:
            if first <= index < first + count:
                number = position + index - first if position >= 0 else position
                decided = number not in self._undecided
                tag, payload = self.tags[index], self.payloads[index]
                return Delivery(self._subscriber, number, tag, payload, message_format, decided, self)
        raise IndexError(index)

    @property
    def bodies(self) -> list[Any]:
        """The body of each, as `Delivery.body`."""
        return self._read(read_body)

    @property
    def messages(self) -> list[Message]:
        """Each as a message with all its sections, as `Delivery.message`."""
        return self._read(Message.read)

    @property
    def other_formats(self) -> dict[int, int]:
        """By index: the message-format of each that is not of AMQP's own (0), which are few."""
        runs = [run for run in self._runs if run[3]]
        return {at: message_format for first, _, n, message_format in runs for at in range(first, first + n)}

    def process(self) -> AbstractContextManager[None]:
        """As `Delivery.process`, for all of it: a span with links to its publishers'."""
        spans = self._subscriber._spans
        return nullcontext() if spans is None else spans.process(self.payloads, self.other_formats, batch=True)

    @property
    def _positions(self) -> list[int]:
        """Of each; -1: it came settled."""
        return [at if at < 0 else at + n for _, at, count, _ in self._runs for n in range(count)]

    def _read(self, read: Callable[[bytes, int], T]) -> list[T]:
        if not (formats := self.other_formats):
            return [read(payload, 0) for payload in self.payloads]
        return [read(payload, formats.get(index, 0)) for index, payload in enumerate(self.payloads)]

    @property
    def publishers(self) -> list[tuple[str, str] | None]:
        """(container-id, link name) of the publisher of each."""
        return [publisher_of(payload) for payload in self.payloads]

    def _decide(self, outcome: Outcome) -> Awaitable[None]:
        """For everything in it that has no outcome of its own."""
        undecided, self._undecided = self._undecided, RangeSet()
        return self._subscriber._decide(list(undecided), outcome, batch=True) if undecided else DONE

    def _add(self, run: Arrived, start: int, end: int) -> None:
        whole = start == 0 and end == len(run.tags)
        tags = run.tags if whole else run.tags[start:end]
        payloads = run.payloads if whole else run.payloads[start:end]
        position = -1 if run.settled else run.position + start
        self._runs.append((len(self.tags), position, end - start, run.message_format))
        if self.tags:
            self.tags = self.tags + tags
            self.payloads = self.payloads + payloads
        else:
            self.tags, self.payloads = tags, payloads
        if not run.settled:
            self._undecided.add(run.position + start, run.position + end - 1)
