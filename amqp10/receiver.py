"""The receiving end of a link: the credit it grants, deliveries put together from their frames (2.6.7, 2.6.14).

Knows what the sender may still send and holds at most one delivery whose last frame has not come. Doesn't keep complete
deliveries: they leave as events. Next: session.py, which hands in runs (transfers.py) and single transfers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp10.errors import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, NOT_ALLOWED, TRANSFER_LIMIT_EXCEEDED
from amqp10.events import ResumedTransfer, Transfers
from amqp10.link import ATTACH_RECEIVED, ATTACHED, NEW, Link
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_SETTLED
from amqp10.serial import WRAP, unwrap
from amqp10.violations import LinkViolation

if TYPE_CHECKING:
    from amqp10.events import Event
    from amqp10.performatives import Attach, DeliveryState, Flow, Transfer
    from amqp10.session import Session


CHUNK_OVERHEAD = 64  # what holding one more frame's payload costs beside its octets, roughly


class _Partial:
    """A delivery of which more frames are to come."""

    __slots__ = ("chunks", "delivery_id", "first", "held", "settled", "size", "state")

    def __init__(self, delivery_id: int, first: Transfer) -> None:
        self.delivery_id = delivery_id
        self.first = first
        self.settled = False
        self.state: DeliveryState | None = None
        self.chunks: list[bytes] = []
        self.size = 0
        self.held = 0  # its part of connection.held_size


class ReceiverLink(Link):
    __slots__ = ("_drain", "_partial", "available", "delivery_count", "given_up", "limit", "max_message_size", "reach")

    is_sender = False

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session, name)
        self.delivery_count = 0
        """Unwrapped; starts at the sender's initial-delivery-count."""
        self.limit = 0
        """delivery_count + credit at the last grant."""
        self.reach = 0
        """The highest limit that the sender was told: it must not get beyond it. Credit that is taken back may cross
        transfers that were sent on it (2.6.7), so a lower limit is a wish."""
        self.available: int | None = None
        """The sender's latest word on how many it could send."""
        self.max_message_size = session.connection.settings.max_message_size
        """Octets that are enforced; set by our attach."""
        self.given_up = 0
        """Credit that the sender has used up without deliveries, in answer to drains: it had nothing more."""
        self._drain = False
        self._partial: _Partial | None = None

    @property
    def credit(self) -> int:
        """What the sender may still send."""
        return self.limit - self.delivery_count

    @property
    def held_size(self) -> int:
        """Octets held of a delivery whose last frame has not come; its part of `connection.held_size`."""
        return 0 if self._partial is None else self._partial.held

    def grant(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Set link-credit as of now (it replaces, it does not add).

        The flow goes out with data_to_send; several grants before that make one flow, of the last one's credit. It may
        be called as soon as our attach has been sent; on a link that is gone nothing happens. With drain the sender
        answers with a flow that leaves no credit (LinkFlow)."""
        assert credit >= 0
        if self.detached:
            return
        self.limit = self.delivery_count + credit
        self._drain = drain
        if self._state is ATTACH_RECEIVED or self._state is NEW:
            self._reply_wanted = True
        else:
            self.session._want_flow(self, echo)

    def dispose(self, first_id: int, last_id: int, state: DeliveryState | None, settled: bool) -> None:
        """Tell the sender a state of deliveries first_id .. last_id, which must all be this link's.

        Written with data_to_send, adjacent equal ones as one range. Allowed after the sender has settled them (rhea
        frees a delivery in mode second only at such an echo). Nothing happens on a link that is gone."""
        if self._state is not ATTACHED:
            return
        if settled:
            self.session.incoming.unsettled.remove(first_id, last_id + 1)
        self.session.incoming.dispose(first_id, last_id, state, settled)

    # For the session --------------------------------------------------------------------------------------------

    def _accept_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> bool:
        """One transfer frame that the generic codec has decoded; whether it was a whole, ordinary delivery."""
        partial = self._partial
        if partial is None:
            partial = _Partial(self._begin_delivery(transfer), transfer)
            whole = not transfer.more
        else:
            whole = False
            if transfer.delivery_id is not None and transfer.delivery_id != partial.delivery_id & WRAP:
                self.session.incoming.begin_delivery(transfer.delivery_id)
                raise LinkViolation(
                    self,
                    NOT_ALLOWED,
                    f"delivery {transfer.delivery_id} begins before the last frame of {partial.delivery_id & WRAP}",
                )
            if transfer.delivery_tag is not None and transfer.delivery_tag != partial.first.delivery_tag:
                raise LinkViolation(self, INVALID_FIELD, f"delivery {partial.delivery_id & WRAP} changes its tag")
        # 2.7.5: settled and state may come with any of the frames
        partial.settled = partial.settled or bool(transfer.settled)
        partial.state = transfer.state if transfer.state is not None else partial.state
        partial.size += len(payload)
        if self.max_message_size and partial.size > self.max_message_size and not transfer.aborted:
            raise LinkViolation(
                self, MESSAGE_SIZE_EXCEEDED, f"a message of more than max-message-size {self.max_message_size} octets"
            )
        partial.chunks.append(payload)
        if transfer.more and not transfer.aborted:
            self._partial = partial
            partial.held += len(payload) + CHUNK_OVERHEAD
            self.session.connection.held_size += len(payload) + CHUNK_OVERHEAD
            return False
        self._drop_partial()
        return self._complete(partial, transfer.aborted, events) and whole

    def _begin_delivery(self, transfer: Transfer) -> int:
        """The first transfer frame of a delivery; its unwrapped id."""
        if transfer.delivery_id is None:
            raise LinkViolation(self, INVALID_FIELD, "the first transfer of a delivery has no delivery-id")
        delivery_id = self.session.incoming.begin_delivery(transfer.delivery_id)
        if transfer.delivery_tag is None:
            raise LinkViolation(self, INVALID_FIELD, "the first transfer of a delivery has no delivery-tag")
        if transfer.rcv_settle_mode == RCV_SECOND and self.rcv_settle_mode == RCV_FIRST:  # 2.7.5
            raise LinkViolation(self, INVALID_FIELD, "rcv-settle-mode second on a link in mode first")
        if self.delivery_count >= self.reach:
            raise LinkViolation(self, TRANSFER_LIMIT_EXCEEDED, "a transfer without credit")
        self.delivery_count += 1
        # Here and not when it is complete: deliveries of several links may be interleaved, and ids only grow.
        self.session.incoming.unsettled.add(delivery_id, delivery_id + 1, self)
        return delivery_id

    def _complete(self, partial: _Partial, aborted: bool, events: list[Event]) -> bool:
        """The last frame has come; whether the delivery was an ordinary one."""
        first, delivery_id, settled = partial.first, partial.delivery_id, partial.settled
        assert first.delivery_tag is not None
        special = first.resume or partial.state is not None
        unsettled = self.session.incoming.unsettled
        if settled or aborted:
            unsettled.remove(delivery_id, delivery_id + 1)
        elif not unsettled.find(delivery_id, delivery_id + 1):
            settled = True  # by a disposition that came between its frames
        if aborted:  # 2.6.14: as if it had never been, and implicitly settled
            if special:
                events.append(
                    ResumedTransfer(
                        self, delivery_id, first.delivery_tag, None, partial.state, True, True, first.resume
                    )
                )
            return False
        if not first.resume:
            self._check_settled(partial.settled)
        payload = partial.chunks[0] if len(partial.chunks) == 1 else b"".join(partial.chunks)
        if special:
            events.append(
                ResumedTransfer(
                    self,
                    delivery_id,
                    first.delivery_tag,
                    payload or None,
                    partial.state,
                    settled,
                    False,
                    first.resume,
                    first.message_format,
                )
            )
            return False
        self._emit(
            events, delivery_id, [first.delivery_tag], [payload], settled, first.message_format, first.rcv_settle_mode
        )
        return True

    def _check_settled(self, settled: bool) -> None:
        """2.7.5: on a link in snd-settle-mode settled every delivery is. The other way round we are lenient: proton
        writes a transfer as settled where its application settles early, whatever the mode."""
        if not settled and self.snd_settle_mode == SND_SETTLED:
            raise LinkViolation(self, INVALID_FIELD, "an unsettled delivery on a link in snd-settle-mode settled")

    def _emit(
        self, events: list[Event], first_id: int, tags: list[bytes], payloads: list[bytes], settled: bool,
        message_format: int | None, rcv_settle_mode: int | None,
    ) -> None:  # fmt: skip
        """As an event, or as more of the last event if that is one run with these."""
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
            self.limit += initial
            self.reach += initial

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self.session.connection.held_size -= self._partial.held
            self._partial = None

    def _stop(self) -> None:
        self._drop_partial()
        self.session.incoming.unsettled.drop(self)

    def _received_flow(self, flow: Flow) -> None:
        if flow.available is not None:
            self.available = flow.available
        if flow.delivery_count is not None and self.remote_attach is not None:
            count = unwrap(flow.delivery_count, self.delivery_count)
            if count > self.delivery_count:  # 2.6.7: credit given up, in answer to drain
                self.given_up += min(count, self.reach) - self.delivery_count
                self.delivery_count = min(count, self.reach)
                if self.delivery_count >= self.limit:
                    self._drain = False

    def _flow_fields(self) -> dict[str, Any]:
        self.reach = max(self.reach, self.limit)
        return {
            "delivery_count": None if self.remote_attach is None else self.delivery_count & WRAP,
            "link_credit": max(self.credit, 0),
            "drain": self._drain,
        }
