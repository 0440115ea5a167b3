"""When the network last knew of a link, and how long it waits for one that is disconnected; back-off (protocol 15).

A *contact* is a time at which the network still knew the link: the time of a question that was answered.  The time at
which an answer is read proves nothing: this process may have been suspended, or the machine asleep, while the answer
lay in a buffer.  So the endpoint asks from time to time, and each link says when (`asks`, `answered`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random

BACKOFF_FIRST_S = 0.05
BACKOFF_LAST_S = 5.0
ASKED_IN_TIMEOUT = 16  # questions in the time that the network waits
NOTED_IN_TIMEOUT = 8  # contacts written to the journal in that time
NO_CONTACT = "no contact"  # how a reason begins that we have found by counting


def margin_s(timeout_s: float) -> float:
    """How long before the network we give up: a quarter of the timeout, at most 5 s (protocol 12)."""
    return min(5.0, timeout_s / 4)


def backoff_s(failures: int, rng: Random) -> float:
    """How long to wait before something is tried again: from 50 ms to 5 s, with jitter (protocol 15)."""
    ceiling = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(failures, 16))
    return rng.uniform(max(BACKOFF_FIRST_S, ceiling / 2), ceiling)


class Contact:
    """The contact of one link, over all its attachments.  The wall clock counts only from one process to the next."""

    __slots__ = ("_at", "_unknown_absence_s", "_wall_us", "ask_at", "known_from", "noted", "then_us", "timeout_s")

    def __init__(self, then_us: int, timeout_s: float, *, wall_us: Callable[[], int], unknown_absence_s: float) -> None:
        """then_us, timeout_s: as the last process knew them.

        unknown_absence_s: how long the absence was if the wall clock was set back meanwhile.
        """
        self.timeout_s = timeout_s  # how long the network waits for the link; 0: not known
        self.then_us = then_us  # the last contact by the wall clock, for the next process; 0: none
        self.known_from: float | None = None  # since when the network knows of this attachment; None: perhaps not
        self.ask_at: float | None = None  # when it is to be asked again
        self.noted: float | None = None  # when the journal was last told
        self._at: float | None = None  # the network had this link then, or later
        self._wall_us = wall_us
        self._unknown_absence_s = unknown_absence_s

    # -- of an attachment

    def attached(self) -> None:
        """A new attachment, which the network may not know of yet."""
        self.known_from = self.ask_at = None

    def known(self, now: float, ask_at: float) -> None:
        """From now on, every answer of the network shows that it knows of this attachment."""
        self.known_from = now
        self.ask_at = ask_at if self.timeout_s else None

    def asks(self, now: float) -> bool:
        """Whether it is time to ask the router."""
        if self.ask_at is None or now < self.ask_at:
            return False
        self.ask_at = self.next_question(now)
        return True

    def next_question(self, after: float) -> float:
        return after + self.timeout_s / ASKED_IN_TIMEOUT

    def answered(self, asked_at: float) -> bool:
        """The router has answered the question of that time.  Returns whether that is a contact."""
        if self.known_from is None or asked_at < self.known_from or not self.timeout_s:
            return False
        self.heard(asked_at)
        self.ask_at = self.next_question(asked_at)
        return True

    # -- of the link

    def heard(self, at: float) -> None:
        self._at = at if self._at is None else max(self._at, at)

    def forget(self) -> None:
        """The network has forgotten the link."""
        self._at = None
        self.then_us = 0

    def to_be_noted(self, now: float) -> bool:
        return self.noted is None or now - self.noted >= self.timeout_s / NOTED_IN_TIMEOUT

    def note(self, now: float) -> int:
        """The last contact by the wall clock, in us, for the journal."""
        self.noted = now
        if self._at is not None:
            self.then_us = self._wall_us() - round((now - self._at) * 1e6)
        return self.then_us

    def resume(self, now: float) -> None:
        """Continues the last process's contact on this process's clock, which does not jump."""
        if self._at is None and self.then_us:
            self._at = now - self.absence_s(now)

    def absence_s(self, now: float) -> float:
        """Seconds since the last contact; 0 if there was none."""
        if self._at is not None:
            return now - self._at
        if self.then_us:
            away = (self._wall_us() - self.then_us) / 1e6
            # A clock that was set back while no process was there says nothing; a little is drift.
            return max(0.0, away) if away > -margin_s(self.timeout_s) else self._unknown_absence_s
        return 0.0

    def overdue(self, now: float) -> str | None:
        """Why the network may have forgotten this link; None if it cannot have."""
        timeout = self.timeout_s
        away = self.absence_s(now)
        if not timeout or away <= timeout - margin_s(timeout):
            return None
        known = "an unknown time: the clock was set back" if away == inf else f"{away:.0f} s"
        return f"{NO_CONTACT} for {known}, and the network waits for {timeout:.0f} s"
