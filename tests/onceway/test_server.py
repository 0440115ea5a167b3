"""The asyncio server with real sockets in this process: relaying, back-pressure, neighbours, SIGTERM's drain."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from amqp10.connection import Connection
from amqp10.events import Event, LinkAttached, LinkDetached
from amqp10.outcomes import ACCEPTED
from amqp10.performatives import RCV_SECOND
from amqp10.receiver import ReceiverLink
from amqp10.runs import Dispositions, Transfers
from amqp10.sections import Message
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from onceway import topology
from onceway.base.program import program
from onceway.serve.neighbours import NeighbourCarrier
from onceway.serve.server import DRAIN_S, MOST_READS, RouterServer
from onceway.serve.sweeping import ALONE_S, SWEPT
from onceway.serve.transport import HIGH_WATER
from router.links.base import OUTPUT_LIMIT
from tests.live import free_port
from tests.serving import BOUND_S, until

BODY = Message(b"x").encode()


class Client:
    """A plain client on a socket: events as they come, `until` a condition holds."""

    def __init__(self, port: int, name: str) -> None:
        self.port = port
        self.connection = Connection(
            ConnectionSettings(container_id=name, idle_timeout_s=None), server=False, now=time.monotonic()
        )
        self.events: list[Event] = []
        self.closed_by_peer = False
        self.reading = asyncio.Event()
        self.reading.set()

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.connection.open()
        self.begun = self.connection.begin()
        self.task = asyncio.create_task(self._read())
        self.flush()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.task.cancel()
        self.writer.close()

    async def _read(self) -> None:
        while True:
            await self.reading.wait()
            data = await self.reader.read(65536)
            if not data:
                self.closed_by_peer = True
                return
            self.events += self.connection.receive_data(data, time.monotonic())
            self.flush()

    def flush(self) -> None:
        data = self.connection.data_to_send()
        if data and not self.writer.is_closing():
            self.writer.write(data)

    def sender(self, name: str = "out", address: str = "orders") -> SenderLink:
        link = self.begun.sender(name)
        link.attach(source=Source(), target=Target(address), rcv_settle_mode=RCV_SECOND)
        self.flush()
        return link

    def receiver(
        self, name: str = "in", address: str = "orders", credit: int = 1_000, timeout: int = 0
    ) -> ReceiverLink:
        link = self.begun.receiver(name)
        link.attach(source=Source(address, timeout=timeout), target=Target(), rcv_settle_mode=RCV_SECOND)
        link.grant(credit)
        self.flush()
        return link

    def seen(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def received(self) -> list[bytes]:
        return [payload for run in self.seen(Transfers) for payload in run.payloads]

    def accept_all(self) -> None:
        for run in self.seen(Transfers):
            run.link.dispose(run.first_id, run.first_id + len(run.tags) - 1, ACCEPTED, False)
        self.flush()


def make_topology(*names: str) -> topology.Topology:
    routers = "".join(
        f"  {n}: {{amqp: {free_port()}, interrouter: {free_port()}, admin: {free_port()}}}\n" for n in names
    )
    links = "".join(f"  - {a} - {b}\n" for a, b in itertools.pairwise(names))
    text = f"network: test\ndefaults: {{host: 127.0.0.1}}\nrouters:\n{routers}"
    return topology.loads(text + (f"links:\n{links}" if links else ""))


@asynccontextmanager
async def running(*names: str) -> AsyncIterator[list[RouterServer]]:
    loaded = make_topology(*names)
    servers = [RouterServer(loaded, name, fresh=True) for name in names]
    for server in servers:
        await server.start()
    await until(
        lambda: all(server.router.core.recovery.established for server in servers), "the routers to be established"
    )
    try:
        yield servers
    finally:
        await asyncio.gather(*(server.stop(0.0) for server in servers if not server.stopped))


def client(server: RouterServer, name: str) -> Client:
    return Client(server.topology.routers[server.name]["amqp"][1], name)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4 * BOUND_S):
            await scene()

    asyncio.run(bounded())


async def delivered(publisher: Client, subscriber: Client, *payloads: bytes) -> SenderLink:
    """The publisher's link, when the subscriber has been handed these."""
    subscriber.receiver()
    await until(lambda: subscriber.seen(LinkAttached), "the subscription's answer")
    out = publisher.sender()
    await until(lambda: out.credit, "credit")
    sent = 0
    while sent < len(payloads):
        await until(out.capacity, "the session's window")
        part = payloads[sent : sent + out.capacity()]
        out.send([b"%d" % (sent + number) for number in range(len(part))], list(part))
        publisher.flush()
        sent += len(part)
    await until(lambda: len(subscriber.received()) == len(payloads), "the deliveries")
    return out


