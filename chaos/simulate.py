"""`python -m chaos.simulate`: random schedules of the real protocol code in virtual time, against its guarantees.

Exit 0 every guarantee held, 1 one was violated (with --mutations: a defect was missed), 2 bad options. Ctrl-C ends it
at once, with what has been found so far: 1 if that is a violation, else 130. A failing seed is shrunk to a short
schedule, told as a transcript and drawn as a sequence diagram. What a schedule is: `chaos.simulation.random.explore`;
what the defects are: `chaos.simulation.defects.mutations`; how all that can happen in a small world is gone through:
`chaos.simulation.exhaustive.exploration`.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

from chaos import commit
from chaos.simulation.defects.mutations import MUTATIONS, SEEDS, caught
from chaos.simulation.exhaustive.exploration import Result, Search
from chaos.simulation.exhaustive.exploration import replay as replay_path
from chaos.simulation.exhaustive.smallest import WORLDS, Setting
from chaos.simulation.random.diagram import diagram
from chaos.simulation.random.explore import SAMPLED, explore
from chaos.simulation.random.plan import FAMILIES, TOPOLOGIES, families_on
from chaos.simulation.random.shrink import kind_of_failure, replay, shrink
from chaos.simulation.workers import INTERRUPTED, interrupt_once, workers
from chaos.simulation.world.trace import Trace

T = TypeVar("T")
COMMAND = "python -m chaos.simulate"
EXITS = (
    "Exit code: 0 every guarantee held, 1 one was violated (with --mutations: a defect was missed), 2 bad options, "
    "130 interrupted (Ctrl-C) before anything was found."
)
DEFAULT_SEEDS = range(1000)
AT_ONCE = 10  # schedules in one piece of work
SHRUNK = 3  # kinds of failure that are shrunk and shown
EVERY_S = 60.0  # from one line of progress to the next
LIMIT = 1_000_000  # states of a small world
QUICK = ("calm", "calm-2", "restart-1-one", "drops-1-one", "half-open-1-one", "crash-1-one", "trunk-1-one")
"""The small worlds that are gone through in less than a minute, all together."""
HEAD = (
    f"{'world':<20}{'states':>9}{'transitions':>13}{'merged':>9}{'depth':>7}{'quiet':>7}{'processes':>11}{'CPU s':>8}  "
)


# ---------------------------------------------------------------------- random schedules
@dataclass
class Failed:
    seed: int
    family: str
    kind: str
    text: str


@dataclass
class Totals:
    schedules: int = 0
    events: int = 0
    cpu_s: float = 0.0
    families: Counter[str] = field(default_factory=Counter)
    failed: list[Failed] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        self.schedules += other.schedules
        self.events += other.events
        self.cpu_s += other.cpu_s
        self.families += other.families
        self.failed += other.failed


def work(seeds: list[int], family: str | None, topology: str | None, check_every: int) -> Totals:
    totals = Totals()
    began = time.process_time()
    with collected_by_hand():
        for seed in seeds:
            play(seed, family, topology, totals, check_every)
            gc.collect()
    totals.cpu_s = time.process_time() - began
    return totals


@contextmanager
def collected_by_hand() -> Iterator[None]:
    """A schedule is one large cycle of objects: within it there is nothing to look for, behind it everything goes, and
    what was there before it stays."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def play(seed: int, family: str | None, topology: str | None, totals: Totals, check_every: int) -> None:
    names = family.split(",") if family else families_on(topology)
    name = names[seed % len(names)]
    run, failure = explore(seed, name, topology, check_every=check_every)
    totals.schedules += 1
    totals.families[name] += 1
    totals.events += len(run.world.history)
    if failure is not None:
        text = f"{type(failure).__name__}: {failure}" if not isinstance(failure, AssertionError) else str(failure)
        totals.failed.append(Failed(seed, name, kind_of_failure(failure), text.split("\n", 1)[0][:300]))


def pieces(seeds: Iterator[int], until: float | None) -> Iterator[list[int]]:
    while until is None or time.monotonic() < until:
        piece = list(islice(seeds, AT_ONCE))
        if not piece:
            return
        yield piece


def played(options: argparse.Namespace, seeds: Iterator[int], until: float | None) -> Generator[Totals, None, None]:
    """One for each piece of work, in any order."""
    if options.jobs == 1:
        for piece in pieces(seeds, until):
            yield work(piece, options.family, options.topology, options.check_every)
        return
    with workers(options.jobs) as pool:
        waiting: set[Future[Totals]] = set()
        for piece in pieces(seeds, until):
            waiting.add(pool.submit(work, piece, options.family, options.topology, options.check_every))
            if len(waiting) > options.jobs:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        for each in waiting:
            yield each.result()


