"""When a router dials a neighbour, and how long it waits for the answer (docs/wire-routers.md, Trunks). Sans-IO.

    dialing = Dialing(now, dead_after_s=3.0, spread=lambda: rng.uniform(0.5, 1.0))
    dialing.at                # when to call `look`; infinite while a connection is there
    match dialing.look(now):
        case Step.DIAL: ...   # begin to connect, and say what comes of it: `answered` or `failed`
        case Step.GIVE_UP: ...# end the attempt under way: it is over, and `at` is when the next one begins
        case None: ...        # it is not time yet
    dialing.answered(now)     # the attempt is a connection now: the first byte can be sent
    dialing.failed(now)       # the attempt has failed: refused, no route, no such name
    dialing.lost(now)         # the connection has ended, whether or not it was ever a trunk
    dialing.sign(now)         # something shows that the network, or the neighbour, is there

The kernel repeats the packet that asks for a connection less and less often, after a minute once a minute. So an
attempt is given up long before a neighbour would be taken for dead, and the next one asks anew at once: after a cut of
any length the neighbours meet again as soon as packets pass. Without an answer, attempts begin at most `DIAL_MOST_S` or
the length of an attempt apart. A connection that never becomes a trunk has a bound of its own, `AmqpTrunk`'s handshake.

A sign makes the next attempt begin now. It ends an attempt that has waited for a while, as that one's packet may be
lost; but not one that a sign has begun, so that a neighbour far away can answer however often there are signs.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from math import inf
from typing import Final

DIAL_FIRST_S: Final = 0.05
DIAL_MOST_S: Final = 1.0
DIAL_EAGERLY_S: Final = 3.0  # after the loss, or a sign: routers that are started together listen within that time
ATTEMPT: Final = 1 / 3  # of dead_after
ATTEMPT_LEAST_S: Final = 0.25  # an answer from the other side of the earth takes as long
ATTEMPT_MOST_S: Final = 5.0  # no answer takes as long
WAITED: Final = 0.25  # of an attempt's length, after which a sign ends it


class Step(Enum):
    DIAL = auto()
    GIVE_UP = auto()


class Dialing:
    """Of one neighbour. It begins with an attempt at once."""

    def __init__(self, now: float, *, dead_after_s: float, spread: Callable[[], float]) -> None:
        """spread: draws the part of a pause that is waited, so that many routers do not dial at the same time."""
        self.dead_after_s = dead_after_s
        self.at = now
        self._spread = spread
        self._pause_s = DIAL_FIRST_S
        self._eager_until = now + DIAL_EAGERLY_S
        self._began = now  # the last attempt
        self._under_way = False  # an attempt is
        self._connected_at: float | None = None
        self._again = False  # a sign wants an attempt now
        self._prompted = False  # a sign has begun the attempt under way

    @property
    def attempt_s(self) -> float:
        """How long an attempt may take."""
        return min(max(self.dead_after_s * ATTEMPT, ATTEMPT_LEAST_S), ATTEMPT_MOST_S)

    def look(self, now: float) -> Step | None:
        """What is to be done now."""
        if now < self.at:
            return None
        if self._under_way:
            self.failed(now)
            return Step.GIVE_UP
        self._under_way = True
        self._prompted, self._again = self._again, False
        self._began = now
        self.at = now + self.attempt_s
        return Step.DIAL

    def answered(self, now: float) -> None:
        assert self._under_way
        self._under_way = self._again = False
        self._connected_at = now
        self.at = inf

    def failed(self, now: float) -> None:
        assert self._under_way
        self._under_way = False
        if self._again:
            self.at = now
        else:
            self._dial_later(now)

    def lost(self, now: float) -> None:
        assert self._connected_at is not None
        if now - self._connected_at > self.dead_after_s:  # it was a trunk: the other side may be there again soon
            self._began = now
            self._hurry(now)
        else:
            self._eager_until = -inf  # it listens, and refuses us: only a change of its file helps
        self._connected_at = None
        self._dial_later(now)

    def sign(self, now: float) -> None:
        if self._connected_at is not None or (self._under_way and self._prompted):
            return
        self._hurry(now)
        if not self._under_way:
            self._again = True
            self.at = min(self.at, max(now, self._began + DIAL_FIRST_S))
        elif now - self._began >= WAITED * self.attempt_s:
            self._again = True
            self.at = now

    def _hurry(self, now: float) -> None:
        self._pause_s = DIAL_FIRST_S
        self._eager_until = now + DIAL_EAGERLY_S

    def _dial_later(self, now: float) -> None:
        """A pause lasts from the beginning of one attempt to that of the next, as waiting for an answer is one, too."""
        self.at = max(now, self._began + self._pause_s * self._spread())
        if now > self._eager_until:
            self._pause_s = min(self._pause_s * 2, DIAL_MOST_S)
