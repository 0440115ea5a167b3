"""An embedded store that a loop in a thread serves for other processes; it may go and come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from chaos.live.ports import free_port
from edges.store import Store, open_store
from edges.store.remote import StoreService

T = TypeVar("T")


class Loop:
    """A loop in a thread, for tests that speak to a journal from outside."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work: Awaitable[T]) -> T:
        async def go() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(go(), self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Served:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/store"
        self._thread = Loop()

    def start(self) -> None:
        self._thread.run(self._start())

    def stop(self) -> None:
        self._thread.run(self._stop())

    def close(self) -> None:
        self.stop()
        self._thread.close()

    def ask(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """For another loop: the answer of the store itself."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._thread.loop))

    async def _start(self) -> None:
        self.store: Store = open_store(str(self._path))
        self.service = StoreService(self.store)
        application = web.Application()
        application.router.add_get("/store", self.service.serve)
        self._runner = web.AppRunner(application, shutdown_timeout=2.0)  # as an edge: a connection may just have come
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def _stop(self) -> None:
        await self.service.close()
        await self._runner.cleanup()
        await self.store.close()
