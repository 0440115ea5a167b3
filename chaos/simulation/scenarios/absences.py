"""Away, or out of reach, for long: gaps, timeouts, and what is forgotten when (protocol 7.3, 8.3, 8.4, 9).

Read `membership.py` next.
"""

from __future__ import annotations

from dataclasses import replace

from chaos.simulation.scenarios.schedule import (
    ACCEPT,
    EXPIRY_S,
    PUBLISHER_EXPIRY_S,
    SHORT,
    P,
    S,
    Schedule,
    Worlds,
    half_accepted,
    wider,
)
from chaos.simulation.world.clients import FOREVER, MEMORY, PLAIN, RECOVERING, UNIQUE
from chaos.simulation.world.faulty_world import FaultyWorld
from chaos.simulation.world.world import World
from router.names import PUBLISHER_EXPIRED


# ---------------------------------------------------------------------- subscribed where not everybody hears of it
def _subscribed_without(
    there: str, here: str, world: Worlds, kind: str = RECOVERING, waited_for: bool = True
) -> Schedule:
    """S has subscribed `here` while A and B cannot reach each other; `there` has accepted m0 without it."""
    subscriber = S(kind=kind)
    if not waited_for:
        subscriber.timeout, subscriber.policy = 0, "link-detach"
    s = Schedule(world("AB", [P()], [subscriber], strict=False, address=ACCEPT)).up(f"p0@{there}")
    s.step("part", "A").attach(f"s0@{here}")
    s.send("p0").run()
    return s


def _told_in_an_answer_that_gets_lost(s: Schedule) -> None:
    """S (no map) goes to B, and reads nothing there. Its next connection is up to the schedule."""
    s.lose("s0")
    s.step("heal").run().step("connect", "s0", "B")
    s.hold(("r2c", s.cid("s0"))).run()


def subscribed_during_partition(world: Worlds) -> None:
    """S is confirmed at B while A is unreachable; A accepts without S; the partition heals: S must be told (protocol
    4.2.3, 7.3.5)."""
    s = _subscribed_without("A", "B", world)
    s.step("heal").run().finish()
    assert s.w.checker.told


def attached_again_before_the_farewell_is_read(world: Worlds) -> None:
    """S (no map) subscribed at B, whose clock is ahead, while A accepted without it; when they meet, A breaks it. S
    attaches at A before A reads B's LEAVE, which is of an earlier attachment (protocol 1.4)."""
    w = wider(world, FaultyWorld)("AB", [P()], [S(kind=PLAIN)], strict=False, address=ACCEPT)
    s = Schedule(w).up("p0@A")
    s.step("clock", "B", 40).step("part", "A").attach("s0@B")
    s.send("p0").run().hold(s.next_is("Leave"))
    s.step("heal").attach("s0@A")
    assert s.waiting("A", "B") == ["Leave", "Joined"]
    s.release().run().send("p0").finish()


def answer_says_since_when(world: Worlds) -> None:
    """S (no map) subscribed during a partition; the answer that told it of the gap got lost (protocol 7.3.10)."""
    s = _subscribed_without("B", "A", world, PLAIN)
    _told_in_an_answer_that_gets_lost(s)
    s.lose("s0").run()
    s.release().attach("s0@A").finish()


def _not_resumed(s: Schedule) -> Schedule:
    assert s.w.subscriber("s0").resumed is False, "G5 S is told that it was known, and has missed m0"
    return s


def gap_is_told_until_it_has_been_read(world: Worlds) -> None:
    """S (no map) subscribed during a partition. The answer that told it of the gap got lost: so the next one does
    (protocol 7.6.9)."""
    s = _subscribed_without("B", "A", world, PLAIN)
    _told_in_an_answer_that_gets_lost(s)
    s.lose("s0").run()
    _not_resumed(s.release().attach("s0@A")).finish()


def gap_is_told_to_who_is_not_waited_for(world: Worlds) -> None:
    """S (no map, a timeout of 0) leaves before it has read the answer that told it of the gap (protocol 8.2.3)."""
    s = _subscribed_without("B", "A", world, PLAIN, waited_for=False)
    _told_in_an_answer_that_gets_lost(s)
    s.lose("s0").run()
    _not_resumed(s.release().attach("s0@B")).finish()


