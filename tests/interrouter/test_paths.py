"""Which way packets go: on every shape of network, by cost, and after a neighbour is gone."""

from __future__ import annotations

import random

import pytest

from interrouter.linkstate import Path, shortest_paths
from tests.interrouter.harness import Net

Shape = tuple[str, list[str | tuple[str, str, int]]]

SHAPES: dict[str, Shape] = {
    "pair": ("ab", ["ab"]),
    "line": ("abcde", ["ab", "bc", "cd", "de"]),
    "ring": ("abcdef", ["ab", "bc", "cd", "de", "ef", "fa"]),
    "mesh": ("abcde", [x + y for x in "abcde" for y in "abcde" if x < y]),
    "star": ("abcde", ["ab", "ac", "ad", "ae"]),
    "triangle": ("abc", ["ab", "bc", ("a", "c", 3)]),
}


def graph_of(*edges: tuple[int, int, int]) -> dict[int, dict[int, int]]:
    graph: dict[int, dict[int, int]] = {}
    for one, other, cost in edges:
        graph.setdefault(one, {})[other] = cost
        graph.setdefault(other, {})[one] = cost
    return graph


def names_of(graph: dict[int, dict[int, int]]) -> dict[int, str]:
    return {node: f"r{node:02}" for node in graph}


def test_cheaper_detour_beats_the_direct_link() -> None:
    graph = graph_of((1, 2, 1), (2, 3, 1), (1, 3, 3))
    assert shortest_paths(1, graph, names_of(graph)) == {2: Path(2, 1, 1), 3: Path(2, 2, 2)}


def test_of_equal_costs_fewer_hops_win_then_the_name_that_sorts_first() -> None:
    graph = graph_of((1, 2, 1), (2, 4, 1), (1, 3, 1), (3, 4, 1), (1, 5, 2), (2, 5, 1))
    paths = shortest_paths(1, graph, names_of(graph))
    assert paths[4] == Path(2, 2, 2)
    assert paths[5] == Path(5, 2, 1)
    names = {**names_of(graph), 2: "z"}
    assert shortest_paths(1, graph, names)[4] == Path(3, 2, 2)


def test_what_cannot_be_reached_has_no_path() -> None:
    graph = graph_of((1, 2, 1), (3, 4, 1))
    assert set(shortest_paths(1, graph, names_of(graph))) == {2}


def test_every_hop_is_nearer_to_the_destination_whatever_the_graph() -> None:
    rng = random.Random(11)
    for _ in range(50):
        nodes = list(range(1, rng.randint(3, 14)))
        edges = [(x, y, rng.randint(1, 5)) for x in nodes for y in nodes if x < y and rng.random() < 0.4]
        graph = {node: {} for node in nodes} | graph_of(*edges)
        names = names_of(graph)
        tables = {node: shortest_paths(node, graph, names) for node in nodes}
        for node, table in tables.items():
            for target, path in table.items():
                assert path.cost == tables[target][node].cost
                if path.first_hop != target:
                    assert tables[path.first_hop][target].cost == path.cost - graph[node][path.first_hop]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("amqp", [False, True], ids=["plain", "amqp"])
def test_everybody_can_speak_to_everybody(shape: str, amqp: bool) -> None:
    names, links = SHAPES[shape]
    net = Net(names, links, amqp=amqp)
    took = net.run_until(net.converged)
    assert took < 0.5
    for source in names:
        for target in names:
            if source != target:
                for _ in range(20):
                    assert net.chatter(source, target, 100)
        net.attend(source)
    net.run_until(net.delivered, 5.0)
    assert all(site.network.sessions.resets == 0 for site in net.sites.values())


def test_path_costs_are_the_sums_of_the_links() -> None:
    net = Net(*SHAPES["triangle"], amqp=False)
    net.run_until(net.converged)
    assert net["a"].network.status()["paths"] == {
        "b": {"next": "b", "cost": 1, "hops": 1},
        "c": {"next": "b", "cost": 2, "hops": 2},
    }


def test_when_a_neighbour_goes_paths_change_and_sessions_stay() -> None:
    """Protocol 3.1.3."""
    net = Net(*SHAPES["triangle"], amqp=False)
    net.run_until(net.converged)
    tokens = {peer: session.token for peer, session in net["a"].network.sessions.by_peer.items()}
    net.cut("a", "b")
    net.run(0.05)
    assert net["a"].network.status()["paths"] == {
        "b": {"next": "c", "cost": 4, "hops": 2},
        "c": {"next": "c", "cost": 3, "hops": 1},
    }
    net.chatter("a", "b")
    net.attend("a")
    net.run_until(net.delivered, 1.0)
    assert tokens == {peer: session.token for peer, session in net["a"].network.sessions.by_peer.items()}
    assert [entry[1:] for entry in net["a"].log] == [("up", "b"), ("up", "c")]


def test_a_dead_transit_router_is_gone_around_without_ending_sessions() -> None:
    net = Net("abcd", ["ab", "bd", ("a", "c", 2), ("c", "d", 2)], amqp=False)
    net.run_until(net.converged)
    token = net["a"].network.sessions.by_peer["d"].token
    for _ in range(10):
        net.chatter("a", "d", 1000)
    net.attend("a")
    net.run(0.0015)
    net.kill("b")
    net.run_until(net.delivered, 2.0)
    net.run_until(net.converged)
    assert net["a"].network.sessions.by_peer["d"].token == token
    assert ("down", "b") in [entry[1:] for entry in net["a"].log]
