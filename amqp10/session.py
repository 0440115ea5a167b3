"""A session: transfer windows, delivery-ids, handles, and what goes to which link (2.5, 2.6.2, 2.7.2).

Knows the rules that several links share. Doesn't know credit (sender.py, receiver.py) nor how frames are read from
bytes (connection.py). Delivery-ids and transfer-ids are unwrapped integers here; they are wrapped where a frame is
written (serial.py).
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from amqp10.dispositions import DispositionShape, PendingDispositions, Range
from amqp10.errors import (
    ERRANT_LINK,
    FRAME_SIZE_TOO_SMALL,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    LocalProtocolError,
    RemoteProtocolError,
)
from amqp10.events import Dispositions, LinkAttached, LinkAttaching, LinkDetached, LinkFlow, SessionEnded, SessionFlow
from amqp10.link import Link, LinkState
from amqp10.pairs import take_pairs
from amqp10.performatives import Attach, Begin, Detach, End, Error, Flow, Transfer
from amqp10.receiver import ReceiverLink
from amqp10.sender import SenderLink
from amqp10.serial import WRAP, difference, unwrap
from amqp10.transfers import Shape, take_run
from amqp10.unsettled import UnsettledRanges
from amqp10.violations import LinkViolation, SessionViolation

if TYPE_CHECKING:
    from amqp10.connection import Connection
    from amqp10.events import Event
    from amqp10.performatives import DeliveryState

OUTGOING_WINDOW = 0x7FFFFFFF  # we announce no limit of our own: credit is what limits us
_HANDLES = 0xFFFFFFFF
_SMALLEST_ATTACH = 64  # octets of an attach that says nothing but a name, less that name


class SessionState(Enum):
    BEGIN_SENT = auto()
    MAPPED = auto()
    END_SENT = auto()  # 2.5.5: what still comes is discarded, up to the peer's end
    ENDED = auto()


class Session:
    """Made by `connection.begin()` or by the peer's begin."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.context: Any = None
        self.channel = channel
        """Our outgoing channel."""
        self.remote_channel: int | None = None
        self.remote_begin: Begin | None = None
        self.links: list[Link] = []
        """Those attached or attaching; after the session's end, those that there were then."""
        self._state = SessionState.BEGIN_SENT
        self._local_error: Error | None = None
        self._end_reported = False
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        self._awaiting: dict[tuple[str, bool], deque[Link]] = {}  # (name, we send) -> the peer's attach is to come
        self._errant: dict[Link, int] = {}  # detached by us -> frames that the peer may have sent before it knew
        # incoming: 2.5.6
        self._incoming_window = connection.settings.incoming_window
        self._incoming_left = self._incoming_window
        self._next_incoming_id = 0
        self._paused = False
        self._next_received: int | None = None  # the delivery-id to expect
        self._received_unsettled: UnsettledRanges[Link] = UnsettledRanges()
        # outgoing
        self._next_outgoing_id = 0
        self._remote_window = 0
        self._next_delivery_id: int | None = None
        self._sent_unsettled: UnsettledRanges[Link] = UnsettledRanges()
        self._waiting: deque[tuple[SenderLink, int, bytes]] = deque()  # frames that the peer's window holds back
        self._window_missed = False  # somebody could have sent more with a larger window
        # what data_to_send has to write
        self._sent_dispositions = PendingDispositions()
        self._received_dispositions = PendingDispositions()
        self._flows: dict[Link, bool] = {}  # -> echo
        self._session_flow = False

    def __repr__(self) -> str:
        return f"<session c{self.channel} {self._state.name.lower()}>"

    @property
    def ended(self) -> bool:
        """Nothing more can be sent on it."""
        return self._state in (SessionState.END_SENT, SessionState.ENDED) or self.connection.closing

    def sender(self, name: str) -> SenderLink:
        """A new sending link of ours, to be attached with its `attach`."""
        return SenderLink(self, name)

    def receiver(self, name: str) -> ReceiverLink:
        """A new receiving link of ours, to be attached with its `attach`."""
        return ReceiverLink(self, name)

    def pause_incoming(self) -> None:
        """Renew the incoming window no more: the peer stops when it has used up what it was given."""
        self._paused = True

    def resume_incoming(self) -> None:
        """Renew the window again, now."""
        if self._paused:
            self._paused = False
            self._want_session_flow()

    def end(self, error: Error | None = None) -> None:
        """Send end. SessionEnded comes with the peer's answer; nothing happens on a session that is over."""
        if self.ended:
            return
        self._local_error = error
        self._send_end(error)
        self._state = SessionState.END_SENT

    # Begin, end, and what the connection hands in ----------------------------------------------------------------

    def _begin(self) -> None:
        settings = self.connection.settings
        begin = Begin(
            remote_channel=self.remote_channel,
            next_outgoing_id=0,
            incoming_window=self._incoming_window,
            outgoing_window=OUTGOING_WINDOW,
            handle_max=settings.handle_max,
        )
        self.connection._write_frame(self.channel, begin.encode())

    def _received_begin(self, begin: Begin, remote_channel: int) -> None:
        self.remote_channel = remote_channel
        self.remote_begin = begin
        self._next_incoming_id = begin.next_outgoing_id
        self._remote_window = begin.incoming_window
        if self._state is SessionState.BEGIN_SENT:
            self._state = SessionState.MAPPED

    def _received_end(self, end: End, events: list[Event]) -> None:
        local = self._state is SessionState.END_SENT
        if not local:
            self._send_end(None)
        self._state = SessionState.ENDED
        if not self._end_reported:
            self._end_reported = True
            events.append(SessionEnded(self, end.error or self._local_error, local))

    def _violated(self, violation: SessionViolation, events: list[Event]) -> None:
        if self.ended:
            return
        error = Error(violation.condition, violation.description)
        self.end(error)
        self._end_reported = True
        events.append(SessionEnded(self, error, True))

    def _send_end(self, error: Error | None) -> None:
        self._flush()
        self._write(self.connection._fit(End(error)))
        self._stop()

    def _stop(self) -> None:
        """Nothing more is sent or taken: let go of everything but the list of links."""
        for link in self.links:
            if isinstance(link, ReceiverLink):
                link._drop_partial()
        self.connection._forget_shapes()
        self._sent_unsettled = UnsettledRanges()
        self._received_unsettled = UnsettledRanges()
        self._waiting.clear()
        self._flows.clear()
        self._session_flow = False
        for link in self.links:
            link._lose()
        self._sent_dispositions = PendingDispositions()
        self._received_dispositions = PendingDispositions()
        self._by_handle.clear()
        self._by_remote_handle.clear()
        self._awaiting.clear()
        self._errant.clear()

    def _received_attach(self, attach: Attach, events: list[Event]) -> None:
        if attach.handle > self.connection.settings.handle_max:  # 2.7.2: the connection closes for this
            raise RemoteProtocolError(FRAMING_ERROR, f"handle {attach.handle} is above handle-max")
        if attach.handle in self._by_remote_handle:
            raise SessionViolation(self, HANDLE_IN_USE, f"handle {attach.handle} is in use")
        smallest = len(attach.name.encode()) + _SMALLEST_ATTACH
        if smallest > self.connection.remote_max_frame_size:
            raise SessionViolation(self, FRAME_SIZE_TOO_SMALL, "the answer to this attach would exceed max-frame-size")
        is_sender = attach.role  # the peer's role: True where it receives
        if not is_sender and attach.initial_delivery_count is None:
            raise SessionViolation(self, INVALID_FIELD, "a sender's attach has no initial-delivery-count")
        self.connection._forget_shapes()
        awaiting = self._awaiting.get((attach.name, is_sender))
        if awaiting:
            link = awaiting.popleft()
            if not awaiting:
                del self._awaiting[attach.name, is_sender]
        else:
            link = self.sender(attach.name) if is_sender else self.receiver(attach.name)
            try:
                # Now, so that the answer cannot fail for want of one; the same number reads best in a trace.
                link.handle = self._free_handle(attach.handle)
            except LocalProtocolError as error:
                raise SessionViolation(self, RESOURCE_LIMIT_EXCEEDED, str(error)) from None
            self._by_handle[link.handle] = link
            self.links.append(link)
        answered = link._state is not LinkState.NEW
        self._by_remote_handle[attach.handle] = link
        link._received_attach(attach)
        if link._state is LinkState.ATTACHED:
            events.append(LinkAttached(link))
        elif not answered:
            events.append(LinkAttaching(link))

    def _received_detach(self, detach: Detach, events: list[Event]) -> None:
        link = self._link_of(detach.handle)
        self.connection._forget_shapes()
        del self._by_remote_handle[detach.handle]
        self._errant.pop(link, None)
        local = link._state is LinkState.DETACH_SENT
        link._received_detach(detach)
        if link.handle is not None and self._by_handle.get(link.handle) is link:
            del self._by_handle[link.handle]
        if link in self.links:
            self.links.remove(link)
        if not link._detach_reported:
            link._detach_reported = True
            events.append(LinkDetached(link, detach.closed, detach.error or link._local_error, local))

    def _link_violated(self, violation: LinkViolation, events: list[Event]) -> None:
        link = violation.link
        if link.detached:
            return
        error = Error(violation.condition, violation.description)
        link.detach(error, closed=True)
        link._detach_reported = True
        events.append(LinkDetached(link, True, error, True))

    def _received_flow(self, flow: Flow, events: list[Event]) -> None:
        before = self._remote_window
        if self.remote_begin is not None:
            self._next_incoming_id = flow.next_outgoing_id  # 2.5.6
        # 2.5.6: what the peer had not seen when it wrote this still counts; before it saw our begin, that is all of it
        seen = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        self._remote_window = max(flow.incoming_window - max(difference(self._next_outgoing_id, seen), 0), 0)
        if self._waiting:
            self._send_waiting()
        grown = self._remote_window > before and self._window_missed and not self._waiting
        if flow.handle is None:
            if flow.echo:
                self._want_session_flow()
        else:
            link = self._link_of(flow.handle)
            if link._state in (LinkState.ATTACHED, LinkState.ATTACH_RECEIVED):
                link._received_flow(flow)
                if flow.echo:
                    if link._state is LinkState.ATTACHED:
                        self._want_flow(link)
                    else:
                        link._reply_wanted = True
                events.append(LinkFlow(link, flow))
        if grown:
            self._window_missed = False
            events.append(SessionFlow(self))

    # Incoming transfers and dispositions ----------------------------------------------------------------------------

    def _received_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> ReceiverLink | None:
        """The link, if this was one whole, ordinary delivery."""
        link = self._link_of(transfer.handle)
        self._count_incoming(1)
        if not isinstance(link, ReceiverLink):
            raise SessionViolation(
                self, ERRANT_LINK, f"a transfer on handle {transfer.handle}, where the peer receives"
            )
        if link in self._errant:
            self._skip(link, transfer)
            return None
        if link._state is LinkState.DETACHED:
            return None
        return link if link._accept_transfer(transfer, payload, events) else None

    def _take_run(
        self, buf: bytes, offset: int, end: int, shape: Shape, max_frame_size: int, events: list[Event]
    ) -> tuple[int, int]:
        """As many transfers at `offset` as this shape, credit and window admit; (end of them, their number)."""
        limit, max_size = self._room_for(shape, max_frame_size)
        if limit <= 0:
            return offset, 0
        tags: list[bytes] = []
        payloads: list[bytes] = []
        offset = take_run(buf, offset, end, shape, self._expected(), limit, max_size, tags, payloads)
        if tags:
            self._took(shape, tags, payloads, events)
        return offset, len(tags)

    def _take_pairs(
        self, buf: bytes, offset: int, end: int, shape: Shape, size: int, known: DispositionShape,
        transfer_first: bool, max_frame_size: int, events: list[Event],
    ) -> tuple[int, int]:  # fmt: skip
        """The same for transfers that alternate with dispositions; (end of them, number of pairs)."""
        limit, max_size = self._room_for(shape, max_frame_size)
        if limit <= 0:
            return offset, 0
        tags: list[bytes] = []
        payloads: list[bytes] = []
        ranges: list[Range] = []
        offset = take_pairs(
            buf, offset, end, shape, size, known, transfer_first, self._expected(), limit, max_size, tags, payloads,
            ranges,
        )  # fmt: skip
        if tags:
            # Transfers first: a disposition may be about one that came just before it.
            self._took(shape, tags, payloads, events)
            for first, last, state, settled in ranges:
                known.session._received_disposition(known.is_receiver, first, last, state, settled, events)
        return offset, len(tags)

    def _expected(self) -> int:
        return (self._next_received or 0) & WRAP

    def _room_for(self, shape: Shape, max_frame_size: int) -> tuple[int, int]:
        """How many transfers of this shape may be taken, and how large."""
        link: ReceiverLink = shape.link
        if link._partial is not None or self._next_received is None:
            return 0, 0
        max_size = link.max_message_size + shape.fixed if link.max_message_size else max_frame_size
        return min(link.reach - link.delivery_count, self._incoming_left), min(max_size, max_frame_size)

    def _took(self, shape: Shape, tags: list[bytes], payloads: list[bytes], events: list[Event]) -> None:
        link: ReceiverLink = shape.link
        first, count = self._next_received or 0, len(tags)
        self._next_received = first + count
        link.delivery_count += count
        if not shape.settled:
            self._received_unsettled.add(first, first + count, link)
        self._count_incoming(count)
        link._emit(events, first, tags, payloads, shape.settled, shape.message_format, shape.rcv_settle_mode)

    def _count_incoming(self, frames: int) -> None:
        if frames > self._incoming_left:
            raise SessionViolation(self, WINDOW_VIOLATION, "a transfer beyond the incoming window")
        self._incoming_left -= frames
        self._next_incoming_id = (self._next_incoming_id + frames) & WRAP
        if self._incoming_left * 2 < self._incoming_window and not self._paused:
            self._want_session_flow()

    def _next_received_id(self, wire: int) -> int:
        """The unwrapped id of a delivery that begins: any at first, then one after the other."""
        expected = self._next_received
        delivery_id = wire if expected is None else unwrap(wire, expected)
        if expected is not None and delivery_id != expected:
            raise SessionViolation(self, INVALID_FIELD, f"delivery-id {wire}, not {expected & WRAP}")
        self._next_received = delivery_id + 1
        return delivery_id

    def _skip(self, link: ReceiverLink, transfer: Transfer) -> None:
        """2.6.5: what the peer sent before it knew of our detach is discarded; more than that is its error."""
        self._errant[link] -= 1
        if self._errant[link] < 0:
            raise SessionViolation(self, ERRANT_LINK, f"transfers for link {link.name!r} after its detach")
        if transfer.delivery_id is not None and self._next_received is not None:
            self._next_received = max(self._next_received, unwrap(transfer.delivery_id, self._next_received) + 1)

    def _received_disposition(
        self, is_receiver: bool, first: int, last: int, state: DeliveryState | None, settled: bool, events: list[Event]
    ) -> None:
        """first .. last as on the wire; is_receiver: the peer's role, so it is about deliveries that we sent."""
        next_id = self._next_delivery_id if is_receiver else self._next_received
        if next_id is None:
            return
        unsettled = self._sent_unsettled if is_receiver else self._received_unsettled
        begin = unwrap(first, next_id)
        end = min(begin + difference(last, first) + 1, next_id)  # what was never sent has no state
        found = unsettled.remove(begin, end) if settled else unsettled.find(begin, end)
        for link, low, high in found:
            if events:
                event = events[-1]
                if (
                    event.__class__ is Dispositions
                    and event.link is link
                    and event.last_id + 1 == low
                    and event.settled is settled
                    and event.state == state
                ):
                    event.last_id = high - 1
                    continue
            events.append(Dispositions(link, low, high - 1, state, settled))

    def _link_of(self, handle: int) -> Link:
        link = self._by_remote_handle.get(handle)
        if link is None:
            raise SessionViolation(self, UNATTACHED_HANDLE, f"handle {handle} is not attached")
        return link

    # For links ----------------------------------------------------------------------------------------------------

    def _free_handle(self, wish: int = 0) -> int:
        highest = _HANDLES if self.remote_begin is None else self.remote_begin.handle_max
        handle = wish if wish <= highest and wish not in self._by_handle else 0
        while handle in self._by_handle:
            handle += 1
        if handle > highest:
            raise LocalProtocolError(f"{self!r}: the peer takes no more than {highest + 1} links")
        return handle

    def _register(self, link: Link) -> None:
        """Our attach is about to be written."""
        assert link.handle is not None
        if link.remote_attach is None:
            self._by_handle[link.handle] = link
            self._awaiting.setdefault((link.name, link.is_sender), deque()).append(link)
            self.links.append(link)

    def _forget(self, link: Link) -> None:
        """Our detach is about to be written: first what the link still had to say."""
        self._flush()
        self._flows.pop(link, None)
        self.connection._forget_shapes()
        if link.remote_handle is not None and link.remote_handle in self._by_remote_handle:
            self._errant[link] = self._incoming_left

    def _write(self, body: bytes) -> None:
        self.connection._write_frame(self.channel, body)

    def _capacity(self, credit: int) -> int:
        window = 0 if self._waiting else self._remote_window
        if window < credit:
            self._window_missed = True
            return window
        return credit

    def _take_delivery_ids(self, count: int, hint: int | None) -> int:
        first = self._next_delivery_id
        if first is None:
            first = 0 if hint is None else hint
        self._next_delivery_id = first + count
        return first

    def _send_transfers(self, block: bytes, frames: int) -> None:
        """Whole messages, within the window and with nothing waiting before them: `capacity` has seen to that."""
        self._remote_window -= frames
        self._next_outgoing_id += frames
        self.connection._append(block)

    def _send_frame(self, link: SenderLink, delivery_id: int, body: bytes) -> None:
        if self._waiting or self._remote_window <= 0:
            self._waiting.append((link, delivery_id, body))
            self._window_missed = True
            return
        self._remote_window -= 1
        self._next_outgoing_id += 1
        self._write(body)

    def _send_waiting(self) -> None:
        while self._waiting and self._remote_window > 0:
            _, _, body = self._waiting.popleft()
            self._remote_window -= 1
            self._next_outgoing_id += 1
            self._write(body)
        if self._flows or self._sent_dispositions:
            self.connection._touch(self)

    def _drop_waiting(self, link: SenderLink) -> None:
        if self._waiting:
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not link)

    def _dispose_sent(self, first: int, last: int, state: DeliveryState | None, settled: bool) -> None:
        self._sent_dispositions.add(first, last, state, settled)
        self.connection._touch(self)

    def _dispose_received(self, first: int, last: int, state: DeliveryState | None, settled: bool) -> None:
        self._received_dispositions.add(first, last, state, settled)
        self.connection._touch(self)

    def _want_flow(self, link: Link, echo: bool = False) -> None:
        self._flows[link] = self._flows.get(link, False) or echo
        self.connection._touch(self)

    def _want_session_flow(self) -> None:
        self._session_flow = True
        self.connection._touch(self)

    # Output that is put together when it is asked for -----------------------------------------------------------------

    def _flush(self) -> None:
        """Write the pending dispositions and flows.

        While frames wait for the peer's window, what speaks of deliveries after them waits too: a sender's flow counts
        them, a disposition may name them."""
        if self._received_dispositions:
            self._write_dispositions(self._received_dispositions, True)
        self._write_sent_dispositions()
        if self._flows:
            if self._waiting:
                flows = {link: echo for link, echo in self._flows.items() if not link.is_sender}
                self._flows = {link: echo for link, echo in self._flows.items() if link.is_sender}
            else:
                flows, self._flows = self._flows, {}
            for link, echo in flows.items():
                self._write_flow(link, echo)
        if self._session_flow:
            self._write_flow(None, False)

    def _write_sent_dispositions(self) -> None:
        if self._sent_dispositions and not self._waiting:
            self._write_dispositions(self._sent_dispositions, False)

    def _write_dispositions(self, pending: PendingDispositions, is_receiver: bool) -> None:
        self.connection._append(pending.take(self.channel, is_receiver, self.connection.remote_max_frame_size))

    def _write_flow(self, link: Link | None, echo: bool) -> None:
        if not self._paused:
            self._incoming_left = self._incoming_window
        self._session_flow = False  # every flow tells the session's state too
        fields = {} if link is None else {"handle": link.handle, **link._flow_fields()}
        flow = Flow(
            next_incoming_id=None if self.remote_begin is None else self._next_incoming_id,
            incoming_window=self._incoming_left,
            next_outgoing_id=self._next_outgoing_id & WRAP,
            outgoing_window=OUTGOING_WINDOW,
            echo=echo,
            **fields,
        )
        self._write(flow.encode())
