"""What a client of MQTT can make, one row for each kind: how it is made, and how it goes.

`tests/router/test_mqtt_made.py` walks this table. Rows for clients of AMQP are in `tests/router/made.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from amqp10.sasl import Failure, Pending, Step, Success
from mqtt import (
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
    encode,
)
from router.config import SHARED, AddressConfig
from router.core.log import SEGMENT
from router.mqtt.base import SESSIONS
from router.mqtt.retained import MOST_DELETED
from router.router import Router
from tests.router.made import remember_others
from tests.router.mqtt_clients import LASTING, Client, World, answer
from tests.router.neighbours import Neighbours
from tests.router.test_mqtt_retained import RETAINED, Store

FORGOTTEN_S: Final = 80.0
"""After which no router waits for a client that has gone, with the timeouts of `ADDRESSES`."""
ADDRESSES: Final = (
    AddressConfig(SESSIONS, subscription_timeout_s=60.0, no_subscribers="release"),
    AddressConfig(f"{SHARED}*", type="queue", subscription_timeout_s=4.0, no_subscribers="accept"),
    RETAINED,
    AddressConfig("*", subscription_timeout_s=60.0, publisher_timeout_s=8.0, no_subscribers="accept"),
)
MEMORY: Final = 8 << 20
REMEMBERED: Final = 2_000  # octets of answers: so few that they are there after some cycles

Gone = Callable[[], object]


class Kind(NamedTuple):
    """make: in a network, with a number that no other one has; returns what makes it go. spare: objects that may come
    and go with the blocks of a log."""

    name: str
    make: Callable[[Network, int], Gone]
    spare: int = 0


class Place:
    """A router for `Client`, which lives in a world of its own otherwise."""

    def __init__(self, network: Network, router: Router) -> None:
        self.network = network
        self.router = router

    @property
    def now(self) -> float:
        return self.network.now

    def settle(self) -> None:
        self.network.exchange()


class Network(Neighbours):
    """Two routers, with clients of MQTT at both; the store of retained messages is at the first."""

    def __init__(self) -> None:
        self.mqtt: list[Client] = []
        super().__init__(
            addresses=ADDRESSES,
            memory_limit=MEMORY,
            max_message_size=MEMORY // 16,
            mqtt_topics=(("#", "all"), ("some", "some")),
            mqtt_retained="retained",
        )
        self.places = {name: cast(World, Place(self, router)) for name, router in (("a", self.a), ("b", self.b))}
        self.exchange()
        self.store = Store(self.places["a"])
        for _ in range(3):  # both routers ask
            self.store.work()
            self.exchange()
        for each in (self.a, self.b):  # of topics that were cleared there are as many known as there may be
            remember_others(each, self.now)
            mqtt = each.mqtt
            for answers in (mqtt.messages._read, mqtt.messages._heads, mqtt.filters.remembered, mqtt.topics._found):
                answers.room = REMEMBERED
            for number in range(MOST_DELETED):
                each.mqtt.retained.table.take(f"earlier{number}", (number, "a"), None)

    def exchange(self) -> None:
        super().exchange()
        moved = True
        while moved:
            moved = False
            for each in (self.a, self.b):
                each.take_dirty()
            for client in self.mqtt:
                data = client.connection.data_to_send()
                moved = moved or bool(data)
                client.inbox += client.reader.receive_data(data)
            if moved or self.a.wants_flush or self.b.wants_flush:
                super().exchange()

    def arrive(self, at: str = "a", step: Step = Success("anonymous"), version: int = 5) -> Client:  # noqa: B008 - a constant
        client = Client(self.places[at], version, step)
        self.mqtt.append(client)
        return client

    def client(self, name: str, at: str = "a", **options: Any) -> Client:
        client = self.arrive(at)
        client.send(Connect(name, **options))
        return client

    def leave(self, client: Client) -> None:
        """Its transport is closed by either side."""
        client.connection.receive_eof(self.now)
        self.exchange()
        self.mqtt.remove(client)


def _connection(network: Network, number: int) -> Gone:
    client = network.client(f"c{number}")

    def close() -> None:
        client.send(Disconnect())
        network.leave(client)

    return close


def _lost_connection(network: Network, number: int) -> Gone:
    client = network.client(f"c{number}")
    return lambda: network.leave(client)


def _connection_before_connect(network: Network, number: int) -> Gone:
    client = network.arrive()
    return lambda: network.leave(client)


def _login(step: Step) -> Callable[[Network, int], Gone]:
    def make(network: Network, number: int) -> Gone:
        client = network.arrive(step=step)
        client.connection.receive_data(encode(Connect(f"c{number}"), 5), network.now)
        client.connection.receive_data(encode(Publish(f"{number}", b"early"), 5), network.now)
        network.exchange()
        return lambda: network.leave(client)

    return make


def _unknown_version(network: Network, number: int) -> Gone:
    client = network.arrive()
    client.connection.receive_data(b"\x10\x0d\0\4MQTT\x84\2\0\0\0\1x", network.now)
    client.connection.data_to_send()
    return lambda: network.leave(client)


def _lasting_session(network: Network, number: int) -> Gone:
    client = network.client(f"c{number}", properties=LASTING)
    client.send(Subscribe(1, [Subscription(f"{number}/+", 2)]))
    return lambda: network.leave(client)


def _session_in_whose_place_another_begins(network: Network, number: int) -> Gone:
    network.leave(network.client("always", properties=LASTING, clean_start=True))
    client = network.client("always", properties=LASTING, clean_start=False)
    return lambda: network.leave(client)


def _session_that_moves(network: Network, number: int) -> Gone:
    here = network.client(f"c{number}", properties=LASTING)
    here.send(Subscribe(1, [Subscription(f"{number}/+", 2)]))
    there = network.client(f"c{number}", "b", properties=LASTING, clean_start=False)

    def go() -> None:
        network.leave(here)
        network.leave(there)

    return go


def _assigned_client_identifier(network: Network, number: int) -> Gone:
    client = network.client("")
    return lambda: network.leave(client)


def _will(properties: Properties) -> Callable[[Network, int], Gone]:
    def make(network: Network, number: int) -> Gone:
        will = Will(f"will/{number}", b"x", 1, properties=properties)
        client = network.client(f"c{number}", properties=LASTING, will=will)
        return lambda: network.leave(client)

    return make


def _filter(text: str) -> Callable[[Network, int], Gone]:
    def make(network: Network, number: int) -> Gone:
        client = network.client("always", properties=LASTING)
        client.send(Subscribe(1, [Subscription(text.format(number), 2)], Properties(subscription_ids=(number + 1,))))

        def go() -> None:
            client.send(Unsubscribe(2, [text.format(number)]))
            network.leave(client)

        return go

    return make


def _topic(qos: int, address: str = "") -> Callable[[Network, int], Gone]:
    def make(network: Network, number: int) -> Gone:
        client = network.client("always", properties=LASTING)
        client.send(Publish(f"{address}{number}", b"x", qos, packet_id=1 if qos else 0))
        answer(client)
        return lambda: network.leave(client)

    return make


def _topic_alias(network: Network, number: int) -> Gone:
    client = network.client(f"c{number}")
    client.send(Publish(f"{number}", b"x", properties=Properties(topic_alias=1 + number % 64)))
    return lambda: network.leave(client)


def _user_properties(network: Network, number: int) -> Gone:
    client = network.client("always", properties=LASTING)
    properties = Properties(
        user_properties=((f"n{number}", "x"), ("a", f"{number}"), ("a", "b")),
        message_expiry_s=5,
        content_type=f"{number}",
    )
    client.send(Publish("t", b"x", 1, packet_id=1, properties=properties))
    return lambda: network.leave(client)


def _retained(network: Network, number: int) -> Gone:
    client = network.client("always", properties=LASTING)

    def send(payload: bytes) -> None:
        client.send(Publish(f"job/{number}", payload, 1, True, packet_id=1))
        network.store.work()
        network.store.kept.clear()  # it is not what is looked at
        answer(client)

    send(b"running")

    def go() -> None:
        send(b"")
        network.leave(client)

    return go


def _what_is_retained_for(text: str) -> Callable[[Network, int], Gone]:
    """A search that does not end before its client goes."""

    def make(network: Network, number: int) -> Gone:
        if number == 0:
            publisher = network.client("publisher", properties=LASTING)
            for i in range(3):
                publisher.send(Publish(f"always/{i}", b"x", 1, True, packet_id=i + 1))
                network.store.work()
            answer(publisher)
            network.leave(publisher)
        client = network.client(f"c{number}", properties=LASTING._replace(receive_maximum=1))
        client.send(Subscribe(1, [Subscription(text, 1)]))
        return lambda: network.leave(client)

    return make


def _in_flight(qos: int, lasting: bool) -> Callable[[Network, int], Gone]:
    """A message that a subscriber does not answer to the end."""

    def make(network: Network, number: int) -> Gone:
        properties = Properties(session_expiry_s=5 if lasting else 0)
        subscriber = network.client(f"s{number}", properties=properties)
        subscriber.send(Subscribe(1, [Subscription(f"flight/{number}", qos)]))
        publisher = network.client(f"p{number}", "b", properties=properties)
        publisher.send(Publish(f"flight/{number}", bytes(2_000), qos, packet_id=7))

        def go() -> None:
            network.leave(subscriber)
            network.leave(publisher)

        return go

    return make


def _unreleased(network: Network, number: int) -> Gone:
    """A PUBLISH of QoS 2 that its client does not release."""
    client = network.client(f"c{number}", properties=LASTING)
    client.send(Publish(f"{number}", b"x", 2, packet_id=1))
    return lambda: network.leave(client)


def _answers_to_nothing(network: Network, number: int) -> Gone:
    client = network.client("always", properties=LASTING)
    packets: list[Packet] = [Puback(5), Pubrec(6), Pubrel(1 + number % 60_000)]
    client.send(*packets)
    return lambda: network.leave(client)


def _unfinished_packet(network: Network, number: int) -> Gone:
    client = network.client(f"c{number}")
    for _ in range(3):
        client.connection.receive_data(encode(Publish(f"{number}", bytes(100_000)), 5)[:50_000], network.now)
    return lambda: network.leave(client)


KINDS: Final = (
    Kind("connection", _connection),
    Kind("connection that is lost", _lost_connection),
    Kind("connection before its CONNECT", _connection_before_connect),
    Kind("connection that is refused", _login(Failure("no"))),
    Kind("connection whose login takes time", _login(Pending())),
    Kind("connection of an unknown version", _unknown_version),
    Kind("session that expires", _lasting_session),
    Kind("session in whose place another begins", _session_in_whose_place_another_begins),
    Kind("session that moves", _session_that_moves),
    Kind("assigned client identifier", _assigned_client_identifier),
    Kind("will", _will(Properties())),
    Kind("will that is delayed", _will(Properties(will_delay_s=20))),
    Kind("filter", _filter("{}/a")),
    Kind("filter of every level", _filter("+/{}/#")),
    Kind("shared subscription", _filter("$share/g{}/a/+")),
    Kind("topic of QoS 0", _topic(0)),
    Kind("topic of QoS 1", _topic(1)),
    Kind("topic of QoS 2", _topic(2)),
    Kind("topic of another address", _topic(1, "some/")),
    Kind("topic alias", _topic_alias),
    Kind("message with properties", _user_properties),
    Kind("retained message that is cleared", _retained, 2 * SEGMENT),
    Kind("search for what is retained", _what_is_retained_for("#")),
    Kind("message of QoS 1 in flight", _in_flight(1, False)),
    Kind("message of QoS 2 in flight", _in_flight(2, False)),
    Kind("message of QoS 1 in flight of a session that expires", _in_flight(1, True)),
    Kind("message of QoS 2 in flight of a session that expires", _in_flight(2, True)),
    Kind("message that is not released", _unreleased),
    Kind("answers to nothing", _answers_to_nothing),
    Kind("unfinished packet", _unfinished_packet),
)
