"""How a named schedule is written: the few verbs it needs over a `World`.

`hold` keeps events from happening: tuples are prefixes of events, functions get (event, world). `run` lets everything
happen that is not held, in a fixed order; the applications send, and clients connect, only when the schedule says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.simulation.checker import Violation
from chaos.simulation.clients import UNIQUE
from chaos.simulation.frames import kind_of
from chaos.simulation.publishers import Publisher
from chaos.simulation.world import Event, World
from interrouter.events import PeerMessage
from router.wire import decode

Hold = tuple[Any, ...] | Callable[[Event, World], bool]
BOUND = 5000


class Schedule:
    def __init__(self, world: World) -> None:
        self.w = world
        self.hold: list[Hold] = []

    def held(self, event: Event) -> bool:
        return any(h(event, self.w) if callable(h) else event[: len(h)] == h for h in self.hold)

    def release(self, *holds: Hold) -> None:
        for hold in holds:
            self.hold.remove(hold)

    def run(
        self, until: Callable[[], bool] | None = None, place: tuple[tuple[str, str], ...] = (), sends: bool = False
    ) -> None:
        """Until nothing more can happen, or `until` holds. place: (client, router) pairs that connect while they are
        off; sends: publishers send whenever they can."""
        for _ in range(BOUND):
            if until is not None and until():
                return
            events = [e for e in self.w.enabled() if sends or e[0] != "send"]
            events += [("connect", *p) for p in place if self.w.clients[p[0]].state == "off" and self.w.sites[p[1]]]
            if self.hold:
                events = [e for e in events if not self.held(e)]
            if not events:
                assert until is None, "nothing can happen, and what was waited for has not\n" + self.tail()
                return
            self.w.step(events[0])
        raise AssertionError("the schedule does not settle\n" + self.tail())

    def tail(self) -> str:
        return "\n".join(self.w.transcript[-60:])

    def up(self, *place: tuple[str, str]) -> Schedule:
        """The network finds together, then the clients attach one after the other."""
        self.run()
        for pair in place:
            self.run(place=(pair,))
            client = self.w.clients[pair[0]]
            assert client.state != "off", f"{pair} is not attached: {self.tail()}"
            if isinstance(client, Publisher):
                self.step("show", client.name)  # so that its router knows that it is there, also without an echo
                self.run()
        return self

    def step(self, *event: Any) -> None:
        self.w.step(event)

    def send(self, publisher: str) -> None:
        self.step("send", publisher)

    def drop(self, client: str) -> tuple[str, int]:
        """The client loses its connection; the router does not know yet."""
        pipe = self.w.clients[client].pipe
        assert pipe is not None
        self.step("cdrop", pipe.cid)
        if pipe.r_open and ("rnotice", pipe.cid) not in self.hold:
            self.hold.append(("rnotice", pipe.cid))
        return pipe.cid

    def notice(self, cid: tuple[str, int]) -> None:
        """Now it does."""
        if ("rnotice", cid) in self.hold:
            self.hold.remove(("rnotice", cid))
        if cid in self.w.pipes and self.w.pipes[cid].r_open:
            self.step("rnotice", cid)

    def pass_time(self, seconds: float) -> None:
        self.w.advance(seconds)

    def accepted(self, subscriber: str) -> set[tuple[str, int]]:
        return self.w.checker.ever_accepted.get(subscriber, set())

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

    def end(self, limit_s: float = 600.0) -> None:
        """Faults stop: everybody comes back, everything drains (G4), nobody missed anything silently (G5)."""
        self.hold.clear()
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
