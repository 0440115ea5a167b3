"""One router, or one client, by itself: what it does with one input, run once by the real code and then known.

`Locals.router(number, input)` and `Locals.client(number, input)` load a state from its snapshot, give it the input, and
return what it said and the number of its new state. The same state and input have the same result, so a table keeps it:
the whole worlds of `exploration.py` are many, the states of one process few.

Inputs are tuples and begin with what happens, in the words of `World`'s events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chaos.simulation.exhaustive.snapshots import Snapshots
from chaos.simulation.world.checker import Checker
from chaos.simulation.world.clients import UNIQUE
from chaos.simulation.world.pipes import frames_of
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.routers import LONG, START_US
from chaos.simulation.world.subscribers import Subscriber
from chaos.simulation.world.world import DEEDS, World
from router.config import AddressConfig, Life, RouterConfig
from router.peers.wire import Encoded
from router.router import Router

Cid = tuple[str, int]
Input = tuple[Any, ...]
STEP_S = 0.4  # protocol 12: a router whose timers come less often takes itself for suspended


class Said(NamedTuple):
    """What came of one input. number: the situation now."""

    number: int
    messages: tuple[tuple[tuple[str, ...], Encoded], ...] = ()  # a router's: (peers, data), in order
    frames: tuple[tuple[Cid, tuple[bytes, ...]], ...] = ()  # by connection, in order
    closed: tuple[Cid, ...] = ()  # connections of which the process has closed its end
    told: tuple[tuple[Any, ...], ...] = ()  # what a client's application did or learnt: calls of the checker
    failure: BaseException | None = None


@dataclass(frozen=True)
class Clock:
    """A router's wall clock, standing still. Unlike a function of the world it can be part of a snapshot."""

    us: int

    def __call__(self) -> int:
        return self.us


@dataclass
class RouterProcess:
    router: Router
    servers: dict[Cid, Any] = field(default_factory=dict)

    def handle(self, given: Input, now: float) -> None:
        kind, *rest = given
        router = self.router
        if kind == "up":
            router.peer_up(rest[0], now, now)  # time stands still in these worlds
        elif kind == "down":
            router.peer_down(rest[0], now)
        elif kind == "msg":
            router.peer_message(rest[0], rest[1], now)
        elif kind in ("c2r", "rnotice"):
            if rest[0] not in self.servers:  # nothing follows from a connection before something is read
                self.servers[rest[0]] = router.connect(now)
            if kind == "c2r":
                self.servers[rest[0]].receive_data(rest[1], now)
            else:
                self.servers.pop(rest[0]).receive_eof(now)
        else:
            assert kind == "start", given

    def arrange(self) -> None:
        """Connections in the order of their names, not of their coming: it is the same for everybody but snapshots."""
        self.servers = dict(sorted(self.servers.items()))
        known = dict.fromkeys(self.servers.values())
        self.router.connections = {**known, **self.router.connections}

    def tick(self, now: float) -> None:
        self.router.tick(now)
        for server in list(self.servers.values()):
            deadline = server.next_deadline()
            if deadline is not None and deadline <= now:
                server.handle_timer(now)

    def say(
        self, now: float, frames: dict[Cid, list[bytes]], closed: list[Cid]
    ) -> list[tuple[tuple[str, ...], Encoded]]:
        router = self.router
        while router.flush(now):
            pass
        messages = router.take_messages()
        cids = {server: cid for cid, server in self.servers.items()}
        for server in (*router.take_dirty(), *router.turn.deferred_output):
            cid = cids.get(server)
            if cid is None:
                continue
            data = server.data_to_send()
            if data:
                frames.setdefault(cid, []).extend(frames_of(data))
            if server.closed:
                closed.append(cid)
                self.servers.pop(cid, None)
        return messages


class Recorder(Checker):
    """In the checker's place: it only notes what it is told, and knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not callable(found) or name.startswith("_"):
            return found
        return lambda *arguments: self.calls.append((name, *arguments))


class QueueRecorder(Recorder):
    competing = True


class Outside:
    """In the place of a client's world."""

    def __init__(self, now: float, queue: bool) -> None:
        self.now = now
        self.checker = QueueRecorder() if queue else Recorder()


class Wire:
    """In the place of a pipe: the client's end of it."""

    def __init__(self, router: str, incarnation: int) -> None:
        self.router, self.incarnation = router, incarnation
        self.written: list[bytes] = []
        self.gone = False

    def send_all(self, data: bytes) -> None:
        if data:
            self.written.append(data)

    def send(self, data: bytes) -> None:
        self.written += frames_of(data)

    def client_gone(self) -> None:
        self.gone = True


