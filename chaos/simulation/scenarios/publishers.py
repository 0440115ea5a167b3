"""Which word about a publisher counts: its terms, its incarnations, what it still expects (protocol 5, 8.4).

Read `subscriptions.py` next.
"""

from __future__ import annotations

from chaos.simulation.scenarios.schedule import SHORT, P, S, Schedule, Worlds, half_accepted, limit
from chaos.simulation.world.checker import Violation
from chaos.simulation.world.clients import ADDRESS, MEMORY, UNIQUE
from router.core.naming import derive_publisher_id, tag_prefix


# ---------------------------------------------------------------------- failover, the plain way
def ingress_and_subscriber_fail_over_together(world: Worlds) -> None:
    """P and S both on A; A fails before S accepts; both go to B."""
    s = Schedule(world("AB", [P()], [S()])).up("s0@A", "p0@A")
    s.hold(("accept",)).send("p0").run().step("crash", "A")
    s.release().attach("s0@B", "p0@B")
    assert s.accepted("s0") == {("p0", 0)}
    s.finish()


def settle_half_relayed(world: Worlds) -> None:
    """A dies when P's settlement has reached B but not C; subscribers on both."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")])).up("s0@B", "s1@C", "p0@A")
    settle = s.next_is("Settle")
    s.hold(lambda e, w: e[:3] == ("msg", "A", "C") and settle(e, w))
    s.send("p0").run()
    s.step("crash", "A")
    s.release().step("down", "C", "A")
    assert s.w.subscriber("s1").unsettled  # s1 still holds it
    s.attach("p0@B")
    assert not s.w.subscriber("s1").unsettled
    s.finish()


def accept_known_settle_lost(world: Worlds) -> None:
    """P got accepted, A dies before P's settlement is read."""
    s = Schedule(world("AB", [P()], [S()])).up("s0@B", "p0@A")
    s.hold(("settle",)).send("p0").run().step("crash", "A")
    s.release().attach("p0@B")
    assert not s.w.subscriber("s0").unsettled
    assert not s.w.publisher("p0").unsettled
    s.finish()


# ---------------------------------------------------------------------- terms
def stale_ingress_overtaken(world: Worlds) -> None:
    """A's SYNC for S is overtaken (on another stream) by B's claim: P has moved from A to B (protocol 5.5.1, 6.2.1,
    7.5.4)."""
    s = Schedule(world("ABD", [P()], [S()])).up("p0@A")
    s.hold(("msg", "A", "D")).step("connect", "s0", "D").run()
    s.drop("p0")
    s.attach("p0@B")
    s.release(("msg", "A", "D")).run()
    s.hold(("accept",)).send("p0").run().finish()


def pub_overtaken_by_subscriber(world: Worlds) -> None:
    """B's PUB (P at B, long ago) reaches D after S, who holds a later message got through C, has moved to D (protocol
    5.5.5)."""
    s = Schedule(world("BCD", [P()], [S("s0"), S("s1")], strict=False)).up("s0@C", "s1@C")
    slow = [("msg", "B", "D"), ("down", "B", "D"), ("down", "D", "B")]  # B's stream to D is slow
    s.hold(*slow)
    # B needs D for its barrier: P is confirmed at B only after D has answered, so P leaves unconfirmed
    s.step("connect", "p0", "B").run(until=lambda: "Pub" in s.waiting("D", "B"))
    s.lose("p0")
    s.hold(("msg", "C", "D"))  # nor has D heard of C's claim
    s.hold(("accept", "s1"))
    s.step("part", "D")  # cut D off from B and C; C confirms without D
    s.step("down", "C", "D").attach("p0@C")
    s.send("p0").run(until=lambda: bool(s.accepted("s0")))
    s.step("heal")
    s.hold(("up", "C", "D"), ("up", "D", "C"))
    s.lose("s0")
    s.step("connect", "s0", "D").run(until=lambda: not s.w.clients["s0"].pipe or not s.w.clients["s0"].pipe.c2r)
    s.release(("msg", "B", "D")).run(until=lambda: not s.waiting("D", "B"))
    s.release().run().finish()


def pubdown_of_an_earlier_ingress(world: Worlds) -> None:
    """P moves from A to B; A's PUBDOWN reaches C after B's PUB (protocol 8.4.2)."""
    s = Schedule(world("ABC", [P()], [S()])).up("s0@C", "p0@A")
    s.hold(("msg", "A", "C"))
    s.lose("p0").attach("p0@B")
    assert s.waiting("C", "A")[:1] == ["PubDown"]
    s.release().run()
    s.send("p0").run().finish()


def closed_publisher_and_old_ingress(world: Worlds) -> None:
    """P moves from A to C and closes; A's replay to B (an older stream) arrives after the close (protocol 8.4.5)."""
    s = Schedule(world("ABC", [P()], [S()], strict=False)).up("s0@B", "p0@A")
    s.hold(("accept",), ("msg", "A", "B")).send("p0").run().hold(("down", "B", "A"))
    s.step("suspect", "A", "B")
    s.release(("down", "B", "A")).run()
    s.drop("p0")
    s.attach("p0@C")
    s.step("close", "p0").run()
    s.release(("msg", "A", "B")).run().finish()


