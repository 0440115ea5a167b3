"""Publishers of a queue, and what consumers may hold of what they send again (protocol 16.4)."""

from __future__ import annotations

from typing import cast

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.completion import Completion
from router.core.directory import SubscriptionEntry
from router.core.held import Batch
from router.core.ingress import Ingress
from router.core.publisher import Publisher
from router.core.publisher_directory import PublisherDirectory
from router.core.queue.records import QueueRecords
from router.core.records import Records
from router.core.streams import Streams
from router.core.turns import Turns
from router.core.windows import Windows
from router.names import NOT_IMPLEMENTED


class QueueIngress(Ingress):
    """Publishers of one queue at this router."""

    def __init__(
        self, address: BaseAddress, directory: PublisherDirectory, streams: Streams, turns: Turns, windows: Windows
    ) -> None:
        super().__init__(address, directory, streams, turns, windows)
        self.queue_records = cast(QueueRecords, self.records)

    def _claim(self, publisher: Publisher) -> None:
        super()._claim(publisher)
        if publisher.handshake.claims:
            self.queue_records.note_claim(publisher)

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
            self.queue_records.heard_all(publisher, sender)
        super().on_puback(sender, message)


class QueueStreams(Streams):
    """Which consumers may be assigned what the publishers of one queue send at this router."""

    def __init__(self, address: BaseAddress, records: Records, completion: Completion) -> None:
        super().__init__(address, records, completion)
        self.queue_records = cast(QueueRecords, records)

    def sync(self, publisher: Publisher, entry: SubscriptionEntry) -> None:
        """SYNC has no tokens. It asks the consumer what it holds (protocol 16.4)."""
        self.queue_records.asked(publisher, entry)
        super().sync(publisher, entry)

    def cover(self, publisher: Publisher, entry: SubscriptionEntry) -> None:
        super().cover(publisher, entry)
        self.core.touch(self.address)  # there may be something for it

    def _flush(self, publisher: Publisher) -> None:
        super()._flush(publisher)
        self.queue_records.doubts[publisher].flush()
