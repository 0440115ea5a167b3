"""What the core asks of the parts of a router that are above it, and tells them; as it is here, there are none.

They put in their own: `router.router`, `router.mqtt`, and for the costs of paths the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from router.core import messages as m
from router.core.ports import Refusal
from router.core.queue.free import Kind
from router.core.rejections import Rejections
from router.reporting import Log


class Shares:
    """Which queues topics may feed (protocol 16.12); here, no topic feeds a queue."""

    def queues_of(self, topic: str) -> Collection[str]:
        """Returns the queues that a topic may feed, as far as this router knows them."""
        return ()

    def topics_of(self, queue: str) -> list[str]:
        """Returns the topics that may feed a queue."""
        return []

    def is_declared(self, queue: str) -> bool:
        """Says whether the file names the queue: it is fed without consumers, too."""
        return False

    def queues_for(self, topic: str, payload: bytes, message_format: int) -> Collection[str]:
        """Returns the queues that a message of the topic goes to, if they are fed."""
        return ()

    def created(self, address: str) -> None: ...
    def dropped(self, address: str) -> None: ...


class Owner:
    """The functions are attributes: what answers is called without another call between."""

    def __init__(self, name: str, log: Log) -> None:
        self._name = name
        self.log = log
        self.rejections = Rejections(log)
        self.cost: Callable[[str], float] = self._as_if_adjacent  # of the path to a router in session
        # when the time of a message is over, in ms of the wall clock; None: never (protocol 16.3)
        self.ends_at: Callable[[bytes], int | None] = _never
        # what messages say of who gets them; with their priority, if that counts (protocol 16.9, 16.10)
        self.kinds_of: Callable[[list[bytes], bool], dict[int, Kind]] = _all_plain
        # what publishers are told of a rejection, as it goes between routers (protocol 6.4.9)
        self.reason_of: Callable[[Refusal], bytes] = _in_words
        self.shares = Shares()
        self.asked: Callable[[str, m.Ask | m.Answer], None] = _nobody_asks  # protocol 3.4.5
        self.suspects: Callable[[], list[m.Suspected]] = list  # what has ended this router lately (protocol 3.4.6)
        self.suspected: Callable[[m.Suspected], None] = _nobody_refuses
        self.connections_hold: Callable[[], Counter[str]] = Counter  # octets by user, for `check_invariants`

    def _as_if_adjacent(self, router: str) -> float:
        return router != self._name


def _all_plain(payloads: list[bytes], priority: bool) -> dict[int, Kind]:
    return {}


def _never(payload: bytes) -> int | None:
    return None


def _in_words(refusal: Refusal) -> bytes:
    return f"{refusal.condition}: {refusal.description}".encode()


def _nobody_asks(sender: str, message: m.Ask | m.Answer) -> None:
    """A core alone has no management node."""


def _nobody_refuses(message: m.Suspected) -> None:
    """A core alone sees no input."""
