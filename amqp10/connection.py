"""One AMQP 1.0 connection, either side: bytes in, events out, bytes out (AMQP 2.4).

Knows open, close, channels and time-outs; hands the rest to sessions. Deliberately knows no sockets and no clock: `now`
comes in, seconds of one monotonic clock. Next: handshake.py for what comes before open, reading.py for how frames are
found, session.py for what they cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from amqp10.errors import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    EndpointViolation,
    LocalProtocolError,
    RemoteProtocolError,
)
from amqp10.events import ConnectionClosed, ConnectionOpened, Event, SessionBegun
from amqp10.frames import EMPTY_FRAME, LARGE, MIN_MAX_FRAME_SIZE, Part, gathered
from amqp10.handshake import Handshake, HandshakeFailed
from amqp10.outcomes import Error
from amqp10.performatives import Attach, Begin, Close, Detach, End, Open, Performative, SaslPerformative
from amqp10.reading import Reader, Recipient
from amqp10.receiver import ReceiverLink
from amqp10.sasl import Step
from amqp10.session import MAPPED, OCTETS, Session
from amqp10.settings import CLOSE_TIMEOUT_S, ConnectionSettings
from amqp10.states import CLOSED, CLOSING, HANDSHAKE, OPENED, OPENING
from amqp10.whole_lists import ADDED, PRODUCTS, with_whole_lists

_SHORTEST_IDLE_MS: Final = 20  # a peer that wants heartbeats more often is refused
_GRACE: Final = 0.25  # of idle-time-out: a timer that is later than this follows a pause of our own process


class Times:
    """When octets have passed, and until when something is waited for (AMQP 2.4.5)."""

    __slots__ = ("deadline", "last_read", "last_written", "now", "remote_idle_s", "silent_since")

    def __init__(self, now: float, handshake_timeout_s: float) -> None:
        self.now = now
        self.last_read = now
        """When bytes last arrived."""
        self.silent_since = now  # the same, or later: a pause of our own process is not the peer's silence
        self.last_written = now
        self.deadline = now + handshake_timeout_s  # of the handshake, later of the peer's close
        self.remote_idle_s: float | None = None

    def next(self, idle_s: float | None) -> float | None:
        """When the peer will have been silent for too long, or waits for a heartbeat."""
        remote = self.remote_idle_s
        if remote is None:
            return None if idle_s is None else self.silent_since + idle_s
        beat = self.last_written + remote / 2
        return beat if idle_s is None or beat < self.silent_since + idle_s else self.silent_since + idle_s

    def is_silent(self, idle_s: float) -> bool:
        """Whether the peer has been silent for too long now."""
        if self.now >= self.silent_since + idle_s * (1 + _GRACE):
            # This process has paused, and input that arrived meanwhile may not have been read: some event loops
            # (uvloop) run timers first.
            self.silent_since = self.now - idle_s * (1 - _GRACE)
        return self.now >= self.silent_since + idle_s

    def wants_heartbeat(self) -> bool:
        return self.remote_idle_s is not None and self.now >= self.last_written + self.remote_idle_s / 2


class Channels:
    """Sessions by channel, ours and the peer's."""

    __slots__ = ("_ours", "_theirs", "sessions")

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        """Sessions that have not ended; after ConnectionClosed, those that existed then."""
        self._ours: dict[int, Session] = {}
        self._theirs: dict[int, Session] = {}

    def free(self, highest: int) -> int:
        """The lowest that no session has. LocalProtocolError if all have one."""
        channel = 0
        while channel in self._ours:
            channel += 1
        if channel > highest:
            raise LocalProtocolError(f"all channels up to {highest} are in use")
        return channel

    def add(self, session: Session) -> None:
        self.sessions.append(session)
        self._ours[session.channel] = session

    def map(self, session: Session, remote: int) -> None:
        """The peer has begun it, too, on this channel."""
        self._theirs[remote] = session

    def has(self, remote: int) -> bool:
        return remote in self._theirs

    def unanswered(self, channel: int) -> Session:
        """The one that we have begun on our channel, and the peer has not."""
        session = self._ours.get(channel)
        if session is None or session.remote_begin is not None:
            raise RemoteProtocolError(ILLEGAL_STATE, f"no begin was sent on channel {channel}")
        return session

    def session_of(self, remote: int) -> Session:
        session = self._theirs.get(remote)
        if session is None:
            raise RemoteProtocolError(ILLEGAL_STATE, f"channel {remote} has no session")
        return session

    def remove(self, session: Session, remote: int) -> None:
        del self._theirs[remote]
        del self._ours[session.channel]
        self.sessions.remove(session)

    def check_invariants(self) -> None:
        for session in self.sessions:
            assert self._ours[session.channel] is session, f"{session!r} is not registered"
            if not session.ended:
                session.check_invariants()


