"""Which of the possible events have to be tried next, so that nothing is missed: persistent sets.

Events at different processes commute: each reads from its own ends of first-in-first-out channels and writes to the far
ends of others. So where all that can happen at one process is known, and no event elsewhere can add to it or take from
it, it is enough to try just that: whatever else could have come first can come afterwards, to the same effect
(Godefroid, Partial-Order Methods for the Verification of Concurrent Systems, 1996, chapter 4; Valmari's stubborn sets).
Every quiet state is still reached, and every violation. Five things need care:

- Crashes and lost connections take frames away, and share a number of how many may come. While a crash may come, only
  the events of dead connections are such a set, which nothing takes anything from; while a connection may be lost, no
  set at a client is.
- The checker hears of several applications. Only a defect makes `accepted` come later than `told_accepted`, which must
  be seen: so acceptances are never put first. In a strict world lives begin before the first message and never end, and
  `told_accepted` is wrong at once or never will be, so publishers may be first; elsewhere not.
- A new connection moves wall clocks, where these count (`Product.clocked`): it is not put first there, and nothing at
  routers is.
- What a client reads, or that it loses its connection, is tried alone even while faults are to come, where it may as
  well happen at once (`absorbed`): it tells nobody, it does the same before and after whatever else the client can do
  meanwhile, and it leaves no trace in the client when the connection is lost. If a fault comes first, the result is as
  if it had come second: what the client has answered is lost with the connection, or lies behind all that the router
  reads.
- While a router is dead its clients have one choice less; nothing needs it dead. So it starts again at once, unless
  another crash is to come.
"""

from __future__ import annotations

from typing import Any

from chaos.simulation.exhaustive.processes import Input, Offers
from chaos.simulation.exhaustive.product import DOWN, MutableState, Product, State, time_after
from chaos.simulation.exhaustive.smallest import FAULTS
from chaos.simulation.world.world import Event

OF_STRICT = frozenset(("sent", "told_accepted", "publisher_told", "handed", "let_go"))
OF_LENIENT = frozenset(("handed", "let_go"))


