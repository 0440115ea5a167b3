"""Random schedules: random networks, clients and faults, and a random choice of what happens next.

A seed says everything: the plan (`plan.py`), and every choice. After the faults every client and router returns, and
everything drains (G4) in a bounded time. Then every client closes, and no router may remember anything. A failing
schedule can be shrunk (`shrink.py`). `python -m chaos.simulate` runs them; docs/simulation.md says how a seed is
replayed.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate, chain

from amqp10.performatives import RCV_FIRST
from chaos.simulation.random.pacing import Pacing
from chaos.simulation.random.plan import FAULT_WEIGHTS, NEAR, Plan, draw, family_of, may_part
from chaos.simulation.random.recording import SAID, Player, may_say, may_wait, without_number
from chaos.simulation.random.variations import draw_variation
from chaos.simulation.scenarios.schedule import Schedule
from chaos.simulation.world.checker import Violation
from chaos.simulation.world.clients import MEMORY, PLAIN, RECOVERING, UNIQUE, Client
from chaos.simulation.world.faulty_world import FaultyWorld
from chaos.simulation.world.pipes import Pipe
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.queue_checker import QueueChecker
from chaos.simulation.world.real_clients import JUMPS, OURS, RealClient
from chaos.simulation.world.real_subscribers import RealSubscriber
from chaos.simulation.world.routers import STALL_S
from chaos.simulation.world.subscribers import Subscriber
from chaos.simulation.world.world import Event, World
from interrouter.events import PeerDown, PeerUp
from router.core.map_parts import KEPT_S

FRESH_FRAME_S = 1.5  # less than proof_after (2 s), on which clients without epochs rely
SETTLING = 30_000
LOOK = 6  # events from one estimate of the faults' likelihood to the next
SAMPLED = 128  # steps from one check of all state to the next: a check at each step would take as long as all the rest
PASSES_APART = 2
IDLE = 5  # a router without clients is as likely to be cut off as so many with some
SLACK_S = 15.0  # allowed at the end in addition to the timeouts
FAULT_KINDS = frozenset(
    (*FAULT_WEIGHTS, "pass", "kill", "full", "twin", "away", "still", "wake", "late", "declare", "forget", "reload")
)
QUITTERS = (UNIQUE, MEMORY)  # other publishers claim by their epoch what they then close


class Run:
    """One schedule: what is possible, and what has happened."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.family = plan, plan.rules
        self.rng = random.Random(f"{plan.family} {plan.seed} run")
        self.budget, self.weights, self.address = dict(plan.budget), plan.weights, plan.address
        publishers, subscribers = plan.make_clients()
        self.world = FaultyWorld(
            plan.names, publishers, subscribers, strict=self.family.strict, address=self.address, seed=plan.seed,
            shape=plan.shape, clocks=plan.clocks, dials=self.family.dials, **plan.config,
        )  # fmt: skip
        self.world.high = plan.high
        self.clients: list[Publisher | Subscriber] = [*publishers, *subscribers]
        self.may_be_taken_for_others = any(publisher.kind == MEMORY for publisher in publishers)
        for subscriber in subscribers:
            subscriber.most = self.address.max_redeliveries
        for publisher in publishers:
            publisher.gives_up_s = self.address.publisher_expires_s - self.address.margin_s
        checker = self.world.checker
        if isinstance(checker, QueueChecker):
            checker.most = self.address.max_redeliveries
        checker.may_have_holes = may_part(plan)
        checker.within_bounds = self.family.within_bounds
        checker.beside_old = "old" in plan.config
        checker.together = lambda: not self.world.suspended and next(self.apart(), None) is None
        checker.sees_all = self.sees_all
        checker.clock = lambda: self.world.now
        checker.may_be_decided = self.world.may_be_decided
        checker.at_least_once |= {c.name for c in self.clients if c.rcv == RCV_FIRST}
        checker.at_least_once |= {s.name for s in subscribers if not s.careful}
        checker.without_born |= {s.name for s in subscribers if s.kind in (PLAIN, MEMORY)}
        checker.without_memory |= {s.name for s in subscribers if s.kind == PLAIN}
        self.fresh_s = FRESH_FRAME_S
        """No frame of a client stays unread for longer."""
        if self.family.expiry:
            self.fresh_s = min(self.address.margin_s, FRESH_FRAME_S)
        elif all(each.kind == RECOVERING for each in publishers) and all(each.kind != PLAIN for each in subscribers):
            self.fresh_s = math.inf  # late frames prove nothing
        in_parts = "max_frame_size" in plan.config or any(client.part for client in self.clients)  # maps, every time
        self.slack_s = SLACK_S + KEPT_S * in_parts
        self.unasked = [p for p in publishers if p.kind == UNIQUE or (plan.shows and p.kind != OURS)]
        """Publishers that may show at any time that they are there."""
        self.ticks = 0
        self.beats: dict[str, float] = {}  # client -> when it last sent a heartbeat
        self.events: list[Event] = []
        self.topics = dict.fromkeys(plan.topics)  # routers that do not follow yet
        self.places = [(name, place) for name, place in plan.places if self.world.clients[name].state == "off"]

    # ------------------------------------------------------------------ what can happen
    def progress(self) -> list[Event]:
        """What happens by itself, and what applications do next."""
        w = self.world
        events = w.enabled()
        if self.may_be_taken_for_others:
            events = [e for e in events if e[0] != "send" or self.known_as_new(w.publisher(e[1]))]
        for client in self.clients:
            if client.state == "off" and not client.closed:
                for name, site in w.sites.items():
                    if site is not None and name not in self.topics:
                        events.append(("connect", client.name, name))
        return events

    def known_as_new(self, publisher: Publisher) -> bool:
        """A publisher with memory and without epochs has credit before any router knows its new incarnation. Suppose it
        has lost its memory before, sends, and loses that connection too: when it comes back with a map, it is taken for
        its former self. So it waits (protocol 5.1)."""
        if publisher.kind != MEMORY or not publisher.base or publisher.pipe is None:
            return True
        site = self.world.sites[publisher.pipe.router]
        links = site.router.core.publishers.values() if site is not None else ()
        server = publisher.pipe.server
        return any(link.port in server.ports and link.ready for link in links)

    def usual(self) -> list[Event]:
        """Events without faults: what happens by itself, in any order and in any pieces, and what applications do."""
        w, budget = self.world, self.budget
        events = self.progress()
        bits = budget.get("bit")
        for cid, pipe in w.pipes.items():
            if pipe.r_open:
                if pipe.c2r and (bits or len(pipe.c2r) > 1):
                    readable = not pipe.server.output_paused or pipe.server.reads
                    if len(pipe.c2r) > 1 and readable:
                        events.append(("gulp", cid))
                    if bits and readable:
                        events += self.pieces("bit", cid, len(pipe.c2r[0]) - pipe.c2r_read)
            elif pipe.r2c and pipe.c_open and not pipe.server.closed:
                events.append(("cnotice", cid))  # with frames that the client will never see
            if bits and pipe.r2c and pipe.c_open and not pipe.stalled:
                events += self.pieces("cbit", cid, len(pipe.r2c[0]) - pipe.r2c_read)
        for publisher in self.unasked:
            if publisher.kind == UNIQUE:
                if publisher.state != "off" and w.now - self.beats.get(publisher.name, 0.0) > STALL_S:
                    events.append(("hb", publisher.name))
            elif publisher.state == "on":
                events.append(("show", publisher.name))
        for subscriber in w.subscribers:
            if subscriber.in_hand and not subscriber.closing:
                if isinstance(subscriber, RealSubscriber):
                    events += subscriber.may_do(budget)
                self.of_application(subscriber, events)
        return w.of_running(events) if w.unusual else events

    def pieces(self, kind: str, cid: tuple[str, int], left: int) -> list[Event]:
        return [(kind, cid, self.rng.choice((1, left // 2, left - 1)))] if left > 1 else []

    def of_application(self, client: Subscriber, events: list[Event]) -> None:
        last = len(client.in_hand) - 1
        if last > 0:
            events.append(("accept", client.name, last))
        if self.budget.get("release"):
            events += [("release", client.name, index) for index in range(last + 1) if client.can_release(index)]
        if self.budget.get("reject") and client.kind != OURS:
            events += [("reject", client.name, index) for index in range(last + 1)]

    def faults(self) -> list[Event]:
        """Faults, and the ends of faults."""
        w, budget = self.world, self.budget
        events: list[Event] = []
        cdrop, rdrop, stall = budget["cdrop"], budget["rdrop"], budget.get("stall")
        still, crash = self.family.silence and budget.get("still"), budget["crash"]
        for cid, pipe in w.pipes.items():
            if cdrop and pipe.c_open:
                events.append(("cdrop", cid))
            if rdrop and pipe.r_open:
                events.append(("rdrop", cid))
            if pipe.stalled:
                events.append(("unstall", cid))
            elif stall and pipe.c_open:
                events.append(("stall", cid))
        for name, site in w.sites.items():
            if site is None:
                events += self.of_suspended(name) if name in w.suspended else [("restart", name)]
                continue
            if still:
                events.append(("still", name))
            if crash:
                events.append(("crash", name))
        if len(w.names) > 1:
            self.between_routers(events)
        if budget.get("declare"):
            events += [("declare", name, *file) for name in w.names for file in self.files()]
        events += map(self.follows, self.topics)
        if budget.get("clock"):
            events += [("clock", name, seconds) for name in w.names for seconds in JUMPS]
        for client in self.clients:
            if client.kind == OURS:
                assert isinstance(client, RealClient)
                self.of_process(client, events)
            self.of_client(client, events)
        if w.unusual:
            events = w.of_running(events)
        if self.may_tick():
            events.append(("tick",))
        if budget.get("pass", 0) > self.kept_passes() and self.nobody_waits():
            events += [("pass", seconds) for seconds in self.waits()]
        return events

    def of_suspended(self, name: str) -> Iterator[Event]:
        """What may become of a suspended router."""
        for timers_first in (False, True):
            yield ("wake", name, timers_first)
            if self.declared_dead(name):
                yield ("late", name, timers_first)

    def declared_dead(self, name: str) -> bool:
        """Whether all other routers have declared it dead, so that passing time concerns only this router."""
        w = self.world
        known = any(name in site.router.core.members.up for site in w.sites.values() if site is not None)
        return not (known or w.has_unread()) and not any(
            pipe.c_open and (pipe.r2c or pipe.c2r or not pipe.r_open or not w.reads(pipe)) for pipe in w.pipes.values()
        )

    def between_routers(self, events: list[Event]) -> None:
        w, budget = self.world, self.budget
        apart = any(w.group.values())
        part, suspect = budget.get("part") and not apart, budget.get("suspect")
        if part or suspect:
            for name in [name for name, site in w.sites.items() if site is not None]:
                if part:
                    idle = self.family.passes and not any(pipe.router == name for pipe in w.pipes.values())
                    events += [("part", name)] * (IDLE if idle else 1)
                if suspect:
                    events += [("suspect", name, peer) for peer in w.names if self.in_session(name, peer)]
        cut, hold = budget.get("cut"), budget.get("hold")
        if cut or hold:
            for a, b in w.trunks:
                if cut:
                    events.append(("cut", a, b))
                if hold:
                    events += [("hold", *way) for way in ((a, b), (b, a)) if way not in w.one_way]
        if budget.get("reshape"):
            events += [("reshape", shape) for shape in self.family.shapes if shape != w.shape]
        if apart or w.broken:
            events.append(("heal",))
        if w.one_way:
            events += [("let", *way) for way in w.one_way]
            for way, wire in w.held().items():
                events.append(("drip", *way, self.rng.randrange(1, len(wire.held or b"") + 1)))

    def of_process(self, client: RealClient, events: list[Event]) -> None:
        budget, name = self.budget, client.name
        events += client.may_go_wrong(budget)
        if budget.get("away") and client.state == "off" and self.nobody_waits():
            events.append(("away", name))
        if client.suspended:
            events.append(("wake", name))
            left_alone = client.pipe is None or not client.pipe.r_open
            if left_alone and not self.family.strict and self.nobody_waits(client):
                events.append(("late", name))
        elif budget.get("still") and client.endpoint is not None:
            events.append(("still", name))

    def of_client(self, client: Publisher | Subscriber, events: list[Event]) -> None:
        budget, name = self.budget, client.name
        if isinstance(client, Publisher):
            if budget["pfresh"] and not client.closing:
                events.append(("pfresh", name))
            if budget.get("forget") and client.state == "off" and client.kind != UNIQUE:
                events += [("forget", router, name) for router, site in self.world.sites.items() if site is not None]
            if budget["quit"] and client.state == "off" and client.kind in QUITTERS and not client.closed:
                up = [router for router, site in self.world.sites.items() if site is not None]
                events += [("quit", name, router) for router in up if router not in self.topics]
        else:
            if budget["sfresh"] and not client.closing:
                events.append(("sfresh", name))
            if budget["srestart"] and not client.closed:
                events.append(("srestart", name))
        if budget["close"] and client.state == "on" and not client.closing and self.may_leave(client):
            events.append(("close", name))

    def follows(self, name: str) -> Event:
        """The address becomes a queue at this router."""
        return ("reload", name, {"addresses": (self.address,)})

    def files(self) -> Iterator[tuple[str, str]]:
        """What a router's file may come to declare."""
        names = [s.name for s in self.world.subscribers]
        for declared in dict.fromkeys((" ".join(names), " ".join(names[:-1]), names[-1], "")):
            yield (declared, "allow")
            if declared:
                yield (declared, "refuse")

    def may_leave(self, client: Client) -> bool:
        """Whether it may leave: publishers may need a subscriber to be able to send, and those that are declared. A
        consumer of a queue has told its router first what it has accepted (protocol 16.6)."""
        if client.name in self.world.checker.declared:
            return False
        if self.world.checker.competing and isinstance(client, Subscriber) and client.untold():
            return False
        others = [s for s in self.world.subscribers if s is not client and not s.closing and not s.closed]
        return client in self.world.publishers or self.address.no_subscribers != "hold" or bool(others)

    def in_session(self, name: str, peer: str) -> bool:
        site = self.world.site(name)
        session = site.network.sessions.by_peer.get(peer)
        return (
            session is not None
            and session.up
            and peer in site.router.core.members.up
            and not any(isinstance(e, (PeerDown, PeerUp)) for e in site.inbox[peer])
        )

    def nobody_waits(self, but: RealClient | None = None) -> bool:
        """Whether everything has been read, so that passing time concerns only those who are away. The ends of
        connections must be read, too: a client of ours does not stay for so long on a connection that its router has
        closed (idle-time-out), unless it is suspended."""
        w = self.world
        unread = any(
            (pipe.c2r and pipe.r_open) or (pipe.c_open and (pipe.r2c or not pipe.r_open) and pipe.client is not but)
            for pipe in w.pipes.values()
        )
        return not (unread or w.has_unread() or w.held())  # routers that are silent for so long are declared dead

    def kept_passes(self) -> int:
        """How often time is to pass only while routers are apart."""
        w = self.world
        return PASSES_APART if self.family.passes and not (any(w.group.values()) or w.broken) else 0

    def waits(self) -> tuple[float, ...]:
        """Seconds until a subscription is forgotten, a publisher is, and a publisher almost is; or the family's own."""
        if self.family.passes:
            return tuple(share * self.address.subscription_timeout_s for share in self.family.passes)
        publisher_s, margin_s = self.address.publisher_expires_s, self.address.margin_s
        return self.address.subscription_timeout_s + 2 * margin_s, publisher_s + 2 * margin_s, publisher_s * 0.9

    def may_tick(self) -> bool:
        """Timers are longer than what they allow for: messages between routers that are together (discovery), frames of
        clients (proof_after), absences (subscription_timeout)."""
        w, expiry = self.world, self.family.expiry
        if (self.ticks + 1) * STALL_S >= self.family.lasts_s:
            return False
        late = w.now + STALL_S - self.fresh_s
        for pipe in w.pipes.values():
            if self.is_late(pipe, late):
                return False
            if expiry and pipe.c_open and (pipe.r2c or not pipe.r_open):
                return False  # a loss becomes known, and what was said is read, within the margin
        if expiry and any(self.silent(p) for p in w.publishers):
            return False  # protocol 5.2: no client is forgotten elsewhere while a router waits for its next frame
        if not self.family.strict and not expiry:
            return True
        return not w.held() and not w.has_unread()

    def is_late(self, pipe: Pipe, late: float) -> bool:
        """A frame written before that has not been read, on which somebody relies: a router who reads a later one of a
        client without epochs takes it that the client has read what it was told (protocol 5.2, 7.6.9)."""
        if pipe.since < late and pipe.c2r and pipe.r_open and self.world.reads(pipe):
            return True
        return pipe.told < late and bool(pipe.r2c) and pipe.c_open and pipe.client.kind == PLAIN

    def silent(self, publisher: Publisher) -> bool:
        """Timeouts are longer than what lies between two heartbeats of a client that answers no question."""
        since = self.world.now - self.beats.get(publisher.name, 0.0)
        return publisher.kind == UNIQUE and publisher.state != "off" and since > self.address.margin_s

    def able(self, event: Event) -> bool:
        """Whether an event of another run can happen in this one."""
        kind = event[0]
        if kind in ("bit", "cbit"):
            pipe = self.world.pipes.get(event[1])
            if pipe is None:
                return False
            waiting, read, is_open = (
                (pipe.c2r, pipe.c2r_read, pipe.r_open) if kind == "bit" else (pipe.r2c, pipe.r2c_read, pipe.c_open)
            )
            return is_open and bool(waiting) and event[2] < len(waiting[0]) - read
        if kind == "drip":
            wire = self.world.held().get(event[1:3])
            return wire is not None and wire.held is not None and len(wire.held) >= event[3]
        if kind == "declare":
            return self.budget.get("declare", 0) > 0
        if kind == "wait":
            return may_wait(self, event[1])
        if kind in SAID and self.plan.beginning is not None:
            return may_say(self, event)
        if kind in FAULT_KINDS:
            return event in self.faults()
        return event in self.usual()

    def as_recorded(self) -> bool:
        """Whether nothing has happened but the recorded schedule that this one begins like."""
        beginning = self.plan.beginning
        if beginning is None or len(self.events) > beginning.exact:
            return False
        return self.events == [without_number(event) for event, _ in beginning.steps[: len(self.events)]]

    # ------------------------------------------------------------------ letting it happen
    def step(self, event: Event) -> None:
        self.events.append(event)
        kind = event[0]
        if kind in self.budget:
            self.budget[kind] -= 1
        elif kind == "cbit":
            self.budget["bit"] -= 1
        elif kind == "tick":
            self.ticks += 1
        elif kind == "reload":
            del self.topics[event[1]]
        self.world.step(event)
        if kind == "hb":
            self.beats[event[1]] = self.world.now

    def pick(self, events: list[Event]) -> Event:
        weights = self.weights
        sums = [*accumulate([weights[e[0]] for e in events])]
        return events[bisect(sums, self.rng.random() * sums[-1], 0, len(events) - 1)]

    def chaos(self) -> None:
        rng, weights = self.rng, self.weights
        pacing = Pacing(self)
        likely = 0.0  # the total weight of faults that are possible, or were a few events ago
        for number in range(self.plan.length):
            if number % LOOK == 0:
                likely = sum([weights[e[0]] for e in self.faults()])
            usual = self.usual()
            events = pacing.without_paused(usual, number)
            sums = [*accumulate([weights[e[0]] for e in events])]
            if rng.random() * ((sums[-1] if sums else 0.0) + likely) <= likely:
                events = self.faults() or events or usual
                if not events:
                    return
                event = self.pick(events)
            else:
                event = events[bisect(sums, rng.random() * sums[-1], 0, len(sums) - 1)]
            self.step(event)
            then = pacing.after(event, number)
            if then is not None:
                self.step(then)

    def calm(self, choose: Callable[[list[Event]], Event]) -> None:
        """Faults stop; all clients and routers return; everything drains."""
        w = self.world
        w.turns = False
        w.step(("heal",))
        if w.declaring:
            declared = " ".join(container for container, _ in self.address.subscriptions)
            for name in w.names:
                w.step(("declare", name, declared))
            for subscriber in w.subscribers:
                subscriber.may_return()
        for way in [*w.one_way]:
            w.step(("let", *way))
        for pipe in w.pipes.values():
            pipe.stalled = False
        for pipe in [*w.pipes.values()]:
            if pipe.c_open and w.checker.declined_by(pipe.cid[0]):  # nobody else may be left who takes it
                w.step(("cdrop", pipe.cid))
        for client in w.ours:
            client.suspended = False
        for name in [*w.suspended]:
            w.step(("wake", name, False))
        for name in w.names:
            if w.sites[name] is None:
                w.step(("restart", name))
        for name in [*self.topics]:
            self.step(self.follows(name))
        self.drain(choose, lambda: chain(w.undone(), self.apart()))
        w.drained()

    def apart(self) -> Iterator[str]:
        """Routers that are not in session yet: until then, a subscriber may not know what it missed."""
        up = {name: site.router.core.members.up for name, site in self.world.sites.items() if site is not None}
        return (f"{x} is not in session with {y}" for x in up for y in up if x != y and y not in up[x])

    def sees_all(self, subscriber: str) -> bool:
        """Whether no router is out of sight for that at which this subscriber is attached."""
        w = self.world
        places = [pipe.router for pipe in w.pipes.values() if pipe.client.name == subscriber and pipe.c_open]
        sites = [w.sites[place] for place in places]
        return bool(sites) and all(site is not None and site.router.core.members.all_said_hello() for site in sites)

    def close(self, choose: Callable[[list[Event]], Event]) -> None:
        """Publishers, then subscribers: without subscriptions a publisher may have no credit, and waits for it."""
        w = self.world
        for clients in (w.publishers, w.subscribers):
            for client in clients:
                if not client.closing:
                    client.close()
            self.drain(choose, lambda clients=clients: (f"{c.name} is not closed" for c in clients if not c.closed))  # type: ignore[misc]
        w.advance(self.address.publisher_expires_s + self.address.margin_s + 1)
        self.drain(choose, self.remembered)

    def remembered(self) -> Iterator[str]:
        for name, site in self.world.sites.items():
            if site is not None:
                yield from (f"{name} remembers {text}" for text in World.router_remembers(site.router))

    def drain(self, choose: Callable[[list[Event]], Event], left: Callable[[], Iterator[str]]) -> None:
        """Liveness: everything drains within the sum of the timeouts, and a little more."""
        w, address = self.world, self.address
        bound_s = self.slack_s + address.subscription_timeout_s + 3 * address.margin_s + address.publisher_expires_s
        until = w.now + bound_s
        for _ in range(SETTLING):
            events = self.progress()
            if events:
                w.step(choose(events))
                continue
            if next(left(), None) is None:
                return
            if w.now >= until:
                break
            w.advance(1.0)
            w.repeat_opens()
            for client in w.clients.values():
                if client.kind in (UNIQUE, MEMORY) and client.state != "off":
                    w.step(("hb", client.name))
        raise Violation("G4 left over: " + "; ".join(left()))

    def play(self) -> None:
        self.begin()
        if self.plan.beginning is not None:
            Player(self, self.plan.beginning).play()
        self.chaos()
        self.calm(self.pick)
        self.close(self.pick)

    def begin(self) -> None:
        topic = replace(self.address, type="topic", priority=False)
        schedule = Schedule(self.world).reload(self.plan.topics, addresses=(topic,))
        schedule.up(*[f"{client}@{router}" for client, router in self.places])
        self.world.turns = self.plan.turns


def explore(
    seed: int, family: str | None = None, topology: str | None = None,
    watch: Callable[[World], object] | None = None, check_every: int = SAMPLED,
) -> tuple[Run, BaseException | None]:  # fmt: skip
    """Runs the schedule of that seed; what went wrong, if anything."""
    family = family or family_of(seed, topology)
    run = Run(draw_variation(seed) if family == NEAR else draw(seed, family, topology))
    run.world.check_every = check_every
    if watch is not None:
        watch(run.world)
    return run, failure_of(run.play)


def failure_of(play: Callable[[], None]) -> BaseException | None:
    try:
        play()
    except Exception as failure:  # noqa: BLE001  # whatever it is, it is what we are looking for
        return failure
    return None
