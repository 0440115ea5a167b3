"""Queues: who holds a delivery when the router that decided that is gone (protocol 16)."""

from __future__ import annotations

from dataclasses import replace

from amqp10.performatives import SND_SETTLED
from chaos.simulation.scenarios.schedule import EXPIRY_S, SHORT, P, S, Schedule, Worlds, limit
from chaos.simulation.world.clients import MEMORY, PLAIN
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.queue_checker import QueueChecker
from chaos.simulation.world.subscribers import Browser
from chaos.simulation.world.world import Event, World
from router.config import AddressConfig

QUEUE = AddressConfig(type="queue")
SHORT_QUEUE = replace(SHORT, type="queue")
EXPIRING = AddressConfig(type="queue", expire=True)
PRIORITY = AddressConfig(type="queue", priority=True)
TTL_S = 2.0
M0 = ("p0", 0)


def _held_by_one(
    world: Worlds, names: str, s0: str, s1: str, p0: str, strict: bool = True, address: AddressConfig = QUEUE
) -> Schedule:
    """s0 has m0 in hand. s1 has credit since. Nobody accepts until that is released."""
    s = Schedule(world(names, [P()], [S("s0"), S("s1")], strict=strict, address=address)).up(f"s0@{s0}", f"p0@{p0}")
    s.hold(("accept",)).send("p0").run().attach(f"s1@{s1}")
    assert [mid for _, mid in s.w.subscriber("s0").in_hand] == [M0]
    return s


def queue_holder_is_away(world: Worlds) -> None:
    """s0 holds m0 and loses its connection. s1 does not get it; s0 comes back with it in its map, and accepts (protocol
    16.6.1)."""
    s = _held_by_one(world, "AB", "B", "A", "A")
    s.lose("s0").run()
    assert not s.w.subscriber("s1").in_hand
    s.release().attach("s0@A")
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_holder_expires(world: Worlds) -> None:
    """s0 holds m0, loses its connection, and its timeout is over: s1 gets m0. s0 is told, and does not accept it
    (protocol 16.6.2)."""
    s = _held_by_one(world, "AB", "B", "A", "A", strict=False, address=SHORT_QUEUE)
    s.lose("s0").run().hold(("accept", "s0")).release(("accept",)).pass_time(EXPIRY_S).run()
    assert s.accepted("s1") == {M0}, "G4 nobody gets it"
    s.attach("s0@B").finish()
    assert not s.accepted("s0")


def queue_holder_expires_and_begins_anew(world: Worlds) -> None:
    """The same, but s1 does not accept m0 either. s0's next attach is fresh, and has m0 in its map: that is s1's
    (protocol 16.2.3)."""
    s = _held_by_one(world, "AB", "B", "A", "A", strict=False, address=SHORT_QUEUE)
    s.lose("s0").run().pass_time(EXPIRY_S).run().attach("s0@B")
    assert [mid for _, mid in s.w.subscriber("s1").in_hand] == [M0]
    assert not s.w.subscriber("s0").unsettled, "G2 s0 is told that it holds m0, which s1 has"
    s.finish()


def queue_holder_expires_where_nobody_knows_it(world: Worlds) -> None:
    """s0 holds m0, and all routers die. P and s1 are back, and s0 is away for its timeout: s1 gets m0. s0 is told
    (protocol 16.2.2)."""
    s = _held_by_one(world, "AB", "B", "A", "A", strict=False, address=SHORT_QUEUE).hold(("settle",))
    s.step("crash", "A").step("crash", "B").step("restart", "A").step("restart", "B").run().attach("s1@A", "p0@A")
    s.hold(("accept", "s0")).release(("accept",)).pass_time(2 * EXPIRY_S).run()
    assert s.accepted("s1") == {M0}, "G4 nobody gets it"
    s.attach("s0@B")
    assert not s.w.subscriber("s0").unsettled, "G2 s0 is told that it holds m0, which s1 has accepted"
    s.finish()


