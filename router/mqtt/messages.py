"""The messages of addresses as MQTT has them, read once for all sessions of a router.

A transfer's payload is the same object for every subscription of a router, so what was read of it is kept for a while,
by its identity. Read `router.mqtt.filters` next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from router.mqtt.conversion import Received, Unfit, to_publish
from router.mqtt.topic_map import TopicMap

KEPT: Final = 8_192  # messages: some times what the windows of a few publishers let through at once


class Messages:
    """One router's."""

    __slots__ = ("_read", "topics")

    def __init__(self, topics: TopicMap) -> None:
        self.topics = topics
        # id of the payload -> the payload, which keeps the id its own; the address; what was read
        self._read: dict[int, tuple[bytes, str, Received | Unfit]] = {}

    def read(self, payload: bytes, message_format: int, address: str) -> Received | Unfit:
        """Returns what a transfer's payload says. A subject that is no topic name of this address is none: clients of
        AMQP may use it for something else."""
        known = self._read.get(id(payload))
        if known is not None and known[0] is payload and known[1] == address:
            return known[2]
        topic = self.topics.name_of(address)
        found = to_publish(payload, message_format, topic)
        if isinstance(found, Received) and self.topics.address_of(found.publish.topic) != address:
            found = found._replace(publish=replace(found.publish, topic=topic))
        if len(self._read) >= KEPT:
            for key in list(self._read)[: KEPT // 4]:
                del self._read[key]
        self._read[id(payload)] = payload, address, found
        return found
