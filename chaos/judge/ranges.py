"""What a subscriber was handed of one publisher, and sets of message numbers as ranges.

`Deliveries` holds the rules of G2 and G3 for all who judge: the judge of live runs (judge.py) and the omniscient
checker of simulated ones (chaos/simulation/world/checker.py).  A set of what a publisher numbers one by one takes the
same room however long it runs.  Written for them alone, so that it shares no bug with the routers' own ranges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field


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

    def discard(self, number: int) -> None:
        index = bisect_right(self._starts, number) - 1
        if index >= 0 and number < self._ends[index]:
            start, end = self._starts[index], self._ends[index]
            self._starts[index : index + 1] = [start] * (start < number) + [number + 1] * (number + 1 < end)
            self._ends[index : index + 1] = [number] * (start < number) + [end] * (number + 1 < end)

    def __or__(self, other: Ranges) -> Ranges:
        return self._combined(other, lambda mine, theirs: mine or theirs)

    def __and__(self, other: Ranges) -> Ranges:
        return self._combined(other, lambda mine, theirs: mine and theirs)

    def __sub__(self, other: Ranges) -> Ranges:
        return self._combined(other, lambda mine, theirs: mine and not theirs)

    def _combined(self, other: Ranges, wanted: Callable[[bool, bool], bool]) -> Ranges:
        """Goes through the ends of all ranges in order; each changes whether one of the two has what follows."""
        ends = [(at, 0) for pair in self.pairs() for at in pair] + [(at, 1) for pair in other.pairs() for at in pair]
        result, inside = Ranges(), [False, False]
        for at, whose in sorted(ends):
            before = wanted(*inside)
            inside[whose] = not inside[whose]
            if wanted(*inside) != before:
                to = result._ends if before else result._starts
                if not before and result._ends and result._ends[-1] == at:  # no gap between the two
                    result._ends.pop()
                elif before and result._starts[-1] == at:
                    result._starts.pop()
                else:
                    to.append(at)
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranges({list(self.pairs())})"


@dataclass(slots=True)
class Deliveries:
    """Of one publisher, at one subscriber."""

    received: Ranges = field(default_factory=Ranges)
    accepted: Ranges = field(default_factory=Ranges)
    in_hand: Ranges = field(default_factory=Ranges)
    """Handed to the process that runs now, and not accepted."""
    highest: int = -1

    def hand(self, number: int) -> tuple[str, bool]:
        """It comes as new. How that repeats it, if it does (G2); whether a later one came before it for the first time
        (G3)."""
        repeats = "accepted" if number in self.accepted else "" if self.in_hand.add(number) else "in hand"
        late = self.received.add(number) and number < self.highest
        if not late and number > self.highest:
            self.highest = number
        return repeats, late

    def accept(self, number: int) -> bool:
        """Whether it had not been accepted before."""
        self.in_hand.discard(number)
        return self.accepted.add(number)

    def may_come_again(self, number: int) -> None:
        """Nothing that has happened to it forbids that it is handed again."""
        self.in_hand.discard(number)
        self.accepted.discard(number)
