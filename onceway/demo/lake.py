"""The Spark pipeline as a process beside the demo: a subscriber like the others. Spark's own output goes to its log."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from onceway.base import waits
from onceway.demo.lake_audit import Audit, from_json

EVERY = "1 second"
LOG_LINES = 15


class LakeFailed(Exception):
    """The pipeline ended before it was told to; with the end of its log."""


class Lake:
    """`rows` is how many messages are in the lake; `attached` is set when the network knows the subscription."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "spark.log"
        self.rows = 0
        self.attached = asyncio.Event()
        self.audit: Audit | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, urls: str) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "onceway.demo.pipeline", str(self.home), "--url", urls, "--every", EVERY]
        with self.log.open("wb") as log:
            self._process = await waits.SPAWN(asyncio.create_subprocess_exec)(
                *argv, "--json", "--parent", str(os.getpid()), stdout=asyncio.subprocess.PIPE, stderr=log, env=_env()
            )
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in waits.CHILD_OUTPUT(process.stdout):
            self._said(json.loads(line))
        await waits.CHILD(process.wait())
        if self.audit is None:
            log = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise LakeFailed(f"the pipeline ended with exit code {process.returncode}:\n{log}")

    def _said(self, words: dict[str, Any]) -> None:
        if "rows" in words:
            self.rows = words["rows"]
            if words["attached"]:
                self.attached.set()
        else:
            self.audit = from_json(words)

    async def until_attached(self) -> None:
        """LakeFailed if it ends before."""
        assert self._reading is not None
        waiting = asyncio.create_task(waits.DEMO_SPARK(self.attached).wait())
        await asyncio.wait({waiting, self._reading}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._reading.done():
            self._reading.result()

    @property
    def ended(self) -> bool:
        return self._reading is not None and self._reading.done()

    async def finish(self) -> Audit:
        """Ends the queries, and returns what the lake says.  LakeFailed if it says nothing."""
        assert self._process is not None
        assert self._reading is not None
        if not self.ended:
            self._process.terminate()
        async with asyncio.timeout(waits.DEMO_SPARK.s):
            await self._reading
        assert self.audit is not None
        return self.audit

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await waits.KILLED(self._process.wait())
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)


def _env() -> dict[str, str]:
    """A JVM that lives for half a minute is quicker with its simplest compiler and collector."""
    options = os.environ.get("JDK_JAVA_OPTIONS", "")
    return {**os.environ, "JDK_JAVA_OPTIONS": f"{options} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC".strip()}
