"""The records of one address: what publishers sent here, what they are told of it, and when it is forgotten.

Records are positions of one log (protocol 9). To whom they go, and when they are done and leave `undone`, is the
`distribution`'s to say, which is a topic's or a queue's. Publishers attach and leave in `router.core.ingress`; one
publisher's state is in `router.core.publisher`.
"""

from __future__ import annotations

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.counters import Timeline
from router.core.directory import SubscriptionEntry
from router.core.feeding import Feed, Feeds
from router.core.held import Batch
from router.core.intervals import IntervalSet, Range
from router.core.log import RunList
from router.core.naming import outgoing_tags
from router.core.ports import ACCEPTED, REJECTED, RELEASED, Refusal
from router.core.publisher import BaseRecords, IngressRun, Publisher, Sending
from router.core.publisher_handshake import DROPPED
from router.core.traffic import Data, Rejection, Settle
from router.core.turns import Turns


class Refused:
    """Records that subscriptions did not take."""

    __slots__ = ("by_position", "reasons")

    def __init__(self) -> None:
        self.by_position: dict[int, int] = {}  # position -> subscriptions that rejected it
        self.reasons: dict[int, bytes] = {}  # position -> what the last subscription that did not take it has said

    def of(self, position: int) -> tuple[int, bytes]:
        """Returns how many have rejected it, and what the last one has said."""
        return self.by_position.get(position, 0), self.reasons.get(position, b"")

    def note(self, start: int, stop: int, rejected: int) -> None:
        for position in range(start, stop):
            self.by_position[position] = self.by_position.get(position, 0) + rejected

    def note_why(self, start: int, stop: int, why: bytes) -> None:
        self.reasons.update(dict.fromkeys(range(start, stop), why))

    def forget(self, position: int) -> None:
        self.by_position.pop(position, None)
        self.reasons.pop(position, None)


