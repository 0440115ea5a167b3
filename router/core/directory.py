"""What every router knows of every publisher and subscription of an address (protocol 2.1, 2.2).

Entries only. The rules by which they change are in `router.core.publisher_directory` and
`router.core.subscription_directory`.
"""

from __future__ import annotations

from enum import IntEnum

from router.core.holding import NETWORK
from router.core.intervals import OPEN, IntervalSet, Range
from router.core.messages import KeptItem, SubscriptionName
from router.core.naming import NO_TERM
from router.core.ports import MapState, Term


class PublisherEntry:
    """A publisher (protocol 2.1)."""

    __slots__ = (
        "closed", "forgotten", "home", "incarnation", "made_by", "newer_incarnation_since", "publisher_id", "real",
        "since", "term", "timeout_s",
    )  # fmt: skip

    def __init__(
        self,
        publisher_id: bytes,
        incarnation: int,
        term: Term,
        home: str | None,
        since: float,
        real: bool,
        timeout_s: float,
    ) -> None:
        self.publisher_id = publisher_id
        self.incarnation = incarnation
        self.term = term
        self.home = home
        self.since = since  # without a home since then
        self.real = real
        self.timeout_s = timeout_s  # the publisher_timeout that it was told when it attached (protocol 12.7)
        self.closed = False  # under this incarnation and term
        # An operator says that it will not come back in this incarnation or an earlier one. These routers are known to
        # know that, in the present session (protocol 8.4).
        self.forgotten: dict[str, None] | None = None
        self.newer_incarnation_since: float | None = None  # when a map last showed a later incarnation (protocol 7.2)
        self.made_by = NETWORK  # whose memory it counts as (`router.core.holding`)

    def age(self, now: float) -> float:
        """Returns for how many seconds it has had no home; 0 where it has one."""
        return 0.0 if self.home is not None else max(0.0, now - self.since)

    def expired(self, now: float) -> bool:
        """Says whether it has had no home for longer than it was told (protocol 5.3)."""
        return self.age(now) > self.timeout_s

    def is_forgotten(self, incarnation: int) -> bool:
        """Says whether an operator has had that incarnation forgotten (protocol 8.4)."""
        return self.forgotten is not None and incarnation <= self.incarnation


class KeptMap:
    """A map as of a KEEP: tag -> (state, identifier; 0: the client holds none)."""

    __slots__ = ("items", "number", "term")

    def __init__(self, term: Term) -> None:
        self.term = term
        self.number = 0
        self.items: dict[bytes, tuple[MapState, int]] = {}

    def change(self, changed: list[KeptItem], gone: list[bytes]) -> None:
        for tag in gone:
            self.items.pop(tag, None)
        holders = {identifier: tag for tag, (_, identifier) in self.items.items() if identifier}
        for tag, state, identifier in changed:
            former = holders.get(identifier)
            if former is not None and former != tag and former in self.items:  # protocol 7.9.6
                self.items[former] = (self.items[former][0], 0)
            if identifier:
                holders[identifier] = tag
            self.items[tag] = (MapState(state), identifier)


class Gap(IntEnum):
    """What is known of a subscription's present attach. The greater one is the later (protocol 7.6)."""

    NONE = 0
    UNTOLD = 1  # it has missed something, and its client may not have read that yet
    TOLD = 2  # its client has


class SubscriptionEntry:
    """A subscription (protocol 2.2).

    `owed` and `syncing` belong to the ingress: positions of its log that the subscription must still get (with an open
    tail while it is an orphan), and positions whose token of a SYNC entry under its term is out.
    """

    __slots__ = (
        "born", "created_at", "data", "declared", "doubted_since", "gap", "home", "in_time", "kept", "last_home",
        "name", "owed", "recalled_by", "resumed", "since", "syncing", "term", "timeout_s",
    )  # fmt: skip

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
        self.timeout_s = timeout_s  # how long an orphan is waited for (protocol 8.3)
        # protocol 7.3: it was known here before its attach was answered, so nothing has been accepted without it
        self.in_time = True
        self.resumed = False  # it was known here before the attach of its term (protocol 7.3)
        # its wait was over then, and a router that is gone may have accepted without it (protocol 7.3)
        self.doubted_since: float | None = None
        self.gap = Gap.NONE
        self.declared = False  # it never expires (protocol 2.7)
        self.data = b""  # of whoever attached it (protocol 7.10)
        # protocol 7.9: the map that this router keeps, and the term under which it was last fetched
        self.kept: KeptMap | None = None
        self.recalled_by = NO_TERM
        self.created_at = float("-inf")  # it is no older, as far as is known (protocol 7.3)
        self.owed = IntervalSet()
        self.syncing = IntervalSet()

    def missed(self, term: Term) -> None:
        """Something may have been accepted without it before it attached under this term (protocol 7.3, 7.6)."""
        self.born, self.gap = term, Gap.UNTOLD

    def age(self, now: float) -> float:
        """Returns for how many seconds it has been an orphan; 0 where it has a home."""
        return 0.0 if self.home is not None else max(0.0, now - self.since)

    def expired(self, now: float) -> bool:
        """Says whether it has been an orphan for longer than its timeout (protocol 8.3)."""
        return self.home is None and not self.declared and self.age(now) > self.timeout_s

    @property
    def over_at(self) -> float:
        """When the wait for an orphan is over; for one that has a home, never (protocol 8.3)."""
        return float("inf") if self.home is not None else self.since + self.timeout_s

    def become_orphan(self, now: float, log_end: int) -> None:
        """Its link is lost. Everything from the end of the ingress log on is owed to it, at no cost for a transfer."""
        self.home = None
        self.since = now
        self.owed.add(log_end, OPEN)

    def attached_at(self, home: str, log_end: int) -> None:
        assert not self.syncing
        self.home = self.last_home = home
        self.owed.close(log_end)

    def owe_syncing(self) -> list[Range]:
        """The tokens of its SYNC entries are void: what they stood for is owed to it again."""
        ranges = self.syncing.take()
        self.owed.add_all(ranges)
        return ranges

    def check_invariants(self, log_end: int) -> None:
        for each in (self.owed, self.syncing):
            each.check_invariants()
        assert not self.syncing.overlap(log_end, OPEN)
        open_tail = self.owed.overlap(log_end, OPEN)
        assert open_tail == ([] if self.home is not None else [(log_end, OPEN)]), f"{self.name}: {self.owed}"
        assert not (self.home is None and self.syncing), f"{self.name}: tokens of an orphan"
        assert not any(self.owed.overlap(start, stop) for start, stop in self.syncing)
