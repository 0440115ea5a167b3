"""`python -m chaos.fuzz --cost [--case TEXT] [--octets N] [--seconds S] [--seed N]`: what input costs as it grows.

Each case (costs.py) makes, from the grammar of what the product reads, an input of size n in turns: what one turn of
the event loop would take. The cost is counted: each line that Python runs and each call, as `sys.settrace` tells them
(Python 3.11 has no sys.monitoring). So it is the same on every machine, and of sources: nothing is seen of compiled
modules. What C does in one call is one step; the time is in the report for that, and nothing depends on it.

From n, 2n and 4n follows the exponent: of a cost c(n) = a + b * n ** e it is log2((c(4n) - c(2n)) / (c(2n) - c(n))).
Above MOST_EXPONENT twice in a row, or with a turn above its steps, a case fails. Sizes double until the input is as
large as it may be.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, NamedTuple

Turn = Callable[[], Any]

MOST_EXPONENT: Final = 1.2
TURN_STEPS: Final = 200_000
"""Lines and calls in 10 ms: one takes some 50 ns, as much as 100 on a machine that has other work."""
FLAT: Final = 0.02
"""Of the cost: growth below it is that of a limit that was met, or none."""
LEAST_GROWTH: Final = 400
"""Steps: below it, growth is that of single lines."""
SMALLEST: Final = 64
MOST_OCTETS: Final = 1 << 16


class Case(NamedTuple):
    """An input that grows.

    Attributes:
        name: What is read, what grows in it, and who looks at it, with slashes between them.
        prepare: Makes, for a size, everything that stands there before, and the turns; only these are counted.
        octets: Bytes of the input, roughly, for each of size: how far it can grow.
        most: The size beyond which a limit of the product refuses it; 0: there is none.
        turn_steps: What one turn may take; another value than TURN_STEPS has its reason beside the case.
    """

    name: str
    prepare: Callable[[int], Iterable[Turn]]
    octets: int = 8
    most: int = 0
    turn_steps: int = TURN_STEPS


@dataclass(slots=True)
class Cost:
    """Of one input: steps of all turns, of the longest, and the time without counting."""

    steps: int = 0
    longest: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Finding:
    """What a case costs, by size; and what is wrong with that, if anything is."""

    name: str
    costs: dict[int, Cost]
    exponent: float
    wrong: str = ""


def counted(turn: Turn) -> int:
    """How many lines and calls it takes."""
    steps = 0

    def step(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        nonlocal steps
        steps += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        turn()
    finally:
        sys.settrace(before)
    return steps


def cost_of(case: Case, size: int) -> Cost:
    cost = Cost()
    for turn in case.prepare(size):
        began = time.perf_counter()
        steps = counted(turn)
        cost.seconds += time.perf_counter() - began
        cost.steps += steps
        cost.longest = max(cost.longest, steps)
    return cost


def exponent(first: int, second: int, third: int) -> float:
    """Of the costs at n, 2n and 4n; 0 where they grow no more."""
    early, late = second - first, third - second
    if late <= max(LEAST_GROWTH, FLAT * third) or early <= 0:
        return 0.0
    return math.log2(late / early)


def examine(case: Case, most_octets: int = MOST_OCTETS) -> Finding:
    """Doubles the size until something is wrong, or the input is as large as it may be."""
    costs: dict[int, Cost] = {}
    highest = before = 0.0
    size = SMALLEST
    for turn in case.prepare(size):  # what is made once in a process, such as parsers
        turn()
    while True:
        cost = costs[size] = cost_of(case, size)
        if cost.longest > case.turn_steps:
            text = f"a turn of {cost.longest} steps at size {size}, at most {case.turn_steps}"
            return Finding(case.name, costs, highest, text)
        if len(costs) > 2:
            found = exponent(costs[size // 4].steps, costs[size // 2].steps, cost.steps)
            highest = max(highest, min(before, found))
            if min(before, found) > MOST_EXPONENT:  # once it may be a step, such as that to longer encodings
                text = f"exponent {found:.2f} from size {size // 8} to {size}, at most {MOST_EXPONENT}"
                return Finding(case.name, costs, highest, text)
            before = found
        size *= 2
        if len(costs) > 3 and (size * case.octets > most_octets or (case.most and size > 2 * case.most)):
            return Finding(case.name, costs, highest)


def run(cases: Iterable[Case], most_octets: int, seconds: float) -> list[Finding]:
    """All cases, or as many as there is time for; prints a line for each."""
    began, wrong, done = time.monotonic(), [], 0
    for case in cases:
        if time.monotonic() - began > seconds:
            print(f"no time for more: {done} cases were examined", file=sys.stderr)
            break
        finding = examine(case, most_octets)
        done += 1
        print(line(finding), flush=True)
        if finding.wrong:
            wrong.append(finding)
            print(f"  {finding.wrong}\n  rerun: python -m chaos.fuzz --cost --case {case.name}", flush=True)
    print(f"{'held' if not wrong else 'found'}: {done} cases, {len(wrong)} of them wrong")
    return wrong


def line(finding: Finding) -> str:
    told = ", ".join(f"{size}: {cost.steps}" for size, cost in finding.costs.items())
    last = list(finding.costs.values())[-1]
    return f"{finding.name} exponent {finding.exponent:.2f}, longest turn {last.longest}, {last.seconds:.2f} s; {told}"


def mixed(cases: list[Case], seed: int) -> list[Case]:
    """In an order in which the first ones are a sample of all."""
    return random.Random(seed).sample(cases, len(cases))
