"""Onceway beside RabbitMQ and mosquitto, same machine, same run, same load generators.

    python -m bench.compare --yardstick DIR [--quick] [--peers onceway,rabbitmq,mosquitto] [--subs 1,4,16]
                            [--count N] [--json FILE]

For each peer and number of subscribers: bodies of 100 bytes, 1,000 unsettled, `--count` deliveries in all; Onceway
with rcv-settle-mode second (the full exactly-once protocol) through one, two and three routers in line.  Then the
latency at 1,000 messages a second through one router, which wants an idle machine: the load is printed with it.
Exit status 1 if a run through Onceway lost, repeated or reordered a message, or a peer could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import yardstick
from bench.peers import Mosquitto, Onceway, Peer, RabbitMQ
from bench.yardstick import Load, Result, Yardstick

# Measured elsewhere, on another machine, at-least-once: skupper-router 3.x, C.  For orientation only.
FROM_OUTSIDE: dict[str, dict[int, float]] = {
    "skupper-router, one router": {1: 1.1, 4: 0.76, 16: 0.65},
    "skupper-router, two routers": {1: 3.2},
    "skupper-router, three in line": {1: 5.4},
}
PEERS = ("onceway", "rabbitmq", "mosquitto")


def main(argv: Sequence[str] | None = None) -> int:
    args = options(argv)
    tool = Yardstick(args.yardstick)
    rows: list[dict[str, Any]] = []
    latencies: list[dict[str, Any]] = []
    broken = False
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary:
        for number, peer in enumerate(peers(args, Path(temporary))):
            try:
                with peer:
                    rows += throughput(tool, peer, args)
                    if not (isinstance(peer, Onceway) and len(peer.network.names) > 1):
                        latencies.append(latency(tool, peer, args, number))
            except (AssertionError, RuntimeError, OSError) as error:
                broken = True
                print(f"{peer.label}: {error}", file=sys.stderr)
    print(table(rows, latencies, args.subs))
    if args.json:
        document = {"runs": rows, "latency": latencies, "from_outside": FROM_OUTSIDE}
        Path(args.json).write_text(json.dumps(document, indent=1) + "\n")
    faulty = [row for row in rows + latencies if not row["faultless"]]
    for row in faulty:
        faults = ", ".join(f"{row[k]} {k}" for k in ("lost", "duplicate", "out_of_order", "not_accepted") if row[k])
        print(f"{row['peer']}, {row['subscribers']} subscribers: {faults}", file=sys.stderr)
    return 1 if broken or any(row["peer"].startswith(Onceway.family) for row in faulty) else 0


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    yardstick.add_option(parser)
    parser.add_argument("--peers", default=",".join(PEERS), help="which of onceway, rabbitmq, mosquitto")
    parser.add_argument("--routers", default="1,2,3", help="sizes of the Onceway networks (default 1,2,3)")
    parser.add_argument("--subs", default="1,4,16", help="numbers of subscribers")
    parser.add_argument("--count", type=int, default=200_000, help="deliveries of a run, over all its subscribers")
    parser.add_argument("--reps", type=int, default=1, help="repetitions; the table shows medians")
    parser.add_argument("--quick", action="store_true", help="a tenth of the deliveries")
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")
    args = parser.parse_args(argv)
    args.subs = [int(text) for text in args.subs.split(",")]
    args.routers = [int(text) for text in args.routers.split(",")]
    args.peers = args.peers.split(",")
    unknown = [name for name in args.peers if name not in PEERS]
    if unknown:
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    if args.quick:
        args.count //= 10
    return args


def peers(args: argparse.Namespace, directory: Path) -> list[Peer]:
    chosen: list[Peer] = []
    for name in args.peers:
        if name == "onceway":
            chosen += [Onceway(directory / f"onceway{size}", size) for size in args.routers]
            continue
        cls = RabbitMQ if name == "rabbitmq" else Mosquitto
        problem = cls.missing()
        if problem:
            print(f"{cls.label} left out: {problem}", file=sys.stderr)
        else:
            chosen.append(cls(directory / name))
    return chosen


def load_for(peer: Peer, run: int, subscribers: int, count: int) -> Load:
    return Load(
        publish_at=peer.publish_at,
        subscribe_at=peer.subscribe_at,
        address=peer.address(run),
        kind=peer.kind,
        second=peer.second,
        subscribers=subscribers,
        count=count,
    )


def throughput(tool: Yardstick, peer: Peer, args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for subscribers in args.subs:
        runs = []
        for repetition in range(args.reps):
            load = load_for(peer, subscribers * 100 + repetition, subscribers, max(1, args.count // subscribers))
            runs.append(tool.run(load, peer.pids()))
            say(peer, runs[-1])
        rows.append(row(peer, runs))
    return rows


def latency(tool: Yardstick, peer: Peer, args: argparse.Namespace, number: int) -> dict[str, Any]:
    load = replace(load_for(peer, 9_000 + number, 1, 3_000 if args.quick else 10_000), rate=1_000.0)
    result = tool.run(load, peer.pids())
    say(peer, result)
    return row(peer, [result])


def say(peer: Peer, result: Result) -> None:
    print(
        f"{peer.label}: {result.load.subscribers} subscribers, {result.messages_per_s:,.0f} messages/s, "
        f"{result.cpu_s_per_100k:.2f} CPU s per 100,000, p99 {result.latency_p99_ms:.2f} ms",
        file=sys.stderr,
        flush=True,
    )


def row(peer: Peer, runs: list[Result]) -> dict[str, Any]:
    """Medians of the figures, sums of the faults."""
    first = runs[0].as_dict()
    faults = ("lost", "duplicate", "out_of_order", "not_accepted")
    answer: dict[str, Any] = {"peer": peer.label, "faultless": all(run.faultless for run in runs)}
    for key, value in first.items():
        if key in faults:
            answer[key] = sum(getattr(run, key) for run in runs)
        elif isinstance(value, float) and key != "rate":
            answer[key] = statistics.median(getattr(run, key) for run in runs)
        else:
            answer[key] = value
    return answer


def table(rows: list[dict[str, Any]], latencies: list[dict[str, Any]], subs: list[int]) -> str:
    """CPU seconds per 100,000 deliveries and messages/s by peer and number of subscribers."""
    lines = ["CPU seconds of the peer per 100,000 deliveries (messages/s), by number of subscribers", ""]
    lines.append(f"{'':34}" + "".join(f"{n:>18}" for n in subs))
    labels = list(dict.fromkeys(row["peer"] for row in rows))
    for label in labels:
        cells = {row["subscribers"]: row for row in rows if row["peer"] == label}
        lines.append(
            f"{label:34}"
            + "".join(
                f"{cells[n]['cpu_s_per_100k']:>8.2f} {'(' + format(round(cells[n]['messages_per_s']), ',') + ')':>9}"
                if n in cells
                else f"{'-':>18}"
                for n in subs
            )
        )
    for label, figures in FROM_OUTSIDE.items():
        cells_text = "".join(f"{figures[n]:>8.2f}{'':>10}" if n in figures else f"{'-':>18}" for n in subs)
        lines.append(f"{label + ' *':34}{cells_text}")
    lines += ["* from outside: measured on another machine, not in this run", ""]
    if latencies:
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        lines += ["At 1,000 messages a second, one subscriber: latency in ms, publisher to subscriber"]
        lines += [f"(load averages {load} on {os.cpu_count()} processors: beyond these a p99 says little)", ""]
        lines.append(f"{'':34}{'p50':>9}{'p99':>9}{'settled p99':>14}{'CPU s/100k':>12}")
        for r in latencies:
            lines.append(
                f"{r['peer']:34}{r['latency_p50_ms']:>9.2f}{r['latency_p99_ms']:>9.2f}"
                f"{r['settle_p99_ms']:>14.2f}{r['cpu_s_per_100k']:>12.2f}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
