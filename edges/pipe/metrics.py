"""What a store says of its pipes, for Prometheus: read when somebody asks, so a pipe's work counts nothing for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web

from edges.pipe.log import PipeLog
from edges.pipe.messages import number_of
from edges.store import Store
from onceway.access.readers import Pages
from onceway.base.metrics import Metric, Row, exposition
from onceway.operate.metrics import FAILURES, authentication_failures

if TYPE_CHECKING:
    from edges.pipe.serve import StoredPipe
    from onceway.serve.guard import Guard

KEYS: Final = ("store", "pipe")


@dataclass(frozen=True, slots=True)
class Told:
    """One store process. The pipes are those of this moment, by name.

    Attributes:
        store: Its name.
        held: Where its data is.
    """

    store: str
    held: Store
    logs: Mapping[str, PipeLog]
    pipes: Mapping[str, StoredPipe]
    guard: Guard


def _of_logs(read: Callable[[PipeLog], float]) -> Callable[[Told], Iterable[Row]]:
    return lambda told: (((told.store, name), (float(read(log)),)) for name, log in told.logs.items())


def _of_pipes(read: Callable[[StoredPipe], float]) -> Callable[[Told], Iterable[Row]]:
    return lambda told: (((told.store, name), (float(read(pipe)),)) for name, pipe in told.pipes.items())


def _free(told: Told) -> list[Row]:
    free = told.held.free()
    return [] if free is None else [((told.store,), (free,))]


def _failures(told: Told) -> list[Row]:
    own = told.guard.authentication
    counts = own.guesses.counts if own is not None else {}
    return [((told.store,), [counts.get(what, 0) for what in FAILURES])]


def _slowest(log: PipeLog) -> int:
    """How far the reader that is furthest back is from the end."""
    return log.visible - min([*log.cursors.values(), log.visible])


TABLE: Final[tuple[Metric[Told], ...]] = (
    Metric("onceway_pipe_start_position", "gauge", "Where the content begins", _of_logs(lambda log: log.state.start),
           KEYS),
    Metric("onceway_pipe_next_position", "gauge", "Behind the last record on this store's disk",
           _of_logs(lambda log: log.next), KEYS, more="That of another store minus it is how far this one is behind"),
    Metric("onceway_pipe_visible_position", "gauge",
           "Behind the last record that every store has, as far as this one knows: readers get no more",
           _of_logs(lambda log: log.visible), KEYS),
    Metric("onceway_pipe_waiting_records", "gauge",
           "Records on this store's disk that readers may not read yet: another store may lack them",
           _of_logs(lambda log: log.next - log.visible), KEYS),
    Metric("onceway_pipe_waiting_seconds", "gauge",
           "How long the primary has waited for the other stores to take what is oldest; pushes wait as long",
           _of_pipes(lambda pipe: pipe.waited_s(time.monotonic())), KEYS),
    Metric("onceway_pipe_primary", "gauge", "1 if this store gives the positions",
           _of_pipes(lambda pipe: pipe.is_primary), KEYS, more="A sum other than 1 over the stores is worth an alert"),
    Metric("onceway_pipe_epoch", "gauge", "Number of the latest promotion that this store knows",
           _of_logs(lambda log: number_of(log.state.epoch)), KEYS),
    Metric("onceway_pipe_incomplete", "gauge",
           "1 while this store has not all of the pipe: it is new, or reads it again", _of_logs(lambda log: log.lacks),
           KEYS),
    Metric("onceway_pipe_readers", "gauge", "Links that read", _of_logs(lambda log: len(log.cursors)), KEYS),
    Metric("onceway_pipe_slowest_reader_records", "gauge", "How far the last reader is behind", _of_logs(_slowest),
           KEYS),
    Metric("onceway_pipe_pushes_total", "counter", "Messages that this process has given a position",
           _of_pipes(lambda pipe: pipe.pushes), KEYS),
    Metric("onceway_pipe_storage_free_bytes", "gauge",
           "What is free on the disk of this store's directory, until pushes wait", _free, ("store",),
           more="Not of a store in PostgreSQL: watch the database's disk"),
    authentication_failures("onceway_pipe", _failures, ("store",)),
)  # fmt: skip


class StoreMetrics(Pages):
    """Answers at /metrics, to whom `admin` of the topology file lets read."""

    def __init__(self, told: Told) -> None:
        super().__init__(lambda: told.guard.hosts, [told.guard.readers.check])
        self._told = told

    def pages(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        content_type, pieces = exposition(TABLE, self._told, request.headers.get("Accept", ""))
        return web.Response(text="".join(pieces), headers={"Content-Type": content_type})
