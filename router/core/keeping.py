"""Unsettled maps that routers keep for clients that present none: MQTT with QoS 2 (protocol 7.9).

`KeptLink` stands between the core and the link of such a client. To the core it is a subscriber with a map. What it is
to hand over it holds back until the keeper, another router, has tag and identifier; and what the client has accepted it
releases when the keeper knows that. `Kept` is one address's part: maps that are fetched, and those that are kept here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from router.core import messages as m
from router.core.base import BaseAddress, BaseCore
from router.core.directory import KeptMap
from router.core.naming import NO_TERM
from router.core.ports import (
    KeptMapPort,
    MapState,
    Outcome,
    Refusal,
    SubscriberAnswer,
    SubscriberAttach,
    SubscriberPort,
)
from router.core.subscriber import Subscriber

if TYPE_CHECKING:
    from router.core.kept_maps import Kept

Attached = dict[SubscriberPort, Subscriber]
SENT: Final = MapState.RECEIVED
"""The client may hold it, and has said nothing: its payload is sent again."""


class Handover:
    """A delivery that waits until the keeper has it."""

    __slots__ = ("identifier", "message_format", "number", "payload", "settled", "tag")

    def __init__(self, tag: bytes, payload: bytes, message_format: int, settled: bool) -> None:
        self.tag = tag
        self.settled = settled  # it comes settled, and is in no map
        self.payload = payload
        self.message_format = message_format
        self.identifier = 0
        self.number = -1  # of the KEEP that tells it; -1: it has no identifier yet


class Handovers:
    """Those of one link, in order. The last ones have no identifier yet."""

    __slots__ = ("_unsettled", "queue", "unidentified")

    def __init__(self) -> None:
        self.queue: deque[Handover] = deque()
        self._unsettled: dict[bytes, Handover] = {}
        self.unidentified = 0

    def add(self, waiting: Handover) -> None:
        if not waiting.settled:
            self._unsettled[waiting.tag] = waiting
        self.queue.append(waiting)
        self.unidentified += 1

    def tags(self) -> list[bytes]:
        return list(self._unsettled)

    def without_identifier(self) -> Iterator[Handover]:
        return islice(self.queue, len(self.queue) - self.unidentified, None)

    def take_first(self) -> Handover:
        waiting = self.queue.popleft()
        if not waiting.settled:
            del self._unsettled[waiting.tag]
        return waiting

    def withdraw(self, tag: bytes) -> Handover | None:
        waiting = self._unsettled.pop(tag, None)
        if waiting is not None:
            self.queue.remove(waiting)
        return waiting


class DeliveryIds:
    """Which delivery has which on a link."""

    __slots__ = ("_by_tag", "_next", "_tags")

    def __init__(self) -> None:
        self._by_tag: dict[bytes, int] = {}
        self._tags: dict[int, bytes] = {}
        self._next = 0

    def take(self, number: int) -> int:
        """Returns the first of so many new ones."""
        first, self._next = self._next, self._next + number
        return first

    def enter(self, delivery_id: int, tag: bytes) -> None:
        self._tags[delivery_id] = tag
        self._by_tag[tag] = delivery_id

    def of(self, tag: bytes) -> int | None:
        return self._by_tag.get(tag)

    def tag_of(self, delivery_id: int) -> bytes | None:
        return self._tags.get(delivery_id)

    def forget(self, tag: bytes) -> None:
        delivery_id = self._by_tag.pop(tag, None)
        if delivery_id is not None:
            del self._tags[delivery_id]


def _format_of(waiting: Handover) -> int:
    return waiting.message_format


def _kind_of(waiting: Handover) -> tuple[bool, int]:
    return waiting.settled, waiting.message_format


class KeptLink:
    """The core's SubscriberPort in front of a KeptMapPort. Its owner attaches, detaches and reports through it."""

    maps: Kept  # of its address, from its attach on

    def __init__(self, core: BaseCore, port: KeptMapPort, attach: SubscriberAttach) -> None:
        self.core = core
        self.port = port
        self.attach = attach
        self.name: m.SubscriptionName = (attach.container, attach.name)
        self.term = NO_TERM
        self.recalled = False
        self.answered = False
        self.kept = KeptMap(NO_TERM)
        self.acknowledged = 0  # number of the latest KEPT
        self.whole = True  # the keeper has nothing of this link yet
        self._changed: dict[bytes, None] = {}  # since the last KEEP
        self._told: dict[bytes, int] = {}  # accepted, or gone -> the KEEP that tells it
        self._releasing: dict[bytes, None] = {}  # the client has been told that it may forget it
        self.closing: dict[bytes, None] = {}  # settled, and in a map still
        self._returning: dict[bytes, None] = {}  # given back to the queue, and in the keeper's map still
        self._unresumed: dict[bytes, None] = {}  # of the map that was fetched: not resumed yet
        self._waiting = Handovers()
        self._ids = DeliveryIds()

    @property
    def address(self) -> BaseAddress:
        return self.core.address(self.attach.address)

    # -------------------------------------------------------------------------------------------------- from its owner

    def begin(self, now: float) -> None:
        """The client attaches."""
        self.core.attach_subscriber(self, self.attach, now)

    def credit(self, now: float) -> None:
        """`capacity` of the port has grown."""
        self.core.now = self.core.entered = now
        self.core.agenda.touch(self.address)
        self.core.subscriber_credit(self, now)

    def received(self, tag: bytes, outcome: Outcome | Refusal, finished: bool, now: float) -> None:
        """The client's outcome: PUBREC, or PUBACK, or written with QoS 0. finished: it holds no identifier any more."""
        delivery_id = self._ids.of(tag)
        if delivery_id is None:
            return  # settled, or not sent on this link yet: it is sent again
        item = self.kept.items.get(tag)
        if item is not None and outcome is Outcome.RELEASED:
            self._give_back(tag)
            return
        if item is not None and item[0] is SENT:
            state = MapState.ACCEPTED if outcome is Outcome.ACCEPTED else MapState.REJECTED
            self._change(tag, state, 0 if finished else item[1])
        self.core.subscriber_disposition(self, delivery_id, delivery_id, outcome, False, now)

    def released(self, tag: bytes, now: float) -> None:
        """The client holds the identifier no more: PUBCOMP."""
        self.core.now = self.core.entered = now
        item = self.kept.items.get(tag)
        if item is not None and item[0] is not SENT:
            self.kept.items[tag] = (item[0], 0)  # protocol 7.9.6: told when another delivery gets the identifier
            self._told.pop(tag, None)
            self._releasing.pop(tag, None)
            if tag in self.closing:
                self._leave(tag)

    def give_back(self, now: float) -> None:
        """What has not been handed over goes to another consumer of the queue: its client is away."""
        for tag in self._waiting.tags():
            self.received(tag, Outcome.RELEASED, True, now)

    def end(self, closed: bool, now: float) -> None:
        """The client's session ends here."""
        self.core.now = self.core.entered = now
        attached = self.term != NO_TERM
        if attached:
            self.maps.cancel(self)
        self.core.detach_subscriber(self, closed, now)
        if attached:
            self.maps.drop(self)

    # ------------------------------------------------------------------------------------------------------- the map

    def enter(self, kept: KeptMap | None) -> None:
        """The map has been fetched: the attach presents it."""
        self.recalled = True
        self.kept = KeptMap(self.term)
        if kept is not None and kept.items:
            self.kept.items = dict(kept.items)
            self.attach.unsettled = {tag: state for tag, (state, _) in kept.items.items()}

    def _change(self, tag: bytes, state: MapState, identifier: int) -> None:
        self.kept.items[tag] = (state, identifier)
        self._changed[tag] = None
        self.core.agenda.touch(self.address)

    def _leave(self, tag: bytes) -> None:
        """It is settled, and the client does not hold it."""
        del self.kept.items[tag]
        self._changed[tag] = None
        self.core.agenda.touch(self.address)

    def _give_back(self, tag: bytes) -> None:
        """The client has not been sent it. Another consumer gets it when the keeper has read that no more (protocol
        7.9.11)."""
        self._waiting.withdraw(tag)
        self.port.forget(tag)
        self._returning[tag] = None
        self._leave(tag)

    def _returned(self, tag: bytes) -> None:
        del self._returning[tag]
        subscriber, delivery_id = self.maps.subscribers.get(self), self._ids.of(tag)
        if subscriber is not None and delivery_id is not None:
            subscriber.deliveries.disposition(subscriber, delivery_id, delivery_id, Outcome.RELEASED, False)

    def _settled(self, tag: bytes) -> None:
        self._ids.forget(tag)
        waiting = self._waiting.withdraw(tag)
        if waiting is not None:
            self._waiting.unidentified -= waiting.number < 0
            if waiting.identifier:
                self.port.forget(tag)
                self.closing[tag] = None
                self._leave(tag)
            return
        item = self.kept.items.get(tag)
        if item is None:
            return
        self.closing[tag] = None
        if not item[1]:
            self._leave(tag)
        elif item[0] is SENT:  # protocol 7.9.7
            self._change(tag, MapState.ACCEPTED, item[1])

    def _identify(self) -> list[Handover]:
        """Gives identifiers to what waits for one. A tag that is in the map still, of a delivery that is settled, is
        waited for."""
        found: list[Handover] = []
        room = self.port.capacity() if self._waiting.unidentified else 0
        for waiting in self._waiting.without_identifier():
            if len(found) >= room or (not waiting.settled and self._is_in_a_map(waiting.tag)):
                break
            found.append(waiting)
        self._waiting.unidentified -= len(found)
        for message_format, group in groupby([each for each in found if not each.settled], _format_of):
            unsettled = list(group)
            identifiers = self.port.identify(
                [each.tag for each in unsettled], [each.payload for each in unsettled], message_format
            )
            for each, identifier in zip(unsettled, identifiers, strict=True):
                each.identifier = identifier
                if identifier:
                    self._change(each.tag, SENT, identifier)
        return found

    def flush(self) -> None:
        """Tells the keeper what has changed, in one message for a turn (protocol 7.9.5, 7.9.6, 7.9.9)."""
        entry = self.address.known_subscriptions.get(self.name)
        if not self.answered or entry is None or entry.term != self.term or entry.recalled_by > self.term:
            return
        entry.kept = self.kept
        if self._unresumed and self._waiting.queue:  # what comes again may be behind what waits for room
            self.maps.subscribers[self].pump(tells=False)  # which would touch the address, and so lead here again
        keeper, items = self.core.kinds.keeper(self.attach.address), self.kept.items
        identified = self._identify()
        if self._changed or (self.whole and (items or self.acknowledged < self.kept.number)):
            self.kept.number += 1
            number, told = self.kept.number, list(items if self.whole else self._changed)
            gone = [tag for tag in self._changed if tag not in items]
            news = [(tag, int(items[tag][0]), items[tag][1]) for tag in told if tag in items]
            for tag in [*told, *gone]:
                if tag not in items or items[tag][0] is not SENT:
                    self._told[tag] = number
            if keeper is not None:
                message = m.Keep(self.attach.address, self.name, self.term, number, self.whole, news, gone)
                self.core.post.send(keeper, message)
            self._changed, self.whole = {}, False
        for each in identified:
            each.number = self.kept.number
        self.acknowledge(self.acknowledged if keeper is not None else self.kept.number)

    def keeper_changed(self) -> None:
        self.whole = True
        if self.recalled and self.attach.address in self.core.addresses:
            self.core.agenda.touch(self.address)

    def acknowledge(self, number: int) -> None:
        """The keeper has all up to this KEEP: what waited for that goes on."""
        self.acknowledged = max(self.acknowledged, number)
        for tag in [tag for tag, told in self._told.items() if self._may_release(told)]:
            del self._told[tag]
            if tag in self._returning:
                self._returned(tag)
            elif tag not in self.kept.items:
                self.closing.pop(tag, None)
                self.maps.closed(self, tag)
                self.core.agenda.touch(self.address)  # what comes under this tag again may have waited
            elif self.kept.items[tag][1] and tag not in self._releasing:
                self._releasing[tag] = None
                self.port.release(tag)
        ready: list[Handover] = []
        queue = self._waiting.queue
        while queue and self._may_publish(queue[0]):
            ready.append(self._waiting.take_first())
        for (settled, message_format), group in groupby(ready, _kind_of):
            if settled:
                self.port.publish_settled([each.payload for each in group], message_format)
                continue
            tags, payloads = [], []
            for each in group:
                tags.append(each.tag)
                payloads.append(each.payload)
            self.port.publish(tags, payloads, message_format, False)

    def _is_in_a_map(self, tag: bytes) -> bool:
        return tag in self.kept.items or tag in self.closing or tag in self._returning

    def unfinished(self) -> list[bytes]:
        """Returns what is settled, and in a map still (protocol 7.9.8)."""
        if self.answered:
            return list(self.closing)
        subscriber = self.maps.subscribers.get(self)
        return [tag for tag in self.kept.items if subscriber is not None and subscriber.irregular.find(tag) is None]

    def _may_release(self, number: int) -> bool:
        """Says whether the keeper has what that KEEP says of an acceptance or an end (protocol 7.9.6, 7.9.8)."""
        return number <= self.acknowledged

    def _may_publish(self, waiting: Handover) -> bool:
        """Says whether the keeper has tag and identifier (protocol 7.9.5)."""
        return 0 <= waiting.number <= self.acknowledged

    # ----------------------------------------------------------------------------------- SubscriberPort: from the core

    def capacity(self) -> int:
        """What comes again has an identifier, so it needs no room."""
        room = self.port.capacity() - self._waiting.unidentified
        return max(room, 0) + len(self._unresumed)

    def link_credit(self) -> int:
        return max(self.port.link_credit() - len(self._waiting.queue), 0)

    def answer(self, answer: SubscriberAnswer) -> int:
        self.answered = True
        listing = answer.listing or {}
        items = self.kept.items
        answer.identifiers = {item[1]: (tag, item[0] is not SENT) for tag, item in items.items() if item[1]}
        self.port.answer(answer)
        self._unresumed = dict.fromkeys(listing)
        for tag in list(items):
            if tag not in listing:  # settled before the answer (protocol 10.1)
                self._settled(tag)
        self.core.agenda.touch(self.address)
        return len(listing)

    def send(
        self,
        tags: list[bytes],
        payloads: list[bytes],
        message_format: int,
        settled: bool,
        position: int,
        cache: dict[object, object],
    ) -> int:
        first_id = self._ids.take(len(tags))
        for i, tag in enumerate(tags):
            if not settled:
                self._ids.enter(first_id + i, tag)
            self._waiting.add(Handover(tag, payloads[i], message_format, settled))
        self.core.agenda.touch(self.address)
        return first_id

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        delivery_id = self._ids.take(1)
        self._unresumed.pop(tag, None)
        if settled:
            self._settled(tag)
            return delivery_id
        self._ids.enter(delivery_id, tag)
        if payload is not None:
            self.port.publish([tag], [payload], message_format, True)
        return delivery_id

    def expired(self, payloads: list[bytes], message_format: int) -> list[int]:
        return []

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        return self.send([tag], [payload], message_format, False, -1, {})  # MQTT has no delivery-count

    def settle(self, first_id: int, last_id: int, at_once: bool = False) -> None:
        for delivery_id in range(first_id, last_id + 1):
            tag = self._ids.tag_of(delivery_id)
            if tag is not None:
                self._settled(tag)

    def answer_map_part(self) -> None:
        raise AssertionError("a map that routers keep has no parts")

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.port.refuse(condition, description, info)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self.port.detach(condition, description, info, closed)
