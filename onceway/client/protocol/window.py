"""A subscriber's credit: how many deliveries the router may send, by count and by size, and drain."""

from __future__ import annotations

from amqp10.receiver import ReceiverLink

_FIRST_CREDIT = 256  # before any size is known


class Window:
    """Credit for at most `credit` deliveries without outcome, of about `credit_bytes` of payload."""

    __slots__ = (
        "_credit",
        "_credit_bytes",
        "_draining",
        "_largest",
        "drain_wanted",
        "outstanding",
        "resuming",
        "stopped",
    )

    def __init__(self, credit: int, credit_bytes: int) -> None:
        self.outstanding = 0  # handed on, without outcome
        self.resuming = 0  # listed in the answer, not resumed yet
        self.drain_wanted = False
        self.stopped = False  # credit is for what is resumed only
        self._credit = credit
        self._credit_bytes = credit_bytes
        self._largest = 0.0  # a decaying maximum of payload sizes, in bytes
        self._draining: int | None = None  # a drain is under way: how much credit the router had returned before it

    def came(self, payloads: list[bytes]) -> None:
        """Learns from the sizes of payloads how many of the next ones fit."""
        largest = max(map(len, payloads))
        self._largest = largest if largest > self._largest else self._largest + (largest - self._largest) / 16

    def _size(self) -> int:
        if not self._largest:
            return min(self._credit, _FIRST_CREDIT)
        return max(1, min(self._credit, int(self._credit_bytes / self._largest)))

    def grant(self, link: ReceiverLink) -> None:
        """Gives the link the credit that it may have now."""
        have = link.credit
        if self.stopped:
            if have != self.resuming:
                link.grant(self.resuming)
            return
        size = self._size()
        # new deliveries up to the window, and one transfer for each that will be resumed (protocol 15)
        want = max(0, size - self.outstanding) + self.resuming
        if self._draining is not None:
            return  # AMQP 2.6.7: the answer uses up the credit; more would only delay it
        if self.drain_wanted and (want or have > 0):
            self._draining = link.granted.drained
            link.grant(max(want, have), drain=True)
            return
        if want > have and (want - have >= (size + 3) // 4 or have <= self.resuming):
            link.grant(want)

    def drained(self, link: ReceiverLink) -> bool | None:
        """The router has sent its view of the credit.  If all of it is used up, that answers a drain.

        Returns None if it does not, and otherwise whether the router had nothing left to send.
        """
        if self._draining is None or link.credit > 0:
            return None
        empty = link.granted.drained > self._draining
        self._draining = None
        self.drain_wanted = False
        return empty

    def lost(self) -> None:
        """The attachment is gone, and its credit with it."""
        self.resuming = 0
        self._draining = None
