"""What a client must not forget when its process dies, as a small interface, and its form without a disk.

The protocol part (`onceway.client.protocol`) writes ahead here: an epoch before the attach that carries it, a
publication before its transfer, an accept before its disposition, and a publication is forgotten before it is
settled.  Writes are ordered and cheap; nothing waits for each of them.  `sync` asks that everything written so far
becomes durable and returns its number; when `durable` has reached it, `wake` has been called and the protocol part
goes on.  So many writes share one commit, and the event loop never waits for a disk.

An application that stores what it receives anyway brings its own (ARCHITECTURE.md): it implements `Journal` and
`SubscriberJournal`, and may answer `accept` with nothing at all where the tags are durable with the data already.
`onceway.client.sqlite_journal` is the embedded one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from onceway.errors import JournalError

UNDECIDED: Final = "undecided"
"""In place of an outcome (`PublisherJournal.forget`): PROTOCOL 15's expired publisher."""


@dataclass(slots=True)
class PublisherRecord:
    """What an earlier process knew about a publisher.  All zero: it has never been attached."""

    epoch: int = 0  # the last one brought (PROTOCOL 15)
    incarnation: int = 0
    sequence: int = 0  # number of the next message; never goes back, whatever has been forgotten
    contact_us: int = 0  # wall clock when the network was last heard of
    timeout_s: float = 0.0  # how long the network waits for it; 0: not known
    undecided: list[tuple[int, bytes]] = field(default_factory=list)  # (sequence, payload), ascending


@dataclass(slots=True)
class SubscriberRecord:
    """What an earlier process knew about a subscription."""

    epoch: int = 0
    born: int = 0  # 0: no attach has been answered yet
    contact_us: int = 0
    timeout_s: float = 0.0
    unsettled: dict[bytes, bytes | None] = field(default_factory=dict)
    # tag -> encoded outcome (amqp10), in order of arrival; None: received, payload lost, wanted again


class PublisherJournal(Protocol):
    """One publisher's part.  Every method only writes; `Journal.sync` makes it durable."""

    @property
    def record(self) -> PublisherRecord:
        """As it was when the journal was opened."""
        ...

    def attach(self, epoch: int, incarnation: int) -> None: ...

    def contact(self, wall_us: int, timeout_s: float) -> None:
        """The network was heard of; need not become durable soon."""
        ...

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        """Messages first, first + 1 ... are about to be sent."""
        ...

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        """They have their outcome.  Once durable, they are settled and never come back.

        outcome: an amqp10 delivery state; None where they were settled without one; UNDECIDED where the network
        knows this publisher no more, so that there will never be one.
        """
        ...

    def close(self) -> None:
        """The link was closed for good: forget it, but for its sequence and epoch."""
        ...


class SubscriberJournal(Protocol):
    """One subscription's part."""

    @property
    def record(self) -> SubscriberRecord: ...

    def attach(self, epoch: int, born: int) -> None: ...

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        """The attach with this epoch was answered: any other process has lost the link by now.

        Only now does `born` count as known: a subscription that was never answered does not exist.  Comes before
        any credit is granted, and credit waits for the sync after it, so this is the place to fence off an older
        process's writes.  Returns what such a process has added since `record`, in the form of its `unsettled`.
        """
        ...

    def contact(self, wall_us: int, timeout_s: float) -> None: ...

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        """The application's verdict (accepted, or rejected), encoded; on the wire once durable."""
        ...

    def settle(self, tags: Sequence[bytes]) -> None:
        """The network has settled them, or does not know them any more: their tags may be forgotten.

        Need not become durable soon: what comes back from the journal once too often is settled again.
        """
        ...

    def close(self) -> None: ...


class Journal(Protocol):
    """A client's memory: for one container, any number of links."""

    @property
    def durable(self) -> int:
        """The highest number returned by `sync` whose writes are all durable."""
        ...

    @property
    def failure(self) -> JournalError | None:
        """Why it cannot go on; what was not durable then never will be."""
        ...

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        """Opens it for this container and returns the container-id (its own where None is given).

        May block for a moment.  `wake` may be called from any thread whenever `durable` or `failure` has changed.
        Raises JournalError: locked by another process, damaged, foreign, no room.
        """
        ...

    def publisher(self, address: str, name: str) -> PublisherJournal: ...

    def subscriber(self, address: str, name: str) -> SubscriberJournal: ...

    def sync(self) -> int: ...

    def close(self) -> None:
        """Makes durable what was written, then lets go.  May block for a moment."""
        ...


class _MemoryPublisher:
    __slots__ = ("record",)

    def __init__(self) -> None:
        self.record = PublisherRecord()

    def attach(self, epoch: int, incarnation: int) -> None:
        pass

    def contact(self, wall_us: int, timeout_s: float) -> None:
        pass

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        pass

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        pass

    def close(self) -> None:
        pass


class _MemorySubscriber:
    __slots__ = ("record",)

    def __init__(self) -> None:
        self.record = SubscriberRecord()

    def attach(self, epoch: int, born: int) -> None:
        pass

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        return {}

    def contact(self, wall_us: int, timeout_s: float) -> None:
        pass

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        pass

    def settle(self, tags: Sequence[bytes]) -> None:
        pass

    def close(self) -> None:
        pass


class MemoryJournal:
    """Remembers nothing past the process: everything counts as durable at once.

    Links still survive routers and connections: what has to be known for that is in the protocol part itself.
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
