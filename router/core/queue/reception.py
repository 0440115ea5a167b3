"""Deliveries on their way to the consumers of one queue: assigned, given back, accepted (protocol 16.3, 16.5).

A delivery is one consumer's, so its token is answered when that one has accepted. What it holds is kept as at a topic:
in the log, or by tag.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from router.core import messages as m
from router.core.deliveries import Deliveries
from router.core.intervals import IntervalSet, Range, count
from router.core.irregular import Entered, Irregular, State
from router.core.ports import Outcome, Term
from router.core.queue.credit import Credit, Grant
from router.core.queue.departed import NOBODY, Departed
from router.core.queue.free import added, data_of
from router.core.subscriber import Reception, Subscriber
from router.core.traffic import Rejection

GIVEN_BACK: Final = {
    Outcome.RELEASED: m.Why.RELEASED,
    Outcome.FAILED: m.Why.FAILED,
    Outcome.ELSEWHERE: m.Why.ELSEWHERE,
    Outcome.FAILED_ELSEWHERE: m.Why.FAILED | m.Why.ELSEWHERE,
}


class QueueReception(Reception):
    """One queue's."""

    def __init__(self, deliveries: Deliveries) -> None:
        self.deliveries = deliveries
        deliveries.reception = self
        self.address = deliveries.address
        self.core = deliveries.core
        self.log = deliveries.log
        self.publishers = deliveries.publishers  # known in the network
        self.subscribers = deliveries.subscribers  # attached here
        self.credit = Credit(deliveries)
        self.departed = Departed(deliveries, self.credit)
        self._returns: dict[tuple[str, m.SubscriptionName, Term], list[Rejection]] = {}

    def handlers(self) -> m.Handlers:
        return {m.Assign: self.on_assign, m.Stopped: self.credit.on_stopped}

    # ------------------------------------------------------------------------------------------- consumers come and go

    def attached(self, subscriber: Subscriber) -> None:
        """Of what comes it owes nothing but what it is assigned."""
        self.credit.grants[subscriber] = {}

    def held(self, subscriber: Subscriber, entered: Entered) -> Entered:
        """Returns what counts of its map. Of what an earlier subscription held undecided a fresh one holds nothing: it
        may be another's by now (protocol 16.2)."""
        if subscriber.handshake.kind is not m.JoinKind.FRESH:
            return entered
        final = State.ACCEPTED
        decided = {
            prefix: {tag: delivery for tag, delivery in known.items() if delivery.state is final}
            for prefix, known in entered.items()
        }
        return {prefix: known for prefix, known in decided.items() if known}

    def heard(self, subscriber: Subscriber) -> None:
        """The client has read the answer to its attach. Its map was true: what it does not hold may be another's
        (protocol 16.8)."""
        if not self.credit.is_unproven(subscriber):
            return
        self.credit.proven[subscriber] = None
        for publisher in self.publishers.values():
            if publisher.home is not None:
                self.send_hold(publisher.home, subscriber, publisher.publisher_id, publisher.term)
        subscriber.pump()

    def answer_claim(self, sender: str, message: m.Pub) -> None:
        """A new ingress is told what consumers here hold, before the PUBACK; an old one in a new session, what they
        had accepted before they went (protocol 16.4, 16.7)."""
        for subscriber in self.subscribers.values():
            asked = message.expected is not None or not subscriber.has_link
            if (asked and message.publisher in subscriber.irregular.by_tag) or self.credit.is_unproven(subscriber):
                self.send_hold(sender, subscriber, message.publisher, message.term)

    def homes_changed(self) -> None:
        self.credit.homes_changed = True
        self.core.agenda.touch(self.address)

    def link_gone(self, subscriber: Subscriber) -> None:
        """Its deliveries are its own: nobody else here owes an answer for them (protocol 16.6)."""
        self.credit.forget(subscriber)
        for start, stop in [*subscriber.owes.take(), *subscriber.sent.unsettled.take()]:
            for run, low, high in self.log.runs.pieces(start, stop):
                self.log.forget(run, run.start + low, run.start + high)
        assert not count(self.log.open.overlap(0, self.log.end)) or self.subscribers

    def remember_accepted(self, subscriber: Subscriber) -> None:
        """Its link is gone. What it has accepted is remembered, and ingresses that may not have read it are told before
        they hear of the loss (protocol 16.7)."""
        for publisher_id in self.departed.take_over(subscriber):
            entry = self.publishers[publisher_id]
            if entry.home is not None:
                self.send_hold(entry.home, self.subscribers[NOBODY], publisher_id, entry.term)

    def router_down(self, router: str) -> None:
        self.credit.router_down(router)
        for key in [key for key in self._returns if key[0] == router]:
            del self._returns[key]

    # ----------------------------------------------------------------------------------------------------------- ASSIGN

    def on_assign(self, sender: str, message: m.Assign) -> None:
        """Deliveries that are one consumer's. What it holds is bound; what is new it gets, as far as it has credit; the
        rest goes back at once (protocol 16.3)."""
        consumer = self.subscribers.get(message.name)
        if consumer is not None and consumer.term != message.subscription_term:
            consumer = None
        if consumer is not None and not message.held:
            grant = self.credit.grant(consumer, sender)
            if grant.round == message.round:
                grant.used += len(message.tags)
                self.credit.changed(consumer)
        publisher = self.publishers.get(message.publisher)
        if publisher is None or not self.deliveries.is_present_ingress(publisher, sender, message.term):
            if publisher is not None and publisher.term > message.term:
                self.deliveries.directory.send_stale(sender, publisher, message.term)
            return
        if consumer is None:
            return  # the ORPHAN, LEAVE or JOIN sent before this says so
        new: list[Range] = [(0, len(message.tags))]
        known = consumer.irregular.by_tag.get(message.publisher)
        if known:
            new = []
            for i, tag in enumerate(message.tags):
                delivery = known.get(tag)
                if delivery is not None and delivery.state is State.DECLINED:
                    consumer.unbind(delivery)
                    self._bind_entry(consumer, sender, message.position + i, delivery)
                    self._return(sender, consumer, message.position + i, message.position + i + 1, m.Why.ELSEWHERE)
                elif delivery is not None:
                    position, payload, form = message.position + i, message.payloads[i], message.message_format
                    self.deliveries.deliver_entry(consumer, sender, position, True, tag, payload, form)
                elif new and new[-1][1] == i:
                    new[-1] = (new[-1][0], i + 1)
                else:
                    new.append((i, i + 1))
        if consumer.handshake.most_bytes and not message.held:
            new = self._return_too_large(consumer, sender, message, new)
        if new:
            self._take_new(consumer, sender, message, new)
            consumer.classify(publisher)
        consumer.pump()

    def _return_too_large(self, consumer: Subscriber, sender: str, message: m.Assign, new: list[Range]) -> list[Range]:
        """Returns which of these the consumer's link can take, by place in the message. The others are another's
        (protocol 16.5.6)."""
        most, payloads = consumer.handshake.most_bytes, message.payloads
        if max(map(len, payloads)) <= most:
            return new
        fits = IntervalSet(new)
        for start, stop in new:
            for i in range(start, stop):
                if len(payloads[i]) > most:
                    fits.remove(i, i + 1)
                    position = message.position + i
                    self._return(sender, consumer, position, position + 1, m.Why.ELSEWHERE | m.Why.TOO_LARGE)
        return list(fits)

    def _take_new(self, consumer: Subscriber, sender: str, message: m.Assign, new: list[Range]) -> None:
        """New deliveries, by place in the message."""
        grant = self.credit.grant(consumer, sender)
        synced = consumer.synced.get(message.publisher) == (sender, message.term)
        room = 0
        if not message.held and synced and grant.round == message.round and not grant.stopped:
            room = self.credit.room(consumer)
        for start, stop in new:
            middle = min(stop, start + room)
            if start < middle:
                self._take(consumer, sender, message, start, middle)
                room -= middle - start
            if middle < stop:
                position = message.position
                why = m.Why.RELEASED if message.held else m.Why.UNSENT
                self._return(sender, consumer, position + middle, position + stop, why)
                if not message.held:
                    self._end_round(grant)

    def _end_round(self, grant: Grant) -> None:
        """What the ingress assigns in this round must not overtake what goes back (protocol 16.3)."""
        grant.stopped = grant.stopped or grant.limit > 0

    def _take(self, consumer: Subscriber, sender: str, message: m.Assign, start: int, stop: int) -> None:
        position, message_format = message.position + start, message.message_format
        tags, payloads = message.tags[start:stop], message.payloads[start:stop]
        if not message_format:
            self._note_groups(consumer, payloads)
        if message.failures:
            for i, tag in enumerate(tags):
                self._take_failed(consumer, sender, position + i, tag, payloads[i], message)
        elif self.log.is_next(sender, position):
            part = message if len(tags) == len(message.tags) else replace(message, tags=tags, payloads=payloads)
            part.position = position
            low, high = self.log.append(sender, part)
            if self.core.now >= self.deliveries.arrived_at.next_mark_s:
                self.deliveries.arrived_at.note(low, self.core.now)
            consumer.owes.add(low, high)
        else:  # it was another's before
            for i, tag in enumerate(tags):
                self.deliveries.deliver_entry(consumer, sender, position + i, True, tag, payloads[i], message_format)

    def _note_groups(self, consumer: Subscriber, payloads: list[bytes]) -> None:
        """Every router is told of a group that the consumer has from now on (protocol 16.9)."""
        groups = {kind.group for kind in self.core.owner.kinds_of(payloads, False).values() if kind.group is not None}
        if not groups:
            return
        entry = self.address.known_subscriptions[consumer.name]
        data = added(entry.data, data_of(groups))
        if data != entry.data:
            entry.data = data  # what comes before the message to oneself has it already
            self.core.post.broadcast(m.Note(self.address.name, consumer.name, consumer.term, data))

    def _take_failed(
        self, consumer: Subscriber, sender: str, position: int, tag: bytes, payload: bytes, message: m.Assign
    ) -> None:
        """A delivery with which consumers have failed: it goes out with its delivery-count (protocol 16.5)."""
        delivery = Irregular(tag, State.RELEASED, payload, message.message_format)
        delivery.failures = message.failures
        consumer.irregular.enter(delivery)
        self._bind_entry(consumer, sender, position, delivery)
        delivery.token = True
        consumer.irregular.released.append(delivery)

    # ------------------------------------------------------------------------------------------------------------- SYNC

    def send_hold(self, ingress: str, consumer: Subscriber, publisher_id: bytes, term: Term) -> None:
        known = consumer.irregular.by_tag.get(publisher_id, {})
        declined = [tag for tag, delivery in known.items() if delivery.state is State.DECLINED]
        held = [tag for tag, delivery in known.items() if delivery.state is not State.DECLINED]
        name, unproven = self.address.name, self.credit.is_unproven(consumer)
        hold = m.Hold(name, publisher_id, term, consumer.name, consumer.term, held, declined, unproven)
        self.core.post.send_to(ingress, hold)

    def take_entries(self, subscriber: Subscriber, sender: str, message: m.Sync) -> None:
        """Entries have no tokens: what the consumer holds is bound to its position, and the ingress is told what that
        is (protocol 16.4)."""
        for entries in message.entries:
            for position, tag in enumerate(entries.tags, entries.position):
                delivery = subscriber.irregular.find(tag)
                if delivery is not None:
                    subscriber.unbind(delivery)
                    self._bind_entry(subscriber, sender, position, delivery)
        self.send_hold(sender, subscriber, message.publisher, message.term)

    def _bind_entry(self, subscriber: Subscriber, sender: str, position: int, delivery: Irregular) -> None:
        delivery.ingress = sender
        delivery.ingress_position = position
        subscriber.irregular.by_sync.setdefault(sender, {})[position] = delivery

    # --------------------------------------------------------------------------------------------------------- outcomes

    def given_back(
        self, subscriber: Subscriber, first: int, last: int, outcome: Outcome, settled: bool, said: bool
    ) -> None:
        """It is settled and forgotten here, and the ingress decides again (protocol 16.5)."""
        if subscriber.settled_mode:
            return
        why = GIVEN_BACK[outcome]
        for run, low, high in subscriber.sent.ids.pieces(first, last + 1):
            for a, b in subscriber.sent.unsettled.overlap(run.start + low, run.start + high):
                for start, stop in subscriber.owes.overlap(a, b):
                    self._give_back(subscriber, start, stop, why, settled)
        subscriber.sent.trim()
        if subscriber.irregular.by_delivery_id:
            for delivery in self.deliveries.irregular_between(subscriber, first, last):
                if delivery.state is State.SENT:
                    self._give_irregular_back(subscriber, delivery, why, settled)
        subscriber.pump()

    def _give_back(self, subscriber: Subscriber, start: int, stop: int, why: m.Why, settled: bool) -> None:
        self.deliveries.counters.subscriptions.released += stop - start
        if not settled:
            for low, high in subscriber.sent.delivery_ids_of(subscriber.sent.settled_on_wire.missing([(start, stop)])):
                subscriber.port.settle(low, high - 1, at_once=True)
        declined = subscriber.take_out(start, stop, -1) if why & m.Why.ELSEWHERE else []
        for each in (subscriber.owes, subscriber.sent.unsettled, subscriber.sent.settled_on_wire):
            each.remove(start, stop)
        for run, low, high in self.log.runs.pieces(start, stop):
            self._return(run.ingress, subscriber, run.position + low, run.position + high, why)
            self.log.forget(run, run.start + low, run.start + high)
            for position in range(run.position + low, run.position + high) if declined else ():
                self._decline(subscriber, declined.pop(0), run.ingress, position)

    def _give_irregular_back(self, subscriber: Subscriber, delivery: Irregular, why: m.Why, settled: bool) -> None:
        self.deliveries.counters.subscriptions.released += 1
        if not settled:
            subscriber.port.settle(delivery.delivery_id, delivery.delivery_id, at_once=True)
        if delivery.token:
            assert delivery.ingress is not None
            position = delivery.ingress_position
            self._return(delivery.ingress, subscriber, position, position + 1, why)
        if why & m.Why.ELSEWHERE:
            self._decline(subscriber, delivery, delivery.ingress, delivery.ingress_position)
            return
        delivery.state = State.REMOVED
        self.deliveries.forget(subscriber, delivery)

    def _decline(self, subscriber: Subscriber, delivery: Irregular, ingress: str | None, position: int) -> None:
        """Its tag is kept, so that it does not come again on this link (protocol 16.5)."""
        delivery.state = State.DECLINED
        delivery.payload = None
        subscriber.irregular.clear_delivery_id(delivery)
        subscriber.unbind(delivery)
        if ingress is not None:
            self._bind_entry(subscriber, ingress, position, delivery)
        subscriber.classify(self.publishers[delivery.publisher_id])

    def _return(self, ingress: str, subscriber: Subscriber, start: int, stop: int, why: m.Why) -> None:
        key = (ingress, subscriber.name, subscriber.term)
        self._returns.setdefault(key, []).append((start, stop, int(why)))
        self.core.agenda.touch(self.address)

    def release_tokens(self, ranges: list[Range], subscriber: Subscriber | None) -> None:
        """The consumer has accepted: nobody else has to (protocol 16.5)."""
        if not ranges:
            return
        assert subscriber is not None
        for ingress, told in self.deliveries.accepted(ranges):
            key = ingress, subscriber.name, subscriber.term
            self.deliveries.sync_accepts.setdefault(key, []).extend(told)
        self.core.agenda.touch(self.address)

    def flush(self) -> None:
        self.deliveries.tell_accepted()
        returns, self._returns = self._returns, {}
        for (ingress, name, term), ranges in returns.items():
            consumer = self.subscribers.get(name)
            grants = self.credit.grants[consumer] if consumer is not None and consumer.term == term else {}
            grant = grants.get(ingress)
            number = grant.round if grant is not None and grant.stopped else 0
            self.core.post.send_to(ingress, m.Return(self.address.name, name, term, number, ranges))

    def check_invariants(self) -> None:
        assert self.credit.grants.keys() <= {*self.subscribers.values()}
        assert all(ingress == self.core.name or ingress in self.core.members.up for ingress, _, _ in self._returns)
