"""The receiving end of a link. SKELETON: signatures are final."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp10.link import Link

if TYPE_CHECKING:
    from amqp10.performatives import DeliveryState


class ReceiverLink(Link):
    delivery_count: int           # unwrapped; starts at the sender's initial-delivery-count
    limit: int                    # delivery_count + credit at the last grant
    credit: int                   # limit - delivery_count (property)
    available: int | None         # the sender's latest word

    def grant(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Set link-credit as of now (it replaces, it does not add). The flow goes out with data_to_send; before the
        link is attached by both sides it waits for that. Several calls before that make one flow (echo is kept)."""
        raise NotImplementedError

    def dispose(self, first_id: int, last_id: int, state: DeliveryState | None, settled: bool) -> None:
        """Tell the sender a state. Written with data_to_send, adjacent equal ones as one range. The range must hold
        deliveries of this link only. Allowed after the sender has settled them (an echo that rhea needs)."""
        raise NotImplementedError
