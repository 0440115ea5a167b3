"""A whole network in one process with virtual time: real engine, real router and interrouter cores, scripted clients.

Nothing happens by itself. `enabled()` lists what can happen next, `step(event)` lets it happen; a schedule (see
`schedule.py`) holds events back to bring about the one interleaving it is about. Bytes between routers flow at once
through the real interrouter networks; what these hand to a router waits in an inbox per peer, where a schedule can hold
it. Client connections are pipes of frames in both directions. Events, as tuples:

    up X Y          router X learns that the session with Y is up         down X Y   ... is over (drops what came first)
    msg Y X         router X processes the next message from Y
    c2r C, r2c C    the next frame of client connection C is read by the router, by the client
    rnotice C       the router notices that C's connection is gone        cnotice C  the client does
    connect N R     client N connects to router R                         accept N I, settle N, send N: the applications
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from chaos.simulation.checker import Checker, Violation
from chaos.simulation.clients import Client, Publisher, Subscriber
from chaos.simulation.frames import frames_of
from interrouter.events import PeerDown, PeerMessage, PeerUp
from interrouter.network import Network
from router.config import AddressConfig, RouterConfig
from router.router import Router

Event = tuple[Any, ...]
START_US = 1_700_000_000_000_000  # the wall clock at virtual time 0
LONG = 4e6
PROBE_AFTER_S = 0.2  # as in production, though no heartbeat comes
# Which router may have something to say after an event: the one that it names at this place,
OF_ROUTER = {"up": 1, "down": 1, "msg": 2, "connect": 2, "suspect": 1}
# the one at the end of this connection,
OF_CONNECTION = frozenset(("c2r", "gulp", "rnotice", "rdrop"))
# none, where it is the client that reads, and as what applications do only fills pipes,
OF_CLIENT = frozenset((
    "r2c", "cnotice", "cdrop", "send", "settle", "accept", "release", "reject", "hb", "show", "pfresh", "sfresh",
    "srestart", "close", "stall", "unstall", "turn",
))  # fmt: skip
# and only those whose turn is due: clients again, and time, as who had to be told of it has written already.
OF_NOBODY = frozenset(("cbit", "disk", "kill", "full", "start", "twin", "tick"))
LOW = 4  # a router may write again when the client has read all but so small a part of what was too much
STALL_S = 0.4  # no router is left alone for longer, or it would think that it had stood still (PROTOCOL 12)
TICK = 1e-4  # virtual seconds that an event takes: clocks differ from event to event, and proofs need thousands


@dataclass(eq=False)
class Pipe:
    """One client connection. What waits to be read is kept by frames; of the first one some octets may have been read
    already."""

    cid: tuple[str, int]
    client: Client
    router: str
    incarnation: int
    server: Any  # the router's end
    world: World
    high: int | None = None  # octets that the client has not read, above which the router is told to wait
    c2r: deque[bytes] = field(default_factory=deque)
    r2c: deque[bytes] = field(default_factory=deque)
    c2r_read: int = 0
    r2c_read: int = 0
    unread: int = 0  # octets in r2c
    since: float = 0.0  # since when there has been something in c2r
    stalled: bool = False  # the client reads nothing
    c_open: bool = True
    r_open: bool = True

    def send_all(self, data: bytes) -> None:
        """One piece, read in one go."""
        if data and self.r_open and self.c_open:
            self._waits()
            self.c2r.append(data)

    def send(self, data: bytes) -> None:
        if data and self.r_open and self.c_open:
            self._waits()
            self.c2r.extend(frames_of(data))

    def _waits(self) -> None:
        if not self.c2r:
            self.since = self.world.now

    def take_c2r(self) -> bytes:
        head, read, self.c2r_read = self.c2r.popleft(), self.c2r_read, 0
        return head[read:] if read else head

    def take_all_c2r(self) -> bytes:
        data, self.c2r_read = b"".join(self.c2r)[self.c2r_read :], 0
        self.c2r.clear()
        return data

    def written(self, data: bytes) -> None:
        """By the router; as `onceway.server` does when a transport's buffer fills."""
        self.r2c.extend(frames_of(data))
        self.unread += len(data)
        if self.high is not None and self.unread > self.high and not self.server.output_paused:
            self.server.pause_output()
        if self.server.output_paused:
            self.server.output_waits(self.unread)

    def take_r2c(self) -> bytes:
        head, read, self.r2c_read = self.r2c.popleft(), self.r2c_read, 0
        self.read_by_client(len(head) - read)
        return head[read:] if read else head

    def read_by_client(self, size: int) -> None:
        self.unread -= size
        if self.server.output_paused and self.r_open and self.unread * LOW <= (self.high or 0):
            self.server.resume_output()
            self.world.wake(self.router)

    def client_gone(self) -> None:
        self.c_open = False
        self.world.ends_closed = True
        self.r2c.clear()
        self.r2c_read = self.unread = 0

    def router_gone(self) -> None:
        self.r_open = False
        self.world.ends_closed = True
        self.c2r.clear()
        self.c2r_read = 0


