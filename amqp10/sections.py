"""Messages (AMQP 3.2): the sections of a payload, as objects.

Clients make and read a Message. Routers carry payloads as bytes and look at some of their sections (`Glance`). Next:
annotations.py for what routers write into payloads, performatives.py (Transfer).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

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
    message_annotation,
    misplaced,
    read_section,
    section_head,
)
from amqp10.composite import (
    BINARIES,
    BINARY,
    BOOLEAN,
    MAPS,
    MESSAGE_ID,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UBYTE,
    UINT,
    Composite,
    composite,
    read_annotations,
    read_fields,
    read_typed,
    write_map,
)
from amqp10.decoder import MAX_VALUES, compound_head, decode_value
from amqp10.decoder import skip_value as skip
from amqp10.encoder import encode_value
from amqp10.errors import DECODE_ERROR, INVALID_FIELD, RESOURCE_LIMIT_EXCEEDED, DecodeError, EncodeError
from amqp10.types import Raw

MOST_READ: Final = 8192
"""Sections and values of a message that a router reads as a whole, in one turn."""
_GROUP_ID: Final = 10  # its place among the properties
_LISTS: Final = (0x45, 0xC0, 0xD0), "list"
_NAMES: Final = {
    DELIVERY_ANNOTATIONS: "delivery-annotations",
    MESSAGE_ANNOTATIONS: "message-annotations",
    APPLICATION_PROPERTIES: "application-properties",
    DATA: "data",
    AMQP_SEQUENCE: "amqp-sequence",
    AMQP_VALUE: "amqp-value",
    FOOTER: "footer",
}


@composite(HEADER, "amqp:header:list", BOOLEAN, UBYTE, UINT, BOOLEAN, UINT)
@dataclass(slots=True)
class Header(Composite):
    """The header section (AMQP 3.2.1); ttl in milliseconds."""

    durable: bool = False
    priority: int = 4
    ttl: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


@composite(
    PROPERTIES,
    "amqp:properties:list",
    MESSAGE_ID,
    BINARY,
    STRING,
    STRING,
    STRING,
    MESSAGE_ID,
    SYMBOL,
    SYMBOL,
    TIMESTAMP,
    TIMESTAMP,
    STRING,
    UINT,
    STRING,
)
@dataclass(slots=True)
class Properties(Composite):
    """The properties section (AMQP 3.2.4).

    An int as message_id or correlation_id is a ulong; times are milliseconds since 1970.
    """

    message_id: Any = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


class Data:
    """A body of bytes, in one or more data sections (AMQP 3.2.6)."""

    __slots__ = ("chunks",)

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Data) and self.chunks == other.chunks

    def __hash__(self) -> int:
        return hash(self.chunks)

    def __repr__(self) -> str:
        return f"Data({', '.join(map(reprlib.repr, self.chunks))})"


class AmqpSequence:
    """A body of lists, one for each amqp-sequence section (AMQP 3.2.7)."""

    __slots__ = ("lists",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *lists: Sequence[Any]) -> None:
        self.lists = [list(values) for values in lists]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AmqpSequence) and self.lists == other.lists

    def __repr__(self) -> str:
        return f"AmqpSequence({', '.join(map(repr, self.lists))})"


@dataclass(slots=True)
class AmqpValue:
    """A body of one value (AMQP 3.2.8)."""

    value: Any = None


class Message:
    """One message with all its sections; a section that is None is absent.

    The body may be given as bytes (Data), as anything else that has an AMQP type (AmqpValue), or as one of the three
    classes; it is kept as one of these, and `value` is it without that wrapping.
    """

    __slots__ = (
        "application_properties",
        "body",
        "delivery_annotations",
        "footer",
        "header",
        "message_annotations",
        "properties",
    )

    def __init__(
        self,
        body: Any = None,
        *,
        header: Header | None = None,
        delivery_annotations: Mapping[Any, Any] | None = None,
        message_annotations: Mapping[Any, Any] | None = None,
        properties: Properties | None = None,
        application_properties: Mapping[str, Any] | None = None,
        footer: Mapping[Any, Any] | None = None,
    ) -> None:
        self.header = header
        self.delivery_annotations = delivery_annotations
        self.message_annotations = message_annotations
        self.properties = properties
        self.application_properties = application_properties
        self.body: Data | AmqpSequence | AmqpValue
        if isinstance(body, Data | AmqpSequence | AmqpValue):
            self.body = body
        else:
            self.body = Data(body) if isinstance(body, bytes) else AmqpValue(body)
        self.footer = footer

    @property
    def value(self) -> Any:
        """The bytes of the data sections joined; the lists of the amqp-sequences; the amqp-value's value."""
        body = self.body
        if isinstance(body, Data):
            return body.chunks[0] if len(body.chunks) == 1 else b"".join(body.chunks)
        return body.lists if isinstance(body, AmqpSequence) else body.value

    @property
    def raw(self) -> str | None:
        """Why this message was not decoded; None if it was. The body of one that was not is its payload, a `Raw`, and
        its other sections are absent."""
        value = self.value
        return value.reason if isinstance(value, Raw) else None

    def encode(self) -> bytes:
        """The payload. A message that was not decoded becomes one whose body is the octets that came.

        Raises:
            EncodeError: A value has no AMQP type.
        """
        parts = []
        if self.header is not None:
            parts.append(self.header.encode())
        if self.delivery_annotations is not None:
            parts += (section_head(DELIVERY_ANNOTATIONS), write_map(self.delivery_annotations))
        if self.message_annotations is not None:
            parts += (section_head(MESSAGE_ANNOTATIONS), write_map(self.message_annotations))
        if self.properties is not None:
            parts.append(self.properties.encode())
        if self.application_properties is not None:
            parts += (section_head(APPLICATION_PROPERTIES), _write_application_properties(self.application_properties))
        body = self.body
        if isinstance(body, Data):
            for chunk in body.chunks or (b"",):
                parts += (section_head(DATA), encode_value(chunk))
        elif isinstance(body, AmqpSequence):
            for values in body.lists or ([],):
                parts += (section_head(AMQP_SEQUENCE), encode_value(values))
        else:
            parts += (section_head(AMQP_VALUE), encode_value(body.value))
        if self.footer is not None:
            parts += (section_head(FOOTER), write_map(self.footer))
        return b"".join(parts)

    @classmethod
    def read(cls, payload: bytes, message_format: int = 0) -> Message:
        """What came as a transfer's payload, whatever it holds: the message, or the payload raw (see `raw`).

        AMQP allows more than has a form here: other message-formats (AMQP 2.7.5), maps whose keys are lists or differ
        in their type only (AMQP 1.6.23), large arrays of empty values. Routers do not look at bodies, so these may also
        be malformed. Whoever reads what others have sent reads it with this: one message of theirs must not end a
        program that reads on.

        Args:
            payload: Of the transfer.
            message_format: Of the transfer; 0 is AMQP's own.
        """
        if message_format:
            reason = f"message-format {message_format:#x}, which is not AMQP's own"
        else:
            try:
                return cls.decode(payload)
            except DecodeError as error:
                reason = str(error)
        return cls(Data(Raw(payload, reason)))

    @classmethod
    def decode(cls, payload: bytes, most: int = MAX_VALUES) -> Message:
        """The message in a payload; DecodeError if it is malformed. A payload without body, as some clients send, is
        read as amqp-value null.

        most: how many sections it may have, and values in maps and lists, together."""
        message = cls()
        budget = [most]
        chunks: list[bytes] = []
        lists: list[list[Any]] = []
        last = 0
        offset = 0
        end = len(payload)
        while offset < end:
            at = offset
            code, offset = read_section(payload, offset, end)
            # AMQP 3.2: in this order, each once, but for data and amqp-sequence sections, which may be repeated
            if code < last or (code == last and code not in (DATA, AMQP_SEQUENCE)) or (DATA <= last < code < FOOTER):
                raise DecodeError(DECODE_ERROR, f"section 0x{code:02x} cannot come after section 0x{last:02x}", at)
            last = code
            budget[0] -= 1
            if budget[0] < 0:
                raise DecodeError(RESOURCE_LIMIT_EXCEEDED, "the message has too many sections and values", at)
            if code == HEADER:
                message.header, offset = read_fields(Header, payload, offset, end)
            elif code == PROPERTIES:
                message.properties, offset = read_fields(Properties, payload, offset, end)
            elif code == AMQP_VALUE:
                value, offset = decode_value(payload, offset, end, budget)
                message.body = AmqpValue(value)
            elif code == DATA:
                chunk, offset = read_typed(payload, offset, end, "data", BINARIES)
                chunks.append(chunk)
            elif code == AMQP_SEQUENCE:
                values, offset = read_typed(payload, offset, end, "amqp-sequence", _LISTS, budget)
                lists.append(values)
            elif code == APPLICATION_PROPERTIES:
                message.application_properties, offset = _read_application_properties(payload, offset, end, budget)
            else:
                annotations, offset = read_annotations(payload, offset, end, _NAMES[code], budget)
                if code == MESSAGE_ANNOTATIONS:
                    message.message_annotations = annotations
                elif code == DELIVERY_ANNOTATIONS:
                    message.delivery_annotations = annotations
                else:
                    message.footer = annotations
        if chunks:
            message.body = Data(*chunks)
        elif lists:
            message.body = AmqpSequence(*lists)
        return message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        given = [f"{n}={getattr(self, n)!r}" for n in self.__slots__ if getattr(self, n) is not None]
        return f"Message({', '.join(given)})"


