"""`onceway console FILE`: the network in a browser."""

from __future__ import annotations

import asyncio
import contextlib

import click

from onceway import topology
from onceway.base import waits
from onceway.cli.options import say
from onceway.cli.sockets import Reading, network_option, places_of, reading_options
from onceway.serve.ports import store_urls

PORT = 8670


@click.command("console")
@click.argument("file", type=click.Path(dir_okay=False), required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="On 127.0.0.1; 0: any.")
@click.option("--open", "opened", is_flag=True, help="Open it in this host's browser.")
@reading_options
@network_option
def command(
    file: str | None,
    port: int,
    opened: bool,
    reading: Reading,
    network: str | None,
) -> None:
    """Show the network of a topology FILE in a browser, live: routers and what flows between them, addresses,
    publishers, subscriptions and who is waited for, and what happened. Without FILE, the routers of this host.

    It asks the routers' admin listeners, and the control sockets of those on this host. On these it can also act, as
    `onceway drain` and `onceway admin` do; so the URL that it prints is for you alone. It ends with Ctrl-C.

    A router's own view is at /console/ of its admin listener, for reading.

    \b
    Examples:
      onceway console shop.yaml
      onceway console shop.yaml --open --user ops --ca ca.pem
    """
    from onceway.base.loop import run

    with contextlib.suppress(KeyboardInterrupt):
        run(_serve(file, port, opened, reading, network))


async def _serve(
    file: str | None,
    port: int,
    opened: bool,
    reading: Reading,
    network: str | None,
) -> None:
    from onceway.console.served import HOST, Served

    read = topology.load(file) if file is not None else None
    name, links = (read.network, read.links) if read is not None else ("", ())
    urls, by_url = places_of(read, network, reading.state_dir)
    sockets = {router: by_url[url] for router, url in urls.items()}
    async with reading.probe(waits.PROBE_ALL.s, by_url) as probe:
        served = Served(name, links, urls, sockets, probe, store_urls(read) if read is not None else {})
        try:
            url = await served.start(port)
        except OSError as error:
            why = error.strerror or str(error)
            raise click.ClickException(f"--port {port}: cannot listen on {HOST}: {why}; choose another port") from error
        click.echo(url)
        say("open this URL in a browser of this host; it is for you alone. Ctrl-C ends the console.")
        if opened:
            click.launch(url)
        try:
            await waits.STOP(asyncio.Event()).wait()
        finally:
            await served.stop()
