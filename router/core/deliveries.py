"""Deliveries on their way to the subscriptions of one address: arrival, outcomes, acceptance, settlement.

What arrives goes into one log, in ranges (protocol 9). A local subscription accepts positions of it, and a position
that no local subscription owes any more is answered by ACCEPT. Subscriptions attach and leave in `router.core.egress`;
one subscription's state is in `router.core.subscriber`, the log in `router.core.arrivals`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from router.core import messages as m
from router.core.arrivals import ArrivalRun
from router.core.base import BaseAddress
from router.core.directory import PublisherEntry
from router.core.intervals import IntervalSet, Range, count, union
from router.core.irregular import Irregular, Resume, State
from router.core.large import STREAM_IDLE_S, Body, Partial
from router.core.passage import DOES_NOT_GO_ON, Passage
from router.core.ports import ACCEPTED, FAILED, REJECTED, RELEASED, Outcome, Term
from router.core.presettled import Batch
from router.core.selecting import Values
from router.core.subscriber import BaseDeliveries, Subscriber
from router.core.traffic import Accept, Data, Rejection, Settle

if TYPE_CHECKING:
    from router.core.egress import Egress
    from router.core.publisher_directory import PublisherDirectory


class Deliveries(BaseDeliveries):
    """What flows to the subscriptions of one address at this router."""

    egress: Egress

    def __init__(self, address: BaseAddress, directory: PublisherDirectory) -> None:
        super().__init__(address)
        self.directory = directory
        self.publishers = address.known_publishers  # known in the network
        self.subscribers: dict[m.SubscriptionName, Subscriber] = {}  # attached here
        # Those that may owe something, the one first that did when tokens were last released: behind it are those that
        # were not asked since, so that one round of all is enough for what comes at once. Empty: it has to be made.
        self._ring: deque[Subscriber] = deque()
        self._ring_end = 0  # of the log, when the ring was made
        # tokens that wait to be told to an ingress: accepted, or rejected by so many
        self.accepts: dict[str, list[Rejection]] = {}
        self.sync_accepts: dict[tuple[str, m.SubscriptionName, Term], list[Rejection]] = {}
        self.given_up: dict[Subscriber, str] = {}  # whose links are detached at the end of this turn, and why

    def handlers(self) -> m.Handlers:
        return {
            Data: self.on_data,
            m.Part: self.on_part,
            m.Sync: self.on_sync,
            Settle: self.on_settle,
            m.SettleTags: self.on_settle_tags,
            m.Flush: self.on_flush,
        }

    # ------------------------------------------------------------------------------------------------------------- DATA

    def on_data(self, sender: str, message: Data) -> None:
        """New deliveries come; only those of the publisher's present ingress are taken (protocol 6.2)."""
        publisher = self.publishers.get(message.publisher)
        if publisher is None or not self._is_present_ingress(publisher, sender, message.term):
            if publisher is not None and publisher.term > message.term:
                self.directory.send_stale(sender, publisher, message.term)
            return
        if message.settled:
            self._take_presettled(publisher, message)
            return
        if not self.subscribers:  # protocol 6.2: nobody has to accept
            accepted = (message.position, message.position + len(message.tags), 0)
            self.accepts.setdefault(sender, []).append(accepted)
            self.core.touch(self.address)
            return
        start, stop = self.log.append(sender, message)
        self.arrived_at.note(start, self.core.now)
        if sender != self.core.name:
            self.core.payload_bytes += self.log.segments.size(start, stop)
        if message.open:
            self.core.payload_bytes += self.log.bodies[start].held
            self.moved(self.log.bodies[start])
            for subscriber in self.subscribers.values():
                if subscriber.passage is None:
                    self.refuse_large(subscriber, start)
        special = self.special[message.publisher]
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
        ready = list(self.ready)
        if not (message.open or message.message_format):
            found: Values = {}
            payloads = message.payloads
            ready = [
                each
                for each in ready
                if each.selecting is None
                or each.selecting.needs is None
                or not each.selecting.passes_by(each, start, stop, found, payloads)
            ]
            if found:
                self.release_tokens([(start, stop)], None)
        for subscriber in ready:
            subscriber.pump(cache)

    def on_part(self, sender: str, message: m.Part) -> None:
        """More of a large delivery comes (protocol 6.12); nothing happens where it is settled or void."""
        for _, position, _ in self.log.local(sender, message.position, message.position + 1):
            body = self.log.bodies.get(position)
            if body is None:
                continue
            body.add(message.payload, message.last)
            self.moved(body)
            self.core.payload_bytes += len(message.payload)
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
        self.core.due(self.core.now + STREAM_IDLE_S, self.address)
        self.core.touch(self.address)

    def refuse_large(self, subscriber: Subscriber, position: int) -> None:
        """A large delivery that the subscription cannot take counts as rejected by it (protocol 6.12)."""
        removed = subscriber.owes.remove(position, position + 1)
        if removed:
            self.log.rejected[position] = self.log.rejected.get(position, 0) + 1
            self.release_tokens(removed, subscriber)

    def _free_taken(self) -> None:
        """Frees of large deliveries what nobody here needs any more, and tells their ingresses (protocol 6.12)."""
        log, core = self.log, self.core
        for position, body in list(log.bodies.items()):
            taken = min(
                [each.passage.taken(position, body) for each in self.subscribers.values() if each.passage],
                default=body.end,
            )
            core.payload_bytes -= body.free(taken)
            if taken > body.told:
                body.told = taken
                run = log.run_of(position)
                core.send_to(run.ingress, m.Taken(self.address.name, run.position + position - run.start, taken))
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
        self.core.send_to(run.ingress, m.Again(self.address.name, run.publisher_id, term))

    def give_up(self, subscriber: Subscriber, why: str) -> None:
        """Its link is detached at the end of this turn: others are being gone through."""
        self.given_up[subscriber] = why
        self.core.touch(self.address)

    def _take_presettled(self, publisher: PublisherEntry, message: Data) -> None:
        """Pre-settled transfers wait in a bounded queue of each subscription; the oldest are dropped first, and counted
        (protocol 6.9)."""
        for subscriber in self.subscribers.values():
            if subscriber.synced.get(message.publisher) != (publisher.home, message.term):
                continue
            tags, payloads, message_format = message.tags, message.payloads, message.message_format
            if subscriber.selecting is not None:
                tags, payloads = subscriber.selecting.wanted(tags, payloads, message_format)
                if not tags:
                    continue
            subscriber.presettled.append(Batch(self.log.end, tags, payloads, message_format))
            subscriber.pump()
            subscriber.presettled.keep_within_bounds(subscriber.port.link_credit())

    def _is_present_ingress(self, publisher: PublisherEntry, sender: str, term: Term) -> bool:
        """Says whether the sender is the publisher's ingress, under that term (protocol 6.2)."""
        return publisher.home == sender and publisher.term == term

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
        subscriber.skip.add(position, position + 1)
        if delivery.state is State.ACCEPTED:
            subscriber.owes.remove(position, position + 1)
            if delivery.rejected:
                self.log.rejected[position] = self.log.rejected.get(position, 0) + 1
            return
        if subscriber.passage is not None:
            subscriber.passage.find(delivery, position, payload, message_format)
        waits = delivery.state is State.RELEASED or delivery.resume is Resume.PLACEHOLDER
        if position in self.log.bodies and not (waits and subscriber.passage is not None):
            return  # what could be sent again has passed through by then
        if subscriber.fill(delivery, payload, message_format):
            subscriber.irregular.filled[position] = delivery

    # ------------------------------------------------------------------------------------------------------------- SYNC

    def on_sync(self, sender: str, message: m.Sync) -> None:
        """An ingress sends what a subscription must get before the publisher's stream, which flows from now on
        (protocol 7.5)."""
        known = self.publishers.get(message.publisher)
        if known and self.directory.refuses(sender, known, message.incarnation):
            return
        if known and self._sync_is_stale(known, sender, message):
            self.directory.send_stale(sender, known, message.term)
            return
        subscriber = self.subscribers.get(message.name)
        if subscriber is None or subscriber.term != message.subscription_term:
            # protocol 7.5: the ORPHAN or LEAVE sent before this has returned the tokens
            for entries in message.entries:
                for start, stop in entries.owed:
                    self._accept_sync(sender, message.name, message.subscription_term, start, stop, 0)
            return
        if known is None or known.term < message.term:
            known = self.directory.learn(
                message.publisher, message.incarnation, message.term, sender, self.core.now, True
            )
        self._check_not_synced(subscriber, message)
        subscriber.synced[message.publisher] = (sender, message.term)
        if message.expected is not m.UNKNOWN:
            listed = {tag for entries in message.entries for tag in entries.tags}
            listed.update(message.expected)
            for delivery in subscriber.irregular.of(message.publisher):
                if delivery.tag not in listed and delivery.within(message.incarnation):
                    self.settle_irregular(subscriber, delivery)
        for entries in message.entries:
            self._deliver_entries(subscriber, sender, entries)
        subscriber.classify(known)
        subscriber.pump()

    def _check_not_synced(self, subscriber: Subscriber, message: m.Sync) -> None:
        if message.publisher in subscriber.synced:
            raise m.PeerProtocolError("SYNC for a stream that flows already")

    def _sync_is_stale(self, known: PublisherEntry, sender: str, message: m.Sync) -> bool:
        return (
            known.term > message.term
            or (known.term == message.term and known.home != sender)
            or known.incarnation > message.incarnation
        )

    def _deliver_entries(self, subscriber: Subscriber, sender: str, entries: m.Entries) -> None:
        owed = IntervalSet(entries.owed)
        for i, (tag, payload) in enumerate(zip(entries.tags, entries.payloads, strict=True)):
            position = entries.position + i
            self._deliver_entry(subscriber, sender, position, position in owed, tag, payload, entries.message_format)

    def _deliver_entry(
        self,
        subscriber: Subscriber,
        sender: str,
        position: int,
        token: bool,
        tag: bytes,
        payload: bytes | None,
        message_format: int,
    ) -> None:
        delivery = subscriber.irregular.find(tag)
        if delivery is None:
            unwanted = None
            if subscriber.selecting is not None and payload is not None:
                unwanted = subscriber.selecting.outcome_of(payload, message_format)
            if unwanted is not None or (payload is None and not token):  # protocol 6.4.5, 7.5: freed early
                delivery = Irregular(tag, State.ACCEPTED)
                delivery.rejected = unwanted is REJECTED
            else:
                delivery = Irregular(tag, State.QUEUED, payload, message_format)
                subscriber.irregular.send_later(delivery)
            subscriber.irregular.enter(delivery)
        else:
            subscriber.unbind(delivery)
            if subscriber.fill(delivery, payload, message_format):
                subscriber.irregular.send_later(delivery)
            elif payload is not None:
                if subscriber.passage is not None:
                    subscriber.passage.find(delivery, -1, payload, message_format)
            elif not token and (delivery.resume is Resume.PLACEHOLDER or self._is_open(subscriber, delivery)):
                self.settle_irregular(subscriber, delivery)  # protocol 7.5: no router has its payload
                return
        delivery.ingress = sender
        delivery.ingress_position = position
        subscriber.irregular.by_sync.setdefault(sender, {})[position] = delivery
        if token:
            if delivery.state is State.ACCEPTED:
                rejected = int(delivery.rejected)
                self._accept_sync(sender, subscriber.name, subscriber.term, position, position + 1, rejected)
            else:
                delivery.token = True

    def _is_open(self, subscriber: Subscriber, delivery: Irregular) -> bool:
        return subscriber.passage is not None and subscriber.passage.is_open(delivery)

    # ----------------------------------------------------------------------------------------------------- dispositions

    def disposition(self, subscriber: Subscriber, first: int, last: int, outcome: Outcome, settled: bool) -> None:
        """The subscriber's outcome for the delivery-ids first..last (protocol 6.3, 6.4, 6.9)."""
        partial = subscriber.partial
        if partial is not None and first <= partial.delivery_id <= last:  # protocol 6.12: it counts at the end
            partial.early = (outcome, settled)
            for low, high in ((first, partial.delivery_id - 1), (partial.delivery_id + 1, last)):
                if low <= high:
                    self.disposition(subscriber, low, high, outcome, settled)
            return
        if outcome is RELEASED or outcome is FAILED:
            self._released(subscriber, first, last, outcome is FAILED, settled)
            return
        accepted: list[Range] = []
        plain = outcome is ACCEPTED and not (settled or subscriber.settles_on_accept or subscriber.irregular.bound)
        for run, low, high in subscriber.sent.ids.pieces(first, last + 1):
            if plain:
                accepted += subscriber.owes.remove(run.start + low, run.start + high)
                continue
            for start, stop in subscriber.sent.unsettled.overlap(run.start + low, run.start + high):
                removed = subscriber.owes.remove(start, stop)
                if outcome is REJECTED:
                    self._reject(subscriber, removed)
                accepted += removed
                if subscriber.settles_on_accept and not settled:
                    subscriber.settle_on_wire(start, stop, run.first_id + start - run.start)
                if subscriber.settles_on_accept or settled:
                    subscriber.sent.settled_on_wire.add(start, stop)
        if accepted:
            if outcome is ACCEPTED:
                self.counters.subscriber_accepted += count(accepted)
            self.release_tokens(accepted, subscriber)
        if subscriber.irregular.by_delivery_id:
            for delivery in self.irregular_between(subscriber, first, last):
                self.accept_irregular(subscriber, delivery, outcome is REJECTED, settled)

    def irregular_between(self, subscriber: Subscriber, first: int, last: int) -> list[Irregular]:
        known = subscriber.irregular.by_delivery_id
        if last - first < len(known):
            return [known[i] for i in range(first, last + 1) if i in known]
        return [known[i] for i in sorted(known) if first <= i <= last]

    def accept_irregular(self, subscriber: Subscriber, delivery: Irregular, rejected: bool, settled: bool) -> None:
        """One delivery is accepted: its tokens are released (protocol 6.3)."""
        if delivery.state is State.SENT:
            delivery.state = State.ACCEPTED
            delivery.payload = None
            delivery.rejected = rejected
            if rejected:
                self.counters.subscriber_rejected += 1
            else:
                self.counters.subscriber_accepted += 1
            self._release_tokens_of(subscriber, delivery)
        if delivery.delivery_id >= 0 and (settled or subscriber.settles_on_accept):
            if not settled:
                subscriber.port.settle(delivery.delivery_id, delivery.delivery_id)
            subscriber.irregular.clear_delivery_id(delivery)

    def _release_tokens_of(self, subscriber: Subscriber, delivery: Irregular) -> None:
        if delivery.position >= 0:
            removed = subscriber.owes.remove(delivery.position, delivery.position + 1)
            if delivery.rejected:
                for position, _ in removed:
                    self.log.rejected[position] = self.log.rejected.get(position, 0) + 1
            self.release_tokens(removed, subscriber)
        if delivery.token:
            delivery.token = False
            assert delivery.ingress is not None
            position = delivery.ingress_position
            rejected = int(delivery.rejected)
            self._accept_sync(delivery.ingress, subscriber.name, subscriber.term, position, position + 1, rejected)

    def _reject(self, subscriber: Subscriber, ranges: list[Range]) -> None:
        for start, stop in ranges:
            subscriber.sent.rejected.add(start, stop)
            self.counters.subscriber_rejected += stop - start
            for position in range(start, stop):
                self.log.rejected[position] = self.log.rejected.get(position, 0) + 1

    def _released(self, subscriber: Subscriber, first: int, last: int, failed: bool, settled: bool) -> None:
        """The same subscription gets it again, after a failure up to `max_redeliveries` times (protocol 6.4)."""
        if subscriber.settled_mode:
            return
        if failed and not self.address.config.max_redeliveries:
            self.disposition(subscriber, first, last, REJECTED, settled)
            return
        singles = self.irregular_between(subscriber, first, last) if subscriber.irregular.by_delivery_id else []
        for run, low, high in subscriber.sent.ids.pieces(first, last + 1):
            for a, b in subscriber.sent.unsettled.overlap(run.start + low, run.start + high):
                for start, stop in subscriber.owes.overlap(a, b):
                    self._release_positions(subscriber, start, stop, failed, settled)
        for delivery in singles:
            if delivery.state is not State.SENT:
                continue
            if failed and delivery.failures >= self.address.config.max_redeliveries:
                self.accept_irregular(subscriber, delivery, True, settled)
                continue
            if not settled:
                subscriber.port.settle(delivery.delivery_id, delivery.delivery_id)
            subscriber.irregular.clear_delivery_id(delivery)
            self.counters.subscriber_released += 1
            self._release(subscriber, delivery, failed)
        subscriber.pump()

    def _release(self, subscriber: Subscriber, delivery: Irregular, failed: bool) -> None:
        """Queues it again. The payload of a large one has passed through: its publisher has to send it (protocol
        6.12)."""
        subscriber.irregular.release(delivery, failed)
        if delivery.payload is None and delivery.position >= 0:
            self.need_again(delivery.position)

    def _release_positions(self, subscriber: Subscriber, start: int, stop: int, failed: bool, settled: bool) -> None:
        self.counters.subscriber_released += stop - start
        first, _ = subscriber.sent.delivery_ids_of([(start, stop)])[0]
        if not settled:
            subscriber.settle_on_wire(start, stop, first)  # the old delivery is settled first
        for delivery in subscriber.take_out(start, stop, first):
            position = start + delivery.order - first
            delivery.position = position
            subscriber.irregular.bound[position] = delivery
            self._release(subscriber, delivery, failed)
            subscriber.classify(self.publishers[delivery.publisher_id])

    # ------------------------------------------------------------------------------------------------------- acceptance

    def release_tokens(self, ranges: list[Range], subscriber: Subscriber | None) -> None:
        """Answers those of these open positions that no subscription here owes any more (protocol 6.3). This one has
        just ceased to owe them."""
        left, ring, end = ranges, self._ring, self.log.segments.end
        if end != self._ring_end:
            self._ring_end = end
            ring.clear()
        if not ring:
            ring.extend(self.subscribers.values())
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
        for run, start, stop in self.log.accepted(left):
            self._accept(run, start, stop)
        self.core.touch(self.address)

    def subscribers_changed(self) -> None:
        """One has come or gone."""
        self._ring.clear()

    def _accept(self, run: ArrivalRun, start: int, stop: int) -> None:
        pending = self.accepts.setdefault(run.ingress, [])
        offset = run.position - run.start
        if self.log.rejected:
            for position in range(start, stop):
                rejected = self.log.rejected.pop(position, 0)
                pending.append((position + offset, position + offset + 1, rejected))
        else:
            pending.append((start + offset, stop + offset, 0))
        self.core.payload_bytes -= self.log.free(run, start, stop)

    def _accept_sync(
        self, ingress: str, name: m.SubscriptionName, term: Term, start: int, stop: int, rejected: int
    ) -> None:
        self.sync_accepts.setdefault((ingress, name, term), []).append((start, stop, rejected))
        self.core.touch(self.address)

    def router_down(self, router: str) -> None:
        """Drops acceptances that wait for that router: its session is over (protocol 8.6)."""
        self.accepts.pop(router, None)
        for key in [key for key in self.sync_accepts if key[0] == router]:
            del self.sync_accepts[key]

    def flush(self) -> None:
        """Sends the pending ACCEPTs, gathered into ranges (protocol 9)."""
        given_up, self.given_up = self.given_up, {}
        for subscriber, why in given_up.items():
            if self.subscribers.get(subscriber.name) is subscriber:
                self.egress.give_up(subscriber, why)
        if self.log.bodies:
            self._free_taken()
        if self.accepts:
            accepts, self.accepts = self.accepts, {}
            for ingress, pending in accepts.items():
                self.core.send_to(ingress, Accept(self.address.name, _gathered(pending)))
        if self.sync_accepts:
            sync_accepts, self.sync_accepts = self.sync_accepts, {}
            for (ingress, name, term), pending in sync_accepts.items():
                self.core.send_to(ingress, m.AcceptSync(self.address.name, name, term, _gathered(pending)))

    # --------------------------------------------------------------------------------------------------------- settling

    def on_settle(self, sender: str, message: Settle) -> None:
        """An ingress settles by position, which every DATA and SYNC entry carries (protocol 6.6, 9)."""
        for start, stop in message.ranges:
            for run, low, high in self.log.local(sender, start, stop):
                early = self.log.open.overlap(low, high)
                freed = []
                for subscriber in self.subscribers.values():
                    passage = subscriber.passage
                    holds = passage is not None and (passage.passed_by or passage.partial is not None)
                    if passage is not None and holds and passage.void(low, high):
                        freed.append(subscriber)
                    if early:
                        subscriber.owes.remove(low, high)
                    if subscriber.sent.unsettled.starts:
                        subscriber.settle_positions(low, high)
                    if subscriber.irregular.bound:
                        self._settle_bound(subscriber, low, high)
                self.core.payload_bytes -= self.log.forget(run, low, high)
                for subscriber in freed:
                    subscriber.pump()
            for subscriber in self.subscribers.values():
                if subscriber.irregular.by_sync:
                    self._settle_entries(subscriber, sender, start, stop)

    def _settle_bound(self, subscriber: Subscriber, start: int, stop: int) -> None:
        for delivery in [d for at, d in sorted(subscriber.irregular.bound.items()) if start <= at < stop]:
            self.settle_irregular(subscriber, delivery)
        subscriber.pump()

    def _settle_entries(self, subscriber: Subscriber, sender: str, start: int, stop: int) -> None:
        entries = subscriber.irregular.by_sync.get(sender)
        if entries:
            positions = range(start, stop) if stop - start < len(entries) else sorted(entries)
            for position in positions:
                if start <= position < stop and position in entries:
                    self.settle_irregular(subscriber, entries[position])
            subscriber.pump()

    def on_settle_tags(self, sender: str, message: m.SettleTags) -> None:
        """An ingress names expected tags that are not sent again: they are settled (protocol 6.6)."""
        publisher = self.publishers.get(message.publisher)
        if publisher is None or not self._is_present_ingress(publisher, sender, message.term):
            return
        for subscriber in list(self.subscribers.values()):
            for tag in message.tags:
                delivery = subscriber.irregular.find(tag)
                if delivery is not None:
                    self.settle_irregular(subscriber, delivery)
            subscriber.pump()

    def on_flush(self, sender: str, message: m.Flush) -> None:
        """Nothing is sent again: deliveries not bound to a position of the ingress are settled (protocol 8.5)."""
        publisher = self.publishers.get(message.publisher)
        if publisher is None or not self._is_present_ingress(publisher, sender, message.term):
            return
        for subscriber in list(self.subscribers.values()):
            if subscriber.synced.get(message.publisher) == (sender, message.term):
                for delivery in subscriber.irregular.of(message.publisher):
                    bound = delivery.position >= 0 or delivery.ingress is not None
                    if not bound and delivery.within(message.incarnation):
                        self.settle_irregular(subscriber, delivery)
                subscriber.pump()

    def settle_irregular(self, subscriber: Subscriber, delivery: Irregular) -> None:
        """Settles one irregular delivery: its tokens are released, and it leaves the queue, is resumed as settled, or
        the client is told (protocol 10.1)."""
        self.counters.subscriber_settled += 1
        self._release_tokens_of(subscriber, delivery)
        in_place = delivery.position in subscriber.irregular.filled
        if subscriber.partial is not None and subscriber.partial.delivery is delivery:
            assert subscriber.passage is not None
            subscriber.passage.abort()
            delivery.state = State.REMOVED
        delivery_id = delivery.delivery_id
        subscriber.remove(delivery)
        publisher = self.publishers.get(delivery.publisher_id)
        if publisher is not None:
            subscriber.classify(publisher)
        if delivery.state in (State.QUEUED, State.RELEASED, State.REMOVED):
            delivery.state = State.REMOVED
        elif not subscriber.handshake.answered:
            # The map will not list it. If a SYNC has filled it, its place in the queue is skipped.
            delivery.resume = Resume.NOTHING
        elif delivery.resume is Resume.SETTLED:
            pass  # it waits to be resumed as such
        elif delivery.resume is not Resume.NOTHING:
            if delivery.resume is Resume.PLACEHOLDER or in_place:
                subscriber.irregular.resume_later(delivery)
            delivery.resume = Resume.SETTLED
        elif delivery_id >= 0:
            subscriber.port.settle(delivery_id, delivery_id)
        elif subscriber.handshake.leaves_out and delivery.from_map:
            # protocol 7.7: it was not listed and has no delivery-id here; after the next attach no router would know it
            delivery.resume = Resume.SETTLED
            subscriber.irregular.resume_later(delivery)

    def check_invariants(self) -> None:
        core, publishers, subscribers = self.core, self.publishers, self.subscribers
        self.log.check_invariants()
        for name, subscriber in subscribers.items():
            assert subscriber.name == name
            subscriber.check_invariants()
            routers = (*subscriber.handshake.joined, *subscriber.handshake.missing)
            assert all(router == core.name or router in core.up for router in routers)
            for publisher_id, (home, term) in subscriber.synced.items():
                entry = publishers[publisher_id]
                assert (entry.home, entry.term) == (home, term), "synced with a router that is not the ingress"
            for publisher_id in subscriber.irregular.by_tag:
                assert publisher_id in publishers, "a delivery of a publisher that is forgotten"
        if self._ring and self._ring_end == self.log.end:
            owing = {each for each in subscribers.values() if each.owes.first() < self.log.end}
            assert owing <= {*self._ring} <= {*subscribers.values()}
        owed = union([each.owes for each in subscribers.values()]).overlap(0, self.log.end)
        assert owed == list(self.log.open), f"owed {owed}, open {self.log.open}"
        assert all(subscribers.get(each.name) is each for each in self.ready)
        assert all(ingress == core.name or ingress in core.up for ingress in self.accepts)
        for entry in publishers.values():
            special = self.special[entry.publisher_id]
            assert all(subscribers.get(each.name) is each for each in special)
            plain = [each for each in subscribers.values() if each not in special]
            assert all(each.synced.get(entry.publisher_id) == (entry.home, entry.term) for each in plain)
            assert not any(entry.publisher_id in each.irregular.by_tag for each in plain)

    def status(self) -> dict[str, object]:
        return {
            "arrived": self.log.alive.size,
            "open": self.log.open.size,
        }


def _gathered(ranges: list[Rejection]) -> list[Rejection]:
    """Returns them with those joined that touch and that nobody has rejected."""
    if len(ranges) == 1:
        return ranges
    accepted = IntervalSet((start, stop) for start, stop, rejected in ranges if not rejected)
    return [*((start, stop, 0) for start, stop in accepted), *(each for each in ranges if each[2])]