class Wire:
    """One direction of a trunk. held: octets under way that come no further for now."""

    __slots__ = ("held", "sink", "to")

    def __init__(self, sink: Any, to: str, held: bytearray | None) -> None:
        self.sink, self.to, self.held = sink, to, held


class Site:
    """One router process: its cores, and per peer what the network has handed over and the router not yet read."""

    def __init__(self, world: World, name: str, fresh: bool) -> None:
        self.name = name
        self.incarnation = world.draw_incarnation(name)
        peers = {other: 1 for other in world.names if other != name}
        heartbeat_s = world.config.get("heartbeat_s", LONG)
        self.network = Network(
            name, self.incarnation, peers, network="sim", rng=random.Random(world.rng.random()), now=world.now,
            heartbeat_s=heartbeat_s, dead_after_s=world.config.get("dead_after_s", 3 * heartbeat_s),
            probe_after_s=PROBE_AFTER_S if heartbeat_s == LONG else None,
        )  # fmt: skip
        self.router = world.make_router(self, fresh)
        self.inbox: dict[str, deque[Any]] = {peer: deque() for peer in peers}


class World:
    tick_s = TICK

    def __init__(
        self,
        names: str,
        publishers: list[Publisher],
        subscribers: list[Subscriber],
        *,
        strict: bool = True,
        address: AddressConfig | None = None,
        router_class: type[Router] = Router,
        seed: int = 1,
        **config: Any,
    ) -> None:
        self.names = list(names)
        self.rng = random.Random(seed)
        self.now = 0.0
        self.checker = Checker(strict)
        self.address = address or AddressConfig()
        self.config = config
        self.router_class = router_class
        self.high: int | None = None
        """Octets that a client may leave unread before its router is told to wait; None: any number."""
        self.turns = False  # routers write what they have to say in turns of their own
        self.due: dict[str, None] = {}  # those whose turn is to come
        self.one_way: dict[tuple[str, str], None] = {}  # (x, y): what x says to y is held on its way
        self.clients: dict[str, Client] = {c.name: c for c in [*publishers, *subscribers]}
        self.publishers, self.subscribers = publishers, subscribers
        for client in self.clients.values():
            client.world = self
        self.group = dict.fromkeys(self.names, 0)
        self.pipes: dict[tuple[str, int], Pipe] = {}
        self.numbers = dict.fromkeys(self.clients, 0)
        self.by_server: dict[Any, Pipe] = {}  # the router's end -> its pipe
        self.trunks: dict[tuple[str, str], tuple[Any, Any]] = {}
        self.wires: dict[Any, Wire] = {}  # one end of a trunk -> what goes to the other
        self.links_changed = True  # trunks may have to be made or cut
        self.ends_closed = False  # a pipe may be over
        self.wall_offset = dict.fromkeys(self.names, 0)
        self.history: list[tuple[float, Event]] = []
        self.observer: Callable[[Event], None] | None = None  # hears of each event before it happens
        self.sites: dict[str, Site | None] = {}
        for name in self.names:
            self.sites[name] = Site(self, name, fresh=True)
        self.settle_network()

    # ------------------------------------------------------------------ making
    def make_router(self, site: Site, fresh: bool) -> Router:
        config = RouterConfig(
            name=site.name, routers=tuple(self.names), addresses=(self.address,), defaults=self.address,
            **{"idle_timeout_s": LONG, **self.config},
        )  # fmt: skip
        return self.router_class(
            config,
            incarnation=site.incarnation,
            now=self.now,
            wall_us=lambda: self.wall_us(site.name),
            fresh=fresh,
        )

    def draw_incarnation(self, name: str) -> int:
        return self.rng.getrandbits(63) + 1

    def wall_us(self, name: str) -> int:
        return START_US + int(self.now * 1e6) + self.wall_offset[name]

    def site(self, name: str) -> Site:
        site = self.sites[name]
        assert site is not None, f"{name} is down"
        return site

    def linked(self, a: str, b: str) -> bool:
        """Whether there is a trunk between them, if both are alive. Everybody's neighbour is everybody, but for
        partitions."""
        return self.group[a] == self.group[b]

    # ------------------------------------------------------------------ between routers
    def settle_network(self, names: Iterable[str] | None = None) -> None:
        """Trunks are as partitions say, and everything between networks has been read. names: routers for which there
        may be something to do; None: all."""
        if names is None or self.links_changed:
            self.links_changed = False
            self.make_and_cut_trunks()
            names = self.names
            self.due.clear()
        now, sites, wires = self.now, self.sites, self.wires
        busy: dict[str, None] = {}
        for name in names:
            site = sites[name]
            if site is not None:
                self.emit(site)
                busy[name] = None
        while busy:
            turn, busy = busy, {}
            for name in turn:
                site = sites[name]
                if site is None:
                    continue
                network = site.network
                network.flush(now)
                while events := network.take_events():
                    for event in events:
                        site.inbox[event.peer].append(event)
                    network.flush(now)
                for end in network.take_dirty():
                    data = end.data_to_send()
                    wire = wires.get(end) if data else None
                    if wire is None:
                        continue
                    if wire.held is not None:
                        wire.held += data
                    else:
                        wire.sink.receive_data(data, now)
                        busy[wire.to] = None

    def make_and_cut_trunks(self) -> None:
        for i, a in enumerate(self.names):
            for b in self.names[i + 1 :]:
                alive = self.sites[a] is not None and self.sites[b] is not None and self.linked(a, b)
                if alive and (a, b) not in self.trunks:
                    left = self.site(a).network.connect(self.now, server=False, neighbour=b)
                    right = self.site(b).network.connect(self.now, server=True, neighbour=None)
                    self.trunks[a, b] = (left, right)
                    self.wires[left] = Wire(right, b, bytearray() if (a, b) in self.one_way else None)
                    self.wires[right] = Wire(left, a, bytearray() if (b, a) in self.one_way else None)
                elif not alive and (a, b) in self.trunks:
                    self.cut_trunk(a, b)

    def cut_trunk(self, a: str, b: str) -> None:
        for end in self.trunks.pop((a, b)):
            del self.wires[end]
            end.receive_eof(self.now)

    def emit(self, site: Site) -> None:
        """What the router has to say goes on its way."""
        router, inbox = site.router, site.inbox
        router.flush(self.now)
        while router.wants_flush:
            router.flush(self.now)
        for peers, data in router.take_messages():
            # The router speaks in sessions that it believes in; where the network has ended one already, the word dies
            # with it (PROTOCOL 3.2).
            there = tuple([p for p in peers if not inbox[p] or not comes_and_goes(inbox[p])])
            if there:
                site.network.send(there, data)
        if not router.dirty and not router.lazy:
            return
        by_server = self.by_server
        for connection in (*router.take_dirty(), *router.lazy):
            pipe = by_server.get(connection)
            if pipe is None or not pipe.r_open:
                continue
            data = connection.data_to_send()
            if data and pipe.c_open:
                pipe.written(data)
            if connection.closed:
                pipe.r_open = False
                self.ends_closed = True

    def wire(self, x: str, y: str) -> Wire:
        """From x to y; KeyError where there is none."""
        left, right = self.trunks[min(x, y), max(x, y)]
        return self.wires[left if x < y else right]

    def wake(self, name: str) -> None:
        """This router may have something to say."""
        if self.turns:
            self.due[name] = None
        else:
            self.settle_network((name,))

    def forget_pipes(self) -> None:
        """Those that are over at both ends."""
        self.ends_closed = False
        for cid in [cid for cid, p in self.pipes.items() if not p.c_open and not p.r_open]:
            self.by_server.pop(self.pipes.pop(cid).server, None)

    # ------------------------------------------------------------------ what can happen
    def enabled(self) -> list[Event]:
        events: list[Event] = [("turn", name) for name in self.due]
        for x, site in self.sites.items():
            if site is None:
                continue
            for y, inbox in site.inbox.items():
                if inbox:
                    head = inbox[0].__class__
                    if head is PeerUp:
                        events.append(("up", x, y))
                    elif head is PeerMessage:
                        events.append(("msg", y, x))
                    if head is PeerDown or (len(inbox) > 1 and PeerDown in [e.__class__ for e in inbox]):
                        events.append(("down", x, y))
        for cid, pipe in self.pipes.items():
            if pipe.r_open:
                if pipe.c2r and (not pipe.server.output_paused or pipe.server.reads):
                    events.append(("c2r", cid))
                if not pipe.c_open:
                    events.append(("rnotice", cid))
            if pipe.c_open:
                if pipe.r2c:
                    if not pipe.stalled:
                        events.append(("r2c", cid))
                elif not pipe.r_open:
                    events.append(("cnotice", cid))
        for publisher in self.publishers:
            if publisher.state == "on" and not publisher.closing:
                if publisher.seq < publisher.total and publisher.can_send():
                    events.append(("send", publisher.name))
                if publisher.unsettled and publisher.next_to_settle() is not None:
                    events.append(("settle", publisher.name))
        for subscriber in self.subscribers:
            if subscriber.in_hand and not subscriber.closing:
                events.append(("accept", subscriber.name, 0))
        return events

    def step(self, event: Event) -> None:
        self.now += self.tick_s
        self.history.append((self.now, event))
        if self.observer is not None:
            self.observer(event)
        self.happen(event)
        if self.ends_closed:
            self.forget_pipes()

    def happen(self, event: Event) -> None:
        name = self.concerned(event)  # before it happens: the pipe may be gone then
        getattr(self, "do_" + event[0])(*event[1:])
        if name is None or self.links_changed:
            self.settle_network(None)
        elif name:
            self.wake(name)

    def concerned(self, event: Event) -> str | None:
        """The router that may have something to say after it, or ""; None: any may, and trunks may come or go."""
        kind = event[0]
        if not self.due:
            if kind in OF_NOBODY:
                return ""
            if kind == "bit" and not self.turns:
                return self.pipes[event[1]].router
        if kind in OF_CONNECTION:
            return self.pipes[event[1]].router
        if kind in OF_CLIENT:
            return ""
        return event[OF_ROUTER[kind]] if kind in OF_ROUTER else None

    @property
    def transcript(self) -> list[str]:
        return [f"{at:8.2f} " + " ".join(str(e) for e in event) for at, event in self.history]

    # ------------------------------------------------------------------ events of the network
    def do_turn(self, name: str) -> None:
        """It writes what the handlers of its last reads have left behind."""
        self.due.pop(name, None)
        self.settle_network((name,))

    def do_up(self, x: str, y: str) -> None:
        if self.turns:  # what was said in an earlier session goes before the next one begins (`Network.take_events`)
            self.emit(self.site(x))
        event = self.site(x).inbox[y].popleft()
        assert isinstance(event, PeerUp)
        self.site(x).router.peer_up(y, self.now)

    def do_msg(self, y: str, x: str) -> None:
        event = self.site(x).inbox[y].popleft()
        assert isinstance(event, PeerMessage)
        self.site(x).router.peer_message(y, event.data, self.now)

    def do_down(self, x: str, y: str) -> None:
        inbox = self.site(x).inbox[y]
        was_up = True
        while True:
            event = inbox.popleft()
            if isinstance(event, PeerUp):
                was_up = False
            elif isinstance(event, PeerDown):
                break
        if was_up:  # else it came and went without being noticed
            self.site(x).router.peer_down(y, self.now)

    def do_suspect(self, x: str, y: str) -> None:
        """x gives its session with y up; both networks begin a new one."""
        self.site(x).network.peer_reset(y, self.now)
        self.settle_network((x,))
        self.do_down(x, y)

    def do_part(self, name: str) -> None:
        self.group[name] = 1

    def do_heal(self) -> None:
        self.group = dict.fromkeys(self.names, 0)

    def do_crash(self, name: str) -> None:
        site = self.site(name)
        self.sites[name] = None
        for pipe in self.pipes.values():
            if pipe.router == name and pipe.incarnation == site.incarnation:
                pipe.router_gone()
        for pair in [p for p in self.trunks if name in p]:
            self.cut_trunk(*pair)

    def do_restart(self, name: str) -> None:
        assert self.sites[name] is None
        self.sites[name] = Site(self, name, fresh=False)

    # ------------------------------------------------------------------ events of clients
    def do_connect(self, name: str, router: str) -> None:
        self.numbers[name] += 1
        site = self.site(router)
        cid = (name, self.numbers[name])
        server = site.router.connect(self.now)
        pipe = Pipe(cid, self.clients[name], router, site.incarnation, server, self, self.high)
        self.pipes[cid] = self.by_server[pipe.server] = pipe
        self.clients[name].connect(pipe)

    def do_c2r(self, cid: tuple[str, int]) -> None:
        pipe = self.pipes[cid]
        pipe.server.receive_data(pipe.take_c2r(), self.now)

    def do_r2c(self, cid: tuple[str, int]) -> None:
        pipe = self.pipes[cid]
        data = pipe.take_r2c()
        if pipe.client.pipe is pipe:
            pipe.client.receive(data)

    def do_rnotice(self, cid: tuple[str, int]) -> None:
        pipe = self.pipes[cid]
        pipe.router_gone()
        pipe.server.receive_eof(self.now)

    def do_cnotice(self, cid: tuple[str, int]) -> None:
        self.do_cdrop(cid)

    def do_cdrop(self, cid: tuple[str, int]) -> None:
        """The client's end is gone; what it has written still travels."""
        pipe = self.pipes[cid]
        if pipe.client.pipe is pipe:
            pipe.client.hang_up()
        else:
            pipe.client_gone()

    def do_send(self, name: str) -> None:
        self.publisher(name).send()

    def do_settle(self, name: str) -> None:
        tag = self.publisher(name).next_to_settle()
        assert tag is not None
        self.publisher(name).settle(tag)

    def do_accept(self, name: str, index: int) -> None:
        self.subscriber(name).accept(index)

    def do_hb(self, name: str) -> None:
        self.clients[name].heartbeat()

    def do_show(self, name: str) -> None:
        """A publisher shows that it is there: a flow with the credit that it has."""
        client = self.publisher(name)
        assert client.conn is not None
        assert client.pipe is not None
        client.link.flow()
        client.pipe.send(client.conn.data_to_send())

    def do_pfresh(self, name: str) -> None:
        self.publisher(name).forget()

    def do_close(self, name: str) -> None:
        client = self.clients[name]
        assert isinstance(client, (Publisher, Subscriber))
        client.close()

    def publisher(self, name: str) -> Publisher:
        client = self.clients[name]
        assert isinstance(client, Publisher)
        return client

    def subscriber(self, name: str) -> Subscriber:
        client = self.clients[name]
        assert isinstance(client, Subscriber)
        return client

    # ------------------------------------------------------------------ time
    def advance(self, seconds: float, step: float = math.inf) -> None:
        """Timers fire when they are due. step: the longest jump."""
        end = self.now + seconds
        while self.now < end:
            deadlines = [(self.deadline(name), name) for name in self.names]
            due = min(deadlines)[0]
            self.now = now = min(end, self.now + step, max(due, self.now + TICK))
            for deadline, name in deadlines:
                if deadline <= now and self.sites[name] is not None:
                    self.tick(name)

    def say_opens_again(self) -> None:
        """What a heartbeat does for sessions that are about to begin; most schedules do without heartbeats."""
        for name in self.names:
            site = self.sites[name]
            if site is not None:
                site.network.sessions.beat(self.now)
                self.settle_network((name,))

    def stand_still(self, seconds: float) -> None:
        """Timers fire late: all that were due by now. At most STALL_S."""
        self.now += seconds
        self.tick_all()

    def tick_all(self) -> None:
        for name in self.names:
            if self.sites[name] is not None and self.deadline(name) <= self.now:
                self.tick(name)

    def deadline(self, name: str) -> float:
        """When this router wants its time."""
        site = self.sites[name]
        if site is None:
            return math.inf
        found = site.network.next_deadline()
        router = site.router
        deadline = router.next_deadline()
        if deadline is not None and deadline < found:
            found = deadline
        for server in router.connections:
            deadline = server.next_deadline()
            if deadline is not None and deadline < found:
                found = deadline
        for (left, right), (left_end, right_end) in self.trunks.items():
            if left == name or right == name:
                deadline = (left_end if left == name else right_end).next_deadline()
                if deadline is not None and deadline < found:
                    found = deadline
        return found

    def tick(self, name: str) -> None:
        site = self.site(name)
        now = self.now
        site.network.tick(now)
        site.router.went_on(site.network.went_on)
        site.router.tick(now)
        self.due.pop(name, None)
        for server in list(site.router.connections):
            deadline = server.next_deadline()
            if deadline is not None and deadline <= now:
                server.handle_timer(now)
        for pair, ends in list(self.trunks.items()):
            if name in pair:
                end = ends[pair.index(name)]
                deadline = end.next_deadline()
                if deadline is not None and deadline <= now:
                    end.handle_timer(now)
        self.settle_network((name,))
        for pair, ends in list(self.trunks.items()):
            if ends[0].closed or ends[1].closed:  # who has closed takes the transport away
                self.cut_trunk(*pair)
                self.links_changed = True

    # ------------------------------------------------------------------ at the end
    def alive(self) -> set[tuple[str, int]]:
        return {(s.name, s.incarnation) for s in self.sites.values() if s is not None}

    def left_over(self) -> list[str]:
        """What should be empty at quiescence and is not."""
        return [*self.undone()]

    def undone(self) -> Iterator[str]:
        clients: list[Publisher | Subscriber] = [*self.publishers, *self.subscribers]
        yield from (f"{c.name} unsettled {c.unsettled}" for c in clients if c.unsettled)
        yield from (f"{p.name} sent {p.seq} of {p.total}" for p in self.publishers if not p.closed and p.seq < p.total)
        yield from (f"inbox {x}<-{y}" for x, s in self.sites.items() if s for y, q in s.inbox.items() if q)
        for site in self.sites.values():
            if site is not None:
                yield from (f"{site.name}: {text}" for text in self.router_left_over(site.router))

    @staticmethod
    def router_left_over(router: Router) -> list[str]:
        status: dict[str, Any] = router.core.status()
        left = [] if status["established"] else ["not established"]
        left += [f"{status[key]} {key}" for key in ("deferred", "payload_bytes") if status[key]]
        for name, address in status["addresses"].items():
            ingress, egress = address["ingress"], address["egress"]
            left += [f"{name} {ingress[key]} {key}" for key in ("undone", "unsettled", "awaited") if ingress[key]]
            left += [f"{name} {egress[key]} {key}" for key in ("arrived", "open") if egress[key]]
            left += [
                f"{name} {each['container']} {each['expected']} expected, {each['state']}"
                for each in ingress["publishers"]
                if each["expected"] or each["state"] == "claiming"
            ]
            left += [
                f"{name} {each['container']} {each['unsettled']} unsettled, {each['queued']} queued"
                for each in egress["subscribers"]
                if each["unsettled"] or each["queued"] or not each["answered"]
            ]
        return left

    def quiescent(self) -> None:
        left = self.left_over()
        if left:
            raise Violation("G4 left over: " + "; ".join(left))
        self.checker.quiescent(self.alive())


def comes_and_goes(inbox: Iterable[Any]) -> bool:
    """Whether the session that these events are of is over, or another begins."""
    return any(event.__class__ is PeerDown or event.__class__ is PeerUp for event in inbox)
