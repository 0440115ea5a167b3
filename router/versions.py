"""The versions of the wire between routers, and which of them two routers speak (docs/wire-routers.md, Versions).

A router speaks its own version and the one before, so that the routers of a network are replaced one after the other.
A message that an earlier version does not have says since which one there is: `router.core.messages`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Versions(NamedTuple):
    """What a router speaks: every version from the oldest to the newest."""

    oldest: int
    newest: int

    def common(self, other: Versions) -> int | None:
        """Returns what two routers speak with each other; None if there is nothing that both speak."""
        version = min(self.newest, other.newest)
        return version if version >= max(self.oldest, other.oldest) else None

    def __str__(self) -> str:
        return f"{self.oldest} to {self.newest}" if self.oldest < self.newest else str(self.newest)


FIRST: Final = 4
"""The version of routers that do not say which ones they speak."""
SPOKEN: Final = Versions(4, 5)
"""By this program."""
STRIPS: Final = 5
"""Since which version routers strip what clients say of an address (protocol 1.13)."""