def simulate(options: argparse.Namespace) -> int:
    chosen = given(options, "topology", "family")
    fresh = int.from_bytes(os.urandom(4), "big")
    seeds: range | None = (options.seeds or DEFAULT_SEEDS) if options.seconds is None else None
    first = seeds.start if seeds is not None else fresh
    which = span(seeds) if seeds is not None else f"from {fresh} on, for {options.seconds:g} s"
    began = time.monotonic()
    until = began + options.seconds if options.seconds is not None else None
    totals = Totals()
    progress = Progress()
    interrupted = False
    try:
        print(f"seeds {which}; options{chosen or ' none'}, --jobs {options.jobs}; commit {commit()}", flush=True)
        with closing(played(options, iter(seeds if seeds is not None else count(fresh)), until)) as results:
            for result in results:
                totals.add(result)
                after_s = time.monotonic() - began
                told = f"{after_s:5.0f} s: {totals.schedules} schedules, {len(totals.failed)} violations"
                progress.tell(after_s, lambda told=told: told)  # type: ignore[misc]
                for failed in result.failed:
                    print(f"seed {failed.seed} ({failed.family}): {failed.text}", flush=True)
        progress.end()
        show_some(totals.failed, options)
    except KeyboardInterrupt:
        progress.end()
        interrupted = True
    totals.failed.sort(key=lambda failed: failed.seed)
    per_cpu_s = totals.schedules / max(totals.cpu_s, 1e-9)
    by_family = ", ".join(f"{family} {number}" for family, number in sorted(totals.families.items()))
    print(
        f"{totals.schedules} schedules ({by_family}), {totals.events} events, {time.monotonic() - began:.0f} s, "
        f"{per_cpu_s:.0f} schedules per CPU second, {len(totals.failed)} violations" + ", interrupted" * interrupted
    )
    asked = seeds if interrupted and seeds is not None else range(first, first + max(1, totals.schedules))
    again = f"--seed {totals.failed[0].seed}" if totals.failed else f"--seeds {span(asked)}"
    print(f"rerun: {COMMAND} {again}{chosen}")
    return code(bool(totals.failed), interrupted)


def show_some(failures: list[Failed], options: argparse.Namespace) -> None:
    """One of each of the first kinds."""
    shown: set[str] = set()
    for failed in sorted(failures, key=lambda failed: failed.seed):
        if failed.kind not in shown and len(shown) < SHRUNK:
            shown.add(failed.kind)
            show(failed, options.topology, options.out)


def show(failed: Failed, topology: str | None, out: Path | None) -> None:
    """The shortest schedule that fails like this one, for a reader."""
    print(f"\nseed {failed.seed} ({failed.family}), shrunk:", flush=True)
    traces: list[Trace] = []
    found = shrink(failed.seed, failed.family, topology)
    if found is None:  # not with its events alone: then as it was
        print("(does not fail with the events of its faults alone; the whole of it follows)")
        run, failure = explore(failed.seed, failed.family, topology, lambda world: traces.append(Trace(world)))
    else:
        run, failure = replay(found.plan, found.events, found.calm_seed, lambda world: traces.append(Trace(world)))
    trace = traces[0]
    trace.end(failure)
    clients = [*run.world.publishers, *run.world.subscribers]
    print(f"{run.world.shape} of {' '.join(run.world.names)}; " + "; ".join(f"{c.name} {c.kind}" for c in clients))
    if unusual := run.plan.unusual():
        print(unusual)
    title = f"seed {failed.seed}, {failed.family}, {run.world.shape}: {failed.kind}"
    tell_and_draw(trace, f"seed-{failed.seed}-{failed.family}", title, out)


def tell_and_draw(trace: Trace, name: str, title: str, out: Path | None) -> None:
    print(trace.text())
    directory = out if out is not None else Path(tempfile.mkdtemp(prefix="onceway-simulate-"))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.svg"
    path.write_text(diagram(trace, title))
    print(f"diagram: {path}\n")


# ---------------------------------------------------------------------- deliberate defects
def mutate(options: argparse.Namespace) -> int:
    """Every defect of the table, one at a time: the simulator must notice each."""
    began = time.monotonic()
    seeds: range = options.seeds or SEEDS
    tried = missed = 0
    try:
        said = f"seeds {span(seeds)}, --jobs {options.jobs}; commit {commit()}"
        print(f"{len(MUTATIONS)} deliberate defects; {said}", flush=True)
        with closing(findings(options.jobs, seeds)) as told:
            for name, found in told:
                tried += 1
                missed += found is None
                print(f"MISSED {name}" if found is None else f"caught {name} by {found}", flush=True)
    except KeyboardInterrupt:
        pass  # the summary says so
    left = len(MUTATIONS) - tried
    print(
        f"{len(MUTATIONS)} defects, {tried - missed} caught, {missed} missed, {time.monotonic() - began:.0f} s"
        + f", interrupted: {left} not tried" * (left > 0)
    )
    print(f"rerun: {COMMAND} --mutations" + (f" --seeds {span(options.seeds)}" if options.seeds else ""))
    return code(missed > 0, left > 0)


