"""What is sent to whom, and when. Sans-IO: time is `now`, randomness is handed in, events are positions.

A topic is a stream with positions. A subscriber has, for each topic, the ranges that it is still to be sent: the last
one is open while it is subscribed. It is sent one batch at a time, so order per topic is kept and a slow one delays no
other. A batch that failed is sent again as it was.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from edges.bus.rules import MAX_EVENTS, TIMEOUT_MS, Wish
from router.json_text import write_json

RETRY_S: Final = 0.1
MAX_RETRY_S: Final = 6.4
JITTER: Final = 0.5  # a pause is up to so much longer
MARKS: Final = 4096  # arrivals that are remembered for each topic; what is older is due
ALWAYS: Final = -math.inf
STORED: Final = ("name", "callback", "uuid", "timeout_ms", "max_events", "ranges", "sent", "generation")


@dataclass(slots=True)
class Topic:
    """A topic that was pushed to, or subscribed to before that.

    Attributes:
        publisher: The identity of the client that owns it; empty before the first push.
        name: That client's name.
        base: The position at which it began: an earlier topic may have had the stream.
    """

    publisher: str
    name: str
    base: int

    def row(self) -> bytes:
        return write_json([self.publisher, self.name, self.base]).encode()

    @classmethod
    def of_row(cls, row: bytes) -> Topic:
        return cls(*json.loads(row))


@dataclass(slots=True)
class Range:
    """Positions first ... end - 1; end None: also what comes."""

    first: int
    end: int | None = None


@dataclass(slots=True)
class Plan:
    """One batch: by topic, the positions first ... end - 1.

    Attributes:
        generation: Of its subscriber: raised when the subscriber goes back.
        created_at: When the oldest of its events came.
        attempts: How often it was sent.
    """

    subscriber: Subscriber
    generation: int
    parts: dict[str, tuple[int, int]]
    created_at: float
    attempts: int = 0


@dataclass(slots=True)
class Subscriber:
    """One client's subscription.

    Attributes:
        ranges: By topic, what it is still to be sent.
        sent: How many events it has taken.
        failures: How many attempts have failed since the last batch that was taken.
        reason: Why the last one did.
        failed: The batch that is to be sent again.
    """

    identity: str
    name: str
    callback: str = ""
    uuid: str = ""
    timeout_ms: int = TIMEOUT_MS
    max_events: int = MAX_EVENTS
    ranges: dict[str, list[Range]] = field(default_factory=dict)
    sent: int = 0
    generation: int = 0
    failures: int = 0
    reason: str = ""
    retry_at: float = 0.0
    failed: Plan | None = None
    sending: bool = False
    due_at: float | None = None

    @property
    def topics(self) -> list[str]:
        return sorted(topic for topic, ranges in self.ranges.items() if ranges and ranges[-1].end is None)

    def row(self) -> bytes:
        ranges = {topic: [[each.first, each.end] for each in found] for topic, found in self.ranges.items() if found}
        config = [self.name, self.callback, self.uuid, self.timeout_ms, self.max_events]
        return write_json([*config, self.sent, self.generation, ranges]).encode()

    @classmethod
    def of_row(cls, identity: str, row: bytes) -> Subscriber:
        *config, ranges = json.loads(row)
        found = {topic: [Range(first, end) for first, end in pairs] for topic, pairs in ranges.items()}
        name, callback, uuid, timeout_ms, max_events, sent, generation = config
        return cls(identity, name, callback, uuid, timeout_ms, max_events, found, sent, generation)


class Bus:
    """All topics and subscribers of one edge.

    Args:
        rng: For the jitter of pauses.
        slots: How many batches may be under way at once.
        serves: Whether this edge calls the subscriber with this identity back.
    """

    def __init__(
        self, rng: random.Random, *, slots: int = 1000, serves: Callable[[str], bool] = lambda _: True
    ) -> None:
        self.serves = serves
        self.topics: dict[str, Topic] = {}
        self.subscribers: dict[str, Subscriber] = {}
        self.ends: dict[str, int] = {}  # by topic: the position of its next event
        self._rng = rng
        self._slots = slots
        self.under_way = 0  # batches
        self._readers: dict[str, dict[str, Subscriber]] = {}  # by topic: who is still to be sent something of it
        self._marks: dict[str, tuple[list[int], list[float]]] = {}  # by topic: (positions, when they came)
        self._heap: list[tuple[float, int, str]] = []
        self._order = count()

    # --- events

    def arrived(self, topic: str, end: int, now: float) -> None:
        """The topic has events before this position."""
        if topic not in self.topics and topic not in self._readers:
            return  # it was deleted meanwhile
        first = self.ends.get(topic, 0)
        if end <= first:
            return
        self.ends[topic] = end
        positions, times = self._marks.setdefault(topic, ([], []))
        positions.append(first)
        times.append(now)
        if len(positions) >= 2 * MARKS:
            del positions[:MARKS], times[:MARKS]
        for subscriber in self._readers.get(topic, {}).values():
            if not subscriber.sending and subscriber.due_at != ALWAYS:
                self._schedule(subscriber)

    def make_topic(self, name: str, topic: Topic) -> None:
        self.topics[name] = topic
        self.ends.setdefault(name, topic.base)

    def drop_topic(self, name: str) -> None:
        """The topic is deleted. What is queued of it for subscribers stays."""
        self.topics.pop(name, None)
        self._forget(name)

    def forget_unused(self) -> None:
        """Forgets the positions of topics that are no more."""
        for topic in list(self.ends):
            self._forget(topic)

    def pending(self, subscriber: Subscriber) -> int:
        """How many events it is still to be sent."""
        return sum(self._end(topic, r) - r.first for topic, ranges in subscriber.ranges.items() for r in ranges)

    def oldest(self, subscriber: Subscriber) -> list[tuple[str, int]]:
        """(topic, position) of the first event of each topic that it is still to be sent."""
        firsts = []
        for topic, ranges in subscriber.ranges.items():
            for each in ranges:
                if each.first < self._end(topic, each):
                    firsts.append((topic, each.first))
                    break
        return firsts

    def topics_of(self, subscriber: Subscriber) -> list[str]:
        """What it is subscribed to, without topics that are no more."""
        return [topic for topic in subscriber.topics if topic in self.topics]

    def readers(self, topic: str) -> list[Subscriber]:
        """Who is subscribed to the topic."""
        return [each for each in self._readers.get(topic, {}).values() if topic in each.topics]

    def needed(self, topic: str) -> int:
        """The position before which nobody needs the topic's events."""
        end = self.ends.get(topic, 0)
        readers = self._readers.get(topic, {}).values()
        return min([end, *(subscriber.ranges[topic][0].first for subscriber in readers)])

    # --- batches

    def take(self, now: float) -> list[Plan]:
        """The batches to be sent now, full ones first; each is to be ended by `succeeded` or `failed`."""
        plans = []
        while self._heap and self.under_way < self._slots and self._heap[0][0] <= now:
            due_at, _, identity = heapq.heappop(self._heap)
            subscriber = self.subscribers.get(identity)
            if subscriber is None or subscriber.sending or subscriber.due_at != due_at:
                continue
            subscriber.due_at = None
            if not self.serves(identity):
                continue
            plan = subscriber.failed or self._plan(subscriber, now)
            plan.attempts += 1
            subscriber.sending = True
            self.under_way += 1
            plans.append(plan)
        return plans

    def deadline(self, now: float) -> float | None:
        """When `take` has something again; None: not before something happens."""
        while self._heap:
            due_at, _, identity = self._heap[0]
            subscriber = self.subscribers.get(identity)
            if subscriber is not None and not subscriber.sending and subscriber.due_at == due_at:
                return max(due_at, now) if self.under_way < self._slots else None
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> int:
        """How many batches are to be sent before this time and are not under way."""
        return sum(
            each.due_at is not None and each.due_at <= now and not each.sending for each in self.subscribers.values()
        )

    def acknowledge(self, plan: Plan, events: int) -> Subscriber | None:
        """The subscriber has taken the batch: what is left no longer includes it. None if it is gone."""
        subscriber = plan.subscriber
        if self.subscribers.get(subscriber.identity) is not subscriber:
            return None
        subscriber.sent += events
        if plan.generation == subscriber.generation:
            for topic, (_, end) in plan.parts.items():
                self._advance(subscriber, topic, end)
        return subscriber

    def succeeded(self, plan: Plan) -> None:
        """It is durable that the batch was taken."""
        subscriber = self._ended(plan)
        if subscriber is not None:
            subscriber.failures = 0
            subscriber.failed = None
            self._schedule(subscriber)

    def failed(self, plan: Plan, now: float, reason: str = "") -> None:
        """The batch was not taken: it is sent again after a pause that doubles."""
        subscriber = self._ended(plan)
        if subscriber is None:
            return
        pause_s = min(MAX_RETRY_S, RETRY_S * 2 ** min(subscriber.failures, 10))
        subscriber.failures += 1
        subscriber.reason = reason
        subscriber.retry_at = now + pause_s * (1 + JITTER * self._rng.random())
        subscriber.failed = plan if plan.generation == subscriber.generation else None
        self._schedule(subscriber)

    def drop(self, subscriber: Subscriber, most: int, topic: str) -> int:
        """Drops the oldest events that the subscriber is still to be sent of a topic, at most so many."""
        for each in subscriber.ranges.get(topic, []):
            end = min(self._end(topic, each), each.first + most)
            if end > each.first:
                dropped = end - each.first
                subscriber.failed = None
                self._advance(subscriber, topic, end)
                self._schedule(subscriber)
                return dropped
        return 0

    # --- subscriptions

    def add(self, subscriber: Subscriber) -> None:
        """A subscription as it was stored."""
        self.subscribers[subscriber.identity] = subscriber
        for topic in subscriber.ranges:
            self._readers.setdefault(topic, {})[subscriber.identity] = subscriber
        self._schedule(subscriber)

    def put(self, identity: str, row: bytes | None, now: float) -> None:
        """The subscription is in the store as this row; None: it is gone."""
        known = self.subscribers.get(identity)
        if row is None:
            if known is not None:
                self.remove(identity)
            return
        new = Subscriber.of_row(identity, row)
        for topic, ranges in new.ranges.items():
            self._readers.setdefault(topic, {})  # it is needed from now on
            self.arrived(topic, ranges[-1].first if ranges[-1].end is None else ranges[-1].end, now)
        if known is None:
            self.add(new)
        else:
            before = known.ranges
            for name in STORED:
                setattr(known, name, getattr(new, name))
            known.failed = None
            self.add(known)
            for topic in before.keys() - new.ranges.keys():
                self._needs_no_more(topic, identity)

    def reschedule(self) -> None:
        """Others are served now than before."""
        for subscriber in self.subscribers.values():
            self._schedule(subscriber)

    def change(self, identity: str, name: str, wish: Wish) -> Subscriber:
        """Makes or changes a subscription. Topics that are not listed are unsubscribed."""
        subscriber = self.subscribers.get(identity)
        if subscriber is None:
            generation = self._rng.getrandbits(32)  # no earlier subscription's, also of a bus that was lost
            subscriber = self.subscribers[identity] = Subscriber(identity, name, generation=generation)
        subscriber.callback = subscriber.callback if wish.callback is None else wish.callback
        subscriber.uuid = subscriber.uuid if wish.uuid is None else wish.uuid
        subscriber.timeout_ms = subscriber.timeout_ms if wish.timeout_ms is None else wish.timeout_ms
        subscriber.max_events = subscriber.max_events if wish.max_events is None else wish.max_events
        if wish.topics is not None:
            for topic in subscriber.topics:
                if topic not in wish.topics:
                    self.unsubscribe(subscriber, topic)
            for topic in wish.topics:
                self.subscribe(subscriber, topic)
        self._schedule(subscriber)
        return subscriber

    def subscribe(self, subscriber: Subscriber, topic: str, first: int | None = None) -> None:
        """From now on, or from position `first` on: then what it was still to be sent of the topic is replaced."""
        ranges = subscriber.ranges.setdefault(topic, [])
        self._readers.setdefault(topic, {})[subscriber.identity] = subscriber
        if first is not None:
            subscriber.generation += 1
            subscriber.failed = None
            subscriber.ranges[topic] = [Range(min(first, self.ends.get(topic, 0)))]
        elif not ranges or ranges[-1].end is not None:
            ranges.append(Range(self.ends.get(topic, 0)))
        self._schedule(subscriber)

    def unsubscribe(self, subscriber: Subscriber, topic: str) -> None:
        """What is queued stays."""
        ranges = subscriber.ranges.get(topic, [])
        if ranges and ranges[-1].end is None:
            ranges[-1].end = self.ends.get(topic, 0)
            self._tidy(subscriber, topic)

    def remove(self, identity: str) -> None:
        """Ends a subscription; its queue is gone."""
        subscriber = self.subscribers.pop(identity)
        for topic in subscriber.ranges:
            self._needs_no_more(topic, identity)
        if subscriber.sending:
            self.under_way -= 1

    def unsubscribe_gone(self, identity: str, topic: str) -> None:
        """From a topic, if it is no more."""
        subscriber = self.subscribers.get(identity)
        if subscriber is not None and topic not in self.topics:
            self.unsubscribe(subscriber, topic)

    def check_invariants(self) -> None:
        assert self.under_way == sum(each.sending for each in self.subscribers.values())
        for subscriber in self.subscribers.values():
            for topic, ranges in subscriber.ranges.items():
                assert subscriber.identity in self._readers[topic]
                position = 0
                for each in ranges:
                    assert position <= each.first <= self._end(topic, each)
                    position = self._end(topic, each)
                assert all(each.end is not None for each in ranges[:-1])
            if not subscriber.sending and self.pending(subscriber) and self.serves(subscriber.identity):
                assert subscriber.due_at is not None

    # --- helpers

    def _end(self, topic: str, each: Range) -> int:
        return self.ends.get(topic, 0) if each.end is None else each.end

    def _ended(self, plan: Plan) -> Subscriber | None:
        subscriber = plan.subscriber
        if self.subscribers.get(subscriber.identity) is not subscriber:
            return None  # it was removed, and perhaps made again
        subscriber.sending = False
        self.under_way -= 1
        return subscriber

    def _came_at(self, topic: str, position: int) -> float:
        positions, times = self._marks.get(topic, ([], []))
        at = bisect_right(positions, position) - 1
        return ALWAYS if at < 0 else times[at]

    def _plan(self, subscriber: Subscriber, now: float) -> Plan:
        heads = [(self._came_at(topic, first), topic, first) for topic, first in self.oldest(subscriber)]
        heads.sort()
        room = subscriber.max_events
        came_at = heads[0][0]
        plan = Plan(subscriber, subscriber.generation, {}, now if came_at == ALWAYS else came_at)
        for _, topic, first in heads:
            found = next(each for each in subscriber.ranges[topic] if each.first == first)
            end = min(self._end(topic, found), first + room)
            plan.parts[topic] = (first, end)
            room -= end - first
            if not room:
                break
        return plan

    def _advance(self, subscriber: Subscriber, topic: str, end: int) -> None:
        for each in subscriber.ranges.get(topic, []):
            bound = self._end(topic, each)
            if each.first < end:
                each.first = max(each.first, min(end, bound))
        self._tidy(subscriber, topic)

    def _tidy(self, subscriber: Subscriber, topic: str) -> None:
        """Forgets ranges that are empty and closed."""
        ranges = subscriber.ranges.get(topic, [])
        ranges[:] = [each for each in ranges if each.end is None or each.first < each.end]
        if not ranges:
            subscriber.ranges.pop(topic, None)
            self._needs_no_more(topic, subscriber.identity)

    def _needs_no_more(self, topic: str, identity: str) -> None:
        self._readers[topic].pop(identity, None)
        self._forget(topic)

    def _forget(self, topic: str) -> None:
        """All about a topic that is no more and of which nothing is queued."""
        if topic not in self.topics and not self._readers.get(topic):
            self._readers.pop(topic, None)
            self._marks.pop(topic, None)
            self.ends.pop(topic, None)

    def _schedule(self, subscriber: Subscriber) -> None:
        if subscriber.sending or subscriber.identity not in self.subscribers:
            return
        due_at: float | None
        if not self.serves(subscriber.identity) or not (waiting := self.pending(subscriber)):
            due_at, subscriber.failed = None, None
        elif subscriber.failures:
            due_at = subscriber.retry_at
        elif waiting >= subscriber.max_events:
            due_at = ALWAYS
        else:
            came_at = min(self._came_at(topic, first) for topic, first in self.oldest(subscriber))
            due_at = came_at + subscriber.timeout_ms / 1000
        if due_at != subscriber.due_at:
            subscriber.due_at = due_at
            if due_at is not None:
                heapq.heappush(self._heap, (due_at, next(self._order), subscriber.identity))
