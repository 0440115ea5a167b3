"""A topic's records: every subscription gets a copy, and a record is done when all have accepted theirs (protocol 6).

The homes of subscriptions get one copy each, which their subscriptions share; its token is the position.
`Records.awaited` says, home by home, which tokens are out; `SubscriptionEntry.owed` and `.syncing` say the same for
single subscriptions. A record that is in none of these sets becomes done.
"""

from __future__ import annotations

from router.core import messages as m
from router.core.directory import SubscriptionEntry
from router.core.held import Batch
from router.core.intervals import IntervalSet, Range, union
from router.core.publisher import Distribution, Publisher
from router.core.records import Records
from router.core.traffic import Accept, Data


class TopicDistribution(Distribution):
    """One topic's."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.address = records.address
        self.core = records.core
        self.subscriptions = records.subscriptions
        self.feeds = records.feeds
        self.log = records.log
        self.undone = records.undone
        self.accepted_by_leavers = IntervalSet()  # undone, but a subscription that has left since had accepted it
        self.blocker = IntervalSet()  # the first set that held something back when records were last checked

    def handlers(self) -> m.Handlers:
        return {Accept: self.on_accept, m.AcceptSync: self.on_accept_sync, m.Taken: self.records.on_taken}

    def spread(self, publisher: Publisher, start: int, stop: int, batch: Batch) -> None:
        """Sends new records to all homes with covered subscriptions; others are owed them (protocol 6.1)."""
        records = self.records
        for home in publisher.coverage.destinations:
            records.awaited[home].add(start, stop)
        # protocol 6.1: even if its home gets the record for another subscription
        for entry in publisher.coverage.uncovered:
            entry.owed.add(start, stop)
            records.owing[entry] = None
        if publisher.coverage.destinations:
            name, form, is_open = self.address.name, batch.message_format, start in records.large
            data = Data(
                name, publisher.publisher_id, publisher.term, start, form, False, batch.tags, batch.payloads, is_open
            )
            self.core.post.multicast(publisher.coverage.destinations, data)
        elif not publisher.coverage.uncovered:
            self.check([(start, stop)])

    def on_accept(self, sender: str, message: Accept) -> None:
        """A home has accepted these copies, which all its subscriptions shared (protocol 6.3, 6.5)."""
        awaited = self.records.awaited.get(sender)
        if awaited is None:
            return
        removed: list[Range] = []
        for start, stop, rejected in message.ranges:
            found = awaited.remove(start, stop)
            if rejected:
                self.records.reject(found, rejected)
            removed += found
        self.check(removed)

    def on_accept_sync(self, sender: str, message: m.AcceptSync) -> None:
        """A subscription has accepted entries of a SYNC (protocol 6.3, 6.5)."""
        entry = self.subscriptions.get(message.name)
        if entry is None or entry.term != message.term or entry.home != sender:
            return
        self.check(self.records.accepted_by(entry, message.ranges))

    def check(self, ranges: list[Range]) -> None:
        """Makes those of these undone positions done that are in no set any more (protocol 6.5); they have just been
        removed from one. Without subscriptions the address may hold them instead (protocol 6.10)."""
        for sending in self.records.large.values():
            self.core.agenda.window_changed(sending.publisher)
        if not ranges or not self.core.may_accept(self.address):
            return
        if self.feeds.late:
            self.feeds.feed_late()
        nobody = "" if self.subscriptions or self.feeds else self.address.config.no_subscribers
        if nobody == "hold":
            ranges = self.accepted_by_leavers.among(ranges)
        left = self.blocker.missing(ranges) if self.blocker.starts else ranges
        if not left:
            return
        for blocker in self._blockers():
            left = blocker.missing(left)
            if not left:
                self.blocker = blocker
                return
        if nobody == "release":
            self.records.release(self.accepted_by_leavers.missing(left))
            left = self.accepted_by_leavers.among(left)
        if left:
            self.address.accepted.note(self.core.now, left[-1][1])
            if self.accepted_by_leavers.starts:
                for start, stop in left:
                    self.accepted_by_leavers.remove(start, stop)
            self.records.done(left)

    def _blockers(self) -> list[IntervalSet]:
        """Returns the sets in which something is."""
        records = self.records
        blockers: list[IntervalSet] = []
        for each in (*records.awaited.values(), *self.feeds.awaited.values(), records.unfinished):
            if each.starts:
                blockers.append(each)  # a comprehension is a call
        for entry in list(records.owing) if records.owing else ():
            if entry.owed:
                blockers.append(entry.owed)
            if entry.syncing:
                blockers.append(entry.syncing)
            if not entry.owed and not entry.syncing:
                del records.owing[entry]
        return blockers

    def unawait(self, start: int, stop: int) -> None:
        """They are settled before all have accepted them."""
        for each in (self.undone, self.accepted_by_leavers, *self._blockers()):
            each.remove(start, stop)

    def entries_for(self, publisher: Publisher, entry: SubscriptionEntry) -> list[m.Entries]:
        """Returns the entries of a SYNC: all records of the publisher in order, each with a token of its own where the
        subscription is owed it (protocol 7.5)."""
        entries: list[m.Entries] = []
        for first, last in publisher.sent.live:
            for start, stop, message_format in publisher.sent.positions(first, last):
                owed = entry.owed.remove(start, stop)
                entry.syncing.add_all(owed)
                entries.append(
                    m.Entries(start, message_format, self.log.tags(start, stop), self.log.payloads(start, stop), owed)
                )
        if entry.syncing:
            self.records.owing[entry] = None
        return entries

    def owe_all(self, entry: SubscriptionEntry) -> None:
        """Every record that is not done is owed to the subscription (protocol 4.3, 7.4)."""
        entry.owed.add_all(self.undone)
        if entry.owed:
            self.records.owing[entry] = None

    def data_of(self, entry: SubscriptionEntry, data: bytes) -> bytes:
        """What a message brings takes the place of the data that a subscription has (protocol 7.10)."""
        return data

    def orphan(self, entry: SubscriptionEntry) -> None:
        """Every record from now on is owed to the orphan (protocol 6.1)."""
        entry.become_orphan(self.core.now, self.log.end)
        self.records.owing[entry] = None

    def owe_nothing(self, entry: SubscriptionEntry) -> None:
        """The subscription has left the directory and is owed nothing: records that waited for it alone are done
        (protocol 8.2, 8.3). What it was not owed any more it had accepted (protocol 6.10)."""
        accepted = entry.owed.missing(entry.syncing.missing(list(self.undone)))
        shared = self.records.awaited.get(entry.home or "")
        self.accepted_by_leavers.add_all(shared.missing(accepted) if shared else accepted)
        freed = self.undone.among(entry.owed.take() + entry.syncing.take())
        self.records.owing.pop(entry, None)
        self.check(freed)

    def replaced(self, entry: SubscriptionEntry) -> None:
        """Forgets what is owed to a subscription whose replacement is owed the same."""
        entry.owed.take()
        entry.syncing.take()
        self.records.owing.pop(entry, None)

    def router_down(self, router: str, orphans: list[SubscriptionEntry]) -> None:
        """Records with a token at that router are owed to each subscription whose home it was (protocol 8.6)."""
        ranges = self.records.forget_home(router)
        for entry in orphans:
            entry.owed.add_all(ranges)
            entry.owe_syncing()
            self.orphan(entry)
        self.check(list(self.undone))

    def check_invariants(self) -> None:
        records, subscriptions = self.records, self.subscriptions
        self.accepted_by_leavers.check_invariants()
        assert self.accepted_by_leavers.within(self.undone)
        assert all(subscriptions.get(entry.name) is entry for entry in records.owing), "`owing` names one that has left"
        for entry in subscriptions.values():
            entry.check_invariants(self.log.end)
            assert entry in records.owing or not (entry.owed or entry.syncing), f"{entry.name} is not in `owing`"
        fed = self.feeds.awaited.values()
        owed = [each for entry in records.owing for each in (entry.owed, entry.syncing)]
        holders = [*records.awaited.values(), *fed, records.unfinished, *owed]
        held_up = IntervalSet(union(holders).overlap(0, self.log.end))
        assert held_up.within(self.undone), f"a done record is awaited: undone {self.undone}, awaited {held_up}"
        if self.core.may_accept(self.address) and (
            subscriptions or self.feeds or self.address.config.no_subscribers != "hold"
        ):
            assert self.undone == held_up, f"an undone record is not awaited: undone {self.undone}, awaited {held_up}"
