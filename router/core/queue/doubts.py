"""What consumers of a queue may hold of what publishers send again (protocol 16.4)."""

from __future__ import annotations

from collections.abc import Iterable

from router.core.directory import SubscriptionEntry
from router.core.messages import SubscriptionName
from router.core.ports import Term
from router.core.publisher import Publisher


class Doubt:
    """One publisher's."""

    __slots__ = ("asked", "declined", "expected", "holders", "unheard", "unproven")

    def __init__(self, expected: Iterable[bytes], unheard: Iterable[SubscriptionEntry], asked: Iterable[str]) -> None:
        self.expected = set(expected)
        self.asked = set(asked)  # routers that have not answered the claim
        self.holders: dict[bytes, list[SubscriptionEntry]] = {}  # of tags without a record here
        self.declined: dict[bytes, dict[SubscriptionName, Term]] = {}  # the same
        self.unproven: dict[SubscriptionEntry, Term] = {}  # consumers, as attached
        self.unheard = dict.fromkeys(unheard)  # consumers that have not said what they hold

    def is_heard(self, entry: SubscriptionEntry) -> bool:
        """Says whether it has said on its present link what it holds."""
        return entry not in self.unheard or self.unproven.get(entry) == entry.term

    def withdraw(self, entry: SubscriptionEntry) -> None:
        """What it has named before, on another link, it may not hold any more."""
        for tag in [tag for tag, holders in self.holders.items() if entry in holders]:
            self.holders[tag].remove(entry)
            if not self.holders[tag]:
                del self.holders[tag]

    def hear(self, entry: SubscriptionEntry) -> None:
        """Its home says what it holds on its present link."""
        self.withdraw(entry)
        self.forget(entry)

    def forget(self, entry: SubscriptionEntry) -> None:
        self.unheard.pop(entry, None)
        self.unproven.pop(entry, None)


class Doubts:
    """Those of one queue. Each publisher that has claimed here has one; a topic has none."""

    def __init__(self) -> None:
        self.of: dict[Publisher, Doubt] = {}

    def claimed(self, publisher: Publisher, consumers: Iterable[SubscriptionEntry]) -> None:
        """Any consumer may hold what the publisher sends again, until it has been heard."""
        self.of[publisher] = Doubt(publisher.resending.tags, consumers, publisher.handshake.missing)

    def flushed(self, publisher: Publisher) -> None:
        """The publisher sends nothing again any more."""
        doubt = self.of[publisher]
        doubt.expected, doubt.holders, doubt.declined = set(), {}, {}

    def completed(self, publisher: Publisher, tags: list[bytes]) -> None:
        """These tags may come again for other messages: nobody holds those (protocol 16.7.6)."""
        doubt = self.of.get(publisher)
        if doubt is not None:
            for tag in tags:
                doubt.holders.pop(tag, None)
                doubt.declined.pop(tag, None)

    def dropped(self, publisher: Publisher) -> None:
        self.of.pop(publisher, None)

    def entered(self, entry: SubscriptionEntry) -> None:
        """A consumer is new in the directory."""
        for doubt in self.of.values():
            doubt.unheard[entry] = None

    def forget(self, entry: SubscriptionEntry) -> None:
        """It has gone for good."""
        for doubt in self.of.values():
            doubt.forget(entry)

    def router_down(self, router: str) -> None:
        for doubt in self.of.values():
            doubt.asked.discard(router)
