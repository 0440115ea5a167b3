"""Closing connections, publishers and subscribers, and what that does to what is under way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import onceway
from onceway.errors import ConnectionClosed, DeliveryUndecided, UsageError
from tests.onceway.client.scenes import eventually, messages, playing, take


async def test_close_waits_for_the_outcomes_under_way() -> None:
    async with playing() as network:
        network.hold_outcomes = True
        connection = await onceway.connect(network.url())
        publisher = await connection.publisher("orders")
        publications = await publisher.put_many(messages(20))
        closing = asyncio.create_task(connection.close())
        assert await eventually(lambda: len(network.published) == 20)
        assert not closing.done()
        network.release_outcomes()
        network.routers[0].flush()
        await closing
        await publications
        assert publisher.accepted == 20


async def test_close_that_may_not_wait_says_what_is_undecided() -> None:
    async with playing() as network:
        network.hold_outcomes = True
        connection = await onceway.connect(network.url())
        publisher = await connection.publisher("orders")
        publication = await publisher.put(b"x")
        await connection.close(timeout_s=0.05)
        with pytest.raises(DeliveryUndecided):
            await publication
        with pytest.raises(ConnectionClosed):
            await publisher.put(b"y")


async def test_an_error_inside_the_block_comes_out_at_once() -> None:
    async with playing() as network:
        network.hold_outcomes = True
        with pytest.raises(ZeroDivisionError):
            async with onceway.connect(network.url()) as connection:
                publisher = await connection.publisher("orders")
                await publisher.put(b"x")
                raise ZeroDivisionError


@pytest.mark.parametrize("kind", ["publisher", "subscriber"])
async def test_who_waits_for_an_attach_is_told_that_the_connection_was_closed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing() as network:
        asked: list[object] = []
        monkeypatch.setattr(network, "attach", asked.append)  # and no answer
        connection = await onceway.connect(network.url())
        connection._driver.leave_timeout_s = 0.05
        opening = asyncio.create_task(getattr(connection, kind)("orders"))
        assert await eventually(lambda: asked)
        await connection.close(timeout_s=0.05)
        with pytest.raises(ConnectionClosed):
            await opening


async def test_a_closed_subscriber_ends_its_iteration() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        subscriber = await connection.subscriber("orders")

        async def iterate() -> int:
            return len([delivery async for delivery in subscriber])

        task = asyncio.create_task(iterate())
        await asyncio.sleep(0)
        await subscriber.close()
        assert await task == 0
        assert not network.subscriptions
        with pytest.raises(ConnectionClosed):
            await subscriber.receive()
        await connection.subscriber("orders")  # the name is free again


@pytest.mark.parametrize("journalled", [True, False])
async def test_a_consumer_of_a_queue_closes_when_what_it_has_accepted_is_settled(
    tmp_path: Path, journalled: bool
) -> None:
    """Protocol 15.8. Without a journal, leaving the connection closes it; what it has not taken goes to others."""
    async with playing() as network, onceway.connect(network.url(), container="p") as other:
        network.queue = network.hold_outcomes = True
        connection = await onceway.connect(
            network.url(), container="s", journal=tmp_path / "journal" if journalled else None
        )
        subscriber = await connection.subscriber("orders")
        publisher = await other.publisher("orders")
        publications = await publisher.put_many(messages(3))
        assert await take(subscriber, 1) == messages(1)
        assert await eventually(lambda: subscriber.waiting == 2)
        closing = asyncio.create_task(subscriber.close() if journalled else connection.close())
        held = network.subscriptions["orders"]
        assert await eventually(lambda: len(held.sent) == 1 and len(held.queue) == 2)
        assert not closing.done()
        network.release_outcomes()
        network.routers[0].flush()
        await closing
        assert not network.subscriptions
        await publications
        await connection.close()


async def test_a_consumer_of_a_queue_does_not_wait_for_ever_for_a_settlement() -> None:
    async with playing() as network, onceway.connect(network.url(), container="p") as other:
        network.queue = network.hold_outcomes = True
        async with onceway.connect(network.url(), container="s", close_timeout_s=0.05) as connection:
            subscriber = await connection.subscriber("orders")
            publication = await (await other.publisher("orders")).put(b"x")
            assert await take(subscriber, 1) == [b"x"]
            await subscriber.close()
            assert not network.subscriptions
        network.release_outcomes()
        network.routers[0].flush()
        await publication


async def test_a_detached_subscriber_finds_what_came_meanwhile() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        publisher = await connection.publisher("orders")
        async with onceway.connect(network.url(), container="s") as other:
            subscriber = await other.subscriber("orders")
            await subscriber.detach()
        await publisher.put(b"x")
        assert await eventually(lambda: network.published)
        async with onceway.connect(network.url(), container="s") as other:
            assert await take(await other.subscriber("orders"), 1) == [b"x"]


async def test_a_name_is_used_once_at_a_time() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        publisher = await connection.publisher("orders")
        with pytest.raises(UsageError, match="already"):
            await connection.publisher("orders")
        await publisher.close()
        await connection.publisher("orders")


async def test_a_closed_connection_says_so() -> None:
    async with playing() as network:
        connection = await onceway.connect(network.url())
        await connection.close()
        with pytest.raises(ConnectionClosed):
            await connection.publisher("orders")
