"""A network for tests of the source: who publishes to it, and streams that read from it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import onceway
import onceway.errors
from onceway.spark.offsets import Offset
from onceway.spark.options import source_options
from onceway.spark.readable import batch_ranges
from onceway.spark.stream import Stream
from tests.spark.logs import rows

WITHIN_S = 60.0


def bodies(count: int, first: int = 0, *, size: int = 0) -> list[bytes]:
    return [
        b"%d" % number if not size else (b"%d " % number).ljust(size, b".") for number in range(first, first + count)
    ]


class Publishing:
    """A thread with a publisher that has outlived every router when `join` returns."""

    def __init__(self, urls: str, topic: str, messages: Sequence[onceway.Body], *, pace_s: float = 0.0) -> None:
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
        async with onceway.connect(urls, container=f"publisher of {topic}") as connection:
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
