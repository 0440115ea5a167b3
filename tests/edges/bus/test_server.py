"""What requests are answered with in states that a live bus is seldom in."""

from __future__ import annotations

import asyncio
import random
import re
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from edges.bus import server
from edges.bus.core import Bus, Topic
from edges.bus.metrics import BusMetrics
from edges.bus.options import BusOptions
from edges.bus.rules import Wish
from onceway.base import waits
from onceway.base.loop import run
from tests.edges.bus.described import judge
from tests.serving import until

pytestmark = pytest.mark.filterwarnings("ignore:It is recommended to use web.RequestKey")


async def ask_with(due: int) -> float:
    """How long the answer takes while so many batches are due."""
    bus = Bus(random.Random(1))
    bus.make_topic("t", Topic("owner", "owner", 0))
    for number in range(due):
        bus.change(f"s{number}", "s", Wish(("t",), "https://x/", "u", 0, 10))
    bus.arrived("t", 1, time.monotonic())

    async def current() -> None:
        pass

    registry = SimpleNamespace(tokens={"token": "name"}, current=current)
    edge: Any = SimpleNamespace(
        bus=bus, registry=registry, options=BusOptions("", "", root_key="key"), metrics=BusMetrics()
    )
    serving = server.BusServer(edge)
    port = await serving.start("127.0.0.1", 0)
    began = asyncio.get_running_loop().time()
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(f"http://127.0.0.1:{port}/pulse/scaling", auth=("token", ""))
    took = asyncio.get_running_loop().time() - began
    await serving.stop()
    assert answer.status_code == 204
    return took


def test_the_answer_takes_a_second_when_a_hundred_batches_are_due() -> None:
    assert run(ask_with(100)) >= 1.0


def test_the_answer_comes_at_once_when_fewer_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SCALING_PAUSE_S", 1000.0)  # it would be an error of the client
    run(ask_with(99))


async def test_clients_that_come_at_once_and_whose_pushes_wait_are_no_strangers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onceway.access.accepting.MOST_CONNECTIONS", 3)

    async def current() -> None:
        pass

    waiting, stored = 0, asyncio.Event()

    async def push(*what: object) -> None:
        nonlocal waiting
        waiting += 1
        await stored.wait()

    registry = SimpleNamespace(tokens={"token": "name"}, current=current)
    edge: Any = SimpleNamespace(
        registry=registry, options=BusOptions("", "", root_key="key"), push=push, metrics=BusMetrics()
    )
    serving = server.BusServer(edge)
    port = await serving.start("127.0.0.1", 0)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        place = f"http://127.0.0.1:{port}/topics/orders"
        ask = [asyncio.create_task(client.post(place, auth=("token", ""), json={})) for _ in range(9)]
        await until(lambda: waiting == 9, "all are taken")
        stored.set()
        assert [(await each).status_code for each in ask] == [204] * 9
    await serving.stop()


def test_a_store_that_does_not_answer_is_503_and_a_pulse_of_500(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everywhere, and as it is described."""
    monkeypatch.setattr(waits, "BUS_STORE", replace(waits.BUS_STORE, bound=0.01))

    async def current() -> None:
        await asyncio.Future()

    store = SimpleNamespace(place="postgresql://db/bus")
    registry = SimpleNamespace(tokens={}, current=current)
    edge: Any = SimpleNamespace(
        registry=registry,
        options=BusOptions("postgresql://db/bus", "", root_key="key"),
        store=store,
        metrics=BusMetrics(),
    )

    async def ask() -> dict[tuple[str, str], int]:
        serving = server.BusServer(edge)
        port = await serving.start("127.0.0.1", 0)
        found = {}
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            for route in serving._routes():
                path = re.sub(r"\{\w+\}", "a", route.path)
                answer = await client.request(route.method, f"http://127.0.0.1:{port}{path}", auth=("key", ""))
                assert answer.text == "the store does not answer: postgresql://db/bus\n"
                kind = answer.headers["Content-Type"]
                judge(route.method, path, None, answer.status_code, kind, answer.content)
                found[route.method, path] = answer.status_code
        await serving.stop()
        return found

    found = run(ask())
    assert found.pop(("GET", "/pulse")) == 500
    assert len(found) >= 18
    assert set(found.values()) == {503}


@pytest.mark.parametrize("shown", ["Basic \udcff", "Basic \u00e4", "Basic eA", "Basic /w==", "Basic 7aCA"])
def test_a_header_that_is_no_text_in_base64_names_nobody(shown: str) -> None:
    assert server._user(shown) is None
