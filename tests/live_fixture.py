"""pytest's side of tests/live.py: a factory of networks that shows the routers' logs when a test fails.

A folder's conftest.py takes it with `from tests.live_fixture import live_network, pytest_runtest_makereport`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live import LiveNetwork


class LiveNetworks:
    """Call it for a started network: `live_network("a", "b", links=[("a", "b")])`; `start=False` leaves that to you."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.networks: list[LiveNetwork] = []

    def __call__(self, *names: str, start: bool = True, fresh: bool = True, **options: Any) -> LiveNetwork:
        network = LiveNetwork(self.directory / f"net{len(self.networks)}", names or ("a",), **options)
        self.networks.append(network)
        if start:
            network.start(fresh=fresh)
        return network

    def close(self) -> None:
        for network in self.networks:
            network.close()


@pytest.fixture
def live_network(tmp_path: Path) -> Iterator[LiveNetworks]:
    networks = LiveNetworks(tmp_path)
    yield networks
    networks.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for value in item.funcargs.values():
            for network in getattr(value, "networks", [getattr(value, "network", value)]):
                if isinstance(network, LiveNetwork):
                    report.sections.append(("routers", network.logs()))
    return report
