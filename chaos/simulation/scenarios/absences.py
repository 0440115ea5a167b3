"""Away, or out of reach, for long: gaps, timeouts, and what is forgotten when (PROTOCOL 7.3, 8.3, 8.4, 9).

Read `membership.py` next.
"""

from __future__ import annotations

from dataclasses import replace

from chaos.simulation.clients import FOREVER, MEMORY, PLAIN, RECOVERING, UNIQUE
from chaos.simulation.scenarios.named import (
    ACCEPT,
    EXPIRY_S,
    PUBLISHER_EXPIRY_S,
    SHORT,
    P,
    S,
    Worlds,
    finish,
    half_accepted,
    scenario,
    wider,
)  # fmt: skip
from chaos.simulation.schedule import Schedule
from chaos.simulation.wild import Wild


# ---------------------------------------------------------------------- subscribed where not everybody hears of it
def _subscribed_without(there: str, here: str, world: Worlds, kind: str = RECOVERING) -> Schedule:
    """S has subscribed `here` while A and B cannot reach each other; `there` has accepted m0 without it."""
    s = Schedule(world("AB", [P()], [S(kind=kind)], strict=False, address=ACCEPT)).up(("p0", there))
    s.step("part", "A")
    s.run()
    s.run(place=(("s0", here),))
    s.send("p0")
    s.run()
    return s


def _told_in_an_answer_that_gets_lost(s: Schedule) -> None:
    """S (no map) goes to B, and reads nothing there. Its next connection is up to the schedule."""
    s.notice(s.drop("s0"))
    s.step("heal")
    s.run()
    s.step("connect", "s0", "B")
    s.hold.append(("r2c", s.w.clients["s0"].pipe.cid))  # type: ignore[union-attr]
    s.run()


@scenario
def subscribed_during_partition(world: Worlds) -> None:
    """S is confirmed at B while A is unreachable; A accepts without S; the partition heals: S must be told."""
    s = _subscribed_without("A", "B", world)
    s.step("heal")
    s.run()
    finish(s)
    assert s.w.checker.told


@scenario
def answer_says_since_when(world: Worlds) -> None:
    """S (no map) subscribed during a partition; the answer that told it of the gap got lost."""
    s = _subscribed_without("B", "A", world, PLAIN)
    _told_in_an_answer_that_gets_lost(s)
    s.notice(s.drop("s0"))
    s.run()
    s.hold.clear()
    s.run(place=(("s0", "A"),))
    finish(s)


@scenario
def mark_that_came_after_the_answer(world: Worlds) -> None:
    """S (no map) is told of the gap in an answer that it never reads. A is out of reach when it is answered again; when
    it is back, it knows S, and since when."""
    s = _subscribed_without("A", "B", world, PLAIN)
    _told_in_an_answer_that_gets_lost(s)
    s.step("part", "A")
    s.run()
    s.notice(s.drop("s0"))
    s.hold.clear()
    s.run(place=(("s0", "B"),))
    assert s.w.checker.missed
    assert not s.w.checker.told
    s.step("heal")
    s.run()
    finish(s)
    assert s.w.checker.told == [("s0", "interrupted")]


@scenario
def entry_of_a_stale_attach_is_no_knowledge(world: Worlds) -> None:
    s = Schedule(world("AB", [P()], [S()], strict=False, address=ACCEPT)).up(("p0", "A"))
    s.step("connect", "s0", "A")
    old = s.w.clients["s0"].pipe.cid  # type: ignore[union-attr]
    s.hold.append(("c2r", old))
    s.drop("s0")
    s.step("part", "A")
    s.run()
    s.run(place=(("s0", "B"),))
    s.send("p0")
    s.run()
    s.hold.remove(("c2r", old))
    s.run()
    s.step("heal")
    s.run()
    finish(s)


# ---------------------------------------------------------------------- subscriptions that expire
@scenario
def partition_longer_than_T(world: Worlds) -> None:
    """P at A, S at B; the partition outlasts the subscription's timeout: A gives up on S, S is told when it heals."""
    s = Schedule(world("AB", [P()], [S()], strict=False, address=SHORT)).up(("p0", "A"), ("s0", "B"))
    s.step("part", "A")
    s.run()
    s.send("p0")
    s.run()
    assert s.w.publisher("p0").unsettled
    s.pass_time(EXPIRY_S)
    s.run()
    s.step("heal")
    s.run()
    finish(s)


