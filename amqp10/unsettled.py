"""The unsettled deliveries of a session in one direction, by link.

Ranges of delivery-ids, each with its link: a disposition names ids of the session, and events are per link, without
deliveries that were settled before. Costs are per range, not per delivery; settled deliveries leave nothing. States are
the owner's. Next: session.py, which has one for each direction.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import le
from typing import Final, Generic, TypeVar

LinkT = TypeVar("LinkT")

MOST_RANGES: Final = 128
"""That one disposition of a peer is about at once: each is an event of its own, where those of two links alternate."""
_COMPACT_ABOVE: Final = 256  # emptied ranges are swept out when they are this many and more than half


class UnsettledRanges(Generic[LinkT]):
    """Ascending, disjoint, half-open ranges [first, end) labelled with a link.

    An emptied range stays in place until a sweep, so settling in any order is O(log n) per range; only
    splitting a range inserts. The ranges of a link that was dropped count as emptied.
    """

    __slots__ = ("_dropped", "_emptied", "_ends", "_head", "_held", "_links", "_skips", "firsts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        """Where the ranges begin, emptied ones included. Empty: nothing is unsettled."""
        self._ends: list[int] = []
        self._links: list[LinkT] = []
        # Of an emptied range: how many from it on are emptied, at least. Looks shorten the way of later ones, as the
        # path compression of a union-find does: nobody makes us go over emptied ranges again and again.
        self._skips: list[int] = []
        self._head = 0
        self._emptied = 0
        self._held: dict[LinkT, int] = {}  # ranges that are not emptied
        self._dropped: set[LinkT] = set()

    def __len__(self) -> int:
        """How many ranges are held."""
        return len(self.firsts) - self._emptied

    def add(self, first: int, end: int, link: LinkT) -> None:
        """Deliveries first .. end - 1 of this link, which was not dropped; all newer than any added before."""
        ends = self._ends
        last = len(ends) - 1
        if last >= self._head and ends[last] == first and self._links[last] is link and self.firsts[last] < first:
            ends[last] = end
            return
        assert not ends or ends[last] <= first, "delivery-ids only grow"
        self.firsts.append(first)
        ends.append(end)
        self._links.append(link)
        self._skips.append(1)
        held = self._held
        held[link] = held.get(link, 0) + 1

    def holds(self, number: int) -> bool:
        """Whether this delivery is unsettled."""
        index = bisect_right(self.firsts, number, self._head) - 1
        return index >= self._head and number < self._ends[index] and self._links[index] not in self._dropped

    def remove(self, first: int, end: int, most: int = 0) -> list[tuple[LinkT, int, int]]:
        """Settle [first, end); return the part that was unsettled, as (link, first, end) in order.

        most: so many ranges and no more, the first ones; 0: all."""
        firsts, ends, links = self.firsts, self._ends, self._links
        if not firsts or end <= firsts[self._head]:  # settled before
            return []
        if len(firsts) == 1 and firsts[0] == first and ends[0] == end and first < end:  # all there is
            link = links.pop()
            firsts.clear()
            ends.clear()
            self._skips.clear()
            self._held[link] -= 1
            self._head = self._emptied = 0
            return [(link, first, end)]
        index = max(bisect_right(firsts, first, self._head) - 1, self._head)
        removed: list[tuple[LinkT, int, int]] = []
        while index < len(firsts) and firsts[index] < end:
            range_first, range_end, link = firsts[index], ends[index], links[index]
            if range_first == range_end or link in self._dropped:
                index = self._behind_emptied(index)
                continue
            low, high = max(range_first, first), min(range_end, end)
            if low < high:
                removed.append((link, low, high))
                if low == range_first:
                    if high == range_end:
                        ends[index] = range_first
                        self._emptied += 1
                        self._held[link] -= 1
                    else:
                        firsts[index] = high
                else:
                    ends[index] = low
                    if high < range_end:
                        index += 1
                        firsts.insert(index, high)
                        ends.insert(index, range_end)
                        links.insert(index, link)
                        self._skips.insert(index, 1)
                        self._held[link] += 1
                if len(removed) == most:
                    break
            index += 1
        if self._emptied:
            self._sweep()
        return removed

    def drop(self, link: LinkT) -> None:
        """Forget all deliveries of a link, which has ended."""
        held = self._held.pop(link, 0)
        if held:
            self._dropped.add(link)
            self._emptied += held
            self._sweep()

    def check_invariants(self, next_id: int | None) -> None:
        """next_id: of the session's next delivery; None: there has been none."""
        firsts, ends = self.firsts, self._ends
        assert len(firsts) == len(ends) == len(self._links) == len(self._skips), "lists differ in length"
        emptied = [self._is_empty(index) for index in range(len(firsts))]
        assert self._emptied == sum(emptied), "empty ranges are miscounted"
        assert len(firsts) - self._emptied == sum(self._held.values()), "the ranges of links are miscounted"
        assert all(map(le, firsts, ends)), "a range ends before it begins"
        assert all(map(le, ends, firsts[1:])), "ranges overlap or are out of order"
        assert all(emptied[: self._head]), "an unsettled range is skipped"
        for index, skip in enumerate(self._skips):
            assert skip == 1 or all(emptied[index : index + skip]), "an unsettled range is skipped over"
        assert not ends or (next_id is not None and ends[-1] <= next_id), "a delivery that has not begun is unsettled"

    def _is_empty(self, index: int) -> bool:
        return self.firsts[index] == self._ends[index] or self._links[index] in self._dropped

    def _behind_emptied(self, index: int) -> int:
        """The first range behind this emptied one that is not emptied."""
        skips = self._skips
        stop = index
        while stop < len(skips) and self._is_empty(stop):
            stop += skips[stop]
        while index < stop:
            step, skips[index] = skips[index], stop - index
            index += step
        return stop

    def _sweep(self) -> None:
        firsts, ends, links, dropped = self.firsts, self._ends, self._links, self._dropped
        if self._emptied == len(firsts):
            firsts.clear()
            ends.clear()
            links.clear()
            self._skips.clear()
            dropped.clear()
            self._head = self._emptied = 0
            return
        head = self._head
        while ends[head] == firsts[head] or links[head] in dropped:
            head += 1
        self._head = head
        if self._emptied > _COMPACT_ABOVE and self._emptied * 2 > len(firsts):
            kept = [index for index in range(head, len(firsts)) if not self._is_empty(index)]
            self.firsts = [firsts[index] for index in kept]
            self._ends = [ends[index] for index in kept]
            self._links = [links[index] for index in kept]
            self._skips = [1] * len(kept)
            self._head = self._emptied = 0
            dropped.clear()
