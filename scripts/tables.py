"""The tables of the documents that are made from tables of the code: `python scripts/tables.py` writes them anew.

Each stands in its page between two comments, `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from edges.bus import metrics as bus
from edges.pipe import metrics as pipe
from onceway.base.metrics import Metric
from onceway.operate import metrics as router
from onceway.operate.status import RECORDS
from onceway.spark.source import service

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = re.compile(r"(?<=<!-- table: )([a-z ]+)( -->\n).*?(?=<!-- end of table -->)", re.DOTALL)

METRICS: Final[Mapping[str, Sequence[Metric[Any]]]] = {
    "metrics of a router": router.ROUTER,
    "metrics of the network": router.NETWORK,
    "metrics of addresses": router.ADDRESSES,
    "metrics of a store": pipe.TABLE,
    "metrics of a bus": bus.TABLE,
    "metrics of receivers": service.METRICS,
}


def metrics_table(table: Iterable[Metric[Any]]) -> Iterator[str]:
    yield "| metric | kind | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for metric in table:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {_meaning(metric)} |"


def _meaning(metric: Metric[Any]) -> str:
    values = [f"`{value}`: {text}" if text else f"`{value}`" for value, text in metric.values.items()]
    listed = f"{metric.label}: {'; '.join(values)}" if metric.label in metric.labels else ""
    return ". ".join(part for part in (metric.help, listed, metric.more) if part)


def states_table() -> Iterator[str]:
    yield "| state | deliveries that |"
    yield "| --- | --- |"
    yield from (f"| `{state}` | {text} |" for state, text in RECORDS.items())


TABLES: Final[Mapping[str, Callable[[], Iterable[str]]]] = {
    **{name: lambda table=table: metrics_table(table) for name, table in METRICS.items()},
    "states of deliveries": states_table,
}


def written(text: str) -> str:
    """A page with its tables anew. KeyError for a table that there is not."""
    return PLACE.sub(lambda place: f"{place[1]}{place[2]}" + "".join(f"{row}\n" for row in TABLES[place[1]]()), text)


def main() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        before = page.read_text(encoding="utf-8")
        if (after := written(before)) != before:
            page.write_text(after, encoding="utf-8")
            sys.stderr.write(f"{page.relative_to(ROOT)} written\n")


if __name__ == "__main__":
    main()
