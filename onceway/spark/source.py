"""`format("onceway")`: what Spark asks for first, and where each of its four ways leads.

Spark makes this object in a process of its own for every load() and save(), and pickles it; so it only holds the
options.  `reader` has the two ways in, `sink` the two ways out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from onceway.spark.options import source_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = (
    "key string, value binary, topic string, `partition` int, `offset` bigint, timestamp timestamp, "
    "received_at timestamp, message_id string, correlation_id string, subject string, content_type string, "
    "reply_to string, group_id string, delivery_tag binary"
)
HEADERS = "headers map<string, string>"


class OncewayDataSource(DataSource):  # type: ignore[misc]
    """See docs/spark.md for its options."""

    @classmethod
    def name(cls) -> str:
        return "onceway"

    def schema(self) -> str:
        """Where the user gives none.  Raises OptionError: here the options are seen first."""
        options = source_options(self.options, "either")
        return f"{COLUMNS}, {HEADERS}" if options.include_headers else COLUMNS

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        from onceway.spark.reader import StreamReader

        return StreamReader(source_options(self.options, "stream"), schema)

    def reader(self, schema: StructType) -> Any:
        from onceway.spark.reader import BatchReader

        return BatchReader(source_options(self.options, "batch"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        from onceway.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from onceway.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)
