"""Deliveries on their way to the subscriptions of one address: what comes in, what they make of it, what is told.

PROTOCOL 6.2 to 6.4, 6.9, 7.5, 8.5, 10.1; in ranges as PROTOCOL 9 says.  What arrives goes into one log; a local
subscription accepts positions of it, and a position that no local subscription owes any more is answered by ACCEPT.
Subscriptions come and go in `router.egress`, which builds on this; one of them is `router.subscriber`, the log is
`router.arrivals`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router import messages as m
from router.arrivals import ArrivalRun, Arrivals
from router.directory import PublisherEntry, incarnation_of
from router.intervals import IntervalSet, Range
from router.irregular import Irregular, Resume, State
from router.ports import Outcome, Term
from router.subscriber import PreSettled, Subscriber

if TYPE_CHECKING:
    from router.address import Address


class Acceptance:
    """Ranges of tokens that wait to be told to an ingress: accepted, and rejected by so many."""

    __slots__ = ("accepted", "rejected")

    def __init__(self) -> None:
        self.accepted = IntervalSet()
        self.rejected: list[m.Rejection] = []

    def ranges(self) -> list[m.Rejection]:
        return [(start, stop, 0) for start, stop in self.accepted] + self.rejected


class Deliveries:
    """What flows to the subscriptions of one address at this router."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.core = address.core
        self.subscribers: dict[m.SubscriptionName, Subscriber] = {}
        self.ready: dict[Subscriber, None] = {}  # those with credit, as far as known
        self.log = Arrivals(self.core.name)
        self.blocker: Subscriber | None = None  # who kept the last acceptance from being complete
        self.accepts: dict[str, Acceptance] = {}
        self.sync_accepts: dict[tuple[str, m.SubscriptionName, Term], Acceptance] = {}

    # --------------------------------------------------------------------------------------------------- DATA: 6.2, 6.9

    def on_data(self, sender: str, message: m.Data) -> None:
        publisher = self.address.publishers.get(message.publisher)
        if publisher is None or not self._flows(publisher, sender, message.term):
            if publisher is not None and publisher.term > message.term:
                self.address.send_stale(sender, publisher, message.term)
            return
        if message.settled:
            self._take_presettled(publisher, message)
            return
        if not self.subscribers:  # 6.2: nobody has to accept
            self._pending(sender).accepted.add(message.position, message.position + len(message.tags))
            self.core.touch(self.address)
            return
        start, stop = self.log.append(sender, message)
        if sender != self.core.name:
            self.core.meter += self.log.segments.size(start, stop)
        if publisher.special:
            for link in list(publisher.special):
                self._take_specially(link, sender, start, message)
        if publisher.special:
            self.release([(start, stop)])  # 6.2: if nobody has to accept, ACCEPT at once
        cache: dict[object, object] = {}
        for link in list(self.ready):
            link.pump(cache)

    def _flows(self, publisher: PublisherEntry, sender: str, term: Term) -> bool:
        """6.2: fencing by term: is this the publisher's ingress?"""
        return publisher.home == sender and publisher.term == term

    def _take_specially(self, link: Subscriber, sender: str, start: int, message: m.Data) -> None:
        """A subscription that is not synced, or holds deliveries of this publisher that are found by tag."""
        if link.synced.get(message.publisher) != (sender, message.term):
            link.owes.remove(start, start + len(message.tags))
            return
        known = link.irregular.get(message.publisher)
        if not known:
            return
        for i, tag in enumerate(message.tags):
            delivery = known.get(tag)
            if delivery is not None:
                self._bind(link, delivery, start + i, message.payloads[i], message.message_format)

    def _bind(self, link: Subscriber, delivery: Irregular, position: int, payload: bytes, message_format: int) -> None:
        """DATA brings a delivery that the subscription knows: add the token, or only note the position."""
        link.unbind(delivery)
        delivery.position = position
        link.bound[position] = delivery
        link.skip.add(position, position + 1)
        if delivery.state is State.ACCEPTED:
            link.owes.remove(position, position + 1)
            if delivery.rejected:
                self.log.rejected[position] = self.log.rejected.get(position, 0) + 1
        elif link.fill(delivery, payload, message_format):
            link.slots[position] = delivery

    def _take_presettled(self, publisher: PublisherEntry, message: m.Data) -> None:
        """At most once: a bounded queue per subscription, dropped oldest first and counted (6.9)."""
        core = self.core
        size = sum(map(len, message.payloads))
        for link in self.subscribers.values():
            if link.synced.get(message.publisher) != (publisher.home, message.term):
                continue
            link.presettled.append(PreSettled(self.log.end, message.tags, message.payloads, message.message_format))
            link.presettled_changes(len(message.tags), size)
            link.pump()
            while link.presettled_count > core.config.presettled_queue:
                link.drop_presettled(link.presettled_count - core.config.presettled_queue)
            while link.presettled_count > 1 and link.presettled_size > core.fair_share(core.presettled):
                link.drop_presettled(max(link.presettled_count // 8, 1))

    # -------------------------------------------------------------------------------------------------------- SYNC: 7.5

    def on_sync(self, sender: str, message: m.Sync) -> None:
        address = self.address
        known = address.publishers.get(message.publisher)
        if known and self._sync_is_stale(known, sender, message):
            address.send_stale(sender, known, message.term)
            return
        link = self.subscribers.get(message.name)
        if link is None or link.term != message.subscription_term:
            for entries in message.entries:  # the ORPHAN or LEAVE that went before has put them back
                for start, stop in entries.owed:
                    self._accept_sync(sender, message.name, message.subscription_term, start, stop, 0)
            return
        if known is None or known.term < message.term:
            known = address.learn(message.publisher, message.incarnation, message.term, sender, self.core.now, True)
        self._check_not_synced(link, message)
        link.synced[message.publisher] = (sender, message.term)
        if message.expected is not m.UNKNOWN:
            listed = {tag for entries in message.entries for tag in entries.tags}
            listed.update(message.expected)
            for delivery in list(link.irregular.get(message.publisher, {}).values()):
                if delivery.tag not in listed and self._speaks_for(message.incarnation, delivery):
                    self.settle_single(link, delivery)
        for entries in message.entries:
            self._deliver_entries(link, sender, entries)
        link.classify(known)
        link.pump()

    def _speaks_for(self, incarnation: int, delivery: Irregular) -> bool:
        """5.5, 7.5, 8.5: what an ingress leaves out is settled, but not what a later life of the publisher has sent,
        of which this one knows nothing: two processes of one identity, and the router of the later one has died."""
        return incarnation_of(delivery.tag) <= incarnation

    def _check_not_synced(self, link: Subscriber, message: m.Sync) -> None:
        if message.publisher in link.synced:
            raise m.PeerProtocolError("SYNC for a stream that flows already")

    def _sync_is_stale(self, known: PublisherEntry, sender: str, message: m.Sync) -> bool:
        return (
            known.term > message.term
            or (known.term == message.term and known.home != sender)
            or known.incarnation > message.incarnation
        )

    def _deliver_entries(self, link: Subscriber, sender: str, entries: m.Entries) -> None:
        owed = IntervalSet(entries.owed)
        for i, (tag, payload) in enumerate(zip(entries.tags, entries.payloads, strict=True)):
            position = entries.position + i
            self._deliver_entry(link, sender, position, position in owed, tag, payload, entries.message_format)

    def _deliver_entry(
        self,
        link: Subscriber,
        sender: str,
        position: int,
        token: bool,
        tag: bytes,
        payload: bytes | None,
        message_format: int,
    ) -> None:
        delivery = link.find(tag)
        if delivery is None:
            if payload is None and not token:  # 9: freed early: accepted, not listed, never sent
                delivery = Irregular(tag, State.ACCEPTED)
            else:
                delivery = Irregular(tag, State.QUEUED, payload, message_format)
                link.line.append(delivery)
            link.enter(delivery)
        else:
            link.unbind(delivery)
            if link.fill(delivery, payload, message_format):
                link.line.append(delivery)
            elif delivery.resume is Resume.PLACEHOLDER and payload is None and not token:
                self.settle_single(link, delivery)  # 9: done, and its payload is nowhere
                return
        delivery.ingress = sender
        delivery.ingress_position = position
        link.by_sync.setdefault(sender, {})[position] = delivery
        if token:
            if delivery.state is State.ACCEPTED:
                rejected = int(delivery.rejected)
                self._accept_sync(sender, link.name, link.term, position, position + 1, rejected)
            else:
                delivery.token = True

    # -------------------------------------------------------------------------------------- dispositions: 6.3, 6.4, 6.9

    def disposition(self, link: Subscriber, first: int, last: int, outcome: Outcome, settled: bool) -> None:
        """The subscriber's outcome for the delivery-ids first..last."""
        if outcome is Outcome.RELEASED:
            self._released(link, first, last, settled)
            return
        accepted: list[Range] = []
        plain = outcome is Outcome.ACCEPTED and not (settled or link.quick or link.bound)
        for run, low, high in link.sent_ids.pieces(first, last + 1):
            if plain:
                accepted += link.owes.remove(run.start + low, run.start + high)
                continue
            for start, stop in link.held.overlap(run.start + low, run.start + high):
                removed = link.owes.remove(start, stop)
                if outcome is Outcome.REJECTED:
                    self._reject(link, removed)
                accepted += removed
                if settled:
                    link.gone.add(start, stop)
                elif link.quick:
                    link.settle_wire([(start, stop)])
                    link.gone.add(start, stop)
        if accepted:
            self.release(accepted)
        if link.ids:
            for delivery in self._single(link, first, last):
                self.accept_single(link, delivery, outcome is Outcome.REJECTED, settled)

    def _single(self, link: Subscriber, first: int, last: int) -> list[Irregular]:
        if last - first < len(link.ids):
            return [link.ids[i] for i in range(first, last + 1) if i in link.ids]
        return [link.ids[i] for i in sorted(link.ids) if first <= i <= last]

    def accept_single(self, link: Subscriber, delivery: Irregular, rejected: bool, settled: bool) -> None:
        """6.3 for one delivery: state accepted; release its tokens."""
        if delivery.state is State.SENT:
            delivery.state = State.ACCEPTED
            delivery.payload = None
            delivery.rejected = rejected
            self._release_tokens(link, delivery)
        if delivery.delivery_id >= 0 and (settled or link.quick):
            if not settled:
                link.port.settle(delivery.delivery_id, delivery.delivery_id)
            link.unnumber(delivery)

    def _release_tokens(self, link: Subscriber, delivery: Irregular) -> None:
        if delivery.position >= 0:
            removed = link.owes.remove(delivery.position, delivery.position + 1)
            if delivery.rejected:
                for position, _ in removed:
                    self.log.rejected[position] = self.log.rejected.get(position, 0) + 1
            self.release(removed)
        if delivery.token:
            delivery.token = False
            assert delivery.ingress is not None
            position = delivery.ingress_position
            rejected = int(delivery.rejected)
            self._accept_sync(delivery.ingress, link.name, link.term, position, position + 1, rejected)

    def _reject(self, link: Subscriber, ranges: list[Range]) -> None:
        for start, stop in ranges:
            link.refused.add(start, stop)
            for position in range(start, stop):
                self.log.rejected[position] = self.log.rejected.get(position, 0) + 1

    def _released(self, link: Subscriber, first: int, last: int, settled: bool) -> None:
        """6.4: the same subscription gets it again, up to max_redeliveries."""
        if link.settled_mode:
            return
        if not self.address.config.max_redeliveries:
            self.disposition(link, first, last, Outcome.REJECTED, settled)
            return
        singles = self._single(link, first, last) if link.ids else []
        for run, low, high in link.sent_ids.pieces(first, last + 1):
            for a, b in link.held.overlap(run.start + low, run.start + high):
                for start, stop in link.owes.overlap(a, b):
                    self._make_again(link, start, stop, settled)
        for delivery in singles:
            if delivery.state is not State.SENT:
                continue
            if delivery.deliveries >= self.address.config.max_redeliveries:
                self.accept_single(link, delivery, True, settled)
                continue
            if not settled:
                link.port.settle(delivery.delivery_id, delivery.delivery_id)
            link.unnumber(delivery)
            link.release(delivery)
        link.pump()

    def _make_again(self, link: Subscriber, start: int, stop: int, settled: bool) -> None:
        first, _ = link.ids_of([(start, stop)])[0]
        if not settled:
            link.settle_wire([(start, stop)])  # the old delivery is settled first
        for delivery in self._take_out(link, start, stop, first):
            position = start + delivery.order - first
            delivery.position = position
            link.bound[position] = delivery
            link.release(delivery)
            link.classify(self.address.publishers[delivery.publisher])

    def _take_out(self, link: Subscriber, start: int, stop: int, first_id: int) -> list[Irregular]:
        """Sent log positions become single deliveries; what they owe stays."""
        tags = self.log.segments.tags(start, stop)
        payloads = self.log.segments.payloads(start, stop)
        link.held.remove(start, stop)
        found: list[Irregular] = []
        for run, low, high in self.log.runs.pieces(start, stop):
            for position in range(run.start + low, run.start + high):
                i = position - start
                delivery = Irregular(tags[i], State.SENT, payloads[i], run.message_format)
                delivery.order = first_id + i
                link.enter(delivery)
                found.append(delivery)
        return found

    # ----------------------------------------------------------------------------------------------- acceptance: 6.3, 9

    def release(self, ranges: list[Range]) -> None:
        """Open positions that a subscription has just ceased to owe: those that none owes any more are answered."""
        left = ranges
        if self.blocker is not None:  # last blocker first
            left = self.blocker.owes.missing(left)
        if not left:
            return
        for link in self.subscribers.values():
            left = link.owes.missing(left)
            if not left:
                self.blocker = link
                return
        for run, start, stop in self.log.accepted(left):
            self._accept(run, start, stop)
        self.core.touch(self.address)

    def _accept(self, run: ArrivalRun, start: int, stop: int) -> None:
        pending = self._pending(run.ingress)
        offset = run.position - run.start
        if self.log.rejected:
            for position in range(start, stop):
                rejected = self.log.rejected.pop(position, 0)
                if rejected:
                    pending.rejected.append((position + offset, position + offset + 1, rejected))
                else:
                    pending.accepted.add(position + offset, position + offset + 1)
        else:
            pending.accepted.add(start + offset, stop + offset)
        self.core.meter -= self.log.free(run, start, stop)

    def _pending(self, ingress: str) -> Acceptance:
        pending = self.accepts.get(ingress)
        if pending is None:
            pending = self.accepts[ingress] = Acceptance()
        return pending

    def _accept_sync(
        self, ingress: str, name: m.SubscriptionName, term: Term, start: int, stop: int, rejected: int
    ) -> None:
        key = (ingress, name, term)
        pending = self.sync_accepts.get(key)
        if pending is None:
            pending = self.sync_accepts[key] = Acceptance()
        if rejected:
            pending.rejected.append((start, stop, rejected))
        else:
            pending.accepted.add(start, stop)
        self.core.touch(self.address)

    def flush(self) -> None:
        """9: pending ACCEPT ranges go out."""
        if self.accepts:
            accepts, self.accepts = self.accepts, {}
            for ingress, pending in accepts.items():
                self.core.send_to(ingress, m.Accept(self.address.name, pending.ranges()))
        if self.sync_accepts:
            sync_accepts, self.sync_accepts = self.sync_accepts, {}
            for (ingress, name, term), pending in sync_accepts.items():
                self.core.send_to(ingress, m.AcceptSync(self.address.name, name, term, pending.ranges()))

    # ---------------------------------------------------------------------------------------------- settling: 10.1, 6.6

    def on_settle(self, sender: str, message: m.Settle) -> None:
        """SETTLE works by position: every DATA and SYNC entry carries one (9)."""
        for start, stop in message.ranges:
            for run, low, high in self.log.local(sender, start, stop):
                early = self.log.open.overlap(low, high)
                for link in self.subscribers.values():
                    if early:
                        link.owes.remove(low, high)
                    link.settle_positions(low, high)
                    if link.bound:
                        self._settle_bound(link, low, high)
                self.core.meter -= self.log.forget(run, low, high)
            for link in self.subscribers.values():
                if link.by_sync:
                    self._settle_entries(link, sender, start, stop)

    def _settle_bound(self, link: Subscriber, start: int, stop: int) -> None:
        for delivery in [d for at, d in sorted(link.bound.items()) if start <= at < stop]:
            self.settle_single(link, delivery)
        link.pump()

    def _settle_entries(self, link: Subscriber, sender: str, start: int, stop: int) -> None:
        entries = link.by_sync.get(sender)
        if entries:
            positions = range(start, stop) if stop - start < len(entries) else sorted(entries)
            for position in positions:
                if start <= position < stop and position in entries:
                    self.settle_single(link, entries[position])
            link.pump()

    def on_settle_tags(self, sender: str, message: m.SettleTags) -> None:
        """6.6: expected tags that will not come again."""
        publisher = self.address.publishers.get(message.publisher)
        if publisher is None or not self._flows(publisher, sender, message.term):
            return
        for link in list(self.subscribers.values()):
            for tag in message.tags:
                delivery = link.find(tag)
                if delivery is not None:
                    self.settle_single(link, delivery)
            link.pump()

    def on_flush(self, sender: str, message: m.Flush) -> None:
        """8.5: settle the publisher's deliveries that are not bound to a position of its ingress."""
        publisher = self.address.publishers.get(message.publisher)
        if publisher is None or not self._flows(publisher, sender, message.term):
            return
        for link in list(self.subscribers.values()):
            if link.synced.get(message.publisher) == (sender, message.term):
                for delivery in list(link.irregular.get(message.publisher, {}).values()):
                    bound = delivery.position >= 0 or delivery.ingress is not None
                    if not bound and self._speaks_for(message.incarnation, delivery):
                        self.settle_single(link, delivery)
                link.pump()

    def settle_single(self, link: Subscriber, delivery: Irregular) -> None:
        """10.1."""
        self._release_tokens(link, delivery)
        in_place = delivery.position in link.slots
        delivery_id = delivery.delivery_id
        link.remove(delivery)
        publisher = self.address.publishers.get(delivery.publisher)
        if publisher is not None:
            link.classify(publisher)
        if delivery.state in (State.QUEUED, State.AGAIN):
            delivery.state = State.GONE
        elif not link.answered:
            self._leave_out(delivery)
        elif delivery.resume is Resume.SETTLED:
            pass  # it waits to be resumed as such
        elif delivery.resume is not Resume.NOTHING:
            if delivery.resume is Resume.PLACEHOLDER or in_place:
                link.resumes.append(delivery)
            delivery.resume = Resume.SETTLED
        elif delivery_id >= 0:
            link.port.settle(delivery_id, delivery_id)
        elif link.incomplete and delivery.from_map:  # 7.7: not listed, so without an id here; nobody would know later
            delivery.resume = Resume.SETTLED
            link.resumes.append(delivery)

    def _leave_out(self, delivery: Irregular) -> None:
        """Not yet listed: it is left out of the map, and waits in vain for its turn where a SYNC has filled it."""
        delivery.resume = Resume.NOTHING
