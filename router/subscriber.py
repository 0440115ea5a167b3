"""One subscription attached here: what its egress keeps of it, and what goes out on its link (PROTOCOL 2, 7.6, 9).

A subscription is a cursor into the address's arrival log.  `owes` are the log positions that it has not accepted (an
open tail, less what is not for it); its queue is `owes` from the cursor on, less `skip`; `held` is what it has been
sent and nobody has settled; accepted is `held` less `owes`.  Deliveries that do not fit are `Irregular`.

Decides the order on the link: resumptions, then what was released, then what a SYNC brought, then the log.  The rules
by which deliveries come and go are in `router.egress`.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING

from router.directory import PublisherEntry
from router.intervals import OPEN, IntervalSet, Range
from router.irregular import Irregular, Resume, State
from router.log import Run, RunList
from router.messages import JoinKind, SubscriptionName
from router.ports import MapState, SubscriberAttach, SubscriberPort, Term

if TYPE_CHECKING:
    from router.egress import Egress


class SentRun(Run):
    """Log positions that were sent with delivery-ids that run along."""

    __slots__ = ("first_id",)

    def __init__(self, start: int, stop: int, first_id: int) -> None:
        super().__init__(start, stop)
        self.first_id = first_id


class PreSettled:
    """At-most-once messages that wait for credit (6.9): not before the log's position `at` has been sent."""

    __slots__ = ("at", "message_format", "payloads", "tags")

    def __init__(self, at: int, tags: list[bytes], payloads: list[bytes], message_format: int) -> None:
        self.at = at
        self.tags = tags
        self.payloads = payloads
        self.message_format = message_format