def gap_is_told_no_more_when_it_has_been_read(world: Worlds) -> None:
    """S (no map) has read the answer that told it of the gap, and comes back (protocol 7.6.9)."""
    s = _subscribed_without("B", "A", world, PLAIN)
    s.lose("s0").step("heal").run()
    _not_resumed(s.attach("s0@B")).pass_time(3.0)
    s.step("hb", "s0").run()
    s.lose("s0").run().attach("s0@A")
    assert s.w.subscriber("s0").resumed, "G5 S is told again of the gap that it knows of"
    s.finish()


def gap_is_told_no_more_to_who_holds_what_came_behind(world: Worlds) -> None:
    """S (no epochs) holds what has come behind the answer that told it of the gap, and comes back with that (protocol
    7.6.9)."""
    s = _subscribed_without("B", "A", world, MEMORY)
    s.lose("s0").step("heal").run()
    _not_resumed(s.attach("s0@B")).hold(("accept",)).send("p0").run()
    s.lose("s0").run().attach("s0@B").release().run()
    assert not s.w.subscriber("s0").unsettled
    s.lose("s0").run().attach("s0@A")
    assert s.w.subscriber("s0").resumed, "G5 S is told again of the gap that it knows of"
    s.finish()


def mark_that_came_after_the_answer(world: Worlds) -> None:
    """S (no map) is told of the gap in an answer that it never reads. A is out of reach when it is answered again; when
    it is back, it knows S, and since when (protocol 7.3.12)."""
    s = _subscribed_without("A", "B", world, PLAIN)
    _told_in_an_answer_that_gets_lost(s)
    s.step("part", "A").run()
    s.lose("s0")
    s.release().attach("s0@B")
    assert s.w.checker.missed
    assert not s.w.checker.told
    s.step("heal").run().finish()
    assert s.w.checker.told == [("s0", "interrupted")]


def gap_is_told_by_who_has_heard_of_it(world: Worlds) -> None:
    """S (no map) has a gap of which A knows, and has read no answer that tells of it. B, started again, hears of that
    from A, and answers S while A is out of reach (protocol 4.3.3, 7.6.9)."""
    s = _subscribed_without("A", "B", world, PLAIN)
    _told_in_an_answer_that_gets_lost(s)
    s.lose("s0").release().step("crash", "B").step("restart", "B").run()
    s.step("part", "A").run()
    _not_resumed(s.attach("s0@B")).step("heal").run().finish()


def gap_is_told_no_more_where_it_was_heard_of(world: Worlds) -> None:
    """S (no map) has read the answer that told it of the gap. B, started again, hears from A that it has not, as A does
    not know that yet (protocol 7.6.9)."""
    s = Schedule(world("ABC", [P()], [S(kind=PLAIN)], strict=False, address=ACCEPT)).up("p0@A")
    s.step("part", "A").attach("s0@C")
    s.send("p0").run()
    s.lose("s0").step("heal").run()
    _not_resumed(s.attach("s0@C")).step("crash", "B").run()
    s.hold(("msg", "C", "A")).pass_time(3.0)
    s.step("hb", "s0").run().step("restart", "B").run().release().run()
    s.lose("s0").run().attach("s0@B")
    assert s.w.subscriber("s0").resumed, "G5 S is told again of the gap that it knows of"
    s.finish()


def _reads_a_stale_attach(world: Worlds) -> Schedule:
    """A, cut off, accepts m0 and then reads S's first attach. S is at B by another."""
    s = Schedule(world("AB", [P()], [S()], strict=False, address=ACCEPT)).up("p0@A")
    s.step("connect", "s0", "A")
    old = s.cid("s0")
    s.hold(("c2r", old))
    s.drop("s0")
    s.step("part", "A").attach("s0@B")
    s.send("p0").run()
    return s.release(("c2r", old)).run()


