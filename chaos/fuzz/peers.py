"""Targets where the stranger is another router: bytes on a trunk, and messages in a session.

A neighbour is of the same network and trusted, but it may be of another version, broken, or somebody who found the
port. What must hold: a trunk ends in a close, a session in a reset, nothing is raised, what is kept is in proportion,
and the router's own client still works afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from amqp10.frames import AMQP_HEADER
from amqp10.performatives import Attach, Begin, Flow, Open, Transfer
from amqp10.termini import Source, Target
from chaos.fuzz.targets import MAX_FRAME, RATIO, ROOM, Broken, check_output, frame, frames
from interrouter.events import PeerDown, PeerMessage, PeerUp
from interrouter.network import Hello, Network
from interrouter.trunk import Trunk
from router.config import AddressConfig, Life, RouterConfig
from router.core.messages import PeerProtocolError
from router.core.reports import of_all
from router.links.client_connection import ClientConnection
from router.router import Router

NAMES: Final = ("a", "b")
HEAD: Final = 8  # bytes before a message in an input: its size with them, as of a frame, and nothing
TURNS: Final = 64
WHILE_S: Final = 300.0  # more than what our own timeouts add up to
BODY: Final = b"\x00Su\xa0\x01x"


class Peered:
    """A router with one client, which publishes and subscribes, and a peer. What it says to the peer is in `said`."""

    def __init__(self, name: str = "a") -> None:
        self.now = 1_000.0
        self.name = name
        self.peer = next(other for other in NAMES if other != name)
        config = RouterConfig(
            name,
            routers=NAMES,
            addresses=(AddressConfig("t", subscription_timeout_s=4.0),),
            max_frame_size=MAX_FRAME,
            memory_limit=1 << 20,
            window_messages=50,
        )
        incarnation = NAMES.index(name) + 1
        self.router = Router(config, Life(incarnation, self.now, True), wall_us=lambda: int(self.now * 1e6))
        self.said: list[bytes] = []
        self.up = False
        self.number = 0
        self.client: ClientConnection = self.router.connect(self.now)

    def attach(self) -> None:
        data = AMQP_HEADER + frame(Open(f"client of {self.name}")) + frame(Begin(None, 0, 1000, 1000))
        sending = Attach("out", 0, False, target=Target("t"), initial_delivery_count=0)
        receiving = Attach("in", 1, True, rcv_settle_mode=1, source=Source("t", timeout=3), target=Target())
        credit = Flow(0, 1000, 0, 1000, handle=1, delivery_count=0, link_credit=100)
        self.says(data + frame(receiving) + frame(sending) + frame(credit))

    def publish(self) -> None:
        self.says(frame(Transfer(0, self.number, b"%d" % self.number, 0), 0, BODY))
        self.number += 1

    def says(self, data: bytes) -> None:
        self.client.receive_data(data, self.now)
        self.turn()

    def peer_up(self) -> None:
        self.up = True
        self.router.peer_up(self.peer, self.now)
        self.turn()

    def hears(self, message: bytes) -> None:
        if not self.up:
            self.peer_up()
        try:
            self.router.peer_message(self.peer, message, self.now)
        except PeerProtocolError:
            self.peer_down()
        self.turn()

    def peer_down(self) -> None:
        self.up = False
        self.router.peer_down(self.peer, self.now)
        self.turn()

    def turn(self) -> None:
        self.now += 0.001
        for _ in range(TURNS):
            self.router.flush(self.now)
            messages = [message for peers, message in self.router.take_messages() if self.peer in peers]
            self.said += [b"".join(each) if isinstance(each, list) else each for each in messages]
            dirty = self.router.take_dirty()
            for connection in dirty:
                check_output(connection.data_to_send())
            if not messages and not dirty and not self.router.wants_flush:
                return
        raise Broken("the router never comes to rest")

    def leave(self) -> None:
        """The peer goes, the client goes: after a while nothing is left."""
        if self.up:
            self.peer_down()
        if self.client.closed:
            raise Broken("the client was thrown out for what the peer said")
        self.router.status()
        self.client.receive_eof(self.now)
        self.turn()
        end = self.now + WHILE_S + self.longest_timeout_s()
        while self.now < end:
            self.now = min(max(self.router.next_deadline() or end, self.now + 0.5), end)
            self.router.tick(self.now)
            self.turn()
        if self.router.core.addresses or self.router.core.memory.payload_bytes:
            raise Broken(f"left behind: {of_all(self.router.core)}")

    def longest_timeout_s(self) -> float:
        """The peer may have granted a subscription any time in which it may come back here."""
        known = [
            entry for address in self.router.core.addresses.values() for entry in address.subscriptions.entries.values()
        ]
        return max([entry.timeout_s for entry in known], default=0.0)


def with_head(message: bytes) -> bytes:
    return (len(message) + HEAD).to_bytes(4, "big") + bytes(4) + message


def run_messages(data: bytes) -> Peered:
    """In a session: the peer says these; the client publishes between them."""
    peered = Peered()
    peered.attach()
    peered.peer_up()
    for number, message in enumerate(each[HEAD:] for each in frames(data)):
        peered.hears(message)
        if number % 3 == 1:
            peered.publish()
    kept = peered.router.core.memory.payload_bytes
    _in_proportion(sum(map(len, peered.said)), kept, len(data) + peered.number * len(BODY))
    return peered


class Trunked(Peered):
    """The same router in its network: what comes over its trunk reaches it as messages, if it is any."""

    def __init__(self, name: str = "a") -> None:
        super().__init__(name)
        incarnation = NAMES.index(name) + 1
        self.network = Network(
            Hello("n", name, incarnation), {self.peer: 1}, rng=random.Random(incarnation), now=self.now
        )
        server = name == "a"  # the stranger dials
        self.trunk: Trunk = self.network.connect(self.now, neighbour=None if server else self.peer)
        self.out = b""
        self.resets = 0

    def reads(self, data: bytes) -> None:
        if not self.trunk.closed:
            self.trunk.receive_data(data, self.now)
        self.turn()

    def turn(self) -> None:
        self.now += 0.001
        for _ in range(TURNS):
            before = len(self.said)
            super().turn()
            for message in self.said[before:]:
                self.network.send((self.peer,), message)
            self.network.flush(self.now)
            events = self.network.take_events()
            for event in events:
                self._happens(event)
            self.out += self.trunk.data_to_send()
            if not events and not self.network.more:
                return
        raise Broken("router and network never come to rest")

    def _happens(self, event: PeerUp | PeerDown | PeerMessage) -> None:
        if isinstance(event, PeerMessage):
            try:
                if self.up:
                    self.router.peer_message(self.peer, event.data, self.now)
            except PeerProtocolError:
                self.resets += 1
                self.network.peer_reset(self.peer, self.now)
        elif isinstance(event, PeerUp):
            self.up = True
            self.router.peer_up(self.peer, self.now, event.began, event.version)
        else:
            self.up = False
            self.router.peer_down(self.peer, self.now)

    def leave(self) -> None:
        self.trunk.receive_eof(self.now)
        end = self.now + 10.0
        while self.now < end:
            self.now = min(max(self.network.next_deadline(), self.now + 0.1), end)
            self.network.tick(self.now)
            self.turn()
        if self.up:
            raise Broken("the peer is up though its trunk has gone")
        super().leave()


def run_trunk(data: bytes, pieces: Callable[[bytes], list[bytes]] = lambda data: [data]) -> Trunked:
    """On a trunk that the stranger dialled; frame by frame, as nobody sends before it has credit."""
    trunked = Trunked()
    trunked.attach()
    for each in frames(data):
        for piece in pieces(each):
            trunked.reads(piece)
    trunked.publish()
    check_output(trunked.out)
    _in_proportion(len(trunked.out), trunked.router.core.memory.payload_bytes, len(data))
    return trunked


def _in_proportion(said: int, kept: int, came: int) -> None:
    if max(said, kept) > ROOM + came * RATIO:
        raise Broken(f"{said} bytes answer {came}, {kept} are kept")
