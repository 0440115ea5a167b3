"""The description of the bus's requests that is served at /openapi.json."""

from __future__ import annotations

from typing import Any, Final

from edges.bus.rules import NAME, TOPIC

Schema = dict[str, Any]


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _text(**limits: Any) -> Schema:
    return {"type": "string", **limits}


def _number(least: int = 0, **limits: Any) -> Schema:
    return {"type": "integer", "minimum": least, **limits}


def _list(name: str) -> Schema:
    return {"type": "array", "items": _named(name)}


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _body(schema: Schema, kind: str = "application/json") -> Schema:
    return {"content": {kind: {"schema": schema}}}


EVERYWHERE: Final = ("401", "500", "503")
_SAID: Final = {  # what the codes mean, where there is no body of JSON
    "204": {"description": "Done"},
    "400": {"description": "The request is wrong; says why", **_body(_text(), "text/plain")},
    "401": {"description": "A token, or the root key, is needed", **_body(_text(), "text/plain")},
    "403": {"description": "The topic belongs to another client", **_body(_text(), "text/plain")},
    "404": {"description": "There is no such thing", **_body(_text(), "text/plain")},
    "413": {"description": "It is larger than 1 MiB", **_body(_text(), "text/plain")},
    "500": {"description": "The bus or its store does not work; says why", **_body(_text(), "text/plain")},
    "503": {"description": "The store is full or away, or the network is; says why", **_body(_text(), "text/plain")},
}


def _does(summary: str, codes: str, takes: Schema | None = None, **answers: Schema) -> Schema:
    """One operation: codes without a body of JSON, those of EVERYWHERE too, and answers with one as `_200={...}`."""
    responses = {code: _SAID[code] for code in (*codes.split(), *EVERYWHERE)}
    responses |= {code[1:]: {"description": "The answer", **content} for code, content in answers.items()}
    request = {} if takes is None else {"requestBody": _body(takes)}
    return {"summary": summary, **request, "responses": responses}


def _path(parameter: str, **operations: Schema) -> Schema:
    place = {"name": parameter, "in": "path", "required": True, "schema": _text()}
    return {"parameters": [place], **operations}


_MAYBE: Final = {"type": ["string", "null"]}
_TYPE: Final = {"enum": ["create", "update", "delete", "noop"]}
_TOPIC: Final = _text(pattern=f"^{TOPIC.pattern}$")
_TOKEN: Final = _text(pattern=f"^{NAME.pattern}$")
_WISH: Final = {
    "callback": _text(format="uri", maxLength=1024),
    "uuid": {**_MAYBE, "minLength": 1, "maxLength": 1024},
    "timeout": {"type": ["integer", "null"], "minimum": 0, "maximum": 3_600_000},
    "max": {"type": ["integer", "null"], "minimum": 1, "maximum": 1_000_000},
}
_SUBSCRIBE: Final = _does(
    "Subscribe; topics that are not listed are unsubscribed",
    "204 400 404",
    _object("topics", "callback", topics={"type": "array", "items": _TOPIC}, **_WISH),
)
_SUBSCRIPTIONS: Final = _does("List subscriptions", "", _200=_body(_list("Subscription")))
_DELETE_TOPIC: Final = _does("Delete a topic; its owner and root", "204 403 404")

DESCRIPTION: Final[Schema] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Event bus",
        "version": "1",
        "description": "Events are pushed into topics; subscribers are called back with ordered batches. "
        "The user name of HTTP Basic is the client's token, the password is ignored.",
    },
    "security": [{"token": []}],
    "paths": {
        "/api_tokens": {
            "get": _does("List tokens; root only", "204", _200=_body(_list("Token"))),
            "post": _does(
                "Make a token; root only",
                "400",
                _object("name", name=_TOKEN, token=_TOKEN),
                _201=_body(_named("Token")),
            ),
        },
        "/api_tokens/{token}": _path("token", delete=_does("Delete a token; root only", "204")),
        "/topics": {"get": _does("List topics", "", _200=_body(_list("Topic")))},
        "/topics/{name}": _path(
            "name", post=_does("Push an event", "204 400 403 413", _named("Push")), delete=_DELETE_TOPIC
        ),
        "/topic/{name}": _path("name", delete=_DELETE_TOPIC),
        "/subscription": {"post": _SUBSCRIBE},
        "/subscriber": {
            "post": _SUBSCRIBE,
            "get": _does("Show one's own subscription", "404", _200=_body(_named("Subscription"))),
            "put": _does("Make or edit one's own subscription", "204 400", _object(**_WISH)),
            "delete": _does("End one's own subscription", "204 404"),
        },
        "/subscriber/topics": {
            "get": _does("List one's own topics", "404", _200=_body({"type": "array", "items": _TOPIC}))
        },
        "/subscriber/topics/{name}": _path(
            "name",
            put=_does(
                "Subscribe to one topic more; with a position or a time (ms), from there on",
                "204 400 404",
                _object(position=_number(), time=_number()),
            ),
            delete=_does("Unsubscribe from one topic", "204 404"),
        ),
        "/subscriptions": {"get": _SUBSCRIPTIONS},
        "/subscribers": {"get": _SUBSCRIPTIONS},
        "/pulse": {"get": _does("Whether the bus works", "204")},
        "/pulse/scaling": {"get": _does("Slow when many deliveries are due", "204")},
        "/metrics": {"get": _does("Metrics for Prometheus", "", _200=_body(_text(), "text/plain"))},
        "/openapi.json": {"get": _does("This description", "", _200=_body({"type": "object"}))},
        "/": {"get": _does("A page for browsers", "", _200=_body(_text(), "text/html"))},
    },
    "webhooks": {
        "batch": {
            "post": {
                "summary": "A batch, posted to the call-back; the user name of HTTP Basic is the uuid",
                "requestBody": _body(_list("Event")),
                "responses": {
                    "2XX": {"description": "The batch is taken"},
                    "default": {"description": "It is sent again"},
                },
            }
        }
    },
    "components": {
        "securitySchemes": {"token": {"type": "http", "scheme": "basic"}},
        "schemas": {
            "Token": _object("name", "token", name=_text(), token=_TOKEN),
            "Topic": _object("name", "publisher", "events", name=_TOPIC, publisher=_MAYBE, events=_number()),
            "Push": _object(
                "type",
                "url",
                type=_TYPE,
                url=_text(pattern="^https://", maxLength=1024),
                timestamp={"type": ["integer", "null"], "minimum": 0},
                data={},
            ),
            "Event": _object("topic", "type", "url", "t", topic=_TOPIC, type=_TYPE, url=_text(), t=_number(), data={}),
            "Subscription": _object(
                "subscriber",
                "uuid",
                "callback",
                "max_events",
                "timeout",
                "topics",
                "events",
                subscriber=_text(),
                uuid=_MAYBE,
                callback=_text(),
                max_events=_number(1),
                timeout=_number(),
                topics={"type": "array", "items": _TOPIC},
                events=_object("sent", "queued", "oldest", sent=_number(), queued=_number(), oldest={"type": "number"}),
            ),
        },
    },
}
