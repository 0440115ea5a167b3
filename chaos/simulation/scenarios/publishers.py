"""Which word about a publisher counts: its terms, its incarnations, what it still expects (PROTOCOL 5, 8.4).

Read `subscriptions.py` next.
"""

from __future__ import annotations

from chaos.simulation.clients import MEMORY, UNIQUE
from chaos.simulation.scenarios.named import P, S, Worlds, finish, half_accepted, limit, scenario
from chaos.simulation.schedule import Schedule


# ---------------------------------------------------------------------- failover, the plain way
@scenario
def ingress_and_subscriber_fail_over_together(world: Worlds) -> None:
    """P and S both on A; A fails before S accepts; both go to B."""
    s = Schedule(world("AB", [P()], [S()])).up(("s0", "A"), ("p0", "A"))
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    s.step("crash", "A")
    s.hold.clear()
    s.run(place=(("s0", "B"), ("p0", "B")))
    assert s.accepted("s0") == {("p0", 0)}
    finish(s)


@scenario
def settle_half_relayed(world: Worlds) -> None:
    """A dies when P's settlement has reached B but not C; subscribers on both."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")])).up(("s0", "B"), ("s1", "C"), ("p0", "A"))
    settle = s.next_is("Settle")
    s.hold.append(lambda e, w: e[:3] == ("msg", "A", "C") and settle(e, w))
    s.send("p0")
    s.run()
    s.step("crash", "A")
    s.hold.clear()
    s.step("down", "C", "A")
    assert s.w.subscriber("s1").unsettled  # s1 still holds it
    s.run(place=(("p0", "B"),))
    assert not s.w.subscriber("s1").unsettled
    finish(s)


@scenario
def accept_known_settle_lost(world: Worlds) -> None:
    """P got accepted, A dies before P's settlement is read."""
    s = Schedule(world("AB", [P()], [S()])).up(("s0", "B"), ("p0", "A"))
    s.hold.append(("settle",))
    s.send("p0")
    s.run()
    s.step("crash", "A")
    s.hold.clear()
    s.run(place=(("p0", "B"),))
    assert not s.w.subscriber("s0").unsettled
    assert not s.w.publisher("p0").unsettled
    finish(s)


# ---------------------------------------------------------------------- terms
@scenario
def stale_ingress_overtaken(world: Worlds) -> None:
    """A's SYNC for S is overtaken (on another stream) by B's claim: P has moved from A to B."""
    s = Schedule(world("ABD", [P()], [S()])).up(("p0", "A"))
    s.hold.append(("msg", "A", "D"))
    s.step("connect", "s0", "D")
    s.run()
    s.drop("p0")
    s.run(place=(("p0", "B"),))
    s.hold.remove(("msg", "A", "D"))
    s.run()
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def pub_overtaken_by_subscriber(world: Worlds) -> None:
    """B's PUB (P at B, long ago) reaches D after S, who holds a later message got through C, has moved to D."""
    s = Schedule(world("BCD", [P()], [S("s0"), S("s1")], strict=False)).up(("s0", "C"), ("s1", "C"))
    slow = [("msg", "B", "D"), ("down", "B", "D"), ("down", "D", "B")]  # B's stream to D is slow
    s.hold += slow
    # B needs D for its barrier: P is confirmed at B only after D has answered, so P leaves unconfirmed
    s.step("connect", "p0", "B")
    s.run(until=lambda: "Pub" in s.waiting("D", "B"))
    s.notice(s.drop("p0"))
    s.hold.append(("msg", "C", "D"))  # nor has D heard of C's claim
    s.hold.append(("accept", "s1"))
    s.step("part", "D")  # cut D off from B and C; C confirms without D
    s.step("down", "C", "D")
    s.run(place=(("p0", "C"),))
    s.send("p0")
    s.run(until=lambda: bool(s.accepted("s0")))
    s.step("heal")
    s.hold += [("up", "C", "D"), ("up", "D", "C")]
    s.notice(s.drop("s0"))
    s.step("connect", "s0", "D")
    s.run(until=lambda: not s.w.clients["s0"].pipe or not s.w.clients["s0"].pipe.c2r)
    s.hold.remove(("msg", "B", "D"))
    s.run(until=lambda: not s.waiting("D", "B"))
    s.hold.clear()
    s.run()
    finish(s)


@scenario
def pubdown_of_an_earlier_ingress(world: Worlds) -> None:
    """P moves from A to B; A's PUBDOWN reaches C after B's PUB (8.4)."""
    s = Schedule(world("ABC", [P()], [S()])).up(("s0", "C"), ("p0", "A"))
    s.hold.append(("msg", "A", "C"))
    s.notice(s.drop("p0"))
    s.run(place=(("p0", "B"),))
    assert s.waiting("C", "A")[:1] == ["PubDown"]
    s.hold.clear()
    s.run()
    s.send("p0")
    s.run()
    finish(s)


