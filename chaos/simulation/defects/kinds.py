"""Deliberate defects: a topic that becomes a queue while routers run. Schedules: `scenarios/kinds.py`."""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulation.defects.taking import Patch, always
from router.core.declarations import Declarations
from router.core.kinds import NONE_APART, Kinds
from router.core.messages import Declaration, Hello


def learn_nothing_more(self: Kinds, sender: str, message: Hello, first: bool) -> Callable[[str], bool]:
    HELLO(self, sender, message, first)
    return lambda address: False


def as_if_the_session_had_begun_since(self: Kinds, sender: str, message: Hello, first: bool) -> Callable[[str], bool]:
    for change in self._changes:
        if sender in change.unread:
            change.unread[sender] = False
    return HELLO(self, sender, message, first)


HELLO = Kinds.hello


def all_that_are_known(self: Declarations, peer: str) -> list[Declaration]:
    return [self.own, *(self._known[router] for router in sorted(self._known))]


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 16.13.3: P attaches at B, as at a topic, and S0 at A, where it does not get what P sends
    "queue_at_one_router_first": (
        [(Kinds, "refuses_publisher", always(False)), (Kinds, "refuses_subscriber", always(False))],
        "nothing can happen",
    ),
    # protocol 16.13.2: A takes what it gets from B for an error, and they never stay in session
    "queue_at_one_side_of_a_partition": ([(Kinds, "apart", always(NONE_APART))], "G4"),
    # protocol 16.13.4: C does not know S0, and gives m0 to S1
    "queue_at_a_router_that_follows_late": ([(Kinds, "hello", learn_nothing_more)], "G2"),
    # protocol 16.13.4: A takes P, and what S's first JOIN is answered with is taken for the answer to its second
    "queue_at_a_router_that_follows_as_a_session_begins": (
        [(Kinds, "hello", as_if_the_session_had_begun_since)],
        "G4",
    ),
    # protocol 4.5.2: A takes what C has told B for what B has read
    "queue_at_a_router_of_which_another_one_tells": ([(Declarations, "statements", all_that_are_known)], "G4"),
    # protocol 16.13.5: C takes S1 and P at once
    "queue_at_a_router_that_follows_alone": ([(Kinds, "_awaited", always([]))], "G2"),
}

EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
