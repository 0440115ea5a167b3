"""Orders from a network of routers to a lake and to totals, with Spark.  Copy this file, and change what an order is.

    python -m onceway.demo.pipeline HOME --url amqp://127.0.0.1:5672,127.0.0.1:5673     until Ctrl-C
    python -m onceway.demo.lake_audit HOME      from the lake alone; exit code 0 if each message is there once

    network -> lake     every message as it came, in Parquet by date and topic
    lake -> totals      number and amount of orders by window of their own time, in Parquet; late ones by themselves

Each arrow is a streaming query with a checkpoint.  Kill this process, its ingest, or any router, and start it again:
each message is in the lake once, and each order in the totals once.  What that rests on: docs/spark.md.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from onceway.base import waits
from onceway.host.parent import die_with
from onceway.spark.session import NoSpark, session
from router.json_text import write_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

ORDER = "publisher string, number bigint, at timestamp, customer string, cents bigint"
"""A body, as JSON.  A publisher numbers its orders 0, 1, 2 ...: that is what the audit counts."""
LAKE = f"partition int, offset bigint, received_at timestamp, value binary, {ORDER}, date date, topic string"
"""Those by which the directories are made come last: Spark puts them there."""
WINDOW = "1 second"
LATE_AFTER = "10 minutes"
WATERMARK = "15 minutes"  # more than LATE_AFTER by what clocks and topics may differ
LOOK_EVERY_S = 0.5
FAILURES = 5  # one after the other, with no batch in between
Tell = Callable[[bool, int], None]
"""Whether the network is reached, and how many messages this run has put into the lake."""


# --- from the network to the lake


def messages(spark: SparkSession, url: str, topic: str, home: Path) -> DataFrame:
    return (
        spark.readStream.format("onceway")
        .option("url", url)
        .option("topic", topic)
        .option("subscription", "lake")
        .option("walLocation", str(home / "log"))
        .load()
    )


def to_lake(messages: DataFrame, home: Path, every: str) -> StreamingQuery:
    """Raw bytes and all: what is no order, or not yet what somebody takes for one, can be read again later.

    `date` is that of arrival, so that a late order does not open last month's directory.  The Parquet sink keeps a log
    of the files that count (`_spark_metadata`), so a batch that is repeated after a crash is there once.
    """
    from pyspark.sql import functions as f

    orders = messages.withColumn("order", f.from_json(f.col("value").cast("string"), ORDER))
    rows = orders.select("topic", "partition", "offset", "received_at", "value", "order.*")
    return (
        rows.withColumn("date", f.to_date("received_at"))
        .writeStream.queryName("lake")
        .format("parquet")
        .partitionBy("date", "topic")
        .option("path", str(home / "lake"))
        .option("checkpointLocation", str(home / "checkpoints" / "lake"))
        .trigger(processingTime=every)
        .start()
    )


# --- from the lake to the totals


def is_order() -> Column:
    from pyspark.sql import functions as f

    return f.col("publisher").isNotNull() & f.col("number").isNotNull() & f.col("at").isNotNull()


def is_late() -> Column:
    """By when it arrived, which is written down, not by where the watermark was: the same on every reading."""
    from pyspark.sql import functions as f

    return f.col("received_at") - f.expr(f"INTERVAL {LATE_AFTER}") > f.col("at")


def to_totals(spark: SparkSession, home: Path, every: str) -> StreamingQuery:
    """A watermark alone drops what comes late, silently: Spark counts it in a metric, and it is gone.

    Here a late order is booked in the window in which it arrived, and marked `late`.  So what is booked is never older
    than its arrival by more than LATE_AFTER, nor newer: nothing is behind the watermark, and nothing is dropped.
    """
    from pyspark.sql import functions as f

    (home / "lake").mkdir(parents=True, exist_ok=True)
    orders = spark.readStream.schema(LAKE).parquet(str(home / "lake")).where(is_order())
    booked = f.when(is_late(), f.col("received_at")).otherwise(f.least("at", "received_at"))
    sums = (
        orders.select(booked.alias("booked"), is_late().alias("late"), "cents")
        .withWatermark("booked", WATERMARK)
        .groupBy(f.window("booked", WINDOW), "late")
        .agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
    )

    def write(changed: DataFrame, batch: int) -> None:
        """The windows that this batch changed.  A repeated batch writes the same over the same."""
        changed.coalesce(1).write.mode("overwrite").parquet(str(home / "totals" / f"batch={batch}"))

    return (
        sums.writeStream.queryName("totals")
        .outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", str(home / "checkpoints" / "totals"))
        .trigger(processingTime=every)
        .start()
    )


def totals(spark: SparkSession, home: Path) -> DataFrame:
    """window, late, orders, cents: of each window, what was written last."""
    from pyspark.sql import functions as f

    every = spark.read.parquet(str(home / "totals"))
    last = f.max_by(f.struct("orders", "cents"), "batch").alias("last")
    return every.groupBy("window", "late").agg(last).select("window", "late", "last.*")


# --- the command


def run(spark: SparkSession, source: DataFrame, home: Path, every: str, stop: threading.Event, tell: Tell) -> None:
    """Both queries until `stop` is set.  One that fails goes on from its checkpoint, but not again and again."""
    starts: dict[str, Callable[[], StreamingQuery]] = {
        "lake": lambda: to_lake(source, home, every),
        "totals": lambda: to_totals(spark, home, every),
    }
    queries = {name: start() for name, start in starts.items()}
    rows: dict[int, int] = {}
    failures = 0
    try:
        while not waits.PAUSE(stop).wait(LOOK_EVERY_S):
            for name, query in queries.items():
                if (error := query.exception()) is not None:
                    failures += 1
                    if failures > FAILURES:
                        raise error
                    print(f"{name} failed and goes on from its checkpoint: {error}", file=sys.stderr)  # noqa: T201
                    queries[name] = starts[name]()
            recent = queries["lake"].recentProgress
            for progress in recent:
                if progress.batchId not in rows:
                    failures = 0
                rows[progress.batchId] = progress.numInputRows
            if recent:
                tell(_attached(recent[-1]), sum(rows.values()))
        queries["lake"].stop()
        queries["totals"].processAllAvailable()  # so that the totals say what the lake says
    finally:
        for query in queries.values():
            query.stop()


def _attached(progress: StreamingQueryProgress) -> bool:
    """The source says how it is beside its latest offset."""
    offsets = [json.loads(source.latestOffset or "null") for source in progress.sources]
    return any(offset and offset.get("state") in ("receiving", "backlogged") for offset in offsets)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m onceway.demo.pipeline", description="Orders into a lake.")
    parser.add_argument("home", type=Path, metavar="HOME", help="a directory: log, lake, totals, checkpoints")
    parser.add_argument("--url", default="amqp://127.0.0.1:5672", help="routers, separated by commas")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--every", default="10 seconds", help="how often files are written, and so how small they are")
    parser.add_argument("--json", action="store_true", help="progress, and the audit at the end, as lines of JSON")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)  # die with it
    args = parser.parse_args(argv)
    if args.parent is not None:
        die_with(args.parent)
    from onceway.demo.lake_audit import audit, show  # which reads what is written here

    console = Console(highlight=False, soft_wrap=True)
    try:
        spark = session("orders", **{"spark.sql.streaming.noDataProgressEventInterval": "1000"})
    except NoSpark as error:
        console.print(str(error), markup=False)
        return 2
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    said: tuple[bool, int] | None = None

    def tell(attached: bool, rows: int) -> None:
        nonlocal said
        if said == (attached, rows):
            return
        said = attached, rows
        if args.json:
            print(write_json({"attached": attached, "rows": rows}), flush=True)  # noqa: T201
        else:
            console.print(f"{rows:,} messages in the lake" if attached else "connecting")

    try:
        run(spark, messages(spark, args.url, args.topic, args.home), args.home, args.every, stop, tell)
        found = audit(spark, args.home)
    finally:
        spark.stop()
    if args.json:
        print(write_json(asdict(found)), flush=True)  # noqa: T201
    else:
        show(found, console)
    return 0 if found.clean else 1


if __name__ == "__main__":
    sys.exit(main())
