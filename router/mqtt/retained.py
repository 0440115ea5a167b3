"""Retained messages: what a router knows of them, and what it says to the stores that keep them (docs/mqtt.md).

A PUBLISH with RETAIN goes to its topic, and to the address of the retained messages. There each router has a
subscription, and so have the stores (`edges.retained`), whose are declared: they have it on their disks when it is
accepted. Of two messages of one topic the later stamp wins, everywhere. A router keeps all of them in memory, in a tree
of topics: a subscription looks at those that its filter may match. When it attaches it asks for them: each store
publishes what it has, and then an end that says whom it answers. A store that starts asks, too: one that is new gets
what the others have.

What has been deleted is known by its stamp for a while, since the message that it ends may come later, from another
router. Of such stamps the last MOST_DELETED are kept, here and in stores, so topics that are used once leave nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from amqp10.errors import DecodeError
from amqp10.sections import MOST_READ, Data, Message
from amqp10.types import Symbol
from mqtt import TopicTree
from router.core.ports import (
    UNIQUE_TAGS,
    MapState,
    Outcome,
    PublisherAttach,
    Refusal,
    SubscriberAnswer,
    SubscriberAttach,
    Term,
    Waiting,
)
from router.mqtt.base import BaseMqtt, BaseSession
from router.mqtt.conversion import Stamp, stamp_of
from router.mqtt.filters import Filter, Filters, Match
from router.mqtt.outgoing import Outgoing, Receiver
from router.mqtt.subscriber import for_client

if TYPE_CHECKING:
    from router.config import AddressConfig

INTERNAL: Final = "_mqtt:"
"""Containers that begin so are routers, no clients."""
LINK: Final = "retained"
"""The link name of the stores' subscriptions, and of the routers'."""
ASKED: Final = Symbol("x-opt-mqtt-retained-ask")
END: Final = Symbol("x-opt-mqtt-retained-end")
ROOM: Final = 1_000
MOST_DELETED: Final = 10_000
"""Deleted topics whose stamps are known: more than the windows of some publishers let come in another order."""
STEPS: Final = 256
"""Topics that one session's filters look at in one turn."""


class Retained(NamedTuple):
    """A message of the address: one that is retained (or, empty, ends that), a question, or the end of an answer."""

    topic: str = ""
    stamp: Stamp = (0, "")
    empty: bool = False
    asked: str = ""
    ended: str = ""
    store: str = ""  # whose answer ends


def read(payload: bytes) -> Retained | None:
    """What a payload of the address says; None: no router and no store has written it."""
    try:
        message = Message.decode(payload, MOST_READ)
    except DecodeError:
        return None
    annotations = message.message_annotations or {}
    asked, ended, stamp = annotations.get(ASKED), annotations.get(END), stamp_of(annotations)
    if isinstance(asked, str):
        return Retained(asked=asked)
    if isinstance(ended, list) and len(ended) == 2:
        return Retained(ended=str(ended[0]), store=str(ended[1]))
    topic = message.properties.subject if message.properties is not None else None
    if stamp is None or not isinstance(topic, str):
        return None
    return Retained(topic, stamp, isinstance(message.body, Data) and not message.value)


def question(who: str) -> bytes:
    return Message(Data(b""), message_annotations={ASKED: who}).encode()


def end(who: str, store: str) -> bytes:
    return Message(Data(b""), message_annotations={END: [who, store]}).encode()


def stores_of(address: AddressConfig) -> list[str]:
    """The names of the stores whose subscriptions the file declares."""
    return [container.rpartition(":")[2] for container, link in address.subscriptions if link == LINK]


class Kept(NamedTuple):
    topic: str
    stamp: Stamp
    payload: bytes
    number: int  # of those that the router has entered


Search = tuple[Filter, Iterator[Kept | None]]
"""A filter of a session, and what it has not been sent yet."""


class Table:
    """The latest message of each topic, and which ones have been deleted. A store keeps the same on its disk.

    Attributes:
        topics: What is retained.
        octets: Of these, about.
    """

    def __init__(self) -> None:
        self.topics: TopicTree[Kept] = TopicTree()
        self.octets = 0
        self._deleted: dict[bytes, Stamp] = {}  # by digest of the topic; the oldest first

    def take(self, topic: str, stamp: Stamp, payload: bytes | None, number: int = 0) -> None:
        """Enters a message, or (None) that its topic has none, unless what is known is later."""
        digest = digest_of(topic)
        known = self.topics.get(topic)
        latest = known.stamp if known is not None else self._deleted.get(digest)
        if latest is not None and stamp <= latest:
            return
        self._deleted.pop(digest, None)
        if known is not None:
            self.octets -= _octets_of(known)
        if payload is not None:
            kept = Kept(topic, stamp, payload, number)
            self.topics.put(topic, kept)
            self.octets += _octets_of(kept)
            return
        self.topics.pop(topic)
        self._deleted[digest] = stamp
        if len(self._deleted) > MOST_DELETED:
            del self._deleted[next(iter(self._deleted))]

    @property
    def deleted(self) -> int:
        """How many deleted topics are known."""
        return len(self._deleted)


