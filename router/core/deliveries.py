"""Deliveries on their way to the subscriptions of one address: SYNC, outcomes, settlement.

What arrives goes into one log, in ranges (protocol 9). How it arrives, and who answers for it, is the `reception`'s to
say, which is a topic's or a queue's. Subscriptions attach and leave in `router.core.egress`; one subscription's state
is in `router.core.subscriber`, the log in `router.core.arrivals`.
"""

from __future__ import annotations

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.by_need import ByNeed, needs_of
from router.core.directory import PublisherEntry
from router.core.intervals import IntervalSet, Range, union
from router.core.irregular import Irregular, Resume, State
from router.core.ports import ACCEPTED, REJECTED, Outcome, Refusal, Term
from router.core.publisher_directory import PublisherDirectory
from router.core.reasons import tell_of
from router.core.subscriber import BaseDeliveries, Subscriber
from router.core.traffic import Rejection, Settle


class Deliveries(BaseDeliveries):
    """What flows to the subscriptions of one address at this router."""

    def __init__(self, address: BaseAddress, directory: PublisherDirectory) -> None:
        super().__init__(address)
        self.directory = directory
        self.publishers = address.known_publishers  # known in the network
        self.by_need: ByNeed | None = None  # of a topic where some need a value: the others are asked
        # tokens that wait to be told to an ingress: accepted, or rejected by so many
        self.accepts: dict[str, list[Rejection]] = {}
        self.sync_accepts: dict[tuple[str, m.SubscriptionName, Term], list[Rejection]] = {}

    def handlers(self) -> m.Handlers:
        return {
            m.Sync: self.on_sync,
            Settle: self.on_settle,
            m.SettleTags: self.on_settle_tags,
            m.Flush: self.on_flush,
        }

    def owes_all(self, subscriber: Subscriber) -> None:
        """A subscription of a topic is attached here."""
        if self.by_need is None and needs_of(subscriber) is not None:
            others = [each for each in self.subscribers.values() if each is not subscriber]
            self.by_need = ByNeed(others, self.ready, self.log.end)
        if self.by_need is not None:
            self.by_need.enter(subscriber)

    def owes_no_more(self, subscriber: Subscriber) -> None:
        """It is no longer."""
        if self.by_need is not None:
            self.by_need.leave(subscriber)
            if not self.by_need:
                self.by_need = None

    def rest(self, subscriber: Subscriber) -> None:
        """It may have nothing to do until a message comes that it may want."""
        if self.by_need is not None:
            self.by_need.rest(subscriber)

    def wake(self, subscriber: Subscriber) -> None:
        """It may have something to do."""
        if self.by_need is not None:
            self.by_need.wake(subscriber)

    def is_present_ingress(self, publisher: PublisherEntry, sender: str, term: Term) -> bool:
        """Says whether the sender is the publisher's ingress, under that term (protocol 6.2)."""
        return publisher.home == sender and publisher.term == term

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
                    self.accept_sync(sender, message.name, message.subscription_term, start, stop, 0)
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
        self.reception.take_entries(subscriber, sender, message)
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

    def deliver_entry(
        self, subscriber: Subscriber, sender: str, position: int, token: bool, tag: bytes, payload: bytes | None,
        message_format: int,
    ) -> None:  # fmt: skip
        delivery, unwanted = subscriber.irregular.find(tag), None
        if delivery is None:
            if subscriber.selecting is not None and payload is not None:
                unwanted = subscriber.selecting.outcome_of(payload, message_format)
            if unwanted is not None or (payload is None and not token):  # protocol 6.4.5, 7.5: freed early
                delivery = Irregular(tag, State.ACCEPTED)
                delivery.rejected = isinstance(unwanted, Refusal)
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
                if isinstance(unwanted, Refusal):
                    tell_of(self, subscriber, [], [delivery], unwanted)
                rejected = int(delivery.rejected)
                self.accept_sync(sender, subscriber.name, subscriber.term, position, position + 1, rejected)
            else:
                delivery.token = True

    def _is_open(self, subscriber: Subscriber, delivery: Irregular) -> bool:
        return subscriber.passage is not None and subscriber.passage.is_open(delivery)

    # ----------------------------------------------------------------------------------------------------- dispositions

    def disposition(
        self, subscriber: Subscriber, first: int, last: int, outcome: Outcome, settled: bool, said: bool = False
    ) -> None:
        """The subscriber's outcome for the delivery-ids first..last (protocol 6.3, 6.4, 6.9). said: it has said
        something beside it."""
        partial = subscriber.passage.partial if subscriber.passage is not None else None
        if partial is not None and first <= partial.delivery_id <= last:  # protocol 6.12: it counts at the end
            partial.early = (outcome, settled, said)
            for low, high in ((first, partial.delivery_id - 1), (partial.delivery_id + 1, last)):
                if low <= high:
                    self.disposition(subscriber, low, high, outcome, settled, said)
            return
        if outcome is not ACCEPTED and outcome is not REJECTED:
            self.reception.given_back(subscriber, first, last, outcome, settled, said)
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
                for start, stop in accepted:
                    self.counters.subscriptions.accepted += stop - start
            self.reception.release_tokens(accepted, subscriber)
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
                self.counters.subscriptions.rejected += 1
            else:
                self.counters.subscriptions.accepted += 1
            self._release_tokens_of(subscriber, delivery)
        if delivery.delivery_id >= 0 and (settled or subscriber.settles_on_accept):
            if not settled:
                subscriber.port.settle(delivery.delivery_id, delivery.delivery_id)
            subscriber.irregular.clear_delivery_id(delivery)

    def _release_tokens_of(self, subscriber: Subscriber, delivery: Irregular) -> None:
        if delivery.position >= 0:
            removed = subscriber.owes.remove(delivery.position, delivery.position + 1)
            if delivery.rejected:
                self.log.reject(removed)
            self.reception.release_tokens(removed, subscriber)
        if delivery.token:
            delivery.token = False
            assert delivery.ingress is not None
            position = delivery.ingress_position
            rejected = int(delivery.rejected)
            self.accept_sync(delivery.ingress, subscriber.name, subscriber.term, position, position + 1, rejected)

    def _reject(self, subscriber: Subscriber, ranges: list[Range]) -> None:
        self.log.reject(ranges)
        for start, stop in ranges:
            subscriber.sent.rejected.add(start, stop)
            self.counters.subscriptions.rejected += stop - start

    def refuse(self, subscriber: Subscriber, ranges: list[Range], singles: list[Irregular], refusal: Refusal) -> None:
        """This router rejects log positions, which the subscription owes no more, and deliveries that it was sent."""
        tell_of(self, subscriber, ranges, singles, refusal)
        self.log.reject(ranges)

    # ------------------------------------------------------------------------------------------------------- acceptance

    def accepted(self, ranges: list[Range]) -> list[tuple[str, list[Rejection]]]:
        """Nobody here owes these positions any more: their tokens are answered. Returns what ingresses are told next
        (protocol 6.3)."""
        log, answers = self.log, []
        for first, last in ranges:
            log.open.remove(first, last)
            for run, low, high in log.runs.pieces(first, last):
                start, offset = run.start + low, run.position - run.start
                told = [(run.position + low, run.position + high, 0)]
                if log.rejected:
                    positions = range(start, run.start + high)
                    told = [(at + offset, at + offset + 1, log.rejected.pop(at, 0)) for at in positions]
                if run.ingress != self.core.name:
                    log.segments.free(start, run.start + high)
                answers.append((run.ingress, told))
        return answers

    def accept_sync(
        self, ingress: str, name: m.SubscriptionName, term: Term, start: int, stop: int, rejected: int
    ) -> None:
        self.sync_accepts.setdefault((ingress, name, term), []).append((start, stop, rejected))
        self.core.agenda.touch(self.address)

    def tell_accepted(self) -> None:
        """Tells which entries of SYNC, and which assigned deliveries, have been accepted."""
        sync_accepts, self.sync_accepts = self.sync_accepts, {}
        for (ingress, name, term), pending in sync_accepts.items():
            ranges = pending if len(pending) == 1 else gathered(pending)
            self.core.post.send_to(ingress, m.AcceptSync(self.address.name, name, term, ranges))

    def router_down(self, router: str) -> None:
        """Drops acceptances that wait for that router: its session is over (protocol 8.6)."""
        self.accepts.pop(router, None)
        for key in [key for key in self.sync_accepts if key[0] == router]:
            del self.sync_accepts[key]

    # --------------------------------------------------------------------------------------------------------- settling

    def on_settle(self, sender: str, message: Settle) -> None:
        """An ingress settles by position, which every DATA and SYNC entry carries (protocol 6.6, 9)."""
        holders = self.subscribers.values() if self.by_need is None else self.by_need.awake
        runs, still_open = self.log.by_ingress.get(sender), self.log.open
        for start, stop in message.ranges:
            for run, a, b in runs.pieces(start, stop) if runs is not None else ():
                low, high = run.start + a, run.start + b
                early = still_open.starts and still_open.starts[0] < high and still_open.overlap(low, high)
                freed = []
                for subscriber in holders:
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
                self.log.forget(run, low, high)
                for subscriber in freed:
                    subscriber.pump()
            for subscriber in holders:
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
        if publisher is None or not self.is_present_ingress(publisher, sender, message.term):
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
        if publisher is None or not self.is_present_ingress(publisher, sender, message.term):
            return
        for subscriber in list(self.subscribers.values()):
            synced = subscriber.synced.get(message.publisher) == (sender, message.term)
            if synced or not subscriber.has_link:
                for delivery in list(subscriber.irregular.by_tag.get(message.publisher, {}).values()):
                    bound = delivery.position >= 0 or delivery.ingress is not None
                    if not bound and delivery.within(message.incarnation):
                        self.settle_irregular(subscriber, delivery)
                subscriber.pump()

    def settle_irregular(self, subscriber: Subscriber, delivery: Irregular) -> None:
        """Settles one irregular delivery: its tokens are released, and it leaves the queue, is resumed as settled, or
        the client is told (protocol 10.1)."""
        if delivery.state is State.DECLINED:  # it has been settled with its consumer already (protocol 16.5)
            self.forget(subscriber, delivery)
            return
        self.counters.subscriptions.settled += 1
        self._release_tokens_of(subscriber, delivery)
        in_place = delivery.position in subscriber.irregular.filled
        if subscriber.partial is not None and subscriber.partial.delivery is delivery:
            assert subscriber.passage is not None
            subscriber.passage.abort()
            delivery.state = State.REMOVED
        delivery_id = delivery.delivery_id
        self.forget(subscriber, delivery)
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

    def forget(self, subscriber: Subscriber, delivery: Irregular) -> None:
        """Nothing is known of it any more."""
        subscriber.remove(delivery)
        publisher = self.publishers.get(delivery.publisher_id)
        if publisher is not None:
            subscriber.classify(publisher)

    def check_invariants(self) -> None:
        core, publishers, subscribers = self.core, self.publishers, self.subscribers
        self.log.check_invariants()
        for name, subscriber in subscribers.items():
            assert subscriber.name == name
            subscriber.check_invariants()
            routers = (*subscriber.handshake.joined, *subscriber.handshake.missing)
            assert all(router == core.name or router in core.members.up for router in routers)
            for publisher_id, (home, term) in subscriber.synced.items():
                entry = publishers[publisher_id]
                assert (entry.home, entry.term) == (home, term), "synced with a router that is not the ingress"
            for publisher_id in subscriber.irregular.by_tag:
                assert publisher_id in publishers, "a delivery of a publisher that is forgotten"
        if self.by_need is not None:
            self.by_need.check_invariants(subscribers.values(), self.log.end)
        owed = union([each.owes for each in subscribers.values()]).overlap(0, self.log.end)
        assert owed == list(self.log.open), f"owed {owed}, open {self.log.open}"
        assert all(subscribers.get(each.name) is each for each in self.ready)
        assert all(ingress == core.name or ingress in core.members.up for ingress in self.accepts)
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


def gathered(ranges: list[Rejection]) -> list[Rejection]:
    """Returns them with those joined that touch and that nobody has rejected."""
    accepted = IntervalSet((start, stop) for start, stop, rejected in ranges if not rejected)
    return [*((start, stop, 0) for start, stop in accepted), *(each for each in ranges if each[2])]
