"""The management node: a request that meets an error that nobody expects is answered, and ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from amqp10.decoder import decode_value
from amqp10.sections import AmqpValue, Message
from chaos.fuzz.page_costs import KINDS, Served, turns_of
from onceway.operate.node.entities import Entities, Making
from onceway.operate.node.node import Node
from router.border import Border
from router.core.reports import at_once
from router.links.management import Request
from router.policies import Identity
from tests.router.borders import Broken, Idle, Told


def test_request_that_meets_an_error_is_answered_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told, answers = Told(), []
    router = SimpleNamespace(border=Border(Idle(), told), nodes=SimpleNamespace(own=None))

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
    names = [f"a{n}" for n in range(600)]
    whole = query(served).value
    assert [name for (name,) in whole["results"]] == names
    assert whole["count"] == 600
    page = query(served, offset=500, count=50).value
    assert [name for (name,) in page["results"]] == names[500:550]
    assert query(served, offset=550, count=500).value["count"] == 50
    assert query(served, offset=5_000).value["results"] == []
    monkeypatch.setattr("onceway.operate.node.node.MOST", 500)
    refused = query(served).application_properties
    assert refused["statusCode"] == 400
    assert refused["statusDescription"] == "there are 600 of them: ask for at most 500, with offset and count"
    assert query(served, count=500).value["count"] == 500
    monkeypatch.setattr("onceway.operate.node.node.MOST_OCTETS", 500)
    refused = query(served, count=500).application_properties
    assert "take more than 500 octets: ask for fewer" in refused["statusDescription"]


def rows_of(served: Served, start: int, stop: int | None) -> list[Any]:
    rows, number = at_once(served.node._rows(KINDS, ["identity"], start, stop))
    found: list[Any] = decode_value(rows)[0]
    assert len(found) == number
    return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Types of the entities that were made."""
    found: list[str] = []
    make = Entities.make

    def noted(self: Entities, kind: str, owner: Any, part: Any) -> Making:
        found.append(kind)
        return make(self, kind, owner, part)

    monkeypatch.setattr(Entities, "make", noted)
    return found


def test_only_what_is_asked_for_is_made(made: list[str]) -> None:
    served = Served(300)
    everything = rows_of(served, 0, None)
    assert len(made) == len(everything)
    for at in range(0, len(everything), 50):
        made.clear()
        assert rows_of(served, at, at + 50) == everything[at : at + 50]
        assert len(made) == len(everything[at : at + 50])
    made.clear()
    assert at_once(served.node._rows(["onceway.router", "onceway.address"], ["name"], 0, 1))[1] == 1
    assert made == ["router"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_entity_that_a_query_finds_is_read_by_its_identity_and_name_without_the_others(
    kind: str, made: list[str]
) -> None:
    served = Served(120)
    rows = decode_value(at_once(served.node._rows([kind], ["identity", "name"], 0, None))[0])[0]
    for key, values in zip(("identity", "name"), zip(*rows, strict=True), strict=False):
        for value in values[::17]:
            made.clear()
            found = at_once(served.node._find([kind], key, value))
            assert found[key] == value
            assert len(made) <= 2, "their name of an address has a letter before ours"
            assert at_once(served.node._find([kind], key, f"{value}x")) is None
