"""Fixtures: routers as real processes (tests/live.py).  The one Spark session is everybody's: tests/conftest.py."""

from tests.live_fixture import live_network, pytest_runtest_makereport

__all__ = ["live_network", "pytest_runtest_makereport"]
