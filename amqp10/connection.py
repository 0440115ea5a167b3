"""One AMQP 1.0 connection, either side, as bytes in, events out, bytes in again. SKELETON: signatures are final."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amqp10.settings import ConnectionSettings

if TYPE_CHECKING:
    from amqp10.events import Event
    from amqp10.performatives import Error, Open
    from amqp10.session import Session


class Connection:
    """The owner moves bytes and time; everything the peer did comes back as events.

        connection = Connection(settings, server=True, now=now)
        for event in connection.receive_data(data, now): ...
        transport.write(connection.data_to_send())

    A client calls `open()` right away (header, SASL, open and all that follows are written as soon as the protocol
    allows: begin, attach and so on may be pipelined); a server answers header, SASL, open and begin by itself.
    """

    settings: ConnectionSettings
    server: bool
    context: Any                      # free for the owner
    remote_open: Open | None          # None until the peer's open has come
    sessions: Sequence[Session]       # all that have not ended; after ConnectionClosed those that there were then
    user: str | None                  # the identity that SASL established; None without a SASL layer
    frames_read: int                  # every frame, heartbeats included
    last_read: float                  # when bytes last came
    output_size: int                  # octets waiting for data_to_send
    closing: bool                     # our close has been sent (or must be): nothing more can be sent
    closed: bool                      # over: write what data_to_send has left, then close the transport

    def __init__(self, settings: ConnectionSettings, *, server: bool, now: float) -> None: ...

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Everything that these bytes completed, in order. Never raises for what a peer does."""
        raise NotImplementedError

    def receive_eof(self, now: float) -> list[Event]:
        """The transport is gone or reads nothing more."""
        raise NotImplementedError

    def data_to_send(self) -> bytes:
        """All output up to now, b"" if there is none; coalesced dispositions and flows are written here. Call it after
        each receive_data, handle_timer and whatever one has called on links."""
        raise NotImplementedError

    def next_deadline(self) -> float | None:
        """When handle_timer wants to be called (idle-time-outs both ways, handshake, unanswered close)."""
        raise NotImplementedError

    def handle_timer(self, now: float) -> list[Event]:
        """Writes a heartbeat if one is due; closes the connection of a peer that is silent for too long."""
        raise NotImplementedError

    def open(self, **overrides: Any) -> None:
        """Client: send header, SASL and open. Server: not needed."""
        raise NotImplementedError

    def begin(self) -> Session:
        """Begin a session on the lowest free channel. LocalProtocolError when the channels are used up."""
        raise NotImplementedError

    def close(self, error: Error | None = None) -> None:
        """Send close. ConnectionClosed comes with the peer's answer, with eof, or when the answer takes too long."""
        raise NotImplementedError

    @property
    def remote_max_frame_size(self) -> int:
        """512 until the peer's open has come."""
        raise NotImplementedError
