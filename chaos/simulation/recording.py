"""What happens in the named schedules (`scenarios/`), recorded, to be played again with changes (`near.py`).

A schedule is a function that holds events back; a recording is plain data: who takes part, and what happened in which
order. What only reads, or goes on by itself, is a step alone. With anything else, which is what the schedule is about,
goes what could have happened then and did not: whoever plays it again knows what was held back, and lets the rest
happen first, whatever has been changed before.

Each is recorded once, when it is first asked for, with the product as it is: not while a deliberate defect is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from chaos.simulation.clients import Client
from chaos.simulation.defects.taking import nothing_is_taken
from chaos.simulation.plan import ClientPlan, Step
from chaos.simulation.publishers import Publisher
from chaos.simulation.real_clients import RealClient, RealPublisher, RealSubscriber
from chaos.simulation.scenarios import SCENARIOS
from chaos.simulation.subscribers import Subscriber
from chaos.simulation.wild import Wild
from chaos.simulation.world import Event
from router.config import AddressConfig

# What happens by itself unless it is held back:
BY_ITSELF = frozenset((
    "up", "down", "msg", "turn", "c2r", "r2c", "rnotice", "cnotice", "cquit", "settle", "accept", "disk", "start",
))  # fmt: skip
BETWEEN_ROUTERS = frozenset(("up", "down", "msg"))
LONGEST_END = 60  # steps, of how a schedule ends: publishers that answer nothing may take hundreds
HABITS = ("timeout", "policy", "rcv", "snd", "notes", "part", "frame", "size")

LEFT_OUT = {
    "address_is_forgotten_with_its_last_subscription": "its only subscriber leaves for good: nobody can send any more",
    "address_is_forgotten_with_a_publisher_that_proved_nothing": "has no subscriber, so that nobody can send anything",
    "L1_plain_incarnation_unknown_to_the_other_side": "shows a limit (PROTOCOL 14)",
    "L2_memory_lost_before_the_claim": "shows a limit (docs/decisions/core-in-ranges.md)",
    "incarnation_never_goes_back": "begins as L1 does: a publisher without epochs on both sides of a partition",
    "sign_of_life_read_late_plain": "its publisher forgets by hand that it has had credit",
    "attach_and_detach_read_late": "its publisher detaches by hand: `quit` is what random schedules have",
    "leave_of_an_earlier_subscription": "its subscriber leaves and comes back by hand, in one process",
}  # fmt: skip
"""Schedules that are not recorded, and why."""


@dataclass(frozen=True)
class Recording:
    """of: the schedule. body: so many steps come before faults stop. apart: routers may be out of session with each
    other, or clocks jump, or clients have two processes, so that a loss may be excused."""

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
        """Those of routers jump."""
        return any(event[0] == "clock" and event[1] in self.names for event, _ in self.steps[: self.body])


# A loss may be excused, if only told, from these on:
LOOSE = frozenset(("part", "suspect", "cut", "hold", "reshape", "clock", "twin", "still", "late", "away", "pass"))


class Recorder(Wild):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.steps: list[Step] = []
        self.within = False  # an event, which makes time pass by itself
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
            return  # ours show by themselves that they are there
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
