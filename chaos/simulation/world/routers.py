"""The routers of a simulated world: their cores, the bytes between them, and time.

Bytes between routers arrive at once through the real interrouter networks; the messages that these hand to a router
wait in an inbox per peer. `World` adds clients, and says what can happen (`world.py`, which lists the events as
tuples).
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from chaos.simulation.world.clients import ADDRESS, LINK
from interrouter.events import PeerDown, PeerMessage, PeerUp
from interrouter.network import Hello, Network, Timers
from router.config import AddressConfig, Life, OtherSubscriptions, RouterConfig
from router.router import Router
from router.versions import SPOKEN, Versions

if TYPE_CHECKING:
    from chaos.simulation.world.pipes import Pipe

START_US = 1_700_000_000_000_000  # the wall clock at virtual time 0
LONG = 4e6
BEFORE = Versions(SPOKEN.oldest, SPOKEN.oldest)
PROBE_AFTER_S = 0.2  # as in production, though no heartbeat comes
STALL_S = 0.4  # protocol 12: a router whose timers come later than this takes itself for suspended
TICK = 1e-4  # virtual seconds per event: clocks differ from event to event, and proofs need thousands


class Wire:
    """One direction of a trunk. held: bytes under way that come no further for now."""

    __slots__ = ("held", "sink", "to")

    def __init__(self, sink: Any, to: str, held: bytearray | None) -> None:
        self.sink, self.to, self.held = sink, to, held


class Site:
    """One router process: its cores, and for each peer the events of the network that it has not read yet."""

    def __init__(self, world: Routers, name: str, fresh: bool) -> None:
        self.name = name
        self.incarnation = world.draw_incarnation(name)
        peers = {other: 1 for other in world.names if other != name}
        heartbeat_s = world.config.get("heartbeat_s", LONG)
        versions = BEFORE if name in world.config.get("old", "") else SPOKEN
        dead_after_s = world.config.get("dead_after_s", 3 * heartbeat_s)
        timers = Timers(heartbeat_s, dead_after_s, PROBE_AFTER_S if heartbeat_s == LONG else None)
        self.network = Network(
            Hello("sim", name, self.incarnation, versions), peers, rng=random.Random(world.rng.random()),
            now=world.clock(name), timers=timers,
        )  # fmt: skip
        self.router = world.make_router(self, fresh)
        self.inbox: dict[str, deque[Any]] = {peer: deque() for peer in peers}


@dataclass(frozen=True)
class Clock:
    """What a router takes for the time since its machine started. rate: its seconds in one of ours."""

    rate: float
    offset: float

    def at(self, now: float) -> float:
        return now * self.rate + self.offset

    def when(self, time: float) -> float:
        """Our time at which this clock shows that."""
        return (time - self.offset) / self.rate


class Routers:
    tick_s = TICK

    def __init__(
        self,
        names: str,
        *,
        address: AddressConfig | None,
        router_class: type[Router],
        seed: int,
        config: dict[str, Any],
        clocks: dict[str, Clock] | None = None,
    ) -> None:
        """config: of `RouterConfig`, and `old`: the names of the routers that speak the version before only."""
        self.names = list(names)
        self.rng = random.Random(seed)
        self.now = 0.0
        self.clocks = clocks or {}
        self.address = address or AddressConfig()
        self.declaring: dict[str, AddressConfig] = {}  # of routers whose file declares something else
        self.config = config
        self.router_class = router_class
        self.turns = False  # routers write what they have to say in turns of their own
        self.due: dict[str, None] = {}  # routers whose turn is due
        self.one_way: dict[tuple[str, str], None] = {}  # (x, y): what x sends to y is held back
        self.group = dict.fromkeys(self.names, 0)
        self.by_server: dict[Any, Pipe] = {}  # the router's end of a client's connection -> all of it
        self.trunks: dict[tuple[str, str], tuple[Any, Any]] = {}
        self.ends: dict[str, list[Any]] = {name: [] for name in self.names}  # the trunks' ends at each
        self.wires: dict[Any, Wire] = {}  # one end of a trunk -> what goes to the other
        self.to_read: list[tuple[str, ...]] | None = None  # what routers can read next; None: not known
        self.deadlines: dict[str, float] = {}  # of routers that nothing has happened to since these were computed
        self.links_changed = True  # trunks may have to be made or cut
        self.ends_closed = False  # a pipe may be over
        self.wall_offset = dict.fromkeys(self.names, 0)
        self.files: dict[str, dict[str, Any]] = {}  # what the topology file of a router says that is not `config`
        self.sites: dict[str, Site | None] = {}
        for name in self.names:
            self.sites[name] = Site(self, name, fresh=True)
        self.settle_network()

    # ------------------------------------------------------------------ making
    def make_router(self, site: Site, fresh: bool) -> Router:
        life = Life(site.incarnation, self.clock(site.name), fresh)
        return self.router_class(self.config_of(site.name), life, wall_us=lambda: self.wall_us(site.name))

    def config_of(self, name: str) -> RouterConfig:
        """What this router's topology file says now."""
        address = self.declaring.get(name, self.address)
        old = name in self.config.get("old", "")
        config = RouterConfig(
            name=name, routers=tuple(self.names), addresses=(address,),
            defaults=replace(address, match="*", subscriptions=(), other_subscriptions="allow"),
            **{
                "idle_timeout_s": LONG,
                **({"strip_addresses": False} if old and hasattr(RouterConfig, "strip_addresses") else {}),  # as v0.9.0
                **{key: value for key, value in self.config.items() if key != "old"},
            },
        )  # fmt: skip
        return replace(config, **self.files.get(name, {}))

    def has_unread(self) -> bool:
        """Whether a router has something to read from another one."""
        return any(inbox for site in self.sites.values() if site is not None for inbox in site.inbox.values())

    def draw_incarnation(self, name: str) -> int:
        return self.rng.getrandbits(63) + 1

    def wall_us(self, name: str) -> int:
        return START_US + int(self.now * 1e6) + self.wall_offset[name]

    def clock(self, name: str) -> float:
        """What this router's own clock shows; that of `now` where all go alike."""
        clock = self.clocks.get(name)
        return self.now if clock is None else clock.at(self.now)

    def site(self, name: str) -> Site:
        site = self.sites[name]
        assert site is not None, f"{name} is down"
        return site

    def linked(self, a: str, b: str) -> bool:
        """Says whether the two routers have a trunk while both are alive: always, except across a partition."""
        return self.group[a] == self.group[b]

    # ------------------------------------------------------------------ between routers
    def settle_network(self) -> None:
        """Makes and cuts trunks as partitions say, and delivers everything between networks."""
        self.links_changed = False
        self.make_and_cut_trunks()
        self.due.clear()
        busy: dict[str, None] = {}
        for name in self.names:
            site = self.sites[name]
            if site is not None:
                self.emit(site)
                busy[name] = None
        self.carry(busy)

    def settle_one(self, name: str) -> None:
        """The same, where only this router may have something to send: usually it has nothing for the others."""
        if self.links_changed:
            self.settle_network()
            return
        site = self.sites[name]
        if site is not None:
            self.emit(site)
            if site.network.flush(self.clock(name)):
                self.carry({name: None})

    def carry(self, busy: dict[str, None]) -> None:
        """Delivers what the networks of these routers send, and what follows from that, until nothing is left."""
        sites, wires = self.sites, self.wires
        while busy:
            turn, busy = busy, {}
            for name in turn:
                site = sites[name]
                if site is None:
                    continue
                now = self.clock(name)
                self.deadlines.pop(name, None)
                network = site.network
                if not network.flush(now):
                    continue
                while network.more:
                    self.to_read = None
                    for event in network.take_events():
                        site.inbox[event.peer].append(event)
                    network.flush(now)
                for end in network.work.take_dirty():
                    data = end.data_to_send()
                    wire = wires.get(end) if data else None
                    if wire is None:
                        continue
                    if wire.held is not None:
                        wire.held += data
                    else:
                        wire.sink.receive_data(data, self.clock(wire.to))
                        busy[wire.to] = None

    def make_and_cut_trunks(self) -> None:
        for i, a in enumerate(self.names):
            for b in self.names[i + 1 :]:
                alive = self.sites[a] is not None and self.sites[b] is not None and self.linked(a, b)
                if alive and (a, b) not in self.trunks:
                    if not self.connects(a, b):
                        continue
                    left = self.site(a).network.connect(self.clock(a), neighbour=b)
                    right = self.site(b).network.connect(self.clock(b), neighbour=None)
                    self.trunks[a, b] = (left, right)
                    self.ends[a].append(left)
                    self.ends[b].append(right)
                    self.wires[left] = Wire(right, b, bytearray() if (a, b) in self.one_way else None)
                    self.wires[right] = Wire(left, a, bytearray() if (b, a) in self.one_way else None)
                elif not alive and (a, b) in self.trunks:
                    self.cut_trunk(a, b)

    def cut_trunk(self, a: str, b: str) -> None:
        for name, end in zip((a, b), self.trunks.pop((a, b)), strict=True):
            del self.wires[end]
            self.ends[name].remove(end)
            self.deadlines.pop(name, None)
            end.receive_eof(self.clock(name))

    def connects(self, a: str, b: str) -> bool:
        """Whether a dial between these two, which are there and linked, is answered now."""
        return True

    def next_dial(self) -> float:
        """When one may be answered next."""
        return math.inf

    def emit(self, site: Site) -> None:
        """Sends the router's messages."""
        router, inbox = site.router, site.inbox
        self.deadlines.pop(site.name, None)
        now = self.clock(site.name)
        while router.flush(now):
            pass
        for peers, data in router.take_messages():
            # A router sends in the sessions that it knows of. Where the network has ended one already, its messages are
            # lost (protocol 3.2).
            there = tuple([p for p in peers if not inbox[p] or not comes_and_goes(inbox[p])])
            if there:
                site.network.send(there, data)
        if not router.turn.dirty and not router.turn.deferred_output:
            return
        by_server = self.by_server
        for connection in (*router.take_dirty(), *router.turn.deferred_output):
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
            self.deadlines.pop(name, None)
        else:
            self.settle_one(name)

    def inbox(self, x: str, y: str) -> deque[Any]:
        """What router x has to read from y, of which something is read now."""
        self.to_read = None
        return self.site(x).inbox[y]

    # ------------------------------------------------------------------ events
    def do_turn(self, name: str) -> None:
        """It writes what the handlers of its last reads have left behind."""
        self.due.pop(name, None)
        self.settle_one(name)

    def do_up(self, x: str, y: str) -> None:
        if self.turns:  # messages of an earlier session go before the next one begins (`Network.take_events`)
            self.emit(self.site(x))
        event = self.inbox(x, y).popleft()
        assert isinstance(event, PeerUp)
        self.was_up(self.clock(x) - event.began)
        self.site(x).router.peer_up(y, self.clock(x), event.began, event.version)

    def was_up(self, after_s: float) -> None:
        """A session is up, so long after it was begun."""

    def do_msg(self, y: str, x: str) -> None:
        event = self.inbox(x, y).popleft()
        assert isinstance(event, PeerMessage)
        self.site(x).router.peer_message(y, event.data, self.clock(x))

    def do_down(self, x: str, y: str) -> None:
        inbox = self.inbox(x, y)
        was_up = True
        while True:
            event = inbox.popleft()
            if isinstance(event, PeerUp):
                was_up = False
            elif isinstance(event, PeerDown):
                break
        if was_up:  # else it came and went without being noticed
            self.site(x).router.peer_down(y, self.clock(x))

    def do_suspect(self, x: str, y: str) -> None:
        """x ends its session with y; both networks begin a new one."""
        self.site(x).network.peer_reset(y, self.clock(x))
        self.settle_one(x)
        self.do_down(x, y)

    def do_giveup(self, name: str, subscriber: str) -> None:
        """Its operator drops a subscription that is away, or attached here."""
        core = self.site(name).router.core
        for address in list(core.addresses.values()):
            for entry in list(address.subscriptions.entries.values()):
                if entry.name[0] == subscriber and entry.home in (None, name):
                    address.subscriptions.drop(entry)

    def do_reload(self, name: str, changes: dict[str, Any]) -> None:
        """The router is told of a topology file with these other values, and starts with it from now on."""
        self.files[name] = {**self.files.get(name, {}), **changes}
        site = self.sites[name]
        if site is not None:
            site.router.reconfigure(replace(site.router.config, **changes), self.clock(name))

    def do_part(self, name: str) -> None:
        self.group[name] = 1

    def do_heal(self) -> None:
        self.group = dict.fromkeys(self.names, 0)

    def do_restart(self, name: str, fresh: bool = False) -> None:
        assert self.sites[name] is None
        self.sites[name] = Site(self, name, fresh)
        self.to_read = None

    def declared_by(self, name: str) -> set[str]:
        """The subscribers that this router's file declares."""
        return {container for container, _ in self.declaring.get(name, self.address).subscriptions}

    def do_declare(self, name: str, subscribers: str, others: OtherSubscriptions = "allow") -> None:
        """The router is told of a file that declares these, separated by spaces. One that is dead starts with it."""
        declared = tuple((each, LINK) for each in subscribers.split())
        self.declaring[name] = replace(self.address, match=ADDRESS, subscriptions=declared, other_subscriptions=others)
        site = self.sites[name]
        if site is not None:
            site.router.reconfigure(self.config_of(name), self.clock(name))

    # ------------------------------------------------------------------ time
    def advance(self, seconds: float, step: float = math.inf) -> None:
        """Timers fire when they are due. step: the longest jump."""
        end = self.now + seconds
        while self.now < end:
            deadlines = [self.deadline(name) for name in self.names]
            soonest = min(*deadlines, self.next_dial())
            self.now = now = min(end, self.now + step, max(soonest, self.now + TICK))
            for deadline, name in zip(deadlines, self.names, strict=True):
                if deadline <= now and self.sites[name] is not None:
                    self.tick(name)
            if self.next_dial() <= now:
                self.settle_network()

    def repeat_opens(self) -> None:
        """What a heartbeat does for sessions that are about to begin; most schedules do without heartbeats."""
        for name in self.names:
            site = self.sites[name]
            if site is not None:
                site.network.sessions.heartbeat(self.clock(name))
                self.settle_one(name)

    def late_timers(self, seconds: float) -> None:
        """Timers fire late: all that were due by now. At most STALL_S."""
        self.now += seconds
        for name in self.names:
            if self.sites[name] is not None and self.deadline(name) <= self.now:
                self.tick(name)

    def deadline(self, name: str) -> float:
        """When this router wants its time."""
        site = self.sites[name]
        if site is None:
            return math.inf
        known = self.deadlines.get(name)
        if known is not None:
            return known
        found = site.network.next_deadline()
        router = site.router
        deadline = router.next_deadline()
        if deadline is not None and deadline < found:
            found = deadline
        for ends in (router.connections, self.ends[name]):
            for end in ends:
                deadline = end.connection.next_deadline()
                if deadline is not None and deadline < found:
                    found = deadline
        clock = self.clocks.get(name)
        if clock is not None:
            found = clock.when(found)
        self.deadlines[name] = found
        return found

    def tick(self, name: str) -> None:
        site = self.site(name)
        now = self.clock(name)
        site.network.tick(now)
        site.router.process_resumed(site.network.resumed_at)
        site.router.tick(now)
        self.due.pop(name, None)
        for end in [*site.router.connections, *self.ends[name]]:
            deadline = end.connection.next_deadline()
            if deadline is not None and deadline <= now:
                end.handle_timer(now)
        self.settle_one(name)
        for pair, (left, right) in list(self.trunks.items()):
            if left.connection.closed or right.connection.closed:  # a closed end closes the transport
                self.cut_trunk(*pair)
                self.links_changed = True


def comes_and_goes(inbox: Iterable[Any]) -> bool:
    """Whether the session that these events are of is over, or another begins."""
    return any(event.__class__ is PeerDown or event.__class__ is PeerUp for event in inbox)
