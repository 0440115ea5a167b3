"""Sessions of MQTT on the router's core: what packets mean to deliveries, and deliveries to packets."""

from __future__ import annotations

import pytest

from amqp10.sasl import Failure, Success
from mqtt import (
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
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from router.config import AddressConfig, Limits
from router.mqtt.outgoing import UPPER, identifier_of
from router.policies import Policy
from tests.router.mqtt_clients import Client, World, answer

LASTING = Properties(session_expiry_s=50)


@pytest.fixture
def world() -> World:
    return World()


def subscribe(client: Client, *filters: str, qos: int = 2, packet_id: int = 1, **options: bool) -> list[Reason]:
    found = client.send(Subscribe(packet_id, [Subscription(each, qos, **options) for each in filters]))
    acknowledgement = found.pop(0)
    assert isinstance(acknowledgement, Suback)
    client.inbox += found
    return acknowledgement.reasons


def of(packets: list[Packet], kind: type) -> list[Packet]:
    return [packet for packet in packets if isinstance(packet, kind)]


def texts(packets: list[Packet] | list[Publish]) -> list[bytes]:
    return [packet.payload for packet in packets if isinstance(packet, Publish)]


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


def test_pubrel_reaches_the_subscriber_when_the_publisher_has_released(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 2, packet_id=2))
    (publish,) = subscriber.take()
    assert isinstance(publish, Publish)
    assert publish.packet_id >= UPPER
    assert subscriber.send(Pubrec(publish.packet_id)) == []
    assert publisher.take() == [Pubrec(2)]
    assert publisher.send(Pubrel(2)) == [Pubcomp(2)]
    assert subscriber.take() == [Pubrel(publish.packet_id)]
    subscriber.send(Pubcomp(publish.packet_id))
    assert not world.router.mqtt.sessions["s"].identifiers.in_flight


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
    assert publisher.send(Pubrel(2), Pubrel(2)) == [Pubcomp(2), Pubcomp(2, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
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


def test_deliveries_whose_identifiers_clash_come_one_after_the_other(world: World) -> None:
    """Of 600 messages some share an identifier; all of them come, each once, and in order."""
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    sent = [number.to_bytes(2, "big") for number in range(600)]
    publisher.send(*(Publish("a", each, 2, packet_id=i + 1) for i, each in enumerate(sent)))
    in_flight = subscriber.inbox
    assert len({each.packet_id for each in in_flight if isinstance(each, Publish)}) == len(in_flight) < 600
    got: list[bytes] = []
    while len(got) < 600:
        new = texts(answer(subscriber))
        assert new
        got += new
        answer(publisher)
    assert got == sent


def test_rejected_message_is_told_to_its_publisher(world: World) -> None:
    subscriber, publisher = world.connect("s"), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 1, packet_id=1))
    (publish,) = subscriber.take()
    assert isinstance(publish, Publish)
    subscriber.send(Puback(publish.packet_id, Reason.QUOTA_EXCEEDED))
    (told,) = publisher.take()
    assert isinstance(told, Puback)
    assert told.reason is Reason.UNSPECIFIED_ERROR
    assert told.properties.reason_string == "rejected by 1 subscription"


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


def test_no_local_leaves_out_what_the_session_publishes_itself(world: World) -> None:
    client, other = world.connect("c"), world.connect("o")
    subscribe(client, "a", no_local=True)
    assert client.send(Publish("a", b"mine", 1, packet_id=1)) == [Puback(1)]
    other.send(Publish("a", b"other", 1, packet_id=1))
    assert texts(answer(client)) == [b"other"]


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


def test_pubrel_is_sent_again_until_pubcomp(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p")
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"x", 2, packet_id=2))
    (publish,) = subscriber.take()
    assert isinstance(publish, Publish)
    subscriber.send(Pubrec(publish.packet_id))
    subscriber.lose()
    publisher.send(Pubrel(2))
    subscriber = world.client()
    assert subscriber.send(Connect("s", properties=LASTING, clean_start=False))[1:] == [Pubrel(publish.packet_id)]
    assert subscriber.send(Pubcomp(publish.packet_id)) == []


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
    assert (connack.properties.retain_available, connack.properties.shared_available) == (0, 0)


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


@pytest.mark.parametrize(("delay_s", "waits_s"), [(0, 0), (5, 5)])
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


@pytest.mark.parametrize(
    ("will", "reason"),
    [
        (Will("a", properties=Properties(will_delay_s=51)), Reason.IMPLEMENTATION_SPECIFIC_ERROR),
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
    assert subscribe(client, "a/#", "b", "c", "$share/g/a", "#") == [
        Reason.GRANTED_QOS_2,
        Reason.NOT_AUTHORIZED,
        Reason.TOPIC_FILTER_INVALID,
        Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
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


def test_session_that_has_moved_ends_here_and_releases_what_had_pubrec(world: World) -> None:
    subscriber, publisher = world.connect("s", properties=LASTING), world.connect("p", properties=LASTING)
    subscribe(subscriber, "a")
    publisher.send(Publish("a", b"1", 2, packet_id=1))
    (message,) = of(subscriber.take(), Publish)
    assert isinstance(message, Publish)
    assert subscriber.send(Pubrec(message.packet_id)) == []
    assert publisher.take() == [Pubrec(1)]
    world.router.mqtt.session_moved(world.router.mqtt.sessions["p"])
    world.settle()
    assert of(publisher.take(), Disconnect)
    assert subscriber.take() == [Pubrel(message.packet_id)]
    assert not world.router.core.publishers
