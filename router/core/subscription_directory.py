"""What a router knows of the subscriptions of one address, and how that changes (protocol 2.2, 7.3, 7.4, 8.1 to 8.3).

An entry says where a subscription is attached, or since when it is an orphan, and since when this router knows it. What
is owed to a subscription is kept by `router.core.records`, its streams by `router.core.streams`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from router.config import is_dynamic, is_dynamic_target
from router.core import messages as m
from router.core.base import BaseAddress
from router.core.counters import EXPIRED, age_s
from router.core.directory import Gap, SubscriptionEntry
from router.core.egress import Egress
from router.core.former import Former
from router.core.holding import octets_of_subscription
from router.core.ingress import Ingress
from router.core.intervals import count
from router.core.naming import NO_TERM
from router.core.ports import Term
from router.core.streams import Streams
from router.names import STOLEN, SUBSCRIPTION_BROKEN, SUBSCRIPTION_REMOVED
from router.policies import owner_of

DRIFT: Final = 1e-3  # of two routers' clocks: more than any real ones have
LONGEST_S: Final = 1e9  # that a message between routers can say: not known (protocol 12.2)
NEVER_BEFORE: Final = float("-inf")
RESUMES: Final = (m.JoinKind.RESUME, m.JoinKind.STAYED)


class SubscriptionDirectory:
    """The subscriptions of one address, by name."""

    def __init__(self, address: BaseAddress, egress: Egress, streams: Streams, ingress: Ingress) -> None:
        self.address = address
        self.core = address.core
        self.egress = egress
        self.local = egress.subscribers  # attached here
        self.kept = egress.kept
        self.streams = streams
        self.records = streams.records
        self.distribution = streams.records.distribution
        self.ingress = ingress
        self.entries = address.known_subscriptions

    def handlers(self) -> m.Handlers:
        return {
            m.Join: self.on_join,
            m.Orphan: self.on_orphan,
            m.Leave: self.on_leave,
            m.Note: self.on_note,
            m.Told: self.on_told,
        }

    # --------------------------------------------------------------------------------------------------------- attached

    def on_join(self, sender: str, message: m.Join) -> None:
        """A subscription is attached at the sender: it is resumed, entered, or refused (protocol 7.3, 7.4)."""
        core, address = self.core, self.address
        number, chosen_by = message.term
        if chosen_by and sender != core.name:
            core.members.chosen = max(core.members.chosen, number)
        entry = self.entries.get(message.name)
        if entry and self._join_is_stale(entry, sender, message):
            self._answer(sender, message, m.JoinResult.STALE, other=entry.term)
            return
        local = self.local.get(message.name)
        if local and sender != core.name and local.term < message.term:
            self.egress.drop(local, STOLEN, message.term)
        if message.heard:
            self._on_join_heard(sender, message, entry)
            return
        known = entry if entry is not None and self._is_known(entry, message) else None
        former = None if entry is not None else core.memory.former.named(address.name, message.name, message.born)
        over_at = self._over_at(known or former, message)
        created_at, later = self._created_at(sender, message), entry is None or entry.term < message.term
        stayed = self._has_stayed(known or former, message)
        gap = self._may_have_a_gap(known, former, message, created_at, over_at, stayed)
        if gap and message.kind in RESUMES:
            self._answer(sender, message, m.JoinResult.BROKEN)
            return
        if local and sender == core.name:
            local.handshake.over_at = over_at
        resumed = self._is_resumed(known, former, message) and not gap
        if known:
            self._tell_old_home(known, sender, message.term)
            if known.home is not None:
                self.records.owe_again(known)
                self.streams.uncover(known)
            known.term = message.term
            known.resumed = resumed
            known.timeout_s = message.timeout_s
            known.attached_at(sender, self.records.log.end)
            entry = known
        else:
            entry = self._new_subscription(sender, message, entry, created_at, former, gap)
            entry.resumed = resumed
        if later or over_at is not None:
            entry.doubted_since = over_at if stayed and not gap else None
        if gap:
            entry.missed(message.term)
        elif later and (entry.gap is Gap.TOLD or self._shows_that_a_gap_was_read(sender, message)):
            entry.gap = Gap.NONE
        entry.data = self.distribution.data_of(entry, message.data)
        if later:  # protocol 7.9: what was fetched for another attach is out of date
            entry.recalled_by = message.term
        # protocol 7.3: the mark says since when this router knows the subscription of a client without epochs
        mark = entry.born if message.born is None else None
        result = m.JoinResult.OK if entry.in_time else m.JoinResult.UNHEARD
        self._answer(sender, message, result, known=resumed, mark=mark)
        self.streams.synchronise(entry, message.history)

    def _shows_that_a_gap_was_read(self, sender: str, message: m.Join) -> bool:
        """Says whether the client presents what has come behind the answer before this attach. A home of version 4
        sends the same of an attach that has long been answered, and tells its client of no gap (protocol 7.6)."""
        return message.kind is m.JoinKind.RESUME and self.core.speaks(sender) >= m.since(m.Told)

    def on_told(self, sender: str, message: m.Told) -> None:
        """Its client knows now that it has missed something (protocol 7.6)."""
        entry = self.entries.get(message.name)
        if entry is not None and entry.home == sender and entry.term == message.term:
            entry.gap = Gap.TOLD

    def on_note(self, sender: str, message: m.Note) -> None:
        """The data of a subscription that is attached at the sender has changed (protocol 7.10)."""
        entry = self.entries.get(message.name)
        if entry is not None and entry.home == sender and entry.term == message.term:
            entry.data = self.distribution.data_of(entry, message.data)

    def _join_is_stale(self, entry: SubscriptionEntry, sender: str, message: m.Join) -> bool:
        """Says whether the subscription has attached later, or elsewhere in the same term (protocol 7.3)."""
        return entry.term > message.term or (entry.term == message.term and entry.home not in (None, sender))

    def _tell_old_home(self, entry: SubscriptionEntry, sender: str, later: Term) -> None:
        """Tells the subscription's old home of the later term, on the stream that carries its DATA. From there on the
        subscription is not covered there any more (protocol 7.3).

        Otherwise the old home would pass on deliveries that come for others, and miss those in between. The sender
        needs no message, nor does a home that receives the JOIN itself on the session that carries the DATA.
        """
        home = entry.home
        if home is None or home == sender or self.core.name in (home, sender):
            return
        stale = m.Joined(self.address.name, entry.name, entry.term, m.JoinResult.STALE, False, None, later)
        self.core.post.send_to(home, stale)

    def _on_join_heard(self, sender: str, message: m.Join, entry: SubscriptionEntry | None) -> None:
        """The attaching router confirms that it had our answer before it answered the attach: the entry is in time
        (protocol 7.3)."""
        if entry is None or entry.term != message.term or entry.home != sender:  # it has been elsewhere meanwhile
            other = message.term if entry is None else entry.term
            self._answer(sender, message, m.JoinResult.STALE, other=other)
            return
        entry.in_time = True
        self._answer(sender, message, m.JoinResult.OK)

    def _new_subscription(
        self,
        sender: str,
        message: m.Join,
        replaced: SubscriptionEntry | None,
        created_at: float,
        former: Former | None,
        gap: bool,
    ) -> SubscriptionEntry:
        """Enters a subscription. The backlog is owed to it, or order would break at the next failover
        (protocol 7.3, 7.4)."""
        born = message.born
        if born is None:
            before = replaced or former
            born = message.term if gap else before.born if before else None  # born now: it lacks what came before
        if replaced:
            self._tell_old_home(replaced, sender, message.term)
            self._forget_replaced(replaced)
        entry = SubscriptionEntry(message.name, born, message.term, sender, self.core.now, message.timeout_s)
        if message.kind is not m.JoinKind.FRESH:
            self.kept.replaced(replaced, entry)
        entry.in_time = (former is not None and not gap) or self._is_in_time(sender, created_at)
        entry.created_at = created_at
        entry.declared = self._is_declared(entry.name)
        self._add(entry)
        self.distribution.owe_all(entry)
        return entry

    def _add(self, entry: SubscriptionEntry) -> None:
        first = not self.entries
        if entry.name not in self.entries:
            self._count(entry.name, 1)
        self.entries[entry.name] = entry
        self.core.memory.former.back(self.address.name, entry.name)
        if first:  # protocol 6.10: there is a subscription now
            self.ingress.all_windows_changed()

    def _count(self, name: m.SubscriptionName, more: int) -> None:
        self.core.memory.holding.count(owner_of(name[0]), more * octets_of_subscription(name))

    def octets_by_user(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for name in self.entries:
            held[owner_of(name[0])] += octets_of_subscription(name)
        return held

    def _forget_replaced(self, entry: SubscriptionEntry) -> None:
        """Another subscription of the same name takes its place, to which at least as much is owed."""
        self.streams.uncover(entry)
        self.distribution.replaced(entry)

    def _is_in_time(self, sender: str, created_at: float) -> bool:
        """Says whether a new entry is known before its attach is answered (protocol 7.3).

        If this router may have told accepted, the JOIN may belong to a session that the attaching router has given up,
        and that router may have answered the attach without us.
        """
        return sender == self.core.name or not self._may_have_missed(created_at)

    def _is_known(self, entry: SubscriptionEntry, message: m.Join) -> bool:
        """Says whether nothing can have been accepted here without the subscription. Of a declared one that holds in
        all of its lives (protocol 7.3, 7.8)."""
        return entry.in_time and (self._stays(entry) or self._is_the_same(entry, message))

    def _is_the_same(self, entry: SubscriptionEntry, message: m.Join) -> bool:
        """Says whether name and born match. An entry made by a stale attach does not match (protocol 7.3)."""
        return message.born is None or entry.born == message.born

    def _is_resumed(self, known: SubscriptionEntry | None, former: Former | None, message: m.Join) -> bool:
        """Says whether the subscription was known before this attach, which a HELLO may have told of already
        (protocol 7.3)."""
        if message.kind is m.JoinKind.FRESH:
            return False
        return former is not None if known is None else known.resumed or known.term != message.term

    def _created_at(self, sender: str, message: m.Join) -> float:
        """Returns a time before which the subscription was not created: it was told in this session how old it is
        (protocol 7.3)."""
        core = self.core
        sent_at = core.now if sender == core.name else core.members.began.get(sender, NEVER_BEFORE)
        return NEVER_BEFORE if message.life_s >= LONGEST_S else sent_at - message.life_s * (1 + DRIFT)

    def _may_have_missed(self, created_at: float) -> bool:
        """Says whether this router may have told accepted without an unknown subscription, which was not created before
        that time (protocol 7.3)."""
        accepted_at = self.address.accepted.at
        return accepted_at is not None and accepted_at >= created_at

    def _has_stayed(self, before: SubscriptionEntry | Former | None, message: m.Join) -> bool:
        """Says whether its attach has been answered already: whoever has accepted without it can still say so when he
        is back (protocol 7.3)."""
        return before is not None and (message.kind is m.JoinKind.STAYED or before.term == message.term)

    def _may_have_a_gap(
        self,
        known: SubscriptionEntry | None,
        former: Former | None,
        message: m.Join,
        created_at: float,
        over_at: float | None,
        stayed: bool,
    ) -> bool:
        """Says whether something may have been accepted without the subscription that attaches, here or at a router
        whose word is not to be had any more (protocol 7.3)."""
        if message.kind is m.JoinKind.FRESH:
            return False
        if over_at is not None and message.kind is m.JoinKind.RESUME and not message.history:
            return True  # protocol 7.1: it wants to know
        if known is not None:
            untold = message.kind is m.JoinKind.EITHER and known.gap is Gap.UNTOLD and known.term < message.term
            return untold or self._may_have_been_missed(over_at, stayed)
        if former is not None:
            return self._has_missed(former, stayed)
        earlier = self.core.memory.former.earlier(message.born)
        return self._may_have_missed(created_at) or (earlier is not None and self._has_missed(earlier))

    def _may_have_been_missed(self, over_at: float | None, stayed: bool) -> bool:
        """Says whether a router that is gone may have accepted without it (protocol 2.9, 7.3)."""
        members = self.core.members
        if over_at is None:
            return False
        return members.gone_for_good_since(over_at) if stayed else members.gone_since(over_at)

    def _has_missed(self, former: Former, stayed: bool = False) -> bool:
        """Says whether something may have been accepted without a subscription since it was forgotten here: by this
        router, or by one that is gone (protocol 7.3)."""
        if self._may_have_missed(former.forgotten_at) and self.address.accepted.stop > former.position:
            return True
        return self.address.established and (former.broken or self._may_have_been_missed(former.over_at, stayed))

    def _over_at(self, before: SubscriptionEntry | Former | None, message: m.Join) -> float | None:
        """Returns since when its wait is over, though nothing was accepted without it here; None if it is not
        (protocol 7.3, 8.3).

        A HELLO lists attached subscriptions as orphans, too. A JOIN of the same attachment shows that the subscription
        has never been away, however short its timeout.
        """
        if before is None or message.kind is m.JoinKind.FRESH:
            return None
        if isinstance(before, Former):
            return before.over_at
        if before.doubted_since is not None:
            return before.doubted_since
        never_away = before.last_home is None and before.term == message.term
        return before.over_at if before.expired(self.core.now) and not never_away else None

    def _answer(
        self,
        sender: str,
        message: m.Join,
        result: m.JoinResult,
        *,
        known: bool = False,
        mark: Term | None = None,
        other: Term | None = None,
    ) -> None:
        joined = m.Joined(self.address.name, message.name, message.term, result, known, mark, other)
        self.core.post.send_to(sender, joined)

    # -------------------------------------------------------------------------------------------------- lost and closed

    def on_orphan(self, sender: str, message: m.Orphan) -> None:
        """The subscription's link is lost: what its home owes is owed to it, and its clock starts (protocol 8.1)."""
        entry = self.entries.get(message.name)
        if entry is None or entry.term != message.term:
            return
        if entry.home is None and entry.last_home == sender:  # protocol 8.3: its own timeout has begun
            left = entry.since + entry.timeout_s - self.core.now
            entry.timeout_s = min(entry.timeout_s, entry.timeout_s - left + message.timeout_s)
            self._schedule(entry)
        if entry.home != sender:
            return
        entry.timeout_s = message.timeout_s
        self._become_orphan(entry)

    def _stays(self, entry: SubscriptionEntry) -> bool:
        """Says whether it outlives its links: what a declared subscription has not accepted stays owed to it
        (protocol 8.2, 8.3)."""
        return entry.declared

    def _become_orphan(self, entry: SubscriptionEntry) -> None:
        self.records.owe_again(entry)
        self.streams.uncover(entry)
        self.distribution.orphan(entry)
        self._schedule(entry)

    def on_leave(self, sender: str, message: m.Leave) -> None:
        """The subscription has gone for good: its acceptance is no longer awaited (protocol 8.2)."""
        entry = self.entries.get(message.name)
        if entry is None or entry.term > message.term:
            return
        if message.broken and entry.term == message.term and entry.home not in (None, sender):
            return  # it was an orphan to the sender, and is attached: its home is told by JOINED
        if self._stays(entry):
            if entry.home == sender:
                self._become_orphan(entry)
            return
        self._tell_old_home(entry, sender, message.term)
        if message.broken or entry.home is None or entry.timeout_s <= 0:  # protocol 8.2: it may come back
            self._remember(entry, min(self.core.now, entry.over_at), broken=message.broken)
        self._forget(entry)

    def may_be_dropped(self, entry: SubscriptionEntry) -> bool:
        return entry.home in (None, self.core.name) and not entry.declared and self.address.established

    def drop(self, entry: SubscriptionEntry) -> None:
        """An operator gives up a subscription that is attached here, or nowhere. Its client is told so, now or when it
        comes back (protocol 8.2)."""
        assert self.may_be_dropped(entry)
        if entry.home is None:
            self.core.post.broadcast(m.Leave(self.address.name, entry.name, entry.term, broken=True))
        else:
            local = self.local[entry.name]
            self.egress.drop(local, SUBSCRIPTION_BROKEN, None, "the operator has dropped this subscription")
        self.core.drain()

    def _remember(self, entry: SubscriptionEntry, over_at: float, *, broken: bool = False) -> None:
        """It is forgotten now, and its client may come back: what it has missed by then is told (protocol 2.8).

        So a subscription that left before it could read that it is broken, or has a gap, is told again. That of a
        dynamic source does not come back, as its node has ended with its link.
        """
        if is_dynamic(self.address.name) and not is_dynamic_target(self.address.name):
            return
        records, broken = self.records, broken or entry.gap is Gap.UNTOLD
        if self.address.config.type == "queue" and (entry.owed or entry.syncing):
            broken = True  # protocol 16.6: what it holds is free
        starts = records.undone.starts  # of one that is attached, its home knows which of these it owes
        if entry.home is None:
            starts = [start for start, _ in records.undone.among(list(entry.owed))]
        position = starts[0] if starts else records.log.end
        if entry.doubted_since is not None:
            over_at = min(over_at, entry.doubted_since)
        former = Former(entry.born, entry.term, over_at, self.core.now, position, broken)
        self.core.memory.former.remember(self.address.name, entry.name, former)

    def _forget(self, entry: SubscriptionEntry) -> None:
        del self.entries[entry.name]
        self._count(entry.name, -1)
        self.streams.uncover(entry)
        self.streams.completion.forgotten(entry.name)
        self.distribution.owe_nothing(entry)
        if not self.entries:
            self.ingress.all_windows_changed()  # protocol 6.10: there is no subscription now
            self.ingress.directory.nobody_subscribes()
            self.core.agenda.touch(self.address)  # the address may be empty now

    def router_down(self, router: str) -> None:
        """Subscriptions whose home was that router become orphans (protocol 8.6)."""
        orphans = [e for e in self.entries.values() if e.home == router]
        self.streams.router_down(router, orphans)
        self.distribution.router_down(router, orphans)
        for entry in orphans:
            self._schedule(entry)

    # --------------------------------------------------------------------------------------------------------- declared

    def _is_declared(self, name: m.SubscriptionName) -> bool:
        return name in self.core.recovery.declarations.subscriptions(self.address.name)

    def declared_changed(self) -> None:
        """Other subscriptions are declared now, or others may not attach any more (protocol 4.5, 8.7)."""
        declarations = self.core.recovery.declarations
        declared = declarations.subscriptions(self.address.name)
        for name in declared:
            entry = self.entries.get(name)
            if entry is None:
                self._enter_declared(name)
            else:
                entry.declared = True
        closed = declarations.is_closed(self.address.name)
        for entry in list(self.entries.values()):
            if entry.name not in declared and (entry.declared or closed):
                self._remove(entry)

    def _enter_declared(self, name: m.SubscriptionName) -> None:
        """Enters a subscription that has never attached as far as this router knows (protocol 2.7)."""
        config = self.address.config
        entry = SubscriptionEntry(name, None, NO_TERM, None, self.core.now, config.subscription_timeout_s)
        entry.declared = True
        entry.in_time = not self._may_have_missed(NEVER_BEFORE)
        self._add(entry)
        self.distribution.owe_all(entry)
        self.distribution.orphan(entry)

    def _remove(self, entry: SubscriptionEntry) -> None:
        """The files declare it no more: what was owed to it is done, and its link is detached (protocol 8.7)."""
        entry.declared = False
        if entry.home not in (None, self.core.name):
            return  # its home detaches it, or has done so already and this is an attach that came after
        local = self.local.get(entry.name)
        if local is not None:
            self.egress.drop(local, SUBSCRIPTION_REMOVED, None)
            self.core.drain()
        if self.entries.get(entry.name) is entry:
            self._forget(entry)

    # ------------------------------------------------------------------------------------------------------------ HELLO

    def learn_of_hello(self, sender: str, news: m.SubscriptionNews) -> None:
        """A HELLO names a subscription that is unknown here, or earlier: it is entered as an orphan, and every record
        that is not done is owed to it (protocol 4.3)."""
        address = self.address
        local = self.local.get(news.name)
        if local and local.term < news.term:
            self.egress.drop(local, STOLEN, news.term)
        known = self.entries.get(news.name)
        if known is not None:
            if known.term >= news.term:
                if known.term == news.term:
                    known.gap = max(known.gap, Gap(news.untold))
                return
            self._tell_old_home(known, sender, news.term)
            self._forget_replaced(known)
        elif self.core.recovery.declarations.is_closed(address.name):
            return  # its home has not removed it yet (protocol 8.7)
        since = self.core.now - news.age_s
        entry = SubscriptionEntry(news.name, news.born, news.term, None, since, news.timeout_s)
        entry.data, entry.gap = self.distribution.data_of(entry, news.data), Gap(news.untold)
        self.kept.replaced(known, entry)
        if known is not None and (known.declared or known.born == news.born):
            entry.declared, entry.in_time, entry.born = known.declared, known.in_time, known.born
            entry.created_at, entry.resumed = known.created_at, True
        else:  # a router that was suspended has accepted before; the JOIN, if one comes, says more (protocol 4.6)
            entry.in_time = not self._may_have_missed(NEVER_BEFORE)
        self._add(entry)
        self.distribution.owe_all(entry)
        self.distribution.orphan(entry)
        entry.since = since
        self._schedule(entry)

    def compare_with_hello(self, sender: str, news: m.SubscriptionNews, former: Former) -> None:
        """A HELLO names an orphan that this router has forgotten, at an address that is recovered here: its sender is
        told that it has missed something, or it counts here again (protocol 4.3)."""
        address = self.address
        if news.age_s <= 0 or not address.established:
            return
        if self._has_missed(former, stayed=True):
            self.core.post.send(sender, m.Leave(address.name, news.name, news.term, broken=True))
            return
        self.learn_of_hello(sender, news)
        entry = self.entries.get(news.name)
        if entry is not None:  # whatever this router has accepted was accepted with it
            entry.in_time = True
            entry.doubted_since = former.over_at if self.core.members.gone_since(former.over_at) else None

    def look_at_doubts(self) -> None:
        """A router has come back: as the same, and says itself what it has accepted; or it was started again, and does
        not know that (protocol 7.3)."""
        members = self.core.members
        for entry in list(self.entries.values()):
            since = entry.doubted_since
            if since is None or entry.home is None:
                continue
            if members.gone_for_good_since(since):
                broken = m.Joined(self.address.name, entry.name, entry.term, m.JoinResult.BROKEN, False, None, None)
                self.core.post.send_to(entry.home, broken)
            elif not members.gone_since(since):
                entry.doubted_since = None

    def news(self, peer: str) -> list[m.SubscriptionNews]:
        """Returns what HELLO tells: all subscriptions (protocol 4.2)."""
        name, now, of_gaps = self.address.name, self.core.now, self.core.speaks(peer) >= m.since(m.Told)
        return [
            m.SubscriptionNews(
                name, e.name, e.born, e.term, e.timeout_s, e.age(now), e.data, of_gaps and e.gap is Gap.UNTOLD
            )
            for e in self.entries.values()
        ]

    # ------------------------------------------------------------------------------------------------------------- time

    def _forgotten_after(self, entry: SubscriptionEntry) -> float:
        """Returns after how many seconds an orphan is forgotten: a margin after the time from which it is refused, so
        that no router forgets it while another would still resume it (protocol 8.3)."""
        return entry.timeout_s + self.address.config.margin_for(entry.timeout_s)

    def _schedule(self, entry: SubscriptionEntry) -> None:
        if not entry.declared:
            self.core.agenda.due(entry.since + self._forgotten_after(entry), self.address)

    def tick(self) -> None:
        """Forgets orphans that have expired (protocol 8.3)."""
        now = self.core.now
        for entry in list(self.entries.values()):
            if entry.home is None and not self._stays(entry) and now >= entry.since + self._forgotten_after(entry):
                self._remember(entry, entry.over_at)
                self._tell_expired(entry)
                self._forget(entry)

    def _tell_expired(self, entry: SubscriptionEntry) -> None:
        text = "subscription {container}/{link} to {address} expired: it was away for {timeout_s} s"
        container, link = entry.name
        self.core.counters.note_lost(self.address.counters, container, link, EXPIRED, self.core.now)
        self.core.owner.log.info(
            "subscription_expired",
            text,
            container=container,
            link=link,
            address=self.address.name,
            timeout_s=entry.timeout_s,
        )

    def deadlines(self) -> list[float]:
        return [e.since + self._forgotten_after(e) for e in self.entries.values() if e.home is None and not e.declared]

    def check_invariants(self) -> None:
        core, attached = self.core, self.local
        for name, entry in self.entries.items():
            assert entry.name == name
            assert entry.home is None or entry.home == core.name or entry.home in core.members.up, (
                f"{name} at {entry.home}"
            )
            if entry.home == core.name:
                assert name in attached, f"{name} is not attached here"
                assert attached[name].term == entry.term

    def status_of(self, entry: SubscriptionEntry) -> dict[str, object]:
        records = self.records
        owed = entry.owed.overlap(0, records.log.end)
        return {
            "container": entry.name[0],
            "name": entry.name[1],
            "home": entry.home,
            "away_s": round(entry.age(self.core.now), 3),
            "declared": entry.declared,
            "timeout_s": None if entry.declared else entry.timeout_s,
            "owed": count(owed),
            "oldest_s": age_s(owed, records.taken_at, self.core.now),
        }