def entry_of_a_stale_attach_is_no_knowledge(world: Worlds) -> None:
    """Protocol 7.3.3."""
    _reads_a_stale_attach(world).step("heal").run().finish()


def life_of_a_stale_attach_is_another(world: Worlds) -> None:
    """S comes to A, where the entry is that of its stale attach (protocol 7.3.13)."""
    s = _reads_a_stale_attach(world)
    s.lose("s0").run().attach("s0@A").step("heal").finish()
    assert s.w.checker.told, "G5 S is not told that it misses m0"


def known_by_a_hello_of_the_attach_itself(world: Worlds) -> None:
    """All have died. S (no map) attaches at A; before that is answered, B starts, and hears of S by A's HELLO (protocol
    7.3.10)."""
    s = Schedule(world("ABC", [P()], [S(kind=PLAIN)], strict=False)).up("p0@A", "s0@A")
    s.send("p0").run()
    for name in "ABC":
        s.step("crash", name)
    s.step("restart", "A").step("restart", "C").run()
    s.pass_time(1.5).hold(("msg", "C", "A")).attach("s0@A")
    s.step("restart", "B").run()
    s.release().run()
    assert s.w.subscriber("s0").resumed is False, "G5 S is told that it was known, though all have died"
    s.attach("p0@A").finish()


# ---------------------------------------------------------------------- subscriptions that expire
def partition_longer_than_T(world: Worlds) -> None:
    """P at A, S at B; the partition outlasts the subscription's timeout: A expires S, which is told when it heals."""
    s = Schedule(world("AB", [P()], [S()], strict=False, address=SHORT)).up("p0@A", "s0@B")
    s.step("part", "A").run()
    s.send("p0").run()
    assert s.w.publisher("p0").unsettled
    s.pass_time(EXPIRY_S).run()
    s.step("heal").run().finish()


def H1_silent_hole_of_availability_mode(world: Worlds) -> None:
    """... and A dies before the partition heals: nobody can tell S (protocol 14)."""
    accept = replace(SHORT, no_subscribers="accept")
    s = Schedule(world("AB", [P()], [S()], strict=False, address=accept)).up("p0@A", "s0@B")
    s.step("part", "A").run()
    s.send("p0").run()
    s.pass_time(EXPIRY_S).run()
    assert not s.w.publisher("p0").unsettled
    s.step("crash", "A").step("heal").step("restart", "A").run()
    s.finish()
    assert s.w.checker.holes == 1


def expiry_seen_differently(world: Worlds) -> None:
    """A forgets S a moment before B would; A dies; S comes back to B at that very moment (protocol 8.3.4)."""
    accept = replace(SHORT, no_subscribers="accept")
    s = Schedule(world("AB", [P()], [S(kind=MEMORY)], strict=False, address=accept)).up("p0@A", "s0@A")
    old = s.drop("s0")
    s.hold(("msg", "A", "B"))
    s.notice(old)  # A starts the clock ...
    s.send("p0")
    s.pass_time(4.0)  # ... B hears of it (bounded delay) later
    s.release().run()
    s.pass_time(36.5)  # past T at A, not yet at B
    s.run()
    s.step("crash", "A").attach("s0@B").attach("p0@B").finish()
    assert not s.w.checker.holes, "hole: S missed a message and nobody told it"


def _missed_by_one_given_up(world: Worlds, names: str, timeout: int, policy: str, away_s: float) -> Schedule:
    """S has expired everywhere; only A has accepted m0 since, and is dead."""
    subscriber = S()
    subscriber.timeout, subscriber.policy = timeout, policy
    address = replace(SHORT, no_subscribers="accept")
    s = Schedule(world(names, [P()], [subscriber], strict=False, address=address)).up("p0@A", "s0@A")
    s.lose("s0").run()
    s.pass_time(away_s).run()
    s.send("p0").run()
    assert s.w.checker.missed
    s.step("crash", "A").run()
    return s


