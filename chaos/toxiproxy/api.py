"""The HTTP API: paths, status codes and bodies as Toxiproxy's, errors included.

Its JSON is read as the original reads it: the first value of the body counts, unknown keys don't, null is as good as
absent, and what has the wrong type is a bad request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from chaos.toxiproxy.proxies import DIRECTIONS, ListenFailed, Proxies, Proxy
from chaos.toxiproxy.toxics import TYPES, Attributes, Toxic

VERSION: Final = "2.12.0-onceway"  # the API that is spoken, and who speaks
PROXIES: Final = web.AppKey("proxies", Proxies)

_MISSING_FIELD: Final = "missing required field"
_BAD_REQUEST: Final = "bad request body"


class ApiError(Exception):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.message = message
        self.status = status

    def document(self) -> dict[str, Any]:
        return {"error": self.message, "status": self.status}


def application(proxies: Proxies) -> web.Application:
    app = web.Application(middlewares=[_errors])
    app[PROXIES] = proxies
    app.add_routes(
        [
            web.post("/reset", _reset),
            web.get("/proxies", _proxy_index),
            web.post("/proxies", _proxy_create),
            web.post("/populate", _populate),
            web.get("/proxies/{proxy}", _proxy_show),
            web.post("/proxies/{proxy}", _proxy_update),
            web.patch("/proxies/{proxy}", _proxy_update),
            web.delete("/proxies/{proxy}", _proxy_delete),
            web.get("/proxies/{proxy}/toxics", _toxic_index),
            web.post("/proxies/{proxy}/toxics", _toxic_create),
            web.get("/proxies/{proxy}/toxics/{toxic}", _toxic_show),
            web.post("/proxies/{proxy}/toxics/{toxic}", _toxic_update),
            web.patch("/proxies/{proxy}/toxics/{toxic}", _toxic_update),
            web.delete("/proxies/{proxy}/toxics/{toxic}", _toxic_delete),
            web.get("/version", _version),
        ]
    )
    return app


# --- answers --------------------------------------------------------------------------------------------------------


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
    except ListenFailed as error:
        return _text(_dumps({"error": str(error), "status": 500}), 500)
    except web.HTTPNotFound:
        return _text("404 page not found", 404)
    except web.HTTPMethodNotAllowed:
        return web.Response(status=405)
    return answer


# --- proxies --------------------------------------------------------------------------------------------------------


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
    given = _fields(await _body(request), "Proxy", _PROXY_FIELDS)
    for field in ("name", "upstream"):
        if not given.get(field):
            raise ApiError(f"{_MISSING_FIELD}: {field}", 400)
    proxy = proxies.new(given["name"], given.get("listen", ""), given["upstream"])
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
        for given in wanted:
            done.append(await _create_or_replace(request.app[PROXIES], given))
    except ApiError as problem:
        error = problem
    except ListenFailed as problem:
        error = ApiError(str(problem), 500)
    documents = [proxy.document() for proxy in done] if done else None
    if error is None:
        return _json({"proxies": documents}, 201)
    return _json({**error.document(), "proxies": documents}, error.status)


def _wanted(body: Any) -> list[dict[str, Any]]:
    if not isinstance(body, list):
        raise _bad_type(body, "value", "[]struct")
    wanted = [_fields(one, "", _PROXY_FIELDS) for one in body]
    for i, given in enumerate(wanted, 1):
        for field in ("name", "upstream"):
            if not given.get(field):
                raise ApiError(f"{_MISSING_FIELD}: {field} at proxy {i}", 400)
    return wanted


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
    given = _fields(await _body(request), "Proxy", _PROXY_FIELDS)
    await proxy.update(
        given.get("listen", proxy.listen), given.get("upstream", proxy.upstream), given.get("enabled", proxy.enabled)
    )
    return _json(proxy.document())


async def _proxy_delete(request: web.Request) -> web.Response:
    proxy = _proxy(request)
    await proxy.stop()
    del request.app[PROXIES].by_name[proxy.name]
    return web.Response(status=204)


# --- toxics ---------------------------------------------------------------------------------------------------------


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
    given = _fields(await _body(request), "ToxicWrapper", _TOXIC_FIELDS)
    kind, stream = given.get("type", ""), given.get("stream", "downstream")
    if stream.lower() not in DIRECTIONS:
        raise ApiError("stream was invalid, can be either upstream or downstream", 400)
    if kind not in TYPES:
        raise ApiError("invalid toxic type", 400)
    name = given.get("name") or f"{kind}_{stream}"
    if proxy.toxic(name) is not None:
        raise ApiError("toxic already exists", 409)
    attributes = TYPES[kind]()
    _set_attributes(attributes, given.get("attributes"))
    toxic = Toxic(name, kind, stream, given.get("toxicity", 1.0), attributes)
    proxy.add(toxic)
    return _json(toxic.document())


async def _toxic_show(request: web.Request) -> web.Response:
    return _json(_toxic(request)[1].document())


async def _toxic_update(request: web.Request) -> web.Response:
    """Attributes that are not named stay, toxicity too; nothing else of a toxic can be changed."""
    proxy, toxic = _toxic(request)
    given = _fields(await _body(request), "", {"attributes": "any", "toxicity": "float32"})
    _set_attributes(toxic.attributes, given.get("attributes"))
    toxic.toxicity = given.get("toxicity", toxic.toxicity)
    proxy.changed(toxic)
    return _json(toxic.document())


async def _toxic_delete(request: web.Request) -> web.Response:
    proxy, toxic = _toxic(request)
    proxy.remove(toxic)
    return web.Response(status=204)


# --- bodies ---------------------------------------------------------------------------------------------------------

_PROXY_FIELDS: Final = {"name": "string", "listen": "string", "upstream": "string", "enabled": "bool"}
_TOXIC_FIELDS: Final = {
    "name": "string",
    "type": "string",
    "stream": "string",
    "toxicity": "float32",
    "attributes": "any",
}
_GO_NAMES: Final = {kind: TYPES[kind].__name__ + "Toxic" for kind in TYPES} | {"reset_peer": "ResetToxic"}


async def _body(request: web.Request) -> Any:
    text = (await request.text()).lstrip()
    if not text:
        raise ApiError(f"{_BAD_REQUEST}: EOF", 400)
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except ValueError as error:
        at = getattr(error, "pos", 0)
        if at >= len(text.rstrip()):
            raise ApiError(f"{_BAD_REQUEST}: unexpected EOF", 400) from error
        what = f"invalid character '{text[at]}' looking for beginning of value"
        raise ApiError(f"{_BAD_REQUEST}: {what}", 400) from error


def _fields(body: Any, struct: str, types: Mapping[str, str]) -> dict[str, Any]:
    """The known ones, each of its type; keys match in any case."""
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise _bad_type(body, "value", f"toxiproxy.{struct}" if struct else "struct")
    found = {}
    for key, value in body.items():
        field = key.lower()
        kind = types.get(field)
        if kind is not None and value is not None:
            found[field] = _typed(value, kind, f"{struct}.{field}")
    return found


def _set_attributes(attributes: Attributes, given: Any) -> None:
    """All or none of them."""
    if given is None:
        return
    kind = next(name for name, made in TYPES.items() if type(attributes) is made)
    place = f"{_GO_NAMES[kind]}.attributes"
    if not isinstance(given, dict):
        raise _bad_type(given, "struct field .attributes", f"toxics.{_GO_NAMES[kind]}")
    known = {field: f"{place}.{field}" for field in attributes.document()}
    values = {
        key.lower(): _typed(value, "int64", known[key.lower()])
        for key, value in given.items()
        if key.lower() in known and value is not None
    }
    for field, value in values.items():
        setattr(attributes, field, value)


def _typed(value: Any, kind: str, place: str) -> Any:
    if kind == "any":
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "string": isinstance(value, str),
        "bool": isinstance(value, bool),
        "float32": number,
        "int64": number and float(value).is_integer() and "." not in repr(value),
    }[kind]
    if not fits:
        raise _bad_type(value, f"struct field {place}", kind)
    return float(value) if kind == "float32" else value


def _bad_type(value: Any, where: str, kind: str) -> ApiError:
    if isinstance(value, bool):
        shown = "bool"
    elif isinstance(value, int | float):
        shown = f"number {value}" if kind == "int64" else "number"
    else:
        names: dict[object, str] = {str: "string", list: "array", dict: "object"}
        shown = names.get(type(value), "null")
    where = f"Go {where}"
    return ApiError(f"{_BAD_REQUEST}: json: cannot unmarshal {shown} into {where} of type {kind}", 400)