def queue_holder_without_a_map(world: Worlds) -> None:
    """s0, which keeps no map, accepts m0, and its router dies before it has read that. s0 is back: m0 comes again
    (protocol 16.6.3)."""
    s = Schedule(world("AB", [P()], [S("s0", PLAIN), S("s1")], address=QUEUE)).up("s0@B", "p0@A")
    s.w.checker.at_least_once.add("s0")
    s.send("p0").hold(("c2r", s.cid("s0"))).run()
    assert s.accepted("s0") == {M0}
    s.step("crash", "B").step("restart", "B").run().attach("s1@A")
    assert not s.accepted("s1")
    s.attach("s0@B")
    assert s.accepted("s1") == {M0}, "G4 m0 does not come again"
    s.finish()


def _settled(name: str = "p0") -> Publisher:
    publisher = P(name)
    publisher.snd = SND_SETTLED
    return publisher


def queue_settled_goes_to_one_consumer(world: Worlds) -> None:
    """P sends m0 settled. s0, which keeps no map, has it in hand when its router dies: it may have worked on it, so
    neither it nor s1 gets it again (protocol 16.1.5)."""
    s = Schedule(world("AB", [_settled()], [S("s0", PLAIN), S("s1")], address=QUEUE)).up("s0@B", "p0@A")
    s.w.checker.at_least_once.add("s0")
    s.hold(("accept",)).send("p0").run()
    assert [mid for _, mid in s.w.subscriber("s0").in_hand] == [M0]
    s.step("crash", "B").step("restart", "B").run().attach("s1@A", "s0@B")
    s.finish()


def queue_settled_waits_when_its_publisher_has_gone(world: Worlds) -> None:
    """P sends m0 settled while s0 has no credit, and closes its link. s0 gets m0 when it has credit again (protocol
    16.1.7)."""
    s = Schedule(world("AB", [_settled(), P("p1")], [S("s0", credit=1)], address=QUEUE)).up("s0@B", "p1@B", "p0@A")
    s.hold(("accept",)).send("p1").run().send("p0").run().step("close", "p0").run().release().run()
    assert s.accepted("s0") == {("p1", 0), M0}, "G4 s0 does not get what was sent settled"
    s.finish()


def queue_settled_waits_for_a_consumer_that_comes_back(world: Worlds) -> None:
    """P sends m0 settled while s0 is away, and closes its link. s0 is back and gets m0: nobody has to be asked whether
    P is elsewhere by now (protocol 16.1.3)."""
    s = Schedule(world("AB", [_settled()], [S("s0")], address=QUEUE)).up("s0@B", "p0@A").lose("s0").run()
    s.send("p0").run().step("close", "p0").run().attach("s0@B")
    assert s.accepted("s0") == {M0}, "G4 s0 does not get what was sent settled"
    s.finish()


def queue_holder_is_attached(world: Worlds) -> None:
    """s0 at B holds m0. A, where P is, dies. P sends m0 again at C, which s1 is at: B says that s0 has it (protocol
    16.4.2)."""
    s = _held_by_one(world, "ABC", "B", "C", "A")
    s.step("crash", "A").attach("p0@C")
    assert not s.w.subscriber("s1").in_hand
    s.release().run()
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_orphan_may_hold_it(world: Worlds) -> None:
    """s0 holds m0, and its router B dies with A, where P is. P sends m0 again at C, which s1 is at. C waits for s0
    (protocol 16.4.1)."""
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
    """s0 accepts m0 while P is away, and closes before P is back: its router remembers that it has been accepted
    (protocol 16.7.1)."""
    s = _held_by_one(world, "AB", "B", "A", "A")
    s.lose("p0").run().release()
    s.step("accept", "s0", 0).step("close", "s0").run()
    s.attach("p0@A")
    assert s.accepted("s0") == {M0}
    assert not s.accepted("s1")
    s.finish()


