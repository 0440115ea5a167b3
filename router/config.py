"""What one router is told: its name, the network's routers, the addresses, and the timers and sizes (protocol 12).

Plain values, already checked by whoever read them (`onceway.topology` for files). Durations are float seconds, sizes
are bytes. The router reads them and never changes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from router.names import DYNAMIC_PREFIX, Guarantee
from router.policies import Direction, Identity, Policy, allowed, concerning

NoSubscribers = Literal["hold", "accept", "release"]
OtherSubscriptions = Literal["allow", "refuse"]
QueueTable = tuple[tuple[str, bool], ...]
"""Entries of a topology file, in order: what each matches, and whether that is a queue."""

MIB = 1 << 20
_MOST_KNOWN: Final = 4096  # users whose policies are at hand
_LONGEST: Final = 4096  # characters of an address with what is in front of it
_FRONT: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?/(?:/[^/]*/|(?!/))")


class Life(NamedTuple):
    """One life of a router, as it begins.

    Attributes:
        incarnation: Its number, larger than that of an earlier life.
        now: The time.
        fresh: There is no subscription from before to wait for.
        recover_age_s: For how long the network has been dead, at least, which counts as waited already; None: not
            known.
    """

    incarnation: int
    now: float
    fresh: bool = False
    recover_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class AddressConfig:
    """One entry of `addresses`: an exact name, or a prefix ending in `*`."""

    match: str = "*"
    type: Literal["topic", "queue", "pipe"] = "topic"
    guarantee: Guarantee = "exactly-once"  # the best that a link may negotiate here
    subscription_timeout_s: float = 60.0  # the longest wait for a subscription without a link
    publisher_timeout_s: float | None = None  # None: subscription_timeout_s + 60
    no_subscribers: NoSubscribers = "hold"
    max_redeliveries: int = 5
    expire: bool = False  # whether messages whose time is over are dropped
    priority: bool = False  # of a queue: whether messages of a higher priority go first
    subscriptions: tuple[tuple[str, str], ...] = ()  # the declared ones: container-id and link name
    other_subscriptions: OtherSubscriptions = "allow"  # whether subscriptions that are not declared may attach
    read_at: tuple[tuple[str, str, int], ...] = ()  # where a pipe is read: scheme, host and port, the primary's first

    @property
    def is_queue(self) -> bool:
        return self.type == "queue"

    def matches(self, address: str) -> bool:
        return _matches(self.match, address)

    def covers(self, other: AddressConfig) -> bool:
        """Says whether this entry matches every address that `other` matches."""
        return (
            self.matches(other.match)
            if not other.match.endswith("*")
            else (self.match.endswith("*") and other.match[:-1].startswith(self.match[:-1]))
        )

    @property
    def publisher_expires_s(self) -> float:
        """Returns publisher_timeout, which must exceed subscription_timeout + 2 margin (protocol 12)."""
        if self.publisher_timeout_s is not None:
            return self.publisher_timeout_s
        return self.subscription_timeout_s + 60.0

    @property
    def margin_s(self) -> float:
        """Returns what is added to timeouts: more than clocks drift, plus the time in which a loss becomes known
        (protocol 12)."""
        return self.margin_for(self.subscription_timeout_s)

    def margin_for(self, granted_s: float) -> float:
        """Returns the margin for a timeout that may have been granted under an earlier topology file."""
        return min(5.0, max(self.subscription_timeout_s, granted_s) / 4)

    @property
    def recovery_s(self) -> float:
        """Returns how long after booting a router waits for subscriptions from before (protocol 4.4)."""
        return self.subscription_timeout_s + 2 * self.margin_s


DEFAULT_ADDRESS = AddressConfig()
SHARED: Final = "_mqtt/shared/"
"""Begins the addresses of MQTT's shared subscriptions that no file names (protocol 16.12)."""
RESERVED: Final = ("$", "_mqtt/")
"""Begin addresses that no topic of clients has."""
DYNAMIC_ADDRESS: Final = AddressConfig(f"{DYNAMIC_PREFIX}*", no_subscribers="release")
DYNAMIC_TARGET_SUFFIX: Final = "/target"
DYNAMIC_TARGET: Final = AddressConfig(f"{DYNAMIC_PREFIX}*", no_subscribers="hold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one listener. Where one is None, the network's `settings` hold."""

    connections: int = 10_000  # opened ones
    half_open: int = 1_000  # connections before open; above it the oldest is dropped
    handshake_timeout_s: float = 10.0  # for header, SASL and open together
    sessions: int = 256  # of one connection
    links: int = 1_024  # of one connection
    unsettled_map: int = 1_000_000  # entries that one attach, or its parts together, may bring
    unread_output: int = 16 << 20  # bytes that wait for one client to read; above it we read nothing from it
    max_frame_size: int | None = None
    max_message_size: int | None = None
    unsettled_window: int | None = None
    idle_timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimits:
    """The limits of one user where they differ. `connections` is counted beside the listener's; the others hold in its
    stead."""

    connections: int | None = None
    sessions: int | None = None
    links: int | None = None
    unsettled_map: int | None = None
    unread_output: int | None = None
    max_frame_size: int | None = None
    max_message_size: int | None = None
    unsettled_window: int | None = None
    idle_timeout_s: float | None = None

    def over(self, limits: Limits) -> Limits:
        """Returns the listener's limits with these in their place."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "connections"}
        kept = {each.name: getattr(limits, each.name) for each in fields(limits)}
        return Limits(**{**kept, **{name: value for name, value in own.items() if value is not None}})


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """The network as one router sees it. `routers` are all of the topology file, this one included."""

    name: str
    routers: tuple[str, ...] = ()
    addresses: tuple[AddressConfig, ...] = ()  # the first match wins; none matching: a topic, exactly-once
    # timers (protocol 12)
    heartbeat_s: float = 0.5
    dead_after_s: float = 3.0
    discovery_s: float = 1.0
    idle_timeout_s: float = 16.0
    proof_after_s: float = 2.0
    # back-pressure (protocol 6.8)
    window_messages: int = 1_000  # of one publisher, not done
    window_bytes: int = 8 * MIB
    unsettled_window: int = 10_000  # of one publisher, done and not settled
    max_message_size: int = 64 * MIB
    max_frame_size: int = 8 * MIB
    memory_limit: int = 512 * MIB  # of payload held in this router
    stream_above: int = MIB  # bytes of a delivery from which on it passes through while it arrives; 0: never
    stream_share: int = MIB // 2  # that a publisher may be ahead of its slowest subscriber then (protocol 6.12)
    presettled_queue: int = 10_000  # pre-settled messages that wait for one subscription (protocol 6.9)
    strip_addresses: bool = True  # of what clients of AMQP say (protocol 1.13)
    ready_when_isolated: bool = False  # for whoever asks the router whether it is ready; the core does not
    done_bytes: int = 64 * MIB  # payload done and not settled; above it the oldest is freed early (protocol 9.6)
    defaults: AddressConfig = field(default=DEFAULT_ADDRESS)
    limits: Limits = field(default=Limits())
    users: tuple[tuple[str, UserLimits], ...] = ()
    hostnames: tuple[str, ...] = ()  # that opens may name; (): every one
    policies: tuple[Policy, ...] | None = None  # None: everyone may use every address
    mqtt_topics: tuple[tuple[str, str], ...] = ()  # prefix of topic names -> address; (): no client of MQTT may connect
    mqtt_retained: str = ""  # address of the retained messages; "": none are kept
    mqtt_shared: tuple[tuple[str, str], ...] = ()  # GROUP/FILTER of shared subscriptions -> queue
    topology_digest: int = 0  # of routers and links, to notice files that differ (protocol 4.5); 0: not known
    feeding: dict[str, None] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The topics that may feed queues (protocol 16.12)."""
    # the policies that concern a user, on a link without an address or with one: found once, not for each message
    _of_user: dict[tuple[Identity, bool], tuple[Policy, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self.feeding.update(dict.fromkeys(address for _, address in self.mqtt_topics))

    def address(self, name: str) -> AddressConfig:
        if is_dynamic(name):
            return DYNAMIC_TARGET if is_dynamic_target(name) else DYNAMIC_ADDRESS
        return _match(self.addresses, self.defaults, name)

    def left_of(self, said: str) -> str:
        """Returns what is left of an address that a client of AMQP says: all of it where the file has it by that name
        (protocol 1.13)."""
        left = stripped(said) if self.strip_addresses else said
        if left == said or not self.address(said).matches(left) or said == self.mqtt_retained:
            return said
        return said if any(said == address for _, address in (*self.mqtt_topics, *self.mqtt_shared)) else left

    def allows(self, who: Identity, direction: Direction, address: str, *, anonymous: bool = False) -> bool:
        """Says whether the policies let this client send to an address, or receive from it. anonymous: on a link
        without an address."""
        if self.policies is None:
            return True
        policies = self._of_user.get((who, anonymous))
        if policies is None:
            policies = concerning(self.policies, who, anonymous=anonymous)
            if len(self._of_user) >= _MOST_KNOWN:
                self._of_user.clear()
            self._of_user[who, anonymous] = policies
        return allowed(policies, who, direction, address, dynamic=is_dynamic(address))

    def allows_anonymous(self, who: Identity) -> bool:
        """Says whether the policies let this client send to any address at all on a link without one."""
        policies = self.policies
        return policies is None or any(each.send or each.dynamic for each in concerning(policies, who, anonymous=True))

    @property
    def reachable(self) -> tuple[AddressConfig, ...]:
        """Returns the entries that an address may have: `defaults` only if no entry matches all."""
        return self.addresses if any(a.match == "*" for a in self.addresses) else (*self.addresses, self.defaults)

    def predecessors(self, entry: AddressConfig, former: RouterConfig) -> list[AddressConfig]:
        """Returns the entries of a former file that addresses of this entry may have had there."""
        if not entry.match.endswith("*"):
            return [former.address(entry.match)]
        earlier = self.reachable[: self.reachable.index(entry)]
        return [
            each
            for each in former.reachable
            if (each.covers(entry) or entry.covers(each)) and not any(first.covers(each) for first in earlier)
        ]

    @property
    def recovery_s(self) -> float:
        """Returns the longest that any address waits for subscriptions from before (protocol 4.4)."""
        return max(address.recovery_s for address in self.reachable)


def is_dynamic(address: str) -> bool:
    """Says whether a router has made the address, for a dynamic source or target (AMQP 3.5.3, 3.5.4)."""
    return address.startswith(DYNAMIC_PREFIX)


def is_dynamic_target(address: str) -> bool:
    """Says whether it has made it for a dynamic target: any link may receive from there."""
    return is_dynamic(address) and address.endswith(DYNAMIC_TARGET_SUFFIX)


def stripped(said: str) -> str:
    """Returns what is left of an address without what is in front of the name and behind it, as qpid-dispatch has it
    (`view_initialize` in its `src/iterator.c`): all of it where nothing would be left."""
    if len(said) > _LONGEST:
        return said
    front = _FRONT.match(said)
    left = said if front is None else said[front.end() :]
    if left.endswith(("/", ".")):
        left = left[:-1]
    return left or said


def _matches(match: str, address: str) -> bool:
    return address.startswith(match[:-1]) if match.endswith("*") else address == match


def kinds_of(addresses: Iterable[AddressConfig]) -> QueueTable:
    """Returns the entries of a file up to the last queue: whatever none of them matches is a topic."""
    entries = [(each.match, each.is_queue) for each in addresses]
    while entries and not entries[-1][1]:
        entries.pop()
    return tuple(entries)


def is_queue(table: QueueTable, address: str) -> bool:
    """Says whether an address is a queue by that table."""
    if not is_dynamic(address):
        for match, queue in table:
            if _matches(match, address):
                return queue
    return False


@lru_cache(maxsize=4096)
def _match(addresses: tuple[AddressConfig, ...], default: AddressConfig, name: str) -> AddressConfig:
    for address in addresses:
        if address.matches(name):
            return address
    return default
