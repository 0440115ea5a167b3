"""Runs a coroutine on the fastest event loop there is: uvloop where it is installed, asyncio's own otherwise."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run.  ONCEWAY_LOOP=asyncio leaves uvloop out."""
    with asyncio.Runner(loop_factory=_uvloop_factory()) as runner:
        return runner.run(main)


def on_stop_signals(callback: Callable[[], None]) -> None:
    """Calls back at SIGTERM, Ctrl-C and the terminal's end, as often as they come; call it on the running loop."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, callback)


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if os.environ.get("ONCEWAY_LOOP") == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
