"""Which subscriptions get the stream of one publisher, and what it may send again (protocol 5.4, 6.1, 8.5)."""

from __future__ import annotations

from router.core.directory import SubscriptionEntry
from router.core.messages import SubscriptionName


class Coverage:
    """`router.core.streams` decides it."""

    __slots__ = ("covered", "destinations", "uncovered")

    def __init__(self) -> None:
        self.covered: dict[str, dict[SubscriptionName, None]] = {}  # home -> subscriptions that get its stream
        self.destinations: tuple[str, ...] = ()  # these homes
        self.uncovered: dict[SubscriptionEntry, None] = {}  # attached ones that do not get it

    def cover(self, entry: SubscriptionEntry) -> None:
        assert entry.home is not None
        self.uncovered.pop(entry, None)
        self.covered.setdefault(entry.home, {})[entry.name] = None
        if entry.home not in self.destinations:
            self.destinations = tuple(sorted(self.covered))

    def forget(self, entry: SubscriptionEntry) -> None:
        """The subscription is covered nowhere."""
        self.uncovered.pop(entry, None)
        if entry.home is None:
            return
        covered = self.covered.get(entry.home)
        if covered is not None:
            covered.pop(entry.name, None)
            if not covered:
                self.uncover_home(entry.home)

    def uncover_home(self, home: str) -> None:
        if self.covered.pop(home, None) is not None:
            self.destinations = tuple(sorted(self.covered))

    def check_invariants(self) -> None:
        assert self.destinations == tuple(sorted(self.covered))
        assert all(self.covered.values()), "a home is covered without a subscription"


class Resending:
    """The expected set: outgoing tags that it may send again until its flush (protocol 8.5)."""

    __slots__ = ("flush_at", "sent_new", "tags", "unknown", "withheld")

    def __init__(self) -> None:
        self.tags: dict[bytes, None] = {}
        self.unknown = False  # the tags are not known
        self.flush_at: float | None = None
        self.sent_new = False  # it has sent something new while there was something to send again
        self.withheld = False  # it has no credit, and not because of anything new that it has sent

    def expect(self, tags: list[bytes], *, unknown: bool) -> None:
        self.tags, self.unknown = dict.fromkeys(tags), unknown

    def come(self, tags: list[bytes]) -> None:
        """These have come. Known tags come before anything new."""
        for tag in tags:
            if tag in self.tags:
                del self.tags[tag]
            else:
                self.sent_new = True
