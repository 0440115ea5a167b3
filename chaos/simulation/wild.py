"""A simulated network with a shape, trunks that break or stall, and the faults that no named schedule needs.

More events, as tuples:

    gulp C             all that client connection C has written is read by the router in one go
    bit C N, cbit C N  N octets of its next frame are read by the router, by the client
    stall C, unstall C its client reads nothing for a while
    hold X Y, let X Y  what router X says to Y stays on its way, however trunks are made; comes on
    drip X Y N         N octets of that come on
    cut X Y            the trunk breaks and cannot be made until `heal`
    reshape SHAPE      there are other trunks from now on
    tick               time passes, and timers fire late
    quit P R           publisher P attaches to router R, and detaches for good before it has been answered
    wait S             S seconds pass
    pass S             S seconds pass, while clients and routers that are connected say that they are there
"""

from __future__ import annotations

from typing import Any

from chaos.simulation.clients import MEMORY
from chaos.simulation.frames import kind_of
from chaos.simulation.plan import MESH, RING, STAR
from chaos.simulation.routers import STALL_S, Wire
from chaos.simulation.still_routers import StillRouters

BEAT_S = 0.5  # from one heartbeat of a client to the next, while time passes
GOES_ON = frozenset(("c2r", "r2c", "up", "down", "msg", "turn"))


class Wild(StillRouters):
    def __init__(self, *arguments: Any, shape: str = MESH, **named: Any) -> None:
        self.shape = shape
        self.broken: frozenset[tuple[str, str]] = frozenset()
        super().__init__(*arguments, **named)

    # ------------------------------------------------------------------ between routers
    def linked(self, a: str, b: str) -> bool:
        if not super().linked(a, b) or (a, b) in self.broken:
            return False
        if self.shape == STAR:
            return self.names[0] in (a, b)
        apart = self.names.index(b) - self.names.index(a)
        return self.shape == MESH or apart == 1 or (self.shape == RING and apart == len(self.names) - 1)

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
            wire = self.wire(x, y)
            held, wire.held = wire.held, None
            if held:
                wire.sink.receive_data(bytes(held), self.now)

    def do_drip(self, x: str, y: str, size: int) -> None:
        wire = self.wire(x, y)
        assert wire.held is not None
        piece = bytes(wire.held[:size])
        del wire.held[:size]
        wire.sink.receive_data(piece, self.now)

    def has_wire(self, x: str, y: str) -> bool:
        return (min(x, y), max(x, y)) in self.trunks

    def held(self) -> dict[tuple[str, str], Wire]:
        """Where something is on its way and comes no further."""
        wires = {way: self.wire(*way) for way in self.one_way if self.has_wire(*way)}
        return {way: wire for way, wire in wires.items() if wire.held}

    def do_heal(self) -> None:
        super().do_heal()
        self.broken = frozenset()

    def do_crash(self, name: str) -> None:
        super().do_crash(name)
        if not any(site is not None and site.router.core.established for site in self.sites.values()):
            # what a router has chosen for a publisher without epochs is lost with it
            self.checker.excused |= {p.name for p in self.publishers if p.kind == MEMORY}

    # ------------------------------------------------------------------ client connections
    def do_gulp(self, cid: tuple[str, int]) -> None:
        pipe = self.pipes[cid]
        pipe.server.receive_data(pipe.take_all_c2r(), self.now)

    def do_bit(self, cid: tuple[str, int], size: int) -> None:
        pipe = self.pipes[cid]
        piece = pipe.c2r[0][pipe.c2r_read : pipe.c2r_read + size]
        pipe.c2r_read += size
        pipe.server.receive_data(piece, self.now)

    def do_cbit(self, cid: tuple[str, int], size: int) -> None:
        pipe = self.pipes[cid]
        piece = pipe.r2c[0][pipe.r2c_read : pipe.r2c_read + size]
        pipe.r2c_read += size
        if pipe.client.pipe is pipe:
            pipe.client.receive(piece)
        if pipe.r2c:  # unless the client hung up for it
            pipe.read_by_client(size)

    def do_r2c(self, cid: tuple[str, int]) -> None:
        """What begins a connection is read with the attach: nothing can come between that matters."""
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

    # ------------------------------------------------------------------ applications
    def do_srestart(self, name: str) -> None:
        self.subscriber(name).restart()

    def do_sfresh(self, name: str) -> None:
        self.subscriber(name).forget()

    def do_quit(self, name: str, router: str) -> None:
        self.do_connect(name, router)
        client = self.publisher(name)
        client.link.detach(None, closed=True)
        client.flush()
        client.hang_up()

    def do_release(self, name: str, index: int) -> None:
        self.subscriber(name).release(index)

    def do_reject(self, name: str, index: int) -> None:
        self.subscriber(name).reject(index)

    def do_pass(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.advance(min(BEAT_S, end - self.now))
            for client in self.clients.values():
                if client.pipe is not None and client.pipe.r_open:
                    client.heartbeat()
                    if client.state == "on":
                        client.heard = self.now
            while events := [event for event in self.enabled() if event[0] in GOES_ON]:
                self.happen(events[0])

    def do_wait(self, seconds: float) -> None:
        self.advance(seconds)

    def do_tick(self) -> None:
        self.stand_still(STALL_S)
