"""The HTTP API: paths, status codes and bodies as Toxiproxy's, errors included.

What a body may say, and how its errors are told, is in `bodies`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from aiohttp import web

from chaos.toxiproxy.bodies import PROXY, TOXIC, TOXIC_CHANGE, ApiError, attributes_of, bad_type, fields, first_value
from chaos.toxiproxy.proxies import DIRECTIONS, Proxies, Proxy
from chaos.toxiproxy.toxics import TYPES, Toxic

VERSION: Final = "2.12.0-onceway"  # the API that is spoken, and who speaks
PROXIES: Final = web.AppKey("proxies", Proxies)


def application(proxies: Proxies) -> web.Application:
    app = web.Application(middlewares=[_errors])
    app[PROXIES] = proxies
    for method, path, handler in (
        ("POST", "/reset", _reset),
        ("POST", "/populate", _populate),
        ("GET", "/version", _version),
        ("GET", "/proxies", _proxy_index),
        ("POST", "/proxies", _proxy_create),
        ("GET", "/proxies/{proxy}", _proxy_show),
        ("POST PATCH", "/proxies/{proxy}", _proxy_update),
        ("DELETE", "/proxies/{proxy}", _proxy_delete),
        ("GET", "/proxies/{proxy}/toxics", _toxic_index),
        ("POST", "/proxies/{proxy}/toxics", _toxic_create),
        ("GET", "/proxies/{proxy}/toxics/{toxic}", _toxic_show),
        ("POST PATCH", "/proxies/{proxy}/toxics/{toxic}", _toxic_update),
        ("DELETE", "/proxies/{proxy}/toxics/{toxic}", _toxic_delete),
    ):
        for one in method.split():
            app.router.add_route(one, path, handler)
    return app


def _json(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=_dumps(document).encode(), status=status, headers={"Content-Type": "application/json"})


def _dumps(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _text(text: str, status: int) -> web.Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(text=f"{text}\n", status=status, content_type="text/plain", charset="utf-8", headers=headers)


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    if request.headers.get("User-Agent", "").startswith("Mozilla/"):
        return _text("User agent not allowed", 403)  # a web page must not be able to reach us
    try:
        answer: web.StreamResponse = await handler(request)
    except ApiError as error:
        return _text(_dumps(error.document()), error.status)
    except web.HTTPNotFound:
        return _text("404 page not found", 404)
    except web.HTTPMethodNotAllowed:
        return web.Response(status=405)
    return answer


def _proxy(request: web.Request) -> Proxy:
    proxy = request.app[PROXIES].by_name.get(request.match_info["proxy"])
    if proxy is None:
        raise ApiError("proxy not found", 404)
    return proxy


async def _version(request: web.Request) -> web.Response:
    body = f'{{"version": "{VERSION}"}}\n'.encode()
    return web.Response(body=body, headers={"Content-Type": "application/json;charset=utf-8"})


async def _reset(request: web.Request) -> web.Response:
    """Every proxy listens again, no toxic is left."""
    for proxy in request.app[PROXIES].by_name.values():
        if not proxy.enabled:
            await proxy.start()
        for toxic in list(proxy.toxics):
            proxy.remove(toxic)
    return web.Response(status=204)


async def _proxy_index(request: web.Request) -> web.Response:
    by_name = request.app[PROXIES].by_name
    return _json({name: by_name[name].document() for name in sorted(by_name)})


async def _proxy_create(request: web.Request) -> web.Response:
    proxies = request.app[PROXIES]
    given = fields(await _body(request), "Proxy", PROXY)
    _check_wanted(given, "")
    proxy = proxies.new(given["name"], given.get("listen", ""), given["upstream"])
    async with proxies.changing:
        if proxy.name in proxies.by_name:
            raise ApiError("proxy already exists", 409)
        if given.get("enabled", True):
            await proxy.start()
        proxies.by_name[proxy.name] = proxy
    return _json(proxy.document(), 201)


async def _populate(request: web.Request) -> web.Response:
    """Creates or replaces; a proxy that is there as wanted stays as it is.  An error tells what was done before it."""
    done: list[Proxy] | None = None
    error: ApiError | None = None
    try:
        wanted = _wanted(await _body(request))
        done = []
        proxies = request.app[PROXIES]
        async with proxies.changing:
            for given in wanted:
                done.append(await _create_or_replace(proxies, given))
    except ApiError as problem:
        error = problem
    documents = [proxy.document() for proxy in done] if done else None
    if error is None:
        return _json({"proxies": documents}, 201)
    return _json({**error.document(), "proxies": documents}, error.status)


def _wanted(body: Any) -> list[dict[str, Any]]:
    if body is None:
        return []
    if not isinstance(body, list):
        raise bad_type(body, "value", "[]struct")
    wanted = [fields(one, "", PROXY) for one in body]
    for i, given in enumerate(wanted, 1):
        _check_wanted(given, f" at proxy {i}")
    return wanted


def _check_wanted(given: dict[str, Any], where: str) -> None:
    for field in ("name", "upstream"):
        if not given.get(field):
            raise ApiError(f"missing required field: {field}{where}", 400)


async def _create_or_replace(proxies: Proxies, given: dict[str, Any]) -> Proxy:
    proxy = proxies.new(given["name"], given.get("listen", ""), given["upstream"])
    existing = proxies.by_name.get(proxy.name)
    if existing is not None:
        if not existing.differs(proxy.listen, proxy.upstream):
            return existing
        await existing.stop()
    if given.get("enabled", True):
        await proxy.start()
    proxies.by_name[proxy.name] = proxy
    return proxy


async def _proxy_show(request: web.Request) -> web.Response:
    return _json(_proxy(request).document())


async def _proxy_update(request: web.Request) -> web.Response:
    proxy = _proxy(request)
    given = fields(await _body(request), "Proxy", PROXY)
    await proxy.update(
        given.get("listen", proxy.listen), given.get("upstream", proxy.upstream), given.get("enabled", proxy.enabled)
    )
    return _json(proxy.document())


async def _proxy_delete(request: web.Request) -> web.Response:
    proxy = _proxy(request)
    await proxy.stop()
    del request.app[PROXIES].by_name[proxy.name]
    return web.Response(status=204)


def _toxic(request: web.Request) -> tuple[Proxy, Toxic]:
    proxy = _proxy(request)
    toxic = proxy.toxic(request.match_info["toxic"])
    if toxic is None:
        raise ApiError("toxic not found", 404)
    return proxy, toxic


async def _toxic_index(request: web.Request) -> web.Response:
    return _json(_proxy(request).toxic_documents())


async def _toxic_create(request: web.Request) -> web.Response:
    proxy = _proxy(request)
    given = fields(await _body(request), "ToxicWrapper", TOXIC)
    kind, stream = given.get("type", ""), given.get("stream", "downstream")
    if stream.lower() not in DIRECTIONS:
        raise ApiError("stream was invalid, can be either upstream or downstream", 400)
    if kind not in TYPES:
        raise ApiError("invalid toxic type", 400)
    name = given.get("name") or f"{kind}_{stream}"
    if proxy.toxic(name) is not None:
        raise ApiError("toxic already exists", 409)
    toxic = Toxic(name, kind, stream, 1.0, TYPES[kind]())
    _set(toxic, given)
    proxy.add(toxic)
    return _json(toxic.document())


async def _toxic_show(request: web.Request) -> web.Response:
    return _json(_toxic(request)[1].document())


async def _toxic_update(request: web.Request) -> web.Response:
    """Attributes that are not named stay, toxicity too; nothing else of a toxic can be changed."""
    proxy, toxic = _toxic(request)
    given = fields(await _body(request), "", TOXIC_CHANGE)
    _set(toxic, given)
    proxy.changed(toxic)
    return _json(toxic.document())


def _set(toxic: Toxic, given: dict[str, Any]) -> None:
    for attribute, value in attributes_of(toxic.attributes, given.get("attributes")).items():
        setattr(toxic.attributes, attribute, value)
    toxic.toxicity = given.get("toxicity", toxic.toxicity)


async def _toxic_delete(request: web.Request) -> web.Response:
    proxy, toxic = _toxic(request)
    proxy.remove(toxic)
    return web.Response(status=204)


async def _body(request: web.Request) -> Any:
    return first_value((await request.read()).decode("utf-8", "replace"))
