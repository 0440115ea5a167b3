"""What of the documents is made from tables of the code: `python scripts/tables.py` writes all of it anew.

Each table stands in its page between two comments, `<!-- table: NAME -->` and `<!-- end of table -->`. The JSON
Schema of topology files and the alert rules are files of their own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from edges.bus import metrics as bus
from edges.pipe import metrics as pipe
from onceway.base import waits
from onceway.base.metrics import Metric
from onceway.conformance.run import chosen
from onceway.operate import alerts
from onceway.operate import metrics as router
from onceway.operate import waits as core
from onceway.operate.status import RECORDS
from onceway.spark.kafka import COUNTERPARTS
from onceway.spark.source import service
from onceway.topology import reference
from onceway.topology.listeners import LISTENERS, Listener
from scripts import rules
from scripts import waits as places

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = re.compile(r"(?<=<!-- table: )([A-Za-z ]+)( -->\n).*?(?=<!-- end of table -->)", re.DOTALL)

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


def listeners_table() -> Iterator[str]:
    yield "| listener | usual port | speaks | TLS | who must reach it | since |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in LISTENERS:
        yield f"| `{row.key}` | {row.port} | {row.name} | {_tls(row)} | {row.reach} | {row.since} |"


def _tls(row: Listener) -> str:
    return "never" if not row.tls else f"always, `{row.tls}`" if row.secure else f"where `{row.tls}` has a profile"


def waits_table() -> Iterator[str]:
    where = places.by_row()
    for place, row in core.TIMERS.items():
        if (package := place.rpartition("/")[0]) not in where.setdefault(row.name, []):
            where[row.name].append(package)
    yield "| wait | for what | bound | what happens then | told by | where |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in (*waits.TABLE, *core.TABLE):
        bound = row.bound if isinstance(row.bound, str) else f"{row.bound:g} s"
        keys = ", ".join(f"`{key}`" for key in row.keys if f"`{key}`" not in bound)
        told = row.told.replace(waits.METRIC, f"`{waits.METRIC}`")
        cells = (f"`{row.name}`", row.what, f"{bound} ({keys})" if keys else bound, row.then, told)
        yield f"| {' | '.join(cells)} | {', '.join(f'`{each}`' for each in where.get(row.name, ['router']))} |"


def conformance_table() -> Iterator[str]:
    yield "| check | needs also | place | rule |"
    yield "| --- | --- | --- | --- |"
    for check in chosen(()):
        yield f"| `{check.name}` | {', '.join(check.needs[1:])} | {check.rule} | {check.text} |"


def kafka_table() -> Iterator[str]:
    yield "| Kafka's | the source's | the sink's | |"
    yield "| --- | --- | --- | --- |"
    for row in COUNTERPARTS:
        names = ", ".join(f"`{name}`" for name in row.kafka)
        ours = (f"`{name}`" if name else "" for name in (row.source, row.sink))
        yield f"| {names} | {' | '.join(ours)} | {row.why} |"


TABLES: Final[Mapping[str, Callable[[], Iterable[str]]]] = {
    **{name: lambda table=table: metrics_table(table) for name, table in METRICS.items()},
    **{title: lambda section=section: reference.table(section) for title, section in reference.by_title().items()},
    "states of deliveries": states_table,
    "alerts": alerts.table,
    "listeners": listeners_table,
    "waits": waits_table,
    "checks of clients": conformance_table,
    "options of Kafka": kafka_table,
    "what shows a rule": rules.shown_list,
    "rules that nothing shows": rules.not_shown_list,
}
FILES: Final[Mapping[str, Callable[[], str]]] = {
    f"docs/{reference.SCHEMA}": reference.schema_text,
    "monitoring/alerts.yaml": lambda: "".join(f"{line}\n" for line in alerts.rules()),
}


def written(text: str) -> str:
    """A page with its tables anew. KeyError for a table that there is not."""
    return PLACE.sub(lambda place: f"{place[1]}{place[2]}" + "".join(f"{row}\n" for row in TABLES[place[1]]()), text)


def documents() -> Iterator[tuple[Path, str]]:
    """Yields each page and each file that is made, as it should be."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        yield page, written(page.read_text(encoding="utf-8"))
    for name, text in FILES.items():
        yield ROOT / name, text()


def main() -> None:
    for path, text in documents():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stderr.write(f"{path.relative_to(ROOT)} written\n")


if __name__ == "__main__":
    main()
