"""Runs the stores of a file beside its routers, a process for each: `onceway pipe serve`, and `onceway retained serve`
for those of MQTT's retained messages.

A store that ends is started again after a pause that doubles while it keeps ending. Nothing here knows what a store
does; the command is one of a package above this one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from onceway.base import waits
from onceway.base.logs import Log
from onceway.base.private import make_directory
from onceway.host.parent import own_command
from onceway.topology import Topology, format_duration

FIRST_PAUSE_S: Final = 0.1
MOST_PAUSE_S: Final = 5.0
STEADY_S: Final = 10.0  # after running that long, the next pause is FIRST_PAUSE_S again

RETAINED: Final = "retained:"

Plan = tuple[tuple[object, ...], ...]


def store_plans(topology: Topology) -> dict[str, Plan]:
    """Each store of the file, with what it has to be started again for when it changes. Those of retained messages have
    `retained:` in front of their names."""
    plans: dict[str, Plan] = {}
    for match, pipe in topology.pipes.items():
        for name in pipe.stores:
            plans[name] = (*plans.get(name, ()), (match, pipe))
    retained = topology.mqtt.retained if topology.mqtt is not None else None
    for name in retained.stores if retained is not None else ():
        plans[RETAINED + name] = ((retained,),)
    return plans


class Stores:
    """`async with`: the stores run until the block ends.

    Args:
        topology: The file that is followed first.
        names: Of the stores to run; None: all of the file.
        command: Name of a store -> the command line of its process.
        said: Told each line that a store writes.
        log: Told of starts and ends.
        restart: Whether a store that ends is started again.
    """

    def __init__(
        self,
        topology: Topology,
        names: Sequence[str] | None,
        command: Callable[[str], Sequence[str]],
        said: Callable[[str, str], None],
        log: Log,
        *,
        restart: bool = True,
    ) -> None:
        self._topology = topology
        self._names = names
        self._command = command
        self._said = said
        self._log = log
        self._restart = restart
        self._running: dict[str, tuple[Plan, asyncio.Task[None]]] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._ending: dict[asyncio.Task[None], None] = {}  # each cancelled once

    async def __aenter__(self) -> Stores:
        self.follow(self._topology)
        return self

    async def __aexit__(self, *error: object) -> None:
        for name in list(self._running):
            self._end(name)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def follow(self, topology: Topology) -> None:
        """Stops the stores that have left the file, starts those that are new, and starts those again whose pipes have
        changed."""
        routers = topology.urls()
        plans = {
            name: (*plan, (routers,))
            for name, plan in store_plans(topology).items()
            if self._names is None or name in self._names
        }
        changed = [name for name, (plan, _) in self._running.items() if plans.get(name) != plan]
        last = {name: self._end(name) for name in changed}
        for name, process in self._processes.items():
            if name not in last and not name.startswith(RETAINED):
                process.send_signal(signal.SIGHUP)  # it reads users and certificates again
        for name, plan in plans.items():
            if name not in self._running:
                self._running[name] = (plan, asyncio.create_task(self._keep(name, last.get(name))))

    def _end(self, name: str) -> asyncio.Task[None]:
        _, task = self._running.pop(name)
        task.cancel()
        self._ending[task] = None
        task.add_done_callback(lambda task: self._ending.pop(task, None))
        return task

    async def _keep(self, name: str, last: asyncio.Task[None] | None) -> None:
        """Runs one store until cancelled, once its former process has ended."""
        if last is not None:
            await asyncio.wait([last])
        pause_s = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            code = await self._run_once(name)
            if not self._restart:
                text = "ended with {code}; it stays down (--no-restart)"
                self._log.error("store_ended", text, store=name, code=code)
                return
            if time.monotonic() - began > STEADY_S:
                pause_s = FIRST_PAUSE_S
            self._log.warning(
                "store_ended", "ended with {code}; starting again in {pause}", store=name, code=code,
                pause=format_duration(pause_s),
            )  # fmt: skip
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MOST_PAUSE_S)

    async def _run_once(self, name: str) -> int:
        process = await waits.SPAWN(asyncio.create_subprocess_exec)(
            *self._command(name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone
        )
        self._log.info("store_started", "started, pid {pid}", store=name, pid=process.pid)
        self._processes[name] = process
        assert process.stdout is not None
        reading = asyncio.create_task(self._listen(name, process.stdout))
        try:
            return await waits.CHILD(process.wait())
        finally:
            del self._processes[name]
            if process.returncode is None:
                await self._stop(name, process)
            await reading

    async def _stop(self, name: str, process: asyncio.subprocess.Process) -> None:
        process.terminate()
        try:
            async with asyncio.timeout(waits.STOP_STORE.s):
                await process.wait()
        except TimeoutError:
            within = format_duration(waits.STOP_STORE.s)
            self._log.error("store_killed", "did not stop within {within}: killed", store=name, within=within)
            process.kill()
            await waits.KILLED(process.wait())
        self._log.info("store_stopped", "stopped", store=name)

    async def _listen(self, name: str, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await waits.CHILD_OUTPUT(stream.readline())
            except ValueError:  # longer than the reader's limit
                continue
            if not line:
                return
            if text := line.decode(errors="replace").rstrip():
                self._said(f"store {name}", text)


def store_command(
    file: Callable[[], Path], directory: Path, options: Sequence[str] = ()
) -> Callable[[str], Sequence[str]]:
    """The command of a store, tied to this process. What the file names no place for is kept in `directory`."""

    def command(name: str) -> Sequence[str]:
        kind, flag, data = "pipe", "--default-data", directory / "pipes" / name
        if name.startswith(RETAINED):
            name = name.removeprefix(RETAINED)
            kind, flag, data = "retained", "--data", directory / "retained" / f"{name}.db"
            make_directory(data.parent)
        given = ("--store", name, flag, str(data), "--parent", str(os.getpid()))
        return [*own_command(), kind, "serve", str(file()), *given, *options]

    return command
