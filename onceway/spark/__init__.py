"""Spark on the network: `spark.readStream.format("onceway")`."""
