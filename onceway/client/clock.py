"""The client's clock: seconds since some moment, which no setting of the time changes and which go on in a sleep.

An event loop's clock stands still while the machine sleeps, as `time.monotonic` does on Linux and macOS, and the
network's does not: by it a laptop that is opened in the morning has been away since a moment ago.  Where no clock is
known to go on in a sleep, `time.monotonic` it is (Windows' does).
"""

from __future__ import annotations

import sys
import time

# Linux has one for it; macOS's monotonic one goes on, which is not the one that time.monotonic reads.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC if sys.platform == "darwin" else None)


def now_s() -> float:
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
