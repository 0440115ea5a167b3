"""The egress side of one address: subscriptions that attach here, are answered, resume, and go.

PROTOCOL 5.5, 7.1, 7.2, 7.6, 8.1, 8.2, 10.3.  What flows to them is `router.deliveries`, on which this builds; what
every router knows of them is in `router.address`.  Read `router.subscriber` for one subscription.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from router import messages as m
from router.deliveries import Deliveries
from router.directory import NO_TERM, PREFIX, incarnation_of
from router.intervals import IntervalSet
from router.irregular import Irregular, Resume, State
from router.ports import (
    ATTACH_AGAIN,
    EPOCH,
    NOT_RESUMABLE,
    STOLEN,
    SUBSCRIPTION_BROKEN,
    MapState,
    SubscriberAnswer,
    SubscriberAttach,
    SubscriberPort,
    Term,
)
from router.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    Condition = Callable[[Irregular], bool]


class Egress(Deliveries):
    """Subscriptions of one address at this router."""

    # ----------------------------------------------------------------------------------------- attaching: 7.1, 7.2, 7.6

    def attach(self, port: SubscriberPort, attach: SubscriberAttach) -> None:
        core, address = self.core, self.address
        name = (attach.container, attach.name)
        entry = address.subscriptions.get(name)
        if attach.epoch is not None and entry and entry.term >= (attach.epoch, ""):
            self._refuse_stolen(port, entry.term[0])
            return
        if attach.epoch is not None:  # 7.7
            later = core.parts.later((address.name, *name), attach.epoch)
            if later is not None:
                self._refuse_stolen(port, later)
                return
        presented = attach.unsettled
        if attach.incomplete or core.parts:  # 7.7
            if attach.incomplete and attach.epoch is None:
                port.refuse(NOT_RESUMABLE, "a map in parts needs onceway:epoch", {})
                return
            presented = core.parts.collect((address.name, *name), attach.epoch, presented, attach.incomplete, core.now)
            if attach.incomplete:
                port.part()
                return
        older = self.subscribers.get(name)
        if older:
            self.drop(older, STOLEN, None)
            core.drain()  # 3.3
            entry = address.subscriptions.get(name)
        if attach.epoch is not None:
            term: Term = (attach.epoch, "")
        else:
            term = (max(core.clock_us(), entry.term[0] + 1 if entry else 0), core.name)
        link = Subscriber(self, port, attach, term)
        link.map_presented = presented is not None
        self._decide_kind(link, attach, presented is not None and len(presented) > 0)
        self.subscribers[name] = link
        core.subscribers[port] = link
        for publisher in address.publishers.values():
            publisher.special[link] = None
        for tag, state in (presented or {}).items():
            self._enter_map(link, tag, state)
        attach.unsettled = None  # the port keeps the attach
        link.waiting = self._barrier()
        for router in core.up:
            self._send_join(link, router)
        self._send_join(link, core.name)

    def _refuse_stolen(self, port: SubscriberPort, epoch: int) -> None:
        port.refuse(STOLEN, "the subscription has attached with a later epoch", {EPOCH: epoch})

    def _barrier(self) -> dict[str, None]:
        """7.2: whose JOINED is waited for: all reachable."""
        return dict.fromkeys([*self.core.up, self.core.name])

    def _decide_kind(self, link: Subscriber, attach: SubscriberAttach, resumes: bool) -> None:
        """7.1."""
        link.history = link.map_presented
        if attach.born is not None:
            link.born = (attach.born, "")
        if attach.born is not None and attach.born == attach.epoch:
            link.kind = m.JoinKind.FRESH
        elif attach.born is not None or resumes:
            link.kind = m.JoinKind.RESUME
            link.history = True
        else:
            link.kind = m.JoinKind.EITHER

    def _enter_map(self, link: Subscriber, tag: bytes, state: MapState) -> None:
        """7.2: accepted or sent, not live."""
        if len(tag) < PREFIX or state is MapState.RELEASED:  # not ours; released: comes again as new
            return
        known = self.address.publishers.get(tag[:8])
        if known is None:
            known = self.address.learn(tag[:8], incarnation_of(tag), NO_TERM, None, self.core.now, False)
        incarnation = incarnation_of(tag)
        if incarnation < known.incarnation:  # superseded: settled
            return
        if incarnation > known.incarnation:
            self.address.note_newer(known)
        final = state in (MapState.ACCEPTED, MapState.REJECTED)
        delivery = Irregular(tag, State.ACCEPTED if final else State.SENT)
        delivery.rejected = state is MapState.REJECTED
        delivery.from_map = True
        if state is MapState.RECEIVED or (state is MapState.UNDECIDED and not link.brought):  # 7.6
            delivery.resume = Resume.PLACEHOLDER
        else:
            delivery.resume = Resume.PLAIN
        link.enter(delivery)

    def _send_join(self, link: Subscriber, router: str, *, heard: bool = False) -> None:
        kind, history = self._how_to_join(link)
        self.core.send_to(
            router,
            m.Join(
                self.address.name,
                link.name,
                link.born,
                link.term,
                kind,
                history,
                self._waited_for(link),
                heard,
            ),
        )

    def _how_to_join(self, link: Subscriber) -> tuple[m.JoinKind, bool]:
        """4.2: once its attach has been answered it is resume, with history, whatever it attached as."""
        if link.answered:
            return m.JoinKind.RESUME, True
        return link.kind, link.history

    def _waited_for(self, link: Subscriber) -> float:
        """How long an orphan of it is waited for when its router dies (8.3)."""
        if link.expiry_policy == "never":
            return self.address.config.subscription_timeout_s
        return link.granted_s

    def on_joined(self, sender: str, message: m.Joined) -> None:
        link = self.subscribers.get(message.name)
        if link is None or link.term != message.term:
            return
        if message.result in (m.JoinResult.OK, m.JoinResult.UNHEARD):
            link.known = link.known or message.known
            if message.mark is not None:
                if self._comes_late(link, message.mark):
                    self.drop(link, ATTACH_AGAIN, None)
                    return
                link.marks[message.mark] = None
            link.joined[sender] = None
            if message.result is m.JoinResult.UNHEARD:
                self._send_join(link, sender, heard=True)
                return
            link.waiting.pop(sender, None)
            self.check_answered(link)
        elif message.result is m.JoinResult.BROKEN:
            self.drop(link, SUBSCRIPTION_BROKEN, None)
        else:
            self.drop(link, STOLEN, message.other)

    def _comes_late(self, link: Subscriber, mark: Term) -> bool:
        """7.3: its router was out of reach when the attach was answered. Only the client knows whether it has seen the
        mark in another answer: it attaches again, and is told."""
        return link.answered and mark not in link.marks

    def check_answered(self, link: Subscriber) -> None:
        """7.6: all have JOINED, or gone down."""
        if link.waiting or link.answered or self.subscribers.get(link.name) is not link or self._awaits_others():
            return
        link.answered = True
        listed = self._listed(link)
        # Undecided ones first: where not all fit (7.7), the next attach has others of them to list.
        ordered = sorted(listed, key=lambda delivery: delivery.state is State.ACCEPTED)
        listing: dict[bytes, MapState] | None = None
        if link.map_presented:
            listing = {}
            for delivery in ordered:
                state = MapState.UNDECIDED
                if delivery.state is State.ACCEPTED:
                    state = MapState.REJECTED if delivery.rejected else MapState.ACCEPTED
                listing[delivery.tag] = state
        told = link.port.answer(
            SubscriberAnswer(link.term, listing, link.known, sorted(link.marks), link.granted_s, link.expiry_policy)
        )
        link.incomplete = told < len(listed)  # 7.7: neither side infers anything from absence
        # What it has accepted ends when others accept it, who may be waiting for what this one has not been sent.
        link.resumes_only = any(delivery.state is not State.ACCEPTED for delivery in ordered[told:])
        for delivery in ordered[told:]:
            delivery.resume = Resume.NOTHING
        for delivery in listed:
            if delivery.resume in (Resume.PLAIN, Resume.SETTLED) or (
                link.resumes_only and delivery.resume is Resume.FILLED  # or it would wait among what is new
            ):
                link.resumes.append(delivery)
        link.pump()

    def _awaits_others(self) -> bool:
        """7.2: who is up with an established router is reachable; this router has started and not met it yet."""
        return bool(self.core.awaited())

    def check_all_answered(self) -> None:
        for link in list(self.subscribers.values()):
            self.check_answered(link)

    def _listed(self, link: Subscriber) -> list[Irregular]:
        """Every delivery of the map that is not known to be settled, unresolved ones too."""
        if not link.map_presented:
            return []
        return [d for known in link.irregular.values() for d in known.values() if d.from_map]

    # -------------------------------------------------------------------------------------------- publishers: 5.5, 10.3

    def void(self, publisher: bytes) -> None:
        """10.3: its ingress is lost or replaced.  Not synced; queued copies are removed; what was sent or accepted
        stays in doubt, found by tag, without tokens and positions."""
        for run in self.log.runs_of(publisher):
            for start, stop in self.log.alive.overlap(run.start, run.stop):
                for link in self.subscribers.values():
                    self._void_positions(link, start, stop)
                self.core.meter -= self.log.void(run, start, stop)
        entry = self.address.publishers.get(publisher)
        for link in self.subscribers.values():
            link.synced.pop(publisher, None)
            known = link.irregular.get(publisher)
            if known:
                for delivery in list(known.values()):
                    if delivery.state in (State.QUEUED, State.AGAIN):
                        self._purge(link, delivery)
                    else:
                        if delivery.resume is Resume.FILLED:  # waits for the next ingress to bring it in order
                            delivery.resume = Resume.PLACEHOLDER
                            delivery.payload = None
                        link.unbind(delivery)
                if link.line:
                    waiting = (Resume.FILLED, Resume.SETTLED)
                    link.line = deque(d for d in link.line if d.state is State.QUEUED or d.resume in waiting)
            if entry is not None:
                link.classify(entry)

    def _purge(self, link: Subscriber, delivery: Irregular) -> None:
        delivery.state = State.GONE
        link.remove(delivery)

    def _void_positions(self, link: Subscriber, start: int, stop: int) -> None:
        for a, b in link.held.overlap(start, stop):
            for first, end in link.ids_of([(a, b)]):
                low = a
                a += end - first
                self._put_in_doubt(link, low, a, first)
        link.owes.remove(start, stop)
        link.gone.remove(start, stop)
        link.refused.remove(start, stop)
        link.trim()

    def _put_in_doubt(self, link: Subscriber, start: int, stop: int, first_id: int) -> None:
        owes = IntervalSet(link.owes.overlap(start, stop))
        gone = IntervalSet(link.gone.overlap(start, stop))
        refused = IntervalSet(link.refused.overlap(start, stop))
        for i, delivery in enumerate(self._take_out(link, start, stop, first_id)):
            position = start + i
            if position not in owes:
                delivery.state = State.ACCEPTED
                delivery.payload = None
                delivery.rejected = position in refused
            if position not in gone:
                link.number(delivery, first_id + i)

    def holds(self, publisher: bytes) -> bool:
        """Of a publisher whose ingress is lost: is something of it held here, in doubt?"""
        return any(publisher in link.irregular for link in self.subscribers.values())

    def settle_incarnations(self, publisher: bytes, below: int) -> None:
        """Deliveries of incarnations below that one are settled (5.5, 5.6)."""
        self.settle_where(publisher, lambda delivery: incarnation_of(delivery.tag) < below)

    def settle_newer(self, publisher: bytes, above: int) -> None:
        """Deliveries of incarnations above that one are settled: their publisher was away for too long (8.4)."""
        self.settle_where(publisher, lambda delivery: incarnation_of(delivery.tag) > above)

    def settle_where(self, publisher: bytes, condition: Condition) -> None:
        """Settles the publisher's deliveries for which that holds; all of them must be in doubt (after `void`)."""
        for link in list(self.subscribers.values()):
            known = link.irregular.get(publisher)
            if known:
                for delivery in list(known.values()):
                    if condition(delivery):
                        self.settle_single(link, delivery)
                link.pump()

    def claimed(self, sender: str, message: m.Pub) -> None:
        """5.5: what the new ingress of a publisher says by its PUB.  The old one's is void already."""
        publisher = self.address.publishers[message.publisher]
        expected = set(message.expected) if isinstance(message.expected, list) else None
        for link in list(self.subscribers.values()):
            here = self._flows_from_pub(link, sender, message)
            infer = expected is not None and self._may_infer(link, sender)
            known = link.irregular.get(message.publisher, {})
            for delivery in list(known.values()):
                if incarnation_of(delivery.tag) < message.incarnation or (
                    infer
                    and expected is not None
                    and delivery.tag not in expected
                    and self._speaks_for(message.incarnation, delivery)
                ):
                    self.settle_single(link, delivery)
            if here:
                link.synced[message.publisher] = (sender, message.term)
            link.classify(publisher)
            link.pump()

    def _flows_from_pub(self, link: Subscriber, sender: str, message: m.Pub) -> bool:
        """5.5: from here on synced, also under an unknown set: the sender covers what has joined it."""
        return sender in link.joined and message.expected is not None

    def _may_infer(self, link: Subscriber, sender: str) -> bool:
        """5.5: infer only where joined."""
        return sender in link.joined

    # ---------------------------------------------------------------------------------------- going away: 8.1, 8.2, 8.6

    def detach(self, link: Subscriber, closed: bool, expiring: bool) -> None:
        """Its link is gone.  closed: for good.  expiring: its expiry policy's clock runs from now on."""
        self.core.subscribers.pop(link.port, None)
        if closed or (expiring and link.expiry_policy != "never" and link.granted_s <= 0):
            self._go(link, m.Leave(self.address.name, link.name, link.term))
            return
        timeout = self.address.config.subscription_timeout_s
        if expiring and link.expiry_policy != "never":
            timeout = min(timeout, link.granted_s)
        self._go(link, m.Orphan(self.address.name, link.name, link.term, timeout))

    def drop(self, link: Subscriber, condition: str, known: Term | None) -> None:
        """Detach it with an error: stolen, broken, or that it has to attach again."""
        self.core.subscribers.pop(link.port, None)
        info = {EPOCH: known[0]} if known is not None else {}
        if condition == STOLEN:
            description = "the subscription has attached elsewhere"
            closed = not (link.brought or link.map_presented)  # 5.3
        elif condition == ATTACH_AGAIN:
            description = "a router that could not be asked says since when it knows this subscription: attach again"
            closed = True
        else:
            description = "deliveries may have been accepted without this subscription"
            closed = True
        if link.answered:
            link.port.detach(condition, description, info, closed)
        else:
            link.port.refuse(condition, description, info)
        if condition == SUBSCRIPTION_BROKEN:
            self._go(link, m.Leave(self.address.name, link.name, link.term, broken=True))
        else:
            self._go(link, m.Orphan(self.address.name, link.name, link.term, self._waited_for(link)))

    def _go(self, link: Subscriber, announcement: m.Orphan | m.Leave) -> None:
        self.flush()  # what it has accepted was accepted while it was there: 6.10 holds only what nobody has
        del self.subscribers[link.name]
        link.presettled_changes(-link.presettled_count, -link.presettled_size)
        link.presettled.clear()
        self.ready.pop(link, None)
        if self.blocker is link:
            self.blocker = None
        for publisher in self.address.publishers.values():
            publisher.special.pop(link, None)
        self._announce_lost(announcement)
        self._release_all(link)

    def _announce_lost(self, announcement: m.Orphan | m.Leave) -> None:
        """8.1: to all before releasing any of its tokens."""
        self.core.broadcast(announcement)

    def _release_all(self, link: Subscriber) -> None:
        """Tokens of SYNC entries need no answer: their ingress has put them back when it heard of the loss."""
        self.release([piece for start, stop in link.owes.take() for piece in self.log.open.overlap(start, stop)])
        if not self.subscribers:  # nobody is told of SETTLE for what nobody holds
            for run in list(self.log.runs.runs):
                self.core.meter -= self.log.void(run, run.start, run.stop)

    def router_up(self, router: str) -> None:
        """4.2: barriers still open wait for the peer too."""
        for link in self.subscribers.values():
            if not link.answered:
                link.waiting[router] = None
            self._send_join(link, router)

    def router_down(self, router: str) -> None:
        """8.6: no subscription is joined to it; what waited to be told to it dies with the session."""
        self.accepts.pop(router, None)
        for key in [key for key in self.sync_accepts if key[0] == router]:
            del self.sync_accepts[key]
        for link in self.subscribers.values():
            link.joined.pop(router, None)

    def stop_waiting(self, router: str) -> None:
        for link in list(self.subscribers.values()):
            link.waiting.pop(router, None)
            self.check_answered(link)

    def status(self) -> dict[str, object]:
        return {
            "arrived": self.log.alive.size,
            "open": self.log.open.size,
            "subscribers": [link.status() for link in self.subscribers.values()],
        }
