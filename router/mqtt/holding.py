"""What sessions of MQTT take beside messages: counted in octets, of all and by user, against a part of memory_limit.

A session lives on without its client, with its filters and its will; so who makes sessions and leaves them would
otherwise take all there is. A user may take as much as all have left free (as `Core.fair_share`): half, where it is
alone. Messages are counted by the core, and by `router.mqtt.messages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqtt import Will
    from router.mqtt.filters import Filter

SHARE: Final = 2
"""The part of memory_limit that sessions may take: one half."""
SESSION: Final = 8 << 10  # octets of a session without filters, with its ports and what the core knows of it, about
FILTER: Final = 1 << 10  # octets of a filter beside its text: its levels in the tree, mostly
PAIR: Final = 200  # octets of a user property beside its texts


class Holding:
    """One router's.

    Attributes:
        total: Octets of all sessions.
        by_user: Of those of one user.
    """

    __slots__ = ("_limit", "by_user", "total")

    def __init__(self, memory_limit: int) -> None:
        self.total = 0
        self.by_user: dict[str | None, int] = {}
        self.set_limit(memory_limit)

    def set_limit(self, memory_limit: int) -> None:
        self._limit = memory_limit // SHARE

    def has_room(self, user: str | None, octets: int) -> bool:
        """Whether this user may take so much more."""
        return octets <= 0 or self.by_user.get(user, 0) + octets <= self._limit - self.total

    def count(self, user: str | None, more: int) -> None:
        """A session of this user takes more, or (negative) less."""
        self.total += more
        left = self.by_user.get(user, 0) + more
        if left:
            self.by_user[user] = left
        else:
            self.by_user.pop(user, None)


def octets_of_filter(one: Filter) -> int:
    return FILTER + 2 * len(one.form) * len(one.addresses)


def octets_of_will(will: Will | None) -> int:
    if will is None:
        return 0
    texts = sum(len(name) + len(value) + PAIR for name, value in will.properties.user_properties)
    data = will.properties.correlation_data or b""
    others = (will.properties.content_type or "", will.properties.response_topic or "")
    return len(will.topic) + len(will.payload) + len(data) + sum(map(len, others)) + texts
