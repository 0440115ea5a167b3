"""Large messages at once: what routers take in memory for them, and how long small ones wait beside them.

    python -m bench large [--links 20] [--size 32MiB] [--seconds 12] [--routers 1] [--trouble stops|aborts|dies]

Each link has a publisher at the first router that sends messages of this size, one after the other in parts of 64 KiB,
and a subscriber at every router that reads parts, accepts, and keeps what is not settled. Two topics of their own have
1,000 small messages a second: one in the first router, and one in a router beside the network, which shows what the
machine makes them wait. They are measured alone, then beside the large ones. `stops`: a subscriber reads nothing for a
while in the middle of a message. `aborts`: each publisher aborts every second message. `dies`: the last router is
killed in the middle, and the clients come back.

The aim: no router grows by more than 64 MiB, and the p99 of the small ones does not double. Exit status 1 if a message
was lost, came twice, or was not accepted, 2 if the aim is missed (docs/decisions/large-messages.md).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    ResumedTransfer,
    Source,
    Target,
    TransferPart,
    Transfers,
)
from amqp10.performatives import RCV_SECOND, SND_UNSETTLED
from amqp10.receiver import ReceiverLink
from amqp10.sender import SenderLink
from amqp10.types import Symbol, UInt, ULong
from bench.load import Load, Result, built, run
from bench.peaks import MIB, highest, resident
from bench.peers import Onceway
from onceway.base.values import read_size
from router.names import BORN, EPOCH, INCARNATION

PART = 64 * 1024
MOST = 64 * MIB  # that a router may grow by
SLOWER = 2.0  # times the p99 of small messages through a router that has no large ones
SMALL = {"count": 10_000, "rate": 1_000.0}
STOPPED_S = 5.0
QUIET_S = 30.0  # without an octet for anybody: it is given up
LAST = b"last"  # the tag of a link's last message
_DATA = b"\x00\x53\x75\xb0"  # a data section, before its length


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, default=20)
    parser.add_argument("--size", type=read_size, default="32MiB", help="of a message, below 4 GiB")
    parser.add_argument("--seconds", type=float, default=12.0, help="in which messages are begun")
    parser.add_argument("--routers", type=int, default=1)
    parser.add_argument("--trouble", choices=["stops", "aborts", "dies"])
    parser.add_argument("--stream-above", default="1MiB", help="of the routers; 0B: messages are joined")
    args = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="onceway-bench-") as directory,
        Onceway(Path(directory) / "network", args.routers, settings={"stream_above": args.stream_above}) as peer,
        Onceway(Path(directory) / "other") as other,
    ):
        alone = small(peer, other, "alone")
        idle = [resident(router) for router in peer.network]
        began = time.monotonic()
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            options = args.links, args.seconds, args.size, args.trouble
            received = pool.apply_async(clients, (Subscriber, [peer.ports[i:] for i in range(args.routers)], *options))
            published = pool.apply_async(clients, (Publisher, [peer.ports], *options))
            if args.trouble == "dies":
                time.sleep(args.seconds / 2)
                grown = [highest(router) for router in peer.network]
                peer.network.kill(peer.network.names[-1])
                peer.network.start(peer.network.names[-1], fresh=False)
                beside = alone
            else:
                beside = small(peer, other, "beside")
            sent, ended = published.get()
            got, last = received.get()
        seconds = max(ended, last) - began
        most = [highest(router) for router in peer.network]
        if args.trouble == "dies":
            most = [max(pair) for pair in zip(most, grown, strict=True)]
        grown = [each - before for each, before in zip(most, idle, strict=True)]
    return report(args, sent, got, seconds, grown, alone, beside)


def small(peer: Onceway, other: Onceway, name: str) -> tuple[Result, Result]:
    """1,000 small messages a second through the first router, and at once as many through the other one."""
    loads: list[tuple[Load, Onceway]] = []
    for each in (peer, other):
        url = f"127.0.0.1:{each.ports[0]}"
        loads.append((Load(url, url, f"small-{name}", second=True, **SMALL), each))  # type: ignore[arg-type]
    built("amqp")  # once
    with ThreadPoolExecutor(2) as pool:
        here, there = pool.map(lambda pair: run(pair[0], pair[1].pids()), loads)
    return here, there


def report(
    args: argparse.Namespace, sent: Counter[str], got: Counter[str], seconds: float, grown: list[int],
    alone: tuple[Result, Result], beside: tuple[Result, Result],
) -> int:  # fmt: skip
    said = ", ".join(f"{count} {what}" for what, count in sorted((sent + got).items()))
    print(f"messages of {args.size / MIB:g} MiB: {said}")
    through = got["received"] * args.size / MIB / args.routers / seconds
    print(f"{through:.0f} MiB/s to the subscribers of each of {args.routers} routers in {seconds:.0f} s")
    print(f"routers have grown by {', '.join(f'{each / MIB:.0f}' for each in grown)} MiB; the aim is {MOST / MIB:.0f}")
    slower = 0.0
    if args.trouble != "dies":
        slower = beside[0].latency_p99_ms / max(beside[1].latency_p99_ms, 1e-9)
        for what, (here, there) in (("alone", alone), ("beside them", beside)):
            print(
                f"1,000 small ones a second {what}: p50 {here.latency_p50_ms:.2f}, p99 {here.latency_p99_ms:.1f} ms;"
                f" at once in another router {there.latency_p50_ms:.2f}, {there.latency_p99_ms:.1f} ms"
            )
    expected = sent["accepted"] * args.routers
    faults = any(each.faults for each in (*alone, *beside))
    if faults or got["received"] != expected or sent["undecided"] or any("error" in key for key in sent + got):
        return 1
    return 2 if max(grown) > MOST or slower > SLOWER or got["twice"] else 0


def clients(
    kind: type[Client], places: list[list[int]], links: int, seconds: float, size: int, trouble: str | None
) -> tuple[Counter[str], float]:
    """What the clients counted, and when the last of them moved. places: of each client of a link the ports, in the
    order in which it tries them."""
    return asyncio.run(_all(kind, places, links, seconds, size, trouble))


async def _all(
    kind: type[Client], places: list[list[int]], links: int, seconds: float, size: int, trouble: str | None
) -> tuple[Counter[str], float]:
    each = [kind(f"large-{i}", n, places[n], seconds, size, trouble) for i in range(links) for n in range(len(places))]
    if trouble == "stops":
        each[0].stops_at = size // 2
    await asyncio.gather(*[client.connect() for client in each])
    while any(client.busy for client in each) and time.monotonic() - max(client.moved_at for client in each) < QUIET_S:
        await asyncio.sleep(0.5)
        for client in each:
            client.beat()
    return sum([client.count() for client in each], Counter()), max(client.moved_at for client in each)


class Client(asyncio.Protocol):
    """A client with one link, which comes back when its connection or link is lost."""

    stops_at = 0

    def __init__(
        self, address: str, number: int, ports: list[int], seconds: float, size: int, trouble: str | None
    ) -> None:
        self.name = f"{type(self).__name__}-{address}-{number}"
        self.address, self.ports, self.size, self.trouble = address, ports, size, trouble
        self.until = time.monotonic() + seconds
        self.counts: Counter[str] = Counter()
        self.epoch = 0
        self.moved_at = time.monotonic()
        self.may_write = True
        self.on = False
        self.transport: asyncio.Transport | None = None

    async def connect(self) -> None:
        """To the first router that takes it."""
        loop = asyncio.get_running_loop()
        while self.transport is None:
            for port in self.ports:
                with contextlib.suppress(OSError):
                    await loop.create_connection(lambda: self, "127.0.0.1", port)
                    return
            await asyncio.sleep(0.2)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.may_write = transport, True
        settings = ConnectionSettings(container_id=self.name, max_frame_size=1 << 20)
        self.connection = Connection(settings, server=False, now=time.monotonic())
        self.connection.open()
        self.session = self.connection.begin()
        self._attach()
        self.write()

    def _attach(self) -> None:
        self.epoch += 1
        self.attach(self.epoch)

    def data_received(self, data: bytes) -> None:
        for event in self.connection.receive_data(data, time.monotonic()):
            self.moved_at = time.monotonic()
            if isinstance(event, LinkDetached):
                self.counts[f"ends by {event.error.condition if event.error else 'no error'}"] += 1
                self.on = False
                self.lost()
                self.session = self.connection.begin()
                self._attach()
            elif isinstance(event, ConnectionClosed):
                self.counts[f"error {event.error}"] += 1
            else:
                self.handle(event)
        self.write()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport, self.on = None, False
        self.lost()
        if self.busy:
            self.again = asyncio.ensure_future(self.connect())

    def pause_writing(self) -> None:
        self.may_write = False

    def resume_writing(self) -> None:
        self.may_write = True
        self.write()

    def beat(self) -> None:
        if self.transport is not None:
            self.connection.handle_timer(time.monotonic())
            self.write()

    def write(self) -> None:
        while self.transport is not None:
            self.more()
            data = self.connection.data_to_send()
            if not data:
                break
            self.transport.write(data)

    @property
    def busy(self) -> bool:
        return True

    def count(self) -> Counter[str]:
        return self.counts

    def attach(self, epoch: int) -> None:
        raise NotImplementedError

    def handle(self, event: Any) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The link has ended."""

    def more(self) -> None:
        """What may be sent now."""


