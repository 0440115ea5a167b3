"""Named schedules of the library's own clients: what each rule of PROTOCOL 15 is there for.

`defects/clients.py` takes the rule away from the real client and names what must break.
"""

from __future__ import annotations

from dataclasses import replace

from chaos.simulation.real_clients import RealPublisher, RealSubscriber
from chaos.simulation.real_world import RealWorld
from chaos.simulation.scenarios.named import EXPIRY_S, PUBLISHER_EXPIRY_S, SHORT, Worlds, finish, scenario, wider
from chaos.simulation.schedule import Schedule
from router.config import AddressConfig


def up(
    world: Worlds, journal: str = "torn", *, notes: bool = False, strict: bool = True,
    address: AddressConfig | None = None,
) -> Schedule:  # fmt: skip
    """One of each on router A."""
    publisher = RealPublisher(journal=journal)
    subscriber = RealSubscriber()
    subscriber.notes = notes
    twin = RealSubscriber("s0+", twin_of=subscriber)
    w = wider(world, RealWorld)("AB", [publisher], [subscriber, twin], strict=strict, address=address)
    return Schedule(w).up(("s0", "A"), ("p0", "A"))


def again(s: Schedule, client: str) -> None:
    s.hold.clear()
    s.run(place=((client, "A"),))


@scenario
def client_killed_before_it_has_forgotten(world: Worlds) -> None:
    """P has its outcome; its process dies before the journal knows."""
    s = up(world)
    s.send("p0")
    s.step("disk", "p0")
    s.hold.append(("disk", "p0"))
    s.run()
    s.step("kill", "p0", 0)
    again(s, "p0")
    finish(s)


@scenario
def client_killed_before_it_has_written(world: Worlds) -> None:
    """P's process dies when its journal does not know of m0; the next one gives m1 the same number."""
    s = up(world)
    s.hold.append(("disk", "p0"))
    s.send("p0")
    s.run()
    s.notice(s.drop("s0"))
    s.step("kill", "p0", 0)
    again(s, "p0")
    s.send("p0")
    s.run()
    again(s, "s0")
    finish(s)


@scenario
def client_killed_before_it_has_accepted(world: Worlds) -> None:
    """S's application has accepted; its process dies before the journal knows: it gets it again."""
    s = up(world)
    s.hold.append(("disk", "s0"))
    s.send("p0")
    s.run()
    s.step("kill", "s0", 0)
    again(s, "s0")
    finish(s)


@scenario
def client_sends_again_what_it_does_not_know(world: Worlds) -> None:
    """P's connection is lost with two messages that S has in hand."""
    s = up(world)
    s.hold.append(("accept",))
    s.send("p0")
    s.send("p0")
    s.run()
    s.notice(s.drop("p0"))
    s.hold.clear()
    s.hold.append(("accept",))
    s.run(place=(("p0", "A"),))
    finish(s)


@scenario
def client_sends_again_in_order(world: Worlds) -> None:
    """P's connection is lost with two messages that nobody has read."""
    s = up(world)
    s.hold.append(("c2r",))
    s.send("p0")
    s.send("p0")
    s.run()
    s.notice(s.drop("p0"))
    again(s, "p0")
    finish(s)


@scenario
def client_knows_what_it_has_accepted(world: Worlds) -> None:
    """S has accepted; its connection is lost before P has settled."""
    s = up(world)
    s.hold.append(("disk", "p0"))
    s.send("p0")
    s.step("disk", "p0")
    s.run()
    s.notice(s.drop("s0"))
    s.hold.append(("disk", "p0"))
    s.run(place=(("s0", "A"),))
    s.hold.clear()
    finish(s)


@scenario
def client_needs_a_payload(world: Worlds) -> None:
    """S's application has noted what it was handed, and its process dies: it still needs the payload."""
    s = up(world, notes=True)
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    s.step("kill", "s0", 99)
    s.hold.clear()
    s.hold.append(("accept",))
    s.run(place=(("s0", "A"),))
    assert s.w.subscriber("s0").in_hand
    finish(s)


