"""Rows on their way into the log, until there are enough for a group, no more come or the first has waited long enough.

A publisher may send only so many messages ahead of their outcome (the router's window), so waiting for more than come
would hold it up: its window per groupMs would be all that it could send.

Not thread-safe: its owner locks.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from onceway.spark.wal.settings import WalSettings

# Parts of groupMs: so long without a row and none is on its way; groups that are not full are so far apart.
QUIET: Final = 0.02
APART: Final = 0.1


class Run(NamedTuple):
    """Rows that came together."""

    payloads: Sequence[bytes]
    tags: Sequence[bytes]
    received_us: int
    octets: int  # of payload


class Gathering:
    __slots__ = ("_flush", "_last", "_runs", "_settings", "_since", "_taken", "octets", "rows")

    def __init__(self, settings: WalSettings) -> None:
        self.rows = 0
        self.octets = 0
        self._settings = settings
        self._runs: deque[Run] = deque()
        self._since = 0.0  # when the first of them came
        self._last = 0.0  # and the last
        self._taken = -math.inf  # when the last group was
        self._flush = 0  # of the first rows, so many wait for no others

    def add(self, run: Run, now: float) -> None:
        if not self._runs:
            self._since = now
        self._last = now
        self._runs.append(run)
        self.rows += len(run.payloads)
        self.octets += run.octets

    def flush(self) -> None:
        """Those that are here wait for no others."""
        self._flush = self.rows

    def full(self) -> bool:
        return self.rows >= self._settings.group_rows or self.octets >= self._settings.group_bytes

    def wait_s(self, now: float) -> float | None:
        """How long until a group is due; at most 0: now.  None: there are no rows."""
        if not self.rows:
            return None
        if self._flush or self.full():
            return 0.0
        longest = self._settings.group_ms / 1000
        return min(self._since + longest, max(self._last + longest * QUIET, self._taken + longest * APART)) - now

    def take(self, now: float) -> list[Run]:
        """The rows of one group, at least one; the last run may be a piece of one."""
        room, octets = self._settings.group_rows, self._settings.group_bytes
        group: list[Run] = []
        while self._runs and room:
            run = self._runs[0]
            if len(run.payloads) <= room and run.octets <= octets:
                group.append(self._runs.popleft())
                room -= len(run.payloads)
                octets -= run.octets
                continue
            sizes = list(accumulate(map(len, run.payloads[:room])))
            fits = bisect_right(sizes, octets) or (0 if group else 1)
            if fits:
                size = sizes[fits - 1]
                group.append(Run(run.payloads[:fits], run.tags[:fits], run.received_us, size))
                left = Run(run.payloads[fits:], run.tags[fits:], run.received_us, run.octets - size)
                if left.payloads:
                    self._runs[0] = left
                else:
                    self._runs.popleft()
            break
        count = sum(len(run.payloads) for run in group)
        self.rows -= count
        self.octets -= sum(run.octets for run in group)
        self._flush = max(0, self._flush - count)
        self._since = self._taken = now
        return group
