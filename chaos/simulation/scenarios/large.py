"""Large deliveries, which pass through routers while they arrive (protocol 6.12)."""

from __future__ import annotations

from typing import Any

from chaos.simulation.scenarios.schedule import PUBLISHER_EXPIRY_S, SHORT, P, S, Schedule, Worlds
from chaos.simulation.world.clients import RECOVERING, UNIQUE


def _half_sent(world: Worlds, s0: str, s1: str, *, names: str = "AB", **options: Any) -> Schedule:
    """p0, at A, has sent half of a large message, and both subscribers have that."""
    publisher = P()
    publisher.size, publisher.stops = 4_000, 1_500
    for name, value in options.items():
        setattr(publisher, name, value)
    s = Schedule(world(names, [publisher], [S("s0"), S("s1")], stream_above=1_000))
    s.up(f"s0@{s0}", f"s1@{s1}", "p0@A")
    s.hold(("go_on",)).send("p0").step("go_on", "p0").run()
    for name in ("s0", "s1"):
        assert s.w.subscriber(name).link.incomplete_size > 1_000, "nothing has passed through"
    return s


def _got_it(s: Schedule) -> None:
    s.finish()
    assert s.accepted("s0") == s.accepted("s1") == {("p0", 0)}


def large_publisher_aborts(world: Worlds) -> None:
    """P aborts it. Its next message is another one."""
    s = _half_sent(world, "A", "B", aborts=(0,))
    s.release().run()
    s.send("p0").finish()
    assert s.accepted("s0") == s.accepted("s1") == {("p0", 1)}


def large_publisher_dies(world: Worlds) -> None:
    """P loses its connection, and sends it again at B."""
    s = _half_sent(world, "A", "B")
    s.lose("p0").run().release().attach("p0@B")
    _got_it(s)


def large_ingress_dies(world: Worlds) -> None:
    """P's router dies, and P sends it again at B, where s1 has half of it."""
    s = _half_sent(world, "A", "B")
    s.step("crash", "A").release().run().attach("p0@B", "s0@B")
    _got_it(s)


def large_egress_dies(world: Worlds) -> None:
    """s1's router dies. s1 comes back at A, where s0 has half of it: P has to send it again."""
    s = _half_sent(world, "A", "B")
    s.step("crash", "B").run().attach("s1@A", "p0@A")
    _got_it(s)


def large_subscriber_dies(world: Worlds) -> None:
    """s1 loses its connection and comes back at C, where it is owed the beginning."""
    s = _half_sent(world, "A", "B", names="ABC")
    s.lose("s1").run().attach("s1@C", "p0@A")
    _got_it(s)


def large_trunk_lost(world: Worlds) -> None:
    """A and B lose sight of each other, and meet again."""
    s = _half_sent(world, "A", "B")
    s.step("suspect", "A", "B").run()
    _got_it(s)


def large_owed_to_an_orphan(world: Worlds) -> None:
    """s1 is away while a large message passes through, and s0 accepts it. When s1 is back, A has no payload for it."""
    s = _half_sent(world, "A", "B")
    s.lose("s1").run().release().run()
    assert s.accepted("s0") == {("p0", 0)}
    s.attach("s1@B", "p0@A")
    _got_it(s)


def large_joins_in_mid_message(world: Worlds) -> None:
    """s1 comes back in the middle of the next message, which it would get without its beginning."""
    s = _half_sent(world, "A", "B")
    s.release().run().lose("s1").run()
    s.hold(("go_on",)).send("p0").step("go_on", "p0").run()
    s.attach("s1@B", "p0@A")
    s.finish()
    assert s.accepted("s0") == s.accepted("s1") == {("p0", 0), ("p0", 1)}


def large_released(world: Worlds) -> None:
    """s1 gives back what it has got whole, and no router has the payload."""
    s = _half_sent(world, "A", "B")
    s.hold(("accept", "s1")).release(("go_on",)).run()
    s.step("release", "s1", 0).run().attach("p0@A")
    _got_it(s)


