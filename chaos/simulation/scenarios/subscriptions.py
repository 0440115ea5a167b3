"""Who gets what, and who is waited for: joining, moving, resuming, leaving (protocol 6.1, 7, 8.1, 8.2).

Read `absences.py` next.
"""

from __future__ import annotations

from amqp10.types import Described, Symbol
from chaos.simulation.scenarios.schedule import ACCEPT, P, S, Schedule, Worlds, half_accepted, wider
from chaos.simulation.world.clients import MEMORY, PLAIN, UNIQUE
from chaos.simulation.world.faulty_world import FaultyWorld
from router.names import SUBSCRIPTION_EXISTS


# ---------------------------------------------------------------------- joining
def fresh_subscriber_and_ingress_failover(world: Worlds) -> None:
    """S subscribes while m0 is outstanding, gets m1, the ingress fails: m0 must not come after m1 (protocol 7.4.2)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up("s1@B", "p0@A")
    s.hold(("accept", "s1")).send("p0").attach("s0@B").send("p0").run()
    s.step("crash", "A")
    s.release().attach("p0@B").finish()


def accept_crosses_replay(world: Worlds) -> None:
    """B's accept of m (for s1) crosses A's replay of m (for s0, who has moved to B) (protocol 6.3.3)."""
    s = Schedule(world("AB", [P()], [S("s0", keep=False), S("s1")])).up("s0@A", "s1@B", "p0@A")
    s.hold(("accept",)).send("p0").run()
    s.lose("s0")
    # s0 joins again at B: JOIN goes to A; A's replay is on its way to B when s1 accepts
    s.hold(("msg", "A", "B")).step("connect", "s0", "B").run(until=lambda: "Sync" in s.waiting("B", "A"))
    s.step("accept", "s1", 0).run().finish()


def confirmed_before_everybody_knows(world: Worlds) -> None:
    """S must not be confirmed at B while A has not heard of it (protocol 7.2.6)."""
    s = Schedule(world("AB", [P()], [S()], address=ACCEPT)).up("p0@A")
    s.hold(("msg", "B", "A")).attach("s0@B")
    if s.w.subscriber("s0").confirmed:
        s.w.step(("send", "p0"))
        s.run()
    s.release().run()
    s.send("p0").run().finish()


def joins_reordered(world: Worlds) -> None:
    """S went from D to E; D's JOIN arrives at A after E's (protocol 7.3.1)."""
    s = Schedule(world("ADE", [P()], [S()])).up("p0@A")
    s.hold(("msg", "D", "A"), ("msg", "D", "E"), ("msg", "E", "D")).step("connect", "s0", "D").run()
    s.drop("s0")
    s.attach("s0@E")
    s.hold_only("rnotice").run()
    s.send("p0").run().finish()


def begun_anew_without_its_memory(world: Worlds) -> None:
    """S is away, and m0 is owed to it. A process that knows nothing of S asks for a new subscription of its name: it is
    refused, wherever it asks, and S goes on as if nothing had been (protocol 7.1.4)."""
    s = Schedule(world("AB", [P()], [S()])).up("s0@B", "p0@A")
    s.lose("s0").send("p0").run()
    one = s.w.subscriber("s0")
    one.only_new = True
    for router in "AB":
        one.refusals.clear()
        s.run(place=(("s0", router),), until=lambda: one.state == "on" or bool(one.refusals))
        assert one.refusals == [SUBSCRIPTION_EXISTS], "S's place is taken"
    one.only_new = False
    s.attach("s0@A").finish()
    assert s.accepted("s0") == {("p0", 0)}


def resumed_where_the_mark_is_another(world: Worlds) -> None:
    """B has accepted something before S (with memory, without epochs) subscribed, A has not: B's mark is no reason for
    A to think that S is somebody else when it resumes at B (protocol 7.3.3)."""
    s = Schedule(world("AB", [P(), P("p1")], [S(kind=MEMORY)], address=ACCEPT)).up("p0@B", "p1@A")
    s.send("p0").attach("s0@A")
    s.hold(("settle",)).send("p1").run()
    s.lose("s0")
    assert s.w.subscriber("s0").unsettled
    s.attach("s0@B").finish()


def two_attaches_of_one_moment(world: Worlds) -> None:
    """S attaches, leaves and attaches again while A boots: A takes both in the same microsecond, and the second must
    have the later term all the same, because the first one's JOIN has been heard by A itself (protocol 3.3.3)."""
    s = Schedule(world("AB", [P()], [S(kind=PLAIN)], address=ACCEPT)).up("s0@A", "p0@B")
    s.step("crash", "A").step("restart", "A")
    boots = [("up", "A", "B"), ("msg", "B", "A")]
    s.hold(*boots).run()
    for _ in range(2):
        s.step("connect", "s0", "A").step("c2r", s.cid("s0"))
        if s.w.numbers["s0"] == 2:
            s.drop("s0")
    s.send("p0").run()
    s.release(*boots).run().finish()


