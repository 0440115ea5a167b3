"""A session: handles, links, begin and end, and its pending output (AMQP 2.5, 2.6.2, 2.7.2).

Knows which link a frame is for. Transfer windows and delivery-ids are in incoming.py and outgoing.py, credit in
sender.py and receiver.py, the splitting of bytes into frames in reading.py.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Any, Final

from amqp10.endpoints import ConnectionEnd
from amqp10.errors import (
    ERRANT_LINK,
    FRAME_SIZE_TOO_SMALL,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    EndpointViolation,
    LocalProtocolError,
    RemoteProtocolError,
)
from amqp10.events import Event, LinkAttached, LinkAttaching, LinkDetached, SessionEnded, SessionFlow
from amqp10.incoming import Incoming
from amqp10.link import ATTACH_RECEIVED, ATTACHED, DETACH_SENT, DETACHED, NEW, Link, LinkSession
from amqp10.outcomes import DeliveryState, Error, Received
from amqp10.outgoing import Outgoing
from amqp10.performatives import Attach, Begin, Detach, End, Flow, Transfer
from amqp10.receiver import ReceiverLink
from amqp10.runs import Dispositions, LinkFlow
from amqp10.sender import SenderLink
from amqp10.serial import HALF, WRAP, difference, unwrap
from amqp10.unsettled import MOST_RANGES

OCTETS: Final = 4 << 10  # of a session without links, about
OUTGOING_WINDOW: Final = 0x7FFFFFFF  # no limit of our own: credit limits what is sent
_HANDLES: Final = 0xFFFFFFFF
_SMALLEST_ATTACH: Final = 64  # bytes of an attach without optional fields, less the name


class SessionState(Enum):
    BEGIN_SENT = auto()
    MAPPED = auto()
    END_SENT = auto()  # AMQP 2.5.5: input is discarded up to the peer's end
    ENDED = auto()


BEGIN_SENT: Final = SessionState.BEGIN_SENT
MAPPED: Final = SessionState.MAPPED
END_SENT: Final = SessionState.END_SENT
ENDED: Final = SessionState.ENDED


class Session(LinkSession):
    """Made by `connection.begin()` or by the peer's begin."""

    def __init__(self, connection: ConnectionEnd, channel: int) -> None:
        super().__init__(connection, channel)
        self.context: Any = None
        self.remote_channel: int | None = None
        self.remote_begin: Begin | None = None
        self.links = []
        self._state = BEGIN_SENT
        self._local_error: Error | None = None
        self._end_reported = False
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        self._awaiting: dict[tuple[str, bool], deque[Link]] = {}  # (name, we send) -> waits for the peer's attach
        self._frames_after_detach: dict[Link, int] = {}  # detached by us -> transfers that may have crossed the detach
        settings = connection.settings
        self.incoming = Incoming(self, settings.incoming_window, settings.window_bytes)
        self.outgoing = Outgoing(self)
        self._flows = {}

    def __repr__(self) -> str:
        return f"<session c{self.channel} {self._state.name.lower()}>"

    @property
    def ended(self) -> bool:
        return self._state in (END_SENT, ENDED) or self.connection.closing

    def sender(self, name: str) -> SenderLink:
        """A new sending link of ours, to be attached with its `attach`."""
        return SenderLink(self, name)

    def receiver(self, name: str) -> ReceiverLink:
        """A new receiving link of ours, to be attached with its `attach`."""
        return ReceiverLink(self, name)

    def end(self, error: Error | None = None) -> None:
        """Send end. SessionEnded follows with the peer's answer. On a session that has ended nothing happens."""
        if self.ended:
            return
        self._local_error = error
        self._send_end(error)
        self._state = END_SENT

    def check_invariants(self) -> None:
        incoming, outgoing = self.incoming, self.outgoing
        assert 0 <= incoming.left <= incoming.most, f"{self!r}: incoming window {incoming.left} of {incoming.most}"
        assert outgoing.window >= 0, f"{self!r}: outgoing window {outgoing.window}"
        assert not (outgoing.waiting and outgoing.window), f"{self!r}: frames wait while the window is open"
        incoming.unsettled.check_invariants(incoming.next_delivery_id)
        outgoing.unsettled.check_invariants(outgoing.next_delivery_id)
        outgoing.undecided.check_invariants(outgoing.next_delivery_id)
        for link in self.links:
            assert link.handle is None or self._by_handle[link.handle] is link, f"{link!r}: its handle is another's"
            link.check_invariants()

    # Begin, end, and frames from the connection ----------------------------------------------------------------

    def _begin(self) -> None:
        settings = self.connection.settings
        begin = Begin(
            remote_channel=self.remote_channel,
            next_outgoing_id=0,
            incoming_window=self.incoming.window,
            outgoing_window=OUTGOING_WINDOW,
            handle_max=settings.handle_max,
            properties={},  # the last field: who needs whole lists may not have said so yet (whole_lists.py)
        )
        self.connection._write_frame(self.channel, begin.encode())

    def _received_begin(self, begin: Begin, remote_channel: int) -> None:
        self.remote_channel = remote_channel
        self.remote_begin = begin
        self.incoming.next_transfer_id = begin.next_outgoing_id
        self.outgoing.window = begin.incoming_window
        if self._state is BEGIN_SENT:
            self._state = MAPPED

    def _received_end(self, end: End, events: list[Event]) -> None:
        local = self._state is END_SENT
        if not local:
            self._send_end(None)
        self._state = ENDED
        if not self._end_reported:
            self._end_reported = True
            events.append(SessionEnded(self, end.error or self._local_error, local))

    def _violated(self, violation: RemoteProtocolError, events: list[Event]) -> None:
        if self.ended:
            return
        error = Error(violation.condition, violation.description)
        self.end(error)
        self._end_reported = True
        events.append(SessionEnded(self, error, True))

    def _send_end(self, error: Error | None) -> None:
        self._flush()
        self._write(self.connection._encode_within_frame(End(error)))
        self._stop()

    def _stop(self) -> None:
        """The session has ended: drop everything but the list of links."""
        self.connection._forget_shapes()
        self.incoming = Incoming(self, 0)
        self.outgoing = Outgoing(self)
        self._flows.clear()
        self._session_flow = False
        for link in self.links:
            link._session_ended()
        self._by_handle.clear()
        self._by_remote_handle.clear()
        self._awaiting.clear()
        self._frames_after_detach.clear()

    def _received_attach(self, attach: Attach, events: list[Event]) -> None:
        highest = self.connection.settings.handle_max
        if attach.handle > highest:  # AMQP 2.7.2: the connection closes for this
            raise RemoteProtocolError(FRAMING_ERROR, f"handle {attach.handle} is above handle-max {highest}")
        if attach.handle in self._by_remote_handle:
            raise EndpointViolation(self, HANDLE_IN_USE, f"handle {attach.handle} is in use")
        smallest = len(attach.name.encode()) + _SMALLEST_ATTACH
        if smallest > self.connection.remote_max_frame_size:
            raise EndpointViolation(self, FRAME_SIZE_TOO_SMALL, "the answer to this attach would exceed max-frame-size")
        is_sender = attach.role  # the peer's role: True where it receives
        if not is_sender and attach.initial_delivery_count is None:
            raise EndpointViolation(self, INVALID_FIELD, "a sender's attach has no initial-delivery-count")
        self.connection._forget_shapes()
        awaiting = self._awaiting.get((attach.name, is_sender))
        if awaiting:
            link = awaiting.popleft()
            if not awaiting:
                del self._awaiting[attach.name, is_sender]
        else:
            link = self.sender(attach.name) if is_sender else self.receiver(attach.name)
            try:
                # Reserved now, so that the answer cannot fail; the peer's own number is easiest to read in a trace.
                link.handle = self._free_handle(attach.handle)
            except LocalProtocolError as error:
                raise EndpointViolation(self, RESOURCE_LIMIT_EXCEEDED, str(error)) from None
            self._by_handle[link.handle] = link
            self.links.append(link)
            link._entered()
        answered = link._state is not NEW
        self._by_remote_handle[attach.handle] = link
        link._received_attach(attach)
        if link._state is ATTACHED:
            events.append(LinkAttached(link))
        elif not answered:
            events.append(LinkAttaching(link))

    def _received_detach(self, detach: Detach, events: list[Event]) -> None:
        link = self._link_of(detach.handle)
        self.connection._forget_shapes()
        del self._by_remote_handle[detach.handle]
        self._frames_after_detach.pop(link, None)
        local = link._state is DETACH_SENT
        link._received_detach(detach)
        if link.handle is not None and self._by_handle.get(link.handle) is link:
            del self._by_handle[link.handle]
        if link in self.links:
            self.links.remove(link)
            link._left()
        if not link._detach_reported:
            link._detach_reported = True
            events.append(LinkDetached(link, detach.closed, detach.error or link._local_error, local))

    def _link_violated(self, link: Link, violation: RemoteProtocolError, events: list[Event]) -> None:
        if link.detached:
            return
        error = Error(violation.condition, violation.description)
        link.detach(error, closed=True)
        link._detach_reported = True
        events.append(LinkDetached(link, True, error, True))

    def _received_flow(self, flow: Flow, events: list[Event]) -> None:
        if self.remote_begin is not None:
            self.incoming.next_transfer_id = flow.next_outgoing_id  # AMQP 2.5.6
        grown = self.outgoing.received_flow(flow)
        if flow.handle is None:
            if flow.echo:
                self._queue_session_flow()
        else:
            link = self._link_of(flow.handle)
            if link._state is ATTACHED or link._state is ATTACH_RECEIVED:
                link._received_flow(flow)
                if flow.echo:
                    if link._state is ATTACHED:
                        self._queue_flow(link)
                    else:
                        link._reply_wanted = True
                events.append(LinkFlow(link, flow))
        if grown:
            events.append(SessionFlow(self))

    # Incoming transfers and dispositions ----------------------------------------------------------------------------

    def _received_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> ReceiverLink | None:
        """The link, if this was one complete, ordinary delivery."""
        link = self._link_of(transfer.handle)
        self.incoming.count(1, len(payload))
        if not isinstance(link, ReceiverLink):
            raise EndpointViolation(
                self, ERRANT_LINK, f"a transfer on handle {transfer.handle}, where the peer receives"
            )
        if link in self._frames_after_detach:
            self._frames_after_detach[link] -= 1
            if self._frames_after_detach[link] < 0:  # AMQP 2.6.5: what was sent before our detach was read is discarded
                raise EndpointViolation(self, ERRANT_LINK, f"transfers for link {link.name!r:.60} after its detach")
            if transfer.delivery_id is not None:
                self.incoming.skip_delivery(transfer.delivery_id)
            return None
        if link._state is DETACHED:
            return None
        return link if link._accept_transfer(transfer, payload, events) else None

    def _received_disposition(
        self, is_receiver: bool, first: int, last: int, state: DeliveryState | None, settled: bool, events: list[Event]
    ) -> None:
        rest = self.connection.rest
        if rest:  # of an earlier one
            rest.append((self, is_receiver, first, last, state, settled))
            return
        side = self.outgoing if is_receiver else self.incoming
        next_id = side.next_delivery_id
        if next_id is None:
            return
        begin = first if -HALF <= first - next_id < HALF else unwrap(first, next_id)
        end = begin + 1 if first == last else begin + difference(last, first) + 1
        if end > next_id:  # deliveries that have not been sent have no state
            end = next_id
        found: list[tuple[Link, int, int]]
        stop = end  # up to here it is done
        if is_receiver:
            undecided = self.outgoing.undecided
            if settled:
                if undecided.firsts:
                    found = undecided.remove(begin, end, MOST_RANGES)
                    if len(found) == MOST_RANGES:
                        stop = found[-1][2]
                found = self.outgoing.unsettled.remove(begin, stop, MOST_RANGES)
            elif state is None or state.__class__ is Received:
                return  # AMQP 3.4.1: no outcome
            else:  # AMQP 3.4: an outcome is final, so it is told once, however often the peer repeats itself
                found = undecided.remove(begin, end, MOST_RANGES)
        elif settled:
            found = self.incoming.unsettled.remove(begin, end, MOST_RANGES)
        else:
            return  # what a sender says of deliveries that it has not settled changes nothing
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
        if len(found) == MOST_RANGES:
            stop = found[-1][2]
        if stop < end:
            rest.append((self, is_receiver, stop & WRAP, end - 1 & WRAP, state, settled))

    def _link_of(self, handle: int) -> Link:
        link = self._by_remote_handle.get(handle)
        if link is None:
            raise EndpointViolation(self, UNATTACHED_HANDLE, f"handle {handle} is not attached")
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
        assert link.handle is not None
        if link.remote_attach is None:
            self._by_handle[link.handle] = link
            self._awaiting.setdefault((link.name, link.is_sender), deque()).append(link)
            self.links.append(link)
            link._entered()

    def _forget(self, link: Link) -> None:
        self._flush()
        self._flows.pop(link, None)
        self.connection._forget_shapes()
        if link.remote_handle is not None and link.remote_handle in self._by_remote_handle:
            self._frames_after_detach[link] = self.incoming.left

    # Output that is encoded on demand -----------------------------------------------------------------

    def _flush(self) -> None:
        """Write pending dispositions and flows, except those about deliveries that wait for the peer's window."""
        if self._state is END_SENT or self._state is ENDED:
            return
        if self.incoming.dispositions.entries:
            self.incoming.dispositions.write()
        if self.outgoing.dispositions.entries and not self.outgoing._waiting:
            self.outgoing.dispositions.write()
        if self._flows:
            flows, self._flows = self._flows, {}
            for link, echo in flows.items():
                if link.is_sender and self.outgoing.begins_later(link):
                    self._flows[link] = echo
                else:
                    self._write_flow(link, echo)
        if self._session_flow:
            self._write_flow(None, False)

    def _write_flow(self, link: Link | None, echo: bool) -> None:
        self._session_flow = False  # every flow carries the session's state
        fields = {} if link is None else {"handle": link.handle, **link._flow_fields()}
        flow = Flow(
            next_incoming_id=None if self.remote_begin is None else self.incoming.next_transfer_id,
            incoming_window=self.incoming.renew(),
            next_outgoing_id=self.outgoing.next_transfer_id & WRAP,
            outgoing_window=OUTGOING_WINDOW,
            echo=echo,
            **fields,
        )
        self._write(flow.encode())
