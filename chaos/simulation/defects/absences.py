"""Deliberate defects: gaps, timeouts, and what is forgotten when. Schedules: `scenarios/absences.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router import messages as m
from router.address import Address
from router.directory import SubscriptionEntry
from router.egress import Egress
from router.membership import Membership
from router.subscriber import Subscriber


def forget_at_the_timeout(self: Address, entry: SubscriptionEntry) -> float:
    return entry.timeout_s


def as_it_attached(self: Egress, link: Subscriber) -> tuple[m.JoinKind, bool]:
    return link.kind, link.history


def as_an_orphan(self: Address, entry: SubscriptionEntry, message: m.Join) -> bool:
    return entry.expired(self.core.now)


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # 7.3: the entry of the stale attach passes for knowledge of the subscription that B has confirmed
    "entry_of_a_stale_attach_is_no_knowledge": ([(Address, "_is_the_same", always(True))], "G5"),
    # 7.3: A takes S in as if nothing had been accepted without it
    "subscribed_during_partition": ([(Address, "_may_have_missed", always(False))], "G5"),
    # 7.3: "known" is all that the second answer says
    "answer_says_since_when": ([(Address, "_mark", always(None))], "G5"),
    # 7.3: B has answered without A's mark, and takes no notice of it
    "mark_that_came_after_the_answer": ([(Egress, "_comes_late", always(False))], "G5"),
    # 8.3: A accepts without S at T; B, whose clock began later, still takes it in
    "expiry_seen_differently": ([(Address, "_forgotten_after", forget_at_the_timeout)], "hole"),
    # 7.3: B has accepted nothing without S, and takes it in again
    "given_up_where_nothing_was_accepted": ([(Address, "_may_be_given_up", always(False))], "hole"),
    "given_up_at_once_where_nothing_was_accepted": ([(Address, "_may_be_given_up", always(False))], "hole"),
    # 7.3: B forgets S, which has not read that it is broken
    "broken_and_gone_before_it_was_told": ([(Address, "_was_broken", always(False))], "hole"),
    # 8.3: A takes S, which it knows from B's HELLO only, for one that was away
    "router_that_starts_breaks_nobody_who_is_there": ([(Address, "_was_away_too_long", as_an_orphan)], "G6"),
    # 8.4: B settles at S0 what P has not been told of at A
    "publisher_works_at_the_other_side": ([(Address, "_may_be_elsewhere", always(False))], "G2"),
    "publisher_back_at_the_other_side": ([(Address, "_may_be_elsewhere", always(False))], "G2"),
    # 8.4: B has seen nobody for as long, but not itself either
    "router_that_stood_still_has_seen_nobody": ([(Membership, "went_on", always(None))], "G2"),
    # 8.4: B settles at S0 what P sent long after B had lost it
    "map_of_a_publisher_that_was_elsewhere": ([(Address, "_may_be_elsewhere", always(False))], "G2"),
}

# PROTOCOL 11, below the table:
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # 4.2: A takes S for a new subscription, which has missed nothing
    "subscribed_during_partition": ([(Egress, "_how_to_join", as_it_attached)], "G5"),
}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {
    # 8.4: P works at the other side, where what this one has settled is undecided
    "gives_up_who_may_be_out_of_sight": ([(Address, "_may_be_elsewhere", always(False))], "long-apart", "G2"),
}
