"""Whether a router may start fresh beside what is up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from chaos.live.ports import free_port
from onceway.base import waits
from onceway.errors import UsageError
from onceway.host import start
from onceway.topology import Topology, load


def topology(directory: Path) -> Topology:
    path = directory / "net.yaml"
    ports = "{{amqp: {}, interrouter: {}, admin: {}}}"
    a, b = (ports.format(free_port(), free_port(), free_port()) for _ in "ab")
    path.write_text(
        f"network: net\ndefaults: {{host: 127.0.0.1}}\nrouters:\n  a: {a}\n  b: {b}\nlinks: [a - b]\n", "utf-8"
    )
    return load(path)


class Starting:
    """Router a in its first moments: its admin listener opens once somebody has met its other one."""

    def __init__(self, at: Topology) -> None:
        self.place = at.routers["a"]
        self.met = asyncio.Event()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met.set()
        writer.close()

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response({"name": "a", "network": "net", "started_fresh": True, "uptime_s": 0.1})

    async def run(self) -> None:
        trunk = await asyncio.start_server(self._on_connection, *self.place["interrouter"])
        try:
            await self.met.wait()
            app = web.Application()
            app.router.add_get("/status", self._status)
            runner = web.AppRunner(app)
            await runner.setup()
            try:
                await web.TCPSite(runner, *self.place["admin"]).start()
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()
        finally:
            trunk.close()


def test_a_router_that_is_just_opening_its_ports_is_asked_again(tmp_path: Path) -> None:
    at = topology(tmp_path)

    async def go() -> bool:
        starting = Starting(at)
        task = asyncio.create_task(starting.run())
        try:
            while not task.done():  # else it has failed
                await start.refuse_fresh_beside(at, ["b"])
                if starting.met.is_set():
                    return True
            return False
        finally:
            task.cancel()

    assert asyncio.run(go())


def test_a_router_that_listens_and_never_answers_counts_as_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "FRESH", replace(waits.FRESH, bound=0.2))
    at = topology(tmp_path)

    async def go() -> None:
        async with await asyncio.start_server(lambda reader, writer: writer.close(), *at.routers["a"]["interrouter"]):
            await start.refuse_fresh_beside(at, ["b"])

    with pytest.raises(UsageError, match="router a listens, and does not answer"):
        asyncio.run(go())
