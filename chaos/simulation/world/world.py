"""A whole network in one process with virtual time: real engine, real router and interrouter cores, scripted clients.

Nothing happens by itself. `enabled()` lists what can happen next, `step(event)` lets it happen; a schedule (see
`schedule.py`) holds events back to bring about the one interleaving it is about. What is between routers, and time, is
in `routers.py`; client connections are pipes of frames in both directions (`pipes.py`). Events, as tuples:

    up X Y          router X learns that the session with Y is up         down X Y   ... is over (drops what came first)
    msg Y X         router X processes the next message from Y
    c2r C, r2c C    the next frame of client connection C is read by the router, by the client
    rnotice C       the router notices that C's connection is gone        cnotice C  the client does
    connect N R     client N connects to router R
    declare R NAMES how     router R is told of a topology file that declares these subscribers; others: allow or refuse
    giveup R N, forget R N      R's operator drops subscription N, or has publisher N forgotten
    send N, accept N I, ...     what the clients' applications do, or what happens to their processes (`DEEDS`)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from chaos.simulation.world.checker import Checker, Violation
from chaos.simulation.world.clients import UNIQUE, Client
from chaos.simulation.world.dials import DEAD_AFTER_S
from chaos.simulation.world.pipes import Pipe
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.queue_checker import QueueChecker
from chaos.simulation.world.routers import Clock, Routers
from chaos.simulation.world.subscribers import Subscriber
from interrouter.events import PeerDown, PeerMessage, PeerUp
from router.config import AddressConfig, OtherSubscriptions
from router.core.naming import derive_publisher_id
from router.core.reports import at_once, of_publisher, of_subscriber
from router.router import Router

Event = tuple[Any, ...]


# Kind of event -> place in it of the router that may have something to send after it.
OF_ROUTER = {"up": 1, "down": 1, "msg": 2, "connect": 2} | dict.fromkeys(
    ("suspect", "reload", "declare", "giveup", "forget"), 1
)
# After these events it is the router of the connection;
OF_CONNECTION = frozenset(("c2r", "gulp", "rnotice", "rdrop"))
# after these none: the client reads, or an application fills a pipe;
OF_CLIENT = frozenset((
    "r2c", "cnotice", "cdrop", "send", "go_on", "settle", "accept", "release", "reject", "hb", "show", "pfresh",
    "sfresh", "srestart", "close", "stall", "unstall", "turn",
))  # fmt: skip
# after these only routers whose turn is due: those that time or a client concerns have written already.
OF_NOBODY = frozenset(("cbit", "disk", "kill", "full", "start", "twin", "tick"))
# The method of the client that does what the event says.
DEEDS = {
    "send": "send", "go_on": "go_on", "settle": "settle_next", "accept": "accept", "all": "accept_all",
    "release": "release", "reject": "reject", "hb": "heartbeat", "show": "show", "close": "close", "pfresh": "forget",
    "sfresh": "forget", "srestart": "restart", "disk": "disk", "kill": "kill", "full": "fill", "start": "start",
}  # fmt: skip


class World(Routers):
    check_every = 1
    """Steps from one check of all routers' state to the next; 0: no checks."""

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
        clocks: dict[str, Clock] | None = None,
        **config: Any,
    ) -> None:
        self.checker = Checker(strict)
        if address is not None and address.type == "queue":
            self.checker = QueueChecker(strict, consumers=len(subscribers), ordered=not address.priority)
        self.checker.dead_after_s = config.get("dead_after_s", DEAD_AFTER_S)
        self.high: int | None = None
        """Bytes that a client may leave unread before its router is told to pause; None: any number."""
        self.clients: dict[str, Client] = {c.name: c for c in [*publishers, *subscribers]}
        self.publishers, self.subscribers = publishers, subscribers
        for client in self.clients.values():
            client.world = self
        self.pipes: dict[tuple[str, int], Pipe] = {}
        self.numbers = dict.fromkeys(self.clients, 0)
        self.history: list[tuple[float, Event]] = []
        self.observer: Callable[[Event], None] | None = None  # hears of each event before it happens
        self.last_left = ""  # the router where the last check found something left over
        self.unusual = False  # there is more to say of what can happen, or less
        self.handlers: dict[str, Callable[..., None]] = {}  # kind of event -> what does it, once it has happened
        super().__init__(names, address=address, router_class=router_class, seed=seed, config=config, clocks=clocks)
        self.checker.declare(*(container for container, _ in self.address.subscriptions))

    def forget_pipes(self) -> None:
        """Those that are over at both ends."""
        self.ends_closed = False
        for cid in [cid for cid, p in self.pipes.items() if not p.c_open and not p.r_open]:
            self.by_server.pop(self.pipes.pop(cid).server, None)

    # ------------------------------------------------------------------ what can happen
    def enabled(self) -> list[Event]:
        events: list[Event] = [("turn", name) for name in self.due] if self.due else []
        if self.to_read is None:
            self.to_read = [*self.between_routers()]
        events += self.to_read
        for cid, pipe in self.pipes.items():
            if pipe.r_open:
                if pipe.c2r and (not pipe.server.output_paused or pipe.server.reads):
                    events.append(("c2r", cid))
                if not pipe.c_open:
                    events.append(("rnotice", cid))
                elif pipe.r2c and not pipe.stalled:
                    events.append(("r2c", cid))
            elif pipe.c_open:
                if not pipe.r2c:
                    events.append(("cnotice", cid))
                elif not pipe.stalled:
                    events.append(("r2c", cid))
        for publisher in self.publishers:
            if publisher.state == "on" and not publisher.closing:
                if publisher.seq < publisher.total and publisher.can_send():
                    events.append(("send", publisher.name))
                if publisher.can_go_on():
                    events.append(("go_on", publisher.name))
                if publisher.unsettled and publisher.next_to_settle() is not None:
                    events.append(("settle", publisher.name))
        for subscriber in self.subscribers:
            if subscriber.in_hand and not subscriber.closing:
                events.append(("accept", subscriber.name, 0))
        return self.unusual_events(events) if self.unusual else events

    def between_routers(self) -> Iterator[Event]:
        for x, site in self.sites.items():
            if site is None:
                continue
            for y, inbox in site.inbox.items():
                if inbox:
                    head = inbox[0].__class__
                    if head is PeerMessage:
                        yield ("msg", y, x)
                    elif head is PeerUp:
                        yield ("up", x, y)
                    if head is PeerDown or (len(inbox) > 1 and PeerDown in [e.__class__ for e in inbox]):
                        yield ("down", x, y)

    def unusual_events(self, events: list[Event]) -> list[Event]:
        """What can happen where something is unusual (`faulty_world.py`)."""
        return events

    def step(self, event: Event) -> None:
        self.now = now = self.now + self.tick_s
        self.history.append((now, event))
        if self.observer is not None:
            self.observer(event)
        self.happen(event)
        if self.ends_closed:
            self.forget_pipes()
        if self.check_every and len(self.history) % self.check_every == 0:
            self.check_invariants()

    def checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """(router, what checks invariants of its core, network, connections of clients, and both ends of streams)"""
        alive = [(name, site) for name, site in self.sites.items() if site is not None]
        for place, (name, site) in enumerate(alive):
            yield name, site.router.core.check_invariants
            yield name, site.network.check_invariants
            for client in site.router.connections:
                # v0.9.0 has none, in which the families find their faults (tests/simulation/test_older.py)
                yield name, getattr(client, "check_invariants", client.connection.check_invariants)
            for _, other in alive[place + 1 :]:
                yield name, partial(site.network.sessions.check_against, other.network.sessions)

    def check_invariants(self) -> None:
        """Checks that no state is impossible. That shows before anything can be seen from outside."""
        for name, check in self.checks():
            try:
                check()
            except AssertionError as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = str(error).split("\n", 1)[0] or where.line
                raise Violation(f"I {name}: {what} ({Path(where.filename).name}:{where.lineno})") from error

    def happen(self, event: Event) -> None:
        kind = event[0]
        name = "" if kind in OF_CLIENT else self.concerned(event)  # before it happens: the pipe may be gone then
        handler = self.handlers.get(kind)
        if handler is None:
            handler = self.handlers[kind] = getattr(self, "do_" + kind, None) or partial(self.let_client, DEEDS[kind])
        handler(*event[1:])
        if name is None or self.links_changed or (self.due and kind in OF_NOBODY):
            self.settle_network()
        elif name:
            self.wake(name)

    def concerned(self, event: Event) -> str | None:
        """Returns the router that may have something to send afterwards, or ""; None: any may, or trunks change."""
        kind = event[0]
        if kind in OF_CONNECTION or (kind == "bit" and not self.turns):
            return self.pipes[event[1]].router
        place = OF_ROUTER.get(kind)
        if place is not None:
            name: str = event[place]
            return name
        return "" if kind in OF_NOBODY or kind in OF_CLIENT else None

    @property
    def transcript(self) -> list[str]:
        return [f"{at:8.2f} " + " ".join(str(e) for e in event) for at, event in self.history]

    # ------------------------------------------------------------------ events of routers and clients
    def was_up(self, after_s: float) -> None:
        self.checker.was_up(after_s)

    def counts(self, name: str) -> list[str]:
        """The routers to which this one is there, or will be when they read on."""
        sites = [(other, site) for other, site in self.sites.items() if site is not None and other != name]
        return [
            other for other, site in sites
            if name in site.router.core.members.up or any(isinstance(one, PeerUp) for one in site.inbox[name])
        ]  # fmt: skip

    def do_crash(self, name: str) -> None:
        site = self.site(name)
        self.sites[name] = self.to_read = None
        self.checker.died((name, site.incarnation), self.counts(name))
        for subscriber in self.subscribers:
            if name in subscriber.closed_at and isinstance(self.checker, QueueChecker):
                self.checker.went(subscriber.name)  # protocol 14, "Consumers that close too soon"
        for pipe in self.pipes.values():
            if pipe.router == name and pipe.incarnation == site.incarnation:
                pipe.router_gone()
        for pair in [p for p in self.trunks if name in p]:
            self.cut_trunk(*pair)

    def do_declare(self, name: str, subscribers: str, others: OtherSubscriptions = "allow") -> None:
        """See `Routers.do_declare`. The checker counts on what all files declare."""
        elsewhere = [self.declared_by(other) for other in self.names if other != name]
        self.checker.declare(*sorted({*subscribers.split()}.intersection(*elsewhere)), later=True)
        self.checker.dropped |= self.declared_by(name) - {*subscribers.split()}  # protocol 8.7
        super().do_declare(name, subscribers, others)

    def do_down(self, x: str, y: str) -> None:
        self.checker.parted(x, y)
        super().do_down(x, y)

    def do_giveup(self, name: str, subscriber: str) -> None:
        self.checker.dropped.add(subscriber)
        super().do_giveup(name, subscriber)

    def do_forget(self, name: str, publisher: str) -> None:
        """Its operator has a publisher forgotten that is away."""
        unique = self.publisher(publisher).kind == UNIQUE
        for address in list(self.site(name).router.core.addresses.values()):
            entry = address.publishers.entries.get(derive_publisher_id(publisher, "out", address.name, unique))
            if entry is not None and entry.home is None:
                address.publishers.forget(entry)

    def do_restart(self, name: str, fresh: bool = False) -> None:
        super().do_restart(name, fresh)
        self.checker.started((name, self.site(name).incarnation))

    def do_connect(self, name: str, router: str) -> None:
        self.numbers[name] += 1
        site = self.site(router)
        cid = (name, self.numbers[name])
        server = site.router.connect(self.clock(router))
        pipe = Pipe(cid, self.clients[name], router, site.incarnation, server, self, self.high)
        self.pipes[cid] = self.by_server[pipe.server] = pipe
        self.clients[name].connect(pipe)

    def do_c2r(self, cid: tuple[str, int]) -> None:
        pipe = self.pipes[cid]
        pipe.server.receive_data(pipe.take_c2r(), self.clock(pipe.router))

    def do_r2c(self, cid: tuple[str, int]) -> None:
        pipe = self.pipes[cid]
        data = pipe.take_r2c()
        if pipe.client.pipe is pipe:
            pipe.client.receive(data)

    def do_rnotice(self, cid: tuple[str, int]) -> None:
        pipe = self.pipes[cid]
        pipe.router_gone()
        pipe.server.receive_eof(self.clock(pipe.router))

    def let_client(self, deed: str, name: str, *arguments: Any) -> None:
        getattr(self.clients[name], deed)(*arguments)

    def do_cnotice(self, cid: tuple[str, int]) -> None:
        self.do_cdrop(cid)

    def do_cdrop(self, cid: tuple[str, int]) -> None:
        """The client's end is gone; what it has written still travels."""
        pipe = self.pipes[cid]
        if pipe.client.pipe is pipe:
            pipe.client.hang_up()
        else:
            pipe.client_gone()

    def publisher(self, name: str) -> Publisher:
        client = self.clients[name]
        assert isinstance(client, Publisher)
        return client

    def subscriber(self, name: str) -> Subscriber:
        client = self.clients[name]
        assert isinstance(client, Subscriber)
        return client

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
        there = [site for site in self.sites.values() if site is not None]
        for site in sorted(there, key=lambda site: site.name != self.last_left):  # most likely where it was before
            for text in self.router_left_over(site.router):
                self.last_left = site.name
                yield f"{site.name}: {text}"

    @staticmethod
    def router_left_over(router: Router) -> list[str]:
        core = router.core
        left = [] if core.recovery.established else ["not established"]
        sizes = {"deferred": core.recovery.deferred, "payload_bytes": core.memory.payload_bytes}
        left += [f"{size} {what}" for what, size in sizes.items() if size]
        for name, address in sorted(core.addresses.items()):  # `of_all` would take longer
            records, deliveries = address.records.status(), address.deliveries.status()
            publishers = [of_publisher(address, each) for each in address.attached.all()]
            subscribers = [at_once(of_subscriber(each)) for each in address.deliveries.subscribers.values()]
            left += [f"{name} {records[key]} {key}" for key in ("undone", "unsettled", "awaited") if records[key]]
            left += [f"{name} {deliveries[key]} {key}" for key in ("arrived", "open") if deliveries[key]]
            left += [
                f"{name} {each['container']} {each['expected']} expected, {each['state']}"
                for each in publishers
                if each["expected"] or each["state"] == "claiming"
            ]
            left += [
                f"{name} {each['container']} {each['unsettled']} unsettled, {each['queued']} queued"
                for each in subscribers
                if each["unsettled"] or each["queued"] or not each["answered"]
            ]
        return left

    @staticmethod
    def router_remembers(router: Router) -> list[str]:
        """What should be forgotten when all clients have closed, and is not."""
        core = router.core
        left = [
            f"{entries} {[*address.publishers.entries]}"
            for address in core.addresses.values()
            if (entries := [each.name for each in address.subscriptions.entries.values() if not each.declared])
            or address.publishers.entries
            or not address.subscriptions.entries
        ]
        if core.memory.payload_bytes or core.publishers or core.subscribers:
            left.append(f"{core.memory.payload_bytes} bytes, {core.publishers}, {core.subscribers}")
        held = {
            "at most once": core.memory.presettled_bytes,
            "incomplete": router.buffers.incomplete_bytes,
            "unread": router.buffers.unread_bytes,
        }
        left += [f"{size} bytes {what}" for what, size in held.items() if size]
        if core.memory.map_parts:
            left.append("parts of maps")
        return left

    def quiescent(self) -> None:
        left = self.left_over()
        if left:
            raise Violation("G4 left over: " + "; ".join(left))
        self.drained()

    def drained(self) -> None:
        """Nothing is left over: what must hold then."""
        if self.check_every:
            self.check_invariants()
        self.checker.quiescent(self.alive())
