"""Which tests may run side by side (`make test` uses three workers).

Tests that start routers and clients as processes have deadlines, and two at once on two cores would only disturb each
other: they share one worker, in which they mostly wait.  All that ask for `spark` share another, since they share one
JVM, and those of `edges` the third.  The garbage conversations share a network.  Everything
else needs no more than its own process and is done by whoever is free, with less priority than those with deadlines.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How quick a machine is at drawing examples, or at one of them, says nothing about what is tested.
settings.register_profile("onceway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("onceway")

_HERE = Path(__file__).parent
_PROCESSES = (
    "bench/",
    "chaos/",
    "cli/",
    "examples/",
    "fuzz/test_attacks_live.py",
    "interop/",
    "onceway/client/test_suspended.py",
    "onceway/client/test_with_router.py",
    "onceway/test_notify.py",
    "onceway/test_supervisor.py",
    "simulation/test_workers.py",
    "spark/test_ingest.py",
    "spark/test_outbox_live.py",
)
_GARBAGE = "interop/test_garbage.py"
_EDGES = "edges/"
_NICE = 5  # of tests without deadlines


_numbers = itertools.count()
_states = Path(tempfile.gettempdir()) / f"onceway-tests-{os.getpid()}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test has a state directory of its own, which nothing creates before it is used."""
    os.environ["ONCEWAY_STATE_DIR"] = str(_states / str(next(_numbers)))
    if "PYTEST_XDIST_WORKER" in os.environ and item.get_closest_marker("xdist_group") is None:
        # For good: what has a group comes before what has none, because xdist begins with the largest groups.
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))


def pytest_unconfigure() -> None:
    shutil.rmtree(_states, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(_HERE).as_posix()
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif path == _GARBAGE:
            item.add_marker(pytest.mark.xdist_group("garbage"))
        elif path.startswith(_EDGES):
            item.add_marker(pytest.mark.xdist_group("edges"))
        elif path.startswith(_PROCESSES):
            item.add_marker(pytest.mark.xdist_group("processes"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The suite's one Spark session: a JVM costs more than everything that is asked of it."""
    from onceway.spark.session import NoSpark, session

    try:
        made = session(
            "tests",
            **{
                "spark.master": "local[2]",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.sql.shuffle.partitions": "1",
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.files.openCostInBytes": "1024",
            },
        )
    except NoSpark as error:
        pytest.skip(str(error))
    yield made
    made.stop()
