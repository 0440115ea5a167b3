"""Large deliveries, which pass through routers while they arrive (protocol 6.12)."""

from __future__ import annotations

from functools import partial
from typing import Any

from chaos.simulation.scenarios.schedule import PUBLISHER_EXPIRY_S, SHORT, P, S, Schedule, Worlds
from chaos.simulation.world.clients import MEMORY, RECOVERING, UNIQUE
from chaos.simulation.world.subscribers import Subscriber
from router.config import AddressConfig
from router.core.large import STREAM_IDLE_S


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
    """P aborts it. Its next message is another one (protocol 6.12.6)."""
    s = _half_sent(world, "A", "B", aborts=(0,))
    s.release().run()
    s.send("p0").finish()
    assert s.accepted("s0") == s.accepted("s1") == {("p0", 1)}


def large_publisher_dies(world: Worlds) -> None:
    """P loses its connection, and sends it again at B (protocol 6.12.6)."""
    s = _half_sent(world, "A", "B")
    s.lose("p0").run().release().attach("p0@B")
    _got_it(s)


def large_ingress_dies(world: Worlds) -> None:
    """P's router dies, and P sends it again at B, where s1 has half of it (protocol 6.12.2)."""
    s = _half_sent(world, "A", "B")
    s.step("crash", "A").release().run().attach("p0@B", "s0@B")
    _got_it(s)


def large_egress_dies(world: Worlds) -> None:
    """s1's router dies. s1 comes back at A, where s0 has half of it: P has to send it again (protocol 6.12.2)."""
    s = _half_sent(world, "A", "B")
    s.step("crash", "B").run().attach("s1@A", "p0@A")
    _got_it(s)


def large_subscriber_dies(world: Worlds) -> None:
    """s1 loses its connection and comes back at C, where it is owed the beginning (protocol 6.12.7)."""
    s = _half_sent(world, "A", "B", names="ABC")
    s.lose("s1").run().attach("s1@C", "p0@A")
    _got_it(s)


def large_trunk_lost(world: Worlds) -> None:
    """A and B lose sight of each other, and meet again (protocol 6.12.2)."""
    s = _half_sent(world, "A", "B")
    s.step("suspect", "A", "B").run()
    _got_it(s)


def large_owed_to_an_orphan(world: Worlds) -> None:
    """s1 is away while a large message passes through, and s0 accepts it. When s1 is back, A has no payload for it
    (protocol 6.12.7)."""
    s = _half_sent(world, "A", "B")
    s.lose("s1").run().release().run()
    assert s.accepted("s0") == {("p0", 0)}
    s.attach("s1@B", "p0@A")
    _got_it(s)


def large_joins_in_mid_message(world: Worlds) -> None:
    """s1 comes back in the middle of the next message, which it would get without its beginning (protocol 6.12.7)."""
    s = _half_sent(world, "A", "B")
    s.release().run().lose("s1").run()
    s.hold(("go_on",)).send("p0").step("go_on", "p0").run()
    s.attach("s1@B", "p0@A")
    s.finish()
    assert s.accepted("s0") == s.accepted("s1") == {("p0", 0), ("p0", 1)}


def large_released(world: Worlds) -> None:
    """s1 gives back what it has got whole, and no router has the payload (protocol 6.12.8)."""
    s = _half_sent(world, "A", "B")
    s.hold(("accept", "s1")).release(("go_on",)).run()
    s.step("release", "s1", 0).run().attach("p0@A")
    _got_it(s)


def large_two_at_a_time(world: Worlds) -> None:
    """p0 at A and p1 at B begin before their routers have heard of each other's message. If both were on their way, s0
    would wait for the end of p0's, and s1 for that of p1's, which the other subscriber has not begun (protocol
    6.12.10)."""
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
    """p0's large message at B waits for the end of p1's. What p0 has sent behind it comes after it (protocol
    6.12.10)."""
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
    nothing again (protocol 8.5.2)."""
    s = _sent_again_behind_another(world, RECOVERING)
    _wait_for_p0(s.attach("p0@B"))
    s.finish()
    assert s.accepted("s0") == {("p0", 0), ("p0", 1), ("p0", 2), ("p0", 3), ("p1", 0)}


def large_sent_again_before_the_answer(world: Worlds) -> None:
    """p0 reads late that it has credit, and has been waited for by then. It sends it again, which waits for the end of
    p1's, and then answers the question (protocol 8.5.5)."""
    s = _sent_again_behind_another(world, UNIQUE)
    s.step("connect", "p0", "B")
    reads = ("r2c", s.cid("p0"))
    s.hold(reads).run().pass_time(2.5).step("hb", "p0").run()
    _wait_for_p0(s)
    s.release(reads).run().pass_time(2.5).step("hb", "p0").finish()
    assert s.accepted("s0") == {("p0", 0), ("p0", 1), ("p0", 2), ("p0", 3), ("p1", 0)}


