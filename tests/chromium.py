"""Headless Chromium, for tests of what browsers show and do."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.live import wait_until


class Browser:
    """Headless Chromium, spoken to in its DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    async def do(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while (answer := await self._socket.receive_json()).get("id") != self._number:
            pass
        assert "result" in answer, answer
        return answer["result"]

    async def value(self, expression: str) -> Any:
        return (await self.do("Runtime.evaluate", expression=expression, awaitPromise=True))["result"].get("value")

    async def look(self, width: int, scheme: str) -> None:
        """Pages have this width and colour scheme from now on."""
        await self.do("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme_of = {"name": "prefers-color-scheme", "value": scheme}
        await self.do("Emulation.setEmulatedMedia", features=[scheme_of])

    async def show(self, url: str) -> None:
        """Returns when the page is there."""
        await self.do("Page.navigate", url=url)  # its answer says that the page before it is gone
        while await self.value("document.readyState + location.pathname") != f"complete{urlsplit(url).path}":
            pass


@contextmanager
def chromium(profile: Path) -> Iterator[str]:
    """Where it listens."""
    process = subprocess.Popen(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--ignore-certificate-errors", f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(profile)},
    )  # fmt: skip
    try:
        where = profile / "DevToolsActivePort"
        wait_until(lambda: where.exists() and "\n" in where.read_text(), "Chromium says where it listens")
        yield f"http://127.0.0.1:{where.read_text().split()[0]}"
    finally:
        process.terminate()
        process.wait(60)


@asynccontextmanager
async def browser(listening: str) -> AsyncIterator[Browser]:
    """Its first tab, for a minute at most."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with session.get(f"{listening}/json/list") as answer:
            (tab,) = [each for each in await answer.json() if each["type"] == "page"]
        async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            yield Browser(socket)
