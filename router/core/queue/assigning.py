"""To whom the free records of a queue go: consumers tell what they take, and the nearest get it (protocol 16.3)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from router.core import messages as m
from router.core.directory import SubscriptionEntry
from router.core.intervals import Range
from router.core.publisher import Publisher
from router.core.queue.credit import Grant

if TYPE_CHECKING:
    from router.core.ports import Term
    from router.core.queue.distribution import QueueDistribution


PACE_S: Final = 0.01
"""A consumer gets at once what it has shown to accept in this time (protocol 16.3.2)."""


class ConsumerGrant(Grant):
    """A consumer's credit, valid under its term, and how fast it accepts."""

    __slots__ = ("_accepted", "_before", "_since", "home", "term")

    def __init__(self, home: str, term: Term) -> None:
        super().__init__()
        self.home = home
        self.term = term
        self._since = 0.0  # when the present window of PACE_S began
        self._accepted = 0  # in it
        self._before = 0  # in the one before

    def note_accepted(self, n: int, now: float) -> None:
        age = now - self._since
        if age >= PACE_S:
            self._before = self._accepted if age < 2 * PACE_S else 0
            self._since, self._accepted = now, 0
        self._accepted += n

    def pace(self, now: float) -> int:
        """Returns how many it has accepted lately within PACE_S; 0 if it has accepted nothing for a while."""
        return max(self._accepted, self._before) if now - self._since < 2 * PACE_S else 0


