"""The process that receives: `python -m onceway.spark.source.ingest`, a child of the query's process on the driver.

It attaches its slots' links (which detaches any earlier holder), recovers the log, grants credit, and from then on
appends, waits for the disk and accepts.  Lines of JSON come on stdin and go to stdout:

    in    {config}                       once, first: SourceOptions, `slots` of this process, `parent`
          {"processed": {slot: row}}     Spark has processed the rows before these
          {"trim": {slot: row}}          and will not ask for rows before these again
          {"drain": number, "within": s}
    out   {"up": slot, "end": row}       attached and recovered
          {"state": {...}}               at each change, and every BEAT_S: a silent ingest hangs
          {"drained": number, "ends": {slot: row}}
          {"changed": true}              the old partitions are gone (`changing`)
          {"failed": text}               the last line, where it cannot continue

The end of stdin and SIGTERM end it in good order, its parent's death at once.  It may be killed at any time.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from onceway.base import waits
from onceway.base.loop import run
from onceway.errors import OncewayError
from onceway.host.parent import die_with, watch
from onceway.spark.source.changing import Change
from onceway.spark.source.receiving import Ingest, Lines, all_of, say


class _Stopped(Exception):
    """The driver or a signal asked for the end."""


async def _commands(ingest: Ingest, lines: asyncio.StreamReader) -> None:
    """Raises _Stopped at the end of stdin."""
    while line := await waits.INGEST_COMMANDS(lines.readline()):
        await ingest.hear(json.loads(line))
    raise _Stopped


async def _until(stop: asyncio.Event) -> None:
    await waits.STOP(stop).wait()
    raise _Stopped


async def serve() -> int:
    """Serves this process's stdin and stdout; returns its exit code."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)  # as often as it comes
    try:
        return await _serve(loop, stop)
    finally:
        # also while the interpreter exits: closing the loop would restore the default, which kills
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


async def _serve(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> int:
    lines = asyncio.StreamReader(limit=1 << 20)
    await waits.SPAWN(loop.connect_read_pipe)(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    pipe, _ = await waits.SPAWN(loop.connect_write_pipe)(asyncio.Protocol, sys.stdout)
    tell = Lines(pipe)
    first = await waits.INGEST_COMMANDS(lines.readline())
    if not first:
        return 0
    config = json.loads(first)
    die_with(config["parent"])
    code = 0
    try:
        ingest = (Change if config["change"] else Ingest)(config, tell)
        work = (ingest.run(), ingest.tell_state(), _commands(ingest, lines), _until(stop))
        await waits.OWN_WORK(all_of(*work, _stay_with(config["parent"])))
    except _Stopped:
        pass
    except OncewayError as error:
        tell({"failed": f"{type(error).__name__}: {error}"})
        say(f"{type(error).__name__}: {error}")
        code = 1
    pipe.close()
    return code


async def _stay_with(parent: int) -> None:
    await watch(parent)
    await waits.STOP(asyncio.Event()).wait()


if __name__ == "__main__":
    sys.exit(run(serve()))
