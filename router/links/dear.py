"""What filters may not do, as it would hold up everybody else."""

from __future__ import annotations

from typing import Final

MOST_STEPS: Final = 1 << 16
"""Of one search in a value, as that of a pattern or regular expression: characters of both, multiplied; some 65 us."""
SEARCH_BYTES: Final = 512  # of filters, which take as long


class TooDear(Exception):
    """What a filter would do about one message takes more steps than it may.

    Attributes:
        own: It is the filter's fault; else the message has a longer value than is compared at all.
    """

    def __init__(self, text: str, own: bool) -> None:
        super().__init__(text)
        self.own = own
