"""What the network of routers costs, without sockets: microseconds of CPU per batch at each router.

    python -m bench interrouter [--seconds S]

Three routers in line, a - b - c.  Router a sends as the core does: one message of the network for a batch of b messages
of an application, 110 bytes each.  Its way is measured from bytes to bytes, acknowledgements included: at the sender,
at the hop between and at the receiver.  The last column is the sum per message of an application.

to:      `c`, the far router; or `copies`, both others with one copy over the first trunk.
a turn:  batches between two flushes.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from interrouter.network import Hello, Network
from interrouter.trunk import Trunk

MESSAGE_BYTES = 110
CASES = ((1, 1), (10, 1), (100, 1), (100, 8), (500, 1))


@dataclass(slots=True, eq=False)
class Router:
    network: Network
    trunks: list[Trunk] = field(default_factory=list)
    spent: float = 0.0
    got: int = 0

    def take(self, trunk: Trunk, data: bytes, now: float) -> None:
        start = time.perf_counter()
        trunk.receive_data(data, now)
        self.spent += time.perf_counter() - start

    def turn(self, now: float) -> list[tuple[Trunk, bytes]]:
        start = time.perf_counter()
        network = self.network
        if network.next_deadline() <= now:
            network.tick(now)
        self.got += len(network.take_events())
        network.flush(now)
        while network.more:
            self.got += len(network.take_events())
            network.flush(now)
        found = [(trunk, trunk.data_to_send()) for trunk in network.work.take_dirty()]
        self.spent += time.perf_counter() - start
        return [(trunk, data) for trunk, data in found if data]


class Line:
    def __init__(self) -> None:
        self.now = 0.0
        costs = {"a": {"b": 1}, "b": {"a": 1, "c": 1}, "c": {"b": 1}}
        self.routers = {
            name: Router(Network(Hello("bench", name, ord(name)), links, rng=random.Random(1), now=0.0))
            for name, links in costs.items()
        }
        self.other: dict[Trunk, tuple[Router, Trunk]] = {}
        for one, two in ("ab", "bc"):
            dialler, server = self.routers[one], self.routers[two]
            end = dialler.network.connect(0.0, neighbour=two)
            far = server.network.connect(0.0, neighbour=None)
            self.other[end], self.other[far] = (server, far), (dialler, end)
        self.settle(*self.routers.values())

    def settle(self, *busy: Router) -> None:
        """A router that has read something gets a turn, as in the server."""
        due = dict.fromkeys(busy)
        while due:
            router = next(iter(due))
            del due[router]
            for trunk, data in router.turn(self.now):
                there, end = self.other[trunk]
                there.take(end, data, self.now)
                due[there] = None

    def measure(self, peers: tuple[str, ...], batch: int, a_turn: int, seconds: float) -> tuple[int, dict[str, float]]:
        a = self.routers["a"]
        message = bytes(batch * MESSAGE_BYTES)
        for router in self.routers.values():
            router.spent = 0.0
        count = 0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            for _ in range(a_turn):
                a.network.send(peers, message)
            a.spent += time.perf_counter() - start
            count += a_turn
            self.now += 0.001
            self.settle(a)
        return count, {name: router.spent / count * 1e6 for name, router in self.routers.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="per case")
    seconds = parser.parse_args(argv).seconds
    print(f"{'to':8} {'b':>4} {'a turn':>6} | {'sender':>8} {'hop':>8} {'receiver':>8} us a batch | {'all':>6} us each")
    for peers in (("c",), ("b", "c")):
        for batch, a_turn in CASES:
            rounds = [Line().measure(peers, batch, a_turn, seconds / 3)[1] for _ in range(3)]
            cost = {name: min(spent[name] for spent in rounds) for name in "abc"}
            print(
                f"{'c' if len(peers) == 1 else 'copies':8} {batch:4} {a_turn:6} | {cost['a']:8.1f} {cost['b']:8.1f}"
                f" {cost['c']:8.1f}            | {sum(cost.values()) / batch:6.3f}"
            )
    return 0
