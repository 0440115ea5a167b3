"""Calls subscribers back: one pool of kept-alive connections, to places that may be called back only.

What became of a batch is told in two ways: operators read all of it in the log, and clients of the bus a class, since
they could otherwise have the bus look for open ports of its network.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from dataclasses import replace
from typing import Final, NamedTuple

import aiohttp

from edges.bus.places import NotAllowed, Places
from onceway.base import waits
from onceway.client.driver import why_failed

READ_OCTETS: Final = 65_536  # of an answer, so that its connection can be used again
BATCH_HEADER: Final = "Onceway-Batch"


PROBE: Final = "0"  # what a batch of no events says that it holds


class Failure(NamedTuple):
    """Why a batch was not taken."""

    kind: str  # for clients
    detail: str  # for operators


class Sender:
    """Sends batches.

    Args:
        places: Where they may go.
        context: How the certificates of subscribers are checked; None: as the system does.
        connect_timeout_s: In which a connection has to be there, TLS included.
        total_timeout_s: In which a batch has to be answered.
    """

    def __init__(
        self,
        places: Places,
        context: ssl.SSLContext | None = None,
        *,
        connect_timeout_s: float = waits.CALLBACK_CONNECT.s,
        total_timeout_s: float = waits.CALLBACK.s,
    ) -> None:
        self._places = places
        # of call-backs that are this machine's loopback address in a trial: no name comes to mean that
        self._sessions = {
            trial: aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    keepalive_timeout=60,
                    ssl=True if context is None else context,
                    socket_factory=replace(places, trial=trial).sockets,
                ),
                timeout=waits.CALLBACK(aiohttp.ClientTimeout)(
                    total=total_timeout_s,
                    connect=connect_timeout_s,
                    ceil_threshold=total_timeout_s,  # longer ones would be a whole number of seconds of the clock
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "onceway-bus", "Content-Type": "application/json"},
            )
            for trial in {False, places.trial}
        }

    async def send(self, callback: str, uuid: str, body: bytes, batch: str) -> Failure | None:
        """Posts a batch. Redirects are not followed. Returns None if it was taken, else why not."""
        headers = {BATCH_HEADER: batch, "Authorization": f"Basic {b64encode(f'{uuid}:x'.encode()).decode()}"}
        try:
            session = self._sessions[self._places.check(callback)]
            posting = session.post(callback, data=body, headers=headers, allow_redirects=False)
            async with waits.CALLBACK(posting) as response:
                if response.content_length is None or response.content_length <= READ_OCTETS:
                    await response.content.read(READ_OCTETS)
                return None if 200 <= response.status < 300 else Failure("not taken", f"HTTP {response.status}")
        except TimeoutError:
            return Failure("no answer", "timeout")
        except NotAllowed as error:
            return Failure("not allowed", str(error))
        except aiohttp.ClientConnectorError as error:
            kind = "not allowed" if isinstance(error.os_error, NotAllowed) else "no answer"
            return Failure(kind, why_failed(error.os_error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Failure("no answer", f"{type(error).__name__}: {error}")

    async def is_callback(self, callback: str, uuid: str, within_s: float = waits.CALLBACK_CONNECT.s) -> bool:
        """Says whether a place takes a batch of no events: then it is somebody's call-back."""
        try:
            async with waits.CALLBACK_CONNECT(asyncio.timeout(within_s)):
                return await self.send(callback, uuid, b"[]", PROBE) is None
        except TimeoutError:
            return False

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
