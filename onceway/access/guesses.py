"""Bounds for guessing passwords: first failures are answered late, then nothing is looked at.

Every failure fills three buckets, which leak: that of the user at this address, that of the user, and that of the
address. The first two bound guesses at one password. The third bounds who tries many users; as many clients may be
behind one address (NAT), it is wide, leaks fast, and never stops a user who has come in from there. What cannot be
guessed, a token or a certificate, is never refused for failures before. Whoever reads the time calls this; it holds no
clock.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

from router.links.crowd import network_of

LEAK_S: Final = 10.0  # so long until one failure is forgotten
ADDRESS_LEAK_S: Final = 1.0  # the same for the bucket of an address
FREE: Final = 3  # failures that are answered at once
DELAY_S: Final = 0.25  # of the next one; it doubles with each
MOST_DELAY_S: Final = 4.0  # below the least sensible handshake_timeout
MOST_OF_PAIR: Final = 20  # failures of a user at an address, above which nothing for this user from there is looked at
MOST_OF_KNOWN: Final = 100  # the same where the user has come in from there before
MOST_OF_USER: Final = 50  # from all addresses; but for those from which the user has come in
MOST_OF_ADDRESS: Final = 200  # for all users; but for those who have come in from there
_LEAKS_S: Final = {"pair": LEAK_S, "user": LEAK_S, "address": ADDRESS_LEAK_S}
KEPT: Final = 10_000  # buckets, and addresses from which users have come in


class Guesses:
    """What one listener's process remembers of failures. A user is empty where nobody has said who they are.

    Attributes:
        counts: For metrics: `failed`, `delayed` (answers), and `refused` (without a look at what was shown).
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._buckets: OrderedDict[tuple[str, ...], tuple[float, float]] = OrderedDict()  # (failures, at)
        self._came_in: OrderedDict[tuple[str, str], None] = OrderedDict()  # (network, user)

    def refuses(self, address: str, user: str, now: float) -> bool:
        """Says whether nothing that this user shows at this address is looked at."""
        network = network_of(address)
        known = self.knows(address, user)
        if self._failures(("pair", network, user), now) >= (MOST_OF_KNOWN if known else MOST_OF_PAIR):
            return True
        return not known and (
            self._failures(("user", user), now) >= MOST_OF_USER
            or self._failures(("address", network), now) >= MOST_OF_ADDRESS
        )

    def knows(self, address: str, user: str) -> bool:
        """Says whether the user has come in from there before."""
        return (network_of(address), user) in self._came_in

    def failed(self, address: str, user: str, now: float) -> float:
        """Seconds after which the failure is to be answered."""
        self.counts["failed"] += 1
        network = network_of(address)
        count = self._add(("pair", network, user), now)
        if user:
            count = max(count, self._add(("user", user), now), self._add(("address", network), now))
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

    def _failures(self, key: tuple[str, ...], now: float) -> float:
        count, at = self._buckets.get(key, (0.0, now))
        return max(0.0, count - (now - at) / _LEAKS_S[key[0]])

    def _add(self, key: tuple[str, ...], now: float) -> float:
        count = self._failures(key, now) + 1
        self._buckets[key] = count, now
        self._buckets.move_to_end(key)
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)
        return count
