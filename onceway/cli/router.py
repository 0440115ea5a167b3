"""`onceway router FILE NAME`: one router in the foreground."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from onceway import topology
from onceway.cli.check import file_or_last_checked, warn_of, warn_of_broken
from onceway.cli.log_options import Logging, log_options
from onceway.cli.options import state_dir_option
from onceway.state.checked_file import load_kept
from onceway.topology.document import suggest


@click.command("router")
@click.argument("file")
@click.argument("name")
@click.option(
    "--fresh",
    is_flag=True,
    help="Wait for no subscription from before: only where the whole network is new. Refused while other routers are "
    "up. By default the router learns from them, and waits if none is up.",
)
@state_dir_option
@click.option("--parent", type=int, hidden=True, help="End when this process, the parent, ends.")
@click.option(
    "--age", type=float, hidden=True, help="For how many seconds the network has been dead (the parent knows)."
)
@click.option("--forks", type=int, hidden=True, help="Fork routers when asked to on this socket.")
@click.option("--broken-file", default="", hidden=True, help="What is wrong with the file that is not used.")
@log_options
def command(
    file: str,
    name: str,
    fresh: bool,
    state_dir: Path | None,
    parent: int | None,
    age: float | None,
    forks: int | None,
    broken_file: str,
    log: Logging,
) -> None:
    """Run router NAME of the topology FILE in the foreground; SIGTERM or Ctrl-C drains and stops it."""
    if parent is not None:
        from onceway.host.parent import die_with

        die_with(parent)
    if forks is not None:
        _fork_routers(forks)
        return
    if parent is None:
        loaded, broken = file_or_last_checked(file, state_dir, [name], fresh=fresh)
        warn_of(loaded)
    else:  # the supervisor has warned already
        loaded, broken = load_kept(file), broken_file
    known_router(loaded, name)
    from onceway import state
    from onceway.base import logs
    from onceway.base.loop import run
    from onceway.host import start
    from onceway.host.process import run_router
    from onceway.serve.ports import PATIENCE_S, check_free
    from onceway.state import last_life

    log.start()
    directory = state.state_dir(loaded.network, state_dir)

    say = logs.logger("router", router=name)

    async def go() -> int:
        if parent is not None:
            how = start.Start(fresh, age)
        else:
            warn_of_broken(say, file, broken)
            try:
                last_life.lock(directory, loaded.network, [name])
            except OSError as error:
                last_life.warn_not_written(say, error, directory)
            check_free(loaded, [name], PATIENCE_S)
            if fresh:
                await start.refuse_fresh_beside(loaded, [name])
            how, line = start.decide(loaded, [name], directory, "fresh" if fresh else None, part=True)
            say.info("start_decided", "{what}", what=line)
        return await run_router(loaded, name, start=replace(how, broken_file=broken), parent=parent, state=directory)

    sys.exit(run(go()))


def _fork_routers(descriptor: int) -> None:
    """Imports what a router needs, and forks routers; runs one in each forked process."""
    from onceway.host.forks import serve

    arguments = serve(descriptor)
    if arguments is not None:
        command.main(arguments[1:], prog_name="onceway router")


def known_router(loaded: topology.Topology, name: str) -> str:
    if name not in loaded.routers:
        remedy = suggest(name, list(loaded.routers), "routers are")
        raise topology.ConfigError([topology.Problem(str(loaded.path), 0, "routers", f'no router "{name}"', remedy)])
    return name
