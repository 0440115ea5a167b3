"""How long to wait before something is tried again."""

from __future__ import annotations

from random import Random

BACKOFF_FIRST_S = 0.05
BACKOFF_LAST_S = 5.0


def backoff_s(failures: int, rng: Random) -> float:
    """PROTOCOL 15: from 50 ms to 5 s, with jitter."""
    ceiling = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(failures, 16))
    return rng.uniform(max(BACKOFF_FIRST_S, ceiling / 2), ceiling)
