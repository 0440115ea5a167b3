"""Logs: tags and payloads by position, in segments, and runs that say what a stretch of positions is (PROTOCOL 9).

A log knows positions only.  Who awaits what is in the interval sets of its owner (`router.ingress`, `router.egress`).
Every range given to these functions must lie inside what has been appended and not been forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

BITS = 10
SEGMENT = 1 << BITS


class Segment:
    """Up to 1,024 consecutive positions, from `start` to the end of their block."""

    __slots__ = ("live", "payloads", "start", "tags")

    def __init__(self, start: int) -> None:
        self.start = start
        self.tags: list[bytes] = []
        self.payloads: list[bytes | None] = []
        self.live = 0


class Segments:
    """Tags and payloads of positions ..., `end` - 1.  Positions are never used again."""

    __slots__ = ("blocks", "end")

    def __init__(self, start: int = 0) -> None:
        self.blocks: dict[int, Segment] = {}
        self.end = start

    def append(self, tags: list[bytes], payloads: list[bytes]) -> int:
        """Returns the position of the first."""
        first = at = self.end
        n = len(tags)
        done = 0
        while done < n:
            segment = self.blocks.get(at >> BITS)
            if segment is None:
                segment = self.blocks[at >> BITS] = Segment(at)
            room = SEGMENT - (at & (SEGMENT - 1))
            if not done and n <= room:
                segment.tags += tags
                segment.payloads += payloads
                segment.live += n
                at += n
                break
            part = min(room, n - done)
            segment.tags += tags[done : done + part]
            segment.payloads += payloads[done : done + part]
            segment.live += part
            done += part
            at += part
        self.end = first + n
        return first

    def tags(self, start: int, stop: int) -> list[bytes]:
        segment = self.blocks[start >> BITS]
        if (stop - 1) >> BITS == start >> BITS:
            return segment.tags[start - segment.start : stop - segment.start]
        found: list[bytes] = []
        for low, high, segment in self._split(start, stop):
            found += segment.tags[low:high]
        return found

    def payloads(self, start: int, stop: int) -> list[bytes | None]:
        """None: freed."""
        segment = self.blocks[start >> BITS]
        if (stop - 1) >> BITS == start >> BITS:
            return segment.payloads[start - segment.start : stop - segment.start]
        found: list[bytes | None] = []
        for low, high, segment in self._split(start, stop):
            found += segment.payloads[low:high]
        return found

    def size(self, start: int, stop: int) -> int:
        """Bytes of payload that are kept for these positions."""
        return sum(map(len, filter(None, self.payloads(start, stop))))

    def free(self, start: int, stop: int) -> int:
        """Lets go of payload; returns how many bytes it was."""
        freed = 0
        for low, high, segment in self._split(start, stop):
            freed += sum(map(len, filter(None, segment.payloads[low:high])))
            segment.payloads[low:high] = [None] * (high - low)
        return freed

    def forget(self, start: int, stop: int) -> int:
        """These positions are needed no more.  Returns how many bytes of payload went with them."""
        freed = self.free(start, stop)
        for low, high, segment in self._split(start, stop):
            segment.live -= high - low
            index = segment.start >> BITS
            if not segment.live and index != self.end >> BITS:  # the last one may still be filled
                del self.blocks[index]
        return freed

    def _split(self, start: int, stop: int) -> list[tuple[int, int, Segment]]:
        parts: list[tuple[int, int, Segment]] = []
        while start < stop:
            segment = self.blocks[start >> BITS]
            end = min(stop, ((start >> BITS) + 1) << BITS)
            parts.append((start - segment.start, end - segment.start, segment))
            start = end
        return parts


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
        self.keys.append(key)
        self.runs.append(run)

    def pieces(self, start: int, stop: int) -> list[tuple[R, int, int]]:
        """What lies at the keys start..stop-1: (run, from, to), offsets into the run."""
        keys = self.keys
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

    def drop(self, key: int) -> None:
        i = bisect_left(self.keys, key)
        del self.keys[i], self.runs[i]
