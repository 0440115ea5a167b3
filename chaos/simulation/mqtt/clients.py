"""MQTT clients that keep identifiers as the standard says.

A client uses the lowest free identifier, again at once. When it connects again it sends PUBLISH, or PUBREL, for
what is not complete, and nothing else: it presents no map. A subscriber holds the identifier of what it has received
until PUBREL; what comes under one that it holds is a repeat. What a client has not read when its connection goes is
lost, what its router has not read is not.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mqtt import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketReader,
    Properties,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    encode,
)

if TYPE_CHECKING:
    from chaos.simulation.mqtt.net import Net
    from chaos.simulation.world.checker import Checker
    from router.mqtt.connection import MqttConnection
    from router.router import Router

TOPIC = "topic"
QUEUE = "jobs"  # of the shared subscription
GROUP = "g/topic"
Mid = tuple[str, int]
EXPIRY_S = 8


class Connection:
    """A client's, to one router. `to_router`, `to_client`: packets under way."""

    def __init__(self, name: str, router: Router, end: MqttConnection, client: Client) -> None:
        self.name, self.router, self.end, self.client = name, router, end, client
        self.reader = PacketReader(version=5)
        self.to_router: deque[bytes] = deque()
        self.to_client: deque[Packet] = deque()
        self.noticed = False  # its router knows that the client has gone

    def send(self, packet: Packet) -> None:
        self.to_router.append(encode(packet, 5))


class Client:
    """One process, which never loses its memory."""

    connection: Connection | None = None
    ready = False  # CONNACK has come, and SUBACK where it subscribes
    receive_maximum = 100

    def __init__(self, name: str) -> None:
        self.name = name
        self.began = False  # it has had a session
        self.net: Net = None  # type: ignore[assignment]  # set by the net

    def connect(self, connection: Connection) -> None:
        self.connection = connection
        expiry_s = EXPIRY_S - len(self.net.connections) % 2  # with another one its router takes the session anew
        properties = Properties(session_expiry_s=expiry_s, receive_maximum=self.receive_maximum)
        connection.send(Connect(self.name, clean_start=not self.began, properties=properties))

    def hang_up(self) -> None:
        """Its connection is gone: what it has not read is lost."""
        if self.connection is not None:
            self.connection.to_client.clear()
            if (
                not self.began
            ):  # a CONNECT with Clean Start that is read late takes the session (docs/mqtt.md, Sessions)
                self.connection.to_router.clear()
            self.connection, self.ready = None, False

    def read(self, packet: Packet) -> None:
        if isinstance(packet, Disconnect) or (isinstance(packet, Connack) and packet.reason):
            self.hang_up()
        elif isinstance(packet, Connack):
            assert packet.session_present or not self.began or self.may_have_missed(), f"{self.name}: no session"
            self.connected()
        else:
            self.handle(packet)

    def send(self, packet: Packet) -> None:
        assert self.connection is not None
        self.connection.send(packet)

    def connected(self) -> None:
        raise NotImplementedError

    def may_have_missed(self) -> bool:
        """Says whether it may find its session ended."""
        return False

    def handle(self, packet: Packet) -> None:
        raise NotImplementedError


class Publisher(Client):
    """Sends `total` messages, `most` at a time."""

    def __init__(self, name: str, total: int = 6, most: int = 2) -> None:
        super().__init__(name)
        self.total, self.most = total, most
        self.sent = 0
        self.unfinished: dict[int, tuple[int, bool]] = {}  # identifier -> (number, whether PUBREC has come)

    def connected(self) -> None:
        self.began = self.ready = True
        for identifier, (number, received) in self.unfinished.items():
            self.send(Pubrel(identifier) if received else self._message(identifier, number, dup=True))

    def _message(self, identifier: int, number: int, *, dup: bool) -> Publish:
        return Publish(TOPIC, f"{self.name} {number}".encode(), 2, dup=dup, packet_id=identifier)

    def can_publish(self) -> bool:
        here = self.ready and self.net.may_publish()
        return here and self.sent < self.total and len(self.unfinished) < self.most

    def publish(self) -> None:
        identifier = min(i for i in range(1, self.most + 1) if i not in self.unfinished)
        self.sent += 1
        self.unfinished[identifier] = (self.sent, False)
        self.net.sent((self.name, self.sent))
        self.send(self._message(identifier, self.sent, dup=False))

    def handle(self, packet: Packet) -> None:
        assert self.connection is not None
        if isinstance(packet, Pubrel):  # of an identifier that it does not know: its router asks whether it is there
            self.send(Pubcomp(packet.packet_id))
            return
        assert isinstance(packet, Pubrec | Pubcomp)
        identifier = packet.packet_id
        found = self.unfinished.get(identifier)
        if found is None:
            return
        if isinstance(packet, Pubrec):
            if not found[1]:
                self.unfinished[identifier] = (found[0], True)
                router = self.connection.router
                told = (self.name, found[0]), (self.connection.name, router.core.incarnation)
                self.net.checker.told_accepted(*told)
                if self.net.members:
                    self.net.group.told_accepted(*told)
            self.send(Pubrel(identifier))
        elif found[1]:
            del self.unfinished[identifier]


class Subscriber(Client):
    """Has `most` as its receive maximum."""

    topic_filter = TOPIC

    def __init__(self, name: str, most: int = 2) -> None:
        super().__init__(name)
        self.receive_maximum = most
        self.held: set[int] = set()
        self.subscribed = False

    def connected(self) -> None:
        self.began, self.ready = True, self.subscribed
        if not self.subscribed:
            self.send(Subscribe(1, [Subscription(self.topic_filter, 2)]))

    def may_have_missed(self) -> bool:
        """Routers may accept before they know of a SUBSCRIBE that is not answered."""
        return not self.subscribed

    def handle(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if packet.packet_id not in self.held:
                self.held.add(packet.packet_id)
                publisher, number = bytes(packet.payload).decode().split()
                self.checker.handed(self.name, (publisher, int(number)))
                self.checker.accepted(self.name, (publisher, int(number)))
            self.send(Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self.held.discard(packet.packet_id)
            self.send(Pubcomp(packet.packet_id))
        else:
            assert isinstance(packet, Suback)
            self.ready = True
            if not self.subscribed:
                self.subscribed = True
                self.checker.confirmed(self.name)

    @property
    def checker(self) -> Checker:
        return self.net.checker


class Member(Subscriber):
    """Of the shared subscription. It may leave, and joins again then."""

    topic_filter = f"$share/{GROUP}"

    def __init__(self, name: str, most: int = 2) -> None:
        super().__init__(name, most)
        self.left: set[str] = set()  # routers at which it has left

    @property
    def checker(self) -> Checker:
        return self.net.group

    def leave(self) -> None:
        self.subscribed = self.ready = False
        self.send(Unsubscribe(2, [self.topic_filter]))

    def handle(self, packet: Packet) -> None:
        if isinstance(packet, Unsuback):
            self.connected()
        else:
            super().handle(packet)
