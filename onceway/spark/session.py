"""A Spark session for this machine, with `format("onceway")` registered: `session("orders")`.

Whoever has a session already (a cluster's, a notebook's) needs none of this: `import onceway.spark` is enough there.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from onceway.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
DEFAULTS = {
    "spark.ui.enabled": "false",  # it would listen on every interface
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
LOCAL = {
    "spark.master": "local[*]",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),  # Spark's own 200 are a cluster's
}
"""Where neither spark-submit nor the caller names a master."""


class NoSpark(Exception):
    """PySpark, pyarrow, Java or the name localhost is missing; says which, and what to do."""


def missing() -> str | None:
    """Why there can be no session here, in one sentence, without starting anything."""
    try:
        _require()
    except NoSpark as error:
        return str(error)
    return None


def _require() -> Path:
    """The Java to use."""
    for package in ("pyspark", "pyarrow"):
        if find_spec(package) is None:
            raise NoSpark(f"{package} is not installed: pip install 'onceway[spark]'")
    try:
        socket.getaddrinfo("localhost", None)  # PySpark's driver and Java find each other by it
    except OSError as error:
        raise NoSpark(f"localhost does not resolve ({error}): /etc/hosts wants a line '127.0.0.1 localhost'") from None
    try:
        return java.find()
    except java.NoJava as error:
        raise NoSpark(str(error)) from None


def session(app: str, *, log_level: str = "ERROR", **conf: str) -> SparkSession:
    """The session of this process, made if there is none.  NoSpark where there can be none.

    `conf` overrides the defaults here, and both what spark-submit said: session("x", **{"spark.master": "local[2]"}).
    """
    home = _require()
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(home)
    # The workers' Python is this one, and finds what this one finds.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    here = str(Path(__file__).resolve().parents[2])
    paths = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one != here]
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *paths])
    submitted = SparkConf()
    settings = {**DEFAULTS, **conf}
    if not submitted.contains("spark.master"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        settings = {**LOCAL, **settings}
    builder = SparkSession.builder.appName(app)
    for name, value in settings.items():
        if name in conf or not submitted.contains(name):
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    return spark
