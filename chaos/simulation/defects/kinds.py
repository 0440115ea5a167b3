"""Deliberate defects: a topic that becomes a queue while routers run. Schedules: `scenarios/kinds.py`."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.simulation.defects.taking import Patch, always
from router.config import QueueTable
from router.core.declarations import Declarations
from router.core.kinds import NONE_APART, Kinds
from router.core.membership import LatestHello, Membership
from router.core.messages import Declaration, Hello


def as_if_the_session_had_begun_since(self: Kinds, sender: str, message: Hello, first: bool) -> None:
    for change in self._changes:
        if sender in change.unread:
            change.unread[sender] = False
    HELLO(self, sender, message, first)


HELLO = Kinds.hello


def all_that_are_known(self: Declarations, peer: str) -> list[Declaration]:
    return [self.own, *(self._known[router] for router in sorted(self._known))]


def whoever_knows(self: Membership, match: str) -> Iterator[LatestHello]:
    yield from (said for said in self._hellos.values() if said.knows(match, self._settings_digest))


def of_who_is_out_of_reach(self: Kinds, table: QueueTable) -> list[str]:
    members = self.core.members
    return UNKNOWN(self, table) if members.missing(members.up) else []


UNKNOWN = Kinds.unknown

TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 16.13.3: P attaches at B, as at a topic, and S0 at A, where it does not get what P sends
    "queue_at_one_router_first": (
        [(Kinds, "refuses_publisher", always(False)), (Kinds, "refuses_subscriber", always(False))],
        "nothing can happen",
    ),
    # protocol 16.13.2: A takes what it gets from B for an error, and they never stay in session
    "queue_at_one_side_of_a_partition": ([(Kinds, "apart", always(NONE_APART))], "G4"),
    # protocol 16.13.7: C does not wait for what A and B know of S0, and gives m0 to S1
    "queue_at_a_router_that_follows_late": ([(Kinds, "unknown", always([]))], "G2"),
    # protocol 16.13.4: A takes P, and what S's first JOIN is answered with is taken for the answer to its second
    "queue_at_a_router_that_follows_as_a_session_begins": (
        [(Kinds, "hello", as_if_the_session_had_begun_since)],
        "G4",
    ),
    # protocol 4.5.2: A takes what C has told B for what B has read
    "queue_at_a_router_of_which_another_one_tells": ([(Declarations, "statements", all_that_are_known)], "G4"),
    # protocol 16.13.7: B says that it is recovered, so does A, and S1 gets what S0 holds
    "queue_whose_only_router_dies": ([(Kinds, "unknown", always([]))], "G2"),
    # protocol 4.4.2, 16.13.2: A is recovered by what B knows of a topic, and B by A
    "queue_whose_only_router_is_back_first": ([(Membership, "_who_know", whoever_knows)], "G2"),
    # protocol 16.13.7: B asks who is out of reach, and not A, of which it has not seen that it is dead
    "queue_whose_only_router_dies_unnoticed": ([(Kinds, "unknown", of_who_is_out_of_reach)], "G2"),
    # the same: C takes S1 and P at once
    "queue_at_a_router_that_follows_alone": ([(Kinds, "unknown", always([]))], "G2"),
}

EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
