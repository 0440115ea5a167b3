"""A topic becomes a queue while routers run, at some of them first (protocol 16.13).

Read `queues.py` for who holds a delivery of a queue, `changes.py` for other files that change.
"""

from __future__ import annotations

from chaos.simulation.scenarios.queues import M0, SHORT_QUEUE
from chaos.simulation.scenarios.schedule import PUBLISHER_EXPIRY_S, SHORT, P, S, Schedule, Worlds
from chaos.simulation.world.checker import Violation
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.subscribers import Subscriber
from router.core.messages import PeerProtocolError
from router.names import DETACH_FORCED


def _topics(world: Worlds, names: str, publishers: list[Publisher], subscribers: list[Subscriber]) -> Schedule:
    """Nobody has attached, and the address is a topic everywhere."""
    s = Schedule(world(names, publishers, subscribers, strict=False, address=SHORT_QUEUE)).run()
    return s.reload(names, addresses=(SHORT,)).run()


def _becomes_a_queue(s: Schedule, names: str) -> Schedule:
    return s.reload(names, addresses=(SHORT_QUEUE,)).run()


def _tries(s: Schedule, client: str, router: str) -> str:
    """It attaches, or is refused: the condition."""
    c = s.w.clients[client]
    c.refusals.clear()
    s.run(place=((client, router),), until=lambda: bool(c.refusals) or c.state == "on")
    return c.refusals[0] if c.refusals else ""


def queue_at_one_router_first(world: Worlds) -> None:
    """A's file makes it a queue, B's does not yet: neither P nor S0 is taken, at either of them. Then they meet
    (protocol 16.13.3)."""
    s = _becomes_a_queue(_topics(world, "AB", [P()], [S()]), "A")
    told = [_tries(s, client, router) for client in ("p0", "s0") for router in "AB"]
    _becomes_a_queue(s, "B").up("s0@A", "p0@B").send("p0").run()
    assert told == [DETACH_FORCED] * 4
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_at_one_side_of_a_partition(world: Worlds) -> None:
    """A is cut off, becomes a queue there, and gets S0; B gets P0, as a topic. The two meet: S0 is none of P0's. When
    P0 has gone, B follows, and S0 gets what P1 sends there (protocol 16.13.2)."""
    s = _topics(world, "AB", [P("p0"), P("p1")], [S()]).step("part", "A").run()
    _becomes_a_queue(s, "A").pass_time(SHORT.recovery_s + 1).run().up("s0@A", "p0@B").step("heal")
    try:
        s.run()
    except PeerProtocolError as error:  # the same comes in the next session, and in each after that
        raise Violation(f"G4 they never stay in session: {error}") from error
    s.step("close", "p0").run().pass_time(PUBLISHER_EXPIRY_S).run()
    _becomes_a_queue(s, "B").attach("p1@B").send("p1").run()
    assert s.accepted("s0") == {("p1", 0)}
    s.finish()


def queue_at_a_router_that_follows_late(world: Worlds) -> None:
    """A and B become a queue while C is cut off. S0 holds m0 and is away when C follows: it is an orphan there, too. P
    sends m0 again at C, which S1 is at (protocol 16.13.7)."""
    s = _topics(world, "ABC", [P()], [S("s0"), S("s1")]).step("part", "C").run()
    _becomes_a_queue(s, "AB").pass_time(SHORT.recovery_s + 1).run().up("s0@A", "p0@B").hold(("accept",))
    s.send("p0").run().lose("s0").run().step("heal").run()
    _becomes_a_queue(s, "C").attach("s1@C").lose("p0").run().attach("p0@C")
    assert not s.w.subscriber("s1").in_hand, "G2 s1 is given what s0 holds"
    s.release().attach("s0@C").run()
    assert s.accepted("s0") == {M0}
    s.finish()


def _whose_only_router_dies(world: Worlds) -> Schedule:
    """A is a queue, B a topic. S0 has m0 at A, which dies."""
    s = _topics(world, "AB", [P()], [S("s0"), S("s1")]).step("part", "B").run()
    _becomes_a_queue(s, "A").pass_time(SHORT.recovery_s + 1).run().up("s0@A", "p0@A").hold(("accept",))
    return s.send("p0").step("heal").run().step("crash", "A")


