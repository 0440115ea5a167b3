"""A PUBLISH as an AMQP message and back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp10.sections import AmqpSequence, AmqpValue, Data, Header, Message
from amqp10.sections import Properties as MessageProperties
from amqp10.types import Float, Symbol, Timestamp, UByte
from mqtt import Properties, Publish, encode
from router.mqtt.conversion import NO_FORM, Received, to_message, to_publish
from router.mqtt.messages import Messages
from router.mqtt.topic_map import TopicMap
from tests.router.borders import border

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAMES = st.sampled_from(["a", "a/b", "/ü", "$x/y"])
PROPERTIES = st.fixed_dictionaries(
    {
        "payload_format": st.sampled_from([None, 0, 1]),
        "message_expiry_s": st.none() | st.integers(1, 4_294_967),
        "content_type": st.none() | TEXTS,
        "response_topic": st.none() | NAMES,
        "correlation_data": st.none() | st.binary(max_size=8),
        "user_properties": st.lists(st.tuples(st.sampled_from(["k", "l"]), TEXTS), max_size=3).map(tuple),
    }
).map(lambda values: Properties(**values))


def read(payload: bytes) -> Publish:
    found = to_publish(payload, 0, "topic")
    assert isinstance(found, Received)
    return found.publish


def converted(message: Message) -> Publish:
    publish = read(message.encode())
    encode(publish, 5)  # it has a form on the wire
    return publish


@given(NAMES, st.binary(max_size=20), PROPERTIES)
@settings(max_examples=200, deadline=None)
def test_what_an_mqtt_publisher_says_comes_unaltered_to_an_mqtt_subscriber(
    topic: str, payload: bytes, properties: Properties
) -> None:
    publish = Publish(topic, payload, properties=properties)
    assert read(to_message(publish)) == publish


def test_amqp_subscriber_sees_the_properties_under_amqp_names() -> None:
    properties = Properties(
        message_expiry_s=7,
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\x01",
        user_properties=(("k", "1"), ("l", "2")),
    )
    message = Message.decode(to_message(Publish("a/b", b"body", qos=1, packet_id=3, properties=properties)))
    assert message == Message(
        Data(b"body"),
        header=Header(ttl=7000),
        message_annotations={Symbol("x-opt-mqtt-qos"): UByte(1)},
        properties=MessageProperties(
            subject="a/b", reply_to="answers", correlation_id=b"\x01", content_type=Symbol("text/plain")
        ),
        application_properties={"k": "1", "l": "2"},
    )


def test_name_that_comes_twice_keeps_both_values_for_mqtt_and_the_last_for_amqp() -> None:
    pairs = (("k", "1"), ("l", "2"), ("k", "3"))
    payload = to_message(Publish("a", properties=Properties(user_properties=pairs)))
    assert Message.decode(payload).application_properties == {"k": "3", "l": "2"}
    publish = read(payload)
    assert publish.properties.user_properties == pairs


@pytest.mark.parametrize("listed", [["k"], ["k", 1], "kv", [["k", "v"]], ["k", "a\0"]])
def test_list_of_user_properties_in_another_form_is_not_read(listed: Any) -> None:
    annotations = {Symbol("x-opt-mqtt-user-properties"): listed}
    message = Message(b"", message_annotations=annotations, application_properties={"k": "v"})
    assert converted(message).properties.user_properties == (("k", "v"),)


def test_expiry_longer_than_a_ttl_can_say_is_left_out() -> None:
    payload = to_message(Publish("a", properties=Properties(message_expiry_s=4_294_968)))
    assert Message.decode(payload).header is None


@pytest.mark.parametrize(
    ("body", "payload", "payload_format"),
    [
        (Data(b"a", b"b"), b"ab", None),
        (AmqpValue(b"a"), b"a", None),
        (AmqpValue("ü"), b"\xc3\xbc", 1),
        (AmqpValue(None), b"", None),
    ],
)
def test_body_of_an_amqp_publisher(body: Any, payload: bytes, payload_format: int | None) -> None:
    publish = converted(Message(body))
    assert publish.payload == payload
    assert publish.properties.payload_format == payload_format


@pytest.mark.parametrize("body", [AmqpValue(1), AmqpValue({"a": 1}), AmqpSequence([1])])
def test_body_that_mqtt_has_no_form_for(body: Any) -> None:
    assert to_publish(Message(body).encode(), 0, "topic") is NO_FORM


def test_payload_that_is_no_amqp_message() -> None:
    assert to_publish(Message(b"a").encode(), 1, "topic") is NO_FORM
    assert to_publish(b"\x00\x53\x75\xa0\x05", 0, "topic") is NO_FORM


@pytest.mark.parametrize("subject", [None, "", "a/+", "#", "a\0", "x" * 65_536])
def test_subject_that_is_no_topic_name_gives_way(subject: str | None) -> None:
    assert converted(Message(b"", properties=MessageProperties(subject=subject))).topic == "topic"


def test_time_that_a_message_has_waited_is_taken_from_its_expiry() -> None:
    payload = to_message(Publish("a", properties=Properties(message_expiry_s=3)), now_ms=1_000)
    received = to_publish(payload, 0, "topic")
    assert isinstance(received, Received)
    left = [received.left(now_ms) for now_ms in (1_000, 2_600, 4_000)]
    assert [each and each.properties.message_expiry_s for each in left] == [3, 2, None]


def test_what_is_left_is_at_most_what_was_published_whatever_the_clocks_say() -> None:
    payload = to_message(Publish("a", properties=Properties(message_expiry_s=3)), now_ms=1_000, router="r")
    received = to_publish(payload, 0, "topic")
    assert isinstance(received, Received)
    assert received.router == "r"
    left = received.left(0)
    assert left is not None
    assert left.properties.message_expiry_s == 3


def test_message_without_a_clock_keeps_its_ttl() -> None:
    assert converted(Message(b"", header=Header(ttl=2500))).properties.message_expiry_s == 3


def test_expiry_is_the_longest_that_mqtt_has_where_the_message_lives_longer() -> None:
    properties = MessageProperties(absolute_expiry_time=Timestamp(2**63 - 1))
    received = to_publish(Message(b"", properties=properties).encode(), 0, "topic")
    assert isinstance(received, Received)
    left = received.left(0)
    assert left.properties.message_expiry_s == 0xFFFFFFFF
    encode(left, 5)


@pytest.mark.parametrize("value", [1.0, Float(1.0), True])
def test_number_that_is_1_and_no_integer_says_nothing(value: object) -> None:
    annotations = {Symbol("x-opt-mqtt-payload-format"): value, Symbol("x-opt-mqtt-qos"): value}
    payload = Message(b"", message_annotations=annotations).encode()
    received = to_publish(payload, 0, "topic")
    assert isinstance(received, Received)
    assert (received.publish.properties.payload_format, received.most_qos) == (None, 2)
    encode(received.publish, 5)


def test_qos_1_is_the_most_that_a_subscriber_gets_of_a_message_published_so() -> None:
    found = [to_publish(to_message(Publish("a", qos=qos, packet_id=1)), 0, "topic") for qos in (1, 2)]
    assert [each.most_qos for each in found if isinstance(each, Received)] == [1, 2]


@pytest.mark.parametrize(
    ("correlation_id", "data"),
    [
        (b"\xff", b"\xff"),
        ("id", b"id"),
        (7, b"7"),
        (UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        (b"x" * 65_536, None),
    ],
)
def test_correlation_id_of_any_form(correlation_id: Any, data: bytes | None) -> None:
    message = Message(b"", properties=MessageProperties(correlation_id=correlation_id))
    assert converted(message).properties.correlation_data == data


def test_application_properties_of_other_types_come_as_text_or_not_at_all() -> None:
    values = {"t": True, "i": -5, "f": 0.5, "u": UUID(int=1), "b": b"x", "n": None, "long": "x" * 65_536}
    publish = converted(Message(b"", application_properties=values))
    assert publish.properties.user_properties == (
        ("t", "true"), ("i", "-5"), ("f", "0.5"), ("u", "00000000-0000-0000-0000-000000000001"),
    )  # fmt: skip


@pytest.mark.parametrize("size", [0, 255, 256, 5_000])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_written_without_properties_is_what_is_read(size: int, qos: int) -> None:
    """It is not read, as its router knows it: so it must be what reading says."""
    messages = Messages(TopicMap({"#": "all"}), border(), 1 << 20)
    publish = Publish("a/b", b"x" * size, qos, packet_id=qos)
    for _ in range(2):
        (payload,) = messages.written([publish], "all", "p:mqtt", 1_000, {})
        assert payload == to_message(publish, "p:mqtt", 1_000)
        assert messages.read(payload, 0, "all") == to_publish(payload, 0, "all")
