"""When a router may tell publishers accepted, address by address (protocol 4.4).

A router that has started does not know which subscriptions there are. An address is *recovered* when it has learned
that from routers that know, or has waited so long that every subscription from before has come back or expired. It is
*established*, so that publishers are told accepted, when it is recovered, or when it is closed and the router is
booted: all its subscriptions are in the topology file.

Addresses of one entry of the configuration recover together. They are named by its `match`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from router.config import SHARED, AddressConfig, Life, RouterConfig, is_dynamic
from router.core.declarations import Declarations, settings_digest
from router.core.membership import Membership
from router.core.ports import PublisherAttach, PublisherPort, SubscriberAttach, SubscriberPort


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
        self._doubted: dict[str, float] = {}  # recovered before, and in doubt since -> again at the latest
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
    def booted(self) -> bool:
        return self._booted_at is not None

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

    def doubt(self, until: Mapping[str, float]) -> None:
        """What was recovered of these entries may be out of date. Each is recovered again then, at the latest
        (protocol 4.6)."""
        self._doubted |= until
        self.recovered.difference_update(until)

    def begin_anew(self, matches: Iterable[str], now: float) -> None:
        """These entries are no longer recovered, as if the router had booted now (protocol 16.13.7)."""
        self.doubt({match: now + self._longest_s[match] for match in matches})

    def recover(self, entries: Iterable[AddressConfig]) -> bool:
        """These are recovered now. Says whether any of them was not before."""
        before = len(self.recovered)
        for entry in entries:
            self.recovered.add(entry.match)
            self._doubted.pop(entry.match, None)
        return len(self.recovered) > before


class Recovering:
    """Which addresses of this router are recovered, and which are established."""

    def __init__(self, config: RouterConfig, life: Life, members: Membership, clock_us: Callable[[], int]) -> None:
        self._config = config
        self._members = members
        self.times = RecoveryTimes(config, life.now, life.recover_age_s)
        self.declarations = Declarations(config, settings_digest(config), clock_us)
        self.established = False  # every address is
        self.deferred_publishers: dict[PublisherPort, PublisherAttach] = {}  # until it is booted, or they are recovered
        self.deferred_subscribers: dict[SubscriberPort, SubscriberAttach] = {}

    def set_config(self, config: RouterConfig) -> None:
        """The topology file has changed."""
        self._config = config

    def is_recovered(self, address: str) -> bool:
        """Says whether this router knows what others know of an address, or has waited long enough (protocol 4.4).
        The subscription of a dynamic node ends with its link, so there is none from before to wait for."""
        if is_dynamic(address):
            return self.times.booted
        return self._config.address(address).match in self.times.recovered

    def is_established(self, address: str) -> bool:
        """Says whether publishers may be told accepted (protocol 4.4)."""
        known = self.is_recovered(address) or (self.times.booted and self.declarations.is_closed(address))
        return known and (address not in self._config.feeding or self.is_recovered(SHARED))

    def awaited(self, address: str) -> list[str]:
        """Returns the routers whose HELLO is still missing; none once the address is recovered (protocol 4.4)."""
        if self.is_recovered(address):
            return []
        return self._members.awaited(self._config.address(address).match)

    def of(self, address: str, now: float) -> Recovery | None:
        """Returns why an address is not established yet, or None if it is."""
        if self.is_established(address):
            return None
        entry = self._config.address(address)
        left_s = 0.0 if not self.times.booted else max(0.0, self.times.at(entry) - now)
        return Recovery(address, left_s, entry.subscription_timeout_s)

    def look(self) -> bool:
        """Something has come that may make addresses established, or no longer. Says whether every address is now, and
        was not before."""
        before = self.established
        self.established = self.times.booted and all(
            self.declarations.is_closed(each.match) for each in self.times.pending
        )
        return self.established and not before

    @property
    def deferred(self) -> int:
        """Returns how many attaches wait until this router is booted, or established, with their maps' entries."""
        maps: list[object] = [each.unsettled for each in self.deferred_publishers.values()]
        maps += [each.unsettled for each in self.deferred_subscribers.values()]
        return len(maps) + sum(len(each) for each in maps if isinstance(each, Mapping))

    def take_deferred(self) -> tuple[dict[PublisherPort, PublisherAttach], dict[SubscriberPort, SubscriberAttach]]:
        taken = (self.deferred_publishers, self.deferred_subscribers)
        self.deferred_publishers, self.deferred_subscribers = {}, {}
        return taken
