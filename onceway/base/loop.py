"""Runs a coroutine on the fastest event loop there is: uvloop where it is installed, asyncio's own otherwise."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from onceway.base import waits

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run.  ONCEWAY_LOOP=asyncio leaves uvloop out."""
    with asyncio.Runner(loop_factory=_uvloop_factory()) as runner:
        return runner.run(main)


def on_stop_signals(callback: Callable[[], None]) -> None:
    """Calls back at each SIGTERM, SIGINT and SIGHUP. Call it on the running loop."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, callback)


def stop_signal(reload: Callable[[], None] | None = None) -> asyncio.Future[None]:
    """Done at the first SIGTERM, SIGINT or SIGHUP; with `reload`, SIGHUP calls that. Call it on the running loop."""
    stopped: asyncio.Future[None] = waits.STOP(asyncio.get_running_loop().create_future())

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    on_stop_signals(stop)
    if reload is not None:
        on_hangup(reload, stop)
    return stopped


def on_hangup(reload: Callable[[], None], stop: Callable[[], None]) -> None:
    """SIGHUP calls `reload`; `stop` if the terminal on stdin has gone, which sends the same signal. Call it on the
    running loop."""
    had_terminal = os.isatty(0)

    def hung_up() -> None:
        if had_terminal and not os.isatty(0):
            stop()
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if os.environ.get("ONCEWAY_LOOP") == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
