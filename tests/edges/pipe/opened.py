"""The log of the pipe jobs in this process, and a listener at which readers find it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from edges.pipe.listener import Listener
from edges.pipe.log import PipeLog, open_log
from edges.pipe.messages import Entry, with_position
from edges.store.embedded import EmbeddedStore
from onceway.base.logs import logger
from onceway.client.bodies import encode_body

LOG = logger("pipe")


async def ignored(pipe: str, command: str) -> None:
    raise AssertionError(command)


@asynccontextmanager
async def opened(directory: Path, name: str = "store", **options: Any) -> AsyncIterator[PipeLog]:
    store = EmbeddedStore(directory / name, **options)
    try:
        log = await open_log(store, "jobs", "s", "s", LOG)
        yield log
        await log.close()
    finally:
        await store.close()


async def write(log: PipeLog, count: int, size: int = 100) -> None:
    end = log.next + count
    await log.append([Entry(with_position(encode_body(b"x" * size), at)) for at in range(log.next, end)])
    log.show(log.next)


async def listen(log: PipeLog, port: int = 0) -> tuple[Listener, int]:
    """A listener, and its port."""
    listener = Listener("s", {"jobs": log}, ignored, LOG)
    return listener, await listener.start("127.0.0.1", port)


async def leave(listener: Listener) -> None:
    """It stops, and the links of its readers end."""
    links = [task for carrier in listener._carriers for task in carrier.session.tasks]
    await listener.stop()
    await asyncio.wait(links, timeout=60)
