"""Unsettled maps that come in parts (PROTOCOL 7.7): attaches with incomplete-unsettled, all with one epoch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar, cast

Tag = bytes
State = TypeVar("State")

KEPT_S = 60.0


class Parts:
    """The parts that have come, by client; nothing is claimed, joined or inferred from them."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[Hashable, tuple[int, dict[Tag, object], float]] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def collect(
        self, key: Hashable, epoch: int | None, part: Mapping[Tag, State] | None, incomplete: bool, now: float
    ) -> Mapping[Tag, State] | None:
        """Adds a part; the part without the flag gets all of the same epoch as one map."""
        known = self._parts.pop(key, None)
        whole: dict[Tag, State] = {}
        if known is not None and known[0] == epoch:
            whole.update(cast("dict[Tag, State]", known[1]))
        elif not incomplete:
            return part
        whole.update(part or {})
        if incomplete:
            assert epoch is not None
            self._parts[key] = (epoch, dict(whole), now + KEPT_S)
        return whole

    def later(self, key: Hashable, epoch: int) -> int | None:
        """The epoch of its parts, where it is above this one: an attach that has lain in a buffer must not take the
        place of the parts of a later one, of which the last would then be the whole map."""
        known = self._parts.get(key)
        return known[0] if known is not None and known[0] > epoch else None

    def expire(self, now: float) -> None:
        """A client that does not come back with the rest has given up."""
        for key in [key for key, (_, _, until) in self._parts.items() if now >= until]:
            del self._parts[key]

    def entries(self) -> int:
        return sum(len(part) for _, part, _ in self._parts.values())

    def of(self, key: Hashable) -> int:
        """How many entries have come from this client."""
        known = self._parts.get(key)
        return 0 if known is None else len(known[1])

    def deadlines(self) -> list[float]:
        return [until for _, _, until in self._parts.values()]