# --- what a client resumes, and loses its publisher in the middle


def _resumed_in_part(
    world: Worlds, *, names: str = "A", at: str = "A", others: tuple[str, ...] = (), size: int = 5_000,
    ttl_ms: int | None = None, **options: Any,
) -> Schedule:  # fmt: skip
    """s0 has p0's large message in hand, comes back with its map, and is sent it again. It has the first frames of it,
    and p0's others are not read."""
    publishers = [P("p0"), *(P(each) for each in others if each[0] == "p")]
    for publisher in publishers:
        publisher.size, publisher.ttl_ms = size, ttl_ms
    subscribers = [S("s0", MEMORY), *(S(each, MEMORY) for each in others if each[0] == "s")]
    options = {"stream_above": 600, "stream_share": 1_000, "max_frame_size": 1_024, **options}
    s = Schedule(world(names, publishers, subscribers, **options))
    s.up("s0@A", f"p0@{at}").hold(("accept",)).send("p0").run()
    s.lose("s0").run().attach("s0@A")
    s.run(until=partial(_is_in_the_middle, s.w.subscriber("s0")), place=(("p0", at),))
    return _unread(s, "p0")


def _unread(s: Schedule, publisher: str) -> Schedule:
    """Frames of this publisher are read no further."""
    return s.hold(("c2r", s.cid(publisher)), ("gulp", s.cid(publisher))).run()


def _read(s: Schedule) -> Schedule:
    for hold in [each for each in s.holds if isinstance(each, tuple) and each[0] in ("c2r", "gulp")]:
        s.release(hold)
    return s


def _has_it_once(s: Schedule, *subscribers: str) -> None:
    """Nobody's link has been taken away, and nobody has got it twice."""
    s.finish()
    for name in subscribers:
        assert not s.w.subscriber(name).refusals, f"{name} was detached"
        assert s.accepted(name) == {("p0", 0)}


def large_resumed_and_its_publisher_lost(world: Worlds) -> None:
    """p0 loses its connection, and s0 accepts what it has in hand from before. p0 comes back (protocol 6.12.12)."""
    s = _resumed_in_part(world)
    s.lose("p0").step("accept", "s0", 0).run()
    _has_it_once(s.attach("p0@A"), "s0")


def large_resumed_and_another_joins(world: Worlds) -> None:
    """s1 joins in the middle, and p0 has to send it from the beginning (protocol 6.12.12)."""
    s = _resumed_in_part(world, others=("s1",))
    s.attach("s1@A")
    _has_it_once(_read(s).run().attach("p0@A"), "s0", "s1")


def large_resumed_and_its_router_dies(world: Worlds) -> None:
    """p0's router dies, and p0 comes back at the one where s0 is (protocol 6.12.12)."""
    s = _resumed_in_part(world, names="AB", at="B")
    s.step("crash", "B").run()
    _has_it_once(s.attach("p0@A"), "s0")


def _is_in_the_middle(subscriber: Subscriber) -> bool:
    return subscriber.link is not None and subscriber.link.incomplete_size > 0


def large_resumed_two_attach_in_turn(world: Worlds) -> None:
    """s0 and s1 both hold it. Whenever one of them is in the middle of it, the other one attaches (protocol
    6.12.12)."""
    s = _resumed_in_part(world, others=("s1",))
    s0, s1 = s.w.subscriber("s0"), s.w.subscriber("s1")
    _read(s).attach("s1@A", "p0@A")
    s.lose("s1").lose("s0").run().attach("s0@A")
    for here, away in ((s0, s1), (s1, s0)) * 5:
        s.run(until=partial(_is_in_the_middle, here), place=(("p0", "A"),))
        _unread(s, "p0").attach(f"{away.name}@A")
        _read(s).run()
        if here.state == "on":
            break
    assert s0.state == s1.state == "on", "each interrupts the other"
    _has_it_once(s, "s0", "s1")


def large_resumed_and_annotated_again(world: Worlds) -> None:
    """p0's message has a ttl. Its router notes when that ends, which is later when it comes again (protocol
    6.12.12)."""
    s = _resumed_in_part(world, address=AddressConfig(expire=True), ttl_ms=3_600_000)
    s.lose("p0").run().pass_time(1.0)
    _has_it_once(s.attach("p0@A"), "s0")


def large_resumed_goes_on_where_it_stopped(world: Worlds) -> None:
    """s0 has more of it than comes from a publisher that is held back. p0 loses its connection and comes back (protocol
    6.12.13)."""
    s = _resumed_in_part(world, size=90_000)
    link = s.w.subscriber("s0").link
    _read(s).run(until=lambda: link.incomplete_size > 60_000)
    s.lose("p0").run().attach("p0@A")
    assert not link.incomplete_size, "it does not go on"
    _has_it_once(s, "s0")


