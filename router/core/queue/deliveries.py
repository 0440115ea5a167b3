"""Deliveries on their way to the consumers of one queue: assigned, given back, accepted (protocol 16.3, 16.5).

A delivery is one consumer's, so its token is answered when that one has accepted. What it holds is kept as at a topic:
in the log, or by tag.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.deliveries import Deliveries
from router.core.intervals import Range
from router.core.irregular import Irregular, State
from router.core.ports import Outcome, Term
from router.core.publisher_directory import PublisherDirectory
from router.core.queue.consumer import NOBODY, Consumer, Grant
from router.core.queue.free import added, data_of
from router.core.subscriber import Subscriber
from router.core.traffic import Data, Rejection

GIVEN_BACK: Final = {
    Outcome.RELEASED: m.Why.RELEASED,
    Outcome.FAILED: m.Why.FAILED,
    Outcome.ELSEWHERE: m.Why.ELSEWHERE,
    Outcome.FAILED_ELSEWHERE: m.Why.FAILED | m.Why.ELSEWHERE,
}


class QueueDeliveries(Deliveries):
    """What flows to the consumers of one queue at this router."""

    def __init__(self, address: BaseAddress, directory: PublisherDirectory) -> None:
        super().__init__(address, directory)
        self.consumers = cast("dict[m.SubscriptionName, Consumer]", self.subscribers)
        self.homes_changed = False  # of publishers
        self.homes: tuple[str, ...] = ()
        self._credit_changed: dict[Consumer, None] = {}
        self._returns: dict[tuple[str, m.SubscriptionName, Term], list[Rejection]] = {}

    def handlers(self) -> m.Handlers:
        return {**super().handlers(), m.Assign: self.on_assign, m.Stopped: self.on_stopped}

    def on_data(self, sender: str, message: Data) -> None:
        raise m.PeerProtocolError("DATA at a queue")

    # ----------------------------------------------------------------------------------------------------------- credit

    def credit_changed(self, consumer: Consumer) -> None:
        self._credit_changed[consumer] = None
        self.core.touch(self.address)

    def forget_router(self, router: str) -> None:
        """Its session is over: what it was told is void."""
        for consumer in self.consumers.values():
            consumer.grants.pop(router, None)

    def proved(self, consumer: Consumer) -> None:
        """Its map was true: what it does not hold may be another's (protocol 16.8)."""
        for publisher in self.publishers.values():
            if publisher.home is not None:
                self.send_hold(publisher.home, consumer, publisher.publisher_id, publisher.term)
        consumer.pump()

    def tell_credit(self) -> None:
        """Tells ingresses how much consumers take. Each gets its share; where that is nothing, one: what is too much
        comes back (protocol 16.3)."""
        if self.homes_changed:
            self.homes_changed = False
            self.homes = tuple(sorted({each.home for each in self.publishers.values() if each.home is not None}))
            self._credit_changed = dict.fromkeys(self.consumers.values())
        if not self._credit_changed:
            return
        changed, self._credit_changed = self._credit_changed, {}
        for consumer in changed:
            if self.consumers.get(consumer.name) is not consumer:
                continue
            if consumer.name == NOBODY or self._has_enough(consumer):
                continue
            room = consumer.room()
            share = max(1, room // max(1, len(self.homes))) if room else 0
            for home in self.homes:
                grant = self._grant(consumer, home)
                if grant.stopped:
                    continue
                if grant.left < share and (grant.left <= share // 2 or not grant.left):
                    grant.limit = grant.used + share
                    self._say_credit(home, consumer, grant)

    def _has_enough(self, consumer: Consumer) -> bool:
        """Says whether no ingress has used half of the largest share that it could be told now."""
        if not self.homes or not consumer.handshake.answered:
            return False
        half = consumer.port.link_credit() // len(self.homes) // 2
        return all(home in consumer.grants and consumer.grants[home].left > half for home in self.homes)

    def _grant(self, consumer: Consumer, ingress: str) -> Grant:
        grant = consumer.grants.get(ingress)
        if grant is None:
            grant = consumer.grants[ingress] = Grant()
            grant.begin(1)
        return grant

    def on_stopped(self, sender: str, message: m.Stopped) -> None:
        """The ingress has read that the round is over, and all that it had assigned in it has come: another begins
        (protocol 16.3)."""
        consumer = self.consumers.get(message.name)
        if consumer is not None and consumer.term == message.term and consumer.name != NOBODY:
            grant = self._grant(consumer, sender)
            if grant.stopped and grant.round == message.round:
                grant.begin(grant.round + 1)
                self.credit_changed(consumer)

    def _say_credit(self, home: str, consumer: Consumer, grant: Grant) -> None:
        name = self.address.name
        self.core.send_to(home, m.Credit(name, consumer.name, consumer.term, grant.round, grant.limit))

    # ----------------------------------------------------------------------------------------------------------- ASSIGN

    def on_assign(self, sender: str, message: m.Assign) -> None:
        """Deliveries that are one consumer's. What it holds is bound; what is new it gets, as far as it has credit; the
        rest goes back at once (protocol 16.3)."""
        consumer = self.consumers.get(message.name)
        if consumer is not None and consumer.term != message.subscription_term:
            consumer = None
        if consumer is not None and not message.held:
            grant = self._grant(consumer, sender)
            if grant.round == message.round:
                grant.used += len(message.tags)
                self.credit_changed(consumer)
        publisher = self.publishers.get(message.publisher)
        if publisher is None or not self._is_present_ingress(publisher, sender, message.term):
            if publisher is not None and publisher.term > message.term:
                self.directory.send_stale(sender, publisher, message.term)
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
                    position, payload = message.position + i, message.payloads[i]
                    self._deliver_entry(consumer, sender, position, True, tag, payload, message.message_format)
                elif new and new[-1][1] == i:
                    new[-1] = (new[-1][0], i + 1)
                else:
                    new.append((i, i + 1))
        if new:
            self._take_new(consumer, sender, message, new)
            consumer.classify(publisher)
        consumer.pump()

    def _take_new(self, consumer: Consumer, sender: str, message: m.Assign, new: list[Range]) -> None:
        """New deliveries, by place in the message."""
        grant = self._grant(consumer, sender)
        synced = consumer.synced.get(message.publisher) == (sender, message.term)
        room = 0
        if not message.held and synced and grant.round == message.round and not grant.stopped:
            room = consumer.room()
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

    def _take(self, consumer: Consumer, sender: str, message: m.Assign, start: int, stop: int) -> None:
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
            self.arrived_at.note(low, self.core.now)
            if sender != self.core.name:
                self.core.payload_bytes += self.log.segments.size(low, high)
            consumer.owes.add(low, high)
        else:  # it was another's before
            for i, tag in enumerate(tags):
                self._deliver_entry(consumer, sender, position + i, True, tag, payloads[i], message_format)

    def _note_groups(self, consumer: Consumer, payloads: list[bytes]) -> None:
        """Every router is told of a group that the consumer has from now on (protocol 16.9)."""
        groups = {kind.group for kind in self.core.kinds_of(payloads, False).values() if kind.group is not None}
        if not groups:
            return
        entry = self.address.known_subscriptions[consumer.name]
        data = added(entry.data, data_of(groups))
        if data != entry.data:
            entry.data = data  # what comes before the message to oneself has it already
            self.core.broadcast(m.Note(self.address.name, consumer.name, consumer.term, data))

    def _take_failed(
        self, consumer: Consumer, sender: str, position: int, tag: bytes, payload: bytes, message: m.Assign
    ) -> None:
        """A delivery with which consumers have failed: it goes out with its delivery-count (protocol 16.5)."""
        delivery = Irregular(tag, State.RELEASED, payload, message.message_format)
        delivery.failures = message.failures
        consumer.irregular.enter(delivery)
        self._bind_entry(consumer, sender, position, delivery)
        delivery.token = True
        consumer.irregular.released.append(delivery)

    # ------------------------------------------------------------------------------------------------------------- SYNC

    def on_sync(self, sender: str, message: m.Sync) -> None:
        """An ingress says what it has, and is told what the consumer holds (protocol 16.4)."""
        super().on_sync(sender, message)
        consumer = self.consumers.get(message.name)
        if consumer is None or consumer.term != message.subscription_term:
            return
        if consumer.synced.get(message.publisher) == (sender, message.term):
            self.send_hold(sender, consumer, message.publisher, message.term)

    def on_flush(self, sender: str, message: m.Flush) -> None:
        """What consumers that have gone had accepted is settled with the rest (protocol 16.7)."""
        nobody, publisher = self.consumers.get(NOBODY), self.publishers.get(message.publisher)
        if nobody is not None and publisher is not None and self._is_present_ingress(publisher, sender, message.term):
            nobody.synced[message.publisher] = (sender, message.term)
        super().on_flush(sender, message)

    def send_hold(self, ingress: str, consumer: Consumer, publisher_id: bytes, term: Term) -> None:
        known = consumer.irregular.by_tag.get(publisher_id, {})
        declined = [tag for tag, delivery in known.items() if delivery.state is State.DECLINED]
        held = [tag for tag, delivery in known.items() if delivery.state is not State.DECLINED]
        name = self.address.name
        hold = m.Hold(name, publisher_id, term, consumer.name, consumer.term, held, declined, consumer.unproven)
        self.core.send_to(ingress, hold)

    def _deliver_entries(self, subscriber: Subscriber, sender: str, entries: m.Entries) -> None:
        """Entries have no tokens: what the consumer holds is bound to its position (protocol 16.4)."""
        for i, tag in enumerate(entries.tags):
            delivery = subscriber.irregular.find(tag)
            if delivery is not None:
                subscriber.unbind(delivery)
                self._bind_entry(subscriber, sender, entries.position + i, delivery)

    def _bind_entry(self, subscriber: Subscriber, sender: str, position: int, delivery: Irregular) -> None:
        delivery.ingress = sender
        delivery.ingress_position = position
        subscriber.irregular.by_sync.setdefault(sender, {})[position] = delivery

    # --------------------------------------------------------------------------------------------------------- outcomes

    def disposition(self, subscriber: Subscriber, first: int, last: int, outcome: Outcome, settled: bool) -> None:
        """What a consumer gives back is settled and forgotten here, and the ingress decides again
        (protocol 16.5)."""
        why = GIVEN_BACK.get(outcome)
        if why is None:
            super().disposition(subscriber, first, last, outcome, settled)
            return
        if subscriber.settled_mode:
            return
        for run, low, high in subscriber.sent.ids.pieces(first, last + 1):
            for a, b in subscriber.sent.unsettled.overlap(run.start + low, run.start + high):
                for start, stop in subscriber.owes.overlap(a, b):
                    self._give_back(subscriber, start, stop, why, settled)
        subscriber.sent.trim()
        if subscriber.irregular.by_delivery_id:
            for delivery in self.irregular_between(subscriber, first, last):
                if delivery.state is State.SENT:
                    self._give_irregular_back(subscriber, delivery, why, settled)
        subscriber.pump()

    def _give_back(self, subscriber: Subscriber, start: int, stop: int, why: m.Why, settled: bool) -> None:
        self.counters.subscriber_released += stop - start
        if not settled:
            for low, high in subscriber.sent.delivery_ids_of(subscriber.sent.settled_on_wire.missing([(start, stop)])):
                subscriber.port.settle(low, high - 1, at_once=True)
        declined = subscriber.take_out(start, stop, -1) if why & m.Why.ELSEWHERE else []
        for each in (subscriber.owes, subscriber.sent.unsettled, subscriber.sent.settled_on_wire):
            each.remove(start, stop)
        for run, low, high in self.log.runs.pieces(start, stop):
            self._return(run.ingress, subscriber, run.position + low, run.position + high, why)
            self.core.payload_bytes -= self.log.forget(run, run.start + low, run.start + high)
            for position in range(run.position + low, run.position + high) if declined else ():
                self._decline(subscriber, declined.pop(0), run.ingress, position)

    def _give_irregular_back(self, subscriber: Subscriber, delivery: Irregular, why: m.Why, settled: bool) -> None:
        self.counters.subscriber_released += 1
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
        self._forget(subscriber, delivery)

    def _decline(self, subscriber: Subscriber, delivery: Irregular, ingress: str | None, position: int) -> None:
        """Its tag is kept, so that it does not come again on this link (protocol 16.5)."""
        delivery.state = State.DECLINED
        delivery.payload = None
        subscriber.irregular.clear_delivery_id(delivery)
        subscriber.unbind(delivery)
        if ingress is not None:
            self._bind_entry(subscriber, ingress, position, delivery)
        subscriber.classify(self.publishers[delivery.publisher_id])

    def settle_irregular(self, subscriber: Subscriber, delivery: Irregular) -> None:
        """What was declined has been settled with its consumer already."""
        if delivery.state is State.DECLINED:
            self._forget(subscriber, delivery)
        else:
            super().settle_irregular(subscriber, delivery)

    def _forget(self, subscriber: Subscriber, delivery: Irregular) -> None:
        subscriber.remove(delivery)
        publisher = self.publishers.get(delivery.publisher_id)
        if publisher is not None:
            subscriber.classify(publisher)

    def _return(self, ingress: str, subscriber: Subscriber, start: int, stop: int, why: m.Why) -> None:
        key = (ingress, subscriber.name, subscriber.term)
        self._returns.setdefault(key, []).append((start, stop, int(why)))
        self.core.touch(self.address)

    def release_tokens(self, ranges: list[Range], subscriber: Subscriber | None) -> None:
        """The consumer has accepted: nobody else has to (protocol 16.5)."""
        if not ranges:
            return
        assert subscriber is not None
        name, term = subscriber.name, subscriber.term
        for run, start, stop in self.log.accepted(ranges):
            offset = run.position - run.start
            if self.log.rejected:
                for position in range(start, stop):
                    rejected = self.log.rejected.pop(position, 0)
                    at = position + offset
                    self._accept_sync(run.ingress, name, term, at, at + 1, rejected)
            else:
                self._accept_sync(run.ingress, name, term, start + offset, stop + offset, 0)
            self.core.payload_bytes -= self.log.free(run, start, stop)

    def router_down(self, router: str) -> None:
        super().router_down(router)
        for key in [key for key in self._returns if key[0] == router]:
            del self._returns[key]

    def flush(self) -> None:
        super().flush()
        if not self._returns:
            return
        returns, self._returns = self._returns, {}
        for (ingress, name, term), ranges in returns.items():
            consumer = self.consumers.get(name)
            grant = consumer.grants.get(ingress) if consumer is not None and consumer.term == term else None
            number = grant.round if grant is not None and grant.stopped else 0
            self.core.send_to(ingress, m.Return(self.address.name, name, term, number, ranges))
