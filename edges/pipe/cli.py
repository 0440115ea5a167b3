"""`onceway pipe push | pull | reset | serve | promote`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from onceway.base.waits import STDIN, STOP
from onceway.cli.log_options import Logging, log_options
from onceway.cli.options import (
    Access,
    Guarding,
    access_of_a_store,
    access_options,
    connect_timeout_option,
    guard_options,
    host_port,
    listen_option,
    run_to_exit,
    say,
    without_password,
    write_out,
)
from onceway.cli.subscribe import shown

if TYPE_CHECKING:
    from edges.pipe.reader import Reader
    from edges.pipe.serve import PipePlan
    from onceway.client.publisher import Publisher

T = TypeVar("T")

RESET_LINE: Final = "RESET"

_store = click.option(
    "--store",
    "stores",
    default="",
    callback=without_password,
    help="URLs of the pipe's stores. Default: the routers name them.",
)
_timeout = connect_timeout_option("one of them must have answered")


@click.group("pipe", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Write and read pipes: ordered queues that keep what is read."""


@command.command("push")
@click.argument("topic")
@click.argument("message", required=False)
@access_options
@_store
@_timeout
def push_command(topic: str, message: str | None, access: Access, stores: str, connect_timeout_s: float) -> None:
    """Write MESSAGE to the pipe TOPIC, or each line of standard input.

    Returns when every participant can read what was written. After a second without that a line on stderr says what it
    waits for, and another one when it goes on. On a terminal there is a prompt, and the line RESET
    removes all messages of the pipe.
    """
    reached = dict(stores=stores, timeout_s=connect_timeout_s, on_wait=_waits("push"), **access.shown())
    run_to_exit(_push(topic, message, access.urls, reached))


async def _push(topic: str, message: str | None, urls: str, reached: dict[str, Any]) -> int:
    from edges.pipe.api import publishing

    async with publishing(urls, topic, **reached) as publisher:
        if message is not None:
            await publisher.send(message)
        elif sys.stdin.isatty():
            await _prompt(topic, publisher, urls, reached)
        else:
            from onceway.cli.publish import _lines

            async for lines in _lines():
                await publisher.put_many(lines)
            await publisher.drain()
            if publisher.rejected:
                say(f"[push] {publisher.rejected} messages were rejected")
                return 1
    return 0


def _waits(what: str) -> Callable[[str], None]:
    return lambda text: say(f"[{what}] {text}")


async def _prompt(topic: str, publisher: Publisher, urls: str, reached: dict[str, Any]) -> None:
    from edges.pipe.api import reset

    while True:
        write_out("> ")
        line = await STDIN(asyncio.to_thread(sys.stdin.readline))
        if not line:
            write_out("\n")
            return
        text = line.removesuffix("\n")
        if text == RESET_LINE:
            removed = await reset(urls, topic, **{**reached, "on_wait": _waits("reset")})
            say(f"[reset] {removed} messages removed")
        else:
            await publisher.send(text)


def _start(ctx: click.Context, param: click.Parameter, value: str | None) -> int | datetime | str | None:
    """A position, a time, or the word end."""
    if value is None or value == "end":
        return value
    if value.isdigit():
        return int(value)
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        text = f"{value!r} is no position, no time such as 2026-11-23T05:00:00+00:00, and not the word end"
        raise click.BadParameter(text, ctx, param) from None


@command.command("pull")
@click.argument("topic")
@click.option("--follow", is_flag=True, help="Wait for more at the end of the pipe; Ctrl-C ends it.")
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages, and wait for them.")
@click.option(
    "--from",
    "start",
    metavar="POSITION|TIME|end",
    callback=_start,
    help="Begin here. Default: the beginning of the pipe.",
)
@click.option(
    "--if-gone",
    type=click.Choice(["error", "first"]),
    help="When the next position was reset or dropped: fail, or go on with the first there is. Default: the first at "
    "the start, fail later.",
)
@access_options
@_store
@_timeout
def pull_command(
    topic: str,
    follow: bool,
    count: int | None,
    start: Any,
    if_gone: Any,
    access: Access,
    stores: str,
    connect_timeout_s: float,
) -> None:
    """Print the messages of the pipe TOPIC, a line each. Nothing is removed from it.

    Ends at the end of the pipe, unless --follow or --count says otherwise. After a second without a store a line on
    stderr says what it waits for, and another one when it goes on.
    """
    from edges.pipe.reader import Reader

    routers = () if stores else access.urls
    reader = Reader(
        topic,
        stores=stores,
        routers=routers,
        start=start,
        control=True,
        if_gone=if_gone,
        timeout_s=connect_timeout_s,
        on_wait=_waits("pull"),
        **access.shown(),
    )
    run_to_exit(_pull(reader, follow, count))


