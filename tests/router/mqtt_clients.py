"""Clients of MQTT in one process with a router: packets in, packets out, time that the test moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amqp10.sasl import Step, Success
from mqtt import (
    Connack,
    Connect,
    Packet,
    PacketReader,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Subscription,
    encode,
)
from router.config import SHARED, AddressConfig, Life, RouterConfig
from router.mqtt.base import SESSIONS
from router.router import Router

WALL_US = 1_700_000_000_000_000
LASTING = Properties(session_expiry_s=50)


class Client:
    """One connection. `inbox` has what came and was not taken."""

    def __init__(self, world: World, version: int, step: Step) -> None:
        self.world = world
        self.version = version
        self.connection = world.router.connect_mqtt(
            world.now, "127.0.0.1:9", secure=False, authenticate=lambda name, password: step
        )
        self.reader = PacketReader(version=version)
        self.inbox: list[Packet] = []

    def send(self, *packets: Packet) -> list[Packet]:
        """What has come when the router has done everything; the inbox is empty then."""
        data = b"".join(encode(packet, self.version) for packet in packets)
        self.connection.receive_data(data, self.world.now)
        while self.connection.more:
            self.connection.receive_data(b"", self.world.now)
        self.world.settle()
        return self.take()

    def take(self) -> list[Packet]:
        found, self.inbox = self.inbox, []
        return found

    def lose(self) -> None:
        self.connection.receive_eof(self.world.now)
        self.world.settle()


class World:
    """One router. Addresses are topics without subscribers' patience: nobody there is accepted."""

    def __init__(
        self,
        topics: dict[str, str] | None = None,
        addresses: Sequence[AddressConfig] = (),
        shared: dict[str, str] | None = None,
        **config: Any,
    ) -> None:
        self.now = 0.0
        sessions = AddressConfig(SESSIONS, subscription_timeout_s=60.0, no_subscribers="release")
        shares = AddressConfig(f"{SHARED}*", type="queue", subscription_timeout_s=60.0, no_subscribers="accept")
        rest = AddressConfig("*", no_subscribers="accept")
        self.router = Router(
            RouterConfig(
                "a",
                ("a",),
                (sessions, shares, *addresses, rest),
                mqtt_topics=tuple((topics or {"#": "all"}).items()),
                mqtt_shared=tuple((shared or {}).items()),
                **config,
            ),
            Life(1, 0.0, True),
            wall_us=lambda: WALL_US + int(self.now * 1e6),
        )
        self.clients: dict[Any, Client] = {}

    def client(self, version: int = 5, step: Step = Success("anonymous")) -> Client:  # noqa: B008 - a constant
        client = Client(self, version, step)
        self.clients[client.connection] = client
        return client

    def connect(self, client_id: str, version: int = 5, step: Step = Success("anonymous"), **options: Any) -> Client:  # noqa: B008
        client = self.client(version, step)
        answer, *client.inbox = client.send(Connect(client_id, version, **options))
        assert isinstance(answer, Connack), answer
        assert not answer.reason, answer
        return client

    def settle(self) -> None:
        """Everything that follows, until nothing is left to do."""
        while True:
            again = self.router.flush(self.now)
            dirty = self.router.take_dirty()
            for connection in dirty:
                client = self.clients[connection]
                client.inbox += client.reader.receive_data(connection.data_to_send())
            if not again and not dirty:
                self.router.core.check_invariants()
                return

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            due = [
                at for at in (self.router.next_deadline(), *(c.next_deadline() for c in self.clients)) if at is not None
            ]
            self.now = min([end, *(at for at in due if at > self.now)])
            self.router.tick(self.now)
            for connection in list(self.clients):
                at = connection.next_deadline()
                if at is not None and at <= self.now:
                    connection.handle_timer(self.now)
            self.settle()
            if self.now >= end:
                return


def answer(client: Client) -> list[Publish]:
    """Acknowledges all that has come and comes, to the end; returns the messages."""
    messages: list[Publish] = []
    packets = client.take()
    while packets:
        answers: list[Packet] = []
        for packet in packets:
            if isinstance(packet, Publish):
                messages.append(packet)
                if packet.qos:
                    answers.append((Puback if packet.qos == 1 else Pubrec)(packet.packet_id))
            elif isinstance(packet, Pubrel):
                answers.append(Pubcomp(packet.packet_id))
            elif isinstance(packet, Pubrec):
                answers.append(Pubrel(packet.packet_id))
        packets = client.send(*answers) if answers else client.take()
    return messages


def subscribe(client: Client, *filters: str, qos: int = 2, packet_id: int = 1, **options: bool) -> list[Reason]:
    """Returns what SUBACK says; what else has come is left in the inbox."""
    found = client.send(Subscribe(packet_id, [Subscription(each, qos, **options) for each in filters]))
    (acknowledgement,) = [each for each in found if isinstance(each, Suback)]
    client.inbox += [each for each in found if each is not acknowledgement]
    return acknowledgement.reasons


def texts(packets: list[Packet] | list[Publish]) -> list[bytes]:
    return [bytes(each.payload) for each in packets if isinstance(each, Publish)]
