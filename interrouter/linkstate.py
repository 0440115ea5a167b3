"""What every router says about its neighbours, as known here: the map of the network (link-state flooding).

Each router originates one link state: its neighbours' incarnations and the costs, under a growing sequence number.
Everybody passes news on to all other neighbours; trunks are reliable and in order, and a new trunk begins with all that
is known, so nothing needs to be acknowledged. An origin repeats its state every `refresh_s`; states that are not
repeated are forgotten at the age of `max_age_s`, wherever they travelled meanwhile (the age travels along).

States are kept by *incarnation*, so a restarted router is simply another node and its sequence numbers start again. A
link counts only if both ends name each other's incarnation: a dead incarnation loses its links at once. A restarted
router that meets a state of its own name lists that incarnation as *former*, and whoever reads that forgets it for
good, half-open trunks included. Knows neither trunks nor packets' bytes. Read paths.py next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAX_ROUTERS: Final = 4096
MAX_FORMER: Final = 64


@dataclass(slots=True)
class LinkState:
    """One router's word. Replaced, never changed."""

    name: str
    incarnation: int
    sequence: int
    links: tuple[tuple[int, int], ...]
    former: tuple[int, ...]
    born: float
    """When it was originated, on our clock."""
    order: int = 0
    """Incarnations are numbered as they become known here."""


class LinkStateDatabase:
    """Our own state and everybody else's. `changed`: the graph may have changed; the owner clears it."""

    def __init__(self, name: str, incarnation: int, now: float, *, refresh_s: float, max_age_s: float) -> None:
        self.own = LinkState(name, incarnation, 1, (), (), now)
        self.others: dict[int, LinkState] = {}
        self.changed = True
        self.conflict = False
        """Somebody else of our name took us for its former self: two processes run as this router."""
        self._refresh_s = refresh_s
        self._max_age_s = max_age_s
        self._dead: dict[int, float] = {}  # former incarnations of any router -> since when
        self._order = 0

    def originate(self, links: Mapping[int, int], now: float) -> bool:
        """Our neighbours' incarnations and costs as of now. True: it is news, flood `own`."""
        wanted = tuple(sorted(links.items()))
        if wanted == self.own.links:
            return False
        self._reissue(now, links=wanted)
        self.changed = True
        return True

    def receive(self, state: LinkState, now: float) -> list[LinkState]:
        """A neighbour passed this on: what is to be flooded in consequence (that state itself, or ours)."""
        own = self.own
        if state.incarnation == own.incarnation:
            if state.sequence > own.sequence:  # not ours, whoever made it: overtake it
                self.own.sequence = state.sequence
                self._reissue(now)
                return [self.own]
            return []
        if state.name == own.name and own.incarnation in state.former:
            self.conflict = True  # let it say so: contesting it would flood for ever
            return []
        if state.incarnation in self._dead or now - state.born > self._max_age_s:
            return []
        if state.name == own.name:
            self._bury(state.incarnation, now)
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
            if gone not in self._dead and gone != own.incarnation:
                there = self.others.get(gone)
                if there is None or there.name == state.name:
                    self._bury(gone, now)
        return [state]

    def tick(self, now: float) -> bool:
        """Forget what is too old. True: our own state is due to be repeated, flood `own`."""
        for state in [s for s in self.others.values() if now - s.born > self._max_age_s]:
            del self.others[state.incarnation]
            self.changed = True
        for incarnation in [i for i, since in self._dead.items() if now - since > 2 * self._max_age_s]:
            del self._dead[incarnation]
        if now - self.own.born < self._refresh_s:
            return False
        former = tuple(incarnation for incarnation in self.own.former if incarnation in self._dead)
        self._reissue(now, former=former)
        return True

    def is_former(self, incarnation: int) -> bool:
        return incarnation in self._dead

    def get(self, incarnation: int) -> LinkState | None:
        return self.own if incarnation == self.own.incarnation else self.others.get(incarnation)

    def graph(self) -> dict[int, dict[int, int]]:
        """Node -> neighbour -> cost, for links that both ends name; the cost is the larger of the two."""
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

    def _bury(self, incarnation: int, now: float) -> None:
        self._dead[incarnation] = now
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
