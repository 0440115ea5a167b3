"""Deliberate defects, which the simulator must notice, and where each is caught.

What is taken away is in `defects`, by what it is about: with the rule its schedule passes; without it the checker must
find exactly the failure that the page names, or the rule, or the schedule, is not what we think it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from chaos.simulation.defects import (
    absences,
    changes,
    clients,
    corruptions,
    declared,
    kinds,
    large,
    membership,
    proof,
    publishers,
    queues,
    subscriptions,
)
from chaos.simulation.defects.taking import Patch, defective
from chaos.simulation.exhaustive.exploration import Search
from chaos.simulation.exhaustive.smallest import WORLDS
from chaos.simulation.random.explore import explore
from chaos.simulation.random.plan import NEAR
from chaos.simulation.random.variations import NAMES, draw_variation, drawn_name
from chaos.simulation.scenarios import SCENARIOS
from chaos.simulation.world.world import World

OF_ROUTERS = (proof, publishers, subscriptions, absences, membership, declared, changes, queues, kinds, large)
# What is taken away, and how the violation in the schedule of the same name begins:
TAKEN = {name: taken for module in OF_ROUTERS for name, taken in module.TAKEN.items()}
EASY_TO_LOSE = {name: taken for module in OF_ROUTERS for name, taken in module.EASY_TO_LOSE.items()}
# ... the family of random schedules that run into it, and how the violation begins there:
AT_RANDOM = {name: taken for module in OF_ROUTERS for name, taken in module.AT_RANDOM.items()}


@dataclass(frozen=True)
class Mutation:
    name: str
    patches: tuple[Patch, ...]
    expected: str
    schedule: str | None = None  # the named one that finds it
    family: str | None = None  # or random ones of this family
    checked: bool = False  # the state of all routers is looked at after each step


MUTATIONS: dict[str, Mutation] = {}
for _each in (
    *(Mutation(name, tuple(p), expected, schedule=name) for name, (p, expected) in TAKEN.items()),
    *(Mutation(f"condition_{name}", tuple(p), expected, schedule=name) for name, (p, expected) in EASY_TO_LOSE.items()),
    *(Mutation(name, tuple(p), expected, family=family) for name, (p, family, expected) in AT_RANDOM.items()),
    *(Mutation(name, tuple(p), expected, schedule=schedule) for name, (p, schedule, expected) in clients.TAKEN.items()),
    *(Mutation(name, tuple(p), expected, family=family) for name, (p, family, expected) in clients.AT_RANDOM.items()),
    *(Mutation(name, tuple(p), "I", family=family, checked=True) for name, (p, family) in corruptions.STATES.items()),
):
    assert _each.name not in MUTATIONS, _each.name
    MUTATIONS[_each.name] = _each
SEEDS = range(400)

ENOUGH_S = 20.0  # of CPU, in one of the smallest worlds
DRAWN = range(3000)  # seeds of which some forty begin like any one schedule
LEGIBLE = 200  # characters of what was left over

# Random schedules that were seen to run into it: (family, seed). Whichever guarantee is violated there, the same seed
# holds without the defect. What a seed draws changes with the simulator; where it no longer finds the defect, another
# one near the defect's own schedule may, or that schedule does.
#
# Four have none. No random schedule loses messages on a path that works, and no subscriber makes up what is in its map
# (`life_that_a_map_has_made_up`). `incarnation_never_goes_back` needs a
# publisher without epochs on both sides of a partition, which protocol 14 (L1) does not promise anything to. In
# `flush_by_an_abandoned_ingress` a publisher sends again what it has not heard of for longer than its timeout: those of
# random schedules report that as undecided, as protocol 15 has it.
BY_SEED: dict[str, tuple[str, int]] = {
    "accept_crosses_replay": ("modes", 0),
    "accepts_before_it_knows_anything": ("all-die", 10),
    "aggregated_accept_without_the_lost_subscriber": ("together", 3),
    "all_die_and_others_may_be_there": ("all-die", 10),
    "all_die_before_it_ever_attached": ("files", 56),
    "all_routers_at_once": ("all-die", 10),
    "answer_says_since_when": ("crossing", 229),
    "answered_before_those_who_start_have_met": ("near", 351),
    "apart_for_three_timeouts": ("long-apart", 12),
    "asks_no_proof": ("crossing", 446),
    "attach_and_detach_read_late": ("sparse", 2),
    "attach_read_late_plain": ("all-die", 13),
    "broken_and_gone_before_it_was_told": ("near", 485),
    "called_where_a_session_is_over": ("near", 62),
    "client_accepts_before_it_has_written": ("ours", 5),
    "client_attaches_with_the_same_epoch": ("ours", 0),
    "client_does_not_ask_what_another_has_accepted": ("ours-apart", 24),
    "client_does_not_repeat_its_verdict": ("ours", 390),
    "client_does_not_tell_a_gap": ("ours-apart", 7),
    "client_forgets_a_tag_when_it_accepts": ("ours-apart", 0),
    "client_keeps_a_refused_incarnation": ("near", 361),
    "client_leaves_the_undecided_out": ("ours", 11),
    "client_sends_again_after_a_late_answer": ("near", 2798),
    "client_sends_again_after_it_has_expired": ("near", 309),
    "client_sends_again_in_another_order": ("ours", 5),
    "client_sends_before_it_has_written": ("ours-apart", 283),
    "client_settles_before_it_has_forgotten": ("ours", 182),
    "client_takes_the_answer_for_a_claim": ("near", 481),
    "client_takes_what_it_needs_for_accepted": ("near", 115),
    "client_takes_what_it_reads_for_new": ("near", 289),
    "closed_publisher_and_old_ingress": ("all-die", 9),
    "condition_answer_to_an_earlier_question": ("near", 8),
    "condition_covered_neighbour_does_not_cover": ("released", 8),
    "condition_leave_of_an_earlier_subscription": ("expiry", 169),
    "condition_lost_router_covers_nothing": ("near", 247),
    "condition_orphan_is_covered_nowhere": ("near", 217),
    "condition_pubdown_of_an_earlier_ingress": ("crossing", 3),
    "condition_sign_of_life_older_than_the_subscription": ("near", 20),
    "condition_stream_of_an_ended_session": ("apart", 458),
    "condition_subscribed_during_partition": ("sparse", 1727),
    "condition_synced_under_an_unknown_set": ("together", 3),
    "condition_taken_before_the_subscription_was_known": ("near", 324),
    "confirmed_before_everybody_knows": ("modes", 436),
    "confirms_before_everybody_knows": ("modes", 436),
    "covered_elsewhere_before_its_router_knows": ("near", 149),
    "earlier_life_knows_nothing_of_the_later": ("near", 34),
    "entry_of_a_stale_attach_is_no_knowledge": ("near", 341),
    "expected_of_a_publisher_that_got_no_credit": ("near", 14),
    "expiry_seen_differently": ("near", 1003),
    "flow_without_credit_before_the_question": ("near", 721),
    "fresh_subscriber_and_ingress_failover": ("together", 4),
    "given_up_at_once_where_nothing_was_accepted": ("near", 312),
    "given_up_where_nothing_was_accepted": ("near", 7),
    "gives_up_who_may_be_out_of_sight": ("long-apart", 101),
    "heartbeat_sent_before_the_question": ("crossing", 165),
    "joins_reordered": ("crossing", 3),
    "journal_drops_a_row_with_its_first_tag": ("ours", 10),
    "known_from_a_session_that_was_over": ("near", 558),
    "map_of_a_publisher_that_was_elsewhere": ("long-apart", 101),
    "mark_of_another_router_hides_no_gap": ("near", 315),
    "mark_that_came_after_the_answer": ("near", 44),
    "no_map_is_not_an_empty_map": ("crossing", 41),
    "owes_no_backlog": ("released", 10),
    "proof_from_before_all_were_together": ("near", 87),
    "pub_overtaken_by_subscriber": ("near", 305),
    "publisher_back_at_the_other_side": ("long-apart", 101),
    "publisher_that_a_map_tells_of_may_come_too_late": ("near", 1554),
    "publisher_works_at_the_other_side": ("long-apart", 101),
    "removed_with_a_link": ("files", 13),
    "restarted_router_does_not_know_orphans": ("all-die", 1),
    "resumptions_come_first_in_credit": ("together", 51),
    "reused_tags_after_memory_loss": ("released", 8),
    "router_dies_when_it_has_asked_everybody": ("near", 3087),
    "router_that_starts_breaks_nobody_who_is_there": ("near", 617),
    "router_that_stood_still_has_seen_nobody": ("near", 374),
    "sent_again_while_nobody_accepts": ("near", 679),
    "settled_before_it_is_listed": ("near", 419),
    "sign_of_life_read_late_plain": ("all-die", 2225),
    "sign_of_life_where_the_clock_is_ahead": ("near", 710),
    "stale_ingress_overtaken": ("crossing", 10),
    "subscribed_during_partition": ("sparse", 3),
    "transfer_sent_before_the_question": ("near", 992),
    "unresolved_not_listed": ("all-die", 4),
    "who_was_to_be_waited_for_has_started_again": ("near", 123),
    "who_was_to_be_waited_for_is_gone": ("near", 283),
    "zombie_ingress_declares_settled": ("crossing", 152),
    "zombie_ingress_replays_to_crossing_subscriber": ("crossing", 446),
}
# ... and those that are found in a few seconds by going through one of the smallest worlds.
BY_WORLD: dict[str, str] = {
    "condition_lost_router_covers_nothing": "crash-1-one",
    "condition_orphan_is_covered_nowhere": "restart-1-one",
    "queue_holder_is_away": "queue-drops-1-one",
    "queue_holder_is_attached": "queue-drops-1-one",
    "queue_new_before_the_consumer_is_heard": "queue-order-trunk-1",
}
assert MUTATIONS.keys() >= BY_SEED.keys() | BY_WORLD.keys()


def caught(mutation: Mutation, seeds: Iterable[int] = SEEDS) -> str | None:
    """Where, and the first line of the violation."""
    known = [BY_SEED[mutation.name]] if mutation.name in BY_SEED else []
    for family, seed in chain(known, nearby(mutation) if known else ()):
        if family == NEAR:
            draw_variation(seed)  # what it begins like is recorded without the defect
        with defective(mutation.patches):
            _, failure = explore(seed, family, check_every=0)
        if isinstance(failure, AssertionError) and first_line(failure).startswith(("G", mutation.expected)):
            return f"seed {seed}: {first_line(failure)} (--family {family})"
    with defective(mutation.patches):
        if mutation.name in BY_WORLD:
            world = BY_WORLD[mutation.name]
            finding = Search(WORLDS[world], seconds=ENOUGH_S).run().finding
            if finding is not None and finding.text.startswith("G"):
                return f"world {world}: {finding.text.splitlines()[0]}"
        if mutation.schedule is not None:
            try:
                with unchecked():
                    SCENARIOS[mutation.schedule](World)
            except AssertionError as violation:
                text = first_line(violation)
                return f"schedule {mutation.schedule}: {text}" if text.startswith(mutation.expected) else None
            return None
        for seed in seeds:
            _, failure = explore(seed, mutation.family, check_every=int(mutation.checked))
            if failure is not None and first_line(failure).startswith(mutation.expected):
                return f"seed {seed}: {first_line(failure)}"
    return None


@contextmanager
def unchecked() -> Iterator[None]:
    """Schedules in which nobody looks at the state of routers: a defect is to show in what applications see."""
    before, World.check_every = World.check_every, 0
    try:
        yield
    finally:
        World.check_every = before


def nearby(mutation: Mutation) -> Iterator[tuple[str, int]]:
    """Seeds that begin like its own schedule."""
    for seed in DRAWN if mutation.schedule in NAMES else ():
        if drawn_name(f"{seed}") != mutation.schedule:
            continue
        beginning = draw_variation(seed).beginning
        if beginning is not None and beginning.schedule == mutation.schedule:
            yield NEAR, seed


def first_line(failure: BaseException) -> str:
    return str(failure).split("\n", 1)[0][:LEGIBLE]
