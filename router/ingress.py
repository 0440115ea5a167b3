"""The ingress side of one address: publishers attach here, prove themselves, claim, are asked, and go (PROTOCOL 5, 8).

What they send is in `router.records`, on which this builds.  Knows no bytes and no local subscription: JOIN, ORPHAN and
LEAVE come through `router.address`.  Read `router.publisher` for one publisher's state, `router.egress` for the other
side.
"""

from __future__ import annotations

from router import messages as m
from router.directory import PublisherEntry, SubscriptionEntry, epoch_of, outgoing_tags, publisher_id, tag_prefix
from router.intervals import IntervalSet, Range
from router.ports import (
    EPOCH,
    NOT_RESUMABLE,
    PUBLISHER_EXPIRED,
    PUBLISHER_UNKNOWN,
    STOLEN,
    PublisherAttach,
    PublisherPort,
    Term,
    UniqueTags,
)
from router.publisher import FLUSH, GONE, NO_SUBSCRIBERS, Held, Phase, Publisher
from router.records import Records


class Ingress(Records):
    """Publishers of one address at this router."""

    # ---------------------------------------------------------------------------------------------- attaching: 5.1, 5.3

    def attach(self, port: PublisherPort, attach: PublisherAttach) -> None:
        """Phase one: an attach proves nothing.  Choose the term, answer, claim nothing."""
        core, address = self.core, self.address
        unique = isinstance(attach.unsettled, UniqueTags)
        publisher = publisher_id(attach.container, attach.name, attach.address, unique)
        known = address.publishers.get(publisher)
        if attach.epoch is not None and known and known.term >= (attach.epoch, ""):
            self._refuse_stolen(port, epoch_of(known.term, known.incarnation))
            return
        if attach.epoch is not None and (later := core.parts.later(publisher, attach.epoch)) is not None:  # 7.7
            self._refuse_stolen(port, later)
            return
        presented = None if isinstance(attach.unsettled, UniqueTags) else attach.unsettled
        if attach.incomplete or core.parts:  # 7.7
            if attach.incomplete and attach.epoch is None:
                port.refuse(NOT_RESUMABLE, "a map in parts needs onceway:epoch", {})
                return
            presented = core.parts.collect(publisher, attach.epoch, presented, attach.incomplete, core.now)
            if attach.incomplete:
                port.part()
                return
        resumes = bool(presented)  # an empty map resumes nothing: with the old incarnation its tags could be used again
        if resumes and attach.incarnation is None:
            if not (known and known.real):
                if not core.established:
                    core.defer_publisher(port, attach)
                else:
                    port.refuse(PUBLISHER_UNKNOWN, "no router knows this publisher's unsettled deliveries", {})
                return
            if known.age(core.now) > address.config.publisher_expires_s:
                port.refuse(PUBLISHER_EXPIRED, "this publisher was away for longer than publisher_timeout", {})
                return
        term = self._choose_term(attach, known.term if known else None)
        link = Publisher(self, port, attach, publisher, unique, term)
        link.resumes = resumes
        in_time = known is not None and not known.closed and known.age(core.now) <= address.config.publisher_expires_s
        link.goes_on = in_time and link.may_go_on
        link.presented = presented or {}
        attach.unsettled = None  # the port keeps the attach
        self.proving[link] = None
        core.publishers[port] = link
        answered = attach.incarnation  # what is fixed already
        if unique:
            answered = 0
        elif answered is None and not resumes:
            answered = link.term[0]
        port.answer(answered, link.term, credit=not (resumes and attach.incarnation is None))
        core.window_changed(link)

    def _choose_term(self, attach: PublisherAttach, known: Term | None) -> Term:
        """5.1: chosen now, before the proof: a later attach elsewhere is later."""
        if attach.epoch is not None:
            return (attach.epoch, "")
        return (max(self.core.clock_us(), known[0] + 1 if known else 0), self.core.name)

    def _refuse_stolen(self, port: PublisherPort, epoch: int) -> None:
        port.refuse(STOLEN, "the publisher has attached with a later epoch", {EPOCH: epoch})

    # ---------------------------------------------------------------------------------------------------- claiming: 5.4

    def proved(self, link: Publisher) -> None:
        """5.2: with the sign of life phase two, in the same step.

        But for what 5.7 says of every proof: it serves only the JOINs processed before what it answers.  The publisher
        may have said that it is here, gone to where the subscription was then, and be done with it there.
        """
        if link.phase is not Phase.PROVING:
            return
        if self._is_stale(link):
            link.stale = False
            link.asking = True
            link.port.ask()
        else:
            link.asking = False
            self._claim(link)

    def _is_stale(self, link: Publisher) -> bool:
        return link.stale

    def _claim(self, link: Publisher) -> None:
        core, address = self.core, self.address
        known = address.publishers.get(link.publisher)
        link.incarnation = link.brought or 0
        if known and (known.term >= self._term_at_claim(link) or self._goes_back(link, known)):  # 5.3, again
            self._detach_stolen(link, epoch_of(known.term, known.incarnation))
            return
        if self._is_too_late(link, known):
            self._discard(link)
            link.port.detach(PUBLISHER_EXPIRED, "its sign of life took longer than publisher_timeout", {}, True)
            return
        older = self.publishers.get(link.publisher)
        if older:
            self.drop(older, epoch_of(link.term, link.incarnation))
            core.drain()  # 3.3
            known = address.publishers.get(link.publisher)
        incarnation = self._incarnation(link, known)
        if incarnation is None:
            self._discard(link)
            link.port.detach(PUBLISHER_UNKNOWN, "no router knows this publisher's unsettled deliveries", {}, True)
            return
        link.incarnation = incarnation
        link.prefix = tag_prefix(link.publisher, link.incarnation)
        undecided = [tag for tag, outcome in link.presented.items() if outcome is None]
        link.expected = dict.fromkeys(outgoing_tags(link.prefix, undecided))
        link.presented = {}
        link.unknown = link.unique
        link.tags = set() if link.unique else None
        link.phase = Phase.CLAIMING
        del self.proving[link]
        self.publishers[link.publisher] = link
        for entry in address.subscriptions.values():
            if entry.home is not None:
                self._cover(link, entry)
        link.waiting = self._barrier()
        core.broadcast(m.Pub(address.name, link.publisher, link.incarnation, link.term, self._expected(link)))
        for tag in link.settled_tags:
            self.publisher_settled_tag(link, tag)
        link.settled_tags.clear()

    def may_go_on(self, publisher: bytes) -> None:
        """It was not known here when it attached: a map or a router that came later tells of it."""
        for link in self.proving:
            if link.publisher == publisher:
                link.goes_on = link.may_go_on

    def was_elsewhere(self, publisher: bytes) -> None:
        """5.1: an attachment becomes known that was not when a term was chosen here by our clock. Which of the two is
        the later one no clock can tell, as they differ; what it says from now on does."""
        for link in self.proving:
            if link.publisher == publisher and self._may_be_older(link):
                link.stale = True

    def _may_be_older(self, link: Publisher) -> bool:
        """Whatever its term; unless it brought that itself (15)."""
        return not link.epoch_brought

    def _is_too_late(self, link: Publisher, known: PublisherEntry | None) -> bool:
        """8.4: it came in time, but while it was asked for a sign of life others may have given up what it will send
        again.  Who brings an incarnation knows by itself how long it has been away (15)."""
        core = self.core
        return link.goes_on and (known is None or known.age(core.now) > self.address.config.publisher_expires_s)

    def _goes_back(self, link: Publisher, known: PublisherEntry) -> bool:
        """5.5: others would refuse it for that; here too, before it takes the link of a later life away."""
        return link.brought is not None and self._is_overtaken(link, known.term, known.incarnation)

    def _term_at_claim(self, link: Publisher) -> Term:
        """5.1: the one chosen at the attach."""
        return link.term

    def _incarnation(self, link: Publisher, known: PublisherEntry | None) -> int | None:
        """5.4: brought; 0 with unique tags; the directory's when it resumes; else the term."""
        if link.unique:
            return 0
        if link.brought is not None:
            return link.brought
        if not link.resumes:
            return link.term[0]
        return known.incarnation if known and known.real else None

    def _barrier(self) -> dict[str, None]:
        """Whose PUBACK is waited for: all reachable."""
        return dict.fromkeys([*self.core.up, self.core.name])

    def _expected(self, link: Publisher) -> m.Expected:
        return m.UNKNOWN if link.unknown else list(link.expected)  # 5.4: unknown is not empty

    def on_puback(self, sender: str, message: m.PubAck) -> None:
        link = self.publishers.get(message.publisher)
        if message.stale is not None:  # 5.6
            term, incarnation, real = message.stale
            if link and link.term == message.term and self._is_overtaken(link, term, incarnation):
                self.drop(link, epoch_of(term, incarnation))
                self.core.drain()  # 3.3
            self.address.learn_from_stale(message.publisher, term, incarnation, real)
            return
        if link and link.term == message.term:
            link.waiting.pop(sender, None)
            self.check_ready(link)

    def _is_overtaken(self, link: Publisher, term: Term, incarnation: int) -> bool:
        return link.term < term or link.incarnation < incarnation

    def check_ready(self, link: Publisher) -> None:
        """The barrier of 5.4: all reachable have answered."""
        if link.waiting or link.phase is not Phase.CLAIMING:
            return
        link.phase = Phase.READY
        held, link.held = link.held, []
        link.held_count = link.held_bytes = 0
        if link.leaving is None:
            self._wait_for_expected(link)
            link.port.ready()
        for batch in held:
            self._take(link, batch.first_id, batch.tags, batch.payloads, batch.settled, batch.message_format)
        if link.leaving is not None:  # 6.9: its link went while the barrier was open
            self._leave(link, closed=link.leaving)
            return
        self.core.window_changed(link)
        self.ask(link)

    # ------------------------------------------------------------------------------------ what they send: 5.1, 6.1, 6.6

    def transfers(
        self,
        link: Publisher,
        first_id: int,
        tags: list[bytes],
        payloads: list[bytes],
        settled: bool,
        message_format: int,
    ) -> None:
        self.core.window_changed(link)
        if link.phase is Phase.READY:
            self._take(link, first_id, tags, payloads, settled, message_format)
            return
        if link.phase is Phase.PROVING and not link.asking:
            self.proved(link)
            self.core.drain()
        if link.ready:  # nobody else had to be asked
            self._take(link, first_id, tags, payloads, settled, message_format)
        elif not link.dropped:  # 5.1: held, in order; the credit bounds them
            link.hold(Held(first_id, tags, payloads, settled, message_format))

    def publisher_settled_tag(self, link: Publisher, tag: bytes) -> None:
        """6.6: an expected tag that will not come again."""
        if link.phase is Phase.PROVING and not link.asking:
            self.proved(link)
            self.core.drain()
        if link.phase is Phase.PROVING:
            link.settled_tags.append(tag)
            return
        if link.dropped:
            return
        outgoing = outgoing_tags(link.prefix, [tag])
        if outgoing[0] in link.expected:
            del link.expected[outgoing[0]]
            self.core.broadcast(m.SettleTags(self.address.name, link.publisher, link.term, outgoing))
            return
        position = self._find(link, outgoing[0])
        if position is not None:
            ((run, low, _),) = self.runs.pieces(position, position + 1)
            self.publisher_settled(link, run.first_id + low, run.first_id + low)

    # ----------------------------------------------------------------------------------- questions, sync: 5.7, 7.5, 8.5

    def ask(self, link: Publisher) -> None:
        if link.phase is Phase.READY and link.need and link.asked == link.answered:
            link.asked += 1
            link.port.ask()

    def answered(self, link: Publisher) -> None:
        """The answer to the open question: it serves only the JOINs processed before it was asked."""
        self.proved(link)
        if link.phase is not Phase.READY or link.asked == link.answered:
            return
        link.answered = link.asked
        for name, question in list(link.need.items()):
            if self._serves(question, link.answered) and link.need.pop(name, None) is not None:
                if name is FLUSH:
                    self._flush(link)
                else:
                    entry = self.address.subscriptions.get(name)
                    if entry is not None and entry.home is not None:
                        self.sync(link, entry)
        self.ask(link)

    def _serves(self, question: int, answered: int) -> bool:
        return question <= answered

    def synchronise(self, entry: SubscriptionEntry, history: bool) -> None:
        """7.4, end: with history a question first; without, sync now."""
        if self._needs_proof(history):
            for link in self.proving:
                link.stale = True
        for link in list(self.publishers.values()):
            link.uncovered[entry] = None
            if self._needs_proof(history):
                link.need[entry.name] = link.asked + 1
                self.ask(link)
            else:
                self.sync(link, entry)

    def _needs_proof(self, history: bool) -> bool:
        """An ingress whose connection is half open may be a ghost; only one without history cannot be harmed (5.7)."""
        return history

    def sync(self, link: Publisher, entry: SubscriptionEntry) -> None:
        """7.5: from here on the publisher's stream flows to the subscription, at its home."""
        assert entry.home is not None
        entries = self._entries(link, entry)
        self._cover(link, entry)
        self.core.send_to(
            entry.home,
            m.Sync(
                self.address.name,
                link.publisher,
                link.incarnation,
                link.term,
                entry.name,
                entry.term,
                entries,
                self._expected(link),
            ),
        )

    def _entries(self, link: Publisher, entry: SubscriptionEntry) -> list[m.Entries]:
        """All records in order; a token of its own where the subscription is owed it."""
        entries: list[m.Entries] = []
        for first, last in link.live:
            for start, stop, message_format in link.positions(first, last):
                owed = entry.owed.remove(start, stop)
                entry.syncing.add_all(owed)
                entries.append(
                    m.Entries(start, message_format, self.log.tags(start, stop), self.log.payloads(start, stop), owed)
                )
        if entry.syncing:
            self.owing[entry] = None
        return entries

    def _cover(self, link: Publisher, entry: SubscriptionEntry) -> None:
        assert entry.home is not None
        link.cover(entry)
        if entry.home not in self.awaited:
            self.awaited[entry.home] = IntervalSet()
        if entry.home not in self.reached:
            self.reached = tuple(sorted((*self.reached, entry.home)))

    def flush_due(self, link: Publisher) -> None:
        """8.5: what it has not sent again by now it will not send; only with a new proof."""
        link.flush_at = None
        if link.phase is not Phase.READY or not (link.unknown or link.expected):
            return
        if link.barred:
            self._wait_for_expected(link)
            return
        link.need[FLUSH] = link.asked + 1
        self.ask(link)

    def _wait_for_expected(self, link: Publisher) -> None:
        link.flush_at = self.core.now + self.address.config.publisher_expires_s
        self.core.due(link.flush_at)

    def tell_window(self, link: Publisher) -> None:
        messages, size, reason = self.window(link)
        could_not, link.barred = link.barred, self._is_barred(link, reason)
        if could_not and not link.barred and link.flush_at is not None:
            self._wait_for_expected(link)  # 8.5: only now it can send again what it has in doubt
        link.reason = reason
        link.port.set_window(messages, size, reason)

    def _is_barred(self, link: Publisher, reason: str) -> bool:
        """It gets no credit, and not because of anything new: subscriptions may wait for its flush to take that."""
        used = link.undone or link.unsettled or link.held_count
        return reason == NO_SUBSCRIBERS or bool(reason and (not used or self._sends_again(link)))

    def _sends_again(self, link: Publisher) -> bool:
        """What it has in doubt, in order, before anything new (15)."""
        return bool(link.expected) and not link.moved_on

    def _flush(self, link: Publisher) -> None:
        link.unknown = False
        link.expected = {}
        self.core.broadcast(m.Flush(self.address.name, link.publisher, link.incarnation, link.term))

    # ----------------------------------------------------------------------- subscriptions, routers: 4.2, 7.4, 8.1, 8.6

    def uncover(self, entry: SubscriptionEntry) -> None:
        """Covered nowhere, its questions are void (8.1)."""
        for link in self.publishers.values():
            link.need.pop(entry.name, None)
            link.uncovered.pop(entry, None)
            link.uncover(entry)

    def orphan(self, entry: SubscriptionEntry) -> None:
        entry.become_orphan(self.core.now, self.log.end)
        self.owing[entry] = None

    def forget_subscription(self, entry: SubscriptionEntry) -> None:
        """8.2, 8.3: nothing is owed to it any more.  The caller has taken it out of the directory."""
        self.uncover(entry)
        freed: list[Range] = []
        for start, stop in entry.owed.take() + entry.syncing.take():
            freed += self.undone.overlap(start, stop)
        self.owing.pop(entry, None)
        self.check(freed)

    def replace_subscription(self, entry: SubscriptionEntry) -> None:
        """Another subscription of the same name takes its place, to which at least as much is owed."""
        self.uncover(entry)
        entry.owed.take()
        entry.syncing.take()
        self.owing.pop(entry, None)

    def router_down(self, router: str, orphans: list[SubscriptionEntry]) -> None:
        """8.6: tokens that it owed are owed to each subscription whose home it was."""
        awaited = self.awaited.pop(router, None)
        ranges = awaited.take() if awaited is not None else []
        for entry in orphans:
            entry.owed.add_all(ranges)
            entry.unsync()
            self.uncover(entry)
            self.orphan(entry)
        self.reached = tuple([home for home in self.reached if home != router])
        for link in self.publishers.values():
            link.uncover_home(router)
        self.check_all()

    def stop_waiting(self, router: str) -> None:
        """8.6: barriers stop waiting for it."""
        for link in list(self.publishers.values()):
            link.waiting.pop(router, None)
            self.check_ready(link)

    def router_up(self, router: str) -> None:
        """4.2: PUB without expected set; barriers still open wait for the peer too."""
        for link in self.publishers.values():
            if link.phase is Phase.CLAIMING:
                link.waiting[router] = None
            self.core.send_to(router, m.Pub(self.address.name, link.publisher, link.incarnation, link.term, None))

    # --------------------------------------------------------------------------------------------- going away: 8.4, 5.3

    def detach(self, link: Publisher, closed: bool) -> None:
        """The link is gone; closed: for good."""
        self.core.publishers.pop(link.port, None)
        if link.phase is Phase.PROVING:
            if not self._detach_claims(link, closed):
                self._discard(link)
                return
            link.port = GONE
            self._claim(link)
            self.core.drain()
            if link.dropped:
                return
        link.port = GONE
        if link.phase is Phase.CLAIMING and link.keep_presettled():
            link.leaving = closed
            return
        self._leave(link, closed=closed)

    def _detach_claims(self, link: Publisher, closed: bool) -> bool:
        """5.2: a detach proves nothing, it may have been pipelined; unless an epoch puts it in its place."""
        return closed and link.epoch_brought

    def _leave(self, link: Publisher, *, closed: bool) -> None:
        self._drop_records(link)
        if closed:
            message: m.PubClose | m.PubDown = m.PubClose(self.address.name, link.publisher, link.incarnation, link.term)
        else:
            message = m.PubDown(self.address.name, link.publisher, link.term)
        self.core.broadcast(message)

    def drop(self, link: Publisher, epoch: int) -> None:
        """It works elsewhere, or on another link here, as this one tells it."""
        self._detach_stolen(link, epoch)
        self.core.broadcast(m.PubDown(self.address.name, link.publisher, link.term))

    def _detach_stolen(self, link: Publisher, epoch: int) -> None:
        port = link.port
        self.core.publishers.pop(port, None)
        if link.phase is Phase.PROVING:
            self._discard(link)
        else:
            self._drop_records(link)
        closed = not (link.epoch_brought or link.map_brought)  # 5.3
        port.detach(STOLEN, "the publisher has attached elsewhere", {EPOCH: epoch}, closed)

    def _discard(self, link: Publisher) -> None:
        self.proving.pop(link, None)
        self.core.publishers.pop(link.port, None)
        link.phase = Phase.DROPPED
        self.core.touch(self.address)  # nothing may be left of it

    def _drop_records(self, link: Publisher) -> None:
        """8.4: its unsettled map is now the only authority."""
        # What it has settled is told while its positions still count (10.3): after PUBDOWN it would stay in doubt.
        self.flush()
        link.phase = Phase.DROPPED
        del self.publishers[link.publisher]
        for first, last in link.live:
            for run, low, high in link.runs.pieces(first, last):
                start, stop = run.start + low, run.start + high
                if self.undone.overlap(start, stop):
                    self._unawait(start, stop)
                self._forget(link, run, start, stop, tell=False)
        for run in [run for run in link.runs.runs if not run.live]:
            self._drop_run(run)
        link.live.take()
        link.held.clear()

    # --------------------------------------------------------------------------------------------- windows, status: 6.8

    def all_windows_changed(self) -> None:
        for link in (*self.publishers.values(), *self.proving):
            self.core.window_changed(link)

    def status(self) -> dict[str, object]:
        return {
            "undone": self.undone.size,
            "unsettled": sum(link.live.size for link in self.publishers.values()),
            "awaited": {home: tokens.size for home, tokens in sorted(self.awaited.items()) if tokens},
            "publishers": [link.status() for link in (*self.publishers.values(), *self.proving)],
        }
