"""`onceway ingest`: receivers of the Spark source's log without Spark, and what there is to see of a log."""

from __future__ import annotations

import os
import signal
import sys
import time

import click

from onceway.errors import OncewayError, UsageError
from router.json_text import write_json


class _FileOrCommand(click.Group):
    """`onceway ingest FILE` runs receivers: a first argument that is no command is a file."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_FileOrCommand, subcommand_metavar="FILE | status LOG")
def command() -> None:
    """Receive messages into the log of Spark's source, without Spark.

    FILE is YAML with the options of Spark's source: url, topic, subscription,
    walLocation, walRetention and others. `slots` says which of the log's slots
    this host receives, all unless given, and `metrics` (host:port) where
    Prometheus is answered. Any number of hosts may run the same file: each
    slot is received by one of them, and by another one when that one dies or
    stands still. Queries read the log with the option ingest=apart.

    \b
    Examples:
      onceway ingest lake.yaml
      onceway ingest status s3://logs/orders
      onceway ingest status /data/lake-log --json
    """
    os.environ["ONCEWAY_SPARK_INGEST"] = "1"  # onceway.spark need not look for Spark


@command.command("run")
@click.argument("file", type=click.Path(dir_okay=False))
def run(file: str) -> None:
    """Run the receivers of FILE until SIGTERM or Ctrl-C (the word run may be left out)."""
    from onceway.spark.source.service import Service, read_plan

    try:
        service = Service(read_plan(file))
    except (UsageError, OncewayError) as error:
        raise click.UsageError(str(error)) from None
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    try:
        service.run()
    except (OncewayError, OSError) as error:
        click.echo(f"onceway ingest: {error}", err=True)
        sys.exit(1)


@command.command("status")
@click.argument("log")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(log: str, as_json: bool) -> None:
    """Show who receives LOG (a directory or s3://bucket/prefix), its rows, and how far its readers are behind."""
    from onceway.spark.source.service import status_of, table_of
    from onceway.spark.wal import Wal

    try:
        found = status_of(Wal.open(log))
    except OncewayError as error:
        raise click.UsageError(str(error)) from None
    click.echo(write_json(found) if as_json else "\n".join(table_of(found, time.time())))
