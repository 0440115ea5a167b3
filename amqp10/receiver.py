"""The receiving end of a link: granting credit, joining deliveries from their frames (AMQP 2.6.7, 2.6.14).

Knows what the sender may still send, and holds at most one delivery whose last frame has not arrived. Complete
deliveries leave as events, large ones in parts if the owner asks for that. Runs of them (transfers.py, pairs.py) come
from reading.py, single transfers from session.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

from amqp10.dispositions import Range
from amqp10.errors import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, NOT_ALLOWED, TRANSFER_LIMIT_EXCEEDED, EndpointViolation
from amqp10.link import ATTACH_RECEIVED, ATTACHED, NEW, Link, LinkSession
from amqp10.outcomes import DeliveryState, shortened_state
from amqp10.pairs import Pair, take_pairs
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_SETTLED, Attach, Flow, Transfer
from amqp10.runs import ResumedTransfer, TransferPart, Transfers
from amqp10.serial import WRAP, unwrap
from amqp10.transfers import Said, Shape, take_run
from amqp10.types import Described

_UNKNOWN: Final = Described(None, None)  # a state that is none of AMQP's
CHUNK_OVERHEAD: Final = 64  # bytes that holding one frame's payload takes in addition, roughly


class _Partial:
    """A delivery whose last frame has not arrived."""

    __slots__ = ("_first_payload", "_joined", "delivery_id", "first", "held", "passed", "settled", "size", "state")

    def __init__(self, delivery_id: int, first: Transfer) -> None:
        self.delivery_id = delivery_id
        self.first = first
        self.settled = False
        self.state: DeliveryState | None = None
        self._first_payload = b""
        self._joined: BytesIO | None = None
        self.size = 0
        self.held = 0  # counted in connection.incomplete_size
        self.passed = 0  # bytes that have left as parts

    def add(self, payload: bytes) -> None:
        """Frame by frame, so that the last one of a large delivery does not wait for all to be joined."""
        self.size += len(payload)
        if self._joined is not None:
            self._joined.write(payload)
        elif self._first_payload:
            self._joined = BytesIO()
            self._joined.write(self._first_payload)
            self._joined.write(payload)
            self._first_payload = b""
        else:
            self._first_payload = payload

    def take(self) -> bytes:
        """What has come since the last call, without a copy."""
        joined, self._joined = self._joined, None
        if joined is not None:
            return joined.getvalue()
        payload, self._first_payload = self._first_payload, b""
        return payload


class Granted:
    """Credit as the sender may know it. A limit is delivery_count + credit."""

    __slots__ = ("drain", "drained", "highest", "limit")

    def __init__(self) -> None:
        self.limit = 0
        """At the last grant."""
        self.highest = 0
        """The highest limit granted so far, which the sender must not exceed. A lower limit binds it only when it has
        read it: transfers may cross the flow that lowers the credit (AMQP 2.6.7)."""
        self.drain = False
        self.drained = 0
        """Credit that the sender has used up without deliveries, in answer to drain."""

    def begin(self, initial: int) -> None:
        """The sender's attach says where its delivery-count begins."""
        self.limit += initial
        self.highest += initial

    def told(self) -> None:
        """The limit goes out with a flow."""
        self.highest = max(self.highest, self.limit)

    def used_up(self, before: int, count: int) -> int:
        """The sender's flow has moved its delivery-count (AMQP 2.6.7). Returns up to where it may."""
        count = min(count, self.highest)
        self.drained += count - before
        if count >= self.limit:
            self.drain = False
        return count


