"""What one side of a connection offers and insists on.

Knows the values of our open, begin and attach frames, and the limits on what a peer can make us hold. Knows nothing of
addresses, routers or clients. Next: connection.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from amqp10.frames import MIN_MAX_FRAME_SIZE

if TYPE_CHECKING:
    from amqp10.sasl import ClientChoice, ClientMechanism, Offer

BEFORE_LOGIN: Final = 64 << 10
"""Bytes that a stranger may send, in any protocol: up to the end of its open, its CONNECT, or its request of HTTP. AMQP
2.4.1 says 512 for a frame before open, but some clients' opens are larger."""
VALUES_BEFORE_LOGIN: Final = 512
"""Values that its frames may have, each by itself: to decode them takes a millisecond."""
CLOSE_TIMEOUT_S = 2.0  # how long the answer to our close is waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """One side's settings; times in seconds, sizes in bytes."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 8 * 1024 * 1024
    channel_max: int = 255
    handle_max: int = 255
    idle_timeout_s: float | None = 16.0
    """A peer that is silent for this long is lost. Half of it is announced as idle-time-out (AMQP 2.4.5)."""
    handshake_timeout_s: float = 10.0
    """How long header, SASL and open may take together."""
    incoming_window: int = 4096
    """Transfer frames per session that the peer may send before our next flow."""
    window_bytes: int = 0
    """What the incoming window of a session may bring at once: it begins with 16 frames, and is so many as fit into
    this at the size of the largest that has come, at most `incoming_window`. 0: always that."""
    max_message_size: int = 64 * 1024 * 1024
    """Bounds a multi-frame delivery; the default for attach(max_message_size=...)."""
    offered_capabilities: Sequence[str] = ()
    desired_capabilities: Sequence[str] = ()
    properties: Mapping[str, Any] | None = None
    sasl: Offer | ClientMechanism | ClientChoice | None = None
    """Server: the mechanisms offered. Client: the one to use, or several; None starts without a SASL layer."""
    pipelined: bool = False
    """Client: send sasl-init, AMQP header and open without waiting for the server's answers: one round trip instead of
    three. For servers known to accept that (in AMQP 5.3.2 the client chooses among the mechanisms that it is offered),
    and for mechanisms of one step that reveal no secret."""
    allow_no_sasl: bool = True
    """Server: accept a client that starts with the plain AMQP header."""
    per_user: Callable[[str | None], ConnectionSettings] | None = None
    """Server: the settings by the identity that SASL established, from the end of SASL on."""

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("max_frame_size", MIN_MAX_FRAME_SIZE, 0xFFFFFFFF),
            ("channel_max", 0, 0xFFFF),
            ("handle_max", 0, 0xFFFFFFFF),
            ("incoming_window", 1, 0x7FFFFFFF),
            ("window_bytes", 0, 0x7FFFFFFF),
            ("max_message_size", 0, 0xFFFFFFFFFFFFFFFF),
        ):
            if not lowest <= getattr(self, name) <= highest:
                raise ValueError(f"{name} must lie in {lowest} to {highest}, not be {getattr(self, name)}")
