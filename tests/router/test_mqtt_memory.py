"""What clients of MQTT make takes memory that is counted in octets, and bounded; when it goes, nothing is left."""

from __future__ import annotations

import pytest

from amqp10.sasl import Success
from mqtt import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Subscription,
    Will,
    encode,
)
from router.core.holding import NETWORK
from router.mqtt.holding import SESSION
from router.mqtt.service import Mqtt
from router.mqtt.session import MOST_ASKED
from router.mqtt.turn import SPARE_TIMERS
from tests.builds import puts_stand_ins
from tests.router.mqtt_clients import LASTING, Client, World, answer, subscribe
from tests.router.mqtt_made import Network

MIB = 1 << 20


def begin(world: World, size: int, got: int) -> Client:
    """A client that has sent so many octets of a PUBLISH."""
    client = world.connect(f"p{len(world.clients)}")
    data = encode(Publish("t", bytes(size)), 5)
    client.connection.receive_data(data[:got], world.now)
    world.settle()
    return client


def test_beginnings_of_packets_fill_no_more_than_their_part_of_memory() -> None:
    world = World(memory_limit=MIB, max_message_size=MIB)
    clients = [begin(world, MIB - 100, 600_000) for _ in range(4)]
    assert world.router.buffers.incomplete_bytes <= MIB * 5 // 4
    assert [client.connection.closed for client in clients] == [False, False, True, True]
    assert world.router.admission.refused["memory_limit"] == 2
    clients[0].connection.receive_data(bytes(MIB), world.now)  # to its end, and then what is no packet
    clients[1].lose()
    assert world.router.buffers.incomplete_bytes == 0


def test_small_beginnings_of_packets_close_nothing() -> None:
    world = World(memory_limit=MIB, max_message_size=MIB)
    begin(world, MIB - 100, 900_000)
    clients = [begin(world, 60_000, 50_000) for _ in range(20)]
    assert not any(client.connection.closed for client in clients)


def test_a_packet_in_small_pieces_counts_what_the_pieces_take() -> None:
    world = World(memory_limit=MIB, max_message_size=MIB)
    client = world.connect("p")
    data = encode(Publish("t", bytes(100_000)), 5)
    for at in range(50_000):
        client.connection.receive_data(data[at : at + 1], world.now)
    assert client.connection.closed
    assert world.router.buffers.incomplete_bytes == 0


@pytest.mark.parametrize(
    ("name", "level", "answer"),
    [
        (b"MQIsdp", 3, b"\x20\x02\x00\x01"),
        (b"MQTT", 3, b"\x20\x02\x00\x01"),
        (b"MQTT", 0x83, b"\x20\x02\x00\x01"),
        (b"MQTT", 6, b"\x20\x03\x00\x84\x00"),
    ],
)
def test_a_client_of_another_version_is_told_so(name: bytes, level: int, answer: bytes) -> None:
    client = World().client()
    body = len(name).to_bytes(2, "big") + name + bytes((level, 2, 0, 0)) + b"\0\1x"
    client.connection.receive_data(bytes((0x10, len(body))) + body, 0.0)
    assert client.connection.data_to_send() == answer
    assert client.connection.closed


def test_a_packet_of_too_many_filters_is_refused() -> None:
    client = World().connect("s")
    client.send(Subscribe(1, [Subscription("a")] * 10_001))
    assert client.connection.closed
    assert not client.world.router.mqtt.sessions


def attempt(world: World, name: str, user: str, will: Will | None = None) -> Reason:
    """A session whose client goes at once."""
    client = world.client(step=Success(user))
    (connack,) = client.send(Connect(name, properties=LASTING, will=will))
    assert isinstance(connack, Connack)
    client.lose()
    return connack.reason


def test_sessions_of_one_user_leave_room_for_those_of_others() -> None:
    world = World(memory_limit=64 * SESSION)

    def sessions_of(user: str) -> int:
        return next(i for i in range(64) if attempt(world, f"s{i}", user) is Reason.QUOTA_EXCEEDED)

    assert 24 <= sessions_of("one") <= 32
    assert attempt(world, "s3", "one") is Reason.SUCCESS  # it is there already
    assert 12 <= sessions_of("two") <= 16
    held = world.router.core.memory.holding
    assert held.by_user["one"] < 33 * SESSION
    assert held.by_user["two"] < 17 * SESSION
    world.pass_time(100)
    assert set(held.by_user) <= {NETWORK}, "what routers know without a name"
    assert world.router.mqtt.status()["session_bytes"] == 0
    assert attempt(world, "s30", "one") is Reason.SUCCESS


def test_wills_and_filters_count_for_their_session() -> None:
    world = World(memory_limit=20 * SESSION)
    will = Will("t", bytes(5 * SESSION), properties=Properties(will_delay_s=50))
    assert attempt(world, "s", "one", will) is Reason.SUCCESS
    assert attempt(world, "t", "one", will) is Reason.QUOTA_EXCEEDED
    client = world.connect("s", step=Success("one"), properties=LASTING, clean_start=False)  # its will is over
    reasons = subscribe(client, *(f"a/{i}" for i in range(200)))
    assert set(reasons) == {Reason.GRANTED_QOS_2, Reason.QUOTA_EXCEEDED}
    held = world.router.core.memory.holding
    assert 3 * SESSION < held.by_user["one"] <= 12 * SESSION
    client.lose()
    world.pass_time(100)
    assert "one" not in held.by_user


