"""Large deliveries, which pass through while they arrive (protocol 6.12): what an ingress and an egress keep of one.

An ingress keeps no payload, only how much it has passed on and how much each home has taken. An egress keeps the parts
that a subscription here has not been sent yet. The rules are in `router.core.records` and `router.core.deliveries`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from router.core.ports import Outcome

if TYPE_CHECKING:
    from router.core.irregular import Irregular
    from router.core.publisher import Publisher


STREAM_IDLE_S: Final = 30.0
"""How long a link waits in the middle of one for more of it. Then its publisher has to attach again."""


class Sending:
    """A large record at its ingress. `taken`: home -> bytes that its subscriptions have been sent."""

    __slots__ = ("homes", "publisher", "sent", "taken")

    def __init__(self, publisher: Publisher, sent: int) -> None:
        self.publisher = publisher
        self.homes = publisher.destinations  # that DATA went to
        self.taken = dict.fromkeys(self.homes, 0)
        self.sent = sent


class Body:
    """The payload of a large delivery at an egress: the parts from `start` on."""

    __slots__ = ("moved_at", "complete", "end", "head", "parts", "start", "told")

    def __init__(self, head: bytes) -> None:
        self.moved_at = 0.0  # when more of it last came, or went out here
        self.head = head  # the first part: all sections before the message's body
        self.parts: deque[bytes] = deque((head,))
        self.start = 0
        self.end = len(head)
        self.complete = False
        self.told = 0  # how much the ingress knows to be taken

    @property
    def held(self) -> int:
        return self.end - self.start

    def add(self, payload: bytes, last: bool) -> None:
        if payload:
            self.parts.append(payload)
            self.end += len(payload)
        self.complete = last

    def read(self, offset: int, most: int) -> bytes:
        """Returns the bytes at this offset, of one part, at most so many."""
        at = self.start
        for part in self.parts:
            if offset < at + len(part):
                low = offset - at
                return part if not low and len(part) <= most else part[low : low + most]
            at += len(part)
        return b""

    def free(self, offset: int) -> int:
        """Frees the parts before this offset. Returns how many bytes these were."""
        before = self.start
        while self.parts and self.start + len(self.parts[0]) <= offset:
            self.start += len(self.parts.popleft())
        return self.start - before


class Partial:
    """The large delivery that a subscription's link is in the middle of.

    `delivery`: it is known by tag. `early`: the client's outcome, and whether it settled, before it had all of it.
    """

    __slots__ = ("body", "delivery", "delivery_id", "early", "offset", "position")

    def __init__(self, body: Body, position: int, delivery: Irregular | None, delivery_id: int, offset: int) -> None:
        self.body = body
        self.position = position  # of the arrival log
        self.delivery = delivery
        self.delivery_id = delivery_id
        self.offset = offset
        self.early: tuple[Outcome, bool] | None = None
