"""Strangers who attack routers that are processes: each attack ends, and nobody else is disturbed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import onceway
from amqp10.frames import SASL_FRAME, SASL_HEADER, encode_frame
from amqp10.performatives import SASL_OK, SaslInit, SaslOutcome
from amqp10.settings import BEFORE_LOGIN
from amqp10.types import Symbol
from bench.processes import cpu_seconds
from onceway.access.accepting import MOST_CONNECTIONS
from onceway.access.guesses import MOST_OF_PAIR
from onceway.access.tls import Tls, server_context
from onceway.serve.neighbours import MOST_STRANGERS
from onceway.topology.tls import TlsProfile
from tests.guarded import PASSWORD, Guarded, ended
from tests.live import wait_until
from tests.pki import Pki
from tests.serving import exchange

HALF_OPEN = 50
ENDS_WITHIN_S = 10.0
GROWTH = 64 << 20  # bytes of a router's memory that an attack may take


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(
        tmp_path_factory.mktemp("attacks"), certificates=[{"from": "common_name"}], plain_without_tls=True
    )
    path = guarded.network.topology_path
    path.write_text(f"{path.read_text()}limits: {{half_open: {HALF_OPEN}}}\n")
    guarded.pki.certificate("alice")
    guarded.network.start()
    try:
        yield guarded
    finally:
        guarded.network.close()


@contextlib.asynccontextmanager
async def undisturbed(guarded: Guarded) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """A publisher and a subscriber at two routers keep their connections; a client that comes meanwhile is let in
    before the attacked router has worked for a second (by its CPU: on a busy machine all takes longer); the router keeps
    no memory. Gives what sends a message from one to the other."""
    lost: list[object] = []
    before = memory(guarded)

    def connect(number: int, wait_s: float = 10.0) -> onceway.Connection:
        # With a certificate: an address that is refused for its guesses is not these tests' subject.
        return onceway.connect(
            guarded.url[number],
            tls=guarded.tls(guarded.pki.directory / "alice.pem"),
            credentials=onceway.Credentials(mechanism="EXTERNAL"),
            connect_timeout_s=wait_s,
            on_report=lambda event: lost.append(event) if isinstance(event, onceway.RouterLost) else None,
        )

    async with connect(0) as here, connect(1) as there:
        subscriber, publisher = await there.subscriber("orders"), await here.publisher("orders")

        send = partial(exchange, publisher, subscriber)
        await send(b"before")
        yield send
        attacked = [guarded.network["a"].pid]
        began = cpu_seconds(attacked)
        async with asyncio.timeout(ENDS_WITHIN_S):
            async with connect(0):
                pass
            await send(b"after")
        assert cpu_seconds(attacked) - began < 1.0
        assert lost == []
    assert memory(guarded) - before < GROWTH


def memory(guarded: Guarded) -> int:
    pages = int(Path(f"/proc/{guarded.network['a'].pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(guarded: Guarded) -> int:
    return len(os.listdir(f"/proc/{guarded.network['a'].pid}/fd"))


def port_of(guarded: Guarded) -> int:
    return int(guarded.url[0].rpartition(":")[2])


def play(story: object) -> None:
    asyncio.run(asyncio.wait_for(story, 60.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("listener", "begins", "most"),
    [
        ("amqps", b"\x16\x03\x01", HALF_OPEN),
        ("interrouter", b"AMQP", MOST_STRANGERS),
        ("admin", b"GET", MOST_CONNECTIONS),
    ],
)
async def test_connections_that_say_nothing_are_bounded(
    guarded: Guarded, listener: str, begins: bytes, most: int
) -> None:
    router = guarded.network["a"]
    port = {"amqps": port_of(guarded), "interrouter": router.interrouter_port, "admin": router.admin_port}[listener]
    async with undisturbed(guarded):
        before = open_files(guarded)
        with contextlib.ExitStack() as stack:
            for _ in range(most + 100):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                connection.sendall(begins)
                await asyncio.sleep(0)
            assert await asyncio.to_thread(router.ready)
            assert open_files(guarded) <= before + most + 5
            assert guarded.network["b"].status()["neighbours"]["a"]["up"]


async def test_the_longest_hello_and_the_longest_chain_end_one_connection(guarded: Guarded, tmp_path: Path) -> None:
    """OpenSSL takes a hello of 128 KiB and a chain of 100 KiB, and we take 64 KiB of a stranger; a certificate by a
    stranger's authority is no better for a long chain behind it."""
    record = b"\x16\x03\x01\x40\x00"
    hello = record + b"\x01\xff\xff\xff" + bytes(0x4000 - 4)
    chain = tmp_path / "chain.pem"
    stranger = Pki(tmp_path / "stranger")
    chain.write_text(stranger.certificate("alice").read_text() + stranger.ca.read_text() * 300)
    async with undisturbed(guarded):
        for first in (hello, record + bytes(0x4000), b"\x16\x03\x01\xff\xff" + bytes(0xFFFF), os.urandom(65_536)):
            with socket.create_connection(("127.0.0.1", port_of(guarded))) as connection:
                with contextlib.suppress(OSError):  # it is closed meanwhile
                    connection.sendall(first + (record + bytes(0x4000)) * 100)
                assert len(await ended(connection)) < 100
        with pytest.raises(onceway.OncewayError, match=r"TLS failed|closed|Broken pipe|reset"):
            await onceway.connect(guarded.url[0], tls=guarded.tls(chain), connect_timeout_s=1.0)
    assert f"it has sent more than {BEFORE_LOGIN} bytes, and has not said who it is" in guarded.log()


