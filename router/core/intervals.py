"""Sets of integers kept as ranges (protocol 9): positions, delivery-ids.

Two parallel sorted lists of half-open bounds; ranges neither touch nor overlap. An open tail is a last range that
stops at `OPEN`. Adding at the end and removing at the front, which is what a log does, touch one element; the rest
bisects. Everything that takes things away returns what was really there, because acceptance is computed from that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import lt
from typing import Final

OPEN: Final = 1 << 62
"""Stop of an open tail: everything from its start on."""

Range = tuple[int, int]


class IntervalSet:
    """A set of integers below `OPEN`, as half-open ranges."""

    __slots__ = ("starts", "stops")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self.starts, self.stops, strict=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self.starts == other.starts and self.stops == other.stops

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{a}..{'' if b == OPEN else b - 1}" for a, b in self) + "}"

    def __contains__(self, value: int) -> bool:
        i = bisect_right(self.starts, value) - 1
        return i >= 0 and value < self.stops[i]

    @property
    def size(self) -> int:
        """Returns how many integers are in it."""
        return sum(self.stops) - sum(self.starts)

    def add(self, start: int, stop: int) -> None:
        if start >= stop:
            return
        starts, stops = self.starts, self.stops
        if not stops or start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            return
        if start >= starts[-1]:
            if stop > stops[-1]:
                stops[-1] = stop
            return
        i = bisect_left(stops, start)  # the first that touches
        j = bisect_right(starts, stop)  # and the one behind the last
        if i == j:
            starts.insert(i, start)
            stops.insert(i, stop)
            return
        starts[i] = min(start, starts[i])
        stops[i] = max(stop, stops[j - 1])
        del starts[i + 1 : j]
        del stops[i + 1 : j]

    def add_all(self, ranges: Iterable[Range]) -> None:
        for start, stop in ranges:
            self.add(start, stop)

    def remove(self, start: int, stop: int) -> list[Range]:
        """Takes a range out. Returns what of it was there."""
        starts, stops = self.starts, self.stops
        if not starts or start >= stop:
            return []
        last = stops[0]
        if start == starts[0] and stop <= last:  # the first range, or its beginning: the usual case
            if stop == last:
                del starts[0], stops[0]
            else:
                starts[0] = stop
            return [(start, stop)]
        i = 0 if start < stops[0] else bisect_right(stops, start)
        if i == len(starts) or starts[i] >= stop:
            return []
        first, last = starts[i], stops[i]
        low = start if start > first else first
        if last >= stop:  # within one range, nearly always
            if low == first:
                if last == stop:
                    del starts[i], stops[i]
                else:
                    starts[i] = stop
            else:
                stops[i] = low
                if last != stop:
                    starts.insert(i + 1, stop)
                    stops.insert(i + 1, last)
            return [(low, stop)]
        j = bisect_left(starts, stop)
        removed = list(zip(starts[i:j], stops[i:j], strict=True))
        removed[0] = (low, last)
        end_start, end_stop = removed[-1]
        rest = end_stop > stop
        if rest:
            removed[-1] = (end_start, stop)
        keep = low > first
        starts[i:j] = ([first] if keep else []) + ([stop] if rest else [])
        stops[i:j] = ([low] if keep else []) + ([end_stop] if rest else [])
        return removed

    def overlap(self, start: int, stop: int) -> list[Range]:
        """Returns what of a range is there."""
        starts, stops = self.starts, self.stops
        if not starts or start >= stop:
            return []
        if starts[0] <= start and stop <= stops[0]:  # within the first range, the usual case
            return [(start, stop)]
        i = 0 if start < stops[0] else bisect_right(stops, start)
        found: list[Range] = []
        while i < len(starts) and starts[i] < stop:
            a, b = starts[i], stops[i]
            found.append((a if a > start else start, b if b < stop else stop))
            i += 1
        return found

    def missing(self, ranges: list[Range]) -> list[Range]:
        """Returns what of these ranges is not there."""
        starts = self.starts
        if not starts:
            return ranges
        if len(ranges) == 1:  # the usual case: all of it is there, or nothing
            start, stop = ranges[0]
            if start >= self.stops[-1] or stop <= starts[0]:
                return ranges
            if starts[-1] <= start and stop <= self.stops[-1]:
                return []
        absent: list[Range] = []
        for start, stop in ranges:
            for a, b in self.overlap(start, stop):
                if a > start:
                    absent.append((start, a))
                start = b
            if start < stop:
                absent.append((start, stop))
        return absent

    def among(self, ranges: list[Range]) -> list[Range]:
        """Returns what of these ranges is there."""
        return [piece for start, stop in ranges for piece in self.overlap(start, stop)] if self.starts else []

    def following(self, start: int) -> Range | None:
        """Returns the first range at or behind `start`, cut there; None when there is nothing."""
        stops = self.stops
        if not stops or start >= stops[-1]:
            return None
        i = 0 if start < stops[0] else bisect_right(stops, start)
        a = self.starts[i]
        return (a if a > start else start, stops[i])

    def first(self) -> int:
        """Returns the smallest integer in it; OPEN when it is empty."""
        return self.starts[0] if self.starts else OPEN

    def close(self, stop: int) -> None:
        """Ends an open tail at `stop`."""
        if self.stops and self.stops[-1] == OPEN:
            if self.starts[-1] >= stop:
                del self.starts[-1], self.stops[-1]
            else:
                self.stops[-1] = stop

    def within(self, other: IntervalSet) -> bool:
        """Says whether all of it is in the other one, too."""
        return not other.missing(list(self))

    def check_invariants(self) -> None:
        starts, stops = self.starts, self.stops
        assert len(starts) == len(stops)
        assert all(map(lt, starts, stops)), f"empty ranges: {starts}, {stops}"
        assert all(map(lt, stops, starts[1:])), f"ranges touch or overlap: {self}"

    def take(self) -> list[Range]:
        """Empties it. Returns what was there."""
        if len(self.starts) == 1:
            return [(self.starts.pop(), self.stops.pop())]
        ranges = list(zip(self.starts, self.stops, strict=True))
        self.starts.clear()
        self.stops.clear()
        return ranges


def union(sets: Iterable[IntervalSet]) -> IntervalSet:
    """Returns what is in any of them."""
    found = IntervalSet()
    for each in sets:
        found.add_all(each)
    return found


def count(ranges: Iterable[Range]) -> int:
    """Returns how many integers are in these ranges."""
    total = 0
    for start, stop in ranges:
        total += stop - start
    return total
