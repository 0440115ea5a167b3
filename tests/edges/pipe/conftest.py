"""Networks with pipes; their logs are shown when a test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.edges.pipe.network import PipeNetwork
from tests.edges.store.conftest import database, postgres
from tests.edges.store.postgres import Server
from tests.live_fixture import Networks, pytest_runtest_makereport

__all__ = ["database", "postgres", "pytest_runtest_makereport"]

Made = Callable[..., PipeNetwork]


class PipeNetworks(Networks[PipeNetwork]):
    data: Mapping[str, str] = {}  # store -> where its data is, if not in a directory of its own

    def __call__(
        self,
        *routers: str,
        retention: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        **pipes: tuple[str, ...],
    ) -> PipeNetwork:
        network = self.add(lambda directory: PipeNetwork(directory, routers, pipes, retention, settings=settings))
        network.data.update(self.data)
        return network.start_all()


@pytest.fixture
def pipe_network(tmp_path: Path) -> Iterator[PipeNetworks]:
    """`pipe_network("a", jobs=("s", "t"))`: router a, and pipe jobs with stores s and t, started."""
    networks = PipeNetworks(tmp_path)
    yield networks
    networks.close()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[PipeNetwork]:
    """One router, and pipes of one store for tests that do not disturb each other; its form is the parameter."""
    names = [f"pipe{number}" for number in range(30)]
    made = PipeNetwork(tmp_path_factory.mktemp("pipes"), ("a",), dict.fromkeys(names, ("s",)))
    if getattr(request, "param", "embedded") == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        server.execute("CREATE DATABASE pipes")
        made.data["s"] = server.url("pipes")
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
