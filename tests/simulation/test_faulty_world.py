"""What random schedules may do to connections and trunks: pieces, full transports, silence; and plans made small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaos.simulation.random.explore import Run, failure_of
from chaos.simulation.random.plan import LINE, RING, draw
from chaos.simulation.random.shrink import shrink, simpler
from chaos.simulation.random.variations import draw_variation
from chaos.simulation.scenarios.schedule import SHORT, Schedule
from chaos.simulation.world.checker import Checker, Violation
from chaos.simulation.world.clients import UNIQUE
from chaos.simulation.world.faulty_world import FaultyWorld
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.queue_checker import QueueChecker
from chaos.simulation.world.subscribers import Subscriber
from chaos.simulation.world.trace import Trace
from router.config import AddressConfig
from router.core.core import Core


def network(names: str, publisher: Publisher, subscriber: Subscriber, **config: Any) -> tuple[FaultyWorld, Schedule]:
    world = FaultyWorld(names, [publisher], [subscriber], **config)
    return world, Schedule(world)


def read_byte_by_byte(world: FaultyWorld) -> int:
    """Every frame that waits, all but its last byte, which `c2r` and `r2c` are for."""
    pieces = 0
    for cid, pipe in list(world.pipes.items()):
        for kind, waiting, read in (("bit", pipe.c2r, pipe.c2r_read), ("cbit", pipe.r2c, pipe.r2c_read)):
            for _ in range(len(waiting[0]) - read - 1 if waiting else 0):
                world.step((kind, cid, 1))
                pieces += 1
    return pieces


def test_frames_that_come_byte_by_byte_say_the_same() -> None:
    world, schedule = network("AB", Publisher(total=3), Subscriber())
    schedule.run()
    world.step(("connect", "s0", "A"))
    world.step(("connect", "p0", "B"))
    pieces = 0
    while world.clients["s0"].unsettled or len(schedule.accepted("s0")) < 3:
        pieces += read_byte_by_byte(world)
        world.step(world.enabled()[0])
    assert pieces > 1000
    schedule.end()


@pytest.mark.parametrize(
    ("family", "seed"), [("silent", 4), ("silent", 7), ("ours-apart", 2), ("sparse", 3), ("all-die", 2)]
)
def test_what_a_world_remembers_of_its_routers_is_what_it_would_find_out(family: str, seed: int) -> None:
    run = Run(draw(seed, family))
    world = run.world
    looked = [0, 0]

    def look(_: object) -> None:
        for name, known in {**world.deadlines}.items():
            if world.sites[name] is not None:
                del world.deadlines[name]
                assert world.deadline(name) == known
                looked[0] += 1
        if world.to_read is not None:
            assert world.to_read == [*world.between_routers()]
            looked[1] += 1

    world.observer = look
    assert failure_of(run.play) is None
    assert all(looked)


def test_router_writes_no_more_deliveries_to_a_client_that_reads_nothing() -> None:
    world, schedule = network("A", Publisher(total=60), Subscriber(credit=100))
    world.high = 300
    schedule.up("s0@A", "p0@A")
    cid = ("s0", 1)
    world.step(("stall", cid))
    schedule.run(sends=True)
    waiting = world.pipes[cid]
    assert waiting.server.output_paused
    assert 300 < waiting.unread < 600
    world.step(("unstall", cid))
    schedule.run(sends=True)
    assert len(schedule.accepted("s0")) == 60
    schedule.end()
    assert world.site("A").router.buffers.unread_bytes == 0


def test_suspended_router_is_declared_dead_and_reads_what_was_written_when_it_is_resumed() -> None:
    world, schedule = network("AB", Publisher(), Subscriber(), heartbeat_s=0.5, dead_after_s=3.0, strict=False)
    schedule.up("s0@A", "p0@B")
    world.step(("still", "A"))
    assert ("cquit", ("s0", 1)) in world.enabled()
    schedule.hold(("cquit",))
    schedule.send("p0")
    schedule.run()
    world.advance(4.0)
    schedule.run()
    assert not world.site("B").router.core.members.up
    assert schedule.accepted("s0") == set()
    world.step(("cquit", ("s0", 1)))
    schedule.attach("s0@B")
    assert schedule.accepted("s0") == {("p0", 0)}
    assert not [event for event in world.enabled() if event[0] in ("c2r", "rnotice") and event[1] == ("s0", 1)]
    world.step(("wake", "A", True))
    assert ("rnotice", ("s0", 1)) in world.enabled()
    schedule.run()
    assert "B" in world.site("A").router.core.members.up
    world.publishers[0].total = 1
    schedule.end()


def test_router_suspended_for_too_long_has_forgotten_nothing_and_settles_nothing() -> None:
    """B expires what A has not said for so long; then A is resumed, where P has left m0 behind."""
    world, schedule = network("AB", Publisher(), Subscriber(), heartbeat_s=0.5, dead_after_s=3.0, strict=False)
    schedule.up("s0@B", "p0@A")
    schedule.hold(("c2r", ("p0", 1)))
    schedule.send("p0")
    world.step(("still", "A"))
    world.advance(4.0)
    schedule.run()
    world.step(("late", "A", False))
    schedule.release()
    schedule.attach("p0@A", "s0@B")
    assert schedule.accepted("s0") == {("p0", 0)}
    world.publishers[0].total = 1
    schedule.end()


def test_silence_in_one_direction_ends_the_session_until_it_is_over() -> None:
    world, schedule = network("AB", Publisher(), Subscriber(), heartbeat_s=0.5, dead_after_s=3.0, strict=False)
    schedule.run()
    assert "A" in world.site("B").router.core.members.up
    world.step(("hold", "A", "B"))
    world.advance(4.0)
    schedule.run()
    assert "A" not in world.site("B").router.core.members.up
    assert "B" not in world.site("A").router.core.members.up
    world.step(("let", "A", "B"))
    world.advance(4.0)
    schedule.run()
    assert "A" in world.site("B").router.core.members.up


def test_trunk_that_breaks_within_a_packet_loses_nothing() -> None:
    world, schedule = network("AB", Publisher(total=2), Subscriber(), strict=False)
    schedule.up("s0@A", "p0@B")
    world.step(("hold", "B", "A"))
    schedule.run(sends=True)
    assert world.held()
    world.step(("drip", "B", "A", 7))
    world.step(("cut", "A", "B"))
    schedule.run()
    world.step(("let", "B", "A"))
    schedule.end()
    assert len(schedule.accepted("s0")) == 2


def test_a_publisher_that_answers_no_question_is_known_when_time_has_passed() -> None:
    """Its heartbeats prove that it is there."""
    publisher = Publisher(kind=UNIQUE)
    world, schedule = network("AB", publisher, Subscriber(), strict=False)
    trace = Trace(world)
    schedule.attach("s0@B", "p0@A")
    assert not world.site("A").router.core.addresses["orders"].publishers.entries
    world.step(("pass", 3.0))
    assert world.site("B").router.core.addresses["orders"].publishers.entries
    assert publisher.heard == world.now
    assert [row.text for row in trace.rows if row.kind == "time"] == ["3.0 s pass, with heartbeats"]
    schedule.end()


def test_what_is_left_at_the_end_is_seen() -> None:
    world, schedule = network("A", Publisher(total=1), Subscriber())
    schedule.up("s0@A", "p0@A")
    assert world.router_remembers(world.site("A").router)


def test_plans_are_made_small_in_every_respect() -> None:
    plan = draw(5, "sparse")
    plan = replace(plan, names="ABC", config={"window_messages": 1}, turns=True, high=100)
    found = list(simpler(plan))
    assert any(len(each.clients) < len(plan.clients) for each in found)
    assert {"BC", "AC", "AB"} <= {each.names for each in found}
    assert any(each.config == {} for each in found)
    assert any(not each.turns for each in found)
    assert any(each.high is None for each in found)
    for each in found:
        assert all(router in each.names for _, router in each.places)


def test_violation_is_shrunk_to_those_who_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Core, "may_accept", lambda self, *arguments: True)
    found = shrink(10, "all-die", tries=600)
    assert sorted(client.publishes for client in found.plan.clients) == [False, True]
    assert len(found.plan.names) == 1
    assert [client.number for client in found.plan.clients if client.publishes] == [1]
    assert sum(event[0] == "crash" for event in found.events) == 1


def test_publisher_whose_answer_lay_unread_until_it_may_be_forgotten_sends_nothing_again() -> None:
    publisher = Publisher()
    world, schedule = network("AB", publisher, Subscriber(), strict=False)
    schedule.up("s0@A", "p0@A")
    publisher.gives_up_s = 40.0
    schedule.hold(("r2c", ("p0", 1)))
    schedule.send("p0")
    schedule.run()
    schedule.lose("p0")
    schedule.run()
    schedule.hold(("r2c", ("p0", 2)))
    schedule.attach("p0@B")
    schedule.pass_time(46.0)
    assert publisher.unsettled
    schedule.release(("r2c", ("p0", 2)))
    schedule.run()
    assert world.checker.told == [("p0", "undecided")]
    assert not publisher.unsettled
    schedule.end()
    assert schedule.accepted("s0") == {("p0", n) for n in range(publisher.total)}


def test_what_a_publisher_at_the_other_side_still_has_is_not_new_to_the_subscription_that_follows_a_broken_one() -> (
    None
):
    """S1 has not accepted m1, so P still has it. A has accepted m0 and m2 and given S0 up; B does not give P up, however
    long it has not seen it, so that S0 still lists m1."""
    clients = [Subscriber("s0"), Subscriber("s1")]
    short = AddressConfig(subscription_timeout_s=40.0, publisher_timeout_s=100.0)
    world = FaultyWorld("AB", [Publisher()], clients, strict=False, address=short)
    s = Schedule(world).up("s0@B", "s1@A", "p0@A")
    s.send("p0")
    s.run()
    s.hold(("accept", "s1"), ("msg", "B", "A"))  # nobody hears that S0 accepts m1
    s.send("p0")
    s.run()
    assert s.accepted("s0") == {("p0", 0), ("p0", 1)}
    s.step("part", "B")
    s.run()
    s.pass_time(306.0)
    s.send("p0")
    s.run()
    s.step("accept", "s1", 1)
    s.run()
    (held,) = clients[0].unsettled
    s.step("heal")
    s.release(("msg", "B", "A"))
    s.attach("s0@B")
    assert world.checker.told == [("s0", "interrupted")]
    assert [*clients[0].unsettled] == [held]
    assert not clients[0].in_hand
    s.end()
    assert not clients[0].unsettled


def test_a_broken_subscription_that_begins_anew_is_not_handed_what_it_has_accepted() -> None:
    checker = Checker(strict=False)
    checker.confirmed("s0")
    checker.sent(("p0", 0))
    checker.handed("s0", ("p0", 0))
    checker.accepted("s0", ("p0", 0))
    checker.told_accepted(("p0", 0), ("A", 1))
    checker.subscriber_told("s0", (("p0", 0),))
    checker.confirmed("s0")
    with pytest.raises(Violation, match=r"^G2 s0 gets \('p0', 0\) again as new"):
        checker.handed("s0", ("p0", 0))


def test_a_subscriber_without_memory_may_miss_nothing_silently() -> None:
    checker = Checker(strict=False, without_memory={"s0"})
    checker.confirmed("s0")
    checker.sent(("p0", 0))
    checker.told_accepted(("p0", 0), ("A", 1))
    with pytest.raises(Violation, match=r"^G5 s0 missed"):
        checker.quiescent({("A", 1)})
    checker.quiescent({("A", 2)})
    assert checker.holes == 1


@pytest.mark.parametrize(("strict", "without_memory", "abandoned"), [(0, 1, 1), (1, 1, 1), (0, 0, 1), (0, 1, 0)])
def test_only_a_subscriber_without_memory_may_get_late_what_was_abandoned(
    strict: int, without_memory: int, abandoned: int
) -> None:
    checker = Checker(strict=bool(strict))
    checker.without_memory |= {"s0"} if without_memory else set()
    checker.abandoned |= {("p0", 0)} if abandoned else set()
    checker.confirmed("s0")
    for number in range(2):
        checker.sent(("p0", number))
    checker.handed("s0", ("p0", 1))
    if without_memory and abandoned and not strict:
        checker.handed("s0", ("p0", 0))
        with pytest.raises(Violation, match=r"^G2"):
            checker.handed("s0", ("p0", 0))
    else:
        with pytest.raises(Violation, match=r"^G3"):
            checker.handed("s0", ("p0", 0))


def test_what_is_lost_where_a_path_changes_is_asked_for() -> None:
    """A has just lost its trunk to D and sends by way of B, which has not worked out its own paths yet: in less than a
    second A asks what has come, however far the next heartbeat is."""
    world, schedule = network("ABCD", Publisher(), Subscriber(), shape=RING)
    schedule.up()
    world.turns = True
    schedule.hold(("turn",))
    world.step(("connect", "s0", "A"))
    schedule.run()
    schedule.release()
    world.step(("reshape", LINE))
    schedule.run()
    assert world.site("B").network.routes.unroutable
    assert not world.subscriber("s0").confirmed
    world.advance(1.0)
    schedule.run()
    assert world.subscriber("s0").confirmed


def test_only_what_was_rejected_of_a_publisher_in_mode_first_may_come_behind_what_came_later() -> None:
    """Others are spared what one has rejected; its publisher has lost that outcome, and sends it again."""
    checker = Checker()
    checker.confirmed("s0")
    for number in range(3):
        checker.sent(("p0", number))
    checker.rejected("s1", ("p0", 1))
    checker.handed("s0", ("p0", 2))
    with pytest.raises(Violation, match="G3"):
        checker.handed("s0", ("p0", 1))
    checker.at_least_once.add("p0")
    checker.handed("s0", ("p0", 1))
    with pytest.raises(Violation, match="G3"):
        checker.handed("s0", ("p0", 0))


@pytest.mark.parametrize("mode_first", [True, False])
def test_what_an_earlier_life_has_accepted_of_a_publisher_in_mode_first_may_come_behind_what_came_later(
    mode_first: bool,
) -> None:
    """Its router has settled it; it has lost the outcome, and sends it again to who has lost all memory."""
    checker = Checker(at_least_once={"p0"} if mode_first else set())
    checker.confirmed("s0")
    checker.sent(("p0", 0))
    checker.handed("s0", ("p0", 0))
    checker.accepted("s0", ("p0", 0))
    checker.forgot("s0")
    checker.confirmed("s0")
    checker.sent(("p0", 1))
    checker.handed("s0", ("p0", 1))
    if mode_first:
        checker.handed("s0", ("p0", 0))
    else:
        with pytest.raises(Violation, match="G3"):
            checker.handed("s0", ("p0", 0))


@pytest.mark.parametrize("others_accept", [True, False])
def test_what_was_accepted_before_somebody_subscribed_may_come_behind_what_came_later(others_accept: bool) -> None:
    """Of a publisher in mode first, which has lost that outcome; with nobody else the router accepts at once."""
    checker = Checker(at_least_once={"p0"})
    checker.confirmed("s1")
    checker.sent(("p0", 0))
    checker.confirmed("s0")
    checker.sent(("p0", 1))
    checker.handed("s0", ("p0", 1))
    if others_accept:
        checker.accepted("s1", ("p0", 0))
        checker.handed("s0", ("p0", 0))
    else:
        with pytest.raises(Violation, match="G3"):
            checker.handed("s0", ("p0", 0))


@pytest.mark.parametrize("mode_first", [True, False])
def test_who_has_accepted_in_mode_first_and_rejects_it_the_second_time_has_accepted_it(mode_first: bool) -> None:
    checker = Checker(at_least_once={"s0"} if mode_first else set())
    checker.confirmed("s0")
    checker.sent(("p0", 0))
    checker.accepted("s0", ("p0", 0))
    checker.rejected("s0", ("p0", 0))
    if mode_first:
        checker.told_accepted(("p0", 0), ("A", 1))
    else:
        with pytest.raises(Violation, match="G1"):
            checker.told_accepted(("p0", 0), ("A", 1))


def test_who_brings_no_map_has_no_narrow_window_where_publisher_timeout_may_pass() -> None:
    """A limit of protocol 8.5: what does not fit into its window again comes as new."""
    families = ("expiry", "long-apart", "ours", "ours-apart", "silent")
    plans = [draw(seed, family) for family in families for seed in range(60)] + [
        draw_variation(seed) for seed in range(300)
    ]
    seen = set()
    for plan in plans:
        unmapped = any(client.publishes and client.kind == UNIQUE for client in plan.clients)
        passes = plan.rules.expiry or any(plan.budget.get(kind) for kind in ("still", "away", "pass"))
        exact = plan.beginning is not None and plan.beginning.exact == len(plan.beginning.steps)
        narrow = any(name.startswith("window") for name in plan.config)
        assert not (unmapped and passes and narrow) or exact
        seen.add((unmapped, passes, narrow))
    assert seen >= {(True, True, False), (True, False, True), (False, True, True)}


@pytest.mark.parametrize("mode_first", [True, False])
def test_what_came_twice_of_a_publisher_in_mode_first_may_be_accepted_twice(mode_first: bool) -> None:
    """Both had come before the first was accepted."""
    checker = Checker(at_least_once={"p0"} if mode_first else set())
    checker.confirmed("s0")
    checker.sent(("p0", 0))
    checker.handed("s0", ("p0", 0))
    if mode_first:
        checker.handed("s0", ("p0", 0))
    checker.accepted("s0", ("p0", 0))
    if mode_first:
        checker.accepted("s0", ("p0", 0))
    else:
        with pytest.raises(Violation, match="G2"):
            checker.accepted("s0", ("p0", 0))


def test_publisher_whose_attach_was_only_answered_has_not_been_there() -> None:
    """protocol 5.1, 15: nobody else has heard of it, so that what it has in doubt may be forgotten all the same."""
    world = FaultyWorld("AB", [Publisher()], [Subscriber()], strict=False, address=SHORT)
    schedule = Schedule(world).up("s0@A", "p0@A")
    publisher = world.publisher("p0")
    publisher.gives_up_s = SHORT.publisher_expires_s - SHORT.margin_s
    schedule.hold(("r2c", ("p0", 1)))
    schedule.send("p0")
    schedule.run()
    schedule.lose("p0")
    schedule.pass_time(60.0)
    schedule.step("connect", "p0", "A")
    schedule.step("c2r", ("p0", 2))
    schedule.hold(("c2r", ("p0", 2)))
    schedule.run()
    assert publisher.state == "on"
    schedule.lose("p0")
    schedule.pass_time(60.0)
    schedule.run()
    schedule.attach("p0@A")
    assert world.checker.told == [("p0", "undecided")]


def test_a_consumer_that_was_told_may_accept_what_it_had_and_nobody_else_has_to() -> None:
    """The application accepts after the detach, and its router takes that from the next attach's map."""
    queue, late, never = QueueChecker(strict=False), ("p0", 0), ("p0", 1)
    for mid in (late, never):
        queue.sent(mid)
        queue.handed("s0", mid)
    queue.let_go("s0")
    queue.accepted("s0", late)
    queue.told_accepted(late, ("A", 1))
    with pytest.raises(Violation, match="nobody has accepted it"):
        queue.told_accepted(never, ("A", 1))
