"""Is this publisher really there?  The sign of life of PROTOCOL 5.2 and the question of 5.7, as evidence.

A frame can have lain in a socket buffer while its publisher went elsewhere, so only what could not exist without
something that we said counts: `Proof` is opened when we say it (the answer to the attach, or a question) and told of
everything that comes after.  It knows limits and delivery-ids as plain growing integers, frames by the time at which
they were read; it does not know what is done with the answer.  Read `router.publisher_link` next.
"""

from __future__ import annotations

from collections.abc import Iterable

SERIAL = 0xFFFFFFFF
STALL = 0.25  # a pause of our own longer than this part of proof_after restarts open proofs


class Proof:
    """Open from `start` until one of the tests below says True, which closes it."""

    __slots__ = ("_limits", "_outcomes", "_seen", "_threshold", "_written", "open", "since")

    def __init__(self) -> None:
        self.open = False
        self.since = 0.0
        self._threshold = 0  # a delivery-count above it was sent with credit given after `start`
        self._seen: frozenset[int] = frozenset()  # limits that it may have known before
        self._limits: set[int] = set()  # modulo 2**32: limits told since
        self._outcomes: list[tuple[int, int]] = []
        self._written = False

    def start(self, now: float, *, threshold: int, seen: Iterable[int] = ()) -> None:
        """threshold: the highest limit told before (for an attach: the initial delivery-count, so that any transfer
        counts).  seen: all limits that it may still show without having read what we say now."""
        self.open = True
        self.since = now
        self._threshold = threshold
        self._seen = frozenset(seen)
        self._limits.clear()
        self._outcomes.clear()
        self._written = False

    def granted(self, limit: int) -> None:
        """A limit goes out after the start."""
        if self.open and limit not in self._seen:
            self._limits.add(limit & SERIAL)

    def outcome(self, first_id: int, last_id: int) -> None:
        """An outcome goes out after the start."""
        if self.open:
            self._outcomes.append((first_id, last_id))

    def written(self) -> None:
        """What was to be said has been handed to the transport."""
        self._written = True

    def stalled(self, now: float) -> None:
        """12: our own loop has stood still, so what is read now may be older than it seems."""
        if self.open:
            self.since = now

    def transfer(self, delivery_count: int) -> bool:
        """5.7: a transfer beyond the limit before the question; at an attach any."""
        return self._close(delivery_count > self._threshold)

    def flow(self, delivery_count: int | None, credit: int | None) -> bool:
        """5.2, 5.7: a flow that shows a limit told since.  Where none was told (no credit at all) the answer to our
        echo shows nothing but that it is one: any flow of the link that was read after the echo had been written."""
        if credit is None:
            return False
        if self._limits:
            return self._shows_limit(credit) and self._close(((delivery_count or 0) + credit) & SERIAL in self._limits)
        return self._close(self._written)

    def _shows_limit(self, credit: int) -> bool:
        """Where credit was taken back from transfers that were under way, a flow without credit shows how many they
        were, and no limit: it may be older than the question and show that one's limit all the same."""
        return credit > 0

    def settlement(self, first_id: int, last_id: int) -> bool:
        """5.7: the settlement of an outcome that was sent after the question."""
        return self._close(any(first <= last_id and first_id <= last for first, last in self._outcomes))

    def frame(self, now: float, proof_after_s: float) -> bool:
        """5.2, 5.7: any frame read more than `proof_after` later."""
        return self._close(now - self.since > proof_after_s)

    def _close(self, proved: bool) -> bool:
        if not (self.open and proved):
            return False
        self.open = False
        self._limits.clear()
        self._outcomes.clear()
        return True
