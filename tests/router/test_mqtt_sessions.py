"""Sessions of MQTT on the router's core: what packets mean to deliveries, and deliveries to packets."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from amqp10.sasl import Failure, Success
from chaos.simulation.mqtt.clients import Connection, Publisher
from chaos.simulation.mqtt.net import Net
from mqtt import (
    NO_PROPERTIES,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from router.config import AddressConfig, Life, Limits, RouterConfig
from router.core.ports import SubscriberAnswer
from router.mqtt.kept import KeptSubscriber
from router.mqtt.outgoing import QUESTION, UPPER, identifier_of
from router.mqtt.session import Session
from router.policies import Policy
from router.router import Router
from tests.router.borders import Told
from tests.router.mqtt_clients import LASTING, WALL_US, Client, World, answer, subscribe, texts

P = TypeVar("P")


@pytest.fixture
def world() -> World:
    return World()


def of(packets: list[Packet], kind: type[P]) -> list[P]:
    return [packet for packet in packets if isinstance(packet, kind)]


# --- messages


@pytest.mark.parametrize(("published", "subscribed", "got"), [(0, 2, 0), (1, 2, 1), (2, 2, 2), (2, 1, 1), (2, 0, 0)])
def test_message_comes_with_the_lesser_of_both_qos(world: World, published: int, subscribed: int, got: int) -> None:
    subscriber, publisher = world.connect("s"), world.connect("p")
    subscribe(subscriber, "a/+", qos=subscribed)
    publisher.send(Publish("a/b", b"x", published, packet_id=7 if published else 0))
    assert [(each.topic, each.payload, each.qos) for each in answer(subscriber)] == [("a/b", b"x", got)]


def test_puback_and_pubrec_come_when_all_subscribers_have_accepted(world: World) -> None:
    one, two, publisher = world.connect("one"), world.connect("two"), world.connect("p")
    subscribe(one, "#")
    subscribe(two, "#")
    assert publisher.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 2, packet_id=2)) == []
    answer(one)
    assert publisher.take() == []
    answer(two)
    assert publisher.take() == [Puback(1), Pubrec(2)]


def test_pubrel_reaches_the_subscriber_however_long_its_publisher_takes(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 2, packet_id=2))
    (publish,) = subscriber.take()
    assert isinstance(publish, Publish)
    assert publish.packet_id >= UPPER
    assert subscriber.send(Pubrec(publish.packet_id)) == [Pubrel(publish.packet_id)]
    subscriber.send(Pubcomp(publish.packet_id))
    assert not world.router.mqtt.sessions["s"].identifiers.in_flight
    assert publisher.take() == [Pubrec(2)]
    assert publisher.send(Pubrel(2)) == [Pubcomp(2)]


def test_session_that_ends_with_its_connection_is_released_at_once(world: World) -> None:
    subscriber, publisher = world.connect("s"), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 2, packet_id=2))
    (publish,) = subscriber.take()
    assert isinstance(publish, Publish)
    assert subscriber.send(Pubrec(publish.packet_id)) == [Pubrel(publish.packet_id)]


def test_messages_of_one_publisher_keep_their_order_over_both_qos(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(*(Publish("a", bytes((i,)), 1 + i % 2, packet_id=i + 1) for i in range(200)))
    assert texts(answer(subscriber)) == [bytes((i,)) for i in range(200)]


def test_repeat_of_qos_2_is_no_second_message(world: World) -> None:
    subscriber, publisher = world.connect("s"), world.connect("p", properties=LASTING, clean_start=False)
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 2, packet_id=2))
    publisher.lose()
    publisher = world.connect("p", properties=LASTING, clean_start=False)
    assert texts(answer(subscriber)) == [b"x"]
    assert publisher.take() == []  # [MQTT-4.4.0-1]: the client repeats first
    assert publisher.send(Publish("a", b"x", 2, dup=True, packet_id=2)) == [Pubrec(2)]
    assert publisher.send(Pubrel(2)) == [Pubcomp(2)]
    assert publisher.send(Pubrel(2)) == [Pubcomp(2, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
    assert answer(subscriber) == []


def test_identifier_is_free_for_another_message_after_pubcomp(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    got: list[bytes] = []
    for text in (b"one", b"two"):
        publisher.send(Publish("a", text, 2, packet_id=9))
        got += texts(answer(subscriber))
        answer_publisher = publisher.send(Pubrel(9))
        assert Pubcomp(9) in answer_publisher
        answer(subscriber)
    assert got == [b"one", b"two"]


def test_deliveries_that_prefer_the_same_identifier_get_different_ones(world: World) -> None:
    """Of 600 messages some do; all of them come, each once, and in order."""
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    sent = [number.to_bytes(2, "big") for number in range(600)]
    publisher.send(*(Publish("a", each, 2, packet_id=i + 1) for i, each in enumerate(sent)))
    assert len({each.packet_id for each in subscriber.inbox if isinstance(each, Publish)}) == 600
    assert texts(answer(subscriber)) == sent


def refused(subscriber: Client, publisher: Client, kind: type[Puback | Pubrec]) -> Puback | Pubrec:
    """A message is published and its subscriber refuses it. Returns what its publisher is told."""
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 1 if kind is Puback else 2, packet_id=1))
    (publish,) = subscriber.take()
    assert isinstance(publish, Publish)
    subscriber.send(kind(publish.packet_id, Reason.QUOTA_EXCEEDED))
    (told,) = publisher.take()
    assert isinstance(told, kind)
    assert told.reason is Reason.UNSPECIFIED_ERROR
    return told


def test_rejected_message_is_told_to_its_publisher(world: World) -> None:
    told = refused(world.connect("s"), world.connect("p"), Puback)
    why = "mqtt:quota-exceeded: the client has answered with reason 0x97"
    assert told.properties.reason_string == f"rejected by 1 subscription: {why}"


def test_receive_maximum_of_the_client_bounds_what_is_sent(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=Properties(receive_maximum=2)), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(*(Publish("a", bytes((i,)), 1, packet_id=i + 1) for i in range(5)))
    assert len(subscriber.inbox) == 2
    assert len(answer(subscriber)) == 5


def test_client_that_exceeds_the_receive_maximum_is_disconnected(world: World) -> None:
    subscribe(world.connect("s", properties=LASTING), "a")
    publisher = world.connect("p")
    got = publisher.send(*(Publish("a", b"x", 2, packet_id=i + 1) for i in range(1_001)))
    assert of(got, Disconnect)[0].reason is Reason.RECEIVE_MAXIMUM_EXCEEDED  # type: ignore[attr-defined]


def test_subscription_identifiers_and_overlapping_filters_make_one_message(world: World) -> None:
    subscriber, publisher = world.connect("s"), world.connect("p")
    for identifier, text in ((3, "a/#"), (4, "+/b")):
        options = [Subscription(text, 1)]
        subscriber.send(Subscribe(identifier, options, Properties(subscription_ids=(identifier,))))
    publisher.send(Publish("a/b", b"x", 2, packet_id=1))
    assert [each.properties.subscription_ids for each in answer(subscriber)] == [(3, 4)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("properties", [NO_PROPERTIES, LASTING], ids=["ends", "lasts"])
def test_no_local_leaves_out_what_the_session_publishes_itself(world: World, properties: Properties, qos: int) -> None:
    client, other = world.connect("c", properties=properties), world.connect("o")
    subscribe(client, "a", no_local=True)
    for each, text in ((client, b"mine"), (other, b"other")):
        each.send(Publish("a", text, qos, packet_id=qos and 1))
    assert texts(answer(client)) == [b"other"]


def test_a_bridge_of_3_1_1_gets_nothing_back_and_retain_as_published() -> None:
    """Also what comes later on another connection of its session, unless that is no bridge's."""
    world = World(mqtt_retained="retained")
    bridge, publisher = (world.connect(name, 4, is_bridge=name == "b", clean_start=False) for name in "bp")
    subscribe(bridge, "a")
    bridge.send(Publish("a", b"mine"))
    publisher.send(Publish("a", b"1", retain=True), Publish("a", b"2"))
    assert [(each.payload, each.retain) for each in answer(bridge)] == [(b"1", True), (b"2", False)]
    for is_bridge in (True, False):
        bridge = world.connect("b", 4, is_bridge=is_bridge, clean_start=False)
        bridge.send(Publish("a", b"mine"))
        publisher.send(Publish("a", b"3", retain=True))
        assert [(each.payload, each.retain) for each in answer(bridge)] == [(b"3", is_bridge)]


