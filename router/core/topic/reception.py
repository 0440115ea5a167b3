"""Deliveries of a topic that come for subscriptions here: all get the same, and answer for it together (protocol 6).

A local subscription accepts positions of the arrival log, and a position that no local subscription owes any more is
answered by ACCEPT. What a subscription gives back it gets again. Large deliveries pass through (protocol 6.12).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from router.core import messages as m
from router.core.deliveries import Deliveries, gathered
from router.core.directory import PublisherEntry
from router.core.egress import Egress
from router.core.intervals import OPEN, IntervalSet, Range
from router.core.irregular import Irregular, Resume, State
from router.core.large import STREAM_IDLE_S, Body, Partial
from router.core.passage import DOES_NOT_GO_ON, Passage
from router.core.ports import FAILED, REJECTED, Outcome, Refusal, failed_too_often
from router.core.presettled import Batch
from router.core.reasons import tell_why
from router.core.subscriber import Reception, Subscriber
from router.core.traffic import Accept, Data
from router.names import MESSAGE_SIZE_EXCEEDED

TAKES_NO_PARTS: Final = Refusal(
    MESSAGE_SIZE_EXCEEDED, "it is so large that it comes in parts, and the subscription takes it only whole"
)


class TopicReception(Reception):
    """One topic's."""

    def __init__(self, deliveries: Deliveries, egress: Egress) -> None:
        self.deliveries = deliveries
        deliveries.reception = self
        self.egress = egress
        self.address = deliveries.address
        self.core = deliveries.core
        self.counters = deliveries.counters
        self.log = deliveries.log
        self.publishers = deliveries.publishers  # known in the network
        self.subscribers = deliveries.subscribers  # attached here
        # Those that may owe something, the one first that did when tokens were last released: behind it are those that
        # were not asked since, so that one round of all is enough for what comes at once. Empty: it has to be made.
        self._ring: deque[Subscriber] = deque()
        self._ring_end = 0  # of the log, when the ring was made
        self.given_up: dict[Subscriber, str] = {}  # whose links are detached at the end of this turn, and why

    def handlers(self) -> m.Handlers:
        return {Data: self.on_data, m.Part: self.on_part}

    def attached(self, subscriber: Subscriber) -> None:
        """It owes all that comes from now on."""
        subscriber.owes.add(subscriber.cursor, OPEN)
        self.deliveries.owes_all(subscriber)
        self._ring.clear()

    def link_gone(self, subscriber: Subscriber) -> None:
        """Releases its tokens. Those of SYNC entries need no answer: their ingress has put them back when it heard of
        the loss."""
        self._ring.clear()
        self.deliveries.owes_no_more(subscriber)
        owed = [piece for start, stop in subscriber.owes.take() for piece in self.log.open.overlap(start, stop)]
        self.release_tokens(owed, subscriber)

    def on_data(self, sender: str, message: Data) -> None:
        """New deliveries come; only those of the publisher's present ingress are taken (protocol 6.2)."""
        publisher = self.publishers.get(message.publisher)
        if publisher is None or not self.deliveries.is_present_ingress(publisher, sender, message.term):
            if publisher is not None and publisher.term > message.term:
                self.deliveries.directory.send_stale(sender, publisher, message.term)
            return
        if message.settled:
            self._take_presettled(publisher, message)
            return
        if not self.subscribers:  # protocol 6.2: nobody has to accept
            accepted = (message.position, message.position + len(message.tags), 0)
            self.deliveries.accepts.setdefault(sender, []).append(accepted)
            self.core.agenda.touch(self.address)
            return
        start, stop = self.log.append(sender, message)
        if self.core.now >= self.deliveries.arrived_at.next_mark_s:
            self.deliveries.arrived_at.note(start, self.core.now)
        if message.open:
            self.moved(self.log.bodies[start])
            for subscriber in self.subscribers.values():
                if subscriber.passage is None:
                    self.refuse_large(subscriber, start, TAKES_NO_PARTS)
        by_need = self.deliveries.by_need
        found = by_need.come(message, start, stop) if by_need is not None else None
        special = self.deliveries.special[message.publisher]
        if special:
            for subscriber in list(special):
                self._take_specially(subscriber, sender, start, message)
        if message.open:
            for subscriber in self.subscribers.values():
                if subscriber.passage is not None and subscriber.passage.pass_by(start):
                    self._goes_before(subscriber.passage)
        if special:
            self.release_tokens([(start, stop)], None)  # protocol 6.2: at once if nobody has to accept
        cache: dict[object, object] = {("arrivals", start, stop): (message.tags, message.payloads)}
        ready = list(self.deliveries.ready)
        if found is not None and by_need is not None:
            ready = [each for each in ready if not by_need.passes_by(each, found, start, stop)]
            self.release_tokens(self.log.open.overlap(start, stop), None)
        for subscriber in ready:
            subscriber.pump(cache)

    def _take_presettled(self, publisher: PublisherEntry, message: Data) -> None:
        """Pre-settled transfers wait in a bounded queue of each subscription; the oldest are dropped first, and counted
        (protocol 6.9)."""
        tags, payloads = message.tags, message.payloads
        by_need = self.deliveries.by_need
        found = by_need.places(message) if by_need is not None else None
        if found is None or by_need is None:
            for subscriber in self.subscribers.values():
                self._queue_presettled(subscriber, publisher, message, tags, payloads)
            return
        for subscriber in by_need.others:
            self._queue_presettled(subscriber, publisher, message, tags, payloads)
        for subscriber, wanted in by_need.wanting(found):
            some = [tags[i] for i in wanted], [payloads[i] for i in wanted]
            self._queue_presettled(subscriber, publisher, message, *some)

    def _queue_presettled(
        self, subscriber: Subscriber, publisher: PublisherEntry, message: Data, tags: list[bytes], payloads: list[bytes]
    ) -> None:
        if subscriber.synced.get(message.publisher) != (publisher.home, message.term):
            return
        if subscriber.selecting is not None:
            tags, payloads = subscriber.selecting.wanted(tags, payloads, message.message_format)
            if not tags:
                return
        subscriber.presettled.append(Batch(self.log.end, tags, payloads, message.message_format))
        subscriber.pump()
        subscriber.presettled.keep_within_bounds(subscriber.port.link_credit())

    def _take_specially(self, subscriber: Subscriber, sender: str, start: int, message: Data) -> None:
        """The subscription is not synced, or holds deliveries that are found by tag (protocol 6.2)."""
        if subscriber.synced.get(message.publisher) != (sender, message.term):
            subscriber.owes.remove(start, start + len(message.tags))
            return
        known = subscriber.irregular.by_tag.get(message.publisher)
        if not known:
            return
        for i, tag in enumerate(message.tags):
            delivery = known.get(tag)
            if delivery is not None:
                self._bind(subscriber, delivery, start + i, message.payloads[i], message.message_format)

    def _bind(
        self, subscriber: Subscriber, delivery: Irregular, position: int, payload: bytes, message_format: int
    ) -> None:
        """DATA repeats a known delivery: its token is added, or its position noted (protocol 6.2)."""
        subscriber.unbind(delivery)
        delivery.position = position
        subscriber.irregular.bound[position] = delivery
        subscriber.irregular.skip.add(position, position + 1)
        if delivery.state is State.ACCEPTED:
            subscriber.owes.remove(position, position + 1)
            if delivery.rejected:
                self.log.reject([(position, position + 1)])
            return
        if subscriber.passage is not None:
            subscriber.passage.find(delivery, position, payload, message_format)
        waits = delivery.state is State.RELEASED or delivery.resume is Resume.PLACEHOLDER
        if position in self.log.bodies and not (waits and subscriber.passage is not None):
            return  # what could be sent again has passed through by then
        if subscriber.fill(delivery, payload, message_format):
            subscriber.irregular.filled[position] = delivery

    def take_entries(self, subscriber: Subscriber, sender: str, message: m.Sync) -> None:
        """What a SYNC brings is sent before the publisher's stream. Its tokens are the subscription's own
        (protocol 7.5)."""
        for each in message.entries:
            owed, form = IntervalSet(each.owed), each.message_format
            for at, (tag, payload) in enumerate(zip(each.tags, each.payloads, strict=True), each.position):
                self.deliveries.deliver_entry(subscriber, sender, at, at in owed, tag, payload, form)

    def given_back(
        self, subscriber: Subscriber, first: int, last: int, outcome: Outcome, settled: bool, said: bool
    ) -> None:
        """The same subscription gets it again, after a failure up to `max_redeliveries` times (protocol 6.4)."""
        if subscriber.settled_mode:
            return
        failed, most = outcome is FAILED, self.address.config.max_redeliveries
        if failed and not most:
            if not said:
                tell_why(self.deliveries, subscriber, first, last, failed_too_often(0))
            self.deliveries.disposition(subscriber, first, last, REJECTED, settled)
            return
        known = subscriber.irregular.by_delivery_id
        singles = self.deliveries.irregular_between(subscriber, first, last) if known else []
        for run, low, high in subscriber.sent.ids.pieces(first, last + 1):
            for a, b in subscriber.sent.unsettled.overlap(run.start + low, run.start + high):
                for start, stop in subscriber.owes.overlap(a, b):
                    self._release_positions(subscriber, start, stop, failed, settled)
        for delivery in singles:
            if delivery.state is not State.SENT:
                continue
            if failed and delivery.failures >= most:
                if not said:
                    self.deliveries.refuse(subscriber, [], [delivery], failed_too_often(most))
                self.deliveries.accept_irregular(subscriber, delivery, True, settled)
                continue
            if not settled:
                subscriber.port.settle(delivery.delivery_id, delivery.delivery_id)
            subscriber.irregular.clear_delivery_id(delivery)
            self.counters.subscriptions.released += 1
            self._release(subscriber, delivery, failed)
        subscriber.pump()

    def _release(self, subscriber: Subscriber, delivery: Irregular, failed: bool) -> None:
        """Queues it again. The payload of a large one has passed through: its publisher has to send it (protocol
        6.12)."""
        subscriber.irregular.release(delivery, failed)
        if delivery.payload is None and delivery.position >= 0:
            self.need_again(delivery.position)

    def _release_positions(self, subscriber: Subscriber, start: int, stop: int, failed: bool, settled: bool) -> None:
        self.counters.subscriptions.released += stop - start
        first, _ = subscriber.sent.delivery_ids_of([(start, stop)])[0]
        if not settled:
            subscriber.settle_on_wire(start, stop, first)  # the old delivery is settled first
        for delivery in subscriber.take_out(start, stop, first):
            position = start + delivery.order - first
            delivery.position = position
            subscriber.irregular.bound[position] = delivery
            self._release(subscriber, delivery, failed)
            subscriber.classify(self.publishers[delivery.publisher_id])

    def release_tokens(self, ranges: list[Range], subscriber: Subscriber | None) -> None:
        """Answers those of these open positions that no subscription here owes any more (protocol 6.3). This one has
        just ceased to owe them."""
        left, ring, end = ranges, self._ring, self.log.segments.end
        if end != self._ring_end:
            self._ring_end = end
            ring.clear()
        if not ring:
            by_need = self.deliveries.by_need
            ring.extend(self.subscribers.values() if by_need is None else by_need.awake)
        for _ in range(len(ring)):
            starts = ring[0].owes.starts
            if not starts or starts[0] >= end:
                ring.popleft()  # it owes nothing before something new has come
                continue
            if ring[0] is not subscriber:
                left = ring[0].owes.missing(left)
                if not left:
                    return
            ring.rotate(-1)
        for ingress, told in self.deliveries.accepted(left):
            self.deliveries.accepts.setdefault(ingress, []).extend(told)
        self.core.agenda.touch(self.address)

    def flush(self) -> None:
        """Sends the pending ACCEPTs, gathered into ranges (protocol 9)."""
        given_up, self.given_up = self.given_up, {}
        for subscriber, why in given_up.items():
            if self.subscribers.get(subscriber.name) is subscriber:
                self.egress.give_up(subscriber, why)
        if self.log.bodies:
            self._free_taken()
        deliveries = self.deliveries
        if deliveries.accepts:
            accepts, deliveries.accepts = deliveries.accepts, {}
            for ingress, pending in accepts.items():
                ranges = pending if len(pending) == 1 else gathered(pending)
                self.core.post.send_to(ingress, Accept(self.address.name, ranges))
        if deliveries.sync_accepts:
            deliveries.tell_accepted()

    def on_part(self, sender: str, message: m.Part) -> None:
        """More of a large delivery comes (protocol 6.12); nothing happens where it is settled or void."""
        for _, position, _ in self.log.local(sender, message.position, message.position + 1):
            body = self.log.bodies.get(position)
            if body is None:
                continue
            self.log.add_part(body, message.payload, message.last)
            self.moved(body)
            for subscriber in list(self.subscribers.values()):
                passage = subscriber.passage
                if passage is None:
                    continue
                if passage.partial is not None and passage.partial.body is body:
                    subscriber.pump()
                elif position in passage.passed_by:
                    self._goes_before(passage)

    def _goes_before(self, passage: Passage) -> None:
        """A large delivery passes by: the publisher of the open one may wait for its end (protocol 6.12.15)."""
        partial = passage.open
        if partial is not None and self.publishers[partial.tag[:8]].home is not None:
            partial.open_since = self.core.now

    def moved(self, body: Body) -> None:
        """More of a large delivery has come, or gone out."""
        body.moved_at = self.core.now
        self.core.agenda.due(self.core.now + STREAM_IDLE_S, self.address)
        self.core.agenda.touch(self.address)

    def refuse_large(self, subscriber: Subscriber, position: int, refusal: Refusal) -> None:
        """A large delivery that the subscription cannot take counts as rejected by it (protocol 6.12)."""
        removed = subscriber.owes.remove(position, position + 1)
        if removed:
            self.deliveries.refuse(subscriber, removed, [], refusal)
            self.release_tokens(removed, subscriber)

    def _free_taken(self) -> None:
        """Frees of large deliveries what nobody here needs any more, and tells their ingresses (protocol 6.12)."""
        log, core = self.log, self.core
        for position, body in list(log.bodies.items()):
            taken = min(
                [each.passage.taken(position, body) for each in self.subscribers.values() if each.passage],
                default=body.end,
            )
            log.free_parts(body, taken)
            if taken > body.told:
                body.told = taken
                run = log.run_of(position)
                core.post.send_to(run.ingress, m.Taken(self.address.name, run.position + position - run.start, taken))
            if body.complete and taken == body.end:
                del log.bodies[position]
                log.segments.free(position, position + 1)

    def _starving(self) -> list[tuple[float, int, Body]]:
        """Returns large deliveries in whose middle a link here is, with nothing to write, and when one last moved."""
        partials = [each.partial for each in self.subscribers.values() if each.partial is not None]
        found = [(each.position, each.body) for each in partials if each.body and each.offset == each.body.end]
        return [(body.moved_at, position, body) for position, body in dict(found).items()]

    def _open(self) -> list[tuple[Passage, Partial]]:
        """Returns what links here are in the middle of and nobody sends (protocol 6.12.12)."""
        found = [(each.passage, each.passage.open) for each in self.subscribers.values() if each.passage is not None]
        return [(passage, partial) for passage, partial in found if partial is not None]

    def tick(self) -> None:
        for moved_at, position, body in self._starving():
            if self.core.now >= moved_at + STREAM_IDLE_S:
                body.moved_at = self.core.now
                self.need_again(position)
        for passage, partial in self._open():
            if self.core.now >= partial.open_since + STREAM_IDLE_S:
                passage.give_up(partial, DOES_NOT_GO_ON)

    def deadlines(self) -> list[float]:
        found = [moved_at + STREAM_IDLE_S for moved_at, _, _ in self._starving()] if self.log.bodies else []
        return found + [partial.open_since + STREAM_IDLE_S for _, partial in self._open()]

    def need_again(self, position: int) -> None:
        """The publisher of this large delivery has to send it again (protocol 6.12)."""
        run = self.log.run_of(position)
        term = self.publishers[run.publisher_id].term
        self.core.post.send_to(run.ingress, m.Again(self.address.name, run.publisher_id, term))

    def give_up(self, subscriber: Subscriber, why: str) -> None:
        """Its link is detached at the end of this turn: others are being gone through."""
        self.given_up[subscriber] = why
        self.core.agenda.touch(self.address)

    def check_invariants(self) -> None:
        if self._ring and self._ring_end == self.log.end:
            owing = {each for each in self.subscribers.values() if each.owes.first() < self.log.end}
            assert owing <= {*self._ring} <= {*self.subscribers.values()}
