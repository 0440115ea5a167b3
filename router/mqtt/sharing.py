"""Which topics feed which shared subscriptions: the core's `Shares` (protocol 16.12)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mqtt import TopicTree
from router.border import Border
from router.config import SHARED
from router.core.core import Core
from router.core.owner import Shares
from router.core.ports import Refusal
from router.mqtt.conversion import subject_of
from router.mqtt.messages import Messages
from router.mqtt.remembered import Remembered
from router.mqtt.topic_map import TopicMap

QUEUE_OCTETS: Final = 100  # that the name of a queue takes where it is remembered


class Sharing(Shares):
    """Those of one router, by one topology file. A tree has the filters, so a message costs the same however many
    there are that do not match it."""

    def __init__(self, core: Core, topics: TopicMap, messages: Messages, border: Border, room: int) -> None:
        self._border = border
        self._topics = topics
        self._messages = messages
        self._by_topic: dict[str, dict[str, None]] = {}
        self._tree: TopicTree[dict[str, None]] = TopicTree()  # filter -> queues
        self._found: Remembered[str, tuple[str, ...]] = Remembered(room)  # topic name -> queues
        for queue in topics.named:
            self._add(queue)
        for address in core.addresses:
            self.created(address)

    def _add(self, queue: str) -> None:
        topics, text = self._topics.topics_of(queue), self._topics.filter_of(queue)
        for topic in topics:
            self._by_topic.setdefault(topic, {})[queue] = None
        if topics and text:
            queues = self._tree.get(text)
            if queues is None:
                self._tree.put(text, {queue: None})
            else:
                queues[queue] = None
            self._found.clear()

    def created(self, address: str) -> None:
        if address.startswith(SHARED):
            self._add(address)

    def dropped(self, address: str) -> None:
        if not address.startswith(SHARED):
            return
        for topic in self._topics.topics_of(address):
            queues = self._by_topic[topic]
            queues.pop(address, None)
            if not queues:
                del self._by_topic[topic]
        text = self._topics.filter_of(address) or ""
        named = self._tree.get(text)
        if named is not None and named.pop(address, "") is None and not named:
            self._tree.pop(text)
        self._found.clear()

    def queues_of(self, topic: str) -> Collection[str]:
        return self._by_topic.get(topic, ())

    def topics_of(self, queue: str) -> list[str]:
        return self._topics.topics_of(queue)

    def is_declared(self, queue: str) -> bool:
        return queue in self._topics.named

    def queues_for(self, topic: str, payload: bytes, message_format: int) -> Collection[str]:
        name = self._border.ask(None, self._name, topic, payload, message_format)
        if name is None:  # members of all reject it
            return self.queues_of(topic)
        found = self._found.answers.get(name)
        if found is None:
            found = tuple(queue for queues in self._tree.matching(name) for queue in queues)
            self._found.keep(name, found, len(name) + QUEUE_OCTETS * len(found))
        return found

    def _name(self, topic: str, payload: bytes, message_format: int) -> str:
        """The topic name of a message."""
        message = self._messages.read(payload, message_format, topic)
        if not isinstance(message, Refusal):
            return message.publish.topic
        name = subject_of(payload, message_format)  # members reject it, as other subscribers do
        return name if name is not None and self._topics.has(topic, name) else self._topics.name_of(topic)
