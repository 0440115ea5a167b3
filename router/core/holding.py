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


def octets_of_text(text: str) -> int:
    """What a string takes in memory: one character beyond Latin-1 may make four octets of each."""
    return len(text) + 64 if text.isascii() else 4 * len(text) + 96


def octets_of_subscription(name: tuple[str, str]) -> int:
    """name: container-id and link name."""
    return SUBSCRIPTION + octets_of_text(name[0]) + octets_of_text(name[1])


def octets_of_address(name: str) -> int:
    return ADDRESS + octets_of_text(name)
