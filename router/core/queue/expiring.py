"""What waits in one queue for a consumer until its time is over (protocol 16.3.9)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from router.core.queue.distribution import QueueDistribution

AGAIN_MS: Final = 1000  # after which what a consumer holds is looked at again


class Expiring:
    """Records that have a time, those that end first at the front. Only of an address with `expire`."""

    def __init__(self, queue: QueueDistribution) -> None:
        self.queue = queue
        self.core = queue.core
        self._times: list[tuple[int, int]] = []  # (when it ends, in ms of the wall clock; position)
        self._look_at = 0.0  # when the first of them ends, as it was when the clocks were compared last

    def note(self, start: int, payloads: list[bytes]) -> None:
        """New records of message-format 0."""
        for position, payload in enumerate(payloads, start):
            ends_at = self.core.owner.ends_at(payload)
            if ends_at is not None:
                heappush(self._times, (ends_at, position))
                if self._times[0] == (ends_at, position):
                    self._look_at = self._due(ends_at)
                    self.core.agenda.due(self._look_at, self.queue.address)

    def tick(self) -> None:
        """What is free and over counts as accepted. What a consumer may hold is its own to decide."""
        now_ms, queue = self._now_ms(), self.queue
        while self._times and self._times[0][0] <= now_ms:
            _, position = heappop(self._times)
            if self._may_go(position):
                queue.address.counters.expired += 1
                queue.accept_free([(position, position + 1)])
            elif position in queue.undone:
                heappush(self._times, (now_ms + AGAIN_MS, position))
        if self._times:
            self._look_at = self._due(self._times[0][0])

    def _may_go(self, position: int) -> bool:
        """Says whether no consumer can hold it."""
        return position in self.queue.free.positions and self.core.may_accept(self.queue.address)

    def deadlines(self) -> list[float]:
        return [self._look_at] if self._times else []

    def _due(self, ends_at: int) -> float:
        return self.core.now + max(ends_at - self._now_ms(), 0) / 1000

    def _now_ms(self) -> int:
        return self.core.clock_us() // 1000
