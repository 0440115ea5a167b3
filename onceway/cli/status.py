"""`onceway status FILE|URL`: what the routers say of themselves."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from onceway import topology
from onceway.probe import Probe, Status

ANSWER_WITHIN_S = 10.0  # who is asked once is given time; where nobody listens, that is known at once


@click.command("status")
@click.argument("target", metavar="FILE|URL")
@click.option("--json", "as_json", is_flag=True, help="The routers' whole documents.")
def command(target: str, as_json: bool) -> None:
    """Ask every router of a topology FILE, or the one whose admin listener is at URL (http://host:port).

    Exit code 1 if one does not answer or is not ready.
    """
    from onceway.loop import run

    statuses = run(_ask(target))
    if as_json:
        click.echo(json.dumps(statuses, indent=2))
    else:
        _show(statuses)
    sys.exit(0 if all(status is not None and status.get("state") == "ready" for status in statuses.values()) else 1)


async def _ask(target: str) -> Mapping[str, Status | None]:
    async with Probe(ANSWER_WITHIN_S) as probe:
        if target.startswith(("http://", "https://")):
            status = await probe.status(target.removesuffix("/status"))
            return {target if status is None else str(status["name"]): status}
        return await probe.statuses(topology.load(target))


def _show(statuses: Mapping[str, Status | None]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from onceway.cli.reporting import status_cells

    console = Console() if sys.stdout.isatty() else Console(width=140)
    table = Table(box=None, pad_edge=False)
    table.add_column("router")
    table.add_column("state")
    for heading in ("pid", "up", "neighbours", "publishers", "subscribers", "undone", "held", "in doubt"):
        table.add_column(heading, justify="right")
    for name, status in statuses.items():
        if status is None:
            table.add_row(name, Text("does not answer", style="bold red"))
            continue
        state = status.get("reason") or status.get("state", "")
        style = "green" if status.get("state") == "ready" else "yellow"
        table.add_row(name, Text(state, style=style), str(status.get("pid", "")), *status_cells(status))
    console.print(table)
    said_by: dict[str, list[str]] = {}
    for name, status in statuses.items():
        for line in _concerns(status or {}):
            said_by.setdefault(line, []).append(name)
    for line, names in said_by.items():
        console.print(Text(f"[{' '.join(names)}] {line}"), soft_wrap=True)


def _concerns(status: Mapping[str, Any]) -> list[str]:
    """What keeps deliveries from ending: publishers without credit, subscriptions that are waited for, links down."""
    lines = []
    for neighbour, link in status.get("neighbours", {}).items():
        if not link.get("up"):
            lines.append(f"the link to {neighbour} is down")
    for address, what in status.get("addresses", {}).items():
        for publisher in what.get("ingress", {}).get("publishers", ()):
            if publisher.get("no_credit"):
                name = f"{publisher.get('container')}/{publisher.get('name')}"
                lines.append(f"{address}: publisher {name} gets no credit: {publisher['no_credit']}")
        for subscription in what.get("subscriptions", ()):
            if subscription.get("home") is None:
                name = f"{subscription.get('container')}/{subscription.get('name')}"
                away, timeout = subscription.get("away_s", 0), subscription.get("timeout_s", 0)
                lines.append(f"{address}: subscription {name} is away for {away:.0f} s and waited for {timeout:.0f} s")
    age = status.get("oldest_in_doubt_s")
    if age is not None:
        lines.append(f"the oldest delivery in doubt has been so for {age:.1f} s")
    return lines