async def test_one_router_relays_deliveries_outcomes_and_settlements() -> None:
    async with running("a") as (a,), client(a, "p") as publisher, client(a, "s") as subscriber:
        out = await delivered(publisher, subscriber, *[BODY] * 50)
        subscriber.accept_all()
        await until(lambda: publisher.seen(Dispositions), "the outcome")
        out.settle(0, 49)
        publisher.flush()
        await until(lambda: subscriber.seen(Dispositions), "the settlement")
        assert subscriber.seen(Dispositions)[0].settled
        await until(lambda: a.router.core.memory.payload_bytes == 0, "the payload to be freed")


async def test_three_routers_in_line_relay() -> None:
    async with running("a", "b", "c") as (a, _, c), client(a, "p") as publisher, client(c, "s") as subscriber:
        await delivered(publisher, subscriber, Message(bytes(10_000_000)).encode())  # through two trunks
        subscriber.accept_all()
        await until(lambda: publisher.seen(Dispositions), "the outcome")


async def test_a_subscriber_that_does_not_read_costs_a_bounded_amount_and_nobody_elses_time() -> None:
    async with (
        running("a") as (a,),
        client(a, "p") as publisher,
        client(a, "q") as other_publisher,
        client(a, "s") as stalled,
        client(a, "t") as quick,
    ):
        stalled.receiver(credit=100_000)
        quick.receiver(address="other")
        await until(lambda: stalled.seen(LinkAttached) and quick.seen(LinkAttached), "the subscriptions")
        stalled.reading.clear()
        out = publisher.sender()
        payload = Message(bytes(100_000)).encode()
        sent, turns, quiet_since = 0, 0, time.monotonic()

        def held() -> list[Any]:
            return [c.transport for c in a.carriers.values() if c.carried and c.carried.output_paused]  # type: ignore[attr-defined]

        # Until there is no more credit: time alone does not say so, of a loop that may stand still.
        while not held() or turns < 1_000 or time.monotonic() < quiet_since + 0.5:
            assert time.monotonic() < quiet_since + BOUND_S
            turns += 1
            if out.capacity():
                out.send([b"%d" % sent], [payload])
                publisher.flush()
                sent, turns, quiet_since = sent + 1, 0, time.monotonic()
            await asyncio.sleep(0)
        assert sent * len(payload) < a.router.config.window_bytes + 2 * len(payload)
        (transport,) = held()
        assert transport.get_write_buffer_size() <= HIGH_WATER + OUTPUT_LIMIT + 2 * len(payload)
        other = other_publisher.sender(address="other")
        await until(lambda: other.credit, "credit for the other address")
        other.send([b"1"], [BODY])
        other_publisher.flush()
        await until(quick.received, "the other topic's delivery")
        stalled.reading.set()
        await until(lambda: len(stalled.received()) == sent, "everything, once it reads again")


async def test_a_router_that_stops_waits_for_what_it_has_taken() -> None:
    async with running("a") as (a,), client(a, "p") as publisher, client(a, "s") as subscriber:
        out = await delivered(publisher, subscriber, BODY)
        stopping = asyncio.create_task(a.stop())
        await until(lambda: not out.credit, "credit to be taken back")
        late = publisher.sender("late")
        await until(lambda: publisher.seen(LinkDetached), "the late attach's refusal")
        assert publisher.seen(LinkDetached)[0].link is late
        assert publisher.seen(LinkDetached)[0].error.condition == "amqp:link:detach-forced"
        assert not stopping.done()
        subscriber.accept_all()
        await stopping
        await until(lambda: publisher.closed_by_peer and subscriber.closed_by_peer, "the sockets to close")
        assert publisher.seen(Dispositions), "its outcome, before the socket was closed"


