"""One AMQP message as the values of a row: what each column holds for any valid message, and for an invalid one.

key             message annotation `x-opt-partition-key` (Event Hubs, Service Bus and their Kafka side), else
                `x-opt-bridge.key` (Strimzi's AMQP bridge for Kafka), else the property group-id; null where there is
                none.  AMQP itself has no key.
value           bytes of the data sections, joined; of an amqp-value: binary as it is, string and symbol as UTF-8,
                null as null, anything else as JSON; amqp-sequences as one JSON list.
timestamp       creation-time; the time of receipt where there is none (or one outside the years 1 to 9999).
message_id, correlation_id
                string as it is, ulong in decimal, uuid in its usual form, binary in hex.
headers         application-properties under their names.  Also, unless one of these has the same name: message
                annotations under theirs, and as `amqp.<field>` the fields of header and properties that have no column:
                to, user-id, content-encoding, absolute-expiry-time, group-sequence, reply-to-group-id, and those of the
                header that are not the default.  Null where there are none.

Values of headers are text: strings and symbols as they are, numbers in decimal, `true` and `false`, times as ISO 8601
in UTC, uuids in their usual form, binary (and decimals, which are only carried) in hex, null as null; lists, maps,
arrays and described values as JSON, in which the same holds.  Where headers are asked for as bytes, binary values stay
as they are, and all others are their text in UTF-8.

raw             null; of a payload that cannot be decoded, the reason.

A payload that is not an AMQP message of message-format 0, or is one that has no form here, is still a row: its value is
the payload as received, and every other column of the message is null, but `raw`.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from amqp10.annotations import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    sections,
)
from amqp10.errors import DECODE_ERROR, DecodeError
from amqp10.sections import AmqpSequence, Header, Message
from amqp10.types import (
    Array,
    Byte,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Int,
    Long,
    Short,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from onceway.client.bodies import without_format
from router.json_text import write_json

Headers = list[tuple[str, str | bytes | None]]
Properties = list[Any]  # in the order of AMQP 3.2.4; all but the two times as text

FIRST_MS: Final = -62_135_596_800_000  # year 1, the earliest in Spark and Python
LAST_MS: Final = 253_402_300_799_999  # year 9999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS: Final = frozenset((int, UByte, UShort, UInt, ULong, Byte, Short, Int, Long))
NO_PROPERTIES: Final[Properties] = [None] * 13
_ID: Final = frozenset((0x40, 0xA1, 0x53, 0x44, 0x80, 0x98, 0xA0))
_STRING: Final = frozenset((0x40, 0xA1))
_SYMBOL: Final = frozenset((0x40, 0xA3))
_TIME: Final = frozenset((0x40, 0x83))
_COUNT: Final = frozenset((0x40, 0x52, 0x43, 0x70))
FIELDS: Final = (  # AMQP 3.2.4
    *("message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding"),
    *("absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id"),
)
FORMS: Final = (  # the usual constructors of each
    *(_ID, frozenset((0x40, 0xA0)), _STRING, _STRING, _STRING, _ID, _SYMBOL, _SYMBOL, _TIME, _TIME),
    *(_STRING, _COUNT, _STRING),
)
BINARY_HEADERS: Final = "headers as bytes"  # is asked for in place of `headers`
KEYS: Final = ("x-opt-partition-key", "x-opt-bridge.key")

_DEFAULT_HEADER: Final = Header()
EXPIRY: Final = "amqp.absolute-expiry-time"
_USER: Final = "amqp.user-id"
RARE: Final = {  # headers, and the properties that they show
    _USER: "user_id",
    "amqp.to": "to",
    "amqp.content-encoding": "content_encoding",
    EXPIRY: "absolute_expiry_time",
    "amqp.group-sequence": "group_sequence",
    "amqp.reply-to-group-id": "reply_to_group_id",
}
_NONE: Final = (None,) * len(RARE)
_NARROW: Final = frozenset((0xA0, 0xA1, 0xC0, 0xC1))  # constructors with a size of one byte
_WIDE: Final = frozenset((0xB0, 0xB1, 0xD0, 0xD1))


class Fields(NamedTuple):
    """A row's columns that come from the message; `timestamp_us` is None where it has none."""

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
    raw: str | None = None


def read(kept: bytes) -> Fields:
    """The fields of one message, as the log has it (`with_format`); never an error."""
    try:
        return _read(kept)
    except DecodeError as error:
        payload, message_format = without_format(kept)
        return Fields(value=payload, raw=Message.read(payload, message_format).raw or str(error))


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
            assert code in (DELIVERY_ANNOTATIONS, FOOTER)  # for one hop; checksums and the like
    key, others = headers_of(header, annotations)
    # cached: a publisher's messages mostly have equal application-properties
    headers = dict(_application(application)) if application else {}
    for name, value in others:
        headers.setdefault(name, value)
    if properties is NO_PROPERTIES:
        return Fields(key=key, value=_value(payload, bodies), headers=list(headers.items()) or None)
    message_id, user_id, to, subject, reply_to, correlation_id, content_type, encoding, *rest = properties
    expiry, created, group_id, group_sequence, reply_to_group_id = rest
    rare = (user_id, to, encoding, expiry, group_sequence, reply_to_group_id)
    if rare != _NONE:
        for name, value in zip(RARE, rare, strict=True):
            if value is not None:
                headers.setdefault(name, _SHOWN.get(name, str)(value))
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
    """(code, start, stop) of each section: as `sections`, but quicker for the usual encodings."""
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
    """(code, start, stop) of each section of a valid message.  Raises DecodeError."""
    _read(payload)
    return _walk(payload)


