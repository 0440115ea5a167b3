"""How long one turn of a router holds the event loop, and for whom.

A turn is what is done without a pause for one connection, for the timers, or to write what all have caused. It takes 10
ms at most: what takes longer is to be done in parts. One that takes longer nevertheless is a fault, and the log names
the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from router.core.counters import BOUNDS_S, Histogram
from router.reporting import Log

SHORT_S: Final = BOUNDS_S[0]
LONG_S: Final = 0.1  # a turn that takes longer is logged

Who = Callable[[], Mapping[str, object]]
"""Of a connection: `client`, `user`, `container`, or `neighbour`."""


def nobody() -> Mapping[str, object]:
    """No connection has caused it alone."""
    return {}


class TurnTimes:
    """Of one router."""

    __slots__ = ("_log", "histogram")

    def __init__(self, log: Log) -> None:
        self._log = log
        self.histogram = Histogram()

    @property
    def count(self) -> int:
        """How many have ended, so that others see whether turns end."""
        return sum(self.histogram.counts)

    def ended(self, seconds: float, what: str, who: Who = nobody) -> None:
        """A turn has taken so long."""
        if seconds <= SHORT_S:  # as `Histogram.observe`, without its call
            self.histogram.counts[0] += 1
            self.histogram.sum_s += seconds
        else:
            self.histogram.observe(seconds, 1)
            self.look(seconds, what, who)

    def look(self, seconds: float, what: str, who: Who = nobody) -> None:
        """Logs a turn that was counted, if it was long."""
        if seconds > LONG_S:
            text = "the event loop has done nothing else for {seconds} s: {what}"
            self._log.warning("turn_long", text, seconds=round(seconds, 3), what=what, **who())
