"""Real routers for `test_with_router`, their logs shown when a test fails."""

from __future__ import annotations

from tests.live_fixture import live_network, pytest_runtest_makereport

__all__ = ["live_network", "pytest_runtest_makereport"]
