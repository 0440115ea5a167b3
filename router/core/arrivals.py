"""The arrival log of an egress: what came from ingresses, by local position (protocol 9).

Runs map local positions to (ingress, its position, publisher) and back. `alive` are the positions that are neither
settled nor void; `open` those whose token has not been answered. Payload of remote ingresses is counted while it is
kept; that of a local one is the ingress log's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from router.core.intervals import IntervalSet, Range
from router.core.large import Body
from router.core.log import Run, RunList, Segments
from router.core.memory import Memory
from router.core.messages import Assign, PeerProtocolError
from router.core.traffic import Data


class ArrivalRun(Run):
    """Local positions of one publisher whose positions at the ingress rise with them."""

    __slots__ = ("ingress", "message_format", "position", "publisher_id")

    def __init__(
        self, start: int, stop: int, ingress: str, position: int, publisher: bytes, message_format: int
    ) -> None:
        super().__init__(start, stop)
        self.ingress = ingress
        self.position = position
        self.publisher_id = publisher
        self.message_format = message_format


class Arrivals:
    """The log of one address."""

    __slots__ = ("_memory", "alive", "bodies", "by_ingress", "mixed", "name", "open", "rejected", "runs", "segments")

    def __init__(self, name: str, memory: Memory) -> None:
        self.name = name  # of this router
        self._memory = memory
        self.segments = Segments(memory)
        self.runs: RunList[ArrivalRun] = RunList()  # by local position
        self.by_ingress: dict[str, RunList[ArrivalRun]] = {}  # by the ingress's position
        self.alive = IntervalSet()
        self.open = IntervalSet()
        self.bodies: dict[int, Body] = {}  # large deliveries that have not been sent to all yet (protocol 6.12)
        self.rejected: dict[int, int] = {}  # how many local subscriptions rejected
        self.mixed = False  # has there been a message format other than 0?

    @property
    def end(self) -> int:
        return self.segments.end

    def is_next(self, ingress: str, position: int) -> bool:
        """Says whether the position is above all that have come from that ingress."""
        runs = self.by_ingress.get(ingress)
        last = runs.runs[-1] if runs and runs.runs else None
        return last is None or position >= last.position + last.stop - last.start

    def append(self, ingress: str, data: Data | Assign) -> Range:
        """Appends new deliveries; returns their local positions. Those of an ingress have to rise (protocol 3.4)."""
        runs = self.by_ingress.get(ingress)
        if runs is None:
            runs = self.by_ingress[ingress] = RunList()
        last = runs.runs[-1] if runs.runs else None
        if last is not None and data.position < last.position + last.stop - last.start:
            raise PeerProtocolError(f"position {data.position} comes twice")
        large = isinstance(data, Data) and data.open
        start = self.segments.append(data.tags, data.payloads, ingress != self.name and not large)
        stop = self.segments.end
        if large:
            self.bodies[start] = Body(data.payloads[0])
            self._memory.payload_bytes += self.bodies[start].held
        self.alive.add(start, stop)
        self.open.add(start, stop)
        if (
            last is not None
            and last.stop == start
            and last.position + start - last.start == data.position
            and last.publisher_id == data.publisher
            and last.message_format == data.message_format
        ):
            last.stop = stop
            last.live += stop - start
        else:
            if self.runs.runs and not self.runs.runs[-1].live:
                self._drop_run(self.runs.runs[-1])
                runs = self.by_ingress.setdefault(ingress, runs)
            if data.message_format:
                self.mixed = True
            run = ArrivalRun(start, stop, ingress, data.position, data.publisher, data.message_format)
            self.runs.append(start, run)
            runs.append(data.position, run)
        return (start, stop)

    def add_part(self, body: Body, payload: bytes, last: bool) -> None:
        """More of a large delivery has come."""
        body.add(payload, last)
        self._memory.payload_bytes += len(payload)

    def free_parts(self, body: Body, offset: int) -> None:
        """Frees of a large delivery what nobody here needs any more."""
        self._memory.payload_bytes -= body.free(offset)

    def run_of(self, position: int) -> ArrivalRun:
        """Returns the run of a position that is not forgotten."""
        return self.runs.pieces(position, position + 1)[0][0]

    def local(self, ingress: str, start: int, stop: int) -> list[tuple[ArrivalRun, int, int]]:
        """Returns where an ingress's positions are here: runs and local positions."""
        runs = self.by_ingress.get(ingress)
        found: list[tuple[ArrivalRun, int, int]] = []
        for run, low, high in runs.pieces(start, stop) if runs is not None else ():
            found.append((run, run.start + low, run.start + high))
        return found

    def reject(self, ranges: Iterable[Range]) -> None:
        """One more local subscription has rejected these."""
        for start, stop in ranges:
            for position in range(start, stop):
                self.rejected[position] = self.rejected.get(position, 0) + 1

    def forget(self, run: ArrivalRun, start: int, stop: int) -> None:
        """Forgets positions that are settled."""
        for low, high in self.alive.remove(start, stop):
            if self.open.starts and self.open.starts[0] < high:
                self.open.remove(low, high)
            self.segments.forget(low, high)
            run.live -= high - low
        if self.rejected:
            for position in range(start, stop):
                self.rejected.pop(position, None)
        if self.bodies:
            for position in [each for each in self.bodies if start <= each < stop]:
                self._memory.payload_bytes -= self.bodies.pop(position).held
        if not run.live and run is not self.runs.runs[-1]:  # the last one may grow
            self._drop_run(run)

    def invalidate(self, run: ArrivalRun, start: int, stop: int) -> None:
        """Forgets positions that are void, and lets no more be appended to their run (protocol 10.3)."""
        self.forget(run, start, stop)
        if not run.live and self.runs and run is self.runs.runs[-1]:
            self._drop_run(run)

    @property
    def counted_bytes(self) -> int:
        """How many bytes of payload are kept here and counted."""
        held = sum(body.held for body in self.bodies.values())
        return held + sum(self.segments.size(start, stop) for start, stop in self.alive)

    def check_invariants(self) -> None:
        for each in (self.alive, self.open):
            each.check_invariants()
        for runs in (self.runs, *self.by_ingress.values()):
            runs.check_invariants()
        self.segments.check_invariants()
        assert self.open.within(self.alive), f"open {self.open}, alive {self.alive}"
        assert sum(run.live for run in self.runs.runs) == self.alive.size == self.segments.live
        assert sum(map(len, self.by_ingress.values())) == len(self.runs)
        assert all(run in self.by_ingress[run.ingress].runs for run in self.runs.runs)
        assert all(position in self.open for position in self.rejected)
        assert all(position in self.alive for position in self.bodies)

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
        return [run for run in self.runs.runs if run.publisher_id == publisher]
