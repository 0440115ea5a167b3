"""The attach handshake of a subscription, as one table (protocol 7.2, 7.3, 7.6, 7.7, 8.1).

`TABLE` has each state with each input that may come in it: what its egress does then, and the next state. Any other
input is an error. `docs/diagrams/subscriber-attach.svg` is made from it. The actions are in `router.core.egress`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from router.core.messages import JoinKind
from router.core.ports import Term


class State(Enum):
    __hash__ = object.__hash__  # faster than Enum's own, which hashes the name

    JOINING = auto()  # JOIN has gone to all: JOINEDs are missing
    MISSED = auto()  # the same, and a router may have accepted without it: its term is a mark
    ANSWERING = auto()  # all have JOINED: its map is listed
    ANSWERING_MISSED = auto()
    ATTACHED = auto()
    INCOMPLETE = auto()  # our map did not fit (protocol 7.7.5)
    RESUMING = auto()  # what was left out of it has no outcome yet: nothing new is sent (protocol 7.7.4)
    UNTOLD = auto()  # its client has not read that it has missed something (protocol 7.6.9)
    TOLD = auto()  # it has
    GONE = auto()


class Input(Enum):
    __hash__ = object.__hash__

    MARK = auto()  # a router may have accepted without it
    JOINED = auto()  # no JOINED is missing
    ALL_LISTED = auto()
    SOME_LISTED = auto()
    UNDECIDED_LEFT = auto()  # some are not listed, of which some have no outcome
    HEARD = auto()  # its client has read the answer
    LOST = auto()  # its link
    DROP = auto()  # its link is to be detached: stolen, broken, or no longer declared


class Action(Enum):
    NOTHING = auto()
    ANSWER = auto()
    PUMP = auto()  # what may be sent is
    TELL = auto()  # all routers, that the gap is read
    REFUSE = auto()
    DETACH = auto()


JOINING, MISSED, ANSWERING, ANSWERING_MISSED, ATTACHED, INCOMPLETE, RESUMING, UNTOLD, TOLD, GONE = State
MARK, JOINED, ALL_LISTED, SOME_LISTED, UNDECIDED_LEFT, HEARD, LOST, DROP = Input
NOTHING, ANSWER, PUMP, TELL, REFUSE, DETACH = Action

TABLE: Final[dict[tuple[State, Input], tuple[Action, State]]] = {
    (JOINING, MARK): (NOTHING, MISSED),
    (JOINING, JOINED): (ANSWER, ANSWERING),
    (JOINING, LOST): (NOTHING, GONE),
    (JOINING, DROP): (REFUSE, GONE),
    (MISSED, MARK): (NOTHING, MISSED),
    (MISSED, JOINED): (ANSWER, ANSWERING_MISSED),
    (MISSED, LOST): (NOTHING, GONE),
    (MISSED, DROP): (REFUSE, GONE),
    (ANSWERING, ALL_LISTED): (PUMP, ATTACHED),
    (ANSWERING, SOME_LISTED): (PUMP, INCOMPLETE),
    (ANSWERING, UNDECIDED_LEFT): (PUMP, RESUMING),
    (ANSWERING_MISSED, ALL_LISTED): (PUMP, UNTOLD),  # it presents nothing that could be left out
    (ATTACHED, HEARD): (NOTHING, ATTACHED),
    (ATTACHED, LOST): (NOTHING, GONE),
    (ATTACHED, DROP): (DETACH, GONE),
    (INCOMPLETE, HEARD): (NOTHING, INCOMPLETE),
    (INCOMPLETE, LOST): (NOTHING, GONE),
    (INCOMPLETE, DROP): (DETACH, GONE),
    (RESUMING, HEARD): (NOTHING, RESUMING),
    (RESUMING, LOST): (NOTHING, GONE),
    (RESUMING, DROP): (DETACH, GONE),
    (UNTOLD, MARK): (NOTHING, UNTOLD),  # again, of another router
    (UNTOLD, HEARD): (TELL, TOLD),
    (UNTOLD, LOST): (NOTHING, GONE),
    (UNTOLD, DROP): (DETACH, GONE),
    (TOLD, MARK): (NOTHING, TOLD),
    (TOLD, HEARD): (NOTHING, TOLD),
    (TOLD, LOST): (NOTHING, GONE),
    (TOLD, DROP): (DETACH, GONE),
}
UNANSWERED: Final = (JOINING, MISSED)
NOTHING_NEW: Final = (*UNANSWERED, RESUMING)
GAPS: Final = (MISSED, ANSWERING_MISSED, UNTOLD, TOLD)


class Handshake:
    """Where one subscription is in it, and what routers have said. Its egress says what comes."""

    __slots__ = (
        "brought_epoch", "brought_map", "history", "joined", "kind", "known", "marks", "missing", "most_bytes",
        "over_at", "state",
    )  # fmt: skip

    def __init__(self, *, brought_epoch: bool, brought_map: bool) -> None:
        self.state = JOINING
        self.brought_epoch = brought_epoch
        self.brought_map = brought_map
        self.kind = JoinKind.EITHER
        self.history = False
        self.joined: dict[str, None] = {}  # routers that have JOINED
        self.missing: dict[str, None] = {}  # routers whose JOINED is missing
        self.known = False  # some router knew the subscription
        self.marks: dict[Term, None] = {}
        self.most_bytes = 0  # of what it takes, as it has said; 0: any size
        self.over_at: float | None = None  # since when it was waited for no more here, before this attach

    def receive(self, what: Input) -> Action:
        """Goes on to the next state. Returns what is to be done."""
        row = TABLE.get((self.state, what))
        assert row is not None, f"{what.name} cannot come while a subscription is {self.state.name}"
        action, self.state = row
        return action

    @property
    def answered(self) -> bool:
        return self.state not in UNANSWERED

    @property
    def leaves_out(self) -> bool:
        """Says whether the answer has left out deliveries that its client presented."""
        return self.state is INCOMPLETE or self.state is RESUMING

    @property
    def resumed(self) -> bool:
        """Some router knew it, and none may have accepted without it (protocol 7.6)."""
        return self.known and self.state not in GAPS