# ---------------------------------------------------------------------- resuming
def unresolved_not_listed(world: Worlds) -> None:
    """S resumes with an accepted delivery while its publisher is away: it must keep it (protocol 7.6.1)."""
    s = half_accepted(world, "B", "B", "A")
    s.lose("p0").run()
    s.lose("s0").attach("s0@A")
    s.lose("s0").attach("s0@B")
    s.release().attach("p0@B").finish()


def settled_before_it_is_listed(world: Worlds) -> None:
    """S has lost its memory, gets m again, and presents a map that does not say whether it has all of it. A has filled
    that in when P settles m, and answers afterwards (protocol 7.6.1, 10.1.2)."""
    s = Schedule(wider(world, FaultyWorld)("AB", [P()], [S(kind=MEMORY)])).up("s0@A", "p0@A")
    s.hold(("settle",)).send("p0").run().step("sfresh", "s0").run()
    s.hold(("accept",)).attach("s0@A")
    assert s.w.subscriber("s0").in_hand
    s.lose("s0")
    s.hold(("msg", "B", "A")).attach("s0@A")
    s.release(("settle",)).run()
    assert not s.w.publisher("p0").unsettled
    s.release(("msg", "B", "A"), ("accept",)).run().finish()


def covered_elsewhere_before_its_router_knows(world: Worlds) -> None:
    """S (no epochs) has left B for A, and B reads its attach only now. C hears of that at once, A does not yet. What P
    sends next goes to B only, and then others subscribe at A (protocol 7.3.9)."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1", kind=MEMORY)])).up("p0@C")
    s.step("connect", "s1", "B")
    attach = ("c2r", s.drop("s1"))
    s.hold(attach).attach("s1@A").hold(("msg", "B", "A"))
    s.release(attach).run()
    s.send("p0").run()
    s.step("connect", "s0", "A").run()
    s.send("p0").run()
    s.release(("msg", "B", "A")).finish()


def repeats_dropped_by_tag(world: Worlds) -> None:
    """S (no map) has accepted m0; the ingress dies before S's egress relays it; P re-sends (protocol 7.5.7)."""
    s = half_accepted(world, "B", "B", "A", publisher=P(kind=UNIQUE), subscriber=S(kind=PLAIN))
    s.step("crash", "A")
    s.lose("s0").attach("s0@B").attach("p0@B").finish()


def _two_accepted_with_a_window_of_one(world: Worlds) -> Schedule:
    """s0 has accepted two messages of p0; s1 accepts nothing before `hold` is cleared."""
    s = Schedule(world("AB", [P(), P("p1")], [S("s0", credit=1), S("s1")]))
    s.up("s0@B", "s1@B", "p0@A", "p1@A")
    s.hold(("accept", "s1")).send("p0", 2).run()
    return s


def credit_and_resumption(world: Worlds) -> None:
    """S with window 1 resumes with accepted deliveries of a publisher that is away (protocol 7.6.3)."""
    s = _two_accepted_with_a_window_of_one(world)
    s.lose("p0").run()
    s.lose("s0").attach("s0@A").release()
    s.send("p1", 2).run()
    assert len([m for m in s.accepted("s0") if m[0] == "p1"]) == 2  # not held up by p0's absence
    s.attach("p0@B").finish()


