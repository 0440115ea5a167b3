"""Topics that are deleted while the store is full, an edge dies, or another edge does not know them yet."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from edges.bus import registry
from edges.bus.core import Bus
from edges.bus.edge import Edge
from edges.bus.options import BusOptions
from edges.bus.registry import SUBSCRIBERS, Missing, Registry
from edges.bus.rules import Wish
from edges.bus.server import BusServer
from edges.store import Batch, StoreFull
from tests.edges.bus.test_shares import Line, lines
from tests.serving import until

pytestmark = pytest.mark.filterwarnings("ignore:It is recommended to use web.RequestKey")
__all__ = ["lines"]
PAGES = ("/subscriptions", "/topics", "/metrics", "/")
WISH = Wish(("orders",), "https://mail.example", "secret", 0, 100)


async def subscribed(registry: Registry, bus: Bus) -> None:
    """`mail` is subscribed to the topic of `shop`."""
    await registry.claim("orders", "shop", "shop")
    await registry.change("mail", lambda: bus.change("mail", "mail", WISH), topics=["orders"])


async def other_edge(edge: Edge) -> tuple[Registry, Bus]:
    """Another edge's view of the store, as it is now."""
    bus = Bus(edge.bus._rng)

    async def look(topic: str) -> None:
        bus.arrived(topic, (await edge.store.bounds(registry.EVENTS + topic)).next, 0.0)

    made = Registry(edge.store, bus, look, lambda: None, shared=True)
    await made.load()
    return made, bus


@pytest.mark.parametrize("share", [False, True])
async def test_a_topic_is_deleted_while_no_subscription_can_be_written(
    tmp_path: Path, lines: list[Line], share: bool
) -> None:
    edge = Edge(BusOptions(str(tmp_path / "store"), "", share=share))
    await edge.start()
    await subscribed(edge.registry, edge.bus)
    commit = edge.store.commit

    def full(batch: Batch, **options: Any) -> Awaitable[Any]:
        if any(key.startswith(SUBSCRIBERS) for key in batch.values):
            raise StoreFull("the disk of the database is full")
        return commit(batch, **options)

    edge.store.commit = full  # type: ignore[method-assign]
    await edge.registry.delete_topic("orders", lambda topic: True)
    assert edge.bus.topics_of(edge.bus.subscribers["mail"]) == []
    with pytest.raises(StoreFull):  # nobody gets a topic whose events would go to who was subscribed to another
        await edge.registry.claim("orders", "thief", "thief")
    if share:
        end = (await edge.store.bounds(registry.CHANGES)).next
        await until(lambda: edge.registry._seen == end, "the edge has read its own changes")
    assert not edge.failed.done()
    edge.store.commit = commit  # type: ignore[method-assign]
    await edge.registry.claim("orders", "thief", "thief")
    assert edge.bus.topics_of(edge.bus.subscribers["mail"]) == []
    await edge.stop()


async def test_who_was_subscribed_to_a_topic_that_an_edge_deleted_and_died_is_not_to_the_next_one(
    tmp_path: Path, lines: list[Line]
) -> None:
    edge = Edge(BusOptions(str(tmp_path / "store"), ""))
    await edge.start()
    await subscribed(edge.registry, edge.bus)
    batch = Batch()
    batch.delete(registry.TOPICS + "orders")
    await edge.store.commit(batch)
    await edge.stop()
    edge = Edge(BusOptions(str(tmp_path / "store"), ""))
    await edge.start()
    mail = edge.bus.subscribers["mail"]
    assert edge.bus.topics_of(mail) == []
    await edge.registry.claim("orders", "other", "other")
    assert edge.bus.topics_of(mail) == []
    await edge.stop()


async def test_what_is_asked_about_topics_and_tokens_that_there_are_not_leaves_nothing(tmp_path: Path) -> None:
    edge = Edge(BusOptions(str(tmp_path / "store"), ""))
    await edge.start()
    for number in range(100):
        with pytest.raises(Missing):
            await edge.registry.delete_topic(f"{number}", lambda _: True)
        await edge.registry.delete_token(f"{number}")
    assert not len(edge.registry._turns)
    await edge.stop()


async def test_an_edge_that_gets_a_role_leaves_topics_that_it_does_not_know_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[Line]
) -> None:
    monkeypatch.setattr("edges.bus.edge.TICK_S", 3600.0)  # this test ticks

    async def slow(self: Registry) -> None:
        """It reads the changes later."""

    monkeypatch.setattr(Registry, "follow", slow)
    edge = Edge(BusOptions(str(tmp_path / "store"), "", share=True))
    await edge.start()
    await subscribed(*await other_edge(edge))
    edge._served.clear()
    await edge._tick(edge._shares)
    assert "mail" in edge.bus.subscribers
    await edge.registry.current()
    _, bus = await other_edge(edge)
    for known in (edge.bus, bus):
        assert known.topics_of(known.subscribers["mail"]) == ["orders"]
    await edge.stop()


async def test_call_backs_that_a_later_bus_does_not_call_are_told_at_its_start(
    tmp_path: Path, lines: list[Line], caplog: pytest.LogCaptureFixture
) -> None:
    """They were taken before the bus looked at addresses, or while more were allowed."""
    for start in range(2):
        edge = Edge(BusOptions(str(tmp_path / "store"), ""))
        await edge.start()
        if start == 0:
            await edge.registry.claim("orders", "shop", "shop")
            for name, callback in (("in", "https://10.0.0.7/hook"), ("out", "https://mail.example/hook")):
                await edge.registry.change(
                    name, partial(edge.bus.change, name, name, replace(WISH, callback=callback)), topics=["orders"]
                )
        await edge.stop()
    told = [each.getMessage() for each in caplog.records if "--callback-allow" in each.getMessage()]
    assert len(told) == 1
    assert "https://10.0.0.7/hook" in told[0]
    assert "https://mail.example" not in told[0]


async def test_no_page_shows_what_is_secret_of_a_subscription(tmp_path: Path, lines: list[Line]) -> None:
    edge = Edge(BusOptions(str(tmp_path / "store"), "", root_key="key"))
    await edge.start()
    await subscribed(edge.registry, edge.bus)
    server = BusServer(edge)
    port = await server.start("127.0.0.1", 0)
    other = await edge.registry.create_token("other", None)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        shown = {path: await client.get(f"http://127.0.0.1:{port}{path}", auth=("key", "")) for path in PAGES}
        seen = {path: await client.get(f"http://127.0.0.1:{port}{path}", auth=(other, "")) for path in PAGES}
    await server.stop()
    await edge.stop()
    assert {answer.status_code for answer in shown.values()} == {200}
    assert '"callback": "https://mail.example"' in shown["/subscriptions"].text
    assert [path for path, answer in shown.items() if "secret" in answer.text] == ["/subscriptions"]
    assert not [path for path, answer in seen.items() if "secret" in answer.text]
