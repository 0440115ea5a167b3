"""The properties of MQTT 5 (2.2.2) as a table: identifier, form, the packets that may hold it, the values it may have.

Properties are immutable, and most packets have none: they share NO_PROPERTIES. Next: decoder.py.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mqtt import kinds
from mqtt.errors import EncodeError, Reason, RemoteProtocolError, malformed, violation
from mqtt.fields import FieldReader, of_binary, of_integer, of_text, of_variable


class Properties(NamedTuple):
    """All properties that any packet may have; None where one is absent."""

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_s: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_available: int | None = None
    subscription_ids_available: int | None = None
    shared_available: int | None = None


NO_PROPERTIES: Final = Properties()

MESSAGE: Final = frozenset({kinds.PUBLISH, kinds.WILL})
BOTH_CONNECT: Final = frozenset({kinds.CONNECT, kinds.CONNACK})
ACKNOWLEDGEMENTS: Final = frozenset(
    {kinds.PUBACK, kinds.PUBREC, kinds.PUBREL, kinds.PUBCOMP, kinds.SUBACK, kinds.UNSUBACK}
)
ANSWERS: Final = ACKNOWLEDGEMENTS | {kinds.CONNACK, kinds.DISCONNECT, kinds.AUTH}
EVERY: Final = ANSWERS | MESSAGE | {kinds.CONNECT, kinds.SUBSCRIBE, kinds.UNSUBSCRIBE}

BYTE, TWO, FOUR, VARIABLE, TEXT, BINARY, PAIR = range(7)  # forms


class Property(NamedTuple):
    """A row of table 2-4."""

    identifier: int
    field: str
    form: int
    packets: frozenset[int]
    low: int = 0  # of numbers: the values that the protocol allows
    high: int = 0xFFFFFFFF
    fault: Reason = Reason.PROTOCOL_ERROR  # of a number outside


TABLE: Final = (
    Property(1, "payload_format", BYTE, MESSAGE, 0, 1),
    Property(2, "message_expiry_s", FOUR, MESSAGE),
    Property(3, "content_type", TEXT, MESSAGE),
    Property(8, "response_topic", TEXT, MESSAGE),
    Property(9, "correlation_data", BINARY, MESSAGE),
    Property(11, "subscription_ids", VARIABLE, frozenset({kinds.PUBLISH, kinds.SUBSCRIBE}), 1),
    Property(17, "session_expiry_s", FOUR, BOTH_CONNECT | {kinds.DISCONNECT}),
    Property(18, "assigned_client_id", TEXT, frozenset({kinds.CONNACK})),
    Property(19, "server_keep_alive_s", TWO, frozenset({kinds.CONNACK})),
    Property(21, "authentication_method", TEXT, BOTH_CONNECT | {kinds.AUTH}),
    Property(22, "authentication_data", BINARY, BOTH_CONNECT | {kinds.AUTH}),
    Property(23, "request_problem_information", BYTE, frozenset({kinds.CONNECT}), 0, 1),
    Property(24, "will_delay_s", FOUR, frozenset({kinds.WILL})),
    Property(25, "request_response_information", BYTE, frozenset({kinds.CONNECT}), 0, 1),
    Property(26, "response_information", TEXT, frozenset({kinds.CONNACK})),
    Property(28, "server_reference", TEXT, frozenset({kinds.CONNACK, kinds.DISCONNECT})),
    Property(31, "reason_string", TEXT, ANSWERS),
    Property(33, "receive_maximum", TWO, BOTH_CONNECT, 1),
    Property(34, "topic_alias_maximum", TWO, BOTH_CONNECT),
    Property(35, "topic_alias", TWO, frozenset({kinds.PUBLISH}), 1, fault=Reason.TOPIC_ALIAS_INVALID),  # [MQTT-3.3.2-8]
    Property(36, "maximum_qos", BYTE, frozenset({kinds.CONNACK}), 0, 1),
    Property(37, "retain_available", BYTE, frozenset({kinds.CONNACK}), 0, 1),
    Property(38, "user_properties", PAIR, EVERY),
    Property(39, "maximum_packet_size", FOUR, BOTH_CONNECT, 1),
    Property(40, "wildcard_available", BYTE, frozenset({kinds.CONNACK}), 0, 1),
    Property(41, "subscription_ids_available", BYTE, frozenset({kinds.CONNACK}), 0, 1),
    Property(42, "shared_available", BYTE, frozenset({kinds.CONNACK}), 0, 1),
)
MOST_BEFORE_LOGIN: Final = 128
"""User properties that CONNECT may have, and that its will may: who sends them has not said who it is."""
MOST_ALIKE: Final = 1_000
"""User properties, or subscription identifiers, that another packet may have: it is read at once, whatever its size."""
PLACES: Final = {row.identifier: place for place, row in enumerate(TABLE)}
SUBSCRIPTION_IDS: Final = PLACES[11]
USER_PROPERTIES: Final = PLACES[38]


def read_properties(reader: FieldReader, packet: int) -> Properties:
    """The properties at the reader's position, with their length before them (2.2.2).

    Args:
        reader: Of the packet.
        packet: Its type, or kinds.WILL.

    Raises:
        RemoteProtocolError: A property is unknown or not one of this packet (malformed), comes twice, or has a value
            that the protocol does not allow.
    """
    length = reader.variable("the length of properties")
    if not length:
        return NO_PROPERTIES
    outer = reader.stop
    reader.position = reader.take(length, "properties")
    reader.stop = reader.position + length
    values: list[Any] = list(NO_PROPERTIES)
    many: dict[int, list[Any]] = {}
    while reader.position < reader.stop:
        identifier = reader.variable("a property's identifier")
        place = PLACES.get(identifier, -1)
        if place < 0 or packet not in TABLE[place].packets:
            raise malformed(f"property {identifier} is not one of this packet")
        row = TABLE[place]
        value = read_value(reader, row)
        if place == USER_PROPERTIES or (place == SUBSCRIPTION_IDS and packet == kinds.PUBLISH):
            found = many.setdefault(place, [])
            found.append(value)
            if len(found) > MOST_BEFORE_LOGIN:
                most = MOST_BEFORE_LOGIN if packet in (kinds.CONNECT, kinds.WILL) else MOST_ALIKE
                if len(found) > most:
                    raise RemoteProtocolError(
                        Reason.PACKET_TOO_LARGE, f"more than {most} {row.field.replace('_', ' ')} in a packet"
                    )
        elif values[place] != NO_PROPERTIES[place]:
            raise violation(f"{row.field} comes twice")
        else:
            values[place] = (value,) if place == SUBSCRIPTION_IDS else value
    reader.stop = outer
    for place, several in many.items():
        values[place] = tuple(several)
    return Properties(*values)


def read_value(reader: FieldReader, row: Property) -> int | str | bytes | tuple[str, str]:
    """One property's value, checked."""
    what, form = row.field, row.form
    if form == PAIR:
        return reader.text(what), reader.text(what)
    if form == TEXT:
        text = reader.text(what)
        if row.identifier == 8 and ("+" in text or "#" in text):  # [MQTT-3.3.2-14]
            raise violation("a response topic has a wildcard")
        return text
    if form == BINARY:
        return reader.binary(what)
    number = (
        reader.byte(what) if form == BYTE
        else reader.two_bytes(what) if form == TWO
        else reader.four_bytes(what) if form == FOUR
        else reader.variable(what)
    )  # fmt: skip
    if not row.low <= number <= row.high:
        raise RemoteProtocolError(row.fault, f"{what} is {number}")
    return number


