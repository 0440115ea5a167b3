"""The map of the network, as known here: link states of all routers, and the shortest paths that follow from them.

Each router originates one link state: its neighbours' incarnations and the costs, under a growing sequence number.
Routers flood news to all other neighbours. Trunks are reliable and in order, and a new trunk begins with everything
known, so link states need no acknowledgements. An origin repeats its state every `refresh_s`; a state that is not
repeated is forgotten at the age of `max_age_s`. The age travels with the state.

States are kept by *incarnation*, so a restarted router is another node whose sequence numbers start again. A link
counts only if both ends name each other's incarnation: a dead incarnation loses its links at once. A restarted router
that receives a state of its own name lists that incarnation as *former*; a router that reads this forgets the
incarnation for good, half-open trunks included. This module knows neither trunks nor bytes. Read network.py next.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from interrouter.packets import LinkStatePacket

MAX_ROUTERS: Final = 4096
MAX_FORMER: Final = 64


@dataclass(slots=True)
class LinkState:
    """What one router says of its neighbours. Replaced, never changed."""

    name: str
    incarnation: int
    sequence: int
    links: tuple[tuple[int, int], ...]
    former: tuple[int, ...]
    born: float
    """When it was originated, on our clock."""
    order: int = 0
    """Numbers incarnations in the order in which they became known here."""

    @classmethod
    def received(cls, packet: LinkStatePacket, now: float) -> LinkState:
        """The state that a neighbour has flooded in this packet."""
        born = now - packet.age_ms / 1000
        return cls(packet.name, packet.incarnation, packet.sequence, packet.links, packet.former, born)


class LinkStateDatabase:
    """Our own state and those of all others. `changed`: the graph may have changed; the owner clears it."""

    def __init__(self, name: str, incarnation: int, now: float, *, refresh_s: float, max_age_s: float) -> None:
        self.own = LinkState(name, incarnation, 1, (), (), now)
        self.others: dict[int, LinkState] = {}
        self.changed = True
        self.conflict = False
        """Another process of our name lists our incarnation as former: two processes run as this router."""
        self._refresh_s = refresh_s
        self._max_age_s = max_age_s
        self._former: dict[int, float] = {}  # former incarnations of any router -> since when
        self._order = 0

    def originate(self, links: Mapping[int, int], now: float) -> bool:
        """Set our neighbours' incarnations and costs. True: they have changed, flood `own`."""
        wanted = tuple(sorted(links.items()))
        if wanted == self.own.links:
            return False
        self._reissue(now, links=wanted)
        self.changed = True
        return True

    def receive(self, state: LinkState, now: float) -> list[LinkState]:
        """Process a state that a neighbour flooded. Returns what to flood in turn: that state, or ours."""
        own = self.own
        if state.incarnation == own.incarnation:
            if state.sequence > own.sequence:  # not issued by us: overtake it
                self.own.sequence = state.sequence
                self._reissue(now)
                return [self.own]
            return []
        if state.name == own.name and own.incarnation in state.former:
            self.conflict = True  # do not contest it: both would flood for ever
            return []
        if state.incarnation in self._former or now - state.born > self._max_age_s:
            return []
        if state.name == own.name:
            self._mark_former(state.incarnation, now)
            former = (*own.former, state.incarnation)[-MAX_FORMER:]
            self._reissue(now, former=former)
            return [self.own]
        known = self.others.get(state.incarnation)
        if known is None:
            if len(self.others) >= MAX_ROUTERS:
                return []
            self._order += 1
            state.order = self._order
            self.changed = True
        else:
            if state.sequence <= known.sequence or state.name != known.name:
                return []
            state.order = known.order
            if state.links != known.links:
                self.changed = True
        self.others[state.incarnation] = state
        for gone in state.former:
            if gone not in self._former and gone != own.incarnation:
                there = self.others.get(gone)
                if there is None or there.name == state.name:
                    self._mark_former(gone, now)
        return [state]

    def set_ages(self, refresh_s: float, max_age_s: float) -> None:
        self._refresh_s = refresh_s
        self._max_age_s = max_age_s

    def tick(self, now: float) -> bool:
        """Forget states that are too old. True: our own state is due for repetition, flood `own`."""
        for state in [s for s in self.others.values() if now - s.born > self._max_age_s]:
            del self.others[state.incarnation]
            self.changed = True
        for incarnation in [i for i, since in self._former.items() if now - since > 2 * self._max_age_s]:
            del self._former[incarnation]
        if now - self.own.born < self._refresh_s:
            return False
        former = tuple(incarnation for incarnation in self.own.former if incarnation in self._former)
        self._reissue(now, former=former)
        return True

    def is_former(self, incarnation: int) -> bool:
        return incarnation in self._former

    def get(self, incarnation: int) -> LinkState | None:
        return self.own if incarnation == self.own.incarnation else self.others.get(incarnation)

    def graph(self) -> dict[int, dict[int, int]]:
        """Node -> neighbour -> cost, for links that both ends name; of two costs the larger."""
        costs = {state.incarnation: dict(state.links) for state in (self.own, *self.others.values())}
        graph: dict[int, dict[int, int]] = {}
        for node, links in costs.items():
            edges = graph[node] = {}
            for neighbour, cost in links.items():
                back = costs.get(neighbour)
                if back is not None and node in back:
                    edges[neighbour] = max(cost, back[node])
        return graph

    def names(self) -> dict[int, str]:
        return {state.incarnation: state.name for state in (self.own, *self.others.values())}

    def paths(self, neighbours: Container[int]) -> dict[int, Path]:
        """Node -> its path over our links to these neighbours. Our side of a link is its present state, not the one
        last flooded."""
        graph, own = self.graph(), self.own.incarnation
        graph[own] = {node: cost for node, cost in graph[own].items() if node in neighbours}
        return shortest_paths(own, graph, self.names())

    def latest(self, nodes: Iterable[int], neighbours: Container[int]) -> dict[str, int]:
        """Sorted name -> node, for names other than ours. Of two incarnations of a name, of which one is dead, the one
        that is among our neighbours, else the newer one."""
        best: dict[str, tuple[tuple[bool, int], int]] = {}
        for node in nodes:
            state = self.others[node]
            rank = (node in neighbours, state.order)
            if state.name != self.own.name and (state.name not in best or rank > best[state.name][0]):
                best[state.name] = (rank, node)
        return {name: node for name, (_, node) in sorted(best.items())}

    def reaches_all_without(self, neighbour: int) -> bool:
        """Whether we reach everybody that we reach now, also without our link to that neighbour."""
        graph, names, own = self.graph(), self.names(), self.own.incarnation
        left = {node: cost for node, cost in graph[own].items() if node != neighbour}
        without = shortest_paths(own, {**graph, own: left}, names)
        return without.keys() >= shortest_paths(own, graph, names).keys()

    def _mark_former(self, incarnation: int, now: float) -> None:
        self._former[incarnation] = now
        self.others.pop(incarnation, None)
        self.changed = True

    def _reissue(
        self, now: float, *, links: tuple[tuple[int, int], ...] | None = None, former: tuple[int, ...] | None = None
    ) -> None:
        own = self.own
        self.own = LinkState(
            own.name,
            own.incarnation,
            own.sequence + 1,
            own.links if links is None else links,
            own.former if former is None else former,
            now,
        )


@dataclass(frozen=True, slots=True)
class Path:
    first_hop: int
    cost: int
    hops: int


def shortest_paths(root: int, graph: Mapping[int, Mapping[int, int]], names: Mapping[int, str]) -> dict[int, Path]:
    """Dijkstra's algorithm: node -> path, for every node that can be reached from `root` except itself.

    graph: node -> neighbour -> cost, both directions. names: break ties. Among paths of equal cost the one with fewer
    hops is taken, then the one whose first hop's name sorts first, so all routers find the same. Costs are positive, so
    each hop is nearer to the destination: forwarding hop by hop has no loops while routers agree on the graph."""
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
