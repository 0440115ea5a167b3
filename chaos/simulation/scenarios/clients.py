"""Named schedules of the library's own clients: what each rule of protocol 15 is there for.

`defects/clients.py` takes the rule away from the real client and names what must break.
"""

from __future__ import annotations

from dataclasses import replace

from chaos.simulation.scenarios.schedule import EXPIRY_S, PUBLISHER_EXPIRY_S, SHORT, Schedule, Worlds, wider
from chaos.simulation.world.faulty_world import FaultyWorld
from chaos.simulation.world.real_clients import RealPublisher
from chaos.simulation.world.real_subscribers import RealSubscriber
from router.config import AddressConfig


def _up(
    world: Worlds, journal: str = "torn", *, notes: bool = False, strict: bool = True,
    address: AddressConfig | None = None,
) -> Schedule:  # fmt: skip
    """One of each on router A."""
    publisher = RealPublisher(journal=journal)
    subscriber = RealSubscriber()
    subscriber.notes = notes
    twin = RealSubscriber("s0+", twin_of=subscriber)
    w = wider(world, FaultyWorld)("AB", [publisher], [subscriber, twin], strict=strict, address=address)
    return Schedule(w).up("s0@A", "p0@A")


def client_killed_before_it_has_forgotten(world: Worlds) -> None:
    """P has its outcome; its process dies before the journal knows (protocol 15.3)."""
    s = _up(world)
    s.send("p0")
    s.step("disk", "p0")
    s.hold(("disk", "p0")).run().step("kill", "p0", 0)
    s.release().attach("p0@A").finish()


def client_killed_before_it_has_written(world: Worlds) -> None:
    """P's process dies when its journal does not know of m0; the next one gives m1 the same number (protocol 15.3)."""
    s = _up(world)
    s.hold(("disk", "p0")).send("p0").run()
    s.lose("s0")
    s.step("kill", "p0", 0)
    s.release().attach("p0@A")
    s.send("p0").run()
    s.release().attach("s0@A").finish()


def client_killed_before_it_has_accepted(world: Worlds) -> None:
    """S's application has accepted; its process dies before the journal knows: it gets it again (protocol 15.4)."""
    s = _up(world)
    s.hold(("disk", "s0")).send("p0").run().step("kill", "s0", 0)
    s.release().attach("s0@A").finish()


def client_sends_again_what_it_does_not_know(world: Worlds) -> None:
    """P's connection is lost with two messages that S has in hand (protocol 15.3)."""
    s = _up(world)
    s.hold(("accept",)).send("p0", 2).run()
    s.lose("p0").release()
    s.hold(("accept",)).attach("p0@A").finish()


def client_sends_again_in_order(world: Worlds) -> None:
    """P's connection is lost with two messages that nobody has read (protocol 15.3)."""
    s = _up(world)
    s.hold(("c2r",)).send("p0", 2).run()
    s.lose("p0")
    s.release().attach("p0@A").finish()


def client_knows_what_it_has_accepted(world: Worlds) -> None:
    """S has accepted; its connection is lost before P has settled (protocol 15.5)."""
    s = _up(world)
    s.hold(("disk", "p0")).send("p0").step("disk", "p0").run()
    s.lose("s0")
    s.hold(("disk", "p0")).attach("s0@A").finish()


def client_needs_a_payload(world: Worlds) -> None:
    """S's application has noted what it was handed, and its process dies: it still needs the payload (protocol
    15.4)."""
    s = _up(world, notes=True)
    s.hold(("accept",)).send("p0").run().step("kill", "s0", 99)
    s.release()
    s.hold(("accept",)).attach("s0@A")
    assert s.w.subscriber("s0").in_hand
    s.finish()


def _away_with_m0_undecided(world: Worlds) -> Schedule:
    """P has not heard that S has accepted m0, and has lost its connection."""
    s = _up(world, strict=False, address=SHORT)
    s.send("p0")
    s.step("disk", "p0")
    s.hold(("r2c", s.cid("p0"))).run()
    s.lose("p0").run()
    return s


def client_away_for_too_long_with_something_undecided(world: Worlds) -> None:
    """P has not heard that m0 was accepted, and is away until nobody knows m0 any more (protocol 15.6)."""
    s = _away_with_m0_undecided(world)
    s.pass_time(PUBLISHER_EXPIRY_S)
    s.release().attach("p0@A")
    assert s.w.checker.told == [("p0", s.w.checker.told[0][1])]
    s.finish()


def client_whose_attach_is_read_too_late(world: Worlds) -> None:
    """P comes back in time with m0 undecided, which S has accepted; but its attach lies unread until nobody knows P
    (protocol 15.6)."""
    s = _away_with_m0_undecided(world)
    s.pass_time(PUBLISHER_EXPIRY_S - 13)
    s.hold(lambda event, world: event[:2] == ("c2r", ("p0", 2)) and s.next_frame(event[1]) == "attach")
    s.attach("p0@A")
    assert not s.w.checker.told
    s.pass_time(14).run()
    s.release().run()
    assert s.w.checker.told == [("p0", s.w.checker.told[0][1])]
    s.finish()


