"""The description at /openapi.json and the page for browsers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from edges.bus.openapi import DESCRIPTION
from edges.bus.server import BusServer
from tests.edges.bus.described import judge
from tests.edges.bus.world import ROOT_KEY, BusProcess, Sink
from tests.live import wait_until


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
        f"<td>{topic}",
        "<td>the-owner",
        "<td>the-reader",
        f"<td>{sink.url}",
        "in a row: HTTP 500",
    ):
        assert shown in page
    assert '<td class="number">1<td>' in page  # one event is queued
    for outside in ("src=", "href=", "@import", "url(", "<script"):
        assert outside not in page


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Debian's chromium is not installed")
def test_a_browser_shows_the_page(bus: BusProcess, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors",
         f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", "--window-size=1000,700",
         f"https://{ROOT_KEY}:x@localhost:{bus.port}/"],
        check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 5_000  # more than an empty page
