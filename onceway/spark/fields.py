"""One AMQP message as the values of a row: what each column says of it, whatever it is made of.

key             message annotation `x-opt-partition-key` (Event Hubs, Service Bus and their Kafka side), else
                `x-opt-bridge.key` (Strimzi's AMQP bridge for Kafka), else the property group-id; null where there is
                none.  AMQP has no key of its own; these are what people use who hash or order by one.
value           octets of the data sections, joined; of an amqp-value: binary as it is, string and symbol as UTF-8,
                null as null, anything else as JSON; amqp-sequences as one JSON list.
timestamp       creation-time; where there is none (or one outside the years 1 to 9999) when it was received.
message_id, correlation_id
                string as it is, ulong in decimal, uuid in its usual form, binary in hex.
headers         application-properties under their names.  Also, unless one of these has the same name: message
                annotations under theirs, and as `amqp.<field>` what header and properties say that has no column: to,
                user-id, content-encoding, absolute-expiry-time, group-sequence, reply-to-group-id, and of the header
                what is not the default.  Null where there is nothing of all that.

Values of headers are text: strings and symbols as they are, numbers in decimal, `true` and `false`, times as ISO 8601
in UTC, uuids in their usual form, binary (and decimals, which are only carried) in hex, null as null; lists, maps,
arrays and described values as JSON, in which the same holds.

A payload that is no AMQP message is still a row: its value is the payload as it came, every other column of the
message is null, and headers has `onceway-undecodable` with the reason.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from amqp10.codec import decode_value
from amqp10.errors import DecodeError
from amqp10.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    FOOTER,
    HEADER,
    PROPERTIES,
    Header,
    Message,
    Properties,
    sections,
)
from amqp10.types import Array, Described, Timestamp, _Decimal

UNDECODABLE: Final = "onceway-undecodable"
KEYS: Final = ("x-opt-partition-key", "x-opt-bridge.key")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = -62_135_596_800_000  # year 1, as far back as Spark and Python go
_LAST_MS: Final = 253_402_300_799_999  # year 9999
_DEFAULT_HEADER: Final = Header()

Headers = list[tuple[str, str | None]]


class Fields(NamedTuple):
    """A row's columns that come from the message; `timestamp_us` is None where it says none."""

    key: str | None = None
    value: bytes | None = None
    timestamp_us: int | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    reply_to: str | None = None
    group_id: str | None = None
    headers: Headers | None = None


def read(payload: bytes) -> Fields:
    """The fields of one message, never an error."""
    try:
        return _read(payload)
    except DecodeError as error:
        return Fields(value=payload, headers=[(UNDECODABLE, str(error))])


def _read(payload: bytes) -> Fields:
    message = Message()
    properties: Properties | None = None
    parts: list[tuple[int, bytes]] = []
    last = -1
    for code, start, end in sections(payload):
        if code < last or (code == last and code not in (DATA, AMQP_SEQUENCE)) or (DATA <= last < code < FOOTER):
            Message.decode(payload)  # says what is wrong
        last = code
        part = payload[start:end]
        if code < PROPERTIES or PROPERTIES < code < DATA:
            _adopt(message, _section(part))  # much the same in every message of a publisher
        elif code == PROPERTIES:
            properties = Message.decode(part).properties
        elif code != FOOTER:
            parts.append((code, part))
    return _fields(message, properties, _value(parts))


@lru_cache(maxsize=4096)
def _section(part: bytes) -> Message:
    return Message.decode(part)


def _adopt(message: Message, part: Message) -> None:
    if part.header is not None:
        message.header = part.header
    elif part.message_annotations is not None:
        message.message_annotations = part.message_annotations
    elif part.application_properties is not None:
        message.application_properties = part.application_properties


