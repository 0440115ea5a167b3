"""Named schedules of declared subscriptions: those that topology files name (protocol 2.7, 4.5, 7.8, 8.7).

What they promise is stricter than what attached ones do: the checker excuses nothing. Read `membership.py` next.
"""

from __future__ import annotations

from dataclasses import replace

from chaos.simulation.scenarios.schedule import EXPIRY_S, SHORT, P, S, Schedule, Worlds
from chaos.simulation.world.clients import ADDRESS, LINK, MEMORY
from router.config import AddressConfig
from router.names import SUBSCRIPTION_REMOVED, SUBSCRIPTION_UNDECLARED


def _declared(*names: str, closed: bool = False) -> AddressConfig:
    return replace(
        SHORT,
        match=ADDRESS,
        no_subscribers="accept",
        subscriptions=tuple((name, LINK) for name in names),
        other_subscriptions="refuse" if closed else "allow",
    )


def _all_die(s: Schedule) -> Schedule:
    for name in s.w.names:
        s.step("crash", name)
    for name in s.w.names:
        s.step("restart", name)
    return s


# ---------------------------------------------------------------------- all routers die
def all_die_and_nothing_waits(world: Worlds) -> None:
    """The set is closed: what comes after the death of all routers is accepted at once (protocol 4.4.1)."""
    s = Schedule(world("AB", [P()], [S()], address=_declared("s0", closed=True))).up("s0@B", "p0@A")
    s.send("p0").run()
    _all_die(s).up("s0@A", "p0@B").send("p0").run()
    assert not s.w.publisher("p0").unsettled, "waits, though every subscription is declared and here"
    s.finish()


def all_die_and_others_may_be_there(world: Worlds) -> None:
    """Others may subscribe, and S1 has: nothing is accepted without it, though the declared S0 is back (protocol
    4.4.1)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], address=_declared("s0"))).up("s0@B", "s1@B", "p0@A")
    _all_die(s).up("s0@A", "p0@B").send("p0").run()
    assert s.w.publisher("p0").unsettled
    s.finish()


def all_die_before_it_ever_attached(world: Worlds) -> None:
    """S has never attached. What its routers have had is owed to it after the death of all, too (protocol 2.7)."""
    s = Schedule(world("AB", [P()], [S()], address=_declared("s0", closed=True))).up("p0@A")
    s.send("p0").run()
    _all_die(s).up("p0@B").send("p0").run()
    assert len(s.w.publisher("p0").unsettled) == 2
    s.attach("s0@A").finish()
    assert s.accepted("s0") == {("p0", 0), ("p0", 1)}


def publisher_comes_before_its_router_knows_anything(world: Worlds) -> None:
    """A, restarted, may tell publishers accepted, but does not know yet what B knows of P (protocol 4.4.1, 5.3.4)."""
    s = Schedule(world("AB", [P(kind=MEMORY)], [S()], address=_declared("s0", closed=True))).up("s0@B", "p0@A")
    s.send("p0").run().hold(("accept",)).send("p0").run()
    s.step("crash", "A").step("restart", "A").hold(("up", "A", "B")).run()
    s.pass_time(1.5)  # A has waited for B long enough
    s.attach("p0@A").release().run().finish()


# ---------------------------------------------------------------------- apart
def apart_for_three_timeouts(world: Worlds) -> None:
    """Subscribers and publishers on both sides: the declared S0 and S1 miss nothing, S2 and S3 are told (protocol
    8.3.6)."""
    subscribers = [S(f"s{i}") for i in range(4)]
    s = Schedule(world("AB", [P("p0"), P("p1")], subscribers, strict=False, address=_declared("s0", "s1")))
    s.up("s0@A", "s1@B", "s2@A", "s3@B", "p0@A", "p1@B")
    s.step("part", "A").send("p0").send("p1").run()
    s.pass_time(3 * EXPIRY_S).run()
    assert s.w.publisher("p0").unsettled
    s.step("heal").run().finish()


def attached_anew_behind_the_back_of_its_router(world: Worlds) -> None:
    """S begins anew at A, and moves to C, while B, where something was accepted, is out of reach: B knows an earlier
    life of it, and hears from C that the present one may be as old (protocol 7.3.3)."""
    s = Schedule(world("ABC", [P()], [S()], strict=False, address=_declared("s0"))).up("s0@A", "p0@B")
    s.send("p0").run()
    s.step("part", "B").run()
    s.step("sfresh", "s0").attach("s0@A").lose("s0").attach("s0@C").step("heal").run()
    assert not s.w.checker.told
    s.finish()


# ---------------------------------------------------------------------- leaving
def closed_and_back(world: Worlds) -> None:
    """S0 has accepted m0 and not m1 when it closes for good, and comes back as somebody new (protocol 8.2.4)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], address=_declared("s0", "s1"))).up("s0@A", "s1@B", "p0@B")
    s.send("p0").run().hold(("accept", "s0")).send("p0").run()
    s.step("close", "s0").run()
    assert s.w.publisher("p0").unsettled, "G1 m1 is accepted without S0, which is declared"
    s0 = s.w.subscriber("s0")
    s0.closing = s0.closed = False
    s.step("sfresh", "s0").release().attach("s0@B").finish()
    assert ("p0", 1) in s.accepted("s0")