def away_with_m0_undecided(world: Worlds) -> Schedule:
    """P has not heard that S has accepted m0, and has lost its connection."""
    s = up(world, strict=False, address=SHORT)
    s.send("p0")
    s.step("disk", "p0")
    s.hold.append(("r2c", s.w.clients["p0"].pipe.cid))  # type: ignore[union-attr]
    s.run()
    s.notice(s.drop("p0"))
    s.run()
    return s


@scenario
def client_away_for_too_long_with_something_undecided(world: Worlds) -> None:
    """P has not heard that m0 was accepted, and is away until nobody knows m0 any more."""
    s = away_with_m0_undecided(world)
    s.pass_time(PUBLISHER_EXPIRY_S)
    again(s, "p0")
    assert s.w.checker.told == [("p0", s.w.checker.told[0][1])]
    finish(s)


@scenario
def client_whose_attach_is_read_too_late(world: Worlds) -> None:
    """P comes back in time with m0 undecided, which S has accepted; but its attach lies unread until nobody knows P."""
    s = away_with_m0_undecided(world)
    s.pass_time(PUBLISHER_EXPIRY_S - 13)
    s.hold.append(lambda event, world: event[:2] == ("c2r", ("p0", 2)) and s.next_frame(event[1]) == "attach")
    s.run(place=(("p0", "A"),))
    assert not s.w.checker.told
    s.pass_time(14)
    s.run()
    s.hold.clear()
    s.run()
    assert s.w.checker.told == [("p0", s.w.checker.told[0][1])]
    finish(s)


@scenario
def client_that_stood_still_for_too_long(world: Worlds) -> None:
    """P has asked whether its router is there, and stands still; what S has accepted nobody knows any more when P reads
    the answer."""
    s = up(world, strict=False, address=SHORT)
    s.send("p0")
    s.step("disk", "p0")
    cid = s.w.clients["p0"].pipe.cid  # type: ignore[union-attr]
    s.hold += [("disk", "s0"), ("r2c", cid)]
    s.run()
    s.pass_time(PUBLISHER_EXPIRY_S / 16)
    s.run()
    assert s.w.pipes[cid].r2c
    s.step("still", "p0")
    s.release(("disk", "s0"))
    s.run()
    assert s.accepted("s0") == {("p0", 0)}
    s.step("late", "p0")
    again(s, "p0")
    assert s.w.checker.told == [("p0", s.w.checker.told[0][1])]
    finish(s)


@scenario
def client_that_is_attached_again_and_not_known(world: Worlds) -> None:
    """P comes back with m0, which S has accepted, and loses that connection before its router has heard of it again: it
    is as if it had not come back."""
    s = away_with_m0_undecided(world)
    s.pass_time(PUBLISHER_EXPIRY_S - 46)
    s.hold.append(lambda event, world: event[:2] == ("c2r", ("p0", 2)) and s.next_frame(event[1]) == "transfer")
    s.run(place=(("p0", "A"),))
    assert s.w.clients["p0"].state == "on"
    s.notice(s.drop("p0"))
    s.run()
    s.pass_time(60)
    again(s, "p0")
    assert s.w.checker.told == [("p0", s.w.checker.told[0][1])]
    finish(s)


@scenario
def client_away_for_too_long_from_its_subscription(world: Worlds) -> None:
    """S is away until m0 is accepted without it."""
    s = up(world, strict=False, address=replace(SHORT, no_subscribers="accept"))
    s.notice(s.drop("s0"))
    s.send("p0")
    s.run()
    s.pass_time(EXPIRY_S)
    s.run()
    assert s.w.checker.missed
    again(s, "s0")
    finish(s)


