"""What all MQTT of one router has to do in its next turn, and later."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import Any, Final

AT_ONCE: Final = 2  # sessions whose filters are looked at in one turn, and whose retained messages are sent
SPARE_TIMERS: Final = 64


class Turn:
    """Each thing is noted once, and done in the order of coming."""

    __slots__ = ("anew", "busy", "early", "leaving", "moved", "roomy", "to_flush", "with_output")

    def __init__(self) -> None:
        self.with_output: dict[Any, None] = {}  # connections
        self.early: dict[Any, None] = {}  # connections that have said something before CONNACK that is not handled yet
        self.busy: dict[Any, None] = {}  # sessions which look at filters, in parts
        self.to_flush: dict[Any, None] = {}  # ports
        self.leaving: dict[Any, None] = {}  # publishers
        self.roomy: dict[Any, None] = {}  # sessions whose clients may take more
        self.moved: dict[Any, None] = {}  # sessions that may go on elsewhere
        self.anew: dict[Any, None] = {}  # sessions that begin anew

    @property
    def for_ports(self) -> bool:
        return bool(self.to_flush or self.leaving or self.roomy)

    def take_busy(self) -> Iterator[Any]:
        for session in list(islice(self.busy, AT_ONCE)):
            self.busy.pop(session, None)
            yield session


def take(those: dict[Any, None]) -> dict[Any, None]:
    """Returns those that were noted; what is noted from now on is taken next time."""
    taken = dict(those)
    those.clear()
    return taken


class Timers:
    """When sessions without a connection are looked at. The `timer` of its absence is the one that counts."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Any]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def first(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def set(self, session: Any, at: float, sessions: int) -> None:
        """sessions: how many there are."""
        if len(self._heap) > 2 * sessions + SPARE_TIMERS:  # else sessions that are over would be kept
            self._heap = [each for each in self._heap if not each[2].ended and each[2].absence.timer == each[0]]
            heapify(self._heap)
        session.absence.timer = at
        heappush(self._heap, (at, next(self._order), session))

    def take_due(self, now: float) -> Any:
        """Returns the next one that is due; None if none is."""
        if not self._heap or self._heap[0][0] > now:
            return None
        session = heappop(self._heap)[2]
        session.absence.timer = None
        return session
