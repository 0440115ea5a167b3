"""Everything that can happen in the smallest worlds: two routers, a publisher, one or two subscribers, a few faults.

Not a sample and not a model: the real code, in every order of events that matters. A world is gone through breadth
first, situation by situation (`product.py`), so that what is found first is the shortest way to it; what a process
does with an input is run once by the real code and then known (`processes.py`). Faults may come anywhere as long as
there are any left, then everything goes on until nothing can happen any more: every such *quiet* situation must leave
nothing over (G4), and closing everything must leave nothing remembered. G1 to G3, G5 and G6 are checked as it happens.

What it rests on is checked along the way: paths into situations that had been seen before are gone in a whole world,
step by step beside this one, and a little further at random; both must look the same (`agree`).
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct

from chaos.simulation.checker import Violation
from chaos.simulation.checkers import Found
from chaos.simulation.drafts import Draft, State
from chaos.simulation.endings import left_over, not_closed, quiescent, remembered, view
from chaos.simulation.product import Product
from chaos.simulation.reduction import Reduction
from chaos.simulation.shortcuts import Shortcuts
from chaos.simulation.smallest import Setting, Small
from chaos.simulation.trace import Trace
from chaos.simulation.world import Event

PATIENCE = 60  # pauses in which everything must have drained
CLOSED = 200  # quiet situations in which everything is closed, too
SAMPLED = 20  # paths that are gone in a whole world
BEYOND = 25  # events after them
TALK = 5000  # events in which everything must have been said
LOOK_EVERY = 256  # situations, at the clock


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
    drained: int = 0  # of the unexplored: gone on from until quiet, at random
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
        left = left_over(self.product, state)
        if left:
            if Draft(self.product, state).rest.turns >= PATIENCE:
                raise Beyond(Violation("G4 left over: " + "; ".join(left)), self.path(place))
            return [("pause",)]
        self.quiet.append(place)
        try:
            quiescent(self.product, state)
        except Found as found:
            raise Beyond(found.failure, self.path(place)) from None
        draft = Draft(self.product, state)
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
                    left = not_closed(product, state, names) if names else remembered(product, state)
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
                    left = left_over(self.product, state)
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
            possible = product.progress(state) or ([("pause",)] if left_over(product, state) else product.faults(state))
            if not possible:
                return
            event = rng.choice(possible)
        state = product.step(state, event)
        world.step(event)
        here, there = view(product, state), world.view()
        assert here == there, f"after {[*events[:count], event]}: {here} is {there} in the whole world"


def replay(setting: Setting, path: list[Event]) -> tuple[Trace, BaseException | None]:
    """What happens on it in a whole world, for a reader."""
    world = Small(setting)
    trace = Trace(world)
    try:
        for event in path:
            world.step(event)
        world.quiescent()
    except Exception as failure:  # noqa: BLE001  # whatever it is, it is what was found
        trace.end(failure)
        return trace, failure
    return trace, None
