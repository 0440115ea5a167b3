"""`onceway console FILE`: the network in a browser."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import click

from onceway import topology
from onceway.cli.options import FILE, say, state_dir_option
from onceway.cli.sockets import network_option, routers_here, sockets_by_url
from onceway.cli.status import login_of
from onceway.listeners import admin_url
from onceway.probe import LOCAL, Probe
from onceway.tls import tls_context

PORT = 8670


@click.command("console")
@click.argument("file", type=FILE, required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="On 127.0.0.1; 0: any.")
@click.option("--open", "opened", is_flag=True, help="Open it in this host's browser.")
@click.option("--ca", type=FILE, help="TLS: who may have signed the routers' certificates. Default: the system's.")
@click.option("--user", envvar="ONCEWAY_USER", show_envvar=True, help="Who this is, to admin listeners with users.")
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, allow_dash=True),
    envvar="ONCEWAY_PASSWORD_FILE",
    show_envvar=True,
    help="The user's password is in this file's first line. Default: $ONCEWAY_PASSWORD, or ask for it.",
)
@state_dir_option
@network_option
def command(
    file: str | None,
    port: int,
    opened: bool,
    ca: str | None,
    user: str | None,
    password_file: str | None,
    state_dir: Path | None,
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
    from onceway.loop import run

    with contextlib.suppress(KeyboardInterrupt):
        run(_serve(file, port, opened, ca, login_of(user, password_file), state_dir, network))


async def _serve(
    file: str | None,
    port: int,
    opened: bool,
    ca: str | None,
    login: str | None,
    state_dir: Path | None,
    network: str | None,
) -> None:
    from onceway.console.served import HOST, Served

    if file is not None:
        read = topology.load(file)
        name, links = read.network, read.links
        urls = {router: admin_url(read, router) for router in read.routers}
        by_url = sockets_by_url(read, state_dir)
        sockets = {router: by_url[url] for router, url in urls.items()}
    else:
        name, links = "", ()
        sockets = routers_here(network, state_dir)
        urls = {router: LOCAL + router for router in sockets}
        by_url = {urls[router]: path for router, path in sockets.items()}
    async with Probe(1.0, by_url, tls=tls_context(ca) if ca is not None else None, login=login) as probe:
        served = Served(name, links, urls, sockets, probe)
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
            await asyncio.Event().wait()
        finally:
            await served.stop()
