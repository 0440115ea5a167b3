"""A simulated network with a shape and every fault that random schedules draw.

Beside the events of `world.py`, as tuples:

    gulp C              all that client connection C has written is read by the router in one go
    bit C N, cbit C N   N bytes of its next frame are read by the router, by the client
    stall C, unstall C  its client reads nothing for a while
    cquit C             the client of connection C hears nothing of its suspended router, and leaves it
    hold X Y, let X Y   what router X sends to Y is held back, over any trunk; is let through
    drip X Y N          N bytes of that arrive
    cut X Y             the trunk breaks and cannot be made until `heal`
    reshape SHAPE       there are other trunks from now on
    quit P R            publisher P attaches to router R, and detaches for good before it has been answered
    still N             the process of client or router N is suspended: it reads, writes and notices nothing
    wake N, late N      it is resumed, and reads what was written to it; late: after the others' timeouts for it
    clock N S, away N   the clock of client or router N jumps by S seconds; N is away for longer than its timeouts
    tick, wait S        time passes, and timers fire late; S seconds pass
    pass S              S seconds pass, while clients and routers that are connected send heartbeats

and of the library's own clients:

    disk C, full C      the journal of C commits what its first waiter needs; its disk is full
    kill C K            the process of C is killed; K of its journal's pending writes have reached the disk
    start C, twin C     a process of C is started again; a second one, beside the first
    all C, reject C I   its application accepts all that it has, rejects one
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from chaos.simulation.random.plan import MESH, RING, STAR
from chaos.simulation.world.clients import MEMORY
from chaos.simulation.world.dials import Dial
from chaos.simulation.world.pipes import Pipe, kind_of
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.real_clients import RealClient, RealPublisher
from chaos.simulation.world.real_subscribers import RealSubscriber
from chaos.simulation.world.routers import STALL_S, Site, Wire
from chaos.simulation.world.world import Event, World

STEP_S = 0.4  # how late timers of clients may be
BEAT_S = 0.5  # from one heartbeat of a client to the next, while time passes
ASKING = ("begin", "end", "heartbeat")
BETWEEN_ROUTERS = ("up", "down", "msg")
READ_OR_WRITTEN = frozenset(("c2r", "r2c", "turn", *BETWEEN_ROUTERS))
# What a client's process or application does: impossible while it is suspended. Other events still act on it.
OF_PROCESS = frozenset((
    "r2c", "cbit", "cnotice", "cdrop", "cquit", "disk", "full", "send", "settle", "accept", "all", "release", "reject",
    "close", "connect", "pfresh", "sfresh",
))  # fmt: skip
OF_READER = ("c2r", "gulp", "bit", "rnotice", "rdrop")  # what a router does with a client's connection


class FaultyWorld(World):
    def __init__(self, *arguments: Any, shape: str = MESH, seed: int = 1, dials: bool = False, **named: Any) -> None:
        self.shape = shape
        self.dials = dials  # they take time
        self.dialling: dict[tuple[str, str], Dial] = {}  # pairs that are, or were, not linked since their last trunk
        self.broken: frozenset[tuple[str, str]] = frozenset()
        self.suspended: dict[str, Site] = {}  # routers; `sites` has nothing in their place, as if they were dead
        self.over: dict[str, list[tuple[Any, bytes]]] = {}  # their ends of broken trunks, and the bytes not read there
        super().__init__(*arguments, seed=seed, **named)
        self.ours = [client for client in self.clients.values() if isinstance(client, RealClient)]
        self.unusual = bool(self.ours)
        for client in self.ours:
            client.seed = seed

    def one(self, name: str) -> RealClient:
        client = self.clients[name]
        assert isinstance(client, RealClient)
        return client

    def may_be_decided(self, mid: tuple[str, int]) -> bool:
        """Whether a router may have told the outcome of this message, which its publisher has not read: not if it was
        sent on the connection that the publisher has now, and nothing is unread there."""
        publisher = self.clients[mid[0]]
        pipe = publisher.pipe
        if not isinstance(publisher, Publisher) or isinstance(publisher, RealClient) or pipe is None or self.due:
            return True
        return mid[1] < publisher.first or not pipe.r_open or bool(pipe.r2c) or bool(self.suspended)

    # ------------------------------------------------------------------ what can happen
    def unusual_events(self, events: list[Event]) -> list[Event]:
        for client in self.ours:
            client.add_own_events(events)
            if client.suspended and client.pipe is not None and client.pipe.r_open:
                events.append(("rnotice", client.pipe.cid))
        events = self.of_running(events)
        if self.suspended:
            events += [("cquit", cid) for cid, pipe in self.pipes.items() if pipe.c_open and not self.reads(pipe)]
        return events

    def of_running(self, events: list[Event]) -> list[Event]:
        """Leaves out what suspended processes would have to do."""
        names = [client.name for client in self.ours if client.suspended]
        if names:
            events = [event for event in events if event[0] not in OF_PROCESS or subject(event) not in names]
        if self.suspended:
            events = [event for event in events if event[0] not in OF_READER or self.reads(self.pipes[event[1]])]
        return events

    def reads(self, pipe: Pipe) -> bool:
        """Whether the router at this end is running."""
        site = self.suspended.get(pipe.router)
        return site is None or site.incarnation != pipe.incarnation

    # ------------------------------------------------------------------ between routers
    def linked(self, a: str, b: str) -> bool:
        if not super().linked(a, b) or (a, b) in self.broken:
            return False
        if self.shape == STAR:
            return self.names[0] in (a, b)
        apart = self.names.index(b) - self.names.index(a)
        return self.shape == MESH or apart == 1 or (self.shape == RING and apart == len(self.names) - 1)

    def make_and_cut_trunks(self) -> None:
        super().make_and_cut_trunks()
        for i, a in enumerate(self.names) if self.dials else ():
            for b in self.names[i + 1 :]:
                if (a, b) in self.trunks:
                    self.dialling.pop((a, b), None)
                elif (a, b) not in self.dialling and not self.linked(a, b):
                    self.dialling[a, b] = Dial(self.now, self.spread)

    def spread(self) -> float:
        return self.rng.uniform(0.5, 1.0)

    def connects(self, a: str, b: str) -> bool:
        dial = self.dialling.get((a, b))
        return dial is None or dial.answered(self.now)

    def next_dial(self) -> float:
        return min((dial.at for pair, dial in self.dialling.items() if self.linked(*pair)), default=math.inf)

    def do_cut(self, a: str, b: str) -> None:
        self.broken |= {(a, b)}

    def do_reshape(self, shape: str) -> None:
        self.shape = shape

    def do_hold(self, x: str, y: str) -> None:
        self.one_way[x, y] = None
        if self.has_wire(x, y):
            self.wire(x, y).held = bytearray()

    def do_let(self, x: str, y: str) -> None:
        del self.one_way[x, y]
        if self.has_wire(x, y):
            self.let_through(self.wire(x, y))

    def let_through(self, wire: Wire) -> None:
        held, wire.held = wire.held, None
        if held:
            wire.sink.receive_data(bytes(held), self.clock(wire.to))

    def do_drip(self, x: str, y: str, size: int) -> None:
        wire = self.wire(x, y)
        assert wire.held is not None
        piece = bytes(wire.held[:size])
        del wire.held[:size]
        wire.sink.receive_data(piece, self.clock(y))

    def has_wire(self, x: str, y: str) -> bool:
        return (min(x, y), max(x, y)) in self.trunks

    def held(self) -> dict[tuple[str, str], Wire]:
        """The wires on which something is held back."""
        wires = {way: self.wire(*way) for way in self.one_way if self.has_wire(*way)}
        return {way: wire for way, wire in wires.items() if wire.held}

    def do_heal(self) -> None:
        super().do_heal()
        self.broken = frozenset()

    def do_crash(self, name: str) -> None:
        super().do_crash(name)
        if not any(site is not None and site.router.core.startup.times.recovered for site in self.sites.values()):
            # what a router has chosen for a publisher without epochs is lost with it
            self.checker.excused |= {p.name for p in self.publishers if p.kind == MEMORY}

    def cut_trunk(self, a: str, b: str) -> None:
        """Cuts the trunk. A suspended end that has not noticed stays; only the running end is cut."""
        name = next((each for each in (a, b) if each in self.suspended), None)
        if name is None:
            super().cut_trunk(a, b)
            return
        here = (a, b).index(name)
        own, other = self.trunks[a, b][here], self.trunks[a, b][1 - here]
        peer = (a, b)[1 - here]
        if (self.sites[peer] is not None or peer in self.suspended) and not other.closed and self.linked(a, b):
            return
        del self.trunks[a, b]
        held = self.wires.pop(other).held
        del self.wires[own]
        self.ends[name].remove(own)
        self.ends[peer].remove(other)
        self.over.setdefault(name, []).append((own, bytes(held or b"")))
        if peer in self.suspended:
            self.over.setdefault(peer, []).append((other, b""))
        else:
            other.receive_eof(self.clock(peer))

    # ------------------------------------------------------------------ client connections
    def do_gulp(self, cid: tuple[str, int]) -> None:
        pipe = self.pipes[cid]
        pipe.server.receive_data(pipe.take_all_c2r(), self.clock(pipe.router))

    def do_bit(self, cid: tuple[str, int], size: int) -> None:
        pipe = self.pipes[cid]
        piece = pipe.c2r[0][pipe.c2r_read : pipe.c2r_read + size]
        pipe.c2r_read += size
        pipe.server.receive_data(piece, self.clock(pipe.router))

    def do_cbit(self, cid: tuple[str, int], size: int) -> None:
        pipe = self.pipes[cid]
        piece = pipe.r2c[0][pipe.r2c_read : pipe.r2c_read + size]
        pipe.r2c_read += size
        if pipe.client.pipe is pipe:
            pipe.client.receive(piece)
        if pipe.r2c:  # unless the client hung up because of it
            pipe.read_by_client(size)

    def do_r2c(self, cid: tuple[str, int]) -> None:
        """The frames that begin a connection are read with the attach: no event between them matters."""
        pipe = self.pipes[cid]
        if not pipe.r2c_read:
            begins = b""
            while len(pipe.r2c) > 1 and kind_of(pipe.r2c[0]) in ("open", "begin"):
                begins += pipe.r2c.popleft()
            pipe.r2c[0] = begins + pipe.r2c[0]
        super().do_r2c(cid)

    def do_stall(self, cid: tuple[str, int]) -> None:
        self.pipes[cid].stalled = True

    def do_unstall(self, cid: tuple[str, int]) -> None:
        self.pipes[cid].stalled = False

    def do_rdrop(self, cid: tuple[str, int]) -> None:
        self.do_rnotice(cid)

    def do_cquit(self, cid: tuple[str, int]) -> None:
        self.do_cdrop(cid)

    def do_quit(self, name: str, router: str) -> None:
        self.do_connect(name, router)
        client = self.publisher(name)
        client.detach()
        client.hang_up()

    # ------------------------------------------------------------------ processes
    def do_twin(self, name: str) -> None:
        twin = self.one(name).twin
        assert twin is not None
        twin.start()

    def do_still(self, name: str) -> None:
        if name in self.clients:
            self.one(name).suspended = True
            return
        self.due.pop(name, None)
        self.suspended[name] = self.site(name)
        self.unusual = True
        for pair in self.trunks:
            if name in pair:
                wire = self.wires[self.trunks[pair][1 - pair.index(name)]]
                if wire.held is None:
                    wire.held = bytearray()
        self.sites[name] = self.to_read = None

    def do_wake(self, name: str, timers_first: bool = False) -> None:
        """timers_first: a router looks at its clock before it reads."""
        if name in self.clients:
            self.one(name).suspended = False
            return
        self.sites[name] = self.suspended.pop(name)
        self.to_read = None
        self.unusual = bool(self.suspended or self.ours)
        self.deadlines.pop(name, None)
        if timers_first:
            self.tick(name)
        for pair, ends in list(self.trunks.items()):
            if name in pair and (pair[1 - pair.index(name)], name) not in self.one_way:
                self.let_through(self.wires[ends[1 - pair.index(name)]])
        for end, unread in self.over.pop(name, ()):
            if unread:
                end.receive_data(unread, self.clock(name))
            end.receive_eof(self.clock(name))
        self.links_changed = True

    def do_late(self, name: str, timers_first: bool = False) -> None:
        self.do_away(name)
        self.do_wake(name, timers_first)

    # ------------------------------------------------------------------ time
    def do_clock(self, name: str, seconds: int) -> None:
        if name in self.clients:
            self.one(name).set_clock(seconds)
        else:
            self.wall_offset[name] += seconds * 1_000_000

    def do_away(self, name: str) -> None:
        """More time passes than the network waits for any client."""
        end = self.now + self.address.publisher_expires_s + self.address.margin_s + 1
        while self.now < end:
            self.advance(STEP_S)
            self.answer()

    def answer(self) -> None:
        """Running clients ask whether the network knows them, and are answered, or send heartbeats, which routers
        read."""
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
                if pipe.stalled or client.suspended:
                    break
                self.do_r2c(cid)

        while events := [event for event in self.enabled() if event[0] in BETWEEN_ROUTERS]:
            getattr(self, "do_" + events[0][0])(*events[0][1:])
            self.settle_network()

    def do_pass(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.advance(min(BEAT_S, end - self.now))
            for client in self.clients.values():
                if client.pipe is not None and client.pipe.r_open:
                    client.heartbeat()
                    if client.state == "on":
                        client.heard = self.now
            while events := [event for event in self.enabled() if event[0] in READ_OR_WRITTEN]:
                self.happen(events[0])

    def do_wait(self, seconds: float) -> None:
        self.advance(seconds)

    def do_tick(self) -> None:
        self.late_timers(STALL_S)

    def advance(self, seconds: float, step: float = STEP_S) -> None:
        if not self.ours:
            super().advance(seconds)
            return
        end = self.now + seconds
        while self.now < end:
            super().advance(min(step, STEP_S, end - self.now), step)
            self.tick_ours()

    def late_timers(self, seconds: float) -> None:
        super().late_timers(seconds)
        self.tick_ours()

    def tick_ours(self) -> None:
        for client in self.ours:
            client.tick()

    # ------------------------------------------------------------------ at the end
    def undone(self) -> Iterator[str]:
        yield from super().undone()
        for client in self.ours:
            assert isinstance(client, RealPublisher | RealSubscriber)
            yield from client.left_over()

    def drained(self) -> None:
        super().drained()
        left = [text for client in self.ours if client.state != "down" for text in client.empty()]
        assert not left, "G4 left over: " + "; ".join(left)


def subject(event: Event) -> str:
    """The client that an event is about."""
    name: str = event[1][0] if isinstance(event[1], tuple) else event[1]
    return name
