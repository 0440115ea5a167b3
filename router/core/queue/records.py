"""The records of one queue: each is free, or some consumers' (protocol 16.1).

A record that is not done is `free`, or in `owed` or `syncing` of entries of consumers: of one that it is assigned to,
or of several of which any may hold it, as an earlier ingress may have assigned it to them. Free records go to consumers
with credit, in `distribute`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from router.core import messages as m
from router.core.directory import SubscriptionEntry
from router.core.intervals import IntervalSet, Range, union
from router.core.publisher import Publisher
from router.core.queue.consumer import NOBODY, NOBODYS_TERM, Grant
from router.core.queue.expiring import Expiring
from router.core.queue.free import FreeRecords, Groups, added
from router.core.records import Records

if TYPE_CHECKING:
    from router.core.ports import Term
    from router.core.queue.address import QueueAddress


class Doubt:
    """What consumers may hold of what one publisher sends again (protocol 16.4)."""

    __slots__ = ("declined", "expected", "holders", "unheard", "unproven")

    def __init__(self, expected: list[bytes], unheard: list[SubscriptionEntry]) -> None:
        self.expected = set(expected)
        self.holders: dict[bytes, list[SubscriptionEntry]] = {}  # of tags without a record here
        self.declined: dict[bytes, dict[m.SubscriptionName, Term]] = {}  # the same
        self.unproven: dict[SubscriptionEntry, Term] = {}  # consumers, as attached
        self.unheard = dict.fromkeys(unheard)  # consumers that have not said what they hold


class ConsumerGrant(Grant):
    """A consumer's credit, valid under its term."""

    __slots__ = ("home", "term")

    def __init__(self, home: str, term: Term) -> None:
        super().__init__()
        self.home = home
        self.term = term


