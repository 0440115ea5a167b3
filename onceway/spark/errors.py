"""What goes wrong between Spark and the network, each with its place and its remedy.

Spark shows such an error at the end of a Python traceback, so the message has to stand by itself.
"""

from __future__ import annotations

from onceway.errors import OncewayError


class SparkSourceError(OncewayError):
    """Base of the source's errors."""


class OptionError(SparkSourceError, ValueError):
    """Options that cannot be: all problems at once, one a line."""


class DataLoss(SparkSourceError):
    """Rows are missing, or may be, and `failOnDataLoss` is true."""


class IngestFailed(SparkSourceError):
    """The process that receives from the network cannot go on.  What it has accepted is in the log."""
