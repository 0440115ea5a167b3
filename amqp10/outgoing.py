"""The sending side of a session: transfer frames within the peer's window, delivery-ids, dispositions (AMQP 2.5.6).

Knows ids and frames. Doesn't know credit (sender.py). Delivery-ids are unwrapped. Frames of a message that exceeds the
window wait here, and nothing overtakes them. Next: incoming.py, the other half.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from amqp10.dispositions import PendingDispositions
from amqp10.endpoints import Channel
from amqp10.frames import Body, Part
from amqp10.performatives import Flow
from amqp10.serial import difference
from amqp10.unsettled import UnsettledRanges


class Outgoing:
    """One per session."""

    __slots__ = (
        "dispositions",
        "limited_by_window",
        "_session",
        "_waiting",
        "_waiting_link",
        "next_delivery_id",
        "next_transfer_id",
        "undecided",
        "unsettled",
        "window",
    )

    def __init__(self, session: Channel) -> None:
        self._session = session
        self.next_transfer_id = 0
        self.window = 0
        """Transfer frames that may be sent now."""
        self.next_delivery_id: int | None = None
        self.unsettled: UnsettledRanges[Any] = UnsettledRanges()
        self.undecided: UnsettledRanges[Any] = UnsettledRanges()
        """Those of which the peer has not told an outcome."""
        self.dispositions = PendingDispositions(session, is_receiver=False)
        # Frames that wait for the window: (delivery-id, whether it is the delivery's first, body). All belong to one
        # link, as capacity() is 0 while there are any.
        self._waiting: deque[tuple[int, bool, Body]] = deque()
        self._waiting_link: object = None
        self.limited_by_window = False
        """A larger window would have admitted more."""

    @property
    def waiting(self) -> bool:
        """Frames wait for the window. Dispositions wait too, as they may be about these."""
        return bool(self._waiting)

    def begins_later(self, link: object) -> bool:
        """Whether a delivery of this link has not begun yet, although the link has counted it: its flows wait."""
        return self._waiting_link is link and any(begins for _, begins, _ in self._waiting)

    def capacity(self, credit: int) -> int:
        """How many one-frame messages a link with this credit may send."""
        if self.window < credit:
            self.limited_by_window = True
            return self.window
        return credit

    def take_delivery_ids(self, count: int, hint: int | None) -> int:
        """The first of `count` new ones; `hint` if there have been none."""
        first = self.next_delivery_id
        if first is None:
            first = 0 if hint is None else hint
        self.next_delivery_id = first + count
        return first

    def send_block(self, block: bytes, frames: int) -> None:
        """Write encoded one-frame messages; capacity() has been checked."""
        self.window -= frames
        self.next_transfer_id += frames
        connection = self._session.connection
        connection._out.append(block)
        connection.output_size += len(block)

    def send_parts(self, parts: Sequence[Part]) -> None:
        """The same of one message, in parts."""
        self.window -= 1
        self.next_transfer_id += 1
        self._session.connection._append_parts(parts)

    def send_frame(self, link: object, delivery_id: int, begins: bool, body: Body) -> None:
        """Write one frame of a message now, or when the window admits it."""
        if self._waiting or self.window <= 0:
            self._waiting.append((delivery_id, begins, body))
            self._waiting_link = link
            self.limited_by_window = True
            return
        self._send(body)

    def received_flow(self, flow: Flow) -> bool:
        """Set the window from the peer's flow. Returns whether senders that were limited by it may send now."""
        before = self.window
        # Transfers that the peer had not read when it wrote the flow count against the window (AMQP 2.5.6).
        seen = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        self.window = max(flow.incoming_window - max(difference(self.next_transfer_id, seen), 0), 0)
        while self._waiting and self.window > 0:
            self._send(self._waiting.popleft()[2])
            self._session._has_output()  # dispositions and flows may have waited behind them
        if self.window <= before or self._waiting or not self.limited_by_window:
            return False
        self.limited_by_window = False
        return True

    def drop(self, link: object) -> None:
        """The link has ended. Ids of deliveries that have not begun are used again: peers accept no gap."""
        self.unsettled.drop(link)
        self.undecided.drop(link)
        if self._waiting_link is not link:
            return
        unsent = [delivery_id for delivery_id, begins, _ in self._waiting if begins]
        if unsent:
            self.next_delivery_id = unsent[0]
            self.dispositions.drop_from(unsent[0])
        self._session._has_output()
        self._waiting.clear()
        self._waiting_link = None

    def write_dispositions(self) -> None:
        if self.dispositions.entries and not self._waiting:
            self.dispositions.write()

    def _send(self, body: Body) -> None:
        self.window -= 1
        self.next_transfer_id += 1
        self._session._write(body)
