"""Bytes between a socket and one sans-IO connection, a client's or a trunk's.

Knows asyncio's transports and nothing of what the bytes mean: reads into one fixed buffer (ENGINE.md rule 7), writes
when it is told to.  The loop's turn, timers and flushes are `onceway.server`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, Final, Protocol, cast

READ_SIZE: Final = 256 * 1024
HIGH_WATER: Final = 1024 * 1024  # octets that the transport holds; above it a client's subscriptions wait
LOW_WATER: Final = 256 * 1024
LINGER_S: Final = 5.0  # how long what was written last may take to leave after a close

# One for all: nothing else runs between the read into it and the copy out of it.
_BUFFER: Final = bytearray(READ_SIZE)
VIEW: Final = memoryview(_BUFFER)


class Carried(Protocol):
    """A sans-IO connection: `router.client_connection.ClientConnection`, `interrouter`'s trunk."""

    @property
    def closed(self) -> bool: ...
    def receive_data(self, data: bytes, now: float) -> object: ...
    def receive_eof(self, now: float) -> object: ...
    def data_to_send(self) -> bytes: ...
    def next_deadline(self) -> float | None: ...
    def handle_timer(self, now: float) -> object: ...


class Turns(Protocol):
    """What a carrier needs of its server."""

    def time(self) -> float: ...
    def after_read(self) -> None: ...
    def came(self, carrier: Carrier) -> Carried | None: ...
    def went(self, carrier: Carrier) -> None: ...


class Carrier(asyncio.BufferedProtocol):
    """One socket.  `write` moves the connection's output to it and closes it when the connection is over."""

    __slots__ = ("_closing", "_server", "carried", "peer", "transport")

    def __init__(self, server: Turns) -> None:
        self._server = server
        self._closing = False
        self.carried: Carried | None = None
        self.transport: asyncio.Transport | None = None
        self.peer = ""

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.peer = _name(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.carried = self._server.came(self)
        if self.carried is None:
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return VIEW

    def buffer_updated(self, nbytes: int) -> None:
        if self.carried is not None:
            self.carried.receive_data(bytes(VIEW[:nbytes]), self._server.time())
            self._server.after_read()

    def eof_received(self) -> bool:
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._server.went(self)

    # --- the server's side

    def write(self) -> None:
        carried, transport = self.carried, self.transport
        if carried is None or transport is None:
            return
        data = carried.data_to_send()
        if data and not transport.is_closing():
            transport.write(data)
        if carried.closed and not self._closing:
            self._closing = True
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _end(self) -> None:
        if self.carried is not None and not self.carried.closed:
            self.carried.receive_eof(self._server.time())
            self._server.after_read()


def _name(address: Any) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return str(address or "?")
