"""What filters may not do, as it would hold up everybody else."""

from __future__ import annotations


class TooDear(Exception):
    """What a filter would do about one message takes more steps than it may.

    Attributes:
        own: It is the filter's fault; else the message has a longer value than is compared at all.
    """

    def __init__(self, text: str, own: bool) -> None:
        super().__init__(text)
        self.own = own
