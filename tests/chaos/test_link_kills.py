"""Routers killed with SIGKILL under load, with each kind of link beside plain ones: what comes to whom, once.

Kinds: two partitions of a topic, a selector, messages larger than frames, a queue with groups, a link over WebSocket, and
browsers of a queue in which all but the first message wait.
Every client loses a router. A link without an address and a dynamic node are at least once or end with their router
(docs/decisions/anonymous-exactly-once.md): nothing to count here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import onceway
from amqp10.sections import Message, Properties
from amqp10.types import Described, Symbol
from chaos.live.ports import free_port
from tests import needs
from tests.live import PATIENT, LiveNetwork

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not needs.has_proton(), reason=needs.PROTON),
]

NAMES = ("a", "b", "c")
COUNT = 300  # of each publisher, but for large messages
WAITING = 50
LARGE, LARGE_COUNT = 200_000, 40
GROUPS = 5
SELECTOR = {"odd": Described(Symbol("apache.org:selector-filter:string"), "odd AND number >= 0")}


def partition(index: int) -> dict[str, Any]:
    return {"share": Described(Symbol("onceway:partition"), [index, 2])}


def message(number: int, size: int = 0) -> Message:
    properties = Properties(message_id=number, group_id=f"g{number % GROUPS}")
    odd = {"odd": number % 2 == 1, "number": number}
    return Message(b"x" * size, properties=properties, application_properties=odd)


class Load:
    """What was handed to each receiver, in order, and published meanwhile."""

    def __init__(self) -> None:
        self.got: dict[str, list[int]] = defaultdict(list)
        self.published = 0
        self.halfway = asyncio.Event()
        self.reached: dict[int, asyncio.Event] = defaultdict(asyncio.Event)  # that many are published

    async def receive(self, name: str, subscriber: onceway.Subscriber) -> None:
        async for batch in subscriber.batches(max_messages=10):
            self.got[name] += [delivery.message.properties.message_id for delivery in batch]
            await batch.accept()

    async def publish(self, publisher: onceway.Publisher, count: int, size: int = 0) -> None:
        """At some hundred messages a second, the second half after the first fault. Every one of them is accepted."""
        under_way = []
        for number in range(count):
            if number == count // 2:
                await self.halfway.wait()
            under_way.append(await publisher.put(message(number, size)))
            self.published += 1
            self.reached[self.published].set()
            await asyncio.sleep(2.0 / count)
        for one in under_way:
            await one


def start(directory: Path) -> tuple[LiveNetwork, dict[str, int]]:
    timeout = {"subscription_timeout": "30s"}
    addresses = [{"match": name, "type": "queue", **timeout} for name in ("jobs", "watched")] + [
        {"match": "*", **timeout}
    ]
    network = LiveNetwork(directory, NAMES, [("a", "b"), ("b", "c"), ("a", "c")], addresses, PATIENT)
    document, ports = network.topology(), {name: free_port() for name in NAMES}
    for name, port in ports.items():
        document["routers"][name]["ws"] = port
    network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
    return network, ports


def seen_by_a_browser(address: str) -> set[int]:
    from proton.reactor import Copy
    from proton.utils import BlockingConnection

    connection = BlockingConnection(address, timeout=30)
    try:
        browser = connection.create_receiver("watched", options=Copy())
        browser.link.drain(2 * WAITING)
        connection.wait(lambda: not browser.link.credit, timeout=30)
        numbers = [message.id for message, _ in browser.fetcher.incoming]
    finally:
        connection.close()
    assert len(set(numbers)) == len(numbers), "none twice"
    return set(numbers)


@asynccontextmanager
async def receiving(load: Load, *subscribers: tuple[str, onceway.Subscriber]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(load.receive(name, each)) for name, each in subscribers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def story(network: LiveNetwork, ports: dict[str, int], load: Load) -> None:
    async with AsyncExitStack() as stack:

        async def connect(name: str, order: str, scheme: str = "amqp") -> onceway.Connection:
            urls = [network[each].url if scheme == "amqp" else f"ws://127.0.0.1:{ports[each]}" for each in order]
            connection = onceway.connect(",".join(urls), container=name, ordered=True, close_timeout_s=30)
            return await stack.enter_async_context(connection)

        one, other = await connect("one", "bca"), await connect("other", "cab")
        web, sends = await connect("web", "abc", "ws"), await connect("sends", "abc")
        receivers = [
            ("part 0", await one.subscriber("parts", filters=partition(0))),
            ("part 1", await other.subscriber("parts", filters=partition(1))),
            ("odd", await one.subscriber("chosen", filters=SELECTOR)),
            ("large", await other.subscriber("large", credit=5)),
            ("job one", await one.subscriber("jobs", credit=10)),
            ("job other", await other.subscriber("jobs", credit=10)),
            ("web", await web.subscriber("web")),
            ("plain", await other.subscriber("from web")),
        ]
        watched = await other.subscriber("watched", credit=1)  # it holds the first, and the others wait
        filling = await sends.publisher("watched")
        waiting = [await filling.put(message(number)) for number in range(WAITING)]
        async with receiving(load, *receivers):
            publishers = [(sends, name, COUNT, 0) for name in ("parts", "chosen", "jobs", "web")]
            publishers += [(sends, "large", LARGE_COUNT, LARGE), (web, "from web", COUNT, 0)]
            tasks = [
                asyncio.create_task(load.publish(await connection.publisher(address), count, size))
                for connection, address, count, size in publishers
            ]
            every = sum(count for _, _, count, _ in publishers)
            for names, published in (("a", every // 4), ("bc", every * 3 // 4)):
                await load.reached[published].wait()
                network.kill(*names)
                await asyncio.to_thread(network.start, *names, fresh=False)
                load.halfway.set()
                async with asyncio.timeout(30):  # until the publisher has sent again what its router had
                    while await asyncio.to_thread(seen_by_a_browser, network[names[0]].address) != {*range(1, WAITING)}:
                        pass
            await asyncio.gather(*tasks)
        async with receiving(load, ("watched", watched)):
            for one in waiting:
                await one


def test_every_kind_of_link_loses_and_repeats_nothing_while_routers_are_killed(tmp_path: Path) -> None:
    network, ports = start(tmp_path)
    load = Load()
    with network:
        network.start()
        asyncio.run(story(network, ports, load))
    got = load.got
    everything, once = set(range(COUNT)), dict.fromkeys(range(COUNT), 1)
    assert Counter(got["part 0"] + got["part 1"]) == once
    assert {number % GROUPS for number in got["part 0"]}.isdisjoint(number % GROUPS for number in got["part 1"])
    assert all(got[name] == sorted(got[name]) for name in ("part 0", "part 1")), "the publisher's order"
    assert got["odd"] == sorted(number for number in everything if number % 2)
    assert got["large"] == [*range(LARGE_COUNT)]
    assert (got["web"], got["plain"]) == (sorted(everything), sorted(everything))
    assert Counter(got["job one"] + got["job other"]) == once
    assert got["watched"] == [*range(WAITING)]
    for group in range(GROUPS):
        shares = [[n for n in got[name] if n % GROUPS == group] for name in ("job one", "job other")]
        assert sorted(map(len, shares)) == [0, COUNT // GROUPS], "a group stays with its consumer"
        assert sorted(shares[0] + shares[1]) == shares[0] + shares[1]
