"""A group of members in virtual time: channels hold what was sent until it is delivered, members stop and start again.

A channel leads from one process to another on one of the two addresses and is FIFO, as the network's topics are. A process
that stops may have said the last things to some and not to others. What is checked knows nothing of the protocols, except
that no two decisions for one place of the log may differ.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from edges.queue.group import Group
from edges.queue.lamport import Lamport
from edges.queue.messages import Decision, Dequeued, Element, ElementId, Keep, Message, Record, Send, Value
from edges.queue.paxos import Paxos

Queue = Lamport | Paxos
ROUNDS_TO_DRAIN = 400
STEP_S = 0.25


class Violation(AssertionError):
    """A promise of the queue was broken."""


class Process:
    """One life of a member."""

    def __init__(self, queue: Queue, group: Group, life: int) -> None:
        self.queue = queue
        self.group = group
        self.life = life
        self.open: set[int] = set()


class World:
    """A group, its channels, and what its applications were handed."""

    def __init__(self, seed: int, make: Callable[[str, list[str], int, list[Record]], Queue], size: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.names = [chr(ord("a") + i) for i in range(size)]
        self.processes: dict[str, Process] = {}
        self.kept: dict[str, list[Record]] = {name: [] for name in self.names}
        self.lives = dict.fromkeys(self.names, 0)
        self.channels: dict[tuple[str, str, bool], deque[Message]] = {}
        self.cut: set[str] = set()  # these hear only each other, the others too
        self.enqueued: dict[ElementId, bytes] = {}
        self.dequeued: list[tuple[str, int, ElementId]] = []
        self.stopped: set[tuple[str, int]] = set()
        self.decisions: dict[int, Value] = {}
        self._make = make
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        self.lives[name] += 1
        life = self.lives[name]
        queue = self._make(name, self.names, life, list(self.kept[name]))
        self.processes[name] = Process(queue, Group(name, life, self.now), life)
        self.carry_out(name)

    def stop(self, name: str, losing: int = 0) -> None:
        """The process ends; of what it had sent, each of the others misses up to the last `losing` messages."""
        process = self.processes.pop(name)
        self.stopped.add((name, process.life))
        for (sender, receiver, _), channel in sorted(self.channels.items()):
            if receiver == name:
                channel.clear()
            elif sender == name:
                for _ in range(self.random.randint(0, min(len(channel), losing)) if losing else 0):
                    channel.pop()

    def enqueue(self, name: str) -> None:
        element = self.processes[name].queue.enqueue(f"{name}{len(self.enqueued)}".encode())
        self.enqueued[element.id] = element.body
        self.carry_out(name)

    def dequeue(self, name: str, *, wait: bool) -> None:
        process = self.processes[name]
        process.open.add(process.queue.dequeue(wait=wait))
        self.carry_out(name)

    def carry_out(self, name: str, most: int | None = None) -> None:
        """Do what the member asks for; `most`: the process ends after so many of these things."""
        process = self.processes[name]
        if isinstance(process.queue, Paxos):
            if process.group.leader == name:
                process.queue.lead(self.now)
            else:
                process.queue.follow()
        process.queue.check_invariants()
        for output in process.queue.outputs()[:most]:
            match output:
                case Send(message):
                    self._send(name, message)
                case Keep(record):
                    self.kept[name].append(record)
                    if isinstance(record, Decision):
                        self._decided(record)
                case Dequeued(ticket, element):
                    process.open.remove(ticket)
                    if element is not None:
                        self._handed_out(name, process.life, element)
        for message in process.group.messages():
            self._send(name, message)
        process.group.events()

    def deliverable(self) -> list[tuple[str, str, bool]]:
        return [
            key
            for key, channel in self.channels.items()
            if channel and key[1] in self.processes and (key[0] in self.cut) == (key[1] in self.cut)
        ]

    def deliver(self, key: tuple[str, str, bool], most: int | None = None) -> None:
        sender, receiver, _ = key
        message = self.channels[key].popleft()
        process = self.processes[receiver]
        process.group.receive(sender, message, self.now)
        process.queue.receive(sender, message, self.now)
        self.carry_out(receiver, most)

    def pass_time(self) -> None:
        self.now += STEP_S
        for name in self.names:
            if name in self.processes:
                self.processes[name].group.tick(self.now)
                self.carry_out(name)
                self.processes[name].queue.tick(self.now)
                self.carry_out(name)

    def settle(self, done: Callable[[], bool], rounds: int = ROUNDS_TO_DRAIN) -> bool:
        """Nothing goes wrong any more: deliver everything and let time pass, until `done`."""
        self.cut.clear()
        for _ in range(rounds):
            for key in self.deliverable():
                while self.channels[key]:
                    self.deliver(key)
            if done():
                return True
            self.pass_time()
        return False

    def nobody_waits(self) -> bool:
        return not any(process.open for process in self.processes.values())

    def drain(self) -> None:
        """Whatever is left is dequeued, by all in turn, until the caches of all are empty."""
        for _ in range(len(self.enqueued) + len(self.names)):
            if not any(len(process.queue.elements) for process in self.processes.values()):
                return
            for name in list(self.processes):
                self.dequeue(name, wait=False)
            if not self.settle(self.nobody_waits):
                raise Violation(f"no progress although {sorted(self.processes)} are alive and hear each other")
        raise Violation("elements are left that nobody gets")

    def check_all_dequeued(self) -> None:
        """Every element whose writer did not stop was dequeued, or decided for a process that has stopped."""
        handed_out = {element for _, _, element in self.dequeued}
        for value in self.decisions.values():
            if value.element is not None and any(value.member == name for name, _ in self.stopped):
                handed_out.add(value.element.id)
        for element in self.enqueued:
            if (element.writer, element.life) not in self.stopped and element not in handed_out:
                raise Violation(f"{element} was never dequeued")

    def _send(self, sender: str, message: Message) -> None:
        for receiver in self.names:
            if receiver in {*self.processes} - {sender} and getattr(message, "to", receiver) == receiver:
                key = (sender, receiver, isinstance(message, Element))
                self.channels.setdefault(key, deque()).append(message)

    def _decided(self, decision: Decision) -> None:
        if self.decisions.setdefault(decision.slot, decision.value) != decision.value:
            raise Violation(f"place {decision.slot}: {self.decisions[decision.slot]} and {decision.value}")

    def _handed_out(self, name: str, life: int, element: Element) -> None:
        if self.enqueued.get(element.id) != element.body:
            raise Violation(f"{element} was never enqueued")
        for other, other_life, dequeued in self.dequeued:
            if dequeued == element.id and not {(other, other_life), (name, life)} & self.stopped:
                raise Violation(f"{element.id} was dequeued by {other} and by {name}")
        self.dequeued.append((name, life, element.id))


def play(world: World, steps: int, *, stops: bool, restarts: bool) -> None:
    """Events at random, then nothing goes wrong any more and everything drains."""
    chance = world.random
    for _ in range(steps):
        event = chance.random()
        alive = list(world.processes)
        name = chance.choice(alive)
        if event < 0.08:
            world.enqueue(name)
        elif event < 0.16:
            world.dequeue(name, wait=False)
        elif event < 0.30:
            world.pass_time()
        elif event < 0.32:
            world.cut = set(chance.sample(world.names, chance.randint(0, len(world.names) // 2)))
        elif event < 0.34 and stops and (len(alive) > len(world.names) // 2 + 1 or restarts):
            if deliverable := [key for key in world.deliverable() if key[1] == name]:
                world.deliver(chance.choice(deliverable), most=chance.randint(0, 3))
            if len(world.processes) > 1:
                world.stop(name, losing=chance.randint(0, 4))
        elif event < 0.40 and restarts and len(alive) < len(world.names):
            world.start(chance.choice([other for other in world.names if other not in world.processes]))
        elif deliverable := world.deliverable():
            key = chance.choice(deliverable)
            for _ in range(chance.randint(1, min(4, len(world.channels[key])))):
                world.deliver(key)
    if restarts:
        while len(world.processes) <= len(world.names) // 2 or (
            len(world.processes) < len(world.names) and chance.random() < 0.5
        ):
            world.start(next(other for other in world.names if other not in world.processes))
    if not world.settle(world.nobody_waits):
        raise Violation(f"no progress although {sorted(world.processes)} are alive and hear each other")
    world.drain()
    world.check_all_dequeued()
