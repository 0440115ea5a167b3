"""The asyncio client in ordinary life: puts, deliveries, batches, verdicts, guarantees, reports; against a fake router."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import onceway
from amqp10.outcomes import ACCEPTED, Error, Rejected
from amqp10.sections import Message, Properties
from onceway.client.reports import LinkAttached, Report, RouterConnected, RouterLost
from onceway.errors import DeliveryRejected, PublisherFull, UsageError
from tests.onceway.client.scenes import eventually, messages, playing, take


async def test_what_is_published_is_delivered_accepted_and_settled() -> None:
    async with playing() as network:
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            publications = [await publisher.put(body) for body in messages(10)]
            assert await take(subscriber, 10) == messages(10)
            for publication in publications:
                await publication
            assert publisher.accepted == 10
            assert publisher.unsettled == 0
        assert network.faults == []
        assert not network.subscriptions  # closed: nobody waits for it


async def test_bodies_of_all_kinds_arrive_as_they_were() -> None:
    bodies: list[Any] = [b"", b"short", bytes(70_000), "text", Message({"a": 1}, properties=Properties(subject="s"))]
    async with playing() as network, onceway.connect(network.url()) as connection:
        subscriber = await connection.subscriber("orders")
        publisher = await connection.publisher("orders")
        for body in bodies:
            await publisher.put(body)
        deliveries = [await subscriber.receive() for _ in bodies]
        assert [delivery.body for delivery in deliveries] == [*bodies[:4], {"a": 1}]
        assert deliveries[4].message.properties.subject == "s"
        for delivery in deliveries:
            await delivery.accept()


async def test_batches_are_columns_and_are_accepted_as_ranges() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        subscriber = await connection.subscriber("orders")
        publisher = await connection.publisher("orders")
        publications = await publisher.put_many(messages(400))
        bodies: list[Any] = []
        async for batch in subscriber.batches(max_messages=150, max_wait=0.05):
            assert len(batch) == len(batch.tags) == len(batch.bodies) <= 150
            bodies += batch.bodies
            await batch.accept()
            if len(bodies) == 400:
                break
        assert bodies == messages(400)
        await publications
        assert len(publications) == 400
        assert publisher.accepted == subscriber.accepted == 400


async def test_encoded_messages_are_sent_as_they_are() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        publisher = await connection.publisher("orders")
        payloads = [Message("text", properties=Properties(subject="s")).encode(), Message(b"bytes").encode()]
        await (await publisher.put_payloads(payloads))
        assert network.published == payloads


async def test_a_batch_holds_about_the_octets_it_may_and_one_message_at_least() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        subscriber = await connection.subscriber("orders")
        publisher = await connection.publisher("orders")
        await publisher.put_many([bytes(1000)] * 10 + [bytes(9000)])
        assert await eventually(lambda: subscriber._waiting == 11)
        sizes = []
        async for batch in subscriber.batches(max_bytes=3500):
            sizes.append(len(batch))
            await batch.accept()
            if sum(sizes) == 11:
                break
        assert sizes == [3, 3, 3, 1, 1]


async def test_single_verdicts_and_the_rest_of_a_batch_go_together() -> None:
    async with playing() as network:
        network.state_of = lambda body: Rejected(Error("x")) if b"2" in body else ACCEPTED
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            await publisher.put_many(messages(5))
            assert await eventually(lambda: subscriber._waiting == 5)
            batch = await anext(subscriber.batches())
            await batch[2].reject()
            assert batch[2].decided
            await batch.accept()
            await publisher.drain()
            assert (publisher.accepted, publisher.rejected) == (4, 1)


async def test_a_released_delivery_comes_again() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        subscriber = await connection.subscriber("orders")
        publisher = await connection.publisher("orders")
        publication = await publisher.put(b"x")
        first = await subscriber.receive()
        await first.release()
        second = await subscriber.receive()
        assert second.tag == first.tag
        await second.accept()
        await publication


async def test_a_second_verdict_on_one_delivery_is_the_callers_mistake() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        subscriber = await connection.subscriber("orders")
        publisher = await connection.publisher("orders")
        await publisher.put(b"x")
        delivery = await subscriber.receive()
        await delivery.accept()
        with pytest.raises(UsageError, match="outcome already"):
            await delivery.release()


async def test_a_rejected_publication_raises_with_its_state() -> None:
    async with playing() as network:
        network.state_of = lambda body: Rejected(Error("onceway:rejected", "by one", {"onceway:rejected": 1}))
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            with pytest.raises(DeliveryRejected, match="by one") as caught:
                await publisher.send(b"x")
            assert caught.value.rejected == 1
            many = await publisher.put_many([b"y", b"z"])
            with pytest.raises(DeliveryRejected):
                await many
            assert publisher.rejected == 3


async def test_puts_wait_for_credit_and_no_longer() -> None:
    async with playing() as network:
        network.hold_outcomes = True
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            assert await eventually(lambda: publisher.room == 500)
            for body in messages(500):
                publisher.put_nowait(body)
            with pytest.raises(PublisherFull):
                publisher.put_nowait(b"one more")
            waiting = asyncio.create_task(publisher.put(b"one more"))
            await asyncio.sleep(0)
            assert not waiting.done()
            network.release_outcomes()
            network.routers[0].flush()
            await (await waiting)
            assert publisher.accepted == 501
            assert publisher.sequence == 501


async def test_at_most_once_is_over_when_it_is_written() -> None:
    async with playing() as network:
        network.hold_outcomes = True
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders", guarantee="at-most-once")
            assert publisher.guarantee == "at-most-once"
            await publisher.send(b"x")
        assert len(network.published) == 1


async def test_at_least_once_is_settled_by_the_router() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        publisher = await connection.publisher("orders", guarantee="at-least-once")
        assert publisher.guarantee == "at-least-once"
        await publisher.send(b"x")
        assert publisher.unsettled == 0


async def test_reports_say_what_the_connection_does() -> None:
    told: list[Report] = []
    async with playing() as network, onceway.connect(network.url(), on_report=told.append) as connection:
        publisher = await connection.publisher("orders", name="p")
        await publisher.send(b"x")
        network.routers[0].drop()
        await publisher.send(b"y")
    assert [type(report) for report in told] == [
        RouterConnected,
        LinkAttached,
        RouterLost,
        RouterConnected,
        LinkAttached,
    ]
    assert isinstance(told[1], LinkAttached)
    assert not told[1].resumed
    assert isinstance(told[4], LinkAttached)
    assert told[4].resumed
