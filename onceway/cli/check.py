"""`onceway check FILE`: every problem of a topology file, or what it describes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onceway import topology

if TYPE_CHECKING:
    from onceway.base.logs import Log


@click.command("check")
@click.argument("file")
@click.option(
    "--only", metavar="NAMES", help="Open the files of these routers only, separated by commas: those of this host."
)
@click.option("--no-files", is_flag=True, help="Do not open the files that FILE names: they are on other hosts.")
def command(file: str, only: str | None, no_files: bool) -> None:
    """Read a topology FILE and name every problem in it, each with its line, place and remedy.

    Then open each file that it names: certificates, keys, authorities, users and tokens' keys. Run it as the user that
    the routers run as: what it can read they can.
    """
    from onceway.cli.router import known_router

    loaded = topology.load(file)
    warn_of(loaded)
    chosen = loaded.routers if only is None else [known_router(loaded, name.strip()) for name in only.split(",")]
    problems = [] if no_files else _open_files(loaded, chosen)
    if problems:
        for problem in problems:
            click.echo(problem, err=True)
        sys.exit(2)
    routers, links = len(loaded.routers), len(loaded.links)
    click.echo(f"{file}: network {loaded.network}: {_count(routers, 'router')}, {_count(links, 'link')}")


def _open_files(loaded: topology.Topology, names: Iterable[str]) -> list[str]:
    """What cannot be used, with what to do about files that are missing here."""
    if not (loaded.tls or loaded.sasl or loaded.trunk_key or loaded.addresses):
        return []
    from onceway.access import authentication, files

    problems = files.unusable(loaded, names, _Warnings())
    if not problems:
        for line in files.out_of_reach(loaded, authentication.load(loaded)):
            click.echo(f"warning: {loaded.path}: {line}", err=True)
    elif any("No such file" in problem for problem in problems):
        problems.append("files that are on other hosts: --only NAMES opens those of these routers, --no-files none")
    return problems


class _Warnings:
    """A log of which the warnings are printed, each once."""

    def __init__(self) -> None:
        self._said: dict[str, None] = {}

    def debug(self, event: str, text: str, /, **fields: object) -> None:
        pass

    info = debug

    def warning(self, event: str, text: str, /, **fields: object) -> None:
        line = f"warning: {text.format_map(fields)}"
        if line not in self._said:
            self._said[line] = None
            click.echo(line, err=True)

    def error(self, event: str, text: str, /, exc: BaseException | None = None, **fields: object) -> None:
        self.warning(event, text, **fields)


def warn_of(loaded: topology.Topology) -> None:
    """Prints the file's warnings on stderr."""
    from onceway.base.logs import as_read

    for warning in loaded.warnings:
        click.echo(as_read(f"warning: {warning}", "warning"), err=True)


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
