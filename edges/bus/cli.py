"""`onceway bus serve`."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onceway.base import waits
from onceway.cli.log_options import Logging, log_options
from onceway.cli.options import (
    Access,
    access_options,
    group,
    host_port,
    listen_option,
    run_to_exit,
    say,
    without_password,
)

if TYPE_CHECKING:
    from edges.bus.options import BusOptions

ROOT_KEY: Final = "ONCEWAY_BUS_ROOT_KEY"
GARBAGE: Final = 20_000  # new objects between two looks for cycles: at 700, Python's default, 7 % of all CPU


@click.group("bus", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run an event bus over HTTP: push events, call subscribers back."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where events are kept, and how many."""

    data: Path | None
    store: str | None
    share: bool
    keep: float
    max_storage: int | None
    min_free: int

    def check(self) -> None:
        if self.min_free and (self.max_storage is None or 2 * self.min_free > self.max_storage):
            raise click.UsageError("--min-free: at most half of --max-storage, which it needs")
        if (self.data is None) == (self.store is None):
            raise click.UsageError("--data or --store: where the bus keeps its events")
        if self.store is not None:
            if not self.store.startswith(("postgresql://", "postgres://", "https://", "http://")):
                raise click.UsageError("--store: a URL, postgresql://… or https://…")
            if self.max_storage is not None or self.share:
                raise click.UsageError("--max-storage, --share: for --data")

    @property
    def place(self) -> str:
        """A file, or a URL."""
        if self.store is None:
            return f"{self.data}/store"
        return f"{self.store.rstrip('/')}/store" if self.store.startswith("http") else self.store

    def make(self) -> None:
        """Makes the directory, once all options are known to be good."""
        from onceway.base.private import make_directory

        try:
            if self.data is not None:
                make_directory(self.data)
        except OSError as error:
            raise click.UsageError(f"--data: {self.data}: {error.strerror}") from error


_kept: Final = group(
    "kept",
    Kept,
    click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Where its data is kept."),
    click.option(
        "--store",
        callback=without_password,
        help="Instead: postgresql://USER@HOST/DATABASE, or https://HOST:PORT of an edge with --share.",
    ),
    click.option("--share", is_flag=True, help="Serve --data to other edges: together they are one bus."),
    click.option("--keep", type=click.FloatRange(min=0), default=24.0, show_default=True, help="Hours for replay."),
    click.option("--max-storage", type=click.IntRange(min=1), help="MB that the store may occupy. Default: the disk."),
    click.option(
        "--min-free",
        type=click.IntRange(min=0),
        default=0,
        help="MB of --max-storage: when less is free, the oldest events of the stalest queues are dropped. 0: never.",
    ),
)


@dataclass(frozen=True, slots=True)
class Served:
    """Where requests are served, and how."""

    listen: tuple[str, int]
    tls_cert: Path | None
    tls_key: Path | None
    hostname: tuple[str, ...]
    http_listen: tuple[str, int] | None
    plain_http: bool

    @property
    def hostnames(self) -> frozenset[str]:
        """By which requests come: those that are given, and those of the certificate."""
        from onceway.access.certificates import dns_names, first_certificate

        of_certificate = dns_names(first_certificate(self.tls_cert)) if self.tls_cert is not None else ()
        return frozenset((*of_certificate, *map(str.lower, self.hostname)))

    def context(self) -> ssl.SSLContext | None:
        """UsageError if the options do not fit, or a file cannot be used."""
        from onceway.access.contexts import load_chain
        from onceway.base.private import check_private

        if (self.tls_cert is None) != self.plain_http:
            raise click.UsageError("either --tls-cert, or --plain-http")
        if self.tls_key is not None and self.tls_cert is None:
            raise click.UsageError("--tls-key: of --tls-cert, which it needs")
        if self.plain_http and self.http_listen is not None:
            raise click.UsageError("--http-listen redirects to HTTPS: it needs --tls-cert")
        if self.tls_cert is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        load_chain(context, "--tls", self.tls_cert, self.tls_key or self.tls_cert, names=("-cert", "-key"))
        check_private([self.tls_key or self.tls_cert])
        return context