@scenario
def closed_publisher_and_old_ingress(world: Worlds) -> None:
    """P moves from A to C and closes; A's replay to B (an older stream) arrives after the close."""
    s = Schedule(world("ABC", [P()], [S()], strict=False)).up(("s0", "B"), ("p0", "A"))
    s.hold += [("accept",), ("msg", "A", "B")]
    s.send("p0")
    s.run()
    s.hold += [("down", "B", "A")]
    s.step("suspect", "A", "B")
    s.hold.remove(("down", "B", "A"))
    s.run()
    s.drop("p0")
    s.run(place=(("p0", "C"),))
    s.step("close", "p0")
    s.run()
    s.hold.remove(("msg", "A", "B"))
    s.run()
    s.hold.clear()
    finish(s)


# ---------------------------------------------------------------------- maps
@scenario
def no_map_is_not_an_empty_map(world: Worlds) -> None:
    s = half_accepted(world, "B", "B", "A", publisher=P(kind=UNIQUE))
    s.notice(s.drop("p0"))
    s.run()
    s.run(place=(("p0", "B"),))
    s.hold.clear()
    finish(s)


@scenario
def synced_under_an_unknown_set(world: Worlds) -> None:
    """P, who presents no map, claims while S is there: S is in its stream from the first message on (5.5)."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()])).up(("s0", "B"), ("p0", "A"))
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def reused_tags_after_memory_loss(world: Worlds) -> None:
    """P loses its memory and reuses its tags while S (away) still holds the old one."""
    s = half_accepted(world, "B", "B", "A")
    s.notice(s.drop("s0"))
    s.step("pfresh", "p0")
    s.run(place=(("p0", "A"),))
    s.send("p0")
    s.run()
    s.hold.clear()
    s.run(place=(("s0", "A"),))
    finish(s)


@scenario
def empty_map_resumes_nothing(world: Worlds) -> None:
    """The same of a P with memory and without epochs, whose first new attach was answered, and then lost unproved."""
    s = half_accepted(world, "B", "B", "A", names="ABC", publisher=P(kind=MEMORY))
    s.notice(s.drop("s0"))
    s.step("pfresh", "p0")
    s.step("connect", "p0", "C")
    cid = s.w.clients["p0"].pipe.cid  # type: ignore[union-attr]
    s.step("c2r", cid)
    s.hold.append(("c2r", cid))
    s.run()
    assert s.w.publisher("p0").known
    s.notice(s.drop("p0"))
    s.run(place=(("p0", "A"),))
    s.send("p0")
    s.run()
    s.hold.clear()
    s.run(place=(("s0", "A"),))
    finish(s)


# ---------------------------------------------------------------------- incarnations chosen by routers
def _phantom(world: Worlds, names: str) -> Schedule:
    """P (with memory) abandons a fresh attach at C whose sign of life is read late; C is cut off; P is given an
    incarnation at A and sends m0; then C reads the old sign of life."""
    s = Schedule(world(names, [P(kind=MEMORY)], [S("s0"), S("s1")], strict=False)).up(("s0", "A"), ("s1", "A"))
    s.step("connect", "p0", "C")
    s.run(until=lambda: s.next_frame(("p0", 1)) == "flow")
    s.w.publisher("p0").known = False
    s.hold.append(("c2r", ("p0", 1)))
    old = s.drop("p0")
    s.step("part", "C")
    s.run()
    s.run(place=(("p0", "A"),))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run(until=lambda: bool(s.accepted("s0")))
    s.drop("p0")
    s.hold.remove(("c2r", ("p0", 1)))
    s.step("c2r", old)
    s.run()
    return s


@scenario
def incarnation_never_goes_back(world: Worlds) -> None:
    """P comes to C and is resumed as the wrong incarnation, but has sent nothing when the partition heals."""
    s = _phantom(world, "AC")
    s.hold.append(lambda e, w: e[0] == "c2r" and w.pipes[e[1]].router == "C" and s.next_frame(e[1]) == "transfer")
    s.run(place=(("p0", "C"),))
    s.step("heal")
    s.run()
    s.hold = [h for h in s.hold if isinstance(h, tuple) and h[0] == "rnotice"]
    s.run(place=(("p0", "A"),))
    finish(s)


@scenario
def L1_plain_incarnation_unknown_to_the_other_side(world: Worlds) -> None:
    """Limit (PROTOCOL 14): P is resumed at C as the wrong incarnation before the partition heals, and S comes too."""
    s = _phantom(world, "AC")
    s.run(place=(("p0", "C"),))
    s.drop("s0")
    limit("G2", lambda: s.run(place=(("s0", "C"),)))


@scenario
def L2_memory_lost_before_the_claim(world: Worlds) -> None:
    """Limit (docs/decisions/core-in-ranges.md): P keeps a map but brings no incarnation. It loses its memory and sends
    with the credit of 5.1, the connection breaks before the router has read that, and the map that P then presents
    passes for its former self's: its tag matches the old delivery."""
    s = half_accepted(world, "B", "B", "A", publisher=P(kind=MEMORY))
    s.step("pfresh", "p0")
    s.step("connect", "p0", "A")
    cid = ("p0", 2)
    s.run(until=lambda: s.next_frame(cid) == "flow")
    s.hold.append(("c2r", cid))
    s.run()
    s.send("p0")
    s.notice(s.drop("p0"))
    s.hold.remove(("c2r", cid))
    s.run(place=(("p0", "A"),))
    s.hold.clear()
    limit("G1", lambda: finish(s))
