"""How a random schedule begins like a named one: its steps are played as far as they are possible.

`near.py` draws which, and with which changes. When time may pass, and what is possible, is for all random schedules
alike but for what is said here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chaos.simulation.clients import UNIQUE
from chaos.simulation.plan import Beginning
from chaos.simulation.real_clients import OURS
from chaos.simulation.recording import BY_ITSELF
from chaos.simulation.world import Event

if TYPE_CHECKING:
    from chaos.simulation.explore import Run

BOUND = 400  # events, until nothing more happens by itself
ANYTHING: Event = ("anything",)  # a step: something by chance
FAULT: Event = ("fault",)  # ... a fault
IN_ANY_ORDER: Event = ("in any order",)  # what is not held back happens by itself, in any order
SAID = frozenset(("hb", "show", "close"))


def begin_like(run: Run) -> None:
    if run.plan.beginning is not None:
        Beginner(run, run.plan.beginning).play()


class Beginner:
    """Plays the steps as far as they are possible. What is left over from a change happens by itself before the next
    step that does not, unless it was held back there."""

    def __init__(self, run: Run, beginning: Beginning) -> None:
        self.run, self.beginning = run, beginning
        self.connections: dict[Any, Any] = {}  # as they were recorded -> here

    def play(self) -> None:
        run = self.run
        for event, held in self.beginning.steps:
            if held is None:
                here = self.here(event)
                if here in run.world.enabled():
                    run.step(here)
                continue
            self.catch_up([self.here(each) for each in held], event == IN_ANY_ORDER)
            if event in (ANYTHING, FAULT):
                possible = run.usual() if event == ANYTHING else run.faults()
                if possible:
                    run.step(run.pick(possible))
            elif event[0] == "connect":
                self.connect(*event[1:])
            elif event[0] == "wait":
                self.wait(event[1])
            elif event != IN_ANY_ORDER and run.able(here := self.here(event)):
                run.step(here)

    def here(self, event: Event) -> Event:
        return tuple(self.connections.get(each, each) if isinstance(each, tuple) else each for each in event)

    def connect(self, name: str, router: str, number: int) -> None:
        run = self.run
        event = ("connect", name, router)
        if run.able(event):
            run.step(event)
        client = run.world.clients.get(name)  # a twin of one that is of another kind now is not there
        if client is not None and client.pipe is not None:
            self.connections[name, number] = client.pipe.cid

    def catch_up(self, held: list[Event], in_any_order: bool) -> None:
        run = self.run
        for _ in range(BOUND):
            events = [e for e in run.world.enabled() if e[0] in BY_ITSELF and e not in held]
            if not events:
                return
            run.step(run.rng.choice(events) if in_any_order else events[0])

    def wait(self, seconds: float) -> None:
        """What must have happened by then happens first; while so much time passes, who is there says so."""
        run = self.run
        if not may_wait(run, seconds):
            self.catch_up([], False)
        if may_wait(run, seconds):
            run.step(("wait", seconds))
        elif run.family.expiry and run.nobody_waits():
            run.step(("pass", seconds))


def as_it_happens(event: Event) -> Event:
    """Without the number that a connection had when it was recorded."""
    return event[:3] if event[0] == "connect" else event


def may_say(run: Run, event: Event) -> bool:
    """Signs of life, whenever it has a link, and no sooner than named schedules ask for them; also that it leaves."""
    client = run.world.clients.get(event[1])
    if client is None or client.kind == OURS or client.link is None or client.closing:
        return False
    if event[0] == "close":
        return run.budget["close"] > 0 and run.may_leave(client)
    return event[0] == "hb" or bool(client.link.attached)


def may_wait(run: Run, seconds: float) -> bool:
    """Timeouts are longer than what they allow for, as in `Run.may_tick`: a frame is read, a loss noticed, a message
    between routers read, and a sign of life given in a bounded time."""
    if run.as_recorded():
        return True
    w, late = run.world, run.world.now + seconds - run.fresh_s
    if any(pipe.since < late and pipe.c2r and pipe.r_open and w.reads(pipe) for pipe in w.pipes.values()):
        return False
    if run.family.strict and any(any(site.inbox.values()) for site in w.sites.values() if site is not None):
        return False
    if seconds < run.address.margin_s:
        return True
    return run.nobody_waits() and not any(
        publisher.kind == UNIQUE and publisher.state != "off" for publisher in w.publishers
    )
