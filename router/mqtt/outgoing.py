"""What a session has sent its client and the client has not acknowledged to the end; packet identifiers.

QoS 1 takes any free identifier of the lower half. QoS 2 takes the one that the outgoing delivery-tag says, in the upper
half: every router computes the same, so the successor of a router that has died sends a delivery under the identifier
that the client knows. A delivery whose identifier is in use waits for it, and everything behind it waits too.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqtt import Publish
    from router.mqtt.subscriber import MqttSubscriber

UPPER: Final = 0x8000
"""The first identifier of QoS 2."""


class State(IntEnum):
    SENT = 0  # PUBLISH; or it waits for its identifier, or for room
    RECEIVED = 1  # PUBREC has come
    RELEASED = 2  # PUBREL; PUBCOMP has not come


class Outgoing:
    """One delivery of QoS 1 or 2."""

    __slots__ = ("delivery_id", "packet_id", "publish", "qos", "settled", "state", "subscriber", "tag")

    def __init__(self, subscriber: MqttSubscriber, delivery_id: int, tag: bytes, publish: Publish, qos: int) -> None:
        self.subscriber = subscriber
        self.delivery_id = delivery_id
        self.tag = tag
        self.publish = publish  # without identifier
        self.qos = qos
        self.packet_id = 0  # 0: it has none yet
        self.state = State.SENT
        self.settled = False  # in the network


class Identifiers:
    """The identifiers of one session, and what waits to be sent."""

    __slots__ = ("_next", "in_flight", "survives", "waiting")

    def __init__(self, survives: bool) -> None:
        """survives: another router may have to go on with the session."""
        self.survives = survives
        self.in_flight: dict[int, Outgoing] = {}  # by identifier, in the order of the first sending
        self.waiting: deque[Outgoing] = deque()  # to be sent, or sent again, in order
        self._next = 1

    def take(self, one: Outgoing) -> bool:
        """Gives the delivery its identifier, unless that is in use."""
        if one.qos == 2 and self.survives:
            packet_id = identifier_of(one.tag)
            if packet_id in self.in_flight:
                return False
        else:
            packet_id = self._next
            while packet_id in self.in_flight:
                packet_id = packet_id % (UPPER - 1) + 1
            self._next = packet_id % (UPPER - 1) + 1
        one.packet_id = packet_id
        self.in_flight[packet_id] = one
        return True

    def send_again(self) -> None:
        """The client has connected again: what it has not answered comes first [MQTT-4.4.0-1, 4.6.0-1]."""
        unanswered = [one for one in self.in_flight.values() if one.state is State.SENT]
        new = [one for one in self.waiting if not one.packet_id]
        self.waiting = deque(unanswered + new)


def identifier_of(tag: bytes) -> int:
    """Returns the identifier of a delivery of QoS 2, from its outgoing tag."""
    return UPPER | int.from_bytes(blake2b(tag, digest_size=2).digest(), "big")
