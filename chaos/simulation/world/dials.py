"""A router that dials a neighbour over a network that loses everything: nobody refuses, so it takes time.

The kernel repeats the packet that asks for a connection 1, 3, 7, 15, 31 and 63 seconds after the first, and gives up
after 127 (Linux, tcp_syn_retries = 6). How long a router waits for that is the product's (`interrouter.dialing`); a
product that has no such module, as 0.9.0, waits for the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKETS_AFTER_S = (0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0)
GIVES_UP_AFTER_S = 127.0
DEAD_AFTER_S = 3.0
MODULE = "interrouter.dialing"


class Patient:
    """In the place of `interrouter.dialing.Dialing`: an attempt ends when the kernel says so."""

    def __init__(self, now: float) -> None:
        self.at = now

    def look(self, now: float) -> str | None:
        if now < self.at:
            return None
        self.at = math.inf
        return "DIAL"

    def failed(self, now: float) -> None:
        self.at = now


class Dial:
    """Of one pair of neighbours without a trunk, one of which dials. Nothing has got through so far."""

    def __init__(self, now: float, spread: Callable[[], float]) -> None:
        self.policy = policy(now, spread)
        self.packets: list[float] = []  # of the attempt under way, that are still to be sent
        self.gives_up_at = math.inf

    @property
    def at(self) -> float:
        """When something happens next."""
        return min(self.packets[0] if self.packets else self.gives_up_at, float(self.policy.at))

    def answered(self, now: float) -> bool:
        """Whether a packet is sent at this moment, when packets pass. None that was sent before has."""
        while self.at < now:
            self.happens(self.at)
        return self.at <= now and self.happens(now)

    def happens(self, at: float) -> bool:
        """Whether a packet is sent then."""
        if self.packets and self.packets[0] <= at:
            self.packets.pop(0)
            return True
        if self.policy.at <= at:
            step = self.policy.look(at)
            dials: bool = getattr(step, "name", step) == "DIAL"
            self.packets = [at + after for after in PACKETS_AFTER_S[1:]] if dials else []
            self.gives_up_at = at + GIVES_UP_AFTER_S if dials else math.inf
            return dials
        self.gives_up_at = math.inf
        self.policy.failed(at)
        return False


def policy(now: float, spread: Callable[[], float]) -> Any:
    try:
        module = import_module(MODULE)
    except ModuleNotFoundError:
        return Patient(now)
    return module.Dialing(now, dead_after_s=DEAD_AFTER_S, spread=spread)
