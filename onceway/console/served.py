"""The console of a whole network, on a port of this host: `onceway console` runs it.

It asks all routers of the file as `onceway status` does. Whoever started it may act on the routers of this host,
through their control sockets, so nobody else may use it: it listens on the loopback address, under a name that browsers
cannot be led to by the name service, and wants the key of its first URL, which becomes a cookie of this site alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from onceway.access.accepting import application
from onceway.access.readers import closed_to_pages
from onceway.base import waits
from onceway.console import Console, Judged, View
from onceway.operate.control import ControlError, call
from onceway.operate.probe import Probe, everybody
from onceway.operate.status import Document
from onceway.operate.well import Judge

HOST: Final = "127.0.0.1"
ACTIONS: Final = (
    "/drain",
    "/undrain",
    "/subscription/drop",
    "/link/close",
    "/connection/close",
)


class Served:
    """urls: of the routers' admin listeners, by router; sockets: the control sockets of those on this host; stores:
    where stores of pipes answer Prometheus."""

    def __init__(
        self,
        network: str,
        links: tuple[tuple[str, str, int], ...],
        urls: Mapping[str, str],
        sockets: Mapping[str, Path],
        probe: Probe,
        stores: Mapping[str, str] | None = None,
    ) -> None:
        self._network = network
        self._links = links
        self._urls = urls
        self._sockets = sockets
        self._probe = probe
        self._asked = everybody(urls, stores or {})
        self._judge = Judge()
        self._key = secrets.token_urlsafe(24)
        self._places: set[str] = set()
        self._console = Console(self._view, self._address, self._judged, self._act)
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> str:
        """Listens; returns the URL for the browser. OSError if the port cannot be bound."""
        pages = application(lambda: (), closed_to_pages, self._checked)
        pages.add_routes([web.get("/", self._enter), *self._console.routes()])
        self._runner = web.AppRunner(pages, access_log=None, shutdown_timeout=waits.HTTP_STOP.s)
        await waits.LISTEN(self._runner.setup())
        site = web.TCPSite(self._runner, HOST, port)
        await waits.LISTEN(site.start())
        bound = self._runner.addresses[0][1]
        self._places = {f"{host}:{bound}" for host in (HOST, "localhost")}
        self._cookie = f"onceway-console-{bound}"
        return f"http://{HOST}:{bound}/?key={self._key}"

    async def stop(self) -> None:
        self._console.close()
        if self._runner is not None:
            await waits.HTTP_STOP(self._runner.cleanup())

    async def _enter(self, request: web.Request) -> web.Response:
        answer = web.Response(status=302, headers={"Location": "/console/"})
        answer.set_cookie(self._cookie, self._key, httponly=True, samesite="Strict")
        return answer

    @web.middleware
    async def _checked(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if request.host not in self._places or origin not in (None, f"http://{request.host}"):
            raise web.HTTPForbidden(text=f"this is for {' and '.join(sorted(self._places))} alone\n")
        if request.method == "POST" and (origin is None or request.content_type != "application/json"):
            raise web.HTTPForbidden(text="this is for the page of the console alone\n")
        shown = request.query.get("key", "") if request.path == "/" else request.cookies.get(self._cookie, "")
        if not compare_digest(shown.encode(), self._key.encode()):
            raise web.HTTPForbidden(text="open the URL that `onceway console` has printed\n")
        return await handler(request)

    async def _view(self) -> View:
        found = await asyncio.gather(*map(self._probe.dense, self._urls.values()))
        routers: dict[str, Document] = {
            name: document if document is not None else {"why": self._probe.why.get(url, "does not answer")}
            for (name, url), document in zip(self._urls.items(), found, strict=True)
        }
        acts = [name for name, path in self._sockets.items() if path.is_socket()]
        return View(self._network, "", self._links, routers, acts)

    async def _judged(self) -> Judged:
        told = await asyncio.gather(*(self._probe.told(*each) for each in self._asked))
        return Judged(self._network, "", self._judge.judged(told))

    async def _address(self, name: str) -> dict[str, Document]:
        found = await asyncio.gather(*(self._probe.address(url, name) for url in self._urls.values()))
        return {
            router: document["addresses"].get(name, {})
            for router, document in zip(self._urls, found, strict=True)
            if document is not None
        }

    async def _act(self, router: str, page: str, arguments: Mapping[str, Any]) -> Any:
        if page not in ACTIONS:
            raise ControlError(f"there is no action {page:.60}", 404)
        if router not in self._sockets:
            raise ControlError(f"router {router:.60} has no control socket on this host; act where it runs", 403)
        return await waits.CONTROL(call(self._sockets[router], "POST", page, arguments))
