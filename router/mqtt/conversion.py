"""A PUBLISH as an AMQP message and back, by the table of docs/mqtt.md.

It knows one message at a time. What belongs to a connection (DUP, aliases, subscription identifiers) is not in the
message. Of the QoS only 1 is: a subscriber gets no higher one than that which the message was published with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from amqp10.errors import DecodeError
from amqp10.sections import AmqpValue, Data, Glance, Header, Message
from amqp10.sections import Properties as MessageProperties
from amqp10.types import Symbol, Timestamp, UByte, ULong
from mqtt import Properties, Publish, name_fault
from router.core.ports import Refusal
from router.names import NOT_IMPLEMENTED, PUBLISHER_ANNOTATION

PAYLOAD_FORMAT: Final = Symbol("x-opt-mqtt-payload-format")
CONTENT_TYPE: Final = Symbol("x-opt-mqtt-content-type")
USER_PROPERTIES: Final = Symbol("x-opt-mqtt-user-properties")
QOS: Final = Symbol("x-opt-mqtt-qos")
RETAIN: Final = Symbol("x-opt-mqtt-retain")
EXPIRES_BY: Final = Symbol("x-opt-mqtt-expires-by")
STAMP: Final = Symbol("x-opt-mqtt-retained-at")
PUBLISHER: Final = Symbol(PUBLISHER_ANNOTATION)
LONGEST: Final = 65_535  # octets of a string or of binary data (MQTT 5, 1.5.4, 1.5.6)
LARGE: Final = 1_024
"""Octets of a payload from which on it is a view of the transfer's."""
MOST_VALUES: Final = 3_072
"""Sections of a message and values in its maps and lists, together. Each takes some 50 steps, in one turn."""
LONGEST_TTL_MS: Final = 0xFFFFFFFF
LONGEST_EXPIRY_S: Final = 0xFFFFFFFF  # MQTT 5, 3.3.2.3.3


Stamp = tuple[int, str]
"""Microseconds of the clock of the router that a retained message was published to, and the name of that router."""


NO_FORM: Final = Refusal(NOT_IMPLEMENTED, "MQTT has no form for this message")


class Received(NamedTuple):
    """A message as MQTT has it. It may be shared, so nobody changes it."""

    publish: Publish  # of QoS 0
    most_qos: int  # it was published with it, and nobody gets it with a higher one
    expires_ms: int | None  # by the clock of its publisher; None: it does not say
    stamp: Stamp | None = None  # of one that is retained
    router: str = ""  # by whose clock it expires; empty: that is not known
    publisher: Any = None  # as its annotation names it

    def left(self, now_ms: int) -> Publish | None:
        """Returns it with what is left of its expiry at this time of its router's clock; None: it has expired
        [MQTT-3.3.2-5, 3.3.2-6]."""
        if self.expires_ms is None:
            return self.publish
        left_s = math.ceil((self.expires_ms - now_ms) / 1000)
        if left_s <= 0:
            return None
        publish = self.publish
        most_s = publish.properties.message_expiry_s or LONGEST_EXPIRY_S
        return replace(publish, properties=publish.properties._replace(message_expiry_s=min(left_s, most_s)))


def to_message(
    publish: Publish,
    publisher: str | None = None,
    now_ms: int | None = None,
    *,
    router: str = "",
    stamp: Stamp | None = None,
) -> bytes:
    """Returns the payload of the transfer that stands for this PUBLISH.

    Args:
        publish: What the client has sent.
        publisher: The annotation that names it (protocol 6.1.5).
        now_ms: The time, from which a message expiry counts wherever the message waits.
        router: Whose time that is.
        stamp: Of one that is retained: which of two is the later one.
    """
    given = publish.properties
    expiry_ms = None if given.message_expiry_s is None else given.message_expiry_s * 1000
    header = None
    if expiry_ms is not None and expiry_ms <= LONGEST_TTL_MS:  # a longer one (49 days) has no place in ttl
        header = Header(ttl=expiry_ms)
    annotations: dict[Any, Any] = {}
    if publisher is not None:
        annotations[PUBLISHER] = publisher
    if expiry_ms is not None and now_ms is not None and router:
        annotations[EXPIRES_BY] = router
    if publish.qos != 2:
        annotations[QOS] = UByte(publish.qos)
    if publish.retain:
        annotations[RETAIN] = True
    if stamp is not None:
        annotations[STAMP] = [ULong(stamp[0]), stamp[1]]
    if given.payload_format is not None:
        annotations[PAYLOAD_FORMAT] = given.payload_format
    content_type = given.content_type
    if content_type is not None and not content_type.isascii():  # a symbol is ASCII
        annotations[CONTENT_TYPE], content_type = content_type, None
    user = dict(given.user_properties)
    if len(user) < len(given.user_properties):  # [MQTT-3.3.2-17, 3.3.2-18]: all of them, in order
        annotations[USER_PROPERTIES] = [text for pair in given.user_properties for text in pair]
    message = Message(
        Data(bytes(publish.payload)),
        header=header,
        message_annotations=annotations or None,
        properties=MessageProperties(
            subject=publish.topic,
            reply_to=given.response_topic,
            correlation_id=given.correlation_data,
            content_type=content_type,
            absolute_expiry_time=Timestamp(now_ms + expiry_ms) if now_ms is not None and expiry_ms else None,
        ),
        application_properties=user or None,
    )
    return message.encode()


