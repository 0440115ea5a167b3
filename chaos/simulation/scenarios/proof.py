"""Is this publisher really there?  Abandoned connections, and what is read late (protocol 5.1, 5.2, 5.7, 8.5).

Read `publishers.py` next.
"""

from __future__ import annotations

from itertools import count

from chaos.simulation.scenarios.schedule import PUBLISHER_EXPIRY_S, SHORT, P, S, Schedule, Worlds, half_accepted, wider
from chaos.simulation.world.checker import Violation
from chaos.simulation.world.clients import MEMORY, UNIQUE
from chaos.simulation.world.faulty_world import FaultyWorld
from router.names import PUBLISHER_EXPIRED


# ---------------------------------------------------------------------- two ingresses
def zombie_ingress_replays_to_crossing_subscriber(world: Worlds) -> None:
    """P half open at A, really at B (other side of a partition); m settled through B; S crosses over to A (protocol
    7.4.3)."""
    s = Schedule(world("AB", [P()], [S()], strict=False)).up("s0@B", "p0@A")
    s.hold(("msg", "B", "A")).send("p0").run(until=lambda: bool(s.accepted("s0")))
    s.step("part", "A").release()
    s.drop("p0")
    s.attach("p0@B")
    assert not s.w.subscriber("s0").unsettled
    s.drop("s0")
    s.attach("s0@A").finish()


def zombie_ingress_declares_settled(world: Worlds) -> None:
    """S holds m (sent through B); crosses to A, where the zombie ingress does not know m (protocol 7.4.3)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False)).up("s0@B", "s1@B", "p0@A")
    s.step("part", "A").run()
    s.drop("p0")
    s.attach("p0@B")
    s.hold(("accept", "s1"))  # keeps m outstanding
    s.send("p0").run(until=lambda: bool(s.accepted("s0")))
    s.drop("s0")
    s.attach("s0@A")
    s.drop("s0")
    s.attach("s0@B").finish()


def sign_of_life_older_than_the_subscription(world: Worlds) -> None:
    """P has shown A that it is there, and sent m; nobody reads that. It goes to B, where S accepts m and forgets it. B
    dies, and with it all that was known of P's later attachment. S comes to A; then A reads what P said long ago
    (protocol 5.2.4)."""
    s = Schedule(world("AB", [P()], [S()], strict=False)).up("s0@B")
    s.hold(lambda e, w: e[:2] == ("c2r", ("p0", 1)) and s.next_frame(("p0", 1)) in ("flow", "transfer"))
    s.attach("p0@A")
    s.send("p0")
    s.step("part", "A").run()
    s.drop("p0")
    s.attach("p0@B")
    assert not s.w.publisher("p0").unsettled
    assert not s.w.subscriber("s0").unsettled
    s.drop("s0")
    s.step("crash", "B").step("heal").step("restart", "B").attach("s0@A")
    s.release().hold(("rnotice", ("p0", 1))).run().finish()


# ---------------------------------------------------------------------- routers vouch for a publisher
def called_where_a_session_is_over(world: Worlds) -> None:
    """B has given A up, which A has not heard. P, which answers no echo, goes to B, where S accepts m and forgets it. B
    dies. S comes to A, which still takes itself to be in session with everybody (protocol 5.9.3)."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()], strict=False)).up("s0@B", "p0@A")
    s.hold(("msg", "B", "A")).send("p0").run(until=lambda: bool(s.accepted("s0")))
    s.hold(("down", "A", "B"), ("up", "B", "A")).step("suspect", "B", "A").run()
    s.drop("p0")
    s.attach("p0@B")
    assert not s.w.publisher("p0").unsettled
    assert not s.w.subscriber("s0").unsettled
    s.drop("s0")
    s.step("crash", "B").attach("s0@A")
    s.release(("down", "A", "B")).run().finish()