@scenario
def H1_silent_hole_of_availability_mode(world: Worlds) -> None:
    """... and A dies before the partition heals: nobody can tell S (PROTOCOL 14)."""
    accept = replace(SHORT, no_subscribers="accept")
    s = Schedule(world("AB", [P()], [S()], strict=False, address=accept)).up(("p0", "A"), ("s0", "B"))
    s.step("part", "A")
    s.run()
    s.send("p0")
    s.run()
    s.pass_time(EXPIRY_S)
    s.run()
    assert not s.w.publisher("p0").unsettled
    s.step("crash", "A")
    s.step("heal")
    s.step("restart", "A")
    s.run()
    finish(s)
    assert s.w.checker.holes == 1


@scenario
def expiry_seen_differently(world: Worlds) -> None:
    """A forgets S a moment before B would; A dies; S comes back to B at that very moment."""
    accept = replace(SHORT, no_subscribers="accept")
    s = Schedule(world("AB", [P()], [S(kind=MEMORY)], strict=False, address=accept)).up(("p0", "A"), ("s0", "A"))
    old = s.drop("s0")
    s.hold.append(("msg", "A", "B"))
    s.notice(old)  # A starts the clock ...
    s.send("p0")
    s.pass_time(4.0)  # ... B hears of it (bounded delay) later
    s.hold.clear()
    s.run()
    s.pass_time(36.5)  # past T at A, not yet at B
    s.run()
    s.step("crash", "A")
    s.run()
    s.run(place=(("s0", "B"),))
    s.run(place=(("p0", "B"),))
    finish(s)
    assert not s.w.checker.holes, "hole: S missed a message and nobody told it"


def _missed_by_one_given_up(world: Worlds, names: str, timeout: int, policy: str, away_s: float) -> Schedule:
    """Everybody has given up S; only A has accepted m0 since, and is dead."""
    subscriber = S()
    subscriber.timeout, subscriber.policy = timeout, policy
    address = replace(SHORT, no_subscribers="accept")
    s = Schedule(world(names, [P()], [subscriber], strict=False, address=address)).up(("p0", "A"), ("s0", "A"))
    s.notice(s.drop("s0"))
    s.run()
    s.pass_time(away_s)
    s.run()
    s.send("p0")
    s.run()
    assert s.w.checker.missed
    s.step("crash", "A")
    s.run()
    return s


@scenario
def given_up_where_nothing_was_accepted(world: Worlds) -> None:
    """B has given up S, too, but has accepted nothing: it says so nevertheless, as nobody else can."""
    s = _missed_by_one_given_up(world, "AB", FOREVER, "never", EXPIRY_S)
    s.run(place=(("s0", "B"),))
    assert s.w.checker.told == [("s0", "interrupted")], "hole: S missed a message and nobody told it"
    finish(s)


@scenario
def given_up_at_once_where_nothing_was_accepted(world: Worlds) -> None:
    """The same of one that nobody waits for."""
    s = _missed_by_one_given_up(world, "AB", 0, "link-detach", 0.0)
    s.run(place=(("s0", "B"),))
    assert s.w.checker.told == [("s0", "interrupted")], "hole: S missed a message and nobody told it"
    finish(s)


@scenario
def broken_and_gone_before_it_was_told(world: Worlds) -> None:
    """Nobody waits for S, but B has not heard that it has gone when A, which has accepted m0 since, dies. S is told at
    B, and loses its connection before it reads that."""
    subscriber = S()
    subscriber.timeout, subscriber.policy = 0, "link-detach"
    address = replace(SHORT, no_subscribers="accept")
    s = Schedule(world("AB", [P()], [subscriber], strict=False, address=address)).up(("p0", "A"), ("s0", "A"))
    s.hold.append(("msg", "A", "B"))
    s.notice(s.drop("s0"))
    s.send("p0")
    s.run()
    assert s.w.checker.missed
    s.step("crash", "A")
    s.run()
    s.release(("msg", "A", "B"))
    s.pass_time(0.1)
    s.step("restart", "A")
    s.run()
    s.step("connect", "s0", "B")
    answer = ("r2c", s.w.clients["s0"].pipe.cid)  # type: ignore[union-attr]
    s.hold.append(answer)
    s.run()
    s.notice(s.drop("s0"))
    s.release(answer)
    s.run(place=(("s0", "B"),))
    assert s.w.checker.told == [("s0", "interrupted")], "hole: S missed a message and nobody told it"
    finish(s)


@scenario
def given_up_and_nobody_is_left(world: Worlds) -> None:
    """A was the only router: nobody can tell S."""
    s = _missed_by_one_given_up(world, "A", 0, "link-detach", 0.0)
    s.w.checker.may_have_holes = False
    finish(s)
    assert s.w.checker.holes == 1


@scenario
def router_that_starts_breaks_nobody_who_is_there(world: Worlds) -> None:
    """Nobody waits for S, which is at B all the time. A hears of it in B's HELLO, and a moment later in its JOIN."""
    subscriber = S()
    subscriber.timeout, subscriber.policy = 0, "link-detach"
    s = Schedule(world("AB", [P()], [subscriber])).up(("p0", "B"), ("s0", "B"))
    s.step("crash", "A")
    s.run()
    s.step("restart", "A")
    s.run()
    assert not s.w.checker.told
    s.send("p0")
    finish(s)