class Reduction:
    def __init__(self, product: Product) -> None:
        self.product = product
        self.harmless = OF_STRICT if product.setting.strict and all(product.setting.places) else OF_LENIENT
        self.ends: list[Input] = [("cdrop",)]  # of what a client has on a connection
        if product.setting.faults.get("srestart"):
            self.ends.append(("srestart",))
        self.known: dict[tuple[Any, ...], bool] = {}

    def first(self, state: State, progress: list[Event]) -> list[Event] | None:
        """Those of `progress` that are enough, or None."""
        draft = MutableState(self.product, state)
        budget = dict(zip(FAULTS, draft.rest.budget, strict=True))
        if not budget["crash"]:
            for event in progress:
                if event[0] == "restart":
                    return [event]
        by_client, by_router = self.sorted(draft, progress)
        for client, events in enumerate(by_client):
            for event in events:
                if event[0] in ("r2c", "cnotice") and self.absorbed(draft, client, event):
                    return [event]
        if budget["srestart"] or budget["close"]:
            return None
        found: list[Event] | None = None
        for client, events in enumerate(by_client):
            if (
                events
                and (found is None or len(events) < len(found))
                and self.alone_at_client(draft, budget, client, events)
                and all(self.unheard(draft, client, event) for event in events)
            ):
                found = events
                if len(found) == 1:
                    return found
        if found is None and not self.product.clocked and not any(budget.values()) and not draft.rest.broken:
            for router, events in enumerate(by_router):
                if events and self.alone_at_router(draft, router, by_client, by_router):
                    return events
        return found

    def sorted(self, draft: MutableState, progress: list[Event]) -> tuple[list[list[Event]], list[list[Event]]]:
        product = self.product
        by_client: list[list[Event]] = [[] for _ in range(product.m)]
        by_router: list[list[Event]] = [[] for _ in range(product.n)]
        homes = {(product.who[c.client].name, c.number): c.router for c in draft.channels}
        for event in progress:
            kind = event[0]
            if kind in ("heal", "restart"):
                continue
            where = event[1]
            if kind in ("up", "down"):
                by_router[product.router_names[where]].append(event)
            elif kind == "msg":
                by_router[product.router_names[event[2]]].append(event)
            elif kind in ("c2r", "rnotice"):
                by_router[homes[where]].append(event)
            elif kind in ("r2c", "cnotice"):
                by_client[product.places[where[0]]].append(event)
            elif kind in ("send", "settle", "accept", "connect"):
                by_client[product.places[where]].append(event)
        return by_client, by_router

    def alone_at_client(self, draft: MutableState, budget: dict[str, int], client: int, events: list[Event]) -> bool:
        """Nothing that happens elsewhere adds to these or takes from them."""
        channel = next((c for c in draft.channels if c.client == client and c.c_open), None)
        if channel is None:  # it connects
            return not budget["crash"] and min(draft.sites) >= 0 and not self.product.clocked
        if not channel.r_open and not channel.r2c:
            return True
        return bool(channel.r2c) and not (budget["crash"] or budget["cdrop"] or budget["rdrop"])

    def absorbed(self, draft: MutableState, client: int, event: Event) -> bool:
        product = self.product
        given: Input = ("cdrop",)
        if event[0] == "r2c":
            given = ("r2c", product.head(product.channel(draft, event[1])[1])[1])
        return self.is_absorbed(draft.clients[client], given, draft.rest.turns)

    def is_absorbed(self, number: int, given: Input, turns: int) -> bool:
        """In this situation of a client, and in all in which its application can bring it meanwhile."""
        key = (number, given, turns)
        if key not in self.known:
            self.known[key] = self.leaves_no_trace(*key) and self.commutes(*key)
        return self.known[key]

    def leaves_no_trace(self, number: int, given: Input, turns: int) -> bool:
        client, now = self.product.locals.client, time_after(turns)
        said = client(number, given, now)
        if said.failure is not None or said.told:
            return False
        if given[0] == "r2c" and said.closed:
            return False
        for end in self.ends:
            if end != given and (end[0] != "srestart" or self.product.locals.offers(number).restarts):
                without, with_it = client(number, end, now), client(said.number, end, now)
                if (without.number, without.told) != (with_it.number, with_it.told):
                    return False
        return True

    def commutes(self, number: int, given: Input, turns: int) -> bool:
        """With what its application can do: send, settle, accept, and close where that is to come."""
        client, now = self.product.locals.client, time_after(turns)
        said, on = client(number, given, now), given[0] == "r2c"
        offers = self.product.locals.offers
        closes = "close" in self.product.setting.faults
        for deed in deeds(offers(number), closes):
            if (on and said.frames) or deed not in deeds(offers(said.number), closes):
                return False
            before, after = client(number, deed, now), client(said.number, deed, now)
            if before.failure is not None or before.told != after.told or (on and before.frames != after.frames):
                return False
            if client(before.number, given, now).number != after.number:
                return False
            if not self.is_absorbed(before.number, given, turns):
                return False
        return True

    def unheard(self, draft: MutableState, client: int, event: Event) -> bool:
        """No other application's deeds matter to what the checker hears of it."""
        told = self.product.would_tell(draft, event)
        return all(what in self.harmless for what, *_ in told)

    def alone_at_router(
        self, draft: MutableState, router: int, by_client: list[list[Event]], by_router: list[list[Event]]
    ) -> bool:
        product = self.product
        if min(draft.sites) < 0:
            return False
        homes: dict[int, int] = {}
        waiting: set[int] = set()
        for channel in draft.channels:
            if channel.c_open and channel.r_open:
                homes[channel.client] = channel.router
                if channel.c2r:
                    waiting.add(channel.client)
        active = {client for client, events in enumerate(by_client) if events}
        for client in active:
            home = homes.get(client)
            if home is None or (home == router and client not in waiting):
                return False
        for other in range(product.n):
            if other == router:
                continue
            busy = bool(by_router[other]) or any(homes.get(client) == other for client in active)
            inbox = draft.inboxes[product.pair[router, other]]
            if busy and (not inbox or inbox[0] == DOWN):
                return False
            # It may write to its clients, but these write to it, and not here.
        return True


def deeds(offers: Offers, closes: bool) -> list[Input]:
    """What the application can do, but for connecting."""
    possible: tuple[tuple[bool, Input], ...] = (
        (offers.send, ("send",)), (offers.settle, ("settle",)), (offers.accept, ("accept", 0)),
        (closes and offers.close, ("close",)),
    )  # fmt: skip
    return [deed for can, deed in possible if can]
