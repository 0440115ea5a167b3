"""The tags of rows that the network has not settled: what may come again and has to be recognised.

Bounded by the deliveries that the network has under way to this link.  Not thread-safe: its owner locks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat


class Unsettled:
    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}  # tag -> row

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, tags: Sequence[bytes], first: int) -> None:
        """Tags of rows first, first + 1 ...  One that is there already names the later row: the earlier delivery was
        settled, or its tag would not have been given again."""
        self._rows.update(zip(tags, range(first, first + len(tags)), strict=True))

    def remove(self, tags: Iterable[bytes]) -> None:
        """Tags that are not there are passed over."""
        deque(map(self._rows.pop, tags, repeat(None)), maxlen=0)

    def clear(self) -> None:
        self._rows.clear()

    def tags(self) -> list[bytes]:
        """By row."""
        return sorted(self._rows, key=self._rows.__getitem__)

    def lowest(self, default: int) -> int:
        """The first row of them."""
        return min(self._rows.values(), default=default)

    def ranges(self) -> list[tuple[int, int]]:
        """Rows as (first, behind the last), ascending."""
        ranges: list[tuple[int, int]] = []
        for row in sorted(self._rows.values()):
            if ranges and ranges[-1][1] == row:
                ranges[-1] = (ranges[-1][0], row + 1)
            else:
                ranges.append((row, row + 1))
        return ranges
