"""Spark on the network: `spark.readStream.format("onceway")`, `df.writeStream.format("onceway")`.

Where onceway is installed, Spark finds the format by itself (`pyspark_onceway`).  Importing this package in the driver
registers it too, in the session there is or in the next that is made: for source trees, and notebooks on a cluster.
Read `source` next, then `stream` for what happens on the driver and `ingest` for what happens beside it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

# set in the environment of an ingest, which has no use for Spark
if "ONCEWAY_SPARK_INGEST" not in os.environ and find_spec("pyspark") is not None:
    from onceway.spark.registration import register_everywhere

    register_everywhere()
