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

from functools import lru_cache
from typing import Final, NamedTuple

from amqp10.errors import DECODE_ERROR, DecodeError
from amqp10.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    AmqpSequence,
    Header,
    Message,
    sections,
)
from onceway.spark.properties import NO_PROPERTIES, Headers, read_application, read_properties
from onceway.spark.text import FIRST_MS, LAST_MS, as_json, as_time, text

UNDECODABLE: Final = "onceway-undecodable"
KEYS: Final = ("x-opt-partition-key", "x-opt-bridge.key")

_DEFAULT_HEADER: Final = Header()
EXPIRY: Final = "amqp.absolute-expiry-time"
RARE: Final = {  # headers, and the properties that they show
    "amqp.user-id": "user_id",
    "amqp.to": "to",
    "amqp.content-encoding": "content_encoding",
    EXPIRY: "absolute_expiry_time",
    "amqp.group-sequence": "group_sequence",
    "amqp.reply-to-group-id": "reply_to_group_id",
}
_NONE: Final = (None,) * len(RARE)
_NARROW: Final = frozenset((0xA0, 0xA1, 0xC0, 0xC1))  # constructors with a size of one octet
_WIDE: Final = frozenset((0xB0, 0xB1, 0xD0, 0xD1))


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
    header = annotations = application = b""
    properties = NO_PROPERTIES
    bodies: list[tuple[int, int, int]] = []
    last = -1
    for code, start, stop in _walk(payload):
        if code < last or (code == last and code not in (DATA, AMQP_SEQUENCE)) or (DATA <= last < code < FOOTER):
            raise _wrong(payload)
        last = code
        if code == PROPERTIES:
            properties = read_properties(payload, start, stop)
        elif DATA <= code < FOOTER:
            bodies.append((code, start, stop))
        elif code == MESSAGE_ANNOTATIONS:
            annotations = payload[start:stop]
        elif code == APPLICATION_PROPERTIES:
            application = payload[start:stop]
        elif code == HEADER:
            header = payload[start:stop]
        else:
            assert code in (DELIVERY_ANNOTATIONS, FOOTER)  # between two peers; checksums and the like
    key, said = said_of(header, annotations)
    # what a publisher says in every message alike is read once
    headers = dict(_application(application)) if application else {}
    for name, value in said:
        headers.setdefault(name, value)
    if properties is NO_PROPERTIES:
        return Fields(key=key, value=_value(payload, bodies), headers=list(headers.items()) or None)
    message_id, user_id, to, subject, reply_to, correlation_id, content_type, encoding, *rest = properties
    expiry, created, group_id, group_sequence, reply_to_group_id = rest
    rare = (user_id, to, encoding, expiry, group_sequence, reply_to_group_id)
    if rare != _NONE:
        for name, value in zip(RARE, rare, strict=True):
            if value is not None:
                headers.setdefault(name, as_time(value) if name == EXPIRY else str(value))
    return Fields(
        key if key is not None else group_id,
        _value(payload, bodies),
        created * 1000 if created is not None and FIRST_MS <= created <= LAST_MS else None,
        message_id,
        correlation_id,
        subject,
        content_type,
        reply_to,
        group_id,
        list(headers.items()) or None,
    )


def _walk(payload: bytes) -> list[tuple[int, int, int]]:
    """(code, start, behind) of each section: what `sections` gives, quicker for what nearly all messages look like."""
    found = []
    at, end = 0, len(payload)
    try:
        while at < end:
            code, constructor = payload[at + 2], payload[at + 3]
            if payload[at] or payload[at + 1] != 0x53 or not HEADER <= code <= FOOTER:
                return sections(payload)
            if constructor in _NARROW:
                stop = at + 5 + payload[at + 4]
            elif constructor in _WIDE:
                stop = at + 8 + int.from_bytes(payload[at + 4 : at + 8], "big")
            elif constructor == 0x45:
                stop = at + 4
            else:
                return sections(payload)
            found.append((code, at, stop))
            at = stop
    except IndexError:
        pass
    return found if at == end else sections(payload)


def valid_sections(payload: bytes) -> list[tuple[int, int, int]]:
    """(code, start, behind) of each section of a message that can be read.  Raises DecodeError."""
    _read(payload)
    return _walk(payload)


def _wrong(payload: bytes) -> DecodeError:
    """What is wrong with it, in the words of the codec."""
    try:
        Message.decode(payload)
    except DecodeError as error:
        return error
    return DecodeError(DECODE_ERROR, "this is no message", 0)


@lru_cache(maxsize=4096)
def said_of(header: bytes, annotations: bytes) -> tuple[str | None, Headers]:
    """(key, headers) of a header and a message-annotations section."""
    key = None
    found: Headers = []
    if annotations:
        values = Message.decode(annotations).message_annotations or {}
        key = next((text(values[name]) for name in KEYS if values.get(name) is not None), None)
        found = [(str(name), text(value)) for name, value in values.items()]
    if header:
        fields = Message.decode(header).header
        for name in ("durable", "priority", "ttl", "first_acquirer", "delivery_count"):
            value = getattr(fields, name)
            if value != getattr(_DEFAULT_HEADER, name):
                found.append((f"amqp.{name.replace('_', '-')}", text(value)))
    return key, found


_application = lru_cache(maxsize=4096)(read_application)


# -- bodies


def _value(payload: bytes, bodies: list[tuple[int, int, int]]) -> bytes | None:
    if not bodies:
        return None
    code, start, stop = bodies[0]
    form = payload[start + 3] if payload[start : start + 2] == b"\x00\x53" else 0
    if len(bodies) == 1 and (form == 0xA0 or (form == 0xA1 and code == AMQP_VALUE)):
        body = payload[start + 5 : stop]
        if form == 0xA0:
            return body if code != AMQP_SEQUENCE else _other(payload[start:stop])
        try:
            body.decode()
        except UnicodeDecodeError:
            raise _wrong(payload) from None
        return body
    return _other(payload[start : bodies[-1][2]])


def _other(part: bytes) -> bytes | None:
    """Of the octets of all body sections."""
    message = Message.decode(part)
    value = message.value
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return str(value).encode()
    if isinstance(message.body, AmqpSequence):
        value = [item for values in value for item in values]
    return as_json(value).encode()


def constant_part(payload: bytes) -> bytes | None:
    """What precedes the length and the octets of a single data section that ends the payload; else None.

    Payloads that begin with the same octets, and hold nothing but a length and a body behind them, differ in their
    value only.
    """
    try:
        found = _walk(payload)
        if not found or any(code >= DATA for code, _, _ in found[:-1]):
            return None
        code, start, _ = found[-1]
        if code != DATA or payload[start : start + 3] != b"\x00\x53\x75" or payload[start + 3] not in (0xA0, 0xB0):
            return None
        _read(payload)
    except DecodeError:
        return None
    return payload[: start + 4]
