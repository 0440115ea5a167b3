"""The named schedules (`scenarios/`), recorded as plain data, and played again with changes (`variations.py`).

A schedule is a function that holds events back. A recording says who takes part, and what happened in which order. A
step that only reads, or happens by itself, is recorded alone. Any other step is deliberate: it is recorded with the
events that could have happened then and did not. So a player knows which events were held back, and lets the others
happen first, whatever has been changed before.

Each schedule is recorded once, when it is first needed, and never while a deliberate defect is in the product. `Player`
plays the steps as the beginning of a random schedule. When time may pass, and what is possible, is the same as in all
random schedules except for what is said here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from chaos.simulation.defects.taking import nothing_is_taken
from chaos.simulation.random.plan import Beginning, ClientPlan, Step
from chaos.simulation.scenarios import SCENARIOS, kinds
from chaos.simulation.world.clients import UNIQUE, Client
from chaos.simulation.world.faulty_world import FaultyWorld
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.real_clients import OURS, RealClient, RealPublisher
from chaos.simulation.world.real_subscribers import RealSubscriber
from chaos.simulation.world.subscribers import Subscriber
from chaos.simulation.world.world import Event
from router.config import AddressConfig

if TYPE_CHECKING:
    from chaos.simulation.random.explore import Run

# What happens by itself unless it is held back:
BY_ITSELF = frozenset((
    "up", "down", "msg", "turn", "c2r", "r2c", "rnotice", "cnotice", "cquit", "settle", "accept", "disk", "start",
))  # fmt: skip
BETWEEN_ROUTERS = frozenset(("up", "down", "msg"))
BOUND = 400  # events within which all that happens by itself has happened
ANYTHING: Event = ("anything",)  # a step: something by chance
FAULT: Event = ("fault",)  # ... a fault
IN_ANY_ORDER: Event = ("in any order",)  # what is not held back happens by itself, in any order
SAID = frozenset(("hb", "show", "close"))
LONGEST_END = 60  # steps, of how a schedule ends: publishers that answer nothing may take hundreds
HABITS = ("timeout", "policy", "rcv", "snd", "notes", "part", "frame", "size", "stops", "aborts", "ttl_ms", "groups")

NOT_RECORDED = {
    "address_is_forgotten_with_its_last_subscription": "its only subscriber leaves for good: nobody can send any more",
    "address_is_forgotten_with_a_publisher_that_proved_nothing": "has no subscriber, so that nobody can send anything",
    "L1_plain_incarnation_unknown_to_the_other_side": "shows a limit (protocol 14)",
    "L2_memory_lost_before_the_claim": "shows a limit (protocol 14)",
    "incarnation_never_goes_back": "begins as L1 does: a publisher without epochs on both sides of a partition",
    "sign_of_life_read_late_plain": "its publisher forgets by hand that it has had credit",
    "attach_and_detach_read_late": "its publisher detaches by hand: `quit` is what random schedules have",
    "publisher_away_while_its_timeout_is_lowered": "a setting changes in it, which random schedules have not",
    "publisher_at_a_router_that_not_all_have_in_their_file": "the routers of a file change in it",
    "publisher_at_a_router_that_is_removed": "the routers of a file change in it",
    "closed_at_one_router_only": "files change in it, and nothing excuses a loss there",
    "dropped_by_an_operator": "a router gives the subscription up by hand",
    "forgotten_publisher_comes_back": "a router has the publisher forgotten by hand",
    "forgotten_where_it_had_moved": "a router has the publisher forgotten by hand",
    "forgotten_is_told_to_who_was_away": "a router has the publisher forgotten by hand",
    "forgotten_by_a_router_that_dies": "a router has the publisher forgotten by hand",
    "begun_anew_without_its_memory": "its second process is played by hand",
    "dropped_while_attached": "a router gives the subscription up by hand",
    "gone_router_comes_back_and_knows_nothing": "a second router is cut off while the first one is",
    "filtered_what_it_holds": "its subscriber gets a filter by hand",
    "large_resumed_and_another_message": "the size of its publisher's messages changes by hand",
    "large_resumed_and_nobody_goes_on": "the size of its publisher's messages changes by hand",
    "large_resumed_and_another_has_the_turn": "the size of its publisher's messages changes by hand",
    "large_resumed_and_another_has_the_turn_for_long": "the size of its publisher's messages changes by hand",
    "removed_when_all_have_removed_it": "its declared subscriber never attaches, so what is sent waits",
    "removed_with_a_link": "its subscriber is turned away",
    "removed_and_back_before_all_know": "its subscriber is turned away, and comes back by hand",
    "closed_and_back": "its declared subscriber leaves and comes back by hand",
    "undeclared_where_the_set_is_closed": "its subscriber stays refused",
    "no_acknowledgement_though_there_is_a_path": "what a router says is lost by hand, but heartbeats",
    "accepted_by_one_who_has_left": "its only subscriber leaves, and what others would send waits",
    "started_fresh_beside_others": "its router is started fresh, which random schedules never do beside others",
    "known_by_a_hello_of_the_attach_itself": "all routers die in it, and nobody is left who could be told of a loss",
    **dict.fromkeys(
        (
            "queue_too_large_for_the_nearest", "queue_too_large_for_all_but_who_is_away",
            "queue_too_large_for_all_but_who_leaves", "queue_too_large_for_a_former_link",
        ),
        "its consumers say by hand how much they take",
    ),
    "queue_higher_priority_first": "its consumer gets its credit by hand",
    "queue_browser_sees_what_waits": "random schedules have no browsers",
    "queue_browsed_router_dies": "random schedules have no browsers",
    "queue_expires_where_nobody_has_credit": "its consumer never gives credit, so that what has no ttl waits for ever",
    "life_that_a_map_has_made_up": "its subscriber makes up by hand what it says",
    "leave_of_an_earlier_subscription": "its subscriber leaves and comes back by hand, in one process",
    **{
        name: "a file changes in it: `plan.with_topics` draws that"
        for name, schedule in SCENARIOS.items() if schedule.__module__ == kinds.__name__
    },
}  # fmt: skip
"""Schedules that are not recorded, and why."""


@dataclass(frozen=True)
class Recording:
    """of: the schedule. body: how many steps come before the faults stop. apart: routers may be out of session with
    each other, or clocks jump, or clients have two processes, so that a loss may be excused."""

    of: str
    names: str
    clients: tuple[ClientPlan, ...]
    address: AddressConfig
    config: tuple[tuple[str, Any], ...]
    strict: bool
    apart: bool
    steps: tuple[Step, ...]
    body: int

    @property
    def waits_s(self) -> float:
        return sum((event[1] for event, _ in self.steps[: self.body] if event[0] == "wait"), 0.0)

    @property
    def clocks(self) -> bool:
        """Whether clocks of routers jump."""
        return any(event[0] == "clock" and event[1] in self.names for event, _ in self.steps[: self.body])


# From these events on a loss may be excused, if it is told:
LOOSE = frozenset(("part", "suspect", "cut", "hold", "reshape", "clock", "twin", "still", "late", "away", "pass"))


class Recorder(FaultyWorld):
    check_every = 0  # the tests of the schedules check

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.steps: list[Step] = []
        self.within = False  # inside an event, which makes time pass by itself
        self.strict = named.get("strict", True)
        super().__init__(*arguments, **named)
        self.planned = tuple(planned(client) for client in self.clients.values() if not is_twin(client))

    def step(self, event: Event) -> None:
        if event[0] == "kill":
            journal = self.one(event[1]).journal
            event = (*event[:2], min(event[2], journal.pending() if journal is not None else 0))
        self.note(event)
        self.within = True
        super().step(event)
        self.within = False

    def advance(self, seconds: float, *step: float) -> None:
        if not self.within and seconds > 0:
            self.note(("wait", seconds))
        outside, self.within = self.within, True
        super().advance(seconds, *step)
        self.within = outside

    def note(self, event: Event) -> None:
        if event[0] == "show" and isinstance(self.clients[event[1]], RealClient):
            return  # clients of ours show by themselves that they are there
        if event[0] == "connect":
            event = (*event, self.numbers[event[1]] + 1)
        held = None if event[0] in BY_ITSELF else tuple(e for e in self.enabled() if e[0] in BY_ITSELF)
        self.steps.append((event, held))


def is_twin(client: Client) -> bool:
    return isinstance(client, RealClient) and client.original is not None


def planned(client: Client) -> ClientPlan:
    """Its habits are what it has beside its class: those of a schedule are set before its world is made."""
    habits = {name: value for name in HABITS if (value := getattr(client, name, None)) != usual(client, name)}
    journal = client.journal_kind if isinstance(client, RealClient) else None
    if isinstance(client, Publisher):
        return ClientPlan(client.name, True, client.kind, client.total, habits=habits, journal=journal)
    assert isinstance(client, Subscriber)
    return ClientPlan(client.name, False, client.kind, client.credit, client.keep, habits, journal=journal)


def usual(client: Client, habit: str) -> Any:
    """What a new one of its kind does."""
    kind = {RealPublisher: RealPublisher, RealSubscriber: RealSubscriber, Publisher: Publisher}.get(
        type(client), Subscriber
    )
    return getattr(kind(), habit, None)


@cache
def recordings(name: str) -> tuple[Recording, ...]:
    """Of this schedule: one for each world that it plays in."""
    assert nothing_is_taken(), f"{name} would be recorded with a deliberate defect: draw what is near it before"
    worlds: list[Recorder] = []

    def recorder(*arguments: Any, **named: Any) -> Recorder:
        worlds.append(Recorder(*arguments, **named))
        return worlds[-1]

    SCENARIOS[name](recorder)
    return tuple(recording(name, world) for world in worlds)


def recording(name: str, world: Recorder) -> Recording:
    found = next((i for i, (event, _) in enumerate(world.steps) if event[0] not in BETWEEN_ROUTERS), 0)
    steps = world.steps[found:]  # the network finds together before anything is recorded
    ends = [i for i, (event, _) in enumerate(steps) if event[0] == "heal"]
    body = ends[-1] if ends else len(steps)  # that is how schedules end
    return Recording(
        name, "".join(world.names), world.planned, world.address, tuple(world.config.items()), world.strict,
        any(loosens(*step) for step in steps[:body]), tuple(steps[: body + LONGEST_END]), body,
    )  # fmt: skip


def loosens(event: Event, held: tuple[Event, ...] | None) -> bool:
    """Time that passes before routers have met keeps them apart as a partition does."""
    return event[0] in LOOSE or (event[0] == "wait" and any(each[0] == "up" for each in held or ()))


class Player:
    """Plays recorded steps as far as they are possible. Events left over from a change happen by themselves before the
    next deliberate step, unless they were held back there."""

    def __init__(self, run: Run, beginning: Beginning) -> None:
        self.run, self.beginning = run, beginning
        self.connections: dict[Any, Any] = {}  # connection in the recording -> connection here

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
        """Lets happen first what timeouts count on. Meanwhile, clients that are there send signs of life."""
        run = self.run
        if not may_wait(run, seconds):
            self.catch_up([], False)
        if may_wait(run, seconds):
            run.step(("wait", seconds))
        elif run.family.expiry and run.nobody_waits():
            run.step(("pass", seconds))


def without_number(event: Event) -> Event:
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
    between routers read, and a sign of life given in a bounded time. Where no timeout may run out, all waits together
    stay below it: those at the end of a schedule, too, where it may be somebody else who is away."""
    beginning = run.plan.beginning
    if beginning is not None and len(run.events) < beginning.exact and run.as_recorded():
        return True
    if not run.family.expiry and run.world.now + seconds > run.address.subscription_timeout_s - run.family.lasts_s:
        return False
    w, late = run.world, run.world.now + seconds - run.fresh_s
    if any(run.is_late(pipe, late) for pipe in w.pipes.values()):
        return False
    if run.family.strict and w.has_unread():
        return False
    if seconds < run.address.margin_s:
        return True
    return run.nobody_waits() and not any(
        publisher.kind == UNIQUE and publisher.state != "off" for publisher in w.publishers
    )