def digest_of(topic: str) -> bytes:
    """What stands for a topic that has been deleted."""
    return blake2b(topic.encode(), digest_size=20).digest()


def _octets_of(kept: Kept) -> int:
    return len(kept.payload) + len(kept.topic) + KEPT_OCTETS


KEPT_OCTETS: Final = 1_024  # of a topic beside its name and its message: its levels in the tree, mostly


class RetainedMessages:
    """One router's. `address`: of the file; "": there are none."""

    def __init__(self, service: BaseMqtt) -> None:
        self.service = service
        self.address = service.config.mqtt_retained
        self.complete = False  # all stores have answered
        self._missing: set[str] = set()  # stores that have not
        self.table = Table()
        self._waiting: dict[BaseSession, dict[str, Filter]] = {}  # whom it is sent to when it is known
        self.searches: dict[BaseSession, deque[Search]] = {}  # what is being sent, as far as clients take it
        self.due: dict[BaseSession, None] = {}  # whose searches go on in the next turn
        self._feed: RetainedFeed | None = None
        self._lives = 0
        self.entered = 0  # messages, since the start
        self.receiver = RetainedReceiver()

    def begin(self, now: float) -> None:
        """Attaches, at the start and again when the network has ended the subscription, and asks."""
        if self.wants_to_begin:
            self._lives += 1
            self.table = Table()
            self.complete = False
            for session, searches in self.searches.items():  # they begin again, with what the stores say
                self._waiting.setdefault(session, {}).update({one.options.topic_filter: one for one, _ in searches})
            self.searches.clear()
            self._missing = set(stores_of(self.service.config.address(self.address)))
            self._feed = RetainedFeed(self, f"{self.service.core.name} {self.service.core.incarnation} {self._lives}")
            self.service.core.attach_subscriber(self._feed, self._feed.attach, now)

    def end(self, now: float) -> None:
        """The file names another address, or none."""
        if self._feed is not None:
            self._feed.leave(now)

    @property
    def wants_to_begin(self) -> bool:
        return self._feed is None and bool(self.address)

    def has_room(self, topic: str) -> bool:
        """Whether a message of this topic may be kept. The next one of a topic that has one may be larger: these have a
        quarter more."""
        most = self.service.config.memory_limit // RETAINED_SHARE
        if self.table.octets <= most:
            return True
        return self.table.octets <= most + most // 4 and self.table.topics.get(topic) is not None

    def lost(self, feed: RetainedFeed) -> None:
        if feed is self._feed:
            self._feed = None

    def take(self, payload: bytes) -> None:
        found = self.service.border.ask(None, read, payload)
        if found is None or found.asked:
            return
        if found.ended:
            if self._feed is not None and found.ended == self._feed.who:
                self._missing.discard(found.store)
            if not self._missing and not self.complete:
                self.complete = True
                waiting, self._waiting = self._waiting, {}
                for session, filters in waiting.items():
                    for one in filters.values():
                        self._search(session, one)
            return
        self.entered += 1
        self.table.take(found.topic, found.stamp, None if found.empty else payload, self.entered)

    def send(self, session: BaseSession, one: Filter) -> None:
        """The client has subscribed: it gets what is retained, when that is known here."""
        if self.complete:
            self._search(session, one)
        elif self.address:
            self._waiting.setdefault(session, {})[one.options.topic_filter] = one

    def covers(self, topic: str, stamp: Stamp, filters: Filters) -> bool:
        """Whether all filters of a session that match the message of this stamp get it, or a later one of its topic, as
        what was retained when they were subscribed."""
        kept = self.table.topics.get(topic)
        if kept is None or kept.stamp < stamp:
            return False
        return all(kept.number <= one.sees for one in filters.matching(topic))

    def forget(self, session: BaseSession) -> None:
        """It is over, or at another router."""
        self._waiting.pop(session, None)
        self.searches.pop(session, None)
        self.due.pop(session, None)

    def _search(self, session: BaseSession, one: Filter) -> None:
        found = self.table.topics.matched(one.options.topic_filter)
        self.searches.setdefault(session, deque()).append((one, found))
        self.due[session] = None

    def go_on(self, session: BaseSession) -> None:
        """Sends what the client takes now of what its filters find, and no more than a turn's."""
        searches = self.searches.get(session)
        if searches is None:
            return
        steps = STEPS
        while searches and steps and session.takes_retained():
            one, found = searches[0]
            if session.filters.by_text.get(one.options.topic_filter) is one:
                for kept in found:
                    steps -= 1
                    if kept is not None:
                        self._send(session, one, kept)
                    if not steps or not session.takes_retained():
                        break
                else:
                    searches.popleft()
            else:
                searches.popleft()  # it has unsubscribed, or subscribed again, meanwhile
        if not searches:
            del self.searches[session]
        elif not steps:
            self.due[session] = None

    def _send(self, session: BaseSession, one: Filter, kept: Kept) -> None:
        service = self.service
        address = service.topics.address_of(kept.topic)
        if address is None or address not in one.addresses:
            return
        message = service.messages.read(kept.payload, 0, address)
        publish = message.left(service.time_ms(message.router)) if not isinstance(message, Refusal) else None
        if publish is None or isinstance(message, Refusal):
            return
        if one.options.no_local and message.publisher == session.filters.named:  # [MQTT-3.8.3-3]
            return
        found = Match(one.options.qos, (one.identifier,) if one.identifier else (), True)
        publish = replace(for_client(publish, found, session), retain=True)
        qos = min(found.qos, message.most_qos)
        if qos:
            session.send(Outgoing(self.receiver, 0, b"", publish, qos))
        else:
            session.send_unacknowledged(publish)


