"""By which names requests of HTTP come to a listener: a page of another site cannot make its own one of them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from onceway.access.certificates import dns_names, first_certificate
from onceway.access.readers import Pages
from onceway.base.hosts import is_own, named_in
from onceway.base.websocket import ListenerWebSocket
from onceway.operate.probe import Probe
from onceway.serve.server import RouterServer
from onceway.topology import load
from tests.pki import Pki
from tests.running import ROOT

OWN = ["127.0.0.1", "127.0.0.1:8671", "[::1]:8671", "[fe80::1]", "10.1.2.3", "localhost", "LocalHost:1", "a.example.org",
       "A.Example.org.:8671", "b.wild.example.org"]  # fmt: skip
FOREIGN = ["attacker.example", "attacker.example:8671", "127.0.0.1.attacker.example", "localhost.attacker.example",
           "a.example.org.attacker.example", "xa.example.org", "b.c.wild.example.org", "wild.example.org", "", ":8671",
           "127.0.0.1@attacker.example", "127.0.0.1 attacker.example", "a.example.org, attacker.example", "[attacker]",
           "0x7f.1", "*.wild.example.org:x"]  # fmt: skip
NAMES = {"a.example.org", "*.wild.example.org"}


@pytest.mark.parametrize("host", OWN)
def test_addresses_localhost_and_given_names_are_own_hosts(host: str) -> None:
    assert is_own([host], NAMES)


@pytest.mark.parametrize("host", FOREIGN)
def test_other_hosts_are_foreign(host: str) -> None:
    assert not is_own([host], NAMES)
    assert not is_own(["127.0.0.1", host], NAMES), "each counts where there are several"


def test_who_names_no_host_is_no_page() -> None:
    assert is_own([], ())


@pytest.mark.parametrize("target", ["http://attacker.example/", "HTTPS://127.0.0.1@attacker.example", "http:///x"])
def test_a_target_that_is_a_whole_url_names_a_host_too(target: str) -> None:
    assert not is_own(named_in(target, ["a.example.org"]), NAMES)
    assert is_own(named_in(target.replace("http:", "/http:"), ["a.example.org"]), NAMES) == target.startswith("http:")
    assert is_own(named_in("http://a.example.org:80/x", ["127.0.0.1"]), NAMES)


class OnePage(Pages):
    def pages(self) -> list[web.RouteDef]:
        async def secret(request: web.Request) -> web.Response:
            return web.Response(text="secret")

        return [web.get("/", secret)]


@pytest.mark.parametrize("host", ["attacker.example", "a.example.org"])
async def test_pages_are_for_the_listeners_own_names_of_this_moment(host: str) -> None:
    names = {"a.example.org"}
    pages = OnePage(lambda: names)
    place, port = await pages.start(("127.0.0.1", 0))
    try:
        async with ClientSession() as session:
            for _ in range(2):
                async with session.get(f"http://{place}:{port}/", headers={"Host": host}) as answer:
                    text = await answer.text()
                    assert (answer.status, "secret" in text) == ((200, True) if host in names else (421, False))
                names = {"attacker.example"}
    finally:
        await pages.stop()


async def test_pages_are_not_for_a_target_that_names_another_host() -> None:
    pages = OnePage(lambda: ())
    place, port = await pages.start(("127.0.0.1", 0))
    try:
        reader, writer = await asyncio.open_connection(place, port)
        writer.write(b"GET http://attacker.example/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 421 ")
        writer.close()
    finally:
        await pages.stop()


async def test_a_probe_says_that_the_name_is_foreign_and_where_it_would_be_given() -> None:
    pages = OnePage(lambda: ())
    place, port = await pages.start(("127.0.0.1", 0))
    try:
        probe = Probe()
        probe._headers["Host"] = "b.example.org"
        async with probe:
            assert await probe.summary(f"http://{place}:{port}") is None
            (why,) = probe.why.values()
            assert why.startswith("does not let us read: nobody has given this listener the name b.example.org")
            assert "http_hosts" in why
    finally:
        await pages.stop()


def test_a_router_answers_for_the_hosts_at_which_it_has_listened_since_its_start(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    text = "network: n\nrouters:\n  a: {amqp: '127.0.0.1:1', interrouter: '127.0.0.1:2', admin: 'old.internal:3'}\n"
    file.write_text(text)
    server = RouterServer(load(file), "a")
    file.write_text(text.replace("old.internal", "new.internal"))
    server.topology = load(file)  # as a reload does
    assert {"old.internal", "new.internal"} <= server.hosts


@pytest.mark.parametrize(
    ("host", "target"),
    [("attacker.example:8080", "/"), ("a.example.org", "/"), ("127.0.0.1", "ws://attacker.example/")],
)
def test_a_websocket_is_opened_for_the_listeners_own_names_only(host: str, target: str) -> None:
    websocket = ListenerWebSocket(("amqp",), hosts={"a.example.org"})
    websocket.receive(
        f"GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n".encode()
    )
    answer = websocket.data_to_send().decode()
    assert answer.split(" ")[1] == ("101" if host == "a.example.org" else "421")
    assert ("http_hosts" in answer) == ("421" in answer)


def test_the_file_names_hosts_of_listeners_of_links_and_of_clients(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(
        "network: n\nhostnames: [amqp.example.org]\ndefaults: {host: 10.0.0.1}\ntrunks: {tls: off}\nrouters:\n"
        "  a: {amqp: 1, interrouter: 'A.internal:2', admin: 'ops.internal:3'}\n  b: {amqp: 4, interrouter: 5, admin: 6}\n"
        "links: [{between: [a, b], via: 'proxy.internal:7'}]\n"
        "addresses: [{match: jobs, type: pipe, stores: {s: 'store.internal:8'}}]\n"
    )
    wanted = {"amqp.example.org", "a.internal", "ops.internal", "proxy.internal", "store.internal"}
    assert load(file).hosts - {"10.0.0.1", "127.0.0.1"} == wanted


def test_a_certificate_names_its_hosts(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    both = pki.certificate("both", "router.example.org", "127.0.0.1", "*.wild.example.org")
    assert dns_names(first_certificate(both)) == {"router.example.org", "*.wild.example.org"}


def test_every_front_door_of_http_is_made_by_the_function_that_looks_at_the_host() -> None:
    product = [path for room in ("onceway", "edges") for path in (ROOT / room).rglob("*.py")]
    doors = [str(path.relative_to(ROOT)) for path in product if re.search(r"\bweb\.Application\(", path.read_text())]
    assert doors == ["onceway/access/accepting.py"]
