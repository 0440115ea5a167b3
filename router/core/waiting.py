"""Why a publisher waits: what its link is told when it has had no credit for some seconds (protocol 6.8).

`Waiting` is made only then, because finding out whom a publisher waits for takes time in proportion to subscriptions.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Final

from router.core.base import BaseAddress
from router.core.ports import Waiting
from router.core.publisher import NO_SUBSCRIBERS, Publisher
from router.names import WaitingReason

TOLD_AFTER_S: Final = 5.0  # without credit; it is told again when the reason has changed, looked at as often
MOST_NAMED: Final = 8  # subscriptions

_REASONS: Final[dict[str, WaitingReason]] = {
    NO_SUBSCRIBERS: "no-subscribers",
    "memory limit": "memory-limit",
    "unsettled window": "unsettled-window",
    "window": "window",
    "window of bytes": "window",
}


def why(address: BaseAddress, publisher: Publisher) -> Waiting | None:
    """Returns what the publisher waits for; None if it has credit, and outcomes may come."""
    core = address.core
    reason = publisher.window.reason
    if not core.may_accept(address) and (publisher.sent.undone or reason):
        recovery = core.recovery.of(address.name, core.now)
        seconds = round(recovery.left_s, 3) if recovery is not None and core.recovery.times.booted else None
        return Waiting("recovering", seconds=seconds, setting="subscription_timeout")
    if not reason:
        return None
    code = _REASONS[reason]
    if code == "window" and not publisher.sent.undone:
        code = "memory-limit"  # no bytes are left of its share of memory_limit
    if code != "window":
        return Waiting(code)
    holders = list(address.holders())
    now = core.now
    left = [inf if entry.declared else entry.timeout_s - entry.age(now) for entry in holders if entry.home is None]
    seconds = round(max(0.0, *left), 3) if left and all(map(isfinite, left)) else None
    return Waiting(
        code,
        len(holders),
        tuple((*entry.name, entry.home or "") for entry in holders[:MOST_NAMED]),
        seconds,
        "" if seconds is None else "subscription_timeout",
    )


class WaitingPublishers:
    """Publishers of one address without credit: since when, and what they were told."""

    __slots__ = ("_told", "address", "since")

    def __init__(self, address: BaseAddress) -> None:
        self.address = address
        self.since: dict[Publisher, float] = {}
        self._told: dict[Publisher, Waiting] = {}

    def told(self, publisher: Publisher) -> Waiting | None:
        """Returns what the publisher was told and still holds."""
        return self._told.get(publisher)

    def note(self, publisher: Publisher, waits: bool) -> None:
        """Its window was looked at."""
        core = self.address.core
        if waits:
            if publisher not in self.since:
                self.since[publisher] = core.now
                core.agenda.due(core.now + TOLD_AFTER_S, self.address)
        elif self.since.pop(publisher, None) is not None and self._told.pop(publisher, None) is not None:
            publisher.port.waiting(None)

    def tick(self) -> None:
        now = self.address.core.now
        for publisher, since in list(self.since.items()):
            if publisher.dropped:
                del self.since[publisher]
                self._told.pop(publisher, None)
            elif now >= since + TOLD_AFTER_S:
                self.since[publisher] = now
                waiting = why(self.address, publisher)
                if waiting is None:
                    self.note(publisher, False)
                elif not waiting.is_like(self._told.get(publisher)):
                    self._told[publisher] = waiting
                    publisher.port.waiting(waiting)

    def deadlines(self) -> list[float]:
        return [min(self.since.values()) + TOLD_AFTER_S] if self.since else []
