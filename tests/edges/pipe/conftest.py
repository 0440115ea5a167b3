"""Networks with pipes; their logs are shown when a test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.edges.pipe.network import PipeNetwork
from tests.live_fixture import Networks, pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

Made = Callable[..., PipeNetwork]


class PipeNetworks(Networks[PipeNetwork]):
    def __call__(self, *routers: str, **pipes: tuple[str, ...]) -> PipeNetwork:
        return self.add(lambda directory: PipeNetwork(directory, routers, pipes)).start_all()


@pytest.fixture
def pipe_network(tmp_path: Path) -> Iterator[PipeNetworks]:
    """`pipe_network("a", jobs=("s", "t"))`: router a, and pipe jobs with stores s and t, started."""
    networks = PipeNetworks(tmp_path)
    yield networks
    networks.close()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeNetwork]:
    """One router, and pipes of one store for tests that do not disturb each other."""
    names = [f"pipe{number}" for number in range(30)]
    made = PipeNetwork(tmp_path_factory.mktemp("pipes"), ("a",), dict.fromkeys(names, ("s",)))
    try:
        yield made.start_all()
    finally:
        made.close()


@pytest.fixture
def pipe(network: PipeNetwork, request: pytest.FixtureRequest) -> str:
    """A pipe of that network that no other test uses."""
    used: list[str] = network.__dict__.setdefault("used_pipes", [])
    name = f"pipe{len(used)}"
    used.append(name)
    return name
