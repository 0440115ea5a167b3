"""`python -m chaos.simulate`: random schedules of the real protocol code in virtual time, against its guarantees.

Exit 0 every guarantee held, 1 one was violated (with --mutations: a defect was missed), 2 bad options. Ctrl-C ends it
at once, with what has been found so far: 1 if that is a violation, else 130. A failing seed is shrunk to a short
schedule, told as a transcript and drawn as a sequence diagram. What a schedule is: `chaos.simulation.explore`; what the
defects are: `chaos.simulation.mutations`.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from chaos.simulation.diagram import diagram
from chaos.simulation.everything import everything
from chaos.simulation.explore import explore, kind_of_failure
from chaos.simulation.mutations import MUTATIONS, SEEDS, caught
from chaos.simulation.plan import FAMILIES, TOPOLOGIES, families_on
from chaos.simulation.shrink import replay, shrink
from chaos.simulation.smallest import WORLDS
from chaos.simulation.trace import Trace
from chaos.simulation.workers import INTERRUPTED, interrupt_once, workers

COMMAND = "python -m chaos.simulate"
EXITS = (
    "Exit code: 0 every guarantee held, 1 one was violated (with --mutations: a defect was missed), 2 bad options, "
    "130 interrupted (Ctrl-C) before anything was found."
)
DEFAULT_SEEDS = range(1000)
AT_ONCE = 10  # schedules in one piece of work
SHRUNK = 3  # kinds of failure that are shrunk and shown
EVERY_S = 60.0  # from one line of progress to the next


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
    families: dict[str, int] = field(default_factory=dict)
    failed: list[Failed] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        self.schedules += other.schedules
        self.events += other.events
        self.cpu_s += other.cpu_s
        for family, schedules in other.families.items():
            self.families[family] = self.families.get(family, 0) + schedules
        self.failed += other.failed


def work(seeds: list[int], family: str | None, topology: str | None) -> Totals:
    totals = Totals()
    began = time.process_time()
    with collected_by_hand():
        for seed in seeds:
            play(seed, family, topology, totals)
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


def play(seed: int, family: str | None, topology: str | None, totals: Totals) -> None:
    names = family.split(",") if family else families_on(topology)
    name = names[seed % len(names)]
    run, failure = explore(seed, name, topology)
    totals.schedules += 1
    totals.families[name] = totals.families.get(name, 0) + 1
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


def results(options: argparse.Namespace, seeds: Iterator[int], until: float | None) -> Generator[Totals, None, None]:
    """One for each piece of work, in any order."""
    if options.jobs == 1:
        for piece in pieces(seeds, until):
            yield work(piece, options.family, options.topology)
        return
    with workers(options.jobs) as pool:
        waiting: set[Future[Totals]] = set()
        for piece in pieces(seeds, until):
            waiting.add(pool.submit(work, piece, options.family, options.topology))
            if len(waiting) > options.jobs:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        for each in waiting:
            yield each.result()


def simulate(options: argparse.Namespace) -> int:
    chosen = "".join(f" --{n} {v}" for n in ("topology", "family") if (v := getattr(options, n)) is not None)
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
        with closing(results(options, iter(seeds if seeds is not None else count(fresh)), until)) as played:
            for result in played:
                totals.add(result)
                progress.tell(totals, time.monotonic() - began)
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
    again = f"--seeds {span(asked)}"
    if totals.failed:
        again = f"--seed {totals.failed[0].seed}"
    print(f"rerun: {COMMAND} {again}{chosen}")
    return code(bool(totals.failed), interrupted)


def code(wrong: bool, interrupted: bool) -> int:
    """What was found remains found."""
    return 1 if wrong else INTERRUPTED if interrupted else 0


class Progress:
    """How far it is, on stderr: a line that changes on a terminal, else one a minute."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.next = 0.0 if self.terminal else EVERY_S

    def tell(self, totals: Totals, after_s: float) -> None:
        if after_s < self.next:
            return
        self.next = after_s + (0.2 if self.terminal else EVERY_S)
        text = f"{after_s:5.0f} s: {totals.schedules} schedules, {len(totals.failed)} violations"
        print(text, end="\r" if self.terminal else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.terminal:
            print("\x1b[K", end="", file=sys.stderr, flush=True)


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
    print(trace.text())
    directory = out if out is not None else Path(tempfile.mkdtemp(prefix="onceway-simulate-"))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"seed-{failed.seed}-{failed.family}.svg"
    path.write_text(diagram(trace, f"seed {failed.seed}, {failed.family}, {run.world.shape}: {failed.kind}"))
    print(f"diagram: {path}\n")


# ---------------------------------------------------------------------- deliberate defects
def mutate(options: argparse.Namespace) -> int:
    """Every defect of the table, one at a time: the simulator must notice each."""
    began = time.monotonic()
    seeds: range = options.seeds or SEEDS
    tried = missed = 0
    try:
        print(
            f"{len(MUTATIONS)} deliberate defects; seeds {span(seeds)}, --jobs {options.jobs}; commit {commit()}",
            flush=True,
        )
        with closing(findings(options.jobs, seeds)) as told:
            for name, found in told:
                tried += 1
                missed += found is None
                print(f"MISSED {name}" if found is None else f"caught {name} by {found}", flush=True)
    except KeyboardInterrupt:
        pass  # the summary says so
    left = len(MUTATIONS) - tried
    took = time.monotonic() - began
    print(
        f"{len(MUTATIONS)} defects, {tried - missed} caught, {missed} missed, {took:.0f} s"
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


def span(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


def commit() -> str:
    root = Path(__file__).resolve().parent.parent
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


# ---------------------------------------------------------------------- options
def seed_range(text: str) -> range:
    first, dash, last = text.partition("-")
    if not dash or not first.isdecimal() or not last.isdecimal() or int(first) > int(last):
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST-LAST, two numbers, the smaller one first")
    return range(int(first), int(last) + 1)


def one_seed(text: str) -> range:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return range(int(text), int(text) + 1)


def positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def jobs(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def few(text: str) -> int:
    if text not in ("0", "1", "2", "3"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 3")
    return int(text)


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
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=seed_range, metavar="A-B", help="default: 0-999")
    which.add_argument("--seed", type=one_seed, dest="seeds", metavar="N", help="this one")
    which.add_argument("--seconds", type=positive, metavar="S", help="fresh seeds for so long")
    parser.add_argument("--topology", choices=TOPOLOGIES, help="default: each seed draws its own")
    parser.add_argument("--family", metavar="NAMES", help="the kinds of faults; default: all, each seed has its own")
    parser.add_argument("--jobs", type=jobs, default=1, metavar="N", help="processes; default 1")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where diagrams go; default: a new temporary directory")
    parser.add_argument(
        "--mutations", action="store_true", help="put deliberate defects in, one at a time, to be caught"
    )
    parser.add_argument(
        "--exhaustive", action="store_true", help="go through everything that can happen in the smallest worlds"
    )
    parser.add_argument(
        "--world", metavar="NAMES", help="of these smallest worlds, or all; default: those that are quick"
    )
    parser.add_argument(
        "--crashes", type=few, metavar="N", help="routers that die in them; default: each world its own"
    )
    parser.add_argument("--drops", type=few, metavar="N", help="connections that clients lose in them")
    parser.add_argument("--limit-states", type=jobs, metavar="N", help="cut a world there")
    options = parser.parse_args(arguments)
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
        return everything(options, COMMAND, commit())
    return mutate(options) if options.mutations else simulate(options)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, interrupt_once)
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before anything has been played
        sys.exit(INTERRUPTED)