def proof_from_before_all_were_together(world: Worlds) -> None:
    """P has proved itself at A, and goes to B, at the other side of a partition, where S accepts m and forgets it. B
    dies and starts again, the partition heals, and all routers are together when S comes to A (protocol 5.9.2)."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()], strict=False)).up("s0@B", "p0@A")
    s.hold(("msg", "B", "A")).send("p0").run(until=lambda: bool(s.accepted("s0")))
    s.step("part", "A").release().run()
    s.drop("p0")
    s.attach("p0@B")
    assert not s.w.publisher("p0").unsettled
    assert not s.w.subscriber("s0").unsettled
    s.drop("s0")
    s.step("crash", "B").step("heal").step("restart", "B").run()
    s.attach("s0@A").finish()


# ---------------------------------------------------------------------- attaches and signs of life that are read late
def attach_read_late_plain(world: Worlds) -> None:
    """The attach frame of an abandoned connection is processed after the publisher attached elsewhere (protocol 5.1.1,
    5.2.4)."""
    s = Schedule(world("AB", [P(kind=MEMORY)], [S()])).up("s0@B")
    s.hold(("c2r", ("p0", 1))).step("connect", "p0", "A")
    old = s.drop("p0")
    s.attach("p0@B")
    s.hold(("accept",)).send("p0").run()
    s.release().hold(("rnotice", old))
    s.step("c2r", old)  # A reads the old attach, which is fresh: a new incarnation, if it claimed
    s.attach("p0@B").finish()


def attach_read_late_steals_nothing(world: Worlds) -> None:
    """The attach frame of an abandoned connection is read at the router at which the publisher is attached since
    (protocol 5.1.7)."""
    s = Schedule(world("AB", [P(kind=MEMORY)], [S()])).up("s0@B")
    s.hold(("c2r", ("p0", 1))).step("connect", "p0", "A")
    old = s.drop("p0")
    s.attach("p0@A").send("p0").run()
    present = s.cid("p0")
    s.release().hold(("rnotice", old), ("c2r", present)).run()
    if s.w.publisher("p0").pipe is None or s.cid("p0") != present:
        raise Violation("G4 the publisher has lost its link to an attach that it had abandoned")
    s.finish()


def sign_of_life_read_late_plain(world: Worlds) -> None:
    """The same with the publisher's sign of life stuck in the old connection (protocol 5.1.1)."""
    s = Schedule(world("AB", [P(kind=MEMORY)], [S()])).up("s0@B")
    s.step("connect", "p0", "A").run(until=lambda: s.next_frame(("p0", 1)) == "flow")
    s.w.publisher("p0").known = False  # as far as it knows it was never confirmed
    s.hold(("c2r", ("p0", 1)))
    old = s.drop("p0")
    s.attach("p0@B")
    s.hold(("accept",)).send("p0").run()
    s.release().hold(("rnotice", old)).step("c2r", old).attach("p0@B")
    s.finish()


def sign_of_life_where_the_clock_is_ahead(world: Worlds) -> None:
    """The same of a publisher that works at B, whose clock is two hours behind A's: S has accepted what A reads late,
    and forgotten it (protocol 5.1.6, 5.2.4)."""
    w = wider(world, FaultyWorld)("AB", [P(kind=UNIQUE)], [S()])
    s = Schedule(w).up("s0@B")
    s.step("clock", "B", -7200)
    s.hold(lambda e, w: e[:2] == ("c2r", ("p0", 1)) and s.next_frame(("p0", 1)) in ("flow", "transfer"))
    s.attach("p0@A")
    s.send("p0")
    old = s.drop("p0")
    s.attach("p0@B").run(until=lambda: bool(s.accepted("s0")) and not s.w.publisher("p0").unsettled)
    s.run()
    s.release().hold(("rnotice", old)).run().finish()


