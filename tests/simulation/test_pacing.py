"""What pauses in random schedules, and what follows what; and losses that nothing excuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaos.simulation.random.explore import Run
from chaos.simulation.random.pacing import PAUSES, STAYS_UNREAD, Pacing
from chaos.simulation.random.plan import FAMILIES, MESH, STAR, Plan, draw, may_part
from chaos.simulation.scenarios.schedule import Schedule
from chaos.simulation.world.checker import Checker, Violation
from chaos.simulation.world.clients import UNIQUE
from chaos.simulation.world.faulty_world import FaultyWorld
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.subscribers import Subscriber
from chaos.simulation.world.world import Event


def run_of(family: str, **settings: Any) -> Run:
    """Two routers, a publisher and a subscriber that are up, and this pacing."""
    plan = draw(next(seed for seed in range(1000) if suits(draw(seed, family))), family)
    run = Run(replace(plan, **{"pausing": 0.0, "stale": 0.0, "follows": (), **settings}))
    Schedule(run.world).up("s0@A", "p0@A")
    return run


def suits(plan: Plan) -> bool:
    return plan.names == "AB" and len(plan.clients) == 2 and plan.budget["cdrop"] > 0 and not plan.config


def test_what_pauses_happens_after_its_time_and_is_not_read_in_other_pieces() -> None:
    run = run_of("together")
    pacing = Pacing(run)
    usual: list[Event] = [
        ("c2r", ("p0", 1)),
        ("gulp", ("p0", 1)),
        ("c2r", ("s0", 1)),
        ("msg", "A", "B"),
        ("msg", "B", "A"),
    ]
    pacing.pause([("c2r", ("p0", 1)), ("gulp", ("p0", 1)), ("msg", "A", "B")], 7, (20,))
    assert pacing.without_paused(usual, 26) == [("c2r", ("s0", 1)), ("msg", "B", "A")]
    assert pacing.without_paused(usual, 27) == usual
    assert not pacing.paused


def test_each_kind_of_event_is_as_likely_to_pause() -> None:
    run = run_of("together", pausing=1.0)
    usual: list[Event] = [
        ("msg", "A", "B"),
        ("msg", "B", "A"),
        ("r2c", ("s0", 1)),
        ("accept", "s0", 0),
        ("accept", "s0", 1),
    ]
    began: dict[Event, int] = {}
    for _ in range(600):
        pacing = Pacing(run)
        assert len(pacing.without_paused(usual, 0)) < len(usual)
        for beginning, until in pacing.paused.items():
            assert until in PAUSES
            began[beginning] = began.get(beginning, 0) + 1
    assert began.keys() == {
        ("msg", "A", "B"),
        ("msg", "B", "A"),
        ("r2c", ("s0", 1)),
        ("cbit", ("s0", 1)),
        ("accept", "s0"),
    }
    assert 150 < began["accept", "s0"] < 250


def test_what_a_client_wrote_before_it_went_lies_unread_while_it_goes_elsewhere() -> None:
    run = run_of("together", stale=1.0)
    pacing = Pacing(run)
    run.step(("cdrop", ("p0", 1)))
    assert pacing.after(("cdrop", ("p0", 1)), 0) is None
    usual = run.usual()
    assert {("rnotice", ("p0", 1)), ("connect", "p0", "A"), ("connect", "p0", "B")} <= {*usual}
    assert {*usual} - {*pacing.without_paused(usual, min(STAYS_UNREAD) - 1)} == {
        ("rnotice", ("p0", 1)),
        ("connect", "p0", "A"),
    }
    assert pacing.without_paused(usual, max(STAYS_UNREAD)) == usual


def test_fault_follows_at_once_on_what_it_concerns() -> None:
    run = run_of("together", follows=(("send", "cdrop", 1.0),))
    pacing = Pacing(run)
    assert pacing.after(("settle", "p0"), 0) is None
    assert pacing.after(("send", "p0"), 0) == ("cdrop", ("p0", 1))
    run.budget["cdrop"] = 0
    assert pacing.after(("send", "p0"), 0) is None


def test_publisher_that_gives_up_before_it_is_answered_closes_nothing() -> None:
    """protocol 5.2: that detach may have been pipelined."""
    world = FaultyWorld("AB", [Publisher(kind=UNIQUE)], [Subscriber()])
    schedule = Schedule(world).up("s0@B", "p0@A")
    schedule.hold(("accept",))
    schedule.send("p0")
    schedule.run()
    schedule.lose("p0")
    world.step(("quit", "p0", "B"))
    schedule.run()
    schedule.release()
    schedule.attach("p0@A")
    assert schedule.accepted("s0") == {("p0", 0)}
    world.publisher("p0").total = 1
    schedule.end()


def test_loss_that_nobody_tells_is_excused_only_where_routers_may_be_apart() -> None:
    assert not run_of("expiry").world.checker.may_have_holes
    assert run_of("crossing").world.checker.may_have_holes
    for shape, apart in ((MESH, False), (STAR, True)):  # where the one in the middle dies
        plan = replace(run_of("expiry").plan, names="ABC", shape=shape)
        assert may_part(replace(plan, budget=plan.budget | {"crash": 1})) == apart
        assert not may_part(replace(plan, budget=plan.budget | {"crash": 0}))
    assert {name for name, family in FAMILIES.items() if family.least_routers > 1} >= {"apart", "sparse", "crossing"}
    for may_have_holes in (True, False):
        checker = Checker(strict=False, may_have_holes=may_have_holes)
        checker.confirmed("s0")
        checker.sent(("p0", 0))
        checker.told_accepted(("p0", 0), ("A", 1))
        if may_have_holes:
            checker.quiescent({("A", 2)})
            assert checker.holes == 1
        else:
            with pytest.raises(Violation, match="G5 s0 missed"):
                checker.quiescent({("A", 2)})


def test_nobody_is_judged_before_routers_have_found_together_again() -> None:
    """B, which stood still for so long that A has forgotten the way to it, is met again by its next heartbeat."""
    run = run_of("together", config={"heartbeat_s": 1.5, "dead_after_s": 4.5})
    world = run.world
    world.step(("still", "B"))
    world.step(("wait", 400.0))
    world.step(("down", "A", "B"))
    world.step(("heal",))
    world.step(("wake", "B", False))
    assert next(run.apart(), None) == "A is not in session with B"
    run.calm(lambda events: events[0])
    assert not [*run.apart()]


@pytest.mark.parametrize(
    ("away_s", "died", "answered_again", "left", "excused"),
    [
        (4.5, "", False, "A", True),  # nobody is left who has seen it expire
        (3.5, "", False, "A", False),  # it was waited for
        (4.5, "", False, "AB", False),  # B was there all the time
        (4.5, "C", False, "AB", True),  # B may have taken it for one that is at C
        (4.5, "", True, "A", False),  # A's second life has seen it go, and lives
    ],
)
def test_who_was_given_up_must_be_told_while_a_router_is_left_that_saw_it(
    away_s: float, died: str, answered_again: bool, left: str, excused: bool
) -> None:
    """Granted 4 s. It is answered at A, which accepts without it later, dies and is there again."""
    checker = Checker(strict=False, may_have_holes=False)
    checker.confirmed("s0")
    checker.attached("s0", 10.0, 4.0)
    for name in died:
        checker.died((name, 1))
    checker.sent(("p0", 0))
    checker.told_accepted(("p0", 0), ("A", 1))
    checker.died(("A", 1))
    checker.started(("A", 2))
    if answered_again:
        checker.attached("s0", 11.0, 4.0)
    checker.attached("s0", 10.0 + answered_again + away_s, 4.0)
    alive = {(name, 2 if name == "A" else 1) for name in left}
    if excused:
        checker.quiescent(alive)
        assert checker.holes == 1
    else:
        with pytest.raises(Violation, match="G5 s0 missed"):
            checker.quiescent(alive)


@pytest.mark.parametrize(
    ("memory", "told", "excused"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_what_was_sent_before_a_gap_may_come_late_to_a_subscriber_without_memory(
    memory: bool, told: bool, excused: bool
) -> None:
    """It gets m1 where its publisher is, is told that something is missing, and comes to a former ingress, which has m0
    and asks nothing before it sends that (protocol 7.4)."""
    checker = Checker(strict=False, without_memory=set() if memory else {"s0"})
    checker.confirmed("s0")
    checker.sent(("p0", 0))
    checker.told_accepted(("p0", 0), ("C", 1))
    checker.sent(("p0", 1))
    checker.handed("s0", ("p0", 1))
    if told:
        checker.subscriber_told("s0")
        checker.confirmed("s0")
    if excused:
        checker.handed("s0", ("p0", 0))
    else:
        with pytest.raises(Violation, match="G3 s0 first sees"):
            checker.handed("s0", ("p0", 0))
