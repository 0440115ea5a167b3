"""What a filter and a queue cost a router beside a plain topic: microseconds of CPU per delivery, with AMQP, without
sockets.

    python -m bench links [--messages 20000] [--rounds 5]
    python -m bench links --nodes 10000

One publisher and one subscriber (or four consumers) at one router, all in mode second. Only what the router does is
counted: reading and writing frames, and the core. The filters match every message. The cases take turns; the table has
medians, and how many times the topic that is in the same round.

--nodes: what so many dynamic nodes cost at a router of a real network of two, instead: memory and CPU of both routers
for each node made and closed, and a request and its reply across the other router beside one and beside all.
"""

from __future__ import annotations

import argparse
import gc
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from amqp10.connection import Connection
from amqp10.events import Event, LinkAttached, LinkDetached
from amqp10.outcomes import ACCEPTED
from amqp10.performatives import RCV_SECOND
from amqp10.runs import Dispositions, LinkFlow, Transfers
from amqp10.sections import Message, Properties
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from amqp10.types import Described, Symbol
from bench.peers import Onceway
from bench.processes import cpu_seconds, resident_mb
from router.config import AddressConfig, RouterConfig
from tests.router.links import Client, Clients, make

BATCHES = (1, 10, 50)
CONNECTIONS, SESSION_LINKS = 10, 250  # dynamic nodes are spread over so many connections, in sessions of so many links
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
    first, sent = sender.delivery_count, 0
    while sent < size:  # at first the session's window has room for few
        part = min(size - sent, sender.capacity())
        sender.send([b"%d" % i for i in range(sent, sent + part)], [BODY] * part)
        sent += part
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


class Wire:
    """A client's connection to a router, in this thread."""

    def __init__(self, port: int, container: str) -> None:
        settings = ConnectionSettings(container_id=container, idle_timeout_s=None)
        self.connection = Connection(settings, server=False, now=time.monotonic())
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.open()

    def until(self, arrived: Callable[[Event], int], count: int) -> list[Event]:
        """Exchanges until `arrived` has counted so many; what has come."""
        events: list[Event] = []
        while True:
            self.socket.sendall(self.connection.data_to_send())
            if sum(map(arrived, events)) >= count:
                return events
            data = self.socket.recv(1 << 16)
            assert data, "the router closed the connection"
            events += self.connection.receive_data(data, time.monotonic())

    def wait(self, kind: type, count: int = 1) -> list[Any]:
        return [event for event in self.until(lambda event: isinstance(event, kind), count) if isinstance(event, kind)]


def nodes(number: int, requests: int) -> None:
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary, Onceway(Path(temporary), 2) as peer:
        routers = [[router.pid] for router in peer.network]

        def measured(what: str, action: Callable[[], object], count: int) -> None:
            began, cpu, held = (
                time.monotonic(),
                [cpu_seconds(pids) for pids in routers],
                list(map(resident_mb, routers)),
            )
            action()
            seconds = time.monotonic() - began
            used = [(cpu_seconds(pids) - before) / count * 1e6 for pids, before in zip(routers, cpu, strict=True)]
            grown = [(resident_mb(pids) - before) / count * 1024 for pids, before in zip(routers, held, strict=True)]
            cells = [seconds / count * 1e6, *used, *grown]
            print(f"{what:30s}" + "".join(f"{cell:12,.1f}" for cell in cells), flush=True)

        print(f"{'each':30s}{'us':>12s}{'us CPU, a':>12s}{'us CPU, b':>12s}{'KiB, a':>12s}{'KiB, b':>12s}")
        asks, serves = Wire(peer.ports[0], "asks"), Wire(peer.ports[1], "serves")
        (replies,) = _nodes(asks, 1)
        replies.grant(10 * requests)
        call = _caller(asks, serves, replies)
        call(requests // 10)  # warm
        measured("request and reply, 1 node", lambda: call(requests), requests)
        wires = [Wire(peer.ports[0], f"c{i}") for i in range(CONNECTIONS)]
        made: list[list[Any]] = []
        share = number // CONNECTIONS
        measured("make a node", lambda: made.extend(_nodes(wire, share) for wire in wires), share * CONNECTIONS)
        measured(f"request and reply, {share * CONNECTIONS:,} more", lambda: call(requests), requests)

        def close() -> None:
            for wire, links in zip(wires, made, strict=True):
                for link in links:
                    link.detach(None, closed=True)
                wire.wait(LinkDetached, len(links))

        measured("close a node", close, share * CONNECTIONS)
        measured("request and reply, 1 node", lambda: call(requests), requests)
        for wire in (asks, serves, *wires):
            wire.socket.close()


def _nodes(wire: Wire, count: int) -> list[Any]:
    """So many receiving links with dynamic sources."""
    links: list[Any] = []
    for first in range(0, count, SESSION_LINKS):
        session = wire.connection.begin()
        for i in range(first, min(first + SESSION_LINKS, count)):
            links.append(session.receiver(f"n{i}"))
            links[-1].attach(source=Source(dynamic=True), target=Target(), rcv_settle_mode=RCV_SECOND)
    wire.wait(LinkAttached, count)
    assert len({link.remote_attach.source.address for link in links}) == count, "each has an address of its own"
    return links


def _caller(asks: Wire, serves: Wire, replies: Any) -> Callable[[int], None]:
    """Sends requests one after the other and has each answered at its reply-to, all in mode second."""
    address = replies.remote_attach.source.address
    served = serves.connection.begin().receiver("requests")
    served.attach(source=Source("bench-service"), target=Target(), rcv_settle_mode=RCV_SECOND)
    served.grant(1_000_000)
    serves.wait(LinkAttached)

    def sender(wire: Wire, to: str) -> Any:
        link = wire.connection.begin().sender("out")
        link.attach(source=Source(), target=Target(to), rcv_settle_mode=RCV_SECOND)
        wire.wait(LinkFlow)
        return link

    request, reply = sender(asks, "bench-service"), sender(serves, address)
    body = Message(b"x" * 100, properties=Properties(reply_to=address)).encode()
    done = 0

    def pass_on(source: Wire, link: Any, target: Wire, receiver: Any) -> None:
        first = link.send([b"%d" % done], [body])
        source.socket.sendall(source.connection.data_to_send())
        (got,) = target.wait(Transfers)
        receiver.dispose(got.first_id, got.first_id, ACCEPTED, False)
        target.socket.sendall(target.connection.data_to_send())
        mine = source.until(lambda event: isinstance(event, Dispositions) and event.link is link, 1)
        told = [event.state for event in mine if isinstance(event, Dispositions) and event.link is link]
        assert told == [ACCEPTED], told
        link.settle(first, first, ACCEPTED)

    def call(count: int) -> None:
        nonlocal done
        for _ in range(count):
            pass_on(asks, request, serves, served)
            pass_on(serves, reply, asks, replies)
            done += 1

    return call


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, help="this many dynamic nodes instead")
    options = parser.parse_args(argv)
    if options.nodes:
        nodes(options.nodes, requests=max(10, options.messages // 20))
        return 0
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
