"""Dialling over real sockets: a neighbour that does not answer, one with several addresses, and a resolver that is silent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
import uvloop

from chaos.live.ports import free_port
from onceway.serve import neighbours
from onceway.serve.neighbours import NeighbourCarrier
from onceway.serve.server import RouterServer
from tests.builds import puts_stand_ins
from tests.serving import Served, until

TOPOLOGY = """
network: dialled
defaults: {{host: 127.0.0.1}}
settings: {{heartbeat: 100ms, dead_after: 300ms, ready_when_isolated: true}}
routers:
  a: {{amqp: {}, interrouter: {}, admin: {}}}
  b: {{amqp: {}, interrouter: {}, admin: {}}}
links: [a - b]
"""


class Pair:
    """Two routers, of which a dials."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "topology.yaml"
        ports = [free_port() for _ in range(6)]
        self.dialled = ports[4]
        self.path.write_text(TOPOLOGY.format(*ports))

    @asynccontextmanager
    async def started(self, name: str, level: str = "info") -> AsyncIterator[Served]:
        served = Served(self.path, name, level=level)
        await served.start()
        try:
            yield served
        finally:
            await served.stop()

    def text(self, router: str) -> str:
        return (self.directory / f"{router}.log").read_text()

    def logged(self, event: str) -> list[str]:
        return [line for line in self.text("a").splitlines() if f"event={event}" in line]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@contextmanager
def black_hole(host: str, port: int) -> Iterator[None]:
    """A listener that the kernel answers for no more: its backlog is full."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect((host, port))
        yield
        for one in waiting:
            one.close()


def connected(*routers: Served) -> bool:
    return all(router.server.router.core.members.up for router in routers)


async def test_a_neighbour_that_does_not_answer_is_dialled_anew_and_told_once(pair: Pair) -> None:
    async with pair.started("a") as a:
        with black_hole("127.0.0.1", pair.dialled):
            await until(lambda: pair.logged("neighbour_unreachable"), "a to say so")
            began = a.server.neighbours._dialers["b"].dialing._began
            await until(lambda: a.server.neighbours._dialers["b"].dialing._began > began + 0.6, "the next attempts")
        (line,) = pair.logged("neighbour_unreachable")
        assert "no answer within 0.25 s" in line
        async with pair.started("b") as b:
            await until(lambda: connected(a, b), "the trunk")
        (line,) = pair.logged("neighbour_connected")
        assert "again" not in line
        async with pair.started("b") as b:
            await until(lambda: connected(a, b), "the trunk")
        assert " again after " in pair.logged("neighbour_connected")[1]


@puts_stand_ins
def test_a_connect_that_succeeds_as_its_time_is_over_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop closes the socket then, and does not tell who has been told that it is connected."""
    made = NeighbourCarrier.connection_made
    late: list[NeighbourCarrier] = []

    def connected_late(self: NeighbourCarrier, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        if self.neighbour == "b" and not late:
            late.append(self)
            limit = cast("RouterServer", self._server).neighbours._dialers["b"]._limit
            limit.reschedule(0)

    async def both() -> None:
        async with pair.started("b") as b, pair.started("a") as a:
            await until(lambda: connected(a, b), "the trunk")
            assert late[0].gone.is_set()
            assert late[0].transport is None

    monkeypatch.setattr(NeighbourCarrier, "connection_made", connected_late)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(both())


@puts_stand_ins
async def test_an_address_that_does_not_answer_gives_way_to_the_next(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolved(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.3", "127.0.0.1"]  # silent, refused, and the neighbour

    monkeypatch.setattr(neighbours, "_addresses_of", resolved)
    with black_hole("127.0.0.2", pair.dialled):
        async with pair.started("a") as a, pair.started("b") as b:
            await until(lambda: connected(a, b), "the trunk")


@puts_stand_ins
async def test_a_resolver_that_is_silent_is_asked_once_and_does_without(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, asked = asyncio.Event(), 0

    async def resolved(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        if silent.is_set():
            await asyncio.get_running_loop().create_future()
        return ["127.0.0.1"]

    monkeypatch.setattr(neighbours, "_addresses_of", resolved)
    async with pair.started("a") as a:
        async with pair.started("b") as b:
            await until(lambda: connected(a, b), "the trunk")
            before = asked
            silent.set()
        async with pair.started("b") as b:
            await until(lambda: connected(a, b), "the trunk, at the address from before")
        assert asked == before + 1


@puts_stand_ins
async def test_a_name_that_the_resolver_does_not_know_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    known = False

    async def resolved(host: str, port: int) -> list[str]:
        if not known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ["127.0.0.1"]

    monkeypatch.setattr(neighbours, "_addresses_of", resolved)
    async with pair.started("a") as a, pair.started("b") as b:
        await until(lambda: pair.logged("neighbour_unreachable"), "a to say so")
        assert "Name or service not known" in pair.logged("neighbour_unreachable")[0]
        known = True
        await until(lambda: connected(a, b), "the trunk")


async def test_a_probe_of_the_trunks_port_is_no_warning_and_who_is_refused_has_an_address(pair: Pair) -> None:
    async with pair.started("b", "debug"):
        _, probe = await asyncio.open_connection("127.0.0.1", pair.dialled)
        place = "{}:{}".format(*probe.get_extra_info("sockname"))
        probe.close()
        said = f"a connection from {place} ended before it said which router it is"
        await until(lambda: said in pair.text("b"), "b to see it go")
        _, stranger = await asyncio.open_connection("127.0.0.1", pair.dialled)
        other = "{}:{}".format(*stranger.get_extra_info("sockname"))
        stranger.write(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: "neighbour_refused" in pair.text("b"), "b to refuse it")
        stranger.close()
    (line,) = [line for line in pair.text("b").splitlines() if "event=neighbour_refused" in line]
    assert f"neighbour {other} refused" in line
