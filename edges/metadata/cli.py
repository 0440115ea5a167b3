"""`onceway metadata serve | watch | publish`."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from typing import Any, Final, NoReturn

import click

from onceway.base import waits
from onceway.cli.log_options import log_options
from onceway.cli.options import (
    Guarding,
    Tls,
    access_options,
    connect_timeout_option,
    guard_options,
    listen_option,
    run_to_exit,
    say,
    size,
    tls_options,
    write_out,
)
from router.json_text import write_json

_NEEDS: Final = 'metadata subscriptions need more packages: pip install "onceway[metadata]" ({})'
_server = click.option(
    "--server",
    default="127.0.0.1:4444",
    show_default=True,
    metavar="HOST:PORT",
    help="An edge (onceway metadata serve).",
)

GARBAGE: Final = (10_000, 20, 100)
"""Of Python's collections: each large one visits all publishers, and finds little."""


@click.group("metadata", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Subscribe to publishers by what they say of themselves."""


def _needed(missing: ImportError) -> NoReturn:
    say(_NEEDS.format(missing))
    sys.exit(2)


@command.command("serve")
@click.option("--name", required=True, help="This edge's name; no other process may have it at once.")
@click.option("--address", default="metadata", show_default=True, help="The address on which all edges meet.")
@listen_option("127.0.0.1:4444", "Where clients connect.")
@access_options
@click.option(
    "--max-message", default="1MiB", show_default=True, callback=size, help="The largest message of a client."
)
@click.option(
    "--stall",
    "stall_s",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds after which a client that reads nothing is disconnected.",
)
@connect_timeout_option("one of the routers must have answered")
@guard_options
@log_options
def serve_command(**options: Any) -> None:
    """Run an edge, in the foreground: clients with MessagePack on TCP, their messages on the network."""
    options["guarding"].check(options["listen"])
    options["log"].start()
    run_to_exit(_serve(options))


async def _serve(options: dict[str, Any]) -> int:
    try:
        from edges.metadata.serve import Edge
    except ImportError as error:
        _needed(error)
    from onceway.base.heap import Freezing
    from onceway.base.logs import logger
    from onceway.base.loop import stop_signal

    name = options["name"]
    guarding: Guarding = options["guarding"]
    host, port = options["listen"]
    edge = Edge(
        options["access"].urls,
        options["address"],
        name,
        host=host,
        port=port,
        max_message_bytes=options["max_message"],
        stall_s=options["stall_s"],
        connect_timeout_s=options["connect_timeout_s"],
        guard=guarding.guard(name, logger("metadata", edge=name)),
        **options["access"].shown(),
    )
    gc.freeze()  # what the start has made stays
    gc.set_threshold(*GARBAGE)
    freezing = Freezing(edge.population)
    gc.callbacks.append(freezing.collected)
    edge.looks.append(freezing.look)
    stopped = stop_signal(edge.read_again)
    started: asyncio.Future[Any] = asyncio.ensure_future(edge.start())
    try:
        await waits.STOP(asyncio.wait([stopped, started], return_when=asyncio.FIRST_COMPLETED))
        if started.done():
            started.result()
            await waits.STOP(asyncio.wait([stopped, edge.failed], return_when=asyncio.FIRST_COMPLETED))
    except OSError as error:
        say(f"[{name}] --listen {host}:{port}: {error.strerror or error}")
        return 2
    finally:
        started.cancel()
        await edge.stop()
    if edge.failed.done() and not edge.failed.cancelled():
        edge.failed.result()
    return 0


@command.command("watch")
@click.argument("predicate")
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages.")
@_server
@tls_options
def watch_command(predicate: str, count: int | None, server: str, tls: Tls) -> None:
    """Print, as lines of JSON, which publishers match PREDICATE and what they publish, until Ctrl-C.

    Example: onceway metadata watch 'has Metadata/System and Properties/UnitofTime = "s"'
    """
    run_to_exit(_watch(predicate, count, server, tls))


async def _watch(predicate: str, count: int | None, server: str, tls: Tls) -> int:
    try:
        from edges.metadata.client import Change, Client, MetadataError
    except ImportError as error:
        _needed(error)
    from onceway.base.loop import on_stop_signals

    task = asyncio.current_task()
    assert task is not None
    on_stop_signals(lambda: (task.cancel(), None)[1])
    left = count
    try:
        async with Client(server, tls.context()) as client:
            async for event in client.watch(predicate):
                if isinstance(event, Change):
                    write_out(line_of({"new": event.new, "gone": event.gone}))
                    continue
                write_out(line_of(event._asdict()))
                if left is not None:
                    left -= 1
                    if not left:
                        return 0
    except MetadataError as error:
        say(f"predicate: {error}" if error.line else str(error))
        return 2 if error.line else 1
    except asyncio.CancelledError:
        return 0 if count is None else 1
    return 0


@command.command("publish")
@click.argument("uuid", type=click.UUID)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Metadata; may be given several times.")
@click.option("--value", metavar="JSON", help="One value. Default: each line of standard input is one.")
@_server
@tls_options
def publish_command(uuid: Any, sets: tuple[str, ...], value: str | None, server: str, tls: Tls) -> None:
    """Be the publisher UUID: publish values with metadata. It goes away when the command ends."""
    metadata: dict[str, Any] = {}
    for each in sets:
        key, equals, text = each.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{each!r} is not KEY=VALUE", param_hint="--set")
        metadata[key] = text
    given = None if value is None else _json(value, "--value")
    run_to_exit(_publish(str(uuid), metadata, value is not None, given, server, tls))


async def _publish(uuid: str, metadata: dict[str, Any], one: bool, value: Any, server: str, tls: Tls) -> int:
    try:
        from edges.metadata.client import Client
    except ImportError as error:
        _needed(error)
    async with Client(server, tls.context()) as client:
        while not one and (line := await waits.STDIN(asyncio.to_thread(sys.stdin.readline))):
            await client.publish(uuid, _json(line, "standard input"), metadata)
            metadata = {}
        if one or metadata:
            await client.publish(uuid, value, metadata)
        await client.flush()
    return 0


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text.strip()!r:.60} is not JSON: {error}", param_hint=place) from error


def line_of(value: Any) -> str:
    return write_json(_with_text_as_keys(value), default=_shown) + "\n"


def _with_text_as_keys(value: Any) -> Any:
    """MessagePack has keys that JSON has not."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str | int | float | None) else str(_shown(key)): _with_text_as_keys(each)
            for key, each in value.items()
        }
    return [_with_text_as_keys(each) for each in value] if isinstance(value, list) else value


def _shown(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else repr(value)