def sign_of_life_from_before_the_clock_was_set_back(world: Worlds) -> None:
    """P sends m0 through A, and loses that connection before A reads m0. A's clock is set back, and P attaches there
    again, on a connection that it opened earlier. S has accepted m0, and forgotten it, when A reads the other one
    (protocol 1.4)."""
    w = wider(world, FaultyWorld)("AB", [P(kind=UNIQUE)], [S()])
    w.site("A").router.numbers = count(0, -1)
    s = Schedule(w).up("s0@B")
    s.hold(lambda e, w: e[:2] == ("c2r", ("p0", 1)) and s.next_frame(("p0", 1)) in ("flow", "transfer"))
    s.attach("p0@A").send("p0")
    old = s.drop("p0")
    s.step("clock", "A", -7200)
    s.attach("p0@A").run(until=lambda: bool(s.accepted("s0")) and not s.w.publisher("p0").unsettled)
    s.run()
    s.release().hold(("rnotice", old)).run().finish()


def attach_and_detach_read_late(world: Worlds) -> None:
    """P gives up waiting for A (attach, then detach, then another router); A reads both later (protocol 5.2.3)."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()], strict=False)).up("s0@B")
    s.step("connect", "p0", "A")
    publisher = s.w.publisher("p0")
    assert publisher.pipe is not None
    old = publisher.pipe.cid
    s.hold(("c2r", old))
    publisher.link.detach(None, closed=True)
    publisher.flush()
    s.drop("p0")
    s.attach("p0@B")
    s.hold(("msg", "B", "A")).send("p0").run().hold(("r2c", s.cid("p0")))
    s.release(("msg", "B", "A"))
    s.release(("c2r", old)).run()
    s.release().attach("p0@B").finish()


# ---------------------------------------------------------------------- answers that were there before the question
def _read_when_both_have_moved(s: Schedule, old: tuple[str, int]) -> None:
    """P works at B, S has crossed over to A, and A reads what lay on P's old connection."""
    s.attach("p0@B")
    s.drop("s0")
    s.attach("s0@A")
    s.release(("c2r", old)).run().step("heal").finish()


def transfer_sent_before_the_question(world: Worlds) -> None:
    """Protocol 5.7.2."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()], strict=False)).up("s0@B", "p0@A")
    cid = s.cid("p0")
    s.hold(("c2r", cid)).step("part", "A").run().send("p0")
    old = s.drop("p0")
    _read_when_both_have_moved(s, old)


def flow_without_credit_before_the_question(world: Worlds) -> None:
    """P's credit at A is taken back while m0 is under way, and P shows that it has none: as much as the question asks
    for. A reads that when P works at B, where m0 is settled, and S has crossed over (protocol 5.7.3)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False)).up("s1@A", "p0@A")
    old = s.cid("p0")
    s.hold(("c2r", old)).send("p0").step("close", "s1").run().step("show", "p0")
    s.step("part", "A").run()
    s.drop("p0")
    s.attach("s0@B").attach("p0@B")
    assert s.accepted("s0") == {("p0", 0)}
    assert not s.w.publisher("p0").unsettled
    s.drop("s0")
    s.attach("s0@A")
    s.release(("c2r", old)).run().finish()


def heartbeat_sent_before_the_question(world: Worlds) -> None:
    """Protocol 5.7.2."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()], strict=False)).up("s0@B")
    s.step("connect", "p0", "A").run(until=lambda: s.w.clients["p0"].state == "on")
    old = s.cid("p0")
    s.hold(("accept",), ("c2r", old)).send("p0").step("hb", "p0")
    s.step("c2r", old)  # the transfer claims; the heartbeat waits behind it
    s.run()
    s.step("part", "A").run()
    s.drop("p0")
    s.release(("accept",))
    _read_when_both_have_moved(s, old)


def answer_to_an_earlier_question(world: Worlds) -> None:
    """P has answered the question that A asked for s1, and is at B by the time A reads that; meanwhile S has crossed
    over to A (protocol 5.7.6)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False)).up("s0@B", "s1@A", "p0@A")
    s.hold(("msg", "B", "A")).send("p0").run(until=lambda: bool(s.accepted("s0")) and bool(s.accepted("s1")))
    s.run()
    s.lose("s1")
    s.release(("msg", "B", "A"))
    s.hold(s.next_is("Accept"))
    cid = s.cid("p0")
    s.hold(("c2r", cid)).attach("s1@A")
    assert s.next_frame(cid) == "flow"  # the answer
    s.step("close", "s1").run().step("part", "A").run()
    old = s.drop("p0")
    s.attach("p0@B")
    assert not s.w.subscriber("s0").unsettled
    s.drop("s0")
    s.attach("s0@A")
    s.release(("c2r", old)).run().finish()


