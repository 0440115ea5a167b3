"""One router as a process: the server, its admin listener, signals, and its log.

`onceway router` runs this.  SIGTERM drains (`RouterServer.stop`); a second signal ends at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onceway.access import authentication
from onceway.access.tls import listener_context
from onceway.access.trunks import read_trunk_tls
from onceway.base import waits
from onceway.base.descriptors import raise_limit
from onceway.base.heap import Freezing, keep_free_memory
from onceway.base.logs import logger, reopen
from onceway.base.loop import on_hangup, on_stop_signals
from onceway.base.private import check_private, make_directory
from onceway.errors import OncewayError
from onceway.host import parent as parent_process
from onceway.host.notify import Notifier
from onceway.host.start import Start
from onceway.operate.status import state_of
from onceway.serve.ports import check_free, problem
from onceway.serve.server import RouterServer
from onceway.state import in_hand
from onceway.state.checked_file import keep, kept_path, warn_not_kept
from onceway.state.last_life import BEAT_S, Heart, warn_not_written
from onceway.topology import ConfigError, Topology, format_host_port

if TYPE_CHECKING:
    from onceway.access.tls import ListenerContext
    from onceway.host.management import Management

LOOK_EVERY_S = {"starting": 0.05, "recovering": 0.2}  # between checks of our own state; in any other
CALM_S = 1.0


async def run_router(
    topology: Topology, name: str, *, start: Start, parent: int | None = None, state: Path | None = None
) -> int:
    """Runs until a stop signal; returns the exit code. ConfigError if a port or the control socket in the directory
    `state` cannot be bound."""
    process = RouterProcess(topology, name, start=start, supervised=parent is not None, state=state)
    watching = asyncio.create_task(parent_process.watch(parent)) if parent is not None else None
    try:
        return await process.run()
    finally:
        if watching is not None:
            watching.cancel()


class RouterProcess:
    def __init__(
        self, topology: Topology, name: str, *, start: Start, supervised: bool, state: Path | None = None
    ) -> None:
        self.topology = topology
        self.name = name
        self._supervised = supervised
        self._log = logger("router", router=name)
        self._server = RouterServer(topology, name, fresh=start.fresh, recover_age_s=start.age_s, log=self._log)
        self._server.broken_file = start.broken_file
        self._state = state
        self._management: Management | None = None  # once it listens
        self._hung_up_early = False
        self._heart = None if state is None else Heart(state, topology.network, name, list(topology.routers))
        self._memory = None if state is None else in_hand.path_of(state, name)
        self.notifier = Notifier()
        # a supervisor keeps the file for its routers
        self._kept = None if state is None or supervised else kept_path(state, name)
        self._stop = asyncio.Event()
        self._ended = threading.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unhandled)
        threading.excepthook = lambda args: self._unhandled(
            loop, {"message": f"{args.thread}", "exception": args.exc_value}
        )
        raise_limit()
        on_stop_signals(self._signalled)
        on_hangup(self._hung_up, self._signalled)
        keep_free_memory()
        gc.disable()  # a tenth of what a start costs
        self._look_what_was_in_hand()
        try:
            await self._listen()
            gc.freeze()  # what the start has made stays
            freezing = Freezing(self._server.router.population)
            gc.callbacks.append(freezing.collected)
            self._server.sweep.looks.append(freezing.look)
        except OncewayError as error:
            self.notifier.status(str(error))
            raise
        finally:
            gc.enable()
        self.notifier.ready()
        beating = threading.Thread(target=self._remember, name="heart", daemon=True)
        if self._heart is not None:
            beating.start()
        watched = self.notifier.watch(lambda: self._server.turn_times.count)
        telling = asyncio.create_task(self._tell_states())
        stopped = asyncio.create_task(waits.STOP(self._stop).wait())
        await asyncio.wait({telling, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if telling.done():
            telling.result()
            await stopped
        telling.cancel()
        self.notifier.stopping()
        self._log.info("router_stopping", "stopping")
        await self._server.stop()
        if self._management is not None:
            await self._management.stop()
        if self._heart is not None:
            self._ended.set()
            await waits.DISK(asyncio.to_thread(beating.join))
        watched.set()
        self._log.info("router_ended", "stopped")
        return 0

    def _look_what_was_in_hand(self) -> None:
        """Tells what the last life has left, refuses it where it has ended that, and says from now on what this one has
        in hand."""
        router, path = self._server.router, self._memory
        if path is None:
            return
        try:
            make_directory(path.parent)
            fault = in_hand.fault(path)
            found = in_hand.left(path, faulty=fault is not None)
            router.border.memory = in_hand.mapped(path)
            in_hand.note_faults(path)
        except OSError as error:
            text = "{file}: {reason}: if a client's input ends this router, the next start will not know whose it was"
            self._log.warning("in_hand_not_written", text, file=path, reason=error.strerror)
            return
        if fault is not None:
            self._log.error("ended_by_fault", "the last life was ended by a fatal signal: {what}", **fault._asdict())
        if found is None:
            return
        self._server.in_hand = said = found.said()
        if found.ended:
            text = "the last life was ended by what {container} at {client} had sent: it is refused for a minute"
            self._log.error("ended_by_input", text, **said)
            router.was_ended_by(found.digest, found.user, found.client, self._server.time())
        else:
            text = "the last life has ended while it handled what {container} at {client} had sent"
            self._log.warning("ended_in_hand", text, **said)

    async def _listen(self) -> None:
        check_free(self.topology, [self.name])
        place = self.topology.routers[self.name]
        try:
            trunks = read_trunk_tls(self.topology, self.name, self._log)
            check_private(authentication.secret_files(self.topology))
            await self._server.start(self._tls(), authentication.load(self.topology), trunks)
        except OSError as error:
            check_free(self.topology, [self.name])  # names the port, if it is still in use
            key, at = next(iter(place.listeners.items()))
            raise ConfigError([problem(self.topology, self.name, key, at, error)]) from error
        module = await waits.DISK(asyncio.to_thread(import_module, "onceway.host.management"))
        management: Management = module.Management(self._server, self._log, self._heart, self._state)
        await management.start()
        self._management = management
        if self._hung_up_early:
            management.reload.read_again()
        shown = [f"{key} {format_host_port(at)}" for key, at in place.listeners.items()]
        self._log.info("listening", "listening: {places}", places=shown)

    def _tls(self) -> ListenerContext | None:
        if not self.topology.routers[self.name].secure:
            return None
        return listener_context(self.topology, self.name, self._log)

    def _remember(self) -> None:
        """Remembers each second that this router is alive, and the topology file that it follows. In a thread of its
        own: handing it over to one each time would wake the event loop, twice."""
        written, kept = True, ""
        while True:
            written = self._try_to_write("beat", tell=written)
            if self._kept is not None and self._server.topology.text != kept:
                topology = self._server.topology
                kept = topology.text
                try:
                    keep(topology, self._kept)
                except OSError as error:
                    warn_not_kept(self._log, self._kept, error, topology.path)
            if waits.PAUSE(self._ended).wait(BEAT_S):
                self._try_to_write("stopped")
                return

    def _try_to_write(self, what: Literal["beat", "stopped"], *, tell: bool = True) -> bool:
        assert self._heart is not None
        try:
            self._heart.know(self._server.topology.routers)
            self._heart.turns = self._server.turn_times.count
            getattr(self._heart, what)()
        except OSError as error:
            if tell:
                warn_not_written(self._log, error, self._heart.path)
            return False
        return True

    def _hung_up(self) -> None:
        """SIGHUP: the log file is opened again, and the topology file read again. A supervisor reads it for us."""
        reopen()
        if not self._supervised:
            if self._management is None:
                self._hung_up_early = True
                return
            self.notifier.reloading()
            self._management.reload.read_again()
            self.notifier.ready()

    def _signalled(self) -> None:
        if self._stop.is_set():
            self._log.warning("stopped_at_once", "stopped at once: a second signal has come")
            os._exit(1)
        self._stop.set()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An unexpected error in a handler or a thread stops the process: its state may be wrong, and stopping beats
        delivering twice. Without the thread that remembers that it lives, it would seem to have died long ago.

        The supervisor starts a new incarnation, which learns from peers and clients. Errors of sockets are only logged.
        """
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            self._log.warning("socket_error", "{what}: {reason}", what=context["message"], reason=str(error))
            return
        text = "{what}; the router stops, because its state may be wrong"
        self._log.error("router_failed", text, what=context["message"], exc=error)
        self._server.router.border.ended()
        os._exit(1)

    async def _tell_states(self) -> None:
        """To systemd and the log. A supervisor looks itself, and does it for its routers."""
        last = ""
        while not self._supervised:
            raw = self._server.summary()
            state, reason = state_of(raw)
            if state != last:
                if state == "ready":
                    self._log.info("router_ready", "ready")
                elif state == "isolated":
                    self._log.warning("router_isolated", "{reason}", reason=reason)
                elif state == "recovering":
                    self._log.info("recovery_begins", "{reason}", reason=reason, seconds_left=raw["recovering_s"])
                elif state == "starting":
                    self._log.info("router_starting", "{reason}", reason=reason)
            last = state
            broken = self._server.broken_file
            self.notifier.status(f"{reason or state}{f'; not used: {broken}' if broken else ''}")
            await asyncio.sleep(LOOK_EVERY_S.get(state, CALM_S))
