"""A pipe that drops what is old or much, and its readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from edges.pipe import PipeDropped, Reader, pull, push
from edges.pipe.listener import Listener
from edges.pipe.log import SLACK, PipeLog
from edges.pipe.messages import Entry, control, with_position
from edges.pipe.serve import PipePlan, StoredPipe
from edges.store import Batch, Committed, Retention, StoreFull
from onceway.client import delivery
from onceway.client.bodies import encode_body
from tests.cli.conftest import called
from tests.edges.pipe.conftest import PipeNetworks
from tests.edges.pipe.opened import LOG, ignored, leave, listen, opened, write
from tests.serving import until

HOUR_US = 3_600_000_000
CREDIT = 8192


class Clock:
    now_us = HOUR_US

    def __call__(self) -> int:
        return self.now_us


async def drop(log: PipeLog, keep: Retention) -> int:
    """As the primary does it; returns where the content begins."""
    before = await log.surplus(keep)
    if before > log.state.start:
        await log.append([Entry(control(dropped=before))])
        log.show(log.next)
        await log.trim()
    return log.state.start


async def test_what_is_older_is_dropped_and_no_more(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, wall_us=clock) as log:
        for _ in range(100):  # a message each hour
            await write(log, 1)
            clock.now_us += HOUR_US
        keep = Retention(age_s=50 * 3600)
        start = await drop(log, keep)
        assert start in (49, 50)
        assert await log.first() == start
        for _ in range(100):
            await write(log, 1)
            clock.now_us += HOUR_US
            start = await drop(log, keep)
            assert len(log.state.controls) <= 1 / SLACK + 2
        assert await drop(log, keep) == start  # once is enough
        clock.now_us += 100 * HOUR_US
        assert await drop(log, keep) == log.next - 1  # nothing but the record of it


async def test_what_is_more_than_the_size_is_dropped_oldest_first(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        for _ in range(100):
            await write(log, 1, size=10_000)
            await drop(log, Retention(octets=500_000))
        kept = await log.store.read(log.stream, 0, octets=1 << 30)
        size = sum(len(each.payload) for each in kept)
        assert 460_000 < size <= 500_000
        assert [each.position for each in kept] == list(range(log.state.start, log.next))


async def test_a_full_disk_that_pushes_wait_for_gets_room_from_retention_and_from_resets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edges.pipe.serve.FULL_RETRY_S", 0.01)

    accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Pushed(delivery.Batch):
        def accept(self) -> Awaitable[None]:
            accepted.set_result(None)
            return accepted

    async def batches() -> AsyncIterator[Any]:
        pushed = Pushed(nobody)  # type: ignore[arg-type]
        pushed.tags, pushed.payloads = [b"tag"], [encode_body(b"new")]
        yield pushed
        await asyncio.Future()

    clock, held = Clock(), 0
    monkeypatch.setattr("edges.store.embedded.room", lambda path, reserve: 9 - held)
    async with opened(tmp_path, wall_us=clock) as log, asyncio.TaskGroup() as tasks:
        await write(log, 10)
        held = 10
        with pytest.raises(StoreFull):
            await log.append([Entry(with_position(encode_body(b"x"), 10))], waits=False)
        clock.now_us += 2 * HOUR_US
        plan = PipePlan("jobs", (("s", ""),), Retention(age_s=3600))
        pipe = StoredPipe("s", plan, log, nobody, Listener("s", {}, ignored, LOG), LOG)
        taking = tasks.create_task(pipe._take_all(batches(), None))
        await until(lambda: log.state.start == 10, "what is old is dropped")
        await log.trim()
        assert await log.first() == 10
        assert not accepted.done()
        held = 0
        await accepted
        held = 10
        await log.append([Entry(control(reset="x", removed=1))], waits=False)
        taking.cancel()


def nobody(*arguments: object) -> Any:
    raise AssertionError(arguments)


async def test_a_reset_counts_what_retention_has_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await write(log, 10)
        await log.append([Entry(control(promoted="s", epoch=7))])
        await write(log, 10)
        await log.append([Entry(control(dropped=5))])
        assert log.next - log.state.start - len(log.state.controls) == 15
        await log.append([Entry(control(dropped=15))])  # the promotion is gone, too
        assert log.next - log.state.start - len(log.state.controls) == 6
    async with opened(tmp_path) as log:  # it is durable
        assert (log.state.start, log.state.controls) == (15, [21, 22])


async def test_a_reader_that_does_not_read_keeps_nothing_that_is_dropped(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await write(log, 100)
        log.cursors[log] = 10
        await log.append([Entry(control(reset="x", removed=100))])
        await write(log, 100)
        await log.trim()
        assert await log.first() == 10  # a reset lets it read the old content
        await log.append([Entry(control(dropped=150))])
        log.show(log.next)
        await log.trim()
        assert await log.first() == 150


async def test_much_is_removed_in_steps_between_which_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edges.pipe.log.TRIM_STEP", 10)
    async with opened(tmp_path) as log:
        for _ in range(100):
            await write(log, 1)
        commit = log.store.commit
        trims: list[int] = []

        def watched(batch: Batch) -> Awaitable[Committed]:
            trims.extend(before or 0 for before in batch.trimmed.values())
            return commit(batch)

        log.store.commit = watched  # type: ignore[method-assign]
        await log.append([Entry(control(reset="x", removed=100))])
        log.show(log.next)
        await log.trim()
        assert trims == [*range(10, 101, 10)]
        assert await log.first() == 100


async def test_nothing_is_removed_that_some_store_may_lack(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await write(log, 10)
        log.visible = 5  # the primary of several: the others have no more
        await log.append([Entry(control(reset="x", removed=10))])
        await log.trim()
        assert await log.first() == 5
        log.show(log.next)
        await log.trim()
        assert await log.first() == 10


@pytest.mark.parametrize("if_gone", [None, "error", "first"])
@pytest.mark.parametrize("connected", [True, False])
async def test_a_reader_that_is_overtaken_gets_an_error_or_the_first_there_is(
    tmp_path: Path, if_gone: str | None, connected: bool
) -> None:
    async with opened(tmp_path) as log:
        await write(log, 3 * CREDIT)  # more than the reader takes at once
        listener, port = await listen(log)
        reader = Reader("jobs", stores=f"amqp://127.0.0.1:{port}", if_gone=if_gone)  # type: ignore[arg-type]
        async with reader:
            batches = reader.batches(until=3 * CREDIT)
            seen = [each.position for each in await anext(batches)]
            if not connected:
                await leave(listener)
            await log.append([Entry(control(dropped=3 * CREDIT - 10))])
            log.show(log.next)
            if not connected:
                listener, _ = await listen(log, port)
            if if_gone == "first":
                seen += [each.position async for batch in batches for each in batch]
                assert seen[-10:] == list(range(3 * CREDIT - 10, 3 * CREDIT))
                assert seen == sorted(set(seen))
                assert len(seen) < 3 * CREDIT
            else:
                gone = f"was dropped by retention; the pipe begins at {3 * CREDIT - 10}"
                with pytest.raises(PipeDropped, match=gone):
                    while True:
                        seen += [each.position for each in await anext(batches)]
                assert seen == list(range(len(seen)))
        await listener.stop()


async def test_a_reader_chooses_what_a_position_means_that_is_gone(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await write(log, 10)
        await log.append([Entry(control(dropped=4))])
        log.show(log.next)
        listener, port = await listen(log)
        stores = f"amqp://127.0.0.1:{port}"
        for start, if_gone in ((2, None), (2, "first"), (None, "error"), (4, "error")):
            found = [each.position async for each in pull("jobs", stores=stores, start=start, if_gone=if_gone)]  # type: ignore[arg-type]
            assert found == [4, 5, 6, 7, 8, 9]
        with pytest.raises(PipeDropped, match="position 2 was dropped by retention; the pipe begins at 4"):
            await anext(pull("jobs", stores=stores, start=2, if_gone="error"))
        await listener.stop()


def test_the_file_says_how_much_every_store_keeps(pipe_network: PipeNetworks) -> None:
    network = pipe_network("a", jobs=("s", "t"), retention={"age": "1h", "size": "16MiB"})
    count = 60

    async def numbers(store: str) -> list[int]:
        pulled = pull("jobs", stores=network.store_url(store), if_gone="first")
        return [int(each.body[:3]) async for each in pulled]

    async def go() -> list[int]:
        await push(network.urls(), "jobs", [b"%03d" % number + bytes(400_000) for number in range(count)])
        async with asyncio.timeout(60):
            while (found := await numbers("s")) != await numbers("t") or len(found) * 400_000 > 16 << 20:
                pass
        with pytest.raises(PipeDropped, match="position 0 was dropped by retention"):
            await anext(pull("jobs", routers=network.urls(), start=0, if_gone="error"))
        return found

    found = asyncio.run(go())
    assert found == list(range(found[0], count))
    assert len(found) > 30
    done = called("pipe", "pull", "jobs", "--url", network.urls(), "--from", "0", "--if-gone", "error")
    assert done.returncode == 1
    assert "position 0 was dropped by retention" in done.stderr
    done = called("pipe", "reset", "jobs", "--url", network.urls())
    assert int(done.stdout) == len(found)
