"""`onceway spark`: what people decide about queries of Spark that read from the network."""

from __future__ import annotations

import os
import time

import click

from onceway.errors import OncewayError


@click.group()
def command() -> None:
    """Decide about queries of Spark that read from the network."""
    os.environ["ONCEWAY_SPARK_INGEST"] = "1"  # onceway.spark need not look for Spark


@command.command("acknowledge-loss")
@click.argument("log")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--reader", default="query", show_default=True, help="Of this query: its option reader.")
def acknowledge_loss(log: str, ids: tuple[str, ...], reader: str) -> None:
    """Let a query go on without what it has lost, or show that.

    LOG is the query's walLocation, ID that of a loss, which the query's error
    names. The query fails at every start until its loss is acknowledged.
    Without ID: the losses that nobody has acknowledged.

    \b
    Examples:
      onceway spark acknowledge-loss /data/lake-log
      onceway spark acknowledge-loss /data/lake-log 3f2a9c1b
      onceway spark acknowledge-loss s3://logs/orders 3f2a9c1b --reader table
    """
    from onceway.spark.source.losses import Losses
    from onceway.spark.wal import Wal

    try:
        losses = Losses(Wal.open(log), reader)
        waiting = losses.waiting()
        unknown = losses.acknowledge(ids)
    except (OncewayError, OSError) as error:
        raise click.UsageError(str(error)) from None
    if unknown:
        there = f"there is {', '.join(waiting)}" if waiting else "none waits for a decision"
        raise click.UsageError(f"{log}: no loss {', '.join(unknown)} of reader {reader!r}; {there}")
    if ids:
        click.echo(f"acknowledged {', '.join(ids)}")
        return
    for one, (found_s, what) in waiting.items():
        click.echo(f"{one}  {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(found_s))}  {what}")
