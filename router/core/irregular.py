"""One delivery at one subscription that cannot be kept as part of a range (protocol 9).

It came from the subscriber's map or in a SYNC, is in doubt because its ingress has gone (protocol 10.3), or is to be
delivered again after a release (protocol 6.4). It is found by its tag; most subscriptions have none, most of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from router.core.directory import PREFIX
from router.core.intervals import IntervalSet
from router.core.ports import MapState

if TYPE_CHECKING:
    from router.core.arrivals import Arrivals
    from router.core.subscriber import Subscriber


class State(IntEnum):
    QUEUED = 0  # to be sent as new
    SENT = 1  # at the client, not accepted
    RELEASED = 2  # to be sent again (protocol 6.4)
    ACCEPTED = 3  # the subscription's final word, rejections too
    REMOVED = 4  # settled, or taken out of its queue
    DECLINED = 5  # given back by a consumer of a queue that does not get it again (protocol 16.5)


class Resume(IntEnum):
    """What the link still owes a delivery that the answer to the attach lists (protocol 7.6)."""

    NOTHING = 0
    PLAIN = 1  # a transfer with resume = true
    PLACEHOLDER = 2  # the same with the payload, once SYNC or DATA has brought it
    FILLED = 3  # the payload is here
    SETTLED = 4  # the same with settled = true: it has been settled meanwhile


Entered = dict[bytes, dict[bytes, "Irregular"]]
"""What a client's map says, by publisher and incarnation: PREFIX bytes of a tag -> tag -> the delivery."""


class Irregular:
    """One delivery at one subscription.

    `delivery_id` is -1 where it has none on this link. `position` is that of the arrival log, if a DATA has named it;
    `ingress` and `ingress_position` are set if a SYNC has; `token`: that SYNC's entry waits for its acceptance.
    """

    __slots__ = (
        "delivery_id",
        "failures",
        "from_map",
        "ingress",
        "ingress_position",
        "message_format",
        "order",
        "payload",
        "position",
        "publisher_id",
        "redeliveries",
        "rejected",
        "resume",
        "state",
        "tag",
        "token",
    )

    def __init__(self, tag: bytes, state: State, payload: bytes | None = None, message_format: int = 0) -> None:
        self.tag = tag
        self.publisher_id = tag[:8]
        self.state = state
        self.payload = payload
        self.message_format = message_format
        self.delivery_id = -1
        self.order = -1  # the delivery-id of its first delivery on this link
        self.redeliveries = 0  # how often it was delivered again
        self.failures = 0  # of these: after a failed delivery
        self.rejected = False
        self.from_map = False
        self.resume = Resume.NOTHING
        self.position = -1
        self.ingress: str | None = None
        self.ingress_position = -1
        self.token = False

    def within(self, incarnation: int) -> bool:
        """Says whether an ingress of that incarnation may settle the delivery by leaving it out.

        It may not if a later incarnation of the publisher has sent the delivery. Then two processes share one identity,
        and the router of the later one has died (protocol 5.8).
        """
        return int.from_bytes(self.tag[8:16], "big") <= incarnation


def take_out(log: Arrivals, subscriber: Subscriber, start: int, stop: int, first_id: int) -> list[Irregular]:
    """Turns sent log positions into irregular deliveries; what they owe stays. Of a large one there is no payload."""
    tags = log.segments.tags(start, stop)
    payloads = log.segments.payloads(start, stop)
    subscriber.unsettled.remove(start, stop)
    found: list[Irregular] = []
    for run, low, high in log.runs.pieces(start, stop):
        for position in range(run.start + low, run.start + high):
            i = position - start
            payload = payloads[i] if position not in log.bodies else None
            delivery = Irregular(tags[i], State.SENT, payload, run.message_format)
            delivery.order = first_id + i
            subscriber.enter(delivery)
            found.append(delivery)
    return found


def enter(presented: Iterable[tuple[bytes, MapState]], *, brought_epoch: bool, into: Entered) -> None:
    """Enters deliveries of a client's map, as accepted or as sent (protocol 7.2). There may be a million, in runs of
    one publisher, so this is done before the core is called, in parts."""
    released, rejected = MapState.RELEASED, MapState.REJECTED
    # protocol 7.6: its payload is missing, or may be incomplete
    missing = [MapState.RECEIVED] if brought_epoch else [MapState.RECEIVED, MapState.UNDECIDED]
    prefix = b""
    entered: dict[bytes, Irregular] = {}
    for tag, state in presented:
        # not a tag of ours; a released delivery is sent again as new
        if len(tag) < PREFIX or state is released:
            continue
        if tag[:PREFIX] != prefix:
            prefix = tag[:PREFIX]
            entered = into.setdefault(prefix, {})
        final = state is MapState.ACCEPTED or state is rejected
        delivery = entered[tag] = Irregular(tag, State.ACCEPTED if final else State.SENT)
        delivery.rejected = state is rejected
        delivery.from_map = True
        delivery.resume = Resume.PLACEHOLDER if state in missing else Resume.PLAIN


def put_in_doubt(log: Arrivals, subscriber: Subscriber, start: int, stop: int) -> None:
    """The ingress of these log positions is lost: what was sent of them stays in doubt, without tokens and positions
    (protocol 10.3)."""
    for a, b in subscriber.unsettled.overlap(start, stop):
        for first, end in subscriber.delivery_ids_of([(a, b)]):
            low = a
            a += end - first
            _put_sent_in_doubt(log, subscriber, low, a, first)
    subscriber.owes.remove(start, stop)
    subscriber.settled_on_wire.remove(start, stop)
    subscriber.rejected.remove(start, stop)
    subscriber.trim()


def _put_sent_in_doubt(log: Arrivals, subscriber: Subscriber, start: int, stop: int, first_id: int) -> None:
    owes = IntervalSet(subscriber.owes.overlap(start, stop))
    gone = IntervalSet(subscriber.settled_on_wire.overlap(start, stop))
    refused = IntervalSet(subscriber.rejected.overlap(start, stop))
    for i, delivery in enumerate(take_out(log, subscriber, start, stop, first_id)):
        position = start + i
        if position not in owes:
            delivery.state = State.ACCEPTED
            delivery.payload = None
            delivery.rejected = position in refused
        if position not in gone:
            subscriber.set_delivery_id(delivery, first_id + i)
