"""The management node: a request that meets an error that nobody expects is answered, and ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from amqp10.sections import AmqpValue, Message
from chaos.fuzz.page_costs import Served, turns_of
from onceway.operate.node.entities import Steps
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


def query(served: Served, **given: int) -> Message:
    asked = Message(
        AmqpValue({"attributeNames": ["name"]}),
        application_properties={"operation": "QUERY", "entityType": "onceway.address", **given},
    )
    found: list[bytes] = []

    async def ask() -> None:
        found.append(await served.node._answer(Identity("bob"), asked))

    for turn in turns_of(ask()):
        turn()
    return Message.decode(found[0])


def test_a_query_is_answered_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(600)
    names = sorted(f"a{n}" for n in range(600))
    whole = query(served).value
    assert [name for (name,) in whole["results"]] == names
    assert whole["count"] == 600
    page = query(served, offset=500, count=50).value
    assert [name for (name,) in page["results"]] == names[500:550]
    assert query(served, offset=550, count=500).value["count"] == 50
    assert query(served, offset=5_000).value["results"] == []
    monkeypatch.setattr("onceway.operate.node.node.MOST", 500)
    refused = query(served).application_properties
    assert refused is not None
    assert refused["statusCode"] == 400
    assert refused["statusDescription"] == "there are 600 of them: ask for at most 500, with offset and count"
    assert query(served, count=500).value["count"] == 500
    monkeypatch.setattr("onceway.operate.node.node.MOST_OCTETS", 500)
    refused = query(served, count=500).application_properties
    assert refused is not None
    assert "take more than 500 octets: ask for fewer" in refused["statusDescription"]


def test_a_page_of_all_types_makes_none_of_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(10)
    asked: list[str] = []
    of = served.node._entities.of

    def noted(kind: str) -> Steps:
        asked.append(kind)
        return of(kind)

    monkeypatch.setattr(served.node._entities, "of", noted)
    kinds = [f"onceway.{kind}" for kind in ("router", "listener", "address")]

    def rows(start: int, stop: int | None) -> int:
        steps = served.node._rows(kinds, ["name"], start, stop)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return int(end.value[1])

    assert rows(0, 1) == 1
    assert asked == ["router"]
    asked.clear()
    everything = rows(0, None)
    assert asked == ["router", "listener", "address"]
    assert rows(1, None) == everything - 1
    assert sum(rows(at, at + 4) for at in range(0, everything, 4)) == everything
