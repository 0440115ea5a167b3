"""The source: topics as streaming DataFrames, from a write-ahead log that a process beside the query fills.

On the driver, `stream` answers Spark from the log, and `ingests` starts and watches the processes that receive.  Each
of these is an `ingest`: it subscribes, appends to the log (`onceway.spark.wal`) and accepts what is durable, with the
log as the client's journal (`journal`).  Nothing here knows Spark; what Spark calls is in `onceway.spark.reader`.
"""
