"""Everything that can happen in the smallest worlds: two routers, a publisher, one or two subscribers, a few faults.

This is no sample and no model: it runs the real code in every order of events that matters. A world is searched breadth
first, state by state (`product.py`), so that the first path to a violation is a shortest one. What a process does with
an input is run once by the real code, and then known (`processes.py`). Faults may come anywhere as long as there are
any left; then events continue until nothing can happen any more. Every such *quiet* state must leave nothing over (G4),
and closing everything must leave nothing remembered. G1 to G3, G5 and G6 are checked as events happen.

The method is checked along the way: paths into states that had been seen before are played in a whole world, step by
step beside this one, and a little further at random; both must look the same (`agree`).
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from struct import Struct
from typing import Any

from chaos.simulation.exhaustive.checkers import Found
from chaos.simulation.exhaustive.product import Channel, MutableState, Product, State
from chaos.simulation.exhaustive.reduction import Reduction
from chaos.simulation.exhaustive.smallest import Setting, Small
from chaos.simulation.world.checker import Violation
from chaos.simulation.world.trace import Trace
from chaos.simulation.world.world import Event

PATIENCE = 60  # pauses in which everything must have drained
CLOSED = 200  # quiet situations in which everything is closed, too
SAMPLED = 20  # paths that are played in a whole world
BEYOND = 25  # events after them
TALK = 5000  # events in which everything must have been said
LOOK_EVERY = 256  # situations, at the clock
ROOM = 400_000  # entries of a table
AT_ROUTER = {"up": 1, "down": 1, "msg": 2}  # where the event says at which
ON_CONNECTION = frozenset(("c2r", "rnotice", "rdrop"))  # at the router at its end
AT_CLIENT = frozenset(("r2c", "cnotice", "cdrop", "send", "settle", "accept", "connect", "srestart"))
Part = tuple[tuple[int, ...], Callable[[State], tuple[int, ...]]]  # places in a state, and what takes them out of it


@dataclass
class Finding:
    text: str
    path: list[Event]


@dataclass
class Result:
    states: int = 0
    transitions: int = 0
    merged: int = 0
    depth: int = 0
    whole_depth: int = 0  # up to which everything has been tried
    quiet: int = 0
    closed: int = 0
    processes: int = 0  # situations of single routers and clients
    agreed: int = 0  # paths gone in a whole world, too
    unexplored: int = 0
    drained: int = 0  # of the unexplored: continued at random until quiet
    seconds: float = 0.0  # of CPU
    finding: Finding | None = None

    @property
    def complete(self) -> bool:
        return not self.unexplored and self.finding is None


@dataclass
class Search:
    """limit: states; seconds: of CPU; reduce: by `Reduction` (only tests go without); watch: is called now and then."""

    setting: Setting
    limit: int = 10**6
    seconds: float = float("inf")
    reduce: bool = True
    watch: Callable[[Search], None] | None = None
    result: Result = field(default_factory=Result)

    def __post_init__(self) -> None:
        self.product = Product(self.setting)
        self.shortcuts = Shortcuts(self.product, Reduction(self.product) if self.reduce else None)
        self.form = Struct(f"{self.product.n + self.product.pairs + self.product.m + 3}i")  # of a state
        self.order: list[bytes] = []
        self.seen: set[bytes] = set()
        self.parents, self.events, self.depths = array("i"), array("i"), array("i")
        self.sample: list[tuple[int, Event]] = []
        self.rng = random.Random(1)
        self.gone = 0
        self.warm: list[Event] = []
        self.quiet: list[int] = []
        self.ends: dict[tuple[int, ...], None] = {}

    def run(self) -> Result:
        self.began = time.process_time()
        result = self.result
        try:
            self.go_through()
            if self.unexplored():
                self.drain_some()
            self.compare()
        except Beyond as beyond:
            result.finding = Finding(str(beyond), beyond.path)
        result.states = len(self.order)
        result.unexplored = self.unexplored()
        result.whole_depth = self.depths[self.gone] - 1 if self.unexplored() else result.depth
        result.processes = len(self.product.locals.routers) + len(self.product.locals.clients)
        result.quiet = len(self.quiet)
        result.seconds = self.spent()
        return result

    def spent(self) -> float:
        return time.process_time() - self.began

    # ------------------------------------------------------------------ going through it
    def go_through(self) -> None:
        try:
            state, self.warm = self.product.begin()
        except Found as found:
            raise Beyond(found.failure, self.product.begun) from None
        self.add(self.form.pack(*state), -1, ("begin",))
        while self.gone < len(self.order):
            if len(self.order) >= self.limit:
                return
            if self.gone % LOOK_EVERY == 0:
                if self.watch is not None:
                    self.watch(self)
                if self.spent() > self.seconds:
                    return
            self.expand(self.gone)
            self.gone += 1

    def told(self) -> str:
        """How far it is."""
        depth = self.depths[self.gone]
        return f"{self.spent():.0f} s: {len(self.order)} states, depth {depth}, {self.unexplored()} left"

    def unexplored(self) -> int:
        return len(self.order) - self.gone

    def state(self, place: int) -> State:
        return self.form.unpack(self.order[place])

    def expand(self, place: int) -> None:
        state = self.state(place)
        result = self.result
        progress, events = self.shortcuts.next(state)
        if not progress:
            events = (*events, *self.rest(place, state))
        for event in events:
            following = self.form.pack(*self.step(place, state, event))
            result.transitions += 1
            if following in self.seen:
                result.merged += 1
                if len(self.sample) < SAMPLED:
                    self.sample.append((place, event))
                elif self.rng.randrange(result.merged) < SAMPLED:
                    self.sample[self.rng.randrange(SAMPLED)] = (place, event)
            else:
                self.add(following, place, event)

    def add(self, state: bytes, parent: int, event: Event) -> None:
        self.seen.add(state)
        self.order.append(state)
        self.parents.append(parent)
        self.events.append(self.product.one(event))
        self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
        self.result.depth = self.depths[-1]

    def step(self, place: int, state: State, event: Event, further: list[Event] | None = None) -> State:
        try:
            return self.shortcuts.step(state, event)
        except Found as found:
            raise Beyond(found.failure, [*self.path(place), *(further or []), event]) from None

    def path(self, place: int) -> list[Event]:
        events: list[Event] = []
        while self.parents[place] >= 0:
            events.append(self.product.values[self.events[place]])
            place = self.parents[place]
        return [*self.warm, *reversed(events)]

    # ------------------------------------------------------------------ where nothing can happen
    def rest(self, place: int, state: State) -> list[Event]:
        """Time passes as long as anything is left over."""
        left = self.product.left_over(state)
        if left:
            if MutableState(self.product, state).rest.turns >= PATIENCE:
                raise Beyond(Violation("G4 left over: " + "; ".join(left)), self.path(place))
            return [("pause",)]
        self.quiet.append(place)
        try:
            self.product.check_quiescent(state)
        except Found as found:
            raise Beyond(found.failure, self.path(place)) from None
        draft = MutableState(self.product, state)
        end = (*draft.sites, *draft.clients)
        if end not in self.ends and len(self.ends) < CLOSED:
            self.ends[end] = None
            self.close(place, state)
            self.result.closed += 1
        return []

    def close(self, place: int, state: State) -> None:
        """Publishers, then subscribers; when everything has expired nobody remembers anything."""
        product = self.product
        further: list[Event] = []
        publishers, subscribers = self.setting.clients()
        stages = [[c.name for c in publishers], [c.name for c in subscribers], []]
        for names in stages:
            for name in names:
                state = self.step(place, state, ("close", name), further)
                further.append(("close", name))
            while True:
                if len(further) > TALK:
                    raise Beyond(Violation("G4 there is no end to it"), [*self.path(place), *further])
                progress = product.progress(state)
                if progress:
                    event = progress[0]
                else:
                    left = product.not_closed(state, names) if names else product.remembered(state)
                    if not left:
                        break
                    event = ("pause",)
                    if further.count(event) > PATIENCE:
                        raise Beyond(Violation("G4 left over: " + "; ".join(left)), [*self.path(place), *further])
                state = self.step(place, state, event, further)
                further.append(event)

    def drain_some(self) -> None:
        """Where it was cut: from some of what is left, without another fault, until it is quiet."""
        for place in self.rng.sample(range(self.gone, len(self.order)), min(SAMPLED, self.unexplored())):
            state = self.state(place)
            further: list[Event] = []
            while True:
                if len(further) > TALK:
                    raise Beyond(Violation("G4 there is no end to it"), [*self.path(place), *further])
                progress = self.product.progress(state)
                if not progress:
                    left = self.product.left_over(state)
                    if not left:
                        break
                    if further.count(("pause",)) > PATIENCE:
                        raise Beyond(Violation("G4 left over: " + "; ".join(left)), [*self.path(place), *further])
                event = self.rng.choice(progress) if progress else ("pause",)
                state = self.step(place, state, event, further)
                further.append(event)
            self.result.drained += 1

    def compare(self) -> None:
        for place, event in self.sample:
            agree(self.setting, self.product, [*self.path(place), event], self.rng)
            self.result.agreed += 1


class Shortcuts:
    """What can happen next in a whole world, and where it leads, found out once for those parts of it that it concerns.

    An event at a router concerns the situation of that router, its inboxes and those that it writes to, connections,
    and what is left of faults and time; one at a client its situation, connections, the checker, and the rest. Where
    all these have been the same before, so is what comes of it, whatever the other parts are. What can be tried next
    does not ask for the situations of routers, but for whether they live. Tables are emptied when they are full: what
    they say can be found out again.
    """

    def __init__(self, product: Product, reduction: Reduction | None) -> None:
        self.product, self.reduction = product, reduction
        self.possible: dict[Any, tuple[bool, tuple[Event, ...]]] = {}
        self.concerned: dict[Any, Part | None] = {}
        self.led: dict[Any, tuple[int, ...]] = {}

    def next(self, state: State) -> tuple[bool, tuple[Event, ...]]:
        """Whether anything happens by itself; and what is to be tried, with faults."""
        n = self.product.n
        key = (tuple([site < 0 for site in state[:n]]), state[n:-2], state[-1])
        found = self.possible.get(key)
        if found is None:
            if len(self.possible) >= ROOM:
                self.possible.clear()
            progress = self.product.progress(state)
            events = self.reduction.first(state, progress) if self.reduction is not None else None
            if events is None:
                events = progress + self.product.faults(state)
            found = self.possible[key] = bool(progress), tuple(events)
        return found

    def step(self, state: State, event: Event) -> State:
        """Raises Found."""
        part = self.part(state, event)
        if part is None:
            return self.product.step(state, event)
        places, take = part
        key = (event, take(state))
        led = self.led.get(key)
        if led is None:
            if len(self.led) >= ROOM:
                self.led.clear()
            following = self.product.step(state, event)
            self.led[key] = take(following)
            return following
        changed = list(state)
        for place, value in zip(places, led, strict=True):
            changed[place] = value
        return tuple(changed)

    def part(self, state: State, event: Event) -> Part | None:
        """What it concerns; None: all."""
        kind = event[0]
        key = (event, state[-3]) if kind in ON_CONNECTION else event
        if key in self.concerned:
            return self.concerned[key]
        if len(self.concerned) >= ROOM:
            self.concerned.clear()
        product = self.product
        n, size = product.n, len(state)
        places: list[int] = []
        if kind in AT_CLIENT:
            name = event[1] if isinstance(event[1], str) else event[1][0]
            places = [n + product.pairs + product.places[name], size - 3, size - 2, size - 1]
        elif kind in AT_ROUTER or kind in ON_CONNECTION:
            router = self.router_of(state, event)
            inboxes = [n + place for pair, place in product.pair.items() if router in pair]
            places = [router, *inboxes, size - 3, size - 1]
        part = (tuple(places), itemgetter(*places)) if places else None
        self.concerned[key] = part
        return part

    def router_of(self, state: State, event: Event) -> int:
        product = self.product
        if event[0] in AT_ROUTER:
            return product.router_names[event[AT_ROUTER[event[0]]]]
        client, number = product.places[event[1][0]], event[1][1]
        channels: tuple[Channel, ...] = product.values[state[-3]]
        return next(c.router for c in channels if (c.client, c.number) == (client, number))


class Beyond(Exception):
    """Something is wrong at the end of this path."""

    def __init__(self, failure: BaseException, path: list[Event]) -> None:
        name = "" if isinstance(failure, AssertionError) else f"{type(failure).__name__}: "
        super().__init__(f"{name}{failure}")
        self.path = path


def agree(setting: Setting, product: Product, path: list[Event], rng: random.Random) -> None:
    """The path looks the same in a whole world, after each event and a little further."""
    state, warm = product.begin()
    world = Small(setting)
    for event in warm:
        world.step(event)
    events = path[len(warm) :]
    for count in range(len(events) + BEYOND):
        if count < len(events):
            event = events[count]
        else:
            possible = product.progress(state) or ([("pause",)] if product.left_over(state) else product.faults(state))
            if not possible:
                return
            event = rng.choice(possible)
        state = product.step(state, event)
        world.step(event)
        here, there = product.view(state), world.view()
        assert here == there, f"after {[*events[:count], event]}: {here} is {there} in the whole world"


def replay(setting: Setting, path: list[Event]) -> tuple[Trace, BaseException | None]:
    """What happens on it in a whole world, for a reader: to its end, whatever invariant breaks on the way."""
    world = Small(setting)
    world.check_every = 0
    trace = Trace(world)
    try:
        for event in path:
            world.step(event)
        world.quiescent()
    except Exception as failure:  # noqa: BLE001  # whatever it is, it is what was found
        trace.end(failure)
        return trace, failure
    return trace, None
