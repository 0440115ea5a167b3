"""Large messages at once: what a router takes in memory for them, and how long small ones wait beside them.

    python -m bench large [--links 20] [--size 32MiB] [--seconds 12] [--routers 1]

Each link has a publisher that sends messages of this size, one after the other in parts of 64 KiB, and a subscriber at
the last router that reads parts and accepts. A topic of its own has 1,000 small messages a second, first alone and then
beside them. The aim: no router grows by more than 64 MiB, and the p99 of the small ones does not double. Exit status 1
if a message was not accepted, 2 if the aim is missed (docs/decisions/large-messages.md).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from amqp10 import (
    ACCEPTED,
    Connection,
    ConnectionClosed,
    ConnectionSettings,
    Dispositions,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    SessionFlow,
    Source,
    Target,
    TransferPart,
    Transfers,
)
from amqp10.performatives import RCV_SECOND, SND_UNSETTLED
from amqp10.receiver import ReceiverLink
from amqp10.sender import SenderLink
from bench.load import Load, Result, run
from bench.peaks import MIB, highest, resident
from bench.peers import Onceway
from onceway.values import read_size

PART = 64 * 1024
LAST = b"last"  # the tag of a link's last message
MOST = 64 * MIB  # that a router may grow by
SLOWER = 2.0  # times the p99 alone
SMALL = {"count": 10_000, "rate": 1_000.0}
_DATA = b"\x00\x53\x75\xb0"  # a data section, before its length


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, default=20)
    parser.add_argument("--size", type=read_size, default="32MiB", help="of a message, below 4 GiB")
    parser.add_argument("--seconds", type=float, default=12.0, help="in which messages are begun")
    parser.add_argument("--routers", type=int, default=1)
    parser.add_argument("--stream-above", default="256KiB", help="of the routers; 0B: messages are joined")
    args = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="onceway-bench-") as directory,
        Onceway(Path(directory), args.routers, settings={"stream_above": args.stream_above}) as peer,
    ):
        small: Load = peer.load("small", **SMALL)
        alone = run(small, peer.pids())
        idle = [resident(router) for router in peer.network]
        began = time.monotonic()
        ports = peer.ports[0], peer.ports[-1]
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            subscribed = pool.apply_async(subscribe, (ports[1], args.links, args.seconds, args.size))
            published = pool.apply_async(publish, (ports[0], args.links, args.seconds, args.size))
            beside = run(peer.load("small-beside", **SMALL), peer.pids())
            accepted, why = published.get()
            received, _ = (0, "") if why else subscribed.get()
        seconds = time.monotonic() - began
        grown = [highest(router) - before for router, before in zip(peer.network, idle, strict=True)]
    return report(args, accepted, received, why, seconds, grown, alone, beside)


def report(
    args: argparse.Namespace, accepted: int, received: int, why: str, seconds: float, grown: list[int], alone: Result,
    beside: Result,
) -> int:  # fmt: skip
    ratio = beside.latency_p99_ms / max(alone.latency_p99_ms, 1e-9)
    print(f"{accepted} messages of {args.size / MIB:g} MiB accepted, {received} received{why and ': '}{why}")
    print(f"{accepted * args.size / MIB / seconds:.0f} MiB/s in {seconds:.0f} s")
    print(f"routers have grown by {', '.join(f'{each / MIB:.0f}' for each in grown)} MiB; the aim is {MOST / MIB:.0f}")
    print(
        f"1,000 small messages a second: p50 {alone.latency_p50_ms:.2f}, p99 {alone.latency_p99_ms:.1f} ms alone; "
        f"{beside.latency_p50_ms:.2f}, {beside.latency_p99_ms:.1f} ms beside them ({ratio:.1f} times)"
    )
    if why or accepted != received or alone.faults or beside.faults:
        return 1
    return 2 if max(grown) > MOST or ratio > SLOWER else 0


def publish(port: int, links: int, seconds: float, size: int) -> tuple[int, str]:
    return asyncio.run(_all(Publisher, port, links, seconds, size))


def subscribe(port: int, links: int, seconds: float, size: int) -> tuple[int, str]:
    return asyncio.run(_all(Subscriber, port, links, seconds, size))


async def _all(kind: type[Client], port: int, links: int, seconds: float, size: int) -> tuple[int, str]:
    """How many messages were done, and what a router has said that ended a link."""
    loop = asyncio.get_running_loop()
    clients = [kind(f"bench-large-{number}", seconds, size) for number in range(links)]
    for client in clients:
        await loop.create_connection(partial(_same, client), "127.0.0.1", port)
    beats = asyncio.create_task(_beat(clients))
    await asyncio.gather(*[client.ended.wait() for client in clients])
    beats.cancel()
    return sum(client.done for client in clients), next((client.why for client in clients if client.why), "")


async def _beat(clients: Sequence[Client]) -> None:
    while True:
        await asyncio.sleep(1.0)
        for client in clients:
            client.connection.handle_timer(time.monotonic())
            client.write()


def _same(client: Client) -> Client:
    return client


class Client(asyncio.Protocol):
    """A connection with one link."""

    def __init__(self, address: str, seconds: float, size: int) -> None:
        settings = ConnectionSettings(container_id=f"{type(self).__name__}-{address}", max_frame_size=1 << 20)
        self.address, self.size = address, size
        self.until = time.monotonic() + seconds
        self.connection = Connection(settings, server=False, now=time.monotonic())
        self.ended = asyncio.Event()
        self.done = 0
        self.why = ""
        self.may_write = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.connection.open()
        self.attach()
        self.write()

    def data_received(self, data: bytes) -> None:
        for event in self.connection.receive_data(data, time.monotonic()):
            if isinstance(event, LinkDetached | ConnectionClosed):
                self.why = self.why or str(event.error and f"{event.error.condition}: {event.error.description}")
                self.ended.set()
            else:
                self.handle(event)
        self.write()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def pause_writing(self) -> None:
        self.may_write = False

    def resume_writing(self) -> None:
        self.may_write = True
        self.write()

    def write(self) -> None:
        while True:
            self.more()
            data = self.connection.data_to_send()
            if not data:
                break
            self.transport.write(data)

    def attach(self) -> None:
        raise NotImplementedError

    def handle(self, event: Any) -> None:
        raise NotImplementedError

    def more(self) -> None:
        """What may be sent now."""


class Publisher(Client):
    link: SenderLink

    def attach(self) -> None:
        self.link = self.connection.begin().sender("large")
        self.link.attach(
            source=Source(), target=Target(self.address), snd_settle_mode=SND_UNSETTLED, rcv_settle_mode=RCV_SECOND
        )
        self.body = bytes(PART)
        self.last = False  # the last one has been begun
        self.left = 0  # of the open delivery
        self.waits = False  # for an outcome

    def handle(self, event: Any) -> None:
        if isinstance(event, Dispositions):
            self.done += event.last_id - event.first_id + 1 if event.state == ACCEPTED else 0
            self.link.settle(event.first_id, event.last_id)
            self.waits = False
            if self.last:
                self.ended.set()
        else:
            assert isinstance(event, LinkAttached | LinkFlow | SessionFlow) or not isinstance(event, Transfers)

    def more(self) -> None:
        link = self.link
        if not self.may_write:
            return
        if link.open_delivery is None and not self.last and not self.waits and link.capacity():
            self.last = time.monotonic() >= self.until
            self.waits = True
            link.begin(LAST if self.last else b"more", _DATA + (self.size - len(_DATA) - 4).to_bytes(4, "big"))
            self.left = self.size - len(_DATA) - 4
        elif link.open_delivery is not None and link.part_capacity() >= PART:
            some = min(PART, self.left)
            self.left -= some
            link.add(self.body[:some], more=self.left > 0)


class Subscriber(Client):
    link: ReceiverLink

    def attach(self) -> None:
        self.link = self.connection.begin().receiver("large")
        self.link.attach(source=Source(self.address), target=Target(), snd_settle_mode=SND_UNSETTLED)
        self.link.max_message_size = 0
        self.link.part_size = PART
        self.link.grant(10)
        self.came = 0

    def handle(self, event: Any) -> None:
        if isinstance(event, TransferPart):
            self.came += len(event.payload)
            if not event.more:
                self._complete(event.delivery_id, event.tag)
        elif isinstance(event, Transfers):
            self.came += len(event.payloads[0])
            self._complete(event.first_id, event.tags[0])

    def _complete(self, delivery_id: int, tag: bytes) -> None:
        if self.came >= self.size:  # the router adds an annotation
            self.done += 1
        self.came = 0
        self.link.dispose(delivery_id, delivery_id, ACCEPTED, True)
        self.link.grant(10)
        if tag.endswith(LAST):
            self.ended.set()
