"""The line in a lock file that says who holds it, whole whenever another process reads it."""

from __future__ import annotations

import os
from typing import Final

_LONGEST: Final = 1000


def write_line(lock: int, line: str) -> None:
    """In place of what an earlier holder wrote.  Raises OSError."""
    # never emptied first: who reads in between has the line of the earlier holder or this one
    data = line.encode() + b"\n"
    os.pwrite(lock, data, 0)
    os.ftruncate(lock, len(data))


def read_line(lock: int) -> str:
    """Empty where nobody has written yet.  What stands behind the first line is the rest of an earlier, longer one."""
    return os.pread(lock, _LONGEST, 0).partition(b"\n")[0].decode(errors="replace")