@scenario
def client_and_its_twin(world: Worlds) -> None:
    """Another process of S has read the journal; then S accepts, which nobody hears of; then the other one attaches."""
    s = up(world)
    s.step("twin", "s0")
    s.step("connect", "s0+", "B")
    s.hold += [("c2r", ("s0+", 1)), ("accept",)]
    s.send("p0")
    s.run()
    s.hold.append(("c2r", ("s0", 1)))
    s.step("accept", "s0", 0)
    s.run()
    s.release(("c2r", ("s0+", 1)), ("accept",))
    s.run()
    finish(s)


@scenario
def client_whose_twin_subscribes_anew(world: Worlds) -> None:
    """Another process of S has read the journal before S was answered. S is away until m0 is accepted without it, and
    dies; then the other one's attach is read, which is that of a new subscription: whoever it belongs to is told so."""
    publisher, subscriber = RealPublisher(), RealSubscriber()
    twin = RealSubscriber("s0+", twin_of=subscriber)
    address = replace(SHORT, no_subscribers="accept")
    s = Schedule(wider(world, RealWorld)("AB", [publisher], [subscriber, twin], strict=False, address=address))
    s.run()
    s.step("twin", "s0")
    s.hold.append(("c2r", ("s0+", 1)))
    s.run(place=(("s0+", "B"),))
    s.up(("s0", "A"), ("p0", "A"))
    s.notice(s.drop("s0"))
    s.send("p0")
    s.run()
    s.pass_time(EXPIRY_S)
    s.run()
    assert s.w.checker.missed
    s.step("kill", "s0", 0)
    s.release(("c2r", ("s0+", 1)))
    s.run(place=(("s0+", "B"),))  # it has given up the connection on which nobody read its attach
    (before, after) = s.w.checker.lives
    assert (before.ended, after.ended) == ("told", None)
    finish(s)


@scenario
def client_comes_back(world: Worlds) -> None:
    """Both lose their connection."""
    s = up(world)
    for client in ("s0", "p0"):
        s.notice(s.drop(client))
        again(s, client)
    s.send("p0")
    finish(s)


@scenario
def client_whose_last_life_was_ahead(world: Worlds) -> None:
    """P has no journal, and its clock is set back between two processes."""
    s = up(world, "none")
    s.step("clock", "p0", -7200)
    s.step("kill", "p0", 0)
    s.run()  # everybody knows that its connection is gone
    again(s, "p0")
    s.send("p0")
    finish(s)


@scenario
def client_whose_last_life_is_known_by_a_map_only(world: Worlds) -> None:
    """The same, and all routers die in between. What S has in hand tells the next ones of P's former incarnation, but
    of no term: P must hear how far it has to go."""
    s = up(world, "none")
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    s.step("clock", "p0", -7200)
    s.step("kill", "p0", 0)
    for event in ("crash", "restart"):
        for router in "AB":
            s.step(event, router)
    s.run()
    s.run(place=(("s0", "A"),))
    s.run(place=(("p0", "A"),))
    s.hold.clear()
    s.send("p0")
    finish(s)


@scenario
def earlier_life_knows_nothing_of_the_later(world: Worlds) -> None:
    """Two processes of P: the later one works at B, and S has accepted what it sent there; B dies, and with it all that
    was known of it.  S comes to A, where the earlier one works, which must not settle m0: it comes again."""
    earlier, subscriber = RealPublisher(), RealSubscriber()
    later = RealPublisher("p0+", twin_of=earlier)
    s = Schedule(wider(world, RealWorld)("AB", [earlier, later], [subscriber], strict=False)).up(("s0", "B"))
    s.step("part", "A")
    s.run()
    s.run(place=(("p0", "A"),))
    s.step("twin", "p0")
    s.run(place=(("p0+", "B"),))
    s.hold.append(("r2c", ("p0+", 1)))
    s.send("p0+")
    s.run()
    assert s.accepted("s0") == {("p0+", 0)}
    s.drop("p0+")
    s.step("crash", "B")
    s.step("restart", "B")
    s.step("heal")
    s.run(place=(("s0", "A"),))
    s.hold.append(("r2c", ("p0", 1)))  # told that its link is stolen, it would begin a life that is later still
    s.run(place=(("p0+", "A"),))
    finish(s)
