"""One router as a process: the server, its admin listener, signals, and a line on stderr for each change.

`onceway router` runs this.  SIGTERM drains: `RouterServer.stop` waits for what was taken; a second signal ends at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from typing import Any

from onceway import parent as parent_process
from onceway.admin import AdminServer
from onceway.listeners import check_free, listeners, problem
from onceway.loop import on_stop_signals
from onceway.server import RouterServer
from onceway.status import complete
from onceway.topology import ConfigError, Topology, format_host_port

LOOK_EVERY_S = 0.05  # at our own state, only until it is ready


async def run_router(topology: Topology, name: str, *, fresh: bool, parent: int | None = None) -> int:
    """Runs until a signal says stop; the result is the exit code.  ConfigError where a port cannot be had."""
    process = RouterProcess(topology, name, fresh=fresh, supervised=parent is not None)
    watching = asyncio.create_task(parent_process.watch(parent)) if parent is not None else None
    try:
        return await process.run()
    finally:
        if watching is not None:
            watching.cancel()


class RouterProcess:
    def __init__(self, topology: Topology, name: str, *, fresh: bool, supervised: bool) -> None:
        self.topology = topology
        self.name = name
        self._supervised = supervised
        self._server = RouterServer(topology, name, fresh=fresh, log=say)
        self._admin = AdminServer(self.raw_status)
        self._stop = asyncio.Event()

    def raw_status(self) -> dict[str, Any]:
        return {**self._server.status(), "stopping": self._stop.is_set()}

    async def run(self) -> int:
        asyncio.get_running_loop().set_exception_handler(self._unhandled)
        on_stop_signals(self._signalled)
        await self._listen()
        telling = asyncio.create_task(self._tell_states())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({telling, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if telling.done():
            telling.result()
            await stopped
        telling.cancel()
        self._tell("stopping")
        await self._server.stop()
        await self._admin.stop()
        self._tell("stopped")
        return 0

    async def _listen(self) -> None:
        check_free(self.topology, [self.name])
        places = listeners(self.topology, self.name)
        try:
            await self._admin.start(places["admin"])
        except OSError as error:
            raise ConfigError([problem(self.topology, self.name, "admin", places["admin"], error)]) from error
        try:
            await self._server.start()
        except OSError as error:
            check_free(self.topology, [self.name])  # names the one, if it is still taken
            raise ConfigError([problem(self.topology, self.name, "amqp", places["amqp"], error)]) from error
        shown = ", ".join(f"{kind} {format_host_port(place)}" for kind, place in places.items())
        say(f"[{self.name}] listening: {shown}")

    def _signalled(self) -> None:
        if self._stop.is_set():
            say(f"[{self.name}] stopped at once")
            os._exit(1)
        self._stop.set()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error of ours in a handler: what it left half done must not go on deciding about deliveries.

        Stopping beats delivering twice; who supervises starts a new incarnation, and the peers and clients know the
        rest.  Errors of sockets are not ours.
        """
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            say(f"[{self.name}] {context['message']}: {error}")
            return
        say(f"[{self.name}] {context['message']}; a router that is in doubt about itself stops")
        traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(1)

    async def _tell_states(self) -> None:
        last = ""
        while last != "ready":
            document = complete(self.raw_status())
            state = document["state"]
            if state != last:
                self._tell(document["reason"] or state)
            last = state
            await asyncio.sleep(LOOK_EVERY_S)

    def _tell(self, state: str) -> None:
        if not self._supervised:  # else the supervisor says it
            say(f"[{self.name}] {state}")


def say(line: str) -> None:
    """A line for people."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201