class Subscriber:
    """A subscription's attachment at this router."""

    __slots__ = (
        "again",
        "answered",
        "born",
        "bound",
        "brought",
        "by_sync",
        "cursor",
        "dropped",
        "egress",
        "expiry_policy",
        "gone",
        "granted_s",
        "held",
        "history",
        "ids",
        "incomplete",
        "irregular",
        "joined",
        "kind",
        "known",
        "line",
        "map_presented",
        "marks",
        "name",
        "owes",
        "port",
        "presettled",
        "presettled_count",
        "presettled_size",
        "quick",
        "refused",
        "resumes",
        "resumes_only",
        "sent_ids",
        "sent_positions",
        "settled_mode",
        "skip",
        "slots",
        "synced",
        "term",
        "waiting",
    )

    def __init__(self, egress: Egress, port: SubscriberPort, attach: SubscriberAttach, term: Term) -> None:
        self.egress = egress
        self.port = port
        self.name: SubscriptionName = (attach.container, attach.name)
        self.term = term
        self.born: Term | None = None
        self.kind = JoinKind.EITHER
        self.history = False
        self.brought = attach.epoch is not None  # epochs
        self.map_presented = attach.unsettled is not None
        self.expiry_policy = attach.expiry_policy
        self.granted_s = min(attach.timeout_s, egress.address.config.subscription_timeout_s)
        self.settled_mode = attach.settled_mode
        # 6.9: settled on the wire at acceptance; tag and state stay until SETTLE
        self.quick = (
            attach.mode_first
            or attach.settled_mode
            or (not self.brought and not self.map_presented and self.granted_s <= 0)
        )
        # attaching
        self.joined: dict[str, None] = {}
        self.waiting: dict[str, None] = {}
        self.answered = False
        self.incomplete = False  # 7.7: our map did not fit
        self.resumes_only = False  # ... and what was left out of it wants a verdict: nothing new on this link
        self.known = False
        self.marks: dict[Term, None] = {}
        # streams
        self.synced: dict[bytes, tuple[str, Term]] = {}
        # the log
        end = egress.log.end
        self.cursor = end
        self.owes = IntervalSet([(end, OPEN)])
        self.held = IntervalSet()
        self.gone = IntervalSet()  # of held: settled on the wire already
        self.refused = IntervalSet()  # of held: rejected (6.4)
        self.skip = IntervalSet()  # from the cursor on: known by tag, not to be sent as new
        self.sent_ids: RunList[SentRun] = RunList()
        self.sent_positions: RunList[SentRun] = RunList()
        # single deliveries
        self.irregular: dict[bytes, dict[bytes, Irregular]] = {}  # publisher -> tag ->
        self.ids: dict[int, Irregular] = {}
        self.bound: dict[int, Irregular] = {}  # by log position
        self.by_sync: dict[str, dict[int, Irregular]] = {}  # ingress -> its position ->
        self.resumes: deque[Irregular] = deque()
        self.again: list[Irregular] = []
        self.line: deque[Irregular] = deque()
        self.slots: dict[int, Irregular] = {}  # placeholders that a DATA has filled: in their place in the log
        # at most once
        self.presettled: deque[PreSettled] = deque()
        self.presettled_count = 0
        self.presettled_size = 0
        self.dropped = 0

    # ------------------------------------------------------------------------------------------------ single deliveries

    def find(self, tag: bytes) -> Irregular | None:
        known = self.irregular.get(tag[:8])
        return known.get(tag) if known else None

    def enter(self, delivery: Irregular) -> None:
        self.irregular.setdefault(delivery.publisher, {})[delivery.tag] = delivery

    def number(self, delivery: Irregular, delivery_id: int) -> None:
        """It has a delivery-id on this link now."""
        delivery.delivery_id = delivery_id
        if delivery.order < 0:
            delivery.order = delivery_id
        self.ids[delivery_id] = delivery

    def unnumber(self, delivery: Irregular) -> None:
        if delivery.delivery_id >= 0:
            del self.ids[delivery.delivery_id]
            delivery.delivery_id = -1

    def unbind(self, delivery: Irregular) -> None:
        """Its token and position are void (10.3), or about to be replaced."""
        if delivery.position >= 0:
            self.bound.pop(delivery.position, None)
            self.slots.pop(delivery.position, None)
            self.skip.remove(delivery.position, delivery.position + 1)
            delivery.position = -1
        if delivery.ingress is not None:
            entries = self.by_sync[delivery.ingress]
            entries.pop(delivery.ingress_position, None)
            if not entries:
                del self.by_sync[delivery.ingress]
            delivery.ingress = None
            delivery.ingress_position = -1
        delivery.token = False

    def remove(self, delivery: Irregular) -> None:
        """Out of all tables; its queue drops it when it comes by."""
        known = self.irregular[delivery.publisher]
        del known[delivery.tag]
        if not known:
            del self.irregular[delivery.publisher]
        self.unbind(delivery)
        self.unnumber(delivery)

    def fill(self, delivery: Irregular, payload: bytes | None, message_format: int) -> bool:
        """SYNC or DATA brings the payload of a placeholder (7.6).  Says whether it was one, to be sent in its place
        among what is new."""
        if delivery.state in (State.SENT, State.AGAIN) and delivery.payload is None and payload is not None:
            delivery.payload = payload  # may be needed again (6.4)
            delivery.message_format = message_format
            if delivery.state is State.AGAIN:
                self._queue_again(delivery)
        if delivery.resume is not Resume.PLACEHOLDER:
            return False
        if delivery.payload is None:
            return False
        delivery.resume = Resume.FILLED
        if self.resumes_only:
            self.resumes.append(delivery)
        return not self.resumes_only

    def release(self, delivery: Irregular) -> None:
        """6.4: again, in order, ahead of everything not yet sent."""
        delivery.state = State.AGAIN
        delivery.deliveries += 1
        if delivery.payload is not None:  # else when SYNC or DATA brings it
            self._queue_again(delivery)

    def _queue_again(self, delivery: Irregular) -> None:
        insort(self.again, delivery, key=lambda each: each.order)

    def classify(self, entry: PublisherEntry) -> None:
        """Does this publisher's stream flow to it plainly?"""
        if self.synced.get(entry.publisher) == (entry.home, entry.term) and entry.publisher not in self.irregular:
            entry.special.pop(self, None)
        else:
            entry.special[self] = None

    # ---------------------------------------------------------------------------------------------------- what goes out

    def pump(self, cache: dict[object, object] | None = None) -> None:
        """Sends what may be sent."""
        if not self.answered:  # 10.2
            return
        room = self.port.capacity()
        if room <= 0:
            self.egress.ready.pop(self, None)
            return
        self.egress.ready[self] = None
        if self.resumes or self.again or self.line:
            room = self._pump_single(room)
            if room <= 0 or self.resumes:
                return
        if self.resumes_only:
            return
        if cache is None:
            cache = {}
        end = self.egress.log.segments.end
        while room > 0:
            limit = end
            if self.presettled:
                chunk = self.presettled[0]
                if chunk.at <= self.cursor:
                    room -= self._send_presettled(chunk, room)
                    continue
                limit = chunk.at
            if self.cursor >= limit:
                return
            room -= self._send_next(limit, room, cache)

    def _send_next(self, limit: int, room: int, cache: dict[object, object]) -> int:
        """The next stretch of the log below `limit`; moves the cursor, returns how many were sent."""
        found = self.owes.following(self.cursor)
        if found is None or found[0] >= limit:
            self.cursor = limit
            return 0
        start, stop = found
        if stop > limit:
            stop = limit
        if self.skip:
            skipped = self.skip.following(start)
            if skipped is not None and skipped[0] == start:
                return self._pass(start, min(skipped[1], limit))
            if skipped is not None and skipped[0] < stop:
                stop = skipped[0]
        if stop - start > room:
            stop = start + room
        log = self.egress.log
        message_format = 0
        if log.mixed:
            ((run, _, high),) = log.runs.pieces(start, stop)[:1]
            message_format = run.message_format
            stop = run.start + high
        self._send_log(start, stop, message_format, cache)
        return stop - start

    def _send_log(self, start: int, stop: int, message_format: int, cache: dict[object, object]) -> None:
        tags, payloads = self.egress.log.slices(start, stop, cache)
        first_id = self.port.send(tags, payloads, message_format, self.settled_mode, start, cache)
        self.cursor = stop
        self.held.add(start, stop)
        runs = self.sent_ids.runs
        last = runs[-1] if runs else None
        if last is not None and last.stop == start and last.first_id + start - last.start == first_id:
            last.stop = stop
        else:
            run = SentRun(start, stop, first_id)
            self.sent_ids.append(first_id, run)
            self.sent_positions.append(start, run)
        if self.settled_mode:  # 6.9: accepts when written
            self.gone.add(start, stop)
            self.egress.release(self.owes.remove(start, stop))

    def _pass(self, start: int, stop: int) -> int:
        """Positions that are known by tag: passed over, but for placeholders that wait in their place."""
        sent = 0
        if self.slots:
            waiting = next(iter(self.slots))  # they were noted in order
            if start <= waiting < stop:
                stop = waiting + 1
                self._resume(self.slots.pop(waiting))
                sent = 1
        self.skip.remove(start, stop)
        self.cursor = stop
        return sent

    def _pump_single(self, room: int) -> int:
        """7.6: resumptions first in credit; then 6.4; then what SYNC brought.  Returns the room that is left."""
        while room > 0 and self.resumes:
            delivery = self.resumes.popleft()
            if delivery.resume not in (Resume.NOTHING, Resume.PLACEHOLDER):  # its ingress has gone: it lacks payload
                self._resume(delivery)
                room -= 1
        if self.resumes or self.resumes_only:
            return room
        while room > 0 and self.again:
            delivery = self.again.pop(0)
            if delivery.state is State.AGAIN:
                assert delivery.payload is not None
                delivery.state = State.SENT
                delivery_id = self.port.redeliver(
                    delivery.tag, delivery.payload, delivery.message_format, delivery.deliveries
                )
                self.number(delivery, delivery_id)
                room -= 1
        while room > 0 and self.line:
            delivery = self.line[0]
            if delivery.state is State.QUEUED:
                room -= self._send_line(room)
                continue
            self.line.popleft()
            if delivery.resume is not Resume.NOTHING:
                self._resume(delivery)
                room -= 1
        return room

    def _send_line(self, room: int) -> int:
        """A stretch of new deliveries that a SYNC brought."""
        batch: list[Irregular] = []
        message_format = self.line[0].message_format
        while self.line and len(batch) < room:
            delivery = self.line[0]
            if delivery.state is not State.QUEUED or delivery.message_format != message_format:
                break
            batch.append(self.line.popleft())
        payloads = [delivery.payload or b"" for delivery in batch]
        tags = [delivery.tag for delivery in batch]
        first_id = self.port.send(tags, payloads, message_format, self.settled_mode, -1, {})
        for i, delivery in enumerate(batch):
            delivery.state = State.SENT
            if self.settled_mode:
                self.egress.accept_single(self, delivery, False, True)
            else:
                self.number(delivery, first_id + i)
        return len(batch)

    def _resume(self, delivery: Irregular) -> None:
        resume, delivery.resume = delivery.resume, Resume.NOTHING
        settled = resume is Resume.SETTLED
        payload = delivery.payload if resume is Resume.FILLED else None
        state = MapState.UNDECIDED
        if delivery.state is State.ACCEPTED:
            state = MapState.REJECTED if delivery.rejected else MapState.ACCEPTED
        delivery_id = self.port.resume(delivery.tag, state, payload, delivery.message_format, settled)
        if not settled:
            self.number(delivery, delivery_id)

    def _send_presettled(self, chunk: PreSettled, room: int) -> int:
        tags, payloads = self._take_presettled(room)
        self.port.send(tags, payloads, chunk.message_format, True, -1, {})
        return len(tags)

    def _take_presettled(self, most: int) -> tuple[list[bytes], list[bytes]]:
        """At most so many of the oldest chunk."""
        chunk = self.presettled[0]
        n = min(most, len(chunk.tags))
        tags, payloads = chunk.tags[:n], chunk.payloads[:n]
        if n == len(chunk.tags):
            self.presettled.popleft()
        else:
            chunk.tags, chunk.payloads = chunk.tags[n:], chunk.payloads[n:]
        self.presettled_changes(-n, -sum(map(len, payloads)))
        return tags, payloads

    def presettled_changes(self, count: int, size: int) -> None:
        self.presettled_count += count
        self.presettled_size += size
        self.egress.core.presettled += size

    def drop_presettled(self, most: int) -> None:
        """6.9: oldest first and counted."""
        self.dropped += len(self._take_presettled(most)[0])

    # --------------------------------------------------------------------------------------------------------- settling

    def ids_of(self, ranges: list[Range]) -> list[Range]:
        """The delivery-ids of sent log positions."""
        found: list[Range] = []
        for start, stop in ranges:
            for run, low, high in self.sent_positions.pieces(start, stop):
                found.append((run.first_id + low, run.first_id + high))
        return found

    def settle_positions(self, start: int, stop: int) -> None:
        """10.1 for log positions; what they owe has been removed."""
        held = self.held.remove(start, stop)
        if not held:
            return
        if self.gone:
            self.settle_wire(held)
            for low, high in held:
                self.gone.remove(low, high)
        else:
            port = self.port
            for a, b in held:
                for run, low, high in self.sent_positions.pieces(a, b):
                    port.settle(run.first_id + low, run.first_id + high - 1)
        if self.refused:
            self.refused.remove(start, stop)
        if len(self.sent_positions.runs) > 1:
            self.trim()

    def settle_wire(self, ranges: list[Range]) -> None:
        """Dispositions with settled = true for log positions, less what is settled on the wire already."""
        for first, stop in self.ids_of(self.gone.missing(ranges)):
            self.port.settle(first, stop - 1)

    def trim(self) -> None:
        """Lets go of runs that hold nothing any more."""
        first = self.held.first()
        runs = self.sent_positions.runs
        n = 0
        while n < len(runs) - 1 and runs[n].stop <= first:  # the last one may go on
            n += 1
        if n:
            for each in (self.sent_positions, self.sent_ids):
                del each.runs[:n], each.keys[:n]

    def status(self) -> dict[str, object]:
        return {
            "container": self.name[0],
            "name": self.name[1],
            "term": list(self.term),
            "answered": self.answered,
            "waits_for": sorted(self.waiting),
            "unsettled": self.held.size + sum(map(len, self.irregular.values())),
            "in_doubt": sum(
                d.position < 0 and d.ingress is None for known in self.irregular.values() for d in known.values()
            ),
            "placeholders": sum(
                d.resume is Resume.PLACEHOLDER for known in self.irregular.values() for d in known.values()
            ),
            "queued": sum(b - a for a, b in self.owes.overlap(self.cursor, self.egress.log.end)),
            "presettled_dropped": self.dropped,
        }
