"""Sets of message numbers as ranges: what a publisher numbers one by one takes the same room however long it runs.

Knows nothing of histories.  Written for the judge alone, so that it shares no bug with the routers' own ranges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """A set of ints, kept as sorted, disjoint, half-open ranges that never touch."""

    __slots__ = ("_starts", "_ends")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> bool:
        """Whether it was new."""
        starts, ends = self._starts, self._ends
        if ends and number == ends[-1]:  # the common case: the next one
            ends[-1] += 1
            return True
        if not ends or number > ends[-1]:
            starts.append(number)
            ends.append(number + 1)
            return True
        index = bisect_right(starts, number)  # ranges before it start at or below number
        if index and number < ends[index - 1]:
            return False
        joins_left = index > 0 and ends[index - 1] == number
        joins_right = index < len(starts) and starts[index] == number + 1
        if joins_left and joins_right:
            ends[index - 1] = ends.pop(index)
            del starts[index]
        elif joins_left:
            ends[index - 1] += 1
        elif joins_right:
            starts[index] -= 1
        else:
            starts.insert(index, number)
            ends.insert(index, number + 1)
        return True

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number)
        return index > 0 and number < self._ends[index - 1]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __iter__(self) -> Iterator[int]:
        for start, end in self.pairs():
            yield from range(start, end)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(start, end) with end left out."""
        return zip(self._starts, self._ends, strict=True)

    def copy(self) -> Ranges:
        twin = Ranges()
        twin._starts, twin._ends = self._starts[:], self._ends[:]
        return twin

    def clear(self) -> None:
        self._starts.clear()
        self._ends.clear()

    def first(self, count: int) -> tuple[int, ...]:
        found: list[int] = []
        for start, end in self.pairs():
            found += range(start, min(end, start + count - len(found)))
            if len(found) == count:
                break
        return tuple(found)

    def __or__(self, other: Ranges) -> Ranges:
        result = Ranges()
        for start, end in sorted([*self.pairs(), *other.pairs()]):
            result._append(start, end)
        return result

    def __and__(self, other: Ranges) -> Ranges:
        result = Ranges()
        mine, theirs = list(self.pairs()), list(other.pairs())
        i = j = 0
        while i < len(mine) and j < len(theirs):
            start, end = max(mine[i][0], theirs[j][0]), min(mine[i][1], theirs[j][1])
            if start < end:
                result._append(start, end)
            if mine[i][1] < theirs[j][1]:
                i += 1
            else:
                j += 1
        return result

    def __sub__(self, other: Ranges) -> Ranges:
        result = Ranges()
        starts, ends = other._starts, other._ends
        for start, end in self.pairs():
            index = bisect_left(ends, start + 1)  # the first range that ends behind start
            while start < end and index < len(starts) and starts[index] < end:
                if start < starts[index]:
                    result._append(start, starts[index])
                start = ends[index]
                index += 1
            if start < end:
                result._append(start, end)
        return result

    def _append(self, start: int, end: int) -> None:
        """`start` at or behind the start of the last range."""
        if self._ends and start <= self._ends[-1]:
            self._ends[-1] = max(self._ends[-1], end)
        else:
            self._starts.append(start)
            self._ends.append(end)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranges({list(self.pairs())})"
