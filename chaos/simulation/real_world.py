"""What happens to the library's own clients in a simulated world, beside what `world.py` knows. Events, as tuples:

disk C          the journal of C gets as far as the first that waits for it
kill C K        the process of C is killed; K of its journal's pending writes are on the disk nevertheless
full C          the disk of C has no room left: its process is told, and stops
start C         a process of C is started again                    twin C    a second one, while the first goes on
clock N S       the clock of client or router N jumps by S seconds away N    passes, while N is gone, for too long
all C           the application of C accepts all that it has       reject C I  ... rejects
still C         the process of C stands still (suspended): it reads, writes and notices nothing. Its router hears
                nothing of it any more, and gives it up (rnotice)
wake C          it goes on, with what was written to it before     late C   ... when it has stood still for too long
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaos.simulation.frames import kind_of
from chaos.simulation.real_clients import RealClient, RealPublisher, RealSubscriber
from chaos.simulation.world import Event, World

ASKING = ("begin", "end", "heartbeat")
OF_ROUTERS = ("up", "down", "msg")  # what happens between routers
STEP_S = 0.4  # how late timers of clients may be
# What takes part in by itself or by its application, and not while it stands still. What is done to it goes on.
OF_PROCESS = frozenset((
    "r2c", "cbit", "cnotice", "cdrop", "cquit", "disk", "full", "send", "settle", "accept", "all", "release", "reject",
    "close", "connect", "pfresh", "sfresh",
))  # fmt: skip


class RealWorld(World):
    def __init__(self, *arguments: Any, seed: int = 1, **named: Any) -> None:
        super().__init__(*arguments, seed=seed, **named)
        self._ours = [client for client in self.clients.values() if isinstance(client, RealClient)]
        self.unusual = bool(self._ours)
        for client in self.ours():
            client.seed = seed

    def ours(self) -> list[RealClient]:
        return self._ours

    def one(self, name: str) -> RealClient:
        client = self.clients[name]
        assert isinstance(client, RealClient)
        return client

    def besides(self, events: list[Event]) -> list[Event]:
        for client in self._ours:
            client.goes_on(events)
            if client.still and client.pipe is not None and client.pipe.r_open:
                events.append(("rnotice", client.pipe.cid))
        return self.awake(events)

    def awake(self, events: list[Event]) -> list[Event]:
        """Without what processes that stand still would have to do."""
        still = [client.name for client in self._ours if client.still]
        if not still:
            return events
        return [event for event in events if event[0] not in OF_PROCESS or subject(event) not in still]

    def do_show(self, name: str) -> None:
        if not isinstance(self.clients[name], RealClient):  # ours show by themselves that they are there
            super().do_show(name)

    def do_disk(self, name: str) -> None:
        self.one(name).disk()

    def do_kill(self, name: str, keep: int) -> None:
        self.one(name).kill(keep)

    def do_full(self, name: str) -> None:
        self.one(name).fill()

    def do_start(self, name: str) -> None:
        self.one(name).start()

    def do_twin(self, name: str) -> None:
        twin = self.one(name).twin
        assert twin is not None
        twin.start()

    def do_clock(self, name: str, seconds: int) -> None:
        if name in self.clients:
            self.one(name).set_clock(seconds)
        else:
            self.wall_offset[name] += seconds * 1_000_000

    def do_away(self, name: str) -> None:
        """Longer than the network waits for anybody."""
        end = self.now + self.address.publisher_expires_s + self.address.margin_s + 1
        while self.now < end:
            self.advance(STEP_S)
            self.answer()

    def answer(self) -> None:
        """Those who are there ask whether the network is, and are answered, or send heartbeats; routers hear of it."""
        for cid, pipe in list(self.pipes.items()):
            client = pipe.client
            if not isinstance(client, RealClient):
                readable = pipe.r_open and not pipe.c2r and self.sites[pipe.router] is not None
                if readable and client.pipe is pipe and (not pipe.server.output_paused or pipe.server.reads):
                    client.heartbeat()
                    self.do_c2r(cid)
                    self.settle_one(pipe.router)
                continue
            while pipe.r_open and pipe.c2r and not pipe.c2r_read and kind_of(pipe.c2r[0]) in ASKING:
                self.do_c2r(cid)
                self.settle_one(pipe.router)
            while pipe.c_open and pipe.r2c and not pipe.r2c_read and kind_of(pipe.r2c[0]) in ASKING:
                if pipe.stalled or client.still:
                    break
                self.do_r2c(cid)

        while events := [event for event in self.enabled() if event[0] in OF_ROUTERS]:
            getattr(self, "do_" + events[0][0])(*events[0][1:])
            self.settle_network()

    def do_still(self, name: str) -> None:
        self.one(name).still = True

    def do_wake(self, name: str) -> None:
        self.one(name).still = False

    def do_late(self, name: str) -> None:
        self.do_away(name)
        self.do_wake(name)

    def do_all(self, name: str) -> None:
        client = self.one(name)
        assert isinstance(client, RealSubscriber)
        client.accept_all()

    def do_reject(self, name: str, index: int) -> None:
        client = self.one(name)
        assert isinstance(client, RealSubscriber)
        client.reject(index)

    # ------------------------------------------------------------------ time
    def advance(self, seconds: float, step: float = STEP_S) -> None:
        if not self.ours():
            super().advance(seconds)
            return
        end = self.now + seconds
        while self.now < end:
            super().advance(min(step, STEP_S, end - self.now), step)
            self.tick_ours()

    def stand_still(self, seconds: float) -> None:
        super().stand_still(seconds)
        self.tick_ours()

    def tick_ours(self) -> None:
        for client in self.ours():
            client.tick()

    # ------------------------------------------------------------------ at the end
    def undone(self) -> Iterator[str]:
        yield from super().undone()
        for client in self.ours():
            assert isinstance(client, RealPublisher | RealSubscriber)
            yield from client.left_over()

    def drained(self) -> None:
        super().drained()
        left = [text for client in self.ours() if client.state != "down" for text in client.empty()]
        assert not left, "G4 left over: " + "; ".join(left)


def subject(event: Event) -> str:
    """The client that an event is about."""
    name: str = event[1][0] if isinstance(event[1], tuple) else event[1]
    return name
