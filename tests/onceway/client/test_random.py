"""Our clients and real routers in one process with virtual time, while connections, routers and clients die at random.

The routers are the product's (`router.Router`), joined by plain lists; the clients are the product's `Endpoint`s with
a journal whose disk is slow.  What a run checks: everything published is accepted once by every subscriber, in each
publisher's order, nothing is handed to an application again that it had accepted durably, and in the end nothing is
left over, neither in clients nor in routers.

    rerun: python -m tests.onceway.client.test_random SEED
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from amqp10.outcomes import ACCEPTED
from amqp10.settings import ConnectionSettings
from onceway.client.bodies import decode_body, encode_body
from onceway.client.protocol.endpoint import Endpoint
from onceway.client.protocol.events import Arrived, Decided, Failed, Gap, Undecided
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.status import records
from router.config import RouterConfig
from router.links.client_connection import ClientConnection
from router.router import Router
from tests.onceway.client.durable import Disk, DurableJournal

WALL_US = 1_700_000_000_000_000


@dataclass
class Line:
    """A client's connection: two streams of bytes, cut anywhere."""

    router: str
    end: ClientConnection | None  # the router's
    up: bytearray = field(default_factory=bytearray)
    down: bytearray = field(default_factory=bytearray)


class Client:
    """One client over its lives."""

    link: PublisherLink | SubscriberLink

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.disk = Disk()
        self.line: Line | None = None
        self.lives = 0
        self.born()

    def born(self) -> None:
        self.lives += 1
        self.journal = DurableJournal(self.disk)
        self.endpoint = Endpoint(
            self.name, self.journal, wall_us=self.world.wall_us, rng=random.Random(self.world.rng.random())
        )
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    def die(self) -> None:
        """kill -9: what the journal had not written is gone."""
        self.line = None
        self.journal.pending.clear()
        self.born()

    def cut(self) -> None:
        self.line = None
        self.endpoint.lost(self.world.now, "cut")
        self.look()

    def look(self) -> None:
        raise NotImplementedError

    def act(self) -> None:
        raise NotImplementedError

    def complete(self) -> bool:
        raise NotImplementedError


class PublishingClient(Client):
    """Publishes `total` messages `name number life`, in order; the number is the link's sequence, so after a crash the
    application goes on behind the last one that the journal has."""

    link: PublisherLink

    def __init__(self, world: World, name: str, total: int) -> None:
        self.total = total
        self.accepted: dict[int, None] = {}
        self.bodies: dict[int, bytes] = {}  # what was put last under each number
        super().__init__(world, name)

    def open(self) -> None:
        self.link = self.endpoint.publisher("orders", "p", "exactly-once", self.world.now)

    def act(self) -> None:
        count = min(self.link.room, self.total - self.link.sequence, self.world.rng.choice([1, 3, 20]))
        if count > 0:
            first = self.link.sequence
            for number in range(first, first + count):
                self.bodies[number] = b"%s %d %d" % (self.name.encode(), number, self.lives)
            payloads = [encode_body(self.bodies[number]) for number in range(first, first + count)]
            self.link.put(payloads, self.world.now)

    def look(self) -> None:
        for event in self.link.take_events():
            if isinstance(event, Decided):
                assert event.state is ACCEPTED, event
                for number in range(event.first, event.last + 1):
                    assert number not in self.accepted, f"{self.name} {number} decided twice"
                    self.accepted[number] = None
            assert not isinstance(event, Undecided | Failed), event

    def complete(self) -> bool:
        return self.link.sequence == self.total and not self.link.unsettled


