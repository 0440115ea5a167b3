"""Gives free memory back to the system after a peak.

The C library's allocator keeps what Python frees: pages in the middle of its heap stay with the process until
`malloc_trim`. A router that once held hundreds of MiB would keep them for good.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

LOOK_EVERY_S: Final = 5.0
AGAIN_S: Final = 30.0  # after a trim that left more than was there before the peak
SLACK: Final = 32 << 20  # bytes of free memory that are left with the process

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
