"""What a store says of its pipes, for Prometheus: read when somebody asks, so a pipe's work counts nothing for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from edges.pipe.log import PipeLog
from edges.pipe.messages import number_of
from onceway.access.readers import Pages
from onceway.operate.metrics import authentication_failures

if TYPE_CHECKING:
    from edges.pipe.serve import StoredPipe
    from onceway.serve.guard import Guard

PREFIX: Final = "onceway_pipe"


def _slowest(log: PipeLog) -> int:
    """How far the reader that is furthest back is from the end."""
    return log.visible - min([*log.cursors.values(), log.visible])


GAUGES: Final[tuple[tuple[str, str, Callable[[PipeLog], float]], ...]] = (
    ("start_position", "Where the content begins", lambda log: log.state.start),
    ("next_position", "Behind the last record on this store's disk", lambda log: log.next),
    ("visible_position", "Behind the last record that readers may read", lambda log: log.visible),
    (
        "waiting_records",
        "Records on this store's disk that readers may not read yet: another store may lack them",
        lambda log: log.next - log.visible,
    ),
    ("epoch", "Number of the latest promotion that this store knows", lambda log: number_of(log.state.epoch)),
    ("incomplete", "1 while this store has not all of the pipe: it is new, or reads it again", lambda log: log.lacks),
    ("readers", "Links that read", lambda log: len(log.cursors)),
    ("slowest_reader_records", "How far the last reader is behind", _slowest),
)


class StoreCollector:
    """Registered with a registry, and asked with each scrape."""

    def __init__(self, store: str, logs: Mapping[str, PipeLog], pipes: Mapping[str, StoredPipe], guard: Guard) -> None:
        self._store = store
        self._guard = guard
        self._logs = logs
        self._pipes = pipes

    def collect(self) -> Iterator[Metric]:
        for name, text, value in GAUGES:
            yield self._gauge(name, text, {pipe: float(value(log)) for pipe, log in self._logs.items()}.items())
        yield self._gauge(
            "primary", "1 if this store gives the positions",
            ((name, float(pipe.is_primary)) for name, pipe in self._pipes.items()),
        )  # fmt: skip
        now = time.monotonic()
        yield self._gauge(
            "waiting_seconds", "How long the primary has waited for the other stores to take what is oldest",
            ((name, pipe.waited_s(now)) for name, pipe in self._pipes.items()),
        )  # fmt: skip
        pushes = CounterMetricFamily(
            f"{PREFIX}_pushes", "Messages that this process has given a position", labels=["store", "pipe"]
        )
        for name, pipe in self._pipes.items():
            pushes.add_metric([self._store, name], pipe.pushes)
        yield pushes
        own = self._guard.authentication
        yield authentication_failures(PREFIX, own.guesses.counts if own is not None else {}, store=self._store)

    def _gauge(self, name: str, text: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["store", "pipe"])
        for pipe, value in values:
            family.add_metric([self._store, pipe], value)
        return family


class StoreMetrics(Pages):
    """Answers at /metrics, to whom `admin` of the topology file lets read."""

    def __init__(self, collector: StoreCollector, guard: Guard) -> None:
        super().__init__([guard.readers.check])
        self._registry = CollectorRegistry()
        self._registry.register(collector)

    def pages(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})
