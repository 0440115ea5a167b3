"""The events of every message; `amqp10.events` has the others. In compiled code they are native classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp10.record import Record

if TYPE_CHECKING:
    from amqp10.link import Link
    from amqp10.performatives import DeliveryState, Flow
    from amqp10.receiver import ReceiverLink


class LinkFlow(Record):
    """The peer sent a flow for this link; the link's state already reflects it, and an echo asked for is on its way.

    On a SenderLink: `credit`, `drain` (call `drained()` after sending what there was). On a ReceiverLink: the peer's
    `delivery_count` (so a drain's answer)."""

    __slots__ = ("flow", "link")

    def __init__(self, link: Link, flow: Flow) -> None:
        self.link = link
        self.flow = flow


class Transfers(Record):
    """A run of complete deliveries, with ids first_id, first_id + 1, ...; they differ in tag and payload only.

    rcv_settle_mode: the mode set on these transfers themselves (AMQP 2.7.5), almost always None."""

    __slots__ = ("first_id", "link", "message_format", "payloads", "rcv_settle_mode", "settled", "tags")

    def __init__(
        self,
        link: ReceiverLink,
        first_id: int,
        tags: list[bytes],
        payloads: list[bytes],
        settled: bool,
        message_format: int | None,
        rcv_settle_mode: int | None = None,
    ) -> None:
        self.link = link
        self.first_id = first_id
        self.tags = tags
        self.payloads = payloads
        self.settled = settled
        self.message_format = message_format
        self.rcv_settle_mode = rcv_settle_mode


class Dispositions(Record):
    """The peer's dispositions for deliveries first_id .. last_id (inclusive) of this link: sent by this side on a
    SenderLink, received by it on a ReceiverLink. Deliveries that either side had settled before are left out. Without
    settlement only outcomes of a receiver are told, and of each delivery the first one: what follows has no effect. A
    receiver may speak of a delivery before it has all of it (`SenderLink.open_delivery`)."""

    __slots__ = ("first_id", "last_id", "link", "settled", "state")

    def __init__(self, link: Link, first_id: int, last_id: int, state: DeliveryState | None, settled: bool) -> None:
        self.link = link
        self.first_id = first_id
        self.last_id = last_id
        self.state = state
        self.settled = settled
