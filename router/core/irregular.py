"""One delivery at one subscription that cannot be kept as part of a range (protocol 9).

It came from the subscriber's map or in a SYNC, is in doubt because its ingress has gone (protocol 10.3), or is to be
delivered again after a release (protocol 6.4). It is found by its tag; most subscriptions have none, most of the time.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from enum import IntEnum

from router.core.intervals import IntervalSet


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
        "delivery_id", "failures", "from_map", "ingress", "ingress_position", "message_format", "order", "payload",
        "position", "publisher_id", "redeliveries", "rejected", "resume", "state", "tag", "token",
    )  # fmt: skip

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


class Irregulars:
    """Those of one subscription."""

    __slots__ = (
        "bound", "by_delivery_id", "by_sync", "by_tag", "filled", "released", "skip", "sync_queue", "to_resume",
    )  # fmt: skip

    def __init__(self) -> None:
        self.by_tag: dict[bytes, dict[bytes, Irregular]] = {}  # publisher -> tag ->
        self.by_delivery_id: dict[int, Irregular] = {}
        self.bound: dict[int, Irregular] = {}  # by log position
        self.by_sync: dict[str, dict[int, Irregular]] = {}  # ingress -> its position ->
        self.to_resume: deque[Irregular] | tuple[()] = ()  # goes out first; an empty deque takes 760 bytes
        self.released: list[Irregular] = []  # then these, in order
        self.sync_queue: deque[Irregular] | tuple[()] = ()  # then what SYNC brought, then the log
        self.filled: dict[int, Irregular] = {}  # placeholders, by DATA: they go out in their place in the log
        self.skip = IntervalSet()  # log positions from the cursor on that are not to be sent as new

    def find(self, tag: bytes) -> Irregular | None:
        known = self.by_tag.get(tag[:8])
        return known.get(tag) if known else None

    def of(self, publisher_id: bytes) -> list[Irregular]:
        return list(self.by_tag.get(publisher_id, {}).values())

    def enter(self, delivery: Irregular) -> None:
        self.by_tag.setdefault(delivery.publisher_id, {})[delivery.tag] = delivery

    def set_delivery_id(self, delivery: Irregular, delivery_id: int) -> None:
        """Notes the delivery-id that it has on this link now."""
        delivery.delivery_id = delivery_id
        if delivery.order < 0:
            delivery.order = delivery_id
        self.by_delivery_id[delivery_id] = delivery

    def clear_delivery_id(self, delivery: Irregular) -> None:
        if delivery.delivery_id >= 0:
            del self.by_delivery_id[delivery.delivery_id]
            delivery.delivery_id = -1

    def resume_later(self, *deliveries: Irregular) -> None:
        self.to_resume = self.to_resume or deque()
        self.to_resume.extend(deliveries)

    def send_later(self, delivery: Irregular) -> None:
        """A SYNC has brought it."""
        self.sync_queue = self.sync_queue or deque()
        self.sync_queue.append(delivery)

    def release(self, delivery: Irregular, failed: bool) -> None:
        """Queues a released delivery to be sent again, in order, ahead of everything not yet sent (protocol 6.4)."""
        delivery.state = State.RELEASED
        delivery.failures += failed
        delivery.redeliveries += 1
        if delivery.payload is not None:  # else when SYNC or DATA brings it
            self.queue_released(delivery)

    def queue_released(self, delivery: Irregular) -> None:
        insort(self.released, delivery, key=lambda each: each.order)