class QueueRecords(Records):
    """What was sent to a queue through this router and is not settled."""

    address: QueueAddress

    def __init__(self, address: QueueAddress, first_position: int) -> None:
        super().__init__(address, first_position)
        self.free = FreeRecords()
        self.groups = Groups(self)
        self.repeated = IntervalSet()  # not done, and an earlier ingress may have had it
        self.doubted = IntervalSet()  # consumers', and none of these is sure to hold it, or has been assigned it as new
        self.doubts: dict[Publisher, Doubt] = {}
        self.grants: dict[SubscriptionEntry, ConsumerGrant] = {}
        self.failures: dict[int, int] = {}  # position -> how many consumers have failed with it
        self.elsewhere: dict[int, dict[m.SubscriptionName, Term]] = {}  # position -> who does not get it, as attached
        self.gone: dict[str, SubscriptionEntry] = {}  # router -> its consumers that have gone
        self.expiring = Expiring(self)
        self._of_replaced: list[Range] = []  # owed to an entry whose successor is entered in the same handler

    def handlers(self) -> m.Handlers:
        return {
            m.AcceptSync: self.on_accept_sync,
            m.Reason: self.on_reason,
            m.Credit: self.on_credit,
            m.Return: self.on_return,
            m.Hold: self.on_hold,
        }

    # ------------------------------------------------------------------------------------------- what is sent again

    def note_claim(self, publisher: Publisher) -> None:
        """Any consumer may hold what the publisher sends again, until it has been heard (protocol 16.4)."""
        self.doubts[publisher] = Doubt(list(publisher.expected), list(self.subscriptions.values()))

    def note_flush(self, publisher: Publisher) -> None:
        """It sends nothing again any more."""
        self.doubts[publisher] = Doubt([], [])

    def heard_all(self, publisher: Publisher, router: str) -> None:
        """That router has said what its consumers hold."""
        doubt = self.doubts.get(publisher)
        if doubt is not None:
            for entry in [entry for entry in doubt.unheard if entry.home == router]:
                if doubt.unproven.get(entry) != entry.term:
                    del doubt.unheard[entry]

    def on_hold(self, sender: str, message: m.Hold) -> None:
        """A consumer holds these, and no others (protocol 16.4)."""
        publisher = self.address.ingress.publishers.get(message.publisher)
        entry = self._entry(sender, message.name, message.subscription_term)
        doubt = self.doubts.get(publisher) if publisher is not None else None
        if publisher is None or doubt is None or publisher.term != message.term or entry is None:
            return
        if message.unproven:
            doubt.unproven[entry] = entry.term
        else:
            doubt.unproven.pop(entry, None)
            doubt.unheard.pop(entry, None)
        asked = message.declined or (message.tags and (self.repeated or message.name == NOBODY))
        records = self._by_tag(publisher) if asked else {}
        over: list[bytes] = []
        for tag in message.tags:
            found = records.get(tag)
            if found is None:
                if publisher.unknown or tag in publisher.expected:
                    doubt.holders.setdefault(tag, []).append(entry)
                else:
                    over.append(tag)
                continue
            position, message_format = found
            if position not in self.undone:  # it is told only where it has it
                self._send_assign(publisher, entry, position, position + 1, message_format, 0, held=True)
            elif position not in entry.syncing and (position in self.free or message.name == NOBODY):
                self.free.remove(position, position + 1)
                self._owe(entry, position, position + 1)
        for tag in message.declined:
            found = records.get(tag)
            if found is not None and found[0] in self.undone:
                self._pass_over(publisher, message.name, message.subscription_term, *found)
            elif found is None and (publisher.unknown or tag in publisher.expected):
                doubt.declined.setdefault(tag, {})[message.name] = message.subscription_term
        self._restore_if_covered(publisher, entry)
        if over and message.name == NOBODY:  # of an attached consumer, PUB or SYNC has said so (protocol 16.7)
            name, publisher_id, term = self.address.name, publisher.publisher_id, publisher.term
            self.core.send_to(sender, m.SettleTags(name, publisher_id, term, over))

    def completed(self, publisher: Publisher, tags: list[bytes]) -> None:
        """These tags may come again for other messages: nobody holds those (protocol 16.7.6)."""
        doubt = self.doubts.get(publisher)
        if doubt is not None:
            for tag in tags:
                doubt.holders.pop(tag, None)
                doubt.declined.pop(tag, None)

    def _pass_over(
        self, publisher: Publisher, name: m.SubscriptionName, term: Term, position: int, message_format: int
    ) -> None:
        """The consumer has declined this record. It gets to know the position, by which it is settled
        (protocol 16.5)."""
        entry = self.subscriptions.get(name)
        if entry is not None and entry.home is not None and entry.term == term:
            self.elsewhere.setdefault(position, {})[name] = term
            self._send_assign(publisher, entry, position, position + 1, message_format, 0, held=True)

    def _by_tag(self, publisher: Publisher) -> dict[bytes, tuple[int, int]]:
        """Returns the positions of its records, with their message formats."""
        return {
            tag: (start + i, message_format)
            for first, last in publisher.live
            for start, stop, message_format in publisher.positions(first, last)
            for i, tag in enumerate(self.log.tags(start, stop))
        }

    def _spread(
        self,
        publisher: Publisher,
        start: int,
        stop: int,
        message_format: int,
        tags: list[bytes],
        payloads: list[bytes],
    ) -> None:
        """A new record is free. One that is sent again is its holder's, or that of all who may hold it
        (protocol 16.4)."""
        self.core.touch(self.address)
        if self.address.config.expire and not message_format:
            self.expiring.note(start, payloads)
        if not message_format:
            for i, kind in self.core.kinds_of(payloads, self.address.config.priority).items():
                self.free.note(start + i, kind)
        doubt = self.doubts[publisher]
        unknown = publisher.unknown
        if not (unknown or doubt.expected):
            self.free.add(start, stop)
            return
        if unknown and not (doubt.holders or doubt.unheard or doubt.declined):
            self.repeated.add(start, stop)
            self.free.add(start, stop)
            return
        concerned: dict[SubscriptionEntry, None] = {}
        for position, tag in enumerate(tags, start):
            again = unknown or tag in doubt.expected
            suspects: list[SubscriptionEntry] = []
            if again:
                doubt.expected.discard(tag)
                self.repeated.add(position, position + 1)
                suspects = [each for each in doubt.holders.pop(tag, ()) if self._is_known(each)]
                suspects = suspects or [each for each in doubt.unheard if self._is_known(each)]
                for name, term in doubt.declined.pop(tag, {}).items():
                    self._pass_over(publisher, name, term, position, message_format)
            for entry in suspects:
                self._owe(entry, position, position + 1)
                concerned[entry] = None
            if not suspects:
                self.free.add(position, position + 1)
        for entry in concerned:
            self._restore_if_covered(publisher, entry)

    def _is_known(self, entry: SubscriptionEntry) -> bool:
        return self.subscriptions.get(entry.name) is entry or self.gone.get(entry.home or "") is entry

    def _owe(self, entry: SubscriptionEntry, start: int, stop: int) -> None:
        entry.owed.add(start, stop)
        self.owing[entry] = None
        self.doubted.add(start, stop)

    # ---------------------------------------------------------------------------------------------- what is whose

    def entries_for(self, publisher: Publisher, entry: SubscriptionEntry) -> list[m.Entries]:
        """Returns the entries of a SYNC: the tags of all records, by which deliveries get their positions
        (protocol 16.4)."""
        return [
            m.Entries(start, message_format, self.log.tags(start, stop), [None] * (stop - start), [])
            for first, last in publisher.live
            for start, stop, message_format in publisher.positions(first, last)
        ]

    def _restore_if_covered(self, publisher: Publisher, entry: SubscriptionEntry) -> None:
        if self._is_covered(publisher, entry):
            self.restore(publisher, entry)

    def _is_covered(self, publisher: Publisher, entry: SubscriptionEntry) -> bool:
        if entry.name == NOBODY:
            return True
        return entry.home is not None and entry.name in publisher.covered.get(entry.home, ())

    def restore(self, publisher: Publisher, entry: SubscriptionEntry) -> None:
        """Assigns what is owed to a consumer: what others may hold only if it holds it (protocol 16.4)."""
        if not entry.owed:
            return
        owed = [
            (low, high, message_format)
            for first, last in publisher.live
            for start, stop, message_format in publisher.positions(first, last)
            for low, high in entry.owed.overlap(start, stop)
        ]
        if not owed:
            return
        # else one that is not known here may hold it
        sure = self._may_assign() and entry.name != NOBODY
        in_doubt, overtaken = self.groups.in_doubt(entry), self.free.first_of_groups()
        first_free = self.free.first()
        others = union([s for each in self.owing if each is not entry for s in (each.owed, each.syncing)])
        for low, high, message_format in owed:
            entry.owed.remove(low, high)
            for start, stop in others.overlap(low, high):
                in_doubt.update([kind.group for kind, _, _ in self.free.alike(start, stop) if kind.group is not None])
                self._assign(publisher, entry, start, stop, message_format, held=True)
            for start, stop in others.missing([(low, high)]):
                for kind, a, b in self.free.alike(start, stop):
                    group = kind.group
                    if group is not None and a > overtaken.get(group, a):
                        in_doubt.add(group)
                    if group is None:
                        held = not sure or a > first_free
                    else:
                        held = not sure or not self._may_have(entry, group, in_doubt)
                    self._assign(publisher, entry, a, b, message_format, held=held)

    def _may_have(self, entry: SubscriptionEntry, group: int, in_doubt: set[int]) -> bool:
        """Says whether the group is no other consumer's. It is this one's then (protocol 16.9)."""
        if group in in_doubt or self.groups.holder(group) not in (None, entry.name):
            in_doubt.add(group)
            return False
        self.groups.assigned(group, entry.name)
        return True

    def _others(self, entry: SubscriptionEntry | None, ranges: list[Range]) -> list[Range]:
        """Returns what of these ranges no other consumer may hold."""
        for each in self.owing:
            if each is not entry and ranges:
                ranges = each.syncing.missing(each.owed.missing(ranges))
        return ranges

    def _freed(self, ranges: list[Range]) -> None:
        """A consumer does not hold these any more: what nobody else may hold is free."""
        for start, stop in self._others(None, self.undone.among(ranges)):
            self.free.add(start, stop)
            self.doubted.remove(start, stop)
        self.core.touch(self.address)

    # ---------------------------------------------------------------------------------------------------- assignment

    def on_credit(self, sender: str, message: m.Credit) -> None:
        """A consumer takes so many deliveries from here (protocol 16.3)."""
        entry = self._entry(sender, message.name, message.term)
        if entry is None:
            return
        grant = self._grant(entry)
        if grant is None:
            grant = self.grants[entry] = ConsumerGrant(sender, message.term)
        if grant.round != message.round:
            grant.begin(message.round)
        grant.limit = message.limit
        self.core.touch(self.address)

    def _stop(self, entry: SubscriptionEntry, number: int) -> None:
        """Something has come back for lack of credit: the order would be lost if more were assigned before all of the
        round has come back (protocol 16.3)."""
        grant = self._grant(entry)
        if grant is not None and grant.round == number and not grant.stopped:
            grant.stopped = True
            grant.limit = grant.used
            self.core.send_to(grant.home, m.Stopped(self.address.name, entry.name, entry.term, number))

    def _grant(self, entry: SubscriptionEntry) -> ConsumerGrant | None:
        grant = self.grants.get(entry)
        if grant is not None and (grant.term != entry.term or grant.home != entry.home):
            del self.grants[entry]
            return None
        return grant

    def _entry(self, sender: str, name: m.SubscriptionName, term: Term) -> SubscriptionEntry | None:
        """Returns the consumer if it is attached there under that term."""
        if name == NOBODY:
            if sender not in self.gone:
                self.gone[sender] = SubscriptionEntry(NOBODY, None, NOBODYS_TERM, sender, self.core.now, 0.0)
            return self.gone[sender]
        entry = self.subscriptions.get(name)
        return entry if entry is not None and entry.term == term and entry.home == sender else None

    def distribute(self) -> None:
        """Assigns what is free to consumers with credit: the nearest first, and of these the one that has least
        (protocol 16.3)."""
        if not (self.free.starts and self._may_assign()):
            return
        if not self.subscriptions and self.address.config.no_subscribers == "accept":
            self._accept_for_nobody()
        if not self.grants:
            return
        ready = {entry: grant for entry in list(self.grants) if (grant := self._grant(entry)) and grant.left > 0}
        if not ready:
            return
        waiting = self._waiting(ready) if self.free.kinds else ()
        for start, stop, group in self.free.in_order(waiting):
            for run, low, high in self.runs.pieces(start, stop):
                if not ready:
                    return
                first, last = run.start + low, run.start + high
                for a, b in self._alike(first, last):
                    self._distribute(run.publisher, a, b, run.message_format, ready, group)

    def _waiting(self, ready: dict[SubscriptionEntry, ConsumerGrant]) -> set[int]:
        """Returns the groups that wait for their consumers (protocol 16.9)."""
        in_doubt = self.groups.in_doubt()
        if self.elsewhere:
            return in_doubt  # what one has declined may be another's
        names = {None, *[entry.name for entry in ready]}
        groups = {kind.group for kind in self.free.by_kind if kind.group is not None}
        return in_doubt | {group for group in groups if self.groups.holder(group) not in names}

    def _may_assign(self) -> bool:
        """Says whether every consumer is known that may hold what was sent again (protocol 16.2)."""
        return self.core.may_accept(self.address)

    def _alike(self, start: int, stop: int) -> list[Range]:
        """Splits a stretch where some of it must not go to all consumers, or not as it is."""
        special = [at for at in (*self.elsewhere, *self.failures) if start <= at < stop]
        if not special:
            return [(start, stop)]
        cuts = sorted({start, stop, *special, *[at + 1 for at in special]})
        return list(pairwise(cuts))

    def _distribute(
        self,
        publisher: Publisher,
        start: int,
        stop: int,
        message_format: int,
        ready: dict[SubscriptionEntry, ConsumerGrant],
        group: int | None = None,
    ) -> None:
        excluded = self.elsewhere.get(start, {})
        able = [
            entry for entry in ready if excluded.get(entry.name) != entry.term and self._is_covered(publisher, entry)
        ]
        if group is not None and able:
            able = self._of_group(group, able, excluded)
        while start < stop and able:
            has = {each: each.syncing.size for each in self._nearest(able)}
            share = -(-(stop - start) // len(has))
            while start < stop and has:
                entry = min(has, key=has.__getitem__)
                grant = ready[entry]
                n = min(grant.left, share, stop - start)
                self.free.remove(start, start + n)
                self._assign(publisher, entry, start, start + n, message_format)
                start += n
                has[entry] += n
                if grant.left <= 0:
                    del ready[entry], has[entry]
                    able.remove(entry)

    def _of_group(
        self, group: int, able: list[SubscriptionEntry], excluded: dict[m.SubscriptionName, Term]
    ) -> list[SubscriptionEntry]:
        """Returns who of these may get what is free of the group: its holder; whoever is chosen now, if it has none;
        any, if the holder has declined it (protocol 16.9)."""
        holder = self.groups.holder(group)
        if holder is None:
            chosen = min(self._nearest(able), key=lambda each: each.syncing.size)
            self.groups.assigned(group, chosen.name)
            return [chosen]
        if holder in excluded and excluded[holder] == self.subscriptions[holder].term:
            return able
        found = [entry for entry in able if entry.name == holder]
        if found:
            self.groups.assigned(group, holder)
        return found

    def _nearest(self, entries: list[SubscriptionEntry]) -> list[SubscriptionEntry]:
        if len(entries) == 1:
            return entries[:]
        costs = [self.core.cost(each.home or "") for each in entries]
        least = min(costs)
        return [each for each, cost in zip(entries, costs, strict=True) if cost == least]

    def _assign(
        self,
        publisher: Publisher,
        entry: SubscriptionEntry,
        start: int,
        stop: int,
        message_format: int,
        *,
        held: bool = False,
    ) -> None:
        assert entry.home is not None
        grant = self._grant(entry)
        if grant is not None and not held:
            grant.used += stop - start
        entry.syncing.add(start, stop)
        self.owing[entry] = None
        if not held and self.doubted.starts:
            self.doubted.remove(start, stop)
        if not held and self.repeated.starts and self.repeated.overlap(start, stop):
            self.address.accepted_at = self.core.now  # protocol 16.2: an unknown consumer may hold it
        number = grant.round if grant is not None and not grant.stopped else 0
        self._send_assign(publisher, entry, start, stop, message_format, number, held=held)

    def _send_assign(
        self,
        publisher: Publisher,
        entry: SubscriptionEntry,
        start: int,
        stop: int,
        message_format: int,
        number: int,
        *,
        held: bool,
    ) -> None:
        assert entry.home is not None
        self._reach(entry.home)
        payloads = [payload or b"" for payload in self.log.payloads(start, stop)]
        self.core.send_to(
            entry.home,
            m.Assign(
                self.address.name, publisher.publisher_id, publisher.term, entry.name, entry.term,
                number, held, self.failures.get(start, 0), start, message_format,
                self.log.tags(start, stop), payloads,
            ),
        )  # fmt: skip

    def _reach(self, home: str) -> None:
        """That router is told what is settled, though nobody may be attached there (protocol 16.7)."""
        if home not in self.reached:
            self.expect_home(home)

    # ------------------------------------------------------------------------------------------------------ outcomes

    def on_accept_sync(self, sender: str, message: m.AcceptSync) -> None:
        """A consumer has accepted: the record is done, whoever else may have held it (protocol 16.5)."""
        entry = self._entry(sender, message.name, message.term)
        if entry is None:
            return
        done: list[Range] = []
        for start, stop, rejected in message.ranges:
            found = entry.syncing.remove(start, stop)
            if rejected:
                self._reject(found, rejected)
            done += found
        if not (entry.owed.starts or entry.syncing.starts):
            self.owing.pop(entry, None)
        self._finish(done)

    def _finish(self, ranges: list[Range]) -> None:
        """These are nobody's any more, or have just been taken from the one consumer whose they were."""
        for start, stop in ranges:
            if self.doubted.starts and self.doubted.remove(start, stop):
                for each in list(self.owing):
                    each.owed.remove(start, stop)
                    each.syncing.remove(start, stop)
                    if not (each.owed.starts or each.syncing.starts):
                        del self.owing[each]
            if self.repeated.starts:
                self.repeated.remove(start, stop)
            self._forget_special(start, stop)
        if ranges:
            self._done(ranges)

    def _forget_special(self, start: int, stop: int) -> None:
        if self.free.kinds:
            self.free.forget(start, stop)
            self.groups.forget_contested()
        for table in (self.failures, self.elsewhere):
            if table:
                for at in range(start, stop):
                    table.pop(at, None)

    def _accept_for_nobody(self) -> None:
        """The shared subscription has no member any more (protocol 16.12.1)."""
        ranges = list(self.free)
        for start, stop in ranges:
            if self.repeated.overlap(start, stop):
                self.address.accepted_at = self.core.now  # protocol 16.2: an unknown consumer may hold it
            self.free.remove(start, stop)
        self._finish(ranges)

    def expire(self, position: int) -> None:
        """The time of a free record is over (protocol 16.3.9)."""
        if position in self.repeated:
            self.address.accepted_at = self.core.now  # protocol 16.2: an unknown consumer may hold it
        self.free.remove(position, position + 1)
        self.counters.expired += 1
        self._finish([(position, position + 1)])

    def on_return(self, sender: str, message: m.Return) -> None:
        """A consumer gives deliveries back: they are free again (protocol 16.5)."""
        entry = self._entry(sender, message.name, message.term)
        if entry is None:
            return
        for start, stop, why in message.ranges:
            found = entry.syncing.remove(start, stop)
            if why & m.Why.ELSEWHERE:
                for low, high in found:
                    for position in range(low, high):
                        self.elsewhere.setdefault(position, {})[entry.name] = entry.term
            if why & m.Why.UNSENT:
                self._stop(entry, message.round)
            if why & m.Why.FAILED:
                found = self._count_failures(found)
            self._freed(found)

    def _count_failures(self, ranges: list[Range]) -> list[Range]:
        """After max_redeliveries failures one more counts as rejected. Returns the others (protocol 6.4)."""
        left: list[Range] = []
        for low, high in ranges:
            for position in range(low, high):
                failures = self.failures.get(position, 0) + 1
                if failures > self.address.config.max_redeliveries:
                    self._reject([(position, position + 1)], 1)
                    self._finish([(position, position + 1)])
                else:
                    self.failures[position] = failures
                    left.append((position, position + 1))
        return left

    def check(self, ranges: list[Range]) -> None:
        """There may be somebody for what is free, or nobody any more (protocol 6.10)."""
        nobody = not self.subscriptions and self.address.config.no_subscribers == "release"
        if nobody and self.core.may_accept(self.address):
            self._release(list(self.free))
        self.core.touch(self.address)

    def _blockers(self) -> list[IntervalSet]:
        return [self.free, self.repeated, self.doubted, *super()._blockers()]

    def _unawait(self, start: int, stop: int) -> None:
        super()._unawait(start, stop)
        self._forget_special(start, stop)

    def drop_all(self, publisher: Publisher) -> None:
        super().drop_all(publisher)
        self.doubts.pop(publisher, None)

    # ------------------------------------------------------------------------------------------------------ consumers

    def owe_all(self, entry: SubscriptionEntry) -> None:
        """A consumer is entered. It may hold what was sent again and is nobody's, what was owed to the entry that it
        replaces, and what publishers still send again (protocol 16.4)."""
        replaced, self._of_replaced = self._of_replaced, []
        entry.owed.add_all(self.undone.among(replaced))
        for start, stop in self.free.among(list(self.repeated)):
            self.free.remove(start, stop)
            self._owe(entry, start, stop)
        if entry.owed:
            self.owing[entry] = None
        for doubt in self.doubts.values():
            doubt.unheard[entry] = None
        for topic in self.core.shares.topics_of(self.address.name):
            found = self.core.addresses.get(topic)
            if found is not None:
                found.feeds.late[self.address.name] = None
                found.ingress.all_windows_changed()
                self.core.touch(found)

    def data_of(self, entry: SubscriptionEntry, data: bytes) -> bytes:
        """A consumer keeps its groups (protocol 16.9)."""
        self.groups.noted(entry.name, data)
        return added(entry.data, data)

    def discard_owed(self, entry: SubscriptionEntry) -> None:
        self._of_replaced = [*entry.owed.take(), *entry.syncing.take()]
        self.owing.pop(entry, None)
        self.grants.pop(entry, None)

    def router_down(self, router: str, orphans: list[SubscriptionEntry]) -> None:
        gone = self.gone.pop(router, None)
        if gone is not None:
            self.owe_nothing(gone)
        super().router_down(router, orphans)

    def owe_nothing(self, entry: SubscriptionEntry) -> None:
        """It has gone for good: what it held undecided is free (protocol 16.6)."""
        ranges = [*entry.owed.take(), *entry.syncing.take()]
        self.owing.pop(entry, None)
        self.grants.pop(entry, None)
        for doubt in self.doubts.values():
            doubt.unheard.pop(entry, None)
        self._freed(ranges)
        self.check([])

    def orphan(self, entry: SubscriptionEntry) -> None:
        """What it holds stays its own; it gets nothing new (protocol 16.6)."""
        entry.home = None
        entry.since = self.core.now
        self.grants.pop(entry, None)

    def status(self) -> dict[str, object]:
        return {**super().status(), "free": self.free.size}

    def _check_owed(self) -> None:
        held = union([each for entry in self.owing for each in (entry.owed, entry.syncing)])
        assert not any(self.free.overlap(start, stop) for start, stop in held), "free, and a consumer's"
        self.free.check_invariants()
        assert self.free.kinds.keys() <= {at for start, stop in self.undone for at in range(start, stop)}
        assert held.within(self.undone), f"undone {self.undone}, held {held}"
        assert union([held, self.free]) == self.undone, f"undone {self.undone}, free {self.free}, held {held}"
        assert self.repeated.within(self.undone)
        assert self.doubted.within(self.undone)
        assert not any(self.doubted.overlap(start, stop) for start, stop in self.free), "free, and doubted"
        assert self.doubts.keys() >= set(self.address.ingress.publishers.values())
        assert all(self._is_known(entry) for entry in self.owing), "`owing` names one that has left"
        for entry in self.subscriptions.values():
            assert entry in self.owing or not (entry.owed or entry.syncing), f"{entry.name} is not in `owing`"
            assert not (entry.home is None and entry.syncing), f"{entry.name}: tokens of an orphan"
            assert not any(entry.owed.overlap(start, stop) for start, stop in entry.syncing)
