"""Which topics feed which shared subscriptions: the core's Shares (protocol 16.12)."""

from __future__ import annotations

from typing import Final

from mqtt import matches
from router.config import SHARED
from router.core.core import Core
from router.mqtt.conversion import Unfit, subject_of
from router.mqtt.messages import Messages
from router.mqtt.topic_map import TopicMap

KEPT: Final = 4_096  # answers that are kept


class Sharing:
    """Those of one router, by one topology file."""

    def __init__(self, core: Core, topics: TopicMap, messages: Messages) -> None:
        self._topics = topics
        self._messages = messages
        self._wants: dict[tuple[str, str], bool] = {}  # queue, topic name
        self._by_topic: dict[str, tuple[str, ...]] = {}
        for queue in topics.named:
            self._add(queue)
        for address in core.addresses:
            self.created(address)

    def _add(self, queue: str) -> None:
        for topic in self._topics.topics_of(queue):
            self._by_topic[topic] = (*self._by_topic.get(topic, ()), queue)

    def created(self, address: str) -> None:
        if address.startswith(SHARED):
            self._add(address)

    def dropped(self, address: str) -> None:
        if address.startswith(SHARED):
            for topic in self._topics.topics_of(address):
                self._by_topic[topic] = tuple(each for each in self._by_topic[topic] if each != address)

    def queues_of(self, topic: str) -> tuple[str, ...]:
        return self._by_topic.get(topic, ())

    def topics_of(self, queue: str) -> list[str]:
        return self._topics.topics_of(queue)

    def is_declared(self, queue: str) -> bool:
        return queue in self._topics.named

    def wants(self, queue: str, topic: str, payload: bytes, message_format: int) -> bool:
        message = self._messages.read(payload, message_format, topic)
        if isinstance(message, Unfit):  # members reject it, as other subscribers do
            name = subject_of(payload, message_format)
            name = name if name is not None and self._topics.has(topic, name) else self._topics.name_of(topic)
        else:
            name = message.publish.topic
        found = self._wants.get((queue, name))
        if found is None:
            if len(self._wants) >= KEPT:
                self._wants.clear()
            found = self._wants[queue, name] = matches(self._topics.filter_of(queue) or "", name)
        return found
