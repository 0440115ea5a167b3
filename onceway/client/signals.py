"""Small asyncio tools: waiting for a condition, and an awaitable that is already done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from onceway.base.waits import CALLER


class Changes:
    """`await until(condition)` while other code calls `notify` after each change."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    @CALLER
    async def until(self, condition: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Returns False if the timeout came first."""
        if condition():
            return True
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not condition():
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            if deadline is None:
                await waiter
                continue
            handle = loop.call_at(deadline, _finish, waiter)
            try:
                await waiter
            finally:
                handle.cancel()
            if loop.time() >= deadline:
                return bool(condition())
        return True


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Done:
    """An awaitable with nothing to wait for, or that raises."""

    __slots__ = ("_error",)

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def __await__(self) -> Generator[None, None, None]:
        if self._error is not None:
            raise self._error
        yield from ()


DONE = Done()