def resumptions_come_first_in_credit(world: Worlds) -> None:
    """S with window 1 resumes with two accepted deliveries of p0 while two of p1 wait for it (protocol 7.6.3)."""
    s = _two_accepted_with_a_window_of_one(world)
    s.lose("s0").run()
    s.send("p1", 2).run()
    s.step("connect", "s0", "A")
    s.hold(("c2r", s.cid("s0"))).step("c2r", s.cid("s0"))
    s.run()  # its credit comes after what waits for it
    s.finish()


# ---------------------------------------------------------------------- who is covered where
def _publisher_reads_nothing(s: Schedule) -> None:
    """It has credit, and answers no question before `hold` is cleared."""
    pipe = s.w.clients["p0"].pipe
    assert pipe is not None
    s.hold(("r2c", pipe.cid))


def orphan_is_covered_nowhere(world: Worlds) -> None:
    """S leaves B and is back there; until A has synchronised it, B's other subscription is not its neighbour's word
    (protocol 8.1.2)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up("s0@B", "s1@B", "p0@A")
    _publisher_reads_nothing(s)
    s.lose("s0").attach("s0@B")
    s.send("p0").run().finish()


def lost_router_covers_nothing(world: Worlds) -> None:
    """The session of A and B ends and begins again, S stays at B: nothing flows before A has synchronised it (protocol
    8.6.1)."""
    s = Schedule(world("AB", [P()], [S()])).up("s0@B", "p0@A")
    _publisher_reads_nothing(s)
    s.step("suspect", "A", "B").run()
    s.send("p0").run().finish()


def covered_neighbour_does_not_cover(world: Worlds) -> None:
    """S moves to B, where s1 gets the stream already; S does not, until A has synchronised it (protocol 6.1.3)."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")])).up("s0@C", "s1@B", "p0@A")
    _publisher_reads_nothing(s)
    s.lose("s0").attach("s0@B")
    s.send("p0").run().finish()


def stream_of_an_ended_session(world: Worlds) -> None:
    """m0 is sent while A and B are apart; together again, s1 subscribes at B and m1 flows there before A has
    synchronised S, which must not take it from s1's stream (protocol 10.3.1)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up("s0@B", "p0@A")
    s.step("part", "A").run()
    _publisher_reads_nothing(s)
    s.send("p0").run()
    s.step("heal").attach("s1@B")
    s.send("p0").run().finish()


def filtered_what_it_holds(world: Worlds) -> None:
    """S holds m0, moves to B and brings a filter that m0 does not pass: m0 waits for S's own outcome (protocol
    6.4.5)."""
    s = Schedule(world("AB", [P()], [S()])).up("s0@A", "p0@B")
    s.hold(("accept", "s0")).send("p0").run()
    s.w.subscriber("s0").filter = {
        Symbol("nothing"): Described(Symbol("apache.org:selector-filter:string"), "amqp.subject = 'never sent'")
    }
    s.lose("s0").attach("s0@B").finish()


# ---------------------------------------------------------------------- leaving
def aggregated_accept_without_the_lost_subscriber(world: Worlds) -> None:
    """s0, s1 at B; s1 has accepted; s0's connection drops: B's aggregated accept must not cover s0 (protocol 8.1.1)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up("s0@B", "s1@B", "p0@A")
    s.hold(("accept", "s0")).send("p0").run()
    s.lose("s0").run().finish()


def leave_of_an_earlier_subscription(world: Worlds) -> None:
    """S unsubscribes at B and subscribes anew at C; B's LEAVE reaches A after C's JOIN (protocol 8.2.2)."""
    s = Schedule(world("ABC", [P()], [S("s0")], address=ACCEPT)).up("s0@B", "p0@A")
    s.hold(("msg", "B", "A"))
    subscriber = s.w.subscriber("s0")
    s.w.checker.closed("s0")
    subscriber.link.detach(None, closed=True)
    subscriber.flush()
    s.run(until=lambda: s.waiting("A", "B") == ["Leave"])
    subscriber.want_fresh = True
    s.drop("s0")
    s.step("connect", "s0", "C").run(until=lambda: subscriber.confirmed)
    s.release().run()
    s.send("p0").run().finish()
