"""What the protocol core costs, without codec and sockets: microseconds of CPU per message.

    .venv/bin/python -m bench.core [--messages 100000]

One publisher, k subscriptions at the same router, or one at another; every message is accepted by all and settled.
The ports do nothing.  PROTOCOL 9 tells what the prototype needed, in batches of 100: 0.19 (k = 1), 0.29 (4), 0.60
(16), 0.24 (one remote egress), 0.25 (100,000 done and unsettled).  ENGINE.md says why batches matter.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Mapping

from router.config import RouterConfig
from router.core import Core
from router.ports import MapState, Outcome, PublisherAttach, SubscriberAnswer, SubscriberAttach, Term

BODY = b"x" * 100


class PublisherEnd:
    """A publisher that grants itself credit, and remembers how far it has been told."""

    def __init__(self) -> None:
        self.told = -1

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None: ...
    def ready(self) -> None: ...
    def set_window(self, messages: int, size: int, reason: str) -> None: ...
    def ask(self) -> None: ...
    def part(self) -> None: ...
    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None: ...
    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None: ...

    def outcome(self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool) -> None:
        self.told = last_id


class SubscriberEnd:
    """A subscriber with endless credit."""

    def __init__(self) -> None:
        self.next_id = 0
        self.accepted = 0

    def capacity(self) -> int:
        return 1_000_000

    def answer(self, answer: SubscriberAnswer) -> int:
        return 0

    def send(
        self,
        tags: list[bytes],
        payloads: list[bytes],
        message_format: int,
        settled: bool,
        position: int,
        cache: dict[object, object],
    ) -> int:
        first = self.next_id
        self.next_id += len(tags)
        return first

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        return 0

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        return 0

    def settle(self, first_id: int, last_id: int) -> None: ...
    def part(self) -> None: ...
    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None: ...
    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None: ...


class Bench:
    """Routers a and b, joined by a list; what was sent waits there until `exchange`."""

    def __init__(self, local: int, remote: int) -> None:
        self.wire: list[tuple[str, tuple[str, ...], bytes]] = []
        names = ("a", "b") if remote else ("a",)
        config = {name: RouterConfig(name, names, window_messages=10**9, unsettled_window=10**9) for name in names}
        self.cores = {
            name: Core(config[name], name, 1, self._sender(name), 0.0, lambda: 1_000_000, fresh=True) for name in names
        }
        for name in names:
            for other in names:
                if other != name:
                    self.cores[name].peer_up(other, 0.0)
        self.exchange()
        self.publisher = PublisherEnd()
        self.subscribers: list[tuple[Core, SubscriberEnd]] = []
        for i in range(local + remote):
            core = self.cores["a" if i < local else "b"]
            port = SubscriberEnd()
            core.attach_subscriber(port, SubscriberAttach(f"s{i}", "link", "topic", timeout_s=60.0), 0.0)
            self.subscribers.append((core, port))
        self.exchange()
        a = self.cores["a"]
        a.attach_publisher(self.publisher, PublisherAttach("p", "link", "topic"), 0.0)
        a.proved(self.publisher, 0.0)
        self.exchange()
        for core, port in self.subscribers:
            core.subscriber_credit(port, 0.0)
        self.sent = 0
        self.settled = 0

    def _sender(self, name: str) -> Sender:
        return Sender(self.wire, name)

    def exchange(self) -> None:
        wire = self.wire
        for core in self.cores.values():
            core.flush(0.0)
        while wire:
            batch = wire[:]
            del wire[:]
            for sender, peers, data in batch:
                for peer in peers:
                    self.cores[peer].peer_message(sender, data, 0.0)
            for core in self.cores.values():
                core.flush(0.0)

    def batch(self, tags: list[bytes], bodies: list[bytes], settle: bool) -> None:
        """Sent, delivered, accepted, told, settled; as many turns as real links would take."""
        first = self.sent
        self.sent += len(tags)
        self.cores["a"].transfers(self.publisher, first, tags, bodies, False, 0, 0.0)
        self.exchange()
        for core, port in self.subscribers:
            if port.next_id > port.accepted:
                core.subscriber_disposition(port, port.accepted, port.next_id - 1, Outcome.ACCEPTED, False, 0.0)
                port.accepted = port.next_id
        self.exchange()
        assert self.publisher.told == self.sent - 1
        if settle:
            self.cores["a"].publisher_settled(self.publisher, self.settled, self.sent - 1, 0.0)
            self.settled = self.sent
            self.exchange()


class Sender:
    """A core's way out."""

    def __init__(self, wire: list[tuple[str, tuple[str, ...], bytes]], name: str) -> None:
        self.wire = wire
        self.name = name

    def __call__(self, peers: tuple[str, ...], data: bytes) -> None:
        self.wire.append((self.name, peers, data))


def measure(local: int, remote: int, size: int, messages: int, unsettled: int = 0) -> float:
    """Microseconds of CPU per message.  unsettled: so many done and not settled stay throughout."""
    bench = Bench(local, remote)
    for start in range(0, unsettled, 1_000):
        bench.batch(tags_of(start, 1_000), [BODY] * 1_000, settle=False)
    rounds = max(1, messages // size)
    batches = [(tags_of(i * size, size), [BODY] * size) for i in range(rounds + 50)]
    for tags, bodies in batches[rounds:]:
        bench.batch(tags, bodies, settle=not unsettled)
    del batches[rounds:]
    gc.collect()
    started = time.process_time()
    if not unsettled:
        for tags, bodies in batches:
            bench.batch(tags, bodies, settle=True)
    else:
        for tags, bodies in batches:
            bench.batch(tags, bodies, settle=False)
            bench.cores["a"].publisher_settled(bench.publisher, bench.settled, bench.settled + size - 1, 0.0)
            bench.settled += size
            bench.exchange()
    return (time.process_time() - started) / (rounds * size) * 1e6


def tags_of(first: int, n: int) -> list[bytes]:
    return [i.to_bytes(4, "big") for i in range(first, first + n)]


CASES = [("1 local", 1, 0, 0), ("4 local", 4, 0, 0), ("16 local", 16, 0, 0), ("1 remote", 0, 1, 0)]
CASES.append(("1 local, 100,000 done and unsettled", 1, 0, 100_000))
SIZES = (1, 10, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    messages = parser.parse_args().messages
    print(f"{'us per message, in batches of':36s}" + "".join(f"{size:>9d}" for size in SIZES))
    for label, local, remote, unsettled in CASES:
        costs = [measure(local, remote, size, messages if size > 1 else messages // 10, unsettled) for size in SIZES]
        print(f"{label:36s}" + "".join(f"{cost:9.2f}" for cost in costs))


if __name__ == "__main__":
    main()
