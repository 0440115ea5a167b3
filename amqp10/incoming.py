"""The receiving side of a session: our incoming window, delivery-ids in sequence, unsettled deliveries (AMQP 2.5.6).

Knows windows and ids, and processes runs (transfers.py, pairs.py). Doesn't know handles (session.py) nor how deliveries
are joined from frames (receiver.py). Delivery-ids are unwrapped. Next: outgoing.py, the other half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amqp10.dispositions import DispositionShape, PendingDispositions, Range
from amqp10.errors import INVALID_FIELD, WINDOW_VIOLATION, SessionViolation
from amqp10.pairs import take_pairs
from amqp10.serial import WRAP, unwrap
from amqp10.transfers import Shape, take_run
from amqp10.unsettled import UnsettledRanges

if TYPE_CHECKING:
    from amqp10.events import Event
    from amqp10.link import Link
    from amqp10.session import Session


FIRST_WINDOW: Final = 16  # frames, where the window is bounded in bytes


class Incoming:
    """One per session."""

    __slots__ = (
        "_largest",
        "_session",
        "_window_bytes",
        "dispositions",
        "left",
        "most",
        "next_delivery_id",
        "next_transfer_id",
        "paused",
        "unsettled",
        "window",
    )

    def __init__(self, session: Session, most: int, window_bytes: int = 0) -> None:
        self._session = session
        self._window_bytes = window_bytes
        self._largest = 1  # bytes of a frame's payload, so far
        self.most = most
        self.window = min(most, FIRST_WINDOW) if window_bytes else most
        """The incoming-window of our flows."""
        self.left = self.window
        """Frames that the peer may still send."""
        self.paused = False
        self.next_transfer_id = 0  # as on the wire
        self.next_delivery_id: int | None = None
        self.unsettled: UnsettledRanges[Link] = UnsettledRanges()
        self.dispositions = PendingDispositions(session, is_receiver=True)

    def count(self, frames: int, largest: int) -> None:
        """So many transfer frames have arrived; a flow renews the window when half of it is used."""
        if largest > self._largest:
            self._largest = largest
        if frames > self.left:
            raise SessionViolation(self._session, WINDOW_VIOLATION, "a transfer beyond the incoming window")
        self.left -= frames
        self.next_transfer_id = (self.next_transfer_id + frames) & WRAP
        if self.left * 2 < self.window and not self.paused:
            self._session._queue_session_flow()

    def widen(self) -> None:
        """Bound the window in frames only, from the next flow on."""
        self._window_bytes = 0
        self.window = self.most

    def renew(self) -> int:
        """The incoming-window for a flow of ours: the full window again, unless that is paused."""
        if not self.paused:
            if self._window_bytes:
                self.window = max(min(self._window_bytes // self._largest, 2 * self.window, self.most), 1)
            # the peer may have used what an earlier flow has told it
            self.left = max(self.left, self.window)
        return self.left

    def begin_delivery(self, wire: int) -> int:
        """The unwrapped id of a delivery that begins. The first id of a session may be any; the others follow it."""
        expected = self.next_delivery_id
        delivery_id = wire if expected is None else unwrap(wire, expected)
        if expected is not None and delivery_id != expected:
            raise SessionViolation(self._session, INVALID_FIELD, f"delivery-id {wire}, not {expected & WRAP}")
        self.next_delivery_id = delivery_id + 1
        return delivery_id

    def skip_delivery(self, wire: int) -> None:
        """A transfer that is discarded may have begun a delivery."""
        if self.next_delivery_id is not None:
            self.next_delivery_id = max(self.next_delivery_id, unwrap(wire, self.next_delivery_id) + 1)

    def take_run(
        self, buf: bytes, offset: int, end: int, shape: Shape, max_frame_size: int, events: list[Event]
    ) -> tuple[int, int]:
        """As many transfers at `offset` as this shape, credit and window admit; (end of them, their number)."""
        link = shape.link
        first = self.next_delivery_id
        limit = link.highest_limit - link.delivery_count
        if limit > self.left:
            limit = self.left
        if link._partial is not None or first is None or limit <= 0:
            return offset, 0
        max_size = max_frame_size
        if link.max_message_size and link.max_message_size + shape.fixed < max_size:
            max_size = link.max_message_size + shape.fixed
        tags: list[bytes] = []
        payloads: list[bytes] = []
        offset = take_run(buf, offset, end, shape, first & WRAP, limit, max_size, tags, payloads)
        if tags:
            self._received_run(shape, first, tags, payloads, events)
        return offset, len(tags)

    def take_pairs(
        self, buf: bytes, offset: int, end: int, shape: Shape, size: int, known: DispositionShape,
        transfer_first: bool, max_frame_size: int, events: list[Event],
    ) -> tuple[int, int]:  # fmt: skip
        """The same for transfers that alternate with dispositions; (end of them, number of pairs)."""
        link = shape.link
        first = self.next_delivery_id
        limit = link.highest_limit - link.delivery_count
        if limit > self.left:
            limit = self.left
        if link._partial is not None or first is None or limit <= 0:
            return offset, 0
        max_size = max_frame_size
        if link.max_message_size and link.max_message_size + shape.fixed < max_size:
            max_size = link.max_message_size + shape.fixed
        tags: list[bytes] = []
        payloads: list[bytes] = []
        ranges: list[Range] = []
        offset = take_pairs(
            buf, offset, end, shape, size, known, transfer_first, first & WRAP, limit, max_size, tags, payloads, ranges
        )
        if tags:
            # Transfers first: a disposition may be about one that came just before it.
            self._received_run(shape, first, tags, payloads, events)
            for low, high, state, settled in ranges:
                known.session._received_disposition(known.is_receiver, low, high, state, settled, events)
        return offset, len(tags)

    def _received_run(
        self, shape: Shape, first: int, tags: list[bytes], payloads: list[bytes], events: list[Event]
    ) -> None:
        link = shape.link
        count = len(tags)
        self.next_delivery_id = first + count
        link.delivery_count += count
        if not shape.settled:
            self.unsettled.add(first, first + count, link)
        self.count(count, len(payloads[0]) if count == 1 else max(map(len, payloads)) if self._window_bytes else 0)
        link._emit(events, first, tags, payloads, shape.settled, shape.message_format, shape.rcv_settle_mode)
