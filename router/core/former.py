"""Subscriptions that this router has forgotten though their clients may come back (protocol 2.8).

What is kept of one says whether it has missed anything when it is back. The rules are in
`router.core.subscription_directory`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from router.config import RouterConfig
from router.core.messages import SubscriptionName
from router.core.naming import NO_TERM
from router.core.ports import Term

SHARE: Final = 128
"""The part of memory_limit that these may take."""
OWN: Final = 600
"""Octets of one beside its names."""


@dataclass(slots=True)
class Former:
    """A subscription that is not waited for any more (protocol 2.8).

    Attributes:
        born: Its born, or the mark of one that brings none.
        term: That of its latest attach.
        over_at: When its wait was over, by this router's clock.
        forgotten_at: When it was forgotten here: what is accepted from then on is accepted without it.
        position: The first that was owed to it and not done then; the log's end if there was none.
        broken: A router has said that it has missed something.
    """

    born: Term | None
    term: Term
    over_at: float
    forgotten_at: float
    position: int
    broken: bool = False


class FormerSubscriptions:
    """The latest one by one, as many as fit into `most` octets, and of all before these one that has missed at least as
    much as each of them."""

    __slots__ = ("_by_name", "_earlier", "_most", "addresses", "octets")

    def __init__(self, memory_limit: int) -> None:
        self.addresses = FormerAddresses()
        self.octets = 0
        self.set_limit(memory_limit)
        self._by_name: dict[tuple[str, SubscriptionName], Former] = {}
        self._earlier: Former | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    def set_limit(self, memory_limit: int) -> None:
        self._most = memory_limit // SHARE

    def remember(self, address: str, name: SubscriptionName, former: Former) -> None:
        self.back(address, name)
        self._by_name[address, name] = former
        self.octets += _octets(address, name)
        while self.octets > self._most:
            oldest = next(iter(self._by_name))
            self._merge(self._by_name[oldest])
            self.back(*oldest)

    def _merge(self, former: Former) -> None:
        earlier = self._earlier
        if earlier is None:
            self._earlier = replace(former, born=former.born or NO_TERM, position=0)
            return
        earlier.born = max(earlier.born or NO_TERM, former.born or NO_TERM)
        earlier.over_at = min(earlier.over_at, former.over_at)
        earlier.forgotten_at = min(earlier.forgotten_at, former.forgotten_at)
        earlier.broken = earlier.broken or former.broken

    def named(self, address: str, name: SubscriptionName, born: Term | None) -> Former | None:
        """Returns what is remembered of this one; born None matches any (protocol 1.6)."""
        former = self._by_name.get((address, name))
        return former if former is not None and (born is None or former.born == born) else None

    def earlier(self, born: Term | None) -> Former | None:
        """Returns what is remembered of a subscription that may be among those before."""
        earlier = self._earlier
        if earlier is None or (born is not None and born > (earlier.born or NO_TERM)):
            return None
        return earlier

    def back(self, address: str, name: SubscriptionName) -> None:
        """There is a subscription of this name again."""
        if self._by_name.pop((address, name), None) is not None:
            self.octets -= _octets(address, name)


class FormerAddresses:
    """What this router keeps of addresses that it has forgotten."""

    __slots__ = ("_accepted", "next_position")

    def __init__(self) -> None:
        # entry of the configuration -> when a forgotten address of it last told a publisher accepted, and up to which
        # position (protocol 7.3)
        self._accepted: dict[str, tuple[float, int]] = {}
        self.next_position = 0  # ingress logs of new addresses start here: behind those of forgotten addresses

    def accepted(self, match: str) -> tuple[float | None, int]:
        return self._accepted.get(match, (None, 0))

    def forget(self, end: int) -> None:
        """end: of its ingress log."""
        self.next_position = max(self.next_position, end)

    def note_accepted(self, match: str, *news: tuple[float, int]) -> None:
        """Addresses of this entry have told a publisher accepted at these times, up to these positions."""
        known = [*news, *([self._accepted[match]] if match in self._accepted else [])]
        if known:
            self._accepted[match] = (max(at for at, _ in known), max(stop for _, stop in known))

    def reconfigure(self, former: RouterConfig, config: RouterConfig) -> None:
        before, self._accepted = self._accepted, {}
        for entry in config.reachable:
            earlier = [each for each in config.predecessors(entry, former) if each.is_queue == entry.is_queue]
            self.note_accepted(entry.match, *(before[each.match] for each in earlier if each.match in before))


def _octets(address: str, name: SubscriptionName) -> int:
    return OWN + len(address) + len(name[0]) + len(name[1])
