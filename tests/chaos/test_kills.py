"""Routers killed with SIGKILL under load: nothing lost, nothing twice, each publisher's order kept.

Five routers: t in the middle of all best paths, a to d around it in a ring of dearer links.  Two publishers (at a and
b) and three subscribers (at b, c and d), each able to go to any router; our client with journals, and proton as
chaos.live.clients uses it.  The judge knows the clients' own histories and nothing else.  `make chaos` kills
each of these routers, and all at once, by its schedules (chaos/live/schedules).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.chaos.clients import TIMEOUT_S, Clients
from tests.live import LiveNetwork
from tests.live_fixture import LiveNetworks

LONG = pytest.mark.long
NEEDED = pytest.mark.skipif(not needs.has_proton(), reason=needs.PROTON)
COUNT = 2_600  # of each of two publishers
RATE = 1_300.0
WHEEL = ("a", "b", "c", "d", "t")
SPOKES: list[tuple[str, str, int]] = [(name, "t", 1) for name in "abcd"]
RIM: list[tuple[str, str, int]] = [("a", "b", 3), ("b", "c", 3), ("c", "d", 3), ("d", "a", 3)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def wheel(live_network: LiveNetworks) -> LiveNetwork:
    addresses = [{"match": "*", "subscription_timeout": f"{TIMEOUT_S:g}s"}]
    return live_network(*WHEEL, links=[*SPOKES, *RIM], addresses=addresses)


def under_load(
    network: LiveNetwork,
    directory: Path,
    client: str,
    strike: Callable[[Clients], None],
    count: int = COUNT,
    lasting: bool = False,
) -> None:
    """Two publishers, three subscribers; `strike` when each subscriber has a third; all must come right.

    lasting: the publishers go on until the strike is over and each subscriber has as many.  What a killed subscriber's
    journal does not say was settled is in doubt when it comes back, for as long as its publisher is not there.
    """
    with Clients(network, directory, client=client, count=None if lasting else count, rate=RATE) as clients:
        clients.wait_ready(*[clients.subscriber(name, at) for name, at in (("s1", "b"), ("s2", "c"), ("s3", "d"))])
        clients.wait_ready(*[clients.publisher(name, at) for name, at in (("p1", "a"), ("p2", "b"))])
        clients.wait_received(2 * count // 3)
        strike(clients)
        if lasting:
            clients.wait_received(2 * count)
            clients.enough()
        judgement = clients.finish()
        assert judgement.verdict == "ok", f"\n{judgement}"
        sent = sum(one.sent for one in judgement.publishers)
        assert sent >= 2 * count >= 5_000
        assert lasting or sent == clients.all_sent


def test_the_router_of_a_publisher_and_a_subscriber_is_killed(live_network: LiveNetworks, tmp_path: Path) -> None:
    """skupper-router loses hundreds where a subscriber's dies, and says all was accepted."""
    under_load(wheel(live_network), tmp_path, "onceway", lambda clients: clients.kill_routers("b"))


@pytest.mark.parametrize("client", [pytest.param("onceway", marks=LONG), pytest.param("proton", marks=NEEDED)])
def test_two_routers_are_killed_at_once(live_network: LiveNetworks, tmp_path: Path, client: str) -> None:
    network = wheel(live_network)
    under_load(network, tmp_path, client, lambda clients: clients.kill_routers("a", "c"))


def test_killed_routers_come_back_as_new_ones(live_network: LiveNetworks, tmp_path: Path) -> None:
    """One after the other, each restarted before the next dies: nobody may be refused, nothing taken twice."""
    network = wheel(live_network)

    def strike(clients: Clients) -> None:
        for name in ("a", "t", "c"):
            clients.kill_routers(name)
            network.start(name, fresh=False)

    under_load(network, tmp_path, "onceway", strike, count=2 * COUNT)


def test_killed_clients_go_on_with_their_journals(live_network: LiveNetworks, tmp_path: Path) -> None:
    """kill -9 of a publisher and of a subscriber, each started again at another router."""
    network = wheel(live_network)

    def strike(clients: Clients) -> None:
        for name in ("p1", "s2"):
            clients.kill(name)
        clients.wait_ready(clients.subscriber("s2", "d"), clients.publisher("p1", "c"))

    under_load(network, tmp_path, "onceway", strike, lasting=True)


def test_a_client_and_its_router_die_together(live_network: LiveNetworks, tmp_path: Path) -> None:
    network = wheel(live_network)

    def strike(clients: Clients) -> None:
        clients.kill_routers("a", "c")
        for name in ("p1", "s2"):
            clients.kill(name)
        clients.wait_ready(clients.subscriber("s2", "d"), clients.publisher("p1", "b"))

    under_load(network, tmp_path, "onceway", strike, lasting=True)
