"""Processes that are stopped for longer than the network waits for them, and go on: a client's, and a router's."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import onceway
from onceway.client.clock import now_s
from tests.live import LiveNetwork, dying_with_us, wait_until
from tests.live_fixture import LiveNetworks

BOUND_S = 240.0
T = TypeVar("T")
# As short as leaves those time who are not stopped by us, on a machine that does much else.
SHORT = {"subscription_timeout": "8s", "publisher_timeout": "13s", "idle_timeout": "3s"}
STOPPED_S = 16.0  # longer than anybody is waited for

PUBLISHER = """
import asyncio, sys
import onceway
from onceway.errors import DeliveryUndecided

async def main():
    def told(report):
        print("undecided", *[number for number, _ in report.publications], flush=True)

    async with onceway.connect(sys.argv[1], container="stopped", ordered=True) as connection:
        publisher = await connection.publisher("orders", on_undecided=told)
        first = await publisher.put(b"first")
        print("put", flush=True)
        try:
            await first
            print("accepted", flush=True)
        except DeliveryUndecided:
            pass
        await publisher.send(b"second")

asyncio.run(main())
"""


def known(network: LiveNetwork) -> int:
    return sum(router.status()["addresses"]["orders"]["publishers_known"] for router in network)


def attached(network: LiveNetwork, router: str) -> int:
    return len(network[router].status()["addresses"]["orders"]["ingress"]["publishers"])


def test_a_publisher_that_stood_still_for_too_long_sends_nothing_again(live_network: LiveNetworks) -> None:
    """What its router had written to it before lies in its socket, to be read when it goes on."""
    network = live_network("a", "b", links=[("a", "b")], settings=SHORT)

    async def scene() -> list[str]:
        command = [sys.executable, "-c", PUBLISHER, network.urls("a", "b")]
        async with onceway.connect(network.urls("b"), container="watch") as connection:
            subscriber = await connection.subscriber("orders")
            process = await asyncio.create_subprocess_exec(*dying_with_us(command), stdout=asyncio.subprocess.PIPE)
            try:
                first = await subscriber.receive()
                assert first.body == b"first"
                os.kill(process.pid, signal.SIGSTOP)
                await asyncio.to_thread(wait_until, lambda: not attached(network, "a"), "its router gives it up")
                await first.accept()
                await asyncio.to_thread(wait_until, lambda: not known(network), "the network forgets it")
                os.kill(process.pid, signal.SIGCONT)
                second = await subscriber.receive()
                assert second.body == b"second"
                await second.accept()
                said, _ = await process.communicate()
                assert process.returncode == 0
                assert subscriber.waiting == 0
                return said.decode().split("\n")
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    assert bounded(scene) == ["put", "undecided 0", ""]


def test_a_router_that_stood_still_for_too_long_loses_and_repeats_nothing(live_network: LiveNetworks) -> None:
    """One publisher leaves it for another router; one waits for it all the time, with what it has put in its socket."""
    network = live_network("a", "b", links=[("a", "b")], settings=SHORT)
    sent: list[bytes] = []
    received: list[object] = []

    async def take(subscriber: onceway.Subscriber) -> None:
        async for delivery in subscriber:
            received.append(delivery.body)
            await delivery.accept()

    async def scene() -> None:
        async with (
            onceway.connect(network.urls("b"), container="watch") as at_b,
            onceway.connect(network.urls("a", "b"), container="leaves", ordered=True, idle_timeout_s=3.0) as leaving,
            onceway.connect(network.urls("a"), container="waits", idle_timeout_s=60.0) as waiting,
        ):
            taking = asyncio.create_task(take(await at_b.subscriber("orders")))
            leaver = await leaving.publisher("orders")
            waiter = await waiting.publisher("orders")
            await waiter.send(b"waits 0")
            network.pause("a")
            left_alone_until = now_s() + STOPPED_S
            put = [await waiter.put(b"waits %d" % number) for number in (1, 2)]
            while now_s() < left_alone_until:
                sent.append(b"leaves %d" % len(sent))
                await leaver.send(sent[-1])
            assert leaving.router == "b"
            assert received == [b"waits 0", *sent]
            network.resume("a")
            for publication in put:
                await publication
            await asyncio.to_thread(network.wait_ready, "a", "b")
            sent.append(b"leaves %d" % len(sent))
            await leaver.send(sent[-1])
            taking.cancel()

    bounded(scene)
    assert [body for body in received if body in sent] == sent
    assert [body for body in received if body not in sent] == [b"waits 0", b"waits 1", b"waits 2"]
    wait_until(lambda: not any(router.leftovers() for router in network), "nothing is left over")


def bounded(scene: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        async with asyncio.timeout(BOUND_S):
            return await scene()

    return asyncio.run(run())
