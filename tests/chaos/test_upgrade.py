"""A network of the release before is upgraded under load, one router after the other: each message comes exactly once and
in order, and no subscription is told that it may have missed one.

Publishers and subscribers are ours, and proton's, of this version.  The judge knows the clients' own histories.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.versions import SPOKEN
from tests import needs
from tests.chaos.clients import TIMEOUT_S, Clients
from tests.live import LiveNetwork, wait_until
from tests.live_fixture import LiveNetworks
from tests.releases import release

BEFORE = "v0.9.0"
PROTON = "proton" if needs.has_proton() else "onceway"
STEP = 150  # deliveries to each subscriber, while nothing changes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release(BEFORE, tmp_path_factory.mktemp("releases") / BEFORE)


def network_of(live_network: LiveNetworks, before: Path, links: list[tuple[str, str]], old: str) -> LiveNetwork:
    addresses = [{"match": "*", "subscription_timeout": f"{TIMEOUT_S:g}s"}]
    network = live_network("a", "b", "c", links=links, addresses=addresses, start=False)
    network.trees = dict.fromkeys(old, before)
    return network.start()


@contextmanager
def under_load(network: LiveNetwork, directory: Path) -> Iterator[Clients]:
    """Two publishers and three subscribers, until the block is over; then all must have come right."""
    with Clients(network, directory, client="onceway", count=None, rate=150.0) as clients:
        clients.wait_ready(
            clients.subscriber("s1", "a"), clients.subscriber("s2", "b", PROTON), clients.subscriber("s3", "c")
        )
        clients.wait_ready(clients.publisher("p1", "a"), clients.publisher("p2", "c", PROTON))
        clients.wait_received(STEP)
        yield clients
        more(clients)
        clients.enough()
        judgement = clients.finish()
        assert judgement.verdict == "ok", f"\n{judgement}"


def more(clients: Clients) -> None:
    clients.wait_received(min(map(clients.received, clients.subscribers)) + STEP)


def replace(network: LiveNetwork, clients: Clients, name: str, how: str, tree: Path | None = None) -> None:
    """The router ends, and starts from this tree, or from ours."""
    if how == "kill":
        clients.kill_routers(name)
    else:
        network.stop(name)
    network.trees.pop(name, None)
    if tree is not None:
        network.trees[name] = tree
    network.start(name, fresh=False)
    more(clients)


def versions(network: LiveNetwork) -> dict[str, int | None]:
    """What each router says that it speaks with each other one, by the names of both.  v0.9.0 says nothing."""
    found: dict[str, int | None] = {}
    for name, status in network.statuses().items():
        for peer, session in status["sessions"].items():
            found[name + peer] = session.get("version") if session["up"] else 0
        for peer, neighbour in status["neighbours"].items():
            found[f"{name}-{peer}"] = neighbour["trunk"].get("version") if neighbour["up"] else 0
    return found


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_one_router_after_the_other_is_upgraded_under_load(
    live_network: LiveNetworks, tmp_path: Path, before: Path, how: str
) -> None:
    network = network_of(live_network, before, [("a", "b"), ("b", "c"), ("a", "c")], old="abc")
    with under_load(network, tmp_path) as clients:
        assert set(versions(network).values()) == {None}, "all are old"
        for name in "abc":
            replace(network, clients, name, how)
            said = {pair for pair, version in versions(network).items() if version == SPOKEN.newest}
            assert all(not network.trees.keys() & set(pair) for pair in said)
        wait_until(lambda: set(versions(network).values()) == {SPOKEN.newest}, "all to speak the new version")
        assert len(versions(network)) == 12
        if how == "stop":  # one goes back, and is upgraded again
            replace(network, clients, "b", how, before)
            wait_until(lambda: versions(network)["ab"] == versions(network)["c-b"] == 4, "a and c to speak with b")
            assert versions(network)["ac"] == SPOKEN.newest
            replace(network, clients, "b", how)
            wait_until(lambda: set(versions(network).values()) == {SPOKEN.newest}, "all to speak the new version")


@pytest.mark.parametrize("old", ["b", pytest.param("ac", marks=pytest.mark.long)])
def test_routers_of_two_releases_work_together_over_a_hop(
    live_network: LiveNetworks, tmp_path: Path, before: Path, old: str
) -> None:
    network = network_of(live_network, before, [("a", "b"), ("b", "c")], old)
    with under_load(network, tmp_path) as clients:
        more(clients)
        assert not any(status.get("file_differences") for status in network.statuses().values())
        said = {pair: version for pair, version in versions(network).items() if version is not None}
        if old == "b":
            assert said == {"ab": 4, "a-b": 4, "cb": 4, "c-b": 4, "ac": SPOKEN.newest, "ca": SPOKEN.newest}
        else:
            assert said == {"ba": 4, "b-a": 4, "bc": 4, "b-c": 4}
