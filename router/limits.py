"""What one listener, one user and one connection may take of a router, and who is counted for it.

`Limits` are values; `Admission` counts connections and says which limit is reached, in words that name it. Where a
limit is AMQP's own (sessions, frame size, idle time), the client is told in open and begin and the engine sees to it;
the rest is asked for by `router.client_connection`. Names and maps are counted in `router.memory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amqp10.performatives import Error
    from router.client_connection import ClientConnection

ANONYMOUS: Final = "anonymous"
"""The user of clients that establish no identity, with SASL ANONYMOUS or without a SASL layer."""

NOT_OPENED: Final = "half_open"  # the names under which refusals are counted
LINKS: Final = "links"
CONNECTIONS: Final = "connections"
MEMORY: Final = "memory_limit"
UNREAD: Final = "unread_output"
MAP: Final = "unsettled_map"
MESSAGE_SIZE: Final = "max_message_size"
COUNTED: Final = (
    NOT_OPENED,
    "handshake_timeout",
    CONNECTIONS,
    "sessions",
    LINKS,
    MAP,
    MESSAGE_SIZE,
    "max_frame_size",
    "idle_timeout",
    UNREAD,
    MEMORY,
)
ENGINES: Final = {
    "handshake-timeout": "handshake_timeout",
    "idle-time-out": "idle_timeout",
    "channel-max": "sessions",
    "handle-max": "links",
    "max-frame-size": "max_frame_size",
    "max-message-size": MESSAGE_SIZE,
}
"""AMQP's name of a limit, as the engine's own errors say it, and ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """One listener's. Those that are None are the network's `settings`."""

    connections: int = 10_000  # opened ones
    half_open: int = 1_000  # connections before open; above it the oldest is dropped
    handshake_timeout_s: float = 10.0  # for header, SASL and open together
    sessions: int = 256  # of one connection
    links: int = 1_024  # of one connection
    unsettled_map: int = 1_000_000  # entries that one attach, or its parts together, may bring
    unread_output: int = 16 << 20  # octets that wait for one client to read; above it we read nothing from it
    max_frame_size: int | None = None
    max_message_size: int | None = None
    unsettled_window: int | None = None
    idle_timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimits:
    """Those that differ for one user; `connections` is counted beside the listener's, the others hold in its stead."""

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
        """The listener's limits with these in their place."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "connections"}
        kept = {each.name: getattr(limits, each.name) for each in fields(limits)}
        return Limits(**{**kept, **{name: value for name, value in own.items() if value is not None}})


NO_LIMITS: Final = UserLimits()


class Admission:
    """One router's counts."""

    def __init__(self, limits: Limits, users: Mapping[str, UserLimits]) -> None:
        self.limits = limits
        self.users = users
        self.half_open: dict[ClientConnection, None] = {}  # in the order in which they came
        self.opened: dict[str, int] = {}  # user -> connections
        self.total = 0
        self.refused: dict[str, int] = {}  # limit -> how often it was reached

    def exceeded(self, limit: str) -> None:
        """For status and metrics."""
        self.refused[limit] = self.refused.get(limit, 0) + 1

    def engine_said(self, error: Error | None) -> None:
        """The engine ended something for this; count it if a limit was why."""
        text = error.description if error is not None else None
        for name, limit in ENGINES.items():
            if text and name in text:
                self.exceeded(limit)
                return

    def came(self, connection: ClientConnection) -> ClientConnection | None:
        """Before its open; gives the one to be dropped for it. The oldest: an honest handshake takes moments, so in a
        flood of others the newest have the best chance."""
        self.half_open[connection] = None
        if len(self.half_open) <= self.limits.half_open:
            return None
        oldest = next(iter(self.half_open))
        del self.half_open[oldest]
        self.exceeded(NOT_OPENED)
        return oldest

    def opening(self, connection: ClientConnection, user: str) -> str | None:
        """Its open has come: None if it is let in, else what to tell it."""
        self.half_open.pop(connection, None)
        of_user = self.users.get(user, NO_LIMITS).connections
        if self.total >= self.limits.connections:
            reason = f"limit connections: this router takes {self.limits.connections}"
        elif of_user is not None and self.opened.get(user, 0) >= of_user:
            reason = f"limit connections: user {user!r:.60} may have {of_user}"
        else:
            self.opened[user] = self.opened.get(user, 0) + 1
            self.total += 1
            return None
        self.exceeded(CONNECTIONS)
        return reason

    def went(self, connection: ClientConnection, user: str | None) -> None:
        """user: that under which it was let in, None if it was not."""
        self.half_open.pop(connection, None)
        if user is not None:
            self.total -= 1
            left = self.opened[user] - 1
            if left:
                self.opened[user] = left
            else:
                del self.opened[user]

    def of(self, user: str) -> Limits:
        """What holds for a connection of this user."""
        own = self.users.get(user)
        return self.limits if own is None else own.over(self.limits)

    def status(self) -> dict[str, object]:
        return {
            "half_open": len(self.half_open),
            "connections": dict(self.opened),
            "refused": dict(self.refused),
        }
