"""The events of transfers, dispositions and flows; `amqp10.events` has the others. In compiled code they are native
classes (a dataclass would look for the class of its link, which is not there yet)."""

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


class ResumedTransfer(Record):
    """A delivery sent with resume = true, or one that carries a state (AMQP 2.6.13), or one that was aborted; one at a
    time.

    payload: None if the sender has sent none. aborted: the delivery is void, and has used credit."""

    __slots__ = ("aborted", "delivery_id", "link", "message_format", "payload", "resume", "settled", "state", "tag")

    def __init__(
        self, link: ReceiverLink, delivery_id: int, tag: bytes, payload: bytes | None, state: DeliveryState | None,
        settled: bool, aborted: bool, resume: bool = True, message_format: int | None = None,
    ) -> None:  # fmt: skip
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.payload = payload
        self.state = state
        self.settled = settled
        self.aborted = aborted
        self.resume = resume
        self.message_format = message_format


class TransferPart(Record):
    """The next bytes of a delivery that is passed on while it arrives (`ReceiverLink.part_size`). Nothing else of its
    link comes before the last part.

    offset: how many bytes came before. more: another part follows. aborted: this is the last part, and the delivery is
    void, as if it had never been sent. settled and state: as of now, since any frame may bring them (AMQP 2.7.5)."""

    __slots__ = ("aborted", "delivery_id", "link", "message_format", "more",
                 "offset", "payload", "resume", "settled", "state", "tag")  # fmt: skip

    def __init__(
        self, link: ReceiverLink, delivery_id: int, tag: bytes, payload: bytes, offset: int, more: bool, aborted: bool,
        settled: bool, state: DeliveryState | None, resume: bool, message_format: int | None,
    ) -> None:  # fmt: skip
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.payload = payload
        self.offset = offset
        self.more = more
        self.aborted = aborted
        self.settled = settled
        self.state = state
        self.resume = resume
        self.message_format = message_format
