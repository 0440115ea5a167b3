"""A supervisor's side of a reload: it tells its routers, stops those that have left the file, and starts new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceway.access.files import unusable_by
from onceway.base import waits
from onceway.base.logs import Log
from onceway.operate.control import SUPERVISOR, ControlError, call, socket_path
from onceway.operate.reload import PAGE, arguments, plan, topology_of
from onceway.state.checked_file import keep, kept_path, not_reloaded, warn_not_kept
from onceway.topology import ConfigError, Topology, load
from router.reporting import NO_LOG

if TYPE_CHECKING:
    from onceway.host.supervisor import Supervisor


class ReloadSupervisor:
    """A supervisor's side."""

    def __init__(self, supervisor: Supervisor, state: Path, log: Log) -> None:
        self._supervisor = supervisor
        self._state = state
        self._log = log
        self._file = supervisor.topology.path
        self._reading: asyncio.Task[None] | None = None
        self._one_at_a_time = waits.RELOADS(asyncio.Lock())

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
        return await self.follow(topology_of(given), dry_run=bool(given.get("dry_run")))

    async def follow(self, new: Topology, *, dry_run: bool = False) -> dict[str, Any]:
        """Stops the routers that have left the file, tells the others, and starts those that are new. Returns what
        each has answered, and the names of those that are stopped and started."""
        async with self._one_at_a_time:
            supervisor = self._supervisor
            old = supervisor.topology
            started = {name: each.started_with for name, each in supervisor.children.items() if each.started_with}
            changes = plan(old, new, started)
            removed = [name for name in supervisor.children if name not in new.routers]
            added = [name for name in new.routers if name not in old.routers] if not supervisor.part else []
            told = [name for name in supervisor.children if name in new.routers]
            if not told and not added:
                raise ControlError(f"{new.path} has none of the routers that run here: stop them with SIGTERM")
            # first all that are told check it, and we for those that are not there: with one refusal nothing changes
            unusable = await waits.DISK(asyncio.to_thread(unusable_by, new, added, NO_LOG)) if added else []
            if unusable:
                raise ControlError("\n".join(unusable))
            answers = await self._tell(told, arguments(new, dry_run=True))
            refused = {name: answer["refused"] for name, answer in answers.items() if "refused" in answer}
            if refused:
                raise ControlError("\n".join(dict.fromkeys(refused.values())))
            if not dry_run:
                try:
                    await waits.DISK(asyncio.to_thread(keep, new, self.kept))
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

    async def _tell(self, names: list[str], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        answers = await asyncio.gather(*(self._tell_one(name, given) for name in names))
        return dict(zip(names, answers, strict=True))

    async def _tell_one(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        if self._supervisor.children[name].pid is None:
            return {"router": name, "down": True}  # it starts with the kept file
        try:
            answer: dict[str, Any] = await call(
                socket_path(self._state, name), "POST", PAGE, given, waits.RELOAD_ROUTER.s
            )
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
