"""Which tests may run side by side (`make test` uses two workers).

Tests that start routers and clients as processes share one worker: they have deadlines, and two at once on two cores
would only disturb each other.  Beside them runs everything that needs no more than its own process, and the garbage
conversations, which are many and idle.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How quick a machine is at drawing examples, or at one of them, says nothing about what is tested.
settings.register_profile("onceway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("onceway")

_HERE = Path(__file__).parent
_PROCESSES = (
    "chaos/",
    "cli/",
    "interop/",
    "onceway/client/test_with_router.py",
    "onceway/test_supervisor.py",
)
_GARBAGE = "interop/test_garbage.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(_HERE).as_posix()
        if path == _GARBAGE:
            item.add_marker(pytest.mark.xdist_group("garbage"))
        elif path.startswith(_PROCESSES):
            item.add_marker(pytest.mark.xdist_group("processes"))
