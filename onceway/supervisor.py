"""Runs a network's routers, each as a process of its own, and keeps them running until told to stop.

A router that dies is started again, as a new incarnation that recovers from its peers (PROTOCOL 4.4), after a pause
that doubles while it keeps dying.  The first start is different: a router that ends with exit code 2 then has found
bad input, which starting again does not cure, and the whole network stops.

Knows processes, exit codes and what admin listeners say; nothing of AMQP.  What it sees it hands to a `Reporter` as
lines.  Children don't outlive it: they are told its process id and die with it (`onceway.parent`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from onceway.probe import Probe, Status, admin_url
from onceway.topology import Topology, format_duration

FIRST_PAUSE_S: Final = 0.1
MOST_PAUSE_S: Final = 5.0
STEADY_S: Final = 10.0  # who ran that long has started well: the next pause is the first again
STOP_WITHIN_S: Final = 15.0  # more than a router's own drain
LOOK_EVERY_S: Final = 0.2  # at the admin listeners, until all is well; then
CALM: Final = 5  # times less often: an answer costs its router a moment
EXIT_BAD_INPUT: Final = 2

CommandFor = Callable[[str, bool], Sequence[str]]


class State(Enum):
    """Of one router, as far as a supervisor can tell."""

    STOPPED = "stopped"
    STARTING = "starting"
    RECOVERING = "recovering"
    READY = "ready"
    STOPPING = "stopping"
    DEAD = "dead"  # and waiting to be started again, unless that is not wanted


class Reporter(Protocol):
    """Where the supervisor's words go."""

    def line(self, text: str) -> None:
        """A state change."""

    def said(self, name: str, text: str) -> None:
        """A line that a router wrote."""

    def ready(self, text: str) -> None:
        """The network has converged."""

    def looked(self) -> None:
        """`children` have been looked at: time to draw."""


@dataclass(slots=True)
class Child:
    """One router."""

    name: str
    state: State = State.STOPPED
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    began: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    status: Status | None = None  # its last answer; None since it died
    last_words: str = ""

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.returncode is None else None


def router_command(topology_file: str) -> CommandFor:
    """`python -m onceway router FILE NAME [--fresh]`, tied to this process."""

    def command(name: str, fresh: bool) -> list[str]:
        argv = [sys.executable, "-m", "onceway", "router", topology_file, name, "--parent", str(os.getpid())]
        return [*argv, "--fresh"] if fresh else argv

    return command


