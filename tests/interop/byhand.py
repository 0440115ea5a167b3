"""An AMQP client without manners: every frame is written by hand, so that it can be wrong in any way.

Encodings are proton's (`proton.Data`); nothing is checked, remembered or answered unless a test does so.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Self

from proton import Data, Described, symbol, ubyte, uint, ulong
from proton import ushort as uint16

from tests.interop.raw import encoded

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_MECHANISMS, SASL_INIT, SASL_CHALLENGE, SASL_RESPONSE, SASL_OUTCOME = range(0x40, 0x45)
SOURCE, TARGET = 0x28, 0x29
AMQP_HEADER, SASL_HEADER = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
SENDER, RECEIVER = False, True
BOUND_S = 60.0  # for what takes a moment, on a machine that does much else
NAMES = dict(
    zip(
        range(0x10, 0x19),
        ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"],
        strict=True,
    )
)

Fields = list[Any]


def described(code: int, *fields: Any) -> Described:
    return Described(ulong(code), list(fields))


def performative(code: int, *fields: Any) -> bytes:
    return encoded(lambda data: data.put_py_described(described(code, *fields)))


def frame(code: int, *fields: Any, channel: int = 0, payload: bytes = b"", frame_type: int = 0) -> bytes:
    body = performative(code, *fields) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, frame_type, channel) + body


def source(address: str | None, timeout_s: int = 0) -> Described:
    return described(SOURCE, address, uint(0), symbol("session-end"), uint(timeout_s))


def target(address: str | None) -> Described:
    return described(TARGET, address)


def sasl_anonymous() -> bytes:
    return SASL_HEADER + frame(SASL_INIT, symbol("ANONYMOUS"), b"byhand", frame_type=1)


def open_(container: str, max_frame: int = 65_536, idle_ms: int | None = None) -> bytes:
    idle = None if idle_ms is None else uint(idle_ms)
    return frame(OPEN, container, "localhost", uint(max_frame), uint16(255), idle)


def begin(window: int = 10_000, channel: int = 0) -> bytes:
    return frame(BEGIN, None, uint(0), uint(window), uint(window), uint(255), channel=channel)


def attach_sender(name: str, handle: int, address: str | None, *, second: bool = False, channel: int = 0) -> bytes:
    """snd-settle-mode mixed: its transfers may be settled or not."""
    modes = (ubyte(2), ubyte(1 if second else 0))
    link = (name, uint(handle), SENDER, *modes, described(SOURCE), target(address), None, None, uint(0))
    return frame(ATTACH, *link, channel=channel)


def attach_receiver(name: str, handle: int, address: str, *, second: bool = False, timeout_s: int = 0) -> bytes:
    modes = (ubyte(0), ubyte(1 if second else 0))
    return frame(ATTACH, name, uint(handle), RECEIVER, *modes, source(address, timeout_s), target(None))


def link_flow(handle: int, delivery_count: int, credit: int, window: int = 10_000, incoming: int = 0) -> bytes:
    session = (uint(incoming), uint(window), uint(0), uint(window))
    return frame(FLOW, *session, uint(handle), uint(delivery_count), uint(credit))


def transfer(
    handle: int,
    delivery_id: int,
    payload: bytes,
    *,
    settled: bool = False,
    more: bool = False,
    tag: bytes | None = None,
) -> bytes:
    octets = struct.pack(">I", delivery_id) if tag is None else tag
    return frame(TRANSFER, uint(handle), uint(delivery_id), octets, uint(0), settled, more, payload=payload)


class Frame:
    """One frame of the peer: `code`, `fields` (padded with None), `payload`."""

    def __init__(self, octets: bytes) -> None:
        self.type, self.channel = octets[5], struct.unpack_from(">H", octets, 6)[0]
        data = Data()
        body = octets[4 * octets[4] :]
        self.code, self.fields, self.payload = -1, [None] * 15, b""
        if body:
            used = data.decode(body)
            data.rewind()
            data.next()
            value = data.get_py_described()
            self.code = int(value.descriptor)
            self.fields = [*value.value, *[None] * (15 - len(value.value))]
            self.payload = body[used:]

    @property
    def error(self) -> str | None:
        """The condition of a detach, end or close."""
        value = {DETACH: self.fields[2], END: self.fields[0], CLOSE: self.fields[0]}.get(self.code)
        return None if value is None else str(value.value[0])

    def __repr__(self) -> str:
        return f"{NAMES.get(self.code, hex(self.code))} {self.fields} {self.payload[:40]!r}"


class ByHand:
    """A connection to a router.  Everything received is parsed into `frames`; `closed` once the router closed it."""

    def __init__(self, at: str, receive_buffer: int | None = None) -> None:
        host, port = at.rsplit(":", 1)
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(BOUND_S)
        self.socket.connect((host, int(port)))
        self.frames: list[Frame] = []
        self.headers: list[bytes] = []
        self.closed = False
        self._buffer = b""
        self._looked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, *pieces: bytes) -> None:
        """What cannot be sent because the router has closed is none of the sender's business."""
        self.socket.settimeout(BOUND_S)  # however short the last read was to be
        try:
            self.socket.sendall(b"".join(pieces))
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True

    def reset(self) -> None:
        """Vanish: the peer gets a reset in place of an orderly end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def receive(self, timeout_s: float) -> bool:
        """One read; False when nothing came in time or the connection has ended."""
        if self.closed:
            return False
        self.socket.settimeout(max(timeout_s, 0.001))
        try:
            octets = self.socket.recv(1 << 18)
        except TimeoutError:
            return False
        except ConnectionResetError:
            octets = b""
        if not octets:
            self.closed = True
            return False
        self._buffer += octets
        self._parse()
        return True

    def _parse(self) -> None:
        while len(self._buffer) >= 8:
            if self._buffer[:4] == b"AMQP":
                self.headers.append(self._buffer[:8])
                self._buffer = self._buffer[8:]
                continue
            size = struct.unpack_from(">I", self._buffer)[0]
            if len(self._buffer) < size:
                return
            self.frames.append(Frame(self._buffer[:size]))
            self._buffer = self._buffer[size:]

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = BOUND_S) -> Any:
        end = time.monotonic() + timeout_s
        while not condition():
            left = end - time.monotonic()
            if left <= 0 or self.closed:
                raise AssertionError(f"{what} did not come (closed: {self.closed}); frames: {self.frames[-12:]}")
            self.receive(left)
        return condition()

    def all(self, code: int) -> list[Frame]:
        return [one for one in self.frames if one.code == code]

    def next(self, code: int, timeout_s: float = BOUND_S) -> Frame:
        """The next frame of this kind after the last one that was asked for; others in between are passed over."""

        def found() -> Frame | None:
            for index in range(self._looked, len(self.frames)):
                if self.frames[index].code == code:
                    return self.frames[index]
            return None

        got: Frame = self.wait(found, NAMES.get(code, hex(code)), timeout_s)
        self._looked = self.frames.index(got) + 1
        return got

    def wait_closed(self, timeout_s: float = BOUND_S) -> None:
        self.wait(lambda: self.closed or None, "the end of the connection", timeout_s) if not self.closed else None

    # --- ordinary beginnings

    def start(
        self, container: str, *, max_frame: int = 65_536, window: int = 10_000, idle_ms: int | None = None
    ) -> Self:
        """SASL, open and begin, pipelined, and their answers awaited."""
        self.send(sasl_anonymous(), AMQP_HEADER, open_(container, max_frame, idle_ms), begin(window))
        self.next(BEGIN)
        return self

    def publisher(self, name: str, address: str, handle: int = 0, *, second: bool = False) -> int:
        """Attach a sending link; its first credit."""
        self.send(attach_sender(name, handle, address, second=second))
        self.next(ATTACH)

        return int(self.wait(lambda: self.limit(handle), "credit"))

    def limit(self, handle: int = 0) -> int:
        """How many deliveries the last flow of this sending link allows in all: delivery-count and link-credit."""
        flows = [f for f in self.all(FLOW) if f.fields[4] == handle]
        return int(flows[-1].fields[5] + flows[-1].fields[6]) if flows else 0

    def subscriber(self, name: str, address: str, handle: int = 1, credit: int = 100, **options: Any) -> None:
        self.send(attach_receiver(name, handle, address, **options))
        self.next(ATTACH)
        if credit:
            self.send(link_flow(handle, 0, credit))
