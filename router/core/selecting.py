"""What one subscription does not get, by its filters and the size that it can take (protocol 6.4.5, 6.4.7).

Its egress answers for that in the subscription's stead, when it comes and without credit: a log position leaves `owes`,
an entry of a SYNC counts as accepted here. What the subscription holds already, known by tag, is not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.intervals import Range
from router.core.ports import Outcome, Selection

if TYPE_CHECKING:
    from router.core.subscriber import Subscriber


class Selecting:
    """One subscription's. `selected`: below this log position `owes` has only what is wanted."""

    __slots__ = ("selected", "selection")

    def __init__(self, selection: Selection, selected: int) -> None:
        self.selection = selection
        self.selected = selected

    def select(self, subscriber: Subscriber) -> None:
        """Answers for what has come to the log and is not wanted."""
        log = subscriber.deliveries.log
        start, self.selected = self.selected, log.end
        if start == log.end:
            return
        released: list[Range] = []
        for low, high in subscriber.skip.missing(subscriber.owes.overlap(start, log.end)):
            for run, first, last in log.runs.pieces(low, high):
                begin = run.start + first
                payloads = [payload or b"" for payload in log.segments.payloads(begin, run.start + last)]
                for i, outcome in self.selection.unwanted(payloads, run.message_format):
                    released += subscriber.owes.remove(begin + i, begin + i + 1)
                    if outcome is Outcome.REJECTED:
                        log.rejected[begin + i] = log.rejected.get(begin + i, 0) + 1
        if released:
            subscriber.deliveries.release_tokens(released, subscriber)

    def outcome_of(self, payload: bytes, message_format: int) -> Outcome | None:
        """Returns what counts as the outcome of a message that it does not get; None where it gets it."""
        unwanted = self.selection.unwanted([payload], message_format)
        return unwanted[0][1] if unwanted else None

    def wanted(self, tags: list[bytes], payloads: list[bytes], message_format: int) -> tuple[list[bytes], list[bytes]]:
        """Returns the tags and payloads of those that it gets."""
        unwanted = {i for i, _ in self.selection.unwanted(payloads, message_format)}
        if not unwanted:
            return tags, payloads
        kept = [i for i in range(len(tags)) if i not in unwanted]
        return [tags[i] for i in kept], [payloads[i] for i in kept]
