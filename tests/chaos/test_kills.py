"""Routers killed with SIGKILL under load: nothing lost, nothing twice, each publisher's order kept.

Five routers: t in the middle of all best paths, a to d around it in a ring of dearer links.  Two publishers (at a and
b) and three subscribers (at b, c and d), each able to go to any router; our client with journals, and proton as
chaos.live.clients uses it.  The judge knows the clients' own histories and nothing else.  `make test` kills the routers
of all kinds one after the other (all at once: tests/onceway/client), and `make chaos` each alone with both clients.
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
OURS_FIRST = ("onceway", pytest.param("proton", marks=[NEEDED, LONG]))
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
    strangers: bool = False,
    lasting: bool = False,
) -> None:
    """Two publishers, three subscribers; `strike` when each subscriber has a third; all must come right.

    lasting: the publishers go on until the strike is over and each subscriber has as many.  What a killed subscriber's
    journal does not say was settled is in doubt when it comes back, for as long as its publisher is not there.
    strangers: nobody is left who knows a subscriber without memory.  It is told so, and must miss nothing all the same.
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
        if strangers:
            told = [(finding.kind, finding.subscriber, finding.count) for finding in judgement.findings]
            assert sorted(told) == [("interrupted", name, 1) for name in ("s1", "s2", "s3")], f"\n{judgement}"
            assert [pair.received for pair in judgement.pairs] == [count] * 6, f"\n{judgement}"
        else:
            assert judgement.verdict == "ok", f"\n{judgement}"
        sent = sum(one.sent for one in judgement.publishers)
        assert sent >= 2 * count >= 5_000
        assert lasting or sent == clients.all_sent


@pytest.mark.parametrize(
    ("struck", "client"),
    [
        ("b", "onceway"),  # the router of a publisher and a subscriber
        *(pytest.param(struck, "onceway", marks=LONG) for struck in "act"),
        *(pytest.param(struck, "proton", marks=[NEEDED, LONG]) for struck in "bact"),
    ],
)
def test_a_router_is_killed(live_network: LiveNetworks, tmp_path: Path, struck: str, client: str) -> None:
    """skupper-router loses hundreds where a subscriber's dies, and says all was accepted. t is on all best paths."""
    network = wheel(live_network)
    under_load(network, tmp_path, client, lambda clients: clients.kill_routers(struck))


@pytest.mark.parametrize("client", [pytest.param("onceway", marks=LONG), pytest.param("proton", marks=NEEDED)])
def test_two_routers_are_killed_at_once(live_network: LiveNetworks, tmp_path: Path, client: str) -> None:
    network = wheel(live_network)
    under_load(network, tmp_path, client, lambda clients: clients.kill_routers("a", "c"))


@pytest.mark.parametrize("client", OURS_FIRST)
def test_killed_routers_come_back_as_new_ones(live_network: LiveNetworks, tmp_path: Path, client: str) -> None:
    """One after the other, each restarted before the next dies: nobody may be refused, nothing taken twice."""
    network = wheel(live_network)

    def strike(clients: Clients) -> None:
        for name in ("a", "t", "c"):
            clients.kill_routers(name)
            network.start(name, fresh=False)

    under_load(network, tmp_path, client, strike, count=2 * COUNT)


@LONG  # with our client: tests/onceway/client/test_with_router.py
@pytest.mark.parametrize("client", ["onceway", pytest.param("proton", marks=NEEDED)])
def test_all_routers_are_killed_at_once_and_restarted(live_network: LiveNetworks, tmp_path: Path, client: str) -> None:
    # Five processes must be up again within the timeout less its margin, 25 s, on a busy machine too; clients that are
    # away for longer rightly report a gap.
    network = wheel(live_network)

    def strike(clients: Clients) -> None:
        clients.kill_routers(*WHEEL)
        for name in WHEEL:
            network.spawn(name, fresh=False)

    under_load(network, tmp_path, client, strike, strangers=client == "proton")


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
