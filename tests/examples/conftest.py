"""One router for all examples; its log is shown when a test fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.conftest import java_client, rhea
from tests.live import PATIENT, LiveNetwork
from tests.live_fixture import pytest_runtest_makereport

__all__ = ["java_client", "pytest_runtest_makereport", "rhea"]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    with LiveNetwork(tmp_path_factory.mktemp("examples"), ("a",), settings=PATIENT) as network:
        yield network.start()
