"""What a `Network` tells its owner: which routers can be spoken to, and what they said (PROTOCOL 3).

For one peer the order is always up, its messages, down; nothing of a session comes after its down, and a new session's
up comes only after the old one's down. Read network.py next.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PeerUp:
    """A session with this router begins. Messages to it go into this session once this event has been taken."""

    peer: str
    incarnation: int


@dataclass(slots=True)
class PeerDown:
    """The session is over for both sides; what it has not delivered is lost.

    reachable: a path to the same incarnation is still known (the session was reset, or silent for too long)."""

    peer: str
    reachable: bool


@dataclass(slots=True)
class PeerMessage:
    """The next message of the session, as the peer's owner handed it to `send`."""

    peer: str
    data: bytes


NetworkEvent = PeerUp | PeerDown | PeerMessage
