"""The messages of addresses as MQTT has them, read once for all sessions of a router. What a session of this router has
published without properties, which is the usual case, is not read at all.

A transfer's payload is the same object for every subscription of a router, so what was read of it is kept for a while,
by its identity, and bounded in octets. A large payload of MQTT is a view of it: what is in flight to clients takes no
octets beside those that the core counts. Read `router.mqtt.filters` next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from amqp10.encoder import encode_value
from mqtt import NO_PROPERTIES, Publish, encode, name_fault
from router.border import Border
from router.core.ports import Refusal
from router.mqtt.conversion import LARGE, NO_FORM, Received, Stamp, to_message, to_publish
from router.mqtt.remembered import Remembered
from router.mqtt.topic_map import TopicMap

READ_SHARE: Final = 4
"""How many times the room of other answers messages have that were read: some times what windows let through."""
NO_OCTETS: Final = encode_value(b"")


class Messages:
    """One router's."""

    __slots__ = ("_border", "_heads", "_read", "_router", "topics")

    def __init__(self, topics: TopicMap, border: Border, room: int, router: str = "") -> None:
        """room: octets of heads; READ_SHARE times that for messages."""
        self.topics = topics
        self._router = router
        self._border = border
        # id of the payload -> the payload, which keeps the id its own; the address; what was read
        self._read: Remembered[int, tuple[bytes, str, Received | Refusal]] = Remembered(READ_SHARE * room)
        # (topic, publisher, QoS) -> what is before the octets in a message without properties
        self._heads: Remembered[tuple[str, str, int], bytes] = Remembered(room)

    @property
    def octets(self) -> int:
        """What is kept for a while, about."""
        return self._read.octets + self._heads.octets

    def written(
        self, packets: Sequence[Publish], address: str, publisher: str, now_ms: int, stamps: Mapping[int, Stamp]
    ) -> list[bytes]:
        """Returns the payloads of the transfers that stand for what a session publishes to this address. stamps: of
        those that are retained, by number."""
        found: list[bytes] = []
        for i, each in enumerate(packets):
            if each.properties != NO_PROPERTIES or each.retain or i in stamps:
                found.append(to_message(each, publisher, now_ms, router=self._router, stamp=stamps.get(i)))
                continue
            key = each.topic, publisher, each.qos
            head = self._heads.answers.get(key)
            if head is None:
                empty = to_message(Publish(each.topic, b"", each.qos), publisher)
                head = empty.removesuffix(NO_OCTETS)
                self._heads.keep(key, head, 2 * len(head))
            payload = head + encode_value(each.payload)
            octets = (
                each.payload if len(each.payload) < LARGE else memoryview(payload)[len(payload) - len(each.payload) :]
            )
            known = Received(Publish(each.topic, octets), key[2], None, publisher=publisher)
            self._read.keep(id(payload), (payload, address, known), MESSAGE_OCTETS + len(payload))
            found.append(payload)
        return found

    def read(self, payload: bytes, message_format: int, address: str) -> Received | Refusal:
        """Returns what a transfer's payload says. A subject that is no topic name of this address is none: clients of
        AMQP may use it for something else."""
        known = self._read.answers.get(id(payload))
        if known is not None and known[0] is payload and known[1] == address:
            return known[2]
        found = self._border.ask(NO_FORM, self._look, payload, message_format, address)
        self._keep(payload, address, found)
        return found

    def _look(self, payload: bytes, message_format: int, address: str) -> Received | Refusal:
        topic = self.topics.name_of(address)
        found = to_publish(payload, message_format, topic)
        if isinstance(found, Refusal):
            return found
        if not self.topics.has(address, found.publish.topic):
            found = found._replace(publish=replace(found.publish, topic=topic))
        if found.publish.topic == topic and name_fault(topic) is not None:
            return NO_FORM
        if found.publish.properties != NO_PROPERTIES:
            encode(replace(found.publish, payload=b""), 5)  # who sends it is within the core, and so it can be encoded
        return found

    def _keep(self, payload: bytes, address: str, found: Received | Refusal) -> None:
        size = MESSAGE_OCTETS + len(payload)
        if isinstance(found, Received):
            size += PAIR_OCTETS * len(found.publish.properties.user_properties)
        self._read.keep(id(payload), (payload, address, found), size)


MESSAGE_OCTETS: Final = 300  # of what was read, beside its payload
PAIR_OCTETS: Final = 200  # of a user property
