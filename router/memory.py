"""What a router keeps beside payload: names it knows, entries of clients' maps. Counted roughly, now and then.

A name stays known for minutes after its client has gone (PROTOCOL 8.3, 8.4), so attaching under ever new names would
make the directory grow as long as somebody does it. Knows nothing of who attaches; asked by router.client_connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from router.core import Core

ENTRY_COST: Final = 1024  # octets that a known name, or an entry of a map with its delivery, costs at most
ADDRESS_COST: Final = 8  # entries
SHARE: Final = 2  # the part of memory_limit: one half
RECOUNT_S: Final = 1.0
RECOUNT_AFTER: Final = 4096  # entries


class Bookkeeping:
    """Entries of one router, and whether there is room for more."""

    __slots__ = ("_at", "_core", "_counted", "_since", "limit")

    def __init__(self, core: Core, memory_limit: int) -> None:
        self._core = core
        self._counted = 0
        self._since = 0
        self._at = -RECOUNT_S
        self.limit = max(memory_limit // SHARE // ENTRY_COST, 1)

    def entries(self, now: float) -> int:
        """As of a second ago at most, with what has been added since."""
        if now - self._at >= RECOUNT_S or self._since >= RECOUNT_AFTER:
            self._at = now
            self._counted = self._count()
            self._since = 0
        return self._counted + self._since

    def add(self, entries: int, now: float) -> bool:
        """Whether there is room for an attach with so many; they count from now on."""
        if self.entries(now) + entries > self.limit:
            return False
        self._since += entries
        return True

    def _count(self) -> int:
        """Names known and deliveries found by tag."""
        core = self._core
        found = core.parts.entries() + core.deferred
        for address in core.addresses.values():
            found += ADDRESS_COST + len(address.publishers) + len(address.subscriptions)
            for publisher in (*address.ingress.publishers.values(), *address.ingress.proving):
                found += 1 + len(publisher.presented) + len(publisher.expected)
            for subscriber in address.egress.subscribers.values():
                found += 1 + sum(map(len, subscriber.irregular.values()))
        return found
