"""Bytes between a socket and one sans-IO connection, a client's or a trunk's.

A carrier knows asyncio's transports and not what the bytes mean. It reads into one fixed buffer, which saves an
allocation for each read, and writes when it is told to. The loop's turn, timers and flushes belong to
`onceway.serve.server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast

from amqp10.settings import BEFORE_LOGIN
from onceway.access.tls import Tls
from onceway.serve.strangers import STRANGER_READ, Strangers

if TYPE_CHECKING:
    from onceway.access.authentication import ClientSasl

READ_SIZE: Final = 1 << 20
TLS_READ: Final = 64 << 10  # at most with TLS, whose records may have one byte each
WEBSOCKET_READ: Final = 16 << 10  # at most in a WebSocket, whose frames may be empty
READ_S: Final = 0.005  # a connection whose read takes longer gets half the buffer next time
HIGH_WATER: Final = 256 * 1024  # unwritten bytes in the transport, above which a client's subscriptions pause
LOW_WATER: Final = 64 * 1024
LINGER_S: Final = 5.0  # how long the last bytes may take to be written after a close
UNSAID: Final = "the client has left without a word: it may not accept the certificate that it saw"
FAILURE_LINGER_S: Final = 1.0  # how long the other side may take to read why TLS, or a WebSocket, has failed

# One buffer for all sockets: nothing else runs between the read into it and the copy out of it.
_BUFFER: Final = bytearray(READ_SIZE)
VIEW: Final = memoryview(_BUFFER)


class Carried(Protocol):
    """A sans-IO connection: `router.links.client_connection.ClientConnection`, `interrouter`'s trunk."""

    @property
    def closed(self) -> bool: ...
    def receive_data(self, data: bytes, now: float) -> object: ...
    def receive_eof(self, now: float) -> object: ...
    def buffers_to_send(self) -> Sequence[bytes | memoryview]: ...
    def next_deadline(self) -> float | None: ...
    def handle_timer(self, now: float) -> object: ...


class Turns(Protocol):
    """What a carrier needs of its server."""

    @property
    def strangers(self) -> Strangers: ...
    def time(self) -> float: ...
    def after_read(self) -> None: ...
    def connection_made(self, carrier: Carrier) -> Carried | None: ...
    def connection_lost(self, carrier: Carrier) -> None: ...


