"""Does a delivery cost the same whatever is unsettled, idle or stalled beside it?  It must.

    python -m bench.unsettled --yardstick DIR [--quick] [--only window,held,idle,stalled] [--json FILE]

window: one publisher with 100 to 100,000 messages under way (windows raised), one subscriber.
held: as many deliveries of another publisher, accepted and never settled, lie on the same address beside it.
idle: no, 100 or 1,000 subscriptions on another address, with nothing to get.
stalled: no, 100 or 1,000 subscriptions on the same address that never give credit; what is measured is the cost
of a delivery to the active one.  (Nothing is accepted then: a topic waits for its slowest subscriber.)

CPU seconds of one router per 100,000 deliveries.  Exit status 1 where a row costs more than 1.5 times the cheapest
row with at least 1,000 under way, or a message was lost.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import yardstick
from bench.peers import Onceway
from bench.processes import cpu_seconds, resident_mb
from bench.yardstick import Load, Subscribers, Yardstick
from tests.live import dying_with_us, wait_until

SUBJECTS = ("window", "held", "idle", "stalled")
TOLERANCE = 1.5
WINDOW = 200_000
WINDOWS = {"window_messages": WINDOW, "window_bytes": "256MiB", "unsettled_window": 400_000}


def main(argv: Sequence[str] | None = None) -> int:
    args = options(argv)
    tool = Yardstick(args.yardstick)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 8_192 and (hard == resource.RLIM_INFINITY or hard >= 8_192):
        resource.setrlimit(resource.RLIMIT_NOFILE, (8_192, hard))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary:
        for subject in args.only:
            for size in args.sizes[subject]:
                # A router of its own for each row: nothing of an earlier one can be in the way.
                peer = Onceway(Path(temporary) / f"{subject}-{size}", 1, settings=WINDOWS)
                with peer:
                    row = {"subject": subject, "beside": size, **MEASURES[subject](tool, peer, size, args)}
                rows.append(row)
                print(line(row), file=sys.stderr, flush=True)
    print(table(rows))
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if faults(rows) else 0


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    yardstick.add_option(parser)
    parser.add_argument("--only", default=",".join(SUBJECTS))
    parser.add_argument("--count", type=int, default=300_000, help="deliveries of a run")
    parser.add_argument("--quick", action="store_true", help="a fifth of the deliveries, and fewer rows")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(argv)
    args.only = args.only.split(",")
    unknown = [name for name in args.only if name not in SUBJECTS]
    if unknown:
        parser.error(f"no subject {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    args.sizes = {
        "window": (100, 1_000, 10_000, 100_000),
        "held": (100, 1_000, 10_000, 100_000),
        "idle": (0, 100, 1_000),
        "stalled": (0, 100, 1_000),
    }
    if args.quick:
        args.count //= 5
        args.sizes = {name: (sizes[0], sizes[-1]) for name, sizes in args.sizes.items()}
    return args


def base(peer: Onceway, count: int, window: int = 1_000) -> Load:
    return Load(
        peer.publish_at, peer.subscribe_at, "bench", count=count, window=window, credit=max(1_000, window), second=True
    )


def under_way(tool: Yardstick, peer: Onceway, size: int, args: argparse.Namespace) -> dict[str, Any]:
    return tool.run(base(peer, max(args.count, 2 * size), size), peer.pids()).as_dict()


def beside_held(tool: Yardstick, peer: Onceway, size: int, args: argparse.Namespace) -> dict[str, Any]:
    """The keeper's deliveries count too: it is a second subscriber of the measured address."""
    with keeper(peer, size):
        result = tool.run(base(peer, args.count // 2), peer.pids()).as_dict()
    result["cpu_s_per_100k"] /= 2
    return result


def beside_idle(tool: Yardstick, peer: Onceway, size: int, args: argparse.Namespace) -> dict[str, Any]:
    with crowd(tool, peer, "elsewhere", size):
        return tool.run(base(peer, args.count), peer.pids()).as_dict()


def beside_stalled(tool: Yardstick, peer: Onceway, size: int, args: argparse.Namespace) -> dict[str, Any]:
    count = min(args.count, WINDOW // 2)
    with crowd(tool, peer, "bench", size):
        return delivered(tool, peer, count)


MEASURES = {"window": under_way, "held": beside_held, "idle": beside_idle, "stalled": beside_stalled}


@contextmanager
def crowd(tool: Yardstick, peer: Onceway, address: str, size: int) -> Iterator[None]:
    """`size` subscriptions, each on a connection of its own, that never grant credit."""
    with ExitStack() as stack:
        if size:
            # fmt: off
            stalled = stack.enter_context(Subscribers(tool.command(
                "amqp_sub", "-u", peer.subscribe_at, "-a", address, "-n", size, "-c", 1, "-w", 0, "-t", 3_600, "-2")))
            # fmt: on
            stalled.wait_ready(120)
        yield


@contextmanager
def keeper(peer: Onceway, size: int) -> Iterator[None]:
    """A publisher that leaves `size` accepted deliveries unsettled, and the subscriber that holds its side of them."""
    command = [sys.executable, "-m", "bench.holder", peer.publish_at, "bench", str(size)]
    with subprocess.Popen(dying_with_us(command), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if "HELD" not in process.stdout.readline():
                raise RuntimeError("bench.holder did not get its deliveries accepted")
            yield
        finally:
            process.kill()


def delivered(tool: Yardstick, peer: Onceway, count: int) -> dict[str, Any]:
    """A run that ends when the active subscriber has everything; the publisher, never told accepted, is ended then."""
    load = base(peer, count, count)
    # fmt: off
    subscribe = tool.command("amqp_sub", "-u", load.subscribe_at, "-a", load.address, "-n", 1, "-c", count,
                             "-w", 1_000, "-t", load.timeout_s)
    publish = tool.command("amqp_pub", "-u", load.publish_at, "-a", load.address, "-c", count, "-s", load.body,
                           "-w", count, "-t", load.timeout_s)
    # fmt: on
    pids = [pid for group in peer.pids().values() for pid in group]
    with Subscribers(subscribe) as subscribers:
        subscribers.wait_ready()
        before = cpu_seconds(pids)
        with subprocess.Popen(publish, stdout=subprocess.DEVNULL) as publisher:
            try:
                wait_until(
                    lambda: subscribers.process.poll() is not None, "the active subscriber has all", load.timeout_s
                )
            finally:
                publisher.kill()
        sub = subscribers.result(10)
    used = cpu_seconds(pids) - before
    elapsed_s = max(1e-9, (sub["t_last"] - sub["t_first"]) / 1e9)
    return {
        "cpu_s_per_100k": used / max(1, sub["received"]) * 1e5,
        "messages_per_s": sub["received"] / elapsed_s,
        "latency_p99_ms": sub["lat_us"]["p99"] / 1e3,
        "resident_mb": resident_mb(pids),
        "lost": sub["lost"],
        "duplicate": sub["dup"],
        "out_of_order": sub["out_of_order"],
    }


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['subject']:10}{row['beside']:>9,}{row['cpu_s_per_100k']:>22.3f}{row['messages_per_s']:>14,.0f}"
        f"{row['resident_mb']:>14.1f}{row['lost'] + row['duplicate'] + row['out_of_order']:>8}"
    )


def table(rows: list[dict[str, Any]]) -> str:
    head = f"{'':10}{'beside':>9}{'CPU s per 100,000':>22}{'messages/s':>14}{'resident MB':>14}{'faults':>8}"
    return "\n".join([head, *map(line, rows), *faults(rows)])


def faults(rows: list[dict[str, Any]]) -> list[str]:
    found = []
    for subject in SUBJECTS:
        group = [row for row in rows if row["subject"] == subject]
        if not group:
            continue
        # Small windows mean small batches, which cost more for another reason.
        level = min(row["cpu_s_per_100k"] for row in group if subject != "window" or row["beside"] >= 1_000)
        for row in group:
            if row["beside"] >= 1_000 and row["cpu_s_per_100k"] > TOLERANCE * level:
                found.append(f"not flat: {subject} {row['beside']:,} costs {row['cpu_s_per_100k'] / level:.1f} times")
            if row["lost"] or row["duplicate"] or row["out_of_order"]:
                found.append(f"faults: {subject} {row['beside']:,}")
    return found


if __name__ == "__main__":
    sys.exit(main())
