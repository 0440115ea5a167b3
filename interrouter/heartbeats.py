"""When this router sends heartbeats, and from when on another one is taken for lost. Read network.py.

Neighbours send something every `heartbeat_s`; a neighbour is lost after `dead_after_s` of silence. A wake-up of an idle
process costs more than a heartbeat, so a neighbour's brings ours forward.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from interrouter.trunk import Trunk

FOLLOWS: Final = 0.5  # heartbeats: ours that is due within this time goes when a neighbour's comes
LEADS: Final = 0.98  # heartbeats to our next one when none came: those who follow are not woken by their own timers


class Heartbeats:
    def __init__(self, heartbeat_s: float, dead_after_s: float, rng: random.Random, now: float) -> None:
        # Spread the heartbeats of routers that start together.
        self._next = now + heartbeat_s * (0.5 + rng.random() / 2)
        self._silence = inf  # when somebody may have been silent for too long
        self.deadline = self._next
        """When to send, or to see who is silent."""
        self.heard = False
        """Until `follow`."""
        self.followed = False
        """Ours was brought forward: a timer that was set for it is of no use."""
        self.set_times(heartbeat_s, dead_after_s, now)

    def set_times(self, heartbeat_s: float, dead_after_s: float, now: float) -> None:
        self.heartbeat_s, self.dead_after_s = heartbeat_s, dead_after_s
        self.pause_s = dead_after_s / 2
        """Longer than between two looks at the time, unless this process has paused."""
        self._next = min(self._next, now + heartbeat_s)
        self.deadline = min(self._next, self._silence)

    def missed(self, now: float) -> bool:
        """Says whether our timer is late by a pause of this process."""
        return now > self._next + self.pause_s

    def hear(self) -> None:
        """A neighbour's has come."""
        self.heard = True

    def follow(self, now: float) -> bool:
        """A neighbour's has come since the last flush. Says whether ours goes now, too."""
        self.heard = False
        follows = self._next - now < FOLLOWS * self.heartbeat_s
        self.followed = self.followed or follows
        return follows

    def timer_set(self) -> None:
        self.followed = False

    def begin(self, now: float, pause: float) -> None:
        """Ours goes now. pause: heartbeats until the next."""
        self._next = now + pause * self.heartbeat_s

    def is_silent(self, trunk: Trunk, now: float) -> bool:
        return now >= trunk.last_received + self.dead_after_s

    def is_due(self, trunk: Trunk, now: float) -> bool:
        """Says whether the neighbour has got nothing for so long that it needs one."""
        return now - trunk.last_sent >= 0.9 * FOLLOWS * self.heartbeat_s

    def watch(self, trunks: Iterable[Trunk], session: float | None) -> None:
        """session: when a peer may have been silent for too long, which none of these trunks shows."""
        silences = [trunk.last_received + self.dead_after_s for trunk in trunks]
        self._silence = min(silences if session is None else [*silences, session], default=inf)
        self.deadline = min(self._next, self._silence)