async def _pull(reading: Reader, follow: bool, count: int | None) -> int:
    from onceway.base.loop import on_stop_signals

    task = asyncio.current_task()
    assert task is not None
    on_stop_signals(lambda: (task.cancel(), None)[1])
    try:
        async with reading as reader:
            async for messages in reader.messages(follow=follow, count=count):
                write_out(shown("pull", [each.body for each in messages]))
    except asyncio.CancelledError:
        return 0 if count is None else 1
    return 0


@command.command("reset")
@click.argument("topic")
@access_options
@_store
@_timeout
def reset_command(topic: str, access: Access, stores: str, connect_timeout_s: float) -> None:
    """Remove all messages of the pipe TOPIC, and print how many there were."""
    reached = dict(stores=stores, timeout_s=connect_timeout_s, on_wait=_waits("reset"), **access.shown())

    async def go() -> int:
        from edges.pipe.api import reset

        removed = await reset(access.urls, topic, **reached)
        write_out(f"{removed}\n")
        return 0

    run_to_exit(go())


@command.command("serve")
@click.argument("what")
@click.option("--store", "name", help="Which of the file's stores this is. Default: the only one.")
@access_of_a_store
@click.option(
    "--data",
    metavar="DIR|URL",
    callback=without_password,
    help="Where its data is kept: a directory, or postgresql://... Default: what the file says, or onceway-pipe-NAME.",
)
@click.option("--default-data", hidden=True, help="In place of onceway-pipe-NAME (the parent says so).")
@click.option("--parent", type=int, hidden=True, help="End when this process, the parent, ends.")
@listen_option("127.0.0.1:5981", "Where readers connect, for a pipe without a file.")
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    callback=host_port,
    help="Where Prometheus is answered. Default: what the file says, or nowhere.",
)
@guard_options
@log_options
def serve_command(
    what: str,
    name: str | None,
    access: Access,
    data: str | None,
    default_data: str | None,
    parent: int | None,
    listen: tuple[str, int],
    metrics: tuple[str, int] | None,
    guarding: Guarding,
    log: Logging,
) -> None:
    """Run one store of the pipes in the topology file WHAT, in the foreground.

    With --url and --data, WHAT may be the name of one pipe instead. Then no file is needed: the store subscribes to
    that topic at those routers.
    """

    if parent is not None:
        from onceway.host.parent import die_with

        die_with(parent)
    plan = _plan(what, name, access, listen, guarding)
    plan.metrics = metrics or plan.metrics
    log.start()
    run_to_exit(_serve(plan, data or plan.data or default_data or f"onceway-pipe-{plan.name}", access.shown()))


@dataclass(slots=True)
class _Plan:
    """One store, as the file or the command line describes it."""

    name: str
    routers: str
    host: str
    port: int
    pipes: list[PipePlan]
    guarding: Guarding
    data: str = ""  # where the file says that it is kept
    metrics: tuple[str, int] | None = None


