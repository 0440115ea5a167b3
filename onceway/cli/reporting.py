"""How `up` shows a network: a live table on a terminal, one line per change elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onceway.supervisor import Child, State
from onceway.topology import Topology, format_host_port

_COLOURS = {
    State.READY: "green",
    State.RECOVERING: "yellow",
    State.STARTING: "yellow",
    State.STOPPING: "yellow",
    State.STOPPED: "dim",
    State.DEAD: "bold red",
}


def reporter_for(topology: Topology) -> LineReporter:
    console = Console(stderr=True)
    return TableReporter(topology, console) if console.is_terminal else LineReporter()


class LineReporter:
    """stderr gets a line per change, stdout that the network is ready."""

    children: Mapping[str, Child]

    def __init__(self) -> None:
        self.children = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201

    def said(self, name: str, text: str) -> None:
        # what a router says about itself begins with its name already
        self.line(text if text.startswith((f"[{name}]", f"[{name} ")) else f"[{name}] {text}")

    def ready(self, text: str) -> None:
        print(text, flush=True)  # noqa: T201

    def looked(self) -> None:
        pass


class TableReporter(LineReporter):
    """The same lines, above a table that is drawn anew at each look."""

    def __init__(self, topology: Topology, console: Console) -> None:
        super().__init__()
        self._topology = topology
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def line(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def ready(self, text: str) -> None:
        if sys.stdout.isatty():
            self._console.print(Text(text, style="bold green"))
        else:
            super().ready(text)

    def looked(self) -> None:
        self._live.update(network_table(self._topology, self.children), refresh=True)


def network_table(topology: Topology, children: Mapping[str, Child]) -> Table:
    table = Table(title=f"network {topology.network}", title_justify="left")
    table.add_column("router")
    table.add_column("amqp")
    table.add_column("state")
    for heading in ("pid", "starts", "up", "neighbours", "publishers", "subscribers", "undone", "held", "in doubt"):
        table.add_column(heading, justify="right")
    for name, child in children.items():
        status = child.status or {}
        state = Text(child.state.value, style=_COLOURS[child.state])
        if child.state is State.RECOVERING and status.get("recovering_s") is not None:
            state.append(f", {status['recovering_s']:.0f} s left")
        table.add_row(
            name,
            format_host_port(topology.routers[name].amqp),
            state,
            str(child.pid or ""),
            str(child.starts),
            *status_cells(status),
        )
    return table


def status_cells(status: Mapping[str, Any]) -> list[str]:
    """up, neighbours, publishers, subscribers, undone, held, in doubt: empty where nothing is known."""
    if not status:
        return [""] * 7
    neighbours = status.get("neighbours", {})
    records = status.get("records", {})
    return [
        f"{status.get('uptime_s', 0):.0f} s",
        f"{sum(1 for n in neighbours.values() if n.get('up'))}/{len(neighbours)}",
        str(status.get("publishers", 0)),
        str(status.get("subscribers", 0)),
        str(records.get("undone", 0)),
        str(records.get("held", 0)),
        str(records.get("in_doubt", 0)),
    ]