def given_up_where_nothing_was_accepted(world: Worlds) -> None:
    """S has expired at B, too, which has accepted nothing: B tells it nevertheless, as no other router can (protocol
    2.9)."""
    s = _missed_by_one_given_up(world, "AB", FOREVER, "never", EXPIRY_S)
    s.attach("s0@B")
    assert s.w.checker.told == [("s0", "interrupted")], "hole: S missed a message and nobody told it"
    s.finish()


def given_up_at_once_where_nothing_was_accepted(world: Worlds) -> None:
    """The same of one that nobody waits for (protocol 8.2.3)."""
    s = _missed_by_one_given_up(world, "AB", 0, "link-detach", 0.0)
    s.attach("s0@B")
    assert s.w.checker.told == [("s0", "interrupted")], "hole: S missed a message and nobody told it"
    s.finish()


def broken_and_gone_before_it_was_told(world: Worlds) -> None:
    """Nobody waits for S, but B has not heard that it has gone when A, which has accepted m0 since, dies. S is told at
    B, and loses its connection before it reads that (protocol 2.9)."""
    subscriber = S()
    subscriber.timeout, subscriber.policy = 0, "link-detach"
    address = replace(SHORT, no_subscribers="accept")
    s = Schedule(world("AB", [P()], [subscriber], strict=False, address=address)).up("p0@A", "s0@A")
    s.hold(("msg", "A", "B"))
    s.lose("s0")
    s.send("p0").run()
    assert s.w.checker.missed
    s.step("crash", "A").run()
    s.release(("msg", "A", "B"))
    s.pass_time(0.1)
    s.step("restart", "A").run().step("connect", "s0", "B")
    answer = ("r2c", s.cid("s0"))
    s.hold(answer).run()
    s.lose("s0")
    s.release(answer).attach("s0@B")
    assert s.w.checker.told == [("s0", "interrupted")], "hole: S missed a message and nobody told it"
    s.finish()


def dropped_by_an_operator(world: Worlds) -> None:
    """S is away for a moment when A's operator drops it. It is told so at B, though nobody has accepted anything
    (protocol 8.2.3, 8.2.5, 8.2.6)."""
    s = Schedule(world("AB", [P()], [S()], strict=False, address=SHORT)).up("p0@A", "s0@B")
    s.lose("s0").run()
    s.pass_time(1.0)
    s.step("giveup", "A", "s0").run()
    s.attach("s0@B")
    assert s.w.checker.told == [("s0", "interrupted")], "G5 S is resumed, though an operator has dropped it"
    s.finish()


def dropped_while_attached(world: Worlds) -> None:
    """S is at A when A drops it, and its connection breaks before it reads that. A accepts m0, and dies; B has accepted
    nothing, and C has been out of session (protocol 8.2.3, 8.2.5, 8.2.6)."""
    address = replace(SHORT, no_subscribers="accept")
    s = Schedule(world("ABC", [P()], [S()], strict=False, address=address)).up("p0@A", "s0@A")
    s.step("crash", "C").run().step("restart", "C").run()
    s.hold(("r2c", s.cid("s0"))).step("giveup", "A", "s0").run()
    s.lose("s0").run()
    s.send("p0").run()
    assert s.w.checker.missed
    s.step("crash", "A").run()
    s.attach("s0@B")
    assert s.w.checker.told == [("s0", "interrupted")], "hole: S missed a message and nobody told it"
    s.finish()


def _attaches_where_nobody_can_say(world: Worlds, kind: str) -> Schedule:
    """A has forgotten S and accepted m0, and S's wait is over at B, too, to which it connects."""
    accept = replace(SHORT, no_subscribers="accept")
    s = Schedule(world("AB", [P()], [S(kind=kind)], strict=False, address=accept)).up("p0@A", "s0@A")
    old = s.drop("s0")
    s.hold(("msg", "A", "B"))
    s.notice(old)
    s.pass_time(4.0)
    s.release(("msg", "A", "B")).run()
    s.pass_time(42.0)
    s.send("p0").run()
    assert s.w.checker.missed
    return s.hold(("msg", "A", "B"), ("up", "A", "B"), ("up", "B", "A")).step("connect", "s0", "B")


