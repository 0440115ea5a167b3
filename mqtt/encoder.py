"""A packet becomes octets (MQTT 5, chapter 3; 3.1.1, chapter 3).

It writes nothing that decoder.py would refuse of this side: a server's PUBLISH and a client's are told apart by nobody
here. What 3.1.1 has no words for is an EncodeError, save for reasons that it has a coarser word for. Next: reader.py.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from mqtt import kinds, packets
from mqtt.decoder import DISCONNECT_REASONS, REASONS_OF
from mqtt.errors import BRIDGE, RETURN_CODES, EncodeError, Reason
from mqtt.fields import of_binary, of_integer, of_text, of_variable
from mqtt.packets import Acknowledgement, Packet, Publish
from mqtt.properties import NO_PROPERTIES, Properties, write_properties
from mqtt.topics import filter_fault, name_fault

SHORT: Final = Struct(">BBH").pack
FIRST: Final = {packets.Puback: 0x40, packets.Pubrec: 0x50, packets.Pubrel: 0x62, packets.Pubcomp: 0x70}
"""The first octet of the answers to a PUBLISH."""


def encode(packet: Packet, version: int) -> bytes:
    """The octets of a packet.

    Args:
        packet: Any packet; the version of a CONNECT is its own.
        version: 4 for MQTT 3.1.1, 5 for MQTT 5.

    Raises:
        EncodeError: The packet has no form in this version.
    """
    return _ENCODERS[type(packet)](packet, version)


def encode_publish(packet: Publish, version: int) -> bytes:
    """3.3."""
    topic, qos, packet_id, properties = packet.topic, packet.qos, packet.packet_id, packet.properties
    if not 0 <= qos <= 2 or (qos == 0 and packet.dup):
        raise EncodeError(f"QoS {qos}, DUP {packet.dup}")
    if topic or version == 4 or properties.topic_alias is None:
        fault = name_fault(topic)
        if fault:
            raise EncodeError(fault)
    body = of_text(topic, "the topic name")
    if qos:
        body += _packet_id(packet_id)
    elif packet_id:
        raise EncodeError("a packet identifier with QoS 0")
    if version == 5:
        body += b"\0" if properties is NO_PROPERTIES else write_properties(properties, kinds.PUBLISH)
    elif properties is not NO_PROPERTIES:
        body += _properties(properties, kinds.PUBLISH, version)
    first = 0x30 | qos << 1 | packet.retain | packet.dup << 3
    return bytes((first,)) + of_variable(len(body) + len(packet.payload), "PUBLISH") + body + packet.payload


def encode_acknowledgement(packet: Acknowledgement, version: int) -> bytes:
    """3.4 to 3.7: PUBACK, PUBREC, PUBREL or PUBCOMP."""
    first, packet_id, properties = FIRST[type(packet)], packet.packet_id, packet.properties
    if packet.reason == Reason.SUCCESS and properties is NO_PROPERTIES and 0 < packet_id < 0x10000:
        return SHORT(first, 2, packet_id)
    return _packet(first, _packet_id(packet_id) + _tail(packet.reason, properties, first >> 4, version))


def _packet_id(packet_id: int) -> bytes:
    """A packet identifier."""
    if not packet_id:
        raise EncodeError("packet identifier 0")
    return of_integer(packet_id, 2, "the packet identifier")


def _packet(first: int, body: bytes) -> bytes:
    """The fixed header and what follows."""
    return bytes((first,)) + of_variable(len(body), "the packet") + body


def _properties(properties: Properties, kind: int, version: int) -> bytes:
    """A packet's properties; in 3.1.1 there must be none."""
    if version == 5:
        return write_properties(properties, kind)
    if properties != NO_PROPERTIES:
        raise EncodeError("3.1.1 has no properties")
    return b""


def _reason(reason: int, allowed: dict[int, Reason]) -> bytes:
    """A reason code."""
    if reason not in allowed:
        raise EncodeError(f"reason code 0x{reason:02x} is not one of this packet")
    return bytes((reason,))


def _tail(reason: int, properties: Properties, kind: int, version: int) -> bytes:
    """Reason and properties, shortened where they say nothing (3.4.2.1, 3.14.2.1)."""
    if reason == Reason.SUCCESS and properties == NO_PROPERTIES:
        return b""
    if version == 4:
        raise EncodeError("3.1.1 has neither reason nor properties here")
    allowed = DISCONNECT_REASONS[True] | DISCONNECT_REASONS[False] if kind == kinds.DISCONNECT else REASONS_OF[kind]
    octets = _reason(reason, allowed)
    return octets if properties == NO_PROPERTIES else octets + write_properties(properties, kind)