def test_what_a_client_says_in_topics_of_servers_goes_nowhere_and_ends_nothing() -> None:
    """A bridge says there whether it is connected, as its will, too."""
    topic = "$SYS/broker/connection/b/state"
    world = World({"a": "all"})
    for version, answers in (
        (4, [Puback(1), Pubrec(2), Pubcomp(2)]),
        (5, [Puback(1, Reason.TOPIC_NAME_INVALID), Pubrec(2, Reason.TOPIC_NAME_INVALID), Pubcomp(2)]),
    ):
        client = world.connect(f"b{version}", version, will=Will(topic, b"0", 1, retain=version == 4))
        packets = Publish(topic, b"1", 1, packet_id=1), Publish(topic, b"1", 2, packet_id=2), Pubrel(2)
        got = client.send(*packets)
        assert [(type(each), each.reason) for each in got[:2]] == [(type(each), each.reason) for each in answers[:2]]  # type: ignore[union-attr]
        assert isinstance(got[2], Pubcomp)
        client.lose()


def test_user_properties_and_aliases(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=Properties(topic_alias_maximum=5)), world.connect("p")
    subscribe(subscriber, "a")
    pairs = (("k", "1"), ("k", "2"))
    publisher.send(Publish("a", b"1", properties=Properties(topic_alias=3, user_properties=pairs)))
    publisher.send(Publish("", b"2", properties=Properties(topic_alias=3)))
    one, two = answer(subscriber)
    assert (one.topic, one.properties.topic_alias, one.properties.user_properties) == ("a", 1, pairs)
    assert (two.topic, two.properties.topic_alias) == ("", 1)


