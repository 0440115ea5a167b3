"""A reader that was between two stores while its pipe was reset, and one whose store is damaged."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from edges.pipe import PipeWasReset, Reader
from edges.pipe.listener import Listener
from edges.pipe.log import open_log
from edges.pipe.messages import Entry, control, with_position
from edges.store import open_store
from onceway.base.logs import logger
from onceway.client.bodies import encode_body, with_format
from onceway.errors import OncewayError

LOG = logger("pipe")
OLD = 30_000  # more than a link's credit


async def ignored(pipe: str, text: str) -> None:
    raise AssertionError(text)


async def test_messages_of_other_formats_are_read_in_their_places(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    log = await open_log(store, "jobs", "s", "s", LOG)
    odd = encode_body(b"odd")
    kept = [with_position(encode_body(b"0"), 0), with_format(odd, 0x7777), with_format(b"", 1), control(dropped=0)]
    await log.append([Entry(record) for record in [*kept, with_position(encode_body(b"4"), 4)]])
    log.show(log.next)
    listener = Listener("s", {"jobs": log}, ignored, LOG)
    port = await listener.start("127.0.0.1", 0)
    async with Reader("jobs", stores=f"amqp://127.0.0.1:{port}", control=True) as reader:
        found = [each async for batch in reader.messages() for each in batch]
    assert [(each.position, each.message_format, each.body) for each in found] == [
        (0, 0, b"0"), (1, 0x7777, odd), (2, 1, b""), (4, 0, b"4"),
    ]  # fmt: skip
    assert [each.raw for each in found] == [each.message.raw for each in found]
    assert [each.position for each in found if each.raw is not None] == [1, 2]
    await listener.stop()
    await store.close()


@pytest.mark.parametrize("was_reset", [True, False])
async def test_a_reader_is_told_that_the_rest_of_what_it_read_is_gone(tmp_path: Path, was_reset: bool) -> None:
    store = open_store(str(tmp_path / "store"))
    log = await open_log(store, "jobs", "s", "s", LOG)
    await log.append([Entry(with_position(encode_body(b"old"), position)) for position in range(OLD)])
    log.show(OLD)
    listener = Listener("s", {"jobs": log}, ignored, LOG)
    port = await listener.start("127.0.0.1", 0)
    seen = 0
    async with Reader("jobs", stores=f"amqp://127.0.0.1:{port}") as reader:
        batches = reader.batches()
        seen += len(await anext(batches))
        links = [task for carrier in listener._carriers for task in carrier.session.tasks]
        await listener.stop()
        await asyncio.wait(links, timeout=60)
        assert not log.cursors
        if was_reset:
            await log.append([Entry(control(reset="x", removed=OLD)), Entry(encode_body(b"new"))])
            log.show(log.next)
            await log.trim()
        listener = Listener("s", {"jobs": log}, ignored, LOG)
        await listener.start("127.0.0.1", port)
        if was_reset:
            with pytest.raises(PipeWasReset, match=f"removed by a reset; the pipe begins at {OLD + 1}"):
                while True:
                    seen += len(await anext(batches))
            assert seen < OLD
        else:  # nothing is gone, so it goes on where it was
            while seen < OLD:
                seen += len(await anext(batches))
    await listener.stop()
    await store.close()


async def test_a_reader_is_told_of_damage_and_reads_on_at_a_replica(tmp_path: Path) -> None:
    urls, opened = [], []
    for name in "st":
        store = open_store(str(tmp_path / name))
        log = await open_log(store, "jobs", "s", "s", LOG)
        await log.append([Entry(with_position(encode_body(b"x"), position)) for position in range(300)])
        log.show(300)
        listener = Listener(name, {"jobs": log}, ignored, LOG)
        urls.append(f"amqp://127.0.0.1:{await listener.start('127.0.0.1', 0)}")
        opened.append((listener, store))
    with sqlite3.connect(tmp_path / "s") as database:
        database.execute("UPDATE blocks SET crc = crc + 1")
    async with asyncio.timeout(30):
        async with Reader("jobs", stores=urls) as reader:
            assert sum([len(batch) async for batch in reader.batches(until=300)]) == 300
        with pytest.raises(OncewayError, match="'pipe/jobs/0' from position 0 on is damaged; put a whole copy back"):
            async with Reader("jobs", stores=urls[0]) as reader:
                await anext(reader.batches())
    for listener, store in opened:
        await listener.stop()
        await store.close()
