"""Shortest paths from one router to all others (Dijkstra), the same wherever and however often they are computed.

Among equally long paths the one with fewer hops is taken, then the one whose first hop's name sorts first. Costs are
positive, so every hop towards a destination is nearer to it: hop-by-hop forwarding has no loops while routers agree.
Knows graphs only; linkstate.py says what the graph is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True)
class Path:
    first_hop: int
    cost: int
    hops: int


def shortest_paths(root: int, graph: Mapping[int, Mapping[int, int]], names: Mapping[int, str]) -> dict[int, Path]:
    """Node -> path, for every node that can be reached from `root` except itself.

    graph: node -> neighbour -> cost, both directions. names: for breaking ties."""
    paths: dict[int, Path] = {}
    heap: list[tuple[int, int, str, int, int]] = []
    for neighbour, cost in graph.get(root, {}).items():
        heappush(heap, (cost, 1, names[neighbour], neighbour, neighbour))
    while heap:
        cost, hops, first_name, node, first_hop = heappop(heap)
        if node in paths or node == root:
            continue
        paths[node] = Path(first_hop, cost, hops)
        for neighbour, further in graph.get(node, {}).items():
            if neighbour not in paths:
                heappush(heap, (cost + further, hops + 1, first_name, neighbour, first_hop))
    return paths
