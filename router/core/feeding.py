"""What publishers of a topic send goes to queues, too: shared subscriptions of MQTT (protocol 16.12). And what those of
a queue send settled goes to the queue itself (protocol 16.1.3).

A publisher of the topic has a publisher of its own at each queue, a `Feed`, which has no client: what the core says to
its port concerns the publisher of the topic. Which topics feed which queues is told by whoever knows topic names
(`router.mqtt.sharing`). Changes at the queue take effect at the topic when the topic is flushed, and the other way
round: a handler of one is never inside a handler of the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from router.core.base import BaseAddress
from router.core.completion import Completion
from router.core.held import Batch
from router.core.intervals import IntervalSet
from router.core.naming import derive_publisher_id
from router.core.ports import UNIQUE_TAGS, Outcome, PublisherAttach, Term, Waiting
from router.core.publisher import BaseFeed, BaseRecords, Publisher
from router.core.publisher_handshake import Input
from router.names import EPOCH, STOLEN

LINGER_S: Final = 60.0
"""For how long pre-settled messages wait when their publisher has gone."""


class Feed(BaseFeed):
    """One publisher's at one queue: a CompletionPort."""

    __slots__ = ("drops", "feeds", "ids", "next_id", "positions", "queue", "to_settle")

    def __init__(self, feeds: Feeds, publisher: Publisher, queue: str) -> None:
        super().__init__(publisher)
        self.feeds = feeds
        self.queue = queue
        self.next_id = 0
        self.ids: dict[int, int] = {}  # position at the topic -> delivery-id
        self.positions: dict[int, int | None] = {}  # the other way round; None: pre-settled
        self.to_settle = IntervalSet()  # delivery-ids
        self.drops = False  # there was no room for what came last

    @property
    def own(self) -> Publisher | None:
        """The publisher at the queue."""
        return self.feeds.core.publishers.get(self)

    @property
    def is_at_its_own(self) -> bool:
        """Says whether the queue is its publisher's own address."""
        return self.queue == self.feeds.address.name

    def is_once(self, delivery_id: int) -> bool:
        """Says whether this delivery came settled: it is at most once (protocol 16.1.5)."""
        return self.positions.get(delivery_id, -1) is None

    def attach(self) -> None:
        """It claims when the topic's publisher has been proved once more (protocol 16.12.6). At its publisher's own
        address it has nothing that may come again, and claims at once (protocol 16.1.3)."""
        of, core, own_address = self.publisher, self.feeds.core, self.is_at_its_own
        name = of.publisher_id.hex()
        core.address(self.queue).attach_publisher(
            self,
            PublisherAttach(
                of.brought.container,
                f"{name} {of.term[0]:x}" if own_address else name,
                self.queue,
                unsettled=None if own_address else UNIQUE_TAGS,
                term=of.term,
                wants_completion=of.brought.wants_completion,
            ),
        )
        own = self.own
        if own is not None:
            own.handshake.brought_epoch = of.handshake.brought_epoch
            if not own_address:
                own.ingress.receive(own, Input.JOIN)  # so that it is not claimed by this attach
            own.ingress.proved(own)
            for tag in self.early_tags:
                own.ingress.settled_tag(own, tag)
        self.early_tags.clear()

    def publish(
        self, positions: list[int | None], tags: list[bytes], payloads: list[bytes], message_format: int
    ) -> None:
        first_id = self.next_id
        self.next_id += len(tags)
        for delivery_id, position in enumerate(positions, first_id):
            self.positions[delivery_id] = position
            if position is not None:
                self.ids[position] = delivery_id
        own = self.own
        if own is not None:
            own.ingress.transfers(own, Batch(first_id, tags, payloads, False, message_format))

    def room(self) -> int:
        """Returns how many pre-settled messages may still wait (protocol 16.1.6)."""
        own, core = self.own, self.feeds.core
        size = own.sent.undone_bytes + own.held.size if own is not None else 0
        full = size >= core.memory.fair_share(core.memory.payload_bytes)
        return 0 if full else max(core.config.presettled_queue - len(self.positions), 0)

    def settle_tag(self, tag: bytes) -> None:
        own = self.own
        if own is not None:
            own.ingress.settled_tag(own, tag)

    def forget(self, start: int, stop: int) -> None:
        """The topic's records are settled."""
        found = range(start, stop) if stop - start < len(self.ids) else [at for at in self.ids if start <= at < stop]
        for position in found:
            delivery_id = self.ids.pop(position, None)
            if delivery_id is not None:
                del self.positions[delivery_id]
                self.to_settle.add(delivery_id, delivery_id + 1)

    def flush(self) -> None:
        """Settles at the queue."""
        own = self.own
        for first, stop in self.to_settle.take():
            live = own.sent.live.overlap(first, stop) if own is not None else []
            if own is not None:
                own.records.publisher_settled(own, first, stop - 1)
            for low, high in IntervalSet(live).missing([(first, stop)]):  # it was not ready
                self.completed(low, high - 1)

    # --- CompletionPort

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None: ...

    def ready(self) -> None: ...

    def set_window(self, messages: int, size: int, reason: str) -> int:
        """The window at the topic bounds it, and `room`."""
        return 0

    def waiting(self, waiting: Waiting | None) -> None: ...

    def ask(self) -> None:
        """The publisher of the topic is asked. At its own address nothing of it can be elsewhere (protocol 16.1.3)."""
        of = self.publisher
        if self.is_at_its_own:
            self.feeds.answer_later(self)
            return
        of.questions.need(self)
        of.ingress.wants_proof(of)

    def answered(self) -> None:
        own = self.own
        if own is not None:
            own.ingress.question_answered(own)

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        self.feeds.note_outcome(self, first_id, last_id, rejected, why)

    def completed(self, first_id: int, last_id: int) -> None:
        self.feeds.completion.fed_completed(self, first_id, last_id)

    def tag_completed(self, tag: bytes) -> None:
        self.feeds.completion.fed_tag_completed(self, tag)

    def answer_map_part(self) -> None:
        raise AssertionError("there are no maps in parts here")

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.detach(condition, description, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self.feeds.note_lost(self, condition, description, info)


class Feeds:
    """Those of one topic."""

    records: BaseRecords

    def __init__(self, address: BaseAddress, completion: Completion) -> None:
        self.address = address
        self.core = address.core
        self.completion = completion
        self.of: dict[Publisher, dict[str, Feed]] = {}  # publishers of the topic -> queue -> feed
        self.awaited: dict[str, IntervalSet] = {}  # queue -> positions without an outcome there
        self.late: dict[str, None] = {}  # queues that have got a consumer
        self.learnt: dict[str, None] = {}  # queues of whose publishers others have told since `look_all`
        self._all_unseen = False  # the file has changed: that may be any queue
        # whose publisher has gone, and what it has published settled waits: until when, and whether it was closed
        self._lingering: dict[Feed, tuple[float, bool]] = {}
        self._outcomes: list[tuple[Feed, int, int, int, bytes]] = []
        self._lost: dict[Feed, tuple[str, str, Mapping[str, int]]] = {}
        self._asked: dict[Feed, None] = {}  # who answers by itself

    @property
    def queues(self) -> Collection[str]:
        return self.core.owner.shares.queues_of(self.address.name)

    def is_fed(self, queue: str) -> bool:
        """Says whether what comes goes to that queue (protocol 16.12.1)."""
        found = self.core.addresses.get(queue)
        return self.core.owner.shares.is_declared(queue) or (found is not None and bool(found.known_subscriptions))

    def __bool__(self) -> bool:
        """Whether any queue is fed: then the topic is not without subscription (protocol 16.12.5)."""
        return any(self.is_fed(queue) for queue in self.queues)

    # --- what the topic's publishers do

    def take(self, publisher: Publisher, start: int | None, batch: Batch) -> None:
        """Transfers have come. start: the position of the first; None: they are pre-settled."""
        if not self.queues:
            return
        for queue, wanted in self._wanted(batch).items():
            if self.is_fed(queue) or queue in self.of.get(publisher, {}):
                self._publish(publisher, queue, start, batch, wanted)

    def take_settled(self, publisher: Publisher, batch: Batch) -> None:
        """Settled transfers have come at a queue (protocol 16.1.3)."""
        self._publish(publisher, self.address.name, None, batch, [*range(len(batch.tags))])

    def _wanted(self, batch: Batch) -> dict[str, list[int]]:
        """Queue -> the messages that go to it."""
        queues_for, topic, message_format = self.core.owner.shares.queues_for, self.address.name, batch.message_format
        found: dict[str, list[int]] = {}
        for i, payload in enumerate(batch.payloads):
            for queue in queues_for(topic, payload, message_format):
                found.setdefault(queue, []).append(i)
        return found

    def _publish(self, publisher: Publisher, queue: str, start: int | None, batch: Batch, wanted: list[int]) -> None:
        tags, payloads, message_format = batch.tags, batch.payloads, batch.message_format
        feed = self.of.get(publisher, {}).get(queue)
        if start is not None and feed is not None and feed.ids:
            wanted = [i for i in wanted if start + i not in feed.ids]
        if not wanted:
            return
        feed = feed or self._attach(publisher, queue)
        if start is None:
            wanted = self._within_bounds(feed, wanted)
            found = [b"\x00" + (feed.next_id + n).to_bytes(8, "big") for n in range(len(wanted))]
            positions: list[int | None] = [None] * len(wanted)
        else:
            awaited = self.awaited.setdefault(queue, IntervalSet())
            for i in wanted:
                awaited.add(start + i, start + i + 1)
            found, positions = [tags[i] for i in wanted], [start + i for i in wanted]
        if wanted:
            feed.publish(positions, found, [payloads[i] for i in wanted], message_format)

    def _within_bounds(self, feed: Feed, wanted: list[int]) -> list[int]:
        """Drops what comes above what may wait, counts it, and tells that it begins (protocol 16.1.6)."""
        room = feed.room()
        dropped, of = len(wanted) - room, feed.publisher
        if dropped > 0:
            self._count_dropped(feed.queue, dropped)
            if not feed.drops:
                text = "what {container} sends settled to {address} is dropped: {waiting} messages wait already"
                said = {"container": of.brought.container, "link": of.brought.name, "waiting": len(feed.positions)}
                self.core.owner.log.warning("settled_dropped", text, address=feed.queue, **said)
        feed.drops = dropped > 0
        return wanted[:room]

    def _count_dropped(self, queue: str, count: int) -> None:
        self.core.counters.of(queue).subscriptions.presettled_dropped += count

    def _attach(self, publisher: Publisher, queue: str) -> Feed:
        feed = self.of.setdefault(publisher, {})[queue] = Feed(self, publisher, queue)
        self.completion.fed_late(feed)
        feed.attach()
        return feed

    def look(self, publisher: Publisher) -> None:
        """Attaches where the publisher's feed is known: it may have fed the queue at another router (protocol
        16.12.4). An id does not say whose it is, so there is no index: each queue with publishers costs a hash."""
        self._look(publisher, self.queues)

    def _look(self, publisher: Publisher, queues: Collection[str]) -> None:
        for queue in queues:
            found = self.core.addresses.get(queue)
            if found is None or not found.known_publishers or queue in self.of.get(publisher, {}):
                continue
            known = found.known_publishers.get(
                derive_publisher_id(publisher.brought.container, publisher.publisher_id.hex(), queue, True)
            )
            if known is not None and known.real:
                self._attach(publisher, queue)

    def look_all(self) -> None:
        """The same for all publishers, where they have not been looked for: HELLOs come again with what is known."""
        learnt, self.learnt = self.learnt, {}
        queues: Collection[str] = self.queues if self._all_unseen else learnt
        self._all_unseen = False
        if not queues:
            return
        for publisher in list(self.address.attached.claimed.values()):
            if publisher.ready:
                self._look(publisher, queues)

    def feed_late(self) -> None:
        """Queues have got a consumer: what is not done goes there, too (protocol 16.12.4)."""
        late, self.late = self.late, {}
        records = self.records
        for publisher in list(self.address.attached.claimed.values()):
            if publisher.ready:
                for first, last in list(publisher.sent.live):
                    for start, stop, message_format in publisher.sent.positions(first, last):
                        for a, b in records.undone.overlap(start, stop):
                            payloads = [each or b"" for each in records.log.payloads(a, b)]
                            again = Batch(0, records.log.tags(a, b), payloads, False, message_format)
                            for queue, wanted in self._wanted(again).items():
                                if queue in late:
                                    self._publish(publisher, queue, a, again, wanted)

    def settled_tag(self, publisher: Publisher, tag: bytes) -> list[BaseFeed]:
        """The publisher settles by tag. Returns at which queues, too."""
        feeds = self.of.get(publisher, {}).values()
        for feed in feeds:
            feed.settle_tag(tag)
        return [*feeds]

    def ids(self, publisher: Publisher, start: int, stop: int) -> dict[BaseFeed, IntervalSet]:
        """Returns the delivery-ids at the queues of these records."""
        found: dict[BaseFeed, IntervalSet] = {}
        for feed in self.of.get(publisher, {}).values():
            ids = IntervalSet()
            for position in range(start, stop):
                if position in feed.ids:
                    ids.add(feed.ids[position], feed.ids[position] + 1)
            if ids:
                found[feed] = ids
        return found

    def forget(self, publisher: Publisher, start: int, stop: int) -> None:
        """These records are settled."""
        for feed in self.of.get(publisher, {}).values():
            feed.forget(start, stop)
        self.core.agenda.touch(self.address)

    def drop(self, publisher: Publisher, *, closed: bool) -> None:
        """The publisher's link is gone (protocol 16.12.6)."""
        for feed in self.of.pop(publisher, {}).values():
            feed.flush()
            feed.ids.clear()
            if None in feed.positions.values() and feed not in self._lost:
                self._lingering[feed] = self.core.now + LINGER_S, closed
                self.core.agenda.due(self.core.now + LINGER_S, self.address)
            else:
                self._detach(feed, closed)

    def _count_waiting(self, feed: Feed) -> None:
        """What came settled and waits is dropped."""
        self._count_dropped(feed.queue, [*feed.positions.values()].count(None))

    def _detach(self, feed: Feed, closed: bool) -> None:
        own = feed.own
        if own is not None:
            own.ingress.detach(own, closed or feed.is_at_its_own)

    def tick(self) -> None:
        for feed, (until, closed) in list(self._lingering.items()):
            if self.core.now >= until:
                del self._lingering[feed]
                self._count_waiting(feed)
                self._detach(feed, closed)

    def deadlines(self) -> list[float]:
        return [until for until, _ in self._lingering.values()]

    # --- what the queues say

    def note_outcome(self, feed: Feed, first_id: int, last_id: int, rejected: int, why: bytes) -> None:
        self._outcomes.append((feed, first_id, last_id, rejected, why))
        self.core.agenda.touch(self.address)

    def answer_later(self, feed: Feed) -> None:
        self._asked[feed] = None
        self.core.agenda.touch(self.address)

    def note_lost(self, feed: Feed, condition: str, description: str, info: Mapping[str, int]) -> None:
        self._lost[feed] = condition, description, info
        self.core.agenda.touch(self.address)

    def flush(self) -> None:
        """Does what has changed in this turn."""
        if not (self.late or self._outcomes or self.of or self._lingering or self._lost):
            return
        if self.late:
            self.feed_late()
        asked, self._asked = self._asked, {}
        for feed in asked:
            feed.answered()
        outcomes, self._outcomes = self._outcomes, []
        for each in outcomes:
            self._decided(*each)
        for feed in [*(feed for feeds in self.of.values() for feed in feeds.values()), *self._lingering]:
            feed.flush()
        for feed in [feed for feed in self._lingering if None not in feed.positions.values()]:
            self._detach(feed, self._lingering.pop(feed)[1])
        lost, self._lost = self._lost, {}
        for feed, (condition, description, info) in lost.items():
            of = feed.publisher
            if self._lingering.pop(feed, None) is not None or of.dropped:
                self._count_waiting(feed)
                continue
            if condition == STOLEN:
                of.ingress.drop(of, info.get(EPOCH, 0))
            else:
                port = of.port
                of.ingress.detach(of, False)
                port.detach(condition, description, info, True)

    def _decided(self, feed: Feed, first_id: int, last_id: int, rejected: int, why: bytes) -> None:
        records = self.records
        done = IntervalSet()
        for delivery_id in range(first_id, last_id + 1):
            position = feed.positions.get(delivery_id, -1)
            if position is None:
                del feed.positions[delivery_id]
                feed.to_settle.add(delivery_id, delivery_id + 1)
            elif position >= 0 and delivery_id == feed.ids.get(position):
                done.add(position, position + 1)
        for low, high in done:
            found = self.awaited[feed.queue].remove(low, high) if feed.queue in self.awaited else []
            if rejected:
                records.note_rejected(found, rejected, why)
            records.distribution.check(found)

    def reconfigured(self) -> None:
        """The file has changed: queues that the topic does not feed any more hold nothing back."""
        queues = {*self.queues, self.address.name}
        for feeds in self.of.values():
            for queue in [queue for queue in feeds if queue not in queues]:
                self._detach(feeds.pop(queue), True)
        for queue in [queue for queue in self.awaited if queue not in queues]:
            self.records.distribution.check(self.awaited.pop(queue).take())
        self._all_unseen = True
        self.core.drain()

    def check_invariants(self) -> None:
        for publisher, feeds in self.of.items():
            assert publisher.ready
            for queue, feed in feeds.items():
                assert feed.queue == queue
                assert all(feed.positions[each] == position for position, each in feed.ids.items())
                assert feed in self._lost or feed.own is not None
