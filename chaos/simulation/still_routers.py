"""Routers whose process stands still (suspended) in a simulated world, and goes on when others have given them up.

`still`, `wake` and `late` of `real_world.py`, with a router's name. Its kernel goes on: what is written to it waits, as
does what says that a trunk is over. While it stands still `sites` has nothing in its place, as if it were dead, but
`asleep` has it. Another event, as a tuple:

    cquit C         the client of connection C hears nothing of its router, and gives it up
"""

from __future__ import annotations

from typing import Any

from chaos.simulation.pipes import Pipe
from chaos.simulation.real_world import RealWorld
from chaos.simulation.routers import Site
from chaos.simulation.world import Event

STEP_S = 0.4
OF_READER = ("c2r", "gulp", "bit", "rnotice", "rdrop")  # what a router does with a client's connection


class StillRouters(RealWorld):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.asleep: dict[str, Site] = {}
        self.over: dict[str, list[tuple[Any, bytes]]] = {}  # its ends of trunks that are over, and what it had to read
        super().__init__(*arguments, **named)

    def reads(self, pipe: Pipe) -> bool:
        """Whether the router at this end is there to read."""
        site = self.asleep.get(pipe.router)
        return site is None or site.incarnation != pipe.incarnation

    def awake(self, events: list[Event]) -> list[Event]:
        events = super().awake(events)
        if not self.asleep:
            return events
        return [event for event in events if event[0] not in OF_READER or self.reads(self.pipes[event[1]])]

    def besides(self, events: list[Event]) -> list[Event]:
        events = super().besides(events)
        if self.asleep:
            events += [("cquit", cid) for cid, pipe in self.pipes.items() if pipe.c_open and not self.reads(pipe)]
        return events

    # ------------------------------------------------------------------ events
    def do_still(self, name: str) -> None:
        if name in self.clients:
            super().do_still(name)
            return
        self.due.pop(name, None)
        self.asleep[name] = self.site(name)
        self.unusual = True
        for pair in self.trunks:
            if name in pair:
                wire = self.wires[self.trunks[pair][1 - pair.index(name)]]
                if wire.held is None:
                    wire.held = bytearray()
        self.sites[name] = self.to_read = None

    def do_wake(self, name: str, timers_first: bool = False) -> None:
        """timers_first: it looks at its clock before it reads."""
        if name in self.clients:
            super().do_wake(name)
            return
        self.sites[name] = self.asleep.pop(name)
        self.to_read = None
        self.unusual = bool(self.asleep or self._ours)
        self.deadlines.pop(name, None)
        if timers_first:
            self.tick(name)
        for pair, ends in list(self.trunks.items()):
            if name in pair and (pair[1 - pair.index(name)], name) not in self.one_way:
                wire = self.wires[ends[1 - pair.index(name)]]
                held, wire.held = wire.held, None
                if held:
                    wire.sink.receive_data(bytes(held), self.now)
        for end, unread in self.over.pop(name, ()):
            if unread:
                end.receive_data(unread, self.now)
            end.receive_eof(self.now)
        self.links_changed = True

    def do_late(self, name: str, timers_first: bool = False) -> None:
        if name in self.clients:
            super().do_late(name)
            return
        end = self.now + self.address.publisher_expires_s + self.address.margin_s + 1
        while self.now < end:
            self.advance(STEP_S)
            self.answer()
        self.do_wake(name, timers_first)

    def do_cquit(self, cid: tuple[str, int]) -> None:
        self.do_cdrop(cid)

    # ------------------------------------------------------------------ its trunks
    def cut_trunk(self, a: str, b: str) -> None:
        """Not as long as nobody has noticed; then it is the other one's end only."""
        name = next((each for each in (a, b) if each in self.asleep), None)
        if name is None:
            super().cut_trunk(a, b)
            return
        here = (a, b).index(name)
        own, other = self.trunks[a, b][here], self.trunks[a, b][1 - here]
        peer = (a, b)[1 - here]
        if (self.sites[peer] is not None or peer in self.asleep) and not other.closed and self.linked(a, b):
            return
        del self.trunks[a, b]
        held = self.wires.pop(other).held
        del self.wires[own]
        self.ends[name].remove(own)
        self.ends[peer].remove(other)
        self.over.setdefault(name, []).append((own, bytes(held or b"")))
        if peer in self.asleep:
            self.over.setdefault(peer, []).append((other, b""))
        else:
            other.receive_eof(self.now)
