"""Bounds for guessing passwords, by address and by user: first failures are answered late, then nothing is looked at.

Every failure fills two buckets, its address's and its user's, which leak. Whoever reads the time calls this; it holds
no clock.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

from router.links.crowd import network_of

LEAK_S: Final = 10.0  # so long until one failure is forgotten
FREE: Final = 3  # failures that are answered at once
DELAY_S: Final = 0.25  # of the next one; it doubles with each
MOST_DELAY_S: Final = 4.0  # below the least sensible handshake_timeout
MOST_OF_ADDRESS: Final = 20  # failures, above which nothing from this address is looked at
MOST_OF_USER: Final = 50  # the same for this user, but for addresses from which it has come in
KEPT: Final = 10_000  # buckets, and addresses from which users have come in


class Guesses:
    """What one listener's process remembers of failures.

    Attributes:
        counts: For metrics: `failed`, `delayed` (answers), and `refused` (without a look at what was shown).
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()  # (failures, at)
        self._came_in: OrderedDict[tuple[str, str], None] = OrderedDict()  # (address, user)

    def refuses_address(self, address: str, now: float) -> bool:
        return self._failures(("address", network_of(address)), now) >= MOST_OF_ADDRESS

    def refuses_user(self, address: str, user: str, now: float) -> bool:
        full = self._failures(("user", user), now) >= MOST_OF_USER
        return full and (network_of(address), user) not in self._came_in

    def failed(self, address: str, user: str, now: float) -> float:
        """Seconds after which the failure is to be answered. user: empty where nobody has said who they are."""
        self.counts["failed"] += 1
        count = self._add(("address", network_of(address)), now)
        if user:
            count = max(count, self._add(("user", user), now))
        if count <= FREE:
            return 0.0
        self.counts["delayed"] += 1
        return float(min(DELAY_S * 2 ** min(count - FREE - 1, 8), MOST_DELAY_S))

    def succeeded(self, address: str, user: str) -> None:
        key = network_of(address), user
        self._came_in[key] = None
        self._came_in.move_to_end(key)
        if len(self._came_in) > KEPT:
            self._came_in.popitem(last=False)

    def _failures(self, key: tuple[str, str], now: float) -> float:
        count, at = self._buckets.get(key, (0.0, now))
        return max(0.0, count - (now - at) / LEAK_S)

    def _add(self, key: tuple[str, str], now: float) -> float:
        count = self._failures(key, now) + 1
        self._buckets[key] = count, now
        self._buckets.move_to_end(key)
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)
        return count
