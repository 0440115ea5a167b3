"""A router is cut off for longer than others wait, and returns: what plain subscribers of proton are told, and miss.

Router c reaches the others through two proxies. Publishers are ours.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import onceway
from chaos.live.ports import free_port
from chaos.toxiproxy.proxies import Proxy
from tests import needs
from tests.live import LiveNetwork, wait_until
from tests.live_fixture import LiveNetworks

WAIT_S = 3.0  # that a subscription is waited for; each router forgets it a quarter later
TOPIC = "orders"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not needs.has_proton(), reason=needs.PROTON),
]


class Subscriber(threading.Thread):
    """Attaches once, and accepts what comes until `leave()`, or until its link ends."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self.url, self.container = url, name
        self.got: list[str] = []
        self.resumed: bool | None = None
        self.ended: Exception | None = None
        self._leaves = threading.Event()
        self.start()
        wait_until(lambda: self.resumed is not None or self.ended is not None, f"{name} is attached")

    def run(self) -> None:
        from proton import ProtonException, Timeout, symbol
        from proton.utils import BlockingConnection

        connection = BlockingConnection(self.url, container_id=self.container)
        try:
            receiver = connection.create_receiver(TOPIC, credit=100, name="in", options=_waited_for())
            self.resumed = receiver.remote_properties[symbol("onceway:resumed")]
            while not self._leaves.is_set():
                try:
                    self.got.append(receiver.receive(timeout=0.2).body)
                except Timeout:
                    continue
                receiver.accept()
            connection.close()
        except ProtonException as error:
            self.ended = error

    def leave(self) -> None:
        self._leaves.set()
        self.join()


def _waited_for() -> Any:
    from proton.reactor import LinkOption

    class WaitedFor(LinkOption):  # type: ignore[misc]
        def apply(self, link: Any) -> None:
            link.source.timeout = 60  # the address grants WAIT_S

    return WaitedFor()


class CutOff:
    """The network, and the proxies that join c to it."""

    def __init__(self, network: LiveNetwork, proxies: list[Proxy]) -> None:
        self.network, self.proxies = network, proxies

    async def cut(self) -> None:
        for proxy in self.proxies:
            await proxy.stop()

    async def join(self) -> None:
        for proxy in self.proxies:
            await proxy.start()
        await self.until("c is back", lambda: all(self._sessions(name) == 2 for name in "abc"))

    def _sessions(self, name: str) -> int:
        return sum(bool(each["up"]) for each in self.network[name].status()["sessions"].values())

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        await asyncio.to_thread(wait_until, condition, what)

    def knows(self, router: str, container: str) -> bool:
        entries = self.network[router].status()["addresses"].get(TOPIC, {"subscriptions": []})["subscriptions"]
        return any(each["container"].endswith(container) for each in entries)

    async def publish(self, router: str, *texts: str) -> None:
        """All are accepted."""
        async with onceway.connect(self.network[router].url, container=f"publisher of {texts[0]}") as connection:
            publisher = await connection.publisher(TOPIC)
            for text in texts:
                await publisher.send(text)


@asynccontextmanager
async def cut_off(live_network: LiveNetworks) -> AsyncIterator[CutOff]:
    places = {name: f"127.0.0.1:{free_port()}" for name in "ab"}
    links = [("a", "b"), *({"between": [name, "c"], "via": place} for name, place in places.items())]
    addresses = [{"match": "*", "subscription_timeout": f"{WAIT_S:g}s", "no_subscribers": "accept"}]
    network = live_network("a", "b", "c", links=links, addresses=addresses, start=False)
    proxies = [
        Proxy(name, place, f"127.0.0.1:{network['c'].interrouter_port}", random.Random(1))
        for name, place in places.items()
    ]
    for proxy in proxies:
        await proxy.start()
    try:
        await asyncio.to_thread(network.start)
        yield CutOff(network, proxies)
    finally:
        for proxy in proxies:
            await proxy.stop()


async def test_a_router_that_returns_breaks_nobody_who_has_missed_nothing(live_network: LiveNetworks) -> None:
    """c has accepted something once, has no client any more, and forgets the subscription while it is cut off."""
    async with cut_off(live_network) as world:
        subscriber = await asyncio.to_thread(Subscriber, world.network["a"].url, "s")
        await world.publish("c", "before")
        await world.cut()
        await world.until("c has forgotten s", lambda: not world.knows("c", "s"))
        await world.publish("b", "meanwhile")
        await world.join()
        await world.until("c knows s again", lambda: world.knows("c", "s"))
        await world.publish("c", "after")
        await world.until("all has come, or the link has ended", lambda: len(subscriber.got) >= 3 or _over(subscriber))
        assert subscriber.ended is None
        assert subscriber.got == ["before", "meanwhile", "after"]
        await asyncio.to_thread(subscriber.leave)


def _over(subscriber: Subscriber) -> bool:
    return subscriber.ended is not None


async def _forgotten_by_the_others(world: CutOff) -> Subscriber:
    """It is at c, which is cut off with it."""
    subscriber = await asyncio.to_thread(Subscriber, world.network["c"].url, "s")
    await world.publish("a", "before")
    await world.until("it has come", lambda: subscriber.got == ["before"])
    await world.cut()
    await world.until("a has forgotten s", lambda: not world.knows("a", "s"))
    await world.until("b has forgotten s", lambda: not world.knows("b", "s"))
    return subscriber


async def _comes_back(world: CutOff, subscriber: Subscriber, resumed: bool) -> None:
    """c still waits for it when the others are there again."""
    await asyncio.to_thread(subscriber.leave)
    assert world.knows("c", "s")
    await world.join()
    again = await asyncio.to_thread(Subscriber, world.network["c"].url, "s")
    assert again.resumed is resumed
    await world.publish("b", "after")
    await world.until("it has come", lambda: again.got == ["after"])
    await asyncio.to_thread(again.leave)


async def test_a_subscriber_is_told_what_the_others_have_accepted_without_it(live_network: LiveNetworks) -> None:
    async with cut_off(live_network) as world:
        subscriber = await _forgotten_by_the_others(world)
        await world.publish("b", "without it")
        await _comes_back(world, subscriber, resumed=False)


async def test_a_subscriber_that_others_have_forgotten_and_that_has_missed_nothing_is_resumed(
    live_network: LiveNetworks,
) -> None:
    async with cut_off(live_network) as world:
        await _comes_back(world, await _forgotten_by_the_others(world), resumed=True)
