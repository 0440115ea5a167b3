"""Logs: tags and payloads by position, in segments, and runs that say what a stretch of positions is (protocol 9).

A log knows positions only. Who awaits what is in the interval sets of its owner (`router.core.records`,
`router.core.arrivals`). Every range given to these functions must lie inside what has been appended and not been
forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import Final, Generic, TypeVar

from router.core.intervals import IntervalSet, Range
from router.core.memory import Memory

BITS: Final = 10
SEGMENT: Final = 1 << BITS


class Segment:
    """Up to 1,024 consecutive positions, from `start` to the end of their block.

    `sizes` are sums: the bytes before each position, so that those of a stretch are a difference.
    """

    __slots__ = ("live", "payloads", "sizes", "start", "tags")

    def __init__(self, start: int) -> None:
        self.start = start
        self.tags: list[bytes] = []
        self.payloads: list[bytes | None] = []
        self.sizes: list[int] = [0]
        self.live = 0


class Segments:
    """Tags and payloads of positions ..., `end` - 1. Positions are never used again."""

    __slots__ = ("_memory", "blocks", "end", "freed")

    def __init__(self, memory: Memory, start: int = 0) -> None:
        self._memory = memory  # their payload counts in it
        self.blocks: dict[int, Segment] = {}
        self.end = start
        self.freed = IntervalSet()  # without payload, though not forgotten

    @property
    def live(self) -> int:
        """Returns how many positions are not forgotten."""
        return sum([segment.live for segment in self.blocks.values()])

    def append(self, tags: list[bytes], payloads: list[bytes], counted: bool = True) -> int:
        """Appends messages; returns the position of the first. Not counted: their size is 0."""
        first, n = self.end, len(tags)
        room = SEGMENT - (first & (SEGMENT - 1))
        if n > room:
            self.append(tags[:room], payloads[:room], counted)
            for done in range(room, n, SEGMENT):
                self.append(tags[done : done + SEGMENT], payloads[done : done + SEGMENT], counted)
            return first
        segment = self.blocks.get(first >> BITS)
        if segment is None:
            segment = self.blocks[first >> BITS] = Segment(first)
        segment.tags += tags
        segment.payloads += payloads
        sizes = segment.sizes
        before = sizes[-1]
        if counted and n == 1:
            sizes.append(before + len(payloads[0]))
        elif counted:
            sums = accumulate(map(len, payloads), initial=before)
            next(sums)
            sizes.extend(sums)
        else:
            sizes += [before] * n
        self._memory.payload_bytes += sizes[-1] - before
        segment.live += n
        self.end = first + n
        return first

    def tags(self, start: int, stop: int) -> list[bytes]:
        segment = self.blocks[start >> BITS]
        if (stop - 1) >> BITS != start >> BITS:
            return [tag for low, high in _blocks_of(start, stop) for tag in self.tags(low, high)]
        return segment.tags[start - segment.start : stop - segment.start]

    def payloads(self, start: int, stop: int) -> list[bytes | None]:
        """Returns the payloads; None where one is freed."""
        segment = self.blocks[start >> BITS]
        if (stop - 1) >> BITS != start >> BITS:
            return [payload for low, high in _blocks_of(start, stop) for payload in self.payloads(low, high)]
        return segment.payloads[start - segment.start : stop - segment.start]

    def size(self, start: int, stop: int) -> int:
        """Returns how many bytes of payload are kept for these positions."""
        segment = self.blocks[start >> BITS]
        if (stop - 1) >> BITS != start >> BITS:
            return sum([self.size(low, high) for low, high in _blocks_of(start, stop)])
        first, sizes = segment.start, segment.sizes
        size = sizes[stop - first] - sizes[start - first]
        if self.freed.starts:
            for low, high in self.freed.overlap(start, stop):
                size -= sizes[high - first] - sizes[low - first]
        return size

    def free(self, start: int, stop: int) -> int:
        """Frees payload. Returns how many bytes it was."""
        segment = self.blocks[start >> BITS]
        if (stop - 1) >> BITS != start >> BITS:
            return sum([self.free(low, high) for low, high in _blocks_of(start, stop)])
        size = self.size(start, stop)
        segment.payloads[start - segment.start : stop - segment.start] = [None] * (stop - start)
        self.freed.add(start, stop)
        self._memory.payload_bytes -= size
        return size

    def forget(self, start: int, stop: int) -> int:
        """Forgets positions. Returns how many bytes of payload went with them."""
        segment = self.blocks[start >> BITS]
        if (stop - 1) >> BITS != start >> BITS:
            return sum([self.forget(low, high) for low, high in _blocks_of(start, stop)])
        first, sizes = segment.start, segment.sizes
        size = sizes[stop - first] - sizes[start - first]
        if self.freed.starts:
            for low, high in self.freed.remove(start, stop):
                size -= sizes[high - first] - sizes[low - first]
        segment.live -= stop - start
        if not segment.live and start >> BITS != self.end >> BITS:  # the last one may still be filled
            del self.blocks[start >> BITS]
        else:
            segment.payloads[start - first : stop - first] = [None] * (stop - start)
        self._memory.payload_bytes -= size
        return size

    def check_invariants(self) -> None:
        self.freed.check_invariants()
        for number, segment in self.blocks.items():
            assert segment.start >> BITS == number
            assert len(segment.tags) == len(segment.payloads) == len(segment.sizes) - 1
            assert 0 <= segment.live <= len(segment.tags), f"{segment.live} live of {len(segment.tags)}"
            assert segment.start + len(segment.tags) <= self.end
            for low, high in self.freed.overlap(segment.start, segment.start + len(segment.tags)):
                freed = segment.payloads[low - segment.start : high - segment.start]
                assert freed == [None] * (high - low), "freed payload is still there"


def _blocks_of(start: int, stop: int) -> list[Range]:
    """Returns the positions start..stop-1 block by block."""
    edges = [start, *range(((start >> BITS) + 1) << BITS, stop, SEGMENT), stop]
    return list(pairwise(edges))


class Run:
    """A stretch of positions start..stop-1 with something in common; `live` of them are not forgotten."""

    __slots__ = ("live", "start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.live = stop - start


R = TypeVar("R", bound=Run)


class RunList(Generic[R]):
    """Runs in the order of a key of their first element: its position, its delivery-id, another log's position.

    Along a run the key goes up by one with each position, so that one list answers both ways: what lies at these keys,
    and (with another list over the same runs) what keys these positions have.
    """

    __slots__ = ("keys", "runs")

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.runs: list[R] = []

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def append(self, key: int, run: R) -> None:
        assert not self.keys or key >= self.keys[-1], f"key {key} comes after {self.keys[-1]}"
        self.keys.append(key)
        self.runs.append(run)

    def pieces(self, start: int, stop: int) -> list[tuple[R, int, int]]:
        """Returns what lies at the keys start..stop-1: (run, from, to), offsets into the run."""
        keys = self.keys
        if not keys:
            return []
        key = keys[-1]
        if start >= key:  # in the last run, the usual case
            run = self.runs[-1]
            size = run.stop - run.start
            if stop - key < size:
                size = stop - key
            return [(run, start - key, size)] if start - key < size else []
        i = bisect_right(keys, start) - 1
        if i < 0:
            i = 0
        found: list[tuple[R, int, int]] = []
        while i < len(keys) and keys[i] < stop:
            run, key = self.runs[i], keys[i]
            size = run.stop - run.start
            low = start - key if start > key else 0
            high = stop - key if stop - key < size else size
            if low < high:
                found.append((run, low, high))
            i += 1
        return found

    def check_invariants(self) -> None:
        assert len(self.keys) == len(self.runs)
        for run, key, following in zip(self.runs, self.keys, self.keys[1:], strict=False):
            assert key + run.stop - run.start <= following, "runs overlap"
        assert all(0 <= run.live <= run.stop - run.start for run in self.runs)

    def drop(self, key: int, run: R) -> None:
        """Takes out a run that is there. At the same key there may also be empty ones."""
        i = bisect_left(self.keys, key)
        while self.runs[i] is not run:
            i += 1
        del self.keys[i], self.runs[i]
