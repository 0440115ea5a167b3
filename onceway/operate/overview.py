"""Reads a router's status beside its work: in pieces, and in a small part of the event loop's time.

A router may have a hundred thousand addresses. The status of one costs some 20 us, so that all of them at once would
stop deliveries for seconds. Two things prevent that:

- `Pace`: what readers ask for is made in short pieces, each followed by nine times as long for messages, so that a
  message waits for one piece at most. Readers that ask for more wait longer.
- Sums over all addresses, which nearly every reader wants, are kept. They are made anew when they are older than a
  hundred times what making them took: in a router with few addresses at each request, with 10,000 addresses after
  some 20 s. `sums_age_s` says how old they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping
from math import inf
from typing import Any, Final, Protocol, TypeVar

from onceway.base import waits
from onceway.base.logs import latest
from onceway.operate.status import OTHERS, Document, Sums, summarize
from router.core.counters import Measured
from router.json_text import write_json

PIECE_S: Final = 0.0001  # readers' work at once
SHARE: Final = 0.1  # of the loop's time
TIMER_S: Final = 0.001  # uvloop makes a shorter one none at all
KEPT: Final = 100  # times as long as making the sums took, they are kept
NAMES_KEPT: Final = 1_000  # the same for copying the names of all addresses, which is done at once
FRESH_S: Final = 0.005  # sums that took less are made for each request
SORTED: Final = 500  # names at once
PAGE: Final = 100  # addresses, unless a request says otherwise
MOST: Final = 1_000


class Source(Protocol):
    """A router, to its readers."""

    def summary(self) -> Mapping[str, Any]:
        """All but the addresses, in a time that does not depend on them."""

    def configuration(self) -> Mapping[str, str]:
        """What holds here of the topology file, key by key, in words."""

    def address_names(self) -> list[str]:
        """Of the addresses known here, in any order."""

    def report(self, address: str) -> Generator[None, None, Document | None]:
        """One address, in pieces; None if it is not known."""

    def trace(self, address: str, container: str, name: str, tag: bytes) -> Document:
        """Where one delivery is (`router.core.tracing`), and the router's `name`."""

    def measured(self) -> Measured:
        """What is counted, for the metrics."""


T = TypeVar("T")


class Pace:
    """Runs readers' work in pieces, in its share of the time."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._cpu = cpu  # on a busy machine the clock would count others' work as the readers'
        self._next = clock()
        self._lock = waits.OWN_WORK(asyncio.Lock())  # one reader at a time: two would take two pieces between two turns

    async def run(self, steps: Generator[None, None, T]) -> tuple[T, float]:
        """Runs to the end; returns what the generator returns, and the seconds that it took without the pauses."""
        cpu, total = self._cpu, 0.0
        while True:
            async with self._lock:
                pause = self._next - self._clock()
                if pause > 0 or total:  # also where this process stood still in the meantime
                    await asyncio.sleep(max(pause, TIMER_S))  # what is read meanwhile has its turns
                began = cpu()
                try:
                    next(steps)
                    while cpu() - began < PIECE_S:
                        next(steps)
                except StopIteration as end:
                    return end.value, total + cpu() - began
                finally:
                    spent = cpu() - began
                    self._next = self._clock() + spent * (1 - SHARE) / SHARE
                    total += spent


class Overview:
    """The status of one router, for those who ask."""

    def __init__(
        self,
        source: Source,
        clock: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.pace = Pace(clock, cpu)
        self._source = source
        self._clock = clock
        self._cpu = cpu
        self._sums = Sums()
        self._sums_at = -inf  # when they were begun
        self._keep_s = 0.0
        self._names: list[str] = []
        self._names_until = -inf
        self._making: asyncio.Task[None] | None = None

    async def summary(self) -> Document:
        """The document without addresses."""
        sums, age_s = await self.sums()
        return summarize(self._source.summary(), sums, age_s)

    async def dense(self) -> Document:
        """For those who show all of a network: the summary, and `rows` and `lags` in place of addresses. Their number
        does not grow with that of the addresses: those without a label of their own are one row."""
        sums, age_s = await self.sums()
        counters = self._source.measured().counters
        rows = {
            label: {
                "publishers": row.publishers,
                "subscribers": row.subscribers,
                **row.records,
                "received": counted.received if counted is not None else 0,
                "delivered": counted.subscriptions.delivered if counted is not None else 0,
            }
            for label, row in sums.rows.items()
            for counted in (counters.get(label),)
        }
        lags = [[*subscription, lag.messages, lag.oldest_s] for subscription, lag in sums.lags.items()]
        document = summarize(self._source.summary(), sums, age_s)
        return {**document, "rows": rows, "lags": lags, "latest": latest()}

    async def sums(self) -> tuple[Sums, float | None]:
        """Sums over all addresses, and how old they are; None: none have been made yet."""
        asked = self._clock()
        if asked - self._sums_at > self._keep_s:
            await self._wait_for_sums(asked)
        return self._sums, None if self._sums_at == -inf else self._clock() - self._sums_at

    async def _wait_for_sums(self, asked: float) -> None:
        """Until there are sums that need not be made anew for the request, but not for long."""
        end = asked + waits.SUMS.s
        while asked - self._sums_at > self._keep_s and self._clock() < end:
            if self._making is None or self._making.done():
                self._making = asyncio.create_task(self._make_sums())
            # a request that goes away must not take the others' sums with it
            await waits.SUMS(asyncio.wait)({self._making}, timeout=max(0.0, end - self._clock()))

    async def _make_sums(self) -> None:
        began, sums = self._clock(), Sums(shown={key: lag for key, lag in self._sums.lags.items() if key != OTHERS})
        _, took = await self.pace.run(self._add_all(sums))
        sums.shown = {}
        self._sums, self._sums_at = sums, began
        self._keep_s = took * KEPT if took > FRESH_S else 0.0

    def _add_all(self, sums: Sums) -> Generator[None, None, None]:
        for name in self._all_names():
            document = yield from self._source.report(name)
            if document is not None:
                sums.add(name, document)
            yield

    def _all_names(self) -> list[str]:
        now = self._clock()
        if now >= self._names_until:
            began = self._cpu()
            self._names = self._source.address_names()
            took = self._cpu() - began
            self._names_until = now + (took * NAMES_KEPT if took > PIECE_S else 0.0)
        return self._names

    async def page(self, after: str = "", limit: int = PAGE) -> tuple[list[str], str | None]:
        """The next addresses, each as `"name": {...}` in JSON, and the name to go on after; None at the end."""
        names, _ = await self.pace.run(self._first(after, limit + 1))
        more = names[limit - 1] if 0 < limit < len(names) else None
        found: list[str] = []
        await self.pace.run(self._encode(names[:limit], found))
        return found, more

    def _first(self, after: str, number: int) -> Generator[None, None, list[str]]:
        """So many names, in order, of those behind `after`."""
        first: list[str] = []
        names = self._all_names()
        for start in range(0, len(names), SORTED):
            last = first[-1] if len(first) == number else None
            some = [name for name in names[start : start + SORTED] if name > after and (last is None or name < last)]
            first = sorted(first + some)[:number]
            yield
        return first

    async def only(self, address: str) -> list[str]:
        """One address as `page` gives it; none if it is not known."""
        found: list[str] = []
        await self.pace.run(self._encode([address], found))
        return found

    def _encode(self, names: list[str], found: list[str]) -> Generator[None, None, None]:
        for name in names:
            document = yield from self._source.report(name)
            if document is not None:
                found.append(f"{write_json(name)}: {write_json(document)}")
            yield