def queue_accepted_in_its_map_and_left(world: Worlds) -> None:
    """s0 comes back with m0 accepted in its map. SYNC binds it, and before A has read what s0 holds, s0 closes: B has
    told nobody yet that it is accepted (protocol 16.7.2)."""
    s = _held_by_one(world, "AB", "B", "A", "A")
    s.lose("p0").lose("s0").run().release()
    s.step("accept", "s0", 0).attach("p0@A").hold(s.next_is("Hold")).attach("s0@B")
    s.step("close", "s0").run().release().run()
    assert s.accepted("s0") == {M0}
    assert not s.accepted("s1")
    s.finish()


def _done_before_it_is_heard(world: Worlds) -> Schedule:
    """s0 accepts m0 at B while P is away. P comes to B, and s0 goes to A, of which B asks what s0 holds. Before it
    hears that, P sends m0 again: B knows that it is accepted. A has yet to learn which delivery that settles."""
    s = Schedule(world("AB", [P("p0", MEMORY)], [S("s0")], address=QUEUE)).up("s0@B", "p0@A").hold(("accept",))
    s.send("p0").run().lose("p0").run().release().step("accept", "s0", 0).run()
    s.step("connect", "p0", "B").run(until=lambda: "PubAck" in s.waiting("B", "A"))
    s.hold(("r2c", s.cid("p0"))).run().lose("s0").run().hold(s.next_is("Hold")).attach("s0@A")
    return s.hold(("settle",)).release(("r2c", s.cid("p0"))).run()


def _is_settled(s: Schedule) -> None:
    assert not s.w.subscriber("s0").unsettled, "G4 m0 is settled, and s0 is not told"
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_held_and_done_when_it_is_heard(world: Worlds) -> None:
    """Then B hears it, and P settles (protocol 16.4.7)."""
    s = _done_before_it_is_heard(world)
    s.holds = [("settle",)]
    _is_settled(s.run().release().run())


def queue_held_and_settled_when_it_is_heard(world: Worlds) -> None:
    """P settles before B hears it (protocol 16.4.7)."""
    _is_settled(_done_before_it_is_heard(world).release(("settle",)).run().release().run())


