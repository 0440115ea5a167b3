"""Real routers and databases; the routers' logs are shown when a test fails."""

from __future__ import annotations

from tests.edges.store.conftest import postgres
from tests.live_fixture import live_network, pytest_runtest_makereport

__all__ = ["live_network", "postgres", "pytest_runtest_makereport"]