def large_two_at_a_time(world: Worlds) -> None:
    """p0 at A and p1 at B begin before their routers have heard of each other's message. If both were on their way, s0
    would wait for the end of p0's, and s1 for that of p1's, which the other subscriber has not begun."""
    publishers = [P("p0"), P("p1")]
    for publisher in publishers:
        publisher.size, publisher.stops = 16_000, 400
    s = Schedule(world("AB", publishers, [S("s0"), S("s1")], stream_above=1_000, stream_share=1_000))
    s.up("s0@A", "s1@B", "p0@A", "p1@B")
    s.hold(("go_on",), ("msg",)).send("p0").send("p1")
    for publisher in publishers * 3:
        s.step("go_on", publisher.name)
    s.run()
    s.release().run()
    assert s.accepted("s0") == s.accepted("s1") == {("p0", 0), ("p1", 0)}, "both wait for each other"
    s.finish()


def large_waits_with_others_behind_it(world: Worlds) -> None:
    """p0's large message at B waits for the end of p1's. What p0 has sent behind it comes after it."""
    publishers = [P("p0"), P("p1")]
    publishers[0].size, publishers[1].size, publishers[1].stops = 1_500, 4_000, 1_000
    s = Schedule(world("AB", publishers, [S()], stream_above=600, max_frame_size=1_024))
    s.up("s0@A", "p0@B", "p1@A").hold(("go_on",)).send("p1").step("go_on", "p1").run()
    s.hold(("r2c", s.cid("p0"))).send("p0").run()
    publishers[0].size = 0
    s.send("p0").run()
    s.release().finish()
    assert s.accepted("s0") == {("p0", 0), ("p0", 1), ("p1", 0)}


def _sent_again_behind_another(world: Worlds, kind: str) -> Schedule:
    """s0 has p0's large message and does not accept it. p0 loses its connection, and p1 is in the middle of one."""
    publishers = [P("p0", kind), P("p1")]
    publishers[0].size, publishers[1].size, publishers[1].stops = 18_000, 4_000, 300
    s = Schedule(world("AB", publishers, [S()], address=SHORT, stream_above=600, max_frame_size=1_024, strict=False))
    s.up("s0@A", "p0@B", "p1@B").hold(("accept",))
    for _ in range(4):
        s.send("p0").run()
    s.hold(("go_on",)).send("p1")
    for _ in range(3):
        s.step("go_on", "p1").run()
    return s.lose("p0")


def _wait_for_p0(s: Schedule) -> None:
    """p1 sends too slowly, but not so slowly that it is asked to send all of it again."""
    for _ in range(7):
        s.pass_time(PUBLISHER_EXPIRY_S / 6).step("go_on", "p1").run()


def large_sent_again_waits_for_its_turn(world: Worlds) -> None:
    """p0 sends it again. That waits for the end of p1's for longer than p0 is waited for: B must not say that p0 sends
    nothing again."""
    s = _sent_again_behind_another(world, RECOVERING)
    _wait_for_p0(s.attach("p0@B"))
    s.finish()
    assert s.accepted("s0") == {("p0", 0), ("p0", 1), ("p0", 2), ("p0", 3), ("p1", 0)}


def large_sent_again_before_the_answer(world: Worlds) -> None:
    """p0 reads late that it has credit, and has been waited for by then. It sends it again, which waits for the end of
    p1's, and then answers the question."""
    s = _sent_again_behind_another(world, UNIQUE)
    s.step("connect", "p0", "B")
    reads = ("r2c", s.cid("p0"))
    s.hold(reads).run().pass_time(2.5).step("hb", "p0").run()
    _wait_for_p0(s)
    s.release(reads).run().pass_time(2.5).step("hb", "p0").finish()
    assert s.accepted("s0") == {("p0", 0), ("p0", 1), ("p0", 2), ("p0", 3), ("p1", 0)}
