"""Makes a failing schedule small: fewer events, clients, routers and messages, as long as it fails alike."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from chaos.simulation.random.explore import Run, explore, failure_of
from chaos.simulation.random.plan import Plan
from chaos.simulation.world.world import Event, World

CALM_SEEDS = 4  # how many ways of draining are tried


def replay(
    plan: Plan,
    events: list[Event],
    calm_seed: int,
    watch: Callable[[World], object] | None = None,
    check_every: int = 0,
) -> tuple[Run, BaseException | None]:
    """This plan, these events as far as they are possible, then everything drains."""
    run = Run(plan)
    run.world.check_every = check_every
    if watch is not None:
        watch(run.world)
    rng = random.Random(calm_seed)

    def choose(possible: list[Event]) -> Event:
        return possible[0] if calm_seed == 0 else rng.choice(possible)

    def play() -> None:
        run.begin()
        for event in events:
            if run.able(event):
                run.step(event)
        run.calm(choose)
        run.close(choose)

    return run, failure_of(play)


@dataclass
class Shrunk:
    plan: Plan
    events: list[Event]
    calm_seed: int
    failure: BaseException


class Shrinking:
    """Makes at most so many tries; the failure keeps its kind."""

    def __init__(self, kind: str, tries: int) -> None:
        self.kind, self.tries = kind, tries

    def fails(self, plan: Plan, events: list[Event], calm_seed: int) -> Shrunk | None:
        self.tries -= 1
        run, found = replay(plan, events, calm_seed, check_every=int(self.kind.startswith("I")))
        if found is None or kind_of_failure(found) != self.kind:
            return None
        return Shrunk(plan, run.events, calm_seed, found)  # those that were possible

    def first(self, plan: Plan, events: list[Event]) -> Shrunk | None:
        return next((found for seed in range(CALM_SEEDS) if (found := self.fails(plan, events, seed))), None)

    def fewer_events(self, now: Shrunk) -> Shrunk:
        """Delta debugging (Zeller and Hildebrandt, 2002)."""
        pieces = 2
        while now.events and self.tries > 0:
            size = max(1, len(now.events) // pieces)
            for start in range(0, len(now.events), size):
                if self.tries <= 0:
                    return now
                found = self.fails(now.plan, now.events[:start] + now.events[start + size :], now.calm_seed)
                if found is not None:
                    now, pieces = found, max(pieces - 1, 2)
                    break
            else:
                if size == 1:
                    break
                pieces = min(pieces * 2, len(now.events))
        return now

    def simpler_plan(self, now: Shrunk) -> Shrunk:
        """The first simplification after which it still fails, again and again."""
        found: Shrunk | None = now
        while found is not None:
            now = found
            found = None
            for plan in simpler(now.plan):
                if self.tries <= 0:
                    return now
                found = self.first(plan, now.events)
                if found is not None:
                    break
        return now


def simpler(plan: Plan) -> Iterator[Plan]:
    """Without a client, without a router, with fewer messages, with a usual setting in an unusual one's place."""
    if len(plan.clients) > 1:
        for client in plan.clients:
            others = tuple(each for each in plan.clients if each is not client)
            if plan.address.no_subscribers == "hold" and all(each.publishes for each in others):
                continue  # no publisher could send, which would be another failure
            yield replace(plan, clients=others, places=tuple(p for p in plan.places if p[0] != client.name))
    for name in plan.names if len(plan.names) > 1 else "":
        names = plan.names.replace(name, "")
        yield replace(plan, names=names, places=tuple((c, r if r in names else names[0]) for c, r in plan.places))
    for index, client in enumerate(plan.clients):
        if client.publishes:
            for number in sorted({1, client.number // 2, client.number - 1}):
                if 0 < number < client.number:
                    fewer = replace(client, number=number)
                    yield replace(plan, clients=(*plan.clients[:index], fewer, *plan.clients[index + 1 :]))
    for name in plan.config:
        yield replace(plan, config={k: v for k, v in plan.config.items() if k != name})
    if plan.turns:
        yield replace(plan, turns=False)
    if plan.high is not None:
        yield replace(plan, high=None)
    for index, client in enumerate(plan.clients):
        for habit in client.habits:
            usual = replace(client, habits={k: v for k, v in client.habits.items() if k != habit})
            yield replace(plan, clients=(*plan.clients[:index], usual, *plan.clients[index + 1 :]))


def shrink(seed: int, family: str, topology: str | None = None, tries: int = 3000) -> Shrunk | None:
    """None: it does not fail, or not with the events of its faults alone."""
    run, failure = explore(seed, family, topology)
    if failure is None:
        return None
    shrinking = Shrinking(kind_of_failure(failure), tries)
    now = shrinking.first(run.plan, run.events)
    if now is None:
        return None
    while True:
        before = (now.plan, now.events)
        now = shrinking.fewer_events(shrinking.simpler_plan(now))
        if (now.plan, now.events) == before or shrinking.tries <= 0:
            return now


def kind_of_failure(failure: BaseException) -> str:
    """What alike failures have in common: the guarantee and the words, without names and numbers."""
    text = str(failure).split("\n", 1)[0]
    if not isinstance(failure, AssertionError) or text[:1] not in ("G", "I"):
        return type(failure).__name__
    if text.startswith("G4"):
        return "G4"
    return " ".join(word for word in re.sub(r"\([^()]*\)", "", text).split() if word.isalpha() or word[:1] == "G")
