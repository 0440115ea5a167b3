"""One consumer of a queue, attached here: a subscriber that is told how much of it each ingress may use
(protocol 16.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from router.core.intervals import IntervalSet, count
from router.core.irregular import Irregular, State
from router.core.messages import SubscriptionName
from router.core.ports import SubscriberAttach, SubscriberPort, Term
from router.core.subscriber import BaseDeliveries, Subscriber
from router.core.subscriber_handshake import NOTHING_NEW

if TYPE_CHECKING:
    from router.core.queue.deliveries import QueueDeliveries


class Grant:
    """Deliveries that one ingress may assign to one consumer: `limit` in this round, of which `used` are assigned.
    stopped: something had to go back, and the round is over."""

    __slots__ = ("limit", "round", "stopped", "used")

    def __init__(self) -> None:
        self.round = 0
        self.limit = 0
        self.used = 0
        self.stopped = False

    def begin(self, number: int) -> None:
        self.round = number
        self.limit = self.used = 0
        self.stopped = False

    @property
    def left(self) -> int:
        return self.limit - self.used


class Consumer(Subscriber):
    """A consumer's attachment at this router. Of the arrival log it owes only what it was assigned."""

    __slots__ = ("grants", "proven")

    def __init__(
        self, deliveries: BaseDeliveries, port: SubscriberPort, attach: SubscriberAttach, term: Term, declared: bool
    ) -> None:
        super().__init__(deliveries, port, attach, term, declared)
        self.owes = IntervalSet()
        self.grants: dict[str, Grant] = {}  # ingress -> what it was told
        self.proven = False

    @property
    def unproven(self) -> bool:
        """Says whether its attach may be an old one, read late, whose map is not true any more (protocol 16.8)."""
        return self.handshake.brought_map and not self.handshake.brought_epoch and not self.proven

    def heard(self) -> None:
        super().heard()
        if self.unproven:
            self.proven = True
            cast("QueueDeliveries", self.deliveries).proved(self)

    def pump(self, cache: dict[object, object] | None = None) -> None:
        super().pump(cache)
        cast("QueueDeliveries", self.deliveries).credit_changed(self)

    def room(self) -> int:
        """Returns how many deliveries it takes beyond those that wait here already."""
        if self.handshake.state in NOTHING_NEW or self.unproven:
            return 0
        waiting = count(self.owes.overlap(self.cursor, self.deliveries.log.end))
        waiting += len(self.irregular.to_resume) + len(self.irregular.released) + len(self.irregular.sync_queue)
        return max(0, self.port.link_credit() - waiting)


NOBODY: Final[SubscriptionName] = ("", "\0accepted")
"""Stands for the consumers that have gone: what these have accepted, their router remembers (protocol 16.7)."""
NOBODYS_TERM: Final[Term] = (0, "")


class Nobody(Consumer):
    """What consumers have accepted here whose links are gone, until it is settled."""

    __slots__ = ()

    def __init__(self, deliveries: BaseDeliveries) -> None:
        port: SubscriberPort = None  # type: ignore[assignment]  # it is never answered, so nothing is said to it
        super().__init__(deliveries, port, SubscriberAttach(*NOBODY, deliveries.address.name), NOBODYS_TERM, False)

    def take_over(self, consumer: Subscriber) -> list[bytes]:
        """The consumer's link is gone. Returns the publishers of which it had accepted something that their ingress may
        not have been told: what SYNC has bound may not have been assigned yet, and nothing has been said of it."""
        untold: dict[bytes, None] = {}
        for known in consumer.irregular.by_tag.values():
            for delivery in known.values():
                if delivery.state is State.ACCEPTED:
                    untold[delivery.publisher_id] = None
                    self._remember(delivery.tag, delivery.rejected, delivery.ingress, delivery.ingress_position)
        log = self.deliveries.log
        for start, stop in consumer.sent.unsettled:
            for low, high in consumer.owes.missing([(start, stop)]):
                for run, a, b in log.runs.pieces(low, high):
                    tags = log.segments.tags(run.start + a, run.start + b)
                    for i, tag in enumerate(tags, a):
                        rejected = run.start + i in consumer.sent.rejected
                        self._remember(tag, rejected, run.ingress, run.position + i)
        return list(untold)

    def _remember(self, tag: bytes, rejected: bool, ingress: str | None, position: int) -> None:
        if self.irregular.find(tag) is not None:
            return
        delivery = Irregular(tag, State.ACCEPTED)
        delivery.rejected = rejected
        self.irregular.enter(delivery)
        self.deliveries.special[delivery.publisher_id][self] = None
        if ingress is not None:
            delivery.ingress, delivery.ingress_position = ingress, position
            self.irregular.by_sync.setdefault(ingress, {})[position] = delivery
