"""Plain pushes, without aiohttp: its handler that does nothing costs more than all the rest of a push.

A connection begins here. While each of its requests is `POST /topics/:name` with a short body, whose length it says,
and with headers of HEADERS alone, for a host of the listener, it is parsed and answered here. The first request that is
anything else gives the connection to aiohttp, which keeps it. So there is one kind of request to be right about, and
all others are aiohttp's.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Collection
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, cast

from edges.bus.rules import TOPIC
from onceway.access.accepting import Accepting
from onceway.base import waits
from onceway.base.hosts import is_own

HEAD: Final = re.compile(
    rf"POST /topics/({TOPIC.pattern}) HTTP/1\.1\r\n((?:[A-Za-z-]+: ?[!-~][ -~]*\r\n)+)\r\n".encode()
)
HEADERS: Final = frozenset(
    (b"host", b"authorization", b"content-length", b"content-type", b"user-agent", b"accept", b"accept-encoding")
)
HEAD_OCTETS: Final = 1 << 11  # longer heads and bodies are aiohttp's
MOST_OCTETS: Final = 1 << 16
IDLE_S: Final = 3630.0  # as aiohttp's: longer than a proxy keeps a connection that is not used

Push = Callable[[str, str, bytes, Callable[[], None]], Awaitable[tuple[int, str] | None]]


class Pushes:
    """Listens for one server.

    Args:
        push: Called with a topic, the header `Authorization`, a body, and what is to be called once that header is
            found to be good: from then on the connection is no stranger's. Returns status and text of the answer; None:
            it is not for this way.
        others: Makes aiohttp's protocol for a connection.
        names: The hosts by which requests come.
    """

    def __init__(self, push: Push, others: Callable[[], asyncio.Protocol], names: Collection[str]) -> None:
        self.push = push
        self.others = others
        self.names = frozenset(names)
        self.connections: set[_Connection] = set()
        self._listener = Accepting(lambda: _Connection(self))

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Returns the port. OSError if it cannot be bound."""
        return (await self._listener.start((host, port), context))[1]

    def know(self, transport: asyncio.BaseTransport | None) -> None:
        """Who speaks on this connection has shown a token."""
        self._listener.know(transport)

    async def stop(self, within_s: float) -> None:
        """Lets what is under way be answered."""
        self._listener.stop()
        if tasks := [each.task for each in self.connections if each.task is not None]:
            await waits.BUS_REQUESTS(asyncio.wait)(tasks, timeout=within_s)
        for each in list(self.connections):
            each.transport.abort()


class _Connection(asyncio.Protocol):
    """One request after the other.

    Attributes:
        task: Answers the request that is under way.
    """

    def __init__(self, server: Pushes) -> None:
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport
        self._server = server
        self._data = b""
        self._wanted = 0  # octets of the first request, where they are known and have not all come
        self._writable = True
        self._used = True  # since the last look
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._server.connections.add(self)
        self._look()

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()  # a push that is under way goes on

    def data_received(self, data: bytes) -> None:
        self._used = True
        self._data = self._data + data if self._data else data
        if self.task is None:
            self._next()
        elif len(self._data) > MOST_OCTETS:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._next()

    def _next(self) -> None:
        """Begins with the next request, if it has come."""
        data = self._data
        if not data or len(data) < self._wanted or self.task is not None or not self._writable:
            return
        end = data.find(b"\r\n\r\n", 0, HEAD_OCTETS) + 4
        plain = None if end < 4 else _plain(data[:end], self._server.names)
        if plain is None:
            self._hand_over()
            return
        topic, authorization, length = plain
        self._wanted = end + length
        if len(data) >= self._wanted:
            work = self._answer(topic, authorization, data[end : self._wanted])
            self.task = self._loop.create_task(work)

    async def _answer(self, topic: str, authorization: str, body: bytes) -> None:
        answered = False
        try:
            answer = await self._server.push(topic, authorization, body, self._know)
            answered = True
        finally:
            self.task = None
            if not answered:
                self.transport.abort()
        if self.transport.is_closing():
            return
        if answer is None:
            self._hand_over()
            return
        self.transport.write(_response(*answer))
        self._data, self._wanted = self._data[self._wanted :], 0
        if self._data:
            self.transport.resume_reading()
            self._next()

    def _know(self) -> None:
        self._server.know(self.transport)

    def _hand_over(self) -> None:
        self._leave()
        handler = self._server.others()
        self.transport.set_protocol(handler)
        handler.connection_made(self.transport)
        self.transport.resume_reading()
        handler.data_received(self._data)

    def _look(self) -> None:
        """Closes a connection that was not used since the last look."""
        if self._used or self.task is not None:
            self._used = False
            self._timer = self._loop.call_later(IDLE_S, self._look)
        else:
            self.transport.close()

    def _leave(self) -> None:
        self._timer.cancel()
        self._server.connections.discard(self)


@lru_cache(1024)  # a publisher's requests have few heads
def _plain(head: bytes, names: frozenset[str]) -> tuple[str, str, int] | None:
    """(topic, authorization, octets of the body); None if this is not the head of a plain push."""
    found = HEAD.fullmatch(head)
    headers: dict[bytes, bytes] = {}
    for line in found[2].splitlines() if found else ():
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip()
        if name == b"connection" and value.lower() == b"keep-alive":
            continue
        if name not in HEADERS or name in headers:
            return None
        headers[name] = value
    length = headers.get(b"content-length", b"")
    if found is None or b"host" not in headers or not is_own([headers[b"host"].decode()], names):
        return None
    if not re.fullmatch(rb"[0-9]{1,5}", length) or int(length) > MOST_OCTETS:
        return None
    return found[1].decode(), headers.get(b"authorization", b"").decode(), int(length)


def _response(status: int, text: str) -> bytes:
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nDate: {_date(int(time.time()))}\r\n"
    if status == HTTPStatus.NO_CONTENT:
        return f"{head}\r\n".encode()
    body = f"{text}\n".encode()
    return f"{head}Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@lru_cache(1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
