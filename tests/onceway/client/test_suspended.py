"""A client's process that is stopped for longer than the network waits for it, and goes on (a router's:
tests/cli/test_up.py)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import onceway
from tests.live import LiveNetwork, dying_with_us, wait_until
from tests.live_fixture import LiveNetworks

BOUND_S = 240.0
T = TypeVar("T")
# As short as leaves those time who are not stopped by us, on a machine that does much else.
SHORT = {"subscription_timeout": "8s", "publisher_timeout": "13s", "idle_timeout": "3s"}

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


def bounded(scene: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        async with asyncio.timeout(BOUND_S):
            return await scene()

    return asyncio.run(run())
