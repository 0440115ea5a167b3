"""Trunks that have something to do in the next flush, or for the owner; each once. Read network.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interrouter.trunk import Trunk


class Work:
    __slots__ = ("dirty", "sending", "unread", "withheld")

    def __init__(self) -> None:
        self.dirty: dict[Trunk, None] = {}  # those that may have output, or have closed
        self.sending: dict[Trunk, None] = {}  # those that something was queued for, or that have got credit
        self.unread: dict[Trunk, None] = {}  # those that have received more than they have handled, next one first
        self.withheld: dict[Trunk, None] = {}  # those whose neighbours wait for credit

    def touch(self, trunk: Trunk) -> None:
        """It may have output, or has closed."""
        self.dirty[trunk] = None

    def schedule(self, trunk: Trunk) -> None:
        """It may have something to send."""
        self.sending[trunk] = None

    def note_unread(self, trunk: Trunk, left: bool) -> None:
        """It has handled a part of what it has received. left: there is another one, in its turn."""
        self.unread.pop(trunk, None)
        if left:
            self.unread[trunk] = None

    def withhold(self, trunk: Trunk) -> None:
        """Its neighbour may send no more messages until the owner has taken enough of those that have come."""
        self.withheld[trunk] = None

    def closed(self, trunk: Trunk) -> None:
        self.withheld.pop(trunk, None)
        self.dirty[trunk] = None

    def pump(self, now: float) -> None:
        """Sends all that may be sent."""
        while self.sending:
            sending, self.sending = self.sending, {}
            for trunk in sending:
                if trunk.up:
                    trunk.pump(now)
                    self.dirty[trunk] = None

    def renew_credit(self) -> None:
        withheld, self.withheld = self.withheld, {}
        for trunk in withheld:
            trunk.renew_credit()

    def take_dirty(self) -> list[Trunk]:
        """Returns those that may have output, or have closed."""
        dirty, self.dirty = self.dirty, {}
        return list(dirty)
