"""Named schedules of who knows whom: a router that starts, and a subscription that others know only from hearsay.

The rules: protocol 4, 7.2, 7.3.
"""

from __future__ import annotations

from typing import Any

from chaos.simulation.scenarios.schedule import ACCEPT, P, S, Schedule, Worlds
from chaos.simulation.world.checker import Violation
from chaos.simulation.world.clients import ADDRESS, PLAIN
from chaos.simulation.world.world import World
from interrouter.events import PeerMessage
from router.config import AddressConfig
from router.peers.wire import decode


# ---------------------------------------------------------------------- routers that know nothing
def all_routers_at_once(world: Worlds) -> None:
    """S has accepted nothing yet; every router dies; P is back first (protocol 4.4.1, 4.4.5, 6.5.2)."""
    s = Schedule(world("AB", [P()], [S()], address=ACCEPT)).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0").run()
    for name in "AB":
        s.step("crash", name)
    for name in "AB":
        s.step("restart", name)
    s.attach("p0@A")
    assert s.w.publisher("p0").unsettled
    s.release().attach("s0@B").finish()
    assert s.accepted("s0") == {("p0", 0)}


def restarted_router_does_not_know_orphans(world: Worlds) -> None:
    """S was on C, C died; A restarts, learns of S from B and must wait for S (protocol 4.3.3)."""
    s = Schedule(world("ABC", [P()], [S()], address=ACCEPT)).up("s0@C")
    s.step("crash", "C").step("crash", "A").step("restart", "A").run()
    s.pass_time(2.0).attach("p0@A")
    s.send("p0").attach("s0@B").finish()


def taken_before_the_subscription_was_known(world: Worlds) -> None:
    """A restarts and takes a message before it has a session with B, which knows S (protocol 4.3.3)."""
    s = Schedule(world("AB", [P()], [S()], address=ACCEPT)).up("s0@B")
    s.step("crash", "A").step("restart", "A")
    s.hold(("up", "A", "B"), ("accept",)).run()
    s.pass_time(1.5)  # A has waited for B long enough
    s.attach("p0@A")
    s.send("p0").run()
    s.release().run().finish()


def accepted_by_one_who_has_left(world: Worlds) -> None:
    """A, restarted, waits for C. S, the only one, accepts at B what came by A, and leaves for good (protocol
    6.10.5)."""
    s = Schedule(world("ABC", [P()], [S()], address=AddressConfig(no_subscribers="hold"))).up("s0@B")
    s.hold(("up", "A", "C"), ("up", "C", "A")).step("crash", "A").step("restart", "A").run()
    s.pass_time(1.5).attach("p0@A")
    s.send("p0").run()
    assert not s.w.site("A").router.core.recovery.established
    s.step("close", "s0").run()
    assert s.w.publisher("p0").unsettled
    s.finish()


def no_acknowledgement_though_there_is_a_path(world: Worlds) -> None:
    """What A says to B in sessions is lost, heartbeats are not: A asks B about S in vain, until it has given B up, and
    answers S (protocol 3.2.2)."""
    s = Schedule(world("AB", [P()], [S()], heartbeat_s=1.0)).up()
    to_b, _ = s.w.trunks["A", "B"]
    outgoing, take = to_b.outgoing, to_b.outgoing.take_messages
    outgoing.take_messages = lambda parts, ready, now: take([], ready, now)
    outgoing.queue_open = lambda key, packet: None
    s.attach("s0@A")
    assert not s.w.subscriber("s0").confirmed
    s.pass_time(10.0)
    s.run()
    if not s.w.subscriber("s0").confirmed:
        raise Violation("G4 never answered: S, as its router waits for one that does not acknowledge")
    del outgoing.take_messages, outgoing.queue_open
    s.pass_time(10.0)
    s.attach("p0@B")
    s.send("p0").finish()


# ---------------------------------------------------------------------- who starts, and what is known from hearsay
def _subscribed_behind_the_back_of(world: Worlds) -> Schedule:
    """C has started again and read B's HELLO; A does not know yet that it has a session with C. S subscribes at A, and
    B is told."""
    s = Schedule(world("ABC", [P()], [S()], address=ACCEPT)).up()
    s.hold(("up", "A", "C")).step("crash", "C").step("restart", "C").attach("s0@A")
    assert s.w.subscriber("s0").confirmed
    return s


def who_was_to_be_waited_for_is_gone(world: Worlds) -> None:
    """A dies before C has heard its HELLO: what A has told B after B's HELLO is in B's next one (protocol 4.4.3,
    4.4.4)."""
    s = _subscribed_behind_the_back_of(world)
    s.step("crash", "A").attach("p0@C")
    assert s.w.site("C").router.core.recovery.established  # without waiting for subscriptions to expire
    s.send("p0").attach("s0@B").finish()


