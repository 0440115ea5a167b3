"""How a named schedule is written: the verbs that it needs over a `World`, and beginnings that several have in common.

`holds` are the events that a schedule keeps from happening: a tuple is the beginning of an event, a function gets
(event, world). `run` lets everything happen that is not held, in a fixed order; applications send, and clients connect,
only when the schedule says so. Verbs return the schedule: `s.lose("p0").attach("p0@B").finish()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.simulation.world.checker import Violation
from chaos.simulation.world.clients import UNIQUE
from chaos.simulation.world.pipes import kind_of
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.subscribers import Subscriber
from chaos.simulation.world.world import Event, World
from interrouter.events import PeerMessage
from router.config import AddressConfig
from router.peers.wire import decode

Worlds = Callable[..., World]
Hold = tuple[Any, ...] | Callable[[Event, World], bool]
BOUND = 5000  # events, in which everything must have happened

SHORT = AddressConfig(subscription_timeout_s=40.0, publisher_timeout_s=100.0)  # margin 5 s
EXPIRY_S = 46.0
PUBLISHER_EXPIRY_S = 106.0
ACCEPT = AddressConfig(no_subscribers="accept")


class Schedule:
    def __init__(self, world: World) -> None:
        self.w = world
        self.holds: list[Hold] = []

    # ------------------------------------------------------------------ holding events back
    def hold(self, *holds: Hold) -> Schedule:
        self.holds += holds
        return self

    def release(self, *holds: Hold) -> Schedule:
        """These, or all."""
        for hold in holds or [*self.holds]:
            self.holds.remove(hold)
        return self

    def hold_only(self, kind: str) -> Schedule:
        """Of what is held, only the events of this kind stay so."""
        self.holds = [hold for hold in self.holds if isinstance(hold, tuple) and hold[0] == kind]
        return self

    def is_held(self, event: Event) -> bool:
        return any(h(event, self.w) if callable(h) else event[: len(h)] == h for h in self.holds)

    # ------------------------------------------------------------------ letting them happen
    def run(
        self, until: Callable[[], bool] | None = None, place: tuple[tuple[str, str], ...] = (), sends: bool = False
    ) -> Schedule:
        """Runs until nothing more can happen, or `until` holds. place: (client, router) pairs that connect while they
        are off; sends: publishers send whenever they can."""
        for _ in range(BOUND):
            if until is not None and until():
                return self
            events = [e for e in self.w.enabled() if sends or e[0] != "send"]
            events += [("connect", *p) for p in place if self.w.clients[p[0]].state == "off" and self.w.sites[p[1]]]
            if self.holds:
                events = [e for e in events if not self.is_held(e)]
            if not events:
                assert until is None, "nothing can happen, and what was waited for has not\n" + self.tail()
                return self
            self.w.step(events[0])
        raise AssertionError("the schedule does not settle\n" + self.tail())

    def attach(self, *places: str) -> Schedule:
        """Everything happens, and these clients, which are off, attach: "client@router"."""
        return self.run(place=tuple(pair(place) for place in places))

    def up(self, *places: str) -> Schedule:
        """The network finds together, then the clients attach one after the other."""
        self.run()
        for place in places:
            self.attach(place)
            client = self.w.clients[pair(place)[0]]
            assert client.state != "off", f"{place} is not attached: {self.tail()}"
            if isinstance(client, Publisher):  # its router learns that it is there, also without an echo
                self.step("show", client.name).run()
        return self

    def step(self, *event: Any) -> Schedule:
        self.w.step(event)
        return self

    def reload(self, names: str, **changes: Any) -> Schedule:
        """The topology files of these routers change, and they are told."""
        for name in names:
            self.step("reload", name, changes)
        return self

    def send(self, publisher: str, times: int = 1) -> Schedule:
        for _ in range(times):
            self.step("send", publisher)
        return self

    def drop(self, client: str) -> tuple[str, int]:
        """The client loses its connection; the router does not know yet."""
        cid = self.cid(client)
        self.step("cdrop", cid)
        if self.w.pipes[cid].r_open and ("rnotice", cid) not in self.holds:
            self.hold(("rnotice", cid))
        return cid

    def notice(self, cid: tuple[str, int]) -> Schedule:
        """The router learns of it."""
        if ("rnotice", cid) in self.holds:
            self.release(("rnotice", cid))
        return self.step("rnotice", cid) if cid in self.w.pipes and self.w.pipes[cid].r_open else self

    def lose(self, client: str) -> Schedule:
        """The client loses its connection, and its router learns of it at once."""
        return self.notice(self.drop(client))

    def pass_time(self, seconds: float) -> Schedule:
        self.w.advance(seconds)
        return self

    def finish(self, **totals: int) -> None:
        """The publishers send no more than this; everything drains."""
        for publisher in self.w.publishers:
            publisher.total = totals.get(publisher.name, publisher.seq)
        self.end()

    def end(self, limit_s: float = 600.0) -> None:
        """Faults stop: everybody comes back, everything drains (G4), nobody missed anything silently (G5)."""
        self.release()
        w = self.w
        w.step(("heal",))
        for name in w.names:
            if w.sites[name] is None:
                w.step(("restart", name))
        waited = 0.0
        while True:
            place = tuple((c.name, w.names[i % len(w.names)]) for i, c in enumerate(w.clients.values()) if not c.closed)
            self.run(place=place, sends=True)
            if not w.left_over():
                break
            if waited >= limit_s:
                raise Violation("G4 left over: " + "; ".join(w.left_over()) + "\n" + self.tail())
            w.advance(1.0)
            waited += 1.0
            for client in w.clients.values():
                if client.kind == UNIQUE and client.state == "on":
                    self.step("hb", client.name)
        w.quiescent()

    # ------------------------------------------------------------------ looking
    def cid(self, client: str) -> tuple[str, int]:
        """The client's connection."""
        pipe = self.w.clients[client].pipe
        assert pipe is not None
        return pipe.cid

    def accepted(self, subscriber: str) -> set[tuple[str, int]]:
        return self.w.checker.accepted_by(subscriber)

    def next_frame(self, cid: tuple[str, int]) -> str:
        pipe = self.w.pipes.get(cid)
        return kind_of(pipe.c2r[0]) if pipe is not None and pipe.c2r else ""

    def waiting(self, x: str, y: str) -> list[str]:
        """The kinds of the messages from y that router x has not processed yet, in order."""
        site = self.w.sites[x]
        inbox = site.inbox[y] if site is not None else ()
        return [type(decode(e.data)).__name__ for e in inbox if isinstance(e, PeerMessage)]

    def next_is(self, kind: str) -> Callable[[Event, World], bool]:
        """A hold for messages of this kind at the head of their stream."""
        return lambda e, w: e[0] == "msg" and self.waiting(e[2], e[1])[:1] == [kind]

    def tail(self) -> str:
        return "\n".join(self.w.transcript[-60:])


