"""Onceway beside other brokers: same machine, same run, same load generators.

    python -m bench table|compare|latency|wide|single|bodies|queue [--quick] [--peers onceway,nats] [--skrouterd PATH]
                                                              [--security plain,tls,mutual] [--json FILE] [--readme]

table:   all of them, Onceway and skupper-router.
compare: 1 to 200 subscribers of one topic, bodies of 100 bytes, windows of 1,000 messages.
latency: one topic at 1,000 messages a second, and 40 topics at 50 each.
wide:    40 topics with a publisher and a subscriber each; windows of 1, 10, 100 and 1,000 messages.
single:  the same with one topic.
bodies:  24 bytes (a stamp) to 1 MB, windows of at most 3 MB.
queue:   a filter that matches everything, and a queue with one and with four consumers, beside a topic with one
         subscriber, by window; skupper-router's queue is anycast.

Peer `onceway-compiled` is the tree in build/compiled, which `make compiled` makes.

Each cell shows the peer's CPU seconds per 100,000 deliveries, deliveries per second, and the median latency then.

A peer that is not installed is left out, which is said in a line.  Exit status 1 if a run through Onceway failed, lost,
repeated or reordered a message, or a peer could not be started; 2 if the generators cannot be built.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load import GeneratorsMissing, Load, Result, built, run
from bench.peers import COMPILED, DEFINITIONS, QUEUE, Broker, Onceway, OncewayMqtt, Peer, in_line
from onceway.demo.secure import MODES

READY_S = 60.0
PEERS = ("onceway", *DEFINITIONS)
ASKED_FOR = ("onceway-mqtt", "onceway-compiled")  # only where they are
README = Path(__file__).with_name("README.md")


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: dict[str, dict[str, Any]]  # by heading: the fields of Load
    routers: tuple[int, ...]  # networks of so many in line
    latency: bool = False  # show latencies instead of CPU and rate


WINDOWS = (1, 10, 100, 1_000)
BODIES = {"24 B": 24, "100 B": 100, "1 kB": 1_000, "10 kB": 10_000, "100 kB": 100_000, "1 MB": 1_000_000}
KINDS: dict[str, dict[str, Any]] = {
    "topic": {},
    "filter": {"selector": "JMSPriority = 4"},
    "queue": {"queue": True},
    "4 consumers": {"queue": True, "subscribers": 4, "together": True},
}
TABLES = {
    "compare": Table(
        "By subscribers",
        {"1": {}, "4": {"subscribers": 4}, "16": {"subscribers": 16}, "200": {"subscribers": 200}},
        routers=(1, 2, 3),
    ),
    "latency": Table(
        "Latency from publisher to subscriber",
        {
            "1 topic 1000/s": {"rate": 1_000.0, "deliveries": 10_000},
            "40 topics 50/s": {"topics": 40, "rate": 50.0, "deliveries": 20_000},
        },
        routers=(1, 2),
        latency=True,
    ),
    "wide": Table(
        "40 topics, by window",
        {f"{n}": {"topics": 40, "window": n, "deliveries": min(80_000, 20_000 * n)} for n in WINDOWS},
        routers=(1, 2, 3),
    ),
    "single": Table(
        "One topic, by window",
        {f"{n}": {"window": n, "deliveries": min(80_000, 10_000 * n)} for n in WINDOWS},
        routers=(1, 2, 3),
    ),
    "bodies": Table(
        "By size of the body",
        {
            name: {
                "body": size,
                "window": min(1_000, 3_000_000 // size),  # skupper-router closes a connection with 4 MiB under way
                "deliveries": min(100_000, 200_000_000 // size),
            }
            for name, size in BODIES.items()
        },
        routers=(1, 2, 3),
    ),
    "queue": Table(
        "A filter and a queue beside a topic, by window",
        {
            f"{kind} {n}": {**fields, "window": n, "deliveries": min(80_000, 4_000 * n)}
            for n in WINDOWS
            for kind, fields in KINDS.items()
        },
        routers=(1, 2),
    ),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """The runs of one column of a table for one peer."""

    table: str
    column: str
    peer: Peer
    runs: list[Result]

    def median(self, figure: str) -> float:
        return statistics.median([float(getattr(one, figure)) for one in self.runs])

    @property
    def measure(self) -> float:
        """What ratios are taken of."""
        return self.median("latency_p50_ms" if TABLES[self.table].latency else "cpu_s_per_100k")

    @property
    def faults(self) -> str:
        return ", ".join(f"{number:,} {name}" for one in self.runs for name, number in one.faults.items())

    def text(self, base: Cell | None) -> str:
        if not self.runs:
            return "failed"
        if TABLES[self.table].latency:
            figures = f"{self.median('latency_p50_ms'):.2f}, {self.median('latency_p99_ms'):.1f} ms"
        else:
            rate, wait = self.median("deliveries_per_s"), self.median("latency_p50_ms")
            figures = f"{self.measure:.2f} s; {rate:,.0f}/s; {wait:.1f} ms"
        ratio = ""
        if base and base is not self and base.runs and base.measure:
            ratio = f" (x{self.measure / base.measure:.2f}{', ahead' if self.measure < base.measure else ''})"
        marks = (" *" if any(one.refused_second for one in self.runs) else "") + (" !" if self.faults else "")
        return figures + ratio + marks


def main(argv: Sequence[str] | None = None, tables: Sequence[str] = ("compare",)) -> int:
    args = options(argv)
    try:
        built("amqp")
    except GeneratorsMissing as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    cells: list[Cell] = []
    broken = False
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary:
        for peer in peers(args, tables, Path(temporary)):
            try:
                with peer:
                    cells += measure(peer, tables, args)
            except (AssertionError, RuntimeError, OSError) as problem:
                broken = True
                print(f"{peer.label}: {problem}", file=sys.stderr)
    for name in tables:
        if chosen := [cell for cell in cells if cell.table == name]:
            print("\n".join(shown(name, chosen)))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} processors, load averages {load}")
    if args.json:
        rows = [
            {"table": cell.table, "column": cell.column, "peer": cell.peer.label, **one.as_dict()}
            for cell in cells
            for one in cell.runs
        ]
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    if args.readme:
        README.write_text(written(README.read_text(), cells, args, load))
    ours = [cell for cell in cells if isinstance(cell.peer, Onceway)]
    return 1 if broken or any(cell.faults or not cell.runs for cell in ours) else 0


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PEERS), help=f"which of {', '.join((*PEERS, *ASKED_FOR))}")
    for name, definition in DEFINITIONS.items():
        parser.add_argument(f"--{name}", metavar="PATH", help=f"the program {Path(definition.program).name}")
    parser.add_argument("--routers", default="1,2,3", help="sizes of the networks, as far as a table has them")
    parser.add_argument("--columns", help="only these columns, for example 1,16")
    parser.add_argument("--count", type=int, default=200_000, help="deliveries of a run, at most")
    parser.add_argument("--reps", type=int, default=1, help="repetitions; the tables show medians")
    parser.add_argument("--settle", type=float, default=1.0, help="seconds between attaching and publishing")
    parser.add_argument("--quick", action="store_true", help="a tenth of the deliveries")
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")
    parser.add_argument("--readme", action="store_true", help="write the figures into bench/README.md as well")
    parser.add_argument(
        "--security",
        default="plain",
        help=f"in which modes Onceway is measured, of {', '.join(MODES)}; others in plain",
    )
    args = parser.parse_args(argv)
    args.security = args.security.split(",")
    if not set(args.security) <= set(MODES):
        parser.error(f"--security takes some of {', '.join(MODES)}, with commas")
    args.routers = [int(text) for text in args.routers.split(",")]
    args.peers = args.peers.split(",")
    unknown = [name for name in args.peers if name not in (*PEERS, *ASKED_FOR)]
    if unknown:
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join((*PEERS, *ASKED_FOR))}")
    return args


def peers(args: argparse.Namespace, tables: Sequence[str], directory: Path) -> Iterator[Peer]:
    sizes = [size for size in args.routers if any(size in TABLES[name].routers for name in tables)]
    for name in args.peers:
        if name == "onceway":
            for mode in args.security:
                yield from (Onceway(directory / f"onceway{size}-{mode}", size, security=mode) for size in sizes)
            continue
        if name == "onceway-mqtt":
            built("mqtt")
            yield OncewayMqtt(directory / name)
            continue
        if name == "onceway-compiled":
            if not any(COMPILED.glob("*.so")):
                print(f"{name} left out: nothing in {COMPILED} (make compiled)", file=sys.stderr)
                continue
            yield from (Onceway(directory / f"{name}{size}", size, compiled=True) for size in sizes)
            continue
        definition = DEFINITIONS[name]
        program = definition.find(getattr(args, name))
        if program is None:
            where = getattr(args, name) or f"no {Path(definition.program).name}"
            print(f"{definition.label} left out: {where} ({definition.remedy}; --{name} PATH)", file=sys.stderr)
            continue
        try:
            built(definition.kind)
        except GeneratorsMissing as problem:
            print(f"{definition.label} left out: {problem}", file=sys.stderr)
            continue
        for size in sizes if definition.network else [1]:
            yield Broker(definition, program, directory / f"{name}{size}", size)


def measure(peer: Peer, tables: Sequence[str], args: argparse.Namespace) -> Iterator[Cell]:
    warm_up(peer)
    for name in tables:
        if peer.size not in TABLES[name].routers:
            continue
        for number, (column, fields) in enumerate(TABLES[name].columns.items()):
            if args.columns and column not in args.columns.split(","):
                continue
            if (fields.get("queue") and not peer.queues) or (fields.get("selector") and not peer.filters):
                continue
            runs = []
            for repetition in range(args.reps):
                load = load_for(peer, f"{name}-{number}-{repetition}", fields, args)
                try:
                    runs.append(run(load, peer.pids(), args.settle))
                except RuntimeError as problem:
                    print(f"{peer.label}: {name} {column}: {problem}", file=sys.stderr, flush=True)
            cell = Cell(name, column, peer, runs)
            print(f"{peer.label}: {name} {column}: {cell.text(None)} {cell.faults}", file=sys.stderr, flush=True)
            yield cell


def warm_up(peer: Peer) -> None:
    """Until messages get through: routers in line must find each other first."""
    end = time.monotonic() + READY_S
    attempt = 0
    while run(peer.load(f"warm-{attempt}", count=10, timeout_s=3), {}, 0.2).faults:
        attempt += 1
        if time.monotonic() > end:
            raise RuntimeError(f"no messages got through within {READY_S:g} s")


def load_for(peer: Peer, run_id: str, fields: dict[str, Any], args: argparse.Namespace) -> Load:
    fields = dict(fields)
    if fields.pop("queue", False):
        run_id = QUEUE + run_id
    deliveries = min(args.count, fields.pop("deliveries", args.count)) // (10 if args.quick else 1)
    each = 1 if fields.get("together") else fields.get("subscribers", 1)
    count = max(1, deliveries // (fields.get("topics", 1) * each))
    return peer.load(run_id, count=count, **fields)


def shown(name: str, cells: Sequence[Cell]) -> list[str]:
    """A table in Markdown; ratios are to Onceway with as many routers."""
    table = TABLES[name]
    columns = [column for column in table.columns if any(cell.column == column for cell in cells)]
    rows = [["", *columns]]
    for label in dict.fromkeys(cell.peer.label for cell in cells):
        row = [label]
        for column in columns:
            mine = [cell for cell in cells if cell.peer.label == label and cell.column == column]
            row.append(mine[0].text(base(cells, mine[0])) if mine else "")
        rows.append(row)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    what = (
        "p50, p99; ratio of p50" if table.latency else "CPU seconds per 100,000 deliveries; deliveries per second; p50"
    )
    notes = [f"! {cell.peer.label}, {cell.column}: {cell.faults}" for cell in cells if cell.faults]
    if any(one.refused_second for cell in cells for one in cell.runs):
        notes.insert(0, "* asked for rcv-settle-mode second, and answered with first")
    return [f"{table.title}: {what} (ratio to Onceway with as many routers)", "", *lines, *notes, ""]


def written(text: str, cells: Sequence[Cell], args: argparse.Namespace, load: str) -> str:
    """The README with new figures: those of a table with marks of its own between these, others where `table` is."""
    own = {cell.table for cell in cells if marks(cell.table)[0] in text}
    for name in (*own, "table"):
        begin, end = marks(name)
        if chosen := [cell for cell in cells if cell.table == name or (name == "table" and cell.table not in own)]:
            before, _, after = text.partition(begin)
            text = f"{before}{begin}{published(chosen, args, load)}{end}{after.partition(end)[2]}"
    return text


def marks(name: str) -> tuple[str, str]:
    return f"<!-- by bench {name} -->\n", f"<!-- end of bench {name} -->\n"


def published(cells: Sequence[Cell], args: argparse.Namespace, load: str) -> str:
    """What the README shows: for each table and network a figure of each peer, the lowest of them in bold; behind one
    of a filter or a queue how many times it is that of the peer's topic."""
    kinds = list(dict.fromkeys(cell.peer.label.split(",")[0] for cell in cells))
    what = f"{time.strftime('%-d %B %Y')}, {os.cpu_count()} processors, load averages {load}, "
    what += f"{'a tenth of the deliveries, ' if args.quick else ''}{args.reps} run{'s' * (args.reps > 1)} a cell"
    lines = [textwrap.fill(f"{what}. In each cell: {'; '.join(kinds)}.", width=120), ""]
    for name in dict.fromkeys(cell.table for cell in cells):
        table = TABLES[name]
        unit = "p50, p99 in ms" if table.latency else "CPU s per 100,000"
        sizes = [size for size in table.routers if size in args.routers]
        lines += [f"| {table.title}: {unit} | {' | '.join(map(in_line, sizes))} |", "| --- " * (1 + len(sizes)) + "|"]
        for column in table.columns:
            row = [column]
            for size in sizes:
                here = [cell for cell in cells if (cell.table, cell.column, cell.peer.size) == (name, column, size)]
                least = min((cell.measure for cell in here if cell.runs and len(here) > 1), default=0.0)
                topic = [one for one in cells if one.column == f"topic {column.rpartition(' ')[2]}"]
                row.append("; ".join(_figure(cell, cell.runs != [] and cell.measure == least, topic) for cell in here))
            if any(row[1:]):
                lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    return "\n".join(lines)


def _figure(cell: Cell, least: bool, topic: Sequence[Cell]) -> str:
    if not cell.runs:
        return "failed"
    text = f"{cell.measure:.3g}"
    if TABLES[cell.table].latency:
        text = f"{cell.measure:.2f}, {cell.median('latency_p99_ms'):.1f}"
    times = [
        f" ({cell.measure / one.measure:.2f})"
        for one in topic
        if one is not cell and one.peer is cell.peer and one.runs and one.measure
    ]
    return (f"**{text}**" if least else text) + "".join(times) + (" !" if cell.faults else "")


def base(cells: Sequence[Cell], other: Cell) -> Cell | None:
    for cell in cells:
        if isinstance(cell.peer, Onceway) and (cell.column, cell.peer.size) == (other.column, other.peer.size):
            return cell
    return None
