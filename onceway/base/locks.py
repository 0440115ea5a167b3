"""Locks between processes of one host: for as long as a process lives, or with a bound."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final

from onceway.base.waits import Wait

AGAIN_S: Final = 0.05


def take(descriptor: int, row: Wait, place: Path) -> None:
    """Takes the lock of an open file, or directory. TimeoutError, which names the process that has it: not within the
    row's bound. flock(2) has no timeout, and a signal would interrupt the whole process: so it is tried again."""
    end = time.monotonic() + row.s
    while True:
        try:
            row(fcntl.flock)(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                who = _holder(descriptor)
                text = f"{place}: {who} has had the lock for {row.s:g} s; let it end, or end it, and try again"
                raise TimeoutError(text) from None
        time.sleep(AGAIN_S)


def keep(descriptor: int) -> str:
    """Takes the lock of an open file until this process ends, and writes its number there. Returns the number of the
    process that has it, or `?`; empty: this one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "?"
    with contextlib.suppress(OSError):  # a full disk: only another process's error message lacks the number
        os.pwrite(descriptor, b"%-20d" % os.getpid(), 0)
    return ""


def _holder(descriptor: int) -> str:
    """As Linux tells it in proc_locks(5)."""
    inode = str(os.fstat(descriptor).st_ino)
    try:
        rows = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return "another process"
    holders = [row.split()[4] for row in rows if f":{inode} " in row and " FLOCK " in row and " -> " not in row]
    return f"process {holders[0]}" if holders else "another process"
