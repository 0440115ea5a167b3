"""`onceway drain` against real routers: clients go elsewhere, and nothing is lost, repeated or late."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import onceway as client
from onceway.client.reports import RouterLost
from tests.cli.conftest import called, onceway
from tests.live import LiveNetwork, wait_until

STALL_S = 1.0
BOUND_S = 120.0


@pytest.fixture(scope="module")
def triangle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    links = [("a", "b"), ("b", "c"), ("a", "c")]
    with LiveNetwork(tmp_path_factory.mktemp("drain"), ["a", "b", "c"], links) as network:
        yield network.start()


def drain(network: LiveNetwork, *arguments: object) -> Any:
    return onceway("drain", *arguments, env={"ONCEWAY_STATE_DIR": str(network.directory / "state")})


def test_clients_of_a_drained_router_go_on_elsewhere(triangle: LiveNetwork) -> None:
    async def scene() -> None:
        lost: list[RouterLost] = []
        got: list[Any] = []
        waits: list[float] = []
        done = asyncio.Event()

        async def receive(subscriber: client.Subscriber) -> None:
            async for batch in subscriber.batches():
                got.extend(batch.bodies)
                await batch.accept()
                if got and got[-1] == b"end":
                    return

        async def send(publisher: client.Publisher) -> int:
            number = 0
            while not done.is_set():
                began = time.monotonic()
                await publisher.send(b"%d" % number)
                waits.append(time.monotonic() - began)
                number += 1
            await publisher.send(b"end")
            return number

        def note(report: Any) -> None:
            if isinstance(report, RouterLost):
                lost.append(report)

        urls = triangle.urls("a", "b", "c")
        async with (
            client.connect(urls, ordered=True, on_report=note) as one,
            client.connect(urls, ordered=True, on_report=note) as other,
        ):
            subscriber = await one.subscriber("orders")
            publisher = await other.publisher("orders")
            receiving, sending = asyncio.create_task(receive(subscriber)), asyncio.create_task(send(publisher))
            result = await asyncio.to_thread(drain, triangle, "a", "--timeout", "20")
            assert result.returncode == 0, result.stderr
            assert result.stdout.startswith("router a drained in ")
            assert "[a] draining, " in result.stderr
            count = len(waits)
            await asyncio.to_thread(wait_until, lambda: len(waits) >= count + 20, "messages after the drain")
            done.set()
            sent = await sending
            await receiving
            assert got == [*(b"%d" % number for number in range(sent)), b"end"]
            assert {one.router, other.router} <= {"b", "c"}
        assert [report.retry_in_s for report in lost] == [0.0, 0.0]
        assert max(waits) < STALL_S

    asyncio.run(asyncio.wait_for(scene(), BOUND_S))
    status = triangle["a"].status()
    assert (status["state"], status["connections"]) == ("drained", 0)
    assert not triangle["a"].ready()
    shown = called("status", triangle.topology_path)
    assert "drained" in shown.stdout
    assert shown.returncode == 1
    assert drain(triangle, "a", "--undo").stdout == "router a takes clients again\n"
    wait_until(triangle["a"].ready, "a ready again")
    again = drain(triangle, "a", "--undo")
    assert (again.returncode, again.stderr) == (1, "router a is not being drained\n")


def test_a_message_that_waits_for_an_absent_subscriber_does_not_hold_the_drain_up(
    triangle: LiveNetwork, tmp_path: Path
) -> None:
    async def scene() -> None:
        journal = tmp_path / "away.journal"
        async with client.connect(triangle.urls(), container="away", journal=journal) as away:
            await away.subscriber("lonely")
        async with client.connect(triangle.urls("b", "c"), container="p", ordered=True) as connection:
            publication = await (await connection.publisher("lonely")).put(b"x")
            await asyncio.to_thread(wait_until, lambda: triangle["b"].status()["records"]["owed"] == 1, "owed at b")
            result = await asyncio.to_thread(drain, triangle, "b", "--json")
            told = json.loads(result.stdout)
            assert (result.returncode, told["router"], told["state"], told["connections"]) == (0, "b", "drained", 0)
            assert (
                "lonely: publisher p/lonely was closed with deliveries without outcome: 1" in triangle["b"].log_tail()
            )
            async with client.connect(triangle.urls("c"), container="away", journal=journal) as away:
                async for delivery in await away.subscriber("lonely"):
                    await delivery.accept()
                    break
            await publication

    asyncio.run(asyncio.wait_for(scene(), BOUND_S))
    drain(triangle, "b", "--undo")


def test_proton_reconnects_by_itself_when_its_router_is_drained(triangle: LiveNetwork) -> None:
    from proton.handlers import MessagingHandler
    from proton.reactor import Container

    class Receiver(MessagingHandler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.at: list[str] = []

        def on_start(self, event: Any) -> None:
            urls = [triangle["c"].url, triangle["b"].url]
            event.container.create_receiver(event.container.connect(urls=urls), "elsewhere")

        def on_connection_opened(self, event: Any) -> None:
            self.at.append(event.connection.remote_container)
            if len(self.at) == 2:
                event.connection.close()

    receiver = Receiver()
    thread = threading.Thread(target=Container(receiver).run, daemon=True)
    thread.start()
    wait_until(lambda: receiver.at == ["c"], "proton at c")
    assert drain(triangle, "c").returncode == 0
    thread.join(BOUND_S)
    assert receiver.at == ["c", "b"]
    drain(triangle, "c", "--undo")


def test_a_router_that_is_not_here_is_named_with_those_that_are(triangle: LiveNetwork, tmp_path: Path) -> None:
    done = drain(triangle, "d")
    assert (done.returncode, done.stderr) == (2, 'no router "d" runs on this host; routers are a, b, c\n')
    done = called("drain", "a", "--state-dir", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tmp_path}: no router runs on this host with this state directory; run this on ")
    done = drain(triangle, "a", "--network", "other")
    assert done.returncode == 2
    assert 'no router of network "other" runs' in done.stderr
