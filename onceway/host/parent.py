"""A router dies with the supervisor that started it, however that ends: no orphan keeps a port.

On Linux the kernel ensures this (prctl PR_SET_PDEATHSIG); elsewhere the process polls its parent's id. SIGKILL loses
nothing: a new router learns everything from its peers and clients.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onceway.host.start import Start

_PR_SET_PDEATHSIG: Final = 1
LOOK_EVERY_S: Final = 1.0


def own_command() -> list[str]:
    """This program again. Modules of the directory where it runs count only if they do here: a directory named `mqtt`
    there is not ours."""
    return [sys.executable, *([] if str(Path.cwd()) in sys.path else ["-P"]), "-m", "onceway"]


def die_with(parent: int) -> None:
    """Call early.  Ends this process at once if `parent` is gone already."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl: {os.strerror(number)}")
    if os.getppid() != parent:  # the parent died before the call
        os._exit(1)


async def watch(parent: int) -> None:
    """Where there is no prctl, ends this process when `parent` has ended.  Returns at once on Linux."""
    while sys.platform != "linux":
        if os.getppid() != parent:
            os._exit(1)
        await asyncio.sleep(LOOK_EVERY_S)


CommandFor = Callable[[str, "Start"], Sequence[str]]
"""Name of a router and how it starts -> the command line of its process."""


def router_command(topology_file: str, state: Path | None = None, options: Sequence[str] = ()) -> CommandFor:
    """`python -m onceway router FILE NAME` with these options too, tied to this process. `state`: the network's state
    directory."""

    def command(name: str, start: Start) -> list[str]:
        argv = [*own_command(), "router", topology_file, name, "--parent", str(os.getpid()), *options]
        if state is not None:
            argv += ["--state-dir", str(state.parent)]
        if start.broken_file:
            argv += ["--broken-file", start.broken_file]
        if start.age_s is not None:
            argv += ["--age", f"{start.age_s:.3f}"]
        return [*argv, "--fresh"] if start.fresh else argv

    return command
