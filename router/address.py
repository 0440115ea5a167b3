"""One address at one router: the directory, and the messages that concern both the ingress and the egress.

PROTOCOL 5.5, 5.6, 7.3, 7.4, 8.  Addresses know nothing of each other.  Read `router.ingress` and `router.egress` for
the two sides, `router.core` for what all addresses share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from router import messages as m
from router.directory import NO_TERM, PublisherEntry, SubscriptionEntry, epoch_of
from router.egress import Egress
from router.ingress import Ingress
from router.ports import STOLEN, Term

if TYPE_CHECKING:
    from router.core import Core


class Address:
    """A topic, as one router sees it."""

    def __init__(self, core: Core, name: str, start: int) -> None:
        self.core = core
        self.name = name
        self.config = core.config.address(name)
        self.publishers: dict[bytes, PublisherEntry] = {}
        self.subscriptions: dict[m.SubscriptionName, SubscriptionEntry] = {}
        self.ingress = Ingress(self, start)
        self.egress = Egress(self)
        ingress, egress = self.ingress, self.egress
        self.handlers: dict[type[m.AddressMessage], Callable[[str, Any], None]] = {
            m.Pub: self.on_pub,
            m.PubAck: ingress.on_puback,
            m.PubDown: self.on_pubdown,
            m.PubClose: self.on_pubclose,
            m.Flush: egress.on_flush,
            m.Join: self.on_join,
            m.Joined: egress.on_joined,
            m.Orphan: self.on_orphan,
            m.Leave: self.on_leave,
            m.Sync: egress.on_sync,
            m.Data: egress.on_data,
            m.Accept: ingress.on_accept,
            m.AcceptSync: ingress.on_accept_sync,
            m.Settle: egress.on_settle,
            m.SettleTags: egress.on_settle_tags,
        }

    # --------------------------------------------------------------------------------------------- publishers: 5.5, 5.6

    def on_pub(self, sender: str, message: m.Pub) -> None:
        known = self.publishers.get(message.publisher)
        if known and self._pub_is_stale(known, sender, message):
            self.send_stale(sender, known, message.term)
            return
        local = self.ingress.publishers.get(message.publisher)
        if local and sender != self.core.name and local.term < message.term:
            self.ingress.drop(local, epoch_of(message.term, message.incarnation))
        self._enter(message.publisher, message.incarnation, message.term, sender, self.core.now, True)
        self.egress.claimed(sender, message)
        self.core.send_to(sender, m.PubAck(self.name, message.publisher, message.term, None))

    def _pub_is_stale(self, known: PublisherEntry, sender: str, message: m.Pub) -> bool:
        """5.5: an older attachment, or an incarnation that goes back, not even with a later term."""
        return (
            known.term > message.term
            or (known.term == message.term and known.home not in (None, sender))
            or known.incarnation > message.incarnation
        )

    def send_stale(self, sender: str, known: PublisherEntry, term: Term) -> None:
        stale = (known.term, known.incarnation, known.real)
        self.core.send_to(sender, m.PubAck(self.name, known.publisher, term, stale))

    def learn_from_stale(self, publisher: bytes, term: Term, incarnation: int, real: bool) -> None:
        """5.6: a newer attachment exists somewhere: the greater term, the greater incarnation and its real."""
        known = self.publishers.get(publisher)
        if known is not None:
            if known.term >= term and known.incarnation >= incarnation:
                return
            if known.incarnation > incarnation:
                incarnation, real = known.incarnation, known.real
            term = max(term, known.term)
        self.learn(publisher, incarnation, term, None, self.core.now, real)

    def learn(
        self, publisher: bytes, incarnation: int, term: Term, home: str | None, since: float, real: bool
    ) -> PublisherEntry:
        """5.6: what is known of a publisher from elsewhere than its own PUB."""
        entry = self._enter(publisher, incarnation, term, home, since, real)
        self.ingress.may_go_on(publisher)
        self.egress.settle_incarnations(publisher, incarnation)
        return entry

    def _enter(
        self, publisher: bytes, incarnation: int, term: Term, home: str | None, since: float, real: bool
    ) -> PublisherEntry:
        self.egress.void(publisher)  # 10.3
        entry = self.publishers.get(publisher)
        if home != self.core.name and (entry is None or entry.term < term):
            self.ingress.was_elsewhere(publisher)
        if entry is None:
            entry = PublisherEntry(publisher, incarnation, term, home, since, real)
            entry.special = dict.fromkeys(self.egress.subscribers.values())
            self.publishers[publisher] = entry
        entry.incarnation = incarnation
        entry.term = term
        entry.home = home
        entry.since = since
        entry.real = real
        entry.closed = False
        if home is None:
            self._publisher_due(entry)
        return entry

    def note_newer(self, entry: PublisherEntry) -> None:
        """A subscriber's map has deliveries of a later incarnation than is known here, whose routers have died or are
        cut off. Only that life of the publisher can speak for them, so they wait for it as for one without a home: a
        publisher that works here under an older one would never let the entry go."""
        entry.newer_since = self.core.now
        self.core.due(entry.newer_since + self._publisher_forgotten_after())

    def _publisher_forgotten_after(self) -> float:
        return self.config.publisher_expires_s + self.config.margin_s

    def _may_be_elsewhere(self, entry: PublisherEntry) -> bool:
        """8.4: what is held of a publisher is not settled while it may work where nobody here can see it: the clock
        starts again where a router of the topology file has been out of session. Only what is held needs that."""
        seen = self.core.now - self.core.members.together_since
        return seen < self._publisher_forgotten_after() and self.egress.holds(entry.publisher)

    def _publisher_due(self, entry: PublisherEntry) -> None:
        self.core.due(entry.since + self._publisher_forgotten_after())

    def on_pubdown(self, sender: str, message: m.PubDown) -> None:
        """8.4."""
        known = self.publishers.get(message.publisher)
        if known and self._is_its_home(known, sender, message.term):
            self._lose_home(known)

    def _is_its_home(self, known: PublisherEntry, sender: str, term: Term) -> bool:
        return known.home == sender and known.term == term

    def _lose_home(self, known: PublisherEntry) -> None:
        known.home = None
        known.since = self.core.now
        self._publisher_due(known)
        self.egress.void(known.publisher)  # 10.3

    def on_pubclose(self, sender: str, message: m.PubClose) -> None:
        """8.4: closed for good; the entry stays, because an older ingress may still speak on another stream."""
        known = self.publishers.get(message.publisher)
        if known is None or self._close_is_news(known, message):
            below = message.incarnation + 1
            if known is not None:
                self._bury(message)
        else:
            below = min(message.incarnation + 1, known.incarnation)
        self.egress.settle_incarnations(message.publisher, below)

    def _close_is_news(self, known: PublisherEntry, message: m.PubClose) -> bool:
        """An incarnation that has gone back takes nothing from the later one, not even with a later term."""
        return known.term <= message.term and known.incarnation <= message.incarnation

    def _bury(self, message: m.PubClose) -> None:
        entry = self._enter(message.publisher, message.incarnation, message.term, None, self.core.now, False)
        entry.closed = True

    # --------------------------------------------------------------------------------------- subscriptions: 7.3, 7.4, 8

    def on_join(self, sender: str, message: m.Join) -> None:
        core = self.core
        entry = self.subscriptions.get(message.name)
        if entry and self._join_is_stale(entry, sender, message):
            self._joined(sender, message, m.JoinResult.STALE, other=entry.term)
            return
        local = self.egress.subscribers.get(message.name)
        if local and sender != core.name and local.term < message.term:
            self.egress.drop(local, STOLEN, message.term)
        if message.heard:
            self._answer_was_heard(sender, message, entry)
            return
        known = entry if entry is not None and entry.in_time and self._is_the_same(entry, message) else None
        if known and message.kind is not m.JoinKind.FRESH and self._was_away_too_long(known, message):  # 8.3
            if message.kind is m.JoinKind.RESUME:
                self._joined(sender, message, m.JoinResult.BROKEN)
                return
            known.born = message.term  # others may have forgotten it already
        if not known and message.kind is m.JoinKind.RESUME and self._may_have_a_gap(message.born):
            self._joined(sender, message, m.JoinResult.BROKEN)
            return
        resumed = known is not None and message.kind is not m.JoinKind.FRESH
        if known:
            self._tell_where_it_was(known, sender, message.term)
            if known.home is not None:
                self.ingress.owe_again(known)
                self.ingress.uncover(known)
            known.term = message.term
            known.timeout_s = message.timeout_s
            known.find_home(sender, self.ingress.log.end)
            entry = known
        else:
            entry = self._new_subscription(sender, message, entry)
        mark = self._mark(entry) if message.born is None else None  # a client without epochs
        result = m.JoinResult.OK if entry.in_time else m.JoinResult.UNHEARD
        self._joined(sender, message, result, known=resumed, mark=mark)
        self.ingress.synchronise(entry, message.history)

    def _tell_where_it_was(self, entry: SubscriptionEntry, sender: str, later: Term) -> None:
        """7.3: its router may not have heard of the later term. From here on it is not covered there, where it would go
        on with what others there are sent, and miss what comes in between. Who said it, and who is told by the sender
        on the same session, know."""
        home = entry.home
        if home is None or home == sender or self.core.name in (home, sender):
            return
        stale = m.Joined(self.name, entry.name, entry.term, m.JoinResult.STALE, False, None, later)
        self.core.send_to(home, stale)

    def _answer_was_heard(self, sender: str, message: m.Join, entry: SubscriptionEntry | None) -> None:
        """7.3: before the attach was answered."""
        if entry is None or entry.term != message.term or entry.home != sender:  # it has been elsewhere meanwhile
            other = message.term if entry is None else entry.term
            self._joined(sender, message, m.JoinResult.STALE, other=other)
            return
        entry.in_time = True
        self._joined(sender, message, m.JoinResult.OK)

    def _new_subscription(self, sender: str, message: m.Join, replaced: SubscriptionEntry | None) -> SubscriptionEntry:
        born = message.born
        if born is None:
            born = replaced.born if replaced else None
            if message.kind is m.JoinKind.EITHER and self._may_have_a_gap(born):
                born = message.term  # from here on; what was accepted before it does not have
        if replaced:
            self._tell_where_it_was(replaced, sender, message.term)
            self.ingress.replace_subscription(replaced)
        entry = SubscriptionEntry(message.name, born, message.term, sender, self.core.now, message.timeout_s)
        entry.in_time = self._is_in_time(sender)
        self._add_subscription(entry)
        self._owe_backlog(entry)
        return entry

    def _is_in_time(self, sender: str) -> bool:
        """7.3: one that is new here, while others are told accepted. Its JOIN may come out of a session that its router
        has given up, and has answered the attach without us since: until we know better it is no knowledge."""
        return sender == self.core.name or not self._may_have_missed()

    def _add_subscription(self, entry: SubscriptionEntry) -> None:
        first = not self.subscriptions
        self.subscriptions[entry.name] = entry
        if first:
            self.ingress.all_windows_changed()  # 6.10

    def _owe_backlog(self, entry: SubscriptionEntry) -> None:
        """7.4: a fresh subscription gets the backlog, or order breaks at the next failover."""
        self.ingress.owe_all(entry)

    def _mark(self, entry: SubscriptionEntry) -> Term | None:
        """7.3: since when this router has known it without a gap."""
        return entry.born

    def _is_the_same(self, entry: SubscriptionEntry, message: m.Join) -> bool:
        """7.3: name and born match; an entry made by a stale attach is no knowledge of this subscription."""
        return message.born is None or entry.born == message.born

    def _join_is_stale(self, entry: SubscriptionEntry, sender: str, message: m.Join) -> bool:
        return entry.term > message.term or (entry.term == message.term and entry.home not in (None, sender))

    def _may_have_missed(self) -> bool:
        """7.3: this router has accepted, for all it knows without the unknown subscription."""
        return self.core.established and self.core.released

    def _may_have_a_gap(self, born: Term | None) -> bool:
        """7.3: of one that is unknown here; None: a client without epochs."""
        return self._may_have_missed() or (self.core.established and self._may_be_given_up(born))

    def _may_be_given_up(self, born: Term | None) -> bool:
        """8.3: it may have been known here, and expired: whoever has accepted without it since may be dead."""
        latest = self.core.given_up
        return latest is not None and (born is None or born <= latest)

    def _was_away_too_long(self, entry: SubscriptionEntry, message: m.Join) -> bool:
        """8.3. A HELLO tells of those that are attached as of orphans, without a home (4.3): by the JOIN of the same
        attachment it has never been away, however short its timeout."""
        return entry.expired(self.core.now) and not (entry.last_home is None and entry.term == message.term)

    def _give_up(self, entry: SubscriptionEntry, since: float) -> None:
        """8.3: it has expired, unless it is at a router that has been out of session since. What is kept of all that
        have is the latest born: no later one is among them."""
        if self.core.members.together_since <= since:
            self._refuse_from_now_on(entry)

    def _refuse_from_now_on(self, entry: SubscriptionEntry) -> None:
        """7.3, and all that were born before it and are not known. Whoever was told that it is broken may have gone
        before it could read that."""
        self.core.given_up = max(self.core.given_up or NO_TERM, entry.born or NO_TERM)

    def _joined(
        self,
        sender: str,
        message: m.Join,
        result: m.JoinResult,
        *,
        known: bool = False,
        mark: Term | None = None,
        other: Term | None = None,
    ) -> None:
        self.core.send_to(sender, m.Joined(self.name, message.name, message.term, result, known, mark, other))

    def on_orphan(self, sender: str, message: m.Orphan) -> None:
        """8.1."""
        entry = self.subscriptions.get(message.name)
        if entry is None or entry.term != message.term:
            return
        if entry.home is None and entry.last_home == sender:  # 8.3: its own timeout has begun
            left = entry.since + entry.timeout_s - self.core.now
            entry.timeout_s = min(entry.timeout_s, entry.timeout_s - left + message.timeout_s)
            self._subscription_due(entry)
        if entry.home != sender:
            return
        self.ingress.owe_again(entry)
        self.ingress.uncover(entry)
        self.ingress.orphan(entry)
        entry.timeout_s = message.timeout_s
        self._subscription_due(entry)

    def _subscription_due(self, entry: SubscriptionEntry) -> None:
        self.core.due(entry.since + self._forgotten_after(entry))

    def _forgotten_after(self, entry: SubscriptionEntry) -> float:
        """8.3: refused at T, forgotten at T + margin: no two routers may disagree in the dangerous direction."""
        return entry.timeout_s + self.config.margin_s

    def on_leave(self, sender: str, message: m.Leave) -> None:
        """8.2."""
        entry = self.subscriptions.get(message.name)
        if entry is None or self._leave_is_stale(entry, message):
            return
        self._tell_where_it_was(entry, sender, message.term)
        if self._was_broken(message):
            self._refuse_from_now_on(entry)
        elif entry.home is None or entry.timeout_s <= 0:  # 8.3: expired at once, or perhaps closed
            self._give_up(entry, self.core.now if entry.home is not None else entry.since)
        self._forget_subscription(entry)

    def _was_broken(self, message: m.Leave) -> bool:
        return message.broken

    def _leave_is_stale(self, entry: SubscriptionEntry, message: m.Leave) -> bool:
        return entry.term > message.term

    def _forget_subscription(self, entry: SubscriptionEntry) -> None:
        del self.subscriptions[entry.name]
        self.ingress.forget_subscription(entry)
        if not self.subscriptions:
            self.ingress.all_windows_changed()  # 6.10
            self.core.touch(self)  # nothing may be left of the address

    # ------------------------------------------------------------------------------------------- routers: 4.2, 4.3, 8.6

    def news(self) -> tuple[list[m.PublisherNews], list[m.SubscriptionNews]]:
        """What HELLO tells of this address: real publishers, all subscriptions."""
        now = self.core.now
        publishers = [
            m.PublisherNews(self.name, e.publisher, e.incarnation, e.term, e.age(now))
            for e in self.publishers.values()
            if e.real
        ]
        subscriptions = [
            m.SubscriptionNews(self.name, e.name, e.born, e.term, e.timeout_s, e.age(now))
            for e in self.subscriptions.values()
        ]
        return publishers, subscriptions

    def tell_of_close(self, peer: str, news: m.PublisherNews) -> None:
        """8.4: the PUBCLOSE may have died with a session. Who missed it would keep what it holds of this publisher in
        doubt until publisher_timeout; the term fences it as ever."""
        known = self.publishers.get(news.publisher)
        if known is not None and known.closed and (known.incarnation, known.term) == (news.incarnation, news.term):
            self.core.send_to(peer, m.PubClose(self.name, known.publisher, known.incarnation, known.term))

    def hear_of_publisher(self, news: m.PublisherNews) -> None:
        """4.3: comparing incarnation first, then term; detaches its own older link as stolen."""
        local = self.ingress.publishers.get(news.publisher)
        if local and (local.incarnation, local.term) < (news.incarnation, news.term):
            self.ingress.drop(local, epoch_of(news.term, news.incarnation))
        known = self.publishers.get(news.publisher)
        if known is None or (known.incarnation, known.term) < (news.incarnation, news.term):
            term = max(news.term, known.term) if known else news.term
            self.learn(news.publisher, news.incarnation, term, None, self.core.now - news.age_s, True)

    def hear_of_subscription(self, sender: str, news: m.SubscriptionNews) -> None:
        """4.3: one that it lacks or has at a lower term, as an orphan; every record not done is owed to it."""
        local = self.egress.subscribers.get(news.name)
        if local and local.term < news.term:
            self.egress.drop(local, STOLEN, news.term)
        entry = self.subscriptions.get(news.name)
        if entry is not None:
            if entry.term >= news.term:
                return
            self._tell_where_it_was(entry, sender, news.term)
            self.ingress.replace_subscription(entry)
        since = self.core.now - news.age_s
        entry = SubscriptionEntry(news.name, news.born, news.term, None, since, news.timeout_s)
        self._add_subscription(entry)
        self._owe_news(entry)
        self.ingress.orphan(entry)
        entry.since = since
        self._subscription_due(entry)

    def _owe_news(self, entry: SubscriptionEntry) -> None:
        self.ingress.owe_all(entry)

    def router_up(self, router: str) -> None:
        self.ingress.router_up(router)
        self.egress.router_up(router)

    def router_down(self, router: str) -> None:
        """8.6."""
        orphans = [e for e in self.subscriptions.values() if e.home == router]
        self.ingress.router_down(router, orphans)
        for entry in orphans:
            self._subscription_due(entry)
        for known in list(self.publishers.values()):
            if known.home == router:
                self._lose_home(known)
        self.egress.router_down(router)
        self.egress.stop_waiting(router)
        self.ingress.stop_waiting(router)

    def become_established(self) -> None:
        """4.4: check every record."""
        self.egress.check_all_answered()
        self.ingress.check_all()
        for link in list(self.ingress.publishers.values()):
            self.ingress.check_ready(link)

    # ------------------------------------------------------------------------------------------------- time: 8.3 to 8.5

    def tick(self) -> None:
        """Does what is due."""
        now = self.core.now
        for entry in list(self.subscriptions.values()):
            if entry.home is None and now >= entry.since + self._forgotten_after(entry):
                self._give_up(entry, entry.since)
                self._forget_subscription(entry)
        forgotten = self._publisher_forgotten_after()
        for known in list(self.publishers.values()):
            lost = known.home is None and now >= known.since + forgotten
            newer = known.newer_since is not None and now >= known.newer_since + forgotten
            if not (lost or newer) or self._may_be_elsewhere(known):
                continue
            if lost:
                self.egress.void(known.publisher)
                self.egress.settle_where(known.publisher, lambda delivery: True)
                del self.publishers[known.publisher]
            else:
                known.newer_since = None
                self.egress.settle_newer(known.publisher, known.incarnation)
        for link in list(self.ingress.publishers.values()):
            if link.flush_at is not None and now >= link.flush_at:
                self.ingress.flush_due(link)

    def deadlines(self) -> list[float]:
        """When something is due next."""
        found = [e.since + self._forgotten_after(e) for e in self.subscriptions.values() if e.home is None]
        found += [self._looked_at(e.since) for e in self.publishers.values() if e.home is None]
        found += [self._looked_at(e.newer_since) for e in self.publishers.values() if e.newer_since is not None]
        found += [link.flush_at for link in self.ingress.publishers.values() if link.flush_at is not None]
        return found

    def _looked_at(self, since: float) -> float:
        """When the publisher that has been away since then is to be forgotten, or looked at again."""
        now, forgotten = self.core.now, self._publisher_forgotten_after()
        if since + forgotten > now:
            return since + forgotten
        together = self.core.members.together_since
        return (together if together < now else now) + forgotten

    def is_empty(self) -> bool:
        return not (
            self.publishers
            or self.subscriptions
            or self.ingress.publishers
            or self.ingress.proving
            or self.egress.subscribers
            or self.ingress.settled
            or self.egress.accepts
            or self.egress.sync_accepts
        )

    def status(self) -> dict[str, object]:
        now = self.core.now
        return {
            "ingress": self.ingress.status(),
            "egress": self.egress.status(),
            "subscriptions": [
                {
                    "container": e.name[0],
                    "name": e.name[1],
                    "home": e.home,
                    "away_s": round(e.age(now), 3),
                    "timeout_s": e.timeout_s,
                    "owed": sum(b - a for a, b in e.owed.overlap(0, self.ingress.log.end)),
                }
                for e in self.subscriptions.values()
            ],
            "publishers_known": len(self.publishers),
            "oldest_in_doubt_s": self._oldest_in_doubt(now),
        }

    def _oldest_in_doubt(self, now: float) -> float | None:
        """How long the publisher of some delivery that is in doubt here has been homeless; None where nothing is."""
        ages = [
            self.publishers[publisher].age(now) if publisher in self.publishers else 0.0
            for link in self.egress.subscribers.values()
            for publisher, known in link.irregular.items()
            if any(delivery.position < 0 and delivery.ingress is None for delivery in known.values())
        ]
        return round(max(ages), 3) if ages else None