def test_message_expires_while_its_subscriber_is_away(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    subscriber.send(Disconnect())
    publisher.send(Publish("a", b"short", 1, packet_id=1, properties=Properties(message_expiry_s=5)))
    publisher.send(Publish("a", b"long", 1, packet_id=2, properties=Properties(message_expiry_s=20)))
    world.pass_time(6)
    subscriber = world.connect("s", properties=LASTING, clean_start=False)
    assert [(each.payload, each.properties.message_expiry_s) for each in answer(subscriber)] == [(b"long", 14)]
    assert publisher.take() == [Puback(1), Puback(2)]


# --- sessions


def test_session_goes_on_with_what_was_not_acknowledged(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 2, packet_id=2))
    first = subscriber.take()
    assert [each.dup for each in first if isinstance(each, Publish)] == [False, False]
    subscriber.lose()
    subscriber = world.client()
    connack, *again = subscriber.send(Connect("s", properties=LASTING, clean_start=False))
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert [(e.packet_id, e.payload, e.dup) for e in again if isinstance(e, Publish)] == [
        (e.packet_id, e.payload, True) for e in first if isinstance(e, Publish)
    ]
    subscriber.inbox += again
    answer(subscriber)
    assert publisher.take() == [Puback(1), Pubrec(2)]


@pytest.mark.parametrize("received", [False, True])
def test_session_with_another_expiry_goes_on_with_what_was_in_flight(world: World, received: bool) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p", properties=LASTING)
    subscribe(subscriber, "a")
    publisher.send(*(Publish("a", bytes((i,)), 2, packet_id=i + 1) for i in range(3)))
    sent = of(subscriber.take(), Publish)
    if received:
        subscriber.send(Pubrec(sent[0].packet_id))  # type: ignore[attr-defined]
    again = world.connect("s", properties=Properties(session_expiry_s=20), clean_start=False)
    assert again.inbox[0] == (Pubrel(sent[0].packet_id) if received else replace(sent[0], dup=True))
    assert of(again.inbox, Publish)[-2:] == [replace(each, dup=True) for each in sent[1:]]
    answer(again)
    assert of(publisher.take(), Pubrec) == [Pubrec(1), Pubrec(2), Pubrec(3)]


def test_pubrel_is_sent_again_until_pubcomp(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 2, packet_id=2))
    (publish,) = subscriber.take()
    assert isinstance(publish, Publish)
    subscriber.send(Pubrec(publish.packet_id))
    subscriber.lose()
    subscriber = world.client()
    assert subscriber.send(Connect("s", properties=LASTING, clean_start=False))[1:] == [Pubrel(publish.packet_id)]
    assert subscriber.send(Pubcomp(publish.packet_id)) == []


def test_session_of_version_5_goes_on_with_3_1_1_which_has_no_properties(world: World) -> None:
    as_long = Properties(session_expiry_s=60)  # as the file lets a session of 3.1.1 last
    subscriber, publisher = world.connect("s", properties=as_long), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 1, packet_id=1, properties=Properties(user_properties=(("k", "v"),))))
    subscriber.lose()
    subscriber = world.connect("s", 4, clean_start=False)
    (again,) = answer(subscriber)
    assert (again.payload, again.dup, again.properties) == (b"x", True, Properties())


def test_refusal_that_version_5_was_not_told_is_none_in_3_1_1(world: World) -> None:
    publisher, subscriber = world.connect("p", properties=Properties(session_expiry_s=60)), world.connect("s")
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 2, packet_id=1))
    publisher.lose()
    (got,) = of(subscriber.take(), Publish)
    subscriber.send(Pubrec(got.packet_id, Reason.UNSPECIFIED_ERROR))
    publisher = world.connect("p", 4, clean_start=False)
    assert publisher.send(Publish("a", b"x", 2, dup=True, packet_id=1)) == [Pubrec(1)]