_served: Final = group(
    "served",
    Served,
    listen_option("127.0.0.1:8443", "Where requests are served."),
    click.option("--tls-cert", type=click.Path(dir_okay=False, path_type=Path), help="Certificate chain, PEM."),
    click.option(
        "--tls-key",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Its key, PEM. Default: in the file of the chain.",
    ),
    click.option(
        "--hostname",
        multiple=True,
        help="A host by which requests come, such as a proxy's, beside that of --listen and those of the certificate. "
        "Addresses and localhost will always do. May be given again.",
    ),
    click.option("--http-listen", callback=host_port, help="Where plain HTTP is redirected to HTTPS."),
    click.option("--plain-http", is_flag=True, help="Serve plain HTTP: behind a proxy that ends TLS, or to try it."),
)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Which call-backs are taken."""

    callback_ca: Path | None
    callback_allow: tuple[str, ...]
    http_callbacks: bool

    def options(self, served: Served, routers: str) -> dict[str, Any]:
        """Of `BusOptions`. Who can reach a bus that is tried at the loopback address is on this machine already."""
        from edges.bus.places import Network, Places, read_network
        from onceway.access.contexts import tls_context
        from onceway.client.urls import parse_urls

        allow: list[Network] = []
        for text in self.callback_allow:
            try:
                allow += read_network(text)
            except ValueError as error:
                raise click.UsageError(
                    f"--callback-allow: {error}; write 10.1.0.0/16, an address or localhost"
                ) from error
        alone = served.listen[0] in ("127.0.0.1", "::1", "localhost")
        trial = self.http_callbacks and served.plain_http and alone and not served.hostname
        own = [served.listen, *((served.http_listen,) if served.http_listen is not None else ())]
        own += [(each.host, each.port) for each in parse_urls(routers)]
        places = Places(tuple(allow), trial, frozenset(own))
        checked = None if self.callback_ca is None else tls_context(self.callback_ca, place="--callback-ca")
        schemes = ("https", "http") if self.http_callbacks else ("https",)
        return {"callback_schemes": schemes, "callback_context": checked, "places": places}


_callbacks: Final = group(
    "callbacks",
    Callbacks,
    click.option(
        "--callback-ca",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Certificates that call-backs, and the edge of --store, are checked with.",
    ),
    click.option(
        "--callback-allow",
        multiple=True,
        metavar="NETWORK",
        help="Call-backs to these addresses are taken, too: 10.1.0.0/16, an address or localhost. Without it those to "
        "addresses of the Internet are. May be given again.",
    ),
    click.option("--http-callbacks", is_flag=True, help="Take call-backs without TLS, too: to try it."),
)


@command.command("serve")
@access_options
@_kept
@click.option("--name", default="a", show_default=True, help="Of this edge, unique in the network.")
@click.option("--address", default="bus", show_default=True, help="Of the bus in the network.")
@_served
@_callbacks
@click.option("--root-key-file", type=click.Path(dir_okay=False, path_type=Path), help=f"Default: ${ROOT_KEY}.")
@log_options
def serve_command(
    access: Access,
    kept: Kept,
    name: str,
    address: str,
    served: Served,
    callbacks: Callbacks,
    root_key_file: Path | None,
    log: Logging,
) -> None:
    """Run one edge of the event bus, in the foreground.

    The root key, which may do everything, is in $ONCEWAY_BUS_ROOT_KEY or a file.
    """
    from edges.bus.options import BusOptions

    context = served.context()
    if not name or not address:
        raise click.UsageError("--name, --address: not empty")
    kept.check()
    options = BusOptions(
        place=kept.place,
        routers=access.urls,
        name=name,
        address=address,
        keep_s=kept.keep * 3600,
        max_octets=None if kept.max_storage is None else kept.max_storage * 1_000_000,
        min_free=kept.min_free * 1_000_000,
        share=kept.share,
        hostnames=served.hostnames,
        root_key=_root_key(root_key_file),
        **callbacks.options(served, access.urls),
        **access.shown(),
    )
    log.start()
    kept.make()
    run_to_exit(_serve(options, served.listen, served.http_listen, context))


def _root_key(file: Path | None) -> str:
    from onceway.base.private import check_private
    from onceway.client.driver import why_failed

    if file is not None:
        check_private([file])
    try:
        key = os.environ.get(ROOT_KEY, "") if file is None else file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--root-key-file: {file}: {why_failed(error)}") from error
    if not key or ":" in key:
        raise click.UsageError(f"the root key is in ${ROOT_KEY} or --root-key-file; it is not empty and has no colon")
    return key


async def _serve(
    options: BusOptions, https: tuple[str, int], http: tuple[str, int] | None, context: ssl.SSLContext | None
) -> int:
    from edges.bus.edge import Edge
    from edges.bus.server import BusServer
    from onceway.base.logs import logger
    from onceway.base.loop import stop_signal
    from onceway.base.values import format_host_port
    from onceway.client.driver import why_failed

    stopped = stop_signal()
    edge = Edge(options)
    starting = asyncio.create_task(edge.start())
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # it waits for its store
        starting.cancel()
        await asyncio.wait([starting])
        await edge.stop()
        return 0
    starting.result()
    server = BusServer(edge)
    host, port = wanted = https
    try:
        port = await server.start(host, port, context)
        if http is not None:
            wanted = http
            await server.redirect(*wanted, port)
    except OSError as error:
        at = format_host_port(wanted)
        say(f"[{options.name}] cannot listen at {at}: {why_failed(error)}; give another --listen or --http-listen")
        await server.stop()
        await edge.stop()
        return 2
    logger("bus", edge=options.name).info("bus_listening", "listening: {host}:{port}", host=host, port=port)
    gc.freeze()  # what the start has made stays
    gc.set_threshold(GARBAGE)
    await waits.STOP(asyncio.wait({stopped, edge.failed}, return_when=asyncio.FIRST_COMPLETED))
    await server.stop()
    await edge.stop()
    if edge.failed.done():
        edge.failed.result()
    return 0
