"""What makes the events of a random schedule come in a rhythm of its own, as the plan has drawn it.

If each event were as likely at any time, most of what needs several in one order would never be seen: that a connection
lies unread while its client is at work elsewhere, that one subscriber accepts nothing for long, that whoever has just
attached is gone. So what is to happen in some place stands still for a while, in several places at once; what a client
wrote before it went may lie unread for longer than all else, while it is elsewhere; and faults follow on what they
concern. A schedule that is played again (`shrink.py`) has no tempo, only its events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulation.world import Event

if TYPE_CHECKING:
    from chaos.simulation.explore import Run

LASTS = (5, 20, 60, 200)  # events, while something stands still
LIES = (20, 60, 120, 240)  # ... while what a client wrote before it went lies unread
LEAVES = frozenset(("cdrop", "cnotice", "pfresh", "srestart", "sfresh", "kill"))  # a client loses its connection
READ_BY_ROUTER = ("c2r", "gulp", "bit")
READ_BY_CLIENT = ("r2c", "cbit")
BETWEEN_ROUTERS = ("msg", "up", "down")


class Tempo:
    def __init__(self, run: Run) -> None:
        self.run, self.rng = run, run.rng
        self.stale, self.slowness = run.plan.stale, run.plan.slowness
        self.followed = {before for before, _, _ in run.plan.follows}
        self.slow: dict[Event, int] = {}  # how events begin that do not happen -> until how many have
        self.kinds: set[str] = set()  # of these
        self.soonest = 0  # the least of these

    def going_on(self, usual: list[Event], number: int) -> list[Event]:
        """Those that do not stand still. number: of events so far."""
        rng = self.rng
        if rng.random() < self.slowness and usual:
            kind = rng.choice(
                [*dict.fromkeys([event[0] for event in usual])]
            )  # as likely as any, however many there are
            self.stop(beginnings(rng.choice([event for event in usual if event[0] == kind])), number, LASTS)
        if not self.slow:
            return usual
        if number >= self.soonest:
            self.slow = {beginning: until for beginning, until in self.slow.items() if until > number}
            self.note()
        slow, kinds = self.slow, self.kinds
        return [event for event in usual if event[0] not in kinds or (event[:2] not in slow and event not in slow)]

    def stop(self, beginnings: list[Event], number: int, lasts: tuple[int, ...]) -> None:
        until = number + self.rng.choice(lasts)
        self.slow.update(dict.fromkeys(beginnings, until))
        self.note()

    def note(self) -> None:
        self.kinds = {beginning[0] for beginning in self.slow}
        self.soonest = min(self.slow.values(), default=0)

    def after(self, event: Event, number: int) -> Event | None:
        """The fault that comes at once."""
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
        """What it has written, and that it has gone; it goes elsewhere meanwhile, if there is anywhere."""
        name = event[1][0] if isinstance(event[1], tuple) else event[1]
        for cid, pipe in self.run.world.pipes.items():
            if cid[0] == name and not pipe.c_open and pipe.r_open:
                self.stop([(kind, cid) for kind in (*READ_BY_ROUTER, "rnotice")], number, LIES)
                self.stop([("connect", name, pipe.router)], number, LIES)


def beginnings(event: Event) -> list[Event]:
    """Of the events that stand still with this one: a connection is not read in other pieces instead."""
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
