"""A reader that was between two stores while its pipe was reset, and one whose store is damaged."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from edges.pipe import PipeWasReset, Reader
from edges.pipe.messages import Entry, control, with_position
from onceway.client.bodies import encode_body, with_format
from onceway.errors import OncewayError
from tests.edges.pipe.opened import leave, listen, opened, write

OLD = 30_000  # more than a link's credit


async def test_messages_of_other_formats_are_read_in_their_places(tmp_path: Path) -> None:
    odd = encode_body(b"odd")
    kept = [with_position(encode_body(b"0"), 0), with_format(odd, 0x7777), with_format(b"", 1), control(dropped=0)]
    async with opened(tmp_path) as log:
        await log.append([Entry(record) for record in [*kept, with_position(encode_body(b"4"), 4)]])
        log.show(log.next)
        listener, port = await listen(log)
        async with Reader("jobs", stores=f"amqp://127.0.0.1:{port}", control=True) as reader:
            found = [each async for batch in reader.messages() for each in batch]
        await listener.stop()
    assert [(each.position, each.message_format, each.body) for each in found] == [
        (0, 0, b"0"), (1, 0x7777, odd), (2, 1, b""), (4, 0, b"4"),
    ]  # fmt: skip
    assert [each.raw for each in found] == [each.message.raw for each in found]
    assert [each.position for each in found if each.raw is not None] == [1, 2]


@pytest.mark.parametrize("was_reset", [True, False])
async def test_a_reader_is_told_that_the_rest_of_what_it_read_is_gone(tmp_path: Path, was_reset: bool) -> None:
    async with opened(tmp_path) as log:
        await write(log, OLD)
        listener, port = await listen(log)
        async with Reader("jobs", stores=f"amqp://127.0.0.1:{port}") as reader:
            batches = reader.batches()
            seen = len(await anext(batches))
            await leave(listener)
            assert not log.cursors
            if was_reset:
                await log.append([Entry(control(reset="x", removed=OLD)), Entry(encode_body(b"new"))])
                log.show(log.next)
                await log.trim()
            listener, _ = await listen(log, port)
            if was_reset:
                with pytest.raises(PipeWasReset, match=f"removed by a reset; the pipe begins at {OLD + 1}"):
                    while True:
                        seen += len(await anext(batches))
                assert seen < OLD
            else:  # nothing is gone, so it goes on where it was
                while seen < OLD:
                    seen += len(await anext(batches))
        await listener.stop()


async def test_a_reader_is_told_of_damage_and_reads_on_at_a_replica(tmp_path: Path) -> None:
    urls = []
    async with contextlib.AsyncExitStack() as stack:
        for name in "st":
            log = await stack.enter_async_context(opened(tmp_path, name))
            await write(log, 300)
            listener, port = await listen(log)
            stack.push_async_callback(listener.stop)
            urls.append(f"amqp://127.0.0.1:{port}")
        with sqlite3.connect(tmp_path / "s") as database:
            database.execute("UPDATE blocks SET crc = crc + 1")
        async with asyncio.timeout(30):
            async with Reader("jobs", stores=urls) as reader:
                assert sum([len(batch) async for batch in reader.batches(until=300)]) == 300
            damaged = "'pipe/jobs/0' from position 0 on is damaged; put a whole copy back"
            with pytest.raises(OncewayError, match=damaged):
                async with Reader("jobs", stores=urls[0]) as reader:
                    await anext(reader.batches())
