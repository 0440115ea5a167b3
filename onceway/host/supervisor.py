"""Runs a network's routers, each as a process of its own, and keeps them running until told to stop.

A router that dies is restarted after a pause that doubles while it keeps dying. The new process recovers from its
peers (protocol 4.4). Exit code 2 means bad input, which a restart does not cure. At the first start it stops the whole
network. Later a file may only be bad while somebody edits it: the network stops when no router is left, and each has
found bad input until its pause was the longest.

The supervisor knows processes, exit codes and admin listeners, and nothing of AMQP. It logs changes, and passes on
what its routers log. Children get its process id and die with it (`onceway.host.parent`).
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol

from onceway.base.logs import Log
from onceway.base.waits import (
    ABORT,
    CALLER,
    CHILD,
    CHILD_OUTPUT,
    CONVERGED,
    KILLED,
    OWN_WORK,
    PAUSE,
    PROBE,
    SPAWN,
    START_ROUTER,
    STOP,
    STOP_ROUTER,
    TURN,
)
from onceway.host.following import ReloadSupervisor
from onceway.host.forks import Fork, Forks, can_serve
from onceway.host.notify import Notifier
from onceway.host.parent import CommandFor, own_command, router_command
from onceway.host.patience import Patience
from onceway.host.start import Start, Wanted, decide
from onceway.operate import reload
from onceway.operate.control import SUPERVISOR, ControlSocket, socket_path
from onceway.operate.probe import Probe, Status
from onceway.state.last_life import last_life, turns_ended
from onceway.topology import ConfigError, Topology, format_duration

FIRST_PAUSE_S: Final = 0.1
MOST_PAUSE_S: Final = 5.0
STEADY_S: Final = 10.0  # after running that long, the next pause is FIRST_PAUSE_S again
LOOK_EVERY_S: Final = 0.2  # between polls of the admin listeners until the network is ready; then
MOST_OF_A_LOOK: Final = 0.25  # of the watchdog's time
CALM: Final = 12  # times longer, as an answer costs its router and us some ms; twice that, if none speaks
EXIT_BAD_INPUT: Final = 2


class State(Enum):
    """The state of one router, as far as a supervisor can tell."""

    STOPPED = "stopped"
    STARTING = "starting"
    RECOVERING = "recovering"
    ISOLATED = "isolated"
    READY = "ready"
    DRAINING = "draining"
    DRAINED = "drained"
    STOPPING = "stopping"
    DEAD = "dead"  # and about to be restarted, unless --no-restart


class Reporter(Protocol):
    """Receives what the supervisor reports."""

    log: Log
    """State changes go here."""

    def said(self, name: str, text: str) -> None:
        """A line that a router wrote: of its log, or what a library printed."""

    def ready(self, text: str) -> None:
        """The network has converged."""

    def looked(self) -> None:
        """`children` have been polled: time to draw."""


@dataclass(slots=True)
class Child:
    """One router."""

    name: str
    state: State = State.STOPPED
    process: asyncio.subprocess.Process | Fork | None = None
    starts: int = 0
    began: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    status: Status | None = None  # its last answer; None since it died
    last_words: str = ""
    refusal: str = ""  # the bad input that its last start found
    answered: bool = False  # since it was started
    patience: Patience | None = None  # since there is a process
    started_with: Topology | None = None  # which says where it listens
    added: bool = False  # by a reload: it does not stop the network if it cannot start
    removed: bool = False

    @property
    def is_silent(self) -> bool:
        return self.patience is not None and self.patience.silent_s > 0

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.returncode is None else None


class Supervisor:
    """`await run()` until `stop()` is called; the result is the exit code."""

    def __init__(
        self,
        topology: Topology,
        names: Sequence[str],
        reporter: Reporter,
        *,
        command: CommandFor | None = None,
        wanted: Wanted | None = None,
        watchdog_s: float = TURN.s,
        part: bool = False,
        restart: bool = True,
        look_every_s: float = LOOK_EVERY_S,
        stop_within_s: float = STOP_ROUTER.s,
        state: Path | None = None,
        broken_file: str = "",
        router_options: Sequence[str] = (),
    ) -> None:
        """router_options: of the command line."""
        self.children = {name: Child(name) for name in names}
        self.followers: list[Callable[[Topology], None]] = []  # told of each file that is followed later
        self.follow(topology)
        self.wanted = wanted
        self.part = part  # of the network: the other routers run elsewhere
        self.restart = restart
        self.converged = False
        self.broken_file = broken_file  # what is wrong with the file on the disk, which the routers do not use
        self._state = state
        self.control = None if state is None else ControlSocket(socket_path(state))
        self.reloading = None if state is None else ReloadSupervisor(self, state, reporter.log)
        if self.control and self.reloading:
            self.control.add_action(reload.PAGE, self.reloading.action)
        self._reporter = reporter
        self._log = reporter.log
        self._command = command or router_command(str(topology.path), state, router_options)
        self._forks: Forks | None = None
        if command is None and len(names) > 1 and can_serve():  # for one it would be a second process
            self._forks = Forks([*self._command(max(names, key=len), Start()), "--forks"])
        self._watchdog_s = watchdog_s
        self._router_options, self._keeps_file = router_options, command is None
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._look_every_s, self._stop_within_s = look_every_s, stop_within_s
        self.notifier = Notifier()
        self._stopping = asyncio.Event()
        self._exit_code = 0
        self._looked = asyncio.Event()
        self._looks = 0  # that have ended, so that systemd is told that this process works
        self._woken = asyncio.Event()
        self._spoken = asyncio.Event()  # a router has written a line, or ended, since the last poll

    # --- what others ask of it

    def stop(self) -> None:
        """Drains and ends. A second call ends at once."""
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
            await CONVERGED(self._looked).wait()
        return self.converged

    def follow(self, topology: Topology) -> None:
        """The topology file has changed."""
        self.topology = topology
        for follower in self.followers:
            follower(topology)
        self.links = [link for link in topology.links if link[0] in self.children and link[1] in self.children]

    async def remove(self, names: Sequence[str]) -> None:
        """Drains and stops these routers for good."""
        for name in names:
            self.children[name].removed = True
            self._change(self.children[name], State.STOPPING)
            self.signal(name, signal.SIGTERM)
        self._woken.set()
        keepers = [self._keepers[name] for name in names]
        if keepers:
            _, late = await STOP_ROUTER(asyncio.wait)(keepers, timeout=self._stop_within_s)
            for name in names:
                self._kill_if_late(name)
            await KILLED(asyncio.gather(*late))
        for name in names:
            del self.children[name], self._keepers[name]

    def add(self, names: Sequence[str]) -> None:
        for name in names:
            child = self.children[name] = Child(name, added=True)
            self._keepers[name] = asyncio.create_task(self._keep(child, Start()))
            self.converged = False
        self.follow(self.topology)
        self._woken.set()

    # --- life

    async def run(self) -> int:
        """0: stopped when told to.  1: no router is left (`--no-restart`).  2: a router found bad input.
        ConfigError if another supervisor has the control socket."""
        await self._start_control()
        first = self._decide()
        self._keepers = {name: asyncio.create_task(self._keep(child, first)) for name, child in self.children.items()}
        async with Probe(min(PROBE.s, self._watchdog_s * MOST_OF_A_LOOK or PROBE.s)) as probe:
            looking = asyncio.create_task(self._look(probe))
            watched = self.notifier.watch(lambda: self._looks)
            everyone = asyncio.create_task(self._all_kept())
            told = asyncio.create_task(STOP(self._stopping).wait())
            try:
                ends: set[asyncio.Future[Any]] = {everyone, told, looking}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    looking.result()
                if everyone.done() and not self._stopping.is_set():
                    everyone.result()
                    self._exit_code = self._exit_code or 1
                    self._log.error(
                        "no_router_left", "network {network}: no router is left", network=self.topology.network
                    )
                self._stopping.set()
                self.notifier.stopping()
                await self._stop_all()
                await everyone
            finally:
                watched.set()
                self._stopping.set()
                self._looked.set()
                for child in self.children.values():
                    self.signal(child.name, signal.SIGKILL)
                for task in (looking, told):
                    task.cancel()
                await asyncio.gather(looking, told, everyone, *self._keepers.values(), return_exceptions=True)
                if self._forks is not None:
                    await self._forks.stop()
                if self.control is not None:
                    await self.control.stop()
        return self._exit_code

    async def _all_kept(self) -> None:
        """Returns when no router is kept running any more, those included that were added meanwhile."""
        while running := [keeper for keeper in self._keepers.values() if not keeper.done()]:
            await OWN_WORK(asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))
        for keeper in self._keepers.values():
            keeper.result()

    async def _start_control(self) -> None:
        if self.control is None:
            return
        try:
            try:
                await self.control.start()
            except ConfigError:  # another supervisor runs other routers of this network on this host
                self.control.path = self.control.path.with_name(f"{SUPERVISOR}-{next(iter(self.children))}.sock")
                await self.control.start()
        except OSError as error:
            text = "no control socket {path}: {reason}"
            self._log.warning(
                "no_control_socket", text, path=str(self.control.path), reason=error.strerror or str(error)
            )
        if self.reloading is not None and self._keeps_file and self.reloading.begin():
            self._command = router_command(str(self.reloading.kept), self._state, self._router_options)

    def _decide(self) -> Start:
        """How the routers start for the first time."""
        if self._state is None:
            return Start(fresh=self.wanted != "recover")
        start, line = decide(self.topology, list(self.children), self._state, self.wanted, part=self.part)
        self._log.info("start_decided", "{what}", network=self.topology.network, what=line)
        return start

    async def _stop_all(self) -> None:
        running = [child for child in self.children.values() if child.pid is not None]
        if running:
            names = [child.name for child in running]
            network = self.topology.network
            self._log.info("network_stopping", "network {network} stopping: {routers}", network=network, routers=names)
        for child in running:
            self._change(child, State.STOPPING)
            self.signal(child.name, signal.SIGTERM)
        waits = [asyncio.create_task(child.process.wait()) for child in running if child.process is not None]
        if waits:
            _, late = await STOP_ROUTER(asyncio.wait)(waits, timeout=self._stop_within_s)
            if late:
                for child in running:
                    if self._kill_if_late(child.name):
                        self._exit_code = self._exit_code or 1
                await KILLED(asyncio.wait(late))

    def _kill_if_late(self, name: str) -> bool:
        if self.signal(name, signal.SIGKILL) is None:
            return False
        within = format_duration(self._stop_within_s)
        self._log.error("router_killed", "did not stop within {within}: killed", router=name, within=within)
        return True

    # --- one router

    async def _keep(self, child: Child, first: Start) -> None:
        """Starts the router, and restarts it whenever it has died, until the network stops or the router is
        removed."""
        while not self._is_over(child):
            code = await self._run_once(child, first if child.starts == 0 else self._again())
            ran_s = time.monotonic() - child.began
            if self._is_over(child):
                self._change(child, State.STOPPED)
                self._log.info("router_stopped", "stopped", router=child.name)
                return
            self._change(child, State.DEAD)
            self.converged = False
            self._woken.set()
            child.refusal = (child.last_words or "exit code 2") if code == EXIT_BAD_INPUT else ""
            if ran_s > STEADY_S or child.starts == 1:
                child.pause_s = FIRST_PAUSE_S
            if self._cannot_start(child):
                text = "did not start: {reason}"
                self._log.error("router_not_started", text, router=child.name, reason=child.refusal)
                self._exit_code = EXIT_BAD_INPUT
                self._notify()
                self._stopping.set()
                return
            how, number = _ending(code), code if isinstance(code, int) else None
            if child.refusal:
                how += f": {child.refusal}"
            if not self.restart:
                text = "{how}; it stays down (--no-restart)"
                self._log.error("router_died", text, router=child.name, how=how, code=number)
                return
            self._log.warning(
                "router_died",
                "{how}; starting again in {pause}",
                router=child.name,
                how=how,
                code=number,
                pause=format_duration(child.pause_s),
            )
            await PAUSE(_wait_for(self._stopping, child.pause_s))
            child.pause_s = min(child.pause_s * 2, MOST_PAUSE_S)

    def _cannot_start(self, child: Child) -> bool:
        """The network ends, because of the bad input that this router has found."""
        if not child.refusal:
            return False
        if child.starts == 1 and not child.added:
            return True
        return all(each.refusal and each.pause_s >= MOST_PAUSE_S for each in self.children.values())

    def _is_over(self, child: Child) -> bool:
        return self._stopping.is_set() or child.removed

    def _again(self) -> Start:
        """How a router that has died starts: it may be the last one that lived."""
        return Start(age_s=None if self._state is None else last_life(self._state, self.topology.routers).age_s)

    async def _run_once(self, child: Child, start: Start) -> int | OSError:
        """Its exit code, or why there is no process."""
        command = self._command(child.name, replace(start, broken_file=self.broken_file))
        child.began = time.monotonic()
        child.started_with = self.topology
        child.starts += 1
        child.answered, child.patience = False, None
        child.last_words = ""
        child.process = None
        try:
            if self._forks is not None:
                child.process = await self._forks.start(command[len(own_command()) :])
            else:
                # In a session of its own, so that Ctrl-C reaches the supervisor alone, which then drains the routers.
                child.process = await SPAWN(asyncio.create_subprocess_exec)(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            return error
        text = "started, pid {pid}" if child.starts == 1 else "started again (start {starts}), pid {pid}"
        self._log.info("router_started", text, router=child.name, pid=child.process.pid, starts=child.starts)
        child.patience = Patience(child.process.pid, child.began, 2 * self._watchdog_s * MOST_OF_A_LOOK)
        self._change(child, State.STARTING)
        if self._stopping.is_set():  # stop() was called while the process was being created
            child.process.send_signal(signal.SIGTERM)
        assert child.process.stdout is not None
        await self._listen(child, child.process.stdout)
        code = await CHILD(child.process.wait())
        child.status = None
        return code

    async def _listen(self, child: Child, stream: asyncio.StreamReader) -> None:
        """Reports the router's output until it closes its end."""
        while True:
            try:
                line = await CHILD_OUTPUT(stream.readline())
            except ValueError:  # longer than the reader's limit: drop what was read, and continue
                continue
            self._spoken.set()
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text:
                child.last_words = text
                self._reporter.said(child.name, text)

    # --- looking

    async def _look(self, probe: Probe) -> None:
        """Polls all routers until cancelled."""
        while True:
            self._spoken.clear()
            await asyncio.gather(*(self._look_at(child, probe) for child in self.children.values()))
            converged = self._is_converged()
            if converged and not self.converged:
                network, routers, links = self.topology.network, len(self.children), len(self.links)
                what = f"{_count(routers, 'router')}, {_count(links, 'link')}"
                self._log.info("network_ready", "network {network} ready: {what}", network=network, what=what)
                self._reporter.ready(f"network {network} ready: {what}")
            self.converged = converged
            self._looks += 1
            self._looked.set()
            self._reporter.looked()
            self._notify()
            self._woken.clear()  # a router that dies meanwhile is noticed at once
            calm_s = min(self._look_every_s * CALM, self._watchdog_s * MOST_OF_A_LOOK or inf)
            await PAUSE(_wait_for)(self._woken, calm_s if converged else self._look_every_s)
            if self.converged and not any(child.is_silent for child in self.children.values()):
                await PAUSE(_wait_for(self._spoken, calm_s))

    def _notify(self) -> None:
        """Tells systemd. It is ready when its routers listen: they may wait for subscriptions for long after that."""
        if all(child.answered for child in self.children.values()):
            self.notifier.ready()
        states = [
            (child.status or {}).get("reason") or ": ".join(filter(None, (child.state.value, child.refusal)))
            for child in self.children.values()
        ]
        said = ", ".join(f"{name}: {state}" for name, state in zip(self.children, states, strict=True))
        self.notifier.status(f"{said}; not used: {self.broken_file}" if self.broken_file else said)

    async def _look_at(self, child: Child, probe: Probe) -> None:
        pid = child.pid
        if pid is None or self._stopping.is_set():
            return
        patience = child.patience
        status = await probe.own(child.started_with or self.topology, child.name, self._state)
        if patience is None or child.pid != pid or self._stopping.is_set():
            return  # it died meanwhile
        turns = turns_ended(self._state, child.name) if status is None and self._state is not None else None
        ours = status is not None and status.get("pid", pid) == pid
        patience.look(time.monotonic(), turns, answered=ours)
        if status is not None and status.get("pid", pid) != pid:
            return  # another network's router listens there; ours will fail to bind and say so
        if status is None:
            self._no_answer(child, patience.silent_s)
            return  # too busy or just started: keep its last state
        child.status, child.refusal = status, ""
        child.answered = True
        state = _STATES.get(status.get("state", ""), State.STARTING)
        if state is not child.state:
            self._change(child, state)
            left = status.get("recovering_s")
            if state is State.READY:
                self._log.info("router_ready", "ready", router=child.name)
            elif state is State.ISOLATED:
                self._log.warning("router_isolated", "{reason}", router=child.name, reason=status.get("reason", ""))
            elif state is State.RECOVERING:
                reason = status.get("reason", "recovering")
                self._log.info("recovery_begins", "{reason}", router=child.name, reason=reason, seconds_left=left)
            elif state is State.STARTING:  # the router tells of its drain itself
                self._log.info("router_starting", "starting", router=child.name)

    def _no_answer(self, child: Child, silent_s: float) -> None:
        """Kills a router that does not answer and has ended no turn for too long; `_keep` starts it again. By SIGABRT,
        since it then notes where it is (`onceway.state.in_hand`)."""
        most_s = self._watchdog_s if child.answered else max(self._watchdog_s, START_ROUTER.s)
        if not self._watchdog_s or silent_s < most_s:
            return
        text = "has ended no turn for {silent}: killed, to be started again"
        self._log.error("router_hangs", text, router=child.name, silent=format_duration(round(silent_s, 1)))
        assert child.patience is not None
        child.patience.silent_s = 0.0
        self.signal(child.name, signal.SIGABRT)
        asyncio.get_running_loop().call_later(ABORT.s, self._kill, child, child.pid)

    def _kill(self, child: Child, pid: int | None) -> None:
        if pid is not None and child.pid == pid:  # it is stopped
            self.signal(child.name, signal.SIGKILL)

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


_STATES: Final = {
    state.value: state
    for state in (State.RECOVERING, State.ISOLATED, State.READY, State.DRAINING, State.DRAINED, State.STOPPING)
}
"""What a router says of itself, as far as its supervisor does not know better."""


@CALLER
async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Waits for the event, for so long at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def _ending(code: int | OSError) -> str:
    if isinstance(code, OSError):
        return f"could not be started: {code.strerror or code}"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
