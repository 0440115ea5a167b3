"""The named schedules of PROTOCOL 11, against the real cores: with every rule the schedule passes.

Each is the one interleaving that its rule is there for. `tests/simulation/test_rules_taken_away.py` takes the rule away
and watches the named guarantee break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.simulation.clients import MEMORY, PLAIN, UNIQUE, Publisher, Subscriber
from chaos.simulation.schedule import Schedule
from chaos.simulation.wild import Wild
from chaos.simulation.world import World
from router.config import AddressConfig

Scenario = Callable[[Callable[..., World]], None]
SCENARIOS: dict[str, Scenario] = {}

SHORT = AddressConfig(subscription_timeout_s=40.0, publisher_timeout_s=100.0)  # margin 5 s
EXPIRY_S = 46.0
PUBLISHER_EXPIRY_S = 106.0
ACCEPT = AddressConfig(no_subscribers="accept")


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def P(name: str = "p0", kind: str = "recovering") -> Publisher:
    return Publisher(name, kind)


def S(name: str = "s0", kind: str = "recovering", **options: Any) -> Subscriber:
    return Subscriber(name, kind, **options)


def _limit(guarantee: str, do: Callable[[], None]) -> None:
    """What is documented as not promised does break this guarantee here."""
    try:
        do()
    except AssertionError as violation:
        if str(violation).startswith(guarantee):
            return
        raise
    raise AssertionError("this limit is no more: say so where it is documented")


def finish(s: Schedule, **totals: int) -> None:
    """The publishers send no more than this; everything drains."""
    for publisher in s.w.publishers:
        publisher.total = totals.get(publisher.name, publisher.seq)
    s.end()


# ---------------------------------------------------------------------- failover, the plain way
@scenario
def ingress_and_subscriber_fail_over_together(world: Callable[..., World]) -> None:
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
def settle_half_relayed(world: Callable[..., World]) -> None:
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
def accept_known_settle_lost(world: Callable[..., World]) -> None:
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


# ---------------------------------------------------------------------- two ingresses
@scenario
def zombie_ingress_replays_to_crossing_subscriber(world: Callable[..., World]) -> None:
    """P half open at A, really at B (other side of a partition); m settled through B; S crosses over to A."""
    s = Schedule(world("AB", [P()], [S()], strict=False)).up(("s0", "B"), ("p0", "A"))
    s.hold.append(("msg", "B", "A"))
    s.send("p0")
    s.run(until=lambda: bool(s.accepted("s0")))
    s.step("part", "A")
    s.hold.clear()
    s.drop("p0")
    s.run(place=(("p0", "B"),))
    assert not s.w.subscriber("s0").unsettled
    s.drop("s0")
    s.run(place=(("s0", "A"),))
    finish(s)


@scenario
def zombie_ingress_declares_settled(world: Callable[..., World]) -> None:
    """S holds m (sent through B); crosses to A, where the zombie ingress does not know m."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False)).up(("s0", "B"), ("s1", "B"), ("p0", "A"))
    s.step("part", "A")
    s.run()
    s.drop("p0")
    s.run(place=(("p0", "B"),))
    s.hold.append(("accept", "s1"))  # keeps m outstanding
    s.send("p0")
    s.run(until=lambda: bool(s.accepted("s0")))
    s.drop("s0")
    s.run(place=(("s0", "A"),))
    s.drop("s0")
    s.run(place=(("s0", "B"),))
    finish(s)


@scenario
def sign_of_life_older_than_the_subscription(world: Callable[..., World]) -> None:
    """P has shown A that it is there, and sent m; nobody reads that. It goes to B, where S accepts m and forgets it. B
    dies, and with it all that was known of P's later attachment. S comes to A; then A reads what P said long ago."""
    s = Schedule(world("AB", [P()], [S()], strict=False)).up(("s0", "B"))
    s.hold.append(lambda e, w: e[:2] == ("c2r", ("p0", 1)) and s.next_frame(("p0", 1)) in ("flow", "transfer"))
    s.run(place=(("p0", "A"),))
    s.send("p0")
    s.step("part", "A")
    s.run()
    s.drop("p0")
    s.run(place=(("p0", "B"),))
    assert not s.w.publisher("p0").unsettled
    assert not s.w.subscriber("s0").unsettled
    s.drop("s0")
    s.step("crash", "B")
    s.step("heal")
    s.step("restart", "B")
    s.run(place=(("s0", "A"),))
    s.hold = [("rnotice", ("p0", 1))]
    s.run()
    finish(s)


