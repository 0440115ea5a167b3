"""Publishers of a queue, and what consumers may hold of what they send again (protocol 16.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core import messages as m
from router.core.directory import SubscriptionEntry
from router.core.ingress import Ingress
from router.core.publisher import Batch, Phase, Publisher
from router.core.streams import Streams
from router.names import NOT_IMPLEMENTED

if TYPE_CHECKING:
    from router.core.queue.address import QueueAddress


class QueueIngress(Ingress):
    """Publishers of one queue at this router."""

    def __init__(self, address: QueueAddress) -> None:
        super().__init__(address)
        self.queue = address

    def _claim(self, publisher: Publisher) -> None:
        super()._claim(publisher)
        if publisher.phase is Phase.CLAIMING:
            self.queue.queue_records.note_claim(publisher)

    def _take(self, publisher: Publisher, batch: Batch) -> None:
        """What is settled already is nobody's to give back, so a queue takes none of it (protocol 16.1)."""
        if batch.settled:
            port = publisher.port
            self.detach(publisher, False)
            port.detach(NOT_IMPLEMENTED, "a queue takes no settled transfers: send them unsettled", {}, True)
            return
        super()._take(publisher, batch)

    def on_puback(self, sender: str, message: m.PubAck) -> None:
        """A router has said before this what its consumers hold (protocol 16.4)."""
        publisher = self.publishers.get(message.publisher)
        if publisher and publisher.term == message.term and message.stale is None:
            self.queue.queue_records.heard_all(publisher, sender)
        super().on_puback(sender, message)


class QueueStreams(Streams):
    """Which consumers may be assigned what the publishers of one queue send at this router."""

    def __init__(self, address: QueueAddress) -> None:
        super().__init__(address)
        self.queue = address

    def sync(self, publisher: Publisher, entry: SubscriptionEntry) -> None:
        """SYNC has no tokens. It asks the consumer what it holds (protocol 16.4)."""
        self.queue.queue_records.asked(publisher, entry)
        super().sync(publisher, entry)

    def cover(self, publisher: Publisher, entry: SubscriptionEntry) -> None:
        super().cover(publisher, entry)
        self.core.touch(self.address)  # there may be something for it

    def _flush(self, publisher: Publisher) -> None:
        super()._flush(publisher)
        self.queue.queue_records.doubts[publisher].flush()
