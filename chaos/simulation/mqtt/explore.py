"""Random schedules of MQTT clients, with AMQP publishers at their topic: what happens next is drawn, faults among it;
then all drains (protocol 6.11, 7.9, 16.12).

One router dies at a time: the next when all are there again and every map is kept at two of them, which is what the
contract promises. Connections of clients are lost at any time, and sessions between routers begin anew.
"""

from __future__ import annotations

import random

from chaos.simulation.defects.taking import defective
from chaos.simulation.mqtt.amqp import AmqpPublisher
from chaos.simulation.mqtt.clients import Member, Publisher, Subscriber
from chaos.simulation.mqtt.net import CLASHING, Event, Net
from chaos.simulation.world.checker import Violation

STEPS = 20_000
PATIENCE_S = 60.0


def explore(seed: int) -> tuple[Net, Violation | None]:
    """Plays one schedule. Returns the net, and what was violated."""
    rng = random.Random(f"mqtt {seed}")
    publishers = [Publisher(f"p{i}", rng.randint(2, 8), rng.choice([1, 2, 4])) for i in range(rng.randint(1, 2))]
    subscribers = [Subscriber(f"s{i}", rng.choice([1, 2, 4])) for i in range(rng.randint(1, 2))]
    names = "ABC"[: rng.choice([2, 3, 3])]
    members = [Member(f"m{i}", rng.choice([1, 2, 4])) for i in range(rng.choice([0, 0, 1, 2, 3]))]
    amqp = [AmqpPublisher(f"a{i}", rng.randint(2, 8)) for i in range(rng.choice([0, 1, 1]))]
    net = Net(names, publishers, subscribers, members, named=seed % 2 == 0, amqp=amqp)
    clocks = random.Random(f"clocks {seed}")
    if clocks.random() < 0.3:
        net.ahead_s = {name: clocks.choice([0.0, 0.3, -30.0, 7200.0]) for name in names}
    try:
        with defective(CLASHING):
            play(net, rng)
            drain(net, rng)
    except Violation as violation:
        return net, violation
    except AssertionError as error:
        return net, Violation(f"I {error}")
    return net, None


def play(net: Net, rng: random.Random) -> None:
    budget = {"crash": rng.randint(0, 3), "lose": rng.randint(0, 5), "part": rng.choice([0, 0, 2])}
    if net.ahead_s:  # only clocks tell where a publisher is of which routers that are apart know (protocol 14)
        budget["part"] = 0
    # who joins while routers are apart may have missed something, and its session ends
    budget["leave"] = 0 if budget["part"] else 2
    pace, slow = rng.choice([0.01, 0.03, 0.1]), rng.random() < 0.5
    for client in net.clients.values():  # whoever is subscribed from the start misses nothing
        if isinstance(client, Subscriber):
            net.happen(("connect", client.name, rng.choice(net.names)))
    for _ in range(rng.randint(50, 600)):
        events = net.enabled()
        if rng.random() < pace:
            events = faults(net, rng, budget) or events
        elif slow and len(events) > 1 and rng.random() < 0.7:  # some channels lag
            events = events[: max(1, len(events) // 2)]
        if not events:
            return
        event = rng.choice(events)
        if event[0] in budget or event[0] == "drop" or event[2:3] == ("attach",):
            kind = event[0] if event[0] in budget else "lose"
            budget[kind] = budget.get(kind, 0) - 1
        net.happen(event)


def faults(net: Net, rng: random.Random, budget: dict[str, int]) -> list[Event]:
    events: list[Event] = [("restart", name) for name in net.names if name not in net.routers]
    if budget["crash"] > 0 and net.recovered():
        events += [("crash", name) for name in net.routers]
    if budget["lose"] > 0:
        events += [("drop", client.name) for client in net.clients.values() if client.connection is not None]
        events += [("amqp", each.name, "attach", router) for each in net.amqp.values() for router in net.routers]
    if budget["leave"] > 0:
        events += [
            # one stays, without which there may be no shared subscription
            ("leave", member.name)
            for member in net.members[0 if net.named else 1 :]
            if member.ready
        ]
    joined = all(each.subscribed for each in [*net.subscribers, *net.members])
    if budget["part"] > 0 and joined and net.recovered():  # a keeper that cannot be asked counts as dead
        events += [("part", a, b) for a, b in net.wires if a < b]
    return events


def drain(net: Net, rng: random.Random) -> None:
    """Faults have stopped: everything drains, in a bounded time (G4)."""
    for name in net.names:
        if name not in net.routers:
            net.happen(("restart", name))
    waited = 0.0
    for _ in range(STEPS):
        events = net.enabled()
        if events:
            net.happen(rng.choice(events))
        elif net.left_over() and waited < PATIENCE_S:
            waited += 1.0
            net.happen(("wait", 1.0))
        else:
            break
    left = net.left_over()
    if left:
        raise Violation(f"G4 {left[0]}")
    for subscriber in net.subscribers:
        missed = [mid for mid in net.checker.required if mid not in net.checker.received_by(subscriber.name)]
        needed = [
            mid for mid in missed if any(life.subscriber == subscriber.name for life in net.checker.required[mid])
        ]
        if needed:
            raise Violation(f"G1 {subscriber.name} never gets {needed[0]}")
    missed = [mid for mid in net.group.required if mid not in net.group.acceptors]
    if missed and net.members:
        raise Violation(f"G1 no member gets {missed[0]}")
