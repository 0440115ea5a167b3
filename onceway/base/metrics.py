"""A metric is one row of a table: its name, kind, labels and help, and where its values come from.

Everything else is made from the rows: what is answered at `/metrics`, the pages of the documents (`scripts/tables.py`),
and what the dashboard and the alerts may ask for. Each kind of process has a table beside what it counts: routers in
`onceway.operate.metrics`, stores of pipes in `edges.pipe.metrics`, a bus in `edges.bus.metrics`, receivers for Spark in
`onceway.spark.source.service`.

A router with thousands of addresses has thousands of samples. They are filled into lines that are there already:
prometheus_client's own encoder takes twenty times as long for a sample. It is imported when somebody asks, because
commands that never answer Prometheus take words from the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

Kind = Literal["counter", "gauge", "histogram", "info"]
Row = tuple[Sequence[str], Sequence[float]]
"""What the labels `keys` are, and a number for each of `values`. Of a histogram: a number for each bucket, those of the
buckets before it included, then the count and the sum."""
S = TypeVar("S")

UNITS: Final = ("seconds", "bytes", "days", "messages", "records", "rows", "events", "batches")
SUFFIX: Final[Mapping[Kind, str]] = {"counter": "_total", "info": "_info", "gauge": "", "histogram": ""}
END_OF_OPENMETRICS: Final = "# EOF\n"


@dataclass(frozen=True, slots=True)
class Metric(Generic[S]):
    """One metric of a source `S`.

    Attributes:
        name: As Prometheus stores it, with its unit and with `_total` or `_info`; of a histogram without `_bucket`.
        kind: What Prometheus takes it for.
        help: One sentence for people.
        rows: Its values, from the source.
        keys: Labels whose values the source says.
        label: A label with few values, which are known; empty: none.
        values: The values of `label`, each with its meaning.
        more: What the documents say beside `help`, in Markdown.
    """

    name: str
    kind: Kind
    help: str
    rows: Callable[[S], Iterable[Row]]
    keys: tuple[str, ...] = ()
    label: str = ""
    values: Mapping[str, str] = field(default_factory=lambda: {"": ""})
    more: str = ""
    lines: str = field(init=False, repr=False)  # of one row, to be filled

    def __post_init__(self) -> None:
        assert self.name.endswith(SUFFIX[self.kind]), self.name
        name = f"{self.name}_bucket" if self.kind == "histogram" else self.name
        lines = [_line(name, self.keys, f'{self.label}="{value}"' if self.label else "") for value in self.values]
        if self.kind == "histogram":
            lines += [_line(f"{self.name}_{part}", self.keys) for part in ("count", "sum")]
        object.__setattr__(self, "lines", "".join(lines))

    @property
    def family(self) -> str:
        """The name without the suffix of its kind."""
        return self.name.removesuffix(SUFFIX[self.kind])

    @property
    def unit(self) -> str:
        """The last word of the name, as Prometheus recommends; empty for a number of things that the name says."""
        word = self.family.rpartition("_")[2]
        return word if word in UNITS else ""

    @property
    def labels(self) -> tuple[str, ...]:
        """Those that somebody can ask for; a histogram's buckets are not among them."""
        return (*self.keys, *([self.label] if self.label and self.kind != "histogram" else []))

    def head(self) -> Family:
        """For prometheus_client, without samples."""
        from prometheus_client.core import Metric as Family

        return Family(self.family, self.help, self.kind, self.unit)

    def filled(self, row: Row) -> str:
        """The lines of one row."""
        keys, numbers = row
        keys = [key.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for key in keys]
        return self.lines % tuple([part for number in numbers for part in (*keys, number)])


def _line(name: str, keys: Sequence[str], more: str = "") -> str:
    labels = ",".join([*(f'{key}="%s"' for key in keys), *([more] if more else [])])
    return f"{name}{{{labels}}} %s\n" if labels else f"{name} %s\n"


def number(value: float) -> list[Row]:
    """The row of a metric without labels."""
    return [((), (value,))]


_NO_VERSION: Final = re.compile(r"version=(?![0-9]{1,4}(\.[0-9]{1,4}){2} *(;|,|\Z))[^;,]*")  # the library fails at it


def exposition(
    table: Iterable[Metric[S]], source: S, accept: str, others: Iterable[Family] = ()
) -> tuple[str, Iterator[str]]:
    """What is answered at `/metrics`: the content type for these values of the header Accept, and the text in pieces of
    a few lines, each of which takes microseconds."""
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(_NO_VERSION.sub("", accept))

    def encoded(family: Family) -> str:  # OpenMetrics ends with a line of its own, once
        return encode(_Only(family)).decode().removesuffix(END_OF_OPENMETRICS)

    def pieces() -> Iterator[str]:
        yield from map(encoded, others)
        for metric in table:
            yield encoded(metric.head())
            yield from map(metric.filled, metric.rows(source))
        if content_type.startswith("application/openmetrics"):
            yield END_OF_OPENMETRICS

    return content_type, pieces()


@dataclass(frozen=True, slots=True)
class _Only:
    """A registry of one family."""

    family: Family

    def collect(self) -> Iterator[Family]:
        yield self.family


class Collector(Generic[S]):
    """A table for a registry of prometheus_client, whose server asks it; without histograms."""

    def __init__(self, table: Iterable[Metric[S]], source: Callable[[], S]) -> None:
        self._table = table
        self._source = source

    def collect(self) -> Iterator[Family]:
        source = self._source()
        for metric in self._table:
            assert metric.kind != "histogram", metric.name
            family = metric.head()
            for keys, numbers in metric.rows(source):
                known = dict(zip(metric.keys, keys, strict=True))
                for value, each in zip(metric.values, numbers, strict=True):
                    family.add_sample(metric.name, {**known, **({metric.label: value} if metric.label else {})}, each)
            yield family
