"""What a `Network` tells its owner: which routers have a session with this one, and their messages (protocol 3).

The order for one peer is always up, its messages, down; the up of a new session follows the down of the old one. Read
network.py next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from interrouter.stream import Received
from router.versions import SPOKEN


@dataclass(slots=True)
class PeerUp:
    """A session with this router begins. Messages sent after this event has been taken belong to the session."""

    peer: str
    incarnation: int
    began: float = field(default=-inf, compare=False)
    """When this router began the session: the peer has sent nothing in it before."""
    version: int = SPOKEN.newest
    """Of the wire between routers, that both speak."""


@dataclass(slots=True)
class PeerDown:
    """The session has ended for both sides; messages that it has not delivered are lost.

    reachable: a path to the same incarnation is still known (the session was reset, or silent for too long)."""

    peer: str
    reachable: bool


@dataclass(slots=True)
class PeerMessage:
    """The next message of the session, as the peer's owner handed it to `send`. A large one may come in parts."""

    peer: str
    data: Received


NetworkEvent = PeerUp | PeerDown | PeerMessage
