"""The sending end of a link. SKELETON: signatures are final."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp10.link import Link

if TYPE_CHECKING:
    from amqp10.performatives import DeliveryState


class SenderLink(Link):
    credit: int                   # deliveries that may be sent now
    delivery_count: int
    drain: bool                   # the peer wants the credit used up: send, then drained()
    available: int                # as told to the peer by set_available

    def capacity(self) -> int:
        """How many one-frame messages can be sent now: credit and the session's window; 0 while frames of a larger
        message wait for the window, and on a link that is not attached."""
        raise NotImplementedError

    def send(
        self,
        tags: list[bytes],
        payloads: list[bytes],
        *,
        settled: bool = False,
        message_format: int = 0,
        id_hint: int | None = None,
        cache: dict[Any, Any] | None = None,
        position: int = 0,
    ) -> int:
        """Send deliveries with consecutive ids; the first one's is returned. At most capacity() of them.

        id_hint: a session that has sent nothing yet takes this as its delivery-id, so that sessions whose ids run along
        share encoded blocks. cache: a dict of the owner's for one batch; position: what tells apart slices of that
        batch, that is, equal position and length mean the same tags and payloads."""
        raise NotImplementedError

    def resume(
        self,
        tag: bytes,
        state: DeliveryState | None = None,
        payload: bytes | None = None,
        settled: bool = False,
        aborted: bool = False,
        message_format: int = 0,
    ) -> int:
        """One transfer with resume = true (2.6.13); uses credit like any other."""
        raise NotImplementedError

    def settle(self, first_id: int, last_id: int, state: DeliveryState | None = None) -> None:
        """Settle deliveries; the disposition is written with data_to_send, adjacent equal ones as one range."""
        raise NotImplementedError

    def dispose(self, first_id: int, last_id: int, state: DeliveryState | None, settled: bool) -> None:
        """Tell the receiver a state; the range must hold deliveries of this link only."""
        raise NotImplementedError

    def drained(self) -> None:
        """After drain: use up the credit that is left and tell the receiver (2.6.7)."""
        raise NotImplementedError

    def set_available(self, available: int) -> None:
        """What goes into the `available` of our next flow; sends none."""
        raise NotImplementedError

    def flow(self, *, echo: bool = False) -> None:
        """Send our state as a flow."""
        raise NotImplementedError
