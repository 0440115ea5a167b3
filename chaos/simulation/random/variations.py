"""Random schedules near the named ones: each begins like one of them, with a few changes, and continues at random.

A named schedule (`scenarios/`) is one interleaving of several steps, which chance hardly ever produces; but chance
often finds what lies near it. A seed draws a schedule, how much of it is played, and with which changes, from none to
many. Then it continues like any other random schedule (`explore.py`), to the same end, with the same checks. Fuzzers
do this with inputs that are known to be interesting. In a fifth of the seeds a second schedule follows the first.

What can be drawn stays within what the protocol promises, as in other families (`plan.FAMILIES`):

- Where the schedule itself parts routers, moves clocks or outlasts a timeout, a loss must be told. Where it does none
  of these, nothing excuses a loss, and no change does any of these either.
- Time passes only when everything that timeouts count on has happened (`may_wait`); that happens first. While all is as
  in the schedule itself, time passes as it did there: that is known to hold.
- Publishers with memory and without epochs are drawn only where routers cannot be apart (protocol 14, L1).
- Routers whose clocks differ are not parted: only clocks would tell where a publisher without epochs is.
- Where timeouts may pass, publishers without a map have no unusual windows: what does not fit into one again may come
  as new (protocol 14).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from chaos.simulation.random.plan import (
    FAULT_WEIGHTS,
    MESH,
    NEAR,
    OURS_WEIGHTS,
    WEIGHTS,
    Beginning,
    ClientPlan,
    Family,
    Plan,
    Step,
    with_pacing,
    with_unusual_settings,
    without_narrow_windows,
)
from chaos.simulation.random.recording import ANYTHING, FAULT, IN_ANY_ORDER, NOT_RECORDED, Recording, recordings
from chaos.simulation.scenarios import SCENARIOS
from chaos.simulation.world.clients import FOREVER, MEMORY, PLAIN, RECOVERING, UNIQUE
from chaos.simulation.world.real_clients import OURS
from chaos.simulation.world.world import Event

NAMES = tuple(name for name in SCENARIOS if name not in NOT_RECORDED)
MARGIN_S = 9.0  # that may pass in what comes by chance, less than from a timeout to the next
LATER = 100  # connections; no schedule has as many

USUAL = {"crash": 1, "cdrop": 1, "rdrop": 1, "pfresh": 1, "srestart": 1, "quit": 1, "release": 2, "reject": 1}
PARTED = {"part": 1, "suspect": 2, "cut": 1, "hold": 1}
NEVER = dict.fromkeys((*USUAL, *PARTED, "sfresh", "close"), 0)
COUNTED = frozenset((*NEVER, "reshape", "clock", "declare", "twin", "still", "late", "away", "pass", "kill", "full"))
WEIGHED = WEIGHTS | FAULT_WEIGHTS | OURS_WEIGHTS | {"pass": 1, "cquit": 1, "declare": 0.3, "go_on": 4}


# ---------------------------------------------------------------------- drawing
def draw_variation(seed: int) -> Plan:
    rng = random.Random(f"{NEAR} {seed}")
    first = rng.choice(recordings(drawn_name(f"{seed}")))
    recording = perhaps_two(first, seed)
    frail = any(client.habits.get("timeout", FOREVER) < MARGIN_S for client in recording.clients)
    # Alone, such a schedule excuses no loss; with further faults it does. So it is played alone, or is not strict.
    alone = (frail or (first.strict and first.apart)) and recording is first and rng.random() < 0.25
    long = recording.waits_s + MARGIN_S > recording.address.subscription_timeout_s or (frail and not alone)
    family = Family(
        strict=recording.strict and not long and (alone or not recording.apart),
        silence="heartbeat_s" in dict(recording.config),
        expiry=long,
        lasts_s=30.0 if long else MARGIN_S,
    )
    steps, exact = (recording.steps, len(recording.steps)) if alone else changed(recording, rng)
    if recording is not first:
        exact = min(exact, first.body)
    clients = recording.clients
    if not alone and rng.random() < 0.35:
        clients, exact = other_clients(recording, family, rng), 0
    if any(not client.publishes and client.kind == OURS for client in clients):  # ours gives up when it is turned away
        kept = tuple(step for step in steps if step[0][0] != "declare")
        steps, exact = kept, exact if len(kept) == len(steps) else 0
    more = {} if alone else draw_more(recording, family, rng)
    plan = Plan(
        seed, NEAR, recording.names, MESH, numbered(recording, clients, rng), (), recording.address,
        dict(recording.config), with_needed(more, steps),
        {kind: weight * rng.choice([0.3, 1, 1, 3]) for kind, weight in WEIGHED.items()},
        length=rng.choice([0, 0, 25, 60, 120]),
    )  # fmt: skip
    if not alone and rng.random() < 0.2:
        plan, exact = with_unusual_settings(plan, rng), 0
    plan = replace(with_pacing(plan, rng), beginning=Beginning(recording.of, family, steps, exact, recording.apart))
    return plan if alone else without_narrow_windows(plan)


def drawn_name(drawn: str) -> str:
    """Draws each schedule with equal likelihood. An added schedule takes some draws from all others."""
    return max(NAMES, key=lambda name: blake2b(f"{drawn} {name}".encode(), digest_size=8).digest())


def perhaps_two(first: Recording, seed: int) -> Recording:
    """The recording, or the recording followed by another one with the same clients and as many routers."""
    rng = random.Random(f"{NEAR} {seed} then")
    second = rng.choice(recordings(drawn_name(f"{seed} then")))
    strict = first.strict and second.strict and not (first.apart or second.apart)
    if rng.random() < 0.8 or (not strict and any(c.publishes and c.kind == MEMORY for c in first.clients)):
        return first
    if (first.clocks and second.apart) or (second.clocks and first.apart):
        return first
    steps = second.steps[rng.choice(deliberate([*second.steps[: second.body // 2]])) : second.body]
    places = dict(zip(second.names, first.names * 3, strict=False))
    behind = tuple((moved(event, places), held and tuple(moved(e, places) for e in held)) for event, held in steps)
    return replace(
        first, of=f"{first.of}, then {second.of}", strict=first.strict and second.strict,
        apart=first.apart or second.apart, steps=first.steps[: first.body] + behind, body=first.body + len(behind),
    )  # fmt: skip


def moved(event: Event, places: dict[str, str]) -> Event:
    """The event at other routers, and over later connections than those of the first schedule."""
    there: list[Any] = [places.get(each, each) if isinstance(each, str) else each for each in event]
    if event[0] == "connect":
        there[3] += LATER
    return tuple((each[0], each[1] + LATER) if isinstance(each, tuple) else each for each in there)


def draw_more(recording: Recording, family: Family, rng: random.Random) -> dict[str, int]:
    """Faults beside those of the schedule."""
    most = {**USUAL}
    if not family.strict and not recording.clocks and (recording.apart or rng.random() < 0.3):
        most |= PARTED
    if recording.address.no_subscribers == "accept":
        most |= {"sfresh": 1, "close": 1}
    if any(client.kind == OURS for client in recording.clients):
        most |= {"kill": 1, "full": 1, "still": 1}
    if family.expiry:
        most["pass"] = 1
    seldom = rng.choice([1, 3, 3, 3])  # in a quarter of the schedules much goes wrong, in others little
    return {kind: rng.choice([0] * seldom + [number]) for kind, number in most.items()}


def with_needed(more: dict[str, int], steps: tuple[Step, ...]) -> dict[str, int]:
    budget = NEVER | more
    for (kind, *_), _ in steps:
        if kind in COUNTED:
            budget[kind] = budget.get(kind, 0) + 1
    return budget


def numbered(recording: Recording, clients: tuple[ClientPlan, ...], rng: random.Random) -> tuple[ClientPlan, ...]:
    """Publishers have to send what the schedule sends, or more."""
    sent: dict[str, int] = {}
    for event, _ in recording.steps[: recording.body]:
        if event[0] == "send":
            sent[event[1]] = sent.get(event[1], 0) + 1
    return tuple(
        replace(
            each,
            seed=rng.getrandbits(32),
            habits={**each.habits},
            number=max(1, sent.get(each.name, 0) + rng.choice([0, 0, 1, 4])) if each.publishes else each.number,
        )
        for each in clients
    )


def other_clients(recording: Recording, family: Family, rng: random.Random) -> tuple[ClientPlan, ...]:
    """One of another kind, or with another window; or one more."""
    clients = [*recording.clients]
    publishing = [RECOVERING, UNIQUE, OURS] + [MEMORY] * family.strict
    subscribing = [RECOVERING, PLAIN, OURS] + [MEMORY] * (not family.expiry)
    if rng.random() < 0.5:
        publishes = rng.random() < 0.5 or recording.address.other_subscriptions == "refuse"
        name, kind = ("p9", rng.choice(publishing)) if publishes else ("s9", rng.choice(subscribing))
        clients.append(ClientPlan(name, publishes, kind, 3))
        return tuple(clients)
    index = rng.randrange(len(clients))
    client = clients[index]
    if client.publishes or rng.random() < 0.6:
        kind = rng.choice(publishing if client.publishes else subscribing)
        clients[index] = replace(client, kind=kind, journal=None, habits={})
    else:
        clients[index] = replace(client, number=rng.choice([1, 2, 10]), keep=rng.random() < 0.5)
    return tuple(clients)


# ---------------------------------------------------------------------- changes
def changed(recording: Recording, rng: random.Random) -> tuple[tuple[Step, ...], int]:
    """Returns the changed steps, and how many at the beginning are unchanged."""
    whole = len(recording.steps)
    length = rng.choice([recording.body, recording.body, whole, rng.randrange(recording.body // 2, recording.body + 1)])
    steps = [*recording.steps[:length]]
    exact = len(steps)
    for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 5])):
        if not any(held is not None for _, held in steps):
            break
        exact = min(exact, rng.choice(CHANGES)(steps, recording, rng))
    return tuple(steps), exact


def deliberate(steps: list[Step]) -> list[int]:
    """The indices of steps that do not happen by themselves."""
    return [index for index, (_, held) in enumerate(steps) if held is not None]


def leave_out(steps: list[Step], recording: Recording, rng: random.Random) -> int:
    index = rng.choice(deliberate(steps))
    del steps[index]
    return index


def later(steps: list[Step], recording: Recording, rng: random.Random) -> int:
    index = rng.choice(deliberate(steps)) if rng.random() < 0.7 else rng.randrange(len(steps))
    step = steps.pop(index)
    steps.insert(index + rng.choice([1, 3, 8, 20]), step)
    return index


def again(steps: list[Step], recording: Recording, rng: random.Random) -> int:
    """A few of the steps happen twice."""
    index = rng.choice(deliberate(steps))
    end = min(index + rng.choice([1, 1, 5, 15]), len(steps))
    steps[end:end] = steps[index:end]
    return end


def by_chance(steps: list[Step], recording: Recording, rng: random.Random) -> int:
    index = rng.randrange(len(steps) + 1)
    more: list[Step] = [(rng.choice([ANYTHING, FAULT]), ()) for _ in range(rng.choice([1, 1, 2, 4]))]
    steps[index:index] = more
    return index


def elsewhere(steps: list[Step], recording: Recording, rng: random.Random) -> int:
    """Two routers change places, for one event or from then on."""
    one, other = (rng.choice(recording.names) for _ in range(2))
    return exchange(steps, one, other, rng)


def another(steps: list[Step], recording: Recording, rng: random.Random) -> int:
    """Two clients change places."""
    publishes = rng.random() < 0.5
    names = [client.name for client in recording.clients if client.publishes == publishes] or ["s0"]
    return exchange(steps, rng.choice(names), rng.choice(names), rng)


def exchange(steps: list[Step], one: str, other: str, rng: random.Random) -> int:
    index = rng.choice(deliberate(steps))
    end = index + 1 if rng.random() < 0.6 else len(steps)
    places = {one: other, other: one}
    for each in range(index, end):
        event, held = steps[each]
        if held is not None:
            steps[each] = (tuple(places.get(word, word) if isinstance(word, str) else word for word in event), held)
    return index if one != other else len(steps)


def held_back(steps: list[Step], recording: Recording, rng: random.Random) -> int:
    """Something that happens by itself is held back, for a while or for good."""
    index = rng.randrange(len(steps))
    chosen = next((event for event, held in steps[index:] if held is None), None)
    if chosen is None:
        return len(steps)
    end = rng.randrange(index, len(steps) + 1)
    kept = [step for step in steps[index:end] if step[0] != chosen]
    steps[index:end] = [(event, None if held is None else (*held, chosen)) for event, held in kept]
    return index


def let_go(steps: list[Step], recording: Recording, rng: random.Random) -> int:
    """Something is not held back any more."""
    places = [index for index, (_, held) in enumerate(steps) if held]
    if not places:
        return len(steps)
    index = rng.choice(places)
    chosen = rng.choice(steps[index][1] or ())
    end = rng.randrange(index + 1, len(steps) + 1)
    for each in range(index, end):
        event, held = steps[each]
        steps[each] = (event, None if held is None else tuple(e for e in held if e != chosen))
    return index


def in_any_order(steps: list[Step], recording: Recording, rng: random.Random) -> int:
    """Between two steps, events happen by themselves in any order."""
    places = deliberate(steps)
    index = rng.choice(places)
    begin = max((place + 1 for place in places if place < index), default=0)
    steps[begin:index] = [(IN_ANY_ORDER, steps[index][1])]
    return begin


CHANGES: tuple[Callable[[list[Step], Recording, random.Random], int], ...] = (
    leave_out, later, again, by_chance, by_chance, elsewhere, another, held_back, let_go, in_any_order,
)  # fmt: skip
