"""A driver that a test kills: `python -m tests.spark.driver URLS TOPIC DIRECTORY`, from the network into Parquet.

Says `batch N` for each batch that is done.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from onceway.spark.session import session


def start(spark: Any, urls: str, topic: str, directory: Path, rows: int = 500, **trigger: Any) -> Any:
    """The query from `directory`'s log and checkpoint into `directory`/rows, in batches of as many."""
    frame = (
        spark.readStream.format("onceway")
        .options(url=urls, topic=topic, subscription="billing", walLocation=str(directory / "wal"))
        .options(maxRowsPerTrigger=rows, lockTimeout="60s")  # the ingest of a query that was killed takes its time
        .schema("value binary, `offset` bigint")
        .load()
    )
    return (
        frame.writeStream.format("parquet")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


def main(urls: str, topic: str, directory: str) -> None:
    spark = session(
        "driver",
        **{
            "spark.master": "local[1]",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.memory": "512m",
        },
    )
    query = start(spark, urls, topic, Path(directory), processingTime="0 seconds")
    told = -1
    while not query.awaitTermination(0.1):
        for progress in query.recentProgress:  # not the last one alone: there may have been several meanwhile
            if progress["numInputRows"] and progress["batchId"] > told:
                told = progress["batchId"]
                print(f"batch {told}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
