"""What a session has sent its client and the client has not acknowledged to the end; packet identifiers.

QoS 1, and QoS 2 of a session that ends with its connection, take any free identifier of the lower half. QoS 2 of a
session that may go on at another router takes one of the upper half, which another router keeps: the hash of the
delivery-tag where that is free. So if nobody is left who has kept it, it is found again in most cases.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from mqtt import Publish
from router.core.ports import Outcome, Refusal

UPPER: Final = 0x8000
"""The first identifier of QoS 2."""
QUESTION: Final = 0xFFFF
"""No PUBLISH has it: a PUBREL of it asks whether the client is there (protocol 5.7.8)."""


class State(IntEnum):
    SENT = 0  # PUBLISH; or it waits for its identifier, or for room
    KEPT = 1  # it has an identifier, and nothing is to be sent yet
    RECEIVED = 2  # PUBREC has come
    RELEASED = 3  # PUBREL; PUBCOMP has not come


class Receiver:
    """Whose deliveries they are: a subscription, or what is in place of one. It is told what the client answers."""

    shares: bool  # a shared subscription: its members compete
    detached: bool

    def accepted(self, one: Outgoing) -> bool:
        """PUBREC has come. Returns whether PUBREL may follow at once."""
        raise NotImplementedError

    def finished(self, one: Outgoing, outcome: Outcome | Refusal) -> None:
        """The client holds no identifier, and this is its outcome."""

    def released(self, one: Outgoing) -> None:
        """PUBCOMP has come."""


class Outgoing:
    """One delivery of QoS 1 or 2."""

    __slots__ = ("delivery_id", "octets", "packet_id", "publish", "qos", "repeated", "state", "subscriber", "tag")

    def __init__(
        self,
        subscriber: Receiver,
        delivery_id: int,
        tag: bytes,
        publish: Publish | None,
        qos: int,
    ) -> None:
        self.subscriber = subscriber
        self.delivery_id = delivery_id
        self.tag = tag
        self.publish = publish  # without identifier; None: another router has sent it, and it has not come again
        self.qos = qos
        self.octets = 0  # as counted while it has an identifier
        self.packet_id = 0  # 0: it has none yet
        self.state = State.SENT
        self.repeated = False  # the client may have it


class Identifiers:
    """The identifiers of one session, and what waits to be sent.

    Attributes:
        octets: Of the payloads of what is in flight.
    """

    __slots__ = ("_next", "in_flight", "octets", "waiting")

    def __init__(self) -> None:
        self.in_flight: dict[int, Outgoing] = {}  # by identifier; those that were sent in the order of that
        self.waiting: deque[Outgoing] = deque()  # to be sent, or sent again, in order
        self._next = 1
        self.octets = 0

    def reserve(self, one: Outgoing) -> None:
        """Gives a delivery of QoS 2 an identifier of the upper half. Nothing is sent yet."""
        one.state = State.KEPT
        one.packet_id = self.preferred(one.tag)
        while one.packet_id in self.in_flight:
            one.packet_id = UPPER if one.packet_id == QUESTION - 1 else one.packet_id + 1
        self.in_flight[one.packet_id] = one
        self._count(one)

    def preferred(self, tag: bytes) -> int:
        return identifier_of(tag)

    def free(self, one: Outgoing) -> None:
        """It is not in flight any more."""
        if self.in_flight.get(one.packet_id) is one:
            del self.in_flight[one.packet_id]
            self.octets -= one.octets
            one.octets = 0

    def _count(self, one: Outgoing) -> None:
        if one.publish is not None and not one.octets:
            one.octets = len(one.publish.payload)
            self.octets += one.octets

    def unsent(self, subscriber: Receiver) -> list[Outgoing]:
        """Takes out what waits of a subscription and was never sent."""
        found = [one for one in self.waiting if one.subscriber is subscriber and not one.repeated]
        if found:
            self.waiting = deque(one for one in self.waiting if one.subscriber is not subscriber or one.repeated)
        return found

    def take(self, one: Outgoing) -> None:
        """It is about to be sent: gives it an identifier of the lower half, unless it has one."""
        if one.packet_id:
            if not one.repeated:  # in the order of the first sending
                self.in_flight[one.packet_id] = self.in_flight.pop(one.packet_id)
            self._count(one)
            return
        while self._next in self.in_flight:
            self._next = self._next % (UPPER - 1) + 1
        one.packet_id = self._next
        self._next = self._next % (UPPER - 1) + 1
        self.in_flight[one.packet_id] = one
        self._count(one)

    def send_again(self) -> None:
        """The client has connected again: what it has not answered comes first [MQTT-4.4.0-1, 4.6.0-1]."""
        waiting = set(self.waiting)
        sent = [one for one in self.in_flight.values() if one.state is State.SENT and one not in waiting]
        self.waiting.extendleft(reversed(sent))


def identifier_of(tag: bytes) -> int:
    """Returns the preferred identifier of a delivery of QoS 2, from its outgoing tag."""
    return UPPER + int.from_bytes(blake2b(tag, digest_size=2).digest(), "big") % (QUESTION - UPPER)
