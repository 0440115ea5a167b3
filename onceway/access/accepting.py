"""Accepts connections of strangers to a listener of HTTP, in bounds.

asyncio's server neither bounds connections nor counts those whose TLS handshake is not over. A connection on which
somebody has shown a token may be told to be known, and is not among those that are bounded, unless file descriptors are
few: a token that holds as many as there are shuts out no other. Handshakes of TLS begin one in a turn of the event
loop, addresses round robin.

`application` makes what answers there: the requests that it refuses for their Host come to nothing else. Of a request's
head `bounded` lets 64 KiB come to it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from amqp10.settings import BEFORE_LOGIN
from onceway.access.fair import ByAddress
from onceway.base import hosts, waits
from onceway.base.descriptors import Descriptors, most_strangers, raise_limit
from onceway.base.logs import logger
from onceway.topology import HostPort
from router.links.crowd import Crowd
from router.links.limits import Room

MOST_CONNECTIONS: Final = 200  # above it the oldest is closed: whoever opens many and says nothing takes no more
GRACE_S: Final = (
    0.25  # but for those that have just come: many clients may come back at once, and are still to be heard
)
LOOK_S: Final = 0.01  # how often it is looked whether they were
PAUSE_S: Final = 0.1  # where a connection cannot be accepted, as without a free file descriptor


class _Strangers(logging.Filter):
    """Input that is not HTTP gets a 400. A traceback for each would let anybody fill the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


LOGGER: Final = logging.getLogger("onceway.http")
LOGGER.addFilter(_Strangers())


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(
    names: Callable[[], Collection[str]],
    *middlewares: Middleware,
    remedy: str = hosts.IN_THE_FILE,
    most_octets: int = 1 << 20,
) -> web.Application:
    """An application that refuses requests for other hosts than these, addresses and localhost (`onceway.base.hosts`).

    Args:
        names: Those of this moment.
        middlewares: Behind that; the first one is the outermost.
        remedy: Where a name would be given.
        most_octets: Of a request's body.
    """

    @web.middleware
    async def for_own_hosts(request: web.Request, handler: Handler) -> web.StreamResponse:
        named = hosts.named_in(request.raw_path, request.headers.getall("Host", []))
        if not hosts.is_own(named, names()):
            raise web.HTTPMisdirectedRequest(text=f"{hosts.refusal(named, remedy)}\n")
        try:
            return await handler(request)
        finally:
            if request.content.is_eof() and (head := _HEADS.get(request.protocol)) is not None:
                head.octets = 0  # the next one begins

    return web.Application(middlewares=[for_own_hosts, *middlewares], client_max_size=most_octets)


async def body_of(request: web.Request) -> bytes:
    """The request's body. HTTPRequestTimeout where its rest does not come: aiohttp by itself waits for ever."""
    try:
        async with asyncio.timeout(waits.HTTP_BODY.s):
            return await request.read()
    except TimeoutError:
        waits.HTTP_BODY.ended()
        raise web.HTTPRequestTimeout(text=f"the rest has not come within {waits.HTTP_BODY.s:g} s\n") from None


class _Head(asyncio.Protocol):
    """What comes to aiohttp's protocol of one connection, as long as the head of a request is no larger than a stranger
    may send. aiohttp by itself takes a megabyte.

    Attributes:
        octets: Of the head of the next request; None: it has come, and what follows is its body.
    """

    def __init__(self, inner: asyncio.Protocol) -> None:
        self.octets: int | None = 0
        self._last = b""  # of the head so far: its end may come in parts
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self.pause_writing, self.resume_writing = inner.pause_writing, inner.resume_writing  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _HEADS[self._inner] = self
        self._transport = cast(asyncio.Transport, transport)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        _HEADS.pop(self._inner, None)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.octets is not None:
            end = (self._last + data).find(b"\r\n\r\n")
            self._last = data[-3:] if len(data) >= 3 else (self._last + data)[-3:]
            self.octets += len(data) if end < 0 else end
            if self.octets > BEFORE_LOGIN:
                assert self._transport is not None
                self._transport.close()
                return
            if end >= 0:
                self.octets, self._last = None, b""
        self._inner.data_received(data)


_HEADS: Final[dict[asyncio.BaseProtocol, _Head]] = {}


