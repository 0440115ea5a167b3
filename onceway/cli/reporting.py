"""How `up` shows a network: a live table on a terminal, one line per change elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onceway.base import logs
from onceway.cli.tables import COUNTS, Column, count_cells, router_table
from onceway.host.supervisor import Child, State, Supervisor
from onceway.topology import Topology

_COLOURS = {
    State.READY: "green",
    State.RECOVERING: "yellow",
    State.ISOLATED: "yellow",
    State.STARTING: "yellow",
    State.DRAINING: "yellow",
    State.DRAINED: "yellow",
    State.STOPPING: "yellow",
    State.STOPPED: "dim",
    State.DEAD: "bold red",
}


def reporter_for(options: logs.Options) -> LineReporter:
    """Also sends the log to where it belongs: a file, stderr, or above the table. OSError if there can be no file."""
    console = Console(stderr=True)
    return TableReporter(console, options) if console.is_terminal else LineReporter(options)


class LineReporter:
    """stderr, or the log file, gets a line per change, stdout that the network is ready."""

    def __init__(self, options: logs.Options, write: logs.Write = logs.write_stderr) -> None:
        self._watched: Supervisor | None = None
        self.log = logs.logger("supervisor")
        logs.configure(options, write)

    def watch(self, supervisor: Supervisor) -> None:
        """This is the one that reports."""
        self._watched = supervisor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def said(self, name: str, text: str) -> None:
        logs.relay(name, text)

    def ready(self, text: str) -> None:
        """Once the reader of stdout has gone (`onceway up FILE | head`) or its disk is full, nothing more goes out."""
        try:
            print(text, flush=True)  # noqa: T201
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def looked(self) -> None:
        pass


class TableReporter(LineReporter):
    """The same lines, above a table that is redrawn after each poll."""

    def __init__(self, console: Console, options: logs.Options) -> None:
        super().__init__(options, self._write)
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def ready(self, text: str) -> None:
        if not sys.stdout.isatty():  # else the log, or the table, shows it
            super().ready(text)

    def looked(self) -> None:
        if self._watched is not None:
            topology, children = self._watched.topology, self._watched.children
            self._live.update(network_table(topology, children, self._console.width), refresh=True)

    def _write(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def network_table(topology: Topology, children: Mapping[str, Child], width: int) -> Table:
    rows = []
    for name, child in children.items():
        status = child.status or {}
        state = Text(child.state.value, style=_COLOURS[child.state])
        if child.state is State.RECOVERING and status.get("recovering_s") is not None:
            state.append(f", {status['recovering_s']:.0f} s left")
        cells = [topology.routers[name].first, str(child.pid or ""), str(child.starts)]
        rows.append((name, state, [*cells, *count_cells(status)]))
    columns = [Column("clients", "clients", only_wide=True), Column("pid", "pid"), Column("starts", "starts"), *COUNTS]
    return router_table(columns, rows, width, f"network {topology.network}")
