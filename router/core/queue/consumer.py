"""How a consumer of a queue is known at both ends: its credit, and the one that stands for those that have gone."""

from __future__ import annotations

from typing import Final

from router.core.messages import SubscriptionName
from router.core.ports import Term


class Grant:
    """Deliveries that one ingress may assign to one consumer: `limit` in this round, of which `used` are assigned.
    stopped: something had to go back, and the round is over."""

    __slots__ = ("limit", "round", "stopped", "used")

    def __init__(self) -> None:
        self.round = 0
        self.limit = 0
        self.used = 0
        self.stopped = False

    def begin(self, number: int) -> None:
        self.round = number
        self.limit = self.used = 0
        self.stopped = False

    @property
    def left(self) -> int:
        return self.limit - self.used


NOBODY: Final[SubscriptionName] = ("", "\0accepted")
"""Stands for the consumers that have gone: what these have accepted, their router remembers (protocol 16.7)."""
NOBODYS_TERM: Final[Term] = (0, "")