def who_was_to_be_waited_for_has_started_again(world: Worlds) -> None:
    """A dies and restarts before anybody has noticed: the HELLO of its next life knows nothing of S (protocol
    4.4.3)."""
    s = _subscribed_behind_the_back_of(world)
    s.release().hold(("down", "B", "A"), ("up", "B", "A")).step("crash", "A")
    s.step("restart", "A").attach("p0@C")
    s.send("p0").run()
    s.release().attach("s0@B")
    assert s.w.site("C").router.core.recovery.established
    s.finish()


def started_fresh_beside_others(world: Worlds) -> None:
    """C is started fresh, which nobody has refused: B's HELLO says that there is something to learn (protocol
    4.4.6)."""
    s = Schedule(world("ABC", [P()], [S()], address=ACCEPT)).up()
    s.hold(("up", "A", "C"), ("up", "C", "A")).step("crash", "C").step("restart", "C", True).attach("s0@A")
    assert s.w.subscriber("s0").confirmed
    s.pass_time(1.5).attach("p0@C")  # C has waited for A's HELLO for long enough to boot
    s.send("p0").run()
    s.finish()


def _subscribed_without(s: Schedule, router: str, kind: str = "Join") -> Schedule:
    """S subscribes at A, which ends its session with that router, and so answers without it. What A has said to it
    before, and the end of the session, are still unread there."""
    s.send("p0")
    s.run()  # accepted: nobody is subscribed
    s.hold(("msg", "A", router), ("down", router, "A")).step("connect", "s0", "A").run()
    assert s.waiting(router, "A") == [kind]
    s.step("suspect", "A", router).run()
    assert s.w.subscriber("s0").confirmed
    s.send("p0")
    s.run()  # accepted without S
    s.release(("msg", "A", router))
    s.run()  # now it is known there
    return s


def known_from_a_session_that_was_over(world: Worlds) -> None:
    """B has let a message be accepted before it reads of S, in a session that A had ended before it answered S: when S
    is told to B again it is known there, but not since it was confirmed (protocol 7.3.7, 7.3.8)."""
    s = Schedule(world("AB", [P()], [S()], strict=False, address=ACCEPT)).up("p0@B")
    _subscribed_without(s, "B")
    s.release().run().finish()
    assert s.w.checker.told


def mark_of_another_router_hides_no_gap(world: Worlds) -> None:
    """The same of an S without memory, which has been told C's mark at its answer, moves to B, and is told B's: they
    must not be the same (protocol 7.3.7, 7.3.8)."""
    s = Schedule(world("ABC", [P(), P("p1")], [S(kind=PLAIN)], strict=False, address=ACCEPT))
    s.up("p0@B", "p1@C")
    s.send("p1").run()
    _subscribed_without(s, "B").pass_time(3.0).step("hb", "s0").run()
    s.lose("s0")
    s.release().attach("s0@B").finish()
    assert s.w.checker.told


def router_dies_when_it_has_asked_everybody(world: Worlds) -> None:
    """B has let something be accepted and is told of S, who subscribes at A; A dies, answered or not. S comes to B:
    whether it resumes or begins, it has missed nothing, and nobody is told so (protocol 7.3.8)."""
    for answered in (True, False):
        s = Schedule(world("AB", [P()], [S()], address=ACCEPT)).up("p0@B")
        s.send("p0").run()
        if not answered:
            s.hold(lambda e, w, s=s: s.next_is("Join")(e, w) and _first(w, "B", "A").heard)  # type: ignore[misc]
        s.attach("s0@A")
        s.send("p0")
        s.step("crash", "A").attach("s0@B").release()
        s.send("p0").run().finish()


def _first(w: World, x: str, y: str) -> Any:
    """The message from y that router x reads next."""
    event = w.site(x).inbox[y][0]
    assert isinstance(event, PeerMessage)
    return decode(event.data)


def answered_before_those_who_start_have_met(world: Worlds) -> None:
    """A and C have started again. B has said HELLO to C before it knew of A, and C reads it late; A has waited for C
    for long enough to take S, but must not answer it while B has C up (protocol 7.2.6)."""
    s = Schedule(world("ABC", [P()], [S()], address=ACCEPT)).up()
    s.hold(("up", "A", "C"), ("up", "C", "A"), ("msg", "B", "C"), ("up", "B", "A"))
    for name in "AC":
        s.step("crash", name).step("restart", name)
    s.run()
    s.release(("up", "B", "A"))
    s.pass_time(1.5).attach("s0@A")
    s.release(("msg", "B", "C")).attach("p0@C")
    s.send("p0").run().finish()