class Locals:
    """What routers of these names and these clients do, found out as it is asked for."""

    def __init__(
        self, names: list[str], address: AddressConfig, clients: list[Publisher | Subscriber], config: dict[str, Any]
    ) -> None:
        self.configs = {
            name: RouterConfig(
                name=name, routers=tuple(names), addresses=(address,), defaults=address, idle_timeout_s=LONG, **config
            )
            for name in names
        }
        self.queue = address.type == "queue"
        self.routers = Snapshots()
        self.clients = Snapshots()
        self.known: dict[tuple[Any, ...], Said] = {}
        self.facts: dict[tuple[Callable[[Any], Any], int], Any] = {}
        self.first = {client.name: self.clients.number(client) for client in clients}

    # ------------------------------------------------------------------ routers
    def start(self, name: str, incarnation: int, fresh: bool, now: float, clock: int) -> Said:
        key = ("start", name, incarnation, fresh, now, clock)
        said = self.known.get(key)
        if said is None:
            router = Router(self.configs[name], Life(incarnation, now, fresh), wall_us=Clock(START_US + clock))
            said = self.known[key] = self._of_router(RouterProcess(router), ("start",), now, clock)
        return said

    def router(self, number: int, given: Input, now: float, clock: int) -> Said:
        """given: up Y, down Y, msg Y DATA, c2r CID DATA, rnotice CID, tick SECONDS."""
        key = ("router", number, given, now, clock)
        said = self.known.get(key)
        if said is None:
            said = self.known[key] = self._of_router(self.routers.load(number), given, now, clock)
        return said

    def _of_router(self, process: RouterProcess, given: Input, now: float, clock: int) -> Said:
        process.router.core.clock_us = Clock(START_US + clock)
        messages: list[tuple[tuple[str, ...], Encoded]] = []
        frames: dict[Cid, list[bytes]] = {}
        closed: list[Cid] = []
        try:
            if given[0] == "tick":
                end = now + given[1]
                while now < end:  # as `World.advance` does
                    now = min(end, now + STEP_S)
                    process.tick(now)
                    messages += process.say(now, frames, closed)
            else:
                process.handle(given, now)
                messages += process.say(now, frames, closed)
        except Exception as failure:  # noqa: BLE001  # whatever it is, it is what we are looking for
            return Said(-1, failure=failure)
        process.arrange()
        return Said(
            self.routers.number(process),
            tuple(messages),
            tuple((cid, tuple(said)) for cid, said in frames.items()),
            tuple(closed),
        )

    # ------------------------------------------------------------------ clients
    def client(self, number: int, given: Input, now: float) -> Said:
        """given: connect ROUTER INCARNATION, r2c DATA, cdrop, send, settle, accept INDEX, hb, show, close."""
        key = ("client", number, given, now)
        said = self.known.get(key)
        if said is None:
            said = self.known[key] = self._of_client(self.clients.load(number), given, now)
        return said

    def _of_client(self, client: Any, given: Input, now: float) -> Said:
        outside = client.world = Outside(now, self.queue)
        kind, *rest = given
        pipe: Any = Wire(*rest) if kind == "connect" else client.pipe
        before = len(pipe.written) if pipe is not None else 0
        try:
            act(client, kind, rest, pipe)
        except Exception as failure:  # noqa: BLE001
            return Said(-1, told=tuple(outside.checker.calls), failure=failure)
        frames, closed = (), False
        if pipe is not None:
            frames, closed = tuple(pipe.written[before:]), pipe.gone
            pipe.written.clear()
        client.world = None
        client.refusals.clear()
        number = self.clients.number(client)
        cid = (client.name, 0)
        return Said(
            number, (), ((cid, frames),) if frames else (), (cid,) if closed else (), tuple(outside.checker.calls)
        )

    # ------------------------------------------------------------------ what can be read off a situation
    def fact(self, number: int, what: Callable[[Any], Any], snapshots: Snapshots) -> Any:
        key = (what, number)
        if key not in self.facts:
            self.facts[key] = what(snapshots.load(number))
        return self.facts[key]

    def offers(self, number: int) -> Offers:
        """What the application of this client can do now."""
        found: Offers = self.fact(number, offers_of, self.clients)
        return found

    def established(self, number: int) -> bool:
        return bool(self.fact(number, is_established, self.routers))

    def router_left_over(self, number: int) -> list[str]:
        found: list[str] = self.fact(number, router_left_over, self.routers)
        return found

    def remembered(self, number: int) -> list[str]:
        found: list[str] = self.fact(number, router_remembers, self.routers)
        return found


def is_established(process: RouterProcess) -> bool:
    return bool(process.router.core.startup.times.recovered)


def router_left_over(process: RouterProcess) -> list[str]:
    return World.router_left_over(process.router)


def router_remembers(process: RouterProcess) -> list[str]:
    return World.router_remembers(process.router)


def act(client: Any, kind: str, rest: list[Any], pipe: Any) -> None:
    """What `World` does at the client for its event of that name."""
    if kind == "connect":
        client.connect(pipe)
    elif kind == "r2c":
        client.receive(rest[0])
    elif kind == "cdrop":
        client.hang_up()
    else:
        getattr(client, DEEDS[kind])(*rest)


class Offers(NamedTuple):
    off: bool  # it is not connected, and wants to be
    closed: bool
    on: bool
    send: bool
    settle: bool
    accept: bool
    close: bool
    restarts: bool  # from a journal
    beats: bool  # signs of life are all that can prove it
    left: tuple[str, ...]  # what it has not done


def offers_of(client: Any) -> Offers:
    left = [f"{client.name} unsettled {client.unsettled}"] if client.unsettled else []
    publisher = isinstance(client, Publisher)
    if publisher and not client.closed and client.seq < client.total:
        left.append(f"{client.name} sent {client.seq} of {client.total}")
    return Offers(
        off=client.state == "off" and not client.closed,
        closed=client.closed,
        on=client.state == "on" and not client.closing,
        send=publisher and client.can_send() and client.seq < client.total,
        settle=publisher and client.next_to_settle() is not None and not client.closing,
        accept=not publisher and bool(client.in_hand) and not client.closing,
        close=not publisher and client.state == "on" and not client.closing and not client.untold(),
        restarts=not publisher,
        beats=client.kind == UNIQUE and client.state == "on",
        left=tuple(left),
    )
