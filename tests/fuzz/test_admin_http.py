"""The admin listener under bytes that are no HTTP, or nearly: it answers or closes, and the next one is served."""

from __future__ import annotations

import asyncio
import logging
import random
import re

import pytest

from onceway.operate.pages import AdminServer
from tests.onceway.test_admin import RAW, Made

REQUEST = b"GET /status HTTP/1.1\r\nHost: a\r\nAccept: text/plain;q=0.5\r\nConnection: close\r\n\r\n"
PIECES = (
    b"\r\n", b"\x00", b"\xff\xfe", b"HTTP/9.9", b"POST", b" ", b":", b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", b"Expect: 100-continue\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade\r\n", b"/../../etc/passwd", b"%00%ff", b"?" * 300, b"A: " + b"x" * 20_000 + b"\r\n",
    b"Accept: application/openmetrics-text; version=; ;;q=nan,*/*\r\n", b"/metrics", b"AMQP\x00\x01\x00\x00", REQUEST,
)  # fmt: skip
INPUTS = 200
ANSWER_S = 20.0


def mutated(rng: random.Random) -> bytes:
    octets = bytearray(REQUEST)
    for _ in range(rng.randint(0, 5)):
        place = rng.randrange(len(octets) + 1)
        how = rng.random()
        if how < 0.4:
            octets[place:place] = rng.choice(PIECES)
        elif how < 0.6:
            del octets[place : place + rng.randint(1, 12)]
        elif how < 0.8:
            octets[place : place + 1] = rng.randbytes(1)
        else:
            del octets[place:]
    return bytes(octets)


async def exchange(port: int, octets: bytes, patience_s: float) -> bytes:
    """What comes until the listener closes, or for so long: it may well wait for the rest of a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(octets)
        async with asyncio.timeout(patience_s):
            while data := await reader.read(65_536):
                answer += data
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.close()
    return answer


def test_strangers_octets_are_answered_or_closed_and_raise_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        admin = AdminServer(Made(lambda: RAW), lambda: {"a"})
        _, port = await admin.start(("127.0.0.1", 0))
        rng = random.Random(5)
        unhandled: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
        try:
            answered = 0
            for _ in range(INPUTS):
                octets = mutated(rng)
                answer = await exchange(port, octets, 0.1)
                answered += bool(answer)
                assert answer == b"" or answer.startswith(b"HTTP/"), octets
                assert not re.match(rb"HTTP/\S+ 5", answer), (octets, answer)
            assert answered > INPUTS / 4
            healthy = await exchange(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", ANSWER_S)
            assert b"alive" in healthy
            assert unhandled == []
        finally:
            await admin.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scene())
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
