"""pytest's side of tests/live.py: a factory of networks that shows the routers' logs when a test fails.

A folder's conftest.py takes it with `from tests.live_fixture import live_network, pytest_runtest_makereport`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from tests.live import LiveNetwork

N = TypeVar("N", bound=LiveNetwork)


class Networks(Generic[N]):
    """The networks that a test has made, each with a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.networks: list[N] = []

    def add(self, make: Callable[[Path], N]) -> N:
        network = make(self.directory / f"net{len(self.networks)}")
        self.networks.append(network)
        return network

    def close(self) -> None:
        for network in self.networks:
            network.close()


class LiveNetworks(Networks[LiveNetwork]):
    """Call it for a started network: `live_network("a", "b", links=[("a", "b")])`; `start=False` leaves that to you."""

    def __call__(self, *names: str, start: bool = True, fresh: bool = True, **options: Any) -> LiveNetwork:
        network = self.add(lambda directory: LiveNetwork(directory, names or ("a",), **options))
        if start:
            network.start(fresh=fresh)
        return network


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
