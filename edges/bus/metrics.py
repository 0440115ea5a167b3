"""What a bus counts, as Prometheus metrics. The contract's names, with units and suffixes as Prometheus has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import Metric

from edges.bus.core import Bus
from onceway.operate.metrics import authentication_failures

PREFIX: Final = "onceway_bus"


class BusMetrics:
    """Counters of one edge; gauges are set for each scrape."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        by_subscriber, by_status = ["subscriber"], ["subscriber", "status"]
        self.published = self._counter("events_published", "Events pushed here", ["topic"])
        self.added = self._counter("events_added", "Events that came into a subscriber's queue", by_subscriber)
        self.removed = self._counter("events_removed", "Events that left a subscriber's queue, taken", by_subscriber)
        self.autodropped = self._counter("events_autodropped", "Events dropped because storage was full", by_subscriber)
        self.delivery_events = self._counter("delivery_events", "Events in deliveries", by_status)
        self.delivery_batches = self._counter("delivery_batches", "Deliveries", by_status)
        self.delivery_time = self._counter("delivery_seconds", "Sum of the times that deliveries took", by_status)
        self.delivery_time2 = self._counter("delivery_square_seconds", "Sum of their squares", by_status)
        self.latency_count = self._counter("latency_batches", "Batches that were attempted first", by_subscriber)
        self.latency_first = self._counter(
            "latency_batches_first_attempt_seconds", "Sum of times from a batch to its first attempt", by_subscriber
        )
        self.latency_last = self._counter(
            "latency_batches_last_attempt_seconds", "Sum of times from a batch to its successful attempt", by_subscriber
        )
        self.process = self._counter("process", "Starts and clean stops of this edge", ["status", "type"])
        self.queue_batches = self._gauge("queue_batches", "Batches in a subscriber's queue", by_subscriber)
        self.queue_events = self._gauge("queue_events", "Events in a subscriber's queue", by_subscriber)
        self.jobs = self._gauge("jobs", "Batches that wait to be sent, and that are under way", ["queue", "status"])
        self.used = self._gauge("storage_used_bytes", "What the store occupies", [])
        self.max = self._gauge("storage_max_bytes", "What it may occupy; 0: the disk", [])
        self.low_mark = self._gauge("storage_low_mark_bytes", "Autodrop begins when less than this is free", [])
        self.high_mark = self._gauge("storage_high_mark_bytes", "Autodrop ends when this is free", [])
        self.failures: Mapping[str, int] = {}  # of who has shown a wrong root key
        self._registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """For the registry: what is counted elsewhere."""
        yield authentication_failures(PREFIX, self.failures)

    def _counter(self, name: str, text: str, labels: list[str]) -> Callable[..., Counter]:
        """The counter of given labels: to look for it costs more than to count."""
        return lru_cache(4096)(Counter(f"{PREFIX}_{name}", text, labels, registry=self._registry).labels)

    def _gauge(self, name: str, text: str, labels: list[str]) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self._registry)

    def page(self, bus: Bus, now: float, used: int, limit: int, min_free: int) -> bytes:
        """The counters, and the gauges as they are now; storage in octets."""
        for gauge in (self.queue_batches, self.queue_events):
            gauge.clear()
        for subscriber in filter(lambda each: bus.serves(each.identity), bus.subscribers.values()):
            for counter in (self.added, self.removed, self.autodropped):
                counter(subscriber.name)  # a rate of 0 is there from the first scrape on
            queued = bus.pending(subscriber)
            self.queue_events.labels(subscriber.name).set(queued)
            self.queue_batches.labels(subscriber.name).set(-(-queued // subscriber.max_events))
        due, scheduled = bus.due(now), sum(each.due_at is not None for each in bus.subscribers.values())
        self.jobs.labels("main", "running").set(bus.under_way)
        self.jobs.labels("main", "instant").set(due)
        self.jobs.labels("main", "scheduled").set(scheduled - due)
        self.used.set(used)
        self.max.set(limit)
        self.low_mark.set(min_free)
        self.high_mark.set(2 * min_free)
        return generate_latest(self._registry)
