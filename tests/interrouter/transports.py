"""In-memory transports between routers, and trunks without AMQP, which are faster and can be counted."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from interrouter.network import Hello, Network, Refused
from interrouter.outgoing import Outgoing
from interrouter.packets import PacketError
from interrouter.trunk import CREDIT, Trunk
from router.versions import Versions

if TYPE_CHECKING:
    from tests.interrouter.harness import Net

Cost = int
LinkName = tuple[str, str]


class Broken(AssertionError):
    """An invariant does not hold."""


class LossyOutgoing(Outgoing):
    """Some packets are lost, as when too much waits for a slow neighbour; some come (again) when all has changed."""

    def __init__(self, trunk: PlainTrunk) -> None:
        super().__init__(trunk.network.sessions)
        self.trunk = trunk

    def queue_transit(self, packet: bytes) -> None:
        net = self.trunk.net
        if net is None or net.rng.random() >= net.loss:
            super().queue_transit(packet)
            return
        rng = net.rng
        if rng.random() < 0.3:
            super().queue_transit(packet)
        if rng.random() < 0.5:
            net.at(net.now + rng.random() * rng.choice([0.01, 5.0]), lambda: self._late(packet))

    def _late(self, packet: bytes) -> None:
        if self.trunk.up:
            super().queue_transit(packet)
            self.trunk.network.work.schedule(self.trunk)


class PlainTrunk(Trunk):
    """Transfers as (kind, length, bytes): all that a trunk is, but for AMQP."""

    HELLO, TRANSFER, CREDIT, CLOSE = range(4)

    def __init__(self, network: Network, *, dialled: str | None, now: float) -> None:
        super().__init__(network, dialled=dialled, now=now)
        self.outgoing = LossyOutgoing(self)
        self._out: list[bytes] = []
        self._in = b""
        self._closed = False
        self._handshake_until = now + network.heartbeats.dead_after_s
        self.credit = 0
        self._granted = CREDIT
        self.sent_payloads: list[bytes] = []
        self.net: Net | None = None
        hello = network.hello
        numbers = b"%d %d %d" % (hello.incarnation, *hello.versions)
        self._write(self.HELLO, b"\0".join((hello.network.encode(), hello.name.encode(), numbers)))
        self._write(self.CREDIT, struct.pack(">I", CREDIT))
        network.work.touch(self)

    def receive_data(self, data: bytes, now: float) -> None:
        self.last_received = now
        self.network.work.touch(self)
        self._in += data
        offset = 0
        while len(self._in) - offset >= 5 and not self._closed:
            kind, size = struct.unpack_from(">BI", self._in, offset)
            if len(self._in) - offset - 5 < size:
                break
            self._frame(kind, self._in[offset + 5 : offset + 5 + size], now)
            offset += 5 + size
        self._in = self._in[offset:]

    def _frame(self, kind: int, body: bytes, now: float) -> None:
        network = self.network
        if kind == self.HELLO:
            name, router, numbers = body.split(b"\0")
            incarnation, oldest, newest = map(int, numbers.split())
            try:
                hello = Hello(name.decode(), router.decode(), incarnation, Versions(oldest, newest))
                network.trunk_opened(self, hello, now)
            except Refused as refusal:
                network.fail(self, refusal.condition, refusal.description, now)
        elif kind == self.CREDIT:
            self.credit += struct.unpack(">I", body)[0]
            network.work.schedule(self)
        elif kind == self.CLOSE:
            self._closed = True
            network.trunk_lost(self, body.decode(), now)
        elif self.up:
            try:
                network.transfers(self, [body], now)
            except PacketError as error:
                network.fail(self, "amqp:decode-error", str(error), now)
            self._granted -= 1
            if self._granted <= CREDIT // 2:
                self._write(self.CREDIT, struct.pack(">I", CREDIT - self._granted))
                self._granted = CREDIT

    @property
    def more(self) -> bool:
        return False  # all that comes is handled at once

    def go_on(self, now: float) -> None:
        raise AssertionError

    def renew_credit(self) -> None: ...

    def receive_eof(self, now: float) -> None:
        if not self._closed:
            self._closed = True
            self.network.trunk_lost(self, "the connection was lost", now)

    def data_to_send(self) -> bytes:
        data = b"".join(self._out)
        self._out = []
        return data

    def next_deadline(self) -> float | None:
        return None if self.up or self._closed else self._handshake_until

    def handle_timer(self, now: float) -> None:
        if not self.up and now >= self._handshake_until:
            self.close("amqp:connection:forced", "not opened in time")

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self, condition: str | None = None, description: str = "") -> None:
        if not self._closed:
            self._write(self.CLOSE, f"{condition}: {description}".encode())
            self._closed = True
            self.network.work.touch(self)

    def _capacity(self) -> int:
        return self.credit

    def _transmit(self, payloads: list[list[bytes | memoryview]]) -> None:
        assert len(payloads) <= self.credit
        self.credit -= len(payloads)
        for parts in payloads:
            payload = b"".join(parts)
            self.sent_payloads.append(payload)
            self._write(self.TRANSFER, payload)

    def _write(self, kind: int, body: bytes) -> None:
        self._out.append(struct.pack(">BI", kind, len(body)) + body)


class Connection:
    """One transport and its two trunks, dialler's first. Octets arrive in order, each chunk after a delay."""

    def __init__(self, net: Net, link: Link, ends: tuple[Trunk, Trunk], names: tuple[str, str]) -> None:
        self.net = net
        self.link = link
        self.ends = ends
        self.names = names
        self.arrival = [net.now, net.now]
        self.open = [True, True]
        self.in_flight = [0, 0]
        self.most_in_flight = 0
        self.held: tuple[list[bytes], list[bytes]] = ([], [])
        self.lost = False

    def pump(self, end: int) -> None:
        """What this end has written goes on its way."""
        trunk = self.ends[end]
        data = trunk.data_to_send()
        if data and self.open[end] and not self.lost:
            at = self._later(end)
            self.in_flight[end] += len(data)
            self.most_in_flight = max(self.most_in_flight, self.in_flight[end])
            self.net.at(at, lambda: self._arrive(1 - end, data))
        if trunk.closed and self.open[end]:
            self.open[end] = False
            self.net.at(self._later(end), lambda: self._eof(1 - end))

    def _later(self, end: int) -> float:
        rate = self.link.rate
        self.arrival[end] = max(self.arrival[end], self.net.now + self.link.delay(self.net.rng))
        if rate is not None:
            self.arrival[end] += 1 / rate
        return self.arrival[end]

    def _arrive(self, end: int, data: bytes) -> None:
        """As TCP does it, what is held up comes later and in order, or not at all."""
        held = self.held[end]
        held.append(data)
        if len(held) == 1:
            self._deliver(end)

    def _deliver(self, end: int) -> None:
        held = self.held[end]
        while held and not self.lost:
            if self.link.stalled or (self.names[1 - end], self.names[end]) in self.net.silenced:
                self.net.at(self.net.now + 0.01, lambda: self._deliver(end))
                return
            data = held.pop(0)
            self.in_flight[1 - end] -= len(data)
            if self.open[end] and self.net.alive(self.ends[end]):
                self.ends[end].receive_data(data, self.net.now)
                self.net.attend(self.names[end])

    def _eof(self, end: int) -> None:
        if self.open[end] and self.net.alive(self.ends[end]):
            self.open[end] = False
            self.ends[end].receive_eof(self.net.now)
            self.net.attend(self.names[end])

    def cut(self, notice: tuple[float, float] = (0.0, 0.0)) -> None:
        """Nothing that is under way arrives; each end notices after so long."""
        self.lost = True
        for end in (0, 1):
            self.net.at(self.net.now + notice[end], lambda end=end: self._eof(end))


class Link:
    """One link of the topology: it is dialled whenever it can be."""

    def __init__(self, ends: LinkName, cost: Cost) -> None:
        self.ends = (min(ends), max(ends))  # the first one dials
        self.cost = cost
        self.enabled = True
        self.stalled = False
        self.rate: float | None = None  # chunks per second
        self.delay: Callable[[random.Random], float] = lambda rng: 0.001
        self.connection: Connection | None = None

    @property
    def over(self) -> bool:
        """To be dialled (again): the dialler has none, whatever the other end believes."""
        return self.connection is None or not self.connection.open[0]
