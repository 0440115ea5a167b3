"""What one side of a connection offers and insists on.

Knows the values that go into our open, begin and attach frames and the limits that bound what a peer can make us
hold. Knows nothing about addresses, routers or clients. Next: connection.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amqp10.frames import MIN_MAX_FRAME_SIZE

if TYPE_CHECKING:
    from amqp10.sasl import ClientMechanism, ServerMechanisms

CLOSE_TIMEOUT_S = 2.0  # how long the answer to our close is waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """One side's settings; times in seconds, sizes in octets."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 8 * 1024 * 1024
    channel_max: int = 255
    handle_max: int = 255
    idle_timeout_s: float | None = 16.0
    """A peer that is silent for so long is given up. It is told half of that, so that both have time (2.4.5)."""
    handshake_timeout_s: float = 10.0
    """How long header, SASL and open may take together."""
    incoming_window: int = 4096
    """Transfer frames per session that the peer may send before it hears from us again."""
    max_message_size: int = 64 * 1024 * 1024
    """Bounds a multi-frame delivery; the default for attach(max_message_size=...)."""
    offered_capabilities: Sequence[str] = ()
    desired_capabilities: Sequence[str] = ()
    properties: Mapping[str, Any] | None = None
    sasl: ServerMechanisms | ClientMechanism | None = None
    """Server: the mechanisms offered. Client: the one to use; None starts without a SASL layer."""
    pipelined: bool = False
    """Client: say sasl-init, AMQP header and open without waiting for what comes before them: one round trip instead
    of three. For servers known to take that (5.3.2 has the client choose among the mechanisms that it is told), and for
    mechanisms of one step that say no secret."""
    allow_no_sasl: bool = True
    """Server: accept a client that starts with the plain AMQP header."""
    per_user: Callable[[str | None], ConnectionSettings] | None = None
    """Server: the settings that hold from SASL's end on, by the identity that it established."""

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("max_frame_size", MIN_MAX_FRAME_SIZE, 0xFFFFFFFF),
            ("channel_max", 0, 0xFFFF),
            ("handle_max", 0, 0xFFFFFFFF),
            ("incoming_window", 1, 0x7FFFFFFF),
            ("max_message_size", 0, 0xFFFFFFFFFFFFFFFF),
        ):
            if not lowest <= getattr(self, name) <= highest:
                raise ValueError(f"{name} must lie in {lowest} to {highest}, not be {getattr(self, name)}")
