"""Pre-settled transfers that wait for one subscription's credit: at most once, in a bounded queue (protocol 6.9)."""

from __future__ import annotations

from collections import deque

from router.core.base import BaseCore
from router.core.counters import Counters


class Batch:
    """Messages that go out behind the arrival log's position `at`, and not before it has been sent."""

    __slots__ = ("at", "message_format", "payloads", "tags")

    def __init__(self, at: int, tags: list[bytes], payloads: list[bytes], message_format: int) -> None:
        self.at = at
        self.tags = tags
        self.payloads = payloads
        self.message_format = message_format


class PreSettledQueue:
    """One subscription's; its bytes count among the router's `presettled_bytes`."""

    __slots__ = ("batches", "core", "count", "counters", "dropped", "size")

    def __init__(self, core: BaseCore, counters: Counters) -> None:
        self.core = core
        self.counters = counters
        self.batches: deque[Batch] | tuple[()] = ()  # an empty deque takes 760 bytes
        self.count = 0
        self.size = 0  # bytes of payload
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self.batches)

    def append(self, batch: Batch) -> None:
        self.batches = self.batches or deque()
        self.batches.append(batch)
        self._add(len(batch.tags), sum(map(len, batch.payloads)))

    def keep_within_bounds(self, credit: int) -> None:
        """Drops the oldest first, and counts them (protocol 6.9). credit: of the subscription's link, which takes more
        as soon as what is under way has been written."""
        core, most = self.core, self.core.config.presettled_queue
        share = core.memory.free_share if credit > 0 else core.memory.fair_share
        while self.count > most:
            self._drop(self.count - most)
        while self.count > 1 and self.size > share(core.memory.presettled_bytes):
            self._drop(max(self.count // 8, 1))

    def _drop(self, most: int) -> None:
        dropped = len(self.take(most)[0])
        self.dropped += dropped
        self.counters.subscriptions.presettled_dropped += dropped

    def take(self, most: int) -> tuple[list[bytes], list[bytes]]:
        """Returns tags and payloads of at most so many messages of the oldest batch, which leave the queue."""
        assert most > 0
        assert self.batches
        batch = self.batches[0]
        n = min(most, len(batch.tags))
        tags, payloads = batch.tags[:n], batch.payloads[:n]
        if n == len(batch.tags):
            self.batches.popleft()
        else:
            batch.tags, batch.payloads = batch.tags[n:], batch.payloads[n:]
        self._add(-n, -sum(map(len, payloads)))
        return tags, payloads

    def clear(self) -> None:
        self._add(-self.count, -self.size)
        self.batches = ()

    def _add(self, count: int, size: int) -> None:
        self.count += count
        self.size += size
        self.core.memory.presettled_bytes += size

    def check_invariants(self) -> None:
        assert self.count == sum(len(batch.tags) for batch in self.batches)
        size = sum(sum(map(len, batch.payloads)) for batch in self.batches)
        assert self.size == size, f"{self.size} bytes counted, {size} wait"
