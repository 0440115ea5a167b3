"""`onceway conformance -- COMMAND...`: whether a client keeps the client's half of exactly once."""

from __future__ import annotations

import sys

import click

from onceway.base import waits


@click.command("conformance")
@click.argument("command_words", nargs=-1, metavar="-- COMMAND...")
@click.option("--only", multiple=True, metavar="NAME", help="Run this check; may be repeated. Default: all.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0, min_open=True),
    default=waits.CLIENT_UNDER_TEST.s,
    show_default=True,
    help="Seconds that each thing the client has to do may take.",
)
@click.option("--list", "listed", is_flag=True, help="Print the checks with their rules, and exit.")
def command(command_words: tuple[str, ...], only: tuple[str, ...], patience: float, listed: bool) -> None:
    """Play a router on a port of 127.0.0.1, start the client COMMAND, and check what it does on the wire.

    The client reads from its standard input what it has to do, and writes to its standard output what happens; its
    environment has ONCEWAY_URL, and ONCEWAY_STATE, a directory that outlives its death. docs/write-a-client.md has the
    lines.

    A line for each check goes to stdout, then a tally. The exit code is 1 if a check has failed.
    """
    from onceway.conformance.run import chosen, run

    if listed:
        for check in chosen(only):
            click.echo(f"{check.name} ({check.rule}): {check.text}")
        return
    if not command_words:
        raise click.UsageError("no client: onceway conformance -- COMMAND ARGUMENT...")
    sys.exit(0 if run(command_words, only, patience, click.echo) else 1)
