"""The unsettled deliveries of a session in one direction, by link.

Ranges of delivery-ids, each with its link: a disposition names ids of the session, and events are per link, without
deliveries that were settled before. Costs are per range, not per delivery; settled deliveries leave nothing. States are
the owner's. Next: session.py, which has one for each direction.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import eq, le
from typing import Final, Generic, TypeVar

LinkT = TypeVar("LinkT")

_COMPACT_ABOVE: Final = 256  # emptied ranges are swept out when they are this many and more than half


class UnsettledRanges(Generic[LinkT]):
    """Ascending, disjoint, half-open ranges [first, end) labelled with a link.

    An emptied range stays in place until a sweep, so settling in any order is O(log n) per range; only
    splitting a range inserts.
    """

    __slots__ = ("_emptied", "_ends", "_firsts", "_head", "_links")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._links: list[LinkT] = []
        self._head = 0
        self._emptied = 0

    def __len__(self) -> int:
        """How many ranges are held."""
        return len(self._firsts) - self._emptied

    def add(self, first: int, end: int, link: LinkT) -> None:
        """Deliveries first .. end - 1 of this link, all newer than any added before."""
        ends = self._ends
        last = len(ends) - 1
        if last >= self._head and ends[last] == first and self._links[last] is link and self._firsts[last] < first:
            ends[last] = end
            return
        assert not ends or ends[last] <= first, "delivery-ids only grow"
        self._firsts.append(first)
        ends.append(end)
        self._links.append(link)

    def find(self, first: int, end: int) -> list[tuple[LinkT, int, int]]:
        """The unsettled part of [first, end), as (link, first, end) in order."""
        firsts, ends, head = self._firsts, self._ends, self._head
        if not firsts or first >= end:
            return []
        if firsts[head] <= first and end <= ends[head]:  # within the oldest: the usual case
            return [(self._links[head], first, end)]
        index = max(bisect_right(firsts, first, head) - 1, head)
        found: list[tuple[LinkT, int, int]] = []
        while index < len(firsts) and firsts[index] < end:
            low, high = max(firsts[index], first), min(ends[index], end)
            if low < high:
                found.append((self._links[index], low, high))
            index += 1
        return found

    def remove(self, first: int, end: int) -> list[tuple[LinkT, int, int]]:
        """Settle [first, end); return the part that was unsettled, as (link, first, end) in order."""
        firsts, ends, links = self._firsts, self._ends, self._links
        if not firsts or end <= firsts[self._head]:  # settled before
            return []
        if len(firsts) == 1 and firsts[0] == first and ends[0] == end and first < end:  # all there is
            link = links.pop()
            firsts.clear()
            ends.clear()
            self._head = self._emptied = 0
            return [(link, first, end)]
        index = max(bisect_right(firsts, first, self._head) - 1, self._head)
        removed: list[tuple[LinkT, int, int]] = []
        while index < len(firsts) and firsts[index] < end:
            range_first, range_end, link = firsts[index], ends[index], links[index]
            low, high = max(range_first, first), min(range_end, end)
            if low < high:
                removed.append((link, low, high))
                if low == range_first:
                    if high == range_end:
                        ends[index] = range_first
                        self._emptied += 1
                    else:
                        firsts[index] = high
                else:
                    ends[index] = low
                    if high < range_end:
                        index += 1
                        firsts.insert(index, high)
                        ends.insert(index, range_end)
                        links.insert(index, link)
            index += 1
        if self._emptied:
            self._sweep()
        return removed

    def drop(self, link: LinkT) -> None:
        """Forget all deliveries of a link."""
        for index in range(self._head, len(self._links)):
            if self._links[index] is link and self._firsts[index] < self._ends[index]:
                self._ends[index] = self._firsts[index]
                self._emptied += 1
        self._sweep()

    def check_invariants(self, next_id: int | None) -> None:
        """next_id: of the session's next delivery; None: there has been none."""
        firsts, ends = self._firsts, self._ends
        assert len(firsts) == len(ends) == len(self._links), "ranges, ends and links differ in number"
        assert self._emptied == sum(map(eq, firsts, ends)), "empty ranges are miscounted"
        assert all(map(le, firsts, ends)), "a range ends before it begins"
        assert all(map(le, ends, firsts[1:])), "ranges overlap or are out of order"
        assert firsts[: self._head] == ends[: self._head], "an unsettled range is skipped"
        assert not ends or (next_id is not None and ends[-1] <= next_id), "a delivery that has not begun is unsettled"

    def _sweep(self) -> None:
        firsts, ends = self._firsts, self._ends
        if self._emptied == len(firsts):
            firsts.clear()
            ends.clear()
            self._links.clear()
            self._head = self._emptied = 0
            return
        head = self._head
        while ends[head] == firsts[head]:
            head += 1
        self._head = head
        if self._emptied > _COMPACT_ABOVE and self._emptied * 2 > len(firsts):
            kept = [index for index in range(head, len(firsts)) if firsts[index] < ends[index]]
            self._firsts = [firsts[index] for index in kept]
            self._ends = [ends[index] for index in kept]
            self._links = [self._links[index] for index in kept]
            self._head = self._emptied = 0
