"""Deliberate defects: each takes one rule of docs/shared-queue.md away, whose table says which. A seed or a world must catch it."""

from __future__ import annotations

from dataclasses import replace

from edges.queue.elements import Elements
from edges.queue.lamport import Lamport
from edges.queue.messages import AcceptedAt, Ballot, Element, ElementId, Keep, Output, Phase1A, Phase1B, Promised, Value
from edges.queue.paxos import Paxos


def without(record: type, outputs: list[Output]) -> list[Output]:
    return [each for each in outputs if not (isinstance(each, Keep) and isinstance(each.record, record))]


class AckNotDeferred(Lamport):
    """An older request of one's own is acknowledged past."""

    def _defer(self, member: str, request_time: int) -> None:
        self._ack(member, request_time)


class PopForgotten(Lamport):
    """What was dequeued is not said."""

    def _pop(self, element: Element | None) -> None:
        if element is not None:
            self.elements.pop(element.id)


class PopAfterAck(Lamport):
    """Control is given away before the others can know what was dequeued."""

    def _leave_control(self, element: Element | None) -> None:
        self._release()
        self._pop(element)


class EarlyPopForgotten(Lamport):
    """An element that comes after its POP is held."""

    def __init__(self, name: str, members: list[str], life: int) -> None:
        super().__init__(name, members, life)
        self.elements = ForgetfulElements()


class ForgetfulElements(Elements):
    def pop(self, name: ElementId) -> None:
        if name in self._held:
            super().pop(name)


class PromiseNotKept(Paxos):
    """A lower ballot is accepted after a higher one was promised."""

    def _promise(self, ballot: Ballot) -> None:
        if ballot != self._promised:
            self._promised = ballot
            self._outputs.append(Keep(Promised(ballot)))


class BallotUsedAgain(Paxos):
    """What was promised is not kept, so that the next life leads with the same ballot."""

    def outputs(self) -> list[Output]:
        return without(Promised, super().outputs())


class AcceptedNotKept(Paxos):
    """What was accepted does not survive the process."""

    def outputs(self) -> list[Output]:
        return without(AcceptedAt, super().outputs())


class AcceptedNotReported(Paxos):
    """Who promises does not say what it has accepted."""

    def _on_phase_1a(self, sender: str, message: Phase1A) -> None:
        self._accepted, accepted = {}, self._accepted
        super()._on_phase_1a(sender, message)
        self._accepted = accepted


class PartTakenForAll(Paxos):
    """What has no room in an answer is not asked for."""

    def _on_phase_1b(self, sender: str, message: Phase1B, now: float) -> None:
        super()._on_phase_1b(sender, replace(message, end=None), now)


class MinorityDecides(Paxos):
    """Less than a majority is enough."""

    def _majority(self) -> int:
        return len(self._members) // 2


class ElementDecidedTwice(Paxos):
    """A second decision for an element counts."""

    def _is_void(self, value: Value) -> bool:
        return (
            super()._is_void(Value(value.member, value.serial, None))
            if value.element is not None
            else super()._is_void(value)
        )


class RequestAnsweredTwice(Paxos):
    """A second decision for a request takes an element that nobody is given."""

    def _is_void(self, value: Value) -> bool:
        return value.element is not None and self.elements.is_popped(value.element.id)


class NothingSaidAgain(Paxos):
    """What was lost is not said again."""

    def tick(self, now: float) -> None:
        self._say_to_itself(now)


LAMPORT = (AckNotDeferred, PopForgotten, PopAfterAck, EarlyPopForgotten)
PAXOS = (
    PromiseNotKept,
    BallotUsedAgain,
    AcceptedNotKept,
    AcceptedNotReported,
    PartTakenForAll,
    MinorityDecides,
    ElementDecidedTwice,
    RequestAnsweredTwice,
    NothingSaidAgain,
)
