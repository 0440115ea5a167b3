"""Proxies: listeners, the connections that came through them, and the toxics they have."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from dataclasses import asdict
from typing import Any, Final

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
        return [asdict(toxic) for way in DIRECTIONS for toxic in self.toxics if toxic.stream == way]

    async def start(self) -> None:
        """Listens; OSError if it cannot."""
        host, port = split_address(self.listen)
        self._server = await asyncio.start_server(self._came, host, port, backlog=1024)
        self.listen = f"{host}:{self._server.sockets[0].getsockname()[1]}"
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

    def toxic(self, name: str) -> Toxic | None:
        return next((toxic for toxic in self.toxics if toxic.name == name), None)

    def add(self, toxic: Toxic) -> None:
        self.toxics.append(toxic)
        for connection in self._connections:
            connection.add(toxic)

    def remove(self, toxic: Toxic) -> None:
        self.toxics.remove(toxic)
        for connection in self._connections:
            connection.streams[toxic.stream].remove(toxic)

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._arriving[task] = None
        try:
            up_reader, up_writer = await asyncio.open_connection(*split_address(self.upstream), limit=1 << 16)
        except OSError:  # nobody there: the client's connection is closed
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
            toxics = [toxic for toxic in proxy.toxics if toxic.stream == way]
            self.streams[way] = Stream(readers[way], self._writers[way], toxics, rng, lambda way=way: self._ended(way))  # type: ignore[misc]
            self._resets = self._resets or self.streams[way].resets

    def add(self, toxic: Toxic) -> None:
        self.streams[toxic.stream].add(toxic)
        self._resets = self._resets or self.streams[toxic.stream].resets

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


def split_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