def gone_before_it_has_said_what_it_accepted(world: Worlds) -> None:
    """A dies before B has its word on S (protocol 7.2.7)."""
    s = _attaches_where_nobody_can_say(world, RECOVERING).run()
    s.step("suspect", "B", "A").run()
    assert s.w.checker.told == [("s0", "interrupted")], "hole: S missed a message and nobody told it"
    s.finish()


def gap_of_which_nobody_could_say_is_told_until_it_has_been_read(world: Worlds) -> None:
    """The same of an S without a map, which does not read the answer of B. A is dead when it comes again (protocol
    7.2.7, 7.6.9)."""
    s = _attaches_where_nobody_can_say(world, PLAIN)
    s.hold(("r2c", s.cid("s0"))).run()
    s.step("suspect", "B", "A").run()
    s.lose("s0").step("crash", "A").run()
    _not_resumed(s.release().attach("s0@B")).finish()


def _returns_after(world: Worlds, seconds: float) -> None:
    """C has accepted something, and has no client any more, when it is cut off. S at A misses nothing."""
    s = Schedule(world("ABC", [P(), P("p1")], [S()], strict=False, address=SHORT)).up("s0@A", "p0@B", "p1@C")
    s.send("p1").run().step("close", "p1").run()
    s.step("part", "C").run()
    s.pass_time(seconds)
    s.send("p0").run()
    s.step("heal").run()
    assert not s.w.checker.told, "G5 S is told of a gap, and has missed nothing"
    s.finish()


def router_that_returns_breaks_nobody(world: Worlds) -> None:
    """C has forgotten S when it is back (protocol 2.8, 7.3.5, 8.3.5)."""
    _returns_after(world, 60.0)


def router_that_returns_early_breaks_nobody(world: Worlds) -> None:
    """S's wait is over at C, which has not forgotten it yet (protocol 7.3.4)."""
    _returns_after(world, 42.0)


def router_that_returns_breaks_nobody_who_asked_for_no_wait(world: Worlds) -> None:
    """Nobody waits for S, which is at A all the time. C is cut off for a moment, and meets A before it meets B
    (protocol 7.3.14)."""
    subscriber = S()
    subscriber.timeout, subscriber.policy = 0, "link-detach"
    s = Schedule(world("ABC", [P()], [subscriber], strict=False)).up("s0@A", "p0@B")
    s.send("p0").run().step("part", "C").run()
    s.hold(("up", "C", "B"), ("up", "B", "C")).step("heal").run()
    assert not s.w.checker.told, "G5 S is told of a gap, and has missed nothing"
    s.finish()


def router_that_flaps_breaks_nobody_who_has_attached_again(world: Worlds) -> None:
    """S is at A, which is cut off, and attaches there again. C has forgotten it, and is with A again when it has just
    lost B (protocol 4.2.3, 7.3.14)."""
    s = Schedule(world("ABC", [P()], [S()], strict=False, address=SHORT)).up("s0@A", "p0@B")
    s.step("part", "A").run()
    s.lose("s0").run().attach("s0@A")
    s.pass_time(EXPIRY_S).run()
    s.hold(("up", "C", "B"), ("up", "B", "C"), ("up", "A", "B"), ("up", "B", "A")).step("suspect", "C", "B").run()
    s.step("heal").run()
    assert not s.w.checker.told, "G5 S is told of a gap, and has missed nothing"
    s.release().run().finish()


def gone_router_comes_back_and_knows_nothing(world: Worlds) -> None:
    """S is at A, which is cut off. B and C forget it, and B accepts m0, is cut off from C, and dies. C, which is with A
    again, hears of it when B has started again (protocol 7.3.14)."""
    accept = replace(SHORT, no_subscribers="accept")
    s = Schedule(world("ABC", [P()], [S()], strict=False, address=accept)).up("s0@A", "p0@B")
    s.step("part", "A").run()
    s.pass_time(EXPIRY_S).run()
    s.send("p0").run()
    assert s.w.checker.missed
    s.hold(("up", "A", "B"), ("up", "B", "A"), ("up", "B", "C"), ("up", "C", "B"))
    s.step("part", "B").run()
    s.step("heal").run()
    assert not s.w.checker.told
    s.step("crash", "B").run()
    s.release().step("restart", "B").run()
    assert s.w.checker.told == [("s0", "interrupted")], "hole: S missed a message and nobody told it"
    s.finish()


