"""The messages of addresses as MQTT has them, read once for all sessions of a router. What a session of this router has
published without properties, which is the usual case, is not read at all.

A transfer's payload is the same object for every subscription of a router, so what was read of it is kept for a while,
by its identity. Read `router.mqtt.filters` next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from amqp10.encoder import encode_value
from mqtt import NO_PROPERTIES, Publish
from router.mqtt.conversion import Received, Stamp, Unfit, to_message, to_publish
from router.mqtt.topic_map import TopicMap

KEPT: Final = 8_192  # messages: some times what the windows of a few publishers let through at once
NO_OCTETS: Final = encode_value(b"")


class Messages:
    """One router's."""

    __slots__ = ("_heads", "_read", "topics")

    def __init__(self, topics: TopicMap) -> None:
        self.topics = topics
        # id of the payload -> the payload, which keeps the id its own; the address; what was read
        self._read: dict[int, tuple[bytes, str, Received | Unfit]] = {}
        # (topic, publisher, QoS) -> what is before the octets in a message without properties
        self._heads: dict[tuple[str, str, int], bytes] = {}

    def written(
        self, packets: Sequence[Publish], address: str, publisher: str, now_ms: int, stamps: Sequence[Stamp] = ()
    ) -> list[bytes]:
        """Returns the payloads of the transfers that stand for what a session publishes to this address. stamps: where
        that is the address of the retained messages."""
        if stamps:
            return [
                to_message(each, publisher, now_ms, stamp=stamp) for each, stamp in zip(packets, stamps, strict=True)
            ]
        found: list[bytes] = []
        for each in packets:
            if each.properties != NO_PROPERTIES or each.retain:
                found.append(to_message(each, publisher, now_ms))
                continue
            key = each.topic, publisher, each.qos
            head = self._heads.get(key)
            if head is None:
                if len(self._heads) >= KEPT:
                    self._heads.clear()
                empty = to_message(Publish(each.topic, b"", each.qos), publisher)
                head = self._heads[key] = empty.removesuffix(NO_OCTETS)
            payload = head + encode_value(each.payload)
            self._keep(payload, address, Received(Publish(each.topic, each.payload), key[2], None))
            found.append(payload)
        return found

    def read(self, payload: bytes, message_format: int, address: str) -> Received | Unfit:
        """Returns what a transfer's payload says. A subject that is no topic name of this address is none: clients of
        AMQP may use it for something else."""
        known = self._read.get(id(payload))
        if known is not None and known[0] is payload and known[1] == address:
            return known[2]
        topic = self.topics.name_of(address)
        found = to_publish(payload, message_format, topic)
        if isinstance(found, Received) and not self.topics.has(address, found.publish.topic):
            found = found._replace(publish=replace(found.publish, topic=topic))
        self._keep(payload, address, found)
        return found

    def _keep(self, payload: bytes, address: str, found: Received | Unfit) -> None:
        if len(self._read) >= KEPT:
            for key in list(self._read)[: KEPT // 4]:
                del self._read[key]
        self._read[id(payload)] = payload, address, found
