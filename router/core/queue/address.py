"""One queue at one router (protocol 16): a topic's parts, of which these differ."""

from __future__ import annotations

from typing import ClassVar, cast

from router.core import messages as m
from router.core.address import Address
from router.core.base import BaseCore
from router.core.keeping import Attached
from router.core.queue.browsing import Browsing
from router.core.queue.deliveries import QueueDeliveries
from router.core.queue.distribution import QueueDistribution
from router.core.queue.egress import QueueEgress
from router.core.queue.free import GROUPS_SIZE


class QueueAddress(Address):
    """A queue, as one router sees it. Its subscriptions are consumers."""

    DELIVERIES: ClassVar[type[QueueDeliveries]] = QueueDeliveries
    EGRESS: ClassVar[type[QueueEgress]] = QueueEgress

    def __init__(self, core: BaseCore, name: str, first_position: int, subscribers: Attached) -> None:
        super().__init__(core, name, first_position, subscribers)
        # the same parts: a compiled class cannot narrow the type of an inherited attribute
        self.queue_records = cast(QueueDistribution, self.records.distribution)
        self.queue_deliveries = cast(QueueDeliveries, self.deliveries)
        self.queue_egress = cast(QueueEgress, self.egress)
        self.browsing = Browsing(self.queue_records)

    def make_distribution(self) -> QueueDistribution:
        assert self.doubts is not None
        return QueueDistribution(self.records, self.doubts, self.ingress)

    def all_handlers(self) -> m.Handlers:
        return {**super().all_handlers(), **self.browsing.handlers()}

    def data_on_the_wire(self, data: bytes) -> bytes:
        return bytes(GROUPS_SIZE) + data if data else b""

    def data_of_its_owner(self, data: bytes) -> bytes:
        return data[GROUPS_SIZE:]

    @property
    def is_unused(self) -> bool:
        self.queue_egress.forget_nobody()
        return super().is_unused and not self.browsing.browsers

    def router_down(self, router: str) -> None:
        super().router_down(router)
        self.browsing.router_down(router)

    def tick(self) -> None:
        super().tick()
        self.queue_records.expiring.tick()

    def deadlines(self) -> list[float]:
        return [*super().deadlines(), *self.queue_records.expiring.deadlines()]

    def flush(self) -> None:
        """Once in a turn: what has come back goes first, then credit, then what waits for it (protocol 16.3)."""
        super().flush()
        self.queue_egress.forget_nobody()
        self.queue_deliveries.tell_credit()
        self.queue_records.assigning.distribute()