class Connection(Recipient):
    """The owner moves bytes and time; everything that the peer did comes back as events.

        connection = Connection(settings, server=True, now=now)
        for event in connection.receive_data(data, now): ...
        transport.write(connection.data_to_send())

    A client calls `open()` right away; header, SASL and open go out as the protocol allows, and so does what follows
    (begin, attach and so on may be pipelined). A server answers header, SASL, open and begin by itself.
    """

    def __init__(self, settings: ConnectionSettings, *, server: bool, now: float) -> None:
        super().__init__(settings)
        self.handshake = Handshake(settings, server=server)
        """For the owner: `user` and `groups`, which SASL has established."""
        self.channels = Channels()
        self.times = Times(now, settings.handshake_timeout_s)
        self.closed = False
        """The connection has ended: write what data_to_send has left, then close the transport."""
        self._open_sent = False
        self._local_error: Error | None = None
        self._close_reported = False
        self.reader = Reader(self, stranger=server)
        """For the owner: `frames`, `buffered` and `frame_completed_by`."""

    @property
    def authenticating(self) -> bool:
        """A step of SASL is pending: what comes before its result is held."""
        return self._state is HANDSHAKE and self.handshake.pending

    @property
    def has_output(self) -> bool:
        """data_to_send has something."""
        return bool(self._out or self._with_output or self.handshake.output)

    # Bytes and time ---------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """The events that these bytes complete, in order. Never raises for what a peer does."""
        events: list[Event] = []
        state = self._state
        reader = self.reader
        reader.unread = False
        if state is CLOSED or not (data or reader.more):
            return events
        times = self.times
        times.now = times.last_read = times.silent_since = now
        offset = 0
        if reader.buffered:
            if state is not HANDSHAKE and reader.completes_large_frame(len(data)):
                offset = reader.read_large(data, events)
            else:
                data = reader.join(data)
        if reader.unreadable or not (data or self.rest):
            return events
        if state is HANDSHAKE:
            try:
                offset = self.handshake.receive(data)
            except HandshakeFailed as failure:
                self._handshake_failed(failure, events)
                return events
            if self.handshake.done:
                self._state = OPENING
                handshake = self.handshake
                if handshake.server and self.settings.per_user is not None:
                    self.settings = handshake.settings = self.settings.per_user(handshake.user)
            state = self._state
        if state is not HANDSHAKE:
            offset = reader.read(data, offset, events)
        if offset < len(data):
            reader.keep(data, offset)
        return events

    def authenticated(self, step: Step, now: float) -> list[Event]:
        """The result of a SASL step that was `Pending`. Nothing happens if the connection has ended meanwhile."""
        events: list[Event] = []
        if self._state is HANDSHAKE and self.handshake.pending:
            try:
                return self.receive_data(self.handshake.resolve(step), now)
            except HandshakeFailed as failure:
                self._handshake_failed(failure, events)
        return events

    def heard(self, now: float) -> None:
        """Input has arrived that will be passed later: the peer is not silent."""
        self.times.silent_since = max(self.times.silent_since, now)

    def stop_reading(self) -> None:
        """Discard all further input, and what is held of an incomplete frame."""
        self.reader.forget()
        self.reader.unreadable = True

    def receive_eof(self, now: float) -> list[Event]:
        """The transport is closed, or will deliver nothing more."""
        events: list[Event] = []
        self.times.now = now
        if self._state is not CLOSED:
            local = self._state is CLOSING
            self._state, self.closed = CLOSED, True
            self.reader.forget()
            self._report(ConnectionClosed(self, self._local_error, local, lost=True), events)
        return events

    def data_to_send(self) -> bytes:
        """All output up to now, b"" if there is none. Call it, or `buffers_to_send`, after each receive_data, each
        handle_timer, and whatever was called on sessions and links."""
        buffers = self.buffers_to_send()
        return bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)

    def buffers_to_send(self) -> Sequence[Part]:
        """All output up to now, for a transport that gathers: large payloads are not copied."""
        if self._with_output:
            touched, self._with_output = self._with_output, {}
            self.flow_due = False
            if self._state is not CLOSING and self._state is not CLOSED:
                for session in touched:
                    session._flush()
        handshake, out = self.handshake, self._out
        if handshake.product is not None and out:
            out = [with_whole_lists(b"".join(out))]
        if handshake.output:
            first = handshake.output[:]
            handshake.output.clear()
            if not handshake.ready:  # what follows waits for our AMQP header
                self.times.last_written = self.times.now
                return first
            out[:0] = first
        if not out or not handshake.ready:
            return ()
        self._out = []
        size, self.output_size = self.output_size, 0
        self.times.last_written = self.times.now
        if len(out) == 1:
            return out
        return [b"".join(out)] if size < LARGE else gathered(out)

    def next_deadline(self) -> float | None:
        """When to call handle_timer; None: not before the next input or output."""
        if self._state is not OPENED:
            return None if self._state is CLOSED else self.times.deadline
        return self.times.next(self.settings.idle_timeout_s)

    def handle_timer(self, now: float) -> list[Event]:
        """Write a heartbeat if one is due; close the connection if the peer has been silent for too long."""
        events: list[Event] = []
        self.times.now = now
        if self._state is CLOSED:
            return events
        if self._state is not OPENED:
            if now >= self.times.deadline:
                if self._state is not CLOSING:
                    text = f"not opened in time: handshake-timeout {self.settings.handshake_timeout_s:g} s"
                    self._fail(Error(RESOURCE_LIMIT_EXCEEDED, text), events)
                self._state, self.closed = CLOSED, True
                self.reader.forget()
                self._report(ConnectionClosed(self, self._local_error, True), events)
            return events
        idle = self.settings.idle_timeout_s
        if idle is not None and self.times.is_silent(idle):
            text = f"nothing heard for {now - self.times.last_read:.1f} s: idle-time-out {idle:g} s"
            self._fail(Error(RESOURCE_LIMIT_EXCEEDED, text), events)
            self._state, self.closed = CLOSED, True
            self.reader.forget()
        elif self.times.wants_heartbeat() and not self.has_output:
            self._append(EMPTY_FRAME)
        return events

    # Open, begin, close -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Client: send header, SASL and open. A server needs no such call."""
        if self._open_sent or self.closing:
            raise LocalProtocolError("the connection is open already, or closed")
        self.handshake.start()
        self._send_open()

    def begin(self) -> Session:
        """Begin a session on the lowest free channel. LocalProtocolError when the channels are used up."""
        if not self._open_sent or self.closing:
            raise LocalProtocolError("the connection is not open")
        session = Session(self, self._free_channel())
        self._add_session(session)
        session._begin()
        return session

    def write_whole_lists(self, product: str) -> None:
        """The peer reads fields by number."""
        self.handshake.product = product
        self.remote_max_frame_size = max(self.remote_max_frame_size - ADDED, MIN_MAX_FRAME_SIZE)

    def close(self, error: Error | None = None) -> None:
        """Send close. ConnectionClosed follows with the peer's answer, with eof, or after a timeout. On a connection
        that has ended nothing happens."""
        if self.closing:
            return
        self._local_error = error
        if self._state is HANDSHAKE and self.handshake.server:
            self._state, self.closed = CLOSED, True
            return
        if not self._open_sent:
            self._send_open()  # AMQP 2.4.3: close follows open, even if nothing else is sent
        for session in self.channels.sessions:
            if not session.ended:
                session._flush()
        self._write_close(error)

    def abandon(self, error: Error) -> None:
        """The same where the state of the connection may be wrong: what waits is not sent."""
        if self.closing:
            return
        self._local_error = error
        if not self._open_sent:
            self._send_open()
        self._write_close(error)

    def _write_close(self, error: Error | None) -> None:
        self._write_frame(0, self._encode_within_frame(Close(error)))
        self._state = CLOSING
        self.times.deadline = self.times.now + CLOSE_TIMEOUT_S
        for session in self.channels.sessions:
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
        return self.channels.free(highest)

    def _add_session(self, session: Session) -> None:
        self.channels.add(session)
        self.held_size += OCTETS

    def _fail(self, error: Error, events: list[Event]) -> None:
        """The peer broke a rule of the connection: close it."""
        if self.closing:
            return
        self.close(error)
        self._report(ConnectionClosed(self, error, True), events)

    def _handshake_failed(self, failure: HandshakeFailed, events: list[Event]) -> None:
        """No frame can be sent, so there is nothing to close (AMQP 2.2, 5.3.2)."""
        self.reader.unreadable = True
        self._local_error = error = Error(failure.condition, failure.description)
        self._state = CLOSING
        self.times.deadline = self.times.now + CLOSE_TIMEOUT_S
        self._report(ConnectionClosed(self, error, failure.local), events)

    def _report(self, event: ConnectionClosed, events: list[Event]) -> None:
        if not self._close_reported:
            self._close_reported = True
            events.append(event)
            for session in self.channels.sessions:
                session._stop()

    def _violated(self, violation: RemoteProtocolError, events: list[Event]) -> None:
        if isinstance(violation, EndpointViolation):
            violation.endpoint._violated(violation, events)
        else:
            self._fail(Error(violation.condition, violation.description), events)

    # What the peer sends --------------------------------------------------------------------------------------------

    def _received(self, performative: Performative | SaslPerformative, channel: int, events: list[Event]) -> None:
        handler = _HANDLERS.get(performative.__class__)
        if handler is not None:
            handler(self, performative, channel, events)
            return
        of_session = _HANDLERS_OF_SESSIONS.get(performative.__class__)
        if of_session is None:
            raise RemoteProtocolError(FRAMING_ERROR, "a SASL performative in an AMQP frame")
        session = self._mapped_session(performative, channel)
        if session is not None:
            of_session(session, performative, events)

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
        product = (performative.properties or {}).get("product")
        if product in PRODUCTS:
            self.write_whole_lists(str(product))
        if performative.idle_time_out:
            if performative.idle_time_out < _SHORTEST_IDLE_MS:  # AMQP 2.4.5
                raise RemoteProtocolError(
                    NOT_ALLOWED, f"an idle-time-out of {performative.idle_time_out} ms is below {_SHORTEST_IDLE_MS} ms"
                )
            self.times.remote_idle_s = performative.idle_time_out / 1000
        self._state = OPENED
        self.reader.opened(self.settings.max_frame_size)
        if not self._open_sent:
            self._send_open()
        events.append(ConnectionOpened(self, performative))

    def _on_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        if not self._expects_frames(begin):
            return
        self._check_channel(channel)
        if self.channels.has(channel):
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
            session = self.channels.unanswered(begin.remote_channel)
            session._received_begin(begin, channel)
        self.channels.map(session, channel)
        if not session.ended:
            events.append(SessionBegun(session, begin.remote_channel is not None))

    def _on_end(self, end: End, channel: int, events: list[Event]) -> None:
        if not self._expects_frames(end):
            return
        session = self.channels.session_of(channel)
        session._received_end(end, events)
        self.channels.remove(session, channel)
        self.held_size -= OCTETS
        for link in session.links:
            link._left()

    def _on_close(self, close: Close, channel: int, events: list[Event]) -> None:
        if self._state is OPENING:
            self._expects_frames(close)
        local = self._state is CLOSING
        if not local:
            self.close()
        self._state, self.closed = CLOSED, True
        self._report(ConnectionClosed(self, close.error or self._local_error, local), events)

    def _check_channel(self, channel: int) -> None:
        highest = self.settings.channel_max
        if channel > highest:  # AMQP 2.7.1
            raise RemoteProtocolError(FRAMING_ERROR, f"channel {channel} is above channel-max {highest}")

    def _expects_frames(self, performative: Performative | SaslPerformative) -> bool:
        """Whether frames are processed: not after our close; before open they are the peer's error."""
        if self._state is OPENING:
            raise RemoteProtocolError(ILLEGAL_STATE, f"{type(performative).__name__.lower()} before open")
        return self._state is OPENED

    def _mapped_session(self, performative: Performative | SaslPerformative, channel: int) -> Session | None:
        if not self._expects_frames(performative):
            return None
        session = self.channels.session_of(channel)
        return session if session._state is MAPPED else None

    def check_invariants(self) -> None:
        """What must hold between any two calls; used by the simulator and by tests."""
        assert self.output_size == sum(map(len, self._out)), "output_size is wrong"
        links = [link for session in self.channels.sessions for link in session.links if isinstance(link, ReceiverLink)]
        assert self.incomplete_size == sum([link.incomplete_size for link in links]), "incomplete_size is wrong"
        self.reader.check_invariants()
        held = sum(OCTETS + sum(link.octets for link in session.links) for session in self.channels.sessions)
        held += self.reader.remembered
        assert self.held_size == held, f"{self.held_size} octets of sessions and links counted, {held} held"
        self.channels.check_invariants()

    def _forget_shapes(self) -> None:
        self.reader.forget_shapes()


_HANDLERS: Final[dict[type, Callable[[Connection, Any, int, list[Event]], None]]] = {
    Open: Connection._on_open,
    Begin: Connection._on_begin,
    End: Connection._on_end,
    Close: Connection._on_close,
}

_HANDLERS_OF_SESSIONS: Final[dict[type, Callable[[Session, Any, list[Event]], None]]] = {
    Attach: Session._received_attach,
    Detach: Session._received_detach,
}
