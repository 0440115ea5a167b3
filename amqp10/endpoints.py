"""What lower modules know of the connection and the session that they work for.

Names go in one direction: windows know a `Channel`, links the session that they are attached to (`link.LinkSession`),
the reader the connection that it reads for (`reading.Recipient`). They are base classes, not protocols: compiled code
finds the attributes of native classes without their names. Next: connection.py and session.py, which are these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amqp10.errors import RemoteProtocolError
from amqp10.frames import (
    AMQP_FRAME,
    FRAME_HEAD_SIZE,
    LARGE,
    MIN_MAX_FRAME_SIZE,
    Body,
    Part,
    encode_frame,
    encode_frame_head,
)
from amqp10.outcomes import DeliveryState, shortened
from amqp10.performatives import Close, Detach, End, Open
from amqp10.settings import ConnectionSettings
from amqp10.states import CLOSED, CLOSING, HANDSHAKE


class ConnectionEnd:
    """A connection as its sessions and links know it: limits, what they make it hold, and its output."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.context: Any = None
        """Free for the owner."""
        self.remote_open: Open | None = None
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        """512 until the peer's open has come."""
        self.incomplete_size = 0
        """Bytes of deliveries whose last frame has not arrived, with overhead per frame."""
        self.held_size = 0
        """Octets, about, that sessions and links take, also those whose end the peer has not confirmed, with their
        names and what the owner keeps for them (`Link.takes`), and the shapes of frames that are remembered."""
        self.output_size = 0
        """Bytes that wait for data_to_send, without dispositions and flows that are not encoded yet."""
        self.flow_due = False
        """A session's incoming window has to be renewed: write soon."""
        self.rest: list[tuple[Channel, bool, int, int, DeliveryState | None, bool]] = []
        """Dispositions that are not done to their end, in order: before that nothing else is read."""
        self._state = HANDSHAKE
        self._out: list[Part] = []
        self._with_output: dict[Channel, None] = {}

    @property
    def closing(self) -> bool:
        """Our close has been sent, or the connection has ended: nothing more can be sent."""
        return self._state in (CLOSING, CLOSED)

    def _forget_shapes(self) -> None:
        """Links or sessions have changed: a shape may belong to another link now."""
        raise NotImplementedError

    def _encode_within_frame(self, last: Detach | End | Close) -> bytes:
        """The encoded frame body, its error shortened to fit the peer's max-frame-size."""
        body = last.encode()
        if self.remote_open is not None and len(body) + FRAME_HEAD_SIZE > self.remote_max_frame_size:
            assert last.error is not None
            last.error = shortened(last.error)
            body = last.encode()
        return body

    def _write_frame(self, channel: int, body: Body) -> None:
        if isinstance(body, bytes) or len(body[-1]) < LARGE:
            self._append(encode_frame(AMQP_FRAME, channel, body))
        else:
            self._append_parts([encode_frame_head(AMQP_FRAME, channel, sum(map(len, body))), *body])

    def _append(self, data: bytes) -> None:
        """Whole frames, as they are."""
        self._out.append(data)
        self.output_size += len(data)

    def _append_parts(self, parts: Sequence[Part]) -> None:
        """The same in parts."""
        self._out += parts
        self.output_size += sum(map(len, parts))


class Channel:
    """A session as its windows know it: where its output goes."""

    def __init__(self, connection: ConnectionEnd, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        """Our outgoing channel."""
        self._session_flow = False  # data_to_send has to write a flow

    def _violated(self, violation: RemoteProtocolError, events: list[Any]) -> None:
        """The peer broke a rule of this session."""
        raise NotImplementedError

    def _received_disposition(
        self, is_receiver: bool, first: int, last: int, state: DeliveryState | None, settled: bool, events: list[Any]
    ) -> None:
        """first .. last as on the wire; is_receiver: the peer's role, so it is about deliveries that we sent."""
        raise NotImplementedError

    def _flush(self) -> None:
        """Write what waits for data_to_send."""
        raise NotImplementedError

    def _has_output(self) -> None:
        """This session has output for data_to_send to encode."""
        self.connection._with_output[self] = None

    def _write(self, body: Body) -> None:
        self.connection._write_frame(self.channel, body)

    def _queue_session_flow(self) -> None:
        self._session_flow = self.connection.flow_due = True
        self._has_output()
