"""When a router may tell publishers accepted, address by address (protocol 4.4).

A router that has started does not know which subscriptions there are. An address is *recovered* when it has learned
that from routers that know, or has waited so long that every subscription from before has come back or expired. It is
*established*, so that publishers are told accepted, when it is recovered, or when it is closed and the router is
booted: all its subscriptions are in the topology file.

Addresses of one entry of the configuration recover together. They are named by its `match`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from router.config import AddressConfig, RouterConfig


@dataclass(frozen=True, slots=True)
class Recovery:
    """Why an address is not established yet."""

    address: str
    left_s: float  # at the latest; routers that know may end it earlier
    subscription_timeout_s: float  # the setting that this time comes from


class RecoveryTimes:
    """Which entries are recovered, and when the others are at the latest."""

    def __init__(self, config: RouterConfig, now: float, age_s: float | None) -> None:
        """age_s: for how long the network has been dead, at least; None: not known."""
        self._alive_at = None if age_s is None else now - age_s
        self._booted_at: float | None = None
        self._longest_s: dict[str, float] = {}  # by entry: the longest time that a file has asked for in this life
        self._entries: tuple[AddressConfig, ...] = ()
        self._doubted: dict[str, float] = {}  # recovered before this process was suspended -> again at the latest
        self.recovered: set[str] = set()
        self.reconfigure(config, config)

    def reconfigure(self, former: RouterConfig, config: RouterConfig) -> None:
        """The file has changed. Nothing waits less than before, because the longer timeout may have been granted, and
        an entry is recovered if all are that its addresses had before (protocol 12.9)."""
        longest, recovered = {}, set()
        for entry in config.reachable:
            before = [each.match for each in config.predecessors(entry, former)]
            longest[entry.match] = max([entry.recovery_s, *(self._longest_s.get(match, 0.0) for match in before)])
            if self.recovered.issuperset(before):
                recovered.add(entry.match)
        self._longest_s, self.recovered, self._entries = longest, recovered, config.reachable

    def boot(self, now: float) -> None:
        """The waiting begins."""
        self._booted_at = now

    @property
    def pending(self) -> list[AddressConfig]:
        """Returns the entries that are not recovered."""
        return [entry for entry in self._entries if entry.match not in self.recovered]

    @property
    def all_recovered(self) -> bool:
        return not self.pending

    def at(self, entry: AddressConfig) -> float:
        """Returns when an entry is recovered at the latest; infinity before the router is booted (protocol 4.4)."""
        if entry.match in self._doubted:
            return self._doubted[entry.match]
        if self._booted_at is None:
            return float("inf")
        alive_at = self._booted_at if self._alive_at is None else self._alive_at
        return max(self._booted_at, alive_at + self._longest_s[entry.match])

    def next_at(self) -> float:
        """Returns when the next entry is recovered at the latest."""
        return min(map(self.at, self.pending), default=float("inf"))

    def doubt(self, until: float) -> None:
        """What is recovered may be out of date. It is recovered again then, at the latest (protocol 4.6)."""
        self._doubted |= dict.fromkeys(self.recovered, until)
        self.recovered.clear()

    def recover(self, entries: Iterable[AddressConfig]) -> bool:
        """These are recovered now. Says whether any of them was not before."""
        before = len(self.recovered)
        for entry in entries:
            self.recovered.add(entry.match)
            self._doubted.pop(entry.match, None)
        return len(self.recovered) > before
