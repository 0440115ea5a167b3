"""What one router is told: its name, the network's routers, the addresses, and the timers and sizes of PROTOCOL 12.

Plain values, already checked by whoever read them (`onceway.topology` for files).  Durations are float seconds,
sizes are bytes.  `router.core` reads them and never changes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from router.limits import Limits, UserLimits

Guarantee = Literal["exactly-once", "at-least-once", "at-most-once"]
NoSubscribers = Literal["hold", "accept", "release"]

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class AddressConfig:
    """One entry of `addresses`: an exact name, or a prefix ending in `*`."""

    match: str = "*"
    type: Literal["topic"] = "topic"
    guarantee: Guarantee = "exactly-once"  # the best that a link may negotiate here
    subscription_timeout_s: float = 60.0  # the longest wait for a subscription without a link
    publisher_timeout_s: float | None = None  # None: subscription_timeout_s + 60
    no_subscribers: NoSubscribers = "hold"
    max_redeliveries: int = 5

    def matches(self, address: str) -> bool:
        if self.match.endswith("*"):
            return address.startswith(self.match[:-1])
        return address == self.match

    @property
    def publisher_expires_s(self) -> float:
        """PROTOCOL 12: publisher_timeout, which must exceed subscription_timeout + 2 margin."""
        if self.publisher_timeout_s is not None:
            return self.publisher_timeout_s
        return self.subscription_timeout_s + 60.0

    @property
    def margin_s(self) -> float:
        """PROTOCOL 12: above clock drift plus the time in which a loss becomes known."""
        return min(5.0, self.subscription_timeout_s / 4)


DEFAULT_ADDRESS = AddressConfig()


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """The network as one router sees it.  `routers` are all of the topology file, this one included."""

    name: str
    routers: tuple[str, ...] = ()
    addresses: tuple[AddressConfig, ...] = ()  # the first match wins; none matching: a topic, exactly-once
    # PROTOCOL 12
    heartbeat_s: float = 0.5
    dead_after_s: float = 3.0
    discovery_s: float = 1.0
    idle_timeout_s: float = 16.0
    proof_after_s: float = 2.0
    # PROTOCOL 6.8
    window_messages: int = 1_000  # of one publisher, not done
    window_bytes: int = 8 * MIB
    unsettled_window: int = 10_000  # of one publisher, done and not settled
    max_message_size: int = 64 * MIB
    max_frame_size: int = 8 * MIB
    memory_limit: int = 512 * MIB  # of payload held in this router
    presettled_queue: int = 10_000  # messages of at-most-once streams waiting per subscription (6.9)
    # PROTOCOL 9
    done_bytes: int = 64 * MIB  # payload of done, unsettled deliveries; above it the oldest is freed early
    defaults: AddressConfig = field(default=DEFAULT_ADDRESS)
    limits: Limits = field(default=Limits())
    users: tuple[tuple[str, UserLimits], ...] = ()

    def address(self, name: str) -> AddressConfig:
        return _match(self.addresses, self.defaults, name)

    @property
    def recovery_s(self) -> float:
        """PROTOCOL 4.4: longest subscription timeout + 2 margin, after booting."""
        reachable = self.addresses if any(a.match == "*" for a in self.addresses) else (*self.addresses, self.defaults)
        longest = max(reachable, key=lambda a: a.subscription_timeout_s)
        return longest.subscription_timeout_s + 2 * longest.margin_s


@lru_cache(maxsize=4096)
def _match(addresses: tuple[AddressConfig, ...], default: AddressConfig, name: str) -> AddressConfig:
    for address in addresses:
        if address.matches(name):
            return address
    return default
