"""The attach handshake of a publisher, as one table (protocol 5.1 to 5.4, 6.9, 8.4).

`TABLE` has each state with each input that may come in it: what its ingress does then, and the next state. Any other
input is an error. `docs/diagrams/publisher-attach.svg` is made from it. The actions are in `router.core.ingress`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from router.core.ports import Outcome


class State(Enum):
    __hash__ = object.__hash__  # faster than Enum's own, which hashes the name

    PROVING = auto()  # its attach is answered: what comes is its sign of life
    OUTDATED = auto()  # the same, but that will be too old: a subscription with history has joined since
    OVERTAKEN = auto()  # another attachment has become known since
    ASKED = auto()  # a question is open: what it sends is held, and proves nothing
    ASKED_OUTDATED = auto()
    ASKED_OVERTAKEN = auto()
    CALLING = auto()  # a roll call takes the place of the question (protocol 5.9.3)
    CALLING_OUTDATED = auto()
    CALLING_OVERTAKEN = auto()
    CHECKING = auto()  # it claims, if what has become known lets it (protocol 5.4)
    CLAIMING = auto()  # PUB has gone to all: PUBACKs are missing
    LEAVING = auto()  # the same, and its link is lost: pre-settled transfers are forwarded first (protocol 6.9)
    CLOSING = auto()  # the same, and its link is closed
    READY = auto()
    FORWARDING = auto()  # the link is gone, and what is pre-settled goes out now
    DROPPED = auto()


class Input(Enum):
    __hash__ = object.__hash__

    SIGN = auto()  # a sign of life, or the answer to the question
    SIGN_HERE = auto()  # the same of one that is here: all routers can vouch for it (protocol 5.9.2)
    JOIN = auto()  # a subscription with history has joined (protocol 5.2.4)
    NEWS = auto()  # it is overtaken by news (protocol 5.1.6)
    CALLED = auto()  # the roll call is complete
    APART = auto()  # ... or void: not all routers are together any more
    PASSED = auto()  # its claim
    REFUSED = auto()
    ACKNOWLEDGED = auto()  # no PUBACK is missing
    LOST = auto()  # its link; or it is closed, which claims nothing (protocol 5.2.3)
    CLOSED = auto()  # its link is closed for good
    LOST_WITH_SETTLED = auto()  # while pre-settled transfers are held
    CLOSED_WITH_SETTLED = auto()
    STOLEN = auto()  # it works elsewhere, or on another link, or has been forgotten (protocol 8.4.9)


class Action(Enum):
    NOTHING = auto()
    ASK = auto()
    CALL = auto()  # the other routers
    CHECK = auto()
    TELL = auto()  # all routers
    TAKE = auto()  # what is held
    FORWARD_AND_LEAVE = auto()
    FORWARD_AND_CLOSE = auto()
    LEAVE = auto()  # its records are dropped, PUBDOWN goes to all
    CLOSE = auto()  # the same with PUBCLOSE
    DROP = auto()  # its records
    DISCARD = auto()  # it has claimed nothing


class Vouched(Enum):
    """Whether the other routers can vouch for it (protocol 5.9.2)."""

    NO = auto()
    ASKED = auto()  # if it gives the proof that it was asked for when all were together, by a question or the answer
    HERE = auto()


(
    PROVING, OUTDATED, OVERTAKEN, ASKED, ASKED_OUTDATED, ASKED_OVERTAKEN, CALLING, CALLING_OUTDATED, CALLING_OVERTAKEN,
    CHECKING, CLAIMING, LEAVING, CLOSING, READY, FORWARDING, DROPPED,
) = State  # fmt: skip
(
    SIGN, SIGN_HERE, JOIN, NEWS, CALLED, APART, PASSED, REFUSED, ACKNOWLEDGED, LOST, CLOSED, LOST_WITH_SETTLED,
    CLOSED_WITH_SETTLED, STOLEN,
) = Input  # fmt: skip
(
    NOTHING, ASK, CALL, CHECK, TELL, TAKE, FORWARD_AND_LEAVE, FORWARD_AND_CLOSE, LEAVE, CLOSE, DROP, DISCARD,
) = Action  # fmt: skip

TABLE: Final[dict[tuple[State, Input], tuple[Action, State]]] = {
    (PROVING, SIGN): (CHECK, CHECKING),
    (PROVING, SIGN_HERE): (CHECK, CHECKING),
    (PROVING, JOIN): (NOTHING, OUTDATED),
    (PROVING, NEWS): (NOTHING, OVERTAKEN),
    (PROVING, LOST): (DISCARD, DROPPED),
    (PROVING, CLOSED): (CHECK, CHECKING),
    (PROVING, STOLEN): (DISCARD, DROPPED),
    (OUTDATED, SIGN): (ASK, ASKED),
    (OUTDATED, SIGN_HERE): (CALL, CALLING),
    (OUTDATED, JOIN): (NOTHING, OUTDATED),
    (OUTDATED, NEWS): (NOTHING, OVERTAKEN),
    (OUTDATED, LOST): (DISCARD, DROPPED),
    (OUTDATED, CLOSED): (CHECK, CHECKING),
    (OUTDATED, STOLEN): (DISCARD, DROPPED),
    (OVERTAKEN, SIGN): (ASK, ASKED),
    (OVERTAKEN, SIGN_HERE): (ASK, ASKED),
    (OVERTAKEN, JOIN): (NOTHING, OVERTAKEN),
    (OVERTAKEN, NEWS): (NOTHING, OVERTAKEN),
    (OVERTAKEN, LOST): (DISCARD, DROPPED),
    (OVERTAKEN, STOLEN): (DISCARD, DROPPED),
    (ASKED, SIGN): (CHECK, CHECKING),
    (ASKED, SIGN_HERE): (CHECK, CHECKING),
    (ASKED, JOIN): (NOTHING, ASKED_OUTDATED),
    (ASKED, NEWS): (NOTHING, ASKED_OVERTAKEN),
    (ASKED, LOST): (DISCARD, DROPPED),
    (ASKED, CLOSED): (CHECK, CHECKING),
    (ASKED, STOLEN): (DISCARD, DROPPED),
    (ASKED_OUTDATED, SIGN): (ASK, ASKED),
    (ASKED_OUTDATED, SIGN_HERE): (CALL, CALLING),
    (ASKED_OUTDATED, JOIN): (NOTHING, ASKED_OUTDATED),
    (ASKED_OUTDATED, NEWS): (NOTHING, ASKED_OVERTAKEN),
    (ASKED_OUTDATED, LOST): (DISCARD, DROPPED),
    (ASKED_OUTDATED, CLOSED): (CHECK, CHECKING),
    (ASKED_OUTDATED, STOLEN): (DISCARD, DROPPED),
    (ASKED_OVERTAKEN, SIGN): (ASK, ASKED),
    (ASKED_OVERTAKEN, SIGN_HERE): (ASK, ASKED),
    (ASKED_OVERTAKEN, JOIN): (NOTHING, ASKED_OVERTAKEN),
    (ASKED_OVERTAKEN, NEWS): (NOTHING, ASKED_OVERTAKEN),
    (ASKED_OVERTAKEN, LOST): (DISCARD, DROPPED),
    (ASKED_OVERTAKEN, STOLEN): (DISCARD, DROPPED),
    (CALLING, JOIN): (NOTHING, CALLING_OUTDATED),
    (CALLING, NEWS): (NOTHING, CALLING_OVERTAKEN),
    (CALLING, CALLED): (CHECK, CHECKING),
    (CALLING, APART): (ASK, ASKED),
    (CALLING, LOST): (DISCARD, DROPPED),
    (CALLING, CLOSED): (CHECK, CHECKING),
    (CALLING, STOLEN): (DISCARD, DROPPED),
    (CALLING_OUTDATED, JOIN): (NOTHING, CALLING_OUTDATED),
    (CALLING_OUTDATED, NEWS): (NOTHING, CALLING_OVERTAKEN),
    (CALLING_OUTDATED, CALLED): (CALL, CALLING),
    (CALLING_OUTDATED, APART): (ASK, ASKED),
    (CALLING_OUTDATED, LOST): (DISCARD, DROPPED),
    (CALLING_OUTDATED, CLOSED): (CHECK, CHECKING),
    (CALLING_OUTDATED, STOLEN): (DISCARD, DROPPED),
    (CALLING_OVERTAKEN, JOIN): (NOTHING, CALLING_OVERTAKEN),
    (CALLING_OVERTAKEN, NEWS): (NOTHING, CALLING_OVERTAKEN),
    (CALLING_OVERTAKEN, CALLED): (ASK, ASKED),
    (CALLING_OVERTAKEN, APART): (ASK, ASKED),
    (CALLING_OVERTAKEN, LOST): (DISCARD, DROPPED),
    (CALLING_OVERTAKEN, STOLEN): (DISCARD, DROPPED),
    (CHECKING, JOIN): (NOTHING, CHECKING),  # its claim will cover that one
    (CHECKING, NEWS): (NOTHING, CHECKING),
    (CHECKING, PASSED): (TELL, CLAIMING),
    (CHECKING, REFUSED): (DISCARD, DROPPED),
    (CLAIMING, ACKNOWLEDGED): (TAKE, READY),
    (CLAIMING, LOST): (LEAVE, DROPPED),
    (CLAIMING, CLOSED): (CLOSE, DROPPED),
    (CLAIMING, LOST_WITH_SETTLED): (NOTHING, LEAVING),
    (CLAIMING, CLOSED_WITH_SETTLED): (NOTHING, CLOSING),
    (CLAIMING, STOLEN): (DROP, DROPPED),
    (LEAVING, ACKNOWLEDGED): (FORWARD_AND_LEAVE, FORWARDING),
    (LEAVING, STOLEN): (DROP, DROPPED),
    (CLOSING, ACKNOWLEDGED): (FORWARD_AND_CLOSE, FORWARDING),
    (CLOSING, STOLEN): (DROP, DROPPED),
    (READY, LOST): (LEAVE, DROPPED),
    (READY, CLOSED): (CLOSE, DROPPED),
    (READY, STOLEN): (DROP, DROPPED),
    (FORWARDING, LOST): (LEAVE, DROPPED),
    (FORWARDING, CLOSED): (CLOSE, DROPPED),
}

UNASKED: Final = (PROVING, OUTDATED, OVERTAKEN)
CALLS: Final = (CALLING, CALLING_OUTDATED, CALLING_OVERTAKEN)
UNPROVED: Final = (*UNASKED, ASKED, ASKED_OUTDATED, ASKED_OVERTAKEN, *CALLS, CHECKING)
CLAIMS: Final = (CLAIMING, LEAVING, CLOSING)


class Handshake:
    """Where one publisher is in it. Its ingress says what comes."""

    __slots__ = ("brought_epoch", "call", "early_tags", "may_be_late", "missing", "presented", "state", "vouched")

    def __init__(self, *, brought_epoch: bool) -> None:
        self.state = PROVING
        self.brought_epoch = brought_epoch
        self.presented: Mapping[bytes, Outcome | None] = {}  # its map, until it claims
        self.may_be_late = False  # it may send again what it has sent when it was here before (protocol 5.4.2)
        self.vouched = Vouched.NO
        self.call = 0  # it claims when that roll call, or a later one, is complete
        self.early_tags: list[bytes] = []  # expected ones that it has settled before it has claimed
        self.missing: dict[str, None] = {}  # routers whose PUBACK is missing

    def receive(self, what: Input) -> Action:
        """Goes on to the next state. Returns what is to be done."""
        row = TABLE.get((self.state, what))
        assert row is not None, f"{what.name} cannot come while a publisher is {self.state.name}"
        action, self.state = row
        return action

    @property
    def is_proving(self) -> bool:
        """Says whether it has claimed nothing yet."""
        return self.state in UNPROVED

    @property
    def is_calling(self) -> bool:
        return self.state in CALLS

    @property
    def awaits_sign(self) -> bool:
        """Says whether what it sends is its sign of life."""
        return self.state in UNASKED

    @property
    def is_asked(self) -> bool:
        """Says whether it is proving itself, and what it sends proves nothing."""
        return self.is_proving and not self.awaits_sign

    @property
    def claims(self) -> bool:
        """Says whether it waits for PUBACKs."""
        return self.state in CLAIMS

    @property
    def said(self) -> str:
        """What reports say."""
        if self.is_proving:
            return "waits for a sign of life"
        return "waits for the other routers" if self.claims else "gone" if self.state is DROPPED else "ready"

    @property
    def is_here(self) -> bool:
        return self.vouched is Vouched.HERE

    def asked(self, together: bool) -> None:
        """A proof is asked for. together: all routers are, at this one."""
        if self.vouched is not Vouched.HERE:
            self.vouched = Vouched.ASKED if together and not self.brought_epoch else Vouched.NO

    def proved(self) -> Input:
        """The proof has come."""
        if self.vouched is not Vouched.NO:
            self.vouched = Vouched.HERE
            return SIGN_HERE
        return SIGN

    def apart(self) -> None:
        """Not all routers are together any more: nobody can vouch for it."""
        self.vouched = Vouched.NO