def _forgotten_at_the_other_side(s: Schedule) -> Schedule:
    """C is cut off with S, which leaves C later. A has forgotten it, and C still waits for it."""
    s.step("part", "C").run()
    s.pass_time(30.0)
    s.lose("s0").run()
    s.pass_time(16.0)
    return s.run()


def _forgotten_at_one_side(world: Worlds) -> Schedule:
    """The same of an S without memory, of which A knows nothing else."""
    s = Schedule(world("AC", [P()], [S(kind=PLAIN)], strict=False, address=replace(SHORT, no_subscribers="accept")))
    return _forgotten_at_the_other_side(s.up("p0@A", "s0@C"))


def plain_one_is_told_of_its_gap(world: Worlds) -> None:
    """S (no map) attaches at C when A and C meet again. A, which has accepted m0 without it, says so by its mark
    (protocol 7.6.7)."""
    s = _forgotten_at_one_side(world)
    s.send("p0").run()
    assert s.w.checker.missed
    s.hold(("msg", "C", "A")).step("heal").run().attach("s0@C").release().run()
    _not_resumed(s).finish()


def gap_is_told_when_routers_meet(world: Worlds) -> None:
    """A, which has accepted m0 without S, dies after it has met C again, and before S is back (protocol 4.3.5)."""
    s = _forgotten_at_one_side(world)
    s.send("p0").run()
    assert s.w.checker.missed
    s.step("heal").run()
    s.step("crash", "A").attach("s0@C")
    _not_resumed(s).finish()


def counts_again_when_routers_meet(world: Worlds) -> None:
    """A has accepted m0 with S, and nothing since it has forgotten S: it waits for S again, as C does (protocol
    4.3.5)."""
    s = Schedule(world("AC", [P()], [S()], strict=False, address=replace(SHORT, no_subscribers="accept")))
    s.up("p0@A", "s0@C").send("p0").run()
    _forgotten_at_the_other_side(s).step("heal").run()
    s.send("p0").run()
    assert s.w.publisher("p0").unsettled, "G5 m1 is accepted without S, which C waits for"
    s.attach("s0@C")
    assert not s.w.checker.told, "G5 S is told of a gap, and has missed nothing"
    s.finish()


def given_up_and_nobody_is_left(world: Worlds) -> None:
    """A was the only router: nobody can tell S."""
    s = _missed_by_one_given_up(world, "A", 0, "link-detach", 0.0)
    s.w.checker.may_have_holes = False
    s.finish()
    assert s.w.checker.holes == 1


def router_that_starts_breaks_nobody_who_is_there(world: Worlds) -> None:
    """Nobody waits for S, which is at B all the time. A hears of it in B's HELLO, and in its JOIN when C has gone
    (protocol 7.3.4)."""
    subscriber = S()
    subscriber.timeout, subscriber.policy = 0, "link-detach"
    s = Schedule(world("ABC", [P()], [subscriber])).up("p0@B", "s0@B")
    s.hold(s.next_is("Join")).step("crash", "A").run().step("restart", "A").run()
    s.step("crash", "C").run().release().run()
    assert not s.w.checker.told
    s.send("p0").finish()


