"""A WebSocket as bytes in and bytes out, without its socket (RFC 6455).

The binary messages are one stream of bytes: neither AMQP (WebSocket Binding 2.4) nor MQTT (MQTT 5, 6) has a relation
between its frames and messages. So payload is handed on as it comes, and nothing of a frame is kept, however large it
is. There are no extensions: compression below TLS gives away what it hides, and costs memory for each connection.

`ListenerWebSocket` is the listener's side, `DialledWebSocket` the client's. Both have the methods of
`onceway.access.tls.Tls`, so that a carrier puts one on the other.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from onceway.base.hosts import IN_THE_FILE, is_own, named_in, refusal

HEAD_MOST: Final = 8 << 10  # bytes of a request or its answer
MESSAGE_MOST: Final = (1 << 16) - 1  # bytes of one of our messages: Qpid JMS takes no larger ones unless told to
CONTROL_MOST: Final = 125  # bytes of a control frame's payload (RFC 6455, 5.5)
NORMAL, PROTOCOL_ERROR, NOT_BINARY = 1000, 1002, 1003  # status codes (7.4.1)
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10  # opcodes (RFC 6455, 5.2)
_FINAL, _RESERVED, _MASKED = 0x80, 0x70, 0x80
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class _Refused(Exception):
    """The other side is told so, and no more is read from it."""

    def __init__(self, reason: str, code: int = PROTOCOL_ERROR, headers: str = "") -> None:
        super().__init__(reason)
        self.code = code  # of a close frame, or of HTTP's answer
        self.headers = headers


class _WebSocket:
    """The frames of both sides.

    Attributes:
        subprotocol: What the two sides speak in it; empty until the handshake is over.
        failure: Why it has failed; empty if it has not.
        over: Nothing more can be received: it has failed, or the other side has closed it.
    """

    kind: Final = "WebSocket"
    __slots__ = (
        "_buffer",
        "_closed",
        "_early",
        "_entropy",
        "_fragmented",
        "_left",
        "_mask",
        "_out",
        "_pong",
        "failure",
        "over",
        "subprotocol",
    )

    def __init__(self, entropy: Callable[[int], bytes] | None) -> None:
        self._entropy = entropy  # the client's side masks what it sends (RFC 6455, 5.3)
        self._buffer = b""  # of a head, or of a frame's beginning, that has not come as a whole
        self._left = 0  # bytes of the data frame that is being read
        self._mask = b""  # of that frame, turned to the next of these bytes
        self._fragmented = False  # the message goes on in another frame
        self._early: list[bytes] = []  # what is to be sent once the handshake is over
        self._out: list[bytes] = []
        self._pong: bytes | None = None  # the answer to the last ping; earlier ones need none (RFC 6455, 5.5.3)
        self._closed = False  # our close frame is sent
        self.subprotocol = ""
        self.failure = ""
        self.over = False

    @property
    def shaken(self) -> bool:
        """The handshake is over."""
        return bool(self.subprotocol)

    def receive(self, data: bytes) -> bytes:
        """The payload, as far as it has come; `data_to_send` may have an answer."""
        if self.over:
            return b""
        try:
            if not self.subprotocol:
                head, end, rest = (self._buffer + data).partition(b"\r\n\r\n")
                if len(head) > HEAD_MOST:
                    raise _Refused(
                        f"the head has more than {HEAD_MOST} bytes", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                    )
                if not end:
                    self._buffer = head
                    return b""
                self._buffer = b""
                self._shake(*_read_head(head))
                data = rest
                early, self._early = self._early, []
                for each in early:
                    self.send(each)
            return self._read(data)
        except _Refused as error:
            self.over = True
            self.failure = str(error)
            self._refuse(error)
            return b""

    def send(self, data: bytes) -> None:
        """What is sent before the handshake waits for its end."""
        if not self.subprotocol:
            if data and not self.over:
                self._early.append(data)
        elif not self._closed:
            for start in range(0, len(data), MESSAGE_MOST):
                self._write(_BINARY, data[start : start + MESSAGE_MOST])

    def close(self) -> None:
        """Tells the other side that nothing more will come."""
        self._close(NORMAL)

    def data_to_send(self) -> bytes:
        if self._pong is not None:
            self._write(_PONG, self._pong)
            self._pong = None
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    # --- the handshake

    def _shake(self, line: str, headers: Mapping[str, str]) -> None:
        """The head of the other side: its first line, and its headers by name in small letters."""
        raise NotImplementedError

    def _refuse(self, error: _Refused) -> None:
        self._close(error.code, str(error))

    # --- frames

    def _read(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        data = self._buffer + data if self._buffer else data
        at, end = 0, len(data)
        self._buffer = b""
        while at < end and not self.over:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                if self._mask:
                    piece = _masked(piece, self._mask)
                    turn = len(piece) % 4
                    self._mask = self._mask[turn:] + self._mask[:turn]
                parts.append(piece)
                continue
            behind = self._begin_frame(data, at, end)
            if behind == at:
                self._buffer = data[at:]
                break
            at = behind
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _begin_frame(self, data: bytes, at: int, end: int) -> int:
        """Reads a header, of a control frame all of it; returns where that ends: `at` if it has not come as a whole."""
        start = at
        if end - at < 2:
            return start
        first, second = data[at], data[at + 1]
        opcode, size, masked = first & 0x0F, second & 0x7F, bool(second & _MASKED)
        if first & _RESERVED:
            raise _Refused("a reserved bit is set, and no extension was agreed on")
        if masked == (self._entropy is not None):
            raise _Refused("a client masks its frames, and a server does not")
        if opcode not in (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise _Refused(f"opcode {opcode} means nothing")
        if opcode >= _CLOSE and (size > CONTROL_MOST or not first & _FINAL):
            raise _Refused("a control frame that is fragmented, or too large")
        at += 2
        if size > CONTROL_MOST:
            width = 2 if size == 126 else 8
            if end - at < width:
                return start
            size = int.from_bytes(data[at : at + width], "big")
            at += width
            if size < (126 if width == 2 else 1 << 16) or size >> 63:
                raise _Refused("a length that is not written as the shortest one")
        mask = b""
        if masked:
            if end - at < 4:
                return start
            mask = data[at : at + 4]
            at += 4
        if opcode >= _CLOSE:
            if end - at < size:
                return start
            self._control(opcode, _masked(data[at : at + size], mask) if mask else data[at : at + size])
            return at + size
        if opcode == _TEXT:
            raise _Refused("a text message: there are binary ones only", NOT_BINARY)
        if (opcode == _CONTINUATION) != self._fragmented:
            raise _Refused("a fragment without a beginning" if opcode == _CONTINUATION else "a message within another")
        self._fragmented = not first & _FINAL
        self._left = size
        self._mask = mask
        return at

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self._pong = payload
        elif opcode == _CLOSE:
            if len(payload) == 1:
                raise _Refused("a close frame with half a status code")
            self._close(int.from_bytes(payload[:2], "big") or NORMAL)
            self.over = True

    def _close(self, code: int, reason: str = "") -> None:
        if self.subprotocol and not self._closed:
            self._write(_CLOSE, code.to_bytes(2, "big") + reason.encode()[: CONTROL_MOST - 2])
            self._closed = True
            self._pong = None

    def _write(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        mask = self._entropy(4) if self._entropy is not None else b""
        masked = _MASKED if mask else 0
        if size > CONTROL_MOST:
            head = bytes((_FINAL | opcode, 126 | masked)) + size.to_bytes(2, "big")
        else:
            head = bytes((_FINAL | opcode, size | masked))
        self._out += (head + mask, _masked(payload, mask) if mask else payload)


class ListenerWebSocket(_WebSocket):
    """The listener's side. subprotocols: those that it speaks, the best first. origins: the web pages that may connect,
    as browsers name them, or `*`; who names no origin is no web page. hosts: by which clients come (`base.hosts`)."""

    __slots__ = ("_hosts", "_origins", "_subprotocols")

    def __init__(self, subprotocols: Sequence[str], origins: Collection[str] = (), hosts: Collection[str] = ()) -> None:
        super().__init__(None)
        self._hosts = hosts
        self._subprotocols = subprotocols
        self._origins = origins

    def _shake(self, line: str, headers: Mapping[str, str]) -> None:
        words = line.split(" ")
        if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
            raise _Refused("no request of HTTP/1.1", HTTPStatus.BAD_REQUEST)
        if words[0] != "GET":
            raise _Refused("only GET opens a WebSocket", HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET\r\n")
        asked = "upgrade" in _words(headers.get("connection", "")) and "websocket" in _words(headers.get("upgrade", ""))
        if not asked or words[2] == "HTTP/1.0" or headers.get("sec-websocket-version") != "13":
            wanted = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            raise _Refused("here are WebSockets of version 13, and nothing else", HTTPStatus.UPGRADE_REQUIRED, wanted)
        named = named_in(words[1], [headers["host"]] if "host" in headers else [])
        if not is_own(named, self._hosts):
            raise _Refused(refusal(named, IN_THE_FILE), HTTPStatus.MISDIRECTED_REQUEST)
        key = headers.get("sec-websocket-key", "")
        if not _is_key(key):
            raise _Refused("Sec-WebSocket-Key is not 16 bytes in base64", HTTPStatus.BAD_REQUEST)
        origin = headers.get("origin")
        if origin is not None and "*" not in self._origins and origin.lower() not in self._origins:
            shown = origin.encode("ascii", "backslashreplace").decode()[:100]
            raise _Refused(f"pages of {shown} may not connect: see websocket.origins", HTTPStatus.FORBIDDEN)
        offered = [each.strip() for each in headers.get("sec-websocket-protocol", "").split(",")]
        agreed = next((each for each in self._subprotocols if each in offered), None)
        if agreed is None:
            known = ", ".join(self._subprotocols)
            raise _Refused(f"Sec-WebSocket-Protocol names none of: {known}", HTTPStatus.BAD_REQUEST)
        self.subprotocol = agreed
        answer = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {_accept(key)}\r\nSec-WebSocket-Protocol: {agreed}\r\n\r\n"
        )
        self._out.append(answer.encode())

    def _refuse(self, error: _Refused) -> None:
        if self.subprotocol:
            super()._refuse(error)
            return
        status = HTTPStatus(error.code)
        body = f"{error}\n".encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n{error.headers}Connection: close\r\n\r\n"
        )
        self._out.append(head.encode() + body)


class DialledWebSocket(_WebSocket):
    """The client's side: it asks at once."""

    __slots__ = ("_key", "_wanted")

    def __init__(self, host: str, port: int, subprotocol: str, entropy: Callable[[int], bytes]) -> None:
        super().__init__(entropy)
        self._wanted = subprotocol
        self._key = base64.b64encode(entropy(16)).decode()
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        request = (
            f"GET / HTTP/1.1\r\nHost: {place}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {self._key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
        )
        self._out.append(request.encode())

    def _shake(self, line: str, headers: Mapping[str, str]) -> None:
        if not line.startswith("HTTP/1.1 101"):
            raise _Refused(f"the other side opens no WebSocket: {line:.100}")
        if headers.get("sec-websocket-accept") != _accept(self._key):
            raise _Refused("the other side did not read the request: Sec-WebSocket-Accept is wrong")
        if headers.get("sec-websocket-protocol") != self._wanted:
            raise _Refused(f"the other side does not speak {self._wanted}")
        if headers.get("sec-websocket-extensions"):
            raise _Refused("the other side wants an extension that nobody has asked for")
        self.subprotocol = self._wanted


def _read_head(head: bytes) -> tuple[str, dict[str, str]]:
    line, *rest = head.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for each in rest:
        name, colon, value = each.partition(":")
        if not colon or not name or name != name.strip():
            raise _Refused("a header that is none", HTTPStatus.BAD_REQUEST)
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return line, headers


def _words(value: str) -> list[str]:
    return [each.strip().lower() for each in value.split(",")]


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _accept(key: str) -> str:
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


def _masked(data: bytes, mask: bytes) -> bytes:
    """Exclusive or with the mask, over and over: as one large number, some nanoseconds a byte."""
    size = len(data)
    whole = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(whole, "little")).to_bytes(size, "little")