async def test_a_router_that_stops_waits_no_longer_than_it_was_told() -> None:
    async with running("a") as (a,), client(a, "p") as publisher, client(a, "s") as subscriber:
        await delivered(publisher, subscriber, BODY)
        began = time.monotonic()
        await a.stop(0.3)
        assert time.monotonic() - began < DRAIN_S
        await until(lambda: publisher.closed_by_peer, "the socket to close")
        assert publisher.seen(Dispositions) == []


async def test_the_others_hear_of_a_stopped_routers_clients_before_it_goes() -> None:
    async with running("a", "b") as (a, b), client(a, "s") as subscriber:
        subscriber.receiver()
        await until(lambda: subscriber.seen(LinkAttached), "the subscription's answer")
        assert b.status()["addresses"]["orders"]["subscriptions"]
        await a.stop()
        assert not b.status()["addresses"].get("orders", {}).get("subscriptions")


async def test_a_neighbour_that_speaks_another_language_is_dropped_and_dialled_again() -> None:
    async with running("a", "b") as (a, b):
        port = b.topology.routers["b"]["interrouter"][1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        while await reader.read(4096):
            pass
        writer.close()
        (trunk,) = (c for c in a.carriers.values() if c.transport is not None)
        trunk.abort()
        trunks = lambda: [c for c in a.carriers.values() if isinstance(c, NeighbourCarrier) and c.is_up]  # noqa: E731
        await until(lambda: trunks() and trunk not in trunks(), "another trunk")
        await until(lambda: a.router.core.members.up and b.router.core.members.up, "the session")


async def test_status_names_the_router_its_peers_and_its_addresses() -> None:
    async with running("a", "b") as (a, _):
        status = a.status()
        assert (status["name"], status["network"], status["up"]) == ("a", "test", ["b"])
        assert int(status["incarnation"], 16) == a.router.core.incarnation
        assert (status["established"], status["drain"], status["program"]) == (True, None, program())


class Quiet:
    """A connection and its carrier, counting how often its timer is looked at."""

    looked = 0
    look_at = 0.0

    def excuse(self, now: float) -> None: ...

    def next_deadline(self) -> None:
        self.looked += 1


class Pauses:
    """In place of the loop: the pauses until the next call, and what is to be called at once."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, pause_s: float, callback: Callable[[], None]) -> None:
        self.asked.append(pause_s)


def test_the_timers_of_many_connections_are_looked_at_in_parts_and_as_often_as_those_of_few() -> None:
    server = RouterServer(make_topology("a"), "a", fresh=True)
    pauses = Pauses()
    server._loop = cast(Any, pauses)
    all_of_them = [Quiet() for _ in range(4 * SWEPT)]
    server.carriers.update({cast(Any, each): cast(Any, each) for each in all_of_them})
    for turn in range(1, 5):
        server.sweep.look()
        assert sum(each.looked for each in all_of_them) == turn * SWEPT
    assert all(each.looked == 1 for each in all_of_them)
    assert sum(pauses.asked) == ALONE_S
    all_of_them[7].look_at = 0.0  # as when something is written to it
    server.sweep.look()
    assert sum(each.looked for each in all_of_them) == 4 * SWEPT + 1, "the others have no deadline"


def test_what_some_of_many_sockets_bring_is_passed_on_before_all_are_read() -> None:
    server = RouterServer(make_topology("a"), "a", fresh=True)
    loop = Pauses()
    server._loop = cast(Any, loop)
    server.carriers.update({cast(Any, each): cast(Any, each) for each in [Quiet() for _ in range(4 * MOST_READS)]})
    turns = 0
    turn = server.turn

    def counted() -> None:
        nonlocal turns
        turns += 1
        turn()

    server.turn = counted  # type: ignore[method-assign]
    for _ in range(MOST_READS - 1):
        server.after_read()
    assert turns == 0
    server.after_read()
    assert turns == 1
    (when_all_are_read,) = loop.soon
    when_all_are_read()
    assert turns == 1  # nothing is left for it
    server.after_read()
    loop.soon[1]()
    assert turns == 2