@scenario
def attach_read_late_plain(world: Callable[..., World]) -> None:
    """The attach frame of an abandoned connection is processed after the publisher attached elsewhere."""
    s = Schedule(world("AB", [P(kind=MEMORY)], [S()])).up(("s0", "B"))
    s.hold.append(("c2r", ("p0", 1)))
    s.step("connect", "p0", "A")
    old = s.drop("p0")
    s.run(place=(("p0", "B"),))
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    s.hold = [("rnotice", old)]
    s.step("c2r", old)  # A reads the old attach, which is fresh: a new incarnation, if it claimed
    s.run()
    s.run(place=(("p0", "B"),))
    finish(s)


@scenario
def sign_of_life_read_late_plain(world: Callable[..., World]) -> None:
    """The same with the publisher's sign of life stuck in the old connection."""
    s = Schedule(world("AB", [P(kind=MEMORY)], [S()])).up(("s0", "B"))
    s.step("connect", "p0", "A")
    s.run(until=lambda: s.next_frame(("p0", 1)) == "flow")
    s.w.publisher("p0").known = False  # as far as it knows it was never confirmed
    s.hold.append(("c2r", ("p0", 1)))
    old = s.drop("p0")
    s.run(place=(("p0", "B"),))
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    s.hold = [("rnotice", old)]
    s.step("c2r", old)
    s.run(place=(("p0", "B"),))
    finish(s)


@scenario
def pub_overtaken_by_subscriber(world: Callable[..., World]) -> None:
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


# ---------------------------------------------------------------------- joining
@scenario
def fresh_subscriber_and_ingress_failover(world: Callable[..., World]) -> None:
    """S subscribes while m0 is outstanding, gets m1, the ingress fails: m0 must not come after m1."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up(("s1", "B"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
    s.run(place=(("s0", "B"),))
    s.send("p0")
    s.run()
    s.step("crash", "A")
    s.hold.clear()
    s.run(place=(("p0", "B"),))
    finish(s)


@scenario
def aggregated_accept_without_the_lost_subscriber(world: Callable[..., World]) -> None:
    """s0, s1 at B; s1 has accepted; s0's connection drops: B's aggregated accept must not cover s0."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up(("s0", "B"), ("s1", "B"), ("p0", "A"))
    s.hold.append(("accept", "s0"))
    s.send("p0")
    s.run()
    s.notice(s.drop("s0"))
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def accept_crosses_replay(world: Callable[..., World]) -> None:
    """B's accept of m (for s1) crosses A's replay of m (for s0, who has moved to B)."""
    s = Schedule(world("AB", [P()], [S("s0", keep=False), S("s1")])).up(("s0", "A"), ("s1", "B"), ("p0", "A"))
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    s.notice(s.drop("s0"))
    # s0 joins again at B: JOIN goes to A; A's replay is on its way to B when s1 accepts
    s.hold.append(("msg", "A", "B"))
    s.step("connect", "s0", "B")
    s.run(until=lambda: "Sync" in s.waiting("B", "A"))
    s.step("accept", "s1", 0)
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def confirmed_before_everybody_knows(world: Callable[..., World]) -> None:
    """S must not be confirmed at B while A has not heard of it."""
    s = Schedule(world("AB", [P()], [S()], address=ACCEPT)).up(("p0", "A"))
    s.hold.append(("msg", "B", "A"))
    s.run(place=(("s0", "B"),))
    if s.w.subscriber("s0").confirmed:
        s.w.step(("send", "p0"))
        s.run()
    s.hold.clear()
    s.run()
    s.send("p0")
    s.run()
    finish(s)


@scenario
def joins_reordered(world: Callable[..., World]) -> None:
    """S went from D to E; D's JOIN arrives at A after E's."""
    s = Schedule(world("ADE", [P()], [S()])).up(("p0", "A"))
    s.hold += [("msg", "D", "A"), ("msg", "D", "E"), ("msg", "E", "D")]
    s.step("connect", "s0", "D")
    s.run()
    s.drop("s0")
    s.run(place=(("s0", "E"),))
    s.hold = [h for h in s.hold if isinstance(h, tuple) and h[0] == "rnotice"]
    s.run()
    s.send("p0")
    s.run()
    finish(s)


# ---------------------------------------------------------------------- recovery
@scenario
def all_routers_at_once(world: Callable[..., World]) -> None:
    """S has accepted nothing yet; every router dies; P is back first."""
    s = Schedule(world("AB", [P()], [S()], address=ACCEPT)).up(("s0", "B"), ("p0", "A"))
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    for name in "AB":
        s.step("crash", name)
    for name in "AB":
        s.step("restart", name)
    s.run()
    s.run(place=(("p0", "A"),))
    assert s.w.publisher("p0").unsettled
    s.hold.clear()
    s.run(place=(("s0", "B"),))
    finish(s)
    assert s.accepted("s0") == {("p0", 0)}


