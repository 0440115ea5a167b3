"""What one router may hold in memory, and what of it is taken (protocol 6.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from router.config import RouterConfig
from router.core.former import FormerSubscriptions
from router.core.holding import Holding
from router.core.map_parts import MapParts

SHARE_OF_FREE: Final = 8  # one publisher or subscriber may have an eighth of the free memory (protocol 6.8)


class Memory:
    """Payload is counted where it is kept: in logs (`router.core.log`, `router.core.arrivals`), and in queues of
    pre-settled transfers (`router.core.presettled`). `holding` is what clients have made; `map_parts` and `former` are
    kept of clients that may come again."""

    __slots__ = (
        "_limit", "_window_bytes", "done_bytes", "former", "full", "holding", "made", "map_parts", "payload_bytes",
        "presettled_bytes",
    )  # fmt: skip

    def __init__(self, config: RouterConfig, due: Callable[[float], None]) -> None:
        """due: told when `map_parts` is to be asked again."""
        self.payload_bytes = 0  # kept in records and arrival logs
        self.presettled_bytes = 0  # of pre-settled transfers that wait for subscribers
        self.full = False  # at the last look
        self.made = 0  # publishers, subscribers, refused ones included, and addresses so far
        self.holding = Holding(config.memory_limit)
        self.map_parts = MapParts(due, self.holding)
        self.former = FormerSubscriptions(config.memory_limit)
        self.set_limits(config)

    def set_limits(self, config: RouterConfig) -> None:
        self._limit, self._window_bytes = config.memory_limit, config.window_bytes
        self.holding.set_limit(config.memory_limit)
        self.former.set_limit(config.memory_limit)
        self.done_bytes = min(config.done_bytes, config.memory_limit // 4)  # done payload must leave room for the rest

    def fair_share(self, taken: int) -> int:
        """Returns how much memory one publisher or subscriber may take (protocol 6.8): a part of what is free, so that
        early ones cannot take all of it (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998)."""
        share = (self._limit - taken) // SHARE_OF_FREE
        return share if share < self._window_bytes else self._window_bytes

    def free_share(self, taken: int) -> int:
        return (self._limit - taken) // SHARE_OF_FREE

    def look(self, full: bool) -> None:
        """full: payload has reached the limit."""
        self.full = full
