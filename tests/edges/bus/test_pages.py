"""The description at /openapi.json and the page for browsers."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from edges.bus.openapi import DESCRIPTION
from edges.bus.page import REFRESH
from edges.bus.server import BusServer
from onceway.loop import run
from tests.edges.bus.described import judge
from tests.edges.bus.world import ROOT_KEY, BusProcess, Sink
from tests.live import wait_until
from tests.needs import CHROMIUM


def test_the_description_is_served(bus: BusProcess) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs onceway[check]")
    answer = bus.ask("GET", "/openapi.json", bus.client())
    assert answer.json == DESCRIPTION
    for schema in DESCRIPTION["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_route_is_described_and_nothing_else() -> None:
    server = BusServer.__new__(BusServer)
    routes = {(route.method.lower(), route.path) for route in server._routes()}
    described = {
        (method, path)
        for path, operations in DESCRIPTION["paths"].items()
        for method in operations
        if method != "parameters"
    }
    assert routes == described


@pytest.mark.parametrize(
    ("method", "path", "status", "kind", "answer"),
    [
        ("GET", "/topics", 200, "application/json", b'[{"name": "a"}]'),
        ("GET", "/topics", 200, "text/html", b"[]"),
        ("GET", "/topics", 204, "", b""),
        ("POST", "/topics/a", 204, "", b"x"),
        ("GET", "/other", 200, "text/plain", b"x"),
    ],
)
def test_an_answer_that_is_not_as_described_is_found(
    method: str, path: str, status: int, kind: str, answer: bytes
) -> None:
    with pytest.raises(Exception, match=r"described|body|text/html|required"):
        judge(method, path, None, status, kind, answer)


def test_the_page_shows_topics_subscribers_queues_and_failures(
    bus: BusProcess, topic: str, make_sink: Callable[..., Sink]
) -> None:
    sink = make_sink(lambda _: 500)
    owner, reader = bus.client("the-owner"), bus.client("the-reader")
    bus.push(owner, topic)
    bus.subscribe(reader, sink, topic)
    bus.push(owner, topic, 1)
    wait_until(lambda: sink.batches, "a delivery fails")
    page = wait_until(
        lambda: text if "HTTP 500" in (text := bus.ask("GET", "/", ROOT_KEY).body.decode()) else "", "it is shown"
    )
    for shown in (
        ">works<",
        f'data-is="Topic">{topic}<',
        'data-is="Publisher">the-owner<',
        'data-is="Subscriber">the-reader<',
        f'data-is="Call-back">{sink.url}<',
        'data-is="Queued">1<',
        "in a row: HTTP 500<",
        '<a href="/?hold">',
        REFRESH,
    ):
        assert shown in page
    assert REFRESH not in bus.ask("GET", "/?hold", ROOT_KEY).body.decode()
    for outside in ("src=", 'href="http', "@import", "url(", "<script"):
        assert outside not in page


class Browser:
    """Headless Chromium, spoken to in its DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    async def do(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while (answer := await self._socket.receive_json()).get("id") != self._number:
            pass
        assert "result" in answer, answer
        return answer["result"]

    async def value(self, expression: str) -> Any:
        return (await self.do("Runtime.evaluate", expression=expression))["result"].get("value")

    async def show(self, url: str, width: int, scheme: str) -> None:
        """Returns when the page is there."""
        await self.do("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme_of = {"name": "prefers-color-scheme", "value": scheme}
        await self.do("Emulation.setEmulatedMedia", features=[scheme_of])
        await self.do("Page.navigate", url=url)  # its answer says that the page before it is gone
        while await self.value("document.readyState + location.pathname") != "complete/":
            pass


@contextmanager
def chromium(profile: Path) -> Iterator[str]:
    """Where it listens."""
    process = subprocess.Popen(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--ignore-certificate-errors", f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(profile)},
    )  # fmt: skip
    try:
        where = profile / "DevToolsActivePort"
        wait_until(lambda: where.exists() and "\n" in where.read_text(), "Chromium says where it listens")
        yield f"http://127.0.0.1:{where.read_text().split()[0]}"
    finally:
        process.terminate()
        process.wait(60)


@asynccontextmanager
async def browser(listening: str) -> AsyncIterator[Browser]:
    """Its first tab, for a minute at most."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with session.get(f"{listening}/json/list") as answer:
            (tab,) = [each for each in await answer.json() if each["type"] == "page"]
        async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            yield Browser(socket)


@pytest.mark.skipif(shutil.which("chromium") is None, reason=CHROMIUM)
def test_a_browser_shows_the_page(bus: BusProcess, topic: str, make_sink: Callable[..., Sink], tmp_path: Path) -> None:
    sink = make_sink(lambda _: 500)
    owner = bus.client("the-owner")
    bus.push(owner, topic)
    bus.subscribe(owner, sink, topic)
    bus.push(owner, topic, 1)
    wait_until(lambda: "HTTP 500" in bus.ask("GET", "/", ROOT_KEY).body.decode(), "a delivery fails")

    async def look(listening: str) -> None:
        colours = set()
        async with browser(listening) as shown_by:
            for width, scheme in ((1100, "light"), (1100, "dark"), (390, "light")):
                await shown_by.show(f"https://{ROOT_KEY}:x@localhost:{bus.port}/?hold", width, scheme)
                text = await shown_by.value("document.body.innerText")
                for shown in ("works", topic, "the-owner", sink.url, "in a row: HTTP 500"):
                    assert shown in text
                assert await shown_by.value("document.documentElement.scrollWidth") <= width
                colours.add(await shown_by.value("getComputedStyle(document.body).backgroundColor"))
                picture = b64decode((await shown_by.do("Page.captureScreenshot"))["data"])
                assert picture.startswith(b"\x89PNG")
                assert len(picture) > 5_000  # more than an empty page
            for kind in ("keyDown", "keyUp"):
                await shown_by.do("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            assert await shown_by.value("document.activeElement.innerText") == "Update every 5 s"
            assert await shown_by.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert len(colours) == 2

    with chromium(tmp_path / "profile") as listening:
        run(look(listening))
