"""What a filter and a queue cost a router beside a plain topic: microseconds of CPU per delivery, with AMQP, without
sockets.

    python -m bench links [--messages 20000] [--rounds 5]

One publisher and one subscriber (or four consumers) at one router, all in mode second. Only what the router does is
counted: reading and writing frames, and the core. The filters match every message. The cases take turns; the table has
medians, and how many times the topic that is in the same round.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Sequence
from typing import Any

from amqp10.events import Dispositions, Transfers
from amqp10.outcomes import ACCEPTED
from amqp10.sections import Message, Properties
from amqp10.termini import Source, Target
from amqp10.types import Described, Symbol
from router.config import AddressConfig, RouterConfig
from tests.router.links import Client, Clients, make

BATCHES = (1, 10, 50)
BODY = Message(b"x" * 100, properties=Properties(subject="orders.new"), application_properties={"n": 7}).encode()
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "topic": ("topic", {}, 1),
    "topic, selector": ("topic", {"apache.org:selector-filter:string": "n > 5"}, 1),
    "topic, subject pattern": ("topic", {"apache.org:legacy-amqp-topic-binding:string": "orders.#"}, 1),
    "queue": ("queue", {}, 1),
    "queue, 4 consumers": ("queue", {}, 4),
}


class Timed(Clients):
    """Counts the CPU of the router alone."""

    spent_s = 0.0

    def exchange(self) -> None:
        router = self.router
        moved = True
        while moved or router.wants_flush:
            moved = False
            said = [(client, client.connection.data_to_send()) for client in self.clients]
            began = time.process_time()
            for client, data in said:
                if data:
                    moved = True
                    client.served.receive_data(data, self.now)
            router.flush(self.now)
            router.take_dirty()
            told = [(client, client.served.data_to_send()) for client in self.clients]
            self.spent_s += time.process_time() - began
            for client, data in told:
                if data:
                    moved = True
                    client.events += client.connection.receive_data(data, self.now)


def measure(case: str, size: int, messages: int) -> float:
    """Microseconds of the router's CPU per message in batches of `size`."""
    kind, filters, receivers = CASES[case]
    addresses = (AddressConfig("t", type="queue" if kind == "queue" else "topic"),)
    clients = Timed(make(RouterConfig("a", routers=("a",), addresses=addresses)).router, 1_000.0)
    asked: dict[str, Any] = {Symbol(name): Described(Symbol(name), value) for name, value in filters.items()}
    receiving = [clients.connect(f"r{i}") for i in range(receivers)]
    sending = clients.connect("s")
    links = [client.receiver(source=Source("t", filter=asked or None), credit=1_000_000) for client in receiving]
    for client, link in zip(receiving, links, strict=True):
        assert set(client.answered(link).source.filter or {}) == set(asked), "the filter is applied"
    sender = sending.sender(target=Target("t"))
    began = time.monotonic()  # a queue looks at how fast consumers accept
    rounds = max(1, messages // size)
    for i in range(50 + rounds):
        if i == 50:
            gc.collect()
            clients.spent_s = 0.0
        clients.now = 1_000.0 + time.monotonic() - began
        _batch(receiving, links, sending, sender, size)
    return clients.spent_s / (rounds * size) * 1e6


def _batch(receiving: list[Client], links: list[Any], sending: Client, sender: Any, size: int) -> None:
    """Sends, accepts and settles; all of it has arrived and is settled."""
    clients = sending.clients
    first = sender.send([b"%d" % i for i in range(size)], [BODY] * size)
    clients.exchange()
    arrived = 0
    for client, link in zip(receiving, links, strict=True):
        got = client.seen(Transfers)
        if got:
            n = sum(len(event.tags) for event in got)
            arrived += n
            link.dispose(got[0].first_id, got[0].first_id + n - 1, ACCEPTED, False)
    assert arrived == size
    clients.exchange()
    told = sum(event.last_id - event.first_id + 1 for event in sending.seen(Dispositions))
    assert told == size
    sender.settle(first, first + size - 1, ACCEPTED)
    clients.exchange()
    for client in (*receiving, sending):
        client.events.clear()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(argv)
    print(f"{'us per delivery, in batches of':32s}" + "".join(f"{size:>17d}" for size in BATCHES))
    found: dict[tuple[str, int], list[float]] = {}
    for size in BATCHES:
        for _ in range(options.rounds):
            for case in CASES:
                cost = measure(case, size, options.messages if size > 1 else options.messages // 10)
                found.setdefault((case, size), []).append(cost)
    for case in CASES:
        cells = []
        for size in BATCHES:
            costs = found[case, size]
            times = [cost / plain for cost, plain in zip(costs, found["topic", size], strict=True)]
            cells.append(f"{statistics.median(costs):9.1f} ({statistics.median(times):.2f})")
        print(f"{case:32s}" + "".join(f"{cell:>17s}" for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    main()