class Supervisor:
    """`await run()` until `stop()` is called; the result is the exit code."""

    def __init__(
        self,
        topology: Topology,
        names: Sequence[str],
        reporter: Reporter,
        *,
        command: CommandFor | None = None,
        recover: bool = False,
        restart: bool = True,
        look_every_s: float = LOOK_EVERY_S,
        stop_within_s: float = STOP_WITHIN_S,
    ) -> None:
        self.topology = topology
        self.children = {name: Child(name) for name in names}
        self.links = [link for link in topology.links if link[0] in self.children and link[1] in self.children]
        self.recover = recover
        self.restart = restart
        self.converged = False
        self._reporter = reporter
        self._command = command or router_command(str(topology.path))
        self._look_every_s = look_every_s
        self._stop_within_s = stop_within_s
        self._stopping = asyncio.Event()
        self._exit_code = 0
        self._looked = asyncio.Event()
        self._woken = asyncio.Event()

    # --- what others ask of it

    def stop(self) -> None:
        """Drain and end.  A second time: end at once."""
        if not self._stopping.is_set():
            self._stopping.set()
            return
        for child in self.children.values():
            self.signal(child.name, signal.SIGKILL)

    def signal(self, name: str, number: signal.Signals) -> int | None:
        """Sends a signal to a router's process; its id, or None where it is not running."""
        child = self.children[name]
        pid = child.pid
        if pid is not None and child.process is not None:
            child.process.send_signal(number)
        return pid

    async def until_converged(self) -> bool:
        """True once the network is ready; False if it stopped instead."""
        while not self.converged and not self._stopping.is_set():
            self._looked.clear()
            await self._looked.wait()
        return self.converged

    # --- life

    async def run(self) -> int:
        """0: stopped when told to.  1: no router is left (`--no-restart`).  2: a router found bad input."""
        fresh = not self.recover
        keepers = [asyncio.create_task(self._keep(child, fresh)) for child in self.children.values()]
        async with Probe() as probe:
            looking = asyncio.create_task(self._look(probe))
            everyone = asyncio.ensure_future(asyncio.gather(*keepers))
            told = asyncio.create_task(self._stopping.wait())
            try:
                ends: set[asyncio.Future[Any]] = {everyone, told, looking}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    looking.result()
                if everyone.done() and not self._stopping.is_set():
                    everyone.result()
                    self._exit_code = self._exit_code or 1
                    self._reporter.line(f"network {self.topology.network}: no router is left")
                self._stopping.set()
                await self._stop_all()
                await everyone
            finally:
                self._stopping.set()
                self._looked.set()
                for child in self.children.values():
                    self.signal(child.name, signal.SIGKILL)
                for task in (looking, told):
                    task.cancel()
                await asyncio.gather(looking, told, *keepers, return_exceptions=True)
        return self._exit_code

    async def _stop_all(self) -> None:
        running = [child for child in self.children.values() if child.pid is not None]
        if running:
            names = ", ".join(child.name for child in running)
            self._reporter.line(f"network {self.topology.network} stopping: {names}")
        for child in running:
            self._change(child, State.STOPPING)
            self.signal(child.name, signal.SIGTERM)
        waits = [asyncio.create_task(child.process.wait()) for child in running if child.process is not None]
        if waits:
            _, late = await asyncio.wait(waits, timeout=self._stop_within_s)
            if late:
                for child in running:
                    if self.signal(child.name, signal.SIGKILL) is not None:
                        within = format_duration(self._stop_within_s)
                        self._reporter.line(f"[{child.name}] did not stop within {within}: killed")
                        self._exit_code = self._exit_code or 1
                await asyncio.wait(late)

    # --- one router

    async def _keep(self, child: Child, fresh: bool) -> None:
        """Starts it, and again whenever it has died, until the network stops."""
        while not self._stopping.is_set():
            code = await self._run_once(child, fresh and child.starts == 0)
            ran_s = time.monotonic() - child.began
            if self._stopping.is_set():
                self._change(child, State.STOPPED)
                self._reporter.line(f"[{child.name}] stopped")
                return
            self._change(child, State.DEAD)
            self.converged = False
            self._woken.set()
            if code == EXIT_BAD_INPUT and child.starts == 1:
                self._reporter.line(f"[{child.name}] did not start: {child.last_words or 'exit code 2'}")
                self._exit_code = EXIT_BAD_INPUT
                self._stopping.set()
                return
            how = _ending(code)
            if not self.restart:
                self._reporter.line(f"[{child.name}] {how}; it stays down (--no-restart)")
                return
            child.pause_s = FIRST_PAUSE_S if ran_s > STEADY_S or child.starts == 1 else child.pause_s
            self._reporter.line(f"[{child.name}] {how}; starting again in {format_duration(child.pause_s)}")
            await self._pause(child.pause_s)
            child.pause_s = min(child.pause_s * 2, MOST_PAUSE_S)

    async def _run_once(self, child: Child, fresh: bool) -> int:
        command = self._command(child.name, fresh)
        child.began = time.monotonic()
        child.starts += 1
        child.last_words = ""
        # A session of its own: Ctrl-C on the terminal is for the supervisor, which then drains the routers.
        child.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        again = "" if child.starts == 1 else f" again (start {child.starts})"
        self._reporter.line(f"[{child.name}] started{again}, pid {child.process.pid}")
        self._change(child, State.STARTING)
        if self._stopping.is_set():  # told to stop while the process was being made
            child.process.terminate()
        assert child.process.stdout is not None
        await self._listen(child, child.process.stdout)
        code = await child.process.wait()
        child.status = None
        return code

    async def _listen(self, child: Child, stream: asyncio.StreamReader) -> None:
        """Passes on what a router writes, until it has closed its end."""
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the reader's limit: what was read is dropped, the rest is read on
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text:
                child.last_words = text
                self._reporter.said(child.name, text)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    # --- looking

    async def _look(self, probe: Probe) -> None:
        """Asks all routers again and again."""
        while True:
            await asyncio.gather(*(self._look_at(child, probe) for child in self.children.values()))
            converged = self._is_converged()
            if converged and not self.converged:
                routers, links = len(self.children), len(self.links)
                self._reporter.ready(
                    f"network {self.topology.network} ready: {_count(routers, 'router')}, {_count(links, 'link')}"
                )
            self.converged = converged
            self._looked.set()
            self._reporter.looked()
            await self._doze(self._look_every_s * (CALM if converged else 1))

    async def _doze(self, seconds: float) -> None:
        """Until the next look: sooner if a router dies."""
        self._woken.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _look_at(self, child: Child, probe: Probe) -> None:
        pid = child.pid
        if pid is None or self._stopping.is_set():
            return
        status = await probe.status(admin_url(self.topology, child.name))
        if child.pid != pid or self._stopping.is_set():
            return  # it died meanwhile
        if status is not None and status.get("pid", pid) != pid:
            return  # somebody else's router listens there; ours will say so itself
        if status is None:
            return  # too busy, or too young, to answer: its state is what it was
        child.status = status
        state = {"ready": State.READY, "recovering": State.RECOVERING}.get(status.get("state", ""), State.STARTING)
        if state is not child.state:
            self._change(child, state)
            left = status.get("recovering_s")
            more = f", {left:.0f} s left" if state is State.RECOVERING and left is not None else ""
            self._reporter.line(f"[{child.name}] {state.value}{more}")

    def _is_converged(self) -> bool:
        """Every router is ready and reaches every other one of ours; every link of ours is up at both ends."""
        for child in self.children.values():
            if child.state is not State.READY or child.status is None:
                return False
            reached = child.status.get("paths", {})
            if any(name not in reached for name in self.children if name != child.name):
                return False
            neighbours = child.status.get("neighbours", {})
            for one, other, _ in self.links:
                far = other if one == child.name else one if other == child.name else None
                if far is not None and not neighbours.get(far, {}).get("up"):
                    return False
        return True

    def _change(self, child: Child, state: State) -> None:
        child.state = state
        if state in (State.DEAD, State.STOPPED):
            child.status = None


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