def test_a_session_whose_client_comes_and_goes_leaves_one_timer() -> None:
    world = World()
    for i in range(300):
        world.connect("s", properties=LASTING, clean_start=i % 2 == 0).lose()
        world.connect("s", properties=LASTING, clean_start=i % 2 == 0).lose()
    assert len(world.router.mqtt._timers) <= SPARE_TIMERS + 3
    world.pass_time(100)
    assert not world.router.mqtt._timers
    assert not world.router.mqtt.sessions


def test_large_messages_in_flight_are_bounded_by_octets() -> None:
    world = World(window_bytes=MIB, memory_limit=64 * MIB)
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "t", qos=1)
    (session,) = (each for each in world.router.mqtt.sessions.values() if each.client_id == "s")
    publisher.send(Publish("t", bytes(200_000), 1, packet_id=100))  # so it is known how large they are
    subscriber.send(Puback(subscriber.take()[0].packet_id))  # type: ignore[union-attr]
    for i in range(20):
        publisher.send(Publish("t", bytes(200_000), 1, packet_id=i + 1))
    assert len(session.identifiers.in_flight) == MIB // 200_000
    assert len(answer(subscriber)) == 20
    assert not session.identifiers.in_flight


def test_what_is_in_flight_is_a_view_of_what_the_core_counts() -> None:
    world = World()
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "t", qos=1)
    publisher.send(Publish("t", bytes(200_000), 1, packet_id=1))
    (session,) = (each for each in world.router.mqtt.sessions.values() if each.client_id == "s")
    (one,) = session.identifiers.in_flight.values()
    assert isinstance(one.publish.payload, memoryview)
    assert len(one.publish.payload.obj) > 200_000  # type: ignore[arg-type]
    assert world.router.core.memory.payload_bytes == len(one.publish.payload.obj)  # type: ignore[arg-type]


def test_topic_aliases_stand_for_a_bounded_number_of_characters() -> None:
    client = World().connect("p")
    topics = [f"{i}".ljust(10_000, "x") for i in range(7)]
    for topic in topics[:6] * 3:  # what an alias stood for before does not count
        client.send(Publish(topic, b"x", properties=Properties(topic_alias=1 + topics.index(topic))))
    assert not client.connection.closed
    client.send(Publish(topics[6], b"x", properties=Properties(topic_alias=7)))
    assert client.connection.closed


def test_we_use_no_alias_for_a_long_topic() -> None:
    world = World()
    subscriber, publisher = world.connect("s", properties=Properties(topic_alias_maximum=10)), world.connect("p")
    subscribe(subscriber, "#", qos=0)
    for topic in ("short", "long".ljust(2_000, "x")):
        publisher.send(Publish(topic, b"x"))
    found = [each for each in subscriber.take() if isinstance(each, Publish)]
    assert [each.properties.topic_alias for each in found] == [1, None]


def test_a_connection_keeps_neither_credentials_nor_will_of_its_connect() -> None:
    world = World()
    many = Properties(user_properties=(("a", "x" * 10_000),) * 3)
    client = world.connect("c", username="u", password=bytes(10_000), will=Will("t", bytes(10_000)), properties=many)
    kept = client.connection._engine.connect
    assert (kept.username, kept.password, kept.will, kept.properties.user_properties) == (None, None, None, ())
    (session,) = world.router.mqtt.sessions.values()
    assert session.absence.will is not None


def test_a_client_is_not_read_while_many_of_its_subscribes_wait_for_another_router() -> None:
    network = Network()
    client = network.client("s", properties=LASTING)
    client.take()
    packets = [Subscribe(i + 1, [Subscription(f"{i}")]) for i in range(MOST_ASKED)]
    client.connection.receive_data(b"".join(encode(each, 5) for each in packets[:-1]), network.now)
    assert not client.connection.is_busy
    client.connection.receive_data(encode(packets[-1], 5), network.now)
    assert client.connection.is_busy
    network.exchange()
    assert not client.connection.is_busy
    assert [each.packet_id for each in client.take() if isinstance(each, Suback)] == [*range(1, MOST_ASKED + 1)]


def test_small_messages_in_flight_leave_room_for_large_ones_of_another_address() -> None:
    world = World(topics={"t": "tt", "image": "ii"}, window_bytes=MIB, memory_limit=64 * MIB)
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "t/#", "image/#", qos=1)
    image = Publish("image/a", bytes(200_000), 1, packet_id=100)
    publisher.send(image)  # so it is known how large they are
    subscriber.send(Puback(subscriber.take()[0].packet_id))  # type: ignore[union-attr]
    publisher.send(*[Publish("t/a", b"x", 1, packet_id=i + 1) for i in range(50)])
    assert len(subscriber.take()) == 50
    publisher.send(image)
    assert [len(each.payload) for each in subscriber.take() if isinstance(each, Publish)] == [200_000]
    identifiers = world.router.mqtt.sessions["s"].identifiers
    subscriber.send(*[Puback(packet_id) for packet_id in identifiers.in_flight])
    assert not identifiers.octets


@puts_stand_ins
def test_who_waits_for_its_session_is_read_until_it_says_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.client()
    monkeypatch.setattr(Mqtt, "_may_learn_of_sessions", True)
    assert client.send(Connect("c", 5, clean_start=False)) == []
    assert client.connection.reads, "else nobody would notice that it has gone"
    assert client.send(Pingreq()) == []
    assert not client.connection.reads
    monkeypatch.setattr(Mqtt, "_may_learn_of_sessions", False)
    world.settle()
    assert [type(packet) for packet in client.take()] == [Connack, Pingresp]
    assert client.connection.reads
