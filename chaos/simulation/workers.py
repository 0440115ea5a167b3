"""Worker processes that end with the process that started them, however that ends.

A pool's own workers wait until their parent says that there is no more work, which a killed parent never says. So each
worker has one end of a pipe whose other end only the parent holds, and exits when that end is closed, by the parent or
by its kernel.

A terminal sends Ctrl-C to all of them. Only the parent handles it, and ends the workers: workers that died of it would
be reported as broken, each of them perhaps once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ENDED = 1  # exit code of a worker whose parent is gone
INTERRUPTED = 130  # as a shell says of who was ended by SIGINT


def interrupt_once(*_: object) -> None:
    """A handler of SIGINT: a second one must not come between while everything is put away, which takes a moment."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Processes and threads that are started meanwhile get none ever."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Workers(ProcessPoolExecutor):
    """Starts processes as there is work for them."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with without_interrupts():
            return super().submit(fn, *args, **kwargs)


@contextmanager
def workers(jobs: int, tasks_per_process: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """So many. Their work is abandoned when the body ends in an exception."""
    context = multiprocessing.get_context("spawn")
    parent_is_gone, parent_is_here = context.Pipe(duplex=False)
    pool = Workers(jobs, context, _end_with_the_parent, (parent_is_gone,), max_tasks_per_child=tasks_per_process)
    try:
        yield pool
    except BaseException:
        parent_is_here.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        parent_is_here.close()
        parent_is_gone.close()


def _end_with_the_parent(parent_is_gone: Connection) -> None:
    def watch() -> None:
        wait([parent_is_gone])
        os._exit(ENDED)  # whatever the other thread is doing

    threading.Thread(target=watch, name="parent", daemon=True).start()
