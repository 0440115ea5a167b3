"""How much unprocessed log an ingest counts: what stops its credit, and what lets it go on; and what it leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from onceway.spark.source.receiving import Backlog, Receiver
from onceway.spark.wal import Retention
from tests.spark.logs import Log

ROW = 1000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = Log(tmp_path / "wal", group_rows=10, segment_bytes=1 << 16)
    for _ in range(10):
        log.append(50, size=ROW)
    return log


def backlog(log: Log, rows: int) -> Backlog:
    return Backlog(rows * ROW, {0: log.wal.slot(0)})


def test_rows_kept_for_a_repeat_do_not_count_until_spark_says_where_it_is(log: Log) -> None:
    counted = backlog(log, 100)
    counted.begin(0, 500)
    assert counted.size == 0
    counted.processed(0, 450, 500, 0)
    assert 50 * ROW <= counted.size < 52 * ROW
    counted.processed(0, 300, 500, 0)
    assert counted.full
    log.close()


def test_where_spark_is_may_be_known_before_the_log_is_recovered(log: Log) -> None:
    counted = backlog(log, 100)
    counted.processed(0, 300, 300, 0)
    assert not counted.full
    counted.begin(0, 500)
    assert counted.full
    log.close()


def test_what_is_appended_counts_before_it_is_durable_and_is_not_counted_twice(log: Log) -> None:
    counted = backlog(log, 1000)
    counted.processed(0, 500, 500, 0)
    counted.begin(0, 500)
    counted.appended(0, 70 * ROW)
    assert counted.size == 70 * ROW
    counted.processed(0, 499, 500, 70 * ROW)
    assert 71 * ROW <= counted.size < 72 * ROW
    log.close()


def test_rows_that_are_trimmed_do_not_count(log: Log) -> None:
    log.writer().trim(400, Retention())
    log.close()
    counted = backlog(log, 1000)
    start = log.wal.slot(0).start()
    assert 0 < start <= 400
    counted.processed(0, 0, 0, 0)
    counted.begin(0, 500)
    assert (500 - start) * ROW <= counted.size < (500 - start + 10) * ROW


def test_who_waits_for_room_goes_on_when_spark_has_processed(log: Log) -> None:
    counted = backlog(log, 100)
    counted.processed(0, 300, 300, 0)
    counted.begin(0, 500)

    async def scene() -> None:
        waiting = asyncio.create_task(counted.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        counted.processed(0, 450, 500, 0)
        await asyncio.wait_for(waiting, 10)
        crowded = asyncio.create_task(counted.crowded())
        await asyncio.sleep(0)
        assert not crowded.done()
        counted.appended(0, 100 * ROW)
        counted.notify()
        await asyncio.wait_for(crowded, 10)

    asyncio.run(scene())
    log.close()


class Batches:
    """A subscriber that has these batches, one message each: (tag, payload)."""

    def __init__(self, *messages: tuple[bytes, bytes]) -> None:
        self.messages = messages
        self.tags: list[bytes] = []
        self.payloads: list[bytes] = []
        self.accepted: list[bytes] = []
        self.other_formats: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.tags)

    async def batches(self, most: int, size: int) -> AsyncIterator[Batches]:
        for tag, payload in self.messages:
            self.tags, self.payloads = [tag], [payload]
            yield self

    def accept(self) -> None:
        self.accepted += self.tags


class Steady:
    """A subscriber to which another message has come whenever somebody looks, and after so many no more."""

    def __init__(self, messages: int) -> None:
        self.came = 0
        self._messages = messages

    @property
    def waiting(self) -> int:
        self.came = min(self._messages, self.came + 1)
        return self.came

    async def drain(self) -> bool:
        return True


def test_a_drain_ends_while_messages_go_on_unless_none_may_be_left(log: Log) -> None:
    async def messages(*within_s: float) -> int:
        subscriber = Steady(4)
        await Receiver(cast("Any", subscriber), log.writer(), backlog(log, 1000), 10)._emptied(*within_s)
        return subscriber.came

    async def both() -> tuple[int, int]:
        return await messages(0.0), await messages()

    assert asyncio.run(both()) == (0, 4)
    log.close()


def test_what_the_old_partitions_have_is_left_out_once_and_its_tag_may_come_again(log: Log) -> None:
    """A packet identifier of MQTT comes again for another message."""
    writer, counted = log.writer(), backlog(log, 1000)
    counted.begin(0, writer.durable)
    subscriber = Batches((b"1", b"old"), (b"2", b"new"), (b"1", b"newer"))
    asyncio.run(Receiver(cast("Any", subscriber), writer, counted, 10, {b"1"}).run())
    log.close()
    _, rows = list(log.wal.slot(0).stored(500, log.wal.slot(0).end()))[-1]
    assert rows.column(1).to_pylist()[-2:] == [b"2", b"1"]
    assert log.wal.slot(0).end() == 502
