"""The routers of a topology file in this process, with all of their listeners and their logs: as a process each would
take a second of CPU to start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import onceway
from onceway.access import authentication
from onceway.access.tls import listener_context
from onceway.access.trunks import read_trunk_tls
from onceway.base.logs import Handler, Log, LogFile, Options
from onceway.host.management import Management
from onceway.operate.control import ControlError
from onceway.serve.server import RouterServer
from onceway.topology import load

BOUND_S = 60.0


async def until(condition: Callable[[], object], what: str) -> None:
    """As `tests.live.wait_until`, beside whatever else this loop does."""
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end, f"not within {BOUND_S:g} s: {what}"
        await asyncio.sleep(0.01)


async def exchange(publisher: onceway.Publisher, subscriber: onceway.Subscriber, body: bytes) -> None:
    """One message from the one to the other."""
    sent = await publisher.put(body)
    delivery = await subscriber.receive()
    assert delivery.body == body
    await delivery.accept()
    await sent


@contextlib.asynccontextmanager
async def undisturbed(one: onceway.Connection, other: onceway.Connection) -> AsyncIterator[None]:
    """A publisher and a subscriber at two routers, before and after."""
    async with one as here, other as there:
        subscriber, publisher = await there.subscriber("orders"), await here.publisher("orders")
        await exchange(publisher, subscriber, b"0" * 100_000)
        yield
        await exchange(publisher, subscriber, b"1" * 100_000)


class Served:
    """One router."""

    def __init__(self, path: Path, name: str, *, fresh: bool = True, level: str = "info") -> None:
        self.path = path
        own = logging.Logger(name)
        self._write = LogFile(path.parent / f"{name}.log")
        self._handler = Handler(Options(level=level), self._write, None, time.monotonic)
        own.addHandler(self._handler)
        self._log = Log(own, {"router": name})
        self.server = RouterServer(load(path), name, fresh=fresh, log=self._log)
        self._management = Management(self.server, self._log, None, path.parent / "state")

    async def start(self) -> None:
        topology, name = self.server.topology, self.server.name
        secure = topology.routers[name].secure
        tls = listener_context(topology, name, self._log) if secure else None
        trunks = read_trunk_tls(topology, name, self._log)
        await self.server.start(tls, authentication.load(topology), trunks)
        await self._management.start()

    async def stop(self) -> None:
        await self.server.stop(0.0)
        await self._management.stop()
        self._handler.close()
        self._write.close()

    def reload(self) -> str:
        """What is wrong with the files, which then change nothing."""
        try:
            self._management.reload.follow(load(self.path))
        except ControlError as error:
            return str(error)
        return ""


@contextlib.asynccontextmanager
async def serving(path: Path, *names: str) -> AsyncIterator[dict[str, Served]]:
    """Those of the names, or all. They are established."""
    routers = {name: Served(path, name) for name in names or load(path).routers}
    try:
        for router in routers.values():
            await router.start()
        await until(
            lambda: all(r.server.router.core.recovery.established for r in routers.values()), "the routers to meet"
        )
        yield routers
    finally:
        await asyncio.gather(*(router.stop() for router in routers.values()))
