"""What the control of the network costs by its size, in virtual time: convergence, and an idle network.

    python -m bench scale [--sizes 5,20,100]

Rings of routers (`interrouter`), without sockets: what is written arrives a millisecond later.  All start at once.

ready:      seconds until every router is in session with every other.
transfers:  between neighbours, which each router reads in a second when nothing else goes on.
bytes:      the same in bytes, written by each router.
cpu:        milliseconds of this process in a second, for each router.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from interrouter.events import PeerUp
from interrouter.network import Hello, Network
from interrouter.trunk import Trunk

STEP_S = 0.001
IDLE_S = 10.0
MOST_S = 60.0


@dataclass(slots=True, eq=False)
class Router:
    network: Network
    ups: int = 0
    written: int = 0
    inbox: list[tuple[Trunk, bytes]] = field(default_factory=list)


class Ring:
    def __init__(self, size: int) -> None:
        self.now = 0.0
        rng = random.Random(size)
        names = [f"r{number:03}" for number in range(size)]
        pairs = list(zip(names, names[1:] + names[:1], strict=True))
        costs: dict[str, dict[str, int]] = {name: {} for name in names}
        for one, other in pairs:
            costs[one][other] = costs[other][one] = 1
        self.routers = {
            name: Router(Network(Hello("bench", name, 1 + number), costs[name], rng=rng, now=0.0))
            for number, name in enumerate(names)
        }
        self.far: dict[Trunk, tuple[Router, Trunk]] = {}
        for one, other in pairs:
            near, far = self.routers[one], self.routers[other]
            ends = (
                near.network.connect(0.0, neighbour=other),
                far.network.connect(0.0, neighbour=None),
            )
            self.far[ends[0]], self.far[ends[1]] = (far, ends[1]), (near, ends[0])
        self.due = dict.fromkeys(self.routers.values())

    def step(self) -> None:
        """Everybody with input or a deadline has a turn; what they write arrives in the next step."""
        self.now += STEP_S
        now = self.now
        due = [each for each in self.routers.values() if each.inbox or each in self.due]
        due += [each for each in self.routers.values() if each not in due and each.network.next_deadline() <= now]
        self.due.clear()
        arriving: list[tuple[Router, Trunk, bytes]] = []
        for router in due:
            network = router.network
            inbox, router.inbox = router.inbox, []
            for trunk, data in inbox:
                trunk.receive_data(data, now)
            network.tick(now)
            network.flush(now)
            router.ups += sum(isinstance(event, PeerUp) for event in network.take_events())
            for trunk in network.work.take_dirty():
                data = trunk.data_to_send()
                router.written += len(data)
                if data:
                    arriving.append((*self.far[trunk], data))
        for router, trunk, data in arriving:
            router.inbox.append((trunk, data))

    def run(self, until_s: float) -> None:
        while self.now < until_s:
            self.step()

    def ready(self) -> float:
        want = len(self.routers) - 1
        while any(router.ups < want for router in self.routers.values()) and self.now < MOST_S:
            self.step()
        return self.now

    @property
    def transfers(self) -> int:
        return sum(trunk.transfers_received for trunk in self.far)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="5,20,100")
    args = parser.parse_args(argv)
    print("| routers | ready | bytes to be ready | transfers/s | bytes/s | CPU ms/s |\n" + "| --- " * 6 + "|")
    for size in map(int, args.sizes.split(",")):
        ring = Ring(size)
        ready, written = ring.ready(), sum(router.written for router in ring.routers.values()) / size
        ring.run(ring.now + 2.0)
        transfers, begun = ring.transfers, sum(router.written for router in ring.routers.values())
        cpu = time.process_time()
        ring.run(ring.now + IDLE_S)
        cpu = (time.process_time() - cpu) / IDLE_S / size * 1e3
        sent = (sum(router.written for router in ring.routers.values()) - begun) / IDLE_S / size
        read = (ring.transfers - transfers) / IDLE_S / size
        print(f"| {size} | {ready:.2f} s | {written:,.0f} | {read:.1f} | {sent:,.0f} | {cpu:.2f} |", flush=True)
    return 0