def _plan(what: str, name: str | None, access: Access, listen: tuple[str, int], guarding: Guarding) -> _Plan:
    from edges.pipe.serve import PipePlan
    from edges.store import Retention
    from onceway.client.urls import parse_urls
    from onceway.errors import UsageError
    from onceway.state.checked_file import load_kept
    from router.policies import ANONYMOUS

    urls = access.urls
    if urls:
        parse_urls(urls)  # what cannot be read is said before anything is opened
    if urls and not Path(what).is_file():
        guarding.check(listen)
        owner = access.user or ANONYMOUS
        return _Plan(name or "a", urls, *listen, [PipePlan(what, ((name or "a", ""),), owner=owner)], guarding)
    if not urls and not Path(what).suffix and not Path(what).is_file():
        raise UsageError(f"{what}: there is no such file; a pipe without a file needs --url")
    if guarding.given:
        raise UsageError("--topology, --tls, --without-tls: for a pipe that no file has; else store_tls says it there")
    loaded = load_kept(what)
    names = list(dict.fromkeys(store for pipe in loaded.pipes.values() for store in pipe.stores))
    if name is None and len(names) == 1:
        name = names[0]
    if name is None or name not in names:
        raise UsageError(f"--store: one of {', '.join(names)}" if names else f"{what}: no pipe in it has stores")
    pipes = {match: pipe for match, pipe in loaded.pipes.items() if name in pipe.stores}
    place = _only(name, "", [pipe.stores[name] for pipe in pipes.values()])
    assert place is not None
    kept = _only(name, " for its data", [pipe.data[name] for pipe in pipes.values() if name in pipe.data])
    measured = _only(name, " for its metrics", [pipe.metrics[name] for pipe in pipes.values() if name in pipe.metrics])
    profile = _only(name, " for store_tls", [pipe.tls for pipe in pipes.values()])
    plans = [
        PipePlan(
            match,
            tuple(pipe.urls.items()),
            Retention(*astuple(pipe.retention)) if pipe.retention is not None else Retention(),
            pipe.user,
        )
        for match, pipe in pipes.items()
    ]
    routers = urls or loaded.urls()
    host, port = place
    return _Plan(name, routers, host, port, plans, Guarding(what, profile or ""), kept or "", measured)


def _only(store: str, what_for: str, places: Sequence[T]) -> T | None:
    """The one that all pipes of a store in the file have; None: none has."""
    from onceway.errors import UsageError

    if len(set(places)) > 1:
        raise UsageError(f"store {store} has several places{what_for} in the file: give it one, or several names")
    return next(iter(places), None)


async def _serve(plan: _Plan, data: str, shown: dict[str, Any]) -> int:
    from edges.pipe.serve import StoreProcess
    from onceway.base.logs import logger
    from onceway.base.loop import stop_signal
    from onceway.client.driver import why_failed

    log = logger("pipe", store=plan.name)
    process = StoreProcess(
        plan.name,
        plan.pipes,
        routers=plan.routers,
        data=data,
        host=plan.host,
        port=plan.port,
        metrics=plan.metrics,
        guard=plan.guarding.guard(plan.name, log),
        **shown,
    )
    stopped = stop_signal(process.read_again)
    try:
        await process.start()
    except OSError as error:
        say(f"[{plan.name}] {error.filename or f'{plan.host}:{plan.port}'}: {why_failed(error)}")
        return 2
    names = ", ".join(each.name for each in plan.pipes)
    log.info("pipe_listening", "listening: {host}:{port}, pipes {pipes}", host=plan.host,
                                    port=process.port, pipes=names)  # fmt: skip
    assert process.failed is not None
    await STOP(asyncio.wait({stopped, process.failed}, return_when=asyncio.FIRST_COMPLETED))
    await process.stop()
    if process.failed.done():
        process.failed.result()
    return 0


@command.command("promote")
@click.argument("file")
@click.argument("topic")
@click.argument("store")
@access_options
def promote_command(file: str, topic: str, store: str, access: Access) -> None:
    """Make STORE of the topology FILE the primary of the pipe TOPIC. The former primary is fenced for ever."""
    from onceway import topology
    from onceway.errors import UsageError

    pipe = topology.load(file).pipes.get(topic)
    if pipe is None:
        raise UsageError(f'no pipe "{topic}" in {file}')
    places = pipe.urls
    if store not in places:
        raise UsageError(f'no store "{store}" of pipe "{topic}": stores are {", ".join(places)}')

    async def go() -> int:
        from edges.pipe.promote import promote

        await promote(topic, store, places, say, **access.shown())
        return 0

    run_to_exit(go())
