"""The octets of one packet become a value (MQTT 5, chapter 3; 3.1.1, chapter 3).

`decode` gets the first octet and the bounds of what follows the Remaining Length. PUBLISH is read in place, since it is
the hot path; the others by a FieldReader. Next: reader.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, cast

from mqtt import kinds, packets
from mqtt.errors import BRIDGE, RETURN_CODES, Reason, RemoteProtocolError, UnknownVersion, malformed, violation
from mqtt.fields import FieldReader, to_text
from mqtt.packets import Acknowledgement, Packet, Publish
from mqtt.properties import NO_PROPERTIES, Properties, read_properties
from mqtt.topics import filter_fault, is_shared, name_fault

REASONS: Final = {int(reason): reason for reason in Reason}
RETURNED: Final = {code: reason for reason, code in RETURN_CODES.items()}


def _reasons(codes: str) -> dict[int, Reason]:
    return {code: Reason(code) for code in bytes.fromhex(codes)}


_PUBLISHED: Final = _reasons("00 10 80 83 87 90 91 97 99")
_RELEASED: Final = _reasons("00 92")
REASONS_OF: Final[dict[int, dict[int, Reason]]] = {
    kinds.CONNACK: _reasons("00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f"),
    kinds.PUBACK: _PUBLISHED,
    kinds.PUBREC: _PUBLISHED,
    kinds.PUBREL: _RELEASED,
    kinds.PUBCOMP: _RELEASED,
    kinds.SUBACK: _reasons("00 01 02 80 83 87 8f 91 97 9e a1 a2"),
    kinds.UNSUBACK: _reasons("00 11 80 83 87 8f 91"),
    kinds.AUTH: _reasons("00 18 19"),
}
"""The reason codes that each packet may have."""
DISCONNECT_REASONS: Final = {
    True: _reasons("00 04 80 81 82 83 90 93 94 95 96 97 98 99"),
    False: _reasons("00 80 81 82 83 87 89 8b 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2"),
}
"""Of DISCONNECT, by whether the client sends it (table 3-10)."""
MOST_FILTERS: Final = 10_000
"""In a SUBSCRIBE or UNSUBSCRIBE: what is answered is kept until it is."""
PART: Final = 512
"""Topic filters that are read at once (`decode_in_parts`)."""
SUBACK_3: Final = _reasons("00 01 02 80")
ACKNOWLEDGEMENTS: Final[dict[int, type[Acknowledgement]]] = {
    kinds.PUBACK: packets.Puback,
    kinds.PUBREC: packets.Pubrec,
    kinds.PUBREL: packets.Pubrel,
    kinds.PUBCOMP: packets.Pubcomp,
}


def decode_publish(first: int, data: bytes, position: int, stop: int, version: int, from_client: bool) -> Publish:
    """3.3.

    Raises:
        RemoteProtocolError: It is malformed or breaks a rule.
    """
    qos = first >> 1 & 3
    if qos == 3:  # [MQTT-3.3.1-4]
        raise malformed("PUBLISH with QoS 3")
    if stop - position < 2:
        raise malformed("PUBLISH without a topic's length")
    start = position + 2
    position = start + (data[position] << 8 | data[position + 1])
    if position > stop:
        raise malformed("the topic name goes beyond its end")
    topic = to_text(data[start:position], "the topic name")
    packet_id = 0
    if qos:
        if stop - position < 2:
            raise malformed("PUBLISH without a packet identifier")
        packet_id = data[position] << 8 | data[position + 1]
        if not packet_id:  # [MQTT-2.2.1-3]
            raise violation("packet identifier 0")
        position += 2
    elif first & 8:  # [MQTT-3.3.1-2]
        raise violation("DUP with QoS 0")
    properties = NO_PROPERTIES
    if version == 5:
        if position < stop and not data[position]:
            position += 1
        else:
            reader = FieldReader(data, position, stop)
            properties = read_properties(reader, kinds.PUBLISH)
            position = reader.position
            if properties.subscription_ids and from_client:  # [MQTT-3.3.4-6]
                raise violation("a client's PUBLISH has a subscription identifier")
    if not topic:
        if properties.topic_alias is None:  # 3.3.2.1
            raise violation("PUBLISH has neither topic name nor alias")
    elif "+" in topic or "#" in topic:  # [MQTT-3.3.2-2]
        raise malformed("a topic name has a wildcard")
    return Publish(topic, data[position:stop], qos, first & 1 == 1, first & 8 == 8, packet_id, properties)


def decode(first: int, data: bytes, position: int, stop: int, version: int, from_client: bool) -> Packet:
    """Decode any packet but PUBLISH and CONNECT.

    Args:
        first: The octet with type and flags.
        data: Holds the packet.
        position: Where it begins, behind the Remaining Length.
        stop: Its end in `data`.
        version: 4 or 5.
        from_client: Whether a client sent it.

    Raises:
        RemoteProtocolError: It is malformed or breaks a rule.
    """
    kind = first >> 4
    if kind in _IN_PARTS:
        steps = decode_in_parts(first, data, position, stop, version)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast(Packet, end.value)
    if first & 15 != (2 if kind == kinds.PUBREL else 0):  # [MQTT-2.1.3-1]
        raise malformed(f"flags {first & 15} of a packet of type {kind}")
    reader = FieldReader(data, position, stop)
    packet = _DECODERS[kind](reader, kind, version, from_client)
    reader.done("the packet")
    return packet


def decode_in_parts(
    first: int, data: bytes, position: int, stop: int, version: int
) -> Generator[None, None, packets.Subscribe | packets.Unsubscribe]:
    """Decode a SUBSCRIBE or UNSUBSCRIBE as `decode` does, PART topic filters in a step; returns the packet."""
    if first & 15 != 2:  # [MQTT-2.1.3-1]
        raise malformed(f"flags {first & 15} of a packet of type {first >> 4}")
    reader = FieldReader(data, position, stop)
    packet = yield from _IN_PARTS[first >> 4](reader, version)
    reader.done("the packet")
    return packet


def decode_connect(first: int, data: bytes, position: int, stop: int) -> packets.Connect:
    """3.1.

    Raises:
        UnknownVersion: It asks for a version that is neither 3.1.1 nor 5.
        RemoteProtocolError: It is malformed, or breaks a rule.
    """
    if first != kinds.CONNECT << 4:  # [MQTT-2.1.3-1]
        raise malformed("CONNECT with flags in its first octet")
    reader = FieldReader(data, position, stop)
    name = reader.text("the protocol name")
    level = reader.byte("the protocol version")
    is_bridge = level == 4 | BRIDGE
    version = 4 if is_bridge else level
    if name != "MQTT" or version not in (4, 5):  # [MQTT-3.1.2-1, 3.1.2-2]
        raise UnknownVersion(name, level)
    flags = reader.byte("the connect flags")
    keep_alive_s = reader.two_bytes("the keep alive")
    has_will, will_qos, username_flag, password_flag = flags & 4, flags >> 3 & 3, flags & 0x80, flags & 0x40
    if flags & 1:  # [MQTT-3.1.2-3]
        raise malformed("the reserved connect flag is set")
    if will_qos == 3 or (not has_will and flags & 0x38):  # [MQTT-3.1.2-11, 3.1.2-12, 3.1.2-13]
        raise malformed("the will's flags")
    if version == 4 and password_flag and not username_flag:  # [MQTT-3.1.2-22] of 3.1.1
        raise malformed("a password without a user name")
    properties = read_properties(reader, kinds.CONNECT) if version == 5 else NO_PROPERTIES
    _check_authentication(properties)
    client_id = reader.text("the client identifier")
    will = None
    if has_will:
        will_properties = read_properties(reader, kinds.WILL) if version == 5 else NO_PROPERTIES
        topic = reader.text("the will's topic")
        if fault := name_fault(topic):
            raise malformed(f"the will: {fault}")
        will = packets.Will(topic, reader.binary("the will's payload"), will_qos, flags & 0x20 != 0, will_properties)
    username = reader.text("the user name") if username_flag else None
    password = reader.binary("the password") if password_flag else None
    reader.done("CONNECT")
    return packets.Connect(
        client_id, version, flags & 2 != 0, keep_alive_s, username, password, will, properties, is_bridge
    )


def _check_authentication(properties: Properties) -> None:
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise violation("authentication data without a method")  # 3.1.2.11.10


def _reason(code: int, allowed: dict[int, Reason]) -> Reason:
    reason = allowed.get(code)
    if reason is None:
        raise violation(f"reason code 0x{code:02x} is not one of this packet")
    return reason


def _packet_id(reader: FieldReader) -> int:
    packet_id = reader.two_bytes("the packet identifier")
    if not packet_id:  # [MQTT-2.2.1-3]
        raise violation("packet identifier 0")
    return packet_id


def _connack(reader: FieldReader, kind: int, version: int, from_client: bool) -> packets.Connack:
    flags = reader.byte("the acknowledge flags")
    if flags > 1:  # [MQTT-3.2.2-1]
        raise malformed("reserved acknowledge flags are set")
    code = reader.byte("the reason code")
    reason = _reason(code, REASONS_OF[kinds.CONNACK] if version == 5 else RETURNED)
    if flags and reason:  # [MQTT-3.2.2-6]
        raise violation("a refusal with Session Present")
    properties = read_properties(reader, kinds.CONNACK) if version == 5 else NO_PROPERTIES
    _check_authentication(properties)
    return packets.Connack(flags == 1, reason, properties)


def _acknowledgement(reader: FieldReader, kind: int, version: int, from_client: bool) -> Acknowledgement:
    packet_id = _packet_id(reader)
    reason, properties = _tail(reader, kind, REASONS_OF[kind]) if version == 5 else (Reason.SUCCESS, NO_PROPERTIES)
    return ACKNOWLEDGEMENTS[kind](packet_id, reason, properties)


def _tail(reader: FieldReader, kind: int, allowed: dict[int, Reason]) -> tuple[Reason, Properties]:
    """Reason and properties, which the sender leaves out where they say nothing (3.4.2.1, 3.14.2.1)."""
    if reader.position == reader.stop:
        return Reason.SUCCESS, NO_PROPERTIES
    reason = _reason(reader.byte("the reason code"), allowed)
    return reason, NO_PROPERTIES if reader.position == reader.stop else read_properties(reader, kind)


def _subscribe(reader: FieldReader, version: int) -> Generator[None, None, packets.Subscribe]:
    packet_id = _packet_id(reader)
    properties = read_properties(reader, kinds.SUBSCRIBE) if version == 5 else NO_PROPERTIES
    subscriptions = []
    while reader.position < reader.stop:
        topic_filter = _topic_filter(reader, version)
        options = reader.byte("the subscription's options")
        if options & (0xC0 if version == 5 else 0xFC):  # [MQTT-3.8.3-5]
            raise malformed("reserved options of a subscription are set")
        qos, no_local, handling = options & 3, options & 4 != 0, options >> 4
        if qos == 3 or handling == 3:  # 3.8.3.1
            raise violation("a subscription with QoS 3 or Retain Handling 3")
        if no_local and is_shared(topic_filter):  # [MQTT-3.8.3-4]
            raise violation("No Local on a shared subscription")
        subscriptions.append(packets.Subscription(topic_filter, qos, no_local, options & 8 != 0, handling))
        _check_number(subscriptions)
        if not len(subscriptions) % PART:
            yield None
    if not subscriptions:  # [MQTT-3.8.3-2]
        raise violation("SUBSCRIBE without a topic filter")
    return packets.Subscribe(packet_id, subscriptions, properties)


def _check_number(found: Sequence[object]) -> None:
    if len(found) > MOST_FILTERS:
        raise RemoteProtocolError(Reason.QUOTA_EXCEEDED, f"more than {MOST_FILTERS} topic filters in a packet")


def _topic_filter(reader: FieldReader, version: int) -> str:
    topic_filter = reader.text("the topic filter")
    if fault := filter_fault(topic_filter, version):
        raise malformed(fault)
    return topic_filter


def _unsubscribe(reader: FieldReader, version: int) -> Generator[None, None, packets.Unsubscribe]:
    packet_id = _packet_id(reader)
    properties = read_properties(reader, kinds.UNSUBSCRIBE) if version == 5 else NO_PROPERTIES
    filters = []
    while reader.position < reader.stop:
        filters.append(_topic_filter(reader, version))
        _check_number(filters)
        if not len(filters) % PART:
            yield None
    if not filters:  # [MQTT-3.10.3-2]
        raise violation("UNSUBSCRIBE without a topic filter")
    return packets.Unsubscribe(packet_id, filters, properties)


def _suback(reader: FieldReader, kind: int, version: int, from_client: bool) -> packets.Suback | packets.Unsuback:
    packet_id = _packet_id(reader)
    properties = read_properties(reader, kind) if version == 5 else NO_PROPERTIES
    allowed = REASONS_OF[kind] if version == 5 else SUBACK_3 if kind == kinds.SUBACK else {}
    reasons = [_reason(code, allowed) for code in reader.data[reader.position : reader.stop]]
    reader.position = reader.stop
    if not reasons and (version == 5 or kind == kinds.SUBACK):
        raise violation("an answer without a reason code")
    made = packets.Suback if kind == kinds.SUBACK else packets.Unsuback
    return made(packet_id, reasons, properties)


def _ping(reader: FieldReader, kind: int, version: int, from_client: bool) -> packets.Pingreq | packets.Pingresp:
    return packets.Pingreq() if kind == kinds.PINGREQ else packets.Pingresp()


def _disconnect(reader: FieldReader, kind: int, version: int, from_client: bool) -> packets.Disconnect:
    if version == 4:
        return packets.Disconnect()
    reason, properties = _tail(reader, kinds.DISCONNECT, DISCONNECT_REASONS[from_client])
    if from_client and properties.server_reference is not None:  # 3.14.2.2.5: the server sends it
        raise violation("a client's DISCONNECT has a server reference")
    if not from_client and properties.session_expiry_s is not None:  # [MQTT-3.14.2-2]
        raise violation("a server's DISCONNECT has a session expiry interval")
    return packets.Disconnect(reason, properties)


def _auth(reader: FieldReader, kind: int, version: int, from_client: bool) -> packets.Auth:
    reason, properties = _tail(reader, kinds.AUTH, REASONS_OF[kinds.AUTH])
    if properties.authentication_method is None:  # 3.15.2.2.2
        raise violation("AUTH without an authentication method")
    return packets.Auth(reason, properties)


_DECODERS: Final[dict[int, Callable[[FieldReader, int, int, bool], Packet]]] = {
    kinds.CONNACK: _connack,
    kinds.PUBACK: _acknowledgement,
    kinds.PUBREC: _acknowledgement,
    kinds.PUBREL: _acknowledgement,
    kinds.PUBCOMP: _acknowledgement,
    kinds.SUBACK: _suback,
    kinds.UNSUBACK: _suback,
    kinds.PINGREQ: _ping,
    kinds.PINGRESP: _ping,
    kinds.DISCONNECT: _disconnect,
    kinds.AUTH: _auth,
}  # fmt: skip
_IN_PARTS: Final[
    dict[int, Callable[[FieldReader, int], Generator[None, None, packets.Subscribe | packets.Unsubscribe]]]
] = {kinds.SUBSCRIBE: _subscribe, kinds.UNSUBSCRIBE: _unsubscribe}
