"""Whether a process works or hangs: it works while the turns of its event loop end.

One answer that comes late says nothing: the machine may be busy, many may ask, or descriptors may be out. So watchdogs
look at a count of turns that have ended. While it stands still, they count the time in which a turn could have ended:
that in which the main thread has had the CPU, or has not wanted it, because it waits for a lock or was stopped. A
process that others leave no CPU, or that waits for the disk, is slow, and a new one would be no faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
RUNS, DISK = "R", "D"
"""States of a thread (proc(5)): it has the CPU or waits for it; it waits for the disk, or for memory from there."""

MainThread = Callable[[int], tuple[str, float] | None]
"""Process id -> state of its main thread, and the CPU seconds that it has had; None: that is not known."""


def main_thread(pid: int) -> tuple[str, float] | None:
    """As Linux tells it; elsewhere, or if there is no such process, None."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # behind the name, which may have spaces
    return fields[0], (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class Patience:
    """Of one process.

    Attributes:
        silent_s: Seconds since a turn is known to have ended, of those in which one could have.
    """

    def __init__(self, pid: int, now: float, most_of_a_look_s: float, thread: MainThread = main_thread) -> None:
        """most_of_a_look_s: What the time between two looks counts for at most: who looks may have stood still."""
        self.silent_s = 0.0
        self._pid = pid
        self._most_s = most_of_a_look_s
        self._thread = thread
        self._looked_at = now
        self._turns: int | None = None
        self._cpu_s = 0.0

    def look(self, now: float, turns: int | None, *, answered: bool = False) -> None:
        """turns: How many have ended, if that is known. answered: A question was, which is a turn's work."""
        found = self._thread(self._pid)
        spent_s = min(now - self._looked_at, self._most_s)
        self._looked_at = now
        if found is not None:
            state, cpu_s = found
            if state in (RUNS, DISK):
                spent_s = min(spent_s, cpu_s - self._cpu_s)
            self._cpu_s = cpu_s
        if answered or (turns is not None and turns != self._turns):
            self._turns, self.silent_s = turns if turns is not None else self._turns, 0.0
        else:
            self.silent_s += spent_s
