"""The HTTP API: as much of Toxiproxy's as `chaos.live` asks with the toxiproxy-python client.

Paths, status codes, defaults and the form of errors are Toxiproxy's.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from typing import Any, Final

from aiohttp import web

from chaos.toxiproxy.proxies import DIRECTIONS, Proxy
from chaos.toxiproxy.toxics import TYPES, Toxic

VERSION: Final = "2.12.0-onceway"  # the API that is spoken, and who speaks
PROXIES: Final = web.AppKey("proxies", dict[str, Proxy])
RNG: Final = web.AppKey("rng", random.Random)


class ApiError(Exception):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def application(rng: random.Random) -> web.Application:
    """`rng`: of jitter, slices and toxicity."""
    app = web.Application(middlewares=[_errors])
    app[PROXIES] = {}
    app[RNG] = rng
    app.on_cleanup.append(_stop)
    app.add_routes(
        [
            web.get("/version", _version),
            web.get("/proxies", _proxy_index),
            web.post("/proxies", _proxy_create),
            web.post("/proxies/{proxy}", _proxy_switch),
            web.delete("/proxies/{proxy}", _proxy_delete),
            web.get("/proxies/{proxy}/toxics", _toxic_index),
            web.post("/proxies/{proxy}/toxics", _toxic_create),
            web.delete("/proxies/{proxy}/toxics/{toxic}", _toxic_delete),
        ]
    )
    return app


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    if request.headers.get("User-Agent", "").startswith("Mozilla/"):
        return web.Response(text="User agent not allowed\n", status=403)  # a web page must not be able to reach us
    try:
        answer: web.StreamResponse = await handler(request)
    except ApiError as error:
        return web.json_response({"error": str(error), "status": error.status}, status=error.status)
    except OSError as error:  # it cannot listen there
        return web.json_response({"error": str(error), "status": 500}, status=500)
    return answer


async def _stop(app: web.Application) -> None:
    for proxy in app[PROXIES].values():
        await proxy.stop()


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        given = json.loads(await request.read())
    except ValueError as error:
        raise ApiError(f"bad request body: {error}", 400) from error
    if not isinstance(given, dict):
        raise ApiError("bad request body: no object", 400)
    return given


def _proxy(request: web.Request) -> Proxy:
    proxy = request.app[PROXIES].get(request.match_info["proxy"])
    if proxy is None:
        raise ApiError("proxy not found", 404)
    return proxy


async def _version(request: web.Request) -> web.Response:
    return web.json_response({"version": VERSION})


async def _proxy_index(request: web.Request) -> web.Response:
    return web.json_response({name: proxy.document() for name, proxy in request.app[PROXIES].items()})


async def _proxy_create(request: web.Request) -> web.Response:
    given = await _body(request)
    for field in ("name", "listen", "upstream"):
        if not given.get(field):
            raise ApiError(f"missing required field: {field}", 400)
    proxy = Proxy(given["name"], given["listen"], given["upstream"], request.app[RNG])
    if proxy.name in request.app[PROXIES]:
        raise ApiError("proxy already exists", 409)
    request.app[PROXIES][proxy.name] = proxy  # at once: to listen takes turns of the loop
    try:
        await proxy.start()
    except OSError:
        del request.app[PROXIES][proxy.name]
        raise
    return web.json_response(proxy.document(), status=201)


async def _proxy_switch(request: web.Request) -> web.Response:
    """On or off; nothing else of a proxy can be changed."""
    proxy = _proxy(request)
    enabled = (await _body(request)).get("enabled", proxy.enabled)
    if enabled and not proxy.enabled:
        await proxy.start()
    elif proxy.enabled and not enabled:
        await proxy.stop()
    return web.json_response(proxy.document())


async def _proxy_delete(request: web.Request) -> web.Response:
    proxy = _proxy(request)
    await proxy.stop()
    del request.app[PROXIES][proxy.name]
    return web.Response(status=204)


async def _toxic_index(request: web.Request) -> web.Response:
    return web.json_response(_proxy(request).toxic_documents())


async def _toxic_create(request: web.Request) -> web.Response:
    proxy = _proxy(request)
    given = await _body(request)
    kind, stream = given.get("type", ""), given.get("stream", "downstream")
    if stream not in DIRECTIONS:
        raise ApiError("stream was invalid, can be either upstream or downstream", 400)
    if kind not in TYPES:
        raise ApiError("invalid toxic type", 400)
    name = given.get("name") or f"{kind}_{stream}"
    if proxy.toxic(name) is not None:
        raise ApiError("toxic already exists", 409)
    try:
        attributes = {key: int(value) for key, value in dict(given.get("attributes", {})).items()}
        toxic = Toxic(name, kind, stream, float(given.get("toxicity", 1.0)), TYPES[kind](**attributes))
    except (TypeError, ValueError, OverflowError) as error:
        raise ApiError(f"bad request body: {error}", 400) from error
    if not 0.0 <= toxic.toxicity <= 1.0:  # NaN, too
        raise ApiError("toxicity was invalid, can be from 0 to 1", 400)
    proxy.add(toxic)
    return web.json_response(asdict(toxic))


async def _toxic_delete(request: web.Request) -> web.Response:
    proxy = _proxy(request)
    toxic = proxy.toxic(request.match_info["toxic"])
    if toxic is None:
        raise ApiError("toxic not found", 404)
    proxy.remove(toxic)
    return web.Response(status=204)
