"""What a publisher has sent that is not taken yet, as its link is not ready, or as it waits for its turn
(protocol 5.1, 6.12)."""

from __future__ import annotations

from router.core.ports import Part


class Batch:
    """Complete deliveries with consecutive ids (protocol 6.1), or the first part of a large one (protocol 6.12)."""

    __slots__ = ("begins", "first_id", "message_format", "payloads", "settled", "tags")

    def __init__(
        self,
        first_id: int,
        tags: list[bytes],
        payloads: list[bytes],
        settled: bool,
        message_format: int,
        begins: bool = False,
    ) -> None:
        self.first_id = first_id
        self.tags = tags  # the publisher's own; `Records.take` puts the outgoing ones here
        self.payloads = payloads
        self.settled = settled
        self.message_format = message_format
        self.begins = begins

    def without(self, first: int, last: int) -> list[Batch]:
        """What is left of it without these deliveries; all of it if it is pre-settled."""
        low, high = max(first - self.first_id, 0), min(last + 1 - self.first_id, len(self.tags))
        if self.settled or low >= high:
            return [self]
        return [
            Batch(self.first_id + a, self.tags[a:b], self.payloads[a:b], False, self.message_format)
            for a, b in ((0, low), (high, len(self.tags)))
            if a < b
        ]


class Held:
    """In order: batches, then what comes from the first part of a large delivery on, which waits for its turn."""

    __slots__ = ("batches", "count", "parts", "size")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.count = 0
        self.size = 0
        self.parts: list[Part | Batch] = []

    def hold(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.count += len(batch.tags)
        self.size += sum(map(len, batch.payloads))

    def take(self) -> list[Batch]:
        batches = self.batches
        self._keep([])
        return batches

    def take_parts(self) -> list[Part | Batch]:
        parts, self.parts = self.parts, []
        return parts

    def forget(self, first: int, last: int) -> None:
        """Forgets transfers that the publisher has settled before they could be taken (protocol 5.1)."""
        if self.batches:
            self._keep([left for batch in self.batches for left in batch.without(first, last)])
        for held in self.take_parts():
            if isinstance(held, Batch):
                self.parts += held.without(first, last)
            elif not first <= held.delivery_id <= last:
                self.parts.append(held)

    def keep_presettled(self) -> bool:
        """Drops all but pre-settled transfers, which are forwarded when the barrier completes even if the link has gone
        (protocol 6.9). Says whether there are any."""
        behind = [each for each in self.take_parts() if isinstance(each, Batch)]
        self._keep([batch for batch in (*self.batches, *behind) if batch.settled])
        return bool(self.batches)

    def _keep(self, batches: list[Batch]) -> None:
        self.batches = batches
        self.count = sum(len(each.tags) for each in batches)
        self.size = sum(sum(map(len, each.payloads)) for each in batches)

    def check_invariants(self) -> None:
        assert self.count == sum(len(each.tags) for each in self.batches)
        assert self.size == sum(sum(map(len, each.payloads)) for each in self.batches)