def pair(place: str) -> tuple[str, str]:
    client, _, router = place.partition("@")
    return client, router


def wider(world: Worlds, kind: type[World]) -> Worlds:
    """For schedules that need more than a plain world has."""
    return kind if world is World else world


def P(name: str = "p0", kind: str = "recovering") -> Publisher:
    return Publisher(name, kind)


def S(name: str = "s0", kind: str = "recovering", **options: Any) -> Subscriber:
    return Subscriber(name, kind, **options)


def limit(guarantee: str, do: Callable[[], object]) -> None:
    """What is documented as not promised does break this guarantee here."""
    try:
        do()
    except AssertionError as violation:
        if str(violation).startswith(guarantee):
            return
        raise
    raise AssertionError("this limit is no more: say so where it is documented")


def half_accepted(
    world: Worlds, s0: str, s1: str, p0: str, *, names: str = "AB", publisher: Publisher | None = None,
    subscriber: Subscriber | None = None, **options: Any,
) -> Schedule:  # fmt: skip
    """All three at these routers. s0 has accepted m0; s1 has it in hand, and accepts nothing until it is released, so
    that P has not been told."""
    s = Schedule(world(names, [publisher or P()], [subscriber or S("s0"), S("s1")], **options))
    s.up(f"s0@{s0}", f"s1@{s1}", f"p0@{p0}")
    return s.hold(("accept", "s1")).send("p0").run()