@scenario
def restarted_router_does_not_know_orphans(world: Callable[..., World]) -> None:
    """S was on C, C died; A restarts, learns of S from B and must wait for S."""
    s = Schedule(world("ABC", [P()], [S()], address=ACCEPT)).up(("s0", "C"))
    s.step("crash", "C")
    s.step("crash", "A")
    s.step("restart", "A")
    s.run()
    s.pass_time(2.0)
    s.run(place=(("p0", "A"),))
    s.send("p0")
    s.run()
    s.run(place=(("s0", "B"),))
    finish(s)


@scenario
def unresolved_not_listed(world: Callable[..., World]) -> None:
    """S resumes with an accepted delivery while its publisher is away: it must keep it."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up(("s0", "B"), ("s1", "B"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
    s.notice(s.drop("p0"))
    s.run()
    s.notice(s.drop("s0"))
    s.run(place=(("s0", "A"),))
    s.notice(s.drop("s0"))
    s.run()
    s.run(place=(("s0", "B"),))
    s.hold.clear()
    s.run(place=(("p0", "B"),))
    finish(s)


@scenario
def reused_tags_after_memory_loss(world: Callable[..., World]) -> None:
    """P loses its memory and reuses its tags while S (away) still holds the old one."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up(("s0", "B"), ("s1", "B"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
    s.notice(s.drop("s0"))
    s.step("pfresh", "p0")
    s.run(place=(("p0", "A"),))
    s.send("p0")
    s.run()
    s.hold.clear()
    s.run(place=(("s0", "A"),))
    finish(s)


