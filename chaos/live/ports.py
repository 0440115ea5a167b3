"""Loopback ports for processes that are started, killed and started again on the same port.

They lie below the kernel's ephemeral range, so that no outgoing connection can sit on the port of a router that is
about to come back, and are locked for as long as the process that asked lives, so that runs beside each other never
meet.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_PORTS = range(20_000, 32_000)
_locks: list[int] = []  # of the ports that this process uses, to its end
_draw = random.Random()


def free_port() -> int:
    """A loopback port that is free now, outside the ephemeral range, and that no other test process gets meanwhile."""
    directory = Path(tempfile.gettempdir()) / f"onceway-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    while True:
        port = _draw.choice(_PORTS)
        lock = os.open(directory / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                os.close(lock)
                continue
        _locks.append(lock)
        return port
