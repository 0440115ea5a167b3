"""The sending end of a link: credit, runs of deliveries, settlement (AMQP 2.6.7, 2.6.12 to 2.6.14).

Knows how much may be sent and splits messages into frames. It keeps no payloads or states: those are the owner's. Only
frames of a message that exceeds the session's window wait here. Next: transfers.py for the encoding, session.py for the
window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from amqp10.errors import LocalProtocolError
from amqp10.frames import FRAME_HEAD_SIZE, LARGE, Part
from amqp10.link import ATTACHED, Link, LinkSession
from amqp10.outcomes import DeliveryState, shortened_state
from amqp10.performatives import Attach, Flow, Transfer
from amqp10.serial import WRAP, unwrap
from amqp10.transfers import encode_block, encode_lead

_MOST_FRAMES: Final = 1 << 16  # that a `part_capacity` counts
_PART_OVERHEAD: Final = 128  # bytes by which a transfer with a state exceeds its payload, at most
_OVERHEAD: Final = 64  # bytes by which a one-frame transfer exceeds its payload, at most


class SenderLink(Link):
    __slots__ = ("credit", "delivery_count", "drain", "open_delivery")

    is_sender = True

    def __init__(self, session: LinkSession, name: str) -> None:
        super().__init__(session, name)
        self.credit = 0
        """Deliveries that may be sent now (link-credit)."""
        self.delivery_count = 0
        """Unwrapped; starts at our initial-delivery-count."""
        self.drain = False
        """The peer has asked for drain: send what there is, then call `drained()`."""
        self.open_delivery: int | None = None
        """The id of the delivery that `begin` has begun and `add` or `abort` has not ended."""

    def capacity(self) -> int:
        """How many one-frame messages may be sent now: the smaller of credit and the session's window; 0 while frames
        of a larger message wait, while a delivery is open, and on a link that is not attached. LinkFlow or SessionFlow
        tells when it grows."""
        if self._state is not ATTACHED or self.open_delivery is not None:
            return 0
        outgoing, credit = self.session.outgoing, self.credit
        window = outgoing.window  # 0 while frames wait
        if credit <= window:
            return credit
        return window if outgoing.limited_by_window else outgoing.capacity(credit)

    def send(
        self,
        tags: list[bytes],
        payloads: list[bytes],
        *,
        settled: bool = False,
        message_format: int = 0,
        id_hint: int | None = None,
        shared: tuple[dict[Any, Any], int] | None = None,
    ) -> int:
        """Send deliveries with consecutive ids, at least one and at most `capacity()`; return the first id.

        Tags of at most 32 bytes. A payload that exceeds the peer's max-frame-size is split.
        id_hint: the first delivery-id of a session that has sent nothing yet, so that sessions with equal ids share
        encoded blocks. shared: a dict of the owner's for one batch, and the place in the batch; equal place and length
        must mean equal tags and payloads."""
        count = len(tags)
        session = self.session
        outgoing = session.outgoing
        has_room = 0 < count <= self.credit and count <= outgoing.window
        if not has_room or self.open_delivery is not None or self._state is not ATTACHED:
            raise LocalProtocolError(f"{self!r}: {count} deliveries, capacity for {self.capacity()}")
        first = outgoing.take_delivery_ids(count, id_hint)
        self.credit -= count
        self.delivery_count += count
        if not settled:
            outgoing.unsettled.add(first, first + count, self)
            outgoing.undecided.add(first, first + count, self)
        room = session.connection.remote_max_frame_size
        handle = self.handle
        assert handle is not None
        key: Any = None
        known: tuple[bytes, int] | None = None
        if shared is not None:
            key = (session.channel, handle, first & WRAP, count, settled, message_format, shared[1])
            known = shared[0].get(key)
        largest = known[1] if known is not None else len(payloads[0]) if count == 1 else max(map(len, payloads))
        if largest + _OVERHEAD > room:
            self._send_split(first, tags, payloads, settled, message_format)
            return first
        if largest >= LARGE:  # payloads are not copied
            for delivery_id, tag, payload in zip(range(first, first + count), tags, payloads, strict=True):
                self._send_parts(delivery_id, tag, (payload,), len(payload), settled, message_format)
            return first
        if known is None:
            common = session.channel, handle, settled, message_format
            known = encode_block(common, first, tags, payloads), largest
            if shared is not None:
                shared[0][key] = known
        outgoing.send_block(known[0], count)
        return first

    def send_settled(self, tag: bytes, parts: Sequence[Part]) -> None:
        """Send one settled delivery whose payload is in parts; it has to fit into a frame, and into `capacity()`."""
        size = sum(map(len, parts))
        if self.capacity() < 1 or size + _OVERHEAD > self.session.connection.remote_max_frame_size:
            raise LocalProtocolError(f"{self!r}: no capacity for a delivery of {size} bytes")
        self._send_parts(self._next_delivery(unsettled=False), tag, parts, size, True, 0)

    def resume(
        self,
        tag: bytes,
        state: DeliveryState | None = None,
        payload: bytes | None = None,
        settled: bool = False,
        aborted: bool = False,
        message_format: int = 0,
    ) -> int:
        """One transfer with resume = true (AMQP 2.6.13), which uses credit like any other; return its delivery-id."""
        if self.capacity() < 1:
            raise LocalProtocolError(f"{self!r}: no capacity to resume a delivery")
        delivery_id = self._next_delivery(unsettled=not (settled or aborted))  # 2.6.14: aborted ones are settled
        transfer = Transfer(
            handle=self.handle or 0,
            delivery_id=delivery_id & WRAP,
            delivery_tag=tag,
            message_format=message_format,
            settled=settled,
            state=state,
            resume=True,
            aborted=aborted,
        )
        self._send_message(transfer, payload or b"", delivery_id)
        return delivery_id

    def begin(
        self,
        tag: bytes,
        payload: bytes,
        *,
        settled: bool = False,
        message_format: int = 0,
        resume: bool = False,
        state: DeliveryState | None = None,
    ) -> int:
        """Begin a delivery whose end is not known yet, and return its id. It is *open* until `add` ends it, or `abort`.
        Deliveries of other links may be sent meanwhile.

        payload: its first bytes, at most as many as a `part_capacity()`."""
        if self.capacity() < 1:
            raise LocalProtocolError(f"{self!r}: no capacity to begin a delivery")
        self._check_part(payload)
        delivery_id = self._next_delivery(unsettled=not settled)
        self.open_delivery = delivery_id
        transfer = Transfer(
            handle=self.handle or 0,
            delivery_id=delivery_id & WRAP,
            delivery_tag=tag,
            message_format=message_format,
            settled=settled,
            state=state,
            resume=resume,
        )
        self._send_message(transfer, payload, delivery_id, more=True)
        return delivery_id

    def part_capacity(self) -> int:
        """How many bytes of a delivery may be sent now, its beginning included: what the session's window admits.
        SessionFlow tells when it grows."""
        if self._state is not ATTACHED:
            return 0
        frames = self.session.outgoing.capacity(_MOST_FRAMES)
        return max(frames * (self.session.connection.remote_max_frame_size - _PART_OVERHEAD), 0)

    def add(self, payload: bytes, *, more: bool) -> None:
        """The next bytes of the open delivery, at most `part_capacity()` of them. Without more they are its last ones,
        and may be none."""
        delivery_id = self._end_part(payload, ends=not more)
        transfer = Transfer(handle=self.handle or 0)
        if payload or not more:
            self._send_message(transfer, payload, delivery_id, begins=False, more=more)

    def abort(self) -> None:
        """End the open delivery: it is void, and settled at both sides (AMQP 2.6.14)."""
        delivery_id = self._end_part(b"", ends=True)
        outgoing = self.session.outgoing
        outgoing.undecided.remove(delivery_id, delivery_id + 1)
        outgoing.unsettled.remove(delivery_id, delivery_id + 1)
        transfer = Transfer(handle=self.handle or 0, aborted=True)
        outgoing.send_frame(self, delivery_id, False, transfer.encode())

    def _next_delivery(self, *, unsettled: bool) -> int:
        """Use one credit for a delivery, and return its id."""
        outgoing = self.session.outgoing
        delivery_id = outgoing.take_delivery_ids(1, None)
        self.credit -= 1
        self.delivery_count += 1
        if unsettled:
            outgoing.unsettled.add(delivery_id, delivery_id + 1, self)
            outgoing.undecided.add(delivery_id, delivery_id + 1, self)
        return delivery_id

    def _end_part(self, payload: bytes, *, ends: bool) -> int:
        delivery_id = self.open_delivery
        if delivery_id is None:
            raise LocalProtocolError(f"{self!r}: no delivery is open")
        self._check_part(payload)
        if ends:
            self.open_delivery = None
        return delivery_id

    def _check_part(self, payload: bytes) -> None:
        if payload and len(payload) > self.part_capacity():
            raise LocalProtocolError(f"{self!r}: {len(payload)} bytes, capacity for {self.part_capacity()}")

    def settle(self, first_id: int, last_id: int, state: DeliveryState | None = None) -> None:
        """Settle first_id .. last_id; deliveries that the receiver has settled are left out."""
        self.dispose(first_id, last_id, state, True)

    def dispose(self, first_id: int, last_id: int, state: DeliveryState | None, settled: bool) -> None:
        """Tell the receiver a state of deliveries first_id .. last_id, which must all be this link's.

        Written with data_to_send, adjacent equal ones as one range. On a link that has ended nothing happens."""
        if self._state is not ATTACHED:
            return
        outgoing = self.session.outgoing
        if settled and outgoing.undecided.firsts:
            outgoing.undecided.remove(first_id, last_id + 1)
        if settled and not outgoing.unsettled.remove(first_id, last_id + 1):
            return
        outgoing.dispositions.add(first_id, last_id, state, settled)

    def write_dispositions(self) -> None:
        """Write pending dispositions now, ahead of the transfers that follow: before a tag is used again, the peer must
        have read that its last delivery is settled."""
        self.session.outgoing.write_dispositions()

    def drained(self) -> None:
        """Use up the remaining credit and send a flow: the answer to `drain` (AMQP 2.6.7)."""
        self.delivery_count += self.credit
        self.credit = 0
        self.flow()

    def flow(self, *, echo: bool = False) -> None:
        """Send a flow with our state; echo asks for the receiver's."""
        if self._state is ATTACHED:
            self.session._queue_flow(self, echo)

    def check_invariants(self) -> None:
        assert self.credit >= 0, f"{self!r}: credit {self.credit}"
        assert not (self.credit and self.detached), f"{self!r}: credit after detach"

    # For the session --------------------------------------------------------------------------------------------

    def _send_parts(
        self, delivery_id: int, tag: bytes, parts: Sequence[Part], size: int, settled: bool, message_format: int
    ) -> None:
        session, handle = self.session, self.handle
        assert handle is not None
        lead = encode_lead((session.channel, handle, settled, message_format), delivery_id & WRAP, tag, size)
        session.outgoing.send_parts((lead, *parts))

    def _send_split(
        self, first: int, tags: list[bytes], payloads: list[bytes], settled: bool, message_format: int
    ) -> None:
        """Send a run in which some payload exceeds a frame, message by message."""
        for delivery_id, tag, payload in zip(range(first, first + len(tags)), tags, payloads, strict=True):
            transfer = Transfer(
                handle=self.handle or 0,
                delivery_id=delivery_id & WRAP,
                delivery_tag=tag,
                message_format=message_format,
                settled=settled,
            )
            self._send_message(transfer, payload, delivery_id)

    def _send_message(
        self, transfer: Transfer, payload: bytes, delivery_id: int, *, begins: bool = True, more: bool = False
    ) -> None:
        """Send one delivery, or with more a part of one, in as many frames as it needs (AMQP 2.6.14); frames beyond the
        window wait."""
        outgoing = self.session.outgoing
        room = self.session.connection.remote_max_frame_size - FRAME_HEAD_SIZE
        transfer.more = more
        body = transfer.encode()
        if len(body) > room:
            transfer.state = shortened_state(transfer.state)
            body = transfer.encode()
        if len(body) + len(payload) <= room:
            outgoing.send_frame(self, delivery_id, begins, (body, payload))
            return
        transfer.more = True
        body = transfer.encode()
        offset = room - len(body)
        view = memoryview(payload)
        outgoing.send_frame(self, delivery_id, begins, (body, view[:offset]))
        body = Transfer(handle=self.handle or 0, more=True).encode()
        final = Transfer(handle=self.handle or 0, more=more).encode()
        while offset < len(payload):
            chunk = view[offset : offset + room - len(body)]
            offset += len(chunk)
            outgoing.send_frame(self, delivery_id, False, (body if offset < len(payload) else final, chunk))

    def _start(self, attach: Attach, *, local: bool) -> None:
        if local:
            self.delivery_count = attach.initial_delivery_count or 0

    def _stop(self) -> None:
        self.credit = 0
        self.open_delivery = None
        self.session.outgoing.drop(self)

    def _received_flow(self, flow: Flow) -> None:
        # AMQP 2.6.7: link-credit(snd) := delivery-count(rcv) + link-credit(rcv) - delivery-count(snd)
        if flow.link_credit is not None:
            if flow.delivery_count is None:  # the receiver has not seen our attach yet
                base = (self.local_attach.initial_delivery_count or 0) if self.local_attach is not None else 0
            else:
                base = unwrap(flow.delivery_count, self.delivery_count)
            self.credit = max(base + flow.link_credit - self.delivery_count, 0)
        self.drain = flow.drain

    def _flow_fields(self) -> dict[str, Any]:
        return {
            "delivery_count": self.delivery_count & WRAP,
            "link_credit": self.credit,
            "available": 0,
            "drain": self.drain,
        }