def bounded(make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
    """Makes aiohttp's protocols, and bounds what comes to them. `application` tells it of requests that are over."""
    return lambda: _Head(make())


@dataclass(eq=False, slots=True)
class _Stranger:
    """transport: once its handshake is over."""

    since: float
    task: asyncio.Task[None] | None = None  # that shakes hands with it
    transport: asyncio.Transport | None = None

    @property
    def gone(self) -> bool:
        return self.task is not None and self.task.done() and (self.transport is None or self.transport.is_closing())


class Accepting:
    """One listener. `make` makes the protocol of a connection."""

    def __init__(self, make: Callable[[], asyncio.Protocol], room: Room | None = None) -> None:
        """room: for those that are no strangers; None: this process's."""
        self._make = make
        self._room = room or Descriptors(logger("http"), then="connections are closed when others come")
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._strangers: Crowd[_Stranger] = Crowd()
        self._by_transport: dict[asyncio.BaseTransport, _Stranger] = {}
        self._turns: ByAddress[asyncio.Future[None]] = ByAddress()  # of those who have begun with TLS
        self._turning = False

    async def start(self, address: HostPort, tls: ssl.SSLContext | None = None) -> HostPort:
        """Listens, and returns the bound address (port 0: the system chooses). OSError if it cannot be bound."""
        raise_limit()
        loop = asyncio.get_running_loop()
        family, *_, place = (await waits.RESOLVER(loop.getaddrinfo(*address, type=socket.SOCK_STREAM)))[0]
        self._socket = socket.create_server(place, family=family, backlog=128)
        self._socket.setblocking(False)
        self._tls = tls
        self._accepting = loop.create_task(self._accept(self._socket))
        bound: HostPort = self._socket.getsockname()[:2]
        return bound

    def show(self, tls: ssl.SSLContext | None) -> None:
        """Connections that are made from now on have this TLS."""
        self._tls = tls

    def know(self, transport: asyncio.BaseTransport | None) -> None:
        """This connection is no stranger's, if there is room for it."""
        if transport in self._by_transport and not self._room.crowded():
            self._strangers.remove(self._by_transport.pop(transport))

    def stop(self) -> None:
        """Takes no more connections, and ends those whose handshake is not over."""
        if self._accepting is not None:
            self._accepting.cancel()
        for stranger in self._strangers:
            if stranger.task is not None:
                stranger.task.cancel()
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await waits.ACCEPT(loop.sock_accept(listener))
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            while self._is_full() and not self._close_oldest(loop.time() - GRACE_S):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
            address = f"{peer[0]}:{peer[1]}"
            stranger = _Stranger(loop.time())
            stranger.task = loop.create_task(self._shake_hands(stranger, accepted, address))
            self._strangers.add(stranger, address)

    async def _shake_hands(self, stranger: _Stranger, accepted: socket.socket, address: str) -> None:
        bound_s = waits.HTTP_TLS.s if self._tls is not None else None
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if self._tls is not None:
                await self._turn(accepted, address)
                began = loop.time()
            connecting = loop.connect_accepted_socket(
                self._make, accepted, ssl=self._tls, ssl_handshake_timeout=bound_s
            )
            transport, _ = await waits.HTTP_TLS(connecting)
            stranger.transport = transport
            self._by_transport[transport] = stranger
        except OSError:  # it has no TLS, another one, or is gone
            if bound_s is not None and loop.time() >= began + bound_s:
                waits.HTTP_TLS.ended()

    async def _turn(self, accepted: socket.socket, address: str) -> None:
        """Returns when the other side has begun with its handshake, and it is its turn. TimeoutError: it has not."""
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[None] = waits.HTTP_TLS(loop.create_future())
        turn: asyncio.Future[None] = waits.HTTP_TURN(loop.create_future())

        def begin() -> None:
            if not begun.done():
                begun.set_result(None)

        try:
            loop.add_reader(accepted.fileno(), begin)
            try:
                async with asyncio.timeout(waits.HTTP_TLS.s):
                    await begun
            finally:
                loop.remove_reader(accepted.fileno())
            self._turns.put(address, turn)
            if not self._turning:
                self._turning = True
                loop.call_soon(self._next_turn)
            await turn
        except BaseException:
            self._turns.remove(address, turn)
            accepted.close()
            raise

    def _next_turn(self) -> None:
        self._turning = bool(self._turns)
        if self._turning:
            turn = self._turns.take()
            if not turn.done():  # it may have been closed
                turn.set_result(None)
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _is_full(self) -> bool:
        return len(self._strangers) >= most_strangers(MOST_CONNECTIONS)

    def _close_oldest(self, before: float) -> bool:
        """Unless one has ended by itself meanwhile. False: the oldest has not been there since then."""
        for stranger in list(self._strangers):
            if stranger.gone:
                self._forget(stranger)
        if self._is_full():
            stranger = self._strangers.next_to_go
            if stranger.since > before:
                return False
            self._forget(stranger)
            if stranger.task is not None:
                stranger.task.cancel()
            if stranger.transport is not None:
                stranger.transport.abort()
        return True

    def _forget(self, stranger: _Stranger) -> None:
        self._strangers.remove(stranger)
        if stranger.transport is not None:
            del self._by_transport[stranger.transport]


def address_of(request: web.Request) -> str:
    """The client's host:port."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "?"
