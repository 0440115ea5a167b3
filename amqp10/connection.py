"""One AMQP 1.0 connection, either side: bytes in, events out, bytes out (2.4).

Knows open, close, channels and time-outs; hands the rest to sessions. Deliberately knows no sockets and no clock: `now`
comes in, seconds of one monotonic clock. Next: handshake.py for what comes before open, reading.py for how frames are
found, session.py for what they cause.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, ClassVar

from amqp10.errors import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    LocalProtocolError,
    RemoteProtocolError,
)
from amqp10.events import ConnectionClosed, ConnectionOpened, Event, SessionBegun
from amqp10.frames import AMQP_FRAME, EMPTY_FRAME, FRAME_HEAD_SIZE, MIN_MAX_FRAME_SIZE, encode_frame
from amqp10.handshake import Handshake, HandshakeFailed
from amqp10.outcomes import shortened
from amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Open,
    Performative,
    SaslPerformative,
)
from amqp10.reading import Reader
from amqp10.session import MAPPED, Session
from amqp10.settings import CLOSE_TIMEOUT_S, ConnectionSettings

_SHORTEST_IDLE_MS = 20  # heartbeats oftener than that we don't send
_GRACE = 0.25  # of idle-time-out: a timer that comes later than that comes after a standstill of our own process


class ConnectionState(Enum):
    HANDSHAKE = auto()  # protocol headers, SASL
    OPENING = auto()  # the peer's open is to come
    OPENED = auto()
    CLOSING = auto()  # we have said our last: what still comes is discarded, up to the peer's close
    CLOSED = auto()


HANDSHAKE, OPENING, OPENED, CLOSING, CLOSED = ConnectionState


class Connection:
    """The owner moves bytes and time; everything that the peer did comes back as events.

        connection = Connection(settings, server=True, now=now)
        for event in connection.receive_data(data, now): ...
        transport.write(connection.data_to_send())

    A client calls `open()` right away; header, SASL and open go out as the protocol allows, and so does what follows
    (begin, attach and so on may be pipelined). A server answers header, SASL, open and begin by itself.
    """

    def __init__(self, settings: ConnectionSettings, *, server: bool, now: float) -> None:
        self.settings = settings
        self.server = server
        self.context: Any = None
        """Free for the owner."""
        self.remote_open: Open | None = None
        self.sessions: list[Session] = []
        """All that have not ended; after ConnectionClosed, those that there were then."""
        self.held_size = 0
        """Octets of deliveries whose last frame has not come, with what holding their frames costs."""
        self.last_read = now
        """When bytes last came."""
        self._silent_since = now  # the same, or later: while we stood still nobody was silent
        self.output_size = 0
        """Octets that wait for data_to_send; coalesced dispositions and flows are not counted yet."""
        self._state = HANDSHAKE
        self._handshake = Handshake(settings, server=server)
        self._open_sent = False
        self._local_error: Error | None = None
        self._close_reported = False
        self._by_channel: dict[int, Session] = {}
        self._by_remote_channel: dict[int, Session] = {}
        self._now = now
        self._deadline = now + settings.handshake_timeout_s  # of the handshake, later of the peer's close
        self._last_written = now
        self._remote_idle_s: float | None = None
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        """512 until the peer's open has come."""
        self._reader = Reader(self)
        self._out: list[bytes] = []
        self._touched: dict[Session, None] = {}

    @property
    def frames_read(self) -> int:
        """Every frame, heartbeats included."""
        return self._reader.frames

    @property
    def buffered_size(self) -> int:
        """Octets held of a frame whose end has not come."""
        return self._reader.buffered

    @property
    def user(self) -> str | None:
        """The identity that SASL established; None without a SASL layer."""
        return self._handshake.user

    @property
    def closing(self) -> bool:
        """Our close has been sent, or the connection is over: nothing more can be sent."""
        return self._state in (CLOSING, CLOSED)

    @property
    def closed(self) -> bool:
        """Over: write what data_to_send has left, then close the transport."""
        return self._state is CLOSED

    @property
    def has_output(self) -> bool:
        """data_to_send has something."""
        return bool(self._out or self._touched or self._handshake.output)

    # Bytes and time ---------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Everything that these bytes completed, in order. Never raises for what a peer does."""
        events: list[Event] = []
        state = self._state
        if state is CLOSED or not data:
            return events
        self._now = self.last_read = self._silent_since = now
        reader = self._reader
        if reader.buffered:
            data = reader.join(data)
        if reader.deaf or not data:
            return events
        offset = 0
        if state is HANDSHAKE:
            try:
                offset = self._handshake.receive(data)
            except HandshakeFailed as failure:
                reader.deaf = True
                self._finish(Error(failure.condition, failure.description), events, local=failure.local)
                return events
            if self._handshake.done:
                self._state = OPENING
                if self.server and self.settings.per_user is not None:
                    self.settings = self.settings.per_user(self.user)
            state = self._state
        if state is not HANDSHAKE:
            offset = reader.read(data, offset, events)
        if offset < len(data):
            reader.keep(data, offset)
        return events

    def stop_reading(self) -> None:
        """What comes from now on, and what has come of a frame that is not complete, is let go."""
        self._reader.forget()
        self._reader.deaf = True

    def receive_eof(self, now: float) -> list[Event]:
        """The transport is gone, or reads nothing more."""
        events: list[Event] = []
        self._now = now
        if self._state is not CLOSED:
            local = self._state is CLOSING
            self._state = CLOSED
            self._reader.forget()
            self._report(ConnectionClosed(self, self._local_error, local, lost=True), events)
        return events

    def data_to_send(self) -> bytes:
        """All output up to now, b"" if there is none. Call it after each receive_data, each handle_timer, and whatever
        was called on sessions and links."""
        if self._touched:
            touched, self._touched = self._touched, {}
            for session in touched:
                if not session.ended:
                    session._flush()
        handshake, out = self._handshake, self._out
        if handshake.output:
            first = handshake.output[:]
            handshake.output.clear()
            if not handshake.ready:  # what follows waits for our AMQP header
                self._last_written = self._now
                return b"".join(first)
            out[:0] = first
        if not out or not handshake.ready:
            return b""
        self._out = []
        self.output_size = 0
        self._last_written = self._now
        return out[0] if len(out) == 1 else b"".join(out)

    def next_deadline(self) -> float | None:
        """When handle_timer wants to be called; None: not until something else happens."""
        if self._state is not OPENED:
            return None if self._state is CLOSED else self._deadline
        idle, remote = self.settings.idle_timeout_s, self._remote_idle_s
        if remote is None:
            return None if idle is None else self._silent_since + idle
        beat = self._last_written + remote / 2
        return beat if idle is None or beat < self._silent_since + idle else self._silent_since + idle

    def handle_timer(self, now: float) -> list[Event]:
        """Write a heartbeat if one is due; give up a peer that is silent for too long."""
        events: list[Event] = []
        self._now = now
        if self._state is CLOSED:
            return events
        if self._state is not OPENED:
            if now >= self._deadline:
                if self._state is not CLOSING:
                    text = f"not opened in time: handshake-timeout {self.settings.handshake_timeout_s:g} s"
                    self._fail(Error(RESOURCE_LIMIT_EXCEEDED, text), events)
                self._state = CLOSED
                self._reader.forget()
                self._report(ConnectionClosed(self, self._local_error, True), events)
            return events
        idle = self.settings.idle_timeout_s
        if idle is not None and now >= self._silent_since + idle * (1 + _GRACE):
            # We stood still, and what has been written to us meanwhile may wait to be read: some loops (uvloop's) look
            # at their clock first.
            self._silent_since = now - idle * (1 - _GRACE)
        if idle is not None and now >= self._silent_since + idle:  # 2.4.5
            text = f"nothing heard for {now - self.last_read:.1f} s: idle-time-out {idle:g} s"
            self._fail(Error(RESOURCE_LIMIT_EXCEEDED, text), events)
            self._state = CLOSED
            self._reader.forget()
        elif (
            self._remote_idle_s is not None
            and now >= self._last_written + self._remote_idle_s / 2
            and not self.has_output
        ):
            self._append(EMPTY_FRAME)
        return events

    # Open, begin, close -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Client: send header, SASL and open. A server needs no such call."""
        if self._open_sent or self.closing:
            raise LocalProtocolError("the connection is open already, or closed")
        self._handshake.start()
        self._send_open()

    def begin(self) -> Session:
        """Begin a session on the lowest free channel. LocalProtocolError when the channels are used up."""
        if not self._open_sent or self.closing:
            raise LocalProtocolError("the connection is not open")
        session = Session(self, self._free_channel())
        self._add_session(session)
        session._begin()
        return session

    def close(self, error: Error | None = None) -> None:
        """Send close. ConnectionClosed comes with the peer's answer, with eof, or when neither comes in time. On a
        connection that is over nothing happens."""
        if self.closing:
            return
        self._local_error = error
        if self._state is HANDSHAKE and self.server:
            self._state = CLOSED
            return
        if not self._open_sent:
            self._send_open()  # 2.4.3: close comes after open, even when there is nothing else to say
        for session in self.sessions:
            if not session.ended:
                session._flush()
        self._write_frame(0, self._fit(Close(error)))
        self._state = CLOSING
        self._deadline = self._now + CLOSE_TIMEOUT_S
        for session in self.sessions:
            session._stop()

    def _send_open(self) -> None:
        settings = self.settings
        idle = settings.idle_timeout_s
        self._open_sent = True
        self._write_frame(
            0,
            Open(
                container_id=settings.container_id,
                hostname=settings.hostname,
                max_frame_size=settings.max_frame_size,
                channel_max=settings.channel_max,
                idle_time_out=None if idle is None else int(idle * 500),
                offered_capabilities=settings.offered_capabilities,
                desired_capabilities=settings.desired_capabilities,
                properties=settings.properties,
            ).encode(),
        )

    def _free_channel(self) -> int:
        highest = self.settings.channel_max
        if self.remote_open is not None:
            highest = min(highest, self.remote_open.channel_max)
        channel = 0
        while channel in self._by_channel:
            channel += 1
        if channel > highest:
            raise LocalProtocolError(f"all channels up to {highest} are in use")
        return channel

    def _add_session(self, session: Session) -> None:
        self.sessions.append(session)
        self._by_channel[session.channel] = session

    def _fail(self, error: Error, events: list[Event]) -> None:
        """The peer broke a rule of the connection: close it, now."""
        if self.closing:
            return
        self.close(error)
        self._report(ConnectionClosed(self, error, True), events)

    def _finish(self, error: Error, events: list[Event], *, local: bool) -> None:
        """Over before any frame could be sent: nothing to close (2.2, 5.3.2)."""
        self._local_error = error
        self._state = CLOSING
        self._deadline = self._now + CLOSE_TIMEOUT_S
        self._report(ConnectionClosed(self, error, local), events)

    def _report(self, event: ConnectionClosed, events: list[Event]) -> None:
        if not self._close_reported:
            self._close_reported = True
            events.append(event)
            for session in self.sessions:
                session._stop()

    def _violated(self, violation: RemoteProtocolError, events: list[Event]) -> None:
        self._fail(Error(violation.condition, violation.description), events)

    # What the peer sends --------------------------------------------------------------------------------------------

    def _received(self, performative: Performative | SaslPerformative, channel: int, events: list[Event]) -> None:
        """Any frame but transfers and dispositions, which the reader hands to the session itself."""
        handler = self._HANDLERS.get(performative.__class__)
        if handler is None:
            raise RemoteProtocolError(FRAMING_ERROR, "a SASL performative in an AMQP frame")
        handler(self, performative, channel, events)

    def _on_open(self, performative: Open, channel: int, events: list[Event]) -> None:
        if self._state is CLOSING:
            return
        if self._state is not OPENING:
            raise RemoteProtocolError(ILLEGAL_STATE, "a second open")
        self._check_channel(channel)
        if performative.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise RemoteProtocolError(
                INVALID_FIELD, f"open.max-frame-size {performative.max_frame_size} is below {MIN_MAX_FRAME_SIZE}"
            )
        self.remote_open = performative
        self.remote_max_frame_size = performative.max_frame_size
        if performative.idle_time_out:
            if performative.idle_time_out < _SHORTEST_IDLE_MS:  # 2.4.5
                raise RemoteProtocolError(
                    NOT_ALLOWED, f"an idle-time-out of {performative.idle_time_out} ms is below {_SHORTEST_IDLE_MS} ms"
                )
            self._remote_idle_s = performative.idle_time_out / 1000
        self._state = OPENED
        self._reader.opened(self.settings.max_frame_size)
        if not self._open_sent:
            self._send_open()
        events.append(ConnectionOpened(self, performative))

    def _on_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        if not self._listening(begin):
            return
        self._check_channel(channel)
        if channel in self._by_remote_channel:
            raise RemoteProtocolError(ILLEGAL_STATE, f"channel {channel} has a session already")
        if begin.remote_channel is None:
            try:
                session = Session(self, self._free_channel())
            except LocalProtocolError as error:
                raise RemoteProtocolError(RESOURCE_LIMIT_EXCEEDED, str(error)) from None
            self._add_session(session)
            session._received_begin(begin, channel)
            session._begin()
        else:
            answered = self._by_channel.get(begin.remote_channel)
            if answered is None or answered.remote_begin is not None:
                raise RemoteProtocolError(ILLEGAL_STATE, f"no begin was sent on channel {begin.remote_channel}")
            session = answered
            session._received_begin(begin, channel)
        self._by_remote_channel[channel] = session
        if not session.ended:
            events.append(SessionBegun(session, begin.remote_channel is not None))

    def _on_end(self, end: End, channel: int, events: list[Event]) -> None:
        if not self._listening(end):
            return
        session = self._session_of(channel)
        session._received_end(end, events)
        del self._by_remote_channel[channel]
        del self._by_channel[session.channel]
        self.sessions.remove(session)

    def _on_attach(self, attach: Attach, channel: int, events: list[Event]) -> None:
        session = self._running(attach, channel)
        if session is not None:
            session._received_attach(attach, events)

    def _on_detach(self, detach: Detach, channel: int, events: list[Event]) -> None:
        session = self._running(detach, channel)
        if session is not None:
            session._received_detach(detach, events)

    def _on_flow(self, flow: Flow, channel: int, events: list[Event]) -> None:
        session = self._running(flow, channel)
        if session is not None:
            session._received_flow(flow, events)

    def _on_close(self, close: Close, channel: int, events: list[Event]) -> None:
        if self._state is OPENING:
            self._listening(close)
        local = self._state is CLOSING
        if not local:
            self.close()
        self._state = CLOSED
        self._report(ConnectionClosed(self, close.error or self._local_error, local), events)

    _HANDLERS: ClassVar[dict[type, Callable[[Connection, Any, int, list[Event]], None]]] = {
        Open: _on_open,
        Begin: _on_begin,
        Attach: _on_attach,
        Flow: _on_flow,
        Detach: _on_detach,
        End: _on_end,
        Close: _on_close,
    }

    def _check_channel(self, channel: int) -> None:
        highest = self.settings.channel_max
        if channel > highest:  # 2.7.1
            raise RemoteProtocolError(FRAMING_ERROR, f"channel {channel} is above channel-max {highest}")

    def _listening(self, performative: Performative) -> bool:
        """Whether frames count: not before open (that is the peer's error), not after our close."""
        if self._state is OPENING:
            raise RemoteProtocolError(ILLEGAL_STATE, f"{type(performative).__name__.lower()} before open")
        return self._state is OPENED

    def _running(self, performative: Performative, channel: int) -> Session | None:
        """The session of a channel; None where the frame is to be discarded."""
        if not self._listening(performative):
            return None
        session = self._session_of(channel)
        return session if session._state is MAPPED else None

    def _session_of(self, channel: int) -> Session:
        session = self._by_remote_channel.get(channel)
        if session is None:
            raise RemoteProtocolError(ILLEGAL_STATE, f"channel {channel} has no session")
        return session

    # For sessions and links -----------------------------------------------------------------------------------------

    def _forget_shapes(self) -> None:
        self._reader.forget_shapes()

    def _fit(self, last: Detach | End | Close) -> bytes:
        """Encoded, its error shortened where the peer's max-frame-size makes that necessary."""
        body = last.encode()
        if self.remote_open is not None and len(body) + FRAME_HEAD_SIZE > self.remote_max_frame_size:
            assert last.error is not None
            last.error = shortened(last.error)
            body = last.encode()
        return body

    def _write_frame(self, channel: int, body: bytes) -> None:
        self._append(encode_frame(AMQP_FRAME, channel, body))

    def _append(self, data: bytes) -> None:
        """Whole frames, as they are."""
        self._out.append(data)
        self.output_size += len(data)
