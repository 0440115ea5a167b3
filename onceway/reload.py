"""A changed topology file on its way to running routers.

`POST /reload` on a control socket brings the content of the file, not its name, so that all that are told get the same.
Each process checks it as a whole, and then follows it, or refuses it and changes nothing: `ReloadRouter` in a router,
`ReloadSupervisor` in a supervisor, which tells its routers. The arguments are `file` (its path, for messages),
`directory` (which the paths in it are relative to), `text`, and `dry_run`. `onceway.cli.reload` is the client.

The supervisor keeps the file last checked in the state directory, and starts its routers with it: a router that dies
while the original is being edited does not start with a broken one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceway import authentication
from onceway.checked_file import keep, kept_path, warn_not_kept
from onceway.control import SUPERVISOR, ControlError, call, socket_path
from onceway.errors import UsageError
from onceway.listener_tls import listener_context, profile_context, warn_of_readers
from onceway.logs import Log
from onceway.topology import ConfigError, Topology, load, loads
from onceway.topology.difference import Change, difference
from onceway.trunk_tls import read_trunk_tls

if TYPE_CHECKING:
    from onceway.admin import AdminServer
    from onceway.certificates import Validity
    from onceway.last_life import Heart
    from onceway.listener_tls import ListenerContext
    from onceway.server import RouterServer
    from onceway.supervisor import Supervisor

PAGE: Final = "/reload"
TOLD_WITHIN_S: Final = 10.0  # a router that has not answered by then is reported


def arguments(topology: Topology, *, dry_run: bool = False) -> dict[str, Any]:
    """What `POST /reload` takes."""
    return {
        "file": str(topology.path),
        "directory": str(topology.directory),
        "text": topology.text,
        "dry_run": dry_run,
    }


def _topology(given: Mapping[str, Any]) -> Topology:
    file, text, directory = given.get("file", "<text>"), given.get("text"), given.get("directory")
    if not isinstance(text, str) or not isinstance(file, str) or not isinstance(directory, str | None):
        raise ControlError("reload needs the strings `file` and `text`, and takes the string `directory`", 400)
    try:
        return loads(text, file, directory)
    except ConfigError as error:
        raise ControlError(str(error), 400) from error


def _plan(old: Topology, new: Topology) -> list[Change]:
    changes = difference(old, new)
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
        self._listens_at = server.topology.routers[server.name]
        self._trunk_tls, self._trunk_key = server.topology.trunk_tls, server.topology.trunk_key

    async def action(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return self.follow(_topology(given), dry_run=bool(given.get("dry_run")))

    def follow(self, new: Topology, *, dry_run: bool = False) -> dict[str, Any]:
        """Follows the file, unless `dry_run`. Says what changes, and for what this router needs a restart."""
        server = self._server
        name = server.name
        if name not in new.routers:
            raise ControlError(f"router {name} is not in {new.path}: stop it")
        old = server.topology
        # the ports of an earlier change may still wait for a restart
        routers = {**old.routers, name: self._listens_at}
        bound = replace(old, routers=routers, trunk_tls=self._trunk_tls, trunk_key=self._trunk_key)
        changes = _plan(bound, new)
        restart = [change.text for change in changes if change.restart and change.router in (None, name)]
        try:
            tls = self._tls(new)
            clients = authentication.load(new, server.authentication)
            warn_of_readers(authentication.secret_files(new), self._log)
            trunks = read_trunk_tls(self._as_connected(new), name, self._log)
            admin = profile_context(new, new.admin.tls, name, self._log) if server.admin_tls is not None else None
        except UsageError as error:
            raise ControlError(str(error), 400) from error
        renewed = read_anew(server.certificates, (tls, admin, trunks.listens if trunks is not None else None))
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
            for each in restart:
                self._log.warning("restart_needed", "{change}: needs a restart", change=each)
        return {
            "router": name,
            "changes": [str(each) for each in changes],
            "restart": restart,
            "certificates": renewed,
            "digest": new.file_digest,
        }

    def _tls(self, new: Topology) -> ListenerContext | None:
        if not self._listens_at.secure or not new.routers[self._server.name].secure:
            return None
        return listener_context(new, self._server.name, self._log)

    def _as_connected(self, new: Topology) -> Topology:
        """Trunks keep their kind until the restart, and their profile as the new file has it, if it does."""
        return replace(new, trunk_tls=self._trunk_tls if self._trunk_tls in new.tls else None)

    def read_again(self) -> None:
        """Reads the file again that this router was started with. A broken one changes nothing."""
        try:
            self.follow(load(self._file))
        except (ConfigError, ControlError) as error:
            not_reloaded(self._log, self._file, error)


def read_anew(before: Iterable[Validity], after: Iterable[ListenerContext | None]) -> list[str]:
    """The certificates that are other ones than those shown until now, in the same file."""
    known = set(before)
    files = {each.file for each in known}
    found = [each for context in after if context is not None for each in context.validities]
    lines = [
        f"read again {each.file}, valid until {time.strftime('%Y-%m-%d', time.gmtime(each.ends))}"
        for each in found
        if each.file in files and each not in known
    ]
    return list(dict.fromkeys(lines))


class ReloadSupervisor:
    """A supervisor's side."""

    def __init__(self, supervisor: Supervisor, state: Path, log: Log) -> None:
        self._supervisor = supervisor
        self._state = state
        self._log = log
        self._file = supervisor.topology.path
        self._reading: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def kept(self) -> Path:
        """Where the file last checked is kept: beside the control socket, and named like it."""
        assert self._supervisor.control is not None
        return kept_path(self._state, self._supervisor.control.path.stem.removeprefix(SUPERVISOR).removeprefix("-"))

    def begin(self) -> bool:
        """Keeps the first file. Says whether routers can be started from it: it does not change while somebody edits
        the original."""
        topology = self._supervisor.topology
        try:
            keep(topology, self.kept)
        except OSError as error:
            warn_not_kept(self._log, self.kept, error, topology.path)
            return False
        return True

    async def action(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return await self.follow(_topology(given), dry_run=bool(given.get("dry_run")))

    async def follow(self, new: Topology, *, dry_run: bool = False) -> dict[str, Any]:
        """Stops the routers that have left the file, tells the others, and starts those that are new. Returns what
        each has answered, and the names of those that are stopped and started."""
        async with self._one_at_a_time:
            supervisor = self._supervisor
            old = supervisor.topology
            changes = _plan(self._bound(), new)
            removed = [name for name in supervisor.children if name not in new.routers]
            added = [name for name in new.routers if name not in old.routers] if not supervisor.part else []
            told = [name for name in supervisor.children if name in new.routers]
            if not told and not added:
                raise ControlError(f"{new.path} has none of the routers that run here: stop them with SIGTERM")
            # first all that are told check it: with one refusal nothing changes
            answers = await self._tell(told, arguments(new, dry_run=True))
            refused = {name: answer["refused"] for name, answer in answers.items() if "refused" in answer}
            if refused:
                raise ControlError("\n".join(dict.fromkeys(refused.values())))
            if not dry_run:
                try:
                    await asyncio.to_thread(keep, new, self.kept)
                except OSError as error:
                    raise ControlError(f"{self.kept}: cannot be written: {error.strerror}") from error
                await supervisor.remove(removed)
                supervisor.follow(new)
                supervisor.broken_file = ""
                answers = await self._tell(told, arguments(new))
                supervisor.add(added)
                count = len(changes)
                text = "follows {file}, changes: {count}"
                self._log.info("reloaded", text, file=str(new.path), count=count, digest=new.file_digest)
            return {
                "changes": [str(change) for change in changes],
                "routers": answers,
                "started": added,
                "stopped": removed,
                "digest": new.file_digest,
            }

    def _bound(self) -> Topology:
        """The file that is followed, with the addresses at which the routers listen until they are restarted."""
        old, children = self._supervisor.topology, self._supervisor.children
        there = {name: each.started_with.routers[name] for name, each in children.items() if each.started_with}
        return replace(old, routers={**old.routers, **there})

    async def _tell(self, names: list[str], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        answers = await asyncio.gather(*(self._tell_one(name, given) for name in names))
        return dict(zip(names, answers, strict=True))

    async def _tell_one(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        if self._supervisor.children[name].pid is None:
            return {"router": name, "down": True}  # it starts with the kept file
        try:
            answer: dict[str, Any] = await call(socket_path(self._state, name), "POST", PAGE, given, TOLD_WITHIN_S)
        except ControlError as error:
            key = "refused" if error.status in (400, 409) else "error"
            return {"router": name, key: str(error)}
        return answer

    def read_again(self) -> None:
        """SIGHUP: reads the original file again. A broken one changes nothing."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_again())

    async def _read_again(self) -> None:
        self._supervisor.notifier.reloading()  # it says that it is ready after its next look at the routers
        try:
            report = await self.follow(load(self._file))
        except (ConfigError, ControlError) as error:
            not_reloaded(self._log, self._file, error)
            return
        for name, answer in report["routers"].items():
            if "error" in answer:
                self._log.error("router_not_reloaded", "{reason}", router=name, reason=answer["error"])


def not_reloaded(log: Log, file: Path, error: Exception) -> None:
    for line in str(error).splitlines():
        log.error("reload_refused", "{file} is not followed, nothing changes: {reason}", file=str(file), reason=line)
