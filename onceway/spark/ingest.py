"""The process that receives: `python -m onceway.spark.ingest`, a child of the one that serves a query on the driver.

It attaches its topics' links (which takes them from whoever had them), recovers the log, grants credit, and from then
on appends, waits for the disk and accepts.  Lines of JSON come on stdin and go to stdout:

    in    {config}                       once, first: SourceOptions, `topics` of this process, `parent`
          {"processed": {slot: row}}     Spark is done with rows before these
          {"trim": {slot: row}}          and will not ask for rows before these again
          {"drain": number, "within": s}
    out   {"up": slot, "end": row}       attached and recovered
          {"state": {...}}               at each change, and every BEAT_S: whoever is silent hangs
          {"drained": number, "ends": {slot: row}}
          {"failed": text}               the last line, where it cannot go on

stdin's end and SIGTERM end it in good order, its parent's death at once: everything here may die at any time.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine
from typing import Any, Final

import onceway
from onceway.client.connection import Connection
from onceway.client.reports import LinkAttached, Report, RouterConnected, RouterLost, SubscriptionGap
from onceway.errors import OncewayError
from onceway.loop import run
from onceway.parent import die_with, watch
from onceway.spark.receiver import Backlog, Receiver
from onceway.spark.wal import Retention, SlotWriter, Wal, WalSettings
from onceway.spark.watching import WatchingJournal

TELL_EVERY_S: Final = 0.2
BEAT_S: Final = 2.0  # `ingest_process` waits many times as long
LEAVE_WITHIN_S: Final = 3.0


class Ingest:
    """The topics of one process over one connection."""

    def __init__(self, config: dict[str, Any], tell: Lines) -> None:
        self._config = config
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._wal = Wal.open(config["location"])
        self._slots = {self._wal.slot_of(topic): topic for topic in config["topics"]}
        self._backlog = Backlog(config["max_backlog"], {slot: self._wal.slot(slot) for slot in self._slots})
        self._journal = WatchingJournal(
            self._wal,
            config["topics"],
            WalSettings(
                group_rows=config["group_rows"],
                group_ms=config["group_ms"],
                segment_bytes=config["segment_bytes"],
                lock_timeout_s=config["lock_timeout_s"],
            ),
            self._writer_moved,
        )
        self._receivers: dict[int, Receiver] = {}
        self._router: str | None = None
        self._up = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled.  Raises OncewayError where it cannot go on."""
        connection = await onceway.connect(
            self._config["url"],
            container=self._wal.container,
            journal=self._journal,
            connect_timeout_s=self._config["connect_timeout_s"],
            on_report=self._report,
        )
        try:
            tasks = [self._receive(connection, slot, topic) for slot, topic in self._slots.items()]
            await _all(*tasks)
        finally:
            for receiver in self._receivers.values():
                receiver.writer.flush()
            await connection.close(timeout_s=LEAVE_WITHIN_S)

    async def _receive(self, connection: Connection, slot: int, topic: str) -> None:
        subscriber = await connection.subscriber(topic, name=self._wal.subscription, credit=self._config["credit"])
        writer = self._journal.writer(topic)
        if writer.tail.end or writer.tail.torn:
            _say(writer.tail.report(writer.directory))
        self._receivers[slot] = Receiver(subscriber, writer, self._backlog, self._config["group_rows"])
        self._backlog.begin(slot, writer.durable)
        self._tell({"up": slot, "end": writer.durable})
        if len(self._receivers) == len(self._slots):
            self._up.set()
        await self._receivers[slot].run()

    # -- what the driver says

    async def hear(self, line: dict[str, Any]) -> None:
        """Carries it out."""
        for slot, position in _positions(line.get("processed")):
            receiver = self._receivers.get(slot)
            if receiver is None:
                self._backlog.processed(slot, position, position, 0)  # the rest is counted when it is attached
            else:
                self._backlog.processed(slot, position, receiver.writer.durable, receiver.writer.pending_bytes)
        for slot, position in _positions(line.get("trim")):
            if slot in self._receivers:
                seconds, octets = self._config["retention"]
                writer = self._receivers[slot].writer
                writer.trim(position, Retention(seconds, octets))
                self._journal.watches[writer.topic].trimmed(writer.start)  # by trimmings before this one
        if "drain" in line:
            await self._drain(line["drain"], line["within"])

    async def _drain(self, number: int, within_s: float) -> None:
        await self._up.wait()
        try:
            async with asyncio.timeout(within_s):
                await _all(*(receiver.drain() for receiver in self._receivers.values()))
        except TimeoutError:
            _say(f"more comes than can be drained within {within_s:g} s (drainTimeout): stopping here")
        ends = {slot: await receiver.settled() for slot, receiver in self._receivers.items()}
        self._tell({"drained": number, "ends": ends})

    # -- what happens by itself

    def _writer_moved(self, writer: SlotWriter) -> None:
        """From the writer's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._durable, writer)

    def _durable(self, writer: SlotWriter) -> None:
        receiver = self._receivers.get(writer.slot)
        if receiver is not None:
            receiver.durable()

    def _report(self, report: Report) -> None:
        if isinstance(report, RouterConnected):
            self._router = report.router
            _say(f"connected to router {report.router} at {report.url}")
        elif isinstance(report, RouterLost):
            self._router = None
            _say(f"lost {report.url} ({report.reason}); trying the next in {report.retry_in_s:.1f} s")
        elif isinstance(report, LinkAttached):
            way = "resumed" if report.resumed else "new"
            _say(f"subscription {report.name} of {report.address} at router {report.router} ({way})")
        elif isinstance(report, SubscriptionGap):
            self._journal.watches[report.address].told(report)
            _say(f"messages of {report.address} may be missing: {report.reason}")

    async def tell_state(self) -> None:
        """For ever.  On the event loop, as all that is done here is: where that hangs, this does."""
        last: dict[str, Any] = {}
        told = 0.0
        while True:
            state = self._state()
            now = self._loop.time()
            if (state != last or now - told >= BEAT_S) and self._tell.idle:
                self._tell({"state": state})
                last, told = state, now
            await asyncio.sleep(TELL_EVERY_S)

    def _state(self) -> dict[str, Any]:
        if self._router is None:
            state = "connecting"
        elif not self._up.is_set():
            state = "attaching"
        else:
            state = "backlogged" if self._backlog.full else "receiving"
        return {
            "state": state,
            "router": self._router,
            "accepted": sum(receiver.accepted for receiver in self._receivers.values()),
            "pendingBytes": sum(receiver.writer.pending_bytes for receiver in self._receivers.values()),
        }


class Lines:
    """stdout, a line each."""

    def __init__(self, pipe: asyncio.WriteTransport) -> None:
        self._pipe = pipe

    @property
    def idle(self) -> bool:
        """The driver reads: nothing waits."""
        return self._pipe.get_write_buffer_size() == 0

    def __call__(self, line: dict[str, Any]) -> None:
        self._pipe.write(json.dumps(line).encode() + b"\n")


class _Stopped(Exception):
    """Somebody asked for the end."""


async def _commands(ingest: Ingest, lines: asyncio.StreamReader) -> None:
    """Raises _Stopped at the end of stdin."""
    while line := await lines.readline():
        await ingest.hear(json.loads(line))
    raise _Stopped


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _Stopped


async def serve() -> int:
    """This process's stdin and stdout; returns its exit code."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)  # as often as it comes
    try:
        return await _serve(loop, stop)
    finally:
        # also when only the interpreter is left to end: closing the loop would make it deadly again
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


async def _serve(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> int:
    lines = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    pipe, _ = await loop.connect_write_pipe(asyncio.Protocol, sys.stdout)
    tell = Lines(pipe)
    first = await lines.readline()
    if not first:
        return 0
    config = json.loads(first)
    die_with(config["parent"])
    code = 0
    try:
        ingest = Ingest(config, tell)
        work = (ingest.run(), ingest.tell_state(), _commands(ingest, lines), _until(stop))
        await _all(*work, _stay_with(config["parent"]))
    except _Stopped:
        pass
    except OncewayError as error:
        tell({"failed": f"{type(error).__name__}: {error}"})
        _say(f"{type(error).__name__}: {error}")
        code = 1
    pipe.close()
    return code


async def _stay_with(parent: int) -> None:
    await watch(parent)
    await asyncio.Event().wait()


async def _all(*work: Coroutine[Any, Any, Any]) -> None:
    """All of it, or the first error; then the rest is cancelled and waited for."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _positions(value: dict[str, int] | None) -> list[tuple[int, int]]:
    return [(int(slot), position) for slot, position in (value or {}).items()]


def _say(text: str) -> None:
    print(f"[onceway ingest] {text}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(run(serve()))