def _connect(packet: packets.Connect, _: int) -> bytes:
    version, will = packet.version, packet.will
    if version not in (4, 5):
        raise EncodeError(f"protocol version {version}")
    if version == 4 and packet.password is not None and packet.username is None:
        raise EncodeError("3.1.1 has no password without a user name")
    if version == 5 and packet.is_bridge:
        raise EncodeError("a bridge says so in 3.1.1 only")
    flags = packet.clean_start << 1 | (packet.username is not None) << 7 | (packet.password is not None) << 6
    payload = of_text(packet.client_id, "the client identifier")
    if will is not None:
        if not 0 <= will.qos <= 2:
            raise EncodeError(f"a will with QoS {will.qos}")
        if fault := name_fault(will.topic):
            raise EncodeError(f"the will: {fault}")
        flags |= 4 | will.qos << 3 | will.retain << 5
        payload += _properties(will.properties, kinds.WILL, version)
        payload += of_text(will.topic, "the will's topic") + of_binary(will.payload, "the will's payload")
    if packet.username is not None:
        payload += of_text(packet.username, "the user name")
    if packet.password is not None:
        payload += of_binary(packet.password, "the password")
    level = version | packet.is_bridge * BRIDGE
    head = b"\0\x04MQTT" + bytes((level, flags)) + of_integer(packet.keep_alive_s, 2, "the keep alive")
    _check_authentication(packet.properties)
    return _packet(0x10, head + _properties(packet.properties, kinds.CONNECT, version) + payload)


def _check_authentication(properties: Properties) -> None:
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise EncodeError("authentication data without a method")


def _connack(packet: packets.Connack, version: int) -> bytes:
    if packet.session_present and packet.reason:
        raise EncodeError("a refusal with Session Present")
    _check_authentication(packet.properties)
    if version == 5:
        code = _reason(packet.reason, REASONS_OF[kinds.CONNACK])
    elif packet.reason in RETURN_CODES:
        code = bytes((RETURN_CODES[packet.reason],))
    else:
        raise EncodeError(f"3.1.1 has no return code for {packet.reason.name.lower()}")
    return _packet(
        0x20, bytes((packet.session_present,)) + code + _properties(packet.properties, kinds.CONNACK, version)
    )


def _subscribe(packet: packets.Subscribe, version: int) -> bytes:
    if not packet.subscriptions:
        raise EncodeError("SUBSCRIBE without a topic filter")
    parts = [_packet_id(packet.packet_id), _properties(packet.properties, kinds.SUBSCRIBE, version)]
    for one in packet.subscriptions:
        options = one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
        if not 0 <= one.qos <= 2 or not 0 <= one.retain_handling <= 2 or (version == 4 and options > 2):
            raise EncodeError(f"options of {one}")
        if fault := filter_fault(one.topic_filter, version):
            raise EncodeError(fault)
        parts += (of_text(one.topic_filter, "the topic filter"), bytes((options,)))
    return _packet(0x82, b"".join(parts))


def _unsubscribe(packet: packets.Unsubscribe, version: int) -> bytes:
    if not packet.topic_filters:
        raise EncodeError("UNSUBSCRIBE without a topic filter")
    parts = [_packet_id(packet.packet_id), _properties(packet.properties, kinds.UNSUBSCRIBE, version)]
    for topic_filter in packet.topic_filters:
        if fault := filter_fault(topic_filter, version):
            raise EncodeError(fault)
        parts.append(of_text(topic_filter, "the topic filter"))
    return _packet(0xA2, b"".join(parts))


_FAILURE: Final = bytes(min(code, 0x80) for code in range(256))


def _suback(packet: packets.Suback | packets.Unsuback, version: int) -> bytes:
    kind = kinds.SUBACK if isinstance(packet, packets.Suback) else kinds.UNSUBACK
    head = _packet_id(packet.packet_id) + _properties(packet.properties, kind, version)
    if not packet.reasons and (version == 5 or kind == kinds.SUBACK):
        raise EncodeError("an answer without a reason code")
    for reason in {*packet.reasons}:
        _reason(reason, REASONS_OF[kind])
    codes = bytes(packet.reasons)
    if version == 4:  # 3.1.1: UNSUBACK has no payload, SUBACK one failure
        codes = codes.translate(_FAILURE) if kind == kinds.SUBACK else b""
    return _packet(kind << 4, head + codes)


def _ping(packet: packets.Pingreq | packets.Pingresp, version: int) -> bytes:
    return b"\xc0\0" if isinstance(packet, packets.Pingreq) else b"\xd0\0"


def _disconnect(packet: packets.Disconnect, version: int) -> bytes:
    return _packet(0xE0, _tail(packet.reason, packet.properties, kinds.DISCONNECT, version))


def _auth(packet: packets.Auth, version: int) -> bytes:
    if version == 4 or packet.properties.authentication_method is None:
        raise EncodeError("AUTH is of version 5 and has an authentication method")
    return _packet(0xF0, _tail(packet.reason, packet.properties, kinds.AUTH, version))


_ENCODERS: Final[dict[type[Any], Callable[[Any, int], bytes]]] = {
    packets.Connect: _connect,
    packets.Connack: _connack,
    Publish: encode_publish,
    packets.Puback: encode_acknowledgement,
    packets.Pubrec: encode_acknowledgement,
    packets.Pubrel: encode_acknowledgement,
    packets.Pubcomp: encode_acknowledgement,
    packets.Subscribe: _subscribe,
    packets.Suback: _suback,
    packets.Unsubscribe: _unsubscribe,
    packets.Unsuback: _suback,
    packets.Pingreq: _ping,
    packets.Pingresp: _ping,
    packets.Disconnect: _disconnect,
    packets.Auth: _auth,
}
