"""AMQP over WebSocket: rhea in node and in a browser, and our client, plain and through TLS."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
import yaml

import onceway
from chaos.live.ports import free_port
from onceway.base.loop import run
from onceway.errors import ConnectionFailed
from tests.chromium import browser, chromium
from tests.interop import messages
from tests.interop.raw import unique
from tests.interop.test_rhea import node
from tests.live import PATIENT, LiveNetwork
from tests.needs import CHROMIUM
from tests.pki import Pki

COUNT = 400


class Web:
    """Two routers that listen with WebSockets, and a web server whose pages may connect to them."""

    def __init__(self, directory: Path, rhea: Path) -> None:
        self.pki = Pki(directory / "pki")
        self.pki.certificate("router", "127.0.0.1")
        self.network = LiveNetwork(directory, ("a", "b"), [("a", "b")], settings=PATIENT)
        plain, secure = ([free_port(), free_port()] for _ in range(2))
        self.ws = [f"ws://127.0.0.1:{port}" for port in plain]
        self.wss = [f"wss://127.0.0.1:{port}" for port in secure]
        pages = directory / "pages"
        pages.mkdir()
        shutil.copy(rhea / "node_modules" / "rhea" / "dist" / "rhea.js", pages)
        shutil.copy(Path(__file__).parent / "rhea" / "page.html", pages)
        self.pages = ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: _Quiet(*a, directory=str(pages)))
        document = self.network.topology()
        document["tls"] = {"outside": {"certificate": "pki/router.pem"}}
        document["websocket"] = {"origins": [self.origin("127.0.0.1")]}
        for name, *ports in zip("ab", plain, secure, strict=True):
            document["routers"][name] |= {"ws": ports[0], "wss": ports[1], "tls": "outside"}
        self.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))

    def origin(self, host: str) -> str:
        return f"http://{host}:{self.pages.server_port}"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, rhea: Path) -> Iterator[Web]:
    web = Web(tmp_path_factory.mktemp("web"), rhea)
    threading.Thread(target=web.pages.serve_forever, daemon=True).start()
    with web.pages, web.network as network:
        network.start()
        yield web
        web.pages.shutdown()


@pytest.mark.parametrize("mode", ["second", "pre-settled"])
def test_rhea_reaches_rhea_in_websockets_with_every_body_type(web: Web, rhea: Path, mode: str) -> None:
    address, count = unique("rhea-ws"), 39
    with node(rhea, "subscribe.js", web.ws[1], address, mode, count) as subscriber:
        assert subscriber.line() == "attached"
        with node(rhea, "publish.js", web.ws[0], address, mode, "bodies") as publisher:
            *sent, _ = publisher.rest()
        assert len(sent) == count
        assert subscriber.rest() == sent


def test_ten_megabytes_from_rhea_in_a_websocket_to_rhea_without(web: Web, rhea: Path) -> None:
    address = unique("rhea-ws-large")
    with node(rhea, "subscribe.js", web.network["b"].address, address, "second", 1, "large") as subscriber:
        assert subscriber.line() == "attached"
        with node(rhea, "publish.js", web.ws[0], address, "second", "large", messages.LARGEST) as publisher:
            publisher.rest(60)
        assert subscriber.rest(60)[0].startswith(f"{messages.LARGEST} ")


def test_our_client_goes_through_websockets_with_tls_and_without(web: Web) -> None:
    async def story() -> None:
        tls = onceway.tls_context(web.pki.ca)
        async with onceway.connect(web.wss[0], tls=tls) as here, onceway.connect(web.ws[1]) as there:
            for one, other in ((here, there), (there, here)):
                address = unique("ws")
                subscriber, publisher = await one.subscriber(address), await other.publisher(address)
                bodies = [b"%d" % size * size for size in (0, 1, 100_000, 1_000_000)]
                sent = [await publisher.put(body) for body in bodies]
                for body in bodies:
                    delivery = await subscriber.receive()
                    assert delivery.body == body
                    await delivery.accept()
                await asyncio.gather(*sent)

    run(asyncio.wait_for(story(), 60))


def test_where_there_is_no_websocket_both_sides_are_told(web: Web) -> None:
    async def story() -> None:
        plain = web.network["a"].url.replace("amqp://", "ws://")
        with pytest.raises(ConnectionFailed) as caught:
            await onceway.connect(plain, connect_timeout_s=2.0)
        assert "the other side" in caught.value.reasons[plain] or "closed" in caught.value.reasons[plain]
        with pytest.raises(ConnectionFailed):
            await onceway.connect(web.ws[0].replace("ws://", "amqp://"), connect_timeout_s=2.0)
        async with aiohttp.ClientSession() as session:
            async with session.get(web.ws[0].replace("ws://", "http://")) as answer:
                assert (answer.status, answer.headers["Upgrade"]) == (426, "websocket")
                assert "WebSockets of version 13" in await answer.text()
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(web.ws[0], protocols=["amqp"], origin="https://evil.example")
            assert refused.value.status == 403
            async with session.ws_connect(web.ws[0], protocols=["amqp"]) as socket:
                await socket.send_str("text")
                assert (await socket.receive()).data == 1003

    run(asyncio.wait_for(story(), 60))
    log = (web.network["a"].log_path).read_text()
    assert "no WebSocket with" in log
    assert "pages of https://evil.example may not connect" in log


def test_a_request_without_an_end_is_refused(web: Web) -> None:
    host, port = web.ws[0].removeprefix("ws://").split(":")
    with socket.create_connection((host, int(port))) as wire:
        wire.settimeout(30)
        wire.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 9000)
        assert wire.recv(12) == b"HTTP/1.1 431"
        while wire.recv(4096):
            pass  # it ends, and not by a time-out


@pytest.mark.skipif(shutil.which("chromium") is None, reason=CHROMIUM)
def test_rhea_in_a_browser_publishes_and_subscribes_exactly_once_while_its_router_dies(
    web: Web, tmp_path: Path
) -> None:
    """The publisher begins at a, which is killed in the middle, and goes on at b."""
    arguments = quote(json.dumps([web.ws, unique("page"), COUNT]))

    async def story(listening: str) -> None:
        async with browser(listening) as page:
            await page.show(f"{web.origin('localhost')}/page.html#{arguments}")
            while not await page.value("report.lost"):
                pass  # a page of another origin is not let in
            assert await page.value("Object.keys(report.router).length") == 0
            await page.show(f"{web.origin('127.0.0.1')}/page.html#{arguments}")
            while await page.value("report.received.length") < COUNT // 4:
                pass
            assert await page.value("report.router['page-publisher']") == "a"
            web.network.kill("a")
            while await page.value("report.accepted") < COUNT:
                pass
            report = json.loads(await page.value("JSON.stringify(report)"))
            assert report["router"] == {"page-publisher": "b", "page-subscriber": "b"}
            assert report["received"] == [f"message {number}" for number in range(COUNT)]

    with chromium(tmp_path / "profile") as listening:
        run(story(listening))
    web.network.start("a", fresh=False)