def queue_attach_that_is_read_late(world: Worlds) -> None:
    """s0, which brings no epochs, has m0 in hand at A. B reads an attach of an earlier connection of it, with an empty
    map. That does not give m0 to s1: s0 accepts it at A meanwhile, and comes back with that in its map (protocol
    16.8.1, 16.8.2, 16.8.3)."""
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
    before the second. What B remembers of s0 is settled nevertheless (protocol 16.7.5)."""
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
    known (protocol 16.2.1)."""
    s = _held_by_one(world, "AB", "B", "A", "A")
    s.step("crash", "A").step("crash", "B").step("restart", "A").step("restart", "B").run().pass_time(2.0)
    s.attach("s1@A", "p0@A")
    assert not s.w.subscriber("s1").in_hand
    s.release().attach("s0@B")
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_idle_consumers_share(world: Worlds) -> None:
    """s0 has four in hand, and closes: they are free at one moment. s1 and s2 are idle, and get two each (protocol
    16.3.2)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1"), S("s2")], address=QUEUE)).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0", 4).run().attach("s1@B", "s2@B").step("close", "s0").run()
    have = [len(s.w.subscriber(name).in_hand) for name in ("s1", "s2")]
    assert have == [2, 2], f"G4 s1 and s2 have {have}: one waits for what the other works on"
    s.finish()


def queue_round_that_is_over(world: Worlds) -> None:
    """Two ingresses may use the credit of one consumer. What A has assigned beyond it goes back, and what A has
    assigned since must not overtake that, though there is credit again (protocol 16.3.6)."""
    s = Schedule(world("ABD", [P("p0"), P("p1")], [S("s0")], address=QUEUE)).up("s0@B", "p0@A", "p1@D")
    s.hold(("accept",)).send("p1", 5).run()
    assert len(s.w.subscriber("s0").in_hand) == 5
    s.hold(("msg", "B", "A")).send("p0", 6).run()
    s.hold(("msg", "A", "B")).send("p0").run()
    for _ in range(2):
        s.step("accept", "s0", 0)
    s.run().release(("msg", "A", "B")).run().release().finish()


def queue_named_where_another_may_hold_it(world: Worlds) -> None:
    """s0 holds m0, and all routers die. s1 is back first and goes again: P's router takes m0 for what s1 may hold. Then
    s0 comes with it, and accepts. s1, when it is back, does not get it (protocol 16.4.4)."""
    s = _held_by_one(world, "AB", "B", "A", "A")
    s.step("crash", "A").step("crash", "B").step("restart", "A").step("restart", "B").run()
    s.attach("s1@A").lose("s1").run().attach("p0@A", "s0@B").release().run().attach("s1@A").pass_time(100.0).run()
    assert s.accepted("s0") == {M0}
    assert not s.accepted("s1")
    s.finish()


def queue_given_back_and_assigned_again(world: Worlds) -> None:
    """A has read that m5 goes back, and its session with B ends before B has read m6. In the next one s0 does not hold
    m6: it does not get it before m5 (protocol 16.4.5)."""
    s = Schedule(world("ABD", [P("p0"), P("p1")], [S("s0")], address=QUEUE)).up("s0@B", "p0@A", "p1@D")
    s.hold(("accept",)).send("p1", 5).run()
    s.hold(("msg", "B", "A")).send("p0", 6).run()
    s.hold(("msg", "A", "B")).send("p0").run()
    for _ in range(2):
        s.step("accept", "s0", 0)
    s.run().release(("msg", "B", "A")).run().step("part", "A").run().release().finish()


def _named_on_a_link_that_is_gone(world: Worlds, *, heard: bool) -> None:
    """A has sent m0 and m1 to s0, which keeps no map, when P attaches again. Before P sends them again s0 attaches at
    B, and has read neither. heard: A has read that, too."""
    s = Schedule(world("AB", [P("p0", MEMORY)], [S("s0", PLAIN)], address=QUEUE)).up("s0@A", "p0@A")
    s.hold(("r2c", s.cid("s0"))).send("p0", 2).run().lose("p0")

    def sent_again(event: Event, _: World) -> bool:
        return event[0] == "c2r" and s.next_frame(event[1]) == "transfer"

    hold = s.next_is("Hold")
    s.hold(sent_again).attach("p0@A").lose("s0").hold(hold).attach("s0@B").hold(("msg", "A", "B"))
    if heard:
        s.release(hold).run()
    s.release(sent_again).run().send("p0").run()
    if not heard:
        s.release(hold).run()
    s.release().finish()
    assert len(s.accepted("s0")) == 3


def queue_named_on_a_link_that_is_gone(world: Worlds) -> None:
    """A waits for what s0 says at B: m2 must not overtake m0 (protocol 16.4.4)."""
    _named_on_a_link_that_is_gone(world, heard=False)


def queue_not_named_on_the_next_link(world: Worlds) -> None:
    """A does not take m0 and m1 for s0's any more: m2 must not overtake m0 (protocol 16.4.4)."""
    _named_on_a_link_that_is_gone(world, heard=True)


def queue_not_named_in_the_next_routers_answer(world: Worlds) -> None:
    """The same, but P's claim is open when s0 attaches at B, whose answer says that s0 holds neither (protocol
    16.4.2)."""
    s = Schedule(world("AB", [P("p0", MEMORY)], [S("s0", PLAIN)], address=QUEUE)).up("s0@A", "p0@A")
    s.hold(("r2c", s.cid("s0"))).send("p0", 2).run().lose("p0")
    s.hold(("msg", "A", "B")).attach("p0@A").lose("s0").attach("s0@B")
    s.hold(s.next_is("Sync")).release(("msg", "A", "B")).run().send("p0").run()
    s.release().finish()
    assert len(s.accepted("s0")) == 3


def queue_new_before_the_consumer_is_heard(world: Worlds) -> None:
    """The session between A and B ends before B has read m0. In the next one P sends m1 before A knows that s0 does not
    hold m0: m1 waits (protocol 16.4.1)."""
    s = Schedule(world("AB", [P()], [S("s0")], address=QUEUE)).up("s0@B", "p0@A")
    s.hold(("msg", "A", "B")).send("p0").run().step("part", "A").run()
    s.hold(s.next_is("Hold")).release(("msg", "A", "B")).run().send("p0").run()
    assert not s.accepted("s0")
    s.release().finish()


