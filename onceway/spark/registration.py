"""Makes `format("onceway")` known to a session.

Spark offers no call for sessions that are still to come, so their builder is given one more thing to do.  Nothing is
done where Spark's own search finds `pyspark_onceway`: asking it would cost seconds that not every session wants.
"""

from __future__ import annotations

import functools
import os
import site
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

NAME = "onceway"


def found_by_itself() -> bool:
    """Whether the search, in a Python that Spark starts, comes upon `pyspark_onceway`.

    It looks into the folders of sys.path; an editable installation is not in any of them.
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
    """Unless the session knows the format already."""
    from onceway.spark.source import OncewayDataSource

    classic = getattr(session, "_jsparkSession", None)  # a Spark Connect session has none, and takes it twice
    if classic is None or not classic.sessionState().dataSourceManager().dataSourceExists(NAME):
        session.dataSource.register(OncewayDataSource)


def register_everywhere() -> None:
    """In the active session, and in every one that is made from now on."""
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