@pytest.mark.parametrize(
    ("version", "key", "said"), [("-tls1_2", "R", "no renegotiation"), ("-tls1_3", "K", "KEYUPDATE")]
)
async def test_nobody_renegotiates_and_new_keys_harm_nobody(
    guarded: Guarded, version: str, key: str, said: str
) -> None:
    """s_client's R asks for a renegotiation, which TLS 1.3 does not have any more, and K for new keys."""
    command = ["openssl", "s_client", version, "-connect", f"127.0.0.1:{port_of(guarded)}"]
    async with undisturbed(guarded):
        done = await asyncio.to_thread(
            subprocess.run, command, input=f"{key}\n", capture_output=True, text=True, timeout=30
        )
        assert said in done.stderr


async def test_floods_of_sasl_are_answered_once_each_and_counted(guarded: Guarded) -> None:
    """Each connection sends a thousand tries; the first one decides. Later ones of its address are not looked at."""
    init = SaslInit(Symbol("SCRAM-SHA-256"), b"n,,n=alice,r=x").encode()
    flood = SASL_HEADER + encode_frame(SASL_FRAME, 0, init) * 1_000
    plain = guarded.network["a"].amqp_port

    def failures() -> dict[str, int]:
        found: dict[str, int] = guarded.network["a"].status()["authentication"]
        return found

    async with undisturbed(guarded):
        before = failures()
        with contextlib.ExitStack() as stack:
            flooding = []
            for _ in range(HALF_OPEN - 10):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", plain)))
                with contextlib.suppress(OSError):
                    connection.sendall(flood)
                flooding.append(asyncio.create_task(ended(connection)))
            said = await asyncio.gather(*flooding)
        assert max(map(len, said)) < 1_000
        for tries in (MOST_OF_PAIR + 10, 3):  # some are forgotten meanwhile
            guesses = [
                onceway.connect(
                    f"amqp://127.0.0.1:{plain}",
                    credentials=onceway.Credentials("mallory", "x"),
                    connect_timeout_s=10.0,
                )
                for _ in range(tries)
            ]

            async def guess(connection: onceway.Connection) -> None:
                with pytest.raises(onceway.OncewayError):
                    await connection

            await asyncio.gather(*map(guess, guesses))
        after = await asyncio.to_thread(
            wait_until, lambda: failures().get("refused", 0) > before.get("refused", 0) and failures(), "refusals"
        )
        assert after["failed"] > before.get("failed", 0)
        assert after["delayed"] > before.get("delayed", 0)
        metrics = (await asyncio.to_thread(guarded.network["a"].get, "/metrics"))[1].decode()
        assert f'onceway_authentication_failures_total{{what="failed"}} {after["failed"]}' in metrics


async def test_a_flood_of_logins_delays_no_stream_by_a_second(guarded: Guarded) -> None:
    """PLAIN is the dearest login for a router, 5 ms of a core. 40 clients log in again and again, from another address
    than those whose messages flow, one after the other."""
    init = SaslInit(Symbol("PLAIN"), b"\0alice\0" + PASSWORD.encode()).encode()
    asks = SASL_HEADER + encode_frame(SASL_FRAME, 0, init)
    let_in = SaslOutcome(SASL_OK).encode()

    async def logins(number: int) -> None:
        for _ in range(5):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", guarded.network["a"].amqp_port, local_addr=(f"127.0.0.{number + 2}", 0)
            )
            writer.write(asks)
            said = b""
            while not said.endswith(let_in):
                part = await reader.read(4_096)
                assert part, said
                said += part
            writer.close()

    async with undisturbed(guarded) as exchange:
        flood = asyncio.gather(*map(logins, range(40)))
        exchanged = 0
        while not flood.done():
            async with asyncio.timeout(1.0):
                await exchange(b"%d" % exchanged)
            exchanged += 1
        await flood
        assert exchanged > 3


def test_the_bytes_say_nothing_about_who_is_a_user(guarded: Guarded) -> None:
    """What the router writes to a client that tries alice, and to one that tries nobody, has the same form."""

    def says(user: str) -> tuple[int, bytes]:
        init = SaslInit(Symbol("SCRAM-SHA-256"), b"n,,n=" + user.encode() + b",r=abcdef").encode()
        with socket.create_connection(("127.0.0.1", guarded.network["b"].amqp_port)) as connection:
            connection.settimeout(ENDS_WITHIN_S)
            connection.sendall(SASL_HEADER + encode_frame(SASL_FRAME, 0, init))
            said = b""
            while b",i=" not in said:
                said += connection.recv(4_096)
        return len(said), said.rpartition(b",i=")[2]

    assert says("alice") == says("nobody") == says("alicf")


def test_data_that_waits_for_the_handshake_is_the_clients_alone(tmp_path: Path) -> None:
    """A hello in pieces of one byte makes no work beyond its bytes: nothing is answered before it is whole."""
    pki = Pki(tmp_path)
    here = Tls(server_context("tls.x", TlsProfile(*[pki.certificate("router", "localhost")] * 2)))
    there = Tls(_unchecked(), dials=True)
    hello = there.data_to_send()
    for position in range(len(hello) - 1):
        assert here.receive(hello[position : position + 1]) == b""
        assert here.data_to_send() == b""
    here.receive(hello[-1:])
    assert len(here.data_to_send()) > 500


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
