"""Which tests may run side by side, and which begin first (`make test` uses three workers).

Tests that start routers and clients as processes have deadlines.  Many at once on two cores would only disturb each
other, so that they run in a few groups, each in one worker, where they mostly wait.  All that ask for `spark` are one
group, since they share one JVM.  The longest groups begin first.

Everything else needs no more than its own process.  It is done by whoever is free, with less priority than what has
deadlines.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from onceway.base import loop

# How quick a machine is at drawing examples, or at one of them, says nothing about what is tested.
settings.register_profile("onceway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("onceway")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's job in the background ignores Ctrl-C, and so would the processes of tests that are ended by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_HERE = Path(__file__).parent
_GROUPS = {  # in the order of their beginning, the longest first; `spark` is known by its fixture
    "spark": (),
    "cli": ("cli/", "examples/", "onceway/test_supervisor.py", "onceway/test_notify.py"),
    "chaos": ("chaos/", "bench/", "simulation/test_workers.py", "spark/test_ingest.py"),
    "edges": ("edges/",),
    "interop": (
        "interop/",
        "docs/test_operating.py",
        "docs/test_start.py",
        "fuzz/test_attacks_live.py",
        "onceway/client/test_suspended.py",
        "onceway/client/test_with_router.py",
    ),
}
_NICE = 5  # of tests without deadlines

_WITHIN = 0.95  # of a test's timeout: a coroutine ends itself before pytest-timeout's signal

_numbers = itertools.count()
_ends = pytest.StashKey[float]()
_states = Path(tempfile.gettempdir()) / f"onceway-tests-{os.getpid()}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test has a state directory of its own, which nothing creates before it is used."""
    os.environ["ONCEWAY_STATE_DIR"] = str(_states / str(next(_numbers)))
    if "PYTEST_XDIST_WORKER" in os.environ and item.get_closest_marker("xdist_group") is None:
        # For good: what has a group comes before what has none, because it is collected first.
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """pytest-timeout starts its timer after this one, which keeps when the test, with its fixtures, has to end."""
    item.stash[_ends] = time.monotonic() + settings.timeout * _WITHIN


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has an event loop of its own; the one that edges have, in their tests."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    run = loop.run if _group(pyfuncitem) == "edges" else asyncio.run
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
    run(_bounded(test, pyfuncitem.stash.get(_ends, None)))
    return True


async def _bounded(test: Coroutine[Any, Any, None], end: float | None) -> None:
    """A coroutine that waits is ended by its loop: uvloop swallows what pytest-timeout's signal raises."""
    async with asyncio.timeout(None if end is None else end - time.monotonic()):
        await test


def pytest_unconfigure() -> None:
    shutil.rmtree(_states, ignore_errors=True)


def _group(item: pytest.Item) -> str | None:
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    path = item.path.relative_to(_HERE).as_posix()
    return next((name for name, prefixes in _GROUPS.items() if path.startswith(prefixes)), None)


@pytest.hookimpl(tryfirst=True)  # before xdist's own, which writes the groups into the tests' names
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    begins = {name: number for number, name in enumerate(_GROUPS)}
    order: dict[pytest.Item, int] = {}
    for item in items:
        group = _group(item)
        order[item] = begins.get(group, len(begins))
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=order.__getitem__)  # xdist hands groups out in this order (--no-loadscope-reorder)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The suite's one Spark session: a JVM costs more than everything that is asked of it."""
    from onceway.spark.session import NoSpark, session
    from tests.spark.driver import QUICK

    try:
        made = session(
            "tests",
            **{
                **QUICK,
                "spark.master": "local[2]",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.memory": "1g",
                "spark.sql.files.openCostInBytes": "1024",
            },
        )
    except NoSpark as error:
        pytest.skip(str(error))
    yield made
    made.stop()