# ---------------------------------------------------------------------- publishers that expire, and that seem to
def publisher_expired_before_subscribers(world: Worlds) -> None:
    """B must not expire P (and settle at S) while A, cut off, still waits for S (protocol 12.4)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up("p0@A", "s1@A", "s0@B")
    s.hold(("accept", "s1"), ("msg", "B", "A")).send("p0").run().step("part", "A")
    s.release().hold(("accept", "s1")).run()
    s.pass_time(35.0).run()
    s.step("heal").run().finish()


def publisher_works_at_the_other_side(world: Worlds) -> None:
    """P, S1 at A, S0 at B, where all that is known of P is that it has been away for longer than its timeout: A has
    accepted nothing yet, so that S0 has missed nothing, and P still has m0, which S0 has accepted (protocol 8.4.6)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up("s0@B", "s1@A", "p0@A")
    s.hold(("accept", "s1"), ("msg", "B", "A")).send("p0").run().step("part", "A").run()
    s.pass_time(PUBLISHER_EXPIRY_S).run()
    s.step("heal")
    s.release(("msg", "B", "A")).run()
    assert not s.w.checker.told
    s.finish()


def publisher_back_at_the_other_side(world: Worlds) -> None:
    """P is away for almost its timeout, and comes back to A when that has just lost B, where S0 is: A still knows S0
    when they meet again (protocol 8.4.6)."""
    s = half_accepted(world, "B", "A", "A", strict=False, address=SHORT)
    s.lose("p0").run()
    s.pass_time(90.0)
    s.step("part", "A").attach("p0@A")
    s.pass_time(20.0).run()
    s.step("heal").run()
    assert not s.w.checker.told
    s.finish()


def router_that_stood_still_has_seen_nobody(world: Worlds) -> None:
    """P leaves B, which is then suspended until the others have declared it dead, and P works at A. Resumed, B looks at
    its clock first, which is beyond P's timeout; S0 has waited at B all the while (protocol 8.4.8)."""
    w = wider(world, FaultyWorld)(
        "AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT, heartbeat_s=0.5, dead_after_s=3.0
    )
    s = Schedule(w).up("s0@B", "s1@A", "p0@B")
    s.hold(("accept", "s1"), ("cquit",)).send("p0").run()
    s.lose("p0").run()
    s.step("still", "B")
    s.pass_time(5.0).attach("p0@A")
    assert s.accepted("s0") == {("p0", 0)}
    s.pass_time(PUBLISHER_EXPIRY_S).run()
    s.step("wake", "B", True).run()
    s.pass_time(5.0).run()
    assert not w.checker.told
    s.finish()


def _subscribed_while_a_router_stood_still(world: Worlds) -> tuple[Schedule, World]:
    """B has let m0 be accepted, and is suspended until A has declared it dead. Meanwhile S subscribes at A."""
    w = wider(world, FaultyWorld)(
        "AB", [P(), P("p1")], [S()], strict=False, address=ACCEPT, heartbeat_s=0.5, dead_after_s=3.0
    )
    s = Schedule(w).up("p0@B")
    s.send("p0").run()
    s.hold(("cquit",)).step("still", "B")
    s.pass_time(4.0).attach("s0@A")
    s.pass_time(1.0).run()
    return s, w


def subscribed_while_a_router_stood_still(world: Worlds) -> None:
    """B, resumed, has let nothing be accepted without S, and does not say that it has (protocol 7.3.13)."""
    s, w = _subscribed_while_a_router_stood_still(world)
    s.step("wake", "B", True).run()
    s.pass_time(5.0).run()
    assert not w.checker.told, "G5 S is told of a gap, and has missed nothing"
    s.finish()


def accepted_before_its_router_knew_that_it_stood_still(world: Worlds) -> None:
    """B, resumed, reads what P has sent before it knows of S: it accepts nothing before it has heard what A knows
    (protocol 4.6.1)."""
    s, w = _subscribed_while_a_router_stood_still(world)
    s.hold(("up", "B", "A"), ("down", "B", "A")).step("wake", "B", True)
    s.send("p0").run()
    assert w.publisher("p0").unsettled, "G5 m1 is accepted without S, which is told so"
    s.release(("up", "B", "A"), ("down", "B", "A")).run()
    s.pass_time(5.0).run()
    assert not w.checker.told
    s.finish()
    assert ("p0", 1) in s.accepted("s0")


