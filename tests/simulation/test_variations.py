"""Random schedules near the named ones: what is recorded, how it is changed, and what keeps them within the promises."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest

from chaos.simulation.defects.mutations import BY_SEED, MUTATIONS
from chaos.simulation.defects.taking import always, defective
from chaos.simulation.random.explore import Run, explore
from chaos.simulation.random.plan import PARTING, Beginning, Plan
from chaos.simulation.random.recording import (
    BY_ITSELF,
    NOT_RECORDED,
    Player,
    Recording,
    may_wait,
    recordings,
    without_number,
)
from chaos.simulation.random.shrink import Shrinking, kind_of_failure, simpler
from chaos.simulation.random.variations import CHANGES, NAMES, draw_variation, drawn_name
from chaos.simulation.scenarios import SCENARIOS
from chaos.simulation.world.clients import UNIQUE
from router.core.egress import Egress

SEEDS = 100
# Where a random schedule does not go, and why: it is not played to its end as it was recorded.
NOT_TO_THE_END = {
    "client_whose_twin_subscribes_anew": "a second process starts before there was a first",
    "flush_by_an_abandoned_ingress": "its publisher sends again what it has to report as undecided by then (15)",
    "large_sent_again_before_the_answer": "the same",
    "no_acknowledgement_though_there_is_a_path": "what a router sends on a trunk that works is lost",
    "queue_two_consumers_fail": "the last consumer closes",
    "sign_of_life_from_before_the_clock_was_set_back": "its later connection has the lower number",
}


first_drawn = cache(drawn_name)


@cache
def drawn_like(name: str) -> tuple[Plan, Beginning]:
    """A seed's that begins like that schedule."""
    for seed in range(10_000):
        if first_drawn(f"{seed}") == name:  # or that and another behind it
            plan = draw_variation(seed)
            assert plan.beginning is not None
            if plan.beginning.schedule == name:
                return plan, plan.beginning
    raise AssertionError(f"no seed begins like {name}")


def plan_of(recording: Recording) -> Plan:
    """As it was recorded."""
    plan, beginning = drawn_like(recording.of)
    kinds = [*plan.budget, *(event[0] for event, _ in recording.steps if event[0] not in BY_ITSELF)]
    return replace(
        plan, names=recording.names, clients=recording.clients, address=recording.address,
        config=dict(recording.config), budget=dict.fromkeys(kinds, 20), turns=False, high=None,
        beginning=replace(beginning, steps=recording.steps[: recording.body], exact=recording.body),
    )  # fmt: skip


def begun(plan: Plan) -> Run:
    """The beginning alone is played."""
    run = Run(plan)
    run.begin()
    Player(run, run.plan.beginning).play()
    return run


def test_every_named_schedule_is_begun_like_or_left_out_for_a_reason() -> None:
    assert {*NAMES} | NOT_RECORDED.keys() == SCENARIOS.keys()
    assert not {*NAMES} & NOT_RECORDED.keys()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_TO_THE_END])
def test_without_changes_everything_happens_as_it_was_recorded(name: str) -> None:
    for recording in recordings(name):
        run = begun(plan_of(recording))
        assert run.events == [without_number(event) for event, _ in recording.steps[: recording.body]]
        assert run.as_recorded()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_change_says_from_where_on_it_is_one(change: object) -> None:
    assert callable(change)
    for number, name in enumerate(NAMES):
        (recording, *_) = recordings(name)
        steps = [*recording.steps]
        exact = change(steps, recording, random.Random(number))
        assert tuple(steps[:exact]) == recording.steps[:exact]


def test_seed_draws_the_same_whatever_was_drawn_before() -> None:
    first = [repr(draw_variation(seed)) for seed in range(40)]
    for seed in range(40, 80):
        draw_variation(seed)
    assert [repr(draw_variation(seed)) for seed in range(40)] == first


def test_where_the_named_schedule_excuses_no_loss_nothing_comes_that_would() -> None:
    strict = [plan for plan in map(draw_variation, range(400)) if plan.rules.strict]
    assert len(strict) > 100
    for plan in strict:
        named = [event[0] for event, _ in plan.beginning.steps]
        for kind in {*PARTING} - {"hold", "still"}:  # which part nobody as long as time does not pass
            assert plan.budget.get(kind, 0) == named.count(kind), (plan.seed, kind)


def test_time_that_passes_while_routers_have_not_met_keeps_them_apart() -> None:
    """Longer than `discovery`: with anything that goes wrong beside it, a loss may be excused."""
    (recording,) = recordings("answered_before_those_who_start_have_met")
    assert recording.strict
    assert recording.apart
    (recording,) = recordings("expiry_seen_differently")
    assert not recording.apart, "they had, though one has not read what the other said"


