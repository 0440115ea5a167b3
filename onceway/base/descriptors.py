"""How many files this process may still open: each connection is one.

A process that can open none accepts nobody: not the neighbour that is back, nor whoever asks whether it is healthy. So
clients are refused before that, and what is left is for trunks, the admin listener and accepting. The system gives the
lowest number that is free to what is opened next, so that number says how many are open, at the price of two system
calls.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Final

from router.reporting import Log

CROWDED: Final = 0.8  # of the limit: clients are refused with a word, and it is logged
FULL: Final = 0.9  # clients are refused without one: those that are to read why they are refused hold the rest
QUIET: Final = 0.7  # below it the next time is logged again
STRANGERS: Final = 20  # a listener's strangers may have one in so many


def raise_limit() -> None:
    """To the most that the system lets this process have. Shells allow 1,024, as many as strangers may open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def limit() -> int:
    """How many files this process may have open."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if most != resource.RLIM_INFINITY else 1 << 30


def most_strangers(most: int) -> int:
    """How many connections a listener may have that have not said who they are; most: where files are many."""
    return max(1, min(most, limit() // STRANGERS))


def open_now() -> int:
    """How many files are open; fewer are told where some with lower numbers have been closed."""
    try:
        lowest = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return limit()
    os.close(lowest)
    return lowest


class Descriptors:
    """Of one process: `router.links.limits.Room`. used, most: how many are open, and may be. then: what happens above
    four fifths, for the log."""

    def __init__(
        self,
        log: Log,
        used: Callable[[], int] = open_now,
        most: Callable[[], int] = limit,
        then: str = "clients are refused",
    ) -> None:
        self._log = log
        self._then = then
        self._used = used
        self._most = most
        self._told = False

    def crowded(self) -> bool:
        used, most = self._used(), self._most()
        if used < most * QUIET:
            self._told = False
        if used < most * CROWDED:
            return False
        if not self._told:
            self._told = True
            text = f"{{used}} of {{most}} file descriptors are open: {self._then} until there are fewer"
            self._log.warning("descriptors_low", text, used=used, most=most)
        return True

    def full(self) -> bool:
        return self._used() >= self._most() * FULL

    def check(self, connections: int) -> None:
        """Logs, once at the start, if so many connections of clients cannot be."""
        most = self._most()
        if connections > most * CROWDED:
            text = (
                "this process may open {most} files: clients are refused above {clients}, though limits.connections is "
                "{connections}; raise the limit (LimitNOFILE, ulimit -n), or lower limits.connections"
            )
            clients = int(most * CROWDED)
            self._log.warning("descriptors_few", text, most=most, clients=clients, connections=connections)
