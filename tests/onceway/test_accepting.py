"""A listener of HTTP takes handshakes of TLS one in a turn, and no head that is larger than a stranger may send."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any

import pytest

from amqp10.settings import BEFORE_LOGIN
from onceway.access import accepting
from onceway.access.accepting import Accepting, bounded
from router.links.limits import Room
from tests.onceway.client.scenes import eventually


class Inner(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


class Transport:
    closed = False

    def close(self) -> None:
        self.closed = True


def head(inner: Inner) -> tuple[Any, Transport]:
    made, transport = bounded(lambda: inner)(), Transport()
    made.connection_made(transport)  # type: ignore[arg-type]
    return made, transport


@pytest.mark.parametrize("size", [1, 1_000, 1 << 20])
def test_a_head_that_is_too_large_is_cut_off_however_it_comes(size: int) -> None:
    inner = Inner()
    made, transport = head(inner)
    for start in range(0, 1 << 20, size):
        made.data_received(b"x" * min(size, (1 << 20) - start))
        if transport.closed:
            break
    assert transport.closed
    assert len(inner.received) <= BEFORE_LOGIN


@pytest.mark.parametrize("size", [1, 2, 3, 1_000])
def test_a_body_is_not_counted_wherever_the_head_ends(size: int) -> None:
    inner = Inner()
    made, transport = head(inner)
    said = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n" + b"x" * 2 * BEFORE_LOGIN
    for start in range(0, len(said), size):
        made.data_received(said[start : start + size])
    assert inner.received == said
    assert not transport.closed


def test_handshakes_begin_one_in_a_turn_and_addresses_are_served_round_robin() -> None:
    async def go() -> list[str]:
        accepting, begun = Accepting(Inner), []
        loop = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(5)]
        turn = 0

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        async def come(pair: tuple[socket.socket, socket.socket], address: str) -> None:
            await accepting._turn(pair[0], address)
            begun.append((turn, address))

        for near, _ in pairs:
            near.setblocking(False)
        addresses = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.2:1", "10.0.0.1:4"]
        tasks = [asyncio.create_task(come(*each)) for each in zip(pairs, addresses, strict=True)]
        count()
        for _, far in pairs[:4]:
            far.send(b"hello")
        await asyncio.wait(tasks[:4])
        assert not tasks[4].done(), "it says nothing"
        tasks[4].cancel()
        await asyncio.wait(tasks[4:])
        assert pairs[4][0].fileno() == -1, "its socket is closed"
        for pair in pairs[:4]:
            for each in pair:
                each.close()
        pairs[4][1].close()
        turns = [each for each, _ in begun]
        assert len(set(turns)) == len(turns), "one in a turn"
        return [address for _, address in begun]

    order = asyncio.run(go())
    assert order.index("10.0.0.2:1") <= 1
    assert [each for each in order if each.startswith("10.0.0.1")] == ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"]


class Crowded:
    """Room where others have taken what there is."""

    def crowded(self) -> bool:
        return True

    def full(self) -> bool:
        return False


@pytest.mark.parametrize("room", [None, Crowded()])
async def test_who_is_known_is_closed_for_others_only_where_descriptors_are_few(
    monkeypatch: pytest.MonkeyPatch, room: Room | None
) -> None:
    monkeypatch.setattr(accepting, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(accepting, "GRACE_S", 0.0)
    served: list[Served] = []
    listener = Accepting(lambda: Served(served), room)
    host, port = await listener.start(("127.0.0.1", 0))
    clients = [await asyncio.open_connection(host, port) for _ in range(2)]
    assert await eventually(lambda: len(listener._by_transport) == 2)
    for each in served:
        listener.know(each.transport)
    clients += [await asyncio.open_connection(host, port) for _ in range(2)]
    assert await eventually(lambda: len(served) == 4)
    assert [each.transport.is_closing() for each in served] == [room is not None] * 2 + [False] * 2
    listener.stop()
    for _, writer in clients:
        writer.close()


class Served(asyncio.Protocol):
    def __init__(self, served: list[Served]) -> None:
        self._served = served

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._served.append(self)


async def test_a_process_that_listens_may_open_as_many_files_as_the_system_lets_it() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 500), hard))
    try:
        accepting = Accepting(Inner)
        await accepting.start(("127.0.0.1", 0))
        accepting.stop()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