# ---------------------------------------------------------------------- files that change
def added_at_one_router_first(world: Worlds) -> None:
    """A's file declares S. B, whose file does not yet, hears of it, and lets nothing be accepted without it (protocol
    4.5.3, 4.5.5)."""
    s = Schedule(world("AB", [P()], [S()], strict=False, address=_declared())).up("p0@B")
    s.send("p0").run()
    s.step("declare", "A", "s0").run()
    s.w.checker.declare("s0", later=True)
    s.send("p0").run()
    s.step("declare", "B", "s0").run().attach("s0@B").finish()
    assert ("p0", 1) in s.accepted("s0")


def added_by_one_who_has_gone(world: Worlds) -> None:
    """A, whose file declares S, is cut off after B has heard of it; C starts, and hears of it from B (protocol
    4.5.2)."""
    s = Schedule(world("ABC", [P()], [S()], strict=False, address=_declared())).up()
    s.step("declare", "A", "s0").run().step("crash", "C").run()
    s.w.checker.declare("s0", later=True)
    s.step("part", "A").run().step("restart", "C").attach("p0@C")
    s.send("p0").run()
    s.pass_time(EXPIRY_S).run()
    s.step("heal").run()
    for name in "BC":
        s.step("declare", name, "s0")
    s.attach("s0@C").finish()
    assert s.accepted("s0") == {("p0", 0)}


def removed_when_all_have_removed_it(world: Worlds) -> None:
    """S is waited for as long as any file declares it. Then what was owed to it is done (protocol 8.7.1)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=_declared("s0", "s1"))).up("s1@A", "p0@A")
    s.send("p0").step("declare", "A", "s1").run()
    assert s.w.publisher("p0").unsettled, "G1 m0 is accepted without S0, which B declares"
    s.step("declare", "B", "s1").run()
    assert not s.w.publisher("p0").unsettled, "G4 still waits for S0"
    s.w.subscriber("s0").closed = True
    s.finish()


def removed_with_a_link(world: Worlds) -> None:
    """S is attached at A, whose file is the first that does not declare it any more (protocol 8.7.1, 8.7.2)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=_declared("s0", "s1"))).up(
        "s0@A", "s1@A", "p0@A"
    )
    s.step("declare", "A", "s1").send("p0").run()
    assert ("p0", 0) in s.accepted("s0")
    s.step("declare", "B", "s1").run()
    assert s.w.subscriber("s0").refusals == [SUBSCRIPTION_REMOVED], "G5 S0 is not told that it was removed"
    s.send("p0").finish()


def removed_and_back_before_all_know(world: Worlds) -> None:
    """S0 is removed and attaches again, not declared, at B. A learns only then that C's file has removed it, too
    (protocol 8.7.1)."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")], strict=False, address=_declared("s0", "s1"))).up(
        "s0@B", "s1@A", "p0@A"
    )
    s.step("declare", "A", "s1").step("declare", "B", "s1").hold(("msg", "C", "A")).step("declare", "C", "s1").run()
    assert s.w.subscriber("s0").refusals == [SUBSCRIPTION_REMOVED]
    s.w.subscriber("s0").may_return()
    s.attach("s0@B").release().run().send("p0").finish()
    assert ("p0", 0) in s.accepted("s0"), "G5 S0 misses m0 without a word"


def closed_at_one_router_only(world: Worlds) -> None:
    """A's file takes no others, B's does, and S1 is there. After the death of all A waits for it, as B does (protocol
    4.5.4)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], address=_declared("s0"))).up()
    s.step("declare", "A", "s0", "refuse").run().up("s0@A", "s1@B", "p0@A")
    _all_die(s).up("s0@A", "p0@A").send("p0").run()
    assert s.w.publisher("p0").unsettled
    s.attach("s1@B").finish()


def undeclared_where_the_set_is_closed(world: Worlds) -> None:
    """S1 is refused, and nobody waits for it (protocol 7.8.1)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], address=_declared("s0", closed=True))).up("s0@A", "p0@A")
    s.run(place=(("s1", "B"),), until=lambda: s.w.subscriber("s1").closed)
    assert s.w.subscriber("s1").refusals == [SUBSCRIPTION_UNDECLARED]
    s.send("p0").run()
    assert not s.w.publisher("p0").unsettled
    s.finish()
