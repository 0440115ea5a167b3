"""Consumers of one queue attach here, and go (protocol 16.2, 16.6)."""

from __future__ import annotations

from typing import ClassVar, cast

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.deliveries import Deliveries
from router.core.egress import Egress
from router.core.intervals import count
from router.core.irregular import Entered, State
from router.core.kept_maps import Kept
from router.core.queue.consumer import NOBODY, Consumer, Nobody
from router.core.queue.deliveries import QueueDeliveries
from router.core.subscriber import Subscriber


def _is_nobody(subscriber: Subscriber) -> bool:
    return subscriber.name == NOBODY


class QueueEgress(Egress):
    """Consumers of one queue at this router."""

    SUBSCRIBER: ClassVar[type[Subscriber]] = Consumer

    def __init__(self, address: BaseAddress, deliveries: Deliveries, kept: Kept) -> None:
        super().__init__(address, deliveries, kept)
        self.queue_deliveries = cast(QueueDeliveries, deliveries)

    def _enter_map(self, subscriber: Subscriber, entered: Entered) -> None:
        """Of what an earlier subscription held undecided a fresh one holds nothing: it may be another's by now
        (protocol 16.2)."""
        if subscriber.handshake.kind is m.JoinKind.FRESH:
            final = State.ACCEPTED
            decided = {
                prefix: {tag: delivery for tag, delivery in known.items() if delivery.state is final}
                for prefix, known in entered.items()
            }
            entered = {prefix: known for prefix, known in decided.items() if known}
        super()._enter_map(subscriber, entered)

    def on_claim(self, sender: str, message: m.Pub) -> None:
        """A new ingress is told what consumers here hold, before the PUBACK; an old one in a new session, what they
        had accepted before they went (protocol 16.4, 16.7)."""
        super().on_claim(sender, message)
        for subscriber in self.subscribers.values():
            assert isinstance(subscriber, Consumer)
            holds = message.publisher in subscriber.irregular.by_tag and (
                message.expected is not None or _is_nobody(subscriber)
            )
            if holds or subscriber.unproven:
                self.queue_deliveries.send_hold(sender, subscriber, message.publisher, message.term)

    def ingress_lost(self, publisher_id: bytes) -> None:
        super().ingress_lost(publisher_id)
        self.queue_deliveries.homes_changed = True
        self.core.touch(self.address)

    def _synced_by_pub(self, subscriber: Subscriber, sender: str, message: m.Pub) -> bool:
        return _is_nobody(subscriber) or super()._synced_by_pub(subscriber, sender, message)

    def _may_infer(self, subscriber: Subscriber, sender: str) -> bool:
        return _is_nobody(subscriber) or super()._may_infer(subscriber, sender)

    def _send_join(self, subscriber: Subscriber, router: str, *, heard: bool = False) -> None:
        if not _is_nobody(subscriber):
            super()._send_join(subscriber, router, heard=heard)

    def check_answered(self, subscriber: Subscriber) -> None:
        if not _is_nobody(subscriber):
            super().check_answered(subscriber)

    def forget_nobody(self) -> None:
        """Forgets the one that stands for consumers that have gone, if it remembers nothing."""
        nobody = self.subscribers.get(NOBODY)
        if nobody is not None and not nobody.irregular.by_tag:
            del self.subscribers[NOBODY]
            self.deliveries.subscribers_changed()
            for special in self.deliveries.special.values():
                special.pop(nobody, None)

    def _announce_lost(self, announcement: m.Orphan | m.Leave, subscriber: Subscriber) -> None:
        """What it has accepted is remembered, and ingresses that may not have read it are told before they hear of the
        loss (protocol 16.7)."""
        nobody = self.subscribers.get(NOBODY)
        if nobody is None:
            nobody = self.subscribers[NOBODY] = Nobody(self.deliveries)
            self.deliveries.subscribers_changed()
            for special in self.deliveries.special.values():
                special[nobody] = None
        assert isinstance(nobody, Nobody)
        for publisher_id in nobody.take_over(subscriber):
            entry = self.address.known_publishers[publisher_id]
            if entry.home is not None:
                self.queue_deliveries.send_hold(entry.home, nobody, publisher_id, entry.term)
        self.forget_nobody()
        super()._announce_lost(announcement, subscriber)

    def _release_all_tokens(self, subscriber: Subscriber) -> None:
        """Its deliveries are its own: nobody else here owes an answer for them (protocol 16.6)."""
        log = self.deliveries.log
        ranges = [*subscriber.owes.take(), *subscriber.sent.unsettled.take()]
        for start, stop in ranges:
            for run, low, high in log.runs.pieces(start, stop):
                self.core.payload_bytes -= log.forget(run, run.start + low, run.start + high)
        assert not count(log.open.overlap(0, log.end)) or self.subscribers
        if not self.subscribers:
            for run in list(log.runs.runs):
                self.core.payload_bytes -= log.invalidate(run, run.start, run.stop)

    def router_down(self, router: str) -> None:
        self.queue_deliveries.forget_router(router)
        super().router_down(router)
