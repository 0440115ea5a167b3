"""Proxies: listeners, the connections that came through them, and the toxics they have."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from typing import Any, Final

from chaos.toxiproxy.bodies import ListenFailed
from chaos.toxiproxy.stream import Stream
from chaos.toxiproxy.toxics import Toxic

_ABORT: Final = struct.pack("ii", 1, 0)  # SO_LINGER of no time: what is unsent is lost, the peer gets RST
DIRECTIONS: Final = ("upstream", "downstream")


class Proxy:
    """`start` and `stop` as often as one likes; toxics stay."""

    def __init__(self, name: str, listen: str, upstream: str, rng: random.Random) -> None:
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.enabled = False
        self.toxics: list[Toxic] = []
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._connections: dict[_Connection, None] = {}
        self._arriving: dict[asyncio.Task[None], None] = {}

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "listen": self.listen,
            "upstream": self.upstream,
            "enabled": self.enabled,
            "toxics": self.toxic_documents(),
        }

    def toxic_documents(self) -> list[dict[str, Any]]:
        return [toxic.document() for way in DIRECTIONS for toxic in self.toxics if toxic.direction == way]

    def differs(self, listen: str, upstream: str) -> bool:
        return shown(*split_address(listen)) != self.listen or upstream != self.upstream

    async def start(self) -> None:
        """Listens; ListenFailed if it cannot."""
        host, port = split_address(self.listen)
        try:
            self._server = await asyncio.start_server(self._came, host or None, port, backlog=1024)
        except (socket.gaierror, UnicodeError) as error:
            raise ListenFailed(f"listen tcp: lookup {host}: no such host") from error
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            raise ListenFailed(f"listen tcp {self.listen}: bind: {reason}") from error
        self.listen = shown(host, self._server.sockets[0].getsockname()[1])
        self.enabled = True

    async def stop(self) -> None:
        """Closes the listener and every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.enabled = False
        for task in self._arriving:
            task.cancel()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn

    async def update(self, listen: str, upstream: str, enabled: bool) -> None:
        if self.differs(listen, upstream):
            await self.stop()
            self.listen, self.upstream = listen, upstream
        if enabled and not self.enabled:
            await self.start()
        elif self.enabled and not enabled:
            await self.stop()

    def toxic(self, name: str) -> Toxic | None:
        return next((toxic for toxic in self.toxics if toxic.name == name), None)

    def add(self, toxic: Toxic) -> None:
        self.toxics.append(toxic)
        for connection in self._connections:
            connection.add(toxic)

    def changed(self, toxic: Toxic) -> None:
        for connection in self._connections:
            connection.change(toxic)

    def remove(self, toxic: Toxic) -> None:
        self.toxics.remove(toxic)
        for connection in self._connections:
            connection.streams[toxic.direction].remove(toxic)

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._arriving[task] = None
        try:
            up_reader, up_writer = await asyncio.open_connection(*split_address(self.upstream), limit=1 << 16)
        except (OSError, UnicodeError, ListenFailed):  # nobody there, or nowhere: the client's connection is closed
            writer.close()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            del self._arriving[task]
        connection = _Connection(self, (reader, writer), (up_reader, up_writer), self._rng)
        self._connections[connection] = None

    def gone(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)


_Side = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    """A client's connection and ours to the upstream, with a stream each way."""

    def __init__(self, proxy: Proxy, client: _Side, upstream: _Side, rng: random.Random) -> None:
        self._proxy = proxy
        self._writers = {"upstream": upstream[1], "downstream": client[1]}
        self._resets = False
        self._open = dict.fromkeys(DIRECTIONS)
        readers = {"upstream": client[0], "downstream": upstream[0]}
        self.streams: dict[str, Stream] = {}
        for way in DIRECTIONS:
            toxics = [toxic for toxic in proxy.toxics if toxic.direction == way]
            self.streams[way] = Stream(readers[way], self._writers[way], toxics, rng, lambda way=way: self._ended(way))  # type: ignore[misc]
            self._resets = self._resets or self.streams[way].resets

    def add(self, toxic: Toxic) -> None:
        self.streams[toxic.direction].add(toxic)
        self._resets = self._resets or self.streams[toxic.direction].resets

    def change(self, toxic: Toxic) -> None:
        self.streams[toxic.direction].update(toxic)
        self._resets = self._resets or self.streams[toxic.direction].resets

    def _ended(self, way: str) -> None:
        """Nothing more will be written that way: the socket is closed, and with it the other way's source."""
        writer = self._writers[way]
        if self._resets:
            _linger_not(writer)
            writer.transport.abort()
        else:
            writer.close()
        self.streams[way].cancel()
        self._open.pop(way, None)
        if not self._open:
            self._proxy.gone(self)

    def abort(self) -> None:
        for way, writer in self._writers.items():
            writer.transport.abort()
            self.streams[way].cancel()
        self._proxy.gone(self)


def _linger_not(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)


class Proxies:
    """All of them, by name."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.rng = rng or random.Random()
        self.by_name: dict[str, Proxy] = {}
        self.changing = asyncio.Lock()  # over making and replacing them: to listen takes turns of the loop

    def new(self, name: str, listen: str, upstream: str) -> Proxy:
        """Not one of them yet, and not listening."""
        return Proxy(name, listen, upstream, self.rng)

    async def stop(self) -> None:
        for proxy in self.by_name.values():
            await proxy.stop()


def split_address(text: str) -> tuple[str, int]:
    """`host:port`, `:port`, `[::1]:port`; nothing at all is any port on every interface."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not text:
        return "", 0
    if not port.isascii() or not port.isdecimal():
        raise ListenFailed(f"listen tcp: address {text}: missing port in address")
    if int(port) > 65_535:
        raise ListenFailed(f"listen tcp: address {port}: invalid port")
    return host, int(port)


def shown(host: str, port: int) -> str:
    """As the original shows where it listens: addresses, not names."""
    if host == "localhost":
        host = "127.0.0.1"
    elif host in ("", "0.0.0.0"):
        host = "::"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
