"""The client's clocks: monotonic seconds that include the time in which the machine sleeps, and time across processes.

`time.monotonic`, and with it the event loop's clock, stops on Linux and macOS while the machine sleeps. By that clock,
a laptop that wakes in the morning has only just been disconnected, although the network has forgotten its links.

From one process to the next, the wall clock may be set. The clock of the boot goes on, and it is the same for all
processes as long as the machine is not started again: `mark` keeps a time by it, `restore` finds that time again.
"""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from pathlib import Path

# Linux has CLOCK_BOOTTIME; macOS's CLOCK_MONOTONIC is not what time.monotonic reads.  Windows' time.monotonic includes
# sleep.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC if sys.platform == "darwin" else None)


def now_s() -> float:
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def wall_us() -> int:
    return time.time_ns() // 1000


def boot_us() -> int:
    """Since the machine was started; to be compared only under one `boot_id`."""
    return int(now_s() * 1e6)


@cache
def boot_id() -> str:
    """Of the clock that `boot_us` reads; "" where the system names none, as on all but Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # a time namespace has a clock of the boot of its own
        return f"{boot}/{os.readlink('/proc/self/ns/time')}"
    except OSError:
        return ""


def mark(at_us: int) -> str:
    """A time of the wall clock as it is now, by the clock of the boot; "" where there is none."""
    identity = boot_id()
    return f"{identity} {boot_us() - (wall_us() - at_us)}" if identity else ""


def restore(at_us: int, marked: str) -> int:
    """That time by the wall clock as it is now; at_us where the mark is of another boot, or of none."""
    identity, _, at = marked.rpartition(" ")
    if not identity or identity != boot_id():
        return at_us
    return wall_us() - (boot_us() - int(at)) or 1  # 0 would say that there was no contact
