"""Connections' own deadlines (idle-time-outs), and what the process does now and then.

They are seconds away. Checking them four times a second costs less than a timer for each that moves with every read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

from onceway.base.heap import Trimming
from router.core.counters import Histogram

if TYPE_CHECKING:
    from onceway.serve.server import RouterServer
    from onceway.serve.transport import Carried, Carrier

SWEEP_S: Final = 0.25  # how often connections' own timers are looked at
ALONE_S: Final = 1.0  # the same without clients: those of neighbours can wait
EARLY_S: Final = 0.1  # so much earlier, where an idle process is awake for its heartbeats
SWEPT: Final = 512  # and at how many at once: 10,000 take some 20 ms


class Sweep:
    def __init__(self, server: RouterServer) -> None:
        self._server = server
        self.looks: list[Callable[[], None]] = []  # what the process does now and then, between two turns
        self.loop_lag = Histogram()
        self._trimming = Trimming()
        self._left: list[tuple[Carried, Carrier]] = []  # of the connections to look at
        self._many = 0  # how many they were
        self._at = inf  # when the next look is due
        self._handle: asyncio.Handle | None = None

    def look(self) -> None:
        """One that nothing was written to since it was looked at last is left until its deadline then. Where many are
        looked at, they take turns, so that no message waits for all."""
        server = self._server
        now = server.time()
        if self._at < now:
            self.loop_lag.observe(now - self._at, 1)
        due = False
        some = self._left
        if not some:
            some = [each for each in server.carriers.items() if each[1].look_at <= now]
            self._many = len(some)
        self._left = some[SWEPT:]
        for carried, carrier in some[:SWEPT]:
            carrier.excuse(now)
            deadline = carried.next_deadline()
            carrier.look_at = inf if deadline is None else deadline
            if deadline is not None and deadline <= now:
                carried.handle_timer(now)
                due = True
        if due:
            server.turn()
        for look in self.looks:
            look()
        self._trimming.look(server.router.held_bytes, now)
        server.turn_times.ended(server.clock() - now, "timers of connections, and memory that is given back")
        alone = not server.router.connections and not server.router.mqtt.connections
        self._look_in((ALONE_S if alone else SWEEP_S) * min(SWEPT / max(self._many, 1), 1.0))

    def _look_in(self, pause: float) -> None:
        self._at = self._server.time() + pause
        self._handle = self._server.loop.call_later(pause, self.look)

    def client_came(self, now: float) -> None:
        """Where there was none the next look is far."""
        if self._handle is not None and self._at > now + SWEEP_S:
            self._handle.cancel()
            self._look_in(SWEEP_S)

    def awake(self, now: float) -> None:
        """The process is awake for its heartbeats."""
        if self._handle is not None and self._at - now < EARLY_S:
            self._handle.cancel()
            self._handle = self._server.loop.call_soon(self.look)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
