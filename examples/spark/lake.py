"""A topic into a table: examples/spark/lake.py FILE HOME, or spark-submit (README.md beside it).

FILE has the options of the source as YAML, the same file as for `onceway ingest`.  HOME/lake is the table, and
HOME/checkpoint Spark's checkpoint.  Kill it whenever you like and start it again: each message is in the table once.
A query that fails ends the program; whatever keeps it running (systemd, Kubernetes) starts it again.
"""

import argparse
import json
import sys

import yaml

from onceway.spark.session import session

RECEIVERS_ONLY = ("slots", "metrics")  # what `onceway ingest` reads and a query does not


def options_of(path, **more):
    with open(path, encoding="utf-8") as file:
        given = yaml.safe_load(file)
    return {name: str(value) for name, value in given.items() if name not in RECEIVERS_ONLY} | more


def start(spark, options, home, form="parquet", **trigger):
    messages = spark.readStream.format("onceway").options(**options).load()
    rows = messages.selectExpr("topic", "partition", "offset", "received_at", "key", "value")
    if form == "deltalake":
        writer = rows.writeStream.foreachBatch(into_delta(f"{home}/lake"))
    else:
        writer = rows.writeStream.format(form).option("path", f"{home}/lake")
    return writer.option("checkpointLocation", f"{home}/checkpoint").trigger(**trigger).start()


def into_delta(place):
    """A Delta table without jars (`pip install deltalake`), whose log has the last batch: a repeat is left out.

    The driver writes, so give a query with large batches maxBytesPerTrigger.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    def write(frame, batch):
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        done = DeltaTable(place).transaction_version(query) if DeltaTable.is_deltatable(place) else None
        if done is None or done < batch:
            which = CommitProperties(app_transactions=[Transaction(query, batch)])
            write_deltalake(place, frame.toArrow(), mode="append", commit_properties=which)

    return write


def parser():
    made = argparse.ArgumentParser(description="A topic into a table.")
    made.add_argument("file", help="options of the source, as YAML")
    made.add_argument("home", help="a directory for table and checkpoint, or a URL that Spark can write")
    made.add_argument("--apart", metavar="READER", help="`onceway ingest` fills the log; this query's name there")
    made.add_argument("--format", default="parquet", help="parquet, deltalake, or delta where the session has its jars")
    made.add_argument("--every", default="10 seconds", help="how often files are written, and so how small they are")
    made.add_argument("--once", action="store_true", help="what is there now, then end")
    return made


def main():
    args = parser().parse_args()
    apart = {"ingest": "apart", "reader": args.apart} if args.apart else {}
    trigger = {"availableNow": True} if args.once else {"processingTime": args.every}
    spark = session("lake")
    query = start(spark, options_of(args.file, **apart), args.home, args.format, **trigger)
    told, tasks = -1, spark.sparkContext.statusTracker()
    while not query.awaitTermination(1):  # raises what the query failed of
        for stage in map(tasks.getStageInfo, tasks.getActiveStageIds()):  # a batch that takes long
            if stage and stage.numTasks > stage.numCompletedTasks > 0:
                print(f"next batch: {stage.numCompletedTasks} of {stage.numTasks} tasks", flush=True)
        for progress in query.recentProgress:
            if progress.batchId > told and progress.numInputRows:
                told = progress.batchId
                source = json.loads(progress.sources[0].latestOffset or "null")  # null: repeated after a restart
                behind = f", {source['lagRows']} behind" if source else ""
                print(f"batch {told}: {progress.numInputRows} rows{behind}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
