"""docs/operating/metrics.md names every metric of a router, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from edges.bus.metrics import BusMetrics
from edges.pipe.metrics import StoreCollector
from onceway.base.logs import logger
from onceway.operate.metrics import Metrics
from onceway.operate.status import Sums, summarize
from onceway.serve.guard import Guard
from onceway.spark.source.service import LogCollector
from onceway.spark.wal import Wal
from router.core.counters import CountersByAddress, Histogram, Measured

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\bonceway_[a-z_]+\b")


def metric_names() -> set[str]:
    """As Prometheus stores them; a histogram by its name without _bucket, _sum and _count."""
    counters = CountersByAddress()
    counters.of("orders")
    body: list[str] = []
    measured = Measured(counters.by_label, Histogram())
    for _ in Metrics().render(summarize({"name": "a"}, Sums(), None), Sums(), measured, (), "", body):
        pass
    return set(re.findall(r"^# TYPE (onceway_[a-z_]+) ", "".join(body), re.MULTILINE))


def test_every_metric_stands_in_the_documents_and_every_one_there_is_in_the_code() -> None:
    described = set(re.findall(r"^\| `(onceway_[a-z_]+)` \|", (ROOT / "docs/operating/metrics.md").read_text(), re.M))
    assert metric_names() - described == set(), "describe these in docs/operating/metrics.md"
    assert described - metric_names() == set(), "docs/operating/metrics.md describes what is not in the code"


def bus_metric_names() -> set[str]:
    families = list(BusMetrics()._registry.collect())
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in families}


def test_the_page_of_the_event_bus_names_every_metric_of_it() -> None:
    page = (ROOT / "docs" / "event-bus.md").read_text()
    assert set(NAME.findall(page)) == bus_metric_names()


def pipe_metric_names() -> set[str]:
    families = list(StoreCollector("s", {}, {}, Guard("s", logger("pipe"))).collect())
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in families}


def test_the_page_of_pipes_names_every_metric_of_a_store() -> None:
    assert set(NAME.findall((ROOT / "docs" / "pipe.md").read_text())) == pipe_metric_names()


def ingest_metric_names(directory: Path) -> set[str]:
    wal = Wal.open_or_create(str(directory / "wal"), "lake", ["orders"])
    return {each.name for each in LogCollector(lambda: wal).collect()}


def test_the_page_of_spark_names_every_metric_of_the_ingest(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    assert set(NAME.findall(page)) == ingest_metric_names(tmp_path)


def test_other_documents_name_only_metrics_that_exist(tmp_path: Path) -> None:
    known = metric_names() | bus_metric_names() | pipe_metric_names() | ingest_metric_names(tmp_path)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for name in NAME.findall(page.read_text()):
            assert name in known, f"{page.relative_to(ROOT)} names {name}"
