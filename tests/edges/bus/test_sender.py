"""Batches over HTTP: what acknowledges them, what fails them, and when."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from edges.bus.places import LOOPBACK, Places
from edges.bus.sender import Failure, Sender
from onceway.base.loop import run
from tests.serving import until

LONG_S = 60.0
HERE = Places(LOOPBACK)
TIMEOUT = Failure("no answer", "timeout")


@asynccontextmanager
async def subscriber(answer: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """(URL, the heads of the requests that came); each is answered with these octets, None: never."""
    heads: list[bytes] = []
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                await reader.readexactly(2)
                if answer is not None:
                    writer.write(answer)
        except asyncio.IncompleteReadError:
            pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/events", heads
    server.close()
    for connection in connections:
        connection.close()


async def sent(url: str, times: int = 1, connect_s: float = LONG_S, total_s: float = LONG_S) -> list[Failure | None]:
    sender = Sender(HERE, connect_timeout_s=connect_s, total_timeout_s=total_s)
    said = [await sender.send(url, "u", b"[]", "0 t:0-0") for _ in range(times)]
    await sender.close()
    return said


def test_a_connection_has_2_s_and_an_answer_20_s() -> None:
    defaults = {name: each.default for name, each in inspect.signature(Sender).parameters.items()}
    assert (defaults["connect_timeout_s"], defaults["total_timeout_s"]) == (2.0, 20.0)

    async def timeout() -> aiohttp.ClientTimeout:
        sender = Sender(HERE)
        await sender.close()
        return sender._sessions[False].timeout

    assert run(timeout()) == aiohttp.ClientTimeout(total=20.0, connect=2.0, ceil_threshold=20.0)


def test_a_connection_that_takes_too_long_fails_the_batch() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,  # takes nothing more than the first connection
        socket.create_connection(full.getsockname()),
    ):
        assert run(sent(f"http://127.0.0.1:{full.getsockname()[1]}/", connect_s=0.2)) == [TIMEOUT]


def test_an_answer_that_takes_too_long_fails_the_batch() -> None:
    async def hang() -> tuple[list[Failure | None], int]:
        async with subscriber(None) as (url, heads):
            return await sent(url, total_s=0.2), len(heads)

    assert run(hang()) == ([TIMEOUT], 1)


def test_a_subscriber_that_hangs_holds_up_no_batch_for_another() -> None:
    async def beside() -> Failure | None:
        sender = Sender(HERE)
        async with subscriber(None) as (hangs, heads), subscriber(b"HTTP/1.1 204 x\r\n\r\n") as (url, _):
            held = asyncio.create_task(sender.send(hangs, "u", b"[]", "0 t:0-0"))
            await until(lambda: heads, "the request of the one that hangs")
            said = await sender.send(url, "u", b"[]", "0 t:0-0")
            held.cancel()
            await sender.close()
        return said

    assert run(beside()) is None


def test_a_redirect_is_not_followed() -> None:
    async def redirected() -> tuple[list[Failure | None], list[Failure | None], int]:
        async with subscriber(b"HTTP/1.1 204 x\r\n\r\n") as (target, there):
            moved = f"HTTP/1.1 307 x\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
            async with subscriber(moved.encode()) as (url, _):
                return await sent(url), await sent(target), len(there)

    assert run(redirected()) == ([Failure("not taken", "HTTP 307")], [None], 1)


def test_nobody_there_fails_the_batch() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}/"
    assert run(sent(url)) == [Failure("no answer", "Connection refused")]


def test_batches_share_a_connection_and_say_what_they_hold() -> None:
    async def thrice() -> tuple[list[Failure | None], list[bytes]]:
        async with subscriber(b"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok") as (url, heads):
            return await sent(url, times=3), heads

    said, heads = run(thrice())
    assert said == [None, None, None]
    assert len(heads) == 3
    assert b"Onceway-Batch: 0 t:0-0\r\n" in heads[0]
    assert b"Authorization: Basic dTp4\r\n" in heads[0]
