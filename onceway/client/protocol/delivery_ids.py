"""The delivery-ids of a subscriber's deliveries on the current attachment, as runs in both directions."""

from __future__ import annotations

from bisect import bisect_right


class DeliveryIds:
    """Positions (`holdings`) and delivery-ids of one attachment."""

    __slots__ = ("_by_id", "_by_position", "_second")

    def __init__(self) -> None:
        self._by_id: list[tuple[int, int, int]] = []  # (first id, position, count), ascending
        self._by_position: list[tuple[int, int, int]] = []  # the same as (position, first id, count), ascending
        self._second: dict[int, int] = {}  # position -> second id, where a peer sent a delivery twice on one link

    def add(self, first_id: int, position: int, count: int) -> None:
        """The deliveries from this position on came with the ids from first_id on."""
        runs = self._by_id
        if runs:
            run_id, before, n = runs[-1]
            if run_id + n == first_id and before + n == position:
                runs[-1] = (run_id, before, n + count)
                at = bisect_right(self._by_position, before, key=_start) - 1
                self._by_position[at] = (before, run_id, n + count)
                return
        runs.append((first_id, position, count))
        if not self._by_position or self._by_position[-1][0] < position:
            self._by_position.append((position, first_id, count))
        else:
            at = bisect_right(self._by_position, position, key=_start)
            self._by_position.insert(at, (position, first_id, count))

    def add_again(self, delivery_id: int, position: int) -> None:
        """A delivery has arrived again, or for the first time on this attachment."""
        at = bisect_right(self._by_position, position, key=_start) - 1
        if at >= 0 and position < self._by_position[at][0] + self._by_position[at][2]:
            self._second[position] = delivery_id
        else:
            self.add(delivery_id, position, 1)

    def of_positions(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """The parts of first .. last that have ids, as (first position, last position, first id)."""
        return _within(self._by_position, first, last)

    def second_of_positions(self, first: int, last: int) -> list[int]:
        """The second ids of those of first .. last that came twice."""
        return (
            [self._second[position] for position in self._second if first <= position <= last] if self._second else []
        )

    def positions(self, first_id: int, last_id: int) -> list[tuple[int, int, int]]:
        """Which deliveries have these ids, as (first id, last id, first position)."""
        return _within(self._by_id, first_id, last_id)

    def forget(self, first: int, last: int) -> None:
        """Positions first .. last are settled: their second ids are not needed any more."""
        if self._second:
            for position in [position for position in self._second if first <= position <= last]:
                del self._second[position]


def _within(runs: list[tuple[int, int, int]], first: int, last: int) -> list[tuple[int, int, int]]:
    """The parts of runs (start, other, count) that lie in first .. last, as (low, high, other of low)."""
    found = []
    at = max(bisect_right(runs, first, key=_start) - 1, 0)
    while at < len(runs) and runs[at][0] <= last:
        start, other, count = runs[at]
        low, high = max(first, start), min(last, start + count - 1)
        if low <= high:
            found.append((low, high, low - start + other))
        at += 1
    return found


def _start(run: tuple[int, int, int]) -> int:
    return run[0]
