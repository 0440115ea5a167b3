"""`format("onceway")` without ceremony: found by Spark's search, or registered by an import."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("pyspark") is None:
    pytest.skip("pyspark is not installed", allow_module_level=True)

from onceway.spark import datasource
from onceway.spark.datasource import OncewayDataSource

ROOT = str(Path(__file__).parents[2])


class Session:
    """Of Spark, what registering touches: it knows some formats already."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.registered: list[type] = []
        self.dataSource = self._jsparkSession = self

    def sessionState(self) -> Session:
        return self

    def dataSourceManager(self) -> Session:
        return self

    def dataSourceExists(self, name: str) -> bool:
        return name in self.known

    def register(self, source: type) -> None:
        self.registered.append(source)


def test_a_session_that_does_not_know_the_format_is_told_of_it() -> None:
    new, knows = Session(), Session("onceway")
    datasource.register(new)
    datasource.register(knows)
    assert new.registered == [OncewayDataSource]
    assert knows.registered == []
    assert OncewayDataSource.name() == datasource.NAME == "onceway"


def test_sessions_that_are_made_after_the_import_know_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    class Builder:
        def getOrCreate(self) -> Session:
            return made

    class SparkSession:
        Builder: Any = None

        @staticmethod
        def getActiveSession() -> Session | None:
            return None

    SparkSession.Builder = Builder
    made = Session()
    monkeypatch.setattr(datasource, "SparkSession", SparkSession)
    monkeypatch.setattr(datasource, "found_by_itself", lambda: False)
    datasource.register_everywhere()
    datasource.register_everywhere()
    assert Builder().getOrCreate() is made
    assert made.registered == [OncewayDataSource]


def test_what_the_workers_search_finds_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    assert datasource.found_by_itself()
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr("site.getsitepackages", list)
    assert not datasource.found_by_itself()


def test_the_module_that_spark_looks_for_leads_to_the_source() -> None:
    import pyspark_onceway

    assert pyspark_onceway.DefaultSource is OncewayDataSource


def test_what_spark_starts_all_the_time_does_without_the_client() -> None:
    """Each load() and each batch are processes that only look at the options, on a driver that may have much to do."""
    source = (
        "import pyspark.sql.datasource, sys; before = set(sys.modules)\nimport onceway.spark.writer, pyspark_onceway\n"
    )
    source += "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before} & {'yaml', 'click', 'ssl'}))\n"
    source += "print('onceway.topology' in sys.modules, 'onceway.client.connection' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "\nFalse False\n"