def test_where_publishers_need_subscribers_one_is_left() -> None:
    """Also when a schedule that goes wrong is made smaller: it would go wrong in another way."""
    drawn, _ = drawn_like("closed_publisher_and_old_ingress")
    assert drawn.address.no_subscribers == "hold"
    run = Run(replace(drawn, clients=tuple(client for client in drawn.clients if client.name in ("s0", "p0"))))
    assert run.may_leave(run.world.publishers[0])
    assert not run.may_leave(run.world.subscribers[0])
    for plan in map(draw_variation, range(100)):
        assert plan.address.no_subscribers != "hold" or all(
            any(not client.publishes for client in smaller.clients) for smaller in simpler(plan)
        )


def test_second_schedule_behind_the_first_is_played_by_the_same_clients_and_excuses_what_either_does() -> None:
    for seed, plan in ((seed, draw_variation(seed)) for seed in range(200)):
        first, then, second = plan.beginning.schedule.partition(", then ")
        if not then:
            continue
        several = [*recordings(first), *recordings(second)]
        assert plan.beginning.apart is (any(each.apart for each in several))
        assert not plan.rules.strict or all(each.strict for each in several)
        assert plan.beginning.exact <= max(each.body for each in recordings(first))
        assert {*plan.names} in [{*each.names} for each in recordings(first)]
        run = begun(plan)
        assert {event[2] for event in run.events if event[0] == "connect"} <= {*plan.names}, seed


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_schedule_near_a_named_one_holds(first: int) -> None:
    for seed in range(first, first + 20):
        run, failure = explore(seed, "near")
        assert failure is None, f"near {seed}: {failure!r} ({run.plan.unusual()})"


def test_what_must_have_happened_happens_before_time_passes_that_counts_on_it() -> None:
    """S loses its connection and is back, which nobody has read when a publisher is to be given up."""
    (recording,) = recordings("expected_of_a_publisher_that_got_no_credit")
    plan = plan_of(recording)
    steps = [*plan.beginning.steps]
    wait = next(i for i, (event, _) in enumerate(steps) if event[0] == "wait")
    unread = ("c2r", ("s0", 2))
    steps[wait : wait + 1] = [
        (("cdrop", ("s0", 1)), ()), (("connect", "s0", "A", 2), ()), (steps[wait][0], (unread,)),
    ]  # fmt: skip
    run = begun(replace(plan, beginning=replace(plan.beginning, steps=tuple(steps), exact=0)))
    before = run.events[: run.events.index(("wait", 130.0))]
    assert unread in before


def test_no_time_passes_while_a_frame_that_proves_somebody_lies_unread() -> None:
    (recording,) = recordings("synced_under_an_unknown_set")
    run = begun(plan_of(recording))
    publisher = run.world.publisher("p0")
    assert publisher.kind == UNIQUE
    run.events.append(("something else",))
    assert may_wait(run, 3.0)
    run.step(("hb", "p0"))
    assert may_wait(run, 1.0)
    assert not may_wait(run, 3.0)
    assert not may_wait(run, 60.0)


def test_step_behind_the_unchanged_ones_lets_time_pass_by_the_rules() -> None:
    """P has not read its credit, which a changed step would have let it read, when it is to be given up."""
    (recording,) = recordings("sent_again_while_nobody_accepts")
    plan = plan_of(recording)
    assert plan.beginning is not None
    read = max(i for i, (event, _) in enumerate(recording.steps[: recording.body - 2]) if event == ("r2c", ("p0", 2)))
    wait = next(step for step in recording.steps if step[0][0] == "wait")
    steps = (*recording.steps[:read], (wait[0], (("r2c", ("p0", 2)), ("accept", "s0", 0))))
    run = begun(replace(plan, beginning=replace(plan.beginning, steps=steps, exact=read)))
    assert run.events.index(wait[0]) > run.events.index(("c2r", ("p0", 2)), read)


def test_many_short_waits_outlast_no_timeout_where_no_loss_is_excused() -> None:
    """Those at the end of a schedule, with somebody away who was there when it was recorded."""
    (recording,) = recordings("queue_all_die_and_the_holder_is_late")
    plan = plan_of(recording)
    assert plan.beginning is not None
    assert plan.rules.strict
    steps = ((("connect", "s1", "A", 1), ()), *[(("wait", 1.0), ())] * 60)
    run = begun(replace(plan, beginning=replace(plan.beginning, steps=steps, exact=0)))
    assert 40 < run.world.now <= plan.address.subscription_timeout_s - plan.rules.lasts_s


def test_nothing_is_recorded_with_a_defect() -> None:
    recordings.cache_clear()
    with defective([(Egress, "_may_infer", always(True))]), pytest.raises(AssertionError, match="deliberate defect"):
        draw_variation(0)
    draw_variation(0)


def test_violation_near_a_named_schedule_can_be_made_small() -> None:
    family, seed = BY_SEED["pub_overtaken_by_subscriber"]
    draw_variation(seed)
    with defective(MUTATIONS["pub_overtaken_by_subscriber"].patches):
        run, failure = explore(seed, family)
        assert failure is not None
        shrinking = Shrinking(kind_of_failure(failure), tries=40)
        whole = shrinking.first(run.plan, run.events)
        assert whole is not None
        small = shrinking.fewer_events(whole)
    assert len(small.events) < len(whole.events)
    assert str(small.failure).startswith("G2")
