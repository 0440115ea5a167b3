"""A network for tests of the source: who publishes to it, and streams that read from it."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onceway
import onceway.errors
from onceway.spark.options import source_options
from onceway.spark.source.stream import Offset, Stream, batch_ranges
from tests.live import LiveRouter, wait_until
from tests.spark.logs import rows

WITHIN_S = 120.0
PATIENT = {
    "subscription_timeout": "10m"
}  # settings of a network where a query is away for as long as it takes to start


def bodies(count: int, first: int = 0, *, size: int = 0) -> list[bytes]:
    return [
        b"%d" % number if not size else (b"%d " % number).ljust(size, b".") for number in range(first, first + count)
    ]


class Publishing:
    """A thread with a publisher that has outlived every router when `join` returns."""

    def __init__(
        self, urls: str, topic: str, messages: Sequence[onceway.Body], *, pace_s: float = 0.0, name: str = ""
    ) -> None:
        self._name = name or f"publisher of {topic}"
        self.accepted = 0
        self.wanted = len(messages)
        self._over: Future[None] = Future()
        # Not an executor's: nobody waits for it when a test has failed.
        work = self._publish(urls, topic, list(messages), pace_s)
        threading.Thread(target=self._run, args=(work,), name=f"publishing {topic}", daemon=True).start()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._over.set_result(asyncio.run(work))
        except onceway.errors.OncewayError as error:
            self._over.set_exception(error)

    async def _publish(self, urls: str, topic: str, messages: list[Any], pace_s: float) -> None:
        async with onceway.connect(urls, container=self._name) as connection:
            publisher = await connection.publisher(topic)
            for start in range(0, len(messages), 100):
                await publisher.put_many(messages[start : start + 100])
                self.accepted = publisher.accepted
                await asyncio.sleep(pace_s)
            await publisher.drain()
            self.accepted = publisher.accepted

    @property
    def over(self) -> bool:
        return self._over.done()

    def join(self) -> None:
        wait([self._over], WITHIN_S)
        assert self.over, f"{self.accepted} of {self.wanted} accepted within {WITHIN_S:g} s"
        self._over.result()
        assert self.accepted == self.wanted


def away(router: LiveRouter, topic: str) -> None:
    """Waits until the subscription has nobody: Spark does not wait for the ingest of a query that it has ended."""
    wait_until(
        lambda: [one["home"] for one in router.status()["addresses"][topic]["subscriptions"]] == [None],
        f"nobody holds the subscription of {topic}",
        WITHIN_S,
    )


def left_waiting(router: LiveRouter, topic: str, messages: Sequence[onceway.Body]) -> Publishing:
    """Returns when all of these wait for a subscription that is away; `join` when somebody has received them."""
    away(router, topic)
    publishing = Publishing(router.url, topic, messages)
    wait_until(
        lambda: [one["owed"] for one in router.status()["addresses"][topic]["subscriptions"]] == [len(messages)],
        f"{len(messages)} messages of {topic} wait",
        WITHIN_S,
    )
    return publishing


@contextmanager
def ends(pid: int) -> Iterator[None]:
    """What is done in it ends this process.  Whether the number is still in use says nothing: it may be another's."""
    process = os.pidfd_open(pid)
    try:
        yield
        ready, _, _ = select.select([process], [], [], WITHIN_S)
        assert ready, f"process {pid} has not ended within {WITHIN_S:g} s"
    finally:
        os.close(process)


class Source:
    """One subscription, its log and its checkpoint, over as many streams (drivers) as a test needs."""

    def __init__(self, urls: str, topic: str, location: Path, **options: str) -> None:
        self.location = location
        self._options = {
            "url": urls,
            "topic": topic,
            "subscription": "billing",
            "walLocation": str(location),
            "groupRows": "100",
            **options,
        }
        self._streams: list[Stream] = []

    def start(self, **options: str) -> Stream:
        stream = Stream(source_options({**self._options, **options}, "stream"))
        stream.begin()
        self._streams.append(stream)
        return stream

    def everything(self) -> list[bytes]:
        """All that the log holds, by an outsider."""
        values: list[bytes] = rows(batch_ranges(source_options({"path": str(self.location)}, "batch")))
        return values

    def close(self) -> None:
        for stream in self._streams:
            stream.stop()


def batch(stream: Stream, start: Offset | None = None) -> tuple[Offset, list[bytes]]:
    """The next one: its end and its values."""
    start = start or stream.initial()
    end = stream.latest(start, limited=False)
    return end, rows(stream.ranges(start, end))