def publisher_away_from_a_dynamic_node(world: Worlds) -> None:
    """S has accepted m0 at a node, and stays there; P, who has not been told, is away for longer than it takes to
    forget who sent to a node that has ended (protocol 8.4.13)."""
    p0, s0 = P(), S()
    p0.address = s0.address = "_dynamic/B/0/target"
    s = Schedule(world("AB", [p0], [s0])).up("s0@B", "p0@A").pass_time(130.0).run()
    s.send("p0").run(until=lambda: s.next_frame(s.cid("s0")) == "disposition")
    s.lose("p0").run()
    s.pass_time(11.0).run().attach("p0@A").finish()


# ---------------------------------------------------------------------- maps
def no_map_is_not_an_empty_map(world: Worlds) -> None:
    """Protocol 5.4.5."""
    s = half_accepted(world, "B", "B", "A", publisher=P(kind=UNIQUE))
    s.lose("p0").attach("p0@B").finish()


def synced_under_an_unknown_set(world: Worlds) -> None:
    """P, who presents no map, claims while S is there: S is in its stream from the first message on (protocol
    5.5.4)."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()])).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0").run().finish()


def reused_tags_after_memory_loss(world: Worlds) -> None:
    """P loses its memory and reuses its tags while S (away) still holds the old one (protocol 5.4.4)."""
    s = half_accepted(world, "B", "B", "A")
    s.lose("s0")
    s.step("pfresh", "p0").attach("p0@A")
    s.send("p0").run()
    s.release().attach("s0@A").finish()


def empty_map_resumes_nothing(world: Worlds) -> None:
    """The same of a P with memory and without epochs, whose first new attach was answered, and then lost unproved
    (protocol 5.1.3)."""
    s = half_accepted(world, "B", "B", "A", names="ABC", publisher=P(kind=MEMORY))
    s.lose("s0")
    s.step("pfresh", "p0").step("connect", "p0", "C")
    cid = s.cid("p0")
    s.step("c2r", cid)
    s.hold(("c2r", cid)).run()
    assert s.w.publisher("p0").known
    s.lose("p0").attach("p0@A")
    s.send("p0").run()
    s.release().attach("s0@A").finish()


def life_that_a_map_has_made_up(world: Worlds) -> None:
    """S1 says that it has in hand what P has sent in a later life, which P never had (protocol 7.2.4)."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S("s0"), S("s1")], address=SHORT)).up("s0@A", "s1@B")
    s.lose("s1")
    made_up = tag_prefix(derive_publisher_id("p0", "out", ADDRESS, True), 7) + b"m"
    s.w.subscriber("s1").unsettled[made_up] = "accepted"
    s.attach("s1@B").step("connect", "p0", "A").run().step("show", "p0").run()
    if s.w.publisher("p0").refusals:
        raise Violation("G4 a publisher is refused for what a subscriber has made up\n" + s.tail())
    s.send("p0").finish()
    assert not s.w.subscriber("s1").unsettled


# ---------------------------------------------------------------------- incarnations chosen by routers
def _phantom(world: Worlds, names: str) -> Schedule:
    """P (with memory) abandons a fresh attach at C whose sign of life is read late; C is cut off; P is given an
    incarnation at A and sends m0; then C reads the old sign of life."""
    s = Schedule(world(names, [P(kind=MEMORY)], [S("s0"), S("s1")], strict=False)).up("s0@A", "s1@A")
    s.step("connect", "p0", "C").run(until=lambda: s.next_frame(("p0", 1)) == "flow")
    s.w.publisher("p0").known = False
    s.hold(("c2r", ("p0", 1)))
    old = s.drop("p0")
    s.step("part", "C").attach("p0@A")
    s.hold(("accept", "s1")).send("p0").run(until=lambda: bool(s.accepted("s0")))
    s.drop("p0")
    s.release(("c2r", ("p0", 1))).step("c2r", old).run()
    return s


def incarnation_never_goes_back(world: Worlds) -> None:
    """P comes to C and is resumed as the wrong incarnation, but has sent nothing when the partition heals (protocol
    5.5.1, 5.6.2)."""
    s = _phantom(world, "AC")
    s.hold(lambda e, w: e[0] == "c2r" and w.pipes[e[1]].router == "C" and s.next_frame(e[1]) == "transfer")
    s.attach("p0@C")
    s.step("heal").run()
    s.hold_only("rnotice").attach("p0@A").finish()


def L1_plain_incarnation_unknown_to_the_other_side(world: Worlds) -> None:
    """Limit (protocol 14): P is resumed at C as the wrong incarnation before the partition heals, and S comes too."""
    s = _phantom(world, "AC")
    s.attach("p0@C")
    s.drop("s0")
    limit("G2", lambda: s.attach("s0@C"))


def L2_memory_lost_before_the_claim(world: Worlds) -> None:
    """Limit (protocol 14): P keeps a map but brings no incarnation. It loses its memory and sends
    with its first credit (protocol 5.1), the connection breaks before the router has read that, and the map that P then
    presents passes for its former self's: its tag matches the old delivery."""
    s = half_accepted(world, "B", "B", "A", publisher=P(kind=MEMORY))
    s.step("pfresh", "p0").step("connect", "p0", "A")
    cid = ("p0", 2)
    s.run(until=lambda: s.next_frame(cid) == "flow")
    s.hold(("c2r", cid)).run().send("p0")
    s.lose("p0")
    s.release(("c2r", cid)).attach("p0@A")
    s.release()
    limit("G1", s.finish)