class Publisher(Client):
    link: SenderLink
    undecided = b""  # the tag of its message that has no outcome
    number = 0
    left = 0  # bytes of the open delivery
    sent = True  # the undecided one was begun on this link
    ends = False  # it is the last one

    def attach(self, epoch: int) -> None:
        self.link = self.session.sender("large")
        self.link.attach(
            source=Source(),
            target=Target(self.address),
            snd_settle_mode=SND_UNSETTLED,
            rcv_settle_mode=RCV_SECOND,
            unsettled={self.undecided: None} if self.undecided else {},
            properties={Symbol(EPOCH): ULong(epoch), Symbol(INCARNATION): ULong(1)},
        )
        self.body = bytes(PART)

    def lost(self) -> None:
        self.sent = False

    def handle(self, event: Any) -> None:
        if isinstance(event, Dispositions):
            assert event.first_id == event.last_id
            self.counts["accepted" if event.state == ACCEPTED else f"error {event.state}"] += 1
            self.link.settle(event.first_id, event.last_id)
            self.undecided = b""

    @property
    def busy(self) -> bool:
        return bool(self.undecided) or not self.ends

    def count(self) -> Counter[str]:
        self.counts["undecided"] += bool(self.undecided)
        return self.counts

    def more(self) -> None:
        link = self.link
        if not self.may_write:
            return
        if link.open_delivery is not None:
            if self.trouble == "aborts" and self.number % 2 and not self.ends and self.left < self.size // 2:
                link.abort()
                self.counts["aborted"] += 1
                self.undecided = b""
            elif link.part_capacity() >= PART:
                some = min(PART, self.left)
                self.left -= some
                link.add(self.body[:some], more=self.left > 0)
        elif link.capacity() and (not self.sent if self.undecided else not self.ends):
            if not self.undecided:
                self.number += 1
                self.ends = time.monotonic() >= self.until
                self.undecided = LAST if self.ends else b"%d" % self.number
            self.sent = True
            self.left = self.size - len(_DATA) - 4
            link.begin(self.undecided, _DATA + self.left.to_bytes(4, "big"))