def _fields(message: Message, properties: Properties | None, value: bytes | None) -> Fields:
    key = None
    annotations = message.message_annotations
    if annotations:
        for name in KEYS:
            if annotations.get(name) is not None:
                key = text(annotations[name])
                break
    headers = _headers(message, properties)
    if properties is None:
        return Fields(key=key, value=value, headers=headers)
    created = properties.creation_time
    return Fields(
        key if key is not None else properties.group_id,
        value,
        created * 1000 if created is not None and _FIRST_MS <= created <= _LAST_MS else None,
        text(properties.message_id),
        text(properties.correlation_id),
        properties.subject,
        properties.content_type if properties.content_type is None else str(properties.content_type),
        properties.reply_to,
        properties.group_id,
        headers,
    )


def _value(parts: list[tuple[int, bytes]]) -> bytes | None:
    if not parts:
        return None
    if parts[0][0] == AMQP_VALUE:
        part = parts[0][1]
        body = Message.decode(part).value
        if body is None or type(body) is bytes:
            return body
        return (str(body) if isinstance(body, str) else _json(body)).encode()
    bodies = [decode_value(part, 3)[0] if part[:2] == b"\x00\x53" else Message.decode(part).value for _, part in parts]
    if parts[0][0] == DATA:
        if not all(type(body) is bytes for body in bodies):
            Message.decode(b"".join(part for _, part in parts))  # says what is wrong
        return bodies[0] if len(bodies) == 1 else b"".join(bodies)
    lists = Message.decode(b"".join(part for _, part in parts)).value
    return _json([value for values in lists for value in values]).encode()


def _headers(message: Message, properties: Properties | None) -> Headers | None:
    found: dict[str, str | None] = {}
    for name, value in (message.application_properties or {}).items():
        found[str(name)] = text(value)
    for name, value in (message.message_annotations or {}).items():
        found.setdefault(str(name), text(value))
    if message.header is not None and message.header != _DEFAULT_HEADER:
        header = message.header
        for field in ("durable", "priority", "ttl", "first_acquirer", "delivery_count"):
            if getattr(header, field) != getattr(_DEFAULT_HEADER, field):
                found.setdefault(f"amqp.{field.replace('_', '-')}", text(getattr(header, field)))
    if properties is not None:
        for field in ("user_id", "to", "content_encoding", "group_sequence", "reply_to_group_id"):
            value = getattr(properties, field)
            if value is not None:
                found.setdefault(f"amqp.{field.replace('_', '-')}", text(value))
        if properties.absolute_expiry_time is not None:
            found.setdefault("amqp.absolute-expiry-time", _time(properties.absolute_expiry_time))
    return list(found.items()) or None


# -- values as text


def text(value: Any) -> str | None:
    """Of a header, a key or an id; see the module."""
    if value is None or type(value) is str:
        return value
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def _json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """The value as something that JSON knows."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Timestamp):
        return _time(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, _Decimal):
        return value.raw.hex()
    if isinstance(value, Array):
        return [_plain(item) for item in value.values]
    if isinstance(value, Described):
        return {"descriptor": _plain(value.descriptor), "value": _plain(value.value)}
    if isinstance(value, Mapping):
        return {text(key) or "null": _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value]


def _time(milliseconds: int) -> str:
    if not _FIRST_MS <= milliseconds <= _LAST_MS:
        return str(int(milliseconds))
    moment = _EPOCH + timedelta(milliseconds=int(milliseconds))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def constant_part(payload: bytes) -> bytes | None:
    """What precedes the octets of a single data section that ends the payload, but for their length; else None.

    Payloads that begin with the same octets, and hold nothing but a length and a body behind them, differ in their
    value only.
    """
    try:
        found = sections(payload)
        if not found:
            return None
        code, start, _ = found[-1]
        head = payload[: start + 4]
        if code != DATA or payload[start : start + 3] != b"\x00\x53\x75" or head[-1] not in (0xA0, 0xB0):
            return None
        _read(payload)
    except DecodeError:
        return None
    return None if any(code >= DATA for code, _, _ in found[:-1]) or found[0][0] < HEADER else head
