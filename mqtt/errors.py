"""The reason codes of MQTT (MQTT 5, section 2.4) and the exceptions of this package.

The class of an exception says whose fault it is. 3.1.1 has no reason codes on the wire: there a server closes the
connection, and only CONNACK and SUBACK say why. Next: packets.py.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Reason(IntEnum):
    """A reason code; the ones from 0x80 report a failure."""

    SUCCESS = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


# 3.1.1, table 3.1: the return codes of CONNACK.
RETURN_CODES: Final[dict[Reason, int]] = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
}


class MqttError(Exception):
    """Base of everything this package raises on purpose."""


class RemoteProtocolError(MqttError):
    """The peer broke a rule.

    Attributes:
        reason: Fit for DISCONNECT, or for CONNACK where no connection exists yet.
        description: Fit for a Reason String.
    """

    def __init__(self, reason: Reason, description: str) -> None:
        super().__init__(reason, description)
        self.reason = reason
        self.description = description

    def __str__(self) -> str:
        return f"0x{self.reason:02x} {self.reason.name.lower()}: {self.description}"


class UnknownVersion(RemoteProtocolError):
    """CONNECT asks for a version that is neither 3.1.1 nor 5.

    Attributes:
        version: 4 or 5: in which the client is told so [MQTT-3.1.2-2 of both].
    """

    def __init__(self, name: str, level: int) -> None:
        super().__init__(Reason.UNSUPPORTED_PROTOCOL_VERSION, f"protocol {name[:16]!r}, version {level}")
        self.version = 5 if 5 < level < BRIDGE else 4


BRIDGE: Final = 0x80  # set in the level of 3.1.1 and 3.1 by mosquitto's bridges, as by RSMB's before


class LocalProtocolError(MqttError):
    """Our caller asked for something that the protocol, or the state it is in, doesn't allow."""


class EncodeError(LocalProtocolError, ValueError):
    """A packet that has no form on the wire in this version of MQTT."""


def malformed(description: str) -> RemoteProtocolError:
    """Octets that cannot be read (MQTT 5, 1.2: Malformed Packet)."""
    return RemoteProtocolError(Reason.MALFORMED_PACKET, description)


def violation(description: str) -> RemoteProtocolError:
    """Octets that can be read and say what is not allowed (MQTT 5, 1.2: Protocol Error)."""
    return RemoteProtocolError(Reason.PROTOCOL_ERROR, description)
