"""Sets of numbers as inclusive ranges: positions with an outcome, journalled publications, undecided deliveries."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]  # first and last


class RangeSet:
    """Ranges that neither touch nor overlap, ascending: two parallel lists, which bisection searches."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._lasts, strict=True)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{first}..{last}" for first, last in self) + "}"

    def add(self, first: int, last: int) -> None:
        assert first <= last
        at = bisect_left(self._lasts, first - 1)  # the first range that touches
        end = bisect_right(self._firsts, last + 1, at)  # behind the last one
        if at < end:
            first, last = min(first, self._firsts[at]), max(last, self._lasts[end - 1])
        self._firsts[at:end] = (first,)
        self._lasts[at:end] = (last,)

    def remove(self, first: int, last: int) -> list[Range]:
        """Takes first .. last out; returns what of it was in the set."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_left(lasts, first)
        end = bisect_right(firsts, last, at)
        if at >= end:
            return []
        removed = [(max(first, low), min(last, high)) for low, high in zip(firsts[at:end], lasts[at:end], strict=True)]
        below, above = firsts[at] < first, lasts[end - 1] > last
        outer = firsts[at], lasts[end - 1]
        firsts[at:end] = [outer[0]] * below + [last + 1] * above
        lasts[at:end] = [first - 1] * below + [outer[1]] * above
        return removed


def ranges_of(numbers: Iterable[int]) -> list[Range]:
    """Ascending numbers as ranges."""
    ranges: list[Range] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
