"""The bus over HTTP: the table of requests in docs/contracts/event-bus.md, each with HTTP Basic."""

from __future__ import annotations

import asyncio
import hmac
import re
import ssl
import time
from base64 import b64decode
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from aiohttp import web

from edges.bus.core import Subscriber
from edges.bus.edge import Edge, Unavailable
from edges.bus.metrics import TABLE
from edges.bus.openapi import DESCRIPTION
from edges.bus.page import page
from edges.bus.pushes import Pushes
from edges.bus.registry import Forbidden, Missing
from edges.bus.rules import (
    MOST_OCTETS,
    TOKEN,
    BadRequest,
    Wish,
    client,
    read_json,
    replay,
    subscription,
    topic_name,
)
from edges.store import StoreError, StoreFull
from edges.store.remote import StoreService
from onceway.access.accepting import LOGGER, Accepting, Handler, address_of, application, body_of, bounded
from onceway.access.guesses import Guesses
from onceway.base import waits
from onceway.base.logs import logger
from onceway.base.metrics import exposition
from onceway.serve.answers import json_response

ROOT: Final = "root"  # what the root key is called as a publisher and subscriber; no token
SHORT: Final = 32  # characters, below which a token may be guessed
SCALING_DUE: Final = 100  # batches due within SCALING_WITHIN_S: /pulse/scaling is slow
SCALING_WITHIN_S: Final = 1.0
SCALING_PAUSE_S: Final = 1.0
HTTPS_ONLY: Final = 308
USER: Final = re.compile(f"({TOKEN.pattern}(?=:)|[^:]*):")  # a token, or what is before the first colon

CODES: Final[dict[type[Exception], int]] = {
    BadRequest: 400, Forbidden: 403, Missing: 404, Unavailable: 503, StoreFull: 503, StoreError: 500
}  # fmt: skip

NAMED: Final = "ask for its address, or for a host of --listen, --hostname or the certificate"
CLIENT: Final = "onceway-client"  # of a request: (identity, name)


