"""Reads the /status of routers' admin listeners, for `up`, `status` and the demo.

A router that does not answer gives None, never an exception: it may be starting, dying or on another host. A router of
this host whose admin listener cannot be reached is asked through its control socket.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode

import aiohttp

from onceway.base import waits
from onceway.operate.alerts import Asked
from onceway.operate.well import Told
from onceway.serve.ports import admin_url
from onceway.topology import Topology

Status = dict[str, Any]
LOCAL: Final = "local:"  # and a name, in place of a URL: a router that is asked through its control socket alone
PAGE = 500  # addresses to a request
NO_ROUTER: Final = "does not answer as a router"
T = TypeVar("T")


class Probe:
    """`async with Probe() as probe`; one HTTP session for all routers."""

    @waits.CALLER
    def __init__(
        self,
        answer_within_s: float = waits.PROBE.s,
        sockets: Mapping[str, Path] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        login: str | None = None,
    ) -> None:
        """sockets: by URL, the control sockets of routers on this host. tls: for listeners with TLS. login: what they
        are told in the header Authorization."""
        self._sockets = dict(sockets or {})
        self._tls = tls
        self._headers = {"Authorization": login} if login is not None else {}
        self._timeout = aiohttp.ClientTimeout(total=answer_within_s)
        self._session: aiohttp.ClientSession | None = None
        self.why: dict[str, str] = {}  # by URL: why the last question had no answer

    async def __aenter__(self) -> Self:
        # Connections are kept: a request on a new one costs its router twice as much.
        self._session = aiohttp.ClientSession(
            timeout=self._timeout,
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or True),
            headers=self._headers,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await waits.PROBE(self._session.close())

    async def get(self, url: str) -> tuple[int, bytes] | None:
        """(HTTP status, body), or None where nobody answers."""
        assert self._session is not None
        try:
            async with waits.PROBE(self._session.get(url)) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def summary(self, url: str) -> Status | None:
        """The `/status` document below this URL without addresses, or None where nobody answers with one."""
        return await self._document(url, {"limit": "0"})

    async def dense(self, url: str) -> Status | None:
        """What the console shows of a router (`Overview.dense`), or None where nobody answers with it."""
        return await self._document(url, {}, "/overview")

    async def address(self, url: str, name: str) -> Status | None:
        """The document with this address alone, if it is known there."""
        return await self._document(url, {"address": name})

    async def own(self, topology: Topology, name: str, state: Path | None) -> Status | None:
        """The same of a router on this host whose control socket is in the directory `state`."""
        from onceway.operate.control import socket_path

        url = admin_url(topology, name)
        if topology.admin.tls and state is not None:  # certificates, passwords and tokens there are not for us
            url = LOCAL + name
            self._sockets[url] = socket_path(state, name)
        return await self.summary(url)

    async def status(self, url: str) -> Status | None:
        """The document with all addresses, page by page."""
        document = await self._document(url, {"limit": str(PAGE)})
        after = document.get("next") if document is not None else None
        while document is not None and after is not None:
            page = await self._document(url, {"limit": str(PAGE), "after": after})
            if page is None:
                return None
            document["addresses"].update(page["addresses"])
            after = page.get("next")
        return document

    async def told(self, who: Asked, name: str, url: str) -> Told:
        """What a process says at `/metrics` below this URL."""
        at, text = time.time(), await self._answer(url, {}, "/metrics", _metrics)
        return Told(who, name, at, text, self.why.get(url, "does not answer"))

    async def _document(self, url: str, query: Mapping[str, str], page: str = "/status") -> Status | None:
        return await self._answer(url, query, page, _status)

    async def _answer(self, url: str, query: Mapping[str, str], page: str, read: Callable[[bytes], T]) -> T | None:
        """What `read` makes of the answer. It raises ValueError for one that is no router's."""
        if not url.startswith(LOCAL):
            answer = await self._from_listener(url, query, page, read)
            if answer is not None or url not in self._sockets or self.why[url].startswith("hangs"):
                return answer
        return await self._from_socket(url, query, page, read)

    async def _from_socket(self, url: str, query: Mapping[str, str], page: str, read: Callable[[bytes], T]) -> T | None:
        from onceway.operate.control import ControlError, exchange

        assert self._timeout.total is not None
        try:
            status, body = await waits.PROBE(exchange)(
                self._sockets[url], "GET", f"{page}?{urlencode(query)}", timeout_s=self._timeout.total
            )
            if status < 400:
                return read(body)
        except ControlError as error:
            self.why.setdefault(url, str(error))
        except ValueError:
            self.why.setdefault(url, NO_ROUTER)
        return None

    async def _from_listener(
        self, url: str, query: Mapping[str, str], page: str, read: Callable[[bytes], T]
    ) -> T | None:
        assert self._session is not None
        try:
            async with waits.PROBE(self._session.get(url.rstrip("/") + page, params=query)) as response:
                refusal = (await response.text()).strip() if response.status in (401, 403, 421) else ""
                answer = None if refusal else read(await response.read())
        except TimeoutError:
            self.why[url] = f"hangs: no answer within {self._timeout.total:g} s"
            return None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self.why[url] = _why(error)
            return None
        if refusal:
            why = "this user and password are not taken" if response.status == 401 else refusal
            if "Authorization" not in self._headers and response.status != 421:  # it was asked by a foreign name
                self.why[url] = "needs a login: give --user and --password-file, or --certificate"
            else:
                self.why[url] = f"does not let us read: {why:.200}"
            return None
        return answer

    async def trace(self, url: str, query: Mapping[str, str]) -> Status | None:
        """What the router with this URL knows of one delivery (`onceway.operate.pages`), or None."""
        return await self._document(url, query, "/trace")


def everybody(urls: Mapping[str, str], stores: Mapping[str, str]) -> list[tuple[Asked, str, str]]:
    """What `Probe.told` is to be asked: of routers, and of stores of pipes, by name."""
    return [*(("router", *each) for each in urls.items()), *(("store", *each) for each in stores.items())]


def _status(body: bytes) -> Status:
    document = json.loads(body)
    if not isinstance(document, dict) or "name" not in document:
        raise ValueError
    return document


def _metrics(body: bytes) -> str:
    text = body.decode()
    if not text.startswith("# HELP "):
        raise ValueError
    return text


def _why(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return f"does not answer through TLS that we trust, give --ca: {error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "does not answer: nobody listens"
    return NO_ROUTER