def with_failures(payload: bytes, failures: int) -> bytes:
    """The payload with this many failed deliveries added to its header's delivery-count (AMQP 3.2.1)."""
    if not failures:
        return payload
    header, stop = header_with_failures(payload, failures)
    return header + payload[stop:]


def header_with_failures(payload: bytes, failures: int) -> tuple[bytes, int]:
    """The header section that it has then, and where the one ends in whose place that is."""
    header, stop = _header_of(payload)
    header.delivery_count = min(header.delivery_count + failures, 0xFFFFFFFF)
    return header.encode(), stop


def _header_of(payload: bytes) -> tuple[Header, int]:
    """The header, and where its section ends; the one of defaults and 0 where there is none."""
    if payload:
        code, value_at = read_section(payload, 0, len(payload))
        if code == HEADER:
            return read_fields(Header, payload, value_at, len(payload))
    return Header(), 0


def with_ttl(payload: bytes, ttl_ms: int) -> bytes:
    """The payload with this ttl in its header (AMQP 3.2.1: the time that it has waited is subtracted)."""
    header, stop = _header_of(payload)
    header.ttl = ttl_ms
    return header.encode() + payload[stop:]


def without_first_acquirer(payload: bytes) -> bytes:
    """The payload, whose header does not say that no other link has acquired the message (AMQP 3.2.1)."""
    try:
        header, stop = _header_of(payload)
    except DecodeError:  # it says nothing
        return payload
    if not header.first_acquirer:
        return payload
    header.first_acquirer = False
    return header.encode() + payload[stop:]