class BusServer:
    """Serves one edge.

    Args:
        edge: Started.
    """

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._log = logger("bus", edge=edge.options.name)
        self._root_key = edge.options.root_key.encode()
        self._guesses = Guesses()  # of the root key, and of short tokens
        edge.metrics.failures = self._guesses.counts
        self._runners: list[web.AppRunner] = []
        self._pushes: list[Pushes] = []
        self._redirecting: Accepting | None = None
        self._service: StoreService | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext | None = None) -> int:
        """Returns the port. OSError if it cannot be bound."""
        names = self._edge.options.hostnames | {host.lower()}
        requests = application(lambda: names, self._answered, remedy=NAMED, most_octets=MOST_OCTETS)
        requests.add_routes(self._routes())
        if self._edge.options.share:
            self._service = StoreService(self._edge.store)
            requests.router.add_get("/store", self._root(self._service.serve))
        runner = await self._runner(requests)
        assert runner.server is not None
        pushes = Pushes(self._quick_push, bounded(runner.server), names)
        bound = await pushes.start(host, port, context)
        self._pushes.append(pushes)
        return bound

    async def redirect(self, host: str, port: int, https_port: int) -> int:
        """Sends plain HTTP to the HTTPS port. Returns the port."""

        async def to_https(request: web.Request) -> web.Response:
            target = request.url.with_scheme("https").with_port(None if https_port == 443 else https_port)
            return web.Response(status=HTTPS_ONLY, headers={"Location": str(target)})

        names = self._edge.options.hostnames | {host.lower()}
        requests = application(lambda: names, remedy=NAMED)
        requests.router.add_route("*", "/{path:.*}", to_https)
        runner = await self._runner(requests)
        assert runner.server is not None
        self._redirecting = Accepting(bounded(runner.server))
        return (await self._redirecting.start((host, port)))[1]

    async def stop(self) -> None:
        if self._service is not None:
            await self._service.close()
        if self._redirecting is not None:
            self._redirecting.stop()
        for pushes in self._pushes:
            await pushes.stop(waits.BUS_REQUESTS.s)
        for runner in self._runners:
            await waits.BUS_REQUESTS(runner.cleanup())

    async def _runner(self, requests: web.Application) -> web.AppRunner:
        runner = web.AppRunner(requests, access_log=None, logger=LOGGER, shutdown_timeout=waits.BUS_REQUESTS.s)
        await waits.LISTEN(runner.setup())
        self._runners.append(runner)
        return runner

    def _routes(self) -> list[web.RouteDef]:
        topic, mine = "/topics/{name}", "/subscriber/topics/{name}"
        return [
            web.get("/api_tokens", self._root(self._list_tokens)),
            web.post("/api_tokens", self._root(self._create_token)),
            web.delete("/api_tokens/{token}", self._root(self._delete_token)),
            web.get("/topics", self._list_topics),
            web.post(topic, self._push),
            web.delete(topic, self._delete_topic),
            web.delete("/topic/{name}", self._delete_topic),
            web.post("/subscription", self._subscribe),
            web.post("/subscriber", self._subscribe),
            web.put("/subscriber", self._edit),
            web.get("/subscriber", self._show),
            web.delete("/subscriber", self._unsubscribe),
            web.get("/subscriber/topics", self._list_my_topics),
            web.put(mine, self._add_my_topic),
            web.delete(mine, self._remove_my_topic),
            web.get("/subscriptions", self._list_subscriptions),
            web.get("/subscribers", self._list_subscriptions),
            web.get("/pulse", self._pulse),
            web.get("/pulse/scaling", self._scaling),
            web.get("/metrics", self._metrics),
            web.get("/openapi.json", self._openapi),
            web.get("/", self._page),
        ]

    # --- around every request

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Errors as the contract's codes."""
        try:
            return await self._authenticated(request, handler)
        except tuple(CODES) as error:
            return _text(_code(error), str(error))

    async def _authenticated(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            shown = await self._client(request.headers.get("Authorization", ""), request) or await self._root_of(
                request
            )
        except Unavailable as error:
            if request.path == "/pulse":
                return _text(500, str(error))
            raise
        if shown is None:
            return _unauthorized("a token is needed as user name")
        request[CLIENT] = shown
        for pushes in self._pushes:
            pushes.know(request.transport)
        return await handler(request)

    async def _client(self, authorization: str, request: web.Request | None = None) -> tuple[str, str] | None:
        """(identity, name) of a token. What other edges had answered before this request was made holds for it. A short
        token, which may be guessed, needs the request: where guesses are not looked at, it has to have come before.
        """
        edge, token = self._edge, _user(authorization)
        if edge.options.shared:
            try:
                async with asyncio.timeout(waits.BUS_STORE.s):
                    await edge.registry.current()
            except TimeoutError:
                raise Unavailable(f"the store does not answer: {edge.store.place}") from None
        name = None if token is None else edge.registry.tokens.get(token)
        if token is None or name is None:
            return None
        if len(token) < SHORT:
            if request is None:
                return None
            address, guesses = address_of(request), self._guesses
            if not guesses.knows(address, token) and guesses.refuses(address, "", time.monotonic()):
                return None
            guesses.succeeded(address, token)
        return token, name

    async def _root_of(self, request: web.Request) -> tuple[str, str] | None:
        """Who shows the root key. A wrong one is answered later with each, and then not looked at, as wrong passwords
        are by routers."""
        token = _user(request.headers.get("Authorization", ""))
        if token is None or (TOKEN.fullmatch(token) and not TOKEN.fullmatch(self._root_key.decode())):
            return None  # a token that was deleted is no guess
        address, now = address_of(request), time.monotonic()
        if self._guesses.refuses(address, "", now):
            self._guesses.counts["refused"] += 1
            return None
        if hmac.compare_digest(token.encode(), self._root_key):
            self._guesses.succeeded(address, "")
            return ROOT, ROOT
        self._log.warning(
            "client_refused", "client at {client} refused: no token, and not the root key", client=address
        )
        await asyncio.sleep(self._guesses.failed(address, "", now))
        return None

    async def _quick_push(
        self, topic: str, authorization: str, body: bytes, know: Callable[[], None]
    ) -> tuple[int, str] | None:
        try:
            if (shown := await self._client(authorization)) is None:
                return None
            know()
            await self._edge.push(*shown, topic, read_json(body))
        except tuple(CODES) as error:
            return _code(error), str(error)
        return 204, ""

    def _root(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            if request[CLIENT][0] != ROOT:
                return _unauthorized("the root key is needed as user name")
            return await handler(request)

        return guarded

    # --- tokens

    async def _list_tokens(self, request: web.Request) -> web.Response:
        tokens = sorted(self._edge.registry.tokens.items())
        if not tokens:
            return web.Response(status=204)
        return json_response([{"name": name, "token": token} for token, name in tokens])

    async def _create_token(self, request: web.Request) -> web.Response:
        name, token = client(read_json(await body_of(request)))
        if token in (ROOT, self._root_key.decode()):
            raise BadRequest("this token is root's")
        token = await self._edge.registry.create_token(name, token)
        return json_response({"name": name, "token": token}, status=201)

    async def _delete_token(self, request: web.Request) -> web.Response:
        await self._edge.registry.delete_token(request.match_info["token"])
        return web.Response(status=204)

    # --- topics

    async def _push(self, request: web.Request) -> web.Response:
        topic = topic_name(request.match_info["name"])
        identity, name = request[CLIENT]
        await self._edge.push(identity, name, topic, read_json(await body_of(request)))
        return web.Response(status=204)

    async def _delete_topic(self, request: web.Request) -> web.Response:
        identity = request[CLIENT][0]
        await self._edge.registry.delete_topic(
            request.match_info["name"], lambda topic: identity in (ROOT, topic.publisher)
        )
        return web.Response(status=204)

    async def _list_topics(self, request: web.Request) -> web.Response:
        await self._edge.look()
        bus = self._edge.bus
        return json_response(
            [
                {"name": name, "publisher": topic.name or None, "events": bus.ends.get(name, 0) - topic.base}
                for name, topic in sorted(bus.topics.items())
            ]
        )

    # --- subscriptions

    async def _wish(self, request: web.Request, *, whole: bool) -> Wish:
        wish = subscription(read_json(await body_of(request)), self._edge.options.callback_schemes, whole=whole)
        if wish.callback is not None:
            mine = self._edge.bus.subscribers.get(request[CLIENT][0])
            uuid = wish.uuid if wish.uuid is not None else mine.uuid if mine is not None else ""
            await self._edge.check_callback(wish.callback, uuid)
        return wish

    async def _subscribe(self, request: web.Request) -> web.Response:
        wish = await self._wish(request, whole=True)
        identity, name = request[CLIENT]
        for topic in wish.topics or ():
            await self._edge.registry.claim(topic)

        def subscribe() -> None:
            for topic in wish.topics or ():
                self._existing(topic)
            self._edge.bus.change(identity, name, wish)

        await self._edge.registry.change(identity, subscribe, topics=wish.topics or ())
        return web.Response(status=204)

    async def _edit(self, request: web.Request) -> web.Response:
        wish = await self._wish(request, whole=False)
        identity, name = request[CLIENT]

        def edit() -> None:
            if identity not in self._edge.bus.subscribers and (wish.callback is None or wish.uuid is None):
                raise BadRequest("a new subscriber needs callback and uuid")
            self._edge.bus.change(identity, name, wish)

        await self._edge.registry.change(identity, edit)
        return web.Response(status=204)

    async def _show(self, request: web.Request) -> web.Response:
        await self._edge.look()
        return json_response(await self._described(request, self._mine(request)))

    async def _unsubscribe(self, request: web.Request) -> web.Response:
        def remove() -> None:
            self._edge.bus.remove(self._mine(request).identity)

        await self._edge.registry.change(request[CLIENT][0], remove)
        return web.Response(status=204)

    async def _list_my_topics(self, request: web.Request) -> web.Response:
        return json_response(self._edge.bus.topics_of(self._mine(request)))

    async def _add_my_topic(self, request: web.Request) -> web.Response:
        name = topic_name(request.match_info["name"])
        body = await body_of(request)
        start = replay(read_json(body)) if body.strip() else None
        self._mine(request)
        await self._edge.registry.claim(name)
        first = None
        if start is not None:
            kind, value = start
            first = value if kind == "position" else await self._edge.position_at(name, value)

        queued, bus = 0, self._edge.bus

        def add() -> None:
            nonlocal queued
            subscriber = self._mine(request)
            self._existing(name)
            queued = -bus.pending(subscriber)
            bus.subscribe(subscriber, name, first)
            queued += bus.pending(subscriber)

        await self._edge.registry.change(request[CLIENT][0], add, topics=[name])
        self._edge.metrics.added[request[CLIENT][1]] += max(0, queued)
        return web.Response(status=204)

    async def _remove_my_topic(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]

        def leave() -> None:
            subscriber = self._mine(request)
            if name not in self._edge.bus.topics_of(subscriber):
                raise Missing("there is no such subscription")
            self._edge.bus.unsubscribe(subscriber, name)

        await self._edge.registry.change(request[CLIENT][0], leave)
        return web.Response(status=204)

    async def _list_subscriptions(self, request: web.Request) -> web.Response:
        await self._edge.look()
        found = list(self._edge.bus.subscribers.values())
        return json_response([await self._described(request, each) for each in found])

    def _mine(self, request: web.Request) -> Subscriber:
        subscriber = self._edge.bus.subscribers.get(request[CLIENT][0])
        if subscriber is None:
            raise Missing("there is no subscription")
        return subscriber

    def _existing(self, topic: str) -> None:
        """It was made for this request; somebody may have deleted it since."""
        if topic not in self._edge.bus.topics:
            raise Missing(f"there is no topic {topic}")

    async def _described(self, request: web.Request, subscriber: Subscriber) -> dict[str, Any]:
        """With the uuid, by which call-backs are believed, for root and whoever has it from itself."""
        return {
            "subscriber": subscriber.name,
            "uuid": subscriber.uuid if request[CLIENT][0] in (ROOT, subscriber.identity) else None,
            "callback": subscriber.callback,
            "max_events": subscriber.max_events,
            "timeout": subscriber.timeout_ms,
            "topics": self._edge.bus.topics_of(subscriber),
            "events": {
                "sent": subscriber.sent,
                "queued": self._edge.bus.pending(subscriber),
                "oldest": await self._edge.oldest_s(subscriber),
            },
        }

    # --- health

    async def _pulse(self, request: web.Request) -> web.Response:
        why = self._edge.why_unable()
        return web.Response(status=204) if why is None else _text(500, why)

    async def _scaling(self, request: web.Request) -> web.Response:
        if self._edge.bus.due(time.monotonic() + SCALING_WITHIN_S) >= SCALING_DUE:
            await asyncio.sleep(SCALING_PAUSE_S)
        return web.Response(status=204)

    async def _metrics(self, request: web.Request) -> web.Response:
        _, pieces = exposition(TABLE, await self._edge.told(), accept="")
        return web.Response(text="".join(pieces), content_type="text/plain")

    async def _openapi(self, request: web.Request) -> web.Response:
        return json_response(DESCRIPTION)

    async def _page(self, request: web.Request) -> web.Response:
        await self._edge.look()
        return web.Response(text=await page(self._edge, hold="hold" in request.query), content_type="text/html")


def _code(error: Exception) -> int:
    return next(code for kind, code in CODES.items() if isinstance(error, kind))


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _unauthorized(text: str) -> web.Response:
    return web.Response(status=401, text=f"{text}\n", headers={"WWW-Authenticate": 'Basic realm="event bus"'})


@lru_cache(1024)
def _user(header: str) -> str | None:
    """The user name of HTTP Basic, with the colons that a token may have."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        credentials = b64decode(encoded.strip(), validate=True).decode()
    except ValueError:  # no ASCII, no base64, no UTF-8
        return None
    found = USER.match(credentials)
    return None if found is None else found[1]
