"""A client's socket, and its share of the event loop: no client's input delays neighbours, admin or other clients.

One read may cost a thousand times another (attaches against transfers), so the carrier measures reads: a turn of the
loop spends at most `TURN_S` on clients. Input that arrives later in the turn waits, and its socket is not read
meanwhile. Clients are served in arrival order. A client whose reads are slow gets smaller ones. What one read has
brought is handled in parts, of so many frames or packets, until it has taken `READ_S`; the rest waits for a turn.
Neighbours' input, timers and the admin listener never wait here, because peers would take the router for dead.

A client whose reads bring much, or large frames, is *bulky*: one read of one such client is taken in a turn. Who brings
a few small messages waits for that one, and not for those of all (bench/large.py). A read in the middle of a frame
takes no turn of the server.

A large frame is copied and decoded at once, but for an attach's map. Clients whose input completes a large frame
other than a transfer wait in a queue of their own: at most one of them is served in a turn, behind the others, and
after what those have caused was written. If anybody else was read since the last such frame, the next one waits for as
long as that one took. An exchange has several steps, so it waits for one such frame, not for one at each step, nor for
those of all clients.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from onceway.serve.transport import READ_S, UNSAID, VIEW, Carrier
from onceway.serve.turn_times import SHORT_S
from router.core.counters import Histogram
from router.links.client_connection import ClientConnection
from router.mqtt.connection import MqttConnection

if TYPE_CHECKING:
    import ssl

    from onceway.base.websocket import ListenerWebSocket
    from onceway.serve.server import RouterServer

TURN_S: Final = 0.01
BULKY_READ: Final = 256 << 10  # bytes of frames of any size
BULKY_FRAME: Final = 16 << 10  # bytes: on average, of the frames in a read
KEPT_MOST: Final = 8 << 20  # bytes of waiting input; above it each further client may add TOKEN bytes
TOKEN: Final = 512
GOODBYE_S: Final = 1.0  # how long a client of MQTT may take to close its end
FRAMES_AT_ONCE: Final = 1024  # of AMQP (`amqp10.reading.Reader.budget`): dispositions of 5 us, or 32 attaches
PACKETS_AT_ONCE: Final = 4096  # bytes of MQTT, of packets that have two each and take 5 us
LARGE_FRAME: Final = 128 << 10  # bytes


class Shares:
    """One router's time left in this turn, and the clients that wait for the next turn."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        call_later: Callable[[float, Callable[[], None]], Any],
        turns: Histogram | None = None,
    ) -> None:
        """turns: counts what was spent."""
        self._call_soon = call_soon
        self._call_later = call_later
        self._asked = False  # `_next_turn` is scheduled
        self._waiting: deque[ClientCarrier] = deque()
        self._large: deque[ClientCarrier] = deque()  # those that wait with a large frame
        self._gone: deque[ClientCarrier] = deque()  # whose sockets have ended
        self._bulky: deque[ClientCarrier] = deque()  # those that are not read before a later turn
        self._bulk_read = False  # in this turn
        self._large_due = False  # the last turn has left them out
        self._pause_s = 0.0  # what the last large frame took, until the pause behind it is over
        self._pausing = False
        self._others_read = False  # since the last large frame
        self.left_s = TURN_S
        self.kept = 0  # bytes
        self._turns = turns or Histogram()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._large)

    def spent(self, seconds: float) -> None:
        if seconds <= SHORT_S:  # as `Histogram.observe`, without its call
            self._turns.counts[0] += 1
            self._turns.sum_s += seconds
        else:
            self._turns.observe(seconds, 1)
        self.left_s -= seconds
        self._others_read = True
        if self.left_s < TURN_S / 2:  # below that no new turn has to be scheduled
            self._ask()

    def wait(self, carrier: ClientCarrier, size: int, large: bool) -> None:
        (self._large if large else self._waiting).append(carrier)
        self.kept += size
        self._ask()

    def gone(self, carrier: ClientCarrier) -> None:
        """Its socket has ended, perhaps with ten thousand others: it is told in its turn."""
        self._gone.append(carrier)
        self._ask()

    def read_in_bulk(self, carrier: ClientCarrier, full: bool) -> None:
        """A bulky client has been read. full: there may be more, and libuv would read it up to 32 times before the next
        one."""
        if full or self._bulk_read or self._bulky:
            self._bulky.append(carrier)
            carrier.pause()
        self._bulk_read = True
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._asked = False
        self.left_s = TURN_S
        while self._gone and self.left_s > TURN_S / 2:
            self._gone.popleft().ended()
        served = bool(self._waiting)
        while self._waiting and self.left_s > 0:
            self.kept -= self._waiting.popleft().handle_waiting()
        if self._large and not self._pausing:
            if self._others_read and self._pause_s > 0:
                self._pausing = True
                self._call_later(self._pause_s, self._pause_over)
            elif self._large_due or not served:
                self._serve_large()
            else:
                self._large_due = True
        self._bulk_read = False
        if self._bulky:
            self._bulky.popleft().read_on()
        if self._waiting or self._gone or self._bulky or (self._large and not self._pausing):
            self._ask()

    def _serve_large(self) -> None:
        self._large_due = False
        before = self.left_s
        self.kept -= self._large.popleft().handle_waiting()
        self._pause_s = before - self.left_s
        self._others_read = False

    def _pause_over(self) -> None:
        self._pausing = False
        self._pause_s = 0.0
        if self._large:
            self._ask()


