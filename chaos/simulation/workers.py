"""Worker processes that end with the process that started them, however that ends.

A pool's own workers wait for work until its parent says that there is no more, which a parent that is killed never
says. So each worker has one end of a pipe whose other end nobody but the parent holds, and ends itself when that is
closed: by the parent, or by its kernel.

A terminal says Ctrl-C to all of them. Only the parent hears of it, and ends the others: of workers that died of it
themselves it would say that they are gone, and each of them might say so, too.
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
    """That many. What they are doing is given up when the body ends in an exception."""
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
