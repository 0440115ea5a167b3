"""Everything that can happen to three members in small worlds: all orders of deliveries, changes of leaders, and stops."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

from edges.queue.elements import Elements
from edges.queue.lamport import Lamport
from edges.queue.messages import Decision, Element, ElementId, Message, Record
from edges.queue.paxos import Paxos
from tests.edges.queue.world import Process, Queue, Violation, World


class Named:
    """In place of a group: it names whom the exploration names."""

    leader: str | None = None

    def receive(self, sender: str, message: Message, now: float) -> None: ...

    def messages(self) -> list[Message]:
        return []

    def events(self) -> list[Any]:
        return []

    def tick(self, now: float) -> None: ...


class SmallWorld(World):
    """Three members; which of them may lead in turn, and which may stop once and start again, is given."""

    def __init__(self, make: Callable[[str, list[str], int, list[Record]], Queue]) -> None:
        super().__init__(0, make, 3)
        self.random = None  # type: ignore[assignment]  # nothing is left to chance
        self.to_lead: list[str] = []
        self.to_restart: list[str] = []

    def start(self, name: str) -> None:
        self.lives[name] += 1
        queue = self._make(name, self.names, self.lives[name], list(self.kept[name]))
        self.processes[name] = Process(queue, Named(), self.lives[name])  # type: ignore[arg-type]
        self.carry_out(name)

    def _send(self, sender: str, message: Message) -> None:
        """A decision reaches nobody else: the worlds stay small, and whoever leads next must find out by itself."""
        if not isinstance(message, Decision):
            super()._send(sender, message)

    def hold(self, name: str, number: int) -> None:
        """This member alone holds an element, as if its writer had stopped while it said so."""
        element = Element(ElementId("z", 1, number), b"z%d" % number)
        self.enqueued[element.id] = element.body
        self.processes[name].queue.elements.add(element)

    def steps(self) -> list[tuple[str, Any]]:
        steps: list[tuple[str, Any]] = [("deliver", key) for key in self.deliverable()]
        steps += [("lead", self.to_lead[0])] if self.to_lead else []
        return steps + [("restart", name) for name in self.to_restart]

    def take(self, step: tuple[str, Any]) -> None:
        kind, which = step
        if kind == "deliver":
            self.deliver(which)
        elif kind == "lead":
            self.to_lead.pop(0)
            self.processes[which].group.leader = which  # type: ignore[misc]
            self.carry_out(which)
        else:
            self.to_restart.remove(which)
            self.stop(which)
            self.start(which)

    def state(self) -> Any:
        channels = {key: channel for key, channel in self.channels.items() if channel}
        processes = {
            name: (process.queue, process.open, process.group.leader) for name, process in self.processes.items()
        }
        return _canonical((processes, channels, self.dequeued, self.decisions, self.to_lead, self.to_restart))


def explore(world: SmallWorld, at_end: Callable[[SmallWorld], None] = lambda _: None, most: int = 200_000) -> int:
    """Take all steps in all orders; `at_end` judges each world in which no step is left.

    Returns:
        How many states there are.
    """
    seen: set[int] = set()
    todo = [pickle.dumps(world)]
    while todo:
        saved = todo.pop()
        steps = pickle.loads(saved).steps()
        if not steps:
            at_end(pickle.loads(saved))
        for step in steps:
            following: SmallWorld = pickle.loads(saved)
            following.take(step)
            state = hash(following.state())
            if state not in seen:
                assert len(seen) < most, "the world is too large to be explored"
                seen.add(state)
                todo.append(pickle.dumps(following))
    return len(seen)


def nobody_waits(world: SmallWorld) -> None:
    """All that was asked for was answered."""
    if not world.nobody_waits():
        raise Violation("a member waits for ever")


def _canonical(value: Any) -> Any:
    """Hashable, and equal for equal states. The order of a dict says nothing, except which element is the oldest."""
    match value:
        case Elements():
            return (tuple(value._held), _canonical(value._popped_below), frozenset(value._popped))
        case Lamport() | Paxos():
            return tuple(_canonical(part) for name, part in vars(value).items() if name not in ("name", "_members"))
        case dict():
            return frozenset((key, _canonical(part)) for key, part in value.items())
        case set():
            return frozenset(value)
        case list() | deque():
            return tuple(value)
        case tuple() if type(value) is tuple:
            return tuple(_canonical(part) for part in value)
        case _:
            return value
