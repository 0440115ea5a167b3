"""The arrival log of an egress: what came from ingresses, by local position (PROTOCOL 9).

Runs map local positions to (ingress, its position, publisher) and back.  `alive` are the positions that are neither
settled nor void; `open` those whose token has not been answered.  Payload of remote ingresses is counted while it is
kept; that of a local one is the ingress log's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from router.intervals import IntervalSet, Range
from router.log import Run, RunList, Segments
from router.messages import Data, PeerProtocolError


class ArrivalRun(Run):
    """Local positions of one publisher whose ingress positions run along."""

    __slots__ = ("ingress", "message_format", "position", "publisher")

    def __init__(
        self, start: int, stop: int, ingress: str, position: int, publisher: bytes, message_format: int
    ) -> None:
        super().__init__(start, stop)
        self.ingress = ingress
        self.position = position
        self.publisher = publisher
        self.message_format = message_format


class Arrivals:
    """The log of one address."""

    __slots__ = ("alive", "by_ingress", "mixed", "name", "open", "rejected", "runs", "segments")

    def __init__(self, name: str) -> None:
        self.name = name  # of this router
        self.segments = Segments()
        self.runs: RunList[ArrivalRun] = RunList()  # by local position
        self.by_ingress: dict[str, RunList[ArrivalRun]] = {}  # by the ingress's position
        self.alive = IntervalSet()
        self.open = IntervalSet()
        self.rejected: dict[int, int] = {}  # how many local subscriptions rejected
        self.mixed = False  # has there been a message format other than 0?

    @property
    def end(self) -> int:
        return self.segments.end

    def append(self, ingress: str, data: Data) -> Range:
        """Returns the local positions."""
        runs = self.by_ingress.get(ingress)
        if runs is None:
            runs = self.by_ingress[ingress] = RunList()
        last = runs.runs[-1] if runs.runs else None
        if last is not None and data.position < last.position + last.stop - last.start:
            raise PeerProtocolError(f"position {data.position} comes twice")
        start = self.segments.append(data.tags, data.payloads, ingress != self.name)
        stop = self.segments.end
        self.alive.add(start, stop)
        self.open.add(start, stop)
        if (
            last is not None
            and last.stop == start
            and last.position + start - last.start == data.position
            and last.publisher == data.publisher
            and last.message_format == data.message_format
        ):
            last.stop = stop
            last.live += stop - start
        else:
            if self.runs and not self.runs.runs[-1].live:
                self._drop_run(self.runs.runs[-1])
                runs = self.by_ingress.setdefault(ingress, runs)
            if data.message_format:
                self.mixed = True
            run = ArrivalRun(start, stop, ingress, data.position, data.publisher, data.message_format)
            self.runs.append(start, run)
            runs.append(data.position, run)
        return (start, stop)

    def slices(self, start: int, stop: int, cache: dict[object, object]) -> tuple[list[bytes], list[bytes]]:
        """Tags and payloads; shared by the subscribers of a batch."""
        key = ("arrivals", start, stop)
        found = cache.get(key)
        if found is None:
            found = cache[key] = (self.segments.tags(start, stop), self.segments.payloads(start, stop))
        return found  # type: ignore[return-value]  # what is still to be sent has its payload

    def accepted(self, ranges: list[Range]) -> Iterator[tuple[ArrivalRun, int, int]]:
        """Tokens that are being answered: leaves `open`; the stretches with their run."""
        for start, stop in ranges:
            self.open.remove(start, stop)
            for run, low, high in self.runs.pieces(start, stop):
                yield run, run.start + low, run.start + high

    def free(self, run: ArrivalRun, start: int, stop: int) -> int:
        """Payload that nobody here needs any more.  Returns the bytes that were counted for it."""
        return 0 if run.ingress == self.name else self.segments.free(start, stop)

    def local(self, ingress: str, start: int, stop: int) -> list[tuple[ArrivalRun, int, int]]:
        """Where an ingress's positions are here: runs and local positions."""
        runs = self.by_ingress.get(ingress)
        if runs is None:
            return []
        return [(run, run.start + low, run.start + high) for run, low, high in runs.pieces(start, stop)]

    def forget(self, run: ArrivalRun, start: int, stop: int) -> int:
        """Positions that are settled or void.  Returns the bytes of payload that were counted for them."""
        freed = 0
        for low, high in self.alive.remove(start, stop):
            self.open.remove(low, high)
            freed += self.segments.forget(low, high)
            run.live -= high - low
        if self.rejected:
            for position in range(start, stop):
                self.rejected.pop(position, None)
        if not run.live and run is not self.runs.runs[-1]:  # the last one may go on
            self._drop_run(run)
        return freed

    def void(self, run: ArrivalRun, start: int, stop: int) -> int:
        """The same where the run must not go on: its ingress positions are void."""
        freed = self.forget(run, start, stop)
        if not run.live and self.runs and run is self.runs.runs[-1]:
            self._drop_run(run)
        return freed

    def _drop_run(self, run: ArrivalRun) -> None:
        self.runs.drop(run.start, run)
        runs = self.by_ingress[run.ingress]
        runs.drop(run.position, run)
        if not runs:
            del self.by_ingress[run.ingress]

    def runs_of(self, publisher: bytes) -> list[ArrivalRun]:
        last = self.runs.runs[-1] if self.runs else None
        if last is not None and not last.live:
            self._drop_run(last)
        return [run for run in self.runs.runs if run.publisher == publisher]
