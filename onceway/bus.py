"""For subscribers of an event bus: a middleware that receives batches, checks the token, and drops repeats.

    def handle(events):
        for event in events:
            ...

    drain = Drain(handle, token="secret", path="/events", inner=app)
    application = drain.wsgi    # or, with an ASGI server, drain.asgi; then `handle` may be a coroutine function

The bus sends a batch again when it has not read the answer. The header Onceway-Batch says which positions of each topic
a batch holds (docs/event-bus.md); the last one that was handled is remembered.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
import inspect
import json
import threading
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from onceway.base import waits

Event = dict[str, Any]
Handle = Callable[[list[Event]], object]
Respond = Callable[[str, list[tuple[str, str]]], object]
Message = MutableMapping[str, Any]

MOST_OCTETS: Final = 64 << 20  # of a batch
REASONS: Final = {
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
}


class _Refused(Exception):
    """The request is no batch of the bus."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Drain:
    """Receives the batches of one subscription.

    A batch is acknowledged when `handle` has returned. When it raises, the error goes to the server, which answers 500,
    and the bus sends the batch again.

    Args:
        handle: Called with the events of a batch that were not handled before; never twice at once.
        token: The uuid of the subscription.
        path: Where batches are posted.
        inner: The application for all other paths; without it they are 404.
        taken: Remembers the last position of each topic. A dict forgets with the process, and the one batch under way
            may then come again; pass a mapping that is kept, such as an open shelve, or one in the database that
            `handle` writes to.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        token: str,
        path: str = "/",
        inner: Any = None,
        taken: MutableMapping[str, str] | None = None,
    ) -> None:
        self._handle = handle
        self._token = token.encode()
        self._path = path
        self._inner = inner
        self._taken: MutableMapping[str, str] = {} if taken is None else taken
        self._lock = waits.APPLICATION(threading.Lock())
        self._turn = waits.APPLICATION(asyncio.Lock())

    def wsgi(self, environ: dict[str, Any], start_response: Respond) -> Iterable[bytes]:
        """The middleware as a WSGI application."""
        if environ.get("PATH_INFO", "") != self._path and self._inner is not None:
            found: Iterable[bytes] = self._inner(environ, start_response)
            return found
        status = 204
        try:
            self._check(environ["PATH_INFO"], environ["REQUEST_METHOD"], environ.get("HTTP_AUTHORIZATION", ""))
            length = environ.get("CONTENT_LENGTH", "")
            if not length.isdecimal():
                raise _Refused(400)
            if int(length) > MOST_OCTETS:
                raise _Refused(413)
            body = environ["wsgi.input"].read(int(length))
            with self._lock:
                events, marks = self._new(environ.get("HTTP_ONCEWAY_BATCH", ""), body)
                if events:
                    self._handle(events)
                self._remember(marks)
        except _Refused as refused:
            status = refused.status
        start_response(f"{status} {REASONS[status]}", _headers(status))
        return []

    async def asgi(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """The middleware as an ASGI application."""
        if self._inner is not None and (scope["type"] != "http" or scope["path"] != self._path):
            await waits.APPLICATION(self._inner(scope, receive, send))
            return
        if scope["type"] != "http":
            raise NotImplementedError(f"no {scope['type']} here")  # a server goes on without a lifespan
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        status = 204
        try:
            self._check(scope["path"], scope["method"], headers.get("authorization", ""))
            body = b""
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > MOST_OCTETS:
                    raise _Refused(413)
            async with self._turn:
                events, marks = self._new(headers.get("onceway-batch", ""), body)
                if events:
                    handled = self._handle(events)
                    if inspect.isawaitable(handled):
                        await handled
                self._remember(marks)
        except _Refused as refused:
            status = refused.status
        shown = [(name.lower().encode(), value.encode()) for name, value in _headers(status)]
        await send({"type": "http.response.start", "status": status, "headers": shown})
        await send({"type": "http.response.body", "body": b""})

    def _check(self, path: str, method: str, authorization: str) -> None:
        if path != self._path:
            raise _Refused(404)
        scheme, _, encoded = authorization.partition(" ")
        try:
            user = b64decode(encoded.strip(), validate=True).partition(b":")[0]
        except (binascii.Error, ValueError):
            user = b""
        if scheme.lower() != "basic" or not hmac.compare_digest(user, self._token):
            raise _Refused(401)
        if method != "POST":
            raise _Refused(405)

    def _new(self, header: str, body: bytes) -> tuple[list[Event], dict[str, str]]:
        """The events that were not handled before, and what is remembered once they are."""
        try:
            events = json.loads(body)
            generation, *parts = header.split()
            spans = []
            for part in parts:
                topic, _, span = part.partition(":")
                begin, _, end = span.partition("-")
                spans.append((topic, int(begin), int(end)))
        except ValueError as error:
            raise _Refused(400) from error
        if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
            raise _Refused(400)
        new: list[Event] = []
        marks = {}
        for topic, first, last in spans:
            mine = [event for event in events if event.get("topic") == topic]
            known, _, position = self._taken.get(topic, "").partition(" ")
            done = int(position) if known == generation else -1
            if done >= last:
                continue
            if first <= done and len(mine) == last - first + 1:
                mine = mine[done - first + 1 :]
            new += mine
            marks[topic] = f"{generation} {last}"
        return new, marks

    def _remember(self, marks: dict[str, str]) -> None:
        for topic, mark in marks.items():
            self._taken[topic] = mark


def _headers(status: int) -> list[tuple[str, str]]:
    if status == 204:
        return []
    headers = [("Content-Length", "0")]
    if status == 401:
        headers.append(("WWW-Authenticate", 'Basic realm="events"'))
    return headers