def queue_given_back_while_its_router_is_dead(world: Worlds) -> None:
    """A, where P is, dies, and B tells C that s0 holds m0. Then s0 gives that back. C asks for it, and s1 gets it
    (protocol 16.5.5)."""
    s = _held_by_one(world, "ABC", "B", "C", "A").step("crash", "A").hold(("msg", "B", "C")).attach("p0@C")
    s.step("release", "s0", 0).run().release().run()
    assert s.accepted("s1") == {M0}, "G4 nobody gets it"
    s.finish()


def queue_two_consumers_fail(world: Worlds) -> None:
    """s0 releases m0 three times, fails with it as often, and closes. So does s1: that is more often than m0 is
    delivered again, and P is told that it is rejected (protocol 16.5.3)."""
    s = _held_by_one(world, "AB", "A", "B", "A")
    for name in ("s0", "s1"):
        for _ in range(6):
            assert s.w.subscriber(name).in_hand, f"G4 m0 does not come again to {name}"
            s.step("release", name, 0).run()
        s.step("close", name).run()
    assert not s.w.publisher("p0").unsettled, "G4 m0 goes round"
    s.finish()


def queue_undeliverable_at_a_link(world: Worlds) -> None:
    """s0 says that it cannot take m1, and nobody else is there. A, where P is, dies, and P sends m1 again at C: s0 does
    not get it on the link on which it has declined it. s1 does (protocol 16.5.4)."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")], address=QUEUE)).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0", 2).run().step("reject", "s0", 1).run()
    s.step("crash", "A").attach("p0@C")
    assert [mid for _, mid in s.w.subscriber("s0").in_hand] == [M0]
    s.attach("s1@C").release().run()
    assert s.accepted("s1") == {("p0", 1)}
    s.finish()


def _large(world: Worlds, s0: int | None = 100, s1: int | None = None, credit: int = 10) -> Schedule:
    """What P at A sends is larger than 100 bytes. s0 at A and s1 at B are there, and take so much; s1 has this
    credit."""
    publisher, consumers = P(), [S("s0"), S("s1", credit=credit)]
    publisher.size = 300
    consumers[0].takes, consumers[1].takes = s0, s1
    return Schedule(world("AB", [publisher], consumers, address=QUEUE)).up("s0@A", "s1@B", "p0@A")


def queue_too_large_for_the_nearest(world: Worlds) -> None:
    """s0 is the nearest, and m0 is too large for it: s1 gets it (protocol 16.5.6)."""
    s = _large(world).send("p0").run()
    assert s.accepted("s1") == {M0}, "G4 nobody gets it"
    s.finish()


def queue_too_large_for_all(world: Worlds) -> None:
    """m0 is too large for both: P is told that it is rejected (protocol 16.5.6)."""
    s = _large(world, s1=200)
    s.w.checker.rejected("s0", M0)  # A does so in its stead
    s.send("p0").finish()


def queue_too_large_for_all_but_who_is_away(world: Worlds) -> None:
    """m0 is too large for s0, and s1 is away: it waits until s1 is back (protocol 16.5.6)."""
    s = _large(world).lose("s1").run().send("p0").run().attach("s1@A")
    assert s.accepted("s1") == {M0}, "G4 nobody gets it"
    s.finish()


def queue_too_large_for_all_but_who_leaves(world: Worlds) -> None:
    """m0 is too large for s0, and s1 could take it, but gives no credit, and closes: P is told that it is rejected
    (protocol 16.5.6)."""
    s = _large(world, credit=0).send("p0").run()
    assert s.w.publisher("p0").unsettled
    s.w.checker.rejected("s0", M0)  # A does so in its stead
    s.step("close", "s1").run().finish()


def queue_too_large_for_a_former_link(world: Worlds) -> None:
    """m0 is too large for s0, and s1 could take it, but gives no credit. s0 attaches again and takes more
    (protocol 16.5.6)."""
    s = _large(world, credit=0).send("p0").run().lose("s0").run()
    s.w.subscriber("s0").takes = None
    s.attach("s0@A").finish()
    assert s.accepted("s0") == {M0}


def _passing() -> Publisher:
    """A publisher whose messages have a ttl."""
    publisher = P()
    publisher.ttl_ms = int(TTL_S * 1000)
    return publisher


def queue_expires_where_nobody_has_credit(world: Worlds) -> None:
    """No consumer gives credit. When the time of m0 is over, P is told (protocol 16.3.9)."""
    s = Schedule(world("AB", [_passing()], [S("s0", credit=0)], address=EXPIRING)).up("s0@B", "p0@A").send("p0").run()
    assert s.w.publisher("p0").unsettled
    s.pass_time(TTL_S + 1).finish()


def queue_expired_in_a_consumers_hands(world: Worlds) -> None:
    """s0 has m0 in hand, and loses its connection. The time of m0 is over. s0 comes back and rejects it: P is not told
    anything before (protocol 16.3.9)."""
    s = Schedule(world("AB", [_passing()], [S("s0")], address=EXPIRING)).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0").run().lose("s0").run().pass_time(TTL_S + 1).run()
    s.attach("s0@A").step("reject", "s0", 0).release().run()
    assert s.w.checker.rejections[M0]
    s.finish()


def _grouped(world: Worlds, names: str, *publishers: str, credit: int = 10) -> Schedule:
    """All messages are of one group, and no two routers give it to two consumers at one moment."""
    senders = [P(name) for name in publishers or ("p0",)]
    for sender in senders:
        sender.groups = 1
    s = Schedule(world(names, senders, [S("s0", credit=credit), S("s1")], address=QUEUE))
    if isinstance(s.w.checker, QueueChecker):
        s.w.checker.groups_stay = True
    return s


def queue_group_waits_for_its_consumer(world: Worlds) -> None:
    """s0 has m0 in hand, and no more credit. m1, of the same group, does not go to s1, which has some (protocol
    16.9.4)."""
    s = _grouped(world, "AB", credit=1).up("s0@A", "p0@B").hold(("accept", "s0")).send("p0").run()
    s.attach("s1@B").send("p0").run().release().run()
    assert s.accepted("s0") == {M0, ("p0", 1)}
    s.finish()


def queue_group_of_an_orphan(world: Worlds) -> None:
    """s0 has accepted m0, and loses its connection. m1 waits for it. When s0 has closed, m2 goes to s1 (protocol
    16.9.4)."""
    s = _grouped(world, "AB").up("s0@A", "p0@B").send("p0").run().lose("s0").attach("s1@B").send("p0").run()
    assert not s.accepted("s1")
    s.attach("s0@B").run()
    assert s.accepted("s0") == {M0, ("p0", 1)}
    s.step("close", "s0").run().send("p0").run()
    assert s.accepted("s1") == {("p0", 2)}
    s.finish()


def queue_group_moves_in_order(world: Worlds) -> None:
    """s0 has m0 in hand, and closes without a word. m0 and m1, which has waited for it, go to s1 in order (protocol
    16.9.4)."""
    s = _grouped(world, "AB", credit=1).up("s0@A", "p0@B").hold(("accept",)).send("p0").run().attach("s1@B").send("p0")
    s.run().step("close", "s0").run()
    assert [mid for _, mid in s.w.subscriber("s1").in_hand] == [M0, ("p0", 1)], "G3 m0 is overtaken"
    s.finish()


def queue_group_whose_router_died(world: Worlds) -> None:
    """s0 at B has accepted m0, which is settled. A, where P is, dies, and P goes to C, where s1 is. C knows that s0 has
    the group (protocol 16.9.2)."""
    s = _grouped(world, "ABC").up("s0@B", "p0@A").send("p0").run().attach("s1@C")
    s.step("crash", "A").attach("p0@C").send("p0").run()
    assert s.accepted("s0") == {M0, ("p0", 1)}
    s.finish()


def queue_group_that_somebody_may_hold(world: Worlds) -> None:
    """s0 holds m0, and nobody is left who knows: A, where P is, dies, and B, where s0 is, before C has read that s0 has
    the group. P sends m0 again at C, where s1 is, and m1. Both wait for s0 (protocol 16.9.4)."""
    s = _grouped(world, "ABC").up("s0@B", "s1@C", "p0@A").hold(("accept",), ("msg", "B", "C")).send("p0").run()
    assert [mid for _, mid in s.w.subscriber("s0").in_hand] == [M0]
    s.step("crash", "A").step("crash", "B").run().release(("msg", "B", "C")).attach("p0@C").send("p0").run()
    assert not s.w.subscriber("s1").in_hand
    s.attach("s0@C").release().run()
    assert s.accepted("s0") == {M0, ("p0", 1)}
    s.finish()


def queue_group_given_to_two(world: Worlds) -> None:
    """A and B give the group to two consumers at one moment. When each has read what the other did, they agree
    (protocol 16.9.5)."""
    s = _grouped(world, "AB", "p0", "p1").up("s0@A", "s1@B", "p0@A", "p1@B")
    if isinstance(s.w.checker, QueueChecker):
        s.w.checker.groups_stay = False
    s.hold(("msg",)).send("p0").send("p1").run().release().run()
    assert (s.accepted("s0"), s.accepted("s1")) == ({M0}, {("p1", 0)})
    s.send("p0").send("p1").run()
    assert ("p1", 1) in s.accepted("s0"), "G3 two consumers have the group for good"
    s.finish()


def L3_group_of_which_nobody_is_left_who_knows(world: Worlds) -> None:
    """s0 has accepted m0, which is settled. A and B die before C, where s1 is, has read that s0 has the group: m1 goes
    to s1 though s0 comes back."""

    def schedule() -> None:
        s = _grouped(world, "ABC").up("s0@B", "s1@C", "p0@A").hold(("msg", "B", "C")).send("p0").run()
        s.step("crash", "A").step("crash", "B").run().release().attach("p0@C").send("p0").run().attach("s0@C").finish()

    limit("G3", schedule)


def queue_higher_priority_first(world: Worlds) -> None:
    """m0 and m1 wait. m1 has a higher priority, and goes first (protocol 16.10.1)."""
    publisher = P()
    publisher.priorities = (4, 9)
    s = Schedule(world("AB", [publisher], [S("s0", credit=0)], address=PRIORITY)).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0", 2).run()
    s.w.subscriber("s0").credit = 1
    s.w.subscriber("s0").grant()
    s.w.subscriber("s0").flush()
    s.run()
    assert [mid for _, mid in s.w.subscriber("s0").in_hand] == [("p0", 1)], "G3 the lower one is first"
    s.finish()


def _browsed(world: Worlds) -> tuple[Schedule, Browser]:
    """s0 at B has m0 in hand, and no more credit. What else P at A and Q at C have sent waits there. A browser is
    coming."""
    browser = Browser()
    s = Schedule(world("ABC", [P("p0"), P("p1")], [S("s0", credit=1), browser], address=QUEUE))
    s.up("s0@B", "p0@A", "p1@C").hold(("accept",)).send("p0").run().send("p0", 2).send("p1").run()
    return s, browser


def queue_browser_sees_what_waits(world: Worlds) -> None:
    """The browser at B sees all of that, and not m0. It takes nothing (protocol 16.11.2)."""
    s, browser = _browsed(world)
    s.attach("b0@B").run()
    assert browser.seen == [("p0", 1), ("p0", 2), ("p1", 0)], f"G1 the browser has seen {browser.seen}"
    s.finish()


def queue_browsed_router_dies(world: Worlds) -> None:
    """A dies before the browser's router has its answer. The browser sees what waits at C (protocol 16.11.3)."""
    s, browser = _browsed(world)
    s.hold(("msg", "A", "B")).attach("b0@B").run().step("crash", "A").run()
    assert browser.seen == [("p1", 0)], f"G4 the browser has seen {browser.seen}"
    s.finish()
