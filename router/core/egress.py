"""Subscriptions of one address attach here, are answered, resume, and go (protocol 7.1, 7.2, 7.6, 8.1, 8.2).

It also does what follows for them when a publisher's ingress is lost, or another one claims it (protocol 5.5, 10.3).
What flows to them is in `router.core.deliveries`; what every router knows of them is in
`router.core.subscription_directory`. One subscription's state is in `router.core.subscriber`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.counters import BROKEN
from router.core.deliveries import Deliveries
from router.core.directory import SubscriptionEntry
from router.core.irregular import Entered, Irregular, Resume, State
from router.core.keeping import KeptLink
from router.core.kept_maps import Kept
from router.core.large import STREAM_IDLE_S
from router.core.map_parts import enter
from router.core.naming import INCARNATIONS, NO_TERM, incarnation_of
from router.core.ports import MapState, SubscriberAnswer, SubscriberAttach, SubscriberPort, Term
from router.core.queue.reception import QueueReception
from router.core.subscriber import BEYOND_ALL, BaseEgress, Subscriber
from router.core.subscriber_handshake import (
    ALL_LISTED,
    DROP,
    JOINED,
    LOST,
    MARK,
    REFUSE,
    SOME_LISTED,
    TOLD,
    UNDECIDED_LEFT,
)
from router.names import (
    DETACH_FORCED,
    EPOCH,
    STOLEN,
    SUBSCRIPTION_BROKEN,
    SUBSCRIPTION_EXISTS,
    SUBSCRIPTION_REMOVED,
    SUBSCRIPTION_UNDECLARED,
)
from router.policies import owner_of

LONGEST_S: Final = 1e9  # that a message between routers can say: not known (protocol 12.2)
MISSED: Final = "deliveries may have been accepted without this subscription"
WHY: Final = {
    STOLEN: "the subscription has attached elsewhere",
    DETACH_FORCED: "a router that could not be asked says since when it knows this subscription: attach again",
    SUBSCRIPTION_REMOVED: "the topology file does not declare this subscription any more",
}


class Egress(BaseEgress):
    """Subscriptions of one address at this router."""

    def __init__(
        self, address: BaseAddress, deliveries: Deliveries, kept: Kept, consumers: QueueReception | None
    ) -> None:
        """consumers: of a queue."""
        super().__init__(deliveries)
        self.address = address
        self.core = address.core
        self.deliveries = deliveries
        self.kept = kept
        self.consumers = consumers

    def handlers(self) -> m.Handlers:
        return {m.Joined: self.on_joined}

    # -------------------------------------------------------------------------------------------------------- attaching

    def attach(self, port: SubscriberPort, attach: SubscriberAttach) -> None:
        """A subscription attaches: its map is entered, and all routers are told. It is answered when they have
        JOINED (protocol 7.2)."""
        core, address = self.core, self.address
        name = (attach.container, attach.name)
        if attach.keeps_map and self.kept.recalls(port, attach):
            return
        if not core.recovery.declarations.may_attach(address.name, name):
            port.refuse(SUBSCRIPTION_UNDECLARED, self._undeclared(name), {})
            core.agenda.touch(address)  # the address may be empty now
            return
        entry = address.known_subscriptions.get(name)
        if entry is not None and self._is_older(entry, attach.only_new):
            port.refuse(SUBSCRIPTION_EXISTS, self._exists(entry), {})
            return
        if attach.epoch is not None and entry and entry.term >= (attach.epoch, ""):
            self._refuse_stolen(port, entry.term[0])
            return
        if attach.epoch is not None:
            later = core.memory.map_parts.later((address.name, *name), attach.epoch)
            if later is not None:
                self._refuse_stolen(port, later)
                return
        presented, entered = attach.unsettled, attach.entered
        if attach.incomplete or core.memory.map_parts:  # protocol 7.7: all parts are one map
            presented = core.memory.map_parts.collect(
                (address.name, *name), attach.epoch, presented, attach.incomplete, core.now, owner_of(attach.container)
            )
            if attach.incomplete:
                port.answer_map_part()
                return
            if presented is not attach.unsettled:
                entered = None
        if entered is None:
            entered = {}
            enter((presented or {}).items(), brought_epoch=attach.epoch is not None, into=entered)
        older = self.subscribers.get(name)
        if older:
            self.drop(older, STOLEN, None)
            core.drain()  # protocol 3.3: messages to oneself go before the rest
            entry = address.known_subscriptions.get(name)
        if attach.epoch is not None:
            term: Term = (attach.epoch, "")
        elif isinstance(port, KeptLink):
            term = port.term
        else:
            term = (core.choose_number(entry.term[0] if entry else 0), core.name)
        subscriber = Subscriber(self.deliveries, port, attach, term, entry is not None and entry.declared)
        subscriber.handshake.brought_map = presented is not None
        self._decide_kind(subscriber, attach, presented is not None and len(presented) > 0)
        self.subscribers[name] = subscriber
        self.deliveries.reception.attached(subscriber)
        self.kept.subscribers[port] = subscriber
        for special in self.special.values():
            special[subscriber] = None
        self._enter_map(subscriber, entered)
        attach.unsettled = attach.entered = None  # the port keeps the attach
        attach.timeout_s = subscriber.wait.granted_s
        subscriber.handshake.missing = core.kinds.everybody(address.name)
        for router in subscriber.handshake.missing:
            self._send_join(subscriber, router)

    def _undeclared(self, name: m.SubscriptionName) -> str:
        container, link = (each if len(each) <= 64 else f"{each[:64]}..." for each in name)
        return (
            f"address {self.address.name[:64]} takes declared subscriptions only: add {{container: {container}, name: "
            f"{link}}} to its subscriptions in the topology file, or write other_subscriptions: allow"
        )

    def _is_older(self, entry: SubscriptionEntry, only_new: int | None) -> bool:
        """Says whether a client that asks for a new subscription would take the place of this one (protocol 7.1)."""
        if only_new is None or entry.term == NO_TERM:  # a declared one that has never attached is new, too
            return False
        expired = not entry.declared and entry.home is None and entry.age(self.core.now) > entry.timeout_s
        return not expired and (entry.born or entry.term)[0] < only_new

    def _exists(self, entry: SubscriptionEntry) -> str:
        container, link = (each if len(each) <= 64 else f"{each[:64]}..." for each in entry.name)
        where = "is away, and waited for" if entry.home is None else f"is attached at router {entry.home}"
        return f"there is a subscription {container}/{link} of {self.address.name[:64]} already, which {where}"

    def _refuse_stolen(self, port: SubscriberPort, epoch: int) -> None:
        port.refuse(STOLEN, "the subscription has attached with a later epoch", {EPOCH: epoch})

    def _decide_kind(self, subscriber: Subscriber, attach: SubscriberAttach, resumes: bool) -> None:
        """The attach is fresh if the client created the subscription by it, resume if the client says that it has
        attached before, else either (protocol 7.1)."""
        handshake = subscriber.handshake
        handshake.history = subscriber.handshake.brought_map
        if attach.born is not None:
            subscriber.born = (attach.born, "")
        if attach.born is not None and attach.born == attach.epoch:
            handshake.kind = m.JoinKind.FRESH
        elif attach.born is not None or resumes:
            handshake.kind = m.JoinKind.RESUME
            handshake.history = not attach.only_in_time
        else:
            handshake.kind = m.JoinKind.EITHER

    def _enter_map(self, subscriber: Subscriber, entered: Entered) -> None:
        """Takes over what the client's map says, but for what is superseded (protocol 7.2)."""
        if self.consumers is not None:
            entered = self.consumers.held(subscriber, entered)
        for prefix, deliveries in entered.items():
            if not self._is_superseded(prefix):
                known = subscriber.irregular.by_tag.get(prefix[:8])
                if known is None:
                    subscriber.irregular.by_tag[prefix[:8]] = deliveries
                else:
                    known.update(deliveries)

    def _is_superseded(self, prefix: bytes) -> bool:
        """Says whether deliveries of this publisher and incarnation are settled, or can be nobody's. Learns a publisher
        that is not known here."""
        incarnation = incarnation_of(prefix)
        if incarnation >= INCARNATIONS:
            return True
        publishers = self.deliveries.directory
        return publishers.is_over(publishers.learn_from_map(prefix[:8], incarnation), incarnation)

    def _send_join(self, subscriber: Subscriber, router: str, *, heard: bool = False) -> None:
        kind, history = self._how_to_join(subscriber)
        if subscriber.handshake.answered and kind is m.JoinKind.RESUME and self.core.speaks(router) >= m.since(m.Told):
            kind = m.JoinKind.STAYED
        self.core.post.send_to(
            router,
            m.Join(
                self.address.name,
                subscriber.name,
                subscriber.born,
                subscriber.term,
                kind,
                history,
                subscriber.wait.as_orphan(),
                heard,
                self._life(subscriber),
                subscriber.data,
            ),
        )
        if kind is m.JoinKind.STAYED and subscriber.handshake.state is TOLD:
            self.core.post.send_to(router, m.Told(self.address.name, subscriber.name, subscriber.term))

    def _life(self, subscriber: Subscriber) -> float:
        """Returns how long ago the subscription was created, at most (protocol 7.2)."""
        if subscriber.handshake.kind is m.JoinKind.FRESH and not subscriber.handshake.answered:
            return 0.0
        entry = self.address.known_subscriptions.get(subscriber.name)
        if entry is None or (subscriber.born is not None and entry.born != subscriber.born):
            return LONGEST_S  # the entry is of another subscription: a late attach made it
        return min(LONGEST_S, self.core.now - entry.created_at)

    def _how_to_join(self, subscriber: Subscriber) -> tuple[m.JoinKind, bool]:
        """Returns the kind of a JOIN and whether it asks for history: after the answer always resume, with history
        (protocol 4.2)."""
        if subscriber.handshake.answered:
            return m.JoinKind.RESUME, True
        return subscriber.handshake.kind, subscriber.handshake.history

    def on_joined(self, sender: str, message: m.Joined) -> None:
        """A router knows of the subscription, or says that it is broken or stale (protocol 7.3)."""
        subscriber = self.subscribers.get(message.name)
        if subscriber is None or subscriber.term != message.term:
            return
        if message.result in (m.JoinResult.OK, m.JoinResult.UNHEARD):
            handshake = subscriber.handshake
            handshake.known = handshake.known or message.known
            if message.mark is not None:
                if self._mark_comes_late(subscriber, message.mark):
                    self.drop(subscriber, DETACH_FORCED, None)
                    return
                handshake.marks[message.mark] = None
                if message.mark == subscriber.term:
                    handshake.receive(MARK)
            handshake.joined[sender] = None
            if message.result is m.JoinResult.UNHEARD:
                self._send_join(subscriber, sender, heard=True)
                return
            handshake.missing.pop(sender, None)
            self.check_answered(subscriber)
        elif message.result is m.JoinResult.BROKEN:
            self.drop(subscriber, SUBSCRIPTION_BROKEN, None)
        else:
            self.drop(subscriber, STOLEN, message.other)

    def _mark_comes_late(self, subscriber: Subscriber, mark: Term) -> bool:
        """Says whether a mark arrives after the attach was answered without its router. Only the client knows whether
        it has seen the mark in another answer, so it must attach again (protocol 7.3)."""
        return subscriber.handshake.answered and mark not in subscriber.handshake.marks

    def check_answered(self, subscriber: Subscriber) -> None:
        """Answers the attach when all routers have JOINED, or gone down (protocol 7.6)."""
        handshake = subscriber.handshake
        if (
            subscriber.handshake.missing
            or subscriber.handshake.answered
            or not subscriber.has_link
            or self.subscribers.get(subscriber.name) is not subscriber
            or self._awaits_others()
        ):
            return
        handshake.receive(JOINED)
        if handshake.resumed and handshake.kind is not m.JoinKind.FRESH:
            self.address.counters.subscriptions.resumed += 1
        listed = self._listed(subscriber)
        # protocol 7.7: undecided deliveries first; if not all fit, the next attach lists others.
        final = State.ACCEPTED
        undecided = [delivery for delivery in listed if delivery.state is not final]
        decided = [delivery for delivery in listed if delivery.state is final]
        left_out = (undecided + decided)[self._answer(subscriber, undecided, decided) :]
        # Accepted deliveries can wait until other subscriptions accept them, which may wait for undecided ones here.
        resumes_only = any(delivery.state is not final for delivery in left_out)
        handshake.receive(UNDECIDED_LEFT if resumes_only else SOME_LISTED if left_out else ALL_LISTED)
        for delivery in left_out:  # protocol 7.7: a delivery absent from the listing is not settled
            delivery.resume = Resume.NOTHING
        plain, settled = Resume.PLAIN, Resume.SETTLED
        filled = Resume.FILLED if resumes_only else plain  # else it would wait among new deliveries
        resumed = [d for d in listed if d.resume is plain or d.resume is settled or d.resume is filled]
        subscriber.irregular.resume_later(*resumed)
        subscriber.pump()
        self.deliveries.rest(subscriber)

    def _answer(self, subscriber: Subscriber, undecided: list[Irregular], decided: list[Irregular]) -> int:
        """Returns how many are listed, the undecided first."""
        listing: dict[bytes, MapState] | None = None
        if subscriber.handshake.brought_map:
            accepted, rejected = MapState.ACCEPTED, MapState.REJECTED
            listing = dict.fromkeys([delivery.tag for delivery in undecided], MapState.UNDECIDED)
            listing.update([(delivery.tag, rejected if delivery.rejected else accepted) for delivery in decided])
        handshake = subscriber.handshake
        return subscriber.port.answer(
            SubscriberAnswer(
                subscriber.term,
                listing,
                handshake.resumed,
                sorted(handshake.marks),
                subscriber.wait.granted_s,
                subscriber.wait.policy,
            )
        )

    def _awaits_others(self) -> bool:
        """Says whether a HELLO is missing from a router in session with an established one: that router is reachable,
        but has not met this one since its start (protocol 7.2)."""
        return bool(self.core.recovery.awaited(self.address.name))

    def check_all_answered(self) -> None:
        self.kept.check_recalls()
        for subscriber in list(self.subscribers.values()):
            self.check_answered(subscriber)

    def _listed(self, subscriber: Subscriber) -> list[Irregular]:
        """Returns every delivery of the map that is not known to be settled, also those whose publisher is away
        (protocol 7.6)."""
        if not subscriber.handshake.brought_map:
            return []
        return [d for known in subscriber.irregular.by_tag.values() for d in known.values() if d.from_map]

    # ------------------------------------------------------------------------------------------------------- publishers

    def ingress_lost(self, publisher_id: bytes) -> None:
        """The publisher's ingress is lost or replaced: nothing is synced to it, queued copies are removed, and what was
        sent or accepted stays in doubt, found by tag, without tokens and positions (protocol 10.3)."""
        log = self.deliveries.log
        if self.consumers is not None:
            self.consumers.homes_changed()
        passages = [each.passage for each in self.subscribers.values() if each.passage is not None]
        held_up = [each for each in passages if each.lose(publisher_id) or each.passed_by]
        for run in log.runs_of(publisher_id):
            for start, stop in log.alive.overlap(run.start, run.stop):
                for subscriber in self.subscribers.values():
                    subscriber.put_in_doubt(start, stop)
                for passage in passages:
                    passage.forget_passed_by(start, stop)
                log.invalidate(run, start, stop)
        entry = self.address.known_publishers.get(publisher_id)
        for subscriber in self.subscribers.values():
            subscriber.synced.pop(publisher_id, None)
            known = subscriber.irregular.by_tag.get(publisher_id)
            if known:
                for delivery in list(known.values()):
                    if delivery.state in (State.QUEUED, State.RELEASED):
                        delivery.state = State.REMOVED
                        subscriber.remove(delivery)
                    else:
                        if delivery.resume is Resume.FILLED:  # waits for the next ingress to bring it in order
                            delivery.resume = Resume.PLACEHOLDER
                            delivery.payload = None
                        subscriber.unbind(delivery)
                if subscriber.irregular.sync_queue:
                    waiting = (Resume.FILLED, Resume.SETTLED)
                    subscriber.irregular.sync_queue = deque(
                        d for d in subscriber.irregular.sync_queue if d.state is State.QUEUED or d.resume in waiting
                    )
            if entry is not None:
                subscriber.classify(entry)
        for passage in held_up:
            for position in log.bodies:
                passage.pass_by(position)
            self.core.agenda.due(self.core.now + STREAM_IDLE_S, self.address)
            self.core.agenda.touch(self.address)
            passage.subscriber.pump()

    def holds_in_doubt(self, publisher_id: bytes) -> bool:
        """Says of a publisher whose ingress is lost whether something of it is held here, in doubt (protocol 8.4)."""
        return any(publisher_id in subscriber.irregular.by_tag for subscriber in self.subscribers.values())

    def settle_incarnations(self, publisher_id: bytes, first: int, stop: int = BEYOND_ALL) -> None:
        """Settles the deliveries of the incarnations first..stop-1: of those before a later one (protocol 5.5, 5.6), or
        of which the publisher was away for too long (protocol 8.4). All of the publisher must be in doubt
        (`ingress_lost`)."""
        for subscriber in list(self.subscribers.values()):
            known = subscriber.irregular.by_tag.get(publisher_id)
            if known:
                for delivery in list(known.values()):
                    if first <= incarnation_of(delivery.tag) < stop:
                        self.deliveries.settle_irregular(subscriber, delivery)
                subscriber.pump()

    def on_claim(self, sender: str, message: m.Pub) -> None:
        """A publisher has a new ingress. Deliveries settled by its PUB are settled at the local subscriptions, which
        are synced with it where it covers them (protocol 5.5). What the old ingress has said is void already."""
        publisher = self.address.known_publishers[message.publisher]
        expected = set(message.expected) if isinstance(message.expected, list) else None
        for subscriber in list(self.subscribers.values()):
            here = self._synced_by_pub(subscriber, sender, message)
            infer = expected is not None and self._may_infer(subscriber, sender)
            known = subscriber.irregular.by_tag.get(message.publisher, {})
            for delivery in list(known.values()):
                if incarnation_of(delivery.tag) < message.incarnation or (
                    infer
                    and expected is not None
                    and delivery.tag not in expected
                    and delivery.within(message.incarnation)
                ):
                    self.deliveries.settle_irregular(subscriber, delivery)
            if here:
                subscriber.synced[message.publisher] = (sender, message.term)
            subscriber.classify(publisher)
            subscriber.pump()
        if self.consumers is not None:
            self.consumers.answer_claim(sender, message)

    def _synced_by_pub(self, subscriber: Subscriber, sender: str, message: m.Pub) -> bool:
        """Says whether the PUB makes it synced, even with an unknown set: the sender covers subscriptions that it has
        joined (protocol 5.5)."""
        return sender in subscriber.handshake.joined and message.expected is not None

    def _may_infer(self, subscriber: Subscriber, sender: str) -> bool:
        """Says whether deliveries absent from the PUB are settled: not if the sender has not joined the subscription,
        and so does not know what it holds (protocol 5.5)."""
        return sender in subscriber.handshake.joined or not subscriber.has_link

    # ------------------------------------------------------------------------------------------------------- going away

    def detach(self, subscriber: Subscriber, closed: bool, expiring: bool) -> None:
        """The subscription's link is gone (protocol 8.1); closed: for good (protocol 8.2).

        expiring: the subscription's timeout starts now (protocol 8.3).
        """
        self.kept.subscribers.pop(subscriber.port, None)
        subscriber.handshake.receive(LOST)
        wait = subscriber.wait
        if closed or (expiring and wait.policy != "never" and wait.granted_s <= 0):
            self._remove_link(subscriber, m.Leave(self.address.name, subscriber.name, subscriber.term))
            return
        timeout = wait.as_orphan(expiring=expiring)
        self._remove_link(subscriber, m.Orphan(self.address.name, subscriber.name, subscriber.term, timeout))

    def timeout_begins(self, attach: SubscriberAttach, term: Term) -> None:
        """The session or connection that the expiry policy of a detached subscription names has ended: its timeout
        starts now (protocol 8.3)."""
        granted_s = attach.timeout_s
        name = (attach.container, attach.name)
        if granted_s <= 0:
            self.core.post.broadcast(m.Leave(self.address.name, name, term))
        else:
            self.core.post.broadcast(m.Orphan(self.address.name, name, term, granted_s))

    def drop(self, subscriber: Subscriber, condition: str, known: Term | None, why_broken: str = MISSED) -> None:
        """Detaches it with an error: stolen, broken, or that it has to attach again (protocol 5.3, 7.3)."""
        self.kept.subscribers.pop(subscriber.port, None)
        info = {EPOCH: known[0]} if known is not None else {}
        description = WHY.get(condition, why_broken)
        # protocol 5.3: a plain client needs to be told that it is closed
        closed = condition != STOLEN or not (subscriber.handshake.brought_epoch or subscriber.handshake.brought_map)
        if subscriber.handshake.receive(DROP) is REFUSE:
            subscriber.port.refuse(condition, description, info)
        else:
            subscriber.port.detach(condition, description, info, closed)
        if condition == SUBSCRIPTION_BROKEN:
            text = "subscription {container}/{link} to {address} broken: {description}"
            container, link = subscriber.name
            self.core.counters.note_lost(self.address.counters, container, link, BROKEN, self.core.now)
            self.core.owner.log.warning(
                "subscription_broken",
                text,
                container=container,
                link=link,
                address=self.address.name,
                description=description,
            )
            self._remove_link(subscriber, m.Leave(self.address.name, subscriber.name, subscriber.term, broken=True))
        elif condition == SUBSCRIPTION_REMOVED:
            self._remove_link(subscriber, m.Leave(self.address.name, subscriber.name, subscriber.term))
        else:
            self._orphan(subscriber)

    def give_up(self, subscriber: Subscriber, why: str) -> None:
        """Its link is in the middle of a large delivery that does not go on (protocol 6.12.16)."""
        self.kept.subscribers.pop(subscriber.port, None)
        subscriber.handshake.receive(DROP)
        subscriber.port.detach(DETACH_FORCED, why, {}, False)
        self._orphan(subscriber)

    def _orphan(self, subscriber: Subscriber) -> None:
        timeout = subscriber.wait.as_orphan()
        self._remove_link(subscriber, m.Orphan(self.address.name, subscriber.name, subscriber.term, timeout))

    def _remove_link(self, subscriber: Subscriber, announcement: m.Orphan | m.Leave) -> None:
        # protocol 6.10: this subscription's acceptances count; the address holds only what no subscription has accepted
        self.deliveries.reception.flush()
        del self.subscribers[subscriber.name]
        subscriber.presettled.clear()
        self.deliveries.ready.pop(subscriber, None)
        for special in self.special.values():
            special.pop(subscriber, None)
        if self.consumers is not None:
            self.consumers.remember_accepted(subscriber)
        self._announce_lost(announcement)
        self._release_all_tokens(subscriber)
        self.core.agenda.touch(self.address)
        self.kept.drop(subscriber.port)

    def _announce_lost(self, announcement: m.Orphan | m.Leave) -> None:
        """Tells all before any of its tokens is released (protocol 8.1)."""
        self.core.post.broadcast(announcement)

    def _release_all_tokens(self, subscriber: Subscriber) -> None:
        self.deliveries.reception.link_gone(subscriber)
        if not self.subscribers:  # without subscriptions here no SETTLE arrives
            log = self.deliveries.log
            for run in list(log.runs.runs):
                log.invalidate(run, run.start, run.stop)

    def router_up(self, router: str) -> None:
        """Sends the peer a JOIN for each subscription; open barriers wait for the peer, too (protocol 4.2)."""
        for subscriber in self.subscribers.values():
            if not subscriber.handshake.answered:
                subscriber.handshake.missing[router] = None
            if subscriber.has_link:
                self._send_join(subscriber, router)

    def router_down(self, router: str) -> None:
        """No subscription is joined to that router, and barriers stop waiting for it (protocol 8.6)."""
        if self.consumers is not None:
            self.consumers.router_down(router)
        for subscriber in list(self.subscribers.values()):
            handshake = subscriber.handshake
            asked_in_vain = router in handshake.missing and router not in handshake.joined
            handshake.joined.pop(router, None)
            handshake.missing.pop(router, None)
            if asked_in_vain and handshake.over_at is not None:
                self._may_have_missed(subscriber)
            self.check_answered(subscriber)

    def _may_have_missed(self, subscriber: Subscriber) -> None:
        """Its wait was over, and a router has gone before it could say what it had accepted without it
        (protocol 7.2)."""
        if subscriber.handshake.kind is m.JoinKind.RESUME:
            self.drop(subscriber, SUBSCRIPTION_BROKEN, None)
        else:
            entry = self.address.known_subscriptions.get(subscriber.name)
            if entry is not None and entry.term == subscriber.term:
                entry.missed(subscriber.term)
            subscriber.handshake.marks[subscriber.term] = None
            subscriber.handshake.receive(MARK)
