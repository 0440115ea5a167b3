"""Calls subscribers back: one pool of kept-alive connections."""

from __future__ import annotations

import ssl
from base64 import b64encode
from typing import Final

import aiohttp

from onceway.client.driver import why_failed

CONNECT_TIMEOUT_S: Final = 2.0
TOTAL_TIMEOUT_S: Final = 20.0
READ_OCTETS: Final = 65_536  # of an answer, so that its connection can be used again
BATCH_HEADER: Final = "Onceway-Batch"


class Sender:
    """Sends batches.

    Args:
        context: How the certificates of subscribers are checked; None: as the system does.
        connect_timeout_s: In which a connection has to be there, TLS included.
        total_timeout_s: In which a batch has to be answered.
    """

    def __init__(
        self,
        context: ssl.SSLContext | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        total_timeout_s: float = TOTAL_TIMEOUT_S,
    ) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ssl=True if context is None else context),
            timeout=aiohttp.ClientTimeout(
                total=total_timeout_s,
                connect=connect_timeout_s,
                ceil_threshold=total_timeout_s,  # longer ones would be a whole number of seconds of the clock
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "onceway-bus", "Content-Type": "application/json"},
        )

    async def send(self, callback: str, uuid: str, body: bytes, batch: str) -> str | None:
        """Posts a batch. Returns None if it was taken, else why not."""
        headers = {BATCH_HEADER: batch, "Authorization": f"Basic {b64encode(f'{uuid}:x'.encode()).decode()}"}
        try:
            async with self._session.post(callback, data=body, headers=headers, allow_redirects=False) as response:
                if response.content_length is None or response.content_length <= READ_OCTETS:
                    await response.content.read(READ_OCTETS)
                return None if 200 <= response.status < 300 else f"HTTP {response.status}"
        except TimeoutError:
            return "timeout"
        except aiohttp.ClientConnectorError as error:
            return why_failed(error.os_error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    async def close(self) -> None:
        await self._session.close()
