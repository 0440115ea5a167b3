"""What does it cost to watch a router that has many topics?  Little, however often it is asked.

    python -m bench watch [--topics 4000] [--readers 4] [--pages /status,/metrics] [--quick]

A router with so many topics, each with an idle subscription, and one busy topic.  Readers ask for a page of its admin
listener again and again, each as soon as it has its answer.  Rows: nobody reads; then each page.  Messages a second and
CPU seconds of the router per 100,000 deliveries, answers a second of all readers together, and the longest answer.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onceway
from bench.load import run
from bench.peers import Onceway
from tests.live import LiveRouter

PAGES = ("/status", "/status?limit=0", "/metrics", "/readyz")
PER_CONNECTION = 200


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=4_000)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--pages", default=",".join(PAGES), help="separated by commas")
    parser.add_argument("--count", type=int, default=300_000, help="deliveries of a run")
    parser.add_argument("--quick", action="store_true", help="a fifth of the deliveries")
    args = parser.parse_args(argv)
    count = args.count // 5 if args.quick else args.count
    print(f"{'page':18}{'messages/s':>12}{'CPU s per 100,000':>20}{'answers/s':>12}{'longest s':>12}")
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary, Onceway(Path(temporary)) as peer:
        router = next(iter(peer.network))
        with topics(router.url, args.topics):
            for page in ("", *args.pages.split(",")):
                with Readers(router, page, args.readers if page else 0) as readers:
                    began = time.monotonic()
                    result = run(peer.load(0, count=count), peer.pids())
                    seconds = time.monotonic() - began
                print(
                    f"{page or 'none':18}{result.messages_per_s:>12,.0f}{result.cpu_s_per_100k:>20.3f}"
                    f"{readers.answers / seconds:>12.1f}{readers.longest_s:>12.2f}",
                    flush=True,
                )
    return 0


class Readers:
    """Threads that ask for a page until the context ends."""

    def __init__(self, router: LiveRouter, page: str, number: int) -> None:
        self.answers = 0
        self.longest_s = 0.0
        self._router, self._page = router, page
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read) for _ in range(number)]

    def _read(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            code, _ = self._router.get(self._page)
            assert code == 200, f"{self._page} is answered with {code}"
            self.answers += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began)

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