def write_properties(properties: Properties, packet: int) -> bytes:
    """The properties of a packet of this type, with their length before them.

    Raises:
        EncodeError: One is not a property of this packet, or has a value without a form.
    """
    if properties is NO_PROPERTIES:
        return b"\0"
    parts: list[bytes] = []
    row: Property
    value: Any
    for row, value, absent in zip(TABLE, properties, NO_PROPERTIES, strict=True):
        if value == absent:
            continue
        if packet not in row.packets:
            raise EncodeError(f"{row.field} is not a property of this packet")
        if row.identifier == 11 and packet == kinds.SUBSCRIBE and len(value) > 1:
            raise EncodeError("SUBSCRIBE has one subscription identifier at most")
        head = bytes((row.identifier,))
        for one in value if isinstance(value, tuple) else (value,):
            parts += (head, write_value(row, one))
    body = b"".join(parts)
    return of_variable(len(body), "the length of properties") + body


def write_value(row: Property, value: Any) -> bytes:
    """One property's value.

    Raises:
        EncodeError: It has no form.
    """
    what, form = row.field, row.form
    if form == PAIR:
        return of_text(value[0], what) + of_text(value[1], what)
    if form == TEXT:
        if row.identifier == 8 and ("+" in value or "#" in value):
            raise EncodeError("a response topic has a wildcard")
        return of_text(value, what)
    if form == BINARY:
        return of_binary(value, what)
    if not row.low <= value <= row.high:
        raise EncodeError(f"{what} is {value}")
    return of_variable(value, what) if form == VARIABLE else of_integer(value, (1, 2, 4)[form], what)
