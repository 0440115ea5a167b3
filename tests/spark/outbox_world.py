"""An outbox and a network of fake routers around it, for tests that kill the process between them."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from onceway.client.bodies import read_body
from onceway.spark.options import Terms
from onceway.spark.sink import journal
from onceway.spark.sink.outbox import Manifest, Outbox
from onceway.spark.sink.publishing import commit_batch, publish_share
from onceway.spark.sink.staging import StagedFile, stage
from tests.onceway.client.fake_network import FakeNetwork

T = TypeVar("T")
BOUND_S = 60.0
OWNER = "query q"


class Network:
    """A FakeNetwork with one router, in a thread of its own, so that it outlives whoever publishes to it."""

    def __init__(self) -> None:
        self.fake = FakeNetwork()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.router = self._wait(self.fake.router())
        self.url = self.fake.url()

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(BOUND_S)

    def do(self, action: Callable[[FakeNetwork], T]) -> T:
        """In the network's own thread."""

        async def run() -> T:
            return action(self.fake)

        result: T = self._wait(run())
        return result

    def close(self) -> None:
        self._wait(self.fake.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(BOUND_S)
        self.loop.close()

    def bodies(self) -> list[bytes]:
        """What subscribers have been given: one for each new tag."""
        return self.do(lambda fake: [bytes(read_body(payload)) for payload in fake.published])

    def faults(self) -> list[str]:
        return self.do(lambda fake: list(fake.faults))

    def unsettled(self) -> int:
        return self.do(lambda fake: sum(len(state.records) for state in fake.publishers.values()))


def rows(batch: int, topic: str, first: int, count: int) -> list[bytes]:
    return [b"%d %s %d" % (batch, topic.encode(), number) for number in range(first, first + count)]


def staged(location: Path, name: str, parts: Sequence[Sequence[tuple[str, bytes]]]) -> list[StagedFile]:
    """Each part is a partition's rows, (topic, value)."""
    outbox = Outbox(str(location))
    files = []
    for partition, part in enumerate(parts):
        batch = pa.record_batch({"topic": [topic for topic, _ in part], "value": [value for _, value in part]})
        file = stage(outbox.directory(name), partition, 0, [batch], None)
        if file is not None:
            files.append(file)
    return files


def commit(
    location: Path,
    url: str,
    name: str,
    files: Sequence[StagedFile],
    *,
    publishers: int = 0,
    spread: Callable[[Manifest], None] | None = None,
    **terms: Any,
) -> None:
    """publishers: beside the driver; unless `spread` is given they publish one after the other, here."""

    def in_turn(manifest: Manifest) -> None:
        for part in manifest.shares:
            share(location, url, name, part.publisher, **terms)

    if publishers:
        spread = spread or in_turn
    commit_batch(Outbox(str(location)), OWNER, name, files, _terms(url, terms), publishers, spread)


def share(location: Path, url: str, name: str, publisher: int, **terms: Any) -> None:
    """What a task does for one of the publishers beside the driver."""
    publish_share(Outbox(str(location)), name, publisher, _terms(url, terms), os.getppid())


def _terms(url: str, given: dict[str, Any]) -> Terms:
    return Terms(url, **{"timeout_s": BOUND_S, "lock_timeout_s": BOUND_S, **given})


# -- a process of its own, that dies


def dying_commit(
    step: int,
    location: Path,
    url: str,
    name: str,
    files: Sequence[StagedFile],
    ahead: int,
    publisher: int,
    terms: dict[str, Any],
) -> None:
    """Commits, or publishes one share, and is killed right before the step-th thing it does to the disk (0: never)."""
    journal.AHEAD = ahead
    left = step
    lock = threading.Lock()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            with lock:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for function in ("write", "fsync", "fdatasync", "link", "replace", "unlink", "rmdir", "truncate"):
        setattr(os, function, counted(getattr(os, function)))
    if publisher:
        share(location, url, name, publisher, **terms)
    else:
        commit(location, url, name, files, **terms)


_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.spark.outbox_world"])


def start(
    location: Path,
    url: str,
    name: str,
    files: Sequence[StagedFile],
    *,
    step: int = 0,
    ahead: int = 64,
    publisher: int = 0,
    **terms: Any,
) -> BaseProcess:
    """A process that commits; publisher: one that publishes this one's share of a batch that is decided."""
    arguments = (step, location, url, name, files, ahead, publisher, terms)
    process = _CONTEXT.Process(target=dying_commit, args=arguments, daemon=True)
    process.start()
    return process


def ended(process: BaseProcess) -> int:
    """Its exit code: 0, or -9 where it was killed."""
    process.join(BOUND_S)
    code = process.exitcode
    assert code is not None, "the committing process hangs"
    process.close()
    return code
