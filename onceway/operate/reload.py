"""A changed topology file on its way to running routers.

`POST /reload` on a control socket brings the content of the file, not its name, so that all that are told get the same.
Each process checks it as a whole, and then follows it, or refuses it and changes nothing: `ReloadRouter` in a router,
`onceway.host.following` in a supervisor, which tells its routers. The arguments are `file` (its path, for messages),
`directory` (which the paths in it are relative to), `text`, and `dry_run`. `onceway.cli.reload` is the client.

The supervisor keeps the file last checked in the state directory, and starts its routers with it: a router that dies
while the original is being edited does not start with a broken one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from onceway.access import authentication, files
from onceway.access.files import Files, out_of_reach
from onceway.access.tls import listener_context, profile_context
from onceway.access.trunks import read_trunk_tls
from onceway.base.private import check_private
from onceway.errors import UsageError
from onceway.operate.control import ControlError
from onceway.state.checked_file import not_reloaded
from onceway.topology import ConfigError, Topology, load, loads
from onceway.topology.difference import Change, difference
from onceway.topology.said import in_force
from router.reporting import NO_LOG, Log

if TYPE_CHECKING:
    from onceway.access.tls import ListenerContext
    from onceway.access.trunks import TrunkTls
    from onceway.operate.pages import AdminServer
    from onceway.serve.server import RouterServer
    from onceway.state.last_life import Heart

PAGE: Final = "/reload"


def arguments(topology: Topology, *, dry_run: bool = False) -> dict[str, Any]:
    """What `POST /reload` takes."""
    return {
        "file": str(topology.path),
        "directory": str(topology.directory),
        "text": topology.text,
        "dry_run": dry_run,
    }


def topology_of(given: Mapping[str, Any]) -> Topology:
    file, text, directory = given.get("file", "<text>"), given.get("text"), given.get("directory")
    if not isinstance(text, str) or not isinstance(file, str) or not isinstance(directory, str | None):
        raise ControlError("reload needs the strings `file` and `text`, and takes the string `directory`", 400)
    try:
        return loads(text, file, directory)
    except ConfigError as error:
        raise ControlError(str(error), 400) from error


def plan(old: Topology, new: Topology, started: Mapping[str, Topology]) -> list[Change]:
    """What changes. ControlError where running routers cannot change to it. The arguments are those of `difference`."""
    changes = difference(old, new, started)
    refused = [str(change) for change in changes if change.refused]
    if refused:
        raise ControlError("\n".join(refused))
    return changes


class ReloadRouter:
    """A router's side."""

    def __init__(
        self, server: RouterServer, log: Log, heart: Heart | None = None, admin: AdminServer | None = None
    ) -> None:
        self._server = server
        self._admin = admin
        self._log = log
        self._heart = heart
        self._file = server.topology.path

    async def action(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return self.follow(topology_of(given), dry_run=bool(given.get("dry_run")))

    def follow(self, new: Topology, *, dry_run: bool = False) -> dict[str, Any]:
        """Follows the file, unless `dry_run`. Says what changes, and for what this router needs a restart."""
        server = self._server
        name = server.name
        if name not in new.routers:
            raise ControlError(f"router {name} is not in {new.path}: stop it")
        old = server.topology
        changes = plan(old, new, {name: server.started_with})
        obstacles = server.router.core.kinds.obstacles(new.router_config(name))
        if obstacles:
            raise ControlError("\n".join(obstacles))
        restart = [change.text for change in changes if change.restart and change.router in (None, name)]
        try:
            # what holds after a restart only is read, too, so that a file which cannot be used then is refused now
            held = in_force(new, server.started_with, name)
            if held != new:
                self._contexts(new, NO_LOG)
            tls, admin, trunks = self._contexts(held, NO_LOG if dry_run else self._log)
            clients = authentication.load(new, server.listening.authentication)
            check_private(authentication.secret_files(new))
        except UsageError as error:
            raise ControlError(str(error), 400) from error
        read = Files((tls, admin, trunks.listens if trunks is not None else None), clients)
        renewed = files.difference(Files(server.contexts, server.listening.authentication), read)
        known = out_of_reach(old, server.listening.authentication)
        warnings = [line for line in out_of_reach(new, clients) if line not in known]
        if not dry_run:
            server.reload(new, tls, clients, trunks)
            if admin is not None and self._admin is not None:
                server.admin_tls = admin
                self._admin.show(admin)
            server.broken_file = ""
            if self._heart is not None:
                self._heart.know(new.routers)
            count, lines = len(changes) + len(renewed), [*map(str, changes), *renewed]
            text = "follows {file}, changes: {count}"
            self._log.info("reloaded", text, file=str(new.path), count=count, changes=lines, digest=new.file_digest)
            for each in warnings:
                self._log.warning("subscription_out_of_reach", "{what}", what=each)
            for each in restart:
                self._log.warning("restart_needed", "{change}: needs a restart", change=each)
        return {
            "router": name,
            "changes": [str(each) for each in changes],
            "restart": restart,
            "files": renewed,
            "warnings": warnings,
            "digest": new.file_digest,
        }

    def _contexts(
        self, topology: Topology, log: Log
    ) -> tuple[ListenerContext | None, ListenerContext | None, TrunkTls | None]:
        """For clients, readers of the admin listener, and neighbours. None: it has no TLS, or no such profile is there
        any more, and what there is stays."""
        name, there = self._server.name, topology.tls
        return (
            listener_context(topology, name, log) if topology.routers[name].tls in there else None,
            profile_context(topology, topology.admin.tls, name, log) if topology.admin.tls in there else None,
            read_trunk_tls(topology, name, log) if topology.trunk_tls in there else None,
        )

    def read_again(self) -> None:
        """Reads the file again that this router was started with. A broken one changes nothing."""
        try:
            self.follow(load(self._file))
        except (ConfigError, ControlError) as error:
            not_reloaded(self._log, self._file, error)
