"""The receiving side of a session: our incoming window, delivery-ids in sequence, unsettled deliveries (AMQP 2.5.6).

Knows windows and ids. Doesn't know handles (session.py) nor how deliveries are taken from frames (receiver.py).
Delivery-ids are unwrapped. Next: outgoing.py, the other half.
"""

from __future__ import annotations

from typing import Any, Final

from amqp10.dispositions import PendingDispositions
from amqp10.endpoints import Channel
from amqp10.errors import INVALID_FIELD, WINDOW_VIOLATION, EndpointViolation
from amqp10.serial import WRAP, unwrap
from amqp10.unsettled import UnsettledRanges

FIRST_WINDOW: Final = 16  # frames, where the window is bounded in bytes


class Incoming:
    """One per session."""

    __slots__ = (
        "_largest",
        "_session",
        "dispositions",
        "left",
        "most",
        "next_delivery_id",
        "next_transfer_id",
        "paused",
        "unsettled",
        "window",
        "window_bytes",
    )

    def __init__(self, session: Channel, most: int, window_bytes: int = 0) -> None:
        self._session = session
        self.window_bytes = window_bytes
        """That bound the window, whatever the size of frames; 0: frames alone do."""
        self._largest = 1  # bytes of a frame's payload, so far
        self.most = most
        self.window = min(most, FIRST_WINDOW) if window_bytes else most
        """The incoming-window of our flows."""
        self.left = self.window
        """Frames that the peer may still send."""
        self.paused = False
        self.next_transfer_id = 0  # as on the wire
        self.next_delivery_id: int | None = None
        self.unsettled: UnsettledRanges[Any] = UnsettledRanges()
        self.dispositions = PendingDispositions(session, is_receiver=True)

    def count(self, frames: int, largest: int) -> None:
        """So many transfer frames have arrived; a flow renews the window when half of it is used."""
        if largest > self._largest:
            self._largest = largest
        if frames > self.left:
            raise EndpointViolation(self._session, WINDOW_VIOLATION, "a transfer beyond the incoming window")
        self.left -= frames
        self.next_transfer_id = (self.next_transfer_id + frames) & WRAP
        if self.left * 2 < self.window and not self.paused:
            self._session._queue_session_flow()

    def widen(self) -> None:
        """Bound the window in frames only, from the next flow on."""
        self.window_bytes = 0
        self.window = self.most

    def renew(self) -> int:
        """The incoming-window for a flow of ours: the full window again, unless that is paused."""
        if not self.paused:
            if self.window_bytes:
                self.window = max(min(self.window_bytes // self._largest, 2 * self.window, self.most), 1)
            # the peer may have used what an earlier flow has told it
            self.left = max(self.left, self.window)
        return self.left

    def begin_delivery(self, wire: int) -> int:
        """The unwrapped id of a delivery that begins. The first id of a session may be any; the others follow it."""
        expected = self.next_delivery_id
        delivery_id = wire if expected is None else unwrap(wire, expected)
        if expected is not None and delivery_id != expected:
            raise EndpointViolation(self._session, INVALID_FIELD, f"delivery-id {wire}, not {expected & WRAP}")
        self.next_delivery_id = delivery_id + 1
        return delivery_id

    def skip_delivery(self, wire: int) -> None:
        """A transfer that is discarded may have begun a delivery."""
        if self.next_delivery_id is not None:
            self.next_delivery_id = max(self.next_delivery_id, unwrap(wire, self.next_delivery_id) + 1)
