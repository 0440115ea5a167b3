"""The console: a network in a browser, live.

    GET  /console/               the page, with its files beside it; it needs nothing from elsewhere
    GET  /console/events         server-sent events: each second the `View` of every router that is asked
    GET  /console/address?name=  the links of one address at each of these routers
    GET  /console/well.html      the page "Is my network well?"
    GET  /console/well           what it shows: each alert, judged here and now (`onceway.operate.well`)
    POST /console/act            an action on one of them, where whoever serves the console may act

A router's admin listener serves it for that router (`onceway.host.management`), and reads only. `onceway console`
serves it for all routers of a file (`onceway.console.served`), with the actions of the control sockets.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, NamedTuple

from aiohttp import web

from onceway.access.accepting import body_of
from onceway.access.readers import HEADERS
from onceway.base import waits
from onceway.operate.control import ControlError
from onceway.operate.status import Document
from onceway.operate.well import Verdict
from onceway.serve.answers import json_response
from router.json_text import write_json

EVERY_S: Final = 1.0
JUDGED_S: Final = 5.0  # well.js asks as often
STREAMS: Final = 20  # open at once; more get a 503
KINDS: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGES: Final = (
    "index.html", "well.html", "console.css", "icon.svg",
    "console.js", "well.js", "picture.js", "tables.js", "scheme.js",
)  # fmt: skip
OWN: Final = {
    **HEADERS,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

Act = Callable[[str, str, Mapping[str, Any]], Awaitable[Any]]
"""Router, page of its control socket, arguments. Raises ControlError."""


class View(NamedTuple):
    """What the console shows of a network."""

    network: str
    seen_from: str  # the router that serves it; empty: somebody who asks all
    links: Sequence[tuple[str, str, int]]  # of the file: two routers and the cost
    routers: Mapping[str, Document]  # what `Overview.dense` says; {"why": ...} of one that does not answer
    acts: Sequence[str] = ()  # routers on which the viewer may act


class Judged(NamedTuple):
    """What the console shows of its alerts."""

    network: str
    seen_from: str
    verdicts: Sequence[Verdict]


class Console:
    """Routes for a server of aiohttp."""

    def __init__(
        self,
        view: Callable[[], Awaitable[View]],
        address: Callable[[str], Awaitable[Mapping[str, Document]]],
        judged: Callable[[], Awaitable[Judged]],
        act: Act | None = None,
    ) -> None:
        self._view = view
        self._address = address
        self._judged = judged
        self._act = act
        self._streams = 0
        self._event = _Shared(self._say, EVERY_S / 2)
        self._well = _Shared(self._judge, JUDGED_S / 2)
        self._ended = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        found = [
            web.get("/console", self._moved),
            web.get("/console/", self._page),
            web.get("/console/events", self._events),
            web.get("/console/address", self._one),
            web.get("/console/well", self._alerts),
            *(web.get(f"/console/{page}", self._page) for page in PAGES[1:]),
        ]
        return found if self._act is None else [*found, web.post("/console/act", self._do)]

    def close(self) -> None:
        """Ends the streams."""
        self._ended.set()

    async def _moved(self, request: web.Request) -> web.Response:
        raise web.HTTPFound("/console/")

    async def _page(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2] or PAGES[0]
        body = await waits.DISK(asyncio.to_thread(files(__name__).joinpath(name).read_bytes))
        kind = KINDS[name.rpartition(".")[2]]
        return web.Response(body=body, headers={**OWN, "Content-Type": f"{kind}; charset=utf-8"})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= STREAMS:
            return web.Response(status=503, text=f"{STREAMS} consoles are open; close one\n")
        self._streams += 1
        try:
            response = web.StreamResponse(headers={**OWN, "Content-Type": "text/event-stream"})
            await waits.HTTP_ANSWER(response.prepare(request))
            while not self._ended.is_set():
                said = await self._event.get()
                try:
                    async with asyncio.timeout(waits.HTTP_ANSWER.s):
                        await response.write(said)
                except TimeoutError:
                    waits.HTTP_ANSWER.ended()
                    if request.transport is not None:
                        request.transport.abort()  # its reader takes nothing: what it has not read is dropped
                    break
                try:
                    await waits.PAUSE(asyncio.wait_for)(self._ended.wait(), EVERY_S)
                except TimeoutError:
                    continue
            return response
        finally:
            self._streams -= 1

    async def _say(self) -> bytes:
        view = await self._view()
        return f"data: {write_json({**view._asdict(), 'at': time.time()})}\n\n".encode()

    async def _judge(self) -> bytes:
        judged = await self._judged()
        alerts = [verdict.document() for verdict in judged.verdicts]
        return write_json({**judged._asdict(), "verdicts": alerts}).encode()

    async def _alerts(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._well.get(), headers={**OWN, "Content-Type": "application/json"})

    async def _one(self, request: web.Request) -> web.Response:
        name = request.query.get("name")
        if name is None or len(request.query) != 1:
            return web.Response(status=400, text="name is needed, and nothing else\n", headers=OWN)
        return json_response(await self._address(name), headers=OWN)

    async def _do(self, request: web.Request) -> web.Response:
        assert self._act is not None
        try:
            asked = json.loads(await body_of(request))
            router, page, arguments = asked["router"], asked["page"], asked["arguments"]
            if not (isinstance(router, str) and isinstance(page, str) and isinstance(arguments, dict)):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            return _refused('the request is no {"router": ..., "page": ..., "arguments": {...}}', 400)
        try:
            return json_response(await self._act(router, page, arguments), headers=OWN)
        except ControlError as error:
            return _refused(str(error), error.status)


class _Shared:
    """What is made at most once in so many seconds, for all who ask."""

    def __init__(self, make: Callable[[], Awaitable[bytes]], kept_s: float) -> None:
        self._make = make
        self._kept_s = kept_s
        self._made = b""
        self._made_at = 0.0
        self._making = waits.OWN_WORK(asyncio.Lock())

    async def get(self) -> bytes:
        async with self._making:
            now = time.monotonic()
            if now - self._made_at > self._kept_s or not self._made:
                self._made = await self._make()
                self._made_at = now
            return self._made


def _refused(why: str, status: int) -> web.Response:
    return json_response({"error": why}, status=status, headers=OWN)