@scenario
def empty_map_resumes_nothing(world: Callable[..., World]) -> None:
    """The same of a P with memory and without epochs, whose first new attach was answered, and then lost unproved."""
    s = Schedule(world("ABC", [P(kind=MEMORY)], [S("s0"), S("s1")])).up(("s0", "B"), ("s1", "B"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
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


@scenario
def stale_ingress_overtaken(world: Callable[..., World]) -> None:
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


# ---------------------------------------------------------------------- flow control
@scenario
def credit_and_resumption(world: Callable[..., World]) -> None:
    """S with window 1 resumes with accepted deliveries of a publisher that is away."""
    s = Schedule(world("AB", [P(), P("p1")], [S("s0", credit=1), S("s1")]))
    s.up(("s0", "B"), ("s1", "B"), ("p0", "A"), ("p1", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.send("p0")
    s.run()
    s.notice(s.drop("p0"))
    s.run()
    s.notice(s.drop("s0"))
    s.run()
    s.run(place=(("s0", "A"),))
    s.hold.clear()
    s.send("p1")
    s.send("p1")
    s.run()
    assert len([m for m in s.accepted("s0") if m[0] == "p1"]) == 2  # not held up by p0's absence
    s.run(place=(("p0", "B"),))
    finish(s)


@scenario
def resumptions_come_first_in_credit(world: Callable[..., World]) -> None:
    """S with window 1 resumes with two accepted deliveries of p0 while two of p1 wait for it."""
    s = Schedule(world("AB", [P(), P("p1")], [S("s0", credit=1), S("s1")]))
    s.up(("s0", "B"), ("s1", "B"), ("p0", "A"), ("p1", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.send("p0")
    s.run()
    s.notice(s.drop("s0"))
    s.run()
    s.send("p1")
    s.send("p1")
    s.run()
    s.step("connect", "s0", "A")
    s.hold.append(("c2r", s.w.clients["s0"].pipe.cid))  # type: ignore[union-attr]
    s.step("c2r", s.w.clients["s0"].pipe.cid)  # type: ignore[union-attr]
    s.run()  # its credit comes after what waits for it
    s.hold.clear()
    finish(s)


# ---------------------------------------------------------------------- partitions, expiry
@scenario
def subscribed_during_partition(world: Callable[..., World]) -> None:
    """S is confirmed at B while A is unreachable; A accepts without S; the partition heals: S must be told."""
    s = Schedule(world("AB", [P()], [S()], strict=False, address=ACCEPT)).up(("p0", "A"))
    s.step("part", "A")
    s.run()
    s.run(place=(("s0", "B"),))
    s.send("p0")
    s.run()
    s.step("heal")
    s.run()
    finish(s)
    assert s.w.checker.told


@scenario
def partition_longer_than_T(world: Callable[..., World]) -> None:
    """P at A, S at B; the partition outlasts the subscription's timeout: A gives up on S, S is told when it heals."""
    s = Schedule(world("AB", [P()], [S()], strict=False, address=SHORT)).up(("p0", "A"), ("s0", "B"))
    s.step("part", "A")
    s.run()
    s.send("p0")
    s.run()
    assert s.w.publisher("p0").unsettled
    s.pass_time(EXPIRY_S)
    s.run()
    s.step("heal")
    s.run()
    finish(s)


@scenario
def H1_silent_hole_of_availability_mode(world: Callable[..., World]) -> None:
    """... and A dies before the partition heals: nobody can tell S (PROTOCOL 14)."""
    release = AddressConfig(subscription_timeout_s=40.0, publisher_timeout_s=100.0, no_subscribers="accept")
    s = Schedule(world("AB", [P()], [S()], strict=False, address=release)).up(("p0", "A"), ("s0", "B"))
    s.step("part", "A")
    s.run()
    s.send("p0")
    s.run()
    s.pass_time(EXPIRY_S)
    s.run()
    assert not s.w.publisher("p0").unsettled
    s.step("crash", "A")
    s.step("heal")
    s.step("restart", "A")
    s.run()
    finish(s)
    assert s.w.checker.holes == 1


@scenario
def expiry_seen_differently(world: Callable[..., World]) -> None:
    """A forgets S a moment before B would; A dies; S comes back to B at that very moment."""
    accept = AddressConfig(subscription_timeout_s=40.0, publisher_timeout_s=100.0, no_subscribers="accept")
    s = Schedule(world("AB", [P()], [S(kind=MEMORY)], strict=False, address=accept)).up(("p0", "A"), ("s0", "A"))
    old = s.drop("s0")
    s.hold.append(("msg", "A", "B"))
    s.notice(old)  # A starts the clock ...
    s.send("p0")
    s.pass_time(4.0)  # ... B hears of it (bounded delay) later
    s.hold.clear()
    s.run()
    s.pass_time(36.5)  # past T at A, not yet at B
    s.run()
    s.step("crash", "A")
    s.run()
    s.run(place=(("s0", "B"),))
    s.run(place=(("p0", "B"),))
    finish(s)
    assert not s.w.checker.holes, "hole: S missed a message and nobody told it"


@scenario
def publisher_expired_before_subscribers(world: Callable[..., World]) -> None:
    """B must not give up on P (and settle at S) while A, cut off, still waits for S."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up(("p0", "A"), ("s1", "A"), ("s0", "B"))
    s.hold += [("accept", "s1"), ("msg", "B", "A")]
    s.send("p0")
    s.run()
    s.step("part", "A")
    s.hold = [("accept", "s1")]
    s.run()
    s.pass_time(35.0)
    s.run()
    s.step("heal")
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def publisher_works_at_the_other_side(world: Callable[..., World]) -> None:
    """P, S1 at A, S0 at B, where all that is known of P is that it has been away for longer than its timeout: A has
    accepted nothing yet, so that S0 has missed nothing, and P still has m0, which S0 has accepted."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up(("s0", "B"), ("s1", "A"), ("p0", "A"))
    s.hold += [("accept", "s1"), ("msg", "B", "A")]
    s.send("p0")
    s.run()
    s.step("part", "A")
    s.run()
    s.pass_time(PUBLISHER_EXPIRY_S)
    s.run()
    s.step("heal")
    s.release(("msg", "B", "A"))
    s.run()
    assert not s.w.checker.told
    finish(s)


@scenario
def publisher_back_at_the_other_side(world: Callable[..., World]) -> None:
    """P is away for almost its timeout, and comes back to A when that has just lost B, where S0 is: A still knows S0
    when they meet again."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up(("s0", "B"), ("s1", "A"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
    s.notice(s.drop("p0"))
    s.run()
    s.pass_time(90.0)
    s.step("part", "A")
    s.run(place=(("p0", "A"),))
    s.pass_time(20.0)
    s.run()
    s.step("heal")
    s.run()
    assert not s.w.checker.told
    finish(s)


@scenario
def router_that_stood_still_has_seen_nobody(world: Callable[..., World]) -> None:
    """P leaves B, which then stands still until others have given it up, and P goes on at A. When B goes on it looks at
    its clock first, which has come further than P's timeout; S0 has waited for it all the while."""
    w = Wild("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT, heartbeat_s=0.5, dead_after_s=3.0)
    s = Schedule(w).up(("s0", "B"), ("s1", "A"), ("p0", "B"))
    s.hold += [("accept", "s1"), ("cquit",)]
    s.send("p0")
    s.run()
    s.notice(s.drop("p0"))
    s.run()
    s.step("still", "B")
    s.pass_time(5.0)
    s.run(place=(("p0", "A"),))
    assert s.accepted("s0") == {("p0", 0)}
    s.pass_time(PUBLISHER_EXPIRY_S)
    s.run()
    s.step("wake", "B", True)
    s.run()
    s.pass_time(5.0)
    s.run()
    assert not w.checker.told
    finish(s)


@scenario
def map_of_a_publisher_that_was_elsewhere(world: Callable[..., World]) -> None:
    """P, away for B since that was cut off, works at A until A dies. B has counted P's absence all the while when S0
    comes with what it has accepted a moment ago, and has it before P comes."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.up(("s0", "A"), ("s1", "A"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.step("part", "A")
    s.run()
    s.pass_time(90.0)
    s.send("p0")
    s.run()
    assert s.accepted("s0") == {("p0", 0)}
    s.step("crash", "A")
    s.run(place=(("s0", "B"),))
    s.step("heal")
    s.step("restart", "A")
    s.run()
    s.pass_time(20.0)
    s.run()
    s.run(place=(("p0", "B"),))
    assert not s.w.checker.told
    finish(s)


# ---------------------------------------------------------------------- incarnations chosen by routers
def _phantom(world: Callable[..., World], names: str) -> Schedule:
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
def incarnation_never_goes_back(world: Callable[..., World]) -> None:
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
def L1_plain_incarnation_unknown_to_the_other_side(world: Callable[..., World]) -> None:
    """Limit (PROTOCOL 14): P is resumed at C as the wrong incarnation before the partition heals, and S comes too."""
    s = _phantom(world, "AC")
    s.run(place=(("p0", "C"),))
    s.drop("s0")
    _limit("G2", lambda: s.run(place=(("s0", "C"),)))


@scenario
def L2_memory_lost_before_the_claim(world: Callable[..., World]) -> None:
    """Limit (docs/decisions/core-in-ranges.md): P keeps a map but brings no incarnation. It loses its memory and sends
    with the credit of 5.1, the connection breaks before the router has read that, and the map that P then presents
    passes for its former self's: its tag matches the old delivery."""
    s = Schedule(world("AB", [P(kind=MEMORY)], [S("s0"), S("s1")])).up(("s0", "B"), ("s1", "B"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
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
    _limit("G1", lambda: finish(s))


@scenario
def closed_publisher_and_old_ingress(world: Callable[..., World]) -> None:
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


# ---------------------------------------------------------------------- standard clients
@scenario
def no_map_is_not_an_empty_map(world: Callable[..., World]) -> None:
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S("s0"), S("s1")])).up(("s0", "B"), ("s1", "B"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
    s.notice(s.drop("p0"))
    s.run()
    s.run(place=(("p0", "B"),))
    s.hold.clear()
    finish(s)


@scenario
def flush_by_an_abandoned_ingress(world: Callable[..., World]) -> None:
    """P is back at A (cut off), leaves unnoticed without re-sending; publisher_timeout passes there."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S("s0"), S("s1")], strict=False))
    s.up(("s0", "A"), ("s1", "B"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
    s.notice(s.drop("p0"))
    s.step("part", "A")
    s.run()
    transfers_to_a = lambda e, w: (  # noqa: E731
        e[0] == "c2r" and w.pipes[e[1]].router == "A" and s.next_frame(e[1]) == "transfer"
    )
    s.hold.append(transfers_to_a)
    s.step("connect", "p0", "A")
    pipe = s.w.clients["p0"].pipe
    assert pipe is not None
    s.hold.append(("r2c", pipe.cid))
    s.run()
    s.pass_time(2.5)
    s.step("hb", "p0")
    s.run()
    s.hold.remove(("r2c", pipe.cid))
    s.drop("p0")
    s.pass_time(121.0)  # A would flush now; B, where P is homeless a little longer, waits 4 s more (8.4)
    s.run(place=(("p0", "B"),))
    s.step("heal")
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def transfer_sent_before_the_question(world: Callable[..., World]) -> None:
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()], strict=False)).up(("s0", "B"), ("p0", "A"))
    cid = s.w.clients["p0"].pipe.cid  # type: ignore[union-attr]
    s.hold.append(("c2r", cid))
    s.step("part", "A")
    s.run()
    s.send("p0")
    old = s.drop("p0")
    s.run(place=(("p0", "B"),))
    s.drop("s0")
    s.run(place=(("s0", "A"),))
    s.hold.remove(("c2r", old))
    s.run()
    s.step("heal")
    s.hold.clear()
    finish(s)


@scenario
def flow_without_credit_before_the_question(world: Callable[..., World]) -> None:
    """P's credit at A is taken back while m0 is under way, and P shows that it has none: as much as the question asks
    for. A reads that when P works at B, where m0 is settled, and S has crossed over."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False)).up(("s1", "A"), ("p0", "A"))
    old = s.w.clients["p0"].pipe.cid  # type: ignore[union-attr]
    s.hold.append(("c2r", old))
    s.send("p0")
    s.step("close", "s1")
    s.run()
    s.step("show", "p0")
    s.step("part", "A")
    s.run()
    s.drop("p0")
    s.run(place=(("s0", "B"),))
    s.run(place=(("p0", "B"),))
    assert s.accepted("s0") == {("p0", 0)}
    assert not s.w.publisher("p0").unsettled
    s.drop("s0")
    s.run(place=(("s0", "A"),))
    s.release(("c2r", old))
    s.run()
    finish(s)


@scenario
def heartbeat_sent_before_the_question(world: Callable[..., World]) -> None:
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()], strict=False)).up(("s0", "B"))
    s.step("connect", "p0", "A")
    s.run(until=lambda: s.w.clients["p0"].state == "on")
    old = s.w.clients["p0"].pipe.cid  # type: ignore[union-attr]
    s.hold += [("accept",), ("c2r", old)]
    s.send("p0")
    s.step("hb", "p0")
    s.step("c2r", old)  # the transfer claims; the heartbeat waits behind it
    s.run()
    s.step("part", "A")
    s.run()
    s.drop("p0")
    s.hold.remove(("accept",))
    s.run(place=(("p0", "B"),))
    s.drop("s0")
    s.run(place=(("s0", "A"),))
    s.hold.remove(("c2r", old))
    s.run()
    s.step("heal")
    s.hold.clear()
    finish(s)


@scenario
def answer_says_since_when(world: Callable[..., World]) -> None:
    """S (no map) subscribed during a partition; the answer that told it of the gap got lost."""
    s = Schedule(world("AB", [P()], [S(kind=PLAIN)], strict=False, address=ACCEPT)).up(("p0", "B"))
    s.step("part", "A")
    s.run()
    s.run(place=(("s0", "A"),))
    s.send("p0")
    s.run()
    s.notice(s.drop("s0"))
    s.run()
    s.step("heal")
    s.run()
    s.step("connect", "s0", "B")
    s.hold.append(("r2c", s.w.clients["s0"].pipe.cid))  # type: ignore[union-attr]
    s.run()
    s.notice(s.drop("s0"))
    s.run()
    s.hold.clear()
    s.run(place=(("s0", "A"),))
    finish(s)


@scenario
def mark_that_came_after_the_answer(world: Callable[..., World]) -> None:
    """S (no map) is told of the gap in an answer that it never reads. A is out of reach when it is answered again; when
    it is back, it knows S, and since when."""
    s = Schedule(world("AB", [P()], [S(kind=PLAIN)], strict=False, address=ACCEPT)).up(("p0", "A"))
    s.step("part", "A")
    s.run()
    s.run(place=(("s0", "B"),))
    s.send("p0")
    s.run()
    s.notice(s.drop("s0"))
    s.step("heal")
    s.run()
    s.step("connect", "s0", "B")
    s.hold.append(("r2c", s.w.clients["s0"].pipe.cid))  # type: ignore[union-attr]
    s.run()
    s.step("part", "A")
    s.run()
    s.notice(s.drop("s0"))
    s.hold.clear()
    s.run(place=(("s0", "B"),))
    assert s.w.checker.missed
    assert not s.w.checker.told
    s.step("heal")
    s.run()
    finish(s)
    assert s.w.checker.told == [("s0", "interrupted")]


@scenario
def entry_of_a_stale_attach_is_no_knowledge(world: Callable[..., World]) -> None:
    s = Schedule(world("AB", [P()], [S()], strict=False, address=ACCEPT)).up(("p0", "A"))
    s.step("connect", "s0", "A")
    old = s.w.clients["s0"].pipe.cid  # type: ignore[union-attr]
    s.hold.append(("c2r", old))
    s.drop("s0")
    s.step("part", "A")
    s.run()
    s.run(place=(("s0", "B"),))
    s.send("p0")
    s.run()
    s.hold.remove(("c2r", old))
    s.run()
    s.step("heal")
    s.run()
    finish(s)


@scenario
def repeats_dropped_by_tag(world: Callable[..., World]) -> None:
    """S (no map) has accepted m0; the ingress dies before S's egress relays it; P re-sends."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S(kind=PLAIN), S("s1")])).up(("s0", "B"), ("s1", "B"), ("p0", "A"))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
    s.step("crash", "A")
    s.notice(s.drop("s0"))
    s.run()
    s.run(place=(("s0", "B"),))
    s.run(place=(("p0", "B"),))
    s.hold.clear()
    finish(s)


@scenario
def attach_and_detach_read_late(world: Callable[..., World]) -> None:
    """P gives up waiting for A (attach, then detach, then another router); A reads both later."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()], strict=False)).up(("s0", "B"))
    s.step("connect", "p0", "A")
    publisher = s.w.publisher("p0")
    assert publisher.pipe is not None
    old = publisher.pipe.cid
    s.hold.append(("c2r", old))
    publisher.link.detach(None, closed=True)
    publisher.flush()
    s.drop("p0")
    s.run(place=(("p0", "B"),))
    s.hold.append(("msg", "B", "A"))
    s.send("p0")
    s.run()
    s.hold.append(("r2c", s.w.clients["p0"].pipe.cid))  # type: ignore[union-attr]
    s.hold.remove(("msg", "B", "A"))
    s.hold.remove(("c2r", old))
    s.run()
    s.hold.clear()
    s.run(place=(("p0", "B"),))
    finish(s)


# ---------------------------------------------------------------------- all maps return to empty (9)
@scenario
def address_is_forgotten_with_its_last_subscription(world: Callable[..., World]) -> None:
    """The publisher is forgotten before the subscription leaves."""
    s = Schedule(world("AB", [P()], [S()], address=SHORT)).up(("s0", "B"), ("p0", "A"))
    s.step("close", "p0")
    s.run()
    s.pass_time(106.0)
    s.step("close", "s0")
    s.run()
    assert not any(s.w.site(name).router.core.addresses for name in "AB")


@scenario
def address_is_forgotten_with_a_publisher_that_proved_nothing(world: Callable[..., World]) -> None:
    s = Schedule(world("A", [P(kind=UNIQUE)], [])).up()
    s.step("connect", "p0", "A")
    s.run()
    s.notice(s.drop("p0"))
    s.run()
    assert not s.w.site("A").router.core.addresses


# ---------------------------------------------------------------------- conditions easy to lose (11, below the table)
@scenario
def synced_under_an_unknown_set(world: Callable[..., World]) -> None:
    """P, who presents no map, claims while S is there: S is in its stream from the first message on (5.5)."""
    s = Schedule(world("AB", [P(kind=UNIQUE)], [S()])).up(("s0", "B"), ("p0", "A"))
    s.hold.append(("accept",))
    s.send("p0")
    s.run()
    s.hold.clear()
    finish(s)


def _publisher_reads_nothing(s: Schedule) -> None:
    """It has credit, and answers no question before `hold` is cleared."""
    pipe = s.w.clients["p0"].pipe
    assert pipe is not None
    s.hold.append(("r2c", pipe.cid))


@scenario
def orphan_is_covered_nowhere(world: Callable[..., World]) -> None:
    """S leaves B and is back there; until A has synchronised it, B's other subscription is not its neighbour's word
    (8.1)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up(("s0", "B"), ("s1", "B"), ("p0", "A"))
    _publisher_reads_nothing(s)
    s.notice(s.drop("s0"))
    s.run()
    s.run(place=(("s0", "B"),))
    s.send("p0")
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def lost_router_covers_nothing(world: Callable[..., World]) -> None:
    """The session of A and B ends and begins again, S stays at B: nothing flows before A has synchronised it (8.6)."""
    s = Schedule(world("AB", [P()], [S()])).up(("s0", "B"), ("p0", "A"))
    _publisher_reads_nothing(s)
    s.step("suspect", "A", "B")
    s.run()
    s.send("p0")
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def covered_neighbour_does_not_cover(world: Callable[..., World]) -> None:
    """S moves to B, where s1 gets the stream already; S does not, until A has synchronised it (6.1)."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")])).up(("s0", "C"), ("s1", "B"), ("p0", "A"))
    _publisher_reads_nothing(s)
    s.notice(s.drop("s0"))
    s.run(place=(("s0", "B"),))
    s.send("p0")
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def leave_of_an_earlier_subscription(world: Callable[..., World]) -> None:
    """S unsubscribes at B and subscribes anew at C; B's LEAVE reaches A after C's JOIN (8.2)."""
    s = Schedule(world("ABC", [P()], [S("s0")], address=ACCEPT)).up(("s0", "B"), ("p0", "A"))
    s.hold.append(("msg", "B", "A"))
    subscriber = s.w.subscriber("s0")
    s.w.checker.closed("s0")
    subscriber.link.detach(None, closed=True)
    subscriber.flush()
    s.run(until=lambda: s.waiting("A", "B") == ["Leave"])
    subscriber.want_fresh = True
    s.drop("s0")
    s.step("connect", "s0", "C")
    s.run(until=lambda: subscriber.confirmed)
    s.hold.clear()
    s.run()
    s.send("p0")
    s.run()
    finish(s)


@scenario
def pubdown_of_an_earlier_ingress(world: Callable[..., World]) -> None:
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
def answer_to_an_earlier_question(world: Callable[..., World]) -> None:
    """P has answered the question that A asked for s1, and is at B by the time A reads that; meanwhile S has crossed
    over to A (5.7)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False)).up(("s0", "B"), ("s1", "A"), ("p0", "A"))
    s.hold.append(("msg", "B", "A"))
    s.send("p0")
    s.run(until=lambda: bool(s.accepted("s0")) and bool(s.accepted("s1")))
    s.run()
    s.notice(s.drop("s1"))
    s.release(("msg", "B", "A"))
    s.hold.append(s.next_is("Accept"))
    cid = s.w.clients["p0"].pipe.cid  # type: ignore[union-attr]
    s.hold.append(("c2r", cid))
    s.run(place=(("s1", "A"),))
    assert s.next_frame(cid) == "flow"  # the answer
    s.step("close", "s1")
    s.run()
    s.step("part", "A")
    s.run()
    old = s.drop("p0")
    s.run(place=(("p0", "B"),))
    assert not s.w.subscriber("s0").unsettled
    s.drop("s0")
    s.run(place=(("s0", "A"),))
    s.release(("c2r", old))
    s.run()
    finish(s)


@scenario
def taken_before_the_subscription_was_known(world: Callable[..., World]) -> None:
    """A restarts and takes a message before it has a session with B, which knows S (4.3)."""
    s = Schedule(world("AB", [P()], [S()], address=ACCEPT)).up(("s0", "B"))
    s.step("crash", "A")
    s.step("restart", "A")
    s.hold += [("up", "A", "B"), ("accept",)]
    s.run()
    s.pass_time(1.5)  # A has waited for B long enough
    s.run(place=(("p0", "A"),))
    s.send("p0")
    s.run()
    s.hold.clear()
    s.run()
    finish(s)


@scenario
def stream_of_an_ended_session(world: Callable[..., World]) -> None:
    """m0 is sent while A and B are apart; together again, s1 subscribes at B and m1 flows there before A has
    synchronised S, which must not take it from s1's stream (10.3)."""
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")])).up(("s0", "B"), ("p0", "A"))
    s.step("part", "A")
    s.run()
    _publisher_reads_nothing(s)
    s.send("p0")
    s.run()
    s.step("heal")
    s.run()
    s.run(place=(("s1", "B"),))
    s.send("p0")
    s.run()
    s.hold.clear()
    finish(s)


@scenario
def resumed_where_the_mark_is_another(world: Callable[..., World]) -> None:
    """B has accepted something before S (with memory, without epochs) subscribed, A has not: B's mark is no reason for
    A to think that S is somebody else when it resumes at B."""
    s = Schedule(world("AB", [P(), P("p1")], [S(kind=MEMORY)], address=ACCEPT)).up(("p0", "B"), ("p1", "A"))
    s.send("p0")
    s.run()
    s.run(place=(("s0", "A"),))
    s.hold.append(("settle",))
    s.send("p1")
    s.run()
    s.notice(s.drop("s0"))
    assert s.w.subscriber("s0").unsettled
    s.run(place=(("s0", "B"),))
    finish(s)


@scenario
def two_attaches_of_one_moment(world: Callable[..., World]) -> None:
    """S attaches, gives up and attaches again while A boots: A takes both in the same microsecond, and the second must
    have the later term all the same, because the first one's JOIN has been heard by A itself (3.3)."""
    s = Schedule(world("AB", [P()], [S(kind=PLAIN)], address=ACCEPT)).up(("s0", "A"), ("p0", "B"))
    s.step("crash", "A")
    s.step("restart", "A")
    boots = [("up", "A", "B"), ("msg", "B", "A")]
    s.hold += boots
    s.run()
    for _ in range(2):
        s.step("connect", "s0", "A")
        s.step("c2r", s.w.clients["s0"].pipe.cid)  # type: ignore[union-attr]
        if s.w.numbers["s0"] == 2:
            s.drop("s0")
    s.send("p0")
    s.run()
    s.release(*boots)
    s.run()
    finish(s)
