"""Our server of Toxiproxy's API, asked with the real client, and what each toxic does to the bytes of a connection.

With TOXIPROXY_URL these tests ask a real Toxiproxy instead: what they say of ours must be true of it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from toxiproxy import Proxy, Toxiproxy
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from tests.live import dying_with_us, wait_until

BOUND_S = 60.0  # for what takes a moment, on a machine that does much else


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    """The base URL of the server."""
    if url := os.environ.get("TOXIPROXY_URL"):
        yield url.rstrip("/")
        return
    command = [sys.executable, "-m", "chaos.toxiproxy", "--port", "0", "--seed", "1"]
    with subprocess.Popen(dying_with_us(command), stdout=subprocess.PIPE, text=True) as process:
        yield "http://" + process.stdout.readline().removeprefix("listening on ").strip()
        process.terminate()
        assert process.wait(BOUND_S) == 0


@pytest.fixture
def server(api: str) -> Iterator[Toxiproxy]:
    """toxiproxy-python's client, with no proxies before and after."""
    where = urlsplit(api)
    client = Toxiproxy()
    client.update_api_consumer(where.hostname, where.port)
    client.destroy_all()
    yield client
    client.destroy_all()


class Upstream:
    """A TCP server that keeps what it gets, and can answer."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        self.got: list[bytearray] = []
        self.sizes: list[int] = []
        self.ended: list[str] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.got.append(bytearray())
            self.connections.append(connection)
            threading.Thread(target=self.read, args=(connection, self.got[-1]), daemon=True).start()

    def read(self, connection: socket.socket, got: bytearray) -> None:
        try:
            while data := connection.recv(1 << 16):
                self.sizes.append(len(data))
                got += data
            self.ended.append("closed")
        except OSError as error:
            self.ended.append(error.strerror or "")
        connection.close()

    def close(self) -> None:
        self.listener.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    it = Upstream()
    yield it
    it.close()


@pytest.fixture
def proxy(server: Toxiproxy, upstream: Upstream) -> Proxy:
    return server.create(upstream=upstream.address, name="p")


def connect(proxy: Proxy) -> socket.socket:
    host, port = proxy.listen.rsplit(":", 1)
    client = socket.create_connection((host, int(port)), timeout=BOUND_S)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def connected(proxy: Proxy, upstream: Upstream) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection through the proxy."""
    before = len(upstream.connections)
    client = connect(proxy)
    wait_until(lambda: len(upstream.connections) > before, "a connection at the upstream")
    return client, upstream.connections[-1]


def receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data


# --- the API --------------------------------------------------------------------------------------------------------


def test_a_proxy_listens_where_it_is_told(server: Toxiproxy, upstream: Upstream) -> None:
    made = server.create(upstream=upstream.address, name="p")
    assert made.enabled
    assert int(made.listen.removeprefix("127.0.0.1:")) > 0
    assert set(server.proxies()) == {"p"}
    assert b'"version": "2.' in server.version()


def test_the_clients_own_errors_fit_ours(server: Toxiproxy, upstream: Upstream, proxy: Proxy) -> None:
    with pytest.raises(ProxyExists):
        server.create(upstream=upstream.address, name="p")
    with pytest.raises(InvalidToxic):
        proxy.add_toxic(type="nothing")
    with pytest.raises(NotFound):
        proxy.destroy_toxic("none")