def _wrong(payload: bytes) -> DecodeError:
    """The codec's error for this invalid message."""
    try:
        Message.decode(payload)
    except DecodeError as error:
        return error
    return DecodeError(DECODE_ERROR, "this is not a message", 0)


@lru_cache(maxsize=4096)
def headers_of(header: bytes, annotations: bytes) -> tuple[str | None, Headers]:
    """(key, headers) of a header and a message-annotations section."""
    key = None
    found: Headers = []
    if annotations:
        values = Message.decode(annotations).message_annotations or {}
        key = next((text(values[name]) for name in KEYS if values.get(name) is not None), None)
        found = [(str(name), _header(value)) for name, value in values.items()]
    if header:
        fields = Message.decode(header).header
        for name in ("durable", "priority", "ttl", "first_acquirer", "delivery_count"):
            value = getattr(fields, name)
            if value != getattr(_DEFAULT_HEADER, name):
                found.append((f"amqp.{name.replace('_', '-')}", text(value)))
    return key, found


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
    """The value of a body in an unusual form.  part: the bytes of all body sections."""
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
    """The bytes before the length of a single data section that ends the payload; None for other payloads.

    Payloads that begin with these bytes, and then hold only a length and a body, differ only in their value.
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


# -- properties and application-properties


def _quick_properties(payload: bytes, start: int, stop: int) -> Properties | None:
    """The section in its usual encoding; None for other or invalid ones, which are left to the codec."""
    if payload[start + 1] != 0x53 or payload[start + 3] != 0xC0 or stop - start < 6:
        return None
    count, at = payload[start + 5], start + 6
    if count > 13:
        return None
    values: Properties = []
    append = values.append
    try:
        for forms in FORMS[:count]:
            form = payload[at]
            if form not in forms:
                return None
            if form == 0x40:
                append(None)
                at += 1
            elif form == 0xA1 or form == 0xA3:
                end = at + 2 + payload[at + 1]
                append(payload[at + 2 : end].decode("utf-8" if form == 0xA1 else "ascii"))
                at = end
            elif form == 0x83:
                append(int.from_bytes(payload[at + 1 : at + 9], "big", signed=True))
                at += 9
            elif form == 0x53 or form == 0x52:
                append(str(payload[at + 1]))
                at += 2
            elif form == 0x44 or form == 0x43:
                append("0")
                at += 1
            elif form == 0x80 or form == 0x70:
                end = at + (9 if form == 0x80 else 5)
                append(str(int.from_bytes(payload[at + 1 : end], "big")))
                at = end
            elif form == 0x98:
                append(str(uuid.UUID(bytes=payload[at + 1 : at + 17])))
                at += 17
            else:
                end = at + 2 + payload[at + 1]
                append(payload[at + 2 : end].hex())
                at = end
    except (IndexError, ValueError):  # UnicodeDecodeError too: the codec has the better message
        return None
    return values + NO_PROPERTIES[count:] if at == stop else None


def read_properties(payload: bytes, start: int, stop: int) -> Properties:
    """The section from start to stop, in any encoding.  Raises DecodeError."""
    quick = _quick_properties(payload, start, stop)
    if quick is not None:
        return quick
    fields = Message.decode(payload[start:stop]).properties
    assert fields is not None
    return [
        text(fields.message_id),
        text(fields.user_id),
        fields.to,
        fields.subject,
        fields.reply_to,
        text(fields.correlation_id),
        text(fields.content_type),
        text(fields.content_encoding),
        fields.absolute_expiry_time,
        fields.creation_time,
        fields.group_id,
        text(fields.group_sequence),
        fields.reply_to_group_id,
    ]


@lru_cache(maxsize=4096)
def _application(part: bytes) -> Headers:
    """The whole section.  Raises DecodeError."""
    values = Message.decode(part).application_properties or {}
    return [(str(name), _header(value)) for name, value in values.items()]


def _header(value: Any) -> str | bytes | None:
    return value if type(value) is bytes else text(value)


# -- values as text


def text(value: Any) -> str | None:
    """The text of a header, a key or an id."""
    if value is None or type(value) is str:
        return value
    if type(value) in _INTEGERS:
        return str(int(value))
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    return write_json(plain, ascii_only=False)


def as_json(value: Any) -> str:
    return write_json(_plain(value), ascii_only=False)


def _plain(value: Any) -> Any:
    """The value as a JSON type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Timestamp):
        return as_time(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Decimal32 | Decimal64 | Decimal128):
        return value.raw.hex()
    if isinstance(value, Array):
        return [_plain(item) for item in value.values]
    if isinstance(value, Described):
        return {"descriptor": _plain(value.descriptor), "value": _plain(value.value)}
    if isinstance(value, Mapping):
        return {text(key) or "null": _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value]


def as_time(milliseconds: int) -> str:
    if not FIRST_MS <= milliseconds <= LAST_MS:
        return str(int(milliseconds))
    moment = _EPOCH + timedelta(milliseconds=int(milliseconds))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_SHOWN: Final[dict[str, Any]] = {EXPIRY: as_time, _USER: bytes.fromhex}  # properties among the headers that are no text
