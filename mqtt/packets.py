"""The packets of MQTT 3.1.1 and 5 as Python values (MQTT 5, chapter 3).

One class serves both versions: what 3.1.1 cannot say has its default there. A packet identifier of 0 means none.
Next: properties.py, then decoder.py and encoder.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqtt.errors import Reason
from mqtt.properties import NO_PROPERTIES, Properties


@dataclass(slots=True)
class Will:
    """The message that the server publishes when the connection ends without DISCONNECT (3.1.2.5)."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Connect:
    """3.1: a client asks for a connection. `clean_start` is Clean Session in 3.1.1. `is_bridge`: it is a bridge, which
    says so in the level of its 3.1.1."""

    client_id: str
    version: int = 5
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES
    is_bridge: bool = False


@dataclass(slots=True)
class Connack:
    """3.2: the server's answer. 3.1.1 has five refusals (errors.RETURN_CODES)."""

    session_present: bool = False
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Publish:
    """3.3: an application message. An empty topic is that of `properties.topic_alias`. What is to be sent may be a view
    of octets that somebody keeps."""

    topic: str
    payload: bytes | memoryview = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Acknowledgement:
    """What the four answers to a PUBLISH have in common."""

    packet_id: int
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Puback(Acknowledgement):
    """3.4: answers a PUBLISH of QoS 1."""


@dataclass(slots=True)
class Pubrec(Acknowledgement):
    """3.5: answers a PUBLISH of QoS 2."""


@dataclass(slots=True)
class Pubrel(Acknowledgement):
    """3.6: answers a PUBREC."""


@dataclass(slots=True)
class Pubcomp(Acknowledgement):
    """3.7: answers a PUBREL."""


@dataclass(slots=True)
class Subscription:
    """One topic filter of a SUBSCRIBE and its options (3.8.3.1); 3.1.1 has the QoS alone."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    """3.8."""

    packet_id: int
    subscriptions: list[Subscription]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Suback:
    """3.9: a reason for each filter; in 3.1.1 every failure is 0x80."""

    packet_id: int
    reasons: list[Reason]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Unsubscribe:
    """3.10."""

    packet_id: int
    topic_filters: list[str]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Unsuback:
    """3.11: a reason for each filter; 3.1.1 has none."""

    packet_id: int
    reasons: list[Reason]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Pingreq:
    """3.12."""


@dataclass(slots=True)
class Pingresp:
    """3.13."""


@dataclass(slots=True)
class Disconnect:
    """3.14: in 3.1.1 only the client's, without a reason."""

    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Auth:
    """3.15: version 5 only."""

    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect | Connack | Publish | Acknowledgement | Subscribe | Suback | Unsubscribe | Unsuback | Pingreq | Pingresp
    | Disconnect | Auth
)  # fmt: skip
