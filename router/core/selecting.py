"""What one subscription does not get, by its filters and the size that it can take (protocol 6.4.5, 6.4.7).

Its egress answers for that in the subscription's stead, when it comes and without credit: a log position leaves `owes`,
an entry of a SYNC counts as accepted here. What the subscription holds already, known by tag, is not judged. What has
expired is looked at when it is about to be sent (protocol 6.4.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.intervals import Range
from router.core.irregular import Irregular, State
from router.core.ports import Outcome, Refusal, Selection
from router.core.subscriber_handshake import UNANSWERED

if TYPE_CHECKING:
    from router.core.subscriber import Subscriber


class Selecting:
    """One subscription's. `selected`: below this log position `owes` has only what is wanted; of an idle one
    (`router.core.by_need`) it says nothing."""

    __slots__ = ("idle", "selected", "selection")

    def __init__(self, selection: Selection, selected: int) -> None:
        self.selection = selection
        self.selected = selected
        self.idle = False

    def select(self, subscriber: Subscriber) -> None:
        """Answers for what has come to the log and is not wanted."""
        log = subscriber.deliveries.log
        start, self.selected = self.selected, log.end
        if start == log.end:
            return
        unwanted: list[Range] = []
        refused: dict[Refusal, list[Range]] = {}
        for low, high in subscriber.irregular.skip.missing(subscriber.owes.overlap(start, log.end)):
            for run, first, last in log.runs.pieces(low, high):
                begin = run.start + first
                payloads = [payload or b"" for payload in log.segments.payloads(begin, run.start + last)]
                for i, j, outcome in self.selection.unwanted(payloads, run.message_format):
                    if isinstance(outcome, Refusal):
                        refused.setdefault(outcome, []).append((begin + i, begin + j))
                    if unwanted and unwanted[-1][1] == begin + i:
                        unwanted[-1] = (unwanted[-1][0], begin + j)
                    else:
                        unwanted.append((begin + i, begin + j))
        for refusal, ranges in refused.items():
            subscriber.deliveries.refuse(subscriber, ranges, [], refusal)
        released = [each for start, stop in unwanted for each in subscriber.owes.remove(start, stop)]
        if released:
            subscriber.deliveries.reception.release_tokens(released, subscriber)

    def answer_without(self, subscriber: Subscriber, start: int, stop: int, wanted: list[int]) -> bool:
        """Answers for what has just come to the end of the log, but for those at these indexes, which may be wanted.
        False: it has to wait for what came before."""
        passage = subscriber.passage
        if self.selected != start or subscriber.handshake.state in UNANSWERED or subscriber.irregular.skip.starts:
            return False
        if passage is not None and (passage.passed_by or passage.partial is not None):
            return False
        begin = start
        for index in wanted:
            subscriber.owes.remove(begin, start + index)
            begin = start + index + 1
        subscriber.owes.remove(begin, stop)
        if not wanted:
            self.selected = stop
        return True

    def outcome_of(self, payload: bytes, message_format: int) -> Outcome | Refusal | None:
        """Returns what counts as the outcome of a message that it does not get; None where it gets it."""
        unwanted = self.selection.unwanted([payload], message_format)
        return unwanted[0][2] if unwanted else None

    def wanted(self, tags: list[bytes], payloads: list[bytes], message_format: int) -> tuple[list[bytes], list[bytes]]:
        """Returns the tags and payloads of those that it gets."""
        kept = wanted_of(self.selection, payloads, message_format)
        return [tags[i] for i in kept], [payloads[i] for i in kept]


def wanted_of(selection: Selection, payloads: list[bytes], message_format: int) -> list[int]:
    """Returns the indexes of those that the selection lets through."""
    kept: list[int] = []
    end = 0
    for start, stop, _ in selection.unwanted(payloads, message_format):
        kept += range(end, start)
        end = stop
    kept += range(end, len(payloads))
    return kept


def accept_expired(subscriber: Subscriber, start: int, stop: int, message_format: int) -> int:
    """If messages at the beginning of this stretch of the log have expired, they count as accepted and are not sent.
    Returns up to where the stretch can be sent."""
    payloads = [payload or b"" for payload in subscriber.deliveries.log.segments.payloads(start, stop)]
    dead = subscriber.port.expired(payloads, message_format)
    if not dead or dead[0] > 0:
        return start + dead[0] if dead else stop
    n = 1
    while n < len(dead) and dead[n] == n:
        n += 1
    subscriber.deliveries.counters.expired += n
    subscriber.deliveries.reception.release_tokens(subscriber.owes.remove(start, start + n), subscriber)
    return start


def has_expired(subscriber: Subscriber, delivery: Irregular) -> bool:
    """The same of a delivery that is kept by tag."""
    if not subscriber.expires or not subscriber.port.expired([delivery.payload or b""], delivery.message_format):
        return False
    subscriber.deliveries.counters.expired += 1
    delivery.state = State.SENT  # only what was sent is decided on
    subscriber.deliveries.accept_irregular(subscriber, delivery, False, False)
    return True
