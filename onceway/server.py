"""One router as a process's worth of asyncio: sockets, timers, one turn of the loop at a time.

Carries bytes and time into `router.Router` and `interrouter.Network`, messages between the two, and bytes out; decides
nothing.  After every read (or once per turn of the loop, when many sockets are busy) everything that the handlers left
behind is flushed and written together (ENGINE.md rule 6).  Read `onceway.transport` for one socket's side.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from math import inf
from typing import Any, Final

from interrouter.events import PeerDown, PeerMessage, PeerUp
from interrouter.network import Network, dials
from onceway.client_carrier import ClientCarrier, Shares
from onceway.topology import Topology
from onceway.transport import Carried, Carrier
from router.messages import PeerProtocolError
from router.router import Router

FEW_SOCKETS: Final = 8  # up to here each read is flushed at once: the shortest way for a message
SWEEP_S: Final = 0.25  # how often connections' own timers (idle-time-outs) are looked at
DIAL_FIRST_S: Final = 0.05
DIAL_MOST_S: Final = 1.0
DRAIN_S: Final = 10.0  # PROTOCOL leaves it open: how long a stopped router waits for what it has taken
GOODBYE_S: Final = 2.0  # and for its last words to leave
ROUNDS: Final = 16  # hand-overs between router and network in one turn


class RouterServer:
    """`await start()`, then it runs until `await stop()`; `status()` at any time."""

    def __init__(
        self,
        topology: Topology,
        name: str,
        *,
        fresh: bool = False,
        log: Callable[[str], None] = lambda line: None,
        rng: random.Random | None = None,
    ) -> None:
        self.topology = topology
        self.name = name
        self.config = topology.router_config(name)
        self.rng = rng or random.Random(os.urandom(16))
        self.incarnation = self.rng.getrandbits(64) or 1
        self.log = log
        self.started = time.monotonic()
        now = self.time()
        self.router = Router(self.config, incarnation=self.incarnation, now=now, wall_us=_wall_us, fresh=fresh)
        costs = topology.neighbours(name)
        self.network = Network(
            name,
            self.incarnation,
            costs,
            network=topology.network,
            rng=self.rng,
            now=now,
            heartbeat_s=self.config.heartbeat_s,
            dead_after_s=self.config.dead_after_s,
        )
        self._to_dial = sorted(neighbour for neighbour in costs if dials(name, neighbour))
        self._reset: dict[str, None] = {}  # peers whose session was reset by us, until its PeerDown has come
        self._listeners: list[asyncio.Server] = []
        self._dialers: list[asyncio.Task[None]] = []
        self._carriers: dict[Carried, Carrier] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._sweep: asyncio.TimerHandle | None = None
        self._shares: Shares | None = None
        self.stopped = False
        self._changed = asyncio.Event()

    # --- life

    async def start(self) -> None:
        """Listens for clients and neighbours, dials neighbours.  OSError where a port cannot be had."""
        loop = self._loop = asyncio.get_running_loop()
        place = self.topology.routers[self.name]
        host, port = place.interrouter
        self._listeners.append(await loop.create_server(lambda: _NeighbourCarrier(self, None), host, port))
        host, port = place.amqp
        shares = self._shares = Shares(loop.call_soon)
        self._listeners.append(await loop.create_server(lambda: ClientCarrier(self, shares), host, port, backlog=1024))
        for neighbour in self._to_dial:
            self._dialers.append(loop.create_task(self._dial(neighbour)))
        self._turn()
        self._sweep_timers()

    async def stop(self, drain_s: float = DRAIN_S) -> None:
        """SIGTERM: no attach, no credit; wait for what was taken, say goodbye, end."""
        self._listeners.pop().close()
        self.router.stop(self.time())
        self._turn()
        await self._until(self.router.drained, drain_s)
        self.router.close_connections(self.time())
        self._turn()
        await self._until(lambda: not self.router.connections and self._all_told(), GOODBYE_S)
        self.stopped = True
        for listener in self._listeners:
            listener.close()
        for task in self._dialers:
            task.cancel()
        await asyncio.gather(*self._dialers, return_exceptions=True)
        for handle in (self._timer, self._sweep):
            if handle is not None:
                handle.cancel()
        for carrier in list(self._carriers.values()):
            carrier.abort()
        # one turn for the transports' farewells
        await asyncio.sleep(0)

    def status(self) -> dict[str, Any]:
        return {
            **self.network.status(),
            **self.router.status(),
            "clients_waiting": len(self._shares or ()),
            "name": self.name,
            "network": self.topology.network,
            "pid": os.getpid(),
            "incarnation": f"{self.incarnation:016x}",
            "uptime_s": round(time.monotonic() - self.started, 3),
        }

    # --- for the carriers

    def time(self) -> float:
        return time.monotonic()

    def after_read(self) -> None:
        if self._turn_due or self._loop is None:
            return
        if len(self._carriers) <= FEW_SOCKETS:
            self._turn()
        else:
            self._turn_soon()

    def came(self, carrier: Carrier) -> Carried | None:
        if self.stopped:
            return None
        carried: Carried
        if isinstance(carrier, _NeighbourCarrier):
            trunk = self.network.connect(self.time(), server=carrier.neighbour is None, neighbour=carrier.neighbour)
            carried = trunk
        else:
            carried = self.router.connect(self.time())
        self._carriers[carried] = carrier
        self._turn_soon()
        return carried

    def went(self, carrier: Carrier) -> None:
        if carrier.carried is not None:
            self._carriers.pop(carrier.carried, None)
        self._changed.set()

    # --- turns

    def _turn_soon(self) -> None:
        if not self._turn_due and self._loop is not None and not self.stopped:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Everything that the handlers left behind, then the sockets."""
        self._turn_due = False
        router, network, carriers = self.router, self.network, self._carriers
        now = self.time()
        for _ in range(ROUNDS):
            router.flush(now)
            for peers, message in router.take_messages():
                network.send(peers, message)
            network.flush(now)
            events = network.take_events()
            if not events:
                break
            for event in events:
                self._peer_event(event, now)
        else:
            self._turn_soon()
        for connection in router.take_dirty():
            carrier = carriers.get(connection)
            if carrier is not None:
                carrier.write()
        for trunk in network.take_dirty():
            carrier = carriers.get(trunk)
            if carrier is not None:
                carrier.write()
        if router.wants_flush:
            self._turn_soon()
        self._set_timer(now)
        self._changed.set()

    def _peer_event(self, event: PeerUp | PeerDown | PeerMessage, now: float) -> None:
        if isinstance(event, PeerMessage):
            if event.peer in self._reset:
                return
            try:
                self.router.peer_message(event.peer, event.data, now)
            except PeerProtocolError as error:
                self.log(f"[{self.name} {event.peer}] session reset: {error}")
                self._reset[event.peer] = None
                self.network.peer_reset(event.peer, now)
        elif isinstance(event, PeerUp):
            self.log(f"[{self.name} {event.peer}] up, incarnation {event.incarnation:016x}")
            self.router.peer_up(event.peer, now)
        else:
            self._reset.pop(event.peer, None)
            self.log(f"[{self.name} {event.peer}] down")
            self.router.peer_down(event.peer, now)

    # --- time

    def _set_timer(self, now: float) -> None:
        assert self._loop is not None
        deadline = self.network.next_deadline()
        router = self.router.next_deadline()
        if router is not None and router < deadline:
            deadline = router
        if self.stopped or self._timer_at <= deadline:
            return  # it looks again when it fires: most deadlines move on before they come
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - now), self._tick)

    def _tick(self) -> None:
        self._timer_at = inf
        now = self.time()
        self.network.tick(now)
        self.router.went_on(self.network.went_on)
        self.router.tick(now)
        self._turn()

    def _sweep_timers(self) -> None:
        """Connections' own deadlines are seconds away: looking at them four times a second costs less than a timer
        for each that moves with every read."""
        assert self._loop is not None
        now = self.time()
        due = False
        for carried in list(self._carriers):
            deadline = carried.next_deadline()
            if deadline is not None and deadline <= now:
                carried.handle_timer(now)
                due = True
        if due:
            self._turn()
        self._sweep = self._loop.call_later(SWEEP_S, self._sweep_timers)

    def _all_told(self) -> bool:
        """The peers have acknowledged everything, our farewells included."""
        sessions = self.network.status()["sessions"].values()
        return not any(session["unacknowledged_messages"] or session["waiting_messages"] for session in sessions)

    async def _until(self, condition: Callable[[], bool], most_s: float) -> bool:
        end = self.time() + most_s
        while not condition():
            left = end - self.time()
            if left <= 0:
                return False
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                return condition()
        return True

    # --- neighbours

    async def _dial(self, neighbour: str) -> None:
        """Keeps one trunk to a neighbour: again and again, with growing pauses, until the router stops."""
        assert self._loop is not None
        pause = DIAL_FIRST_S
        host, port = self.topology.dialled(self.name, neighbour)
        while True:
            carrier = _NeighbourCarrier(self, neighbour)
            try:
                await self._loop.create_connection(lambda c=carrier: c, host, port)  # type: ignore[misc]
            except OSError:
                pass
            else:
                began = self.time()
                await carrier.gone.wait()
                if self.time() - began > self.config.dead_after_s:
                    pause = DIAL_FIRST_S
            await asyncio.sleep(pause * self.rng.uniform(0.5, 1.0))
            pause = min(pause * 2, DIAL_MOST_S)


class _NeighbourCarrier(Carrier):
    __slots__ = ("gone", "neighbour")

    def __init__(self, server: RouterServer, neighbour: str | None) -> None:
        super().__init__(server)
        self.neighbour = neighbour  # whom we dialled; None: who it is will be said in its open
        self.gone = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.gone.set()


def _wall_us() -> int:
    return time.time_ns() // 1000
