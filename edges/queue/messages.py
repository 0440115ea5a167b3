"""What members say to each other, and what a protocol asks of the layer around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


class ElementId(NamedTuple):
    """Names an element for good.

    Attributes:
        writer: the member that enqueued it.
        life: which of the lives of that member; a member that starts again counts on.
        number: counts the elements of this life from 1.
    """

    writer: str
    life: int
    number: int


class Element(NamedTuple):
    """What is enqueued. It is also the message that brings it to the members, on the address of the elements."""

    id: ElementId
    body: bytes


class Ballot(NamedTuple):
    """Orders those who try to lead: by round, then by name, so that two members never have the same."""

    round: int
    member: str


class Serial(NamedTuple):
    """Numbers the requests of one member, across its lives."""

    life: int
    number: int


class Value(NamedTuple):
    """What one place of the log decides: this request of this member gets this element, or nothing."""

    member: str
    serial: Serial
    element: Element | None


NOTHING: Final = Value("", Serial(0, 0), None)  # fills a place of the log that nobody can have a claim to


# Lamport's mutual exclusion (rules 2.x)


@dataclass(frozen=True, slots=True)
class Dequeue:
    """The sender asks all others for control, at this time of its logical clock."""

    time: int


@dataclass(frozen=True, slots=True)
class Ack:
    """The sender lets member `to` go before itself with the request of that time."""

    to: str
    request_time: int
    time: int


@dataclass(frozen=True, slots=True)
class Pop:
    """The sender has dequeued this element."""

    element: ElementId
    time: int


# The Paxos-like protocol (rules 3.x)


@dataclass(frozen=True, slots=True)
class Request:
    """The sender wants an element.

    Attributes:
        serial: numbers its requests.
        wait: whether it waits when there is none; otherwise it is answered with nothing.
        offer: an element that the sender holds, for a leader that lacks it.
        applied: how many places of the log the sender has applied.
    """

    serial: Serial
    wait: bool
    offer: Element | None
    applied: int


@dataclass(frozen=True, slots=True)
class Phase1A:
    """The sender tries to lead with this ballot and asks about the places of the log from `first`."""

    ballot: Ballot
    first: int


class AcceptedAt(NamedTuple):
    """What a member has accepted at one place of the log, and under which ballot."""

    slot: int
    ballot: Ballot
    value: Value


@dataclass(frozen=True, slots=True)
class Phase1B:
    """Answers Phase1A: a promise if `promised` is `ballot`, otherwise the higher ballot that stands against it.

    Attributes:
        first: as of Phase1A.
        end: tells of the places before this one only, as more has no room in a message; None: of all.
    """

    to: str
    ballot: Ballot
    promised: Ballot
    accepted: tuple[AcceptedAt, ...]
    first: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Phase2A:
    """The leader proposes a value for a place of the log; all members have applied the places before `stable`."""

    ballot: Ballot
    slot: int
    value: Value
    stable: int


@dataclass(frozen=True, slots=True)
class Phase2B:
    """Answers Phase2A: accepted if `promised` is `ballot`."""

    to: str
    ballot: Ballot
    slot: int
    promised: Ballot
    applied: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A majority has accepted this value at this place of the log."""

    slot: int
    value: Value


@dataclass(frozen=True, slots=True)
class Behind:
    """The sender lacks decisions from this place of the log on."""

    applied: int


# The group (rules 4.x)


@dataclass(frozen=True, slots=True)
class Alive:
    """The sender is there, in this life; `joining` asks the others to say so too."""

    life: int
    joining: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """The sender goes, and need not be waited for."""

    life: int


@dataclass(frozen=True, slots=True)
class Outdated:
    """A member that joins in this life is known in a later one, so it is not heard (rule 4.6)."""

    member: str
    life: int
    known: int


_OfQueue = Element | Dequeue | Ack | Pop | Request | Phase1A | Phase1B | Phase2A | Phase2B | Decision | Behind
Message = _OfQueue | Alive | Leave | Outdated


# What a protocol asks of the layer around it, in this order


@dataclass(frozen=True, slots=True)
class Send:
    """Publish this to all other members: an Element on the address of the elements, all else on the other."""

    message: Message


@dataclass(frozen=True, slots=True)
class Promised:
    """A ballot below this one is refused from now on."""

    ballot: Ballot


Record = Promised | AcceptedAt | Decision | Element


@dataclass(frozen=True, slots=True)
class Keep:
    """Store this so that it survives the process, before anything that follows is sent."""

    record: Record


@dataclass(frozen=True, slots=True)
class Dequeued:
    """A call of `dequeue` is answered: with an element, or with None where the queue was seen empty."""

    ticket: int
    element: Element | None


Output = Send | Keep | Dequeued
