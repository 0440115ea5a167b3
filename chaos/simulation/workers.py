"""Worker processes that end with the process that started them, however that ends.

A pool's own workers wait for work until its parent says that there is no more, which a parent that is killed never
says. So each worker has one end of a pipe whose other end nobody but the parent holds, and ends itself when that is
closed: by the parent, or by its kernel.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait

ENDED = 1  # exit code of a worker whose parent is gone


@contextmanager
def workers(jobs: int, tasks_per_process: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """That many. What they are doing is given up when the body ends in an exception."""
    context = multiprocessing.get_context("spawn")
    parent_is_gone, parent_is_here = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        jobs, context, _end_with_the_parent, (parent_is_gone,), max_tasks_per_child=tasks_per_process
    )
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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a terminal says it to all: one traceback for each would be too many

    def watch() -> None:
        wait([parent_is_gone])
        os._exit(ENDED)  # whatever the other thread is doing

    threading.Thread(target=watch, name="parent", daemon=True).start()
