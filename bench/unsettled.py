"""Does a delivery cost the same whatever is unsettled, idle or stalled beside it?  It must.

    python -m bench unsettled [--quick] [--only window,held,idle,stalled,connected] [--json FILE]

window:  one publisher with 100 to 100,000 messages without an outcome (windows raised), one subscriber.
held:    as many deliveries of another publisher on the same address, accepted and never settled.
idle:    none, 100 or 1,000 subscriptions on another address, with nothing to get.
stalled: none, 100 or 1,000 subscriptions on the same address that never give credit.  What is measured is the delivery
         to the active one: a publisher gets no outcome then, since a topic waits for its slowest subscriber.
connected: up to 9,900 connections (a router takes 10,000) of ten subscriptions each, each on an address of its own,
         and a publisher to one of them. Routers without and with them are measured by turns, and the medians count:
         what else the machine does is the same for all. The lines above say what one of each takes and how long it
         attaches. The routers may have 4 GiB: by default one refuses what is beyond 262,144 names and deliveries.

CPU seconds of one router per 100,000 deliveries.  Exit status 1 where a row with at least 1,000 beside it costs more
than 1.5 times the cheapest row, or a message was lost.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from amqp10 import Connection, ConnectionSettings, Source, Target
from bench.load import Generator, Load, run
from bench.peers import Onceway
from bench.processes import cpu_seconds
from tests.live import wait_until

SIZES = {
    "window": (100, 1_000, 10_000, 100_000),
    "held": (100, 1_000, 10_000, 100_000),
    "idle": (0, 100, 1_000),
    "stalled": (0, 100, 1_000),
    "connected": (0, 1_000, 9_900),
}
LINKS = 10  # of a connection of `connected`
IDLE_S = 5.0
TOLERANCE = 1.5
WINDOW = 200_000
WINDOWS = {"window_messages": WINDOW, "window_bytes": "256MiB", "unsettled_window": 400_000, "idle_timeout": "10m"}


@dataclass(slots=True)
class Row:
    subject: str
    beside: int
    cpu_s_per_100k: float
    messages_per_s: float
    faults: dict[str, int]
    resident_mb: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.subject:10}{self.beside:>9,}{self.cpu_s_per_100k:>22.3f}{self.messages_per_s:>14,.0f}"
            f"{self.resident_mb:>14.1f}{sum(self.faults.values()):>8}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    args = options(argv)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows: list[Row] = []
    print(f"{'':10}{'beside':>9}{'CPU s per 100,000':>22}{'messages/s':>14}{'resident MB':>14}{'faults':>8}")
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary:
        for subject in args.only:
            sizes = args.sizes or SIZES[subject]
            if subject == "connected":
                rows += connected(Path(temporary), sizes, args.count, args.rounds)
                continue
            for size in sizes:
                # A router of its own for each row: nothing of an earlier one can be in the way.
                with Onceway(Path(temporary) / f"{subject}-{size}", settings=WINDOWS) as peer:
                    rows.append(measure(subject, peer, size, args.count))
                    rows[-1].resident_mb = peer.resident_mb()
                print(rows[-1], flush=True)
    problems = verdict(rows)
    print("\n".join(problems or ["flat"]))
    if args.json:
        fields = Row.__slots__
        Path(args.json).write_text(json.dumps([{f: getattr(r, f) for f in fields} for r in rows], indent=1) + "\n")
    return 1 if problems else 0


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SIZES), help=f"which of {', '.join(SIZES)}")
    parser.add_argument("--sizes", help="numbers of what lies beside, for example 0,1000")
    parser.add_argument("--count", type=int, default=300_000, help="deliveries of a run")
    parser.add_argument("--rounds", type=int, default=7, help="of `connected`")
    parser.add_argument("--quick", action="store_true", help="a fifth of the deliveries")
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")
    args = parser.parse_args(argv)
    args.only = args.only.split(",")
    unknown = [name for name in args.only if name not in SIZES]
    if unknown:
        parser.error(f"no subject {', '.join(unknown)}; there are {', '.join(SIZES)}")
    args.sizes = [int(text) for text in args.sizes.split(",")] if args.sizes else None
    if args.quick:
        args.count //= 5
    return args


def measure(subject: str, peer: Onceway, size: int, count: int) -> Row:
    if subject == "window":
        return measured(
            subject, peer, size, peer.load(0, count=max(count, 2 * size), window=size, credit=max(1_000, size))
        )
    if subject == "held":
        with held(peer, size, count):
            # Of the two subscribers that get each message, only one is counted.
            row = measured(subject, peer, size, peer.load(0, count=count // 2))
            row.cpu_s_per_100k /= 2
            return row
    if subject == "idle":
        with silent(peer, "elsewhere", size):
            return measured(subject, peer, size, peer.load(0, count=count))
    with silent(peer, 0, size):
        return delivered(peer, size, min(count, WINDOW // 2))


def measured(subject: str, peer: Onceway, size: int, load: Load) -> Row:
    result = run(load, peer.pids())
    return Row(subject, size, result.cpu_s_per_100k, result.messages_per_s, result.faults)


@contextmanager
def silent(peer: Onceway, address: object, size: int) -> Iterator[None]:
    """`size` subscriptions, each on a connection of its own, that never give credit."""
    if not size:
        yield
        return
    with Generator(peer.load(address, subscribers=size, count=1, credit=0, timeout_s=3_600).subscribe()) as subscribers:
        subscribers.wait_for("READY", 120)
        yield


def connected(directory: Path, sizes: Sequence[int], count: int, rounds: int) -> list[Row]:
    settings = {**WINDOWS, "memory_limit": "4GiB"}
    with ExitStack() as stack:
        peers = [stack.enter_context(Onceway(directory / f"connected-{size}", settings=settings)) for size in sizes]
        for peer, size in zip(peers, sizes, strict=True):
            if size:
                connect(peer, size, stack)
        measurements = [
            [
                measured("connected", peer, size, peer.load(0, count=count))
                for peer, size in zip(peers, sizes, strict=True)
            ]
            for _ in range(rounds)
        ]
        rows = [
            sorted(rows, key=lambda row: row.cpu_s_per_100k)[rounds // 2] for rows in zip(*measurements, strict=True)
        ]
        for peer, row in zip(peers, rows, strict=True):
            row.resident_mb = peer.resident_mb()
            print(row, flush=True)
    return rows


def connect(peer: Onceway, size: int, stack: ExitStack) -> None:
    """So many connections with links without credit, until the stack ends."""
    (router,) = peer.network
    clients: list[tuple[Connection, socket.socket]] = []

    def until(attached: int, of: Sequence[tuple[Connection, socket.socket]] = clients) -> None:
        for client, at in of:
            at.sendall(client.data_to_send())
            (session,) = client.channels.sessions
            while session.remote_begin is None or sum(link.attached for link in session.links) < attached:
                data = at.recv(1 << 16)
                assert data, "the router closed the connection"
                client.receive_data(data, 0.0)

    def open_all() -> None:
        for number in range(size):
            settings = ConnectionSettings(container_id=f"c{number}", idle_timeout_s=None)
            client = Connection(settings, server=False, now=0.0)
            client.open()
            client.begin()
            at = stack.enter_context(socket.create_connection(("127.0.0.1", router.amqp_port), 60))
            clients.append((client, at))
            until(0, clients[-1:])  # a router closes those that say nothing where they are many

    def subscribe() -> None:
        for number, (client, _) in enumerate(clients):
            for link in range(LINKS):
                receiver = client.channels.sessions[0].receiver(f"l{link}")
                receiver.attach(source=Source(f"beside-{number}-{link}"), target=Target())
        until(LINKS)

    def publish() -> None:
        for number, (client, _) in enumerate(clients):
            client.channels.sessions[0].sender("p").attach(source=Source(), target=Target(f"beside-{number}-0"))
        until(LINKS + 1)

    steps = (
        ("connection", size, open_all),
        ("address with its subscription", size * LINKS, subscribe),
        ("publisher's link", size, publish),
    )
    for what, number, step in steps:
        began, cpu, held = time.monotonic(), cpu_seconds([router.pid]), peer.resident_mb()
        step()
        seconds, cpu = time.monotonic() - began, cpu_seconds([router.pid]) - cpu
        grown = (peer.resident_mb() - held) / number * 1024
        print(
            f"{number:,} times {what}: {grown:.1f} KiB and {cpu / number * 1e3:.2f} ms of CPU each, {seconds:.1f} s",
            flush=True,
        )
    cpu = cpu_seconds([router.pid])
    time.sleep(IDLE_S)
    print(f"all of them idle: {(cpu_seconds([router.pid]) - cpu) / IDLE_S:.1%} of a core", flush=True)


@contextmanager
def held(peer: Onceway, size: int, count: int) -> Iterator[None]:
    """A publisher that leaves `size` accepted deliveries unsettled, and a subscriber that got them.

    The subscriber stays, and gets the `count` measured messages too; it ends by itself only after more than that.
    """
    load = peer.load(0, count=size, window=size, timeout_s=3_600)
    with Generator([*replace(load, count=size + count, credit=2_000).subscribe(), "-i", "3600"]) as subscriber:
        subscriber.wait_for("READY")
        with Generator(load.publish(0, "-k")) as publisher:
            publisher.wait_for("HELD", 120)
            yield


def delivered(peer: Onceway, size: int, count: int) -> Row:
    """Ends when the active subscriber has everything; its publisher, which gets no outcome, is killed then."""
    load = peer.load(0, count=count, window=count, credit=1_000)
    router = [pid for group in peer.pids().values() for pid in group]
    with Generator(load.subscribe()) as subscriber:
        subscriber.wait_for("READY")
        before = cpu_seconds(router)
        with Generator(load.publish()):
            wait_until(lambda: subscriber.process.poll() is not None, "all is delivered", load.timeout_s)
        got = subscriber.result(10)
    used = cpu_seconds(router) - before
    seconds = max(1e-9, (got["last_ns"] - got["first_ns"]) / 1e9)
    faults = {name: got[name] for name in ("lost", "duplicate", "out_of_order")}
    received = max(1, got["received"])
    return Row("stalled", size, used / received * 1e5, received / seconds, faults)


def verdict(rows: Sequence[Row]) -> list[str]:
    problems = []
    for subject in SIZES:
        group = [row for row in rows if row.subject == subject]
        # Small windows mean small batches, which cost more for another reason.
        costs = [row.cpu_s_per_100k for row in group if subject != "window" or row.beside >= 1_000]
        for row in group:
            if row.beside >= 1_000 and row.cpu_s_per_100k > TOLERANCE * min(costs):
                ratio = row.cpu_s_per_100k / min(costs)
                problems.append(f"not flat: {subject} {row.beside:,} costs {ratio:.1f} times the cheapest row")
            if any(row.faults.values()):
                problems.append(f"faults: {subject} {row.beside:,}: {row.faults}")
    return problems