def client_that_stood_still_for_too_long(world: Worlds) -> None:
    """P has asked whether its router is there, and is suspended; when P reads the answer, no router knows any more what
    S has accepted (protocol 15.6)."""
    s = _up(world, strict=False, address=SHORT)
    s.send("p0")
    s.step("disk", "p0")
    cid = s.cid("p0")
    s.hold(("disk", "s0"), ("r2c", cid)).run()
    s.pass_time(PUBLISHER_EXPIRY_S / 16).run()
    assert s.w.pipes[cid].r2c
    s.step("still", "p0")
    s.release(("disk", "s0")).run()
    assert s.accepted("s0") == {("p0", 0)}
    s.step("late", "p0")
    s.release().attach("p0@A")
    assert s.w.checker.told == [("p0", s.w.checker.told[0][1])]
    s.finish()


def client_that_is_attached_again_and_not_known(world: Worlds) -> None:
    """P comes back with m0, which S has accepted, and loses that connection before its router has heard of it again: it
    is as if it had not come back."""
    s = _away_with_m0_undecided(world)
    s.pass_time(PUBLISHER_EXPIRY_S - 46)
    s.hold(lambda event, world: event[:2] == ("c2r", ("p0", 2)) and s.next_frame(event[1]) == "transfer")
    s.attach("p0@A")
    assert s.w.clients["p0"].state == "on"
    s.lose("p0").run()
    s.pass_time(60)
    s.release().attach("p0@A")
    assert s.w.checker.told == [("p0", s.w.checker.told[0][1])]
    s.finish()


def client_away_for_too_long_from_its_subscription(world: Worlds) -> None:
    """S is away until m0 is accepted without it (protocol 15.5)."""
    s = _up(world, strict=False, address=replace(SHORT, no_subscribers="accept"))
    s.lose("s0")
    s.send("p0").run()
    s.pass_time(EXPIRY_S).run()
    assert s.w.checker.missed
    s.release().attach("s0@A").finish()


def client_and_its_twin(world: Worlds) -> None:
    """Another process of S has read the journal; then S accepts, which nobody hears of; then the other one attaches."""
    s = _up(world)
    s.step("twin", "s0").step("connect", "s0+", "B")
    s.hold(("c2r", ("s0+", 1)), ("accept",)).send("p0").run().hold(("c2r", ("s0", 1)))
    s.step("accept", "s0", 0).run()
    s.release(("c2r", ("s0+", 1)), ("accept",)).run().finish()


def client_whose_twin_subscribes_anew(world: Worlds) -> None:
    """Another process of S has read the journal before S was answered. S is away until m0 is accepted without it, and
    dies; then the other one's attach is read, which is that of a new subscription: whoever it belongs to is told so."""
    publisher, subscriber = RealPublisher(), RealSubscriber()
    twin = RealSubscriber("s0+", twin_of=subscriber)
    address = replace(SHORT, no_subscribers="accept")
    s = Schedule(wider(world, FaultyWorld)("AB", [publisher], [subscriber, twin], strict=False, address=address))
    s.run()
    s.step("twin", "s0")
    s.hold(("c2r", ("s0+", 1))).attach("s0+@B")
    s.up("s0@A", "p0@A")
    s.lose("s0")
    s.send("p0").run()
    s.pass_time(EXPIRY_S).run()
    assert s.w.checker.missed
    s.step("kill", "s0", 0)
    s.release(("c2r", ("s0+", 1)))
    s.attach("s0+@B")  # it has left the connection on which nobody read its attach
    (before, after) = s.w.checker.lives
    assert (before.ended, after.ended) == ("told", None)
    s.finish()


def client_comes_back(world: Worlds) -> None:
    """Both lose their connection (protocol 15.1)."""
    s = _up(world)
    for client in ("s0", "p0"):
        s.lose(client)
        s.release().attach(f"{client}@A")
    s.send("p0").finish()


def client_whose_last_life_was_ahead(world: Worlds) -> None:
    """P has no journal, and its clock is set back between two processes (protocol 15.1, 15.2)."""
    s = _up(world, "none")
    s.step("clock", "p0", -7200).step("kill", "p0", 0)
    s.run()  # everybody knows that its connection is gone
    s.release().attach("p0@A")
    s.send("p0").finish()


def client_whose_last_life_is_known_by_a_map_only(world: Worlds) -> None:
    """The same, and all routers die in between. What S has in hand is of a later incarnation than P's, and waits for it
    (protocol 7.2.4): P, who has lost it, is not refused for that."""
    s = _up(world, "none")
    s.hold(("accept",)).send("p0").run().step("clock", "p0", -7200).step("kill", "p0", 0)
    for event in ("crash", "restart"):
        for router in "AB":
            s.step(event, router)
    s.attach("s0@A").attach("p0@A")
    assert not s.w.publisher("p0").refusals
    s.release()
    s.send("p0").finish()


def earlier_life_knows_nothing_of_the_later(world: Worlds) -> None:
    """Two processes of P: the later one works at B, and S has accepted what it sent there; B dies, and with it all that
    was known of it.  S comes to A, where the earlier one works, which must not settle m0: it comes again (protocol
    5.8.1)."""
    earlier, subscriber = RealPublisher(), RealSubscriber()
    later = RealPublisher("p0+", twin_of=earlier)
    s = Schedule(wider(world, FaultyWorld)("AB", [earlier, later], [subscriber], strict=False)).up("s0@B")
    s.step("part", "A").attach("p0@A").step("twin", "p0").attach("p0+@B")
    s.hold(("r2c", ("p0+", 1))).send("p0+").run()
    assert s.accepted("s0") == {("p0+", 0)}
    s.drop("p0+")
    s.step("crash", "B").step("restart", "B").step("heal").attach("s0@A")
    s.hold(("r2c", ("p0", 1)))  # told that its link is stolen, it would begin a life that is later still
    s.attach("p0+@A").finish()
