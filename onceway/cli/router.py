"""`onceway router FILE NAME`: one router in the foreground."""

from __future__ import annotations

import sys

import click

from onceway import topology
from onceway.cli.check import warn_of
from onceway.topology.document import suggest


@click.command("router")
@click.argument("file")
@click.argument("name")
@click.option(
    "--fresh", is_flag=True, help="No subscription from before is waited for (else: recover from the others)."
)
@click.option("--parent", type=int, hidden=True, help="Die with this process, which is the parent.")
def command(file: str, name: str, fresh: bool, parent: int | None) -> None:
    """Run router NAME of the topology FILE in the foreground; SIGTERM or Ctrl-C drains and stops it."""
    if parent is not None:
        from onceway.parent import die_with

        die_with(parent)
    loaded = topology.load(file)
    known_router(loaded, name)
    if parent is None:  # else it has been said once for all
        warn_of(loaded)
    from onceway.loop import run
    from onceway.process import run_router

    sys.exit(run(run_router(loaded, name, fresh=fresh, parent=parent)))


def known_router(loaded: topology.Topology, name: str) -> str:
    if name not in loaded.routers:
        remedy = suggest(name, list(loaded.routers), "routers are")
        raise topology.ConfigError([topology.Problem(str(loaded.path), 0, "routers", f'no router "{name}"', remedy)])
    return name
