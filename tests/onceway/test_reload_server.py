"""A router that is told of a changed topology file while messages flow: nobody is disconnected, nothing is late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import yaml

import onceway
from onceway import topology
from onceway.client.reports import RouterLost
from onceway.serve.server import RouterServer
from tests.live import free_port
from tests.serving import until

EVERY_S = 0.002


def first_file() -> dict[str, Any]:
    return {
        "network": "test",
        "settings": {"memory_limit": "64MiB", "max_message_size": "1MiB"},
        "addresses": [{"match": "orders"}],
        "routers": {n: {k: free_port() for k in ("amqp", "interrouter", "admin")} for n in "abcd"},
        "links": ["a - b", "b - c", "b - d"],
    }


def load(file: dict[str, Any]) -> topology.Topology:
    return topology.loads(yaml.safe_dump(file))


class Flow:
    """Messages from a to c: how long each was under way."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.sent = 0
        self.lost: list[object] = []

    async def publish(self, connection: onceway.Connection) -> None:
        publisher = await connection.publisher("orders")
        while True:
            await publisher.put(f"{self.sent} {time.monotonic()}".encode())
            self.sent += 1
            await asyncio.sleep(EVERY_S)

    async def receive(self, connection: onceway.Connection, ready: asyncio.Event) -> None:
        subscriber = await connection.subscriber("orders")
        ready.set()
        while True:
            delivery = await subscriber.receive()
            assert isinstance(delivery.body, bytes)
            number, at = delivery.body.split()
            assert int(number) == len(self.delays), "a message is lost, or comes twice, or in another order"
            self.delays.append(time.monotonic() - float(at))
            await delivery.accept()

    def heard(self, report: object) -> None:
        if isinstance(report, RouterLost):
            self.lost.append(report)

    async def more(self, count: int = 100) -> None:
        wanted = self.sent + count
        await until(lambda: len(self.delays) >= wanted, f"{wanted} messages")


@asynccontextmanager
async def flowing(servers: dict[str, RouterServer]) -> AsyncIterator[Flow]:
    flow = Flow()

    def url(name: str) -> str:
        return servers[name].topology.urls([name])

    async with (
        onceway.connect(url("a"), on_report=flow.heard) as one,
        onceway.connect(url("c"), on_report=flow.heard) as other,
    ):
        ready = asyncio.Event()
        tasks = [asyncio.create_task(flow.receive(other, ready))]
        await ready.wait()
        tasks.insert(0, asyncio.create_task(flow.publish(one)))
        try:
            yield flow
            tasks[0].cancel()
            await until(lambda: len(flow.delays) >= flow.sent, "the last messages")
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result


async def started(file: dict[str, Any], names: str) -> dict[str, RouterServer]:
    servers = {name: RouterServer(load(file), name, fresh=True) for name in names}
    for server in servers.values():
        await server.start()
    await until(
        lambda: all(len(s.router.core.members.up) == len(names) - 1 for s in servers.values()), "all to be in session"
    )
    await until(
        lambda: all(s.router.core.recovery.established for s in servers.values()), "the routers to be established"
    )
    return servers


async def test_each_kind_of_change_under_load_disconnects_and_delays_nobody() -> None:
    file = first_file()
    servers = await started(file, "abcd")
    sessions = {name: dict(server.router.core.members.up) for name, server in servers.items()}
    longest: dict[str, float] = {}

    async def change(what: str, *names: str) -> None:
        before = len(flow.delays)
        for name in names or servers:
            servers[name].reload(load(file))
            await asyncio.sleep(0.01)  # files differ for a moment
        await flow.more()
        longest[what] = max(flow.delays[before:])

    async with flowing(servers) as flow:
        await flow.more()
        file["settings"] |= {"memory_limit": "32MiB", "window_messages": 500, "heartbeat": "300ms"}
        await change("settings")
        file["limits"] = {"connections": 5, "links": 3}
        await change("limits")
        file["addresses"] = [
            {"match": "orders", "subscription_timeout": "30s", "max_redeliveries": 2},
            {"match": "new*"},
        ]
        await change("addresses")
        file["links"] = ["a - c", "b - c", "c - d"]
        await change("links")
        await until(lambda: servers["a"].network.status()["neighbours"].keys() == {"c"}, "a's links to be changed")
        await flow.more()
        assert {name: dict(server.router.core.members.up) for name, server in servers.items()} == sessions

        file["routers"]["e"] = {k: free_port() for k in ("amqp", "interrouter", "admin")}
        file["links"].append("c - e")
        await change("added router")
        servers["e"] = RouterServer(load(file), "e")
        await servers["e"].start()
        await until(lambda: servers["e"].router.core.recovery.established, "the added router to be established")
        assert servers["a"].router.core.members.together_since <= time.monotonic()

        del file["routers"]["d"]
        file["links"].remove("c - d")
        gone = servers.pop("d")
        await gone.stop(1.0)
        await change("removed router")
        assert servers["a"].router.core.members.together_since <= time.monotonic()
        assert flow.lost == []
    print({what: f"{delay * 1000:.0f} ms" for what, delay in longest.items()})
    await asyncio.gather(*(server.stop(0.0) for server in servers.values()))


async def test_a_link_that_is_dialled_elsewhere_is_found_when_it_breaks() -> None:
    file = first_file()
    file["routers"] = {name: file["routers"][name] for name in "ab"}
    file["links"] = [{"between": ["a", "b"], "via": free_port()}]
    servers = {name: RouterServer(load(file), name, fresh=True) for name in "ab"}
    for server in servers.values():
        await server.start()
    file["links"] = ["a - b"]
    servers["a"].reload(load(file))
    await until(lambda: "b" in servers["a"].router.core.members.up, "the session with b")
    await asyncio.gather(*(server.stop(0.0) for server in servers.values()))
