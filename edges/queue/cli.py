"""`onceway queue serve | enqueue | dequeue | length | members`: each is a member of the queue while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onceway.cli.options import access_options, connect_timeout_option, run_to_exit, say, write_out

if TYPE_CHECKING:
    from edges.queue.member import Member

Job = Callable[["Member"], Awaitable[int]]
SAID_S: Final = 2.0  # within which members that are there have said so, once each second


@click.group("queue", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Share a queue among the members of a group: each element is dequeued by one of them."""


def _member(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.argument("queue"),
            click.option("--name", required=True, help="Which member this is; no other process may be it meanwhile."),
            click.option("--members", "names", required=True, help="All members, separated by commas."),
            click.option(
                "--data",
                type=click.Path(exists=True, file_okay=False, path_type=Path),
                required=True,
                help="The directory, which is there, where this member keeps what must survive it.",
            ),
            access_options,
            connect_timeout_option("a router, and then a majority of the members, must be there"),
        ]
    ):
        function = option(function)
    return function


@command.command("serve")
@_member
def serve_command(**options: Any) -> None:
    """Be a member until Ctrl-C: a majority of the members must be there for anybody to dequeue."""
    _run(_serve, quorum=False, **options)


async def _serve(member: Member) -> int:
    from onceway.base.loop import stop_signal

    failed = asyncio.ensure_future(member.until_failed())
    await asyncio.wait({stop_signal(), failed}, return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        failed.result()  # raises why the member cannot go on
    failed.cancel()
    return 0


@command.command("enqueue")
@_member
@click.argument("element")
def enqueue_command(element: str, **options: Any) -> None:
    """Put ELEMENT into the queue; returns when all members that are there hold it."""

    async def enqueue(member: Member) -> int:
        await member.enqueue(element.encode())
        return 0

    _run(enqueue, **options)


@command.command("dequeue")
@_member
@click.option("--wait", is_flag=True, help="Wait until there is an element.")
def dequeue_command(wait: bool, **options: Any) -> None:
    """Take an element and print it; exits with 1 if there is none."""

    async def dequeue(member: Member) -> int:
        body = await (member.sdequeue() if wait else member.dequeue())
        if body is None:
            return 1
        write_out(body.decode(errors="replace") + "\n")
        return 0

    _run(dequeue, **options)


@command.command("length")
@_member
def length_command(**options: Any) -> None:
    """Print how many elements this member holds."""

    async def length(member: Member) -> int:
        write_out(f"{member.length}\n")
        return 0

    _run(length, **options)


@command.command("members")
@_member
def members_command(**options: Any) -> None:
    """Print the members that are there, the leader first."""

    async def members(member: Member) -> int:
        with suppress(TimeoutError):
            await member.wait_for_view_size(len(options["names"].split(",")), SAID_S)
        write_out("".join(f"{name}\n" for name in member.view))
        return 0

    _run(members, **options)


def _run(job: Job, *, quorum: bool = True, **options: Any) -> None:
    names = [name.strip() for name in options["names"].split(",")]
    if options["name"] not in names:
        raise click.BadParameter(f"{options['name']} is not among --members {options['names']}", param_hint="--name")
    run_to_exit(_be_member(job, names, quorum, options))


async def _be_member(job: Job, names: list[str], quorum: bool, options: dict[str, Any]) -> int:
    from edges.queue.member import Member

    name, timeout_s = options["name"], options["connect_timeout_s"]
    member = Member(
        options["access"].urls,
        options["queue"],
        name,
        names,
        directory=options["data"],
        on_event=lambda event: say(f"[{name}] {event}"),
        connect_timeout_s=timeout_s,
        **options["access"].shown(),
    )
    async with member:
        if quorum:
            try:
                await member.wait_for_view_size(len(names) // 2 + 1, timeout_s)
            except TimeoutError:
                say(f"[{name}] no majority of {options['names']} within {timeout_s:g} s: {', '.join(member.view)}")
                return 1
        return await job(member)