def to_publish(payload: bytes, message_format: int, topic: str) -> Received | Refusal:
    """Returns the PUBLISH that stands for a transfer's payload.

    Args:
        payload: Of the transfer.
        message_format: Of the transfer; other formats than AMQP's have no form.
        topic: The topic name of a message whose subject is none.
    """
    if message_format:
        return NO_FORM
    try:
        message = Message.decode(payload, MOST_VALUES)
    except DecodeError:
        return NO_FORM
    properties = message.properties or MessageProperties()
    annotations = message.message_annotations or {}
    body = message.body
    octets: bytes | memoryview = b""
    text = False
    if isinstance(body, Data):
        octets = message.value
        if len(octets) >= LARGE and payload.endswith(octets):  # it has no footer
            octets = memoryview(payload)[len(payload) - len(octets) :]
    elif isinstance(body, AmqpValue) and isinstance(body.value, bytes):
        octets = body.value
    elif isinstance(body, AmqpValue) and isinstance(body.value, str):
        octets, text = body.value.encode(), True
    elif not isinstance(body, AmqpValue) or body.value is not None:
        return NO_FORM
    ttl_ms = message.header.ttl if message.header is not None else None
    payload_format = _zero_or_one(annotations.get(PAYLOAD_FORMAT))
    content_type = annotations.get(CONTENT_TYPE, properties.content_type)
    subject, reply_to = properties.subject, properties.reply_to
    publish = Publish(
        subject if subject is not None and _is_name(subject) else topic,
        octets,
        retain=annotations.get(RETAIN) is True,
        properties=Properties(
            payload_format=1 if payload_format is None and text else payload_format,
            message_expiry_s=None if ttl_ms is None else math.ceil(ttl_ms / 1000),
            content_type=str(content_type) if _fits(content_type) else None,
            response_topic=reply_to if reply_to is not None and _is_name(reply_to) else None,
            correlation_data=_correlation_data(properties.correlation_id),
            user_properties=_user_properties(message.application_properties or {}, annotations.get(USER_PROPERTIES)),
        ),
    )
    qos = _zero_or_one(annotations.get(QOS))
    by = annotations.get(EXPIRES_BY)
    return Received(
        publish,
        2 if qos is None else qos,
        properties.absolute_expiry_time,
        stamp_of(annotations),
        by if isinstance(by, str) else "",
        annotations.get(PUBLISHER),
    )


def stamp_of(annotations: Mapping[Any, Any]) -> Stamp | None:
    """The stamp of a message that is retained; None: no router has written one."""
    stamp = annotations.get(STAMP)
    if not isinstance(stamp, list) or len(stamp) != 2:
        return None
    at, router = stamp
    if not isinstance(at, int) or isinstance(at, bool) or not isinstance(router, str):
        return None
    return int(at), str(router)


def subject_of(payload: bytes, message_format: int) -> str | None:
    """Returns the subject of a message that has no form in MQTT, if it is a topic name."""
    try:
        subject = Glance(payload).properties.subject if message_format == 0 else None
    except DecodeError:
        return None
    return subject if subject is not None and _is_name(subject) else None


def _zero_or_one(value: object) -> int | None:
    """A number that is 1 is not enough: a double or a boolean is, too."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1) else None


def _fits(text: object) -> bool:
    """Whether MQTT has this string [MQTT-1.5.4-2]."""
    return isinstance(text, str) and "\0" not in text and len(text.encode()) <= LONGEST


def _is_name(text: str) -> bool:
    return _fits(text) and name_fault(text) is None


def _correlation_data(value: object) -> bytes | None:
    octets = value if isinstance(value, bytes) else None if value is None else str(value).encode()
    return octets if octets is not None and len(octets) <= LONGEST else None


def _user_properties(values: Mapping[str, Any], listed: object) -> tuple[tuple[str, str], ...]:
    """The list where a name came twice, else the application properties that have a form as text."""
    if isinstance(listed, list) and len(listed) % 2 == 0 and all(_fits(text) for text in listed):
        return tuple((listed[i], listed[i + 1]) for i in range(0, len(listed), 2))
    texts = [(name, _text(value)) for name, value in values.items()]
    return tuple((name, text) for name, text in texts if text is not None and _fits(name) and _fits(text))


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return str(float(value))
    return str(value) if isinstance(value, UUID) else None