class ClientCarrier(Carrier):
    __slots__ = (
        "_clock",
        "_ends",
        "_halted",
        "_held",
        "_input",
        "_kept",
        "_not_read_since",
        "_plain",
        "_shares",
        "_turn_times",
        "_unfinished",
        "_websocket",
        "client",
        "scheme",
    )
    least_read: ClassVar[int] = 2048

    def __init__(
        self,
        server: RouterServer,
        shares: Shares,
        scheme: str = "amqp",
        tls: ssl.SSLContext | None = None,
        websocket: ListenerWebSocket | None = None,
    ) -> None:
        super().__init__(server, tls, websocket=websocket)
        self.scheme = scheme  # of the listener
        self.client: ClientConnection | MqttConnection | None = None  # what is carried, once there is a transport
        self._websocket = websocket  # until it is known what is spoken in it
        self._clock = server.clock
        self._input = server.router.border.input
        self._shares = shares
        self._turn_times = server.turn_times
        self._kept: bytes | memoryview = b""
        self._plain = b""  # what the layers have made of a read
        self._unfinished = False  # input waits: it has been given to the client, and is not handled to the end
        self._held = False  # what it has sent is done in parts, and what it sends next waits
        self._halted = False  # its login takes time, and nothing is read meanwhile
        self._not_read_since: float | None = None
        self._ends: asyncio.TimerHandle | None = None

    # --- asyncio's side

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ends is not None:
            self._ends.cancel()
        super().connection_lost(exc)

    def _end(self) -> None:
        self._shares.gone(self)

    def ended(self) -> None:
        """Its turn has come after its socket has ended."""
        if self.client is not None and not self.client.closed:
            began = self._server.time()
            self.client.receive_eof(began)
            self._server.after_read()
            spent = self._clock() - began
            self._shares.spent(spent)
            self._turn_times.look(spent, "a connection has ended", self.who)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view if self._shares.kept < KEPT_MOST else VIEW[:TOKEN]

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(VIEW[:nbytes])
        if self.stranger:
            self._wait(data)
            return
        self._full = nbytes == len(self._view)
        if self.layers:
            data = self._unwrapped(data)
            if not data:
                return
        carried = self.client
        reader = None if carried is None or isinstance(carried, MqttConnection) else carried.connection.reader
        held = reader if reader is not None and reader.buffered else None
        large = held is not None and held.frame_completed_by(len(data)) > LARGE_FRAME
        if self._shares.left_s > 0 and not large:
            before = reader.frames if reader is not None else 0
            if held is not None and not held.goes_on(len(data)):
                held = None
            self._receive(data, held is not None)
            if held is not None and not held.buffered:  # too much was held, and the client has to be told
                self._server.after_read()
            frames = reader.frames - before if reader is not None else nbytes
            if nbytes >= BULKY_READ or nbytes > BULKY_FRAME * max(frames, 1):
                self._shares.read_in_bulk(self, self._full)
            return
        self._kept = data
        self._shares.wait(self, len(data), large)
        self.pause()

    def handle(self, data: bytes) -> None:
        if self.layers:
            data = self._unwrapped(data)
        if data:
            self._receive(data)

    def _unwrapped(self, data: bytes) -> bytes:
        began = self._server.time()
        self._plain = b""
        if self.client is not None:
            self._input(self.client, self._unwrap, data, began)
        data, self._plain = self._plain, b""
        spent = self._server.time() - began
        self._shares.spent(spent)
        self._turn_times.look(spent, "a handshake, or frames of TLS or a WebSocket", self.who)
        if not data:
            self.resize(spent)
        elif self._websocket is not None:  # its handshake is over
            if self._websocket.subprotocol == "mqtt":
                cast("RouterServer", self._server).speaks_mqtt(self)
            self._websocket = None
        return data

    def _unwrap(self, data: bytes, now: float) -> None:
        self._plain = self.received(data)

    def who(self) -> dict[str, object]:
        """What the log says of it."""
        return {"client": self.peer} if self.client is None else self.client.said()

    def took(self, seconds: float, what: str) -> None:
        self._turn_times.ended(seconds, what, self.who)

    def pause_writing(self) -> None:
        if self.client is not None:
            self.client.pause_output()
            self.stuck = True

    def resume_writing(self) -> None:
        if self.client is not None:
            began = self._clock()
            self.client.resume_output()
            self._delayed()
            self._resume()
            self._server.after_read()
            self.took(self._clock() - began, "output goes on")

    # --- the server's side

    @property
    def known(self) -> bool:
        return self.client is not None and self.client.user is not None

    def served(self) -> None:
        self._delayed()
        super().served()
        self._halted = self.client is not None and not self.client.reads
        self.stuck = self.stuck or self._halted

    def refused(self, reason: str) -> None:
        cast("RouterServer", self._server).stranger_refused(self.peer, reason)

    def failed(self, kind: str, reason: str) -> None:
        cast("RouterServer", self._server).handshake_failed(self.peer, kind, reason)

    def left(self) -> None:
        self.failed("TLS", UNSAID)

    def end_after(self, seconds: float) -> None:
        """What the client has shown holds for so long."""
        assert self.client is not None
        end = cast("RouterServer", self._server).close_client
        self._ends = asyncio.get_running_loop().call_later(seconds, end, self.client, "the token has expired")

    def excuse(self, now: float) -> None:
        if (self._kept or self._brought or self._unfinished) and self.client is not None:
            self.client.heard(now)

    def written(self, transport: asyncio.Transport) -> None:
        carried = self.client
        if carried is not None and carried.output_paused:
            carried.output_waits(transport.get_write_buffer_size())
            if not carried.reads:
                self.pause()
        if self._held and isinstance(carried, MqttConnection) and not carried.is_busy:
            self._held = False
            self._shares.wait(self, len(self._kept), False)
        if self._halted and carried is not None and carried.reads:  # it was looked at who it is
            self._halted = False
            self._look_who()
            self._resume()
        self.stuck = self._held or self._halted or (carried is not None and carried.output_paused)

    def end(self, transport: asyncio.Transport) -> None:
        """A client of MQTT may have sent too much, and reads why it is disconnected only where that is no reset:
        so what it sends is read for a while, for nobody."""
        if not isinstance(self.client, MqttConnection):
            super().end(transport)
            return
        transport.write_eof()
        asyncio.get_running_loop().call_later(GOODBYE_S, transport.abort)

    def handle_waiting(self) -> int:
        """Handles the waiting input; returns its size in bytes."""
        data, self._kept, self._unfinished = self._kept, b"", False
        if self.client is not None and not self.client.closed:
            self._delayed()
            self._receive(data)
            self._resume()
        return len(data)

    def read_on(self) -> None:
        self._delayed()
        self._resume()

    # --- helpers

    def _receive(self, data: bytes | memoryview, more: bool = False) -> None:
        """more: a frame goes on with this and does not end, so that nothing follows from it."""
        client = self.client
        if client is None:
            return
        began = self._server.time()
        if isinstance(client, MqttConnection):
            if len(data) <= PACKETS_AT_ONCE:
                self._input(client, client.receive_data, bytes(data), began)
                if client.more or client.is_busy:
                    self._take_packets(client, memoryview(b""), began)
            else:
                self._take_packets(client, memoryview(data), began)
            if not client.reads and not client.output_paused:  # it has sent more before CONNACK
                self._halted = self.stuck = True
                self.pause()
        else:
            self._input(client, client.receive_data, bytes(data), began)
            if client.steps is not None or client.connection.reader.more:  # as `more`, without its call
                self._take_frames(client, began)
        if not more:
            self._server.after_read()
        spent = self._clock() - began
        self._shares.spent(spent)
        if self._full or spent > READ_S:
            self.resize(spent)
            self._turn_times.look(spent, "input was handled", self.who)

    def _take_frames(self, client: ClientConnection, began: float) -> None:
        """Goes on with the frames that a read has brought for as long as a read may take; the others wait."""
        while client.more and self._clock() - began < READ_S:
            self._input(client, client.receive_data, b"", began)
        self._wait_unfinished(client.more, b"")

    def _take_packets(self, client: MqttConnection, rest: memoryview, began: float) -> None:
        """Takes what a read has brought in parts, for as long as a read may take; the others wait. What a packet still
        needs is one part, and one that is long is read in several."""
        while (rest or client.more) and not client.closed and not client.is_busy:
            size = 0 if client.more else max(PACKETS_AT_ONCE, client.needed)
            self._input(client, client.receive_data, bytes(rest[:size]), began)
            rest = rest[size:]
            if self._clock() - began >= READ_S:
                break
        if client.is_busy:
            self._hold(rest)
        else:
            self._wait_unfinished((bool(rest) or client.more) and not client.closed, rest)

    def _hold(self, rest: bytes | memoryview) -> None:
        """The client's input waits until what it has sent before is done."""
        self._kept, self._unfinished, self._held, self.stuck = rest, True, True, True
        self.pause()

    def _wait_unfinished(self, unfinished: bool, rest: bytes | memoryview) -> None:
        if unfinished:
            self._kept, self._unfinished = rest, True
            self._shares.wait(self, len(rest), False)
            self.pause()

    def go_on(self) -> None:
        """Frames may have been held while it was looked at who the client is."""
        if isinstance(self.client, ClientConnection):
            self._wait_unfinished(self.client.more, b"")

    def _delayed(self) -> None:
        if self._not_read_since is not None and self.client is not None:
            self.client.delayed(self._not_read_since, self._server.time())

    def pause(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
            if self._not_read_since is None:
                self._not_read_since = self._server.time()

    def _resume(self) -> None:
        transport, carried = self.transport, self.client
        if transport is None or carried is None or transport.is_closing():
            return
        if not self._unfinished and not self._kept and not self._brought and carried.reads:
            transport.resume_reading()
            self._not_read_since = None
