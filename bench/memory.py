"""Does a router forget?  Ten runs against the same routers; after each, no record and nothing in doubt, and in the
end as much memory as at the start.

    python -m bench.memory --yardstick DIR [--runs 10] [--routers 2] [--subs 4] [--count N] [--quick] [--json FILE]

Each run has publishers and subscribers of its own (new names), so that directories grow until publisher_timeout
has passed; it is set short here, and after the last run the directories must empty too.  Exit status 1 if records or
deliveries in doubt do not go back to zero within two seconds of a run, if directory entries stay, or if resident
memory after the last run is more than a tenth (and 4 MB a router) above that after the third.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import yardstick
from bench.peers import Onceway
from bench.processes import resident_mb
from bench.yardstick import Load, Yardstick
from tests.live import LiveNetwork, NotReady, wait_until

ADDRESSES = [{"match": "*", "subscription_timeout": "1s", "publisher_timeout": "3s"}]
SETTLED_S = 2.0
FORGOTTEN_S = 15.0
WARM = 3  # runs after which caches, buffers and the allocator's arenas have their size


def main(argv: Sequence[str] | None = None) -> int:
    args = options(argv)
    tool = Yardstick(args.yardstick)
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary,
        Onceway(Path(temporary), args.routers, addresses=ADDRESSES) as peer,
    ):
        for run in range(1, args.runs + 1):
            rows.append(one_run(tool, peer, run, args, problems))
            print(line(rows[-1]), file=sys.stderr, flush=True)
        problems += left_behind(peer.network, "directory entries", lambda router: router.directory_entries())
    first, last = rows[min(WARM, len(rows)) - 1]["resident_mb"], rows[-1]["resident_mb"]
    if last > max(1.1 * first, first + 4.0 * args.routers):
        problems.append(f"resident memory grew from {first:.1f} MB after run {WARM} to {last:.1f} MB")
    print("\n".join([HEAD, *map(line, rows), *problems]))
    if args.json:
        Path(args.json).write_text(json.dumps({"runs": rows, "problems": problems}, indent=1) + "\n")
    return 1 if problems else 0


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    yardstick.add_option(parser)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--routers", type=int, default=2)
    parser.add_argument("--subs", type=int, default=4)
    parser.add_argument("--count", type=int, default=100_000, help="messages of a run")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(argv)
    if args.quick:
        args.count //= 10
    return args


def one_run(tool: Yardstick, peer: Onceway, run: int, args: argparse.Namespace, problems: list[str]) -> dict[str, Any]:
    # fmt: off
    load = Load(peer.publish_at, peer.subscribe_at, f"memory-{run}", subscribers=args.subs, count=args.count,
                second=True)
    # fmt: on
    result = tool.run(load, peer.pids())
    if not result.faultless:
        problems.append(f"run {run}: {result.lost} lost, {result.duplicate} duplicate, {result.not_accepted} undecided")
    problems += left_behind(peer.network, f"run {run}: records", lambda router: router.leftovers(), SETTLED_S)
    pids = [pid for group in peer.pids().values() for pid in group]
    return {"run": run, **result.as_dict(), "resident_mb": resident_mb(pids)}


def left_behind(network: LiveNetwork, what: str, ask: Any, timeout_s: float = FORGOTTEN_S) -> list[str]:
    """Waits until `ask(router)` is empty at every router; else says what is left, by router."""
    try:
        wait_until(lambda: not any(ask(router) for router in network), what, timeout_s)
    except NotReady:
        return [
            f"{what} left at {router.name} after {timeout_s:g} s: {left}" for router in network if (left := ask(router))
        ]
    return []


HEAD = f"{'run':>4}{'messages/s':>14}{'CPU s per 100,000':>20}{'resident MB':>14}"


def line(row: dict[str, Any]) -> str:
    return f"{row['run']:>4}{row['messages_per_s']:>14,.0f}{row['cpu_s_per_100k']:>20.3f}{row['resident_mb']:>14.1f}"


if __name__ == "__main__":
    sys.exit(main())
