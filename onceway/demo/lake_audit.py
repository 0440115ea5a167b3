"""Proves from the lake alone that each message is in it once: `python -m onceway.demo.lake_audit HOME`.

Publishers number their orders, and the log its positions. Both must be complete, without repeats, and in one order.
Exit code 0 if they are and the totals add up to the lake, 1 if not, 2 if there is no Spark or no lake. The audit
shares no code with the judge of chaos runs and asks neither routers nor clients: it is evidence of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from onceway.demo.pipeline import LAKE, is_late, is_order, totals
from onceway.spark.session import NoSpark, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Publisher:
    """One publisher's line."""

    name: str
    messages: int
    lost: int  # numbers between the first and the last that are not there
    duplicate: int
    out_of_order: int  # further on in the log than a later number

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicate or self.out_of_order)


@dataclass(frozen=True, slots=True)
class Sums:
    orders: int
    late: int
    cents: int


@dataclass(frozen=True, slots=True)
class Audit:
    publishers: tuple[Publisher, ...]
    messages: int
    repeated: int  # positions of the log that are there twice
    missing: int  # or not at all
    lake: Sums
    totals: Sums  # they follow the lake: the same only when nothing is under way

    @property
    def clean(self) -> bool:
        complete = self.lake == self.totals and not (self.repeated or self.missing)
        return complete and all(one.clean for one in self.publishers)


def from_json(values: Mapping[str, Any]) -> Audit:
    """The other way than dataclasses.asdict."""
    publishers = tuple(Publisher(**one) for one in values["publishers"])
    sums = {name: Sums(**values[name]) for name in ("lake", "totals")}
    return Audit(publishers, values["messages"], values["repeated"], values["missing"], **sums)


def audit(spark: SparkSession, home: Path) -> Audit:
    lake = spark.read.schema(LAKE).parquet(str(home / "lake")).drop("value").persist()
    try:
        repeated, missing = _positions(lake)
        return Audit(_publishers(lake), lake.count(), repeated, missing, _lake(lake), _totals(spark, home))
    finally:
        lake.unpersist()


def _publishers(lake: DataFrame) -> tuple[Publisher, ...]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = (
        Window.partitionBy("publisher", "topic", "partition")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    rows = (
        lake.where(is_order())
        .withColumn("backwards", f.col("number") < f.max("number").over(before))
        .groupBy("publisher")
        .agg(
            f.count("*").alias("messages"),
            f.count_distinct("number").alias("different"),
            (f.max("number") - f.min("number") + 1).alias("span"),
            f.count_if("backwards").alias("backwards"),
        )
        .orderBy("publisher")
    )
    return tuple(
        Publisher(row.publisher, row.messages, row.span - row.different, row.messages - row.different, row.backwards)
        for row in rows.collect()
    )


def _positions(lake: DataFrame) -> tuple[int, int]:
    """How many are there twice, and how many are not."""
    from pyspark.sql import functions as f

    different, span = f.count_distinct("offset"), f.max("offset") - f.min("offset") + 1
    parts = lake.groupBy("topic", "partition").agg(
        (f.count("*") - different).alias("again"), (span - different).alias("missing")
    )
    row = parts.agg(f.sum("again"), f.sum("missing")).collect()[0]
    return int(row[0] or 0), int(row[1] or 0)


def _lake(lake: DataFrame) -> Sums:
    from pyspark.sql import functions as f

    row = lake.where(is_order()).agg(f.count("*"), f.count_if(is_late()), f.sum("cents")).collect()[0]
    return Sums(*(int(one or 0) for one in row))


def _totals(spark: SparkSession, home: Path) -> Sums:
    from pyspark.sql import functions as f

    if not any((home / "totals").glob("batch=*/*.parquet")):
        return Sums(0, 0, 0)
    late = f.sum(f.when(f.col("late"), f.col("orders")))
    row = totals(spark, home).agg(f.sum("orders"), late, f.sum("cents")).collect()[0]
    return Sums(*(int(one or 0) for one in row))


def show(found: Audit, console: Console) -> None:
    table = Table(title=f"{found.messages:,} messages in the lake", title_justify="left")
    table.add_column("publisher")
    for heading in ("messages", "lost", "duplicate", "out of order"):
        table.add_column(heading, justify="right")
    for one in found.publishers:
        counts = (one.messages, one.lost, one.duplicate, one.out_of_order)
        table.add_row(one.name, *(f"{count:,}" for count in counts), style="green" if one.clean else "bold red")
    console.print(table)
    console.print(f"positions of the log  {found.repeated:,} repeated, {found.missing:,} missing")
    console.print(f"no orders             {found.messages - found.lake.orders:,}")
    for name, sums in (("lake", found.lake), ("totals", found.totals)):
        console.print(f"{name:20}  {sums.orders:,} orders of {sums.cents / 100:,.2f}, {sums.late:,} of them late")
    console.print("each message once, each order in one total" if found.clean else "NOT each message once")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m onceway.demo.lake_audit", description="Is each message there once?"
    )
    parser.add_argument("home", type=Path, metavar="HOME", help="the pipeline's")
    home: Path = parser.parse_args(argv).home
    console = Console(highlight=False, soft_wrap=True)
    if not (home / "lake" / "_spark_metadata").exists():
        console.print(f"{home / 'lake'}: no lake that the pipeline wrote", markup=False)
        return 2
    try:
        spark = session("audit of orders")
    except NoSpark as error:
        console.print(str(error), markup=False)
        return 2
    try:
        found = audit(spark, home)
    finally:
        spark.stop()
    show(found, console)
    return 0 if found.clean else 1


if __name__ == "__main__":
    sys.exit(main())
