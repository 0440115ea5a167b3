"""The asyncio client against fake routers that break connections where it hurts, refuse, and take links away."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import onceway
from amqp10.events import Event, LinkAttaching
from amqp10.runs import Dispositions, Transfers
from onceway.client.driver import why_failed
from onceway.errors import (
    AttachTimeout,
    AuthenticationFailed,
    ConnectionFailed,
    LinkRefused,
    LinkStolen,
    SubscriptionBroken,
)
from tests.onceway.client.fake_network import FakeNetwork
from tests.onceway.client.scenes import eventually, messages, playing, settled, take


async def exchange(network: FakeNetwork, count: int, journal: str | None = None) -> None:
    """Publish and receive so many through whatever happens; nothing lost, twice or out of order."""
    received: list[Any] = []
    async with (
        onceway.connect(network.url(), container="publisher") as sending,
        onceway.connect(network.url(), container="subscriber", journal=journal) as receiving,
    ):
        subscriber = await receiving.subscriber("orders", on_gap=received.append)
        publisher = await sending.publisher("orders")

        async def publish() -> None:
            for body in messages(count):
                await publisher.put(body)
                if publisher.sequence % 50 == 0:
                    await asyncio.sleep(0)

        async def receive() -> None:
            async for batch in subscriber.batches(max_messages=37):
                received.extend(batch.bodies)
                await batch.accept()
                if len(received) >= count:
                    return

        await asyncio.gather(publish(), receive())
        await settled(publisher)
        assert publisher.accepted == count
    assert received == messages(count)
    assert [body[5:] for body in network.published] == messages(count)
    assert network.faults == []
    # None is used twice. (Their order is that of arrival: one of a connection given up may be read after its successor.)
    assert len(set(network.attaches)) == len(network.attaches)


def every(number: int, kind: type[Event], seed: int) -> Callable[[Event], bool]:
    """True at one in so many events of a kind."""
    rng = random.Random(seed)
    return lambda event: isinstance(event, kind) and rng.randrange(number) == 0


@pytest.mark.parametrize("kind", [Transfers, Dispositions, LinkAttaching], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("where", ["drop_when", "drop_unsent"])
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_lost_or_twice_when_connections_break(kind: type[Event], where: str, seed: int) -> None:
    async with playing(routers=2) as network:
        setattr(network, where, every(3 if kind is LinkAttaching else 6, kind, seed))
        task = asyncio.create_task(_stop_dropping(network))
        await exchange(network, 600)
        task.cancel()


async def _stop_dropping(network: FakeNetwork) -> None:
    await asyncio.sleep(5)
    network.drop_when = network.drop_unsent = None


async def test_with_a_journal_nothing_is_lost_or_twice_either(tmp_path: Path) -> None:
    async with playing(routers=2) as network:
        network.drop_unsent = every(5, Dispositions, 1)
        task = asyncio.create_task(_stop_dropping(network))
        await exchange(network, 600, str(tmp_path / "journal"))
        task.cancel()


async def test_a_router_that_is_gone_for_good_is_left_for_the_next() -> None:
    async with playing(routers=2) as network:
        async with onceway.connect(network.url(), ordered=True) as connection:
            publisher = await connection.publisher("orders")
            await publisher.send(b"x")
            assert connection.router == "r0"
            await network.routers[0].stop()
            network.routers.pop(0)
            await publisher.send(b"y")
            assert connection.router == "r1"
        assert len(network.published) == 2


async def test_ordered_begins_with_the_first_and_random_with_any() -> None:
    async with playing(routers=2) as network:
        firsts = set()
        for _ in range(30):
            async with onceway.connect(network.url()) as connection:
                firsts.add(connection.router)
        assert firsts == {"r0", "r1"}
        for _ in range(5):
            async with onceway.connect(network.url(), ordered=True) as connection:
                assert connection.router == "r0"


async def test_nobody_there_is_an_error_with_the_reason_of_each_url() -> None:
    async with playing() as network:
        url = network.url()
        await network.routers.pop().stop()
        with pytest.raises(ConnectionFailed, match="no router reached within") as caught:
            await onceway.connect(url, connect_timeout_s=2.0)
        assert list(caught.value.reasons) == [url]
        assert "refused" in caught.value.reasons[url].lower()


def test_why_a_connection_failed_is_said_in_the_systems_words() -> None:
    assert why_failed(socket.gaierror(-2, "Name or service not known")) == "Name or service not known"
    assert why_failed(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")) == "Connection refused"
    assert why_failed(OSError("nothing is listening")) == "nothing is listening"


async def test_a_password_is_checked() -> None:
    async with playing(verify=lambda user, password: (user, password) == ("ann", "secret")) as network:
        port = network.routers[0].port
        async with onceway.connect(f"amqp://ann:secret@127.0.0.1:{port}") as connection:
            assert connection.router == "r0"
        with pytest.raises(AuthenticationFailed, match="does not accept"):
            await onceway.connect(f"amqp://ann:wrong@127.0.0.1:{port}")
        with pytest.raises(AuthenticationFailed):
            await onceway.connect(f"amqp://127.0.0.1:{port}")


async def test_a_refused_address_raises_its_condition() -> None:
    async with playing() as network:
        network.refuse_with = "amqp:not-found"
        async with onceway.connect(network.url()) as connection:
            with pytest.raises(LinkRefused, match="amqp:not-found"):
                await connection.publisher("nowhere")
            network.refuse_with = None
            await connection.publisher("nowhere")


async def test_an_attach_that_is_never_answered_times_out_and_leaves_nothing() -> None:
    async with playing() as network:
        network.attach = lambda link: None  # type: ignore[method-assign]
        async with onceway.connect(network.url()) as connection:
            with pytest.raises(AttachTimeout, match="may be recovering"):
                await connection.subscriber("orders", timeout_s=0.1)
            del network.attach
            assert connection._driver.owners == {}
            await connection.subscriber("orders")


async def test_a_stolen_link_is_an_error_in_the_older_process_only() -> None:
    async with (
        playing() as network,
        onceway.connect(network.url(), container="twin") as older,
        onceway.connect(network.url(), container="twin") as newer,
    ):
        first = await older.subscriber("orders")
        second = await newer.subscriber("orders")
        with pytest.raises(LinkStolen, match="another process"):
            await first.receive()
        publisher = await newer.publisher("orders")
        await publisher.put(b"x")
        assert await take(second, 1) == [b"x"]


async def test_a_broken_subscription_raises_once_and_goes_on() -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        subscriber = await connection.subscriber("orders")
        publisher = await connection.publisher("orders")
        network.subscriptions["orders"].born = 1  # the network has forgotten it
        network.routers[0].drop()
        with pytest.raises(SubscriptionBroken, match="missed messages"):
            await anext(subscriber.batches())
        await publisher.put(b"x")
        assert await take(subscriber, 1) == [b"x"]


async def test_a_gap_is_told_to_who_wants_to_know() -> None:
    async with playing() as network:
        gaps: list[onceway.SubscriptionGap] = []
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders", on_gap=gaps.append)
            publisher = await connection.publisher("orders")
            network.subscriptions["orders"].born = 1
            network.routers[0].drop()
            assert await eventually(lambda: gaps)
            await publisher.put(b"x")
            assert await take(subscriber, 1) == [b"x"]
            assert gaps[0].name == "orders"
