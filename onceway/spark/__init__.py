"""Spark on the network: `spark.readStream.format("onceway")`, `df.writeStream.format("onceway")`.

Where onceway is installed, Spark finds the format by itself (`pyspark_onceway`).  Importing this package on the driver
registers it too, in the current session or in the next one: for source trees, and notebooks on a cluster.

    datasource, reader, writer   what Spark calls; with `executors` and `session`, the only modules that import pyspark
    source                       from the network into the log, and from the log into batches
    wal                          the write-ahead log
    sink                         the outbox, and publishing from it
    columns                      messages as columns, and back
"""

from __future__ import annotations

import os
from importlib.util import find_spec

# set in the environment of an ingest, which does not need Spark
if "ONCEWAY_SPARK_INGEST" not in os.environ and find_spec("pyspark") is not None:
    from onceway.spark.datasource import register_everywhere

    register_everywhere()
