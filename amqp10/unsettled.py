"""Which deliveries of a session are unsettled in one direction, and whose they are.

Ranges of delivery-ids, each with its link: a disposition names ids of the session, and its owner wants to hear of them
link by link, without those that were settled before. Costs per range, not per delivery; nothing remains of settled
ones. It knows no states: those are the owner's. Next: session.py, which keeps one for each direction.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

LinkT = TypeVar("LinkT")

_COMPACT_ABOVE = 256  # emptied ranges are swept out when they are this many and more than half


class UnsettledRanges(Generic[LinkT]):
    """Ascending, disjoint, half-open ranges [first, end) labelled with a link.

    A range that is emptied stays in place as an empty one until a sweep, so that settling in any order is O(log n)
    per range; only the splitting of a range inserts.
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
        """What of [first, end) is unsettled, as (link, first, end) in order."""
        firsts, ends = self._firsts, self._ends
        index = max(bisect_right(firsts, first, self._head) - 1, self._head)
        found: list[tuple[LinkT, int, int]] = []
        while index < len(firsts) and firsts[index] < end:
            low, high = max(firsts[index], first), min(ends[index], end)
            if low < high:
                found.append((self._links[index], low, high))
            index += 1
        return found

    def remove(self, first: int, end: int) -> list[tuple[LinkT, int, int]]:
        """Take [first, end) out; what of it was there, as (link, first, end) in order."""
        firsts, ends, links = self._firsts, self._ends, self._links
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
        """Forget everything of a link."""
        for index in range(self._head, len(self._links)):
            if self._links[index] is link and self._firsts[index] < self._ends[index]:
                self._ends[index] = self._firsts[index]
                self._emptied += 1
        self._sweep()

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