def large_resumed_and_another_message(world: Worlds) -> None:
    """p0 sends another message with the tag. s0 must not take half of the one and half of the other for one (protocol
    6.12.13)."""
    s = _resumed_in_part(world)
    s.lose("p0").run()
    s.w.publisher("p0").size = 5_100
    s.attach("p0@A")
    s0 = s.w.subscriber("s0")
    assert s0.refusals == ["amqp:link:detach-forced"], "it is taken for the same message"
    assert list(s0.unsettled.values()) == ["received"]
    s.attach("s0@A", "p0@A")
    s.finish()
    assert s.accepted("s0") == {("p0", 0)}


def large_resumed_and_nobody_goes_on(world: Worlds) -> None:
    """p0 does not come back. p1's message waits, and not for ever (protocol 6.12.15)."""
    s = _resumed_in_part(world, others=("p1",))
    s.lose("p0").run()
    s.w.publisher("p1").size = 0
    s.attach("p1@A").send("p1").run()
    s0 = s.w.subscriber("s0")
    s.pass_time(STREAM_IDLE_S - 1).run()
    assert s0.state == "on"
    assert len(s0.in_hand) == 1, "p1's has not waited"
    s.pass_time(2).run()
    assert s0.refusals == ["amqp:link:detach-forced"], "p1's waits for ever"
    s.attach("s0@A")
    assert len(s0.in_hand) == 2
    s.finish()
    assert s.accepted("s0") == {("p0", 0), ("p1", 0)}


def _another_has_the_turn(world: Worlds) -> Schedule:
    """p0 is lost in the middle of what s0 resumes, p1 has the turn, and p0 comes back behind it."""
    s = _resumed_in_part(world, others=("p1", "s1"))
    p1 = s.w.publisher("p1")
    p1.size, p1.stops = 40_000, 5_000
    s.attach("s1@A")
    _read(s).attach("p1@A").hold(("go_on",)).send("p1").step("go_on", "p1").run()
    return s.step("connect", "p0", "A")


def large_resumed_and_another_has_the_turn(world: Worlds) -> None:
    """p1 sends more than publishers are let ahead, and a small one behind it, which s0 must not get before it (protocol
    6.12.14)."""
    s = _another_has_the_turn(world)
    cid = s.cid("p0")
    s.hold(("gulp", cid)).run(until=lambda: s.next_frame(cid) == "transfer").step("c2r", cid)
    _unread(s, "p0").release(("go_on",)).run()
    p1 = s.w.publisher("p1")
    assert p1.open is None, "p0 and p1 wait for each other"
    p1.size = 0
    _read(s.send("p1").run()).release().attach("p1@A")
    _has_both(s, {("p1", 0), ("p1", 1)})


def large_resumed_and_another_has_the_turn_for_long(world: Worlds) -> None:
    """p1 is slow. Where s0's link is detached, s0 attaches, and p1 has to begin again (protocol 6.12.15)."""
    s = _another_has_the_turn(world).run()
    for _ in range(7):
        s.pass_time(STREAM_IDLE_S / 2).step("go_on", "p1").run()
        assert not s.w.subscriber("s0").refusals, "s0 was detached"
    s.release(("go_on",)).run().release().attach("p1@A")
    _has_both(s, {("p1", 0)})


def large_resumed_each_in_the_middle_of_another(world: Worlds) -> None:
    """s0 and s1 both hold both messages. s0 is in the middle of p0's, s1 of p1's, and both publishers are lost. Each of
    them may have the turn while the other one's is awaited (protocol 6.12.14)."""
    publishers, subscribers = [P("p0"), P("p1")], [S("s0", MEMORY), S("s1", MEMORY)]
    for publisher in publishers:
        publisher.size = 60_000
    s = Schedule(world("A", publishers, subscribers, stream_above=600, stream_share=1_000, max_frame_size=1_024))
    s.up("s0@A", "s1@A", "p0@A", "p1@A").hold(("accept",)).send("p0").run().send("p1").run()
    s.lose("s1").lose("s0").run().attach("s0@A")
    for publisher, subscriber in zip(publishers, subscribers, strict=True):
        s.run(until=partial(_is_in_the_middle, subscriber), place=((publisher.name, "A"),))
        _unread(s, publisher.name).lose(publisher.name).run()
        if subscriber.name == "s0":
            s.attach("s1@A")
    assert all(_is_in_the_middle(each) for each in subscribers)
    s.attach("p0@A", "p1@A")
    s.attach("p0@A", "p1@A")
    for subscriber in subscribers:
        assert not subscriber.refusals, f"{subscriber.name} was detached"
        assert not _is_in_the_middle(subscriber), "they wait for each other"
    s.finish()
    assert s.accepted("s0") == s.accepted("s1") == {("p0", 0), ("p1", 0)}


def _has_both(s: Schedule, others: set[tuple[str, int]]) -> None:
    s.finish()
    for name in ("s0", "s1"):
        assert not s.w.subscriber(name).refusals, f"{name} was detached"
        assert s.accepted(name) == {("p0", 0)} | others
