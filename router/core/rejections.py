"""What a router rejects itself, for its log: a line with a count for an address and a condition, not one a message
(protocol 6.4.9)."""

from __future__ import annotations

from typing import Final

from router.core.agenda import INF
from router.core.ports import Refusal
from router.reporting import Log

EVERY_S: Final = 10.0  # lines are written at most so often


class Rejections:
    """One router's."""

    __slots__ = ("_log", "_next_s", "_noted")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next_s = -INF
        # (address, condition) -> how many; the last one's subscription, and what was said of it
        self._noted: dict[tuple[str, str], tuple[int, tuple[str, str], str]] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, address: str, subscription: tuple[str, str], refusal: Refusal, number: int) -> None:
        """number: of messages. subscription: container-id and link."""
        key = address, refusal.condition
        before = self._noted[key][0] if key in self._noted else 0
        self._noted[key] = before + number, subscription, refusal.description

    def tell(self, now: float) -> float:
        """Writes the lines, unless it is too early. Returns when there is something to write."""
        if now < self._next_s:
            return self._next_s
        self._next_s = now + EVERY_S
        noted, self._noted = self._noted, {}
        for (address, condition), (count, (container, link), description) in noted.items():
            self._log.warning(
                "messages_rejected",
                "{address}: {count} rejected by this router, the last for {container}/{link}: {description}",
                address=address, count=count, container=container, link=link, condition=condition,
                description=description,
            )  # fmt: skip
        return INF
