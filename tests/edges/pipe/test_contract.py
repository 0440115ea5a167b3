"""docs/contracts/pipe.md, line by line, against a router and a store as processes, in each form of the store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from edges.pipe import Reader, pull, push, reset
from tests.edges.pipe.network import PipeNetwork

pytestmark = pytest.mark.parametrize("network", ["embedded", "postgresql"], indirect=True, scope="module")


async def everything(network: PipeNetwork, pipe: str) -> list[object]:
    return [each.body async for each in pull(pipe, routers=network.urls())]


async def test_a_pushed_message_is_there_for_a_reader_that_comes_later(network: PipeNetwork, pipe: str) -> None:
    await push(network.urls(), pipe, b"one")
    assert await everything(network, pipe) == [b"one"]


async def test_pull_removes_nothing_and_every_reader_sees_the_same_order(network: PipeNetwork, pipe: str) -> None:
    groups = [[b"%d %d" % (writer, number) for number in range(300)] for writer in range(4)]
    await asyncio.gather(*(push(network.urls(), pipe, group) for group in groups))
    first = await everything(network, pipe)
    assert sorted(map(str, first)) == sorted(str(each) for group in groups for each in group)
    for group in groups:
        assert [each for each in first if each in group] == group
    assert await everything(network, pipe) == first


async def test_reset_removes_all_and_says_how_many(network: PipeNetwork, pipe: str) -> None:
    await push(network.urls(), pipe, [b"%d" % number for number in range(7)])
    assert await reset(network.urls(), pipe) == 7
    assert await everything(network, pipe) == []
    assert await reset(network.urls(), pipe) == 0
    await push(network.urls(), pipe, b"new")
    assert await everything(network, pipe) == [b"new"]


async def test_a_reader_sees_the_old_content_to_its_end_and_then_the_new_from_its_start(
    network: PipeNetwork, pipe: str
) -> None:
    old = [b"old %d" % number for number in range(50_000)]
    await push(network.urls(), pipe, old)
    async with Reader(pipe, routers=network.urls()) as reader:
        batches = reader.batches()
        seen = [each.body for each in await anext(batches)]
        assert len(seen) < len(old)
        assert await reset(network.urls(), pipe) == len(old)
        await push(network.urls(), pipe, [b"new 0", b"new 1"])
        assert await everything(network, pipe) == [b"new 0", b"new 1"]
        while len(seen) < len(old) + 2:
            seen += [each.body for each in await anext(batches)]
    assert seen == [*old, b"new 0", b"new 1"]


async def test_messages_are_any_bytes(network: PipeNetwork, pipe: str) -> None:
    bodies: list[bytes | str] = [b"", b"two words", b"a\nb\x00\xff", "text", b"x" * 3_000_000]
    await push(network.urls(), pipe, bodies)
    assert await everything(network, pipe) == bodies


async def test_a_reader_begins_at_a_position_or_a_time_or_the_end(network: PipeNetwork, pipe: str) -> None:
    await push(network.urls(), pipe, [b"0", b"1"])
    between = datetime.now(UTC)
    await asyncio.sleep(0.01)
    await push(network.urls(), pipe, [b"2", b"3"])

    async def since(start: object) -> list[tuple[int, object]]:
        found = pull(pipe, routers=network.urls(), start=start)  # type: ignore[arg-type]
        return [(each.position, each.body) async for each in found]

    assert await since(1) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert await since(between) == [(2, b"2"), (3, b"3")]
    assert await since("end") == []


async def test_a_reader_that_follows_gets_what_is_pushed_later(network: PipeNetwork, pipe: str) -> None:
    await push(network.urls(), pipe, b"before")
    reading = pull(pipe, stores=network.store_url(), follow=True)
    assert (await anext(reading)).body == b"before"
    waiting = asyncio.create_task(anext(reading))  # type: ignore[arg-type]
    await push(network.urls(), pipe, b"after")
    assert (await waiting).body == b"after"
