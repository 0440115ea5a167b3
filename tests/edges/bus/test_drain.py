"""The middleware of subscribers, as WSGI and as ASGI."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from onceway.bus import Drain
from tests.edges.bus.conftest import BusNetworks
from tests.edges.bus.world import basic
from tests.live import wait_until

TOKEN = "secret"
Call = Callable[..., int]


def event(topic: str, number: int) -> dict[str, Any]:
    return {"topic": topic, "type": "update", "url": f"https://x/{number}", "t": 1}


def wsgi(drain: Drain, header: str, events: object, user: str = TOKEN, method: str = "POST", path: str = "/") -> int:
    body = events if isinstance(events, bytes) else json.dumps(events).encode()
    said: list[str] = []
    environ = {
        "PATH_INFO": path,
        "REQUEST_METHOD": method,
        "HTTP_AUTHORIZATION": basic(user),
        "HTTP_ONCEWAY_BATCH": header,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    assert list(drain.wsgi(environ, lambda status, _: said.append(status))) == []
    return int(said[0].split()[0])


def asgi(drain: Drain, header: str, events: object, user: str = TOKEN, method: str = "POST", path: str = "/") -> int:
    body = events if isinstance(events, bytes) else json.dumps(events).encode()
    headers = [(b"authorization", basic(user).encode()), (b"onceway-batch", header.encode())]
    scope = {"type": "http", "path": path, "method": method, "headers": headers}
    parts = [{"type": "http.request", "body": body[:5], "more_body": True}, {"type": "http.request", "body": body[5:]}]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(drain.asgi(scope, receive, send))
    return int(sent[0]["status"])


@pytest.fixture(params=[wsgi, asgi], ids=["wsgi", "asgi"])
def call(request: pytest.FixtureRequest) -> Call:
    found: Call = request.param
    return found


def test_events_are_handled_once(call: Call) -> None:
    got: list[Any] = []
    drain = Drain(got.extend, token=TOKEN)
    first = [event("a", 0), event("a", 1), event("b", 0)]
    assert call(drain, "0 a:0-1 b:0-0", first) == 204
    assert call(drain, "0 a:0-1 b:0-0", first) == 204
    assert call(drain, "0 a:1-2", [event("a", 1), event("a", 2)]) == 204
    assert got == [*first, event("a", 2)]


def test_going_back_brings_events_again(call: Call) -> None:
    got: list[Any] = []
    drain = Drain(got.extend, token=TOKEN)
    for generation in (0, 1):
        assert call(drain, f"{generation} a:0-0", [event("a", 0)]) == 204
    assert got == [event("a", 0)] * 2


def test_what_was_not_handled_comes_again(call: Call) -> None:
    got: list[Any] = []

    def fail(events: list[Any]) -> None:
        got.append(len(events))
        if len(got) == 1:
            raise OSError("no database")

    drain = Drain(fail, token=TOKEN)
    with pytest.raises(OSError, match="no database"):
        call(drain, "0 a:0-0", [event("a", 0)])
    assert call(drain, "0 a:0-0", [event("a", 0)]) == 204
    assert got == [1, 1]


def test_what_was_taken_is_remembered_where_the_application_says(call: Call) -> None:
    taken: dict[str, str] = {}
    got: list[Any] = []
    for _ in range(2):
        assert call(Drain(got.extend, token=TOKEN, taken=taken), "3 a:7-7", [event("a", 7)]) == 204
    assert got == [event("a", 7)]


def test_strangers_are_refused(call: Call) -> None:
    drain = Drain(lambda _: pytest.fail("handled"), token=TOKEN, path="/events")
    assert call(drain, "0 a:0-0", [event("a", 0)], path="/") == 404
    assert call(drain, "0 a:0-0", [event("a", 0)], user="other", path="/events") == 401
    assert call(drain, "0 a:0-0", [], method="GET", path="/events") == 405
    for body in (b"", b"{}", b"[1]", b"\xff"):
        assert call(drain, "0 a:0-0", body, path="/events") == 400
    for header in ("", "0 a:x-y", "0 a"):
        assert call(drain, header, [event("a", 0)], path="/events") == 400


def test_other_paths_go_to_the_application() -> None:
    seen: list[str] = []

    def inner(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen.append(environ["PATH_INFO"])
        start_response("200 OK", [])
        return []

    drain = Drain(lambda _: None, token=TOKEN, path="/events", inner=inner)
    assert wsgi(drain, "", b"", path="/shop") == 200
    assert seen == ["/shop"]


def test_a_coroutine_function_handles_events_under_asgi() -> None:
    got: list[Any] = []

    async def handle(events: list[Any]) -> None:
        await asyncio.sleep(0)
        got.extend(events)

    drain = Drain(handle, token=TOKEN)
    assert asgi(drain, "0 a:0-0", [event("a", 0)]) == 204
    assert got == [event("a", 0)]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def test_a_bus_calls_a_drain_back(bus_network: BusNetworks) -> None:
    bus = bus_network(arguments=("--http-callbacks",)).bus
    got: list[Any] = []
    drain = Drain(got.extend, token=TOKEN, path="/events")
    with make_server("127.0.0.1", 0, drain.wsgi, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        token = bus.client()
        bus.push(token, "orders", 0)
        wish = {"topics": ["orders"], "callback": f"http://127.0.0.1:{server.server_port}/events", "uuid": TOKEN}
        assert bus.ask("POST", "/subscription", token, {**wish, "timeout": 0}).status == 204
        for number in range(1, 6):
            assert bus.push(token, "orders", number) == 204
        wait_until(lambda: bus.subscription(token)["events"]["sent"] == 5, "all is taken")
        server.shutdown()
    assert [each["url"] for each in got] == [f"https://example.com/{number}" for number in range(1, 6)]