class Records(BaseRecords):
    """What was sent through this router and is not settled."""

    def __init__(self, address: BaseAddress, first_position: int, feeds: Feeds, turns: Turns) -> None:
        super().__init__(address.core.memory, first_position)
        self.address = address
        self.core = address.core
        self.feeds = feeds
        self.turns = turns
        self.subscriptions = address.known_subscriptions  # known in the network
        self.runs: RunList[IngressRun] = RunList()  # by position
        self.awaited: dict[str, IntervalSet] = {}  # home -> tokens of shared copies
        self.owing: dict[SubscriptionEntry, None] = {}  # subscriptions with something owed or syncing
        self.refused = Refused()
        self.settled = IntervalSet()  # to be told by SETTLE
        self.reached: tuple[str, ...] = ()  # routers that a record may have reached
        self.kept = IntervalSet()  # done and not settled, with their payload
        self.kept_bytes = 0
        self.counters = address.counters
        self.taken_at = Timeline()
        self.large: dict[int, Sending] = {}  # by position: records whose payload has passed through (protocol 6.12)
        self.unfinished = IntervalSet()  # of these, those whose last part has not come

    def handlers(self) -> m.Handlers:
        return {m.Reason: self.on_reason}

    # -------------------------------------------------------------------------------------------------------- transfers

    def take(self, publisher: Publisher, batch: Batch) -> None:
        """Takes transfers of a publisher that is ready (protocol 6.1): settled ones pass through (protocol 6.9), and an
        address without subscriptions may release them at once (protocol 6.10)."""
        core, address = self.core, self.address
        outgoing = batch.tags = outgoing_tags(publisher.prefix, batch.tags)
        if batch.settled:
            self.counters.received_settled += len(outgoing)
            self.counters.received_bytes += sum(map(len, batch.payloads))
            if address.config.type == "queue":
                self.feeds.take_settled(publisher, batch)
                return
            if core.config.feeding and self.feeds.queues:
                self.feeds.take(publisher, None, batch)
            if publisher.coverage.destinations:
                name, form = address.name, batch.message_format
                data = Data(name, publisher.publisher_id, publisher.term, 0, form, True, outgoing, batch.payloads)
                core.post.multicast(publisher.coverage.destinations, data)
            return
        if publisher.resending.tags:
            publisher.resending.come(outgoing)
        if publisher.sent.tags is not None:
            if not publisher.sent.tags.isdisjoint(outgoing) or len(set(outgoing)) < len(outgoing):
                self._take_repeats(publisher, batch)
                return
            publisher.sent.tags.update(outgoing)
        nobody = not self.subscriptions and address.config.no_subscribers == "release"
        if nobody and core.may_accept(address) and not self.feeds:
            publisher.sent.forget_tags(outgoing)
            self.counters.received += len(outgoing)
            self.counters.released += len(outgoing)
            first, last = batch.first_id, batch.first_id + len(outgoing) - 1
            publisher.port.outcome(first, last, RELEASED, 0, publisher.brought.mode_first)
            return
        self._append(publisher, batch)

    def _append(self, publisher: Publisher, batch: Batch) -> None:
        log, port, first_id = self.log, publisher.port, batch.first_id
        fed = port.__class__ is Feed and port.positions.get(first_id) is not None  # the topic counts the same octets
        start = log.append(batch.tags, batch.payloads, not fed)
        stop = log.end
        n, runs, form = stop - start, self.runs.runs, batch.message_format
        run = runs[-1] if runs else None
        if (
            run is not None
            and run.publisher is publisher
            and run.stop == start
            and run.first_id + (start - run.start) == first_id
            and run.message_format == form
        ):
            run.stop = stop
            run.live += n
        else:
            if run is not None and not run.live:
                self._drop_run(run)
            run = IngressRun(start, stop, publisher, first_id, form)
            self.runs.append(start, run)
            publisher.sent.runs.append(first_id, run)
        publisher.sent.live.add(first_id, first_id + n)
        size, counters = 0 if fed else sum(map(len, batch.payloads)), self.counters
        if not (port.__class__ is Feed and port.is_at_its_own):
            counters.received += n
            counters.received_bytes += size
        if self.core.now >= self.taken_at.next_mark_s:
            self.taken_at.note(start, self.core.now)
        publisher.sent.undone += n
        publisher.sent.undone_bytes += size
        self.undone.add(start, stop)
        if batch.begins:
            self._begin(publisher, start)
        elif self.core.config.feeding and self.feeds.queues:  # first: it holds back what nobody else does
            self.feeds.take(publisher, start, batch)
        self.distribution.spread(publisher, start, stop, batch)

    # ------------------------------------------------------------------------------------------------- large deliveries

    def _begin(self, publisher: Publisher, position: int) -> None:
        """The payload of a large record passes through, and is not kept (protocol 6.12)."""
        size = self.log.free(position, position + 1)
        publisher.sent.undone_bytes -= size
        publisher.sent.unfinished = position
        self.unfinished.add(position, position + 1)
        self.large[position] = Sending(publisher, size)

    def add_part(self, publisher: Publisher, payload: bytes, last: bool) -> None:
        """The next part of the publisher's large delivery; nothing if that is settled already, or was a repeat."""
        position = publisher.sent.unfinished
        if position is None:
            return
        sending = self.large[position]
        sending.sent += len(payload)
        self.counters.received_bytes += len(payload)
        homes = tuple([home for home in sending.homes if position in self.awaited.get(home, ())])
        if homes:
            self.core.post.multicast(homes, m.Part(self.address.name, position, last, payload))
        if last:
            publisher.sent.unfinished = None
            self.distribution.check(self.unfinished.remove(position, position + 1))

    def on_taken(self, sender: str, message: m.Taken) -> None:
        sending = self.large.get(message.position)
        if sending is not None and sender in sending.taken:
            sending.taken[sender] = message.size
            self.core.agenda.window_changed(sending.publisher)

    def ahead(self, publisher: Publisher) -> int:
        """Returns how much the publisher has sent of large deliveries that subscriptions have not been sent
        (protocol 6.12)."""
        ahead = 0
        for position, sending in self.large.items():
            if sending.publisher is publisher and position in self.undone:
                taken = [sending.taken[home] for home in sending.homes if position in self.awaited.get(home, ())]
                if not taken and any(position in entry.owed for entry in self.owing):
                    taken = [0]  # nobody gets it now, and it has to come again
                ahead += sending.sent - min(taken, default=sending.sent)
        return ahead

    def lacks_payload(self, publisher: Publisher, entry: SubscriptionEntry) -> bool:
        """Says whether the subscription cannot get the publisher's stream from here: it would begin in the middle of a
        large delivery, or it is owed one whose payload has passed through (protocol 6.12)."""
        return publisher.sent.unfinished is not None or any(
            sending.publisher is publisher and position in entry.owed for position, sending in self.large.items()
        )

    def _forget_large(self, start: int, stop: int) -> None:
        for position in [each for each in self.large if start <= each < stop]:
            publisher = self.large.pop(position).publisher
            if publisher.sent.unfinished == position:
                publisher.sent.unfinished = None
                self.turns.look()
            self.core.agenda.window_changed(publisher)

    def _take_repeats(self, publisher: Publisher, batch: Batch) -> None:
        """A transfer with the tag of an existing record is a repeat: it gets that record's outcome (protocol 6.1)."""
        assert publisher.sent.tags is not None
        for delivery_id, (tag, payload) in enumerate(zip(batch.tags, batch.payloads, strict=True), batch.first_id):
            if tag not in publisher.sent.tags:
                publisher.sent.tags.add(tag)
                one = Batch(delivery_id, [tag], [payload], False, batch.message_format, batch.begins)
                self._append(publisher, one)
                continue
            position = self.find(publisher, tag)
            if position is None:
                continue
            if position in self.undone:
                publisher.sent.repeats.setdefault(position, []).append(delivery_id)
            else:
                rejected, why = self.refused.of(position)
                outcome = REJECTED if rejected else ACCEPTED
                publisher.port.outcome(delivery_id, delivery_id, outcome, rejected, publisher.brought.mode_first, why)

    def find(self, publisher: Publisher, tag: bytes) -> int | None:
        for first, last in publisher.sent.live:
            for start, stop, _ in publisher.sent.positions(first, last):
                tags = self.log.tags(start, stop)
                if tag in tags:
                    return start + tags.index(tag)
        return None

    # ------------------------------------------------------------------------------------------------------- acceptance

    def on_reason(self, sender: str, message: m.Reason) -> None:
        """A subscription says why it does not take these; its outcome follows (protocol 6.4.9)."""
        if len(message.why) <= m.MOST_REASON:
            for low, high in self.undone.among(message.ranges):
                self.refused.note_why(low, high, message.why)

    def reject(self, ranges: list[Range], rejected: int) -> None:
        for start, stop in ranges:
            self.refused.note(start, stop, rejected)

    def refuse(self, position: int, name: m.SubscriptionName, refusal: Refusal) -> None:
        """This router rejects it for a subscription, which may have said why."""
        self.reject([(position, position + 1)], 1)
        if position not in self.refused.reasons:
            self.core.owner.rejections.note(self.address.name, name, refusal, 1)
            self.refused.note_why(position, position + 1, self.core.owner.reason_of(refusal))

    def accepted_by(self, entry: SubscriptionEntry, ranges: list[Rejection]) -> list[Range]:
        """A subscription has accepted what has gone to it alone. Returns what was still awaited of that."""
        removed: list[Range] = []
        for start, stop, rejected in ranges:
            found = entry.syncing.remove(start, stop)
            if rejected:
                self.reject(found, rejected)
            removed += found
        return removed

    def note_rejected(self, ranges: list[Range], rejected: int, why: bytes) -> None:
        """A queue that is fed has rejected these (protocol 16.12.3)."""
        self.reject(ranges, rejected)
        for start, stop in ranges:
            if why:
                self.refused.note_why(start, stop, why)

    def check_all(self) -> None:
        self.distribution.check(list(self.undone))

    def done(self, ranges: list[Range]) -> None:
        core, counters = self.core, self.counters
        for start, stop in ranges:
            self.undone.remove(start, stop)
            self.taken_at.observe(counters.acceptance, start, stop, core.now)
            for run, low, high in self.runs.pieces(start, stop):
                publisher, first, last = run.publisher, run.first_id + low, run.first_id + high
                a, b = run.start + low, run.start + high
                size = self.log.size(a, b)
                publisher.sent.undone -= b - a
                publisher.sent.undone_bytes -= size
                if self.refused.by_position or publisher.sent.repeats:
                    self._tell_singly(publisher, a, first, last)
                else:
                    counters.accepted += b - a
                    publisher.port.outcome(first, last - 1, ACCEPTED, 0, publisher.brought.mode_first)
                if publisher.brought.mode_first:  # protocol 6.5: settled, and SETTLE goes out now
                    publisher.sent.live.remove(first, last)
                    counters.settled += b - a
                    self._forget(publisher, run, a, b)
                else:
                    publisher.sent.unsettled += b - a
                    self.kept.add(a, b)
                    self.kept_bytes += size
                if publisher.window.slack <= 0:
                    core.agenda.window_changed(publisher)
        if self.kept_bytes > self.core.memory.done_bytes:
            self._free_early()

    def _tell_singly(self, publisher: Publisher, position: int, first: int, last: int) -> None:
        """Tells the outcomes of a stretch in which some were rejected (protocol 6.4) or repeated (protocol 6.1)."""
        settled = publisher.brought.mode_first
        for delivery_id in range(first, last):
            rejected, why = self.refused.of(position)
            outcome = REJECTED if rejected else ACCEPTED
            if rejected:
                self.counters.rejected += 1
            else:
                self.counters.accepted += 1
            for each in (delivery_id, *publisher.sent.repeats.pop(position, ())):
                publisher.port.outcome(each, each, outcome, rejected, settled, why)
            position += 1

    def release(self, ranges: list[Range]) -> None:
        """Releases records for which no subscription is left (protocol 6.10)."""
        for start, stop in ranges:
            for run, low, high in self.runs.pieces(start, stop):
                publisher, first, last = run.publisher, run.first_id + low, run.first_id + high
                self.counters.released += last - first
                publisher.port.outcome(first, last - 1, RELEASED, 0, publisher.brought.mode_first)
                for a, b in publisher.sent.live.remove(first, last):
                    self._forget_undone(publisher, run, run.start + a - run.first_id, run.start + b - run.first_id)
                if publisher.window.slack <= 0:
                    self.core.agenda.window_changed(publisher)

    def _free_early(self) -> None:
        """Frees the oldest done payload above `done_bytes` (protocol 9)."""
        while self.kept_bytes > self.core.memory.done_bytes and self.kept:
            start, stop = self.kept.starts[0], min(self.kept.stops[0], self.kept.starts[0] + 64)
            self.kept.remove(start, stop)
            self.kept_bytes -= self.log.free(start, stop)

    # ------------------------------------------------------------------------------------------------------- settlement

    def publisher_settled(self, publisher: Publisher, first: int, last: int) -> None:
        """The publisher has settled these deliveries: their records are forgotten, even if it was told no outcome yet
        (protocol 6.6)."""
        if publisher.held.batches or publisher.held.parts:
            publisher.held.forget(first, last)
        for low, high in publisher.sent.live.remove(first, last + 1):
            for run, a, b in publisher.sent.runs.pieces(low, high):
                start, stop = run.start + a, run.start + b
                self.counters.settled += stop - start
                self.taken_at.observe(self.counters.settlement, start, stop, self.core.now)
                if publisher.brought.wants_completion:
                    fed = self.feeds.ids(publisher, start, stop)
                    self.feeds.completion.settled(publisher, run.first_id + a, self.log.tags(start, stop), fed)
                done = [(start, stop)]
                first = self.undone.starts[0] if self.undone.starts else stop
                early = self.undone.overlap(start, stop) if first < stop else []
                if early:
                    for x, y in early:
                        self._forget_undone(publisher, run, x, y)
                    done = IntervalSet(early).missing(done)
                for x, y in done:
                    publisher.sent.unsettled -= y - x
                    self._forget(publisher, run, x, y)
        if publisher.window.slack <= 0:
            self.core.agenda.window_changed(publisher)

    def _forget_undone(self, publisher: Publisher, run: IngressRun, start: int, stop: int) -> None:
        """Forgets records that are not done. Their acceptance is no longer awaited."""
        publisher.sent.undone -= stop - start
        publisher.sent.undone_bytes -= self.log.size(start, stop)
        self.distribution.unawait(start, stop)
        self._forget(publisher, run, start, stop)

    def _forget(self, publisher: Publisher, run: IngressRun, start: int, stop: int, *, tell: bool = True) -> None:
        """They are all done, or none is."""
        kept = self.kept.remove(start, stop)
        if tell:
            if publisher in self.feeds.of:
                self.feeds.forget(publisher, start, stop)
            self.settled.add(start, stop)
            self.core.agenda.touch(self.address)
        if publisher.sent.tags:
            publisher.sent.forget_tags(self.log.tags(start, stop))
        refused = self.refused
        if refused.by_position or publisher.sent.repeats or refused.reasons:
            for position in range(start, stop):
                refused.forget(position)
                publisher.sent.repeats.pop(position, None)
        if self.large:
            self._forget_large(start, stop)
        size = self.log.forget(start, stop)
        if kept:
            self.kept_bytes -= size
        run.live -= stop - start
        gone = publisher.handshake.state is DROPPED
        if not run.live and (gone or run is not self.runs.runs[-1]):  # the last one may grow
            self._drop_run(run)

    def _drop_run(self, run: IngressRun) -> None:
        self.runs.drop(run.start, run)
        run.publisher.sent.runs.drop(run.first_id, run)

    def flush(self) -> None:
        """Sends SETTLE by position to every router that may have received one of them. A subscription may have moved
        away, but its old link may still hold the delivery (protocol 6.6)."""
        if not self.settled.starts:
            return
        ranges = self.settled.take()
        if self.reached:
            self.core.post.multicast(self.reached, Settle(self.address.name, ranges))
            publishers = self.address.attached.claimed.values()
            if len(self.reached) > 1 and not any(publisher.sent.live for publisher in publishers):
                self.reached = tuple(sorted({home for publisher in publishers for home in publisher.coverage.covered}))

    def settled_tag(self, publisher: Publisher, tag: bytes) -> bool:
        """The publisher settles a tag: its record is settled (protocol 6.6). Says whether it has one."""
        position = self.find(publisher, tag)
        if position is not None:
            ((run, low, _),) = self.runs.pieces(position, position + 1)
            self.publisher_settled(publisher, run.first_id + low, run.first_id + low)
        return position is not None

    def drop_all(self, publisher: Publisher) -> None:
        """The publisher's link is lost or closed: its records are dropped without a SETTLE (protocol 8.4)."""
        self.counters.abandoned += publisher.sent.live.size
        for first, last in publisher.sent.live:
            for run, low, high in publisher.sent.runs.pieces(first, last):
                start, stop = run.start + low, run.start + high
                early = self.undone.overlap(start, stop)
                if early:
                    self.distribution.unawait(start, stop)
                for a, b in (*early, *IntervalSet(early).missing([(start, stop)])):
                    self._forget(publisher, run, a, b, tell=False)
        for run in [run for run in publisher.sent.runs.runs if not run.live]:
            self._drop_run(run)
        publisher.sent.live.take()
        publisher.held.batches.clear()
        if self.address.doubts is not None:
            self.address.doubts.dropped(publisher)

    # ---------------------------------------------------------------------------------------- what is owed to whom

    def expect_home(self, home: str) -> None:
        """Records go to that router from now on, and it has to answer for them."""
        assert home == self.core.name or home in self.core.members.up
        if home not in self.awaited:
            self.awaited[home] = IntervalSet()
        if home not in self.reached:
            self.reached = tuple(sorted((*self.reached, home)))

    def forget_home(self, home: str) -> list[Range]:
        """Its session is over. Returns the tokens that it had."""
        self.reached = tuple([each for each in self.reached if each != home])
        return self.awaited.pop(home, IntervalSet()).take()

    def owe_again(self, entry: SubscriptionEntry) -> None:
        """Every record for which the subscription's home still owes a token, shared or its own, is owed to the
        subscription again (protocol 7.4, 8.1)."""
        entry.owe_syncing()
        if entry.home is not None and entry.home in self.awaited:
            entry.owed.add_all(self.awaited[entry.home])
        if entry.owed:
            self.owing[entry] = None

    # ----------------------------------------------------------------------------------------------------------- status

    @property
    def counted_bytes(self) -> int:
        """Returns how many bytes of payload are kept here."""
        lives = [(each, live) for each in self.address.attached.claimed.values() for live in each.sent.live]
        return sum(self.log.size(start, stop) for each, live in lives for start, stop, _ in each.sent.positions(*live))

    def check_invariants(self) -> None:
        publishers = self.address.attached.claimed.values()
        for each in (self.undone, self.kept, self.settled, *self.awaited.values()):
            each.check_invariants()
        self.log.check_invariants()
        self.runs.check_invariants()
        assert sum(run.live for run in self.runs.runs) == self.log.live == sum(p.sent.live.size for p in publishers)
        assert sum(p.sent.undone for p in publishers) == self.undone.size
        assert sum(p.sent.undone_bytes for p in publishers) == sum(self.log.size(a, b) for a, b in self.undone)
        assert self.kept_bytes == sum(self.log.size(a, b) for a, b in self.kept)
        assert not any(self.undone.overlap(start, stop) for start, stop in self.kept), "kept records are not done"
        unfinished = [publisher.sent.unfinished for publisher in publishers if publisher.sent.unfinished is not None]
        assert self.unfinished == IntervalSet([(position, position + 1) for position in sorted(unfinished)])
        assert all(each.publisher in publishers for each in self.large.values())
        self.distribution.check_invariants()

    def status(self) -> dict[str, object]:
        return {
            "undone": self.undone.size,
            "unsettled": self.log.live,
            "awaited": {home: tokens.size for home, tokens in sorted(self.awaited.items()) if tokens},
        }
