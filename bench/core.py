"""What the protocol's decisions cost, without AMQP and sockets: microseconds of CPU per message.

    python -m bench core [--messages 100000]

One publisher and some subscriptions at the same router, or one at another.  All accept every message, and the publisher
settles it.  The links are stand-ins that do nothing.  Batches matter because the core works in ranges: what a
disposition or a message between routers costs is spread over all deliveries that it covers.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Sequence
from typing import Any, Literal

from router.config import AddressConfig, Life, RouterConfig
from router.core.core import Core
from router.core.messages import Message
from router.core.ports import Outcome, PublisherAttach, SubscriberAttach
from router.core.post import Send
from router.peers.wire import decode, encode

BODY = b"x" * 100
BATCHES = (1, 10, 100)
# Label, type of the address, subscriptions at the publisher's router and at the other, deliveries that stay done and
# unsettled, and deliveries that stay in the hands of each subscription.
CASES: tuple[tuple[str, Literal["topic", "queue"], int, int, int, int], ...] = (
    ("1 local", "topic", 1, 0, 0, 0),
    ("4 local", "topic", 4, 0, 0, 0),
    ("4 local, each has 400 in hand", "topic", 4, 0, 0, 400),
    ("16 local", "topic", 16, 0, 0, 0),
    ("1 remote", "topic", 0, 1, 0, 0),
    ("1 local, 100,000 done and unsettled", "topic", 1, 0, 100_000, 0),
    ("queue, 1 local", "queue", 1, 0, 0, 0),
    ("queue, 4 local", "queue", 4, 0, 0, 0),
    ("queue, 4 local, each has 400 in hand", "queue", 4, 0, 0, 400),
    ("queue, 1 remote", "queue", 0, 1, 0, 0),
)


def _nothing(*args: Any, **kwargs: Any) -> None: ...


def _zero(*args: Any, **kwargs: Any) -> int:
    return 0


class PublisherEnd:
    """The publisher's side of a link: counts the outcomes that it has been told."""

    answer = ready = waiting = ask = answer_map_part = refuse = detach = _nothing
    set_window = _zero

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []  # not settled yet

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        if self.told and self.told[-1][1] + 1 == first_id:  # a link writes adjacent ones as one range
            first_id = self.told.pop()[0]
        self.told.append((first_id, last_id))


class SubscriberEnd:
    """The subscriber's side of a link, with endless credit."""

    answer = resume = redeliver = _zero
    settle = answer_map_part = refuse = detach = _nothing

    def __init__(self) -> None:
        self.next_id = 0
        self.accepted = 0

    def capacity(self) -> int:
        return 1_000_000

    link_credit = capacity

    def expired(self, *args: Any) -> list[int]:
        return []

    def send(self, tags: list[bytes], *args: Any) -> int:
        first = self.next_id
        self.next_id += len(tags)
        return first


