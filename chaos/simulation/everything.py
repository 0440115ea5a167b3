"""`python -m chaos.simulate --exhaustive`: what the exploration of the smallest worlds says, and how it ends.

A line for each world, when it has been gone through or cut by a limit; what is found wrong is told as a transcript and
drawn, from a replay in the whole world.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from chaos.simulation.diagram import diagram
from chaos.simulation.exhaustive import Result, Search, replay
from chaos.simulation.smallest import WORLDS, Setting
from chaos.simulation.workers import INTERRUPTED, workers

LIMIT = 1_000_000
EVERY_S = 60.0  # of CPU
SOME = ("calm", "calm-2", "restart-1-one", "drops-1-one", "half-open-1-one", "crash-1-one", "trunk-1-one")
"""Those that are gone through in less than a minute, all together."""
HEAD = (
    f"{'world':<20}{'states':>9}{'transitions':>13}{'merged':>9}{'depth':>7}{'quiet':>7}{'processes':>11}{'CPU s':>8}  "
)


def chosen(options: argparse.Namespace) -> dict[str, Setting]:
    """Worlds by name, with the faults that the options ask for in the place of their own."""
    names = list(WORLDS) if options.world == "all" else options.world.split(",") if options.world else SOME
    faults = {kind: n for kind, n in (("crash", options.crashes), ("cdrop", options.drops)) if n is not None}
    return {name: replace(WORLDS[name], faults={**WORLDS[name].faults, **faults}) for name in names}


def everything(options: argparse.Namespace, command: str, commit: str) -> int:
    worlds = chosen(options)
    asked = "".join(
        f" --{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f" --{name.replace('_', '-')} {value}"
        for name in ("world", "crashes", "drops", "limit_states", "seconds")
        if (value := getattr(options, name)) is not None
    )
    tried = complete = wrong = 0
    spent = 0.0
    try:
        print(f"{len(worlds)} worlds; options{asked or ' none'}, --jobs {options.jobs}; commit {commit}", flush=True)
        print(HEAD + "gone through", flush=True)
        with closing(results(options, list(worlds.values()))) as told:
            for (name, setting), result in zip(worlds.items(), told, strict=True):
                print(line(name, result), flush=True)
                tried += 1
                complete += result.complete
                spent += result.seconds
                if result.finding is not None:
                    wrong += 1
                    show(name, setting, result, options.out)
    except KeyboardInterrupt:
        pass  # the summary says so
    left = len(worlds) - tried
    print(
        f"{len(worlds)} worlds, {complete} gone through completely, {tried - complete - wrong} cut, "
        f"{wrong} violations, {spent:.0f} s of CPU" + f", interrupted: {left} not gone through" * (left > 0)
    )
    print(f"rerun: {command} --exhaustive{asked}")
    return 1 if wrong else INTERRUPTED if left else 0


def results(options: argparse.Namespace, settings: list[Setting]) -> Generator[Result, None, None]:
    limit = options.limit_states or LIMIT
    seconds = options.seconds or float("inf")
    if options.jobs == 1:
        for setting in settings:
            progress = Progress()
            result = Search(setting, limit, seconds, watch=progress.tell).run()
            progress.end()
            yield result
        return
    with workers(options.jobs, tasks_per_process=1) as pool:
        yield from pool.map(gone_through, settings, [limit] * len(settings), [seconds] * len(settings))


class Progress:
    """How far one world is, on stderr: a line that changes on a terminal, else one a minute."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.next = 0.0 if self.terminal else EVERY_S

    def tell(self, search: Search) -> None:
        after_s = search.spent()
        if after_s >= self.next:
            self.next = after_s + (0.2 if self.terminal else EVERY_S)
            print(search.told(), end="\x1b[K\r" if self.terminal else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.terminal:
            print("\x1b[K", end="", file=sys.stderr, flush=True)


def gone_through(setting: Setting, limit: int, seconds: float) -> Result:
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


def show(name: str, setting: Setting, result: Result, out: Path | None) -> None:
    finding = result.finding
    assert finding is not None
    trace, failure = replay(setting, finding.path)
    clients = "; ".join(f"{client.name} {client.kind}" for kind in setting.clients() for client in kind)
    print(f"\n{name}: {clients}")
    print(trace.text())
    if failure is None:
        print(f"in the whole world this ends well, and should not: {finding.text}")
    directory = out if out is not None else Path(tempfile.mkdtemp(prefix="onceway-simulate-"))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"world-{name}.svg"
    path.write_text(diagram(trace, f"{name}: {finding.text.splitlines()[0]}"))
    print(f"diagram: {path}\n")