def _nobody_is_taken_before_s0(s: Schedule) -> None:
    """A's next life knows nothing of S0. So both take neither S1 nor P before S0 has had its time to come back."""
    s.run(place=(("s1", "B"), ("p0", "B"), ("s0", "A")))
    assert not s.w.subscriber("s1").in_hand, "G2 s1 is given what s0 holds"
    s.pass_time(SHORT.recovery_s + 1).run().release().run()
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_whose_only_router_dies(world: Worlds) -> None:
    """Then B follows, and hears from A's next life (protocol 16.13.7)."""
    s = _becomes_a_queue(_whose_only_router_dies(world).run(), "B")
    _nobody_is_taken_before_s0(s.step("restart", "A").run())


def queue_whose_only_router_dies_unnoticed(world: Worlds) -> None:
    """Then B follows, before it has seen that A is dead (protocol 16.13.7)."""
    s = _becomes_a_queue(_whose_only_router_dies(world), "B")
    _nobody_is_taken_before_s0(s.step("restart", "A").run())


def queue_whose_only_router_is_back_first(world: Worlds) -> None:
    """A is back before B follows: B knows all of a topic, and nothing of the queue (protocol 4.4.2, 16.13.2)."""
    s = _becomes_a_queue(_whose_only_router_dies(world).run().step("restart", "A").run(), "B").run()
    _nobody_is_taken_before_s0(s)


def queue_at_a_router_that_follows_alone(world: Worlds) -> None:
    """The same, but C follows while it is cut off: nobody tells it of S0, so S1 and P wait there until somebody has
    (protocol 16.13.7)."""
    s = _topics(world, "ABC", [P()], [S("s0"), S("s1")]).step("part", "C").run()
    _becomes_a_queue(s, "AB").pass_time(SHORT.recovery_s + 1).run().up("s0@A", "p0@B").hold(("accept",))
    s.send("p0").run()
    _becomes_a_queue(s, "C").lose("p0").run(place=(("s1", "C"), ("p0", "C")))
    assert not s.w.subscriber("s1").in_hand, "G2 s1 is given what s0 holds"
    s.release().step("heal").run()
    assert s.accepted("s0") == {M0}
    s.finish()


def _stay_in_session(s: Schedule) -> None:
    """P connects to A, what was held back is read, and S at B gets what P sends."""
    s.step("connect", "p0", "A").run()
    try:
        s.release().run()
    except PeerProtocolError as error:
        raise Violation(f"G4 they end their session: {error}") from error
    s.up("s0@B", "p0@A").send("p0").run()
    assert s.accepted("s0") == {M0}
    s.finish()


def queue_at_a_router_that_follows_as_a_session_begins(world: Worlds) -> None:
    """A has said HELLO as with a topic, and follows B before it reads B's HELLO, which was said before that. S joins
    from B, which then reads both of A's files (protocol 16.13.4)."""
    s = _becomes_a_queue(_topics(world, "AB", [P()], [S()]), "B")
    s.hold(("msg", "A", "B"), ("msg", "B", "A")).step("suspect", "A", "B").run()
    _becomes_a_queue(s, "A").release(("msg", "B", "A")).run()
    s.step("connect", "s0", "B").run()
    _stay_in_session(s)


def queue_at_a_router_of_which_another_one_tells(world: Worlds) -> None:
    """The same, where C has told B that A follows before B reads A's files: B's first HELLO knows of it (protocol
    4.5.2, 16.13.4)."""
    s = _becomes_a_queue(_topics(world, "ABC", [P()], [S()]), "B")
    s.hold(("msg", "A", "B"), ("up", "B", "A")).step("suspect", "A", "B").run()
    _becomes_a_queue(_becomes_a_queue(s, "A"), "C")
    s.step("connect", "s0", "B").run()
    s.release(("up", "B", "A")).run()
    _stay_in_session(s)
