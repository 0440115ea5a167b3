"""What every router knows of every publisher and subscription of an address (PROTOCOL 2), and how both are named.

Entries only; the rules by which they change are in `router.address`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from router.intervals import OPEN, IntervalSet, Range
from router.messages import SubscriptionName
from router.ports import Term

if TYPE_CHECKING:
    from router.subscriber import Subscriber

NO_TERM: Final[Term] = (0, "")
"""Below every term: of a publisher that is known by a tag only."""

LONG_TAG: Final = 16
PREFIX: Final = 16
"""An outgoing tag begins with 8 bytes publisher and 8 bytes incarnation."""


def publisher_id(container: str, name: str, address: str, unique_tags: bool) -> bytes:
    """PROTOCOL 1: BLAKE2b-64 of the publisher's name, its parts joined by 0 bytes."""
    parts = (container, name, address, "unique" if unique_tags else "")
    return blake2b("\0".join(parts).encode(), digest_size=8).digest()


def tag_prefix(publisher: bytes, incarnation: int) -> bytes:
    return publisher + incarnation.to_bytes(8, "big")


def outgoing_tags(prefix: bytes, tags: list[bytes]) -> list[bytes]:
    """PROTOCOL 1: at most 32 bytes, the same at every router."""
    if max(map(len, tags), default=0) > LONG_TAG:
        tags = [t if len(t) <= LONG_TAG else blake2b(t, digest_size=16).digest() for t in tags]
    return [prefix + tag for tag in tags]


def epoch_of(term: Term, incarnation: int) -> int:
    """What a publisher that is refused for these has to go beyond. Who is known by a tag only (7.2) has no term yet,
    but its incarnation began as an epoch of its (15)."""
    return max(term[0], incarnation)


def incarnation_of(tag: bytes) -> int:
    return int.from_bytes(tag[8:16], "big")


class PublisherEntry:
    """A publisher.  `special` belongs to `router.egress`: the local subscriptions to which its stream does not flow
    plainly, because they are not synced or hold deliveries of it that are found by tag."""

    __slots__ = ("closed", "home", "incarnation", "newer_since", "publisher", "real", "since", "special", "term")

    def __init__(
        self, publisher: bytes, incarnation: int, term: Term, home: str | None, since: float, real: bool
    ) -> None:
        self.publisher = publisher
        self.incarnation = incarnation
        self.term = term
        self.home = home
        self.since = since  # without a home since then
        self.real = real
        self.closed = False  # under this incarnation and term
        self.newer_since: float | None = None  # when a map last showed deliveries of a later incarnation (7.2)
        self.special: dict[Subscriber, None] = {}

    def age(self, now: float) -> float:
        return 0.0 if self.home is not None else max(0.0, now - self.since)


class SubscriptionEntry:
    """A subscription.  `owed` and `syncing` belong to `router.ingress`: positions of the ingress log which it must
    still get (with an open tail while it is an orphan), and those whose token of a SYNC entry under its term is out."""

    __slots__ = ("born", "home", "in_time", "last_home", "name", "owed", "since", "syncing", "term", "timeout_s")

    def __init__(
        self,
        name: SubscriptionName,
        born: Term | None,
        term: Term,
        home: str | None,
        since: float,
        timeout_s: float,
    ) -> None:
        self.name = name
        self.born = born
        self.term = term
        self.home = home
        self.last_home = home
        self.since = since  # an orphan since then
        self.timeout_s = timeout_s  # 8.3: how long an orphan is waited for
        self.in_time = True  # 7.3: known here before its attach was answered: nothing has been accepted without it
        self.owed = IntervalSet()
        self.syncing = IntervalSet()

    def age(self, now: float) -> float:
        return 0.0 if self.home is not None else max(0.0, now - self.since)

    def expired(self, now: float) -> bool:
        """8.3: refused from T on."""
        return self.home is None and self.age(now) > self.timeout_s

    def become_orphan(self, now: float, end: int) -> None:
        """`end` of the ingress log: everything from there on is owed to it, at no cost for each transfer (9)."""
        self.home = None
        self.since = now
        self.owed.add(end, OPEN)

    def find_home(self, home: str, end: int) -> None:
        self.home = self.last_home = home
        self.owed.close(end)

    def unsync(self) -> list[Range]:
        """The tokens of its SYNC entries are void: what they stood for is owed to it again."""
        ranges = self.syncing.take()
        self.owed.add_all(ranges)
        return ranges
