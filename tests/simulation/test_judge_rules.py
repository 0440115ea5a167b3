"""Two rules of the simulation's checker (docs/simulation.md, "What the judge checks"): no loss without a word, and no
alarm without a cause. Histories by hand, one that violates each rule beside one that does not."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from chaos.simulation.random.explore import Run
from chaos.simulation.random.plan import draw
from chaos.simulation.scenarios.schedule import ACCEPT, EXPIRY_S, SHORT, Schedule
from chaos.simulation.world.checker import Checker, Violation
from chaos.simulation.world.clients import PLAIN
from chaos.simulation.world.dials import Dial
from chaos.simulation.world.faulty_world import FaultyWorld
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.real_clients import RealPublisher
from chaos.simulation.world.real_subscribers import RealSubscriber
from chaos.simulation.world.subscribers import Subscriber
from router.config import RouterConfig

M0, M1 = ("p0", 0), ("p0", 1)


def subscribed() -> Checker:
    """s0 subscribes, and m0 is sent. What has no outcome was told none."""
    checker = Checker(strict=False, may_be_decided=lambda mid: False)
    checker.confirmed("s0")
    checker.sent(M0)
    return checker


def tell_of_a_gap(checker: Checker, *, cause: bool) -> None:
    """s0 is told of one: without a cause that is a violation."""
    violation = pytest.raises(Violation, match="G5 s0 was told of a gap, and nothing was accepted without it")
    with nullcontext() if cause else violation:
        checker.subscriber_told("s0")


@pytest.mark.parametrize("word", ["", "broken", "resumed = false"])
def test_who_missed_something_is_told(word: str) -> None:
    checker = subscribed()
    checker.told_accepted(M0, ("A", 1))
    if word == "broken":
        checker.subscriber_told("s0")
    elif word:
        assert checker.unknown("s0", waited_for=True)
    if word:
        checker.quiescent({("A", 1)})
    else:
        with pytest.raises(Violation, match=r"G5 s0 missed .* silently"):
            checker.quiescent({("A", 1)})


@pytest.mark.parametrize("told", [True, False])
def test_who_is_declared_by_now_is_told_what_was_accepted_before_that(told: bool) -> None:
    """Seed 4450117194 of files: a plain client, which was removed and declared again, and reads resumed = false."""
    checker = subscribed()
    checker.declare("s0", later=True)
    checker.told_accepted(M0, ("A", 1))
    if told:
        assert not checker.unknown("s0", waited_for=True)
        checker.quiescent({("A", 1)})
    else:
        with pytest.raises(Violation, match=r"G5 s0 missed .* silently"):
            checker.quiescent({("A", 1)})


def test_who_is_taken_out_of_one_file_may_be_told_that_nobody_knows_it() -> None:
    """Seed 4490077128 of files: only A's file had declared it, so that it was never one that all files declare."""
    world = FaultyWorld("AB", [Publisher()], [Subscriber()], strict=False)
    schedule = Schedule(world).up("p0@A", "s0@A").step("declare", "A", "s0").run()
    assert not world.checker.dropped
    schedule.step("declare", "A", "").run()
    assert not world.checker.declared
    assert world.checker.dropped == {"s0"}


@pytest.mark.parametrize(
    "cause", ["", "missed", "a router died", "undecided, perhaps told", "accepted, perhaps unknown"]
)
def test_who_is_told_of_a_gap_has_missed_something_as_far_as_routers_can_know(cause: str) -> None:
    checker = subscribed()
    if cause == "missed":
        checker.told_accepted(M0, ("A", 1))
    elif cause == "a router died":
        checker.died(("B", 1))
    elif cause == "undecided, perhaps told":
        checker.may_be_decided = lambda mid: True
    elif cause:
        checker.handed("s0", M0)
        checker.accepted("s0", M0)
        checker.told_accepted(M0, ("A", 1))
        checker.subscriber_told("s0", (M0,))
    tell_of_a_gap(checker, cause=bool(cause))


def test_what_was_accepted_before_a_subscription_began_is_no_cause_to_tell_it_of_a_gap() -> None:
    checker = subscribed()
    checker.told_accepted(M0, ("A", 1))
    checker.clock = lambda: 5.0
    checker.subscriber_told("s0")
    checker.confirmed("s0")
    checker.sent(M1)
    tell_of_a_gap(checker, cause=False)


@pytest.mark.parametrize(("after_s", "dead_after_s", "cause"), [(0.4, 3.0, False), (4.6, 3.0, True), (4.6, 1.0, False)])
def test_session_that_took_long_to_be_up_makes_subscriptions_seem_older(
    after_s: float, dead_after_s: float, cause: bool
) -> None:
    """Seed 4450014772 of silent: routers count a subscription's life back from when they began the session. Seed
    4499727820: which is longer where they are silent for longer."""
    checker = subscribed()
    checker.dead_after_s = dead_after_s
    checker.told_accepted(M0, ("A", 1))
    checker.clock = lambda: 2.0
    checker.subscriber_told("s0")
    checker.confirmed("s0")
    checker.was_up(after_s)
    tell_of_a_gap(checker, cause=cause)