# ---------------------------------------------------------------------- publishers that expire, and that seem to
@scenario
def publisher_expired_before_subscribers(world: Worlds) -> None:
    """B must not give up on P (and settle at S) while A, cut off, still waits for S."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up(("p0", "A"), ("s1", "A"), ("s0", "B"))
    s.hold += [("accept", "s1"), ("msg", "B", "A")]
    s.send("p0")
    s.run()
    s.step("part", "A")
    s.hold = [("accept", "s1")]
    s.run()
    s.pass_time(35.0)
    s.run()
    s.step("heal")
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def publisher_works_at_the_other_side(world: Worlds) -> None:
    """P, S1 at A, S0 at B, where all that is known of P is that it has been away for longer than its timeout: A has
    accepted nothing yet, so that S0 has missed nothing, and P still has m0, which S0 has accepted."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up(("s0", "B"), ("s1", "A"), ("p0", "A"))
    s.hold += [("accept", "s1"), ("msg", "B", "A")]
    s.send("p0")
    s.run()
    s.step("part", "A")
    s.run()
    s.pass_time(PUBLISHER_EXPIRY_S)
    s.run()
    s.step("heal")
    s.release(("msg", "B", "A"))
    s.run()
    assert not s.w.checker.told
    finish(s)


@scenario
def publisher_back_at_the_other_side(world: Worlds) -> None:
    """P is away for almost its timeout, and comes back to A when that has just lost B, where S0 is: A still knows S0
    when they meet again."""
    s = half_accepted(world, "B", "A", "A", strict=False, address=SHORT)
    s.notice(s.drop("p0"))
    s.run()
    s.pass_time(90.0)
    s.step("part", "A")
    s.run(place=(("p0", "A"),))
    s.pass_time(20.0)
    s.run()
    s.step("heal")
    s.run()
    assert not s.w.checker.told
    finish(s)


@scenario
def router_that_stood_still_has_seen_nobody(world: Worlds) -> None:
    """P leaves B, which then stands still until others have given it up, and P goes on at A. When B goes on it looks at
    its clock first, which has come further than P's timeout; S0 has waited for it all the while."""
    w = wider(world, Wild)(
        "AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT, heartbeat_s=0.5, dead_after_s=3.0
    )
    s = Schedule(w).up(("s0", "B"), ("s1", "A"), ("p0", "B"))
    s.hold += [("accept", "s1"), ("cquit",)]
    s.send("p0")
    s.run()
    s.notice(s.drop("p0"))
    s.run()
    s.step("still", "B")
    s.pass_time(5.0)
    s.run(place=(("p0", "A"),))
    assert s.accepted("s0") == {("p0", 0)}
    s.pass_time(PUBLISHER_EXPIRY_S)
    s.run()
    s.step("wake", "B", True)
    s.run()
    s.pass_time(5.0)
    s.run()
    assert not w.checker.told
    finish(s)


@scenario
def map_of_a_publisher_that_was_elsewhere(world: Worlds) -> None:
    """P, away for B since that was cut off, works at A until A dies. B has counted P's absence all the while when S0
    comes with what it has accepted a moment ago, and has it before P comes."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up(("s0", "A"), ("s1", "A"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.step("part", "A")
    s.run()
    s.pass_time(90.0)
    s.send("p0")
    s.run()
    assert s.accepted("s0") == {("p0", 0)}
    s.step("crash", "A")
    s.run(place=(("s0", "B"),))
    s.step("heal")
    s.step("restart", "A")
    s.run()
    s.pass_time(20.0)
    s.run()
    s.run(place=(("p0", "B"),))
    assert not s.w.checker.told
    finish(s)


# ---------------------------------------------------------------------- all maps return to empty
@scenario
def address_is_forgotten_with_its_last_subscription(world: Worlds) -> None:
    """The publisher is forgotten before the subscription leaves."""
    s = Schedule(world("AB", [P()], [S()], address=SHORT)).up(("s0", "B"), ("p0", "A"))
    s.step("close", "p0")
    s.run()
    s.pass_time(106.0)
    s.step("close", "s0")
    s.run()
    assert not any(s.w.site(name).router.core.addresses for name in "AB")


@scenario
def address_is_forgotten_with_a_publisher_that_proved_nothing(world: Worlds) -> None:
    s = Schedule(world("A", [P(kind=UNIQUE)], [])).up()
    s.step("connect", "p0", "A")
    s.run()
    s.notice(s.drop("p0"))
    s.run()
    assert not s.w.site("A").router.core.addresses