def map_of_a_publisher_that_was_elsewhere(world: Worlds) -> None:
    """P, away for B since that was cut off, works at A until A dies. B has counted P's absence all the while when S0
    comes with what it has accepted a moment ago, and has it before P comes (protocol 8.4.6)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up("s0@A", "s1@A", "p0@A")
    s.hold(("accept", "s1")).step("part", "A").run()
    s.pass_time(90.0)
    s.send("p0").run()
    assert s.accepted("s0") == {("p0", 0)}
    s.step("crash", "A").attach("s0@B").step("heal")
    s.step("restart", "A").run()
    s.pass_time(20.0).attach("p0@B")
    assert not s.w.checker.told
    s.finish()


# ---------------------------------------------------------------------- publishers that an operator has forgotten
def forgotten_publisher_comes_back(world: Worlds) -> None:
    """S0 has accepted m0, which S1 has not, when P leaves, and A's operator has it forgotten: m0 is settled at both. P
    comes to B with m0 all the same (protocol 5.3.6, 8.4.11)."""
    s = half_accepted(world, "A", "B", "A", strict=False, address=SHORT)
    s.lose("p0").run()
    s.step("forget", "A", "p0").run()
    assert not s.w.subscriber("s0").unsettled, "G4 m0 waits for a publisher that does not come back"
    s.attach("p0@B").finish()
    assert ("p0", PUBLISHER_EXPIRED) in s.w.checker.told


def forgotten_where_it_had_moved(world: Worlds) -> None:
    """C is out of reach when A's operator has P forgotten. P is at C, and S0 comes there, too (protocol 8.4.12)."""
    s = half_accepted(world, "A", "B", "A", names="ABC", strict=False, address=SHORT)
    s.lose("p0").run()
    s.step("part", "C").run()
    s.step("forget", "A", "p0").run()
    s.hold(("accept", "s0")).attach("p0@C")
    s.lose("s0")
    s.attach("s0@C").release(("accept", "s0")).run()
    s.step("heal").run().finish()
    assert ("p0", PUBLISHER_EXPIRED) in s.w.checker.told


def forgotten_is_told_to_who_was_away(world: Worlds) -> None:
    """C is out of reach when A's operator has P forgotten, and hears of it later (protocol 4.2.5)."""
    s = half_accepted(world, "A", "B", "A", names="ABC", strict=False, address=SHORT)
    s.lose("p0").run()
    s.step("part", "C").run()
    s.step("forget", "A", "p0").run()
    assert s.w.subscriber("s0").unsettled, "G2 P may be at C"
    s.step("heal").run()
    assert not s.w.subscriber("s0").unsettled, "G4 m0 waits for a publisher that does not come back"
    s.finish()


def forgotten_by_a_router_that_dies(world: Worlds) -> None:
    """A's operator has P forgotten. B hears of it, and A dies before C does. S0, at B, has accepted m0 (protocol
    8.4.10)."""
    s = half_accepted(world, "B", "C", "A", names="ABC", strict=False, address=SHORT)
    s.lose("p0").run()
    s.hold(("msg", "A", "C")).step("forget", "A", "p0").run(until=lambda: not s.waiting("B", "A"))
    s.step("crash", "A").release(("msg", "A", "C")).run()
    s.step("restart", "A").run()
    assert not s.w.subscriber("s0").unsettled, "G4 m0 waits for a publisher that does not come back"
    s.attach("p0@C").finish()
    assert ("p0", PUBLISHER_EXPIRED) in s.w.checker.told


# ---------------------------------------------------------------------- all maps return to empty
def address_is_forgotten_with_its_last_subscription(world: Worlds) -> None:
    """The publisher is forgotten before the subscription leaves."""
    s = Schedule(world("AB", [P()], [S()], address=SHORT)).up("s0@B", "p0@A")
    s.step("close", "p0").run()
    s.pass_time(106.0)
    s.step("close", "s0").run()
    assert not any(s.w.site(name).router.core.addresses for name in "AB")


def address_is_forgotten_with_a_publisher_that_proved_nothing(world: Worlds) -> None:
    s = Schedule(world("A", [P(kind=UNIQUE)], [])).up()
    s.step("connect", "p0", "A").run()
    s.lose("p0").run()
    assert not s.w.site("A").router.core.addresses
