"""Who has which role, in virtual time: how soon the roles of an edge that died are taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from edges.bus import shares
from edges.bus.edge import Edge, Unavailable
from edges.bus.options import BusOptions
from edges.bus.shares import NETWORK, SLOTS, TICK_S, Shares, slot_of
from edges.store import Batch, Committed, Conflict, Store, StoreError, StoreFull, open_store
from edges.store.embedded import EmbeddedStore
from onceway.errors import DeliveryRejected
from tests.serving import until

TAKEN_S = 5.0  # after a death, others have its roles


class Clock:
    """The time that edges see, and edges that tick by it."""

    def __init__(self) -> None:
        self.now = 100.0
        self._next: dict[Shares, float] = {}

    def monotonic(self) -> float:
        return self.now

    def start(self, edge: Shares) -> Shares:
        self._next[edge] = self.now
        return edge

    def die(self, edge: Shares) -> None:
        del self._next[edge]

    async def until(self, end: float) -> None:
        while (at := min(self._next.values())) <= end:
            self.now = at
            for edge in [each for each, due in self._next.items() if due == at]:
                await edge.tick(connected=True, idle=lambda _: True)
                self._next[edge] = at + TICK_S
        self.now = end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(shares, "time", made)
    return made


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    store = open_store(str(path / "store"))
    yield store
    await store.close()


async def test_edges_share_the_slots_evenly_and_one_has_the_network(clock: Clock, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        edges = [clock.start(Shares(store, name)) for name in "ab"]
        await clock.until(clock.now + 5)
        assert sorted(len(edge.held - {NETWORK}) for edge in edges) == [SLOTS // 2, SLOTS // 2]
        assert [NETWORK in edge.held for edge in edges].count(True) == 1
        assert not edges[0].held & edges[1].held


@pytest.mark.parametrize("phase", [0.0, 0.1, 0.25, 0.4])
async def test_within_5_s_of_its_death_others_have_the_roles_of_an_edge(
    clock: Clock, tmp_path: Path, phase: float
) -> None:
    async with opened(tmp_path) as store:
        dying = clock.start(Shares(store, "a"))
        await clock.until(clock.now + phase)
        living = [clock.start(Shares(store, name)) for name in "bc"]
        await clock.until(clock.now + 10)
        roles = set(dying.held)
        assert roles
        clock.die(dying)
        await clock.until(clock.now + TAKEN_S)
        assert roles <= living[0].held | living[1].held
        assert len(living[0].held | living[1].held) == SLOTS + 1


async def test_an_edge_that_was_held_up_writes_nothing_in_roles_that_others_have(clock: Clock, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        a, b = Shares(store, "a"), Shares(store, "b")
        clock.start(a)
        clock.start(b)
        await clock.until(clock.now + 5)
        lost = sorted(a.held)[0]
        assert a.on_time()
        clock.die(a)
        await clock.until(clock.now + TAKEN_S)
        assert not a.on_time()
        batch = Batch()
        batch.expect(*a.fence(lost))
        batch.append("s", [b"late"])
        with pytest.raises(Conflict, match=lost):
            await store.commit(batch)
        clock.start(a)
        await clock.until(clock.now + 5)
        assert not a.held & b.held


async def test_an_edge_that_the_network_does_not_hear_says_so_and_gives_its_role_to_another(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        a, b = Shares(store, "a"), Shares(store, "b")
        await a.tick(connected=True, idle=lambda _: True)
        await a.say_attached()
        for connected in (True, False, True):
            await a.tick(connected=connected, idle=lambda _: True)
            assert (a.attached, NETWORK in a.held) == (connected, True)  # there is nobody else
        await b.tick(connected=True, idle=lambda _: True)
        await a.tick(connected=False, idle=lambda _: True)
        await b.tick(connected=True, idle=lambda _: True)
        assert (NETWORK in a.held, NETWORK in b.held) == (False, True)


def test_the_slot_of_a_subscriber_is_a_role() -> None:
    assert {slot_of(f"client--{number}") for number in range(1000)} == {
        f"{shares.ROLES}{number:02d}" for number in range(SLOTS)
    }


class Line:
    """A connection to a router that may be away; nothing comes."""

    router: str | None = "a"  # of all connections

    def __init__(self, opened: list[Line]) -> None:
        self._opened = opened

    async def __aenter__(self) -> Self:
        self._opened.append(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._opened.remove(self)

    async def publisher(self, address: str, **options: Any) -> Self:
        return self

    async def put(self, body: bytes) -> Awaitable[None]:
        raise DeliveryRejected("a subscriber of the address refuses it")

    async def subscriber(self, address: str, **options: Any) -> Self:
        return self

    async def batches(self, **options: Any) -> AsyncIterator[None]:
        await asyncio.Future()
        yield


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """Those on which an edge is subscribed for the bus."""
    monkeypatch.setattr("edges.bus.edge.AGAIN_S", 0.0)
    subscribed: list[Line] = []

    def connect(edge: Edge, journal: object, *container: str) -> Line:
        return Line([] if journal is None else subscribed)

    monkeypatch.setattr(Edge, "_connect", connect)
    return subscribed


async def test_an_edge_that_gave_the_networks_role_away_and_has_it_again_takes_pushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[Line]
) -> None:
    """A router was away for a moment, and no other edge was quicker."""
    monkeypatch.setattr("edges.bus.edge.TICK_S", 3600.0)  # this test ticks
    edge = Edge(BusOptions(str(tmp_path / "store"), "", share=True))
    await edge.start()
    roles = edge._shares
    await Shares(edge.store, "b").tick(connected=False, idle=lambda _: True)
    await until(lambda: edge._connection is not None, "the edge is at the router")
    await edge._tick(roles)
    await until(lambda: lines, "the edge subscribes for the bus")
    await edge._tick(roles)
    assert edge.why_unable() is None
    monkeypatch.setattr(Line, "router", None)
    await edge._tick(roles)
    assert NETWORK not in roles.held
    await until(lambda: not lines, "the link that may be another edge's is given up")
    monkeypatch.setattr(Line, "router", "a")
    await edge._tick(roles)
    await until(lambda: lines, "the edge subscribes again")
    await edge._tick(roles)
    assert edge.why_unable() is None
    await edge.stop()


def test_an_edge_whose_store_is_full_starts_goes_on_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[Line]
) -> None:
    monkeypatch.setattr("edges.bus.edge.TICK_S", 0.01)
    full, refused, commit = True, 0, EmbeddedStore.commit

    def commit_if_there_is_room(store: EmbeddedStore, batch: Batch, **options: Any) -> asyncio.Future[Committed]:
        nonlocal refused
        if full:
            refused += 1
            raise StoreFull("the disk of the database is full")
        return commit(store, batch, **options)

    monkeypatch.setattr(EmbeddedStore, "commit", commit_if_there_is_room)

    async def go() -> None:
        nonlocal full, refused
        edge = Edge(BusOptions(str(tmp_path / "store"), "", share=True))
        await edge.start()
        roles = edge._shares
        assert edge.why_unable() is not None
        for _ in range(2):
            full, beaten = False, roles._beat_at
            await until(lambda: roles._beat_at > beaten, "the edge beats again")  # noqa: B023
            await until(lambda: edge.why_unable() is None, "the edge works")
            full, refused = True, 0
            await until(lambda: refused, "a beat is refused")  # noqa: B023
        await edge.stop()
        with pytest.raises(StoreError, match="is closed"):
            await edge.store.get("")

    asyncio.run(go())


async def test_a_push_that_a_foreign_subscriber_rejects_breaks_no_other(tmp_path: Path, lines: list[Line]) -> None:
    edge = Edge(BusOptions(str(tmp_path / "store"), "", share=True))
    await edge.start()
    await until(lambda: edge.why_unable() is None, "the edge works")
    with pytest.raises(Unavailable, match="refuses it; the event may still come"):
        await edge.push("token", "shop", "orders", {"type": "noop", "url": "https://shop.example/1"})
    assert not edge._broken.done()  # or each push that is under way would be refused
    await edge.stop()