class Assigning:
    """One queue's, at an ingress."""

    def __init__(self, queue: QueueDistribution) -> None:
        self.queue = queue
        self.grants: dict[SubscriptionEntry, ConsumerGrant] = {}  # who was served longest ago first
        self._turn_began = 0.0  # of who was served last

    def on_credit(self, sender: str, message: m.Credit) -> None:
        """A consumer takes so many deliveries from here (protocol 16.3)."""
        entry = self.queue.entry_of(sender, message.name, message.term)
        if entry is None:
            return
        grant = self.grant_of(entry)
        if grant is None:
            grant = self.grants[entry] = ConsumerGrant(sender, message.term)
        if grant.round != message.round:
            grant.begin(message.round)
        grant.limit = message.limit
        self.queue.core.agenda.touch(self.queue.address)

    def stop(self, entry: SubscriptionEntry, number: int) -> None:
        """Something has come back for lack of credit: the order would be lost if more were assigned before all of the
        round has come back (protocol 16.3)."""
        grant = self.grant_of(entry)
        if grant is not None and grant.round == number and not grant.stopped:
            grant.stopped = True
            grant.limit = grant.used
            self.queue.core.post.send_to(grant.home, m.Stopped(self.queue.address.name, entry.name, entry.term, number))

    def grant_of(self, entry: SubscriptionEntry) -> ConsumerGrant | None:
        grant = self.grants.get(entry)
        if grant is not None and (grant.term != entry.term or grant.home != entry.home):
            del self.grants[entry]
            return None
        return grant

    def distribute(self) -> None:
        """Assigns what is free to consumers with credit: the nearest first, of these the one that has least, and of
        several the one served longest ago. It gets several at once or one after the other, as far as that makes little
        difference: what each run costs is spread over more deliveries (protocol 16.3)."""
        if not (self.queue.free.positions.starts and self.queue.may_assign()):
            return
        if not self.queue.subscriptions and self.queue.address.config.no_subscribers == "accept":
            self.queue.accept_free(list(self.queue.free.positions))
        if not self.grants:
            return
        ready = {entry: grant for entry in list(self.grants) if (grant := self.grant_of(entry)) and grant.left > 0}
        if not ready:
            return
        waiting = self._waiting(ready) if self.queue.free.kinds else ()
        for start, stop, group in self.queue.free.in_order(waiting):
            for run, low, high in self.queue.records.runs.pieces(start, stop):
                if not ready:
                    return
                first, last = run.start + low, run.start + high
                for a, b in self._alike(first, last):
                    self._distribute(run.publisher, a, b, run.message_format, ready, group)

    def _waiting(self, ready: dict[SubscriptionEntry, ConsumerGrant]) -> set[int]:
        """Returns the groups that wait for their consumers (protocol 16.9)."""
        in_doubt = self.queue.groups.in_doubt()
        if self.queue.elsewhere:
            return in_doubt  # what one has declined may be another's
        names = {None, *[entry.name for entry in ready]}
        groups = {kind.group for kind in self.queue.free.by_kind if kind.group is not None}
        return in_doubt | {group for group in groups if self.queue.groups.holder(group) not in names}

    def _alike(self, start: int, stop: int) -> list[Range]:
        """Splits a stretch where some of it must not go to all consumers, or not as it is."""
        elsewhere, failures = self.queue.elsewhere, self.queue.failures
        if not (elsewhere or failures):
            return [(start, stop)]
        if stop - start < len(elsewhere) + len(failures):
            special = [at for at in range(start, stop) if at in elsewhere or at in failures]
        else:
            special = [at for at in (*elsewhere, *failures) if start <= at < stop]
        if not special:
            return [(start, stop)]
        cuts = sorted({start, stop, *special, *[at + 1 for at in special]})
        return list(pairwise(cuts))

    def _distribute(
        self, publisher: Publisher, start: int, stop: int, message_format: int,
        ready: dict[SubscriptionEntry, ConsumerGrant], group: int | None,
    ) -> None:  # fmt: skip
        queue = self.queue
        excluded = queue.elsewhere.get(start, {})
        able = [entry for entry in ready if excluded.get(entry.name) != entry.term and queue.may_get(publisher, entry)]
        if group is not None and able:
            able = self._of_group(group, able, excluded)
        while start < stop and able:
            has = {each: each.syncing.size for each in self._nearest(able)}
            share = -(-(stop - start) // len(has))
            while start < stop and has:
                entry = self._next(has, ready)
                grant = ready[entry]
                n = min(grant.left, max(share, has[entry] // 2, grant.pace(queue.core.now)), stop - start)
                queue.free.remove(start, start + n)
                queue.assign(publisher, entry, start, start + n, message_format)
                self.grants[entry] = self.grants.pop(entry)
                start += n
                has[entry] += n
                if grant.left <= 0:
                    del ready[entry], has[entry]
                    able.remove(entry)

    def _next(
        self, has: dict[SubscriptionEntry, int], ready: dict[SubscriptionEntry, ConsumerGrant]
    ) -> SubscriptionEntry:
        """Returns who is served now: in its turn who was served last, if it accepts fast."""
        now, last = self.queue.core.now, next(reversed(self.grants))
        if last in has and now - self._turn_began < PACE_S / len(has) and 0 < has[last] < ready[last].pace(now):
            return last
        self._turn_began = now
        return min(has, key=has.__getitem__)

    def _of_group(
        self, group: int, able: list[SubscriptionEntry], excluded: dict[m.SubscriptionName, Term]
    ) -> list[SubscriptionEntry]:
        """Returns who of these may get what is free of the group: its holder; whoever is chosen now, if it has none;
        any, if the holder has declined it (protocol 16.9)."""
        holder = self.queue.groups.holder(group)
        if holder is None:
            chosen = min(self._nearest(able), key=lambda each: each.syncing.size)
            self.queue.groups.assigned(group, chosen.name)
            return [chosen]
        if holder in excluded and excluded[holder] == self.queue.subscriptions[holder].term:
            return able
        found = [entry for entry in able if entry.name == holder]
        if found:
            self.queue.groups.assigned(group, holder)
        return found

    def _nearest(self, entries: list[SubscriptionEntry]) -> list[SubscriptionEntry]:
        if len(entries) == 1:
            return entries[:]
        costs = [self.queue.core.owner.cost(each.home or "") for each in entries]
        least = min(costs)
        return [each for each, cost in zip(entries, costs, strict=True) if cost == least]
