"""What a router knows of the publishers of one address, and how that changes (protocol 2.1, 5.5, 5.6, 8.4).

An entry says where a publisher works, under which term and incarnation. Messages of ingresses change it, and so does
time. What follows for local links is done by `router.core.ingress`, for local subscriptions by `router.core.egress`.
"""

from __future__ import annotations

from collections import Counter

from router.config import is_dynamic
from router.core import messages as m
from router.core.base import BaseAddress
from router.core.directory import PublisherEntry
from router.core.holding import PUBLISHER
from router.core.irregular import Irregular, State
from router.core.naming import NO_TERM, derive_publisher_id, incarnation_of, refused_epoch
from router.core.ports import Term
from router.core.publisher_handshake import Input
from router.core.subscriber import BaseEgress
from router.policies import owner_of


class PublisherDirectory:
    """The publishers of one address, by publisher id."""

    egress: BaseEgress

    def __init__(self, address: BaseAddress) -> None:
        self.address = address
        self.core = address.core
        self.attached = address.attached.claimed
        self.entries = address.known_publishers
        self._is_node = is_dynamic(address.name)
        # since then nobody is known to subscribe, and no HELLO has told of a publisher (protocol 8.4.13)
        self._over_since = self.core.now

    def handlers(self) -> m.Handlers:
        return {m.Pub: self.on_pub, m.PubDown: self.on_pubdown, m.PubClose: self.on_pubclose}

    # ---------------------------------------------------------------------------------------------------------- claims

    def on_pub(self, sender: str, message: m.Pub) -> None:
        """A publisher works at the sender from now on, unless this router knows better (protocol 5.5)."""
        known = self.entries.get(message.publisher)
        if known and self.refuses(sender, known, message.incarnation):
            return
        if known and self._pub_is_stale(known, sender, message):
            self.send_stale(sender, known, message.term)
            return
        local = self.attached.get(message.publisher)
        if local and sender != self.core.name and local.term < message.term:
            local.ingress.drop(local, refused_epoch(message.term, message.incarnation))
        entry = self._enter(message.publisher, message.incarnation, message.term, sender, self.core.now, True)
        entry.timeout_s = message.timeout_s
        self.egress.on_claim(sender, message)
        self.core.post.send_to(sender, m.PubAck(self.address.name, message.publisher, message.term, None))

    def _pub_is_stale(self, known: PublisherEntry, sender: str, message: m.Pub) -> bool:
        """Says whether the PUB is of an older attachment, or of an earlier incarnation, in any term (protocol 5.5)."""
        return (
            known.term > message.term
            or (known.term == message.term and known.home not in (None, sender))
            or known.incarnation > message.incarnation
        )

    def send_stale(self, sender: str, known: PublisherEntry, term: Term) -> None:
        """Tells an ingress that a later claim than the one of its `term` exists (protocol 5.5)."""
        stale = (known.term, known.incarnation, known.real)
        self.core.post.send_to(sender, m.PubAck(self.address.name, known.publisher_id, term, stale))

    # --------------------------------------------------------------------------------------------------------- learning

    def learn_from_stale(self, publisher_id: bytes, term: Term, incarnation: int, real: bool) -> None:
        """A later attachment exists somewhere: the entry gets the greater term and the greater incarnation
        (protocol 5.6)."""
        known = self.entries.get(publisher_id)
        if known is not None:
            if (known.term >= term and known.incarnation >= incarnation) or known.is_forgotten(incarnation):
                return
            if known.incarnation > incarnation:
                incarnation, real = known.incarnation, known.real
            term = max(term, known.term)
        self.learn(publisher_id, incarnation, term, None, self.core.now, real)

    def learn(
        self, publisher_id: bytes, incarnation: int, term: Term, home: str | None, since: float, real: bool
    ) -> PublisherEntry:
        """Enters what is known of a publisher from elsewhere than its own PUB (protocol 5.6)."""
        entry = self._enter(publisher_id, incarnation, term, home, since, real)
        self._note_known(publisher_id)
        self.egress.settle_incarnations(publisher_id, 0, incarnation)
        return entry

    def _enter(
        self, publisher_id: bytes, incarnation: int, term: Term, home: str | None, since: float, real: bool
    ) -> PublisherEntry:
        self.egress.ingress_lost(publisher_id)
        entry = self.entries.get(publisher_id)
        if home != self.core.name and (entry is None or entry.term < term):
            self._overtaken_by_news(publisher_id)
        if entry is None:
            timeout_s = self.address.config.publisher_expires_s
            entry = PublisherEntry(publisher_id, incarnation, term, home, since, real, timeout_s)
            self.entries[publisher_id] = entry
            self.egress.special[publisher_id] = dict.fromkeys(self.egress.subscribers.values())
            local = self.attached.get(publisher_id)
            if local is not None:  # of others there is no name
                entry.made_by = owner_of(local.brought.container)
            self.core.memory.holding.count(entry.made_by, PUBLISHER)
        if real and home != self.core.name and self.core.config.feeding:  # protocol 16.12.4
            self._tell_feeds()
        entry.incarnation = incarnation
        entry.term = term
        entry.home = home
        entry.since = since
        entry.real = real
        entry.closed = False
        entry.forgotten = None
        if home is None:
            self._schedule(entry, entry.since)
        return entry

    def _note_known(self, publisher_id: bytes) -> None:
        """A subscriber's map or another router names the publisher, which was unknown here when it attached
        (protocol 5.4)."""
        for publisher in self.address.attached.proving_as(publisher_id):
            publisher.handshake.may_be_late = publisher.brought.may_resend

    def _overtaken_by_news(self, publisher_id: bytes) -> None:
        """Another attachment becomes known after a term was chosen here by our clock (protocol 5.1).

        No clock can tell which of the two is later, whatever their terms. A later sign of life of the publisher can,
        and so can epochs that the client chose.
        """
        for publisher in self.address.attached.proving_as(publisher_id):
            if not publisher.handshake.brought_epoch:
                publisher.ingress.receive(publisher, Input.NEWS)

    def _tell_feeds(self) -> None:
        for topic in self.core.owner.shares.topics_of(self.address.name):
            found = self.core.addresses.get(topic)
            if found is not None:
                found.feed_learnt(self.address.name)

    def learn_from_map(self, publisher_id: bytes, incarnation: int) -> PublisherEntry:
        """A subscriber's map has deliveries of this publisher and incarnation (protocol 7.2).

        Anybody who may subscribe can write that, whoever the publisher is. So it teaches that there is something to
        wait for, and no incarnation: the publisher would be refused for it. Where the incarnation is later than is
        known here, the routers that knew it have died or are cut off. Only the publisher in that incarnation can settle
        these deliveries, so they wait for it as for a publisher without a home. Otherwise a publisher that works here
        under an older incarnation would keep the entry for ever.
        """
        entry = self.entries.get(publisher_id)
        if entry is None:
            entry = self.learn(publisher_id, 0, NO_TERM, None, self.core.now, False)
        if incarnation > entry.incarnation:
            entry.newer_incarnation_since = self.core.now
            self._schedule(entry, entry.newer_incarnation_since)
        return entry

    def learn_of_hello(self, news: m.PublisherNews) -> None:
        """A HELLO names a publisher: the greater incarnation wins, then the greater term (protocol 4.3)."""
        self._over_since = self.core.now  # the JOIN comes behind the HELLO
        local = self.attached.get(news.publisher)
        if local and (local.incarnation, local.term) < (news.incarnation, news.term):
            local.ingress.drop(local, refused_epoch(news.term, news.incarnation))
        known = self.entries.get(news.publisher)
        if known is not None and known.is_forgotten(news.incarnation):
            return
        if known is None or (known.incarnation, known.term) < (news.incarnation, news.term):
            term = max(news.term, known.term) if known else news.term
            entry = self.learn(news.publisher, news.incarnation, term, None, self.core.now - news.age_s, True)
            entry.timeout_s = news.timeout_s

    def repeat_close(self, peer: str, news: m.PublisherNews) -> None:
        """A HELLO names a publisher that is closed here: the peer gets the PUBCLOSE that it may have missed
        (protocol 4.3)."""
        known = self.entries.get(news.publisher)
        if known is not None and known.closed and (known.incarnation, known.term) == (news.incarnation, news.term):
            close = m.PubClose(self.address.name, known.publisher_id, known.incarnation, known.term)
            self.core.post.send_to(peer, close)

    def news(self) -> list[m.PublisherNews]:
        """Returns what HELLO tells: the real publishers (protocol 4.2)."""
        name, now = self.address.name, self.core.now
        return [
            m.PublisherNews(name, e.publisher_id, e.incarnation, e.term, e.timeout_s, e.age(now))
            for e in self.entries.values()
            if e.real
        ]

    # ------------------------------------------------------------------------------------------------------- going away

    def on_pubdown(self, sender: str, message: m.PubDown) -> None:
        """The publisher works at the sender no more, under that term (protocol 8.4)."""
        known = self.entries.get(message.publisher)
        if known and known.home == sender and known.term == message.term:
            self._lose_home(known)

    def _lose_home(self, known: PublisherEntry) -> None:
        """The publisher has no home: what is held of it is in doubt until it has one again (protocol 8.4, 10.3)."""
        known.home = None
        known.since = self.core.now
        self._schedule(known, known.since)
        self.egress.ingress_lost(known.publisher_id)

    def on_pubclose(self, sender: str, message: m.PubClose) -> None:
        """The publisher has closed for good: its deliveries are settled (protocol 8.4).

        Deliveries of a known later incarnation or term are not settled.
        """
        if message.forgotten:
            self._on_forgotten(sender, message)
            return
        known = self.entries.get(message.publisher)
        if known is None or (known.term <= message.term and known.incarnation <= message.incarnation):
            below = message.incarnation + 1
            if known is not None and not known.is_forgotten(message.incarnation):
                self._enter_closed(message)
        else:
            below = min(message.incarnation + 1, known.incarnation)
        self.egress.settle_incarnations(message.publisher, 0, below)

    def _enter_closed(self, message: m.PubClose) -> None:
        """The entry of a closed publisher stays: an older ingress may still speak on another stream (protocol 8.4)."""
        entry = self._enter(message.publisher, message.incarnation, message.term, None, self.core.now, False)
        entry.closed = True

    def router_up(self, router: str) -> None:
        """Tells the peer who has been forgotten (protocol 8.4)."""
        for known in self.entries.values():
            if known.forgotten is not None:
                self._tell_forgotten(router, known)

    def router_down(self, router: str) -> None:
        """Publishers whose home was that router have none (protocol 8.6)."""
        for known in list(self.entries.values()):
            if known.home == router:
                self._lose_home(known)
            elif known.forgotten is not None:
                known.forgotten.pop(router, None)

    # -------------------------------------------------------------------------------------------------------- forgotten

    def named(self, container: str, name: str) -> list[PublisherEntry]:
        """Returns the entries of that name: one with unique tags is another publisher (protocol 1.2)."""
        ids = [derive_publisher_id(container, name, self.address.name, unique) for unique in (False, True)]
        return [self.entries[publisher_id] for publisher_id in ids if publisher_id in self.entries]

    def attached_at(self, entry: PublisherEntry) -> str | None:
        """Returns the router where it is attached, as far as is known here, also before its claim."""
        return self.core.name if self.address.attached.proving_as(entry.publisher_id) else entry.home

    def status_of(self, entries: list[PublisherEntry]) -> dict[str, object]:
        """Returns what would become of these publishers' deliveries if they did not come back: how many the
        subscriptions here hold, accepted or not. `missing`: routers out of reach, which have to be told first."""
        held = [delivery.state is State.ACCEPTED for entry in entries for delivery in self._in_doubt(entry)]
        members = self.core.members
        return {
            "away_s": round(min(entry.age(self.core.now) for entry in entries), 3),
            "timeout_s": max(entry.timeout_s for entry in entries),
            "accepted": sum(held),
            "undecided": len(held) - sum(held),
            "missing": members.missing(members.up),
        }

    def _in_doubt(self, entry: PublisherEntry) -> list[Irregular]:
        """What subscriptions here hold of a publisher without a home."""
        subscribers = self.egress.subscribers.values()
        return [delivery for each in subscribers for delivery in each.irregular.of(entry.publisher_id)]

    def forget(self, entry: PublisherEntry) -> None:
        """An operator says that a publisher without a home will not come back. All routers are told (protocol 8.4)."""
        assert entry.home is None
        known_by_maps = entry.term == NO_TERM
        held = [incarnation_of(delivery.tag) for delivery in self._in_doubt(entry)] if known_by_maps else []
        incarnation = max(entry.incarnation, *held, 0)
        name, publisher_id = self.address.name, entry.publisher_id
        self.core.post.broadcast(m.PubClose(name, publisher_id, incarnation, entry.term, forgotten=True))
        self.core.drain()

    def _on_forgotten(self, sender: str, message: m.PubClose) -> None:
        """The publisher does not come back in this incarnation. The sender knows that; those who may not are told
        (protocol 8.4)."""
        core, known = self.core, self.entries.get(message.publisher)
        if known is not None and known.incarnation > message.incarnation:
            return
        if known is None or known.forgotten is None or known.incarnation < message.incarnation:
            self._tell_local(message.publisher, message.incarnation)
            # the next term that a router chooses must make a later incarnation (protocol 5.4)
            term = max(message.term, (message.incarnation, ""), known.term if known is not None else NO_TERM)
            known = self._enter(message.publisher, message.incarnation, term, None, core.now, False)
            known.newer_incarnation_since = None
            known.forgotten = {}
            self._pass_on(sender, known)
        assert known.forgotten is not None
        known.forgotten[sender] = None
        self._settle_if_forgotten_everywhere(known)

    def _tell_local(self, publisher_id: bytes, incarnation: int) -> None:
        local = self.attached.get(publisher_id)
        if local is not None:
            local.ingress.forget(publisher_id, incarnation)

    def _pass_on(self, sender: str, known: PublisherEntry) -> None:
        """Tells all what another router has told: that one may die before all have heard it. To the others this says
        that it is known here (protocol 8.4)."""
        if sender != self.core.name:
            for peer in self.core.kinds.peers(self.address.name):
                self._tell_forgotten(peer, known)

    def _tell_forgotten(self, router: str, known: PublisherEntry) -> None:
        close = m.PubClose(self.address.name, known.publisher_id, known.incarnation, known.term, forgotten=True)
        self.core.post.send_to(router, close)

    def refuses(self, sender: str, known: PublisherEntry, incarnation: int) -> bool:
        """Says whether an ingress speaks for a publisher that has been forgotten. If so, it is told (protocol 8.4)."""
        if not known.is_forgotten(incarnation):
            return False
        if sender == self.core.name:
            self._tell_local(known.publisher_id, known.incarnation)
        else:
            self._tell_forgotten(sender, known)
        return True

    def is_over(self, known: PublisherEntry, incarnation: int) -> bool:
        """Says whether deliveries of that incarnation are settled, as a later one is known, or every router knows that
        it does not come back (protocol 7.2, 8.4)."""
        return incarnation < known.incarnation or (
            known.is_forgotten(incarnation) and self._is_forgotten_everywhere(known)
        )

    def _is_forgotten_everywhere(self, known: PublisherEntry) -> bool:
        """Says whether no router of the topology file can take the publisher back (protocol 8.4)."""
        return known.forgotten is not None and not self.core.members.missing(known.forgotten)

    def _settle_if_forgotten_everywhere(self, known: PublisherEntry) -> None:
        if self._is_forgotten_everywhere(known):
            self.egress.settle_incarnations(known.publisher_id, 0, known.incarnation + 1)

    # ------------------------------------------------------------------------------------------------------------- time

    def _forgotten_after(self, entry: PublisherEntry) -> float:
        """Returns after how many seconds without a home a publisher is forgotten: not before the time that it was told,
        nor before the one of the present topology file (protocol 8.4, 12.7)."""
        config = self.address.config
        return max(entry.timeout_s, config.publisher_expires_s) + config.margin_s

    def _forgotten_at(self, entry: PublisherEntry, since: float) -> float:
        """Returns when a publisher is forgotten that has had no home since then: at a dynamic node that has ended
        soon, since it cannot come back (protocol 8.4.13)."""
        if self._is_node and not self.address.known_subscriptions:
            return max(since, self._over_since) + self.address.config.margin_s
        return since + self._forgotten_after(entry)

    def nobody_subscribes(self) -> None:
        """The last subscription has gone."""
        if self._is_node:
            self._over_since = self.core.now
            self.core.agenda.due(self.core.now + self.address.config.margin_s, self.address)

    def _schedule(self, entry: PublisherEntry, since: float) -> None:
        self.core.agenda.due(self._forgotten_at(entry, since), self.address)

    def _may_work_out_of_sight(self, entry: PublisherEntry) -> bool:
        """Says whether the publisher of deliveries in doubt may work at a router that is out of reach: a router of the
        topology file has been out of session meanwhile. These deliveries are kept (protocol 8.4)."""
        seen_for = self.core.now - self.core.members.together_since
        return seen_for < self._forgotten_after(entry) and self.egress.holds_in_doubt(entry.publisher_id)

    def tick(self) -> None:
        """Settles and forgets what has been without a home for too long (protocol 8.4)."""
        now, egress = self.core.now, self.egress
        for known in list(self.entries.values()):
            if known.forgotten is not None:
                self._settle_if_forgotten_everywhere(known)  # perhaps the topology file has fewer routers now
            lost = known.home is None and now >= self._forgotten_at(known, known.since)
            newer = known.newer_incarnation_since
            newer_lost = newer is not None and now >= self._forgotten_at(known, newer)
            if not (lost or newer_lost) or self._may_work_out_of_sight(known):
                continue
            if lost:
                egress.ingress_lost(known.publisher_id)
                egress.settle_incarnations(known.publisher_id, 0)
                del self.entries[known.publisher_id], self.egress.special[known.publisher_id]
                self.core.memory.holding.count(known.made_by, -PUBLISHER)
            else:
                known.newer_incarnation_since = None
                egress.settle_incarnations(known.publisher_id, known.incarnation + 1)

    def octets_by_user(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for entry in self.entries.values():
            held[entry.made_by] += PUBLISHER
        return held

    def deadlines(self) -> list[float]:
        """Returns when entries are to be forgotten, or looked at again."""
        found = [self._checked_at(e, e.since) for e in self.entries.values() if e.home is None]
        for e in self.entries.values():
            if e.newer_incarnation_since is not None:
                found.append(self._checked_at(e, e.newer_incarnation_since))
        return found

    def _checked_at(self, entry: PublisherEntry, since: float) -> float:
        now, forgotten_at = self.core.now, self._forgotten_at(entry, since)
        if forgotten_at > now:
            return forgotten_at
        together = self.core.members.together_since
        return (together if together < now else now) + self._forgotten_after(entry)

    def oldest_in_doubt_s(self) -> float | None:
        """Returns for how long a publisher with deliveries in doubt here has been without a home; None if nothing is in
        doubt."""
        now = self.core.now
        ages = [
            self.entries[publisher_id].age(now) if publisher_id in self.entries else 0.0
            for subscriber in self.egress.subscribers.values()
            for publisher_id, known in subscriber.irregular.by_tag.items()
            if any(delivery.position < 0 and delivery.ingress is None for delivery in known.values())
        ]
        return round(max(ages), 3) if ages else None

    def check_invariants(self) -> None:
        core, attached = self.core, self.attached
        for publisher_id, entry in self.entries.items():
            assert entry.publisher_id == publisher_id
            assert entry.home is None or entry.home == core.name or entry.home in core.members.up, f"home {entry.home}"
            if entry.home == core.name:
                assert publisher_id in attached, "it is not attached here"
                assert attached[publisher_id].term == entry.term
            over = entry.closed or entry.forgotten is not None
            assert not over or (entry.home is None and not entry.real), "it is closed, and works somewhere"