def findings(jobs: int, seeds: range) -> Generator[tuple[str, str | None], None, None]:
    if jobs == 1:
        for mutation in MUTATIONS.values():
            yield mutation.name, caught(mutation, seeds)
        return
    with workers(jobs) as pool:
        yield from zip(MUTATIONS, pool.map(find, MUTATIONS, [seeds] * len(MUTATIONS)), strict=True)


def find(name: str, seeds: range) -> str | None:
    return caught(MUTATIONS[name], seeds)


# ---------------------------------------------------------------------- the smallest worlds
def exhaust(options: argparse.Namespace) -> int:
    """A line for each world, when it has been gone through or cut by a limit; what is found wrong is told and drawn
    from a replay in the whole world."""
    names = list(WORLDS) if options.world == "all" else options.world.split(",") if options.world else QUICK
    faults = {kind: n for kind, n in (("crash", options.crashes), ("cdrop", options.drops)) if n is not None}
    worlds = {name: replace(WORLDS[name], faults={**WORLDS[name].faults, **faults}) for name in names}
    asked = given(options, "world", "crashes", "drops", "limit_states", "seconds")
    tried = complete = wrong = 0
    spent = 0.0
    try:
        print(f"{len(worlds)} worlds; options{asked or ' none'}, --jobs {options.jobs}; commit {commit()}", flush=True)
        print(HEAD + "gone through", flush=True)
        with closing(searched(options, list(worlds.values()))) as told:
            for (name, setting), result in zip(worlds.items(), told, strict=True):
                print(line(name, result), flush=True)
                tried += 1
                complete += result.complete
                spent += result.seconds
                if result.finding is not None:
                    wrong += 1
                    show_path(name, setting, result, options.out)
    except KeyboardInterrupt:
        pass  # the summary says so
    left = len(worlds) - tried
    print(
        f"{len(worlds)} worlds, {complete} gone through completely, {tried - complete - wrong} cut, "
        f"{wrong} violations, {spent:.0f} s of CPU" + f", interrupted: {left} not gone through" * (left > 0)
    )
    print(f"rerun: {COMMAND} --exhaustive{asked}")
    return code(wrong > 0, left > 0)


def searched(options: argparse.Namespace, settings: list[Setting]) -> Generator[Result, None, None]:
    limit, seconds = options.limit_states or LIMIT, options.seconds or float("inf")
    if options.jobs == 1:
        for setting in settings:
            progress = Progress()
            yield Search(setting, limit, seconds, watch=lambda one: progress.tell(one.spent(), one.told)).run()  # noqa: B023
            progress.end()
        return
    with workers(options.jobs, tasks_per_process=1) as pool:
        yield from pool.map(search, settings, [limit] * len(settings), [seconds] * len(settings))


def search(setting: Setting, limit: int, seconds: float) -> Result:
    return Search(setting, limit, seconds).run()


def line(name: str, result: Result) -> str:
    if result.finding is not None:
        how = result.finding.text.split("\n", 1)[0]
    elif result.complete:
        how = f"completely; {result.agreed} paths in whole worlds, too"
    else:
        how = f"to depth {result.whole_depth}, {result.unexplored} situations left, {result.drained} of them drained"
    return (
        f"{name:<20}{result.states:>9}{result.transitions:>13}{result.merged:>9}{result.depth:>7}{result.quiet:>7}"
        f"{result.processes:>11}{result.seconds:>8.1f}  {how}"
    )


def show_path(name: str, setting: Setting, result: Result, out: Path | None) -> None:
    finding = result.finding
    assert finding is not None
    trace, failure = replay_path(setting, finding.path)
    print(f"\n{name}: " + "; ".join(f"{client.name} {client.kind}" for kind in setting.clients() for client in kind))
    if failure is None:
        print(f"in the whole world this ends well, and should not: {finding.text}")
    tell_and_draw(trace, f"world-{name}", f"{name}: {finding.text.splitlines()[0]}", out)


