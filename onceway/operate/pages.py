"""The admin listener of one router: its status over HTTP, on the router's own event loop.

    GET /status   the document (onceway.operate.status), JSON, with the first hundred addresses.
                  ?limit=N: so many, up to 1,000;
                  ?after=NAME: those behind that one, in order (the document's `next`); ?address=NAME: only that one;
                  ?limit=0: none
    GET /overview the document without addresses, with sums of them: what the console shows of a router
    GET /configuration
                  what holds here of the topology file, key by key: JSON
    GET /trace    where one delivery is: ?address=&container=&name=&tag= with the publisher's tag in hexadecimal
    GET /healthz  200 as long as the event loop turns
    GET /readyz   200 when the router is ready, else 503 and the reason
    GET /metrics  Prometheus
    GET /console/ this router and the network as it sees it, in a browser (onceway.console)

It is read-only. It shares the router's event loop, so that an answer proves that the loop turns. A router's control
socket (`onceway.operate.control`) serves the same pages, and actions beside them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from onceway.access.readers import Pages
from onceway.base import waits
from onceway.base.metrics import Metric, exposition
from onceway.operate.metrics import TABLE, Process, Scrape
from onceway.operate.overview import MOST, PAGE, TIMER_S, Overview, Source
from onceway.operate.status import Document, state_of, summarize
from onceway.serve.answers import json_response
from router.json_text import write_json

PART: Final = 1 << 15  # characters of an answer that are written at once
_PAGES: Final = ("/status", "/overview", "/configuration", "/trace", "/healthz", "/readyz", "/metrics")


class AdminServer(Pages):
    """Serves what `source` says of itself."""

    def __init__(
        self, source: Source, names: Callable[[], Collection[str]], middlewares: Sequence[Middleware] = ()
    ) -> None:
        super().__init__(names, middlewares)  # of the listener, not of `routes`
        self._source = source
        self.more: list[web.RouteDef] = []  # of the listener, not of `routes`
        self.overview = Overview(source)
        self._process = Process()

    def pages(self) -> list[web.RouteDef]:
        return [*self.routes(), *self.more]

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self._index),
            web.get("/status", self._status),
            web.get("/overview", self._dense),
            web.get("/configuration", self._configuration),
            web.get("/trace", self._trace),
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._metrics_page),
        ]

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{page}\n" for page in _PAGES))

    async def _status(self, request: web.Request) -> web.Response:
        try:
            address, after, limit = _page(request.query)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        document = await self.overview.summary()
        more = None
        if address is not None:
            addresses = await self.overview.only(address)
        else:
            addresses, more = await self.overview.page(after, limit)
        head = write_json({**document, "next": more}).removesuffix("}")
        separated = (text for address in addresses for text in (", ", address))
        next(separated, None)
        body = (f'{head}, "addresses": {{', *separated, "}}\n")
        return web.Response(body=_in_parts(body), content_type="application/json")

    async def _dense(self, request: web.Request) -> web.Response:
        return json_response(await self.overview.dense(), dumps=lambda document: write_json(document) + "\n")

    async def _configuration(self, request: web.Request) -> web.Response:
        said = self._source.configuration()
        return json_response(said, dumps=lambda document: write_json(document, indent=1) + "\n")

    async def _trace(self, request: web.Request) -> web.Response:
        query, wanted = request.query, ("address", "container", "name", "tag")
        try:
            if sorted(query) != sorted(wanted):
                raise ValueError("address, container, name and tag are needed, and nothing else")
            tag = bytes.fromhex(query["tag"])
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")

        def look() -> Generator[None, None, Document]:
            yield
            return self._source.trace(query["address"], query["container"], query["name"], tag)

        found, _ = await self.overview.pace.run(look())
        return json_response(found, dumps=lambda document: write_json(document) + "\n")

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        state, reason = state_of(self._source.summary())
        if state == "ready":
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{reason}\n")

    async def _metrics_page(self, request: web.Request) -> web.Response:
        content_type, body = await self.metrics(TABLE, request.headers.get("Accept", ""))
        return web.Response(body=_in_parts(body), headers={"Content-Type": content_type})

    async def metrics(self, table: Iterable[Metric[Scrape]], accept: str = "") -> tuple[str, list[str]]:
        """What is answered at /metrics, of these rows: the content type, and the text in pieces."""
        asked_s = time.time()  # before anything that waits
        sums, age_s = await self.overview.sums()
        document = summarize(self._source.summary(), sums, age_s)
        process = await waits.DISK(asyncio.to_thread(self._process.collect))
        scrape = Scrape(document, sums, self._source.measured(), asked_s)
        content_type, pieces = exposition(table, scrape, accept, process)
        body: list[str] = []

        def write() -> Generator[None, None, None]:
            for piece in pieces:
                body.append(piece)
                yield

        await self.overview.pace.run(write())
        return content_type, body


async def _in_parts(body: Iterable[str]) -> AsyncIterator[bytes]:
    """A megabyte at once would keep messages waiting while it is encoded and copied, and so would part after part."""
    part, size = [], 0
    for text in body:
        part.append(text)
        size += len(text)
        if size > PART:
            yield "".join(part).encode()
            part, size = [], 0
            await asyncio.sleep(TIMER_S)
    yield "".join(part).encode()


def _page(query: Mapping[str, str]) -> tuple[str | None, str, int]:
    """address, after and limit of a request. Raises ValueError."""
    unknown = sorted(set(query) - {"address", "after", "limit"})
    if unknown:
        raise ValueError(f"no parameter {unknown[0]}; there are address, after and limit")
    limit = query.get("limit", str(PAGE))
    if not limit.isdecimal() or int(limit) > MOST:
        raise ValueError(f"limit is a whole number up to {MOST}, not {limit:.40}")
    return query.get("address"), query.get("after", ""), int(limit)
