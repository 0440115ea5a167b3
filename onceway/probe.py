"""Asks routers' admin listeners how they are: for `up`, `status` and the demo.

A router that does not answer is a None, never an exception: it may be starting, dying or somewhere else.
"""

from __future__ import annotations

import asyncio
import ipaddress
from types import TracebackType
from typing import Any, Self

import aiohttp

from onceway.topology import HostPort, Topology, format_host_port

Status = dict[str, Any]
ANSWER_WITHIN_S = 2.0


class Probe:
    """`async with Probe() as probe`; one HTTP session for all routers."""

    def __init__(self, answer_within_s: float = ANSWER_WITHIN_S) -> None:
        self._timeout = aiohttp.ClientTimeout(total=answer_within_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # A connection per question: the router that answers next may be another process on the same port.
        self._session = aiohttp.ClientSession(
            timeout=self._timeout, connector=aiohttp.TCPConnector(force_close=True, limit=0)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, url: str) -> tuple[int, bytes] | None:
        """(HTTP status, body), or None where nobody answers."""
        assert self._session is not None
        try:
            async with self._session.get(url) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def status(self, url: str) -> Status | None:
        """The `/status` document below this URL, or None where nobody answers with one."""
        assert self._session is not None
        try:
            async with self._session.get(url.rstrip("/") + "/status") as response:
                document = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
        return document if isinstance(document, dict) and "name" in document else None

    async def statuses(self, topology: Topology) -> dict[str, Status | None]:
        """Of all routers at once."""
        names = list(topology.routers)
        answers = await asyncio.gather(*(self.status(admin_url(topology, name)) for name in names))
        return dict(zip(names, answers, strict=True))


def admin_url(topology: Topology, name: str) -> str:
    return f"http://{format_host_port(reachable(topology.routers[name].admin))}"


def reachable(address: HostPort) -> HostPort:
    """Who listens on every interface is asked on this machine's own."""
    host, port = address
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return address
    if not ip.is_unspecified:
        return address
    return ("::1" if ip.version == 6 else "127.0.0.1"), port
