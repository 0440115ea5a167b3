"""The client against real routers in processes of their own, which are killed under it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import onceway
from amqp10.outcomes import Modified
from amqp10.sections import Message, Properties
from onceway.errors import DeliveryRejected
from tests.live import LiveNetwork
from tests.live_fixture import LiveNetworks

TRIANGLE = [("a", "b"), ("b", "c"), ("a", "c")]
QUICK = {"subscription_timeout": "24s"}  # three processes must be up again within 19 s of it, on a busy machine too
BOUND_S = 240.0


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND_S):
            await scene()

    asyncio.run(bounded())


def messages(count: int, publisher: int = 0) -> list[bytes]:
    return [b"%d %d" % (publisher, number) for number in range(count)]


async def gather_all(subscriber: onceway.Subscriber, count: int, into: list[Any]) -> None:
    async for batch in subscriber.batches(max_messages=100):
        into.extend(batch.bodies)
        await batch.accept()
        if len(into) >= count:
            return


async def publish(publisher: onceway.Publisher, bodies: list[bytes], *, pace_s: float = 0.0) -> None:
    for start in range(0, len(bodies), 100):
        await publisher.put_many(bodies[start : start + 100])
        await asyncio.sleep(pace_s)
    await publisher.drain()


def check(received: list[Any], publishers: int, count: int) -> None:
    """Everything once, and each publisher's in order."""
    assert len(received) == publishers * count
    for number in range(publishers):
        prefix = b"%d " % number
        assert [body for body in received if body.startswith(prefix)] == messages(count, number)


async def test_a_publisher_that_wants_no_outcome_does_not_disturb_a_subscriber_that_gives_one(
    live_network: LiveNetworks,
) -> None:
    network = live_network("a")
    async with onceway.connect(network.urls(), container="shop") as connection:
        subscriber = await connection.subscriber("orders")
        careless = await connection.publisher("orders", name="careless", guarantee="at-most-once")
        careful = await connection.publisher("orders", name="careful")
        await careless.put_many(messages(4))
        await careful.put_many(messages(1, 1))
        for number in range(2):
            delivery = await subscriber.receive()
            assert delivery.body == messages(4)[number]
            assert delivery.decided
            await delivery.accept()
            await delivery.reject()
        batch: list[Any] = []
        async for part in subscriber.batches():
            for one in part:
                await one.accept()
            await part.accept()
            batch += part.bodies
            if len(batch) == 3:
                break
        assert batch == messages(4)[2:] + messages(1, 1)
        await careful.drain()
        assert careful.accepted == 1


async def test_one_router_delivers_once_and_names_the_publisher(live_network: LiveNetworks) -> None:
    network = live_network("a")
    async with onceway.connect(network.urls(), container="shop") as connection:
        subscriber = await connection.subscriber("orders", name="billing")
        publisher = await connection.publisher("orders", name="till")
        received: list[Any] = []
        await asyncio.gather(gather_all(subscriber, 5000, received), publish(publisher, messages(5000)))
        check(received, 1, 5000)
        assert publisher.accepted == 5000
        await publisher.put(Message("text", properties=Properties(subject="s")))
        delivery = await subscriber.receive()
        assert delivery.publisher == ("shop", "till")
        assert delivery.message.properties.subject == "s"
        assert delivery.body == "text"
        await delivery.accept()
        assert subscriber.granted_timeout_s == 60


async def test_draining_brings_what_is_there_and_says_when_that_was_all(live_network: LiveNetworks) -> None:
    network = live_network("a")
    async with onceway.connect(network.urls(), container="shop") as connection:
        subscriber = await connection.subscriber("orders", name="billing", credit=50)
        assert await subscriber.drain()
        publisher = await connection.publisher("orders", name="till")
        publishing = asyncio.create_task(publish(publisher, messages(500)))
        received: list[Any] = []
        batches = subscriber.batches(max_messages=50)
        while len(received) < 500:
            await subscriber.drain()
            assert subscriber.waiting <= 50
            if subscriber.waiting:
                batch = await anext(batches)
                received += batch.bodies
                await batch.accept()
        await publishing
        assert await subscriber.drain()
        assert subscriber.waiting == 0
        check(received, 1, 500)


