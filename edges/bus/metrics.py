"""What a bus counts, for Prometheus: the contract's metrics, with units and suffixes as Prometheus has them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from edges.bus.core import Bus, Subscriber
from onceway.base.metrics import Metric, Row, number
from onceway.operate.metrics import FAILURES, authentication_failures

STATUSES: Final = ("start", "stop")
JOBS: Final = {"running": "under way", "instant": "due", "scheduled": "to be sent later"}


class BusMetrics:
    """Counters of one edge, by what their labels are.

    Attributes:
        published: Events pushed here, by topic.
        added, removed, autodropped: Events, by subscriber.
        deliveries: By subscriber and status.
        batches: First attempts, by subscriber.
        process: Of this edge, by status.
        failures: Of who has shown a wrong root key.
    """

    def __init__(self) -> None:
        self.published: Counter[str] = Counter()
        self.added: Counter[str] = Counter()
        self.removed: Counter[str] = Counter()
        self.autodropped: Counter[str] = Counter()
        self.deliveries: defaultdict[tuple[str, str], Deliveries] = defaultdict(Deliveries)
        self.batches: defaultdict[str, Batches] = defaultdict(Batches)
        self.process: Counter[str] = Counter()
        self.failures: Mapping[str, int] = {}

    def delivered(self, subscriber: str, status: str, events: int, took_s: float) -> None:
        deliveries = self.deliveries[subscriber, status]
        deliveries.number += 1
        deliveries.events += events
        deliveries.seconds += took_s
        deliveries.square_seconds += took_s * took_s


@dataclass(slots=True)
class Deliveries:
    """To one subscriber, that ended with one status."""

    number: int = 0
    events: int = 0
    seconds: float = 0.0
    square_seconds: float = 0.0


@dataclass(slots=True)
class Batches:
    """Of one subscriber. The times are sums, from when a batch was made."""

    number: int = 0
    first_attempt_s: float = 0.0
    last_attempt_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Told:
    """An edge when it is asked; storage in bytes.

    Attributes:
        now: As the bus has it.
        limit: What the store may occupy; 0: the disk.
        low_mark: Autodrop begins when less than this is free.
        free: On the disk, or of the limit; None: the store is elsewhere.
    """

    metrics: BusMetrics
    bus: Bus
    now: float
    used: int
    limit: int
    low_mark: int
    free: int | None
    subscribers: tuple[Subscriber, ...] = field(init=False)

    def __post_init__(self) -> None:
        served = [each for each in self.bus.subscribers.values() if self.bus.serves(each.identity)]
        object.__setattr__(self, "subscribers", tuple(served))


Rows = Callable[[Told], Iterable[Row]]


def _of_queues(read: Callable[[BusMetrics], Counter[str]]) -> Rows:
    """By subscriber; a rate of 0 is there from the first scrape on."""

    def rows(told: Told) -> Iterator[Row]:
        counted = read(told.metrics)
        for name in dict.fromkeys((*(each.name for each in told.subscribers), *counted)):
            yield (name,), (counted[name],)

    return rows


def _of_deliveries(read: Callable[[Deliveries], float]) -> Rows:
    return lambda told: ((key, (read(each),)) for key, each in told.metrics.deliveries.items())


def _of_batches(read: Callable[[Batches], float]) -> Rows:
    return lambda told: (((name,), (read(each),)) for name, each in told.metrics.batches.items())


def _queued(read: Callable[[int, Subscriber], float]) -> Rows:
    return lambda told: (((each.name,), (read(told.bus.pending(each), each),)) for each in told.subscribers)


def _jobs(told: Told) -> list[Row]:
    due = told.bus.due(told.now)
    scheduled = sum(each.due_at is not None for each in told.bus.subscribers.values())
    return [(("main",), (told.bus.under_way, due, scheduled - due))]


TABLE: Final[tuple[Metric[Told], ...]] = (
    Metric("onceway_bus_events_published_total", "counter", "Events pushed here",
           lambda told: (((topic,), (count,)) for topic, count in told.metrics.published.items()), ("topic",),
           more="Contract: `events.published`"),
    Metric("onceway_bus_events_added_total", "counter", "Events that came into a subscriber's queue",
           _of_queues(lambda metrics: metrics.added), ("subscriber",), more="Contract: `events.added`"),
    Metric("onceway_bus_events_removed_total", "counter", "Events that left a subscriber's queue, taken",
           _of_queues(lambda metrics: metrics.removed), ("subscriber",), more="Contract: `events.removed`"),
    Metric("onceway_bus_events_autodropped_total", "counter", "Events dropped because storage was full",
           _of_queues(lambda metrics: metrics.autodropped), ("subscriber",), more="Contract: `events.autodropped`"),
    Metric("onceway_bus_delivery_events_total", "counter", "Events in deliveries",
           _of_deliveries(lambda each: each.events), ("subscriber", "status"), more="Contract: `delivery.events`"),
    Metric("onceway_bus_delivery_batches_total", "counter", "Deliveries", _of_deliveries(lambda each: each.number),
           ("subscriber", "status"), more="Contract: `delivery.batches`"),
    Metric("onceway_bus_delivery_seconds_total", "counter", "Sum of the times that deliveries took",
           _of_deliveries(lambda each: each.seconds), ("subscriber", "status"), more="Contract: `delivery.time`"),
    Metric("onceway_bus_delivery_square_seconds_total", "counter", "Sum of their squares",
           _of_deliveries(lambda each: each.square_seconds), ("subscriber", "status"),
           more="Contract: `delivery.time` squared"),
    Metric("onceway_bus_latency_batches_total", "counter", "Batches that were attempted first",
           _of_batches(lambda each: each.number), ("subscriber",), more="Contract: `latency.batches.count`"),
    Metric("onceway_bus_latency_batches_first_attempt_seconds_total", "counter",
           "Sum of times from a batch to its first attempt", _of_batches(lambda each: each.first_attempt_s),
           ("subscriber",), more="Contract: `latency.batches.first_attempt`"),
    Metric("onceway_bus_latency_batches_last_attempt_seconds_total", "counter",
           "Sum of times from a batch to its successful attempt", _of_batches(lambda each: each.last_attempt_s),
           ("subscriber",), more="Contract: `latency.batches.last_attempt`"),
    Metric("onceway_bus_process_total", "counter", "Starts and clean stops of this edge",
           lambda told: [(("edge",), [told.metrics.process[status] for status in STATUSES])], ("type",), "status",
           dict.fromkeys(STATUSES, ""), more="Kept from process to process. Contract: `process`"),
    Metric("onceway_bus_queue_batches", "gauge", "Batches in a subscriber's queue",
           _queued(lambda queued, subscriber: -(-queued // subscriber.max_events)), ("subscriber",),
           more="Contract: queue batches"),
    Metric("onceway_bus_queue_events", "gauge", "Events in a subscriber's queue", _queued(lambda queued, _: queued),
           ("subscriber",), more="Contract: queue events"),
    Metric("onceway_bus_jobs", "gauge", "Batches to send", _jobs, ("queue",), "status", JOBS, more="Contract: `jobs`"),
    Metric("onceway_bus_storage_used_bytes", "gauge", "What the store occupies", lambda told: number(told.used),
           more="Contract: storage"),
    Metric("onceway_bus_storage_max_bytes", "gauge", "What it may occupy; 0: the disk", lambda told: number(told.limit),
           more="Contract: storage"),
    Metric("onceway_bus_storage_low_mark_bytes", "gauge", "Autodrop begins when less than this is free",
           lambda told: number(told.low_mark), more="Contract: storage"),
    Metric("onceway_bus_storage_high_mark_bytes", "gauge", "Autodrop ends when this is free",
           lambda told: number(2 * told.low_mark), more="Contract: storage"),
    Metric("onceway_bus_storage_free_bytes", "gauge",
           "What is free on the disk of this edge's store, or of what it may occupy, whichever is less",
           lambda told: [] if told.free is None else number(told.free),
           more="Not of a store in PostgreSQL, or at another edge"),
    authentication_failures(
        "onceway_bus", lambda told: [((), [told.metrics.failures.get(what, 0) for what in FAILURES])]),
)  # fmt: skip
