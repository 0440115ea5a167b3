"""What one router's core is to look at: in the next flush, or when its time has come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from router.core.publisher import Publisher

INF: Final = float("inf")
DEADLINE_SCAN_S: Final = 20e-6  # at most one scan of all deadlines in this time per deadline


class Agenda:
    __slots__ = ("_all", "_due", "deadline", "touched", "windows")

    def __init__(self) -> None:
        self.deadline = INF  # when `tick` is to be called
        self.touched: dict[Any, None] = {}  # addresses that have something to flush
        self.windows: dict[Publisher, None] = {}  # publishers whose windows have changed
        self._due: dict[Any, float] = {}  # when addresses are to be looked at
        self._all = False  # every address is to be looked at in the next tick

    def touch(self, address: Any) -> None:
        """Notes that the address has something to flush."""
        self.touched[address] = None

    def take_touched(self) -> dict[Any, None]:
        touched, self.touched = self.touched, {}
        return touched

    def window_changed(self, publisher: Publisher) -> None:
        self.windows[publisher] = None

    def take_windows(self) -> dict[Publisher, None]:
        windows, self.windows = self.windows, {}
        return windows

    def due(self, when: float, address: Any = None) -> None:
        """Schedules a tick at this time at the latest; address: which has something to do then."""
        self.deadline = min(self.deadline, when)
        if address is not None and when < self._due.get(address, INF):
            self._due[address] = when

    def all_due(self, now: float) -> None:
        """Deadlines may have changed everywhere."""
        self._all = True
        self.due(now)

    def take_due(self, now: float, addresses: Iterable[Any]) -> list[Any]:
        """Returns which of all addresses are to be looked at now, one after the other."""
        found = list(addresses) if self._all else [each for each, at in self._due.items() if at <= now]
        self._all = False
        return found

    def look_at(self, address: Any) -> None:
        """It says afterwards when it is due again."""
        self._due.pop(address, None)

    def ticked(self, now: float, deadlines: Iterable[float]) -> None:
        """Everything that was due is done. deadlines: of what is no address."""
        found = [*deadlines, *self._due.values()]
        # This takes time in proportion to the deadlines, and thousands of names may expire one after the other.
        self.deadline = max(min(found), now + len(found) * DEADLINE_SCAN_S)

    def forget(self, address: Any) -> None:
        self._due.pop(address, None)
        self.touched.pop(address, None)

    def check_in_time(self, address: Any, first: float) -> None:
        """first: when the address has something to do, at the latest."""
        assert self._all or self._due.get(address, INF) <= first, f"{address.name} is not looked at in time"
