"""The records of one queue: each is free, or some consumers' (protocol 16.1).

A record that is not done is `free`, or in `owed` or `syncing` of entries of consumers: of one that it is assigned to,
or of several of which any may hold it, as an earlier ingress may have assigned it to them. Free records go to consumers
with credit (`assigning`).
"""

from __future__ import annotations

from router.core import messages as m
from router.core.directory import SubscriptionEntry
from router.core.feeding import Feed
from router.core.held import Batch
from router.core.ingress import Ingress
from router.core.intervals import IntervalSet, Range, count, union
from router.core.ports import Term, failed_too_often, too_large_for_all
from router.core.publisher import Distribution, Publisher
from router.core.queue.assigning import Assigning
from router.core.queue.departed import NOBODY, NOBODYS_TERM
from router.core.queue.expiring import Expiring
from router.core.queue.free import FreeRecords, Groups, added
from router.core.records import Records


class QueueDistribution(Distribution):
    """One queue's."""

    def __init__(self, records: Records, ingress: Ingress) -> None:
        self.records = records
        self.ingress = ingress
        self.address = records.address
        self.core = records.core
        self.subscriptions = records.subscriptions
        self.log = records.log
        self.undone = records.undone
        assert records.address.doubts is not None
        self.doubts = records.address.doubts
        self.free = FreeRecords()
        self.once = IntervalSet()  # not done, and at most once (protocol 16.1.5)
        self.repeated = IntervalSet()  # not done, and an earlier ingress may have had it
        self.doubted = IntervalSet()  # consumers', and none of these is sure to hold it, or has been assigned it as new
        self.groups = Groups(self.subscriptions, self.free, self.doubted)
        self.assigning = Assigning(self)
        self.failures: dict[int, int] = {}  # position -> how many consumers have failed with it
        self.elsewhere: dict[int, dict[m.SubscriptionName, Term]] = {}  # position -> who does not get it, as attached
        self.too_large: dict[int, dict[m.SubscriptionName, Term]] = {}  # the same, of those whose links cannot take it
        self.gone: dict[str, SubscriptionEntry] = {}  # router -> its consumers that have gone
        self.expiring = Expiring(self)
        self._of_replaced: list[Range] = []  # owed to an entry whose successor is entered in the same handler

    def handlers(self) -> m.Handlers:
        return {
            m.AcceptSync: self.on_accept_sync,
            m.PubAck: self.on_puback,
            m.Credit: self.assigning.on_credit,
            m.Return: self.on_return,
            m.Hold: self.on_hold,
        }

    # ------------------------------------------------------------------------------------------- what is sent again

    def on_puback(self, sender: str, message: m.PubAck) -> None:
        """A router has said before this what its consumers hold."""
        publisher = self.address.attached.claimed.get(message.publisher)
        if publisher and publisher.term == message.term and message.stale is None:
            self.heard_all(publisher, sender)
        self.ingress.on_puback(sender, message)

    def heard_all(self, publisher: Publisher, router: str) -> None:
        """That router has answered the claim, and has said before what its consumers hold."""
        doubt = self.doubts.of.get(publisher)
        if doubt is None or router not in doubt.asked:
            return  # a PUB without an expected set is no question (protocol 16.4)
        doubt.asked.discard(router)
        for entry in [entry for entry in doubt.unheard if entry.home == router]:
            if doubt.unproven.get(entry) != entry.term:
                doubt.hear(entry)
                self._let_go(publisher, entry, IntervalSet())

    def on_hold(self, sender: str, message: m.Hold) -> None:
        """A consumer holds these, and no others (protocol 16.4)."""
        publisher = self.address.attached.claimed.get(message.publisher)
        entry = self.entry_of(sender, message.name, message.subscription_term)
        doubt = self.doubts.of.get(publisher) if publisher is not None else None
        if publisher is None or doubt is None or publisher.term != message.term or entry is None:
            return
        heard = message.name != NOBODY and not message.unproven
        if heard:
            doubt.hear(entry)
        records = self._by_tag(publisher) if message.tags or message.declined else {}
        named = IntervalSet()
        over: list[bytes] = []
        for tag in message.tags:
            found = records.get(tag)
            if found is None:
                if publisher.resending.unknown or tag in publisher.resending.tags:
                    doubt.holders.setdefault(tag, []).append(entry)
                else:
                    over.append(tag)
                continue
            position, message_format = found
            named.add(position, position + 1)
            if position not in self.undone:  # it is told only where it has it
                self._send_assign(publisher, entry, position, position + 1, message_format, 0, held=True)
            elif position not in entry.syncing and (
                position in self.free.positions or position in self.doubted or message.name == NOBODY
            ):
                self.free.remove(position, position + 1)
                self._owe(entry, position, position + 1)
        for tag in message.declined:
            found = records.get(tag)
            if found is not None and found[0] in self.undone:
                self._pass_over(publisher, message.name, message.subscription_term, *found)
            elif found is None and (publisher.resending.unknown or tag in publisher.resending.tags):
                doubt.declined.setdefault(tag, {})[message.name] = message.subscription_term
        self._assign_held(publisher, entry, named)
        if message.unproven:
            doubt.unproven[entry] = entry.term
        elif heard:
            self._let_go(publisher, entry, named)
        if over:
            self._say_settled(sender, publisher, over)

    def _say_settled(self, router: str, publisher: Publisher, tags: list[bytes]) -> None:
        """These have been settled since PUB or SYNC has asked for them (protocol 16.4)."""
        name, publisher_id, term = self.address.name, publisher.publisher_id, publisher.term
        self.core.post.send_to(router, m.SettleTags(name, publisher_id, term, tags))

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
            for first, last in publisher.sent.live
            for start, stop, message_format in publisher.sent.positions(first, last)
            for i, tag in enumerate(self.log.tags(start, stop))
        }

    def spread(self, publisher: Publisher, start: int, stop: int, batch: Batch) -> None:
        """A new record is free. One that is sent again is its holder's, or that of all who may hold it
        (protocol 16.4)."""
        self.core.agenda.touch(self.address)
        port = publisher.port
        if port.__class__ is Feed and port.is_once(batch.first_id):
            self.once.add(start, stop)
        if not batch.message_format:
            if self.address.config.expire:
                self.expiring.note(start, batch.payloads)
            for i, kind in self.core.owner.kinds_of(batch.payloads, self.address.config.priority).items():
                self.free.note(start + i, kind)
        doubt = self.doubts.of[publisher]
        unknown = publisher.resending.unknown
        if not (unknown or doubt.expected):
            self.free.add(start, stop)
            return
        if unknown and not (doubt.holders or doubt.unheard or doubt.declined):
            self.repeated.add(start, stop)
            self.free.add(start, stop)
            return
        holding: dict[SubscriptionEntry, IntervalSet] = {}
        for position, tag in enumerate(batch.tags, start):
            again = unknown or tag in doubt.expected
            suspects: list[SubscriptionEntry] = []
            if again:
                doubt.expected.discard(tag)
                self.repeated.add(position, position + 1)
                suspects = [each for each in doubt.holders.pop(tag, ()) if self._is_known(each)]
                for entry in suspects:
                    if doubt.is_heard(entry):  # what it named on another link it may not hold any more
                        holding.setdefault(entry, IntervalSet()).add(position, position + 1)
                suspects = suspects or [each for each in doubt.unheard if self._is_known(each)]
                for name, term in doubt.declined.pop(tag, {}).items():
                    self._pass_over(publisher, name, term, position, batch.message_format)
            for entry in suspects:
                self._owe(entry, position, position + 1)
            if not suspects:
                self.free.add(position, position + 1)
        for entry, named in holding.items():
            self._assign_held(publisher, entry, named)

    def _is_known(self, entry: SubscriptionEntry) -> bool:
        return self.subscriptions.get(entry.name) is entry or self.gone.get(entry.home or "") is entry

    def _owe(self, entry: SubscriptionEntry, start: int, stop: int) -> None:
        entry.owed.add(start, stop)
        self.records.owing[entry] = None
        self.doubted.add(start, stop)

    # ---------------------------------------------------------------------------------------------- what is whose

    def entries_for(self, publisher: Publisher, entry: SubscriptionEntry) -> list[m.Entries]:
        """Returns the entries of a SYNC, which asks the consumer what it holds: the tags of all records, by which
        deliveries get their positions (protocol 16.4)."""
        self.doubts.of[publisher].unheard[entry] = None
        self.core.agenda.touch(self.address)  # there may be something for it
        return [
            m.Entries(start, message_format, self.log.tags(start, stop), [None] * (stop - start), [])
            for first, last in publisher.sent.live
            for start, stop, message_format in publisher.sent.positions(first, last)
        ]

    def is_covered(self, publisher: Publisher, entry: SubscriptionEntry) -> bool:
        if entry.name == NOBODY:
            return True
        return entry.home is not None and entry.name in publisher.coverage.covered.get(entry.home, ())

    def may_get(self, publisher: Publisher, entry: SubscriptionEntry) -> bool:
        """Says whether the consumer gets what is free of this publisher. Before it has been heard, that might overtake
        what it does not hold (protocol 16.4)."""
        return entry not in self.doubts.of[publisher].unheard and self.is_covered(publisher, entry)

    def _owed_of(self, publisher: Publisher, entry: SubscriptionEntry) -> list[tuple[int, int, int]]:
        """Returns (start, stop, message-format) of what the consumer is owed of this publisher."""
        if not entry.owed:
            return []
        return [
            (low, high, message_format)
            for first, last in publisher.sent.live
            for start, stop, message_format in publisher.sent.positions(first, last)
            for low, high in entry.owed.overlap(start, stop)
        ]

    def _assign_held(self, publisher: Publisher, entry: SubscriptionEntry, named: IntervalSet) -> None:
        """The consumer says that it holds these: they are its own if it still does (protocol 16.4)."""
        if not self.is_covered(publisher, entry):
            return  # SYNC will ask it
        for start, stop, message_format in self._owed_of(publisher, entry):
            for low, high in named.overlap(start, stop):
                entry.owed.remove(low, high)
                if entry.name != NOBODY:
                    self.groups.named(entry.name, low, high)
                self.assign(publisher, entry, low, high, message_format, held=True)

    def _let_go(self, publisher: Publisher, entry: SubscriptionEntry, named: IntervalSet) -> None:
        """The consumer holds nothing but what it has named (protocol 16.4)."""
        lost = named.missing([(start, stop) for start, stop, _ in self._owed_of(publisher, entry)])
        for start, stop in lost:
            entry.owed.remove(start, stop)
        if lost and not (entry.owed or entry.syncing):
            self.records.owing.pop(entry, None)
        self._freed(lost)

    def _freed(self, ranges: list[Range], *, tried: bool = True) -> None:
        """A consumer does not hold these any more: what nobody else may hold is free. What is at most once, and was
        assigned to it, is done where it may have been tried (protocol 16.1.5)."""
        ranges = self.undone.among(ranges)
        for each in self.records.owing:
            if ranges:
                ranges = each.syncing.missing(each.owed.missing(ranges))
        if tried and ranges and self.once.starts:
            self._finish(self.doubted.missing(self.once.among(ranges)))
            ranges = self.undone.among(ranges)
        for start, stop in ranges:
            self.free.add(start, stop)
            self.doubted.remove(start, stop)
        self.core.agenda.touch(self.address)

    # ---------------------------------------------------------------------------------------------------- assignment

    def entry_of(self, sender: str, name: m.SubscriptionName, term: Term) -> SubscriptionEntry | None:
        """Returns the consumer if it is attached there under that term."""
        if name == NOBODY:
            if sender not in self.gone:
                self.gone[sender] = SubscriptionEntry(NOBODY, None, NOBODYS_TERM, sender, self.core.now, 0.0)
            return self.gone[sender]
        entry = self.subscriptions.get(name)
        return entry if entry is not None and entry.term == term and entry.home == sender else None

    def may_assign(self) -> bool:
        """Says whether every consumer is known that may hold what was sent again (protocol 16.2)."""
        return self.core.may_accept(self.address)

    def assign(
        self, publisher: Publisher, entry: SubscriptionEntry, start: int, stop: int, message_format: int,
        *, held: bool = False,
    ) -> None:  # fmt: skip
        assert entry.home is not None
        grant = self.assigning.grant_of(entry)
        if grant is not None and not held:
            grant.used += stop - start
        entry.syncing.add(start, stop)
        self.records.owing[entry] = None
        if not held and self.doubted.starts:
            self.doubted.remove(start, stop)
        if not held and self.repeated.starts and self.repeated.overlap(start, stop):
            self.address.accepted.note(self.core.now)  # protocol 16.2: an unknown consumer may hold it
        number = grant.round if grant is not None and not grant.stopped else 0
        self._send_assign(publisher, entry, start, stop, message_format, number, held=held)

    def _send_assign(
        self, publisher: Publisher, entry: SubscriptionEntry, start: int, stop: int, message_format: int,
        number: int, *, held: bool,
    ) -> None:  # fmt: skip
        assert entry.home is not None
        self._reach(entry.home)
        payloads = [payload or b"" for payload in self.log.payloads(start, stop)]
        self.core.post.send_to(
            entry.home,
            m.Assign(
                self.address.name, publisher.publisher_id, publisher.term, entry.name, entry.term,
                number, held, self.failures.get(start, 0), start, message_format,
                self.log.tags(start, stop), payloads,
            ),
        )  # fmt: skip

    def _reach(self, home: str) -> None:
        """That router is told what is settled, though nobody may be attached there (protocol 16.7)."""
        if home not in self.records.reached:
            self.records.expect_home(home)

    # ------------------------------------------------------------------------------------------------------ outcomes

    def on_accept_sync(self, sender: str, message: m.AcceptSync) -> None:
        """A consumer has accepted: the record is done, whoever else may have held it (protocol 16.5)."""
        entry = self.entry_of(sender, message.name, message.term)
        if entry is None:
            return
        done = self.records.accepted_by(entry, message.ranges)
        grant = self.assigning.grant_of(entry)
        if grant is not None:
            grant.note_accepted(count(done), self.core.now)
        if not (entry.owed.starts or entry.syncing.starts):
            self.records.owing.pop(entry, None)
        self._finish(done)

    def _finish(self, ranges: list[Range]) -> None:
        """These are nobody's any more, or have just been taken from the one consumer whose they were."""
        for start, stop in ranges:
            if self.doubted.starts and self.doubted.remove(start, stop):
                for each in list(self.records.owing):
                    each.owed.remove(start, stop)
                    each.syncing.remove(start, stop)
                    if not (each.owed.starts or each.syncing.starts):
                        del self.records.owing[each]
            for special in (self.repeated, self.once):
                if special.starts:
                    special.remove(start, stop)
            self._forget_special(start, stop)
        if ranges:
            self.records.done(ranges)

    def _forget_special(self, start: int, stop: int) -> None:
        if self.free.kinds:
            self.free.forget(start, stop)
            self.groups.forget_contested()
        for table in (self.failures, self.elsewhere, self.too_large):
            if table:
                for at in range(start, stop):
                    table.pop(at, None)

    def accept_free(self, ranges: list[Range]) -> None:
        """These free records are done without a consumer: their time is over (protocol 16.3.9), or the shared
        subscription has no member any more (protocol 16.12.1)."""
        for start, stop in ranges:
            if self.repeated.overlap(start, stop):
                self.address.accepted.note(self.core.now)  # protocol 16.2: an unknown consumer may hold it
            self.free.remove(start, stop)
        self._finish(ranges)

    def on_return(self, sender: str, message: m.Return) -> None:
        """A consumer gives deliveries back: they are free again (protocol 16.5)."""
        entry = self.entry_of(sender, message.name, message.term)
        if entry is None:
            return
        for start, stop, why in message.ranges:
            found = entry.syncing.remove(start, stop)
            for flag, table in ((m.Why.ELSEWHERE, self.elsewhere), (m.Why.TOO_LARGE, self.too_large)):
                if why & flag:
                    for low, high in found:
                        for position in range(low, high):
                            table.setdefault(position, {})[entry.name] = entry.term
            if why & m.Why.UNSENT:
                self.assigning.stop(entry, message.round)
            if why & m.Why.FAILED:
                found = self._count_failures(entry, found)
            self._freed(found, tried=bool(why & m.Why.FAILED))
            if why & m.Why.TOO_LARGE:
                self._reject_too_large([at for low, high in found for at in range(low, high)])

    def _count_failures(self, entry: SubscriptionEntry, ranges: list[Range]) -> list[Range]:
        """After max_redeliveries failures one more counts as rejected. Returns the others (protocol 6.4)."""
        left: list[Range] = []
        most = self.address.config.max_redeliveries
        for low, high in ranges:
            for position in range(low, high):
                failures = self.failures.get(position, 0) + 1
                if failures > most:
                    self.records.refuse(position, entry.name, failed_too_often(most))
                    self._finish([(position, position + 1)])
                else:
                    self.failures[position] = failures
                    left.append((position, position + 1))
        return left

    def _reject_too_large(self, positions: list[int]) -> None:
        """Rejects those that no consumer can take, also none that is away (protocol 16.5.6)."""
        if not (self.subscriptions and self.may_assign()):
            return
        for position in positions:
            unable = self.too_large[position]
            if position in self.free.positions and all(unable.get(n) == e.term for n, e in self.subscriptions.items()):
                (payload,) = self.log.payloads(position, position + 1)
                self.records.refuse(position, next(reversed(unable)), too_large_for_all(len(payload or b"")))
                self.free.remove(position, position + 1)
                self._finish([(position, position + 1)])

    def check(self, ranges: list[Range]) -> None:
        """There may be somebody for what is free, or nobody any more (protocol 6.10)."""
        self._reject_too_large([*self.too_large])
        nobody = not self.subscriptions and self.address.config.no_subscribers == "release"
        if nobody and self.core.may_accept(self.address):
            self.records.release(list(self.free.positions))
        self.core.agenda.touch(self.address)

    def unawait(self, start: int, stop: int) -> None:
        """They are settled before a consumer has accepted them."""
        owed = [each for entry in self.records.owing for each in (entry.owed, entry.syncing)]
        self.free.remove(start, stop)
        for each in (self.undone, self.once, self.repeated, self.doubted, *owed):
            each.remove(start, stop)
        self._forget_special(start, stop)

    # ------------------------------------------------------------------------------------------------------ consumers

    def owe_all(self, entry: SubscriptionEntry) -> None:
        """A consumer is entered. It may hold what was sent again and is nobody's, what was owed to the entry that it
        replaces, and what publishers still send again (protocol 16.4)."""
        replaced, self._of_replaced = self._of_replaced, []
        entry.owed.add_all(self.undone.among(replaced))
        for start, stop in self.free.positions.among(list(self.repeated)):
            self.free.remove(start, stop)
            self._owe(entry, start, stop)
        if entry.owed:
            self.records.owing[entry] = None
        self.doubts.entered(entry)
        for topic in self.core.owner.shares.topics_of(self.address.name):
            found = self.core.addresses.get(topic)
            if found is not None:
                found.feed_late(self.address.name)

    def data_of(self, entry: SubscriptionEntry, data: bytes) -> bytes:
        """A consumer keeps its groups (protocol 16.9)."""
        self.groups.noted(entry.name, data)
        return added(entry.data, data)

    def replaced(self, entry: SubscriptionEntry) -> None:
        self._of_replaced = [*entry.owed.take(), *entry.syncing.take()]
        self._forget_entry(entry)

    def router_down(self, router: str, orphans: list[SubscriptionEntry]) -> None:
        self.doubts.router_down(router)
        gone = self.gone.pop(router, None)
        if gone is not None:
            self.owe_nothing(gone)
        self.records.forget_home(router)
        for entry in orphans:
            entry.owe_syncing()
            self.orphan(entry)
        self.check([])

    def owe_nothing(self, entry: SubscriptionEntry) -> None:
        """It has gone for good: what it held undecided is free (protocol 16.6)."""
        ranges = [*entry.owed.take(), *entry.syncing.take()]
        self._forget_entry(entry)
        self._freed(ranges)
        self.check([])

    def _forget_entry(self, entry: SubscriptionEntry) -> None:
        self.records.owing.pop(entry, None)
        self.assigning.grants.pop(entry, None)
        self.doubts.forget(entry)

    def orphan(self, entry: SubscriptionEntry) -> None:
        """What it holds stays its own; it gets nothing new (protocol 16.6)."""
        entry.home = None
        entry.since = self.core.now
        self.assigning.grants.pop(entry, None)

    def check_invariants(self) -> None:
        held = union([each for entry in self.records.owing for each in (entry.owed, entry.syncing)])
        assert not any(self.free.positions.overlap(start, stop) for start, stop in held), "free, and a consumer's"
        self.free.check_invariants()
        assert self.free.kinds.keys() <= {at for start, stop in self.undone for at in range(start, stop)}
        assert held.within(self.undone), f"undone {self.undone}, held {held}"
        assert union([held, self.free.positions]) == self.undone, (
            f"undone {self.undone}, free {self.free.positions}, held {held}"
        )
        assert self.repeated.within(self.undone)
        assert self.once.within(self.undone)
        assert self.doubted.within(self.undone)
        assert not any(self.doubted.overlap(start, stop) for start, stop in self.free.positions), "free, and doubted"
        assert self.doubts.of.keys() >= set(self.address.attached.claimed.values())
        assert all(self._is_known(entry) for entry in self.records.owing), "`owing` names one that has left"
        for entry in self.subscriptions.values():
            assert entry in self.records.owing or not (entry.owed or entry.syncing), f"{entry.name} is not in `owing`"
            assert not (entry.home is None and entry.syncing), f"{entry.name}: tokens of an orphan"
            assert not any(entry.owed.overlap(start, stop) for start, stop in entry.syncing)