def flush_by_an_abandoned_ingress(world: Worlds) -> None:
    """P is back at A (cut off), leaves unnoticed without re-sending; publisher_timeout passes there (protocol
    8.5.1)."""
    s = half_accepted(world, "A", "B", "A", publisher=P(kind=UNIQUE), strict=False)
    s.lose("p0")
    s.step("part", "A").run()
    transfers_to_a = lambda e, w: (  # noqa: E731
        e[0] == "c2r" and w.pipes[e[1]].router == "A" and s.next_frame(e[1]) == "transfer"
    )
    s.hold(transfers_to_a).step("connect", "p0", "A")
    pipe = s.w.clients["p0"].pipe
    assert pipe is not None
    s.hold(("r2c", pipe.cid)).run()
    s.pass_time(2.5)
    s.step("hb", "p0").run()
    s.release(("r2c", pipe.cid))
    s.drop("p0")
    s.pass_time(121.0)  # A would flush now; B, where P is homeless a little longer, waits 4 s more (protocol 8.4)
    s.attach("p0@B")
    s.step("heal").run().finish()


def publisher_that_a_map_tells_of_may_come_too_late(world: Worlds) -> None:
    """P has not heard that S accepted m0. A dies and starts again; P attaches, then S, whose map tells A of P. S has
    come since, so P is asked for another sign of life, and gives none until nobody waits for it any more (protocol
    5.4.2)."""
    s = Schedule(world("A", [P(kind=UNIQUE)], [S()], strict=False, address=SHORT)).up("s0@A", "p0@A")
    s.send("p0").run(until=lambda: bool(s.w.subscriber("s0").in_hand))
    s.step("crash", "A").run()
    assert s.accepted("s0") == {("p0", 0)}
    s.step("restart", "A")
    s.hold(("r2c", ("p0", 2))).attach("p0@A").attach("s0@A")
    s.release().run()
    s.pass_time(PUBLISHER_EXPIRY_S)
    s.step("hb", "p0").run()
    assert s.w.publisher("p0").refusals == [PUBLISHER_EXPIRED]
    s.finish()


def sent_again_while_nobody_accepts(world: Worlds) -> None:
    """S holds two messages and accepts neither for longer than P is waited for. P has come back and sent the first one
    again, which takes all the room that there is: B must not say that P will not send the other one (protocol
    8.5.3)."""
    s = Schedule(world("AB", [P()], [S()], strict=False, address=SHORT, window_bytes=40)).up("s0@A", "p0@B")
    s.send("p0")
    s.run()  # it gets credit for two as large as that
    s.hold(("accept",)).send("p0", 2).run()
    s.lose("p0").attach("p0@B")
    assert not s.w.publisher("p0").link.credit
    assert s.w.publisher("p0").pending
    s.pass_time(PUBLISHER_EXPIRY_S).run().finish()
    assert s.accepted("s0") == {("p0", 0), ("p0", 1), ("p0", 2)}


def expected_of_a_publisher_that_got_no_credit(world: Worlds) -> None:
    """S holds two messages, sent through A, which is cut off from B. P goes to B, where nobody has subscribed: it gets
    no credit for longer than it is waited for. Then the routers meet: B must not say that P will send them no more
    (protocol 8.5.2)."""
    s = Schedule(world("AB", [P()], [S()], strict=False)).up()
    s.hold(("accept",)).step("part", "A").attach("s0@A").attach("p0@A")
    s.send("p0", 2).run(until=lambda: len(s.w.subscriber("s0").in_hand) == 2)
    s.drop("p0")
    s.attach("p0@B")
    s.pass_time(130.0).run()
    s.step("heal").run().finish()
    assert s.accepted("s0") == {("p0", 0), ("p0", 1)}
