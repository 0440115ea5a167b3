"""What consumers whose links are gone have accepted here, until it is settled (protocol 16.7).

A subscriber without a link, which is no client's, stands for all of them.
"""

from __future__ import annotations

from typing import Final, cast

from router.core.deliveries import Deliveries
from router.core.irregular import Irregular, State
from router.core.messages import SubscriptionName
from router.core.ports import SubscriberAttach, SubscriberPort, Term
from router.core.queue.credit import Credit
from router.core.subscriber import Subscriber

NOBODY: Final[SubscriptionName] = ("", "\0accepted")
"""Stands for the consumers that have gone: what these have accepted, their router remembers (protocol 16.7)."""
NOBODYS_TERM: Final[Term] = (0, "")


class Departed:
    """Those of one queue."""

    def __init__(self, deliveries: Deliveries, credit: Credit) -> None:
        self.deliveries = deliveries
        self.subscribers = deliveries.subscribers
        self.credit = credit

    def _nobody(self) -> Subscriber:
        deliveries = self.deliveries
        nobody = self.subscribers.get(NOBODY)
        if nobody is None:
            port = cast("SubscriberPort", None)  # it is never answered, so nothing is said to it
            attach = SubscriberAttach(*NOBODY, deliveries.address.name)
            nobody = self.subscribers[NOBODY] = Subscriber(deliveries, port, attach, NOBODYS_TERM, False)
            nobody.has_link = False
            deliveries.reception.attached(nobody)
            for special in deliveries.special.values():
                special[nobody] = None
        return nobody

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
                    for at, tag in enumerate(log.segments.tags(run.start + a, run.start + b), a):
                        self._remember(tag, run.start + at in consumer.sent.rejected, run.ingress, run.position + at)
        return list(untold)

    def _remember(self, tag: bytes, rejected: bool, ingress: str | None, position: int) -> None:
        nobody = self._nobody()
        if nobody.irregular.find(tag) is not None:
            return
        delivery = Irregular(tag, State.ACCEPTED)
        delivery.rejected = rejected
        nobody.irregular.enter(delivery)
        self.deliveries.special[delivery.publisher_id][nobody] = None
        if ingress is not None:
            delivery.ingress, delivery.ingress_position = ingress, position
            nobody.irregular.by_sync.setdefault(ingress, {})[position] = delivery

    def forget_settled(self) -> None:
        """Forgets the one that stands for them, if it remembers nothing."""
        nobody = self.subscribers.get(NOBODY)
        if nobody is not None and not nobody.irregular.by_tag:
            del self.subscribers[NOBODY]
            self.credit.forget(nobody)
            for special in self.deliveries.special.values():
                special.pop(nobody, None)