@pytest.mark.parametrize("connected_at", [0.5, 1.5])
def test_what_is_accepted_between_an_attach_and_its_answer_is_accepted_without_the_one_before(
    connected_at: float,
) -> None:
    """Seed 4499741285 of ours-apart: its client finds by itself that it was away for too long, and its next
    subscription is there before it says so."""
    checker = subscribed()
    checker.clock = lambda: 1.0
    checker.told_accepted(M0, ("B", 1))
    checker.clock = lambda: 2.0
    checker.subscriber_told("s0", counted=connected_at)
    checker.confirmed("s0")
    tell_of_a_gap(checker, cause=connected_at < 1.0)


@pytest.mark.parametrize("unread", [True, False])
def test_router_that_died_before_a_subscription_began_is_gone_since_where_its_end_was_read_later(unread: bool) -> None:
    """Seed 4499739183 of long-apart: the wait for s0 is over at once, and then A reads that its session with B is
    over (protocol 7.3.4)."""
    checker = Checker(strict=False, may_be_decided=lambda mid: False)
    checker.died(("B", 1), ["A"])
    if not unread:
        checker.parted("A", "B")
    checker.new_link("s0")
    checker.parted("A", "B")
    checker.confirmed("s0")
    checker.attached("s0", 0.0, 0.0)
    tell_of_a_gap(checker, cause=unread)


@pytest.mark.parametrize(("together", "attaches"), [(False, 2), (False, 1), (True, 2)])
def test_who_began_while_a_router_was_out_of_sight_and_has_attached_again_is_of_unknown_age(
    together: bool, attaches: int
) -> None:
    """No router that it has come to since can tell the others how old it is (protocol 7.3)."""
    checker = subscribed()
    checker.told_accepted(M0, ("A", 1))
    checker.clock = lambda: 5.0
    checker.closed("s0")
    checker.together = lambda: together
    checker.confirmed("s0")
    for _ in range(attaches):
        checker.attached("s0", 5.0, 20.0)
    tell_of_a_gap(checker, cause=attaches == 2 and not together)


@pytest.mark.parametrize("out_of_sight", [True, False])
def test_router_out_of_sight_may_have_accepted(out_of_sight: bool) -> None:
    checker = subscribed()
    checker.sees_all = lambda name: not out_of_sight
    tell_of_a_gap(checker, cause=out_of_sight)


@pytest.mark.parametrize("out_of_sight", [True, False])
def test_what_was_accepted_while_a_router_was_out_of_sight_may_have_been_accepted_there_without_it(
    out_of_sight: bool,
) -> None:
    """Seed 4300003038 of long-apart: it had forgotten the subscription, and answered its publisher."""
    checker = subscribed()
    checker.sees_all = lambda name: not out_of_sight
    checker.handed("s0", M0)
    checker.accepted("s0", M0)
    checker.sees_all = lambda name: True
    checker.told_accepted(M0, ("A", 1))
    tell_of_a_gap(checker, cause=out_of_sight)


@pytest.mark.parametrize("born", [True, False])
@pytest.mark.parametrize("answered", [True, False])
def test_what_an_attach_without_an_answer_has_made_routers_doubt_is_told_later(answered: bool, born: bool) -> None:
    """Seeds 4410006775 of books and 4450109010 of returns."""
    checker = subscribed()
    if not born:
        checker.without_born.add("s0")
    checker.new_link("s0")
    if answered:
        checker.attached("s0", 0, 20)
    checker.partings += 1
    checker.new_link("s0")
    checker.attached("s0", 1, 20)
    tell_of_a_gap(checker, cause=not answered)
    if not answered:
        assert not checker.unanswered


@pytest.mark.parametrize(("waited_for", "died"), [(True, False), (False, False), (True, True)])
def test_plain_subscriber_is_unknown_only_after_its_wait_or_where_a_router_died(waited_for: bool, died: bool) -> None:
    checker = subscribed()
    if died:
        checker.died(("A", 1))
    if waited_for and not died:
        with pytest.raises(Violation, match="G5 s0 was told of a gap"):
            checker.unknown("s0", waited_for)
    else:
        assert checker.unknown("s0", waited_for)
        assert not checker.current


def test_plain_subscriber_whose_routers_all_died_goes_on_where_nothing_may_be_lost() -> None:
    checker = Checker(strict=True)
    checker.confirmed("s0")
    with pytest.raises(Violation, match="G6 s0"):
        checker.unknown("s0", waited_for=True)
    checker.confirmed("s0")
    checker.died(("A", 1))
    assert not checker.unknown("s0", waited_for=True)
    assert "s0" in checker.current


@pytest.mark.parametrize("whole", [True, False])
def test_cut_shorter_than_the_wait_breaks_nobody_who_subscribed_before_it(whole: bool) -> None:
    for told in (True, False):
        checker = Checker(strict=False, within_bounds=True, together=lambda: whole)
        checker.confirmed("s0")
        checker.sent(M0)
        if whole:
            with pytest.raises(Violation, match="G"):
                checker.subscriber_told("s0") if told else checker.told_accepted(M0, ("A", 1))
        else:
            checker.told_accepted(M0, ("A", 1))
            checker.subscriber_told("s0")


