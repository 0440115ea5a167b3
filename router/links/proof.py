"""Evidence that a publisher is there now: the sign of life (protocol 5.2) and the answer to a question (protocol 5.7).

A frame may have been in a socket buffer while its publisher attached elsewhere, so only input that could not exist
without something that this router wrote counts. A `Proof` is opened when the router writes it (the answer to the
attach, or a question) and is told of everything that is read afterwards. Limits and delivery-ids are plain growing
integers. Read `router.links.publisher_link` next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

WRAP: Final = 0xFFFFFFFF
STALL: Final = 0.25  # of proof_after: a pause of this process longer than that restarts open proofs


class Proof:
    """Open from `start` until one of the tests below returns True, which closes it."""

    __slots__ = ("_limits", "_outcomes", "_seen", "_threshold", "_written", "open", "question", "since")

    def __init__(self) -> None:
        self.open = False
        self.question = False
        self.since = 0.0
        self._threshold = 0  # a higher delivery-count was sent on credit granted after `start`
        self._seen: frozenset[int] = frozenset()  # limits that the publisher may have known before
        self._limits: set[int] = set()  # granted since, modulo 2**32
        self._outcomes: list[tuple[int, int]] = []
        self._written = False

    def start(self, now: float, *, threshold: int, seen: Iterable[int] = (), question: bool = False) -> None:
        """threshold: the highest limit granted before (for an attach the initial delivery-count, so that any transfer
        counts). seen: all limits that a flow may show without its sender having read what is written now. question: it
        is for one (protocol 5.7), not for the first sign of life."""
        self.open = True
        self.question = question
        self.since = now
        self._threshold = threshold
        self._seen = frozenset(seen)
        self._limits.clear()
        self._outcomes.clear()
        self._written = False

    def granted(self, limit: int) -> None:
        """A limit is granted after the start."""
        if self.open and limit not in self._seen:
            self._limits.add(limit & WRAP)

    def outcome(self, first_id: int, last_id: int) -> None:
        """An outcome is sent after the start."""
        if self.open:
            self._outcomes.append((first_id, last_id))

    def written(self) -> None:
        """Our flow has been handed to the transport."""
        self._written = True

    def stalled(self, now: float) -> None:
        """This process has paused, so what is read now may be older than it seems (protocol 12)."""
        if self.open:
            self.since = now

    def transfer(self, delivery_count: int) -> bool:
        """A transfer beyond every limit before the question; after an attach any transfer (protocol 5.7)."""
        return self._close(delivery_count > self._threshold)

    def flow(self, delivery_count: int | None, credit: int | None) -> bool:
        """A flow that shows a limit granted since. Where none was granted (no credit at all), any flow of the link that
        is read after our echo was written (protocol 5.2, 5.7)."""
        if credit is None:
            return False
        if self._limits:
            return self._shows_limit(credit) and self._close(((delivery_count or 0) + credit) & WRAP in self._limits)
        return self._close(self._written)

    def _shows_limit(self, credit: int) -> bool:
        """A flow without credit shows no limit: where credit was lowered while transfers were under way, it shows their
        number, and may equal the question's limit although it is older than the question."""
        return credit > 0

    def settlement(self, first_id: int, last_id: int) -> bool:
        """The settlement of an outcome that was sent after the question (protocol 5.7)."""
        return self._close(any(first <= last_id and first_id <= last for first, last in self._outcomes))

    def frame(self, now: float, proof_after_s: float) -> bool:
        """Any frame read more than `proof_after` later (protocol 5.2, 5.7)."""
        return self._close(now - self.since > proof_after_s)

    def _close(self, proved: bool) -> bool:
        if not (self.open and proved):
            return False
        self.open = False
        self._limits.clear()
        self._outcomes.clear()
        return True
