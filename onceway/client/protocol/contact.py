"""When the network last had a link, and for how long it waits for one that is away.

*Contact* is a time at which the network still had the link: when we said something that it has answered since.  What
is read says nothing of when it was written, as this process may have stood still (suspended, a machine asleep) while it
lay in a buffer; so that the endpoint asks from time to time, and each link says when (`asks`, `answered`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

ASKED_IN_TIMEOUT = 16  # so many times within the time that the network waits it is asked whether it is there
NOTED_IN_TIMEOUT = 8  # and so many times the journal is told, which costs a write to the disk


def margin_s(timeout_s: float) -> float:
    """PROTOCOL 12: what is taken off a timeout so that we give up before the network does."""
    return min(5.0, timeout_s / 4)


class Contact:
    """Of one link, over all its attachments; the wall clock only where another process goes on."""

    __slots__ = ("_at", "_unknown_absence_s", "_wall_us", "ask_at", "known_from", "noted", "then_us", "timeout_s")

    def __init__(self, then_us: int, timeout_s: float, *, wall_us: Callable[[], int], unknown_absence_s: float) -> None:
        """As the last process knew it; unknown_absence_s: what is assumed where the clock does not say."""
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
        """Whether the network knows of the new attachment is not known yet."""
        self.known_from = self.ask_at = None

    def known(self, now: float, ask_at: float) -> None:
        """From now on the network knows us if it is there."""
        self.known_from = now
        self.ask_at = ask_at if self.timeout_s else None

    def asks(self, now: float) -> bool:
        """Whether the router is to be asked now if it is there."""
        if self.ask_at is None or now < self.ask_at:
            return False
        self.ask_at = self.next_question(now)
        return True

    def next_question(self, after: float) -> float:
        return after + self.timeout_s / ASKED_IN_TIMEOUT

    def answered(self, asked_at: float) -> bool:
        """The router has answered what it was asked then.  Whether that says anything of the link."""
        if self.known_from is None or asked_at < self.known_from or not self.timeout_s:
            return False
        self.heard(asked_at)
        self.ask_at = self.next_question(asked_at)
        return True

    # -- of the link

    def heard(self, at: float) -> None:
        self._at = at if self._at is None else max(self._at, at)

    def forget(self) -> None:
        """The network knows the link no more."""
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
        """What another process knew by the wall clock goes on by ours: the wall clock may jump."""
        if self._at is None and self.then_us:
            self._at = now - self.absence_s(now)

    def absence_s(self, now: float) -> float:
        """How long the network has not been heard of; 0 where it never was."""
        if self._at is not None:
            return now - self._at
        if self.then_us:
            away = (self._wall_us() - self.then_us) / 1e6
            # A clock that was set back while no process was there says nothing; a little is drift.
            return max(0.0, away) if away > -margin_s(self.timeout_s) else self._unknown_absence_s
        return 0.0

    def overdue(self, now: float) -> str | None:
        """Why the network may have forgotten this link; None: it has not."""
        timeout = self.timeout_s
        away = self.absence_s(now)
        if not timeout or away <= timeout - margin_s(timeout):
            return None
        known = "an unknown time: the clock was set back" if away == inf else f"{away:.0f} s"
        return f"no contact for {known}, and the network waits for {timeout:.0f} s"
