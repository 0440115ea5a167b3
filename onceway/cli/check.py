"""`onceway check FILE`: every problem of a topology file, or what it describes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onceway import topology

if TYPE_CHECKING:
    from onceway.base.logs import Log


@click.command("check")
@click.argument("file")
def command(file: str) -> None:
    """Read a topology FILE and name every problem in it, each with its line, place and remedy."""
    loaded = topology.load(file)
    warn_of(loaded)
    routers, links = len(loaded.routers), len(loaded.links)
    click.echo(f"{file}: network {loaded.network}: {_count(routers, 'router')}, {_count(links, 'link')}")


def warn_of(loaded: topology.Topology) -> None:
    """Prints the file's warnings on stderr."""
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)


def file_or_last_checked(
    file: str, state_dir: Path | None, routers: Sequence[str] | None, *, fresh: bool
) -> tuple[topology.Topology, str]:
    """FILE, and nothing. Or if it has errors, and these routers have died here: the file that they ran with, and what
    is wrong with FILE. ConfigError otherwise, and for a `fresh` start."""
    try:
        return topology.load(file), ""
    except topology.ConfigError as error:
        from onceway import state
        from onceway.state import checked_file

        last = None if fresh else checked_file.after_a_death(Path(file), state.state_base(state_dir), routers)
        if last is None:
            raise
        return last, checked_file.problems(error)


def warn_of_broken(log: Log, file: str, broken: str) -> None:
    """Logs that FILE is not used."""
    if broken:
        text = "{file} has errors: the file last checked is used in its place, because a router has died: {reason}"
        log.error("file_broken", text, file=file, reason=broken)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
