"""The admin listener of one router: what it says of itself, over HTTP, on the router's own event loop.

    GET /status   the whole document (onceway.status), JSON
    GET /healthz  200 as long as the event loop turns
    GET /readyz   200 when the router is ready, else 503 and the reason
    GET /metrics  Prometheus

It only reads.  It shares the loop with the router so that an answer proves that the router's loop turns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from onceway.metrics import Metrics
from onceway.status import Document, complete
from onceway.topology import HostPort

_PAGES: Final = ("/status", "/healthz", "/readyz", "/metrics")


class _Strangers(logging.Filter):
    """What is no HTTP is answered with 400; a traceback for each would let anybody fill the router's log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_LOGGER: Final = logging.getLogger("onceway.admin")
_LOGGER.addFilter(_Strangers())


class AdminServer:
    """`status` gives the raw document whenever it is asked."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self._raw_status = status
        self._metrics = Metrics(self.status)
        self._runner: web.AppRunner | None = None

    def status(self) -> Document:
        return complete(self._raw_status())

    async def start(self, address: HostPort) -> HostPort:
        """Listens; gives where (port 0 is chosen by the system).  OSError where the port cannot be had."""
        application = web.Application()
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/status", self._status),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics_page),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, logger=_LOGGER, shutdown_timeout=1.0)
        await self._runner.setup()
        host, port = address
        await web.TCPSite(self._runner, host, port).start()
        bound: HostPort = self._runner.addresses[0][:2]
        return bound

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{page}\n" for page in _PAGES))

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self.status(), dumps=lambda document: json.dumps(document) + "\n")

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        document = self.status()
        if document["state"] == "ready":
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{document['reason']}\n")

    async def _metrics_page(self, request: web.Request) -> web.Response:
        body, content_type = self._metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})
