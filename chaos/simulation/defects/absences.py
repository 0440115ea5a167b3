"""Deliberate defects: gaps, timeouts, and what is forgotten when. Schedules: `scenarios/absences.py`."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from chaos.simulation.defects.taking import Patch, always
from router.core import messages as m
from router.core.base import BaseCore
from router.core.directory import Gap, SubscriptionEntry
from router.core.egress import Egress
from router.core.former import Former
from router.core.ingress import Ingress
from router.core.membership import Membership
from router.core.ports import Term
from router.core.publisher_directory import PublisherDirectory
from router.core.startup import Startup
from router.core.subscriber import Subscriber
from router.core.subscriber_handshake import State
from router.core.subscription_directory import SubscriptionDirectory


def forget_at_the_timeout(self: SubscriptionDirectory, entry: SubscriptionEntry) -> float:
    return entry.timeout_s


def as_it_attached(self: Egress, subscriber: Subscriber) -> tuple[m.JoinKind, bool]:
    return subscriber.handshake.kind, subscriber.handshake.history


def as_an_orphan(
    self: SubscriptionDirectory, before: SubscriptionEntry | Former | None, message: m.Join
) -> float | None:
    expired = isinstance(before, Former) or (before is not None and before.expired(self.core.now))
    return before.over_at if before is not None and expired else None


def as_if_asked_by_all(self: SubscriptionDirectory, *arguments: Any) -> bool:
    """As it was in v0.9.0 (protocol 7.3): an orphan is broken when its wait is over, whatever was accepted."""
    return MAY_HAVE_A_GAP(self, *arguments) or arguments[-2] is not None


MAY_HAVE_A_GAP = SubscriptionDirectory._may_have_a_gap


def as_if_all_had_been_read(self: SubscriptionDirectory, sender: str, message: m.Join) -> None:
    ON_JOIN(self, sender, message)
    entry = self.entries.get(message.name)
    if entry is not None:
        entry.gap = Gap.NONE


def by_told_only(self: SubscriptionDirectory, sender: str, message: m.Join) -> None:
    before = self.entries.get(message.name)
    gap = Gap.NONE if before is None else before.gap
    ON_JOIN(self, sender, message)
    if before is not None:
        before.gap = max(before.gap, gap)


ON_JOIN = SubscriptionDirectory.on_join


def remember_no_untold_gap(
    self: SubscriptionDirectory, entry: SubscriptionEntry, over_at: float, *, broken: bool = False
) -> None:
    entry.gap = Gap.NONE
    REMEMBER(self, entry, over_at, broken=broken)


REMEMBER = SubscriptionDirectory._remember


def learns_of_no_gap(self: SubscriptionDirectory, sender: str, news: m.SubscriptionNews) -> None:
    LEARN_OF_HELLO(self, sender, replace(news, untold=False))


LEARN_OF_HELLO = SubscriptionDirectory.learn_of_hello


def join_without_told(self: Egress, subscriber: Subscriber, router: str, *, heard: bool = False) -> None:
    handshake = subscriber.handshake
    state, handshake.state = handshake.state, State.ATTACHED if handshake.answered else handshake.state
    SEND_JOIN(self, subscriber, router, heard=heard)
    handshake.state = state


SEND_JOIN = Egress._send_join


def missed_and_told(self: Egress, subscriber: Subscriber) -> None:
    MAY_HAVE_MISSED(self, subscriber)
    entry = self.address.known_subscriptions.get(subscriber.name)
    if entry is not None:
        entry.gap = Gap.NONE


MAY_HAVE_MISSED = Egress._may_have_missed


def if_it_was_known(self: Egress, sender: str, message: m.Joined) -> None:
    ANSWERED(self, sender, message)
    subscriber = self.subscribers.get(message.name)
    if subscriber is not None:
        handshake = subscriber.handshake
        handshake.state = NO_GAP.get(handshake.state, handshake.state)


ANSWERED = Egress.on_joined
NO_GAP = {State.MISSED: State.JOINING, State.UNTOLD: State.ATTACHED, State.TOLD: State.ATTACHED}


def answer_without_mark(
    self: SubscriptionDirectory,
    sender: str,
    message: m.Join,
    result: m.JoinResult,
    *,
    known: bool = False,
    mark: Term | None = None,
    other: Term | None = None,
) -> None:
    ANSWER(self, sender, message, result, known=known, other=other)


ANSWER = SubscriptionDirectory._answer


def leave_as_if_not_broken(self: SubscriptionDirectory, sender: str, message: m.Leave) -> None:
    ON_LEAVE(self, sender, replace(message, broken=False))


ON_LEAVE = SubscriptionDirectory.on_leave


def resumed_if_known(
    self: SubscriptionDirectory, known: SubscriptionEntry | None, former: Former | None, message: m.Join
) -> bool:
    return known is not None and message.kind is not m.JoinKind.FRESH


def life_of_the_entry(self: Egress, subscriber: Subscriber) -> float:
    entry = self.address.known_subscriptions.get(subscriber.name)
    return LIFE(self, subscriber) if entry is None else self.core.now - entry.created_at


LIFE = Egress._life


def by_its_clock(self: BaseCore, known: int) -> int:
    return max(self.clock_us(), known + 1)


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 1.4: A chooses a lower term than that of the attachment at B, which it has refused
    "attached_again_before_the_farewell_is_read": ([(BaseCore, "choose_number", by_its_clock)], "G5"),
    # protocol 7.3: the entry of the stale attach passes for knowledge of the subscription that B has confirmed
    "entry_of_a_stale_attach_is_no_knowledge": ([(SubscriptionDirectory, "_is_the_same", always(True))], "G5"),
    # protocol 7.3: A takes S for as new as the entry that its late attach has made
    "known_by_a_hello_of_the_attach_itself": ([(SubscriptionDirectory, "_is_resumed", resumed_if_known)], "G5"),
    "life_of_a_stale_attach_is_another": ([(Egress, "_life", life_of_the_entry)], "G5"),
    # protocol 7.3: A takes S in as if nothing had been accepted without it
    "subscribed_during_partition": ([(SubscriptionDirectory, "_may_have_missed", always(False))], "G5"),
    # protocol 7.3: "known" is all that the second answer says
    "answer_says_since_when": ([(SubscriptionDirectory, "_answer", answer_without_mark)], "G5"),
    # protocol 7.6: B takes S, which has not read that it has a gap, for one that knows; A and B take it for one that
    # has read nothing
    "gap_is_told_until_it_has_been_read": ([(SubscriptionDirectory, "on_join", as_if_all_had_been_read)], "G5"),
    # protocol 8.2: B forgets S, and with it that S has a gap
    "gap_is_told_to_who_is_not_waited_for": ([(SubscriptionDirectory, "_remember", remember_no_untold_gap)], "G5"),
    "gap_is_told_no_more_when_it_has_been_read": ([(Subscriber, "heard", always(None))], "G5"),
    "gap_is_told_no_more_to_who_holds_what_came_behind": ([(SubscriptionDirectory, "on_join", by_told_only)], "G5"),
    # protocol 4.3: B knows since when A knows S, and that is all
    "gap_is_told_by_who_has_heard_of_it": ([(SubscriptionDirectory, "learn_of_hello", learns_of_no_gap)], "G5"),
    # protocol 7.6: C has told A what B does not ask
    "gap_is_told_no_more_where_it_was_heard_of": ([(Egress, "_send_join", join_without_told)], "G5"),
    # protocol 7.2: B forgets what it has told nobody who has read it
    "gap_of_which_nobody_could_say_is_told_until_it_has_been_read": (
        [(Egress, "_may_have_missed", missed_and_told)],
        "G5",
    ),
    # protocol 7.3: B has answered without A's mark, and takes no notice of it
    "mark_that_came_after_the_answer": ([(Egress, "_mark_comes_late", always(False))], "G5"),
    # protocol 8.3: A accepts without S at T; B, whose clock began later, still takes it in
    "expiry_seen_differently": ([(SubscriptionDirectory, "_forgotten_after", forget_at_the_timeout)], "hole"),
    # protocol 7.3: B has accepted nothing without S, and takes it in again
    "given_up_where_nothing_was_accepted": ([(Membership, "gone_since", always(False))], "hole"),
    "given_up_at_once_where_nothing_was_accepted": ([(Membership, "gone_since", always(False))], "hole"),
    "gone_before_it_has_said_what_it_accepted": ([(Egress, "_may_have_missed", always(None))], "hole"),
    # protocol 7.3: C takes S for one that has missed what was accepted before it was forgotten, or since by nobody
    "router_that_returns_breaks_nobody": ([(SubscriptionDirectory, "_has_missed", always(True))], "G5"),
    "router_that_returns_early_breaks_nobody": ([(SubscriptionDirectory, "_may_have_a_gap", as_if_asked_by_all)], "G5"),
    # protocol 7.3: C takes B, which will be back, for one that has accepted what nobody knows; and for one that has not
    "router_that_returns_breaks_nobody_who_asked_for_no_wait": (
        [(SubscriptionDirectory, "_has_stayed", always(False))],
        "G5",
    ),
    "router_that_flaps_breaks_nobody_who_has_attached_again": (
        [(SubscriptionDirectory, "_has_stayed", always(False))],
        "G5",
    ),
    "gone_router_comes_back_and_knows_nothing": ([(SubscriptionDirectory, "look_at_doubts", always(None))], "hole"),
    # protocol 7.6: C has known S all the time, and that is all that the answer says
    "plain_one_is_told_of_its_gap": ([(Egress, "on_joined", if_it_was_known)], "G5"),
    # protocol 4.3: A has told nobody what it has let be accepted without S
    "gap_is_told_when_routers_meet": ([(SubscriptionDirectory, "compare_with_hello", always(None))], "G5"),
    "counts_again_when_routers_meet": ([(SubscriptionDirectory, "compare_with_hello", always(None))], "G5"),
    # protocol 7.3: B forgets S, which has not read that it is broken
    "broken_and_gone_before_it_was_told": ([(Membership, "gone_since", always(False))], "hole"),
    # protocol 8.2: A says of S only that it has gone
    "dropped_by_an_operator": ([(SubscriptionDirectory, "on_leave", leave_as_if_not_broken)], "G5"),
    "dropped_while_attached": ([(SubscriptionDirectory, "on_leave", leave_as_if_not_broken)], "hole"),
    # protocol 7.3: A takes S, which it knows from B's HELLO only, for one that was away, and whose link was lost
    "router_that_starts_breaks_nobody_who_is_there": (
        [(SubscriptionDirectory, "_over_at", as_an_orphan), (SubscriptionDirectory, "_has_stayed", always(False))],
        "G6",
    ),
    # protocol 8.4: B settles at S0 what P has not been told of at A
    "publisher_works_at_the_other_side": ([(PublisherDirectory, "_may_work_out_of_sight", always(False))], "G2"),
    "publisher_back_at_the_other_side": ([(PublisherDirectory, "_may_work_out_of_sight", always(False))], "G2"),
    # protocol 8.4: B has seen nobody for as long, but not itself either
    "router_that_stood_still_has_seen_nobody": ([(Membership, "process_resumed", always(None))], "G2"),
    # protocol 7.3: B has accepted something once, so that S may have missed it
    "subscribed_while_a_router_stood_still": ([(SubscriptionDirectory, "_created_at", always(-inf))], "G5"),
    # protocol 4.6: B goes on as if it had not been suspended
    "accepted_before_its_router_knew_that_it_stood_still": ([(Startup, "process_resumed", always(None))], "G5"),
    # protocol 8.4: B takes P in as if it had only been away
    "forgotten_publisher_comes_back": (
        [(Ingress, "_was_forgotten", always(False)), (PublisherDirectory, "refuses", always(False))],
        "G2",
    ),
    # protocol 8.4: A settles at S0 what P sends again at C
    "forgotten_where_it_had_moved": ([(PublisherDirectory, "_is_forgotten_everywhere", always(True))], "G2"),
    # protocol 8.4: C never says that it knows
    "forgotten_is_told_to_who_was_away": ([(PublisherDirectory, "router_up", always(None))], "G4"),
    # protocol 8.4: C has not heard it from A, and B does not tell it
    "forgotten_by_a_router_that_dies": ([(PublisherDirectory, "_pass_on", always(None))], "G4"),
    # protocol 8.4: B settles at S0 what P sent long after B had lost it
    "map_of_a_publisher_that_was_elsewhere": ([(PublisherDirectory, "_may_work_out_of_sight", always(False))], "G2"),
}

# protocol 11, below the table:
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # protocol 4.2: A takes S for a new subscription, which has missed nothing
    "subscribed_during_partition": ([(Egress, "_how_to_join", as_it_attached)], "G5"),
}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {
    # protocol 7.2: S has been there for long, and has missed what was accepted meanwhile
    "says_that_it_was_created_just_now": ([(Egress, "_life", always(0.0))], "apart", "G5"),
    # protocol 8.4: P works at the other side, where what this one has settled is undecided
    "gives_up_who_may_be_out_of_sight": (
        [(PublisherDirectory, "_may_work_out_of_sight", always(False))],
        "long-apart",
        "G2",
    ),
}
