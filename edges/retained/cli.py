"""`onceway retained serve`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import click

from onceway.cli.log_options import Logging, log_options
from onceway.cli.options import Access, access_of_a_store, run_to_exit, say


@click.group("retained", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Keep MQTT's retained messages."""


@command.command("serve")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--store", "name", required=True, help="The store's name in the file.")
@click.option("--data", required=True, help="A file, or the URL of a PostgreSQL database: the store's own.")
@access_of_a_store
@click.option("--parent", type=int, hidden=True, help="End when this process, the parent, ends.")
@log_options
def serve_command(file: Path, name: str, data: str, access: Access, parent: int | None, log: Logging) -> None:
    """Run a store of the topology file FILE, in the foreground."""
    from onceway import topology
    from onceway.host.parent import die_with

    if parent is not None:
        die_with(parent)
    log.start()
    loaded = topology.load(file)
    retained = loaded.mqtt.retained if loaded.mqtt is not None else None
    stores = retained.stores if retained is not None else ()
    if retained is None or name not in stores:
        say(f'{file}: no store "{name}" of retained messages; there are {", ".join(stores) or "none"}')
        sys.exit(2)
    of_file = loaded.urls()
    run_to_exit(_serve(name, retained.address, data, replace(access, urls=access.urls or of_file)))


async def _serve(name: str, address: str, data: str, access: Access) -> int:
    from edges.retained.serve import RetainedStore
    from onceway.base.loop import stop_signal

    store = RetainedStore(name, address, routers=access.urls, data=data, **access.shown())
    stopped = stop_signal()
    running = asyncio.ensure_future(store.run())
    await asyncio.wait([stopped, running], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return 0