class SubscribingClient(Client):
    """Accepts what it gets, sometimes out of order, sometimes late."""

    link: SubscriberLink

    def __init__(self, world: World, name: str, credit: int) -> None:
        self.credit = credit
        self.done: dict[bytes, None] = {}  # accepted durably
        self.doing: list[tuple[int, list[bytes]]] = []  # accepted, and when that is durable
        self.order: dict[bytes, int] = {}  # publisher -> last number handed on for the first time
        self.ever: dict[bytes, None] = {}
        super().__init__(world, name)

    def open(self) -> None:
        self.inbox: list[tuple[int, bytes]] = []
        self.doing = []
        self.link = self.endpoint.subscriber(
            "orders",
            "s",
            "exactly-once",
            self.world.now,
            credit=self.credit,
            credit_bytes=1 << 30,
            subscription_timeout_s=None,
        )

    def look(self) -> None:
        for event in self.link.take_events():
            assert not isinstance(event, Gap | Failed), event
            if isinstance(event, Arrived):
                for position, payload in enumerate(event.payloads, event.position):
                    self.handed(position, decode_body(payload))
        while self.doing and self.doing[0][0] <= self.journal.durable:
            for body in self.doing.pop(0)[1]:
                self.done[body] = None

    def handed(self, position: int, body: bytes) -> None:
        assert body not in self.done, f"{self.name} gets {body!r} again, which it has accepted"
        assert body not in [other for _, other in self.inbox], f"{self.name} gets {body!r} twice"
        publisher, number, _ = body.split()
        if body not in self.ever:
            assert int(number) == self.order.get(publisher, -1) + 1, f"{self.name} gets {body!r} out of order"
            self.order[publisher] = int(number)
            self.ever[body] = None
        self.inbox.append((position, body))

    def act(self) -> None:
        if not self.inbox:
            return
        rng = self.world.rng
        start = rng.randrange(len(self.inbox)) if rng.random() < 0.3 else 0
        end = min(len(self.inbox), start + rng.choice([1, 1, 5, 50]))
        run = [self.inbox[start]]
        for item in self.inbox[start + 1 : end]:
            if item[0] != run[-1][0] + 1:
                break
            run.append(item)
        del self.inbox[start : start + len(run)]
        number = self.link.decide(run[0][0], run[-1][0], ACCEPTED, self.world.now)
        self.doing.append((number, [body for _, body in run]))

    def complete(self) -> bool:
        return not self.inbox and not self.doing and not self.link.held and len(self.done) == self.world.published()


