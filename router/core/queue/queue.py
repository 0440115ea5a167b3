"""What a queue has of its own at one router (protocol 16)."""

from __future__ import annotations

from router.core.queue.browsing import Browsing
from router.core.queue.distribution import QueueDistribution
from router.core.queue.reception import QueueReception


class Queue:
    """One queue's."""

    def __init__(self, distribution: QueueDistribution, reception: QueueReception) -> None:
        self.distribution = distribution
        self.reception = reception
        self.browsing = Browsing(distribution)

    @property
    def is_unused(self) -> bool:
        self.reception.departed.forget_settled()
        return not self.browsing.browsers

    def flush(self) -> None:
        """Once in a turn, when what has come back has gone: credit, then what waits for it (protocol 16.3)."""
        self.reception.departed.forget_settled()
        self.reception.credit.tell()
        self.distribution.assigning.distribute()
