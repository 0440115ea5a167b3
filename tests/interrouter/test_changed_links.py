"""Links that are added, removed, or cost something else while routers run."""

from __future__ import annotations

from tests.interrouter.harness import Net
from tests.interrouter.transports import Link


def downs(net: Net) -> list[tuple[str, str]]:
    return [(name, entry[2]) for name in net.names for entry in net[name].log if entry[1] != "up"]


def change(net: Net, *links: tuple[str, str, int]) -> None:
    """All routers are told of these links, and nobody dials the others any more."""
    for ends, link in net.links.items():
        link.enabled = ends in [each[:2] for each in links]
    for one, other, cost in links:
        if (one, other) not in net.links:
            link = net.links[one, other] = Link((one, other), cost)
            net._dial(link)
    for name in net.names:
        costs = {b if name == a else a: cost for a, b, cost in links if name in (a, b)}
        net[name].network.set_neighbours(costs, net.now)
        net.attend(name)


def test_a_removed_link_closes_and_sessions_go_another_way() -> None:
    net = Net("abc", ["ab", "bc", "ac"])
    net.run_until(net.converged)
    for _ in range(20):
        net.chatter("a", "b", 1000)
    change(net, ("b", "c", 1), ("a", "c", 1))
    net.run_until(net.delivered, 1.0)
    net.run(1.0)
    assert net["a"].network.status()["neighbours"].keys() == {"c"}
    assert net["a"].network.status()["paths"]["b"] == {"next": "c", "cost": 2, "hops": 2}
    assert downs(net) == []


def test_the_removed_link_stays_until_the_added_one_is_up() -> None:
    net = Net("abc", ["ab", "bc"])
    net.run_until(net.converged)
    change(net, ("b", "c", 1), ("a", "c", 1))
    assert "b" in net["a"].network.status()["neighbours"]
    net.run(1.0)
    assert net["a"].network.status()["neighbours"].keys() == {"c"}
    assert downs(net) == []


def test_a_router_that_has_no_link_any_more_is_gone_after_dead_after() -> None:
    net = Net("abc", ["ab", "bc"])
    net.run_until(net.converged)
    net.links["b", "c"].enabled = False
    net["b"].network.set_neighbours({"a": 1}, net.now)
    net.attend("b")
    net.run(2.0)
    assert downs(net) == []
    net.run(2.0)
    assert {("a", "c"), ("b", "c")} <= set(downs(net))
    assert net["b"].network.status()["neighbours"].keys() == {"a"}


def test_a_changed_cost_changes_paths_and_no_session() -> None:
    net = Net("abc", ["ab", "bc", "ac"])
    net.run_until(net.converged)
    change(net, ("a", "b", 1), ("b", "c", 1), ("a", "c", 5))
    net.run(0.5)
    assert net["a"].network.status()["paths"]["c"] == {"next": "b", "cost": 2, "hops": 2}
    assert downs(net) == []


def test_a_longer_heartbeat_loses_nobody() -> None:
    net = Net("abc", ["ab", "bc"])
    net.run_until(net.converged)
    for name in "abc":
        net[name].network.set_timers(1.5, 5.0, net.now)
        net.attend(name)
        net.run(3.0)
    net.run(400.0)
    assert downs(net) == []