class ReceiverLink(Link):
    __slots__ = ("_partial", "delivery_count", "flow_properties", "granted", "max_message_size", "part_size")

    is_sender = False

    def __init__(self, session: LinkSession, name: str) -> None:
        super().__init__(session, name)
        self.delivery_count = 0
        """Unwrapped; starts at the sender's initial-delivery-count."""
        self.granted = Granted()
        self.max_message_size = session.connection.settings.max_message_size
        """In bytes, as enforced; set by our attach. 0: no limit."""
        self.part_size = 0
        """Bytes of a delivery from which on it is passed on in parts (TransferPart), without waiting for its last
        frame, and max_message_size does not bound it. 0: never. A delivery that begins settled, or has another
        message-format than 0, is joined. How much comes is bounded by the session's incoming window alone: credit
        counts deliveries."""
        self.flow_properties: Mapping[str, Any] | None = None
        """Of the next flow, and of no later one."""
        self._partial: _Partial | None = None

    @property
    def credit(self) -> int:
        """What the sender may still send."""
        return self.granted.limit - self.delivery_count

    @property
    def incomplete_size(self) -> int:
        """Bytes held of a delivery whose last frame has not arrived, as in `connection.incomplete_size`."""
        return 0 if self._partial is None else self._partial.held

    def grant(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Set link-credit as of now (it replaces, it does not add).

        The flow is written with data_to_send; of several grants before that only the last one counts. On a link that
        has ended nothing happens. With drain the sender answers with a flow that leaves no credit (LinkFlow)."""
        assert credit >= 0
        if self.detached:
            return
        self.granted.limit = self.delivery_count + credit
        self.granted.drain = drain
        if self._state is ATTACH_RECEIVED or self._state is NEW:
            self._reply_wanted = True
        else:
            self.session._queue_flow(self, echo)

    def dispose(self, first_id: int, last_id: int, state: DeliveryState | None, settled: bool) -> None:
        """Tell the sender a state of deliveries first_id .. last_id, which must all be this link's.

        Written with data_to_send, adjacent equal ones as one range. Allowed after the sender has settled them (rhea
        frees a delivery in mode second only then). On a link that has ended nothing happens."""
        if self._state is not ATTACHED:
            return
        incoming = self.session.incoming
        if settled and incoming.unsettled.firsts:
            incoming.unsettled.remove(first_id, last_id + 1)
        incoming.dispositions.add(first_id, last_id, state, settled)

    def check_invariants(self) -> None:
        count, limit = self.delivery_count, self.granted.highest
        assert count <= limit, f"{self!r}: delivery-count {count} beyond limit {limit}"
        assert self._partial is None or self.attached, f"{self!r}: an incomplete delivery while not attached"

    # For the session --------------------------------------------------------------------------------------------

    def take_run(
        self, buf: bytes, offset: int, end: int, shape: Shape[ReceiverLink] | Pair, max_size: int, events: list[Any]
    ) -> tuple[int, int]:
        """As many transfers at `offset` as their shape, credit and window admit; (end of them, their number).

        shape: of the transfers or, where dispositions alternate with them, which are taken, too, of both.
        max_size: of a frame."""
        incoming = self.session.incoming
        first = incoming.next_delivery_id
        limit = self.granted.highest - self.delivery_count
        if limit > incoming.left:
            limit = incoming.left
        if self._partial is not None or first is None or limit <= 0:
            return offset, 0
        pair: Pair | None = None
        if isinstance(shape, Pair):
            pair, shape = shape, shape.transfer
        if self.max_message_size and self.max_message_size + shape.fixed < max_size:
            max_size = self.max_message_size + shape.fixed
        tags: list[bytes] = []
        payloads: list[bytes] = []
        ranges: list[Range] = []
        room = first & WRAP, limit, max_size
        if pair is None:
            offset = take_run(buf, offset, end, shape, room, (tags, payloads))
        else:
            offset = take_pairs(buf, offset, end, pair, room, (tags, payloads, ranges))
        if tags:
            count = len(tags)
            self.delivery_count += count
            incoming.next_delivery_id = first + count
            if not shape.said[0]:
                incoming.unsettled.add(first, first + count, self)
            largest = len(payloads[0]) if count == 1 else max(map(len, payloads)) if incoming.window_bytes else 0
            incoming.count(count, largest)
            self._emit(events, first, tags, payloads, shape.said)
        if pair is not None:  # behind the transfers: a disposition may be about one that came just before it
            said = pair.disposition
            for low, high, state, settled in ranges:
                said.session._received_disposition(said.is_receiver, low, high, state, settled, events)
        return offset, len(tags)

    def _accept_transfer(self, transfer: Transfer, payload: bytes, events: list[Any]) -> bool:
        """Process one decoded transfer frame. Returns whether it was a complete, ordinary delivery."""
        partial = self._partial
        if partial is None:
            partial = _Partial(self._begin_delivery(transfer), transfer)
            whole = not transfer.more
        else:
            whole = False
            if transfer.delivery_id is not None and transfer.delivery_id != partial.delivery_id & WRAP:
                self.session.incoming.begin_delivery(transfer.delivery_id)
                raise EndpointViolation(
                    self,
                    NOT_ALLOWED,
                    f"delivery {transfer.delivery_id} begins before the last frame of {partial.delivery_id & WRAP}",
                )
            if transfer.delivery_tag is not None and transfer.delivery_tag != partial.first.delivery_tag:
                raise EndpointViolation(self, INVALID_FIELD, f"delivery {partial.delivery_id & WRAP} changes its tag")
        # AMQP 2.7.5: settled and state may come with any of the frames
        partial.settled = partial.settled or bool(transfer.settled)
        partial.state = transfer.state if transfer.state is not None else partial.state
        partial.add(payload)
        if self.max_message_size and partial.size - partial.passed > self.max_message_size and not transfer.aborted:
            raise EndpointViolation(
                self, MESSAGE_SIZE_EXCEEDED, f"a message of more than max-message-size {self.max_message_size} bytes"
            )
        if transfer.more and not transfer.aborted:
            self._partial = partial
            # what is held is the payload: a state may be as large as a frame, and is a state all the same
            transfer.state = None
            partial.state = _UNKNOWN if isinstance(partial.state, Described) else shortened_state(partial.state)
            if self.part_size and (partial.passed or self._begins_parts(partial)):
                self._pass_on(partial, events)
                return False
            partial.held += len(payload) + CHUNK_OVERHEAD
            self.session.connection.incomplete_size += len(payload) + CHUNK_OVERHEAD
            return False
        self._drop_partial()
        return self._complete(partial, transfer.aborted, events) and whole

    def _begins_parts(self, partial: _Partial) -> bool:
        return partial.size >= self.part_size and not (partial.settled or partial.first.message_format)

    def _begin_delivery(self, transfer: Transfer) -> int:
        """The first transfer frame of a delivery; its unwrapped id."""
        if transfer.delivery_id is None:
            raise EndpointViolation(self, INVALID_FIELD, "the first transfer of a delivery has no delivery-id")
        delivery_id = self.session.incoming.begin_delivery(transfer.delivery_id)
        if transfer.delivery_tag is None:
            raise EndpointViolation(self, INVALID_FIELD, "the first transfer of a delivery has no delivery-tag")
        if transfer.rcv_settle_mode == RCV_SECOND and self.rcv_settle_mode == RCV_FIRST:  # AMQP 2.7.5
            raise EndpointViolation(self, INVALID_FIELD, "rcv-settle-mode second on a link in mode first")
        if self.delivery_count >= self.granted.highest:
            raise EndpointViolation(self, TRANSFER_LIMIT_EXCEEDED, "a transfer without credit")
        self.delivery_count += 1
        # Not only when it is complete: deliveries of several links may be interleaved, and ids must be added in order.
        self.session.incoming.unsettled.add(delivery_id, delivery_id + 1, self)
        return delivery_id

    def _complete(self, partial: _Partial, aborted: bool, events: list[Any]) -> bool:
        """The last frame has arrived. Returns whether the delivery was an ordinary one."""
        first, delivery_id, settled = partial.first, partial.delivery_id, partial.settled
        assert first.delivery_tag is not None
        special = first.resume or partial.state is not None
        unsettled = self.session.incoming.unsettled
        if settled or aborted:
            unsettled.remove(delivery_id, delivery_id + 1)
        elif not unsettled.holds(delivery_id):
            settled = True  # by a disposition that came between its frames
        if not aborted and not first.resume:
            self._check_settled(partial.settled)
        if partial.passed:
            events.append(self._part(partial, more=False, aborted=aborted, settled=settled or aborted))
            return False
        if aborted:  # AMQP 2.6.14: as if it had never been sent, and implicitly settled
            tag, state, resume = first.delivery_tag, partial.state, first.resume
            events.append(ResumedTransfer(self, delivery_id, tag, None, state, True, True, resume, None))
            return False
        payload = partial.take()
        if special:
            resumed = ResumedTransfer(
                self, delivery_id, first.delivery_tag, payload or None, partial.state, settled, False, first.resume,
                first.message_format,
            )  # fmt: skip
            events.append(resumed)
            return False
        said = settled, first.message_format, first.rcv_settle_mode
        self._emit(events, delivery_id, [first.delivery_tag], [payload], said)
        return True

    def _pass_on(self, partial: _Partial, events: list[Any]) -> None:
        """Let go of the frames that have come."""
        self.session.connection.incomplete_size -= partial.held
        partial.held = 0
        part = self._part(partial, more=True, aborted=False, settled=partial.settled)
        events.append(part)
        partial.passed += len(part.payload)

    def _part(self, partial: _Partial, *, more: bool, aborted: bool, settled: bool) -> TransferPart:
        first = partial.first
        assert first.delivery_tag is not None
        payload = b"" if aborted else partial.take()
        return TransferPart(
            self, partial.delivery_id, first.delivery_tag, payload, partial.passed, more, aborted, settled,
            partial.state, first.resume, first.message_format,
        )  # fmt: skip

    def _check_settled(self, settled: bool) -> None:
        """On a link in snd-settle-mode settled every delivery is settled (AMQP 2.7.5). The opposite is not enforced:
        proton writes a transfer as settled if its application settles early, whatever the mode."""
        if not settled and self.snd_settle_mode == SND_SETTLED:
            raise EndpointViolation(self, INVALID_FIELD, "an unsettled delivery on a link in snd-settle-mode settled")

    def _emit(self, events: list[Any], first_id: int, tags: list[bytes], payloads: list[bytes], said: Said) -> None:
        """Append an event, or extend the last event if it is the same run."""
        settled, message_format, rcv_settle_mode = said
        if events:
            last = events[-1]
            if (
                last.__class__ is Transfers
                and last.link is self
                and last.first_id + len(last.tags) == first_id
                and last.settled is settled
                and last.message_format == message_format
                and last.rcv_settle_mode == rcv_settle_mode
            ):
                last.tags += tags
                last.payloads += payloads
                return
        events.append(Transfers(self, first_id, tags, payloads, settled, message_format, rcv_settle_mode))

    def _start(self, attach: Attach, *, local: bool) -> None:
        if local:
            self.max_message_size = attach.max_message_size or 0
        else:
            initial = attach.initial_delivery_count or 0
            self.delivery_count += initial
            self.granted.begin(initial)

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self.session.connection.incomplete_size -= self._partial.held
            self._partial = None

    def _stop(self) -> None:
        self._drop_partial()
        self.session.incoming.unsettled.drop(self)

    def _received_flow(self, flow: Flow) -> None:
        if flow.delivery_count is not None and self.remote_attach is not None:
            count = unwrap(flow.delivery_count, self.delivery_count)
            if count > self.delivery_count:  # AMQP 2.6.7: the answer to drain
                self.delivery_count = self.granted.used_up(self.delivery_count, count)

    def _flow_fields(self) -> dict[str, Any]:
        self.granted.told()
        properties, self.flow_properties = self.flow_properties, None
        return {
            "properties": properties,
            "delivery_count": None if self.remote_attach is None else self.delivery_count & WRAP,
            "link_credit": max(self.credit, 0),
            "drain": self.granted.drain,
        }