class Network:
    """Routers a and b, joined by a list; what they send each other waits there until `exchange`."""

    def __init__(self, kind: Literal["topic", "queue"], local: int, remote: int, in_hand: int = 0) -> None:
        """in_hand: of so many, the newest, no subscription says anything."""
        self.in_hand = in_hand
        self.now = time.perf_counter()
        self.wire: list[tuple[str, tuple[str, ...], bytes]] = []
        names = ("a", "b") if remote else ("a",)
        config = {
            name: RouterConfig(
                name, names, window_messages=10**9, unsettled_window=10**9, defaults=AddressConfig(type=kind)
            )
            for name in names
        }
        self.cores = {
            name: Core(config[name], Life(1, self.now, True), self.sender(name), lambda: 1_000_000) for name in names
        }
        for name in names:
            for other in names:
                if other != name:
                    self.cores[name].peer_up(other, self.now)
        self.exchange()
        self.publisher = PublisherEnd()
        self.subscribers: list[tuple[Core, SubscriberEnd]] = []
        for i in range(local + remote):
            core = self.cores["a" if i < local else "b"]
            port = SubscriberEnd()
            core.attach_subscriber(port, SubscriberAttach(f"s{i}", "link", "topic", timeout_s=60.0), self.now)
            self.subscribers.append((core, port))
        self.exchange()
        a = self.cores["a"]
        a.attach_publisher(self.publisher, PublisherAttach("p", "link", "topic"), self.now)
        a.proved(self.publisher, self.now)
        self.exchange()
        for core, port in self.subscribers:
            core.subscriber_credit(port, self.now)
        self.sent = 0

    def sender(self, name: str) -> Send:
        def send(peers: tuple[str, ...], message: Message) -> None:
            self.wire.append((name, peers, encode(message)))

        return send

    def exchange(self) -> None:
        wire = self.wire
        for core in self.cores.values():
            core.flush(self.now)
        while wire:
            batch = wire[:]
            del wire[:]
            for sender, peers, data in batch:
                for peer in peers:
                    self.cores[peer].peer_message(sender, decode(data), self.now)
            for core in self.cores.values():
                core.flush(self.now)

    def batch(self, tags: list[bytes], bodies: list[bytes], settle: bool) -> None:
        """Sends, delivers, accepts, tells, settles a batch, in as many turns as real links would take."""
        self.now = time.perf_counter()
        first = self.sent
        self.sent += len(tags)
        self.cores["a"].transfers(self.publisher, first, tags, bodies, False, 0, self.now)
        self.exchange()
        for core, port in self.subscribers:
            end = port.next_id - self.in_hand
            if end > port.accepted:
                core.subscriber_disposition(port, port.accepted, end - 1, Outcome.ACCEPTED, False, self.now)
                port.accepted = end
        self.exchange()
        if settle:
            self.settle(self.sent)

    def settle(self, n: int) -> None:
        """Settles the oldest n deliveries, or all that have an outcome."""
        told = self.publisher.told
        while n > 0 and told:
            first, last = told.pop(0)
            if last - first >= n:
                told.insert(0, (first + n, last))
                last = first + n - 1
            self.cores["a"].publisher_settled(self.publisher, first, last, self.now)
            n -= last - first + 1
        self.exchange()


def measure(
    kind: Literal["topic", "queue"],
    local: int,
    remote: int,
    size: int,
    messages: int,
    unsettled: int = 0,
    in_hand: int = 0,
) -> float:
    """Microseconds of CPU per message in batches of `size`.  So many deliveries stay done and unsettled throughout, or
    in the hands of each subscription."""
    network = Network(kind, local, remote, in_hand)
    for start in range(0, unsettled, 1_000):
        network.batch(tags_of(start, 1_000), [BODY] * 1_000, settle=False)
    rounds = max(1, messages // size)
    first = len(range(0, unsettled, 1_000)) * 1_000  # no tag is that of another unsettled delivery
    batches = [(tags_of(first + i * size, size), [BODY] * size) for i in range(rounds + 50)]
    for tags, bodies in batches[rounds:]:
        network.batch(tags, bodies, settle=not unsettled)
    del batches[rounds:]
    gc.collect()
    started = time.process_time()
    for tags, bodies in batches:
        network.batch(tags, bodies, settle=not unsettled)
        if unsettled:
            network.settle(size)
    return (time.process_time() - started) / (rounds * size) * 1e6


def tags_of(first: int, n: int) -> list[bytes]:
    return [i.to_bytes(4, "big") for i in range(first, first + n)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    messages = parser.parse_args(argv).messages
    print(f"{'us per message, in batches of':36s}" + "".join(f"{size:>9d}" for size in BATCHES))
    for label, kind, local, remote, unsettled, in_hand in CASES:
        costs = [
            measure(kind, local, remote, size, messages if size > 1 else messages // 10, unsettled, in_hand)
            for size in BATCHES
        ]
        print(f"{label:36s}" + "".join(f"{cost:9.2f}" for cost in costs), flush=True)
    return 0
