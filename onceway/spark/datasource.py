"""`format("onceway")`: the class that Spark asks for readers and writers, and its registration in a session.

Spark makes a data source in a process of its own for every load() and save(), and pickles it.  So it only holds the
options, and imports readers and writers (`reader`, `writer`) when they are asked for.
"""

from __future__ import annotations

import functools
import os
import site
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from onceway.spark.errors import OptionError, first_line
from onceway.spark.options import of_new_table, source_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME = "onceway"
COLUMNS = (
    "key string, value binary, topic string, `partition` int, `offset` bigint, timestamp timestamp, "
    "received_at timestamp, message_id string, correlation_id string, subject string, content_type string, "
    "reply_to string, group_id string, delivery_tag binary, raw string"
)
HEADERS = {  # by includeHeaders
    "false": "",
    "true": ", headers map<string, string>",
    "binary": ", headers array<struct<key:string,value:binary>>",
}


class OncewayDataSource(DataSource):  # type: ignore[misc]
    """See docs/spark.md for its options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @first_line()
    def schema(self) -> str:
        """The schema where the user gives none.  Raises OptionError: this is the first call with the options."""
        if of_new_table(self.options):
            return COLUMNS
        options = source_options(self.options, "either")
        return COLUMNS + HEADERS[options.include_headers]

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        from onceway.spark.reader import RefusedReader, StreamReader

        try:
            return StreamReader(source_options(self.options, "stream"), schema)
        except OptionError as error:
            return RefusedReader(error)

    @first_line()
    def reader(self, schema: StructType) -> Any:
        from onceway.spark.reader import BatchReader

        return BatchReader(source_options(self.options, "batch"), schema)

    @first_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        from onceway.spark.writer import StreamWriter, checked

        return StreamWriter(checked(self.options, schema, overwrite, "stream"))

    @first_line()
    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from onceway.spark.writer import BatchWriter, checked

        return BatchWriter(checked(self.options, schema, overwrite, "batch"))


# -- registration


def found_by_itself() -> bool:
    """Whether Spark's own search, in a Python that it starts, finds `pyspark_onceway`.

    It looks into the folders of sys.path; an editable installation is in none of them.
    """
    spec = find_spec("pyspark_onceway")
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).resolve().parent.parent
    searched = [
        *site.getsitepackages(),
        sysconfig.get_path("purelib"),
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
    ]
    return any(path and Path(path).resolve() == folder for path in searched)


def register(session: Any) -> None:
    """Registers the format, unless the session knows it already."""
    classic = getattr(session, "_jsparkSession", None)  # a Spark Connect session has none, and takes it twice
    if classic is None or not classic.sessionState().dataSourceManager().dataSourceExists(NAME):
        session.dataSource.register(OncewayDataSource)


def register_everywhere() -> None:
    """Registers the format in the active session, and in every later one, unless Spark finds it by itself.

    Spark has no hook for later sessions, so their builder is wrapped.  Where Spark's search finds `pyspark_onceway`
    nothing is done: asking the session would cost seconds that not every session needs.
    """
    active = SparkSession.getActiveSession()
    if active is not None and not found_by_itself():
        register(active)
    builder = SparkSession.Builder
    if hasattr(builder.getOrCreate, "onceway"):
        return
    make = builder.getOrCreate

    @functools.wraps(make)
    def make_and_register(self: Any) -> Any:
        session = make(self)
        if not found_by_itself():
            register(session)
        return session

    make_and_register.onceway = True  # type: ignore[attr-defined]
    builder.getOrCreate = make_and_register
