"""What runs a network elsewhere: units for systemd, a Compose file, and the objects of a
Kubernetes namespace.

Each module here turns a topology into text and writes nothing. `plan` says what containers need: ports, files, stores;
`placed` rewrites a topology file for them, which get names and addresses of their own. What all of them derive from the
topology is in this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Final

from onceway.base import waits
from onceway.base.descriptors import CROWDED
from onceway.topology import Topology

USER: Final = 10001  # the image's, and its group
STOP_GRACE_S: Final = int(waits.STOP_ROUTER.s) + 15
"""Seconds from SIGTERM to SIGKILL: more than the drain of a router, and of a supervisor that waits for its routers."""
WATCHDOG_S: Final = int(waits.TURN.s)
"""Seconds without a sign of life after which systemd kills and restarts the service."""
SPARE_FILES: Final = 256  # sessions with neighbours, listeners, control and admin connections, libraries
PROCESS_BYTES: Final = 128 << 20  # of a router that knows nobody


def open_files(topology: Topology, names: Iterable[str]) -> int:
    """File descriptors that the greediest of these routers may need, so that no client is refused for them below its
    limits, rounded up to a power of two, so that these can be raised a little by `onceway reload`.
    """
    most = 0
    for name in names:
        limits = topology.router_config(name).limits
        most = max(most, limits.connections + limits.half_open + 2 * len(topology.neighbours(name)) + SPARE_FILES)
    return 1 << (ceil(most / CROWDED) - 1).bit_length()


def memory_request(topology: Topology) -> int:
    """Bytes that a router needs when it holds as much payload as `memory_limit` allows."""
    return PROCESS_BYTES + topology.settings.memory_limit


def memory_most(topology: Topology) -> int:
    """Bytes that a router may take: twice `memory_limit` in payload, once in incomplete messages, once in unread
    output, half of it in names (docs/operating/capacity.md).
    """
    return PROCESS_BYTES + topology.settings.memory_limit * 9 // 2
