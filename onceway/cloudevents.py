"""CloudEvents as messages: the AMQP and MQTT bindings of CNCF's specification, on its package (`onceway[cloudevents]`).

    await publisher.send(message_of(CloudEvent({"type": "order.placed", "source": "/shop"}, {"number": 17})))
    event = event_of(delivery.message)

Binary, where an event's attributes are the message's properties and its data is the body; or structured, where all is
one JSON document. `event_of` takes either, from clients of AMQP and of MQTT 5. For MQTT's own clients `mqtt_of` and
`event_of_mqtt` give and take what a packet has.

Specification: cloudevents/bindings/amqp-protocol-binding.md and mqtt-protocol-binding.md, 1.0.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.amqp import AMQPMessage, from_amqp_event, to_binary_event, to_structured_event
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.v1.event import CloudEvent

from amqp10.sections import AmqpValue, Data, Message, Properties
from amqp10.types import Int, Timestamp

_PREFIX: Final = "cloudEvents_"
_NO_EVENT: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What the package raises beside its own errors, of documents that are no events."""
_PREFIXES: Final = (_PREFIX, "cloudEvents:")


class MqttEvent(NamedTuple):
    """What a PUBLISH of MQTT 5 has of an event.

    Attributes:
        content_type: None: the packet has none.
        user_properties: Names and values.
    """

    payload: bytes
    content_type: str | None
    user_properties: list[tuple[str, str]]


def message_of(event: BaseCloudEvent, *, structured: bool = False) -> Message:
    """The message of an event; clients of MQTT get a structured one as theirs, too."""
    made = to_structured_event(event) if structured else to_binary_event(event)
    attributes = event.get_attributes()
    named = {name: _native(attributes[name.removeprefix(_PREFIX)]) for name in made.application_properties}
    return Message(
        Data(made.application_data),
        properties=Properties(content_type=made.properties.get("content-type")),
        application_properties=named or None,
    )


def event_of(message: Message) -> CloudEvent:
    """The event of a message.

    Raises:
        ValueError: It is none.
    """
    body = message.body
    if isinstance(body, AmqpValue) and isinstance(body.value, str):
        data = body.value.encode()  # some clients send text so
    elif isinstance(body, Data):
        data = bytes(message.value)
    else:
        raise ValueError("a message whose body is no octets is no event")
    named = {name: value for name, value in (message.application_properties or {}).items() if isinstance(name, str)}
    if not any(name.startswith(_PREFIXES) for name in named) and "specversion" in named:
        named = {_PREFIX + name: value for name, value in named.items()}  # it comes from a client of MQTT
    properties = message.properties
    content_type = None if properties is None or properties.content_type is None else str(properties.content_type)
    return _event_of(data, content_type, named)


def mqtt_of(event: BaseCloudEvent, *, structured: bool = False) -> MqttEvent:
    """What a client of MQTT 5 publishes of an event."""
    made = to_structured_event(event) if structured else to_binary_event(event)
    texts = [(name, _text(value)) for name, value in event.get_attributes().items() if name != "datacontenttype"]
    return MqttEvent(made.application_data, made.properties.get("content-type"), [] if structured else texts)


def event_of_mqtt(payload: bytes, content_type: str | None, user_properties: Iterable[tuple[str, str]]) -> CloudEvent:
    """The event of what a client of MQTT 5 has received, whoever has sent it.

    Raises:
        ValueError: It is none.
    """
    named: dict[str, Any] = dict(user_properties)
    if not any(name.startswith(_PREFIXES) for name in named):  # clients of AMQP have the prefix
        named = {_PREFIX + name: value for name, value in named.items()}
    time = named.get(f"{_PREFIX}time", "")
    if time.isdecimal():
        named[f"{_PREFIX}time"] = int(time)  # a timestamp of AMQP, as routers write it
    return _event_of(payload, content_type, named)


def _event_of(data: bytes, content_type: str | None, named: Mapping[str, Any]) -> CloudEvent:
    properties = {} if content_type is None else {"content-type": content_type}
    try:
        return from_amqp_event(AMQPMessage(properties, dict(named), data))
    except (BaseCloudEventException, *_NO_EVENT) as error:
        raise ValueError(f"no CloudEvent: {error}") from error


def _native(value: Any) -> Any:
    """In AMQP's type for it. The package makes a plain number of a time, which is none of its types."""
    if isinstance(value, datetime):
        return _text(value) if value.microsecond % 1000 else Timestamp(round(value.timestamp() * 1000))
    if isinstance(value, int) and not isinstance(value, bool):
        return Int(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