class Glance:
    """Sections before the body of one payload, each decoded when it is first looked at; DecodeError where it cannot be,
    or has more than MAX_FIELD_VALUES values; application properties may have MOST_READ.

    An absent section is an empty one.
    """

    __slots__ = ("_application_properties", "_at", "_header", "_payload", "_properties")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at: dict[int, Stretch] | None = None  # code of a section -> its value
        self._header: Header | None = None
        self._properties: Properties | None = None
        self._application_properties: Mapping[str, Any] | None = None

    @property
    def header(self) -> Header:
        if self._header is None:
            at = self._place(HEADER)
            self._header = Header() if at is None else read_fields(Header, self._payload, *at)[0]
        return self._header

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            at = self._place(PROPERTIES)
            self._properties = Properties() if at is None else self._read(_glance_at_properties, *at)
        return self._properties

    @property
    def application_properties(self) -> Mapping[str, Any]:
        found = self._application_properties
        if found is None:
            at = self._place(APPLICATION_PROPERTIES)
            if at is None:
                found = {}
            elif REMEMBERED < at[1] - at[0] <= RECENT:
                found = _long_application_properties(self._payload[at[0] : at[1]])
            else:
                found = self._read(_glance_at_application_properties, *at)
            self._application_properties = found
        return found

    def annotation(self, key: str) -> Any:
        """The value of one message annotation, None if there is none."""
        return message_annotation(self._payload, key)

    def head(self) -> bytes:
        """The sections before the application properties, as they are written."""
        for code in (PROPERTIES, MESSAGE_ANNOTATIONS, DELIVERY_ANNOTATIONS, HEADER):
            if (at := self._place(code)) is not None:
                return self._payload[: at[1]]
        return b""

    def bare_at(self) -> int:
        """Where the bare message begins: the sections from the properties on, which intermediaries do not change."""
        for code in (MESSAGE_ANNOTATIONS, DELIVERY_ANNOTATIONS, HEADER):
            if (at := self._place(code)) is not None:
                return at[1]
        return 0

    def before_the_body(self) -> bytes:
        """The sections before the body, as they are written."""
        if self._at is None:
            self._at = _sections_before_the_body(self._payload)
        return self._payload[: self._at[_BODY][0]]

    def _read(self, read: Any, start: int, stop: int) -> Any:
        value = self._payload[start:stop]
        return read(value) if stop - start <= REMEMBERED else read.__wrapped__(value)

    def _place(self, code: int) -> Stretch | None:
        if self._at is None:
            self._at = _sections_before_the_body(self._payload)
        return self._at.get(code)


