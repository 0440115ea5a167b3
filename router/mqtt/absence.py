"""What becomes of a session while its client is away: its will is published, and its time ends."""

from __future__ import annotations

from mqtt import Will


class Absence:
    """Of one session, also while its client is there."""

    __slots__ = ("ends_at", "expiry_s", "timer", "will", "will_at")

    def __init__(self, expiry_s: float) -> None:
        self.expiry_s = expiry_s
        self.will: Will | None = None
        self.will_at: float | None = None
        self.ends_at: float | None = None
        self.timer: float | None = None  # when the session is looked at (`router.mqtt.turn.Timers`)

    def over(self, will: Will | None) -> None:
        """The client is there, with this will."""
        self.will = will
        self.will_at = self.ends_at = None

    def begin(self, now: float) -> None:
        if self.will is not None:
            self.will_at = now + min(self.will.properties.will_delay_s or 0, self.expiry_s)
        self.ends_at = now + self.expiry_s

    def take_will(self) -> Will:
        will, self.will, self.will_at = self.will, None, None
        assert will is not None
        return will

    def is_will_due(self, now: float) -> bool:
        return self.will_at is not None and now >= self.will_at

    def has_ended(self, now: float) -> bool:
        return self.ends_at is not None and now >= self.ends_at

    def next_deadline(self) -> float | None:
        return min([at for at in (self.will_at, self.ends_at) if at is not None], default=None)
