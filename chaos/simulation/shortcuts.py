"""What can happen next in a whole world, and where it leads, found out once for those parts of it that it concerns.

An event at a router concerns the situation of that router, its inboxes and those that it writes to, connections, and
what is left of faults and time; one at a client its situation, connections, the checker, and the rest. Where all these
have been the same before, so is what comes of it, whatever the other parts are. What can be tried next does not ask for
the situations of routers, but for whether they live.

Tables are emptied when they are full: what they say can be found out again.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from chaos.simulation.drafts import Channel, State
from chaos.simulation.product import Product
from chaos.simulation.reduction import Reduction
from chaos.simulation.world import Event

ROOM = 400_000  # entries of a table
AT_ROUTER = {"up": 1, "down": 1, "msg": 2}  # where the event says at which
ON_CONNECTION = frozenset(("c2r", "rnotice", "rdrop"))  # at the router at its end
AT_CLIENT = frozenset(("r2c", "cnotice", "cdrop", "send", "settle", "accept", "connect", "srestart"))
Part = tuple[tuple[int, ...], Callable[[State], tuple[int, ...]]]  # places in a state, and what takes them out of it


class Shortcuts:
    def __init__(self, product: Product, reduction: Reduction | None) -> None:
        self.product, self.reduction = product, reduction
        self.possible: dict[Any, tuple[bool, tuple[Event, ...]]] = {}
        self.concerned: dict[Any, Part | None] = {}
        self.led: dict[Any, tuple[int, ...]] = {}

    def next(self, state: State) -> tuple[bool, tuple[Event, ...]]:
        """Whether anything happens by itself; and what is to be tried, with faults."""
        n = self.product.n
        key = (tuple([site < 0 for site in state[:n]]), state[n:-2], state[-1])
        found = self.possible.get(key)
        if found is None:
            if len(self.possible) >= ROOM:
                self.possible.clear()
            progress = self.product.progress(state)
            events = self.reduction.first(state, progress) if self.reduction is not None else None
            if events is None:
                events = progress + self.product.faults(state)
            found = self.possible[key] = bool(progress), tuple(events)
        return found

    def step(self, state: State, event: Event) -> State:
        """Raises Found."""
        part = self.part(state, event)
        if part is None:
            return self.product.step(state, event)
        places, take = part
        key = (event, take(state))
        led = self.led.get(key)
        if led is None:
            if len(self.led) >= ROOM:
                self.led.clear()
            following = self.product.step(state, event)
            self.led[key] = take(following)
            return following
        changed = list(state)
        for place, value in zip(places, led, strict=True):
            changed[place] = value
        return tuple(changed)

    def part(self, state: State, event: Event) -> Part | None:
        """What it concerns; None: all."""
        kind = event[0]
        key = (event, state[-3]) if kind in ON_CONNECTION else event
        if key in self.concerned:
            return self.concerned[key]
        if len(self.concerned) >= ROOM:
            self.concerned.clear()
        product = self.product
        n, size = product.n, len(state)
        places: list[int] = []
        if kind in AT_CLIENT:
            name = event[1] if isinstance(event[1], str) else event[1][0]
            places = [n + product.pairs + product.places[name], size - 3, size - 2, size - 1]
        elif kind in AT_ROUTER or kind in ON_CONNECTION:
            router = self.router_of(state, event)
            inboxes = [n + place for pair, place in product.pair.items() if router in pair]
            places = [router, *inboxes, size - 3, size - 1]
        part = (tuple(places), itemgetter(*places)) if places else None
        self.concerned[key] = part
        return part

    def router_of(self, state: State, event: Event) -> int:
        product = self.product
        if event[0] in AT_ROUTER:
            return product.router_names[event[AT_ROUTER[event[0]]]]
        client, number = product.places[event[1][0]], event[1][1]
        channels: tuple[Channel, ...] = product.values[state[-3]]
        return next(c.router for c in channels if (c.client, c.number) == (client, number))
