"""A bus for tests that do not disturb each other, and others; their logs are shown when a test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.edges.bus.world import Batch, BusNetwork, BusProcess, Sink, new_topic
from tests.edges.store.conftest import own_server, postgres
from tests.edges.store.postgres import Server
from tests.live_fixture import Networks, pytest_runtest_makereport

__all__ = ["own_server", "postgres", "pytest_runtest_makereport"]


@pytest.fixture
def small_server() -> Iterator[Server]:
    """With a file system that is soon full."""
    server = Server(small="18m")
    yield server
    server.close()


class BusNetworks(Networks[BusNetwork]):
    def __call__(
        self,
        *routers: str,
        arguments: tuple[str, ...] = (),
        tls: bool = True,
        edges: tuple[str, ...] = ("a",),
        store: str | None = None,
    ) -> BusNetwork:
        return self.add(
            lambda directory: BusNetwork(directory, routers or ("a",), arguments, tls, edges, store)
        ).start_all()


@pytest.fixture
def bus_network(tmp_path: Path) -> Iterator[BusNetworks]:
    networks = BusNetworks(tmp_path)
    yield networks
    networks.close()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusNetwork]:
    made = BusNetwork(tmp_path_factory.mktemp("bus"))
    try:
        yield made.start_all()
    finally:
        made.close()


@pytest.fixture
def bus(network: BusNetwork) -> BusProcess:
    return network.bus


@pytest.fixture
def topic() -> str:
    return new_topic()


@pytest.fixture
def make_sink() -> Iterator[Callable[..., Sink]]:
    made: list[Sink] = []

    def make(answer: Callable[[Batch], int] = lambda _: 200) -> Sink:
        made.append(Sink(answer))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


@pytest.fixture
def sink(make_sink: Callable[..., Sink]) -> Sink:
    return make_sink()
