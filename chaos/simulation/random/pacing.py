"""Gives the events of a random schedule a pace of their own, as the plan has drawn it.

If each event were as likely at any time, many orders of several events would never be seen: a connection stays unread
while its client works elsewhere, one subscriber accepts nothing for long, a client disconnects just after it has
attached. So events pause for a while, in several places at once. What a client wrote before it disconnected may stay
unread for longer than all else, while the client is elsewhere. Faults follow events that concern the same client or
router. A schedule that is played again (`shrink.py`) has no pace, only its events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulation.world.world import Event

if TYPE_CHECKING:
    from chaos.simulation.random.explore import Run

PAUSES = (5, 20, 60, 200)  # events, for which something pauses
STAYS_UNREAD = (20, 60, 120, 240)  # ... while what a client wrote before it disconnected stays unread
LEAVES = frozenset(("cdrop", "cnotice", "pfresh", "srestart", "sfresh", "kill"))  # a client loses its connection
READ_BY_ROUTER = ("c2r", "gulp", "bit")
READ_BY_CLIENT = ("r2c", "cbit")
BETWEEN_ROUTERS = ("msg", "up", "down")


class Pacing:
    def __init__(self, run: Run) -> None:
        self.run, self.rng = run, run.rng
        self.stale, self.pausing = run.plan.stale, run.plan.pausing
        self.followed = {before for before, _, _ in run.plan.follows}
        self.paused: dict[Event, int] = {}  # beginnings of paused events -> number of events at which the pause ends
        self.kinds: set[str] = set()  # the kinds of paused events
        self.soonest = 0  # the end of the pause that ends first

    def without_paused(self, usual: list[Event], number: int) -> list[Event]:
        """Returns the events that are not paused. number: how many have happened."""
        rng = self.rng
        if rng.random() < self.pausing and usual:
            kind = rng.choice(
                [*dict.fromkeys([event[0] for event in usual])]
            )  # as likely as any, however many there are
            self.pause(paused_with(rng.choice([event for event in usual if event[0] == kind])), number, PAUSES)
        if not self.paused:
            return usual
        if number >= self.soonest:
            self.paused = {beginning: until for beginning, until in self.paused.items() if until > number}
            self.note()
        paused, kinds = self.paused, self.kinds
        return [event for event in usual if event[0] not in kinds or (event[:2] not in paused and event not in paused)]

    def pause(self, beginnings: list[Event], number: int, lasts: tuple[int, ...]) -> None:
        until = number + self.rng.choice(lasts)
        self.paused.update(dict.fromkeys(beginnings, until))
        self.note()

    def note(self) -> None:
        self.kinds = {beginning[0] for beginning in self.paused}
        self.soonest = min(self.paused.values(), default=0)

    def after(self, event: Event, number: int) -> Event | None:
        """Returns the fault that follows at once, if any."""
        kind, stale = event[0], self.stale
        if stale and kind in LEAVES and self.rng.random() < stale:
            self.leave_unread(event, number)
        if kind not in self.followed:
            return None
        run, rng = self.run, self.rng
        for before, then, likely in run.plan.follows:
            if before == event[0] and rng.random() < likely:
                names = names_of(event, run)
                found = [fault for fault in run.faults() if fault[0] == then and names & names_of(fault, run)]
                if found:
                    return rng.choice(found)
        return None

    def leave_unread(self, event: Event, number: int) -> None:
        """Pauses what the client has written, and the end of its connection. It may connect elsewhere."""
        name = event[1][0] if isinstance(event[1], tuple) else event[1]
        for cid, pipe in self.run.world.pipes.items():
            if cid[0] == name and not pipe.c_open and pipe.r_open:
                self.pause([(kind, cid) for kind in (*READ_BY_ROUTER, "rnotice")], number, STAYS_UNREAD)
                self.pause([("connect", name, pipe.router)], number, STAYS_UNREAD)


def paused_with(event: Event) -> list[Event]:
    """The events that pause with this one: a connection is not read in other pieces instead."""
    kind = event[0]
    for kinds in (READ_BY_ROUTER, READ_BY_CLIENT):
        if kind in kinds:
            return [(each, event[1]) for each in kinds]
    return [event if kind in BETWEEN_ROUTERS else event[:2]]


def names_of(event: Event, run: Run) -> set[str]:
    """Clients and routers."""
    names: set[str] = set()
    for each in event[1:]:
        if isinstance(each, tuple):
            names.add(each[0])
            pipe = run.world.pipes.get(each)
            if pipe is not None:
                names.add(pipe.router)
        elif isinstance(each, str):
            names.add(each)
    return names
