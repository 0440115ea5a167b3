"""Spark looks for packages called `pyspark_...` and registers what they call DefaultSource: `format("onceway")`."""

from onceway.spark.datasource import OncewayDataSource as DefaultSource

__all__ = ["DefaultSource"]
