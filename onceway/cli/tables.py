"""Tables of routers for terminals: they fit 80 columns, and show more where there is room.

`onceway status --help` explains the words.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from onceway.operate.metrics import TABLE
from onceway.operate.status import STATES

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

METRICS: Final = {metric.name: metric for metric in TABLE}
WIDE: Final = 110  # columns from which on there is room for whole words


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its word, one for small terminals, and the metric that it shows, or one value of that one's label."""

    word: str
    short: str
    metric: str = ""
    value: str = ""
    only_wide: bool = False

    def meaning(self) -> str:
        """As the table of metrics has it."""
        metric = METRICS[self.metric]
        if self.metric == "onceway_records":
            return f"deliveries that {metric.values[self.value]}"
        return metric.values[self.value] if self.value else metric.help[0].lower() + metric.help[1:]


COUNTS: Final = (
    Column("up", "up", "onceway_uptime_seconds"),
    Column("neighbours", "nbrs", "onceway_neighbour_up"),
    Column("publishers", "pubs", "onceway_links", "publisher"),
    Column("subscribers", "subs", "onceway_links", "subscriber"),
    Column("undone", "undone", "onceway_records", "undone"),
    Column("held", "held", "onceway_records", "held"),
    Column("in doubt", "doubt", "onceway_records", "in_doubt"),
)
"""The columns of `count_cells`, in this order."""


def columns_explained() -> Iterator[str]:
    """Lines of 80 columns for `--help`."""
    *others, last = STATES
    words = [("state", f"{', '.join(others)} or {last}; a line below says more")]
    for column in COUNTS:
        words.append(
            (column.word if column.short == column.word else f"{column.word} ({column.short})", column.meaning())
        )
    for word, meaning in words:
        for i, line in enumerate(textwrap.wrap(meaning, 54)):
            yield f"  {'' if i else word:20}{line}"


def router_table(
    columns: Sequence[Column], rows: Iterable[tuple[str, Text, Sequence[str]]], width: int, title: str | None = None
) -> Table:
    """A row for each router: name, state, and a cell for each column. Where `width` is small, headings are short and
    some columns are left out."""
    from rich.table import Table

    wide = width >= WIDE
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("router", overflow="ellipsis", no_wrap=True, max_width=None if wide else 16)
    table.add_column("state", overflow="ellipsis", no_wrap=True, max_width=None if wide else 20)
    shown = [i for i, column in enumerate(columns) if wide or not column.only_wide]
    for i in shown:
        table.add_column(columns[i].word if wide else columns[i].short, justify="right", no_wrap=True)
    for name, state, cells in rows:
        table.add_row(name, state, *(cells[i] if i < len(cells) else "" for i in shown))
    return table


def count_cells(status: Mapping[str, Any]) -> list[str]:
    """The cells of `COUNTS`; none where nothing is known."""
    if not status:
        return []
    neighbours: Mapping[str, Any] = status.get("neighbours", {})
    records: Mapping[str, int] = status.get("records", {})
    return [
        span(status.get("uptime_s", 0)),
        f"{sum(1 for n in neighbours.values() if n.get('up'))}/{len(neighbours)}",
        number(status.get("publishers", 0)),
        number(status.get("subscribers", 0)),
        number(records.get("undone", 0)),
        number(records.get("held", 0)),
        number(records.get("in_doubt", 0)),
    ]


def number(value: int) -> str:
    """At most five characters, below 10**15: 99999, 100k, 12M."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= 100 * size or (value >= 10 * size and size >= 10**6):
            return f"{value // size}{unit}"
    return str(value)


def span(seconds: float) -> str:
    """12s, 5m, 7h, 3d: the largest unit of which there are two, or the seconds."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"
