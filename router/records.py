"""The records of one address: what publishers attached here have sent, and who still owes what (PROTOCOL 6, 9).

Records are positions of one log.  A position is the token of the copy that all homes share; `awaited` says, home by
home, which of them are out, `SubscriptionEntry.owed` and `.syncing` the same for single subscriptions.  A record is
done when it is in none of these sets, and then by a mark: it leaves `undone`.  Publishers come and go in
`router.ingress`, which builds on this; one of them is `router.publisher`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router import messages as m
from router.directory import SubscriptionEntry, outgoing_tags
from router.intervals import IntervalSet, Range
from router.log import RunList, Segments
from router.ports import Outcome
from router.publisher import NO_SUBSCRIBERS, IngressRun, Publisher

if TYPE_CHECKING:
    from router.address import Address


class Records:
    """What was sent through this router and is not settled."""

    def __init__(self, address: Address, start: int) -> None:
        self.address = address
        self.core = address.core
        self.publishers: dict[bytes, Publisher] = {}  # claimed
        self.proving: dict[Publisher, None] = {}  # attached, no sign of life yet
        self.log = Segments(start)
        self.runs: RunList[IngressRun] = RunList()  # by position
        self.undone = IntervalSet()
        self.awaited: dict[str, IntervalSet] = {}  # home -> tokens of shared copies
        self.owing: dict[SubscriptionEntry, None] = {}  # those with something owed or syncing
        self.blocker = IntervalSet()  # where the last look for what is done ended
        self.rejected: dict[int, int] = {}  # position -> subscriptions that rejected it
        self.settled = IntervalSet()  # to be told by SETTLE
        self.reached: tuple[str, ...] = ()  # whom a record may have reached
        self.kept = IntervalSet()  # done and not settled, with their payload
        self.kept_bytes = 0

    # ---------------------------------------------------------------------------------------- transfers: 6.1, 6.9, 6.10

    def _take(
        self,
        link: Publisher,
        first_id: int,
        tags: list[bytes],
        payloads: list[bytes],
        settled: bool,
        message_format: int,
    ) -> None:
        core, address = self.core, self.address
        outgoing = outgoing_tags(link.prefix, tags)
        if settled:  # 6.9
            if link.destinations:
                data = m.Data(address.name, link.publisher, link.term, 0, message_format, True, outgoing, payloads)
                core.multicast(link.destinations, data)
            return
        if link.expected:
            for tag in outgoing:
                if link.expected.pop(tag, link) is link:
                    link.moved_on = True
        if link.tags is not None:
            if not link.tags.isdisjoint(outgoing) or len(set(outgoing)) < len(outgoing):
                self._take_repeats(link, first_id, outgoing, payloads, message_format)
                return
            link.tags.update(outgoing)
        if not address.subscriptions and address.config.no_subscribers == "release" and core.may_accept():  # 6.10
            link.forget_tags(outgoing)
            link.port.outcome(first_id, first_id + len(tags) - 1, Outcome.RELEASED, 0, link.mode_first)
            return
        self._append(link, first_id, outgoing, payloads, message_format)

    def _append(
        self, link: Publisher, first_id: int, tags: list[bytes], payloads: list[bytes], message_format: int
    ) -> None:
        log = self.log
        start = log.append(tags, payloads)
        stop = log.end
        self._note_run(link, start, stop, first_id, message_format)
        n = stop - start
        link.live.add(first_id, first_id + n)
        size = log.size(start, stop)
        link.undone += n
        link.undone_bytes += size
        self.core.meter += size
        self.undone.add(start, stop)
        for home in link.destinations:
            self.awaited[home].add(start, stop)
        for entry in link.uncovered:  # also beside a covered neighbour
            entry.owed.add(start, stop)
            self.owing[entry] = None
        if link.destinations:
            name = self.address.name
            data = m.Data(name, link.publisher, link.term, start, message_format, False, tags, payloads)
            self.core.multicast(link.destinations, data)
        elif not link.uncovered:
            self.check([(start, stop)])

    def _note_run(self, link: Publisher, start: int, stop: int, first_id: int, message_format: int) -> None:
        if self.runs:
            last = self.runs.runs[-1]
            if (
                last.publisher is link
                and last.stop == start
                and last.first_id + (start - last.start) == first_id
                and last.message_format == message_format
            ):
                last.stop = stop
                last.live += stop - start
                return
            if not last.live:
                self._drop_run(last)
        run = IngressRun(start, stop, link, first_id, message_format)
        self.runs.append(start, run)
        link.runs.append(first_id, run)

    def _take_repeats(
        self, link: Publisher, first_id: int, tags: list[bytes], payloads: list[bytes], message_format: int
    ) -> None:
        """6.1: a tag whose record exists is no new record; the repeat gets that record's outcome."""
        assert link.tags is not None
        for i, (tag, payload) in enumerate(zip(tags, payloads, strict=True)):
            if tag not in link.tags:
                link.tags.add(tag)
                self._append(link, first_id + i, [tag], [payload], message_format)
                continue
            position = self._find(link, tag)
            if position is None:
                continue
            if position in self.undone:
                link.repeats.setdefault(position, []).append(first_id + i)
            else:
                rejected = self.rejected.get(position, 0)
                outcome = Outcome.REJECTED if rejected else Outcome.ACCEPTED
                link.port.outcome(first_id + i, first_id + i, outcome, rejected, link.mode_first)

    def _find(self, link: Publisher, tag: bytes) -> int | None:
        for first, last in link.live:
            for start, stop, _ in link.positions(first, last):
                tags = self.log.tags(start, stop)
                if tag in tags:
                    return start + tags.index(tag)
        return None

    # -------------------------------------------------------------------------------------------- acceptance: 6.5, 6.10

    def on_accept(self, sender: str, message: m.Accept) -> None:
        awaited = self.awaited.get(sender)
        if awaited is None:
            return
        removed: list[Range] = []
        for start, stop, rejected in message.ranges:
            found = awaited.remove(start, stop)
            if rejected:
                self._reject(found, rejected)
            removed += found
        self.check(removed)

    def on_accept_sync(self, sender: str, message: m.AcceptSync) -> None:
        entry = self.address.subscriptions.get(message.name)
        if entry is None or entry.term != message.term or entry.home != sender:
            return
        removed: list[Range] = []
        for start, stop, rejected in message.ranges:
            found = entry.syncing.remove(start, stop)
            if rejected:
                self._reject(found, rejected)
            removed += found
        self.check(removed)

    def _reject(self, ranges: list[Range], rejected: int) -> None:
        for start, stop in ranges:
            for position in range(start, stop):
                self.rejected[position] = self.rejected.get(position, 0) + rejected

    def check(self, ranges: list[Range]) -> None:
        """Which of these undone positions, just removed from some set, are now in none: they become done (6.5)."""
        if not ranges or not self._may_accept():
            return
        if not self.address.subscriptions and self.address.config.no_subscribers == "hold":  # 6.10
            return
        left = self.blocker.missing(ranges)
        if not left:
            return
        for blocker in self._blockers():
            left = blocker.missing(left)
            if not left:
                self.blocker = blocker
                return
        if not self.address.subscriptions and self.address.config.no_subscribers == "release":
            self._release(left)
        else:
            self._done(left)

    def _may_accept(self) -> bool:
        return self.core.may_accept()  # 4.4

    def check_all(self) -> None:
        self.check(list(self.undone))

    def _blockers(self) -> list[IntervalSet]:
        if not self.owing:
            return list(self.awaited.values())
        blockers = list(self.awaited.values())
        for entry in list(self.owing):
            if entry.owed:
                blockers.append(entry.owed)
            if entry.syncing:
                blockers.append(entry.syncing)
            if not entry.owed and not entry.syncing:
                del self.owing[entry]
        return blockers

    def _done(self, ranges: list[Range]) -> None:
        self.core.released = True
        for start, stop in ranges:
            self.undone.remove(start, stop)
            for run, low, high in self.runs.pieces(start, stop):
                link, first, last = run.publisher, run.first_id + low, run.first_id + high
                a, b = run.start + low, run.start + high
                size = self.log.size(a, b)
                link.undone -= b - a
                link.undone_bytes -= size
                if self.rejected or link.repeats:
                    self._tell_singly(link, a, first, last)
                else:
                    link.port.outcome(first, last - 1, Outcome.ACCEPTED, 0, link.mode_first)
                if link.mode_first:  # 6.5: settled, and SETTLE goes out now
                    link.live.remove(first, last)
                    self._forget(link, run, a, b)
                else:
                    link.unsettled += b - a
                    self.kept.add(a, b)
                    self.kept_bytes += size
                self.core.window_changed(link)
        if self.kept_bytes > self.core.done_bytes:
            self._free_early()

    def _tell_singly(self, link: Publisher, position: int, first: int, last: int) -> None:
        """Outcomes of a stretch in which some were rejected (6.4) or repeated (6.1)."""
        settled = link.mode_first
        for delivery_id in range(first, last):
            rejected = self.rejected.get(position, 0)
            outcome = Outcome.REJECTED if rejected else Outcome.ACCEPTED
            for each in (delivery_id, *link.repeats.pop(position, ())):
                link.port.outcome(each, each, outcome, rejected, settled)
            position += 1

    def _release(self, ranges: list[Range]) -> None:
        """6.10 `release`: no subscription is left for records that were taken."""
        for start, stop in ranges:
            for run, low, high in self.runs.pieces(start, stop):
                link, first, last = run.publisher, run.first_id + low, run.first_id + high
                link.port.outcome(first, last - 1, Outcome.RELEASED, 0, link.mode_first)
                for a, b in link.live.remove(first, last):
                    self._forget_undone(link, run, run.start + a - run.first_id, run.start + b - run.first_id)
                self.core.window_changed(link)

    def _free_early(self) -> None:
        """9: above done_bytes of done payload the oldest is freed."""
        while self.kept_bytes > self.core.done_bytes and self.kept:
            start, stop = self.kept.starts[0], min(self.kept.stops[0], self.kept.starts[0] + 64)
            self.kept.remove(start, stop)
            freed = self.log.free(start, stop)
            self.kept_bytes -= freed
            self.core.meter -= freed

    # -------------------------------------------------------------------------------------------------- settlement: 6.6

    def publisher_settled(self, link: Publisher, first: int, last: int) -> None:
        """The publisher has settled these deliveries; what it settles early is forgotten too."""
        if link.held:
            link.forget_held(first, last)
        for low, high in link.live.remove(first, last + 1):
            for run, a, b in link.runs.pieces(low, high):
                self._settle_run(link, run, run.start + a, run.start + b)
        self.core.window_changed(link)

    def _settle_run(self, link: Publisher, run: IngressRun, start: int, stop: int) -> None:
        early = self.undone.overlap(start, stop)
        if not early:
            link.unsettled -= stop - start
            self._forget(link, run, start, stop)
            return
        for a, b in early:
            self._forget_undone(link, run, a, b)
        for a, b in IntervalSet(early).missing([(start, stop)]):
            link.unsettled -= b - a
            self._forget(link, run, a, b)

    def _forget_undone(self, link: Publisher, run: IngressRun, start: int, stop: int) -> None:
        """Records that are not done, and are awaited no more."""
        link.undone -= stop - start
        link.undone_bytes -= self.log.size(start, stop)
        self._unawait(start, stop)
        self._forget(link, run, start, stop)

    def _unawait(self, start: int, stop: int) -> None:
        self.undone.remove(start, stop)
        for blocker in self._blockers():
            blocker.remove(start, stop)

    def _forget(self, link: Publisher, run: IngressRun, start: int, stop: int, *, tell: bool = True) -> None:
        for a, b in self.kept.remove(start, stop):
            self.kept_bytes -= self.log.size(a, b)
        if tell:
            self.settled.add(start, stop)
            self.core.touch(self.address)
        if link.tags:
            link.forget_tags(self.log.tags(start, stop))
        if self.rejected or link.repeats:
            for position in range(start, stop):
                self.rejected.pop(position, None)
                link.repeats.pop(position, None)
        self.core.meter -= self.log.forget(start, stop)
        run.live -= stop - start
        if not run.live and (run is not self.runs.runs[-1] or link.dropped):  # the last one may go on
            self._drop_run(run)

    def _drop_run(self, run: IngressRun) -> None:
        self.runs.drop(run.start, run)
        run.publisher.runs.drop(run.first_id, run)

    def flush(self) -> None:
        """SETTLE by position goes to every router that may have got one of them, also where the subscription has moved
        away from since: its old link may still hold it."""
        if not self.settled:
            return
        ranges = self.settled.take()
        if self.reached:
            self.core.multicast(self.reached, m.Settle(self.address.name, ranges))
            if len(self.reached) > 1 and not any(link.live for link in self.publishers.values()):
                self.reached = tuple(sorted({home for link in self.publishers.values() for home in link.covered}))

    # ----------------------------------------------------------------------- what is owed, what may come: 7.4, 8.1, 6.8

    def owe_all(self, entry: SubscriptionEntry) -> None:
        """Every record not done is owed to it."""
        entry.owed.add_all(self.undone)
        if entry.owed:
            self.owing[entry] = None

    def owe_again(self, entry: SubscriptionEntry) -> None:
        """Every record for which its home still owes a token, shared or its own, is owed to it again."""
        entry.unsync()
        if entry.home is not None and entry.home in self.awaited:
            entry.owed.add_all(self.awaited[entry.home])
        if entry.owed:
            self.owing[entry] = None

    def window(self, link: Publisher) -> tuple[int, int, str]:
        """How many messages and bytes may still come, and why none."""
        config = self.core.config
        if not self.address.subscriptions and self.address.config.no_subscribers == "hold":
            return (0, 0, NO_SUBSCRIBERS)
        if self.core.meter >= config.memory_limit:
            return (0, 0, "memory limit")
        if link.unsettled >= link.unsettled_window:
            return (0, 0, "unsettled window")
        messages = min(config.window_messages - link.undone - link.held_count, link.unsettled_window - link.unsettled)
        size = self.core.fair_share(self.core.meter) - link.undone_bytes - link.held_bytes
        if messages <= 0:
            return (0, 0, "window")
        if size <= 0:
            return (0, 0, "window of bytes")
        return (messages, size, "")
