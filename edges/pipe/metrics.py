"""What a store says of its pipes, for Prometheus: read when somebody asks, so a pipe's work counts nothing for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from edges.pipe.log import PipeLog
from edges.pipe.messages import number_of

if TYPE_CHECKING:
    from edges.pipe.serve import StoredPipe

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
    """Registered with a registry; called in the thread of its server, so that it only looks at plain values."""

    def __init__(self, store: str, logs: Mapping[str, PipeLog], pipes: Mapping[str, StoredPipe]) -> None:
        self._store = store
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

    def _gauge(self, name: str, text: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["store", "pipe"])
        for pipe, value in values:
            family.add_metric([self._store, pipe], value)
        return family


def serve_metrics(collector: StoreCollector, host: str, port: int) -> Callable[[], None]:
    """Answers at http://HOST:PORT/metrics until the result is called. OSError if it cannot be bound."""
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        error.filename = f"{host}:{port}"
        raise

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
