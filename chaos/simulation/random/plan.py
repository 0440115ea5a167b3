"""What a seed draws before anything happens: the network, the clients and their habits, the settings, and the faults.

A `Plan` is plain data, so that a failing schedule can be tried again with fewer clients, routers and messages
(`shrink.py`). `FAMILIES` say what the plans of one family have in common. The rest is drawn (swarm testing: Groce et
al., ISSTA 2012): most plans leave most kinds of faults out, and have one or two settings far from the usual ones.
What the protocol does not promise is not drawn: see `FAMILIES` (protocol 14).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from amqp10.performatives import RCV_FIRST, SND_MIXED, SND_SETTLED, SND_UNSETTLED
from chaos.simulation.world.clients import ADDRESS, FOREVER, LINK, MEMORY, PLAIN, RECOVERING, UNIQUE, Client
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.real_clients import OURS, RealPublisher
from chaos.simulation.world.real_subscribers import RealSubscriber
from chaos.simulation.world.routers import Clock
from chaos.simulation.world.subscribers import Subscriber
from router.config import AddressConfig, Limits

MESH, RING, LINE, STAR = TOPOLOGIES = ("mesh", "ring", "line", "star")

WEIGHTS: dict[str, float] = {
    "msg": 8, "c2r": 8, "gulp": 3, "bit": 6, "cbit": 6, "r2c": 8, "turn": 8, "up": 4, "down": 3, "rnotice": 1,
    "cnotice": 3, "connect": 3, "send": 4, "settle": 3, "accept": 3, "release": 1, "reject": 2, "hb": 0.3,
    "show": 0.3,
}  # fmt: skip
FAULT_WEIGHTS: dict[str, float] = {
    "restart": 1, "heal": 0.3, "crash": 0.25, "cdrop": 0.3, "rdrop": 0.3, "part": 0.3, "suspect": 0.3, "cut": 0.3,
    "pfresh": 0.15, "srestart": 0.2, "sfresh": 0.12, "close": 0.05, "hold": 0.3, "let": 0.3, "drip": 0.5,
    "stall": 0.3, "unstall": 0.3, "reshape": 0.1, "clock": 0.1, "tick": 0.4, "quit": 1,
}  # fmt: skip
# What may come at once, and after what, if they concern the same client or router (`pacing.py`):
FOLLOWING = (
    "crash", "cdrop", "rdrop", "suspect", "part", "cut", "pfresh", "srestart", "sfresh", "close", "kill", "twin",
)  # fmt: skip
AFTER = ("connect", "c2r", "r2c", "send", "settle", "accept", "up", "msg", "restart", "heal", "cdrop", "rnotice")
FAULTS = ("crash", "cdrop", "rdrop", "pfresh", "srestart", "sfresh")
OLD = 0.1  # of the networks have routers of the version before
PARTING = ("part", "suspect", "cut", "hold", "still", "reshape", "clock")  # routers may be out of session


@dataclass(frozen=True)
class Family:
    """What the schedules of a kind have in common. strict: no fault of theirs excuses a loss, not even a loud one."""

    strict: bool
    shapes: tuple[str, ...] = (MESH,)
    publishers: tuple[str, ...] = (RECOVERING, MEMORY, UNIQUE)
    subscribers: tuple[str, ...] = (RECOVERING, MEMORY, PLAIN)
    faults: dict[str, tuple[int, ...]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    least_routers: int = 1
    most_routers: int = 4
    lasts_s: float = 9.0  # less than any subscription's timeout, but where these are short on purpose
    # how likely it is that what a client wrote before it disconnected stays unread
    stale: tuple[float, ...] = (0, 0, 0.5, 0.9)
    modes: bool = False  # links in mode first, settled messages, every outcome
    silence: bool = False  # routers notice by themselves that nothing is heard from another
    expiry: bool = False  # timeouts are short
    queue: bool = False  # of consumers that compete; else a topic
    subscription_timeouts: tuple[float, ...] = (2.0, 4.0)  # if so
    # of `subscription_timeout`: what passes at once, in the place of what it takes until something is forgotten
    passes: tuple[float, ...] = ()
    drift: bool = False  # each router has its own clock
    dials: bool = False  # a trunk that broke is back when a dial is answered
    within_bounds: bool = False  # nothing lasts as long as a subscription is waited for: nobody is told of a gap
    streams: bool = False  # all messages are large
    books: bool = False  # subscribers attach as those of libraries do


# Plain subscribers as libraries attach them (docs/clients.md): what is unlike `Subscriber`.
CONTAINER: dict[str, Any] = {"policy": "session-end", "durable": 0, "snd": SND_MIXED}  # AMQP's defaults
BLOCKING = CONTAINER | {"rcv": RCV_FIRST}  # it settles when it accepts
BOOKS: dict[str, dict[str, Any]] = {
    "proton, rhea and go-amqp, as the page on clients has them": CONTAINER,
    "the same, and their applications drop no repeats": CONTAINER | {"careful": False},
    "proton's BlockingConnection, amqpnetlite, and defaults of the others": BLOCKING,
    "the same without a name of their own": BLOCKING | {"renames": True},
    "qpid-jms": {"policy": "link-detach", "durable": 0, "timeout": 0, "rcv": RCV_FIRST},
    "qpid-jms, durable": {"policy": "never", "timeout": 0, "rcv": RCV_FIRST},
}
DRIFT = 4e-4  # of a router's clock: of two, less than twice that
APART = {"part": (0, 1, 1, 2), "suspect": (0, 1, 2), "cut": (0, 1, 2)}
CROSSING = {"heal": 0.03, "rnotice": 0.05, "part": 1, "cdrop": 0.8, "connect": 6, "crash": 0.05}
OURS_WEIGHTS: dict[str, float] = {
    "disk": 8, "kill": 2, "full": 0.5, "start": 3, "twin": 2, "clock": 0.03, "away": 3, "all": 1.5,
    "still": 1, "wake": 0.3, "late": 2,
}  # fmt: skip
OURS_FAULTS = {
    "kill": (0, 2, 4), "full": (0, 0, 1), "reject": (0, 0, 2), "release": (0, 0, 2), "srestart": (0,),
    "still": (0, 0, 1, 2),
}  # fmt: skip
# Around the timeout, and its margin (a quarter of it), after which others forget a subscription.
AROUND = (0.6, 0.9, 1.1, 1.3, 3.0)
RETURNS = {
    "part": (1, 1, 2), "suspect": (0, 0, 1), "cut": (0, 0, 1), "pass": (2, 3, 5), "cdrop": (1, 2, 4), "rdrop": (0, 1),
    "crash": (0, 0, 0, 1), "pfresh": (0, 0, 0, 1), "sfresh": (0, 0, 0, 1), "srestart": (0, 0, 1),
}  # fmt: skip
RETURNS_WEIGHTS: dict[str, float] = {"pass": 5, "part": 1, "heal": 0.05, "accept": 4, "cdrop": 0.6}
NEAR = "near"
# Where routers can be cut off from each other, publishers with memory and without epochs are left out: they may be
# given a second incarnation there (protocol 14, L1).
FAMILIES: dict[str, Family] = {
    "together": Family(True),
    "released": Family(True, faults={"release": (1, 2, 4)}),
    "all-die": Family(True, faults={"crash": (4, 6)}),
    "apart": Family(False, publishers=(RECOVERING, UNIQUE), least_routers=2, faults=APART),
    "sparse": Family(
        False, (RING, LINE, STAR), (RECOVERING, UNIQUE), least_routers=2,
        faults=APART | {"reshape": (0, 0, 1, 3), "hold": (0, 0, 2)},
    ),
    "crossing": Family(
        False, publishers=(RECOVERING, UNIQUE), least_routers=2, most_routers=3, weights=CROSSING,
        stale=(0.5, 0.9, 1.0),
        faults={"part": (1, 1, 2), "cdrop": (2, 4, 6), "rdrop": (0,), "crash": (0, 0, 1), "srestart": (0, 1),
                "pfresh": (0, 0, 1), "sfresh": (0,)},
    ),
    "modes": Family(True, modes=True, faults={"release": (0, 2, 6), "reject": (0, 1, 3)}),
    "silent": Family(
        False, TOPOLOGIES, (RECOVERING, UNIQUE), least_routers=2, silence=True, lasts_s=15.0,
        weights={"still": 0.3, "wake": 0.1, "late": 1, "cquit": 1},
        faults=APART | {"hold": (1, 2, 4), "reshape": (0, 0, 1), "crash": (0, 0, 1), "still": (0, 1, 2)},
    ),
    "expiry": Family(
        False, publishers=(RECOVERING, UNIQUE), subscribers=(RECOVERING, RECOVERING, PLAIN), expiry=True, lasts_s=30.0,
        faults={"cdrop": (1, 2, 4), "crash": (0, 0, 1, 2)},
    ),
    "long-apart": Family(
        False, TOPOLOGIES, (RECOVERING, RECOVERING, UNIQUE), (RECOVERING, RECOVERING, PLAIN), least_routers=2,
        expiry=True, subscription_timeouts=(4.0, 8.0), lasts_s=30.0,
        weights={"pass": 5, "part": 1, "heal": 0.1, "accept": 1},
        faults=APART | {"part": (1, 1, 2), "pass": (1, 2, 3), "cdrop": (0, 1, 2), "crash": (0, 0, 1),
                        "pfresh": (0, 0, 1), "sfresh": (0,)},
    ),
    "ours": Family(
        True, publishers=(OURS, OURS, OURS, RECOVERING, UNIQUE), subscribers=(OURS, OURS, OURS, RECOVERING, PLAIN),
        faults=OURS_FAULTS, weights=OURS_WEIGHTS,
    ),
    "ours-apart": Family(
        False, TOPOLOGIES, (OURS, OURS, OURS, UNIQUE), (OURS, OURS, OURS, PLAIN), weights=OURS_WEIGHTS,
        faults=APART | OURS_FAULTS | {"clock": (0, 1, 3), "away": (0, 0, 1, 2), "twin": (0, 0, 1, 2)},
    ),
    # What files declare changes, at one router after the other. Subscribers that are not declared may be turned away.
    "files": Family(
        False, publishers=(RECOVERING, UNIQUE), least_routers=2, weights={"declare": 1.5},
        faults=APART | {"declare": (1, 3, 6), "close": (0,), "crash": (0, 1, 2)},
    ),
    # Queues (protocol 16): consumers compete.
    "queue": Family(True, queue=True, faults={"release": (0, 0, 2, 4), "reject": (0, 2, 4)}),
    "queue-apart": Family(
        False, publishers=(RECOVERING, UNIQUE), least_routers=2, queue=True,
        faults=APART | {"release": (0, 0, 2)},
    ),
    "queue-expiry": Family(
        False, publishers=(RECOVERING, UNIQUE), subscribers=(RECOVERING, RECOVERING, PLAIN), expiry=True, lasts_s=30.0,
        queue=True, faults={"cdrop": (1, 2, 4), "crash": (0, 0, 1, 2)},
    ),
    # A router is cut off for longer than others wait, and returns.
    "returns": Family(
        False, TOPOLOGIES, (RECOVERING, RECOVERING, UNIQUE), (RECOVERING, RECOVERING, MEMORY), least_routers=2,
        expiry=True, subscription_timeouts=(4.0, 8.0), passes=AROUND, lasts_s=30.0, drift=True,
        weights=RETURNS_WEIGHTS, faults=RETURNS, stale=(0, 0, 0.5),
    ),
    "books": Family(
        False, TOPOLOGIES, (RECOVERING, UNIQUE), (PLAIN,), least_routers=2, books=True,
        expiry=True, subscription_timeouts=(4.0, 8.0), passes=AROUND, lasts_s=30.0, drift=True,
        weights=RETURNS_WEIGHTS, faults=RETURNS, stale=(0, 0, 0.5),
    ),
    # A trunk that broke is back when a dial is answered; nothing lasts as long as a subscription is waited for.
    "dials": Family(
        False, TOPOLOGIES, (RECOVERING, RECOVERING, UNIQUE), least_routers=2, dials=True, within_bounds=True,
        passes=(0.4, 0.6, 0.8, 0.84), lasts_s=1.0,
        weights={"pass": 5, "part": 0.6, "cut": 0.6, "heal": 0.03, "accept": 4},
        faults={"part": (0, 1), "cut": (1, 2, 3), "pass": (1,), "cdrop": (0, 1, 2), "crash": (0,), "sfresh": (0, 0, 1)},
    ),
    # Large messages pass on while they come; publishers are lost in the middle of them.
    "streamed": Family(
        False, publishers=(RECOVERING, UNIQUE), subscribers=(MEMORY, MEMORY, RECOVERING, PLAIN), streams=True,
        faults={"crash": (0, 1, 2), "cdrop": (1, 2, 4), "part": (0, 0, 1), "suspect": (0, 1), "cut": (0, 0, 1)},
    ),
    # Each begins like a named schedule, with changes, and is as strict as that: `variations.py` draws these.
    NEAR: Family(False),
}  # fmt: skip


@dataclass(frozen=True)
class ClientPlan:
    """number: of messages to send, or of deliveries that it takes at once. habits: attributes of the client."""

    name: str
    publishes: bool
    kind: str
    number: int
    keep: bool = True
    habits: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    journal: str | None = None  # of one of ours; None: drawn, with the rest of it

    def make(self) -> list[Any]:
        """The client, and the second process that a client of ours may get."""
        made: list[Any]
        if self.kind == OURS:
            made = self.make_ours()
        elif self.publishes:
            made = [Publisher(self.name, self.kind, self.number)]
        else:
            made = [Subscriber(self.name, self.kind, self.number, self.keep)]
        for each in made:
            for habit, value in self.habits.items():
                setattr(each, habit, value)
        return made

    def make_ours(self) -> list[Any]:
        rng = random.Random(self.seed)
        drawn = self.journal is None
        journal = rng.choice(["torn", "torn", "sqlite", "none"]) if drawn else self.journal
        kind: Any = RealPublisher if self.publishes else RealSubscriber
        one = kind(self.name, self.number, journal=journal)
        if drawn and self.publishes:
            one.burst = rng.choice([1, 1, 3])
        elif drawn:
            one.notes = rng.random() < 0.5
        if not self.publishes and not one.storage.shared:
            return [one]
        number = 3 if drawn and self.publishes else self.number
        return [one, kind(f"{self.name}+", number, journal=journal, twin_of=one)]


Step = tuple[tuple[Any, ...], tuple[tuple[Any, ...], ...] | None]
"""An event of a recorded schedule, and the events held back then; None: the event is one that happens by itself."""


@dataclass(frozen=True)
class Beginning:
    """What is played before anything is left to chance (`recording.py`). family: what may go wrong then. exact: as it
    was recorded, for so many steps."""

    schedule: str
    family: Family
    steps: tuple[Step, ...]
    exact: int
    apart: bool  # routers may be, in it


@dataclass(frozen=True)
class Plan:
    """The plan of one seed. places: the router of each client when the faults begin."""

    seed: int
    family: str
    names: str
    shape: str
    clients: tuple[ClientPlan, ...]
    places: tuple[tuple[str, str], ...]
    address: AddressConfig
    config: dict[str, Any]
    budget: dict[str, int]
    weights: dict[str, float]
    length: int
    turns: bool = False
    high: int | None = None
    pausing: float = 0.0  # how likely it is that something begins to pause, at each event
    stale: float = 0.0  # how likely it is that what a client wrote before it disconnected stays unread
    follows: tuple[tuple[str, str, float], ...] = ()  # (a kind of event, the fault that follows it, how likely)
    shows: bool = False  # publishers show unasked that they are there
    clocks: dict[str, Clock] = field(default_factory=dict)  # of routers whose clocks go at rates of their own
    topics: str = ""  # routers for which the queue is a topic at first
    beginning: Beginning | None = None

    @property
    def rules(self) -> Family:
        return FAMILIES[self.family] if self.beginning is None else self.beginning.family

    def make_clients(self) -> tuple[list[Publisher], list[Subscriber]]:
        made: list[Client] = [each for client in self.clients for each in client.make()]
        return [c for c in made if isinstance(c, Publisher)], [c for c in made if isinstance(c, Subscriber)]

    def unusual(self) -> str:
        """What is not as usual, in words."""
        said = [f"{name} {value}" for name, value in self.config.items()]
        said += [f"{c.name} {habit} {value}" for c in self.clients for habit, value in c.habits.items()]
        said += ["routers write in turns"] * self.turns
        if self.beginning is not None:
            said.append(f"begins like {self.beginning.schedule}")
        if self.topics:
            said.append(f"a topic at {self.topics} at first")
        if self.high is not None:
            said.append(f"{self.high} bytes may lie unread")
        return ", ".join(said)


def may_part(plan: Plan) -> bool:
    """Routers may be out of session with each other; also by the death of one that is between others."""
    if plan.beginning is not None and plan.beginning.apart:
        return True
    between = plan.shape != MESH and len(plan.names) > 2 and plan.budget.get("crash")
    return bool(between) or any(plan.budget.get(kind) for kind in PARTING)


def families_on(topology: str | None) -> list[str]:
    """Where not all routers are neighbours, one crash parts the others: what no fault excuses is promised in a mesh."""
    return [name for name, family in FAMILIES.items() if topology is None or topology in family.shapes]


def family_of(seed: int, topology: str | None = None) -> str:
    families = families_on(topology)
    return families[seed % len(families)]


def draw(seed: int, family: str, topology: str | None = None) -> Plan:
    assert family != NEAR, "near.draw_variation draws these"
    fam = FAMILIES[family]
    rng = random.Random(f"{family} {seed}")
    names = "ABCD"[: rng.choice([n for n in (1, 2, 2, 3, 3, 4) if fam.least_routers <= n <= fam.most_routers])]
    drawn = rng.choice(fam.shapes)
    budget = {fault: rng.choice([0, 0, 1, 2, 3]) for fault in FAULTS}
    budget["close"] = rng.choice([0, 0, 0, 1, 2])
    budget["quit"] = rng.choice([0, 0, 1, 3])
    budget |= {fault: rng.choice(numbers) for fault, numbers in fam.faults.items()}
    clients = [
        ClientPlan(f"s{i}", False, rng.choice(fam.subscribers), rng.choice([1, 2, 2, 10]), rng.random() < 0.6)
        for i in range(rng.choice([1, 1, 2, 3]))
    ] + [
        ClientPlan(f"p{i}", True, rng.choice(fam.publishers), rng.choice([3, 6, 10, 20]))
        for i in range(rng.choice([1, 1, 2]))
    ]
    clients = [replace(client, seed=rng.getrandbits(32)) for client in clients]
    places = tuple((client.name, rng.choice(names)) for client in clients)[: rng.choice([0, 0, 2, 9])]
    # without subscriptions publishers could not send what they have to
    nobody: Any = "accept" if budget["close"] or budget["sfresh"] else rng.choice(["hold", "accept"])
    address = AddressConfig(subscription_timeout_s=20.0, publisher_timeout_s=40.0, no_subscribers=nobody)
    if fam.queue:
        address = replace(address, type="queue", no_subscribers="hold")
    plan = Plan(
        seed, family, names, topology or drawn, tuple(clients), places, address, {}, budget,
        {kind: weight * rng.choice([0.3, 1, 1, 3]) for kind, weight in (WEIGHTS | FAULT_WEIGHTS | fam.weights).items()},
        length=rng.choice([80, 150, 270, 450]),
    )  # fmt: skip
    old = random.Random(f"{family} {seed} old")
    if old.random() < OLD:  # some routers, or all, are of the version before; all else is drawn as without
        plan.config["old"] = "".join(name for name in names if old.random() < 0.6) or names
    if fam.silence:
        plan.config.update(heartbeat_s=1.5, dead_after_s=4.5)
        plan.weights["tick"] *= 5
    if fam.expiry:
        plan = _short_timeouts(plan, rng, fam)
    if fam.books:
        for client in plan.clients:
            if not client.publishes:
                asked = rng.choice([0, FOREVER, FOREVER, FOREVER])
                client.habits.update({"timeout": asked} | BOOKS[rng.choice([*BOOKS])])
    if fam.modes:
        plan = _modes(plan, rng)
    if rng.random() < 0.5:
        plan = with_unusual_settings(plan, rng)
    plan = with_declared(_clocks_or_partitions(with_pacing(without_narrow_windows(plan), rng)))
    return with_topics(with_clocks(with_large(with_settled(with_groups(with_forgotten(plan))))))


def with_topics(plan: Plan) -> Plan:
    """In a part of the seeds a queue is a topic at first, and becomes one at one router after the other (protocol
    16.13); all else is drawn as without, except that nobody is there from the start."""
    rng = random.Random(f"{plan.family} {plan.seed} topics")
    if not plan.rules.queue or "old" in plan.config or len(plan.names) == 1 or rng.random() >= 0.4:
        return plan
    topics = "".join(name for name in plan.names if rng.random() < 0.7) or plan.names
    return replace(plan, topics=topics, places=(), weights=plan.weights | {"reload": rng.choice([0.2, 0.6, 2.0])})


def with_clocks(plan: Plan) -> Plan:
    """Each router has a clock of its own."""
    rng = random.Random(f"{plan.family} {plan.seed} clocks")
    if not plan.rules.drift:
        return plan
    clocks = {name: Clock(1 + rng.uniform(-DRIFT, DRIFT), rng.uniform(0, 1e6)) for name in plan.names}
    return replace(plan, clocks=clocks)


def with_groups(plan: Plan) -> Plan:
    """In a part of the seeds what is sent to a queue is in groups (protocol 16.9); all else is drawn as without."""
    rng = random.Random(f"{plan.family} {plan.seed} groups")
    if not plan.rules.queue or rng.random() >= 0.4:
        return plan
    groups = rng.choice([1, 1, 2, 3])
    clients = tuple(replace(c, habits=c.habits | {"groups": groups}) if c.publishes else c for c in plan.clients)
    return replace(plan, clients=clients)


def with_settled(plan: Plan) -> Plan:
    """In a part of the seeds publishers of a queue send all, or some, settled (protocol 16.1.3); all else is drawn as
    without."""
    rng = random.Random(f"{plan.family} {plan.seed} settled")
    if not plan.rules.queue or rng.random() >= 0.3:
        return plan
    clients = tuple(
        replace(c, habits=c.habits | {"snd": rng.choice([SND_UNSETTLED, SND_MIXED, SND_SETTLED])})
        if c.publishes and c.kind != OURS
        else c
        for c in plan.clients
    )
    return replace(plan, clients=clients)


def with_forgotten(plan: Plan) -> Plan:
    """In a part of the seeds operators have publishers forgotten that are away. Then no router dies: where one has
    started again and reaches nobody, the publisher is not known to be forgotten (protocol 14)."""
    rng = random.Random(f"{plan.family} {plan.seed} forgotten")
    if plan.rules.strict or rng.random() >= 0.15:
        return plan
    budget = plan.budget | {"forget": rng.choice([1, 2, 4]), "crash": 0}
    return replace(plan, budget=budget, weights=plan.weights | {"forget": 1.0})


def with_declared(plan: Plan) -> Plan:
    """In a part of the seeds topology files declare subscriptions; what else is drawn does not depend on it."""
    rng = random.Random(f"{plan.family} {plan.seed} declared")
    if plan.rules.queue or rng.random() >= (1.0 if "declare" in plan.budget else 0.25):
        return plan
    names = [c.name for c in plan.clients if not c.publishes and not c.habits.get("renames")]
    if not names:
        return plan
    declared = [name for name in names if rng.random() < 0.6] or names[:1]
    all_of_them = len(declared) == len([c for c in plan.clients if not c.publishes])
    closed = all_of_them and rng.random() < 0.6
    address = replace(
        plan.address, match=ADDRESS, subscriptions=tuple((name, LINK) for name in declared),
        other_subscriptions="refuse" if closed else "allow",
    )  # fmt: skip
    return replace(plan, address=address)


def with_pacing(plan: Plan, rng: random.Random) -> Plan:
    """See `pacing.py`."""
    faults = [kind for kind in FOLLOWING if plan.budget.get(kind)]
    pairs = rng.choice([0, 0, 1, 2]) if faults else 0
    follows = tuple((rng.choice(AFTER), rng.choice(faults), rng.choice([0.1, 0.3, 1.0])) for _ in range(pairs))
    stale = rng.choice(FAMILIES[plan.family].stale)
    for kind in ("settle", "accept"):
        plan.weights[kind] *= rng.choice([0.1, 1, 1])
    return replace(
        plan, pausing=rng.choice([0.005, 0.02, 0.05]), stale=stale, follows=follows, shows=rng.random() < 0.3
    )


def without_narrow_windows(plan: Plan) -> Plan:
    """Where `publisher_timeout` may pass, what a publisher without a map has in doubt must fit into its new window: a
    limit (protocol 8.5, 14)."""
    passes = plan.rules.expiry or any(plan.budget.get(kind) for kind in ("still", "away", "pass"))
    if not passes or not any(client.publishes and client.kind == UNIQUE for client in plan.clients):
        return plan
    return replace(plan, config={name: value for name, value in plan.config.items() if not name.startswith("window_")})


def _clocks_or_partitions(plan: Plan) -> Plan:
    """Where routers cannot tell each other, only clocks say which attachment of a publisher without epochs is later."""
    if plan.budget.get("clock") and any(c.publishes and c.kind == UNIQUE for c in plan.clients):
        without = APART if plan.shape == MESH else ("clock",)
        return replace(plan, budget=plan.budget | dict.fromkeys(without, 0))
    return plan


def _short_timeouts(plan: Plan, rng: random.Random, fam: Family) -> Plan:
    timeout = rng.choice(fam.subscription_timeouts)
    address = replace(plan.address, subscription_timeout_s=timeout, publisher_timeout_s=timeout * 2)
    for client in plan.clients:
        if not client.publishes and client.kind != MEMORY and rng.random() < 0.3:
            client.habits["timeout"] = rng.choice([0, 1, FOREVER])
            client.habits["policy"] = rng.choice(["link-detach", "connection-close", "never"])
    plan.weights["tick"] *= rng.choice([2, 5])
    return replace(plan, address=address)


def _modes(plan: Plan, rng: random.Random) -> Plan:
    most = rng.choice([0, 1, 5])
    for client in plan.clients:
        if client.publishes:
            if client.kind != UNIQUE and rng.random() < 0.3:
                client.habits["rcv"] = RCV_FIRST
            elif rng.random() < 0.4:
                client.habits["snd"] = rng.choice([SND_MIXED, SND_SETTLED])
        else:
            if rng.random() < 0.3:
                client.habits["rcv"] = RCV_FIRST
    return replace(plan, address=replace(plan.address, max_redeliveries=most))


def with_unusual_settings(plan: Plan, rng: random.Random) -> Plan:
    """Settings far from the usual ones, a few at a time."""
    config, budget = plan.config, plan.budget
    scripted = all(client.kind != OURS for client in plan.clients)
    if rng.random() < 0.15:
        budget["bit"] = 60
    if rng.random() < 0.15:
        plan = replace(plan, turns=True)
    if rng.random() < 0.15:
        plan = replace(plan, high=rng.choice([100, 400, 2000]))
        budget["stall"] = rng.choice([1, 2, 4])
        config["limits"] = Limits(unread_output=rng.choice([200, 1000]))
    if rng.random() < 0.15:
        config["window_messages"] = rng.choice([1, 2, 5])
    if rng.random() < 0.1:
        config["window_bytes"] = rng.choice([40, 200, 1000])
    if rng.random() < 0.15:
        config["unsettled_window"] = rng.choice([1, 3, 10])
    if rng.random() < 0.1:
        config["discovery_s"] = rng.choice([0.5, 3.0])
    if rng.random() < 0.15 and scripted:
        for client in plan.clients:
            client.habits["part"] = rng.choice([1, 2, 5])
    if rng.random() < 0.1:
        config["max_frame_size"] = 4096
        for client in plan.clients:
            client.habits["frame"] = 4096
            if client.publishes:
                client.habits["size"] = rng.choice([100, 5000, 9000])
    if rng.random() < 0.25 and all(client.kind == OURS for client in plan.clients):
        config["max_frame_size"] = 512  # maps in parts (protocol 7.7), both ways
        plan = replace(plan, clients=tuple(replace(c, number=60 if c.publishes else 30) for c in plan.clients))
        plan.weights["accept"] *= 0.3
        for client in plan.clients:
            client.habits["frame"] = 512
            if client.publishes:
                client.habits["burst"] = 10
    if rng.random() < 0.1 and "hold" not in budget and len(plan.names) > 1:
        budget["hold"] = rng.choice([1, 3])
    return plan


def with_large(plan: Plan) -> Plan:
    """Every sixth network passes large messages on while they come; publishers stop in the middle of them, and abort
    them (protocol 6.12)."""
    rng = random.Random(f"{plan.seed} parts")
    if plan.rules.streams:
        return _streamed(plan, rng)
    if rng.random() > 1 / 6 or plan.address.type == "queue" or "max_frame_size" in plan.config:
        return plan
    plan.config["stream_above"] = rng.choice([600, 1500])
    plan.config["stream_share"] = rng.choice([1000, 3000, 20_000])
    plan.config["max_frame_size"] = 1024
    plan.weights["go_on"] = 4
    for client in plan.clients:
        client.habits["frame"] = 1024
        if client.publishes:
            client.habits["size"] = rng.choice([1000, 5000, 9000])
            if client.kind != OURS:
                client.habits["stops"] = rng.choice([0, 400, 2500])
                client.habits["aborts"] = rng.choice([(), (1, 4)])
    return plan


def _streamed(plan: Plan, rng: random.Random) -> Plan:
    """All messages are large, and some subscriber accepts late."""
    stops, aborts = rng.choice([0, 400, 2500]), rng.choice([(), (1, 4)])
    plan.config.update(stream_above=600, stream_share=rng.choice([1000, 3000, 20_000]), max_frame_size=1024)
    plan.weights.update(go_on=4, accept=min(plan.weights["accept"], 0.3))
    clients = []
    for client in plan.clients:
        habits = {name: value for name, value in client.habits.items() if name != "part"} | {"frame": 1024}
        if client.publishes:
            habits |= {"size": rng.choice([5000, 9000]), "stops": stops, "aborts": aborts}
            clients.append(replace(client, number=min(client.number, 6), habits=habits))
        else:
            clients.append(replace(client, keep=rng.random() < 0.9, habits=habits))
    return replace(plan, clients=tuple(clients))
