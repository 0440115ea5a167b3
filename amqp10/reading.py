"""Splits bytes into frames, and takes the fast path for transfers, dispositions and flows.

Frames of a known shape (transfers.py, dispositions.py, pairs.py, flows.py) are processed in runs; all others are
decoded by the generic codec and passed to the connection. Violations of the protocol are turned into a detach, end or
close here. Next: connection.py, session.py.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from amqp10.counting import check_values
from amqp10.dispositions import (
    DISPOSITION_START,
    DispositionShape,
    Range,
    learn_disposition,
    take_dispositions,
)
from amqp10.endpoints import ConnectionEnd
from amqp10.errors import DECODE_ERROR, FRAMING_ERROR, DecodeError, RemoteProtocolError
from amqp10.events import Event
from amqp10.flows import FLOW_START, FlowShape, flow_key
from amqp10.frames import AMQP_FRAME, FRAME_HEAD_SIZE, LARGE, Part, parse_frame_header
from amqp10.pairs import PAIRS_FROM, Pair
from amqp10.performatives import Attach, Disposition, Flow, Transfer, UnreadMap, decode_performative
from amqp10.receiver import ReceiverLink
from amqp10.session import Session
from amqp10.settings import BEFORE_LOGIN, VALUES_BEFORE_LOGIN
from amqp10.transfers import KEY_ENDS, TRANSFER_START, Shape, learn_shape
from amqp10.unsettled import MOST_RANGES

_TOLD: Final = 3  # times as dear is what comes of it: an event that is told
_WITH_DISPOSITION: Final = 1 + _TOLD
_ENDLESS: Final = 1 << 60
_SLOW: Final = 32  # times as dear as a disposition is an attach, at most
_PIECE: Final = 4096  # smaller pieces of input are joined, as each costs some forty bytes to hold
_SHAPES: Final = 3072  # remembered per connection, with their meanings, at most: some for each of 1,024 links
_SHAPE: Final = 1 << 10  # octets that one takes, about
_LARGEST_SHAPED: Final = 256  # octets of a frame, without payload, that is remembered: the usual ones have fewer
_LEAST_HEAD: Final = 512  # bytes in which a transfer's performative is looked for
_SMALLEST_SHAPED: Final = 18  # bytes of a frame that is looked up by its shape
# the last bytes of their descriptors; the keys of shapes hold all of these
_TRANSFER: Final = 0x14
_DISPOSITION: Final = 0x15
_FLOW: Final = 0x13
_unpack_size: Final = Struct(">I").unpack_from


class Recipient(ConnectionEnd):
    """A connection as its reader knows it."""

    closed: bool

    def _received(self, performative: Any, channel: int, events: list[Event]) -> None:
        """Any frame except transfers, dispositions and flows, which the reader passes to the session."""
        raise NotImplementedError

    def _mapped_session(self, performative: Any, channel: int) -> Session | None:
        """The session of a channel; None if the frame is to be discarded."""
        raise NotImplementedError

    def _violated(self, violation: RemoteProtocolError, events: list[Event]) -> None:
        """End what the broken rule belongs to: a link, a session, or the connection."""
        raise NotImplementedError


class Reader:
    """One per connection. `join` puts pieces together, `read` takes the frames, `keep` holds what is left over."""

    __slots__ = ("_chunks", "_connection", "_dispositions", "_flows", "_max_frame_size", "_shapes", "_stranger",
                 "_wanted", "budget", "buffered", "frames", "more", "shapes", "unread",
                 "unreadable")  # fmt: skip

    def __init__(self, connection: Recipient, *, stranger: bool) -> None:
        """stranger: limits for who has not said who it is hold up to its open."""
        self._connection = connection
        self._max_frame_size = min(connection.settings.max_frame_size, BEFORE_LOGIN)
        self._stranger = stranger
        self.frames = 0
        """Every frame, heartbeats included."""
        self.unreadable = False
        """Input can't be decoded any more: where the next frame begins, or what it means, is unknown."""
        self.budget = 0
        """Frames that are processed at once, about: dispositions and flows of known shapes count as one, transfers of
        known shapes as none, others as 32, and each event that comes of them as three. 0: all that have come. An attach
        with a long unsettled map is the last that is processed; the map is an `UnreadMap`, which is for the owner to
        read before it goes on."""
        self.more = False
        """The budget was used up, and complete frames are held: give the connection b"" to go on with them."""
        self.unread = False
        """The last input had a map that is for the owner to read."""
        self._chunks: list[bytes] = []
        self.buffered = 0
        """Bytes held of a frame whose end has not arrived."""
        self._wanted = 0
        self.shapes = 0
        """How many are remembered, until links or sessions change; with their meanings."""
        self._shapes: dict[bytes, Shape[ReceiverLink]] = {}
        self._dispositions: dict[bytes, DispositionShape] = {}
        self._flows: dict[bytes, FlowShape] = {}

    def join(self, data: bytes) -> bytes:
        """The bytes kept (there must be some) and these; b"" while they are no complete frame."""
        if len(self._chunks[-1]) < _PIECE:
            self._chunks[-1] += data
        else:
            self._chunks.append(data)
        self.buffered += len(data)
        if self.buffered < self._wanted:
            return b""
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        self.buffered = 0
        return data

    def completes_large_frame(self, size: int) -> bool:
        """Whether so many bytes more complete the frame that is held, and copying it twice would cost."""
        return LARGE < self._wanted <= self.buffered + size and not self.more

    def read_large(self, data: bytes, events: list[Event]) -> int:
        """Process the large frame that these bytes complete; return where the next one begins. What follows it is not
        copied, and the payload of a transfer only once."""
        needed = self._wanted - self.buffered
        parts: list[Part] = [*self._chunks, memoryview(data)[:needed]]
        self._chunks = []
        self.buffered = 0
        if not self._take_large(parts, events):
            self.read(b"".join(parts), 0, events)
        return len(data) if self.unreadable or self._connection.closed else needed

    def keep(self, data: bytes, offset: int) -> None:
        """Hold the beginning of a frame until the rest of it arrives."""
        self._chunks = [data[offset:]]
        self.buffered = len(data) - offset
        self._wanted = _unpack_size(data, offset)[0] if self.buffered >= FRAME_HEAD_SIZE else FRAME_HEAD_SIZE

    def goes_on(self, size: int) -> bool:
        """Whether so many bytes more belong to the frame that is held, and do not complete it."""
        return self.buffered < self._wanted - size

    def frame_completed_by(self, size: int) -> int:
        """The size of the frame that is held and that so many bytes more would complete; 0 if they would complete none,
        or a transfer, which takes no longer than its copy."""
        completed = self.buffered < self._wanted <= self.buffered + size
        return self._wanted if completed and self._chunks[0][8:11] != TRANSFER_START else 0

    def opened(self, max_frame_size: int) -> None:
        """The peer's open has arrived: from now on frames may be as large as our open says."""
        self._max_frame_size = max_frame_size
        self._stranger = False

    def forget(self) -> None:
        """Drop held bytes; nothing more will be read."""
        self._chunks = []
        self.buffered = 0
        self.more = False
        self._connection.rest = []

    def forget_shapes(self) -> None:
        self._shapes.clear()
        self._dispositions.clear()
        self._flows.clear()
        self._count_shapes(-self.shapes)

    @property
    def remembered(self) -> int:
        """Octets that shapes take, as in `connection.held_size`."""
        return _SHAPE * self.shapes

    def check_invariants(self) -> None:
        dispositions = sum(1 + len(shape.meanings) for shape in self._dispositions.values())
        shapes = len(self._shapes) + len(self._flows) + dispositions
        assert self.shapes == shapes, f"{self.shapes} shapes counted, {shapes} remembered"

    def read(self, buf: bytes, offset: int, events: list[Event]) -> int:
        """Process complete frames from `offset` on, all of them or as many as the budget has; return where the next one
        begins."""
        end = len(buf)
        connection = self._connection
        self.more = False
        left = self.budget or _ENDLESS
        if connection.rest:
            left -= self._take_rest(left, events)
        while end - offset >= FRAME_HEAD_SIZE:
            size: int = _unpack_size(buf, offset)[0]
            stop = offset + size
            if stop > end and size <= self._max_frame_size:
                break
            # what breaks the rules never becomes whole
            if (left <= 0 or connection.rest or self.unread) and stop <= end:
                self.more = True
                break
            start = offset
            try:
                if size >= _SMALLEST_SHAPED and stop <= end:
                    before, told = self.frames, len(events)
                    offset = self._take_shaped(buf, offset, end, stop, left, events)
                    if offset != start:
                        left -= _TOLD * (len(events) - told)
                        if buf[start + 10] != _TRANSFER:
                            left -= self.frames - before
                        if connection.rest:
                            left -= self._take_rest(left, events)
                        continue  # neither a transfer nor a disposition ends the connection, unless it is a violation
                offset = stop
                left -= _SLOW
                self._read_frame(buf, start, stop, events)
                if connection.rest:
                    left -= self._take_rest(left, events)
            except RemoteProtocolError as violation:
                connection._violated(violation, events)
            if self.unreadable or connection.closed:
                return end
        if connection.rest:
            self.more = True
        return offset

    def _take_rest(self, left: int, events: list[Event]) -> int:
        """Goes on with the dispositions that are left, as far as the budget goes, which is nowhere near what one may
        take; returns what that has taken of it."""
        connection = self._connection
        spent = 0
        while connection.rest and spent < left:
            rest, connection.rest = connection.rest, []
            told = len(events)
            for session, is_receiver, first, last, state, settled in rest:
                session._received_disposition(is_receiver, first, last, state, settled, events)
            spent += MOST_RANGES + _TOLD * (len(events) - told)
        return spent

    def _take_large(self, parts: list[Part], events: list[Event]) -> bool:
        """Process a transfer frame in parts. False, and nothing done, if it is another frame."""
        first = bytes(parts[0])
        if len(first) < _LEAST_HEAD or first[4] != 2 or first[5] != AMQP_FRAME or first[8:11] != TRANSFER_START:
            return False
        try:
            performative, payload = decode_performative(first, FRAME_HEAD_SIZE, len(first))
        except DecodeError:  # it goes on in the next part, or is malformed
            return False
        if performative.__class__ is not Transfer:
            return False
        self.frames += 1
        parts[0] = memoryview(first)[payload:]
        try:
            session = self._connection._mapped_session(performative, first[6] << 8 | first[7])
            if session is not None:
                session._received_transfer(performative, b"".join(parts), events)
        except RemoteProtocolError as violation:
            self._connection._violated(violation, events)
        return True

    def _take_shaped(self, buf: bytes, offset: int, end: int, stop: int, left: int, events: list[Event]) -> int:
        """Process frames of known shapes, as many as the budget has if each is told of; return the end of the last
        one."""
        code = buf[offset + 10]
        most = left // _WITH_DISPOSITION or 1
        key_end = offset + KEY_ENDS[buf[offset + 11]]
        if code == _TRANSFER:
            shape = self._shapes.get(buf[offset + 4 : key_end])
            if shape is None:
                return offset
            # room for enough pairs of frames as large as these two
            if buf[stop + 8 : stop + 11] == DISPOSITION_START:
                pair = stop - offset + _unpack_size(buf, stop)[0]
                key = buf[stop : stop + KEY_ENDS[buf[stop + 11]]] if end - offset >= PAIRS_FROM * pair else b""
                known = self._dispositions.get(key)
                if known is not None:
                    last = min(end, offset + max(most, PAIRS_FROM) * pair)
                    both = Pair(shape, stop - offset, known, True)
                    after, pairs = shape.link.take_run(buf, offset, last, both, self._max_frame_size, events)
                    if pairs:
                        self.frames += 2 * pairs
                        return after
            after, count = shape.link.take_run(buf, offset, end, shape, self._max_frame_size, events)
            self.frames += count
            return after
        if code == _DISPOSITION:
            known = self._dispositions.get(buf[offset:key_end])
            if known is None:
                return offset
            if buf[stop + 8 : stop + 11] == TRANSFER_START:
                pair = stop - offset + _unpack_size(buf, stop)[0]
                key = buf[stop + 4 : stop + KEY_ENDS[buf[stop + 11]]] if end - offset >= PAIRS_FROM * pair else b""
                shape = self._shapes.get(key)
                if shape is not None:
                    last, size = min(end, offset + max(most, PAIRS_FROM) * pair), _unpack_size(buf, stop)[0]
                    both = Pair(shape, size, known, False)
                    after, pairs = shape.link.take_run(buf, offset, last, both, self._max_frame_size, events)
                    if pairs:
                        self.frames += 2 * pairs
                        return after
            ranges: list[Range] = []
            after = take_dispositions(buf, offset, min(end, offset + most * known.size), known, ranges)
            self.frames += (after - offset) // known.size
            for first, last, state, settled in ranges:
                known.session._received_disposition(known.is_receiver, first, last, state, settled, events)
            return after
        if code == _FLOW:
            flows = self._flows.get(flow_key(buf, offset))
            flow = None if flows is None else flows.read(buf, offset)
            if flows is not None and flow is not None:
                flows.session._received_flow(flow, events)
                self.frames += 1
                return stop
        return offset

    def _read_frame(self, buf: bytes, offset: int, stop: int, events: list[Event]) -> None:
        """Process one frame with the generic codec."""
        try:
            size, doff, frame_type, channel = parse_frame_header(buf, offset)
            if size > self._max_frame_size:
                text = f"a frame of {size} bytes is larger than max-frame-size {self._max_frame_size}"
                raise DecodeError(FRAMING_ERROR, text, offset)
            self.frames += 1
            if frame_type != AMQP_FRAME:
                raise DecodeError(FRAMING_ERROR, f"a frame of type {frame_type} is no AMQP frame", offset + 5)
            body = offset + doff * 4
            if body == stop:
                return  # AMQP 2.4.5: a heartbeat
            if self._stranger:
                check_values(buf, body, stop, VALUES_BEFORE_LOGIN)
            performative, payload = decode_performative(buf, body, stop)
            if payload < stop and performative.__class__ is not Transfer:
                raise DecodeError(DECODE_ERROR, f"{stop - payload} bytes follow the performative", payload)
            if performative.__class__ is Attach and performative.unsettled.__class__ is UnreadMap:
                if self.budget:
                    self.unread = True
                else:
                    performative.unsettled = performative.unsettled.read(performative.unsettled.unread)
        except DecodeError as error:
            self.unreadable = True
            at = f"byte {error.offset - offset} of a frame of {stop - offset}"
            raise RemoteProtocolError(error.condition, f"{error.description} ({at})") from None
        if performative.__class__ is Transfer:
            session = self._connection._mapped_session(performative, channel)
            if session is not None:
                self._read_transfer(session, performative, buf, offset, payload, stop, events)
        elif performative.__class__ is Disposition:
            session = self._connection._mapped_session(performative, channel)
            if session is not None:
                self._read_disposition(session, performative, buf, offset, stop, events)
        elif performative.__class__ is Flow:
            session = self._connection._mapped_session(performative, channel)
            if session is not None:
                self._read_flow(session, performative, buf, offset, stop, events)
        else:
            self._connection._received(performative, channel, events)

    def _read_transfer(
        self, session: Session, transfer: Transfer, buf: bytes, offset: int, payload: int, stop: int,
        events: list[Event],
    ) -> None:  # fmt: skip
        link = session._received_transfer(transfer, buf[payload:stop], events)
        if link is None or payload - offset > _LARGEST_SHAPED:
            return
        said = bool(transfer.settled), transfer.message_format, transfer.rcv_settle_mode
        shape = learn_shape(buf, offset, payload, link, said)
        if shape is not None:
            self._make_room()
            key = buf[offset + 4 : offset + KEY_ENDS[buf[offset + 11]]]
            self._count_shapes(key not in self._shapes)
            self._shapes[key] = shape

    def _read_disposition(
        self, session: Session, disposition: Disposition, buf: bytes, offset: int, stop: int, events: list[Event]
    ) -> None:
        first, last = disposition.first, disposition.last
        if _SMALLEST_SHAPED <= stop - offset <= _LARGEST_SHAPED:
            self._make_room()
            key = buf[offset : offset + KEY_ENDS[buf[offset + 11]]]
            known = self._dispositions.get(key)
            before = 0 if known is None else 1 + len(known.meanings)
            shape = learn_disposition(known, buf, offset, stop, session, disposition)
            if shape is not None:
                self._count_shapes(1 + len(shape.meanings) - before)
                self._dispositions[key] = shape
        session._received_disposition(
            disposition.role, first, first if last is None else last, disposition.state, disposition.settled, events
        )

    def _read_flow(self, session: Session, flow: Flow, buf: bytes, offset: int, stop: int, events: list[Event]) -> None:
        learnt = stop - offset <= _LARGEST_SHAPED
        if learnt and buf[offset + 4] == 2 and buf[offset + 8 : offset + 11] == FLOW_START:
            self._make_room()
            key = flow_key(buf, offset)
            self._count_shapes(key not in self._flows)
            self._flows[key] = FlowShape(session, buf, offset, stop, flow)
        session._received_flow(flow, events)

    def _make_room(self) -> None:
        """For one shape more, with its meaning."""
        if self.shapes + 2 > _SHAPES:
            self.forget_shapes()

    def _count_shapes(self, more: int) -> None:
        self.shapes += more
        self._connection.held_size += _SHAPE * more
