"""Gives free memory back to the system after a peak, and keeps Python's garbage collections short.

The C library's allocator keeps what Python frees: pages in the middle of its heap stay with the process until
`malloc_trim`. A router that once held hundreds of MiB would keep them for good.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

LOOK_EVERY_S: Final = 5.0
AGAIN_S: Final = 30.0  # after a trim that left more than was there before the peak
SLACK: Final = 32 << 20  # bytes of free memory that are left with the process
M_TRIM_THRESHOLD: Final = -1  # of <malloc.h>
M_MMAP_THRESHOLD: Final = -3
LONG_S: Final = 0.05  # of a full collection
WORTH: Final = 1_000  # connections, links and addresses: a full collection for some MB

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """The process's resident memory; None where the system does not say."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        return None


def trimmer() -> Callable[[], None] | None:
    """glibc's malloc_trim; None with another C library.

    It takes about 0.1 ms for each MiB that it gives back, and nothing can be allocated meanwhile, in whichever thread
    it runs."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return lambda: trim(0)


def keep_free_memory() -> None:
    """Makes glibc keep memory that becomes free until `Trimming` gives it back. By default it returns at once what
    exceeds twice the largest payload, and every page of the next payload is a fault: 200 to 400 for a message of 1 MB.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
    mallopt(M_TRIM_THRESHOLD, 8 * SLACK)


class Trimming:
    """`look` now and then, from the event loop."""

    def __init__(
        self,
        trim: Callable[[], None] | None = None,
        resident: Callable[[], int | None] = resident_bytes,
    ) -> None:
        self._trim = trim or trimmer()
        self._resident = resident
        # Resident memory beside what is held: the least that was seen, and what was left by the last trim.
        self._least: int | None = None
        self._left = 0
        self._trimmed = 0.0
        self._next = 0.0

    def look(self, held: int, now: float) -> None:
        """held: bytes of payload, incomplete messages and output that are kept now."""
        if now < self._next or self._trim is None:
            return
        self._next = now + LOOK_EVERY_S
        resident = self._resident()
        if resident is None:
            return
        beside = resident - held
        if self._least is None or beside < self._least:
            self._least = beside
        slack = SLACK + held // 4
        # What a trim leaves may be in use (names, maps, overhead of messages), or become free later unseen.
        if beside - self._least > slack and (beside - self._left > slack or now >= self._trimmed + AGAIN_S):
            self._trim()
            self._trimmed = now
            self._left = (self._resident() or resident) - held


class Freezing:
    """`collected` belongs into gc.callbacks; `look` now and then, from the event loop.

    A full collection visits every object, and the process stands still meanwhile: a second for 10,000 links. Whatever a
    long one has visited is frozen, so that the next ones visit what is newer. No collection finds garbage among what is
    frozen, so all of it is thawed when as much has gone since as is left; or when as much has been frozen again, which
    needs nobody to say what has gone. Python collects where something is made: a router that has become idle is made to
    collect by `look`.
    """

    def __init__(
        self,
        population: Callable[[], tuple[int, int]],
        *,
        freeze: Callable[[], None] = gc.freeze,
        thaw: Callable[[], None] = gc.unfreeze,
        frozen: Callable[[], int] = gc.get_freeze_count,
        collect: Callable[[], object] = gc.collect,
        trim: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """population: how much there is of what clients make, and how much there has been that is gone. frozen: how
        many objects are."""
        self._population = population
        self._freeze = freeze
        self._thaw = thaw
        self._frozen = frozen
        self._collect = collect
        self._trim = trim or trimmer()
        self._clock = clock
        self._began = 0.0
        self._gone = 0  # when all garbage was found last
        self._first = 0  # objects that were frozen first since then; 0: none

    def collected(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < 2:
            return
        there, gone = self._population()
        if phase == "start":
            self._began = self._clock()
            if self._first and (gone - self._gone > there or self._frozen() > 2 * self._first):
                self._thaw()
                self._first = 0
            return
        if not self._first:
            self._gone = gone
        if self._clock() - self._began > LONG_S:
            self._freeze()
            self._first = self._first or self._frozen()

    def look(self) -> None:
        """Collects where as much has gone as is left, and enough to be worth it, and gives back what that took."""
        there, gone = self._population()
        if gone - self._gone > max(there, WORTH):
            self._collect()
            if self._trim is not None:
                self._trim()
