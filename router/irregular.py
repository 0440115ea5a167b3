"""One delivery at one subscription that cannot be kept as part of a range (PROTOCOL 9).

It came from the subscriber's map or in a SYNC, is in doubt because its ingress has gone (10.3), or is to be delivered
again after a release (6.4).  It is found by its tag; most subscriptions have none, most of the time.
"""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    QUEUED = 0  # to be sent as new
    SENT = 1  # at the client, not accepted
    AGAIN = 2  # released: to be sent again
    ACCEPTED = 3  # the subscription's final word, rejections too
    GONE = 4  # settled or purged


class Resume(IntEnum):
    """What the link still owes a delivery that the answer to the attach lists (7.6)."""

    NOTHING = 0
    PLAIN = 1  # a transfer with resume = true
    PLACEHOLDER = 2  # the same with the payload, once SYNC or DATA has brought it
    FILLED = 3  # the payload is here
    SETTLED = 4  # the same with settled = true: it has been settled meanwhile


class Irregular:
    """`delivery_id` is -1 where it has none on this link.  `position`: of the arrival log, when a DATA has named it;
    `ingress` and `ingress_position`: when a SYNC has; `token`: that SYNC's entry waits for its acceptance."""

    __slots__ = (
        "deliveries",
        "delivery_id",
        "from_map",
        "ingress",
        "ingress_position",
        "message_format",
        "order",
        "payload",
        "position",
        "publisher",
        "rejected",
        "resume",
        "state",
        "tag",
        "token",
    )

    def __init__(self, tag: bytes, state: State, payload: bytes | None = None, message_format: int = 0) -> None:
        self.tag = tag
        self.publisher = tag[:8]
        self.state = state
        self.payload = payload
        self.message_format = message_format
        self.delivery_id = -1
        self.order = -1  # the delivery-id of its first delivery on this link
        self.deliveries = 0  # how often it was delivered again
        self.rejected = False
        self.from_map = False
        self.resume = Resume.NOTHING
        self.position = -1
        self.ingress: str | None = None
        self.ingress_position = -1
        self.token = False
