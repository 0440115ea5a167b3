"""A router that a supervisor started dies with it, however that one ends: no orphan keeps a port.

On Linux the kernel sees to it (prctl PR_SET_PDEATHSIG); elsewhere the process looks now and then who its parent is.
SIGKILL is no loss here: a router holds nothing that its peers and clients cannot tell a new one.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
LOOK_EVERY_S: Final = 1.0


def die_with(parent: int) -> None:
    """Call early.  Ends this process at once if `parent` is gone already."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl: {os.strerror(number)}")
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


async def watch(parent: int) -> None:
    """Where there is no prctl: ends this process when `parent` has gone.  Returns at once on Linux."""
    while sys.platform != "linux":
        if os.getppid() != parent:
            os._exit(1)
        await asyncio.sleep(LOOK_EVERY_S)