RETAINED_SHARE: Final = 2  # the part of memory_limit for what is retained: one half


class RetainedReceiver(Receiver):
    """In place of a subscription: what is retained is in no router's map, and nobody waits for its outcome."""

    def __init__(self) -> None:
        self.shares = False
        self.detached = True  # so PUBREL follows PUBREC

    def accepted(self, one: Outgoing) -> bool:
        return True


class RetainedFeed:
    """The core's SubscriberPort, and the PublisherPort of the question."""

    def __init__(self, owner: RetainedMessages, who: str) -> None:
        service = owner.service
        self.owner = owner
        self.core = service.core
        self.who = who
        epoch = service.epoch()
        container = f"{INTERNAL}{service.core.name}"
        self.attach = SubscriberAttach(container, LINK, owner.address, epoch=epoch, born=epoch, mode_first=True)
        self._question = _Question(self)
        self._count = 0
        self._dispositions: list[tuple[int, int]] = []
        self._answered = False
        self.detached = False

    def flush(self, now: float) -> None:
        noted, self._dispositions = self._dispositions, []
        for first, last in noted:
            if not self.detached:
                self.core.subscriber_disposition(self, first, last, Outcome.ACCEPTED, True, now)
        self._question.flush(now)

    def leave(self, now: float) -> None:
        if not self.detached:
            self.detached = True
            self.core.detach_subscriber(self, True, now)

    # --- SubscriberPort

    def capacity(self) -> int:
        return ROOM

    def link_credit(self) -> int:
        return 0

    def answer(self, answer: SubscriberAnswer) -> int:
        self.owner.service.to_flush(self)
        return 0

    def send(
        self, tags: list[bytes], payloads: list[bytes], message_format: int, settled: bool, position: int,
        cache: dict[object, object],
    ) -> int:  # fmt: skip
        first_id = self._count
        self._count += len(tags)
        for payload in payloads:
            self.owner.take(payload)
        if not settled:
            self._dispositions.append((first_id, first_id + len(tags) - 1))
            self.owner.service.to_flush(self)
        return first_id

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        raise AssertionError("it presents no map, so nothing is resumed")

    def expired(self, payloads: list[bytes], message_format: int) -> list[int]:
        return []

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        return self.send([tag], [payload], message_format, False, -1, {})

    def settle(self, first_id: int, last_id: int, at_once: bool = False) -> None:
        pass

    def answer_map_part(self) -> None:
        raise AssertionError("there are no maps in parts here")

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.detach(condition, description, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self.detached = True
        self.owner.lost(self)


class _Question:
    """Asks the stores once: the core's PublisherPort."""

    def __init__(self, feed: RetainedFeed) -> None:
        self.feed = feed
        self.core = feed.core
        self.attach = PublisherAttach(
            feed.attach.container, f"{LINK}-{feed.attach.epoch}", feed.attach.address, unsettled=UNIQUE_TAGS
        )
        self._begun = self._asked = self._done = False

    def flush(self, now: float) -> None:
        if not self._begun:
            self._begun = True
            self.core.attach_publisher(self, self.attach, now)
            self.core.transfers(self, 0, [bytes(16)], [question(self.feed.who)], False, 0, now)
        if self._asked:
            self._asked = False
            self.core.question_answered(self, now)
        if self._done:
            self._done = False
            self.core.publisher_settled(self, 0, 0, now)
            self.core.detach_publisher(self, True, now)

    # --- PublisherPort

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        pass

    def ready(self) -> None:
        pass

    def set_window(self, messages: int, size: int, reason: str) -> int:
        return 0

    def waiting(self, waiting: Waiting | None) -> None:
        pass

    def ask(self) -> None:
        self._asked = True
        self.feed.owner.service.to_flush(self.feed)

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        self._done = True
        self.feed.owner.service.to_flush(self.feed)

    def answer_map_part(self) -> None:
        raise AssertionError("there are no maps in parts here")

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        pass

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        pass
