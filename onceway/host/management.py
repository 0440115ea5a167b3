"""What operators reach of a router process: its admin listener, its control socket, and the actions there.

A router imports this once it listens for clients and neighbours: HTTP takes as long to import as all the rest of it,
and a network that was killed as a whole accepts nothing until its routers have met.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from onceway.access.readers import Access
from onceway.access.tls import profile_context
from onceway.base.logs import Log
from onceway.console import Console, Judged, View
from onceway.operate.actions import Actions
from onceway.operate.control import ControlSocket, socket_path
from onceway.operate.metrics import TABLE
from onceway.operate.node.node import Node
from onceway.operate.pages import AdminServer
from onceway.operate.reload import PAGE, ReloadRouter
from onceway.operate.status import Document
from onceway.operate.well import NEEDED, Judge, Told
from onceway.serve.ports import problem
from onceway.serve.server import RouterServer
from onceway.state.last_life import Heart
from onceway.topology import ConfigError


class Management:
    """For the router of `server`; its control socket is in the directory `state`, None: it has none."""

    def __init__(self, server: RouterServer, log: Log, heart: Heart | None, state: Path | None) -> None:
        self._server = server
        self._log = log
        access = Access(lambda: server.topology.admin, lambda: server.listening.authentication, server.log)
        self._admin = AdminServer(server, lambda: server.hosts, [access.check])
        self._console = Console(self._view, self._address, self._judged)
        self._judge = Judge()
        self._admin.more = self._console.routes()
        self.reload = ReloadRouter(server, log, heart, self._admin)
        actions = Actions(server)
        self._node = Node(server, self._admin.overview, actions)
        self._control = None if state is None else ControlSocket(socket_path(state, server.name), self._admin.routes())
        if self._control is not None:
            self._control.add_action(PAGE, self.reload.action)
            actions.add_to(self._control)

    async def start(self) -> None:
        """Listens. ConfigError if the admin listener's port cannot be bound."""
        topology, name = self._server.topology, self._server.name
        place = topology.routers[name]["admin"]
        try:
            server = self._server
            server.admin_tls = profile_context(topology, topology.admin.tls, name, self._log)
            await self._admin.start(place, server.admin_tls)
        except OSError as error:
            raise ConfigError([problem(topology, name, "admin", place, error)]) from error
        self._node.start()
        if self._control is not None:  # last: who has the ports has the name
            try:
                await self._control.start()
            except OSError as error:
                text = "no control socket {path}: {reason}"
                self._log.warning(
                    "no_control_socket", text, path=str(self._control.path), reason=error.strerror or str(error)
                )

    async def _view(self) -> View:
        topology, name = self._server.topology, self._server.name
        return View(topology.network, name, topology.links, {name: await self._admin.overview.dense()})

    async def _judged(self) -> Judged:
        at, name = time.time(), self._server.name
        _, text = await self._admin.metrics([metric for metric in TABLE if metric.name in NEEDED])
        told = Told("router", name, at, "".join(text))
        verdicts, _ = await self._admin.overview.pace.run(self._judge.judge([told]))
        return Judged(self._server.topology.network, name, verdicts)

    async def _address(self, name: str) -> dict[str, Document]:
        found = await self._admin.overview.only(name)
        return {self._server.name: json.loads(f"{{{', '.join(found)}}}").get(name, {})}

    async def stop(self) -> None:
        await self._node.stop()
        self._console.close()
        await self._admin.stop()
        if self._control is not None:
            await self._control.stop()
