"""Random schedules over the same world: random networks, clients and faults, and a random choice of what happens next.

A seed says everything: the family, the network, the clients, how many faults of each kind there may be, how likely each
event is, and every choice. After the faults everybody comes back and everything drains (G4), then everybody closes, and
no router may remember anything. `replay` and `minimise` take the events of a run that went wrong, and skip those that
are not possible (any more). `python -m chaos.simulate` is how to run them.

Left out are what PROTOCOL 14 does not promise: see `FAMILIES`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chaos.simulation.checker import Violation
from chaos.simulation.clients import MEMORY, PLAIN, RECOVERING, UNIQUE, Publisher, Subscriber
from chaos.simulation.frames import kind_of
from chaos.simulation.schedule import Schedule
from chaos.simulation.world import Event, World
from interrouter.events import PeerDown, PeerUp
from router.config import AddressConfig
from router.publisher import Phase
from router.router import Router

MESH, RING, LINE, STAR = TOPOLOGIES = ("mesh", "ring", "line", "star")
CHAOS_S = 9.0  # faults last less than any subscription's timeout
STEP_S = 0.4
FRESH_FRAME_S = 1.5  # no frame of a client lies unread for longer: proof_after is 2 s
SETTLING = 30_000

WEIGHTS: dict[str, float] = {
    "msg": 8, "c2r": 8, "gulp": 3, "r2c": 8, "up": 4, "down": 3, "rnotice": 1, "cnotice": 3, "connect": 3, "send": 4,
    "settle": 3, "accept": 3, "release": 1, "restart": 1, "heal": 0.3, "tick": 0.4, "hb": 0.3, "crash": 0.25,
    "cdrop": 0.3, "rdrop": 0.3, "part": 0.3, "suspect": 0.3, "cut": 0.3, "pfresh": 0.15, "srestart": 0.2,
    "sfresh": 0.12, "close": 0.05,
}  # fmt: skip
CROSSING = {"heal": 0.03, "rnotice": 0.05, "part": 0.3, "cdrop": 0.4, "connect": 6, "crash": 0.05}
FAULTS = ("crash", "cdrop", "rdrop", "pfresh", "srestart", "sfresh")


@dataclass(frozen=True)
class Family:
    """What the schedules of a kind have in common. strict: no fault of theirs excuses a loss, not even a loud one."""

    strict: bool
    shapes: tuple[str, ...] = (MESH,)
    publishers: tuple[str, ...] = (RECOVERING, MEMORY, UNIQUE)
    subscribers: tuple[str, ...] = (RECOVERING, MEMORY, PLAIN)
    faults: dict[str, tuple[int, ...]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    most_routers: int = 4


APART = {"part": (0, 1, 1, 2), "suspect": (0, 1, 2), "cut": (0, 1, 2)}
# Where routers can be cut off from each other, publishers with memory and without epochs are left out: they may be
# given a second incarnation there (14, L1).
FAMILIES: dict[str, Family] = {
    "together": Family(True),
    "released": Family(True, faults={"release": (1, 2, 4)}),
    "all-die": Family(True, faults={"crash": (4, 6)}),
    "apart": Family(False, publishers=(RECOVERING, UNIQUE), faults=APART),
    "sparse": Family(False, (RING, LINE, STAR), (RECOVERING, UNIQUE), faults=APART),
    "crossing": Family(
        False, publishers=(RECOVERING, UNIQUE), most_routers=3, weights=CROSSING,
        faults={"part": (1, 1, 2), "cdrop": (2, 4, 6), "rdrop": (0,), "crash": (0, 0, 1), "srestart": (0, 1),
                "pfresh": (0, 0, 1), "sfresh": (0,)},
    ),
}  # fmt: skip


class Wild(World):
    """A world with a shape, trunks that break, and the faults that no named schedule needs."""

    shape = MESH
    broken: frozenset[tuple[str, str]] = frozenset()

    def linked(self, a: str, b: str) -> bool:
        if not super().linked(a, b) or (a, b) in self.broken:
            return False
        if self.shape == STAR:
            return self.names[0] in (a, b)
        apart = self.names.index(b) - self.names.index(a)
        return self.shape == MESH or apart == 1 or (self.shape == RING and apart == len(self.names) - 1)

    def do_cut(self, a: str, b: str) -> None:
        self.broken |= {(a, b)}

    def do_heal(self) -> None:
        super().do_heal()
        self.broken = frozenset()

    def do_crash(self, name: str) -> None:
        super().do_crash(name)
        if not any(site is not None and site.router.core.established for site in self.sites.values()):
            # what a router has chosen for a publisher without epochs is lost with it
            self.checker.excused |= {p.name for p in self.publishers if p.kind == MEMORY}

    def do_gulp(self, cid: tuple[str, int]) -> None:
        """All that has been written to the router is read in one go."""
        pipe = self.pipes[cid]
        pipe.server.receive_data(pipe.take_all_c2r(), self.now)

    def do_r2c(self, cid: tuple[str, int]) -> None:
        """What begins a connection is read with the attach: nothing can come between that matters."""
        pipe = self.pipes[cid]
        begins = b""
        while len(pipe.r2c) > 1 and kind_of(pipe.r2c[0]) in ("open", "begin"):
            begins += pipe.r2c.popleft()
        pipe.r2c[0] = begins + pipe.r2c[0]
        super().do_r2c(cid)

    def do_rdrop(self, cid: tuple[str, int]) -> None:
        self.do_rnotice(cid)

    def do_srestart(self, name: str) -> None:
        self.subscriber(name).restart()

    def do_sfresh(self, name: str) -> None:
        self.subscriber(name).forget()

    def do_release(self, name: str, index: int) -> None:
        self.subscriber(name).release(index)

    def do_tick(self) -> None:
        self.stand_still(STEP_S)


class Run:
    """One schedule: what is possible, and what has happened."""

    def __init__(self, seed: int, family: str, topology: str | None = None) -> None:
        self.seed, self.family = seed, FAMILIES[family]
        self.rng = rng = random.Random(f"{family} {seed}")
        fam = self.family
        names = "ABCD"[: rng.choice([n for n in (1, 2, 2, 3, 3, 4) if n <= fam.most_routers])]
        publishers = [
            Publisher(f"p{i}", rng.choice(fam.publishers), rng.choice([2, 3, 4, 6, 20]))
            for i in range(rng.choice([1, 1, 2]))
        ]
        subscribers = [
            Subscriber(f"s{i}", rng.choice(fam.subscribers), rng.choice([1, 2, 2, 10]), rng.random() < 0.6)
            for i in range(rng.choice([1, 1, 2, 3]))
        ]
        self.budget = {fault: rng.choice([0, 0, 1, 2, 3]) for fault in FAULTS}
        self.budget["close"] = rng.choice([0, 0, 0, 1, 2])
        self.budget |= {fault: rng.choice(numbers) for fault, numbers in fam.faults.items()}
        # without subscriptions publishers could not send what they have to
        nobody: Any = "accept" if self.budget["close"] or self.budget["sfresh"] else rng.choice(["hold", "accept"])
        self.address = AddressConfig(subscription_timeout_s=20.0, publisher_timeout_s=40.0, no_subscribers=nobody)
        self.world = Wild(names, publishers, subscribers, strict=fam.strict, address=self.address, seed=seed)
        drawn = rng.choice(fam.shapes)
        self.world.shape = topology or drawn
        self.weights = {kind: weight * rng.choice([0.3, 1, 1, 3]) for kind, weight in (WEIGHTS | fam.weights).items()}
        self.length = rng.choice([80, 150, 300, 500])
        self.ticks = 0
        self.beats: dict[str, float] = {}  # client -> when it last sent a heartbeat
        self.events: list[Event] = []
        places = [(client.name, rng.choice(names)) for client in (*subscribers, *publishers)]
        self.places = places[: rng.choice([0, 0, 2, 9])]  # those who are there when the faults begin

    # ------------------------------------------------------------------ what can happen
    def progress(self) -> list[Event]:
        """What would happen by itself, and applications that go on."""
        w = self.world
        events = [e for e in w.enabled() if e[0] != "send" or self.known_as_new(w.publisher(e[1]))]
        for client in w.clients.values():
            if client.state == "off" and not client.closed:
                events += [("connect", client.name, r) for r in w.names if w.sites[r] is not None]
        return events

    def known_as_new(self, publisher: Publisher) -> bool:
        """A publisher with memory and without epochs has credit before its new incarnation is known anywhere (5.1). If
        it has lost its memory before, sends, and loses that connection too, it is taken for its old self when it comes
        back with a map: so that one waits."""
        if publisher.kind != MEMORY or not publisher.base or publisher.pipe is None:
            return True
        site = self.world.sites[publisher.pipe.router]
        links = site.router.core.publishers.values() if site is not None else ()
        server = publisher.pipe.server
        return any(link.port in server.ports and link.phase is Phase.READY for link in links)

    def possible(self) -> list[Event]:
        w = self.world
        events = self.progress()
        for cid, pipe in w.pipes.items():
            if len(pipe.c2r) > 1 and pipe.r_open:
                events.append(("gulp", cid))
            if pipe.c_open and not pipe.r_open and pipe.r2c and not pipe.server.closed:
                events.append(("cnotice", cid))  # with frames that the client will never see
            if pipe.c_open and self.budget["cdrop"]:
                events.append(("cdrop", cid))
            if pipe.r_open and self.budget["rdrop"]:
                events.append(("rdrop", cid))
        for client in w.clients.values():
            events += self.of_client(client)
        for name, site in w.sites.items():
            if site is None:
                events.append(("restart", name))
                continue
            if self.budget["crash"]:
                events.append(("crash", name))
            if self.budget.get("part") and len(w.names) > 1 and not any(w.group.values()):
                events.append(("part", name))
            if self.budget.get("suspect"):
                events += [("suspect", name, peer) for peer in w.names if self.in_session(name, peer)]
        if self.budget.get("cut"):
            events += [("cut", *pair) for pair in w.trunks]
        if any(w.group.values()) or w.broken:
            events.append(("heal",))
        if self.may_tick():
            events.append(("tick",))
        return events

    def of_client(self, client: Publisher | Subscriber | Any) -> list[Event]:
        events: list[Event] = []
        w, budget = self.world, self.budget
        if client.state != "off" and client.kind == UNIQUE and w.now - self.beats.get(client.name, 0.0) > STEP_S:
            events.append(("hb", client.name))
        if isinstance(client, Publisher):
            if budget["pfresh"] and not client.closing:
                events.append(("pfresh", client.name))
        else:
            if not client.closing:
                last = len(client.in_hand) - 1
                if last > 0:
                    events.append(("accept", client.name, last))
                events += [
                    ("release", client.name, i)
                    for i in range(last + 1)
                    if budget.get("release") and client.can_release(i)
                ]
                if budget["sfresh"]:
                    events.append(("sfresh", client.name))
            if budget["srestart"] and not client.closed:
                events.append(("srestart", client.name))
        if budget["close"] and client.state == "on" and not client.closing:
            events.append(("close", client.name))
        return events

    def in_session(self, name: str, peer: str) -> bool:
        site = self.world.site(name)
        session = site.network.sessions.by_peer.get(peer)
        return (
            session is not None
            and session.up
            and peer in site.router.core.up
            and not any(isinstance(e, (PeerDown, PeerUp)) for e in site.inbox[peer])
        )

    def may_tick(self) -> bool:
        """Timers are longer than what they allow for: messages between routers that are together (discovery), frames of
        clients (proof_after), absences (subscription_timeout)."""
        w = self.world
        waiting = any(inbox for site in w.sites.values() if site is not None for inbox in site.inbox.values())
        late = any(w.now + STEP_S - p.since > FRESH_FRAME_S for p in w.pipes.values() if p.c2r and p.r_open)
        return not late and (self.ticks + 1) * STEP_S < CHAOS_S and not (waiting and self.family.strict)

    # ------------------------------------------------------------------ letting it happen
    def step(self, event: Event) -> None:
        w = self.world
        self.events.append(event)
        kind = event[0]
        if kind in self.budget:
            self.budget[kind] -= 1
        self.ticks += kind == "tick"
        w.step(event)
        if kind == "hb":
            self.beats[event[1]] = w.now

    def pick(self, events: list[Event]) -> Event:
        weights = [self.weights[e[0]] for e in events]
        return self.rng.choices(events, weights)[0]

    def chaos(self) -> None:
        rng = self.rng
        slow: Event | None = None
        for _ in range(self.length):
            events = self.possible()
            if not events:
                return
            if rng.random() < 0.02:  # one channel stands still for a while
                slow = rng.choice(events)[:2] if rng.random() < 0.7 else None
            self.step(self.pick([e for e in events if e[:2] != slow] or events))

    def calm(self, choose: Callable[[list[Event]], Event]) -> None:
        """Faults stop; everybody comes back; everything drains."""
        w = self.world
        w.step(("heal",))
        for name in w.names:
            if w.sites[name] is None:
                w.step(("restart", name))
        self.drain(choose, w.left_over)
        w.quiescent()

    def close(self, choose: Callable[[list[Event]], Event]) -> None:
        """Publishers, then subscribers: without subscriptions a publisher may have no credit, and waits for it."""
        w = self.world
        for clients in (w.publishers, w.subscribers):
            for client in clients:
                if not client.closing:
                    client.close()
            self.drain(choose, lambda clients=clients: [f"{c.name} is not closed" for c in clients if not c.closed])  # type: ignore[misc]
        w.advance(self.address.publisher_expires_s + self.address.margin_s + 1)
        self.drain(choose, self.remembered)

    def remembered(self) -> list[str]:
        left: list[str] = []
        for name, site in self.world.sites.items():
            if site is not None:
                left += [f"{name} remembers {text}" for text in remembered_by(site.router)]
        return left

    def drain(self, choose: Callable[[list[Event]], Event], left: Callable[[], list[str]]) -> None:
        w = self.world
        waited = 0
        for _ in range(SETTLING):
            events = self.progress()
            if events:
                w.step(choose(events))
                continue
            if not left():
                return
            if waited == 200:
                break
            waited += 1
            w.advance(1.0)
            for client in w.clients.values():
                if client.kind == UNIQUE and client.state != "off":
                    w.step(("hb", client.name))
        raise Violation("G4 left over: " + "; ".join(left()))

    def play(self) -> None:
        Schedule(self.world).up(*self.places)
        self.chaos()
        self.calm(self.pick)
        self.close(self.pick)


def remembered_by(router: Router) -> list[str]:
    core = router.core
    left = [f"{[*address.subscriptions]} {[*address.publishers]}" for address in core.addresses.values()]
    if core.meter or core.publishers or core.subscribers:
        left.append(f"{core.meter} bytes, {core.publishers}, {core.subscribers}")
    return left


def explore(
    seed: int, family: str | None = None, topology: str | None = None,
    watch: Callable[[World], object] | None = None,
) -> tuple[Run, BaseException | None]:  # fmt: skip
    """Runs the schedule of that seed; what went wrong, if anything."""
    run = Run(seed, family or family_of(seed, topology), topology)
    if watch is not None:
        watch(run.world)
    return run, _failure(run.play)


def families_on(topology: str | None) -> list[str]:
    """Where not all routers are neighbours, one crash parts the others: what no fault excuses is promised in a mesh."""
    return [name for name, family in FAMILIES.items() if topology is None or topology in family.shapes]


def family_of(seed: int, topology: str | None = None) -> str:
    families = families_on(topology)
    return families[seed % len(families)]


def _failure(play: Callable[[], None]) -> BaseException | None:
    try:
        play()
    except Exception as failure:  # noqa: BLE001  # whatever it is, it is what we are looking for
        return failure
    return None


def kind_of_failure(failure: BaseException) -> str:
    first = str(failure).split(" ", 1)[0]
    return first if isinstance(failure, AssertionError) and first[:1] == "G" else type(failure).__name__


def replay(
    seed: int, family: str, events: list[Event], calm_seed: int, topology: str | None = None,
    watch: Callable[[World], object] | None = None,
) -> tuple[Run, BaseException | None]:  # fmt: skip
    """The same network and clients, these events as far as they are possible, then everything drains."""
    run = Run(seed, family, topology)
    if watch is not None:
        watch(run.world)
    rng = random.Random(calm_seed)

    def choose(possible: list[Event]) -> Event:
        return possible[0] if calm_seed == 0 else rng.choice(possible)

    def play() -> None:
        Schedule(run.world).up(*run.places)
        for event in events:
            if event in run.possible():
                run.step(event)
        run.calm(choose)
        run.close(choose)

    return run, _failure(play)


def minimise(
    seed: int, family: str, topology: str | None = None, calm_seeds: int = 4, tries: int = 3000
) -> tuple[list[Event], int, BaseException] | None:
    """Delta debugging on the events, in so many tries at most; the failure keeps its kind."""
    run, failure = explore(seed, family, topology)
    if failure is None:
        return None
    kind = kind_of_failure(failure)

    def fails(events: list[Event], calm_seed: int) -> BaseException | None:
        nonlocal tries
        tries -= 1
        _, found = replay(seed, family, events, calm_seed, topology)
        return found if found is not None and kind_of_failure(found) == kind else None

    events = run.events
    for calm_seed in range(calm_seeds):
        if fails(events, calm_seed):
            break
    else:
        return None
    pieces = 2
    while events and tries > 0:
        size = max(1, len(events) // pieces)
        for start in range(0, len(events), size):
            fewer = events[:start] + events[start + size :]
            if tries > 0 and fails(fewer, calm_seed):
                events, pieces = fewer, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(pieces * 2, len(events))
    final = fails(events, calm_seed)
    assert final is not None
    return events, calm_seed, final