# ---------------------------------------------------------------------- for all three
class Progress:
    """How far it is, on stderr: a line that changes on a terminal, else one a minute."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.next = 0.0 if self.terminal else EVERY_S

    def tell(self, after_s: float, told: Callable[[], str]) -> None:
        if after_s >= self.next:
            self.next = after_s + (0.2 if self.terminal else EVERY_S)
            print(told(), end="\x1b[K\r" if self.terminal else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.terminal:
            print("\x1b[K", end="", file=sys.stderr, flush=True)


def code(wrong: bool, interrupted: bool) -> int:
    """What was found remains found."""
    return 1 if wrong else INTERRUPTED if interrupted else 0


def span(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


def given(options: argparse.Namespace, *names: str) -> str:
    """Those of these options that were given, as they are written."""
    values = [(name.replace("_", "-"), getattr(options, name)) for name in names]
    shown = [(name, f"{value:g}" if isinstance(value, float) else value) for name, value in values if value is not None]
    return "".join(f" --{name} {value}" for name, value in shown)


# ---------------------------------------------------------------------- options
def checked(read: Callable[[str], T | None], what: str) -> Callable[[str], T]:
    """A type of options; `read` raises ValueError or returns None where the text is not that."""

    def convert(text: str) -> T:
        try:
            value = read(text)
        except ValueError:
            value = None
        if value is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return convert


def read_seeds(text: str) -> range | None:
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1) if first.isdecimal() and int(first) <= int(last) else None


seed_range = checked(read_seeds, "FIRST-LAST, two numbers, the smaller one first")
one_seed = checked(lambda text: range(int(text), int(text) + 1) if text.isdecimal() else None, "a number")
seconds = checked(lambda text: number if 0 < (number := float(text)) < float("inf") else None, "a number above 0")
whole = checked(lambda text: int(text) if text.isdecimal() and int(text) else None, "a whole number above 0")


def check_exhaustive(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    for name in ("seeds", "topology", "family", "mutations"):
        if getattr(options, name):
            parser.error(
                f"--exhaustive goes with --world, --crashes, --drops, --limit-states, --seconds, --jobs and "
                f"--out, not with --{name}"
            )
    unknown = [name for name in (options.world or "all").split(",") if name != "all" and name not in WORLDS]
    if unknown:
        parser.error(f"no world {', '.join(unknown)}; there are: {', '.join(WORLDS)}, all")


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(COMMAND, description=(__doc__ or "").split("\n", 1)[0], epilog=EXITS)
    which, add = parser.add_mutually_exclusive_group(), parser.add_argument
    which.add_argument("--seeds", type=seed_range, metavar="A-B", help="default: 0-999")
    which.add_argument("--seed", type=one_seed, dest="seeds", metavar="N", help="this one")
    which.add_argument("--seconds", type=seconds, metavar="S", help="fresh seeds for so long")
    add("--topology", choices=TOPOLOGIES, help="default: each seed draws its own")
    add("--family", metavar="NAMES", help="the kinds of faults; default: all, each seed has its own")
    add("--jobs", type=whole, default=1, metavar="N", help="processes; default 1")
    often = f"steps from one check of all invariants to the next; default {SAMPLED}, for one seed 1"
    add("--check-every", type=whole, metavar="N", help=often)
    add("--out", type=Path, metavar="DIR", help="where diagrams go; default: a new temporary directory")
    add("--mutations", action="store_true", help="put deliberate defects in, one at a time, to be caught")
    add("--exhaustive", action="store_true", help="go through everything that can happen in the smallest worlds")
    add("--world", metavar="NAMES", help="of these smallest worlds, or all; default: those that are quick")
    few = {"type": int, "choices": range(4), "metavar": "N"}
    add("--crashes", **few, help="routers that die in them, 0 to 3; default: each world its own")  # type: ignore[arg-type]
    add("--drops", **few, help="connections that clients lose in them, 0 to 3")  # type: ignore[arg-type]
    add("--limit-states", type=whole, metavar="N", help="cut a world there")
    options = parser.parse_args(arguments)
    options.check_every = options.check_every or (
        1 if options.seeds is not None and len(options.seeds) == 1 else SAMPLED
    )
    if options.exhaustive:
        check_exhaustive(parser, options)
    elif any(getattr(options, name) is not None for name in ("world", "crashes", "drops", "limit_states")):
        parser.error("--world, --crashes, --drops and --limit-states go with --exhaustive")
    if options.mutations:
        for name in ("seconds", "topology", "family", "out"):
            if getattr(options, name) is not None:
                parser.error(f"--mutations goes with --seeds, --seed and --jobs, not with --{name}")
    for name in (options.family or "").split(",") if options.family is not None else ():
        if name not in FAMILIES:
            parser.error(f"no family {name!r}; there are: {', '.join(FAMILIES)}")
        if name not in families_on(options.topology):
            shapes = ", ".join(FAMILIES[name].shapes)
            parser.error(f"family {name} is not played on a {options.topology}, only on: {shapes}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    if options.exhaustive:
        return exhaust(options)
    return mutate(options) if options.mutations else simulate(options)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, interrupt_once)
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before anything has been played
        sys.exit(INTERRUPTED)