class Layer(Protocol):
    """What lies between socket and connection, as bytes in and bytes out: TLS, a WebSocket.

    Attributes:
        failure: Why it has failed; empty if it has not.
        over: Nothing more can be received.
        shaken: The handshake is over.
    """

    failure: str
    over: bool

    @property
    def kind(self) -> str: ...
    @property
    def shaken(self) -> bool: ...
    def receive(self, data: bytes) -> bytes: ...
    def send(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def data_to_send(self) -> bytes: ...


class Carrier(asyncio.BufferedProtocol):
    """One socket.  `write` moves the connection's output to it and closes it when the connection is over.

    What a stranger brings waits for its turn among strangers (`onceway.serve.strangers`), and is bounded.
    """

    __slots__ = ("_brought", "_closing", "_full", "_octets", "_only_layers", "_server", "_view", "carried", "layers",
                 "login", "look_at", "peer", "stranger", "stuck", "tls", "transport")  # fmt: skip
    least_read: ClassVar[int] = 256 << 10  # bytes

    def __init__(
        self,
        server: Turns,
        tls: ssl.SSLContext | None = None,
        *,
        dials: bool = False,
        websocket: Layer | None = None,
    ) -> None:
        self._server = server
        self.stranger = not dials  # it has not shown that it may be here
        self._octets = 0  # that it has sent meanwhile
        self._brought = b""  # of them, what waits for its turn
        self._view = VIEW[: STRANGER_READ if self.stranger else self.least_read]  # it grows while reads are cheap
        self._full = False  # the last read filled the view
        self.tls: Tls | None = None
        self.layers: list[Layer] = []  # from the socket upwards
        if tls is not None:
            self.tls = Tls(tls, dials=dials)
            self.layers.append(self.tls)
        if websocket is not None:
            self.layers.append(websocket)
        self.login: ClientSasl | None = None  # how a client says who it is
        self._closing = False
        self.stuck = False  # something waits for what is written: see `written`
        self._only_layers: bool | None = (
            None  # the other side has begun TLS, and said nothing in it; None: not even that
        )
        self.carried: Carried | None = None
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.look_at = 0.0  # when its timer is looked at; an open and a close may hasten it, and both are written

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's has the same methods
        self.peer = _name(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.carried = self._server.connection_made(self)
        if self.carried is None:
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(VIEW[:nbytes])
        if self.stranger:
            self._wait(data)
            return
        self._full = nbytes == len(self._view)
        self.handle(data)

    def handle(self, data: bytes) -> None:
        """Handles what was read, in the turn of whom it is from."""
        data = self.received(data)
        if data and self.carried is not None:
            began = self._server.time()
            self.carried.receive_data(data, began)
            self._server.after_read()
            spent = self._server.time() - began
            self.took(spent, "input was handled")
            if self._full:
                self.resize(spent)

    @property
    def known(self) -> bool:
        """Whether the other side has shown that it may be here."""
        return all(layer.shaken for layer in self.layers)

    def served(self) -> None:
        """Its turn among strangers has come."""
        data, self._brought = self._brought, b""
        self.handle(data)
        self._look_who()
        self._resume()

    def pause(self) -> None:
        """Nothing is read until what it waits for."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def origin(self) -> str:
        """The address that it shares its turns with."""
        return self.peer

    def _look_who(self) -> None:
        if self.stranger and self.known:
            self.stranger = False
            self._view = VIEW[: self.least_read]

    def _wait(self, data: bytes) -> None:
        self._octets += len(data)
        if self._octets > BEFORE_LOGIN:
            self.refused(f"it has sent more than {BEFORE_LOGIN} bytes, and has not said who it is")
            self._end()
            self.abort()
            return
        self._brought += data
        self.pause()
        self._server.strangers.wait(self)

    def received(self, data: bytes) -> bytes:
        """What was read, without its layers. Where one fails the other side is told, and the connection ends."""
        if not self.layers or self.transport is None:
            return data
        for layer in self.layers:
            data = layer.receive(data)
        if self.transport.get_write_buffer_size() < HIGH_WATER:  # whoever reads no answers is owed no more of them
            self._send(b"")
        over = next((layer for layer in self.layers if layer.over), None)
        if over is not None and not self._closing:
            self._closing = True
            if over.failure:  # a close with unread input would be a reset, which may overtake the reason
                self.failed(over.kind, over.failure)
                self.transport.write_eof()
                asyncio.get_running_loop().call_later(FAILURE_LINGER_S, self.transport.abort)
            else:
                self.transport.close()
            self._end()
        if data or self._only_layers is None:
            self._only_layers = not data
        return data

    def eof_received(self) -> bool:
        self._left()
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._left()
        self._end()
        if self.login is not None:
            self.login.gone()
        if self._brought:
            self._server.strangers.forget(self)
        self._server.connection_lost(self)

    # --- the server's side

    def given_up(self) -> None:
        """Whoever dialled has waited long enough. Where it had just been answered, uvloop has closed the socket and
        tells nobody: `is_closing` is false, and a write raises RuntimeError."""
        if self.transport is not None:
            self.transport = None
            self.connection_lost(None)

    def failed(self, kind: str, reason: str) -> None:
        """A layer of this kind has failed. Called when the other side has been told."""

    def refused(self, reason: str) -> None:
        """A stranger has sent too much. Called before it is disconnected."""

    def left(self) -> None:
        """The other side has begun TLS, said nothing in it, and left."""

    def write(self) -> None:
        self.look_at = 0.0
        carried, transport = self.carried, self.transport
        if carried is None or transport is None:
            return
        buffers = carried.buffers_to_send()
        closes = carried.closed and not self._closing
        if self.layers:
            self._send(b"".join(buffers), closes)
        elif buffers and not transport.is_closing():
            if len(buffers) == 1:
                transport.write(buffers[0])
            else:
                transport.writelines(buffers)  # gathers, with uvloop
        if closes:
            self._closing = True
            self.end(transport)
        if self.stuck:
            self.written(transport)

    def written(self, transport: asyncio.Transport) -> None:
        """Called behind `write` while something waits for it."""

    def end(self, transport: asyncio.Transport) -> None:
        """Closes the transport when what it holds is written."""
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def _send(self, data: bytes, closes: bool = False) -> None:
        """Writes data, and what the layers have to say."""
        for layer in reversed(self.layers):
            layer.send(data)
            if closes:
                layer.close()
            data = layer.data_to_send()
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def excuse(self, now: float) -> None:
        """Called before the connection's timers: input that waits here is no silence of the peer."""

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def resize(self, spent: float) -> None:
        """The next read is to take about as long as it may."""
        if self.stranger:
            return
        size = len(self._view)
        if spent > READ_S:
            self._view = VIEW[: max(self.least_read, size // 2)]
        elif self._full and size < self.most_read and spent < READ_S / 4:
            self._view = VIEW[: size * 2]

    @property
    def most_read(self) -> int:
        """Bytes of one read, so that what its layers make of it takes no longer than a turn may."""
        kinds = [layer.kind for layer in self.layers]
        return WEBSOCKET_READ if "WebSocket" in kinds else TLS_READ if kinds else READ_SIZE

    def _left(self) -> None:
        if self._only_layers and self.tls is not None and not self.tls.failure:
            self._only_layers = False
            self.left()

    def took(self, seconds: float, what: str) -> None:
        """It has held the event loop for so long."""

    def _end(self) -> None:
        if self.carried is not None and not self.carried.closed:
            began = self._server.time()
            self.carried.receive_eof(began)
            self._server.after_read()
            self.took(self._server.time() - began, "a connection has ended")


def _name(address: Any) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return str(address or "?")
