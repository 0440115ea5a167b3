"""CloudEvents over AMQP and MQTT 5, each way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import paho.mqtt.client as paho
import pytest
from cloudevents.core.v1.event import CloudEvent
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import onceway
from amqp10.sections import AmqpSequence, Message
from amqp10.types import Int, Timestamp
from onceway.cloudevents import event_of, event_of_mqtt, message_of, mqtt_of
from tests.live import LiveNetwork

BOUND_S = 60.0
TIMES = [datetime(2026, 11, 30, 12, 0, 0, 500_000, UTC), datetime(2026, 11, 30, 12, 0, 0, 1, UTC)]


def event(time: datetime = TIMES[0], data: Any = None, **attributes: Any) -> CloudEvent:
    given = {"type": "order.placed", "source": "/shop", "id": "17", "time": time, "subject": "\u00fc", **attributes}
    return CloudEvent(given, {"number": 17} if data is None else data)


def same(one: CloudEvent, other: CloudEvent) -> bool:
    return (one.get_attributes(), one.get_data()) == (other.get_attributes(), other.get_data())


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("data", [{"number": 17}, b"\x00\xff"])
def test_an_event_is_the_same_after_the_wire(structured: bool, time: datetime, data: Any) -> None:
    kind = "application/json" if isinstance(data, dict) else "application/octet-stream"
    sent = event(time, data, datacontenttype=kind, count=3, ok=True)
    read = Message.read(message_of(sent, structured=structured).encode(), 0)
    assert same(event_of(read), sent)


def test_a_binary_event_has_the_types_of_amqps_binding() -> None:
    named = message_of(event(count=3)).application_properties
    assert named is not None
    assert named["cloudEvents_time"] == Timestamp(1_796_040_000_500)
    assert isinstance(named["cloudEvents_time"], Timestamp)
    assert isinstance(named["cloudEvents_count"], Int)
    assert set(named) == {
        f"cloudEvents_{name}" for name in ("type", "source", "id", "specversion", "time", "subject", "count")
    }


@pytest.mark.parametrize(
    "message",
    [
        Message(b"{}"),
        Message(AmqpSequence([1])),
        Message(b"{", properties=onceway.Properties(content_type="application/cloudevents+json")),
        Message(b"[]", properties=onceway.Properties(content_type="application/cloudevents+json")),
        Message(b"", application_properties={"specversion": "1.0", "type": 7}),
        Message(b"", application_properties={f"cloudEvents_{name}": "x" for name in ("type", "id", "source", "time")}),
    ],
)
def test_what_is_no_event_is_a_value_error(message: Message) -> None:
    with pytest.raises(ValueError):
        event_of(message)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveNetwork, int]]:
    with LiveNetwork(tmp_path_factory.mktemp("events"), ["a"]) as network:
        ports = network.serve_mqtt(topics={"events": "events"})
        network.start()
        yield network, ports["a"]


@pytest.mark.parametrize("structured", [False, True])
async def test_clients_of_amqp_and_mqtt_have_the_same_events(
    network: tuple[LiveNetwork, int], structured: bool
) -> None:
    routers, port = network
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    came: list[paho.MQTTMessage] = []
    subscribed, arrived = threading.Event(), threading.Event()

    def on_connect(*_: Any) -> None:
        client.subscribe("events", qos=1)

    def on_subscribe(*_: Any) -> None:
        subscribed.set()

    def on_message(client: object, data: object, message: paho.MQTTMessage) -> None:
        came.append(message)
        arrived.set()

    client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert subscribed.wait(BOUND_S)
        async with onceway.connect(routers.urls()) as connection:
            subscriber = await connection.subscriber("events")
            publisher = await connection.publisher("events")
            publication = await publisher.put(message_of(event(), structured=structured))
            own = await subscriber.receive()
            await own.accept()
            await publication
            assert same(event_of(own.message), event())
            assert arrived.wait(BOUND_S)
            properties: Any = came[0].properties
            kind, named = getattr(properties, "ContentType", None), getattr(properties, "UserProperty", [])
            assert same(event_of_mqtt(bytes(came[0].payload), kind, named), event())
            made = mqtt_of(event(subject="back"), structured=structured)
            sent: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            if made.content_type is not None:
                sent.ContentType = made.content_type
            if made.user_properties:
                sent.UserProperty = made.user_properties
            client.publish("events", made.payload, qos=1, properties=sent)
            back = await subscriber.receive()
            await back.accept()
            assert same(event_of(back.message), event(subject="back"))
    finally:
        client.disconnect()
        client.loop_stop()