class World:
    def __init__(self, seed: int, *, names: str, publishers: int, subscribers: int, total: int) -> None:
        self.rng = random.Random(seed)
        self.now = 1000.0
        self.fault_rate = self.rng.choice([0.01, 0.03])
        self.disk_rate = self.rng.choice([0.2, 0.03])
        self.names = list(names)
        self.routers: dict[str, Router] = {}
        self.ends: dict[str, list[ClientConnection]] = {}
        self.streams: dict[tuple[str, str], deque[bytes]] = {}
        self.clients: list[Client] = []
        for name in names:
            self.start(name, fresh=True)
        self.subscribers = [
            SubscribingClient(self, f"s{number}", self.rng.choice([1, 7, 100])) for number in range(subscribers)
        ]
        self.publishers: list[PublishingClient] = []
        self.clients += self.subscribers
        self.budget = {"cut": 6, "kill": self.rng.choice([2, 12]), "crash": 3}
        # subscriptions exist before anything is published, so that all are owed everything
        self.until(lambda: all(subscriber.link.state == "attached" for subscriber in self.subscribers))
        self.publishers = [PublishingClient(self, f"p{number}", total) for number in range(publishers)]
        self.clients += self.publishers

    def wall_us(self) -> int:
        return WALL_US + int(self.now * 1e6)

    def published(self) -> int:
        return sum(publisher.total for publisher in self.publishers)

    # -- routers

    def start(self, name: str, *, fresh: bool) -> None:
        config = RouterConfig(name=name, routers=tuple(self.names))
        router = Router(
            config, incarnation=self.rng.getrandbits(63) + 1, now=self.now, wall_us=self.wall_us, fresh=fresh
        )
        for other in self.routers:
            self.streams[name, other] = deque()
            self.streams[other, name] = deque()
        self.routers[name] = router
        for other, peer in self.routers.items():
            if other != name:
                router.peer_up(other, self.now)
                peer.peer_up(name, self.now)
        self.carry()

    def crash(self, name: str) -> None:
        del self.routers[name]
        for pair in [pair for pair in self.streams if name in pair]:
            del self.streams[pair]
        for router in self.routers.values():
            router.peer_down(name, self.now)
        for client in self.clients:
            if client.line is not None and client.line.router == name:
                client.line.end = None
        self.carry()

    def carry(self) -> None:
        """Routers' outputs go onto lines and streams."""
        for name, router in self.routers.items():
            router.flush(self.now)
            for peers, data in router.take_messages():
                for peer in peers:
                    if (name, peer) in self.streams:
                        self.streams[name, peer].append(data)
            for end in router.take_dirty():
                data = end.data_to_send()
                for client in self.clients:
                    if client.line is not None and client.line.end is end:
                        client.line.down += data
        for client in self.clients:
            client.look()
            data = client.endpoint.data_to_send()
            if client.line is not None:
                client.line.up += data

    # -- steps

    def step(self, faults: bool) -> None:
        self.now += self.rng.choice([0.0, 0.0001, 0.002, 0.01])
        rng = self.rng
        kind = rng.random()
        if kind < 0.35 and self.streams:
            pairs = [pair for pair, stream in self.streams.items() if stream]
            if pairs:
                sender, receiver = rng.choice(pairs)
                data = self.streams[sender, receiver].popleft()
                self.routers[receiver].peer_message(sender, data, self.now)
        elif kind < 0.9:
            self.client_step(rng.choice(self.clients))
        elif faults and kind < 0.9 + self.fault_rate:
            self.fault()
        else:
            for router in self.routers.values():
                deadline = router.next_deadline()
                if deadline is not None and deadline <= self.now:
                    router.tick(self.now)
            for client in self.clients:
                deadline = client.endpoint.next_deadline()
                if deadline is not None and deadline <= self.now:
                    client.endpoint.handle_timer(self.now)
        self.carry()

    def client_step(self, client: Client) -> None:
        rng = self.rng
        line = client.line
        kind = rng.random()
        if line is None:
            if self.routers and kind < 0.2:
                self.connect(client)
        elif line.end is None and kind < 0.2:
            client.cut()
        elif kind < 0.4:
            if line.up and line.end is not None:
                cut = rng.randrange(len(line.up)) + 1
                data, line.up = bytes(line.up[:cut]), line.up[cut:]
                line.end.receive_data(data, self.now)
        elif kind < 0.6:
            if line.down:
                cut = rng.randrange(len(line.down)) + 1
                data, line.down = bytes(line.down[:cut]), line.down[cut:]
                assert client.endpoint.receive_data(data, self.now) is None
        elif kind < 0.8:
            client.act()
        elif kind < 0.8 + self.disk_rate and client.journal.write():
            client.endpoint.durable(self.now)

    def connect(self, client: Client) -> None:
        name = self.rng.choice(list(self.routers))
        client.line = Line(name, self.routers[name].connect(self.now))
        client.endpoint.connect(ConnectionSettings(container_id=client.name, idle_timeout_s=None), self.now)

    def fault(self) -> None:
        kind = self.rng.choice([kind for kind, left in self.budget.items() if left] or ["none"])
        if kind == "none":
            return
        self.budget[kind] -= 1
        if kind == "crash":
            name = self.rng.choice(self.names)
            if len(self.routers) > 1 and name in self.routers:
                self.crash(name)
            elif name not in self.routers:
                self.start(name, fresh=False)
            return
        client = self.rng.choice(self.clients)
        line = client.line
        if kind == "kill":
            client.die()
        elif line is not None:
            client.cut()
        if line is not None and line.end is not None:
            line.end.lost(self.now)

    def until(self, condition: Callable[[], bool], bound: int = 400_000) -> None:
        for step in range(bound):
            if step % 20 == 0 and condition():
                return
            self.step(False)
        stuck = [
            f"{client.name}: {client.link.state}"
            for client in [*self.subscribers, *self.publishers]
            if not client.complete()
        ]
        raise AssertionError(f"stuck: {', '.join(stuck)}")

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step(True)
        for name in self.names:
            if name not in self.routers:
                self.start(name, fresh=False)
        self.until(lambda: all(client.complete() for client in self.clients))
        for publisher in self.publishers:
            assert publisher.link.sequence == publisher.total
        expected = {body for publisher in self.publishers for body in publisher.bodies.values()}
        for subscriber in self.subscribers:
            assert set(subscriber.done) == expected
            assert not subscriber.link.holdings.segments
            assert not subscriber.link.holdings.accepted
            assert not subscriber.link.holdings.settled_early
        self.until(lambda: not any(self.records(router) for router in self.routers.values()))

    @staticmethod
    def records(router: Router) -> int:
        return sum(count for address in router.status()["addresses"].values() for count in records(address).values())


def play(seed: int) -> World:
    rng = random.Random(seed)
    world = World(
        seed,
        names="abc"[: rng.choice([1, 2, 3])],
        publishers=rng.choice([1, 2]),
        subscribers=rng.choice([1, 2, 3]),
        total=rng.choice([30, 120]),
    )
    world.run(rng.choice([2000, 6000]))
    return world


@pytest.mark.parametrize("seed", [*range(15), *(pytest.param(n, marks=pytest.mark.long) for n in range(15, 30))])
def test_nothing_is_lost_twice_or_out_of_order_whoever_dies(seed: int) -> None:
    try:
        play(seed)
    except BaseException:
        print(f"rerun: python -m tests.onceway.client.test_random {seed}")
        raise


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        first, _, last = argument.partition("-")
        for number in range(int(first), int(last or first) + 1):
            play(number)
            print("seed", number, "holds")
