"""What clients have made in a router, counted in octets: connections, sessions, links, names, addresses, maps.

All of it is counted here, of AMQP and MQTT, by who has made it; so that nobody takes what others need. Payload,
incomplete input and unread output are bounded apart. What one thing takes was measured (`bench/cycles.py`), with the
objects that go with it; its texts count with what they take in memory.
"""

from __future__ import annotations

from typing import Final

ADDRESS: Final = 8 << 10  # octets of an address that somebody uses
SUBSCRIPTION: Final = 1 << 10  # of what each router knows of a subscription
PUBLISHER: Final = 512  # of what each router knows of a publisher, by a hash of its name
ENTRY: Final = 256  # of an entry of an unsettled map
SHARE_OF_USER: Final = 2
"""A connection may take a half of what its user may."""
NETWORK: Final = ""
"""Who has made what is known from other routers only, and has no name here. No user is called so."""


class Holding:
    """One router's.

    Attributes:
        total: Octets of all.
        by_user: Of those of one user.
    """

    __slots__ = ("_limit", "by_user", "total")

    def __init__(self, limit: int) -> None:
        """limit: of all together, in octets."""
        self.total = 0
        self.by_user: dict[str, int] = {}
        self._limit = limit

    def set_limit(self, limit: int) -> None:
        self._limit = limit

    @property
    def full(self) -> bool:
        """Whether there is more than may be: what is refused takes something, too, until its client has read that."""
        return self.total > self._limit

    def has_room(self, user: str, octets: int, own: int = 0) -> bool:
        """Says whether this user may take so much more: together as much as all left free (as `Memory.fair_share`).
        own: what the connection takes that it is for: it may have half as much."""
        free = self._limit - self.total
        return octets <= 0 or (self.by_user.get(user, 0) + octets <= free and (own + octets) * SHARE_OF_USER <= free)

    def count(self, user: str, more: int) -> None:
        """Something of this user takes more, or (negative) less."""
        self.total += more
        left = self.by_user.get(user, 0) + more
        if left:
            self.by_user[user] = left
        else:
            self.by_user.pop(user, None)


class Held:
    """What one connection is counted for."""

    __slots__ = ("_holding", "octets", "of_engine")

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self.octets = 0
        self.of_engine = 0  # of what it holds, what the engine has

    def count(self, user: str, octets: int) -> None:
        """It takes so much now."""
        self._holding.count(user, octets - self.octets)
        self.octets = octets


class Buffered:
    """What of one client waits in buffers, as the router counts it (`router.links.buffers`)."""

    __slots__ = ("incomplete_bytes", "incomplete_of", "unread_bytes")

    def __init__(self) -> None:
        self.unread_bytes = 0  # in its transport's buffer while output is paused
        self.incomplete_bytes = 0  # of messages, packets and frames
        self.incomplete_of = NETWORK  # the user under whom these count

    def count_unread(self, size: int) -> int:
        """Returns how many more these are."""
        more, self.unread_bytes = size - self.unread_bytes, size
        return more

    def count_incomplete(self, user: str, size: int, together: Holding) -> None:
        if user != self.incomplete_of:
            together.count(self.incomplete_of, -self.incomplete_bytes)
            self.incomplete_of, self.incomplete_bytes = user, 0
        together.count(user, size - self.incomplete_bytes)
        self.incomplete_bytes = size


def octets_of_text(text: str) -> int:
    """What a string takes in memory: one character beyond Latin-1 may make four octets of each."""
    return len(text) + 64 if text.isascii() else 4 * len(text) + 96


def octets_of_subscription(name: tuple[str, str]) -> int:
    """name: container-id and link name."""
    return SUBSCRIPTION + octets_of_text(name[0]) + octets_of_text(name[1])


def octets_of_address(name: str) -> int:
    return ADDRESS + octets_of_text(name)
