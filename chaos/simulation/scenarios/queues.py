"""Queues: who holds a delivery when the router that decided that is gone (protocol 16)."""

from __future__ import annotations

from chaos.simulation.scenarios.schedule import P, S, Schedule, Worlds
from chaos.simulation.world.clients import MEMORY
from chaos.simulation.world.publishers import Publisher
from router.config import AddressConfig

QUEUE = AddressConfig(type="queue")
EXPIRING = AddressConfig(type="queue", expire=True)
TTL_S = 2.0
M0 = ("p0", 0)


def _held_by_one(world: Worlds, names: str, s0: str, s1: str, p0: str) -> Schedule:
    """s0 has m0 in hand. s1 has credit since. Nobody accepts until that is released."""
    s = Schedule(world(names, [P()], [S("s0"), S("s1")], address=QUEUE)).up(f"s0@{s0}", f"p0@{p0}")
    s.hold(("accept",)).send("p0").run().attach(f"s1@{s1}")
    assert [mid for _, mid in s.w.subscriber("s0").in_hand] == [M0]
    return s


def queue_holder_is_away(world: Worlds) -> None:
    """s0 holds m0 and loses its connection. s1 does not get it; s0 comes back with it in its map, and accepts."""
    s = _held_by_one(world, "AB", "B", "A", "A")
    s.lose("s0").run()
    assert not s.w.subscriber("s1").in_hand
    s.release().attach("s0@A")
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_holder_is_attached(world: Worlds) -> None:
    """s0 at B holds m0. A, where P is, dies. P sends m0 again at C, which s1 is at: B says that s0 has it."""
    s = _held_by_one(world, "ABC", "B", "C", "A")
    s.step("crash", "A").attach("p0@C")
    assert not s.w.subscriber("s1").in_hand
    s.release().run()
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_orphan_may_hold_it(world: Worlds) -> None:
    """s0 holds m0, and its router B dies with A, where P is. P sends m0 again at C, which s1 is at. C waits for s0."""
    s = _held_by_one(world, "ABC", "B", "C", "A")
    s.step("crash", "A").step("crash", "B").attach("p0@C")
    assert not s.w.subscriber("s1").in_hand
    s.release().attach("s0@C")
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_orphan_does_not_hold_it(world: Worlds) -> None:
    """The same, but s0 has had no m0 when its router dies: when it is back, somebody gets m0."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")], address=QUEUE)).up("s0@B", "s1@C", "p0@A")
    s.hold(("msg",)).send("p0").run().release()
    s.step("crash", "A").step("crash", "B").attach("p0@C", "s0@C")
    assert s.accepted("s0") | s.accepted("s1") == {M0}
    s.finish()


def queue_accepted_and_left(world: Worlds) -> None:
    """s0 accepts m0 while P is away, and closes before P is back: its router remembers that it has been accepted."""
    s = _held_by_one(world, "AB", "B", "A", "A")
    s.lose("p0").run().release()
    s.step("accept", "s0", 0).step("close", "s0").run()
    s.attach("p0@A")
    assert s.accepted("s0") == {M0}
    assert not s.accepted("s1")
    s.finish()


def queue_attach_that_is_read_late(world: Worlds) -> None:
    """s0, which brings no epochs, has m0 in hand at A. B reads an attach of an earlier connection of it, with an empty
    map. That does not give m0 to s1: s0 accepts it at A meanwhile, and comes back with that in its map."""
    s = Schedule(world("AB", [P()], [S("s0", MEMORY), S("s1")], address=QUEUE)).up("s0@A", "p0@A").lose("s0").run()
    s.hold(("c2r", ("s0", 2))).step("connect", "s0", "B").run()
    old = s.drop("s0")
    s.attach("s0@A").hold(("accept",)).send("p0").run().attach("s1@B")
    assert [mid for _, mid in s.w.subscriber("s0").in_hand] == [M0]
    s.hold(("c2r", ("s0", 3))).step("accept", "s0", 0)
    s.release(("c2r", old)).run()
    assert not s.w.subscriber("s1").in_hand
    s.release().attach("s0@A").run()
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_settled_where_a_consumer_has_gone(world: Worlds) -> None:
    """As before, but P is back twice: the first time it sends nothing, and another publisher's message is settled
    before the second. What B remembers of s0 is settled nevertheless."""
    s = Schedule(world("AB", [P("p0"), P("p1")], [S("s0"), S("s1")], address=QUEUE)).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0").run().lose("p0").run().release()
    s.step("accept", "s0", 0).step("close", "s0").run()
    s.hold(lambda e, w: e[0] == "c2r" and e[1][0] == "p0" and s.next_frame(e[1]) == "transfer")
    s.attach("p0@A").run().lose("p0").attach("s1@A", "p1@A").send("p1").run().release()
    assert s.accepted("s1") == {("p1", 0)}
    s.attach("p0@A").run()
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_all_die_and_the_holder_is_late(world: Worlds) -> None:
    """s0 holds m0, and all routers die. P and s1 are back before it: m0 waits until all consumers that may hold it are
    known."""
    s = _held_by_one(world, "AB", "B", "A", "A")
    s.step("crash", "A").step("crash", "B").step("restart", "A").step("restart", "B").run().pass_time(2.0)
    s.attach("s1@A", "p0@A")
    assert not s.w.subscriber("s1").in_hand
    s.release().attach("s0@B")
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_round_that_is_over(world: Worlds) -> None:
    """Two ingresses may use the credit of one consumer. What A has assigned beyond it goes back, and what A has
    assigned since must not overtake that, though there is credit again."""
    s = Schedule(world("ABD", [P("p0"), P("p1")], [S("s0")], address=QUEUE)).up("s0@B", "p0@A", "p1@D")
    s.hold(("accept",)).send("p1", 5).run()
    assert len(s.w.subscriber("s0").in_hand) == 5
    s.hold(("msg", "B", "A")).send("p0", 6).run()
    s.hold(("msg", "A", "B")).send("p0").run()
    for _ in range(2):
        s.step("accept", "s0", 0)
    s.run().release(("msg", "A", "B")).run().release().finish()


def queue_undeliverable_at_a_link(world: Worlds) -> None:
    """s0 says that it cannot take m1, and nobody else is there. A, where P is, dies, and P sends m1 again at C: s0 does
    not get it on the link on which it has declined it. s1 does."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")], address=QUEUE)).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0", 2).run().step("reject", "s0", 1).run()
    s.step("crash", "A").attach("p0@C")
    assert [mid for _, mid in s.w.subscriber("s0").in_hand] == [M0]
    s.attach("s1@C").release().run()
    assert s.accepted("s1") == {("p0", 1)}
    s.finish()


def _passing(name: str = "p0") -> Publisher:
    """A publisher whose messages have a ttl."""
    publisher = P(name)
    publisher.ttl_ms = int(TTL_S * 1000)
    return publisher


def queue_expires_where_nobody_has_credit(world: Worlds) -> None:
    """No consumer gives credit. When the time of m0 is over, P is told."""
    s = Schedule(world("AB", [_passing()], [S("s0", credit=0)], address=EXPIRING)).up("s0@B", "p0@A").send("p0").run()
    assert s.w.publisher("p0").unsettled
    s.pass_time(TTL_S + 1).finish()


def queue_expired_in_a_consumers_hands(world: Worlds) -> None:
    """s0 has m0 in hand, and loses its connection. The time of m0 is over. s0 comes back and rejects it: P is not told
    anything before."""
    s = Schedule(world("AB", [_passing()], [S("s0")], address=EXPIRING)).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0").run().lose("s0").run().pass_time(TTL_S + 1).run()
    s.attach("s0@A").step("reject", "s0", 0).release().run()
    assert s.w.checker.rejections[M0]
    s.finish()
