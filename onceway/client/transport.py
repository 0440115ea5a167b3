"""A socket as bytes in and bytes out: asyncio's BufferedProtocol with one buffer."""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol, cast

from onceway.base.websocket import DialledWebSocket

BUFFER_SIZE = 256 * 1024


class WireOwner(Protocol):
    def wire_received(self, wire: Wire, data: bytes) -> None: ...

    def wire_ended(self, wire: Wire) -> None:
        """The peer sends no more."""

    def wire_lost(self, wire: Wire, error: Exception | None) -> None: ...


class Wire(asyncio.BufferedProtocol):
    """One TCP connection, and the WebSocket in it, if there is one.  It hands on `bytes`: no memoryview crosses a
    layer."""

    def __init__(self, owner: WireOwner, websocket: DialledWebSocket | None = None) -> None:
        self._owner = owner
        self._websocket = websocket
        self._buffer = bytearray(BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        wire = transport.get_extra_info("socket")
        if wire is not None and wire.family in (socket.AF_INET, socket.AF_INET6):
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._websocket is not None:
            self._transport.write(self._websocket.data_to_send())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._view[:nbytes])
        websocket = self._websocket
        if websocket is None:
            self._owner.wire_received(self, data)
            return
        data = websocket.receive(data)
        if self._transport is not None and (answer := websocket.data_to_send()):
            self._transport.write(answer)
        if data:
            self._owner.wire_received(self, data)
        if websocket.failure:
            self._owner.wire_lost(self, ConnectionError(websocket.failure))
        elif websocket.over:
            self._owner.wire_ended(self)

    def eof_received(self) -> bool:
        self._owner.wire_ended(self)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.wire_lost(self, exc)

    def write(self, data: bytes) -> None:
        if self._websocket is not None:
            self._websocket.send(data)
            data = self._websocket.data_to_send()
        if self._transport is not None and data:
            self._transport.write(data)

    def close(self) -> None:
        """Writes what there is, then closes."""
        if self._websocket is not None:
            self._websocket.close()
            self.write(b"")
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
