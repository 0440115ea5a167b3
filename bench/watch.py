"""What does it cost to watch a router that has many topics?  Little, however often it is asked.

    python -m bench watch [--topics 4000] [--pages /status,/metrics] [--quick]

A router with so many topics, each with an idle subscription, and one busy topic.  Rows: nobody reads; then each page of
its admin listener, by one reader that asks each second, and by four that ask again as soon as they have their answer.
Messages a second and CPU seconds of the router per 100,000 deliveries; latency of another run with 1,000 messages a
second; then answers a second of all readers together, and the longest answer, in that run.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import onceway
from bench.load import run
from bench.peers import Onceway
from tests.live import LiveRouter

PAGES = ("/status", "/metrics")
READERS = {1.0: 1, 0.0: 4}  # how many, by the seconds that they pause
RATE = 1_000
PER_CONNECTION = 200


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=4_000)
    parser.add_argument("--pages", default=",".join(PAGES), help="separated by commas")
    parser.add_argument("--count", type=int, default=300_000, help="deliveries of a run")
    parser.add_argument("--quick", action="store_true", help="a fifth of the deliveries")
    args = parser.parse_args(argv)
    count = args.count // 5 if args.quick else args.count
    print(f"| {args.topics} topics | messages/s | CPU s per 100,000 | p50 ms | p99 ms | answers/s | longest s |")
    print("| --- " * 7 + "|")
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary, Onceway(Path(temporary)) as peer:
        router = next(iter(peer.network))
        with topics(router.url, args.topics):
            for page, pause_s in [("", 0.0), *product(args.pages.split(","), READERS)]:
                number = READERS[pause_s] if page else 0
                with Readers(router, page, number, pause_s):
                    full = run(peer.load(0, count=count), peer.pids())
                with Readers(router, page, number, pause_s) as readers:
                    began = time.monotonic()
                    slow = run(peer.load(1, count=count // 20, rate=RATE), peer.pids())
                    seconds = time.monotonic() - began
                how = f"{page} " + ("each second" if pause_s else f"x {number}") if page else "none"
                print(
                    f"| {how} | {full.messages_per_s:,.0f} | {full.cpu_s_per_100k:.3f} | {slow.latency_p50_ms:.2f} "
                    f"| {slow.latency_p99_ms:.2f} | {readers.answers / seconds:.1f} | {readers.longest_s:.2f} |",
                    flush=True,
                )
    return 0


class Readers:
    """Threads that ask for a page until the context ends."""

    def __init__(self, router: LiveRouter, page: str, number: int, pause_s: float) -> None:
        self.answers = 0
        self.longest_s = 0.0
        self._router, self._page, self._pause_s = router, page, pause_s
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read) for _ in range(number)]

    def _read(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            code, _ = self._router.get(self._page)
            assert code == 200, f"{self._page} is answered with {code}"
            self.answers += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            self._stop.wait(self._pause_s)

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def topics(url: str, number: int) -> Iterator[None]:
    """So many topics with an idle subscription each, from a thread with a loop of its own."""
    ready, done = threading.Event(), threading.Event()

    async def subscribe() -> None:
        connections = []
        for first in range(0, number, PER_CONNECTION):
            connection = await onceway.connect(url, container=f"idle-{first}")
            connections.append(connection)
            for i in range(first, min(first + PER_CONNECTION, number)):
                await connection.subscriber(f"idle-{i}")
        ready.set()
        await asyncio.to_thread(done.wait)
        for connection in connections:
            await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(subscribe()))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()
