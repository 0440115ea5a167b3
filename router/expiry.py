"""Which end starts a subscription's own timeout (contract 10, AMQP 3.5.6, PROTOCOL 8.3), and who waits for that end."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from amqp10.session import Session
from router.ports import SubscriberAttach, Term


class Loss(IntEnum):
    """How a link came to its end; each takes along what those before it take."""

    CLOSED = 0  # the client detached it with closed = true
    DETACHED = 1
    SESSION = 2
    CONNECTION = 3
    NEVER = 4


# By expiry policy: what must have gone.
STARTS: Final = {
    "link-detach": Loss.DETACHED,
    "session-end": Loss.SESSION,
    "connection-close": Loss.CONNECTION,
    "never": Loss.NEVER,
}


class Lingering(NamedTuple):
    """A subscription whose link has gone, while what its expiry policy names is still there."""

    attach: SubscriberAttach
    term: Term
    session: Session
    starts: Loss


class Lingerers:
    """Those of one connection."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Lingering] = {}  # by link name and address

    def add(self, one: Lingering) -> None:
        """In the place of an earlier one: that link's term counts no more."""
        self._found[one.attach.name, one.attach.address] = one

    def session_ended(self, session: Session) -> list[Lingering]:
        """Those whose timeout starts with that."""
        ended = [key for key, one in self._found.items() if one.session is session and one.starts <= Loss.SESSION]
        return [self._found.pop(key) for key in ended]

    def connection_lost(self) -> list[Lingering]:
        """All of them: with the connection everything goes that a policy can name."""
        found, self._found = self._found, {}
        return list(found.values())
