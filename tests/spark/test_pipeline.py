"""The demo's pipeline, fed from files with the source's columns: what is in the lake, in the totals, and in the audit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onceway.demo.lake_audit import Audit, Publisher, Sums, audit
from onceway.demo.pipeline import LAKE, run, totals

pytestmark = pytest.mark.slow

COLUMNS = "topic string, partition int, offset bigint, received_at timestamp, value binary"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def order(publisher: str, number: int, at: datetime, cents: int = 100) -> bytes:
    body = {"publisher": publisher, "number": number, "at": at.isoformat(), "customer": "c1", "cents": cents}
    return json.dumps(body).encode()


def arrive(spark: Any, directory: Path, first: int, when: datetime, bodies: Iterable[bytes]) -> None:
    """One file of messages, at consecutive positions of the log."""
    rows = [("orders", 0, first + i, when, bytearray(body)) for i, body in enumerate(bodies)]
    spark.createDataFrame(rows, COLUMNS).coalesce(1).write.mode("append").parquet(str(directory))


def until(spark: Any, directory: Path, home: Path, rows: int, value: str = "value") -> None:
    """Runs the pipeline from the files until this run has put `rows` messages into the lake."""
    stop = threading.Event()
    seen = []

    def tell(attached: bool, so_far: int) -> None:
        seen.append(so_far)
        if so_far >= rows:
            stop.set()

    from pyspark.sql.functions import expr

    source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "1").parquet(str(directory))
    run(spark, source.withColumn("value", expr(value)), home, "0 seconds", stop, tell)
    assert seen[-1] == rows


def fails_once(spark: Any, directory: Path) -> str:
    """The value; but the first task that asks for it fails, as it does when its worker dies."""
    flag = directory / "failed"

    def value(octets: bytearray) -> bytearray:
        if not flag.exists():
            flag.touch()
            raise RuntimeError("this once")
        return octets

    spark.udf.register("fails_once", value, "binary")
    return "fails_once(value)"


def test_every_order_is_in_the_lake_and_in_one_total_across_a_restart_and_a_failure(spark: Any, tmp_path: Path) -> None:
    source, home = tmp_path / "source", tmp_path / "home"
    on_time = [order("web", n, NOON + timedelta(seconds=n)) for n in range(4)]
    arrive(spark, source, 0, NOON + timedelta(seconds=5), [*on_time, b"not an order"])
    until(spark, source, home, 5)
    # An hour later: two hours late, a clock that is ahead, and one in time that a watermark of the maximum would drop.
    later = NOON + timedelta(hours=1)
    late = [order("web", 4, NOON - timedelta(hours=1)), order("web", 5, NOON)]
    ahead = order("web", 6, later + timedelta(days=1), 7)
    arrive(spark, source, 5, later, [*late, ahead])
    arrive(spark, source, 8, later, [order("phone", 0, later - timedelta(minutes=9), 5)])
    until(spark, source, home, 4, fails_once(spark, tmp_path))
    assert (tmp_path / "failed").exists()
    found = audit(spark, home)
    sums = Sums(orders=8, late=2, cents=612)
    assert found == Audit((Publisher("phone", 1, 0, 0, 0), Publisher("web", 7, 0, 0, 0)), 9, 0, 0, sums, sums)
    assert found.clean
    late_rows = totals(spark, home).where("late").collect()
    assert [(row.window.start.replace(tzinfo=UTC), row.orders) for row in late_rows] == [(later, 2)]
    assert (home / "lake" / f"date={NOON.date()}" / "topic=orders").is_dir()


def lake(spark: Any, home: Path, publishers: dict[str, Iterable[tuple[int, int]]]) -> Path:
    """A lake made by hand: (position, number) of publishers, each with a partition of its own."""
    rows = [
        (partition, at, NOON, bytearray(b""), name, number, NOON, "c", 1, NOON.date(), "orders")
        for partition, (name, numbers) in enumerate(publishers.items())
        for at, number in numbers
    ]
    spark.createDataFrame(rows, LAKE).coalesce(1).write.parquet(str(home / "lake"))
    return home


FAULTS = {
    "in another order": ([(0, 0), (1, 2), (2, 1), (3, 3)], (0, 0, 1)),
    "never received": ([(0, 0), (1, 1), (2, 3), (3, 4)], (1, 0, 0)),
    "not in the lake": ([(7, 7), (8, 8), (10, 10), (11, 11)], (1, 0, 0)),
    "published once and received twice": ([(0, 0), (1, 1), (2, 1), (3, 2)], (0, 1, 0)),
    "twice in the lake": ([(0, 0), (1, 1), (1, 1), (2, 2)], (0, 1, 0)),
}
"""Of one publisher each: what is there, and how many are lost, duplicate and out of order."""


def test_the_audit_finds_what_is_wrong(spark: Any, tmp_path: Path) -> None:
    found = audit(spark, lake(spark, tmp_path, {name: numbers for name, (numbers, _) in FAULTS.items()}))
    publishers = tuple(Publisher(name, 4, *FAULTS[name][1]) for name in sorted(FAULTS))
    assert found == Audit(publishers, 20, 1, 1, Sums(20, 0, 20), Sums(0, 0, 0))
    assert not replace(found, totals=found.lake).clean
    assert not any(publisher.clean for publisher in found.publishers)


def test_totals_that_do_not_add_up_to_the_lake_are_not_clean(spark: Any, tmp_path: Path) -> None:
    found = audit(spark, lake(spark, tmp_path, {"web": [(0, 0), (1, 1), (2, 2), (3, 3)]}))
    assert found == Audit((Publisher("web", 4, 0, 0, 0),), 4, 0, 0, Sums(4, 0, 4), Sums(0, 0, 0))
    assert not found.clean
    assert replace(found, totals=found.lake).clean
