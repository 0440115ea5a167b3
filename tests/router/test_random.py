"""Random schedules of crashes, restarts, lost connections and joins, against the guarantees G1 to G4.

A few hundred short ones: two to four cores, clients of every kind, each message and each frame delivered when the dice
say so.  A failure prints its seed; `RERUN` below runs that one alone.  Longer and stranger schedules, against the whole
stack, are in `chaos/simulation`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from router.config import AddressConfig
from router.peers.wire import decode
from tests.router.harness import TOPIC, Mesh
from tests.router.random_clients import Client, Publisher, PublisherLink, Subscriber

RERUN: int | None = None
FOREVER = AddressConfig(
    subscription_timeout_s=1e6, publisher_timeout_s=3e6, no_subscribers="accept", max_redeliveries=10**6
)


class World:
    """A mesh, its clients, and an observer who knows everything."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        names = "abcd"[: rng.choice([1, 2, 3, 3, 4])]
        self.mesh = Mesh(names, address=FOREVER, fresh=rng.random() < 0.5, joined=False, discovery_s=1e9)
        self.links: list[Any] = []
        self.total = rng.choice([3, 6, 12])
        self.crashes = rng.choice([0, 1, 2, 3])
        self.drops = rng.choice([0, 1, 3, 5])
        self.releases = rng.choice([0, 0, 2, 5])
        self.publishers = [Publisher(self, f"p{i}", rng.random() < 0.6) for i in range(rng.choice([1, 2]))]
        self.subscribers = [
            Subscriber(self, f"s{i}", rng.random() < 0.7, rng.choice([1, 2, 10])) for i in range(rng.choice([1, 2, 3]))
        ]
        self.clients: list[Any] = [*self.publishers, *self.subscribers]
        self.halves: set[tuple[str, str]] = set()  # (x, y): x has not noticed yet that y has died
        self.due: dict[str, set[str]] = {}  # a confirmed subscription -> what it has processed
        self.required: dict[str, list[str]] = {}
        self.shown: dict[tuple[str, str], int] = {}
        self.newest: dict[str, set[str]] = {}
        self.ever: set[tuple[str, str]] = set()

    # the observer

    def confirmed(self, subscriber: str) -> None:
        self.due.setdefault(subscriber, set())

    def sent(self, publisher: str, number: int) -> None:
        self.required[f"{publisher} {number}"] = list(self.due)

    def accepted(self, publisher: str, number: int, rejected: int) -> None:
        assert rejected <= len(self.subscribers)
        body = f"{publisher} {number}"
        for subscriber in self.required[body]:
            assert body in self.due[subscriber], f"G1: {body!r} is accepted, {subscriber} has not accepted it"

    def presented(self, subscriber: str, body: str, recovering: bool) -> None:
        publisher, number = body.split()
        seen = self.newest.setdefault(subscriber, set())
        if recovering:
            assert body not in seen, f"G2: {subscriber} gets {body!r} twice"
        if (subscriber, body) not in self.ever:
            last = self.shown.get((subscriber, publisher), -1)
            assert int(number) > last, f"G3: {subscriber} sees {body!r} after {last}"
            self.shown[subscriber, publisher] = int(number)
        self.ever.add((subscriber, body))
        seen.add(body)

    def given_back(self, subscriber: str, body: str) -> None:
        self.newest[subscriber].discard(body)

    def processed(self, subscriber: str, body: str) -> None:
        done = self.due.setdefault(subscriber, set())
        assert body not in done, f"G2: {subscriber} processes {body!r} twice"
        done.add(body)

    # the dice

    def possible(self, faults: bool) -> list[tuple[float, Callable[[], None]]]:
        mesh, rng = self.mesh, self.rng
        found: list[tuple[float, Callable[[], None]]] = []
        for (a, b), wire in mesh.wires.items():
            if wire and b in mesh.cores:
                found.append((8, lambda a=a, b=b: self.message(a, b)))  # type: ignore[misc]
        for link in self.links:
            if link.router is not None and link.to_router:
                found.append((8, link.to_router.popleft))
            if link.client is not None and link.to_client:
                found.append((8, link.to_client.popleft))
            if link.router is not None and link.client is None:
                found.append((1, lambda link=link: self.router_notices(link)))  # type: ignore[misc]
            if link.client is not None and link.router is None and not link.to_client:
                found.append((3, link.client.lose))
        for x, y in sorted(self.halves):
            found.append((3, lambda x=x, y=y: self.notice(x, y)))  # type: ignore[misc]
        for a in mesh.cores:
            for b in mesh.cores:
                if a < b and (a, b) not in mesh.wires and not {(a, b), (b, a)} & self.halves:
                    found.append((4, lambda a=a, b=b: mesh.join(a, b)))  # type: ignore[misc]
        for client in self.clients:
            if client.link is None and mesh.cores:
                found.append((3, lambda client=client: client.connect(rng.choice(list(mesh.cores)))))  # type: ignore[misc]
            elif faults and self.drops:
                found.append((0.3, lambda client=client: self.drop(client)))  # type: ignore[misc]
        for publisher in self.publishers:
            if publisher.on:
                if publisher.sent < self.total and list(publisher.unsettled.values()).count(False) < 4:
                    found.append((3, publisher.send))
                if True in publisher.unsettled.values():
                    found.append((3, publisher.settle))
        found += [(3, subscriber.accept) for subscriber in self.subscribers if subscriber.waiting]
        if faults and self.releases:
            found += [(1, lambda s=s: self.release(s)) for s in self.subscribers if s.waiting and s.on]  # type: ignore[misc]
        for name in mesh.names:
            if name not in mesh.cores:
                found.append((1, lambda name=name: self.restart(name)))  # type: ignore[misc]
            elif faults and self.crashes:
                found.append((0.3, lambda name=name: self.crash(name)))  # type: ignore[misc]
        return found

    def step(self, possible: list[tuple[float, Callable[[], None]]]) -> None:
        ((_, act),) = self.rng.choices(possible, [weight for weight, _ in possible])
        if isinstance(getattr(act, "__self__", None), deque):
            act = act()  # type: ignore[assignment]
        act()
        for core in self.mesh.cores.values():
            if self.rng.random() < 0.7:
                core.flush(0.0)
        self.links = [link for link in self.links if link.client is not None or link.router is not None]

    def message(self, a: str, b: str) -> None:
        self.mesh.cores[b].peer_message(a, decode(self.mesh.wires[a, b].popleft()), 0.0)

    def drop(self, client: Client) -> None:
        self.drops -= 1
        client.lose()

    def release(self, subscriber: Subscriber) -> None:
        self.releases -= 1
        subscriber.release()

    def router_notices(self, link: Any) -> None:
        if isinstance(link, PublisherLink):
            link.core.detach_publisher(link, False, 0.0)
        else:
            link.core.detach_subscriber(link, False, 0.0)
        link.router = None
        link.to_router.clear()

    def crash(self, name: str) -> None:
        self.crashes -= 1
        mesh = self.mesh
        del mesh.cores[name]
        for a, b in list(mesh.wires):
            if b == name:
                del mesh.wires[a, b]
                if a in mesh.cores:
                    self.halves.add((a, name))  # what it sent may still arrive before a notices
        self.halves = {(x, y) for x, y in self.halves if x != name}
        for link in self.links:
            if link.router == name:
                link.router = None
                link.to_router.clear()

    def notice(self, x: str, y: str) -> None:
        self.halves.discard((x, y))
        self.mesh.wires.pop((y, x), None)
        self.mesh.cores[x].peer_down(y, 0.0)

    def restart(self, name: str) -> None:
        self.mesh.start(name)

    def boot_and_recover(self) -> bool:
        """Discovery and recovery end: everybody who is there has been heard of, every subscription is back."""
        cores = self.mesh.cores
        acted = False
        for core in cores.values():
            heard_of_all = set(core.up) == set(cores) - {core.name}
            if not core.booted and heard_of_all:
                core.startup.boot()
                acted = True
            elif core.booted and not core.established and heard_of_all and self.all_are_back():
                core.startup.recover(core.startup.times.pending)
                acted = True
            core.drain()
        return acted

    def all_are_back(self) -> bool:
        return all(subscriber.on or not subscriber.confirmed for subscriber in self.subscribers)

    def run(self) -> None:
        for _ in range(self.rng.choice([60, 120, 200])):
            possible = self.possible(faults=True)
            if not possible:
                break
            self.step(possible)
        self.settle_down()
        for publisher in self.publishers:  # a heartbeat, if nothing else (protocol 5.2)
            if publisher.link is not None:
                publisher.link.core.proved(publisher.link, 0.0)
        self.settle_down()
        for core in self.mesh.cores.values():
            address = core.addresses.get(TOPIC)
            for publisher in list(address.ingress.publishers.values()) if address else []:
                assert address is not None
                address.streams.flush_due(publisher)  # publisher_timeout passes (protocol 8.5)
                core.drain()
        self.settle_down()
        self.check_at_rest()

    def settle_down(self) -> None:
        """No more faults."""
        for _ in range(20_000):
            possible = self.possible(faults=False)
            if possible:
                self.step(possible)
                continue
            for core in self.mesh.cores.values():
                core.flush(0.0)
            if not self.possible(faults=False) and not self.boot_and_recover():
                return
        raise AssertionError("G4: it does not settle down")

    def check_at_rest(self) -> None:
        for publisher in self.publishers:
            assert publisher.sent == self.total, f"G4: {publisher.name} could not send everything"
            assert not publisher.unsettled, f"G4: {publisher.name} has {publisher.unsettled}"
        for subscriber in self.subscribers:
            assert not subscriber.unsettled, f"G4: {subscriber.name} has {subscriber.unsettled}"
        assert all(core.established for core in self.mesh.cores.values())
        self.mesh.assert_settled()


@pytest.mark.parametrize("block", range(8))
def test_random_schedules_keep_the_guarantees(block: int) -> None:
    for seed in [RERUN] if RERUN is not None else range(50 * block, 50 * block + 50):
        world = World(seed)
        try:
            world.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\nrerun: set RERUN = {seed}") from error
