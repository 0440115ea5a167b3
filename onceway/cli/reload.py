"""`onceway reload FILE`: tells the routers of this host of a changed topology file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from onceway import topology
from onceway.base import waits
from onceway.cli.check import warn_of
from onceway.cli.options import say
from onceway.cli.sockets import Reading, reading_options


@click.command("reload")
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@reading_options
def command(file: str, dry_run: bool, reading: Reading) -> None:
    """Tell the running routers of this host of a changed topology FILE.

    FILE is checked as a whole first; with any error nothing changes. Shows what changes, tells every supervisor and
    router of the network on this host, and prints a line for each router. Nobody is disconnected whom the change does
    not concern. A changed port takes effect when its router is restarted, and is named.

    \b
    Exit codes: 0 every router of this host follows FILE.
                1 one did not answer, or none runs here.
                2 FILE has an error, or running routers cannot change to it.
    """
    loaded = topology.load(file)
    warn_of(loaded)
    from onceway import state
    from onceway.base.loop import run
    from onceway.errors import UsageError
    from onceway.operate.control import SUPERVISOR

    directory = state.state_dir(loaded.network, reading.state_dir)
    try:
        sockets = sorted(directory.glob("*.sock"), key=lambda path: (not path.stem.startswith(SUPERVISOR), path.stem))
    except PermissionError as error:
        raise UsageError(f"{directory}: {error.strerror}; run this as the user of the routers, or as root") from error
    sys.exit(run(_reload(loaded, directory, sockets, dry_run, reading)))


async def _reload(
    loaded: topology.Topology, directory: Path, sockets: Sequence[Path], dry_run: bool, reading: Reading
) -> int:
    try:
        told = await _ask(loaded, sockets, dry_run=True)
    except _Refused as refused:
        for line in refused.reasons:
            say(line)
        say(f"{loaded.path}: not followed, nothing has changed")
        return 2
    if not told.routers:
        say(f"network {loaded.network}: no router runs on this host, as far as {directory} knows")
        return 1
    lines = list(told.changes)
    for line in lines:
        click.echo(line)
    if not lines:
        click.echo("nothing changes")
    for line in told.warnings:
        say(f"warning: {line}")
    if dry_run:
        return 0
    try:
        done = await _ask(loaded, sockets, dry_run=False)
    except _Refused as refused:  # another file has come in between
        for line in refused.reasons:
            say(line)
        return 1
    for name, answer in done.routers.items():
        click.echo(f"router {name}: {_told(answer)}")
    for name in done.stopped:
        click.echo(f"router {name}: stopped")
    for name in done.started:
        click.echo(f"router {name}: started")
    here = [*done.routers, *done.started]
    for line in await elsewhere(loaded, [name for name in loaded.routers if name not in here], reading):
        click.echo(line)
    return 1 if any("error" in answer for answer in done.routers.values()) else 0


def _told(answer: Mapping[str, Any]) -> str:
    if "error" in answer:
        return f"does not follow the file: {answer['error']}"
    if answer.get("down"):
        return "is down, and starts with the file"
    restart = answer.get("restart")
    return f"follows the file; needs a restart: {'; '.join(restart)}" if restart else "follows the file"


class _Refused(Exception):
    def __init__(self, reasons: Iterable[str]) -> None:
        super().__init__()
        self.reasons = list(dict.fromkeys(reasons))


class _Answers:
    """What the supervisors and routers of this host have said."""

    def __init__(self) -> None:
        self.routers: dict[str, Mapping[str, Any]] = {}
        self.changes: dict[str, None] = {}
        self.warnings: dict[str, None] = {}
        self.started: list[str] = []
        self.stopped: list[str] = []


async def _ask(loaded: topology.Topology, sockets: Iterable[Path], *, dry_run: bool) -> _Answers:
    from onceway.operate.control import SUPERVISOR, ControlError, NotRunning, call
    from onceway.operate.reload import PAGE, arguments

    told, refused = _Answers(), []
    given = arguments(loaded, dry_run=dry_run)
    for path in sockets:
        supervises = path.stem.startswith(SUPERVISOR)
        if not supervises and path.stem in (*told.routers, *told.stopped, *told.started):
            continue  # its supervisor has told it
        try:
            answer = await call(path, "POST", PAGE, given, waits.RELOAD.s)
        except NotRunning as error:
            if not supervises and path.stem in loaded.routers and await _is_alive(path):
                told.routers[path.stem] = {"error": str(error)}
            continue  # a dead process has left its socket
        except ControlError as error:
            if error.status in (400, 409):
                refused += str(error).splitlines()
            else:
                told.routers[path.stem] = {"error": str(error)}
            continue
        told.changes |= dict.fromkeys(answer["changes"])
        for each in answer["routers"].values() if supervises else [answer]:
            told.changes |= dict.fromkeys(each.get("files", ()))
            told.warnings |= dict.fromkeys(each.get("warnings", ()))
        if supervises:
            told.routers |= answer["routers"]
            told.started += answer["started"]
            told.stopped += answer["stopped"]
        else:
            told.routers[path.stem] = answer
    if refused:
        raise _Refused(refused)
    return told


async def _is_alive(path: Path) -> bool:
    """Whether a process listens there, though it has not answered."""
    import asyncio

    try:
        async with asyncio.timeout(waits.CONTROL_ALIVE.s):
            _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


async def elsewhere(loaded: topology.Topology, names: list[str], reading: Reading) -> list[str]:
    """What routers on other hosts have."""
    import asyncio

    from onceway.serve.ports import admin_url

    if not names:
        return []
    urls = [admin_url(loaded, name) for name in names]
    async with reading.probe(waits.PROBE.s) as probe:
        found = await asyncio.gather(*map(probe.summary, urls))
    others = [
        name for name, status in zip(names, found, strict=True) if status and status.get("file") != loaded.file_digest
    ]
    unknown: dict[str, list[str]] = {}
    for name, url, status in zip(names, urls, found, strict=True):
        if not status:
            unknown.setdefault(probe.why.get(url) or "does not answer", []).append(name)
    lines = []
    if others:
        lines.append(f"routers on other hosts still have another file: {', '.join(others)}; reload them, too")
    lines += [f"[{' '.join(silent)}] {why}; which file it has is not known" for why, silent in unknown.items()]
    return lines
