"""`onceway demo`: three routers, one killed in mid-stream, and the ledger."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("demo")
@click.option("--count", type=click.IntRange(min=10), default=20_000, show_default=True, help="Messages in all.")
@click.option("--rate", type=click.FloatRange(min=1), default=5_000, show_default=True, help="Messages a second.")
@click.option(
    "--kill",
    multiple=True,
    default=("c",),
    show_default=True,
    metavar="ROUTER",
    help="The router to kill; may be repeated.",
)
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep journals, logs and lake here.")
@click.option("--spark/--no-spark", default=True, show_default=True, help="A Spark pipeline as one of the subscribers.")
@click.option(
    "--secure",
    is_flag=True,
    help="An authority and certificates of its own, TLS both ways, users, policies. Without Spark.",
)
def command(count: int, rate: float, kill: tuple[str, ...], keep: Path | None, spark: bool, secure: bool) -> None:
    """Start three routers, publish through one, deliver through the others, and kill a router in mid-stream.

    Spark subscribes beside the applications: it writes orders into a Parquet lake and into totals by window (see
    onceway/demo/pipeline.py). The demo ends with a ledger of what the applications saw. The exit code is 1 if a
    message was lost, duplicated or out of order.
    """
    from rich.console import Console

    from onceway.base.loop import run as run_loop
    from onceway.demo.story import DemoFailed, Plan, ledger_table, run, sums_table

    console = Console(stderr=True)
    try:
        ledger = run_loop(run(Plan(count, rate, kill, keep, spark, secure), console))
    except DemoFailed as error:
        console.print(str(error), style="bold red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(1)
    out = Console()
    out.print()
    out.print(ledger_table(ledger))
    if ledger.sums:
        out.print(sums_table(ledger))
    out.print("exactly once: every message, to every subscriber, in order" if ledger.clean else "NOT exactly once")
    sys.exit(0 if ledger.clean else 1)
