"""`onceway up FILE`: a whole network under one supervisor."""

from __future__ import annotations

import sys

import click

from onceway import topology
from onceway.cli.check import warn_of
from onceway.cli.router import known_router


@click.command("up")
@click.argument("file")
@click.option("--only", metavar="NAMES", help="Run only these routers, separated by commas; the others run elsewhere.")
@click.option("--recover", is_flag=True, help="Wait for subscriptions from before (else the network starts fresh).")
@click.option("--no-restart", is_flag=True, help="Leave a router that died dead.")
def command(file: str, only: str | None, recover: bool, no_restart: bool) -> None:
    """Run every router of the topology FILE as a process of its own.

    On a terminal with a live table, otherwise with one line per change.  A router that dies is started again.
    SIGTERM or Ctrl-C drains and stops all; a second one stops them at once.
    """
    loaded = topology.load(file)
    warn_of(loaded)
    names = list(loaded.routers)
    if only is not None:
        chosen = [known_router(loaded, name.strip()) for name in only.split(",")]
        names = [name for name in names if name in chosen]
    from onceway.cli.reporting import reporter_for
    from onceway.listeners import check_free
    from onceway.loop import on_stop_signals, run
    from onceway.supervisor import Supervisor

    check_free(loaded, names)

    async def go() -> int:
        with reporter_for(loaded) as reporter:
            supervisor = Supervisor(loaded, names, reporter, recover=recover, restart=not no_restart)
            reporter.children = supervisor.children
            on_stop_signals(supervisor.stop)
            return await supervisor.run()

    sys.exit(run(go()))