@pytest.mark.parametrize(
    ("path", "sent", "status", "error"),
    [
        ("/proxies/none/toxics", {}, 404, "proxy not found"),
        ("/proxies", {"name": "p", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:1"}, 409, "proxy already exists"),
        ("/proxies", {"name": "x", "listen": "127.0.0.1:0"}, 400, "missing required field: upstream"),
        ("/proxies/p/toxics", {"type": "slicer", "name": "taken"}, 409, "toxic already exists"),
        (
            "/proxies/p/toxics",
            {"type": "slicer", "stream": "sideways"},
            400,
            "stream was invalid, can be either upstream or downstream",
        ),
    ],
)
def test_errors_have_a_code_and_say_what_is_wrong(
    api: str, proxy: Proxy, path: str, sent: dict[str, Any], status: int, error: str
) -> None:
    proxy.add_toxic(type="latency", name="taken")
    answer = requests.post(f"{api}{path}", json=sent, timeout=BOUND_S)
    assert (answer.status_code, answer.json()["error"]) == (status, error)


@pytest.mark.parametrize(
    "sent", ["", "[]", '{"type": "latency", "attributes": 5}', '{"type": "latency", "toxicity": NaN}']
)
def test_what_is_no_toxic_leaves_no_trace(api: str, proxy: Proxy, sent: str) -> None:
    assert requests.post(f"{api}/proxies/p/toxics", data=sent, timeout=BOUND_S).status_code == 400
    assert proxy.toxics() == {}


def test_a_port_that_is_taken_is_an_internal_error(api: str, server: Toxiproxy, upstream: Upstream) -> None:
    new = {"name": "p", "listen": upstream.address, "upstream": "127.0.0.1:1"}
    answer = requests.post(f"{api}/proxies", json=new, timeout=BOUND_S)
    assert answer.status_code == 500
    assert "address already in use" in answer.json()["error"]
    assert server.proxies() == {}


def test_of_many_who_make_a_proxy_at_once_one_has_made_it(api: str, server: Toxiproxy, upstream: Upstream) -> None:
    new = {"name": "p", "listen": "127.0.0.1:0", "upstream": upstream.address}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: requests.post(f"{api}/proxies", json=new, timeout=BOUND_S), range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7


def test_browsers_are_sent_away(api: str) -> None:
    answer = requests.get(f"{api}/proxies", headers={"User-Agent": "Mozilla/5.0"}, timeout=BOUND_S)
    assert (answer.status_code, answer.text) == (403, "User agent not allowed\n")


def test_toxics_upstream_come_first_in_the_list(proxy: Proxy) -> None:
    proxy.add_toxic(type="latency", stream="downstream")
    proxy.add_toxic(type="slicer", stream="upstream")
    assert list(proxy.toxics()) == ["slicer_upstream", "latency_downstream"]


# --- connections ----------------------------------------------------------------------------------------------------


def test_bytes_pass_both_ways_and_the_end_too(proxy: Proxy, upstream: Upstream) -> None:
    client, far = connected(proxy, upstream)
    far.sendall(b"hello")
    assert receive(client, 5) == b"hello"
    blob = os.urandom(1 << 20)
    client.sendall(blob)
    client.close()
    wait_until(lambda: upstream.ended, "the end at the upstream")
    assert upstream.got[0] == blob


def test_a_disabled_proxy_drops_its_connections_and_refuses_new_ones(proxy: Proxy, upstream: Upstream) -> None:
    client, _ = connected(proxy, upstream)
    with proxy.down():
        assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
    connected(proxy, upstream)


def test_a_connection_ends_when_nobody_is_at_the_upstream(server: Toxiproxy) -> None:
    with connect(server.create(upstream="127.0.0.1:1", name="nowhere")) as client:
        assert client.recv(1) == b""


def test_latency_delays_one_way_only(proxy: Proxy, upstream: Upstream) -> None:
    client, far = connected(proxy, upstream)
    proxy.add_toxic(type="latency", attributes={"latency": 300})
    began = time.monotonic()
    far.sendall(b"down")
    assert receive(client, 4) == b"down"
    assert time.monotonic() - began >= 0.28
    proxy.add_toxic(type="latency", name="for ever", attributes={"latency": 3_600_000})
    client.sendall(b"up")
    wait_until(lambda: upstream.got[0] == b"up", "bytes upstream", 30)


def test_jitter_varies_latency_around_its_middle(proxy: Proxy, upstream: Upstream) -> None:
    client, far = connected(proxy, upstream)
    proxy.add_toxic(type="latency", attributes={"latency": 50, "jitter": 40})
    took = []
    for _ in range(12):
        began = time.monotonic()
        far.sendall(b"x")
        client.recv(1)
        took.append(time.monotonic() - began)
    assert min(took) >= 0.009
    assert max(took) - min(took) > 0.015


def test_chunks_of_a_delayed_stream_are_delayed_together_and_not_one_after_the_other(
    proxy: Proxy, upstream: Upstream
) -> None:
    client, far = connected(proxy, upstream)
    proxy.add_toxic(type="latency", attributes={"latency": 500})
    began = time.monotonic()
    for _ in range(60):
        far.sendall(b"x")
        time.sleep(0.005)  # a chunk each
    client.settimeout(BOUND_S)
    assert receive(client, 60) == b"x" * 60
    assert time.monotonic() - began < 25  # one after the other they would take 30 s


def test_a_toxic_taken_away_lets_go_of_what_it_held(proxy: Proxy, upstream: Upstream) -> None:
    client, far = connected(proxy, upstream)
    proxy.add_toxic(type="latency", attributes={"latency": 60_000})
    far.sendall(b"first")
    far.sendall(b"second")
    proxy.add_toxic(type="slicer", attributes={"average_size": 1})
    proxy.destroy_toxic("latency_downstream")
    assert receive(client, 11) == b"firstsecond"


def test_bandwidth_lets_through_so_many_kilobytes_a_second(proxy: Proxy, upstream: Upstream) -> None:
    client, _ = connected(proxy, upstream)
    proxy.add_toxic(type="bandwidth", stream="upstream", attributes={"rate": 100})
    blob = os.urandom(60_000)
    began = time.monotonic()
    client.sendall(blob)
    wait_until(lambda: len(upstream.got[0]) == len(blob), "all bytes", every_s=0.005)
    assert time.monotonic() - began >= 0.5
    assert upstream.got[0] == blob


def test_slow_close_keeps_the_connection_for_a_while(proxy: Proxy, upstream: Upstream) -> None:
    client, far = connected(proxy, upstream)
    proxy.add_toxic(type="slow_close", attributes={"delay": 300})
    far.sendall(b"last words")
    began = time.monotonic()
    far.shutdown(socket.SHUT_RDWR)
    assert receive(client, 10) == b"last words"
    assert client.recv(1) == b""
    assert time.monotonic() - began >= 0.28


def test_timeout_drops_everything_and_then_closes(proxy: Proxy, upstream: Upstream) -> None:
    client, far = connected(proxy, upstream)
    began = time.monotonic()  # the toxic's time begins when it is added, and again with what comes before it is over
    proxy.add_toxic(type="timeout", attributes={"timeout": 300})
    with contextlib.suppress(OSError):
        far.sendall(b"lost")
    assert client.recv(4) == b""
    assert time.monotonic() - began >= 0.28
    wait_until(lambda: upstream.ended, "the other end")


def test_timeout_of_zero_keeps_the_connection_until_it_is_taken_away(proxy: Proxy, upstream: Upstream) -> None:
    client, far = connected(proxy, upstream)
    proxy.add_toxic(type="timeout", attributes={"timeout": 0})
    far.sendall(b"lost")
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(BOUND_S)
    proxy.destroy_toxic("timeout_downstream")
    assert client.recv(1) == b""


@pytest.mark.parametrize("before", [True, False], ids=["before the connection", "on a connection"])
def test_reset_peer_resets_both_ends(proxy: Proxy, upstream: Upstream, before: bool) -> None:
    if before:
        proxy.add_toxic(type="reset_peer", attributes={"timeout": 100})
        client, far = connected(proxy, upstream)
    else:
        client, far = connected(proxy, upstream)
        proxy.add_toxic(type="reset_peer", attributes={"timeout": 100})
    far.sendall(b"lost")
    with pytest.raises(ConnectionResetError):
        client.recv(4)
    wait_until(lambda: upstream.ended, "the other end")
    assert upstream.ended == ["Connection reset by peer"]


def test_the_slicer_cuts_into_small_pieces_and_changes_no_byte(proxy: Proxy, upstream: Upstream) -> None:
    client, _ = connected(proxy, upstream)
    proxy.add_toxic(
        type="slicer", stream="upstream", attributes={"average_size": 100, "size_variation": 20, "delay": 2_000}
    )
    blob = os.urandom(5_000)
    client.sendall(blob)
    wait_until(lambda: len(upstream.got[0]) == len(blob), "all bytes")
    assert upstream.got[0] == blob
    assert len(upstream.sizes) > 20


def test_limit_data_ends_the_connection_after_so_many_bytes(proxy: Proxy, upstream: Upstream) -> None:
    proxy.add_toxic(type="limit_data", stream="upstream", attributes={"bytes": 1_000})
    for number in (0, 1):  # counted for each connection
        client, _ = connected(proxy, upstream)
        client.sendall(b"x" * 700)
        client.sendall(b"y" * 700)
        wait_until(lambda number=number: len(upstream.ended) > number, "the end")
        assert upstream.got[number] == b"x" * 700 + b"y" * 300


def test_toxicity_is_the_share_of_connections_that_are_hit(proxy: Proxy, upstream: Upstream) -> None:
    proxy.add_toxic(type="limit_data", stream="upstream", attributes={"bytes": 1}, toxicity=0.5)
    clients = [connected(proxy, upstream)[0] for _ in range(40)]
    for client in clients:
        client.sendall(b"abc")

    def whole() -> int:
        return sum(got == b"abc" for got in upstream.got)

    wait_until(lambda: whole() + len(upstream.ended) == 40, "all bytes, or the end, on every connection")
    assert 6 <= whole() <= 34


@pytest.mark.parametrize("kind", ["reset_peer", "timeout"])
def test_who_is_not_of_the_share_that_is_hit_goes_on_when_the_toxic_is_taken_away(
    proxy: Proxy, upstream: Upstream, kind: str
) -> None:
    client, far = connected(proxy, upstream)
    proxy.add_toxic(type=kind, name="rare", attributes={"timeout": 0}, toxicity=0.0)
    far.sendall(b"one")
    assert receive(client, 3) == b"one"
    proxy.destroy_toxic("rare")
    far.sendall(b"two")
    assert receive(client, 3) == b"two"
    far.shutdown(socket.SHUT_RDWR)
    assert client.recv(1) == b""


def test_toxics_act_one_after_the_other(proxy: Proxy, upstream: Upstream) -> None:
    client, far = connected(proxy, upstream)
    proxy.add_toxic(type="latency", name="one", attributes={"latency": 150})
    proxy.add_toxic(type="latency", name="two", attributes={"latency": 300})
    proxy.add_toxic(type="limit_data", attributes={"bytes": 3})
    began = time.monotonic()
    far.sendall(b"abcdef")
    assert receive(client, 6) == b"abc"
    assert time.monotonic() - began >= 0.28