class Subscriber(Client):
    link: ReceiverLink
    came = 0  # bytes of the delivery that it is in the middle of

    def attach(self, epoch: int) -> None:
        if epoch == 1:
            self.seen: set[bytes] = set()
            self.unsettled: dict[bytes, int] = {}  # accepted, and not settled by the router: delivery-ids
        self.link = self.session.receiver("large")
        self.link.attach(
            source=Source(self.address, durable=UInt(2), expiry_policy=Symbol("link-detach"), timeout=UInt(60)),
            target=Target(),
            snd_settle_mode=SND_UNSETTLED,
            rcv_settle_mode=RCV_SECOND,
            unsettled=dict.fromkeys(self.unsettled, ACCEPTED) if epoch > 1 else None,
            max_message_size=0,
            properties={Symbol(EPOCH): ULong(epoch), Symbol(BORN): ULong(1)},
        )
        self.link.part_size = PART

    def lost(self) -> None:
        self.came = 0

    def handle(self, event: Any) -> None:
        if isinstance(event, LinkAttached):
            listed = event.link.remote_attach.unsettled or {} if event.link.remote_attach else {}
            self.unsettled = {tag: each for tag, each in self.unsettled.items() if tag in listed}
            self.link.grant(10)
        elif isinstance(event, TransferPart):
            self.came += len(event.payload)
            if self.stops_at and self.came > self.stops_at and self.transport is not None:
                self.stops_at = 0
                self.transport.pause_reading()
                asyncio.get_running_loop().call_later(STOPPED_S, self.transport.resume_reading)
            if event.aborted:
                self.came = 0
            elif not event.more:
                self._complete(event.delivery_id, event.tag)
        elif isinstance(event, Transfers):
            self.came = len(event.payloads[0])
            self._complete(event.first_id, event.tags[0])
        elif isinstance(event, ResumedTransfer):
            if event.settled:
                self.unsettled.pop(event.tag, None)
            else:
                self.unsettled[event.tag] = event.delivery_id
                self.link.dispose(event.delivery_id, event.delivery_id, ACCEPTED, False)
        elif isinstance(event, Dispositions) and event.settled:
            done = [tag for tag, each in self.unsettled.items() if event.first_id <= each <= event.last_id]
            for tag in done:
                del self.unsettled[tag]

    def _complete(self, delivery_id: int, tag: bytes) -> None:
        whole = self.came >= self.size  # the router adds an annotation
        self.counts["twice" if tag in self.seen else "received" if whole else "error short"] += 1
        self.came = 0
        self.seen.add(tag)
        self.unsettled[tag] = delivery_id
        self.link.dispose(delivery_id, delivery_id, ACCEPTED, False)
        self.link.grant(10)

    @property
    def busy(self) -> bool:
        return bool(self.unsettled) or not any(tag.endswith(LAST) for tag in self.seen)