# ---------------------------------------------------------------------- what the clients of a world say to it
def test_plain_subscriber_is_told_of_a_gap_only_in_the_words_that_it_knows() -> None:
    """It is away for longer than it is waited for, and m0 is accepted without it: no router knows it when it is back."""
    address = replace(SHORT, no_subscribers="accept")
    schedule = Schedule(FaultyWorld("AB", [Publisher()], [Subscriber(kind=PLAIN)], strict=False, address=address))
    schedule.up("p0@A", "s0@B").lose("s0").run().pass_time(46.0).send("p0").run()
    assert schedule.w.checker.missed
    schedule.attach("s0@B")
    assert schedule.w.subscriber("s0").resumed is False
    assert [life.ended for life in schedule.w.checker.lives] == ["told", None]
    schedule.finish()


@pytest.mark.parametrize("real", [False, True])
def test_nobody_is_left_who_could_tell_of_a_loss_where_the_only_router_that_expired_it_is_dead(real: bool) -> None:
    """Seed 4494001343 of near: a subscriber of ours, whose process dies, too, so that it counts nothing."""
    address = replace(SHORT, no_subscribers="accept")
    publisher, subscriber = (RealPublisher(), RealSubscriber()) if real else (Publisher(), Subscriber())
    world = FaultyWorld("A", [publisher], [subscriber], strict=False, address=address)
    world.checker.may_have_holes = False
    schedule = Schedule(world).up("s0@A", "p0@A").lose("s0").send("p0").run().pass_time(EXPIRY_S).run()
    assert world.checker.missed
    schedule.step("crash", "A")
    if real:
        schedule.step("kill", "s0", 0)
    schedule.step("restart", "A").run().attach("s0@A", "p0@A").finish()
    assert not world.checker.told


@pytest.mark.parametrize(
    "proof",
    [
        "a disposition",
        "a frame after a while",
        "a frame at once",
        "of another link",
        "where a router is of the version before",
        "a disposition while its client has something unread",
        "",
    ],
)
def test_answer_that_tells_of_a_gap_may_be_told_again_until_its_router_knows_that_it_was_read(proof: str) -> None:
    world = FaultyWorld("A", [Publisher()], [Subscriber(kind=PLAIN)], strict=False)
    Schedule(world).up("p0@A", "s0@A").run()
    subscriber = world.subscriber("s0")
    pipe = subscriber.pipe
    assert pipe is not None
    assert pipe is subscriber.attached_on
    subscriber._was_told(True)
    subscriber._was_told(False)  # another answer takes nothing back
    if proof == "a frame after a while":
        world.now += RouterConfig("").proof_after_s + 0.1
    if proof == "of another link":
        subscriber.attached_on = None
    world.checker.beside_old = proof == "where a router is of the version before"  # which knows no TOLD
    if "unread" in proof:  # it may be that the delivery is settled: nobody knows then whose it was
        pipe.r2c.append(b"")
    if proof:
        subscriber.was_read(pipe, "flow" if proof.startswith("a frame") else "disposition")
    assert (subscriber.told_on is None) == (proof in ("a disposition", "a frame after a while"))


def test_outcome_may_have_been_told_where_its_publisher_has_something_unread() -> None:
    world = FaultyWorld("A", [Publisher()], [Subscriber()], address=ACCEPT)
    schedule = Schedule(world).up("s0@A", "p0@A").hold(("accept",)).send("p0").run()
    assert not world.may_be_decided(M0)
    schedule.release().hold(("r2c", schedule.cid("p0"))).run()
    assert world.may_be_decided(M0)
    schedule.release()
    schedule.lose("p0")
    assert world.may_be_decided(M0)
    schedule.finish()


# ---------------------------------------------------------------------- clocks and dials
def test_routers_have_clocks_of_their_own() -> None:
    run = Run(draw(1, "returns"))
    world, names = run.world, run.world.names
    assert len({world.clock(name) for name in names}) == len(names)
    before = [world.clock(name) for name in names]
    world.advance(1000.0)
    rates = [(world.clock(name) - then) / 1000.0 for name, then in zip(names, before, strict=True)]
    assert all(0 < abs(rate - 1) <= 4e-4 for rate in rates), rates


def test_dial_that_nobody_bounds_is_answered_when_the_kernel_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut of 16 s lasts 31 s."""
    monkeypatch.setattr("chaos.simulation.world.dials.MODULE", "interrouter.there_is_none")
    dial = Dial(100.0, lambda: 1.0)
    assert not dial.answered(116.0)
    assert dial.at == 131.0
    assert not dial.answered(130.9)
    assert dial.answered(131.0)


def test_trunk_comes_back_when_a_dial_is_answered() -> None:
    world = FaultyWorld("AB", [], [], dials=True)
    schedule = Schedule(world).run()
    schedule.step("cut", "A", "B").run().pass_time(16.0)
    schedule.step("heal").run()
    assert not world.trunks
    wait_s = world.next_dial() - world.now
    schedule.pass_time(wait_s + 0.1).run()
    assert world.trunks
    assert not world.dialling
