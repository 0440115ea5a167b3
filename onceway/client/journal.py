"""The journal: what a client must not forget when its process dies.  The interface, and a form without a disk.

The client (`onceway.client.protocol`) writes ahead: an epoch before the attach that carries it, a publication before
its transfer, an accept before its disposition; and it forgets a publication before it settles it.  Writes are ordered
and cheap.  `sync` asks that everything written so far becomes durable, and returns a number.  When `durable` has
reached that number, the journal calls `wake`, and the client continues.  So many writes share one commit, and the event
loop never waits for a disk.

An application that stores what it receives anyway may bring its own journal.  Where it stores the tags together with
the data, its `accept` need not do anything.  `onceway.client.sqlite_journal` is the embedded journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from onceway.errors import JournalError

UNDECIDED: Final = "undecided"
"""In place of an outcome (`PublisherJournal.forget`): the network has forgotten this publisher."""


@dataclass(slots=True)
class PublisherRecord:
    """What an earlier process knew about a publisher.  All zero: it has never been attached.

    Attributes:
        epoch: Of the last attach.
        incarnation: The epoch of the first attach of this state.
        sequence: The number of the next message; it never goes back.
        contact_us: The wall clock, in microseconds, when the network last knew it.
        timeout_s: How long the network waits for it, in seconds; 0: not known.
        undecided: (sequence, payload) of the publications without outcome, ascending.
    """

    epoch: int = 0
    incarnation: int = 0
    sequence: int = 0
    contact_us: int = 0
    timeout_s: float = 0.0
    undecided: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class SubscriberRecord:
    """What an earlier process knew about a subscription.

    Attributes:
        epoch: Of the last attach.
        born: The epoch of the attach that created it; 0: no attach was answered yet.
        contact_us: The wall clock, in microseconds, when the network last knew it.
        timeout_s: How long the network waits for it, in seconds; 0: not known.
        unsettled: Tag to encoded AMQP outcome, in order of arrival.  None: received, but the payload is lost, and it is
            wanted again.
        tried: The epoch of the first attach, while none has been answered; 0: not noted.
    """

    epoch: int = 0
    born: int = 0
    contact_us: int = 0
    timeout_s: float = 0.0
    unsettled: dict[bytes, bytes | None] = field(default_factory=dict)
    tried: int = 0


class PublisherJournal(Protocol):
    """One publisher's part.  Every method only writes; `Journal.sync` makes it durable."""

    @property
    def record(self) -> PublisherRecord:
        """As it was when the journal was opened."""
        ...

    def attach(self, epoch: int, incarnation: int) -> None: ...

    def contact(self, wall_us: int, timeout_s: float) -> None:
        """The network knew this link at that time; need not become durable soon."""
        ...

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        """Messages first, first + 1 ... are about to be sent."""
        ...

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        """They have their outcome.  Once this is durable, they are settled.

        outcome: an amqp10 delivery state; None if they were settled without one; UNDECIDED if the network has forgotten
        this publisher, so that there will never be one.
        """
        ...

    def close(self) -> None:
        """The link was closed for good: forget it, except for its sequence and epoch."""
        ...


class SubscriberJournal(Protocol):
    """One subscription's part."""

    @property
    def record(self) -> SubscriberRecord: ...

    def attach(self, epoch: int, born: int) -> None: ...

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        """The attach with this epoch was answered; any other process has lost the link by now.

        Only now `born` becomes valid: a subscription that was never answered does not exist.  No credit is granted
        before the next sync is durable, so this is the place to fence off an older process's writes.  Returns what such
        a process has added since `record`, in the form of its `unsettled`.
        """
        ...

    def contact(self, wall_us: int, timeout_s: float) -> None: ...

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        """The application's outcome (accepted or rejected), encoded.  It is sent once this is durable."""
        ...

    def settle(self, tags: Sequence[bytes]) -> None:
        """The network has settled or forgotten them: their tags may be forgotten.

        Need not become durable soon: a tag that the journal still has later is settled again.
        """
        ...

    def close(self) -> None: ...


class Journal(Protocol):
    """The journal of one container, for any number of links."""

    @property
    def durable(self) -> int:
        """The highest number returned by `sync` whose writes are all durable."""
        ...

    @property
    def failure(self) -> JournalError | None:
        """Why the journal cannot continue. Writes that were not durable by then never will be."""
        ...

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        """Opens it for this container and returns the container-id; None: the journal's own.

        May block for a moment.  `wake` is called, from any thread, when `durable` or `failure` has changed.  Raises
        JournalError if another process has it open, or it is damaged, foreign or full.
        """
        ...

    def publisher(self, address: str, name: str) -> PublisherJournal: ...

    def subscriber(self, address: str, name: str) -> SubscriberJournal: ...

    def sync(self) -> int: ...

    def close(self) -> None:
        """Makes durable what was written, and closes.  May block for a moment."""
        ...


class _Part:
    """One link's part of a journal that remembers nothing."""

    __slots__ = ()

    def _nothing(self, *arguments: Any, **named: Any) -> None:
        pass

    attach = contact = close = publish = forget = accept = settle = _nothing


class _MemoryPublisher(_Part):
    __slots__ = ("record",)

    def __init__(self) -> None:
        self.record = PublisherRecord()


class _MemorySubscriber(_Part):
    __slots__ = ("record",)

    def __init__(self) -> None:
        self.record = SubscriberRecord()

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        return {}


class MemoryJournal:
    """Remembers nothing beyond the process: everything counts as durable at once.

    Links still survive the loss of routers and connections.
    """

    __slots__ = ("durable", "failure")

    def __init__(self) -> None:
        self.durable = 0
        self.failure: JournalError | None = None

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        if container is None:
            raise JournalError("a journal in memory has no container-id of its own: give one")
        return container

    def publisher(self, address: str, name: str) -> PublisherJournal:
        return _MemoryPublisher()

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        return _MemorySubscriber()

    def sync(self) -> int:
        return 0

    def close(self) -> None:
        pass
