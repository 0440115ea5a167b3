"""The description at /openapi.json and the page for browsers."""

from __future__ import annotations

import shutil
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest

from edges.bus.openapi import DESCRIPTION
from edges.bus.page import REFRESH
from edges.bus.server import BusServer
from onceway.base.loop import run
from tests.chromium import browser, chromium
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
        lambda: text if "in a row: not taken" in (text := bus.ask("GET", "/", ROOT_KEY).body.decode()) else "",
        "it is shown",
    )
    for shown in (
        ">works<",
        f'data-is="Topic">{topic}<',
        'data-is="Publisher">the-owner<',
        'data-is="Subscriber">the-reader<',
        f'data-is="Call-back">{sink.url}<',
        'data-is="Queued">1<',
        "in a row: not taken<",
        '<a href="/?hold">',
        REFRESH,
    ):
        assert shown in page
    assert REFRESH not in bus.ask("GET", "/?hold", ROOT_KEY).body.decode()
    for outside in ("src=", 'href="http', "@import", "url(", "<script"):
        assert outside not in page


@pytest.mark.skipif(shutil.which("chromium") is None, reason=CHROMIUM)
def test_a_browser_shows_the_page(bus: BusProcess, topic: str, make_sink: Callable[..., Sink], tmp_path: Path) -> None:
    sink = make_sink(lambda _: 500)
    owner = bus.client("the-owner")
    bus.push(owner, topic)
    bus.subscribe(owner, sink, topic)
    bus.push(owner, topic, 1)
    wait_until(lambda: "in a row: not taken" in bus.ask("GET", "/", ROOT_KEY).body.decode(), "a delivery fails")

    async def look(listening: str) -> None:
        colours = set()
        async with browser(listening) as shown_by:
            for width, scheme in ((1100, "light"), (1100, "dark"), (390, "light")):
                await shown_by.look(width, scheme)
                await shown_by.show(f"https://{ROOT_KEY}:x@localhost:{bus.port}/?hold")
                text = await shown_by.value("document.body.innerText")
                for shown in ("works", topic, "the-owner", sink.url, "in a row: not taken"):
                    assert shown in text
                assert await shown_by.value("document.documentElement.scrollWidth") <= width
                colours.add(await shown_by.value("getComputedStyle(document.body).backgroundColor"))
                picture = b64decode((await shown_by.do("Page.captureScreenshot"))["data"])
                assert picture.startswith(b"\x89PNG")
                (tmp_path / f"{width}-{scheme}.png").write_bytes(picture)
                assert len(picture) > 5_000  # more than an empty page
            for kind in ("keyDown", "keyUp"):
                await shown_by.do("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            assert await shown_by.value("document.activeElement.innerText") == "Update every 5 s"
            assert await shown_by.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert len(colours) == 2

    with chromium(tmp_path / "profile") as listening:
        run(look(listening))