def test_puback_of_what_was_not_sent_again_yet_is_the_end_of_it(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a", qos=1)
    publisher.send(*(Publish("a", bytes((i,)), 1, packet_id=i) for i in (1, 2)))
    second = of(subscriber.take(), Publish)[1].packet_id
    subscriber.lose()
    subscriber = world.connect("s", clean_start=False, properties=LASTING._replace(receive_maximum=1))
    subscriber.inbox = subscriber.send(Puback(second))
    assert texts(answer(subscriber)) == [b"\x01"]
    publisher.send(*(Publish("a", bytes((i,)), 1, packet_id=i) for i in range(3, 9)))
    assert texts(answer(subscriber)) == [bytes((i,)) for i in range(3, 9)]


@pytest.mark.parametrize("packet", [Puback, Pubrec])
def test_acknowledgement_of_another_qos_than_the_message_has_means_nothing(
    world: World, packet: type[Puback | Pubrec]
) -> None:
    qos = 2 if packet is Puback else 1
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(*(Publish("a", bytes((i,)), qos, packet_id=i) for i in (1, 2)))
    second = of(subscriber.take(), Publish)[1].packet_id
    subscriber.lose()
    subscriber = world.connect("s", clean_start=False, properties=LASTING._replace(receive_maximum=1))
    subscriber.inbox = subscriber.send(packet(second, Reason.UNSPECIFIED_ERROR))
    assert texts(answer(subscriber)) == [b"\x01", b"\x02"]
    assert publisher.take() == [(Pubrec if qos == 2 else Puback)(packet_id) for packet_id in (1, 2)]


def test_clean_start_ends_the_session_before(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    subscriber.send(Disconnect())
    publisher.send(Publish("a", b"x", 1, packet_id=1))
    subscriber = world.connect("s", properties=LASTING)
    assert subscriber.take() == []
    assert publisher.take() == [Puback(1)]


def test_session_expires(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=Properties(session_expiry_s=10)), world.connect("p")
    subscribe(subscriber, "a")
    subscriber.send(Disconnect())
    publisher.send(Publish("a", b"x", 1, packet_id=1))
    world.pass_time(9.5)
    assert publisher.take() == []
    world.pass_time(1)
    assert publisher.take() == [Puback(1)]
    assert set(world.router.mqtt.sessions) == {"p"}


def test_disconnect_may_shorten_the_session(world: World) -> None:
    client = world.connect("s", properties=LASTING)
    client.send(Disconnect(properties=Properties(session_expiry_s=0)))
    assert not world.router.mqtt.sessions


def test_longer_expiry_than_the_file_allows_is_granted_less(world: World) -> None:
    client = world.client()
    (connack,) = client.send(Connect("s", properties=Properties(session_expiry_s=3600)))
    assert isinstance(connack, Connack)
    assert connack.properties.session_expiry_s == 60
    assert (connack.properties.retain_available, connack.properties.shared_available) == (0, None)


def test_second_connection_takes_the_session_over(world: World) -> None:
    first = world.connect("s", properties=LASTING)
    subscribe(first, "a")
    world.connect("s", properties=LASTING, clean_start=False)
    (disconnect,) = first.take()
    assert isinstance(disconnect, Disconnect)
    assert disconnect.reason is Reason.SESSION_TAKEN_OVER
    assert first.connection.closed


def test_sessions_of_different_users_have_nothing_to_do_with_each_other(world: World) -> None:
    alice = world.connect("s", step=Success("alice"), properties=LASTING)
    world.connect("s", step=Success("bob"), properties=LASTING, clean_start=False)
    assert alice.take() == []
    assert set(world.router.mqtt.sessions) == {"alice|s", "bob|s"}


def test_an_identifier_of_another_user_is_answered_like_one_that_nobody_has(world: World) -> None:
    alice = world.connect("s", step=Success("alice"), properties=LASTING)
    subscribe(alice, "a")
    alice.lose()
    mallory = [world.client(step=Success("mallory")) for _ in range(2)]
    names = ("s", "nobodys")
    answers = [
        client.send(Connect(name, 5, clean_start=False, properties=LASTING))
        for client, name in zip(mallory, names, strict=True)
    ]
    assert answers[0] == answers[1]
    assert not answers[0][0].session_present  # type: ignore[union-attr]
    publisher = world.connect("p")
    publisher.send(Publish("a", b"1", 1, packet_id=1))
    assert [each.take() for each in mallory] == [[], []]
    alice = world.connect("s", step=Success("alice"), properties=LASTING, clean_start=False)
    assert texts(answer(alice)) == [b"1"]


def test_a_will_goes_only_where_its_user_may_send() -> None:
    policies = (Policy(("*",), receive=("*",)), Policy(("alice",), send=("other",)))
    world = World({"a": "all", "b": "other"}, policies=policies)
    subscriber = world.connect("s")
    subscribe(subscriber, "#")
    for user in ("mallory", "alice"):
        for topic in "ab":
            will = Will(topic, f"{user} {topic}".encode(), 1)
            world.connect(f"{user}{topic}", step=Success(user), will=will).lose()
    assert texts(answer(subscriber)) == [b"alice b"]


def test_what_a_client_published_before_it_left_still_comes(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    subscriber.send(Disconnect())
    publisher.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 2, packet_id=2), Disconnect())
    subscriber = world.connect("s", properties=LASTING, clean_start=False)
    assert texts(answer(subscriber)) == [b"1", b"2"]
    assert not world.router.core.publishers


def test_client_without_a_name_gets_one(world: World) -> None:
    (connack,) = world.client().send(Connect(""))
    assert isinstance(connack, Connack)
    assert connack.properties.assigned_client_id
    (connack,) = world.client(4).send(Connect("", 4, clean_start=False))
    assert connack == Connack(False, Reason.CLIENT_IDENTIFIER_NOT_VALID)


# --- wills


@pytest.mark.parametrize(("delay_s", "waits_s"), [(0, 0), (5, 5), (99, 50)])  # the session ends after 50 s
def test_will_is_published_when_the_connection_is_lost(world: World, delay_s: int, waits_s: int) -> None:
    watcher = world.connect("w")
    subscribe(watcher, "gone")
    will = Will("gone", b"s", 1, properties=Properties(will_delay_s=delay_s))
    world.connect("s", will=will, properties=LASTING).lose()
    world.pass_time(max(waits_s - 0.5, 0))
    assert texts(answer(watcher)) == ([] if waits_s else [b"s"])
    world.pass_time(1)
    assert texts(answer(watcher)) == ([b"s"] if waits_s else [])


def test_will_is_not_published_after_disconnect_or_when_the_client_is_back_in_time(world: World) -> None:
    watcher = world.connect("w")
    subscribe(watcher, "gone")
    will = Will("gone", b"s", properties=Properties(will_delay_s=5))
    world.connect("s", will=will, properties=LASTING).lose()
    world.connect("s", will=will, properties=LASTING, clean_start=False).send(Disconnect())
    world.pass_time(20)
    assert answer(watcher) == []


def test_will_of_a_silent_client(world: World) -> None:
    watcher = world.connect("w")
    subscribe(watcher, "gone")
    client = world.connect("s", keep_alive_s=10, will=Will("gone", b"s"))
    world.pass_time(14)
    assert client.send(Pingreq()) == [Pingresp()]
    world.pass_time(14)
    assert answer(watcher) == []
    world.pass_time(2)
    assert texts(answer(watcher)) == [b"s"]
    assert world.router.status()["limits"]["silent"] == 1


@pytest.mark.parametrize(
    ("will", "reason"),
    [
        (Will("a", retain=True), Reason.RETAIN_NOT_SUPPORTED),
        (Will("elsewhere"), Reason.TOPIC_NAME_INVALID),
    ],
)
def test_wills_that_are_refused(will: Will, reason: Reason) -> None:
    (connack,) = World({"a": "all"}).client().send(Connect("s", will=will, properties=LASTING))
    assert isinstance(connack, Connack)
    assert connack.reason is reason


# --- refusals


def test_client_whose_password_is_wrong(world: World) -> None:
    for version in (4, 5):
        (connack,) = world.client(version, Failure("no")).send(Connect("s", version))
        assert isinstance(connack, Connack)
        assert connack.reason is Reason.BAD_USER_NAME_OR_PASSWORD


def test_enhanced_authentication_is_refused(world: World) -> None:
    (connack,) = world.client().send(Connect("s", properties=Properties(authentication_method="SCRAM-SHA-1")))
    assert isinstance(connack, Connack)
    assert connack.reason is Reason.BAD_AUTHENTICATION_METHOD


def test_retained_message_is_refused_in_version_5_and_not_kept_in_3_1_1(world: World) -> None:
    subscriber = world.connect("s", 4)
    subscribe(subscriber, "a")
    got = world.connect("p").send(Publish("a", b"x", retain=True))
    assert of(got, Disconnect)[0].reason is Reason.RETAIN_NOT_SUPPORTED  # type: ignore[attr-defined]
    world.connect("q", 4).send(Publish("a", b"y", retain=True))
    assert [(each.payload, each.retain) for each in answer(subscriber)] == [(b"y", False)]
    late = world.connect("late", 4)
    subscribe(late, "a")
    assert late.take() == []


def test_filters_that_are_refused() -> None:
    policies = (Policy(("*",), receive=("all",), send=("all",)),)
    client = World({"a": "all", "b": "other"}, policies=policies).connect("s")
    assert subscribe(client, "a/#", "b", "c", "$share/g/a", "$share/g/b", "#") == [
        Reason.GRANTED_QOS_2,
        Reason.NOT_AUTHORIZED,
        Reason.TOPIC_FILTER_INVALID,
        Reason.GRANTED_QOS_2,
        Reason.NOT_AUTHORIZED,
        Reason.NOT_AUTHORIZED,
    ]


def test_topics_that_are_refused() -> None:
    policies = (Policy(("*",), receive=("*",), send=("all", "weak")),)
    weak = AddressConfig("weak", guarantee="at-least-once", no_subscribers="accept")
    world = World({"a": "all", "b": "other", "w": "weak"}, [weak], policies=policies)
    client = world.connect("p")
    answers = [client.send(Publish(topic, b"x", 2, packet_id=ord(topic)))[0] for topic in "abc"]
    assert [each.reason for each in answers if isinstance(each, Pubrec)] == [
        Reason.SUCCESS, Reason.NOT_AUTHORIZED, Reason.TOPIC_NAME_INVALID
    ]  # fmt: skip
    (disconnect,) = client.send(Publish("w", b"x", 2, packet_id=5))
    assert isinstance(disconnect, Disconnect)
    assert disconnect.reason is Reason.QOS_NOT_SUPPORTED
    old = world.connect("old", 4)
    assert old.send(Publish("b", b"x", 1, packet_id=1)) == []
    assert old.connection.closed  # [MQTT-3.3.5-2]


def test_groups_that_a_reload_takes_away_are_gone_for_clients_and_for_those_that_are_away() -> None:
    policies = (Policy(groups=("staff",), receive=("all",), send=("all",)),)
    world = World(policies=policies)
    names = ("bob", "away", "token")
    clients = {name: world.connect(name, step=Success(name, groups=("staff",)), properties=LASTING) for name in names}
    for client in clients.values():
        assert subscribe(client, "a") == [Reason.GRANTED_QOS_2]
    clients["away"].lose()
    world.router.regroup(dict.fromkeys(names, ()), {clients["token"].connection})
    world.router.reconfigure(world.router.config, world.now)
    world.settle()
    (disconnect,) = of(clients["bob"].take(), Disconnect)
    assert disconnect.reason is Reason.NOT_AUTHORIZED
    assert [session.client_id for session in world.router.mqtt.sessions.values()] == ["token"]
    assert subscribe(clients["token"], "b") == [Reason.GRANTED_QOS_2]


def test_sessions_of_users_who_are_removed_are_over_also_where_their_client_is_away() -> None:
    world = World()
    clients = {name: world.connect(name, step=Success(name), properties=LASTING) for name in ("away", "kept", "other")}
    for client in clients.values():
        assert subscribe(client, "a") == [Reason.GRANTED_QOS_2]
    clients["away"].lose()
    world.router.revoke({"away", "kept"}, lambda _: (), {clients["kept"].connection})
    world.settle()
    assert [session.client_id for session in world.router.mqtt.sessions.values()] == ["kept", "other"]
    entries = world.router.core.addresses["all"].subscriptions.entries
    assert sorted(container for container, _ in entries) == ["kept|kept", "other|other"]


def test_limit_of_connections() -> None:
    world = World(limits=Limits(connections=1))
    world.connect("one")
    (connack,) = world.client().send(Connect("two"))
    assert isinstance(connack, Connack)
    assert connack.reason is Reason.QUOTA_EXCEEDED


def test_packet_above_the_largest_is_refused() -> None:
    world = World(max_message_size=1_000)
    subscriber = world.connect("s")
    got = subscriber.send(Publish("a", b"x" * 1_000))
    assert of(got, Disconnect)[0].reason is Reason.PACKET_TOO_LARGE  # type: ignore[attr-defined]


def test_message_larger_than_the_client_takes_is_dropped_as_if_it_had_been_sent(world: World) -> None:
    subscriber = world.connect("s", properties=Properties(maximum_packet_size=50))
    publisher = world.connect("p")
    subscribe(subscriber, "a")
    assert publisher.send(Publish("a", b"x" * 100, 1, packet_id=1)) == [Puback(1)]
    publisher.send(Publish("a", b"y", 1, packet_id=2))
    assert texts(answer(subscriber)) == [b"y"]


def test_unsubscribe_ends_what_comes(world: World) -> None:
    subscriber, publisher = world.connect("s"), world.connect("p")
    subscribe(subscriber, "a", "b")
    (acknowledgement,) = subscriber.send(Unsubscribe(2, ["a", "c"]))
    assert isinstance(acknowledgement, Unsuback)
    assert acknowledgement.reasons == [Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED]
    publisher.send(Publish("a", b"1", 1, packet_id=1), Publish("b", b"2", 1, packet_id=2))
    assert texts(answer(subscriber)) == [b"2"]
    subscriber.send(Unsubscribe(3, ["b"]))
    assert publisher.send(Publish("b", b"3", 1, packet_id=3))[-1] == Puback(3)


def test_drained_router_sends_its_clients_away(world: World) -> None:
    client = world.connect("s", properties=LASTING)
    world.router.start_drain([], world.now, 5.0)
    world.settle()
    (disconnect,) = client.take()
    assert isinstance(disconnect, Disconnect)
    assert disconnect.reason is Reason.SERVER_SHUTTING_DOWN
    (connack,) = world.client().send(Connect("late"))
    assert isinstance(connack, Connack)
    assert connack.reason is Reason.SERVER_UNAVAILABLE


def test_identifier_is_the_same_at_every_router() -> None:
    assert identifier_of(b"\0" * 24) == identifier_of(b"\0" * 24) >= UPPER


def test_publisher_that_is_refused_is_told_when_its_identifier_is_free(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p", properties=LASTING)
    refused(subscriber, publisher, Pubrec)
    publisher.send(Publish("a", b"y", 2, packet_id=1))
    assert texts(answer(subscriber)) == [b"y"]


def test_filters_beyond_what_all_routers_keep_are_refused(world: World) -> None:
    client = world.connect("s", properties=LASTING)
    longest = ["x" * 60_000 + str(number) for number in range(2)]
    assert subscribe(client, *longest) == [Reason.GRANTED_QOS_2, Reason.QUOTA_EXCEEDED]
    assert subscribe(client, "a") == [Reason.GRANTED_QOS_2]


# --- several routers


class Network:
    """Routers a, b and c, with a client's connection to each when it asks for one."""

    def __init__(self) -> None:
        self.net = Net("ABC", [], [])
        self.settle()

    def settle(self, *, held: tuple[str, str] | None = None) -> None:
        while events := [each for each in self.net.enabled() if each[0] == "msg" and each[1:] != held]:
            self.net.happen(events[0])

    def connect(
        self, name: str, router: str, *, clean_start: bool = False, expiry_s: int = 50, will: Will | None = None
    ) -> Roaming:
        client = Roaming(self, name, router)
        connect = Connect(name, 5, clean_start, will=will, properties=Properties(session_expiry_s=expiry_s))
        connack, *client.inbox = client.send(connect)
        assert isinstance(connack, Connack)
        assert not connack.reason, connack
        client.present = connack.session_present
        return client

    def crash(self, router: str) -> None:
        self.net.happen(("crash", router))
        self.settle()


class Roaming:
    """One connection, with the interface of `Client`."""

    present = False

    def __init__(self, network: Network, name: str, router: str) -> None:
        self.network = network
        there = network.net.routers[router]
        self.end = there.connect_mqtt(network.net.now, name, secure=False, authenticate=lambda *_: Success("anonymous"))
        self.connection = Connection(router, there, self.end, NOBODY)
        network.net.connections.append(self.connection)
        self.inbox: list[Packet] = []

    def send(self, *packets: Packet) -> list[Packet]:
        for packet in packets:
            self.write(packet)
        self.network.settle()
        return self.take()

    def write(self, packet: Packet) -> None:
        """Its router reads it, and nothing else happens yet."""
        self.connection.send(packet)
        self.network.net.happen(("read", self.network.net.connections.index(self.connection)))

    def take(self) -> list[Packet]:
        found = [*self.inbox, *self.connection.to_client]
        self.inbox = []
        self.connection.to_client.clear()
        return found


NOBODY = Publisher("nobody")


@pytest.fixture
def network() -> Network:
    return Network()


def test_session_goes_on_at_another_router_with_its_filters(network: Network) -> None:
    first = network.connect("s", "B")
    subscribe(first, "a/+", "b", qos=1)  # type: ignore[arg-type]
    first.send(Unsubscribe(2, ["b"]))
    network.crash("B")
    second = network.connect("s", "C")
    assert second.present
    publisher = network.connect("p", "A")
    publisher.send(Publish("a/1", b"x", 2, packet_id=1), Publish("b", b"y", 2, packet_id=2))
    assert [(each.topic, each.qos) for each in answer(second)] == [("a/1", 1)]  # type: ignore[arg-type]


def test_no_local_holds_for_qos_0_that_waits_for_what_another_router_keeps(network: Network) -> None:
    client, other = network.connect("c", "A"), network.connect("o", "A")
    subscribe(client, "t", no_local=True)
    other.write(Publish("t", b"other", 2, packet_id=1))
    client.write(Publish("t", b"mine"))
    network.settle()
    assert texts(answer(client)) == [b"other"]


def test_session_that_is_taken_over_by_another_router_goes_on_there(network: Network) -> None:
    first, publisher = network.connect("s", "B"), network.connect("p", "A")
    subscribe(first, "a")  # type: ignore[arg-type]
    publisher.send(Publish("a", b"x", 2, packet_id=1))
    (publish,) = first.take()
    assert isinstance(publish, Publish)
    second = network.connect("s", "C")
    assert of(first.take(), Disconnect)[0].reason is Reason.SESSION_TAKEN_OVER  # type: ignore[attr-defined]
    assert second.present
    (again,) = second.take()
    assert isinstance(again, Publish)
    assert (again.payload, again.packet_id, again.dup) == (b"x", publish.packet_id, True)
    assert not network.net.routers["B"].mqtt.sessions


def test_clean_start_at_another_router_ends_the_session_and_what_waits_for_it(network: Network) -> None:
    subscribe(network.connect("s", "B"), "a")  # type: ignore[arg-type]
    network.crash("B")
    entries = network.net.routers["A"].core.addresses["topic"].subscriptions.entries
    assert list(entries) == [("s", "mqtt")]
    assert not network.connect("s", "C", clean_start=True).present
    assert not entries


def test_session_that_has_expired_is_not_present(network: Network) -> None:
    first = network.connect("s", "B", expiry_s=3)
    subscribe(first, "a")  # type: ignore[arg-type]
    network.crash("B")
    network.net.happen(("wait", 4.0))
    network.settle()
    second = network.connect("s", "C")
    assert not second.present
    assert not network.net.routers["C"].mqtt.sessions["s"].subscribers


def test_subscription_is_waited_for_as_long_as_the_latest_connect_has_said(network: Network) -> None:
    subscribe(network.connect("s", "B", expiry_s=3), "a")  # type: ignore[arg-type]
    assert network.connect("s", "B", expiry_s=8).present
    network.crash("B")
    network.net.happen(("wait", 7.0))  # the margin is 3 s
    second = network.connect("s", "C", expiry_s=8)
    assert second.present
    network.connect("p", "A").send(Publish("a", b"x", 2, packet_id=1))
    assert texts(answer(second)) == [b"x"]  # type: ignore[arg-type]


def test_identifier_that_was_given_up_at_one_address_is_in_use_at_another() -> None:
    """The router that dies does not tell that an identifier is free, only who has it next (protocol 7.9.6)."""
    network = Network()
    session = Session(network.net.routers["A"].mqtt, "s", 1, 10.0, 5, goes_on=True)
    one, two = (KeptSubscriber(session, address, 2, 1) for address in ("x", "y"))
    session.known = {}
    answer_of = SubscriberAnswer((2, ""), {}, True)
    answer_of.identifiers = {UPPER: (b"former", True), UPPER + 1: (b"later", False)}
    one.answer(answer_of)
    answer_of.identifiers = {UPPER: (b"next", False), UPPER + 1: (b"earlier", True)}
    two.answer(answer_of)
    assert [each.tag for each in session.identifiers.in_flight.values()] == [b"next", b"later"]


@pytest.mark.parametrize("clean", [False, True])
def test_will_of_a_client_that_connects_elsewhere_is_published_once(network: Network, clean: bool) -> None:
    watcher = network.connect("w", "A")
    subscribe(watcher, "gone")  # type: ignore[arg-type]
    will = Will("gone", b"s", 1)
    network.connect("s", "B", will=will).send(Publish("gone", b"before", 1, packet_id=1))
    assert texts(answer(watcher)) == [b"before"]  # type: ignore[arg-type]
    second = network.connect("s", "C", clean_start=clean, will=will)
    second.send(Publish("gone", b"behind", 1, packet_id=1))
    network.net.happen(("wait", 6.0))
    network.settle()
    assert sorted(texts(answer(watcher))) == [b"behind", b"s"]  # type: ignore[arg-type]
    assert not network.net.routers["B"].core.publishers


def test_will_with_a_delay_of_a_session_that_goes_on_elsewhere_is_not_published(network: Network) -> None:
    watcher = network.connect("w", "A")
    subscribe(watcher, "gone")  # type: ignore[arg-type]
    network.connect("s", "B", will=Will("gone", b"s", 1, properties=Properties(will_delay_s=5)))
    assert network.connect("s", "C").present
    network.net.happen(("wait", 6.0))
    network.settle()
    assert answer(watcher) == []  # type: ignore[arg-type]


def test_drained_router_lets_its_sessions_go_on_elsewhere(network: Network) -> None:
    first = network.connect("s", "B")
    subscribe(first, "a")  # type: ignore[arg-type]
    network.net.routers["B"].start_drain([], network.net.now, 5.0)
    network.net.happen(("wait", 0.1))
    network.settle()
    assert network.connect("s", "C").present


def test_client_that_connects_to_a_restarted_router_before_it_knows_sessions_finds_its_own(network: Network) -> None:
    subscribe(network.connect("s", "B"), "a")  # type: ignore[arg-type]
    network.crash("B")
    network.net.happen(("restart", "B"))
    second = network.connect("s", "B")  # which has read no HELLO
    assert second.present
    network.connect("p", "A").send(Publish("a", b"x", 2, packet_id=1))
    assert texts(answer(second)) == [b"x"]  # type: ignore[arg-type]


def test_restarted_router_that_hears_nobody_leaves_connect_unanswered(network: Network) -> None:
    subscribe(network.connect("s", "B"), "a")  # type: ignore[arg-type]
    network.crash("B")
    network.net.do_restart("B")
    for other in "AC":
        network.net.happen(("separate", "B", other))
    network.net.happen(("wait", 2.0))  # longer than a start waits for HELLO
    client = Roaming(network, "s", "B")
    assert client.send(Connect("s", 5, clean_start=False, properties=LASTING)) == []
    network.net.happen(("join", "B", "A"))
    network.net.happen(("join", "B", "C"))
    network.settle()
    (connack,) = client.take()
    assert isinstance(connack, Connack)
    assert connack.session_present


def test_question_that_is_asked_before_connack_follows_it(network: Network) -> None:
    network.connect("p", "A").send(Publish("a", b"x", 2, packet_id=1))
    second = Roaming(network, "p", "A")
    second.write(Connect("p", clean_start=False, properties=LASTING))
    network.net.routers["A"].mqtt.sessions["p"].incoming.publishers["topic"].ask()
    network.settle()
    assert of(second.take(), Pubrel) == [Pubrel(QUESTION, Reason.PACKET_IDENTIFIER_NOT_FOUND)]


def test_client_that_connects_twice_while_its_session_is_fetched_has_it_once(network: Network) -> None:
    first, publisher = network.connect("s", "B"), network.connect("p", "A")
    subscribe(first, "a")  # type: ignore[arg-type]
    publisher.send(Publish("a", b"x", 2, packet_id=1))
    Roaming(network, "s", "C").write(Connect("s", clean_start=False, properties=LASTING))
    fetched = network.net.routers["C"].mqtt.sessions["s"].subscribers
    while not fetched:
        network.net.happen(next(each for each in network.net.enabled() if each[0] == "msg"))
    assert not any(each.answered for each in fetched.values())
    assert texts(answer(network.connect("s", "C"))) == [b"x"]  # type: ignore[arg-type]
    assert publisher.take() == [Pubrec(1)]


def test_subscription_stays_until_its_client_is_done_with_what_it_holds(world: World) -> None:
    """Another router would not know what the client holds, and send it no PUBREL."""
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a/#")
    publisher.send(Publish("a/b", b"x", 2, packet_id=7))
    (message,) = of(subscriber.take(), Publish)
    assert of(subscriber.send(Unsubscribe(2, ["a/#"])), Unsuback)
    publisher.send(Publish("a/b", b"y", 0))
    entries = world.router.core.addresses["all"].subscriptions.entries
    assert ("s", "mqtt") in entries
    assert of(subscriber.send(Pubrec(message.packet_id)), Pubrel)
    assert subscriber.send(Pubcomp(message.packet_id)) == []
    assert ("s", "mqtt") not in entries


def test_connection_without_output_has_no_buffers(world: World) -> None:
    """A transport whose end was written refuses even an empty one."""
    client = world.connect("c")
    client.send(Disconnect())
    assert not client.connection.buffers_to_send()


def test_an_expiry_is_counted_by_the_clock_of_the_router_that_took_the_message() -> None:
    """Protocol 3.4.7: b's clock is an hour ahead of a's; what b has taken for 60 s has 60 s left at a, not an hour."""
    hour_us, warned = 3_600_000_000, []

    class Noting(Told):
        def warning(self, event: str, text: str, /, **fields: object) -> None:  # type: ignore[override]
            warned.append((event, fields))

    config = {"mqtt_topics": (("#", "all"),)}
    a = Router(RouterConfig("a", ("a", "b"), **config), Life(1, 0.0, True), wall_us=lambda: WALL_US, log=Noting())
    b = Router(RouterConfig("b", ("a", "b"), **config), Life(1, 0.0, True), wall_us=lambda: WALL_US + hour_us)
    b.peer_up("a", 0.0)
    a.peer_up("b", 0.0)
    for _, message in b.take_messages():
        a.peer_message("b", message, 0.0)
    assert (a.mqtt.time_ms("b") - a.mqtt.time_ms()) * 1_000 == hour_us
    packet = Publish("x", b"m", properties=Properties(message_expiry_s=60))
    (payload,) = b.mqtt.messages.written([packet], "all", "p:mqtt", b.mqtt.time_ms(), {})
    received = a.mqtt.messages.read(payload, 0, "all")
    left = received.left(a.mqtt.time_ms(received.router))
    assert left.properties.message_expiry_s == 60
    assert ("clocks_differ", {"peer": "b", "ahead_s": 3_600.0}) in warned
