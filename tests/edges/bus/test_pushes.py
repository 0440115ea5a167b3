"""The short way of plain pushes: what it takes, and that aiohttp gets all else as it came."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from edges.bus.pushes import MOST_OCTETS, Pushes, _Connection
from onceway.base.loop import run

BODY = b'{"type":"noop"}'
PLAIN = b"POST /topics/orders HTTP/1.1\r\nHost: bus\r\nAuthorization: Basic eDo=\r\nContent-Length: 15\r\n\r\n" + BODY
TAKEN = ("orders", "Basic eDo=", BODY)
STRANGER = PLAIN.replace(b"eDo=", b"bm8=")
OTHERS = [
    PLAIN.replace(b"POST", b"PUT"),
    PLAIN.replace(b"orders", b"Orders"),
    PLAIN.replace(b"orders", b"orders?a"),
    PLAIN.replace(b"1.1", b"1.0"),
    PLAIN.replace(b"Host: bus\r\n", b""),
    PLAIN.replace(b"Host: bus", b"Host: attacker.example"),
    PLAIN.replace(b"Host", b"Expect: 100-continue\r\nHost"),
    PLAIN.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"),
    PLAIN.replace(b"Host", b"Content-Encoding: gzip\r\nHost"),
    PLAIN.replace(b"Host", b"Connection: close\r\nHost"),
    PLAIN.replace(b"Host", b"Content-Length: 15\r\nHost"),
    PLAIN.replace(b"Content-Length: 15\r\n", b""),
    PLAIN.replace(b"Content-Length", b"Content-Length "),
    PLAIN.replace(b": 15", b": +15"),
    PLAIN.replace(b": 15", b": 15, 15"),
    PLAIN.replace(b": 15", b": %d" % (MOST_OCTETS + 1)),
    PLAIN.replace(b"bus", b"b\0us"),
    PLAIN.replace(b"bus", b"b\xe9s"),
    PLAIN.replace(b"bus\r\n", b"bus\r\n more\r\n"),
    PLAIN.replace(b"bus\r\n", b"bus\n"),
    PLAIN.replace(b"bus", b"b" * 4000),
    PLAIN[:20],
    STRANGER,
]


class Transport(asyncio.Transport):
    """Keeps what is written, and who reads."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"socket": socket.socket()})
        self.written = b""
        self.protocol = protocol

    def write(self, data: Any) -> None:
        self.written += data

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.get_extra_info("socket").close()


class Aiohttp(asyncio.Protocol):
    """Stands for aiohttp's protocol of a connection."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


def play(*pieces: bytes) -> tuple[list[tuple[str, str, bytes]], bytes, bytes]:
    """(pushes that were taken, octets that were answered, octets that aiohttp got)."""
    taken: list[tuple[str, str, bytes]] = []

    async def push(topic: str, authorization: str, body: bytes, know: object) -> tuple[int, str] | None:
        await asyncio.sleep(0)
        if authorization == "Basic bm8=":
            return None
        taken.append((topic, authorization, body))
        return (204, "") if body == BODY else (400, "no JSON")

    async def go() -> tuple[list[tuple[str, str, bytes]], bytes, bytes]:
        server = Pushes(push, Aiohttp, {"bus"})
        connection = _Connection(server)
        transport = Transport(connection)
        connection.connection_made(transport)
        for piece in pieces:
            transport.protocol.data_received(piece)
        while (task := connection.task) is not None:
            await task
        other = transport.protocol
        assert server.connections == ({connection} if other is connection else set())
        transport.protocol.connection_lost(None)
        transport.close()
        return taken, transport.written, other.data if isinstance(other, Aiohttp) else b""

    return run(go())


@pytest.mark.parametrize("cut", [len(PLAIN), len(PLAIN) - len(BODY), len(PLAIN) - 1])
def test_a_plain_push_is_answered(cut: int) -> None:
    taken, answered, others = play(PLAIN[:cut], PLAIN[cut:])
    assert taken == [TAKEN]
    assert answered.startswith(b"HTTP/1.1 204 No Content\r\nDate: ")
    assert answered.endswith(b" GMT\r\n\r\n")
    assert others == b""


@pytest.mark.parametrize("request_", OTHERS)
def test_any_other_request_is_given_to_aiohttp_as_it_came(request_: bytes) -> None:
    assert play(request_) == ([], b"", request_)


def test_requests_that_come_at_once_are_answered_in_order_until_aiohttp_has_the_connection() -> None:
    wrong, other = PLAIN.replace(BODY, b"x" * len(BODY)), PLAIN.replace(b"POST", b"PUT")
    taken, answered, others = play(PLAIN + wrong + PLAIN[:70], PLAIN[70:] + other + PLAIN)
    assert taken == [TAKEN, (*TAKEN[:2], b"x" * len(BODY)), TAKEN]
    assert [line.split()[1] for line in answered.splitlines() if line.startswith(b"HTTP")] == [b"204", b"400", b"204"]
    assert b"Content-Length: 8\r\n\r\nno JSON\n" in answered
    assert others == other + PLAIN