def who_is_never_met_is_waited_for_no_longer_than_subscriptions(world: Worlds) -> None:
    """A has started again and never gets a session with C, which B has up: it takes subscribers, and lets messages be
    accepted, when all from before have expired (protocol 4.4.5)."""
    s = Schedule(world("ABC", [P()], [S()], strict=False, address=ACCEPT)).up()
    s.hold(("up", "A", "C"), ("up", "C", "A")).step("crash", "A").step("restart", "A").attach("s0@A")
    s.pass_time(60.0).run()
    assert not s.w.subscriber("s0").confirmed
    s.pass_time(15.0).attach("p0@A")
    assert s.w.subscriber("s0").confirmed
    s.send("p0").run()
    assert s.accepted("s0") == {("p0", 0)}
    assert not s.w.publisher("p0").unsettled
    s.finish()


# ---------------------------------------------------------------------- routers of two versions
def told_beside_a_router_of_the_version_before(world: Worlds) -> None:
    """S (no map) has read at B that it has a gap. B says so to A, and not to C, which does not know the message
    (protocol 3.2.6)."""
    s = Schedule(world("ABC", [P()], [S(kind=PLAIN)], strict=False, address=ACCEPT, old="C")).up("p0@B")
    assert [s.w.site("B").router.core.speaks(router) for router in "ABC"] == [5, 5, 4]
    s.step("part", "A").attach("s0@A")
    s.send("p0").run()
    s.lose("s0").step("heal").run().attach("s0@B").pass_time(3.0)
    s.step("hb", "s0").run()
    s.lose("s0").run().attach("s0@C")
    assert s.w.subscriber("s0").resumed
    s.finish()


def gap_is_told_behind_a_home_of_the_version_before(world: Worlds) -> None:
    """S (no map) is told of the gap in an answer that it never reads, and goes back to B, which knows of none. Together
    again, B says that S has stayed there, in the words of a client that presents a map (protocol 7.6.9)."""
    s = Schedule(world("AB", [P()], [S(kind=PLAIN)], strict=False, address=ACCEPT, old="B")).up("p0@A")
    s.step("part", "A").attach("s0@B")
    s.send("p0").run()
    s.lose("s0").step("connect", "s0", "A").hold(("r2c", s.cid("s0"))).run()
    s.lose("s0").attach("s0@B")
    s.step("heal").run().release().attach("s0@A")
    assert s.w.subscriber("s0").resumed is False, "G5 S is told that it was known, and has missed m0"
    s.finish()


# ---------------------------------------------------------------------- an address that is said in several ways
SAID = f"/{ADDRESS}"


def _say(s: Schedule, *said: str) -> None:
    """From now on p0, s0 and s1 say this."""
    for name, each in zip(("p0", "s0", "s1"), said, strict=True):
        s.w.clients[name].address = each


def _half_accepted(world: Worlds, at: str, **options: Any) -> Schedule:
    """As `half_accepted`. All say the address with a slash in front of it."""
    clients = P(), S("s0"), S("s1")
    for each in clients:
        each.address = SAID
    s = Schedule(world("AB", [clients[0]], [*clients[1:]], **options)).up(f"s0@{at}", f"s1@{at}", f"p0@{at}")
    return s.hold(("accept", "s1")).send("p0").run()


def address_said_in_several_ways(world: Worlds) -> None:
    """P's message is accepted by half when A dies. At B each says the address in another way: they are who they were,
    and nothing comes twice (protocol 1.13)."""
    s = _half_accepted(world, "A")
    _say(s, f"amqp://example.org:5672/{ADDRESS}", f"{ADDRESS}.", f"amqp:/{ADDRESS}/")
    s.step("crash", "A").attach("s0@B", "s1@B", "p0@B").finish()


def address_said_beside_a_router_that_takes_it_whole(world: Worlds) -> None:
    """The same, and B is of the version before: at A, too, it means what it means at B (protocol 1.13)."""
    s = _half_accepted(world, "A", old="B")
    s.step("crash", "A").attach("s0@B", "s1@B", "p0@B").finish()


def address_said_to_a_router_that_takes_it_whole(world: Worlds) -> None:
    """The clients are at B, of the version before, when it is stopped to be replaced. A knows them by what they say,
    and goes on so (protocol 1.13)."""
    s = _half_accepted(world, "B", old="B").step("crash", "B")
    s.w.config["old"] = ""
    s.attach("s0@A", "s1@A", "p0@A").finish()


def address_said_when_a_router_goes_back(world: Worlds) -> None:
    """B goes back to the version before. Who is at A, and attaches there again, is who it was
    (protocol 1.13)."""
    s = _half_accepted(world, "A").step("crash", "B")
    s.w.config["old"] = "B"
    s.step("restart", "B").run()
    for name in ("s0", "s1", "p0"):
        s.lose(name).run().attach(f"{name}@A")
    s.finish()
