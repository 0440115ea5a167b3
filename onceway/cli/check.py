"""`onceway check FILE`: every problem of a topology file, or what it describes."""

from __future__ import annotations

import click

from onceway import topology


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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
