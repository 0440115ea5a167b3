"""WebSockets without sockets: both sides against each other, and frames by hand."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pytest

from onceway.base.websocket import MESSAGE_MOST, DialledWebSocket, ListenerWebSocket
from onceway.serve.transport import HIGH_WATER, VIEW, WEBSOCKET_READ, Carrier

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455, 1.3
REQUEST = (
    "GET /chat HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: chat, amqp\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MASK = b"\x37\xfa\x21\x3d"


def listener(*origins: str) -> ListenerWebSocket:
    return ListenerWebSocket(("amqp", "AMQPWSB10"), origins, {"server.example.com"})


def shaken() -> ListenerWebSocket:
    websocket = listener()
    assert websocket.receive(REQUEST.encode()) == b""
    websocket.data_to_send()
    return websocket


def frame(first: int, payload: bytes = b"", mask: bytes = MASK, size: bytes | None = None) -> bytes:
    """As a client sends it."""
    if size is None:
        length = len(payload)
        size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
    size = bytes([size[0] | (0x80 if mask else 0)]) + size[1:]
    masked = bytes(a ^ b for a, b in zip(payload, itertools.cycle(mask), strict=False)) if mask else payload
    return bytes([first]) + size + mask + masked


def test_the_handshake_of_the_rfc_gets_its_answer() -> None:
    websocket = listener()
    for at in range(len(REQUEST)):
        assert websocket.subprotocol == ""
        assert websocket.receive(REQUEST[at : at + 1].encode()) == b""
    line, *headers = websocket.data_to_send().decode().removesuffix("\r\n\r\n").split("\r\n")
    assert line == "HTTP/1.1 101 Switching Protocols"
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in headers
    assert "Sec-WebSocket-Protocol: amqp" in headers
    assert websocket.subprotocol == "amqp"


@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        ("GET", "POST", 405, "only GET"),
        ("HTTP/1.1", "HTTP/2.0", 400, "no request of HTTP/1.1"),
        ("GET /chat HTTP/1.1", "AMQP", 400, "no request of HTTP/1.1"),
        ("Upgrade: websocket", "Upgrade: h2c", 426, "WebSockets of version 13"),
        ("Connection: keep-alive, Upgrade", "Connection: close", 426, "WebSockets of version 13"),
        ("Version: 13", "Version: 8", 426, "WebSockets of version 13"),
        (KEY, "c2hvcnQ=", 400, "Sec-WebSocket-Key"),
        (KEY, "\u00e9", 400, "Sec-WebSocket-Key"),
        ("chat, amqp", "mqtt", 400, "names none of: amqp, AMQPWSB10"),
        ("Sec-WebSocket-Protocol: chat, amqp\r\n", "", 400, "names none of"),
        ("Host:", "Origin: https://evil.example\r\nHost:", 403, "pages of https://evil.example may not connect"),
        ("Host:", "Ho st", 400, "a header that is none"),
        ("/chat", "/" + "x" * 9000, 431, "more than 8192 bytes"),
    ],
)
def test_what_opens_no_websocket_is_told_why_and_read_no_more(old: str, new: str, status: int, said: str) -> None:
    websocket = listener("https://app.example")
    assert websocket.receive(REQUEST.replace(old, new, 1).encode("latin-1")) == b""
    answer = websocket.data_to_send().decode()
    head, body = answer.split("\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert f"Content-Length: {len(body)}\r\n" in head
    assert said in body
    assert body.strip() == websocket.failure
    assert websocket.over
    assert websocket.receive(REQUEST.encode()) == b""
    websocket.send(b"x")
    websocket.close()
    assert websocket.data_to_send() == b""


@pytest.mark.parametrize("allowed", ["*", "https://app.example"])
def test_a_page_of_an_allowed_origin_connects(allowed: str) -> None:
    websocket = listener(allowed)
    websocket.receive(REQUEST.replace("Host:", "Origin: https://App.example\r\nHost:").encode())
    assert websocket.subprotocol == "amqp"


def test_the_drafts_name_of_the_subprotocol_is_answered_with_itself() -> None:
    websocket = listener()
    websocket.receive(REQUEST.replace("chat, amqp", "AMQPWSB10").encode())
    assert b"Sec-WebSocket-Protocol: AMQPWSB10\r\n" in websocket.data_to_send()


def test_a_large_frame_is_handed_on_as_it_comes() -> None:
    """Of a frame that says it has 2**40 bytes nothing is kept: 1 GB of it would not be noticed."""
    websocket = shaken()
    websocket.receive(frame(0x82, b"", size=b"\x7f" + (1 << 40).to_bytes(8, "big")))
    for size in (1, 2, 3, 1000, 100_001):
        begun = websocket._left
        piece = bytes(
            a ^ b
            for a, b in zip(b"\xab" * size, itertools.cycle(MASK[-begun % 4 :] + MASK[: -begun % 4]), strict=False)
        )
        assert websocket.receive(piece) == b"\xab" * size
    assert websocket._buffer == b""


@pytest.mark.parametrize("seed", range(5))
def test_what_one_side_says_the_other_hears_however_it_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    sides = DialledWebSocket("localhost", 1, "amqp", rng.randbytes), listener()
    said, heard = [b"", b""], [b"", b""]
    for turn in range(60):
        for side in (0, 1):
            words = rng.randbytes(rng.choice([0, 1, 125, 126, 65_535, 65_536, MESSAGE_MOST * 2 + 1]) if turn else 3)
            sides[side].send(words)
            said[side] += words
            data = sides[side].data_to_send()
            while data:
                cut = rng.choice([1, 2, 7, len(data)])
                heard[side] += sides[1 - side].receive(data[:cut])
                data = data[cut:]
    for side in (0, 1):
        heard[1 - side] += sides[side].receive(sides[1 - side].data_to_send())
    assert heard == said
    sides[0].close()
    assert sides[1].receive(sides[0].data_to_send()) == b""
    assert sides[0].receive(sides[1].data_to_send()) == b""
    assert [side.over for side in sides] == [True, True]
    assert [side.failure for side in sides] == ["", ""]


def test_fragments_and_a_ping_between_them_are_one_stream_and_a_pong() -> None:
    websocket = shaken()
    data = frame(0x02, b"one ") + frame(0x89, b"first") + frame(0x89, b"second") + frame(0x00, b"two ")
    data += frame(0x8A, b"unasked") + frame(0x80, b"three") + frame(0x82, b"!")
    assert b"".join(websocket.receive(data[at : at + 1]) for at in range(len(data))) == b"one two three!"
    assert websocket.data_to_send() == b"\x8a\x06second"


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (frame(0x81, b"text"), 1003, "binary ones only"),
        (frame(0xC2, b"x"), 1002, "reserved bit"),
        (frame(0x82, b"x", mask=b""), 1002, "a client masks"),
        (frame(0x83, b"x"), 1002, "opcode 3"),
        (frame(0x09, b"x"), 1002, "a control frame"),
        (frame(0x89, b"x" * 126), 1002, "a control frame"),
        (frame(0x80, b"x"), 1002, "a fragment without"),
        (frame(0x02, b"x") + frame(0x82, b"x"), 1002, "a message within"),
        (frame(0x82, b"x", size=b"\x7e\x00\x01"), 1002, "shortest"),
        (frame(0x82, b"x", size=b"\x7f" + (1 << 63).to_bytes(8, "big")), 1002, "shortest"),
        (frame(0x88, b"x"), 1002, "half a status code"),
    ],
)
def test_a_frame_that_is_wrong_closes_with_its_code(data: bytes, code: int, said: str) -> None:
    websocket = shaken()
    websocket.receive(data + frame(0x82, b"not read any more"))
    assert said in websocket.failure
    assert websocket.over
    answer = websocket.data_to_send()
    assert (answer[0], answer[2:4]) == (0x88, code.to_bytes(2, "big"))
    assert answer[4:].decode() == websocket.failure[:121]


def test_a_close_is_answered_with_its_code_and_is_the_last_that_is_sent() -> None:
    websocket = shaken()
    assert (
        websocket.receive(frame(0x82, b"last") + frame(0x88, (1001).to_bytes(2, "big")) + frame(0x82, b"x")) == b"last"
    )
    websocket.send(b"x")
    websocket.close()
    assert websocket.data_to_send() == b"\x88\x02" + (1001).to_bytes(2, "big")
    assert (websocket.over, websocket.failure) == (True, "")


def test_pings_of_a_client_that_reads_no_pongs_fill_no_buffer() -> None:
    class Transport:
        waiting = HIGH_WATER
        written = b""

        def get_write_buffer_size(self) -> int:
            return self.waiting

        def is_closing(self) -> bool:
            return False

        def write(self, data: bytes) -> None:
            self.written += data

    carrier = Carrier(None, websocket=shaken())  # type: ignore[arg-type]
    carrier.transport = transport = Transport()  # type: ignore[assignment]
    for number in range(3):
        data = frame(0x89, b"%d" % number)
        assert carrier.received(data) == b""
    assert transport.written == b""
    transport.waiting = 0
    assert carrier.received(b"") == b""
    assert transport.written == b"\x8a\x012"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("101 Switching", "403 Forbidden", "opens no WebSocket: HTTP/1.1 403 Forbidden"),
        ("Sec-WebSocket-Accept: ", "Sec-WebSocket-Accept: x", "did not read the request"),
        ("Protocol: amqp", "Protocol: mqtt", "does not speak amqp"),
        ("Upgrade: websocket", "Sec-WebSocket-Extensions: permessage-deflate", "extension"),
    ],
)
def test_a_client_says_why_an_answer_is_wrong(old: str, new: str, said: str) -> None:
    client = DialledWebSocket("::1", 80, "amqp", random.Random(1).randbytes)
    server = listener()
    server.receive(client.data_to_send())
    client.receive(server.data_to_send().replace(old.encode(), new.encode()))
    assert said in client.failure
    assert client.over


def test_what_is_read_at_once_is_little_where_layers_make_much_of_it() -> None:
    """A megabyte would be 175,000 pings, which take half a second."""
    made = Carrier(SimpleNamespace(), websocket=shaken())  # type: ignore[arg-type]
    made.stranger, made._full = False, True
    made._view = VIEW[:4096]
    for _ in range(20):
        made.resize(0.0)
    assert len(made._view) == WEBSOCKET_READ
