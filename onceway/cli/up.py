"""`onceway up FILE`: a whole network under one supervisor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onceway.cli.check import file_or_last_checked, warn_of, warn_of_broken
from onceway.cli.log_options import Logging, log_options
from onceway.cli.options import state_dir_option
from onceway.cli.router import known_router

if TYPE_CHECKING:
    from onceway.host.start import Wanted
    from onceway.topology import Topology


@click.command("up")
@click.argument("file")
@click.option("--only", metavar="NAMES", help="Run only these routers, separated by commas; the others run elsewhere.")
@click.option(
    "--fresh",
    "wanted",
    flag_value="fresh",
    help="Wait for no subscription from before. Refused while other routers are up.",
)
@click.option(
    "--recover",
    "wanted",
    flag_value="recover",
    help="Wait for subscriptions from before as long as after a death just now.",
)
@click.option(
    "--watchdog",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Kill a router whose event loop ends no turn for so long, and start it again. 0: never.",
)
@click.option("--no-restart", is_flag=True, help="Do not restart a router or a store that dies.")
@click.option(
    "--stores",
    metavar="NAMES",
    help="Run only these stores of the file, separated by commas; empty: none. Default: all; none with --only.",
)
@state_dir_option
@log_options
def command(
    file: str,
    only: str | None,
    wanted: Wanted | None,
    watchdog: float,
    no_restart: bool,
    stores: str | None,
    state_dir: Path | None,
    log: Logging,
) -> None:
    """Run every router and every store of the topology FILE, as a process of its own each.

    Shows a live table on a terminal, and a line for each change elsewhere. Restarts a router that dies.
    SIGTERM or Ctrl-C drains and stops all routers; a second one stops them at once.

    The first start on this host is fresh. After that the routers recover: until the longest subscription timeout since
    the last run is over, they wait for subscribers from before. With --only they always recover, unless told --fresh:
    use it on one host only, and only where the whole network is new.
    """
    wished = None if only is None else [name.strip() for name in only.split(",")]
    loaded, broken = file_or_last_checked(file, state_dir, wished, fresh=wanted == "fresh")
    warn_of(loaded)
    names = list(loaded.routers)
    if wished is not None:
        chosen = [known_router(loaded, name) for name in wished]
        names = [name for name in names if name in chosen]
    run_stores = _stores(loaded, stores, only)
    from onceway import state
    from onceway.base.logs import reopen
    from onceway.base.loop import on_hangup, on_stop_signals, run
    from onceway.cli.reporting import reporter_for
    from onceway.host.start import refuse_fresh_beside
    from onceway.host.stores import Stores, store_command
    from onceway.host.supervisor import Supervisor
    from onceway.serve.ports import PATIENCE_S, check_free
    from onceway.state import last_life

    directory = state.state_dir(loaded.network, state_dir)
    options = log.options
    try:
        reporter = reporter_for(options)
    except OSError as error:
        raise log.cannot_open(error) from error
    warn_of_broken(reporter.log, file, broken)
    try:
        last_life.lock(directory, loaded.network, names)
    except OSError as error:
        last_life.warn_not_written(reporter.log, error, directory)
    check_free(loaded, names, PATIENCE_S)

    async def go() -> int:
        if wanted == "fresh":
            await refuse_fresh_beside(loaded, names)
        with reporter:
            supervisor = Supervisor(
                loaded,
                names,
                reporter,
                wanted=wanted,
                watchdog_s=watchdog,
                part=only is not None,
                restart=not no_restart,
                state=directory,
                broken_file=broken,
                router_options=options.arguments(),
            )
            reporter.watch(supervisor)
            on_stop_signals(supervisor.stop)

            def hung_up() -> None:
                reopen()
                assert supervisor.reloading is not None
                supervisor.reloading.read_again()

            on_hangup(hung_up, supervisor.stop)

            def file() -> Path:
                assert supervisor.reloading is not None
                kept = supervisor.reloading.kept
                return kept if kept.exists() else loaded.path

            kept_in = store_command(file, directory, options.arguments())
            async with Stores(
                loaded, run_stores, kept_in, reporter.said, reporter.log, restart=not no_restart
            ) as running:
                supervisor.followers.append(running.follow)
                return await supervisor.run()

    sys.exit(run(go()))


def _stores(loaded: Topology, given: str | None, only: str | None) -> list[str] | None:
    """The stores to run; None: all that the file has, also later."""
    if given is None:
        return None if only is None else []
    from onceway.host.stores import store_plans

    names = [name.strip() for name in given.split(",") if name.strip()]
    there = store_plans(loaded)
    for name in names:
        if name not in there:
            raise click.UsageError(f'--stores: no store "{name}"; stores are {", ".join(there) or "none"}')
    return names