async def test_failed_comes_again_with_its_tag_and_too_often_is_rejected(live_network: LiveNetworks) -> None:
    network = live_network("a", addresses=[{"match": "*", "max_redeliveries": 2}])
    async with onceway.connect(network.urls()) as connection:
        subscriber = await connection.subscriber("orders")
        publisher = await connection.publisher("orders")
        publication = await publisher.put(b"x")
        tags = set()
        for _ in range(3):
            delivery = await subscriber.receive()
            tags.add(delivery.tag)
            await delivery.modify()
        with pytest.raises(DeliveryRejected) as caught:
            await publication
        assert caught.value.rejected == 1
        assert len(tags) == 1
        assert isinstance(Modified(True), Modified)
        publication = await publisher.put(b"y")
        await (await subscriber.receive()).reject(description="not for me")
        with pytest.raises(DeliveryRejected):
            await publication


async def through_deaths(
    network: LiveNetwork, tmp_path: Path, deaths: Callable[[], Awaitable[None]], *, count: int = 4000
) -> None:
    """Two publishers and three subscribers spread over a triangle, while `deaths` happen."""
    gaps: list[Any] = []

    def connect(name: str, first: str) -> onceway.Connection:
        order = [first, *(other for other in "abc" if other != first)]
        journal = tmp_path / f"{name}.journal"
        return onceway.connect(network.urls(*order), container=name, ordered=True, journal=journal)

    async with connect("s1", "a") as s1, connect("s2", "b") as s2, connect("s3", "c") as s3:
        subscribers = [await c.subscriber("orders", on_gap=gaps.append) for c in (s1, s2, s3)]
        async with connect("p0", "a") as p0, connect("p1", "b") as p1:
            publishers = [await connection.publisher("orders") for connection in (p0, p1)]
            received: list[list[Any]] = [[], [], []]
            await asyncio.gather(
                deaths(),
                *(
                    publish(publisher, messages(count, number), pace_s=0.02)
                    for number, publisher in enumerate(publishers)
                ),
                *(
                    gather_all(subscriber, 2 * count, into)
                    for subscriber, into in zip(subscribers, received, strict=True)
                ),
            )
            for into in received:
                check(into, 2, count)
            assert [publisher.accepted for publisher in publishers] == [count, count]
            assert gaps == []


def test_all_routers_die_at_once_and_come_back(live_network: LiveNetworks, tmp_path: Path) -> None:
    network = live_network("a", "b", "c", links=TRIANGLE, settings=QUICK)

    async def deaths() -> None:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(network.kill, *"abc")
        for name in "abc":
            network.spawn(name, fresh=False)

    run(lambda: through_deaths(network, tmp_path, deaths))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
async def test_a_reply_from_within_the_receive_loop_does_not_deadlock(
    live_network: LiveNetworks, guarantee: str
) -> None:
    """One connection has both sides, with a credit of 1: the reply is sent, and accepted, before its request is."""
    network = live_network("a")
    async with onceway.connect(network.urls()) as connection:

        async def answer(requests: onceway.Subscriber, replies: onceway.Publisher) -> None:
            async for request in requests:
                await replies.send(b"re: " + request.body, timeout_s=BOUND_S)
                await request.accept()

        requests = await connection.subscriber("requests", credit=1, guarantee=guarantee)
        answering = asyncio.create_task(answer(requests, await connection.publisher("replies", guarantee=guarantee)))
        replies = await connection.subscriber("replies", credit=1, guarantee=guarantee)
        asking = await connection.publisher("requests", guarantee=guarantee)
        for body in messages(20):
            publication = await asking.put(body)
            reply = await replies.receive()
            assert reply.body == b"re: " + body
            await reply.accept()
            await publication
        await requests.close()
        await answering