Stretch = tuple[int, int]
"""From an offset to the one behind the last."""
REMEMBERED: Final = 512
"""Bytes of a section that is remembered: messages often have the same, and several links look at one message."""
RECENT: Final = 1 << 16
"""The same where a few are remembered: the filters of all subscriptions look at a message one after the other."""


@lru_cache(maxsize=1024)
def _glance_at_properties(value: bytes) -> Properties:
    return cast(Properties, read_fields(Properties, value, 0, len(value))[0])


@lru_cache(maxsize=1024)
def _glance_at_application_properties(value: bytes) -> Mapping[str, Any]:
    return _read_application_properties(value, 0, len(value), [MOST_READ])[0]


@lru_cache(maxsize=8)
def _long_application_properties(value: bytes) -> Mapping[str, Any]:
    return _read_application_properties(value, 0, len(value), [MOST_READ])[0]


_BODY: Final = 0
"""Stands for the sections from the body on."""


def _sections_before_the_body(payload: bytes) -> dict[int, Stretch]:
    found: dict[int, Stretch] = {}
    offset, end, last = 0, len(payload), 0
    while offset < end:
        code, start = payload[offset + 2] if offset + 5 <= end else 0, offset + 3
        if not (payload[offset : offset + 2] == b"\x00\x53" and HEADER <= code <= FOOTER):
            code, start = read_section(payload, offset, end)
        if code > APPLICATION_PROPERTIES:
            break
        if code <= last:
            raise misplaced(offset)
        last = code
        short = payload[start] in (0xC0, 0xC1) if start < end - 1 else False
        offset = start + 2 + payload[start + 1] if short else skip(payload, start, end)
        if offset > end:
            skip(payload, start, end)  # it says what is wrong
        found[code] = start, offset
    found[_BODY] = offset, end
    return found


def group_id(payload: bytes) -> tuple[str | None, int]:
    """The group-id of the properties, None if there is none or it is no string; and how many bytes say so: payloads
    that begin with the same ones have the same group-id. 0: the payload has too little to say that."""
    offset, end, last = 0, len(payload), 0
    while offset < end:
        code, value_at = read_section(payload, offset, end)
        if code > PROPERTIES:
            return None, value_at
        if code <= last:
            raise misplaced(offset)
        last = code
        if code == PROPERTIES and value_at < end:
            wide = payload[value_at] == 0xD0
            if not wide and payload[value_at] != 0xC0:
                return None, value_at + 1
            if compound_head(payload, value_at + 1, end, wide, value_at)[2] <= _GROUP_ID:
                return None, value_at + (9 if wide else 3)
            properties, stop = read_fields(Properties, payload, value_at, end)
            return properties.group_id if isinstance(properties.group_id, str) else None, stop
        offset = skip(payload, value_at, end)
    return None, 0


def _read_application_properties(
    buf: bytes, offset: int, end: int, budget: list[int] | None = None
) -> tuple[Mapping[str, Any], int]:
    values, stop = read_typed(buf, offset, end, "application-properties", MAPS, budget)
    for key in values:
        if not isinstance(key, str):
            raise DecodeError(
                INVALID_FIELD, f"application-properties has the key {key!r:.60}, which is no string", offset
            )
    return values, stop


def _write_application_properties(values: Mapping[str, Any]) -> bytes:
    for key in values:
        if not isinstance(key, str):
            raise EncodeError(f"application-properties: {key!r} is no string")
    return encode_value(dict(values))
