"""Do routers forget what is settled?  Runs of many messages through the same routers, with memory noted after each.

    python -m bench memory [--runs 10] [--routers 2] [--subs 4] [--count N] [--quick] [--json FILE]

Each run has publishers and subscribers with names of their own, so that directories grow until publisher_timeout has
passed; it is set short here.  Exit status 1 if two seconds after a run a router still has records or deliveries in
doubt, if directory entries stay after the last run, or if resident memory is more than a tenth (and 4 MB a router)
above that after the third run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import load
from bench.peers import Onceway
from tests.live import LiveNetwork, NotReady, wait_until

ADDRESSES = [{"match": "*", "subscription_timeout": "1s", "publisher_timeout": "3s"}]
SETTLED_S = 2.0
FORGOTTEN_S = 15.0
WARM = 3  # runs after which caches, buffers and the allocator's arenas have their size


def main(argv: Sequence[str] | None = None) -> int:
    args = options(argv)
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary,
        Onceway(Path(temporary), args.routers, addresses=ADDRESSES) as peer,
    ):
        print(f"{'run':>4}{'messages/s':>14}{'CPU s per 100,000':>20}{'resident MB':>14}")
        for run in range(1, args.runs + 1):
            result = load.run(peer.load(f"memory-{run}", subscribers=args.subs, count=args.count), peer.pids())
            if result.faults:
                problems.append(f"run {run}: {result.faults}")
            problems += left_behind(peer.network, f"run {run}: records", lambda router: router.leftovers(), SETTLED_S)
            row = {"run": run, **result.as_dict(), "resident_mb": peer.resident_mb()}
            rows.append(row)
            print(
                f"{run:>4}{row['messages_per_s']:>14,.0f}{row['cpu_s_per_100k']:>20.3f}{row['resident_mb']:>14.1f}",
                flush=True,
            )
        problems += left_behind(peer.network, "directory entries", lambda router: router.directory_entries())
    first, last = rows[min(WARM, len(rows)) - 1]["resident_mb"], rows[-1]["resident_mb"]
    if last > max(1.1 * first, first + 4.0 * args.routers):
        problems.append(f"resident memory grew from {first:.1f} MB after run {WARM} to {last:.1f} MB")
    print("\n".join(problems or ["nothing left behind"]))
    if args.json:
        Path(args.json).write_text(json.dumps({"runs": rows, "problems": problems}, indent=1) + "\n")
    return 1 if problems else 0


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--routers", type=int, default=2)
    parser.add_argument("--subs", type=int, default=4)
    parser.add_argument("--count", type=int, default=100_000, help="messages of a run")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")
    args = parser.parse_args(argv)
    if args.quick:
        args.count //= 10
    return args


def left_behind(network: LiveNetwork, what: str, ask: Any, timeout_s: float = FORGOTTEN_S) -> list[str]:
    """Waits until `ask(router)` is empty at every router; else says what is left, by router."""
    try:
        wait_until(lambda: not any(ask(router) for router in network), what, timeout_s)
    except NotReady:
        return [
            f"{what} left at {router.name} after {timeout_s:g} s: {left}" for router in network if (left := ask(router))
        ]
    return []
