"""The management node: a request that meets an error that nobody expects is answered, and ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from amqp10.sections import Message
from onceway.operate.node.node import Node
from router.border import Border
from router.links.management import Request
from router.policies import Identity
from tests.router.borders import Broken, Idle, Told


def test_request_that_meets_an_error_is_answered_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told, answers = Told(), []
    router = SimpleNamespace(border=Border(Idle(), told), management=None)

    def operate(work: Callable[[Any], object]) -> None:
        work(router)

    node = Node(SimpleNamespace(router=router, operate=operate), SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]

    async def broken(*_: object) -> Message:
        raise Broken

    async def ask() -> None:
        answered = asyncio.Event()

        def answer(told: bytes) -> None:
            answers.append(Message.decode(told))
            answered.set()

        node.ask(Request(Identity("bob"), Message(application_properties={"operation": "QUERY"}), answer))
        await asyncio.wait_for(answered.wait(), 10)
        await node.stop()

    monkeypatch.setattr(node, "_do", broken)
    asyncio.run(ask())
    assert [answer.application_properties["statusCode"] for answer in answers] == [500]
    assert [type(each["exc"]) for each in told.errors] == [Broken]
