"""One subscription attached here: what its egress keeps of it, and what goes out on its link (protocol 2.4, 7.6, 9).

A subscription is a cursor into the address's arrival log. `owes` are the log positions that it has not accepted (an
open tail, less what is not for it). Its queue is `owes` from the cursor on, less `skip`. `unsettled` is what it has
been sent and nobody has settled; accepted is `unsettled` less `owes`. Deliveries that do not fit are `Irregular`.

It decides the order on the link: resumptions, then what was released, then what a SYNC brought, then the log. The rules
by which deliveries come and go are in `router.core.deliveries` and `router.core.egress`.
"""

from __future__ import annotations

from typing import Any, Final, cast

from router.core.arrivals import Arrivals
from router.core.base import BaseAddress
from router.core.counters import Timeline
from router.core.directory import PublisherEntry
from router.core.intervals import IntervalSet, Range, count
from router.core.irregular import Irregular, Irregulars, Resume, State
from router.core.large import Body, Partial
from router.core.log import Run, RunList
from router.core.messages import Handlers, Pub, SubscriptionName, Sync
from router.core.passage import Passage
from router.core.ports import (
    NEVER_EXPIRES_S,
    ExpiryPolicy,
    MapState,
    Outcome,
    PartsPort,
    Refusal,
    SubscriberAttach,
    SubscriberPort,
    Term,
)
from router.core.presettled import PreSettledQueue
from router.core.selecting import Selecting, accept_expired, has_expired
from router.core.subscriber_handshake import HEARD, JOINING, MISSED, RESUMING, TELL, Handshake

BEYOND_ALL: Final = 1 << 64  # incarnations: they are eight octets of a tag


class Reception:
    """What comes for subscriptions here, and who answers for it: what topics (`router.core.topic.reception`) and queues
    (`router.core.queue.reception`) do each in its own way."""

    def handlers(self) -> Handlers:
        raise NotImplementedError

    def attached(self, subscriber: Subscriber) -> None: ...
    def link_gone(self, subscriber: Subscriber) -> None: ...
    def take_entries(self, subscriber: Subscriber, sender: str, message: Sync) -> None: ...
    def given_back(
        self, subscriber: Subscriber, first: int, last: int, outcome: Outcome, settled: bool, said: bool
    ) -> None: ...
    def release_tokens(self, ranges: list[Range], subscriber: Subscriber | None) -> None: ...
    def flush(self) -> None: ...
    def check_invariants(self) -> None: ...

    # of large deliveries, which only topics have
    def moved(self, body: Body) -> None: ...
    def refuse_large(self, subscriber: Subscriber, position: int, refusal: Refusal) -> None: ...
    def need_again(self, position: int) -> None: ...
    def give_up(self, subscriber: Subscriber, why: str) -> None: ...


class BaseDeliveries:
    """The deliveries of one address (`router.core.deliveries`), as its subscribers know them."""

    reception: Reception

    def __init__(self, address: BaseAddress) -> None:
        self.address = address
        self.core = address.core
        # publisher -> subscriptions here to which its stream cannot be delivered as ranges, because they are not synced
        # or hold deliveries of it that are found by tag
        self.special: dict[bytes, dict[Subscriber, None]] = {}
        self.subscribers: dict[SubscriptionName, Subscriber] = {}  # attached here
        self.ready: dict[Subscriber, None] = {}  # those that had credit when last asked, or do not want all
        # of a queue: those that may take more or less than their ingresses have been told
        self.to_tell: dict[Subscriber, None] | None = {} if address.config.is_queue else None
        self.log = Arrivals(self.core.name, self.core.memory)
        self.arrived_at = Timeline()
        self.counters = address.counters

    def disposition(
        self, subscriber: Subscriber, first: int, last: int, outcome: Outcome, settled: bool, said: bool = False
    ) -> None: ...

    def refuse(
        self, subscriber: Subscriber, ranges: list[Range], singles: list[Irregular], refusal: Refusal
    ) -> None: ...

    def wake(self, subscriber: Subscriber) -> None: ...
    def accept_irregular(self, subscriber: Subscriber, delivery: Irregular, rejected: bool, settled: bool) -> None: ...

    def irregular_between(self, subscriber: Subscriber, first: int, last: int) -> list[Irregular]:
        raise NotImplementedError


class BaseEgress:
    """The egress of one address (`router.core.egress`), as lower modules know it."""

    def __init__(self, deliveries: BaseDeliveries) -> None:
        self.subscribers = deliveries.subscribers
        self.special = deliveries.special

    def on_claim(self, sender: str, message: Pub) -> None: ...
    def ingress_lost(self, publisher_id: bytes) -> None: ...
    def settle_incarnations(self, publisher_id: bytes, first: int, stop: int = BEYOND_ALL) -> None: ...

    def holds_in_doubt(self, publisher_id: bytes) -> bool:
        raise NotImplementedError


class SentRun(Run):
    """Log positions that were sent, and whose delivery-ids rise with them."""

    __slots__ = ("first_id",)

    def __init__(self, start: int, stop: int, first_id: int) -> None:
        super().__init__(start, stop)
        self.first_id = first_id


class Sent:
    """What one subscription has been sent of the log, and nobody has settled."""

    __slots__ = ("ids", "positions", "rejected", "settled_on_wire", "unsettled")

    def __init__(self) -> None:
        self.unsettled = IntervalSet()
        self.settled_on_wire = IntervalSet()  # of unsettled: the subscriber has settled them
        self.rejected = IntervalSet()  # of unsettled: the subscriber has rejected them (protocol 6.4)
        self.ids: RunList[SentRun] = RunList()
        self.positions: RunList[SentRun] = RunList()

    def delivery_ids_of(self, ranges: list[Range]) -> list[Range]:
        """Returns the delivery-ids of sent log positions."""
        found: list[Range] = []
        for start, stop in ranges:
            for run, low, high in self.positions.pieces(start, stop):
                found.append((run.first_id + low, run.first_id + high))
        return found

    def trim(self) -> None:
        """Drops runs of which nothing is unsettled any more."""
        first = self.unsettled.first()
        runs = self.positions.runs
        n = 0
        while n < len(runs) - 1 and runs[n].stop <= first:  # the last one may grow
            n += 1
        if n:
            for each in (self.positions, self.ids):
                del each.runs[:n], each.keys[:n]


class Wait:
    """For how long it is waited for when its link is gone (protocol 7.8, 8.3)."""

    __slots__ = ("granted_s", "longest_s", "policy")

    def __init__(self, attach: SubscriberAttach, declared: bool, longest_s: float) -> None:
        self.policy: ExpiryPolicy = "never" if declared else attach.expiry_policy
        self.longest_s = longest_s  # as of this attach (protocol 12.6)
        self.granted_s = NEVER_EXPIRES_S if declared else min(attach.timeout_s, longest_s)

    def as_orphan(self, *, expiring: bool = True) -> float:
        """expiring: the time begins now."""
        return self.granted_s if expiring and self.policy != "never" else self.longest_s


class Subscriber:
    """A subscription's attachment at this router."""

    __slots__ = (
        "born", "cursor", "data", "deliveries", "expires", "handshake", "has_link", "irregular", "name", "owes",
        "passage", "port", "presettled", "selecting", "sent", "settled_mode", "settles_on_accept", "synced",
        "term", "wait",
    )  # fmt: skip

    def __init__(
        self, deliveries: BaseDeliveries, port: SubscriberPort, attach: SubscriberAttach, term: Term, declared: bool
    ) -> None:
        address = deliveries.address
        self.deliveries = deliveries
        self.port = port
        # large deliveries, where its link takes parts (protocol 6.12)
        self.passage = Passage(self, cast("PartsPort", port), attach.most_bytes) if attach.takes_parts else None
        self.name: SubscriptionName = (attach.container, attach.name)
        self.term = term
        self.data = address.data_on_the_wire(attach.data)
        self.born: Term | None = None
        self.handshake = Handshake(brought_epoch=attach.epoch is not None, brought_map=attach.unsettled is not None)
        self.handshake.most_bytes = attach.most_bytes
        self.wait = Wait(attach, declared, address.config.subscription_timeout_s)
        self.settled_mode = attach.settled_mode
        self.expires = address.config.expire
        # protocol 6.9: settled on the wire at acceptance; tag and state stay until SETTLE
        self.settles_on_accept = (
            attach.mode_first
            or attach.settled_mode
            or not (attach.epoch is not None or attach.unsettled is not None or self.wait.granted_s > 0)
        )
        self.has_link = True  # False: it stands for consumers that have gone, and joins nothing (protocol 16.7)
        # streams
        self.synced: dict[bytes, tuple[str, Term]] = {}  # publisher -> (ingress, term) whose stream flows to it
        # the log
        end = deliveries.log.end
        self.cursor = end
        self.selecting = Selecting(attach.selection, end) if attach.selection is not None else None
        self.owes = IntervalSet()
        self.sent = Sent()
        self.irregular = Irregulars()
        # at most once
        self.presettled = PreSettledQueue(address.core, address.counters)

    @property
    def partial(self) -> Partial | None:
        """The large delivery that its link is in the middle of (protocol 6.12)."""
        return self.passage.partial if self.passage is not None else None

    def heard(self) -> None:
        """The client has read the answer to its attach (protocol 7.6, 16.8)."""
        if self.handshake.receive(HEARD) is TELL:
            self.deliveries.address.tell_read(self.name, self.term)

    # --------------------------------------------------------------------------------------------- irregular deliveries

    def unbind(self, delivery: Irregular) -> None:
        """Its token and position are void, or about to be replaced (protocol 10.3)."""
        if delivery.position >= 0:
            self.irregular.bound.pop(delivery.position, None)
            self.irregular.filled.pop(delivery.position, None)
            self.irregular.skip.remove(delivery.position, delivery.position + 1)
            delivery.position = -1
        if delivery.ingress is not None:
            entries = self.irregular.by_sync[delivery.ingress]
            entries.pop(delivery.ingress_position, None)
            if not entries:
                del self.irregular.by_sync[delivery.ingress]
            delivery.ingress = None
            delivery.ingress_position = -1
        delivery.token = False

    def take_out(self, start: int, stop: int, first_id: int) -> list[Irregular]:
        """Turns sent log positions into irregular deliveries; what they owe stays. Of a large one there is no
        payload."""
        log = self.deliveries.log
        tags = log.segments.tags(start, stop)
        payloads = log.segments.payloads(start, stop)
        self.sent.unsettled.remove(start, stop)
        found: list[Irregular] = []
        for run, low, high in log.runs.pieces(start, stop):
            for position in range(run.start + low, run.start + high):
                i = position - start
                payload = payloads[i] if position not in log.bodies else None
                delivery = Irregular(tags[i], State.SENT, payload, run.message_format)
                delivery.order = first_id + i
                self.irregular.enter(delivery)
                found.append(delivery)
        return found

    def put_in_doubt(self, start: int, stop: int) -> None:
        """The ingress of these log positions is lost: what was sent of them stays in doubt, without tokens and
        positions (protocol 10.3)."""
        for a, b in self.sent.unsettled.overlap(start, stop):
            for first, end in self.sent.delivery_ids_of([(a, b)]):
                low = a
                a += end - first
                self._put_sent_in_doubt(low, a, first)
        self.owes.remove(start, stop)
        self.sent.settled_on_wire.remove(start, stop)
        self.sent.rejected.remove(start, stop)
        self.sent.trim()

    def _put_sent_in_doubt(self, start: int, stop: int, first_id: int) -> None:
        owes = IntervalSet(self.owes.overlap(start, stop))
        gone = IntervalSet(self.sent.settled_on_wire.overlap(start, stop))
        refused = IntervalSet(self.sent.rejected.overlap(start, stop))
        for i, delivery in enumerate(self.take_out(start, stop, first_id)):
            position = start + i
            if position not in owes:
                delivery.state = State.ACCEPTED
                delivery.payload = None
                delivery.rejected = position in refused
            if position not in gone:
                self.irregular.set_delivery_id(delivery, first_id + i)

    def remove(self, delivery: Irregular) -> None:
        """Takes it out of all tables. Its queue drops it when its turn comes."""
        known = self.irregular.by_tag[delivery.publisher_id]
        del known[delivery.tag]
        if not known:
            del self.irregular.by_tag[delivery.publisher_id]
        self.unbind(delivery)
        self.irregular.clear_delivery_id(delivery)

    def fill(self, delivery: Irregular, payload: bytes | None, message_format: int) -> bool:
        """SYNC or DATA brings the payload of a placeholder (protocol 7.6). Says whether it was one, to be sent in its
        place among what is new."""
        if delivery.state in (State.SENT, State.RELEASED) and delivery.payload is None and payload is not None:
            delivery.payload = payload  # may be needed again (protocol 6.4)
            delivery.message_format = message_format
            if delivery.state is State.RELEASED:
                self.irregular.queue_released(delivery)
        if delivery.resume is not Resume.PLACEHOLDER or delivery.payload is None:
            return False
        delivery.resume = Resume.FILLED
        resumes_only = self.handshake.state is RESUMING
        if resumes_only:
            self.irregular.resume_later(delivery)
        return not resumes_only

    def classify(self, entry: PublisherEntry) -> None:
        """Notes whether this publisher's stream can be delivered to it as ranges."""
        publisher_id, special = entry.publisher_id, self.deliveries.special[entry.publisher_id]
        if self.synced.get(publisher_id) == (entry.home, entry.term) and publisher_id not in self.irregular.by_tag:
            special.pop(self, None)
        else:
            special[self] = None

    # ---------------------------------------------------------------------------------------------------- what goes out

    def pump(self, cache: dict[object, object] | None = None, *, tells: bool = True) -> None:
        """Sends what may be sent: nothing before the attach is answered (protocol 10.2), and in the order of the
        streams (protocol 6.7). tells: a queue's ingresses may have to be told of other credit."""
        deliveries, passage = self.deliveries, self.passage
        if tells and deliveries.to_tell is not None:
            deliveries.to_tell[self] = None
            deliveries.core.agenda.touch(deliveries.address)
        state = self.handshake.state
        if state is JOINING or state is MISSED:
            return
        if passage is not None and (passage.partial is not None or passage.passed_by) and not passage.go_on():
            return
        end, presettled = deliveries.log.segments.end, self.presettled.batches
        irregular = self.irregular.to_resume or self.irregular.released or self.irregular.sync_queue
        if self.cursor >= end and not (irregular or presettled or self.selecting is not None):
            deliveries.ready[self] = None  # for what comes next
            return
        if self.selecting is not None:
            if self.selecting.idle:
                if not (self.irregular.by_tag or irregular or presettled):
                    return
                deliveries.wake(self)
            deliveries.ready[self] = None  # for what it does not want it answers without credit, too
            self.selecting.select(self)
        room = self.port.capacity()
        if room <= 0:
            if self.selecting is None:
                deliveries.ready.pop(self, None)
            return
        deliveries.ready[self] = None
        if irregular:
            room = self._pump_irregular(room)
            if room <= 0 or self.irregular.to_resume:
                return
        if state is RESUMING:
            return
        if cache is None:
            cache = {}
        while room > 0:
            limit = passage.limit(end) if passage is not None and passage.passed_by else end
            if presettled and presettled[0].at <= limit:
                batch = presettled[0]
                if batch.at <= self.cursor:
                    tags, payloads = self.presettled.take(room)
                    dead = {*self.port.expired(payloads, batch.message_format)} if self.expires else ()
                    if dead:
                        self.deliveries.counters.expired += len(dead)
                        tags = [tag for i, tag in enumerate(tags) if i not in dead]
                        payloads = [payload for i, payload in enumerate(payloads) if i not in dead]
                    if tags:
                        self.port.send(tags, payloads, batch.message_format, True, -1, {})
                    room = self._room_left(room, len(tags))
                    continue
                limit = batch.at
            if self.cursor >= limit:
                return
            sent = self._send_next(limit, room, cache)
            if self.cursor >= end and not presettled:
                return
            room = self._room_left(room, sent)

    def _room_left(self, room: int, sent: int) -> int:
        """Returns how many more may be sent: a message larger than a frame takes more than its own place."""
        return min(room - sent, self.port.capacity()) if self.partial is None else 0

    def _send_next(self, limit: int, room: int, cache: dict[object, object]) -> int:
        """Sends the next stretch of the log below `limit`, and moves the cursor. Returns how many were sent."""
        found = self.owes.following(self.cursor)
        if found is None or found[0] >= limit:
            self.cursor = limit
            return 0
        start, stop = found
        if stop > limit:
            stop = limit
        if self.irregular.skip.starts:
            skipped = self.irregular.skip.following(start)
            if skipped is not None and skipped[0] == start:
                return self._skip_known(start, min(skipped[1], limit))
            if skipped is not None and skipped[0] < stop:
                stop = skipped[0]
        if stop - start > room:
            stop = start + room
        log = self.deliveries.log
        if log.bodies:
            stop = min([stop, *[each for each in log.bodies if each > start]])
            if start in log.bodies:
                stop = start + 1
        message_format = 0
        if log.mixed:
            ((run, _, high),) = log.runs.pieces(start, stop)[:1]
            message_format = run.message_format
            stop = run.start + high
        if self.expires:
            stop = accept_expired(self, start, stop, message_format)
            if stop == start:
                return 0
        if start in log.bodies:
            assert self.passage is not None
            self.passage.begin(log.bodies[start], start, None, message_format)
            return 1
        key = ("arrivals", start, stop)
        batch: Any = cache.get(key)
        if batch is None:  # else another one was sent the same; what is still to be sent has its payload
            batch = cache[key] = log.segments.tags(start, stop), log.segments.payloads(start, stop)
        tags, payloads = batch
        self.note_sent(start, stop, self.port.send(tags, payloads, message_format, self.settled_mode, start, cache))
        if self.settled_mode:
            self.accept_sent(start, stop)
        return stop - start

    def accept_sent(self, start: int, stop: int) -> None:
        """Accepts what is written (protocol 6.9)."""
        self.sent.settled_on_wire.add(start, stop)
        self.deliveries.reception.release_tokens(self.owes.remove(start, stop), self)

    def note_sent(self, start: int, stop: int, first_id: int) -> None:
        self.cursor = stop
        self.sent.unsettled.add(start, stop)
        runs = self.sent.ids.runs
        last = runs[-1] if runs else None
        if last is not None and last.stop == start and last.first_id + start - last.start == first_id:
            last.stop = stop
        else:
            run = SentRun(start, stop, first_id)
            self.sent.ids.append(first_id, run)
            self.sent.positions.append(start, run)

    def _skip_known(self, start: int, stop: int) -> int:
        """Passes over positions that are known by tag, but for placeholders that wait in their place (protocol 7.6).
        Returns how many were sent."""
        sent = 0
        if self.irregular.filled:
            waiting = next(iter(self.irregular.filled))  # they were noted in order
            if start <= waiting < stop:
                stop = waiting + 1
                self._send_or_begin(self.irregular.filled.pop(waiting))
                sent = 1
        self.irregular.skip.remove(start, stop)
        self.cursor = stop
        return sent

    def _pump_irregular(self, room: int) -> int:
        """Sends resumptions first, then what was released, then what SYNC brought (protocol 7.6). Returns the room that
        is left."""
        while room > 0 and self.irregular.to_resume:
            delivery = self.irregular.to_resume.popleft()
            # a placeholder lacks payload once its ingress is lost
            if delivery.resume is Resume.FILLED:
                self._send_or_begin(delivery)
                room = self._room_left(room, 1)
            elif delivery.resume not in (Resume.NOTHING, Resume.PLACEHOLDER):
                self._resume(delivery)
                room = self._room_left(room, 1)
        if self.irregular.to_resume or self.handshake.state is RESUMING:
            return room
        while room > 0 and self.irregular.released:
            delivery = self.irregular.released.pop(0)
            if delivery.state is State.RELEASED and not has_expired(self, delivery):
                self._send_or_begin(delivery)
                room = self._room_left(room, 1)
        while room > 0 and self.irregular.sync_queue:
            delivery = self.irregular.sync_queue[0]
            if delivery.state is State.QUEUED:
                room = self._room_left(room, self._send_from_sync(room))
                continue
            self.irregular.sync_queue.popleft()
            if delivery.resume is not Resume.NOTHING:
                self._resume(delivery)
                room = self._room_left(room, 1)
        return room

    def _send_from_sync(self, room: int) -> int:
        """Sends a stretch of new deliveries that a SYNC brought. Returns how many were sent."""
        assert self.irregular.sync_queue
        batch: list[Irregular] = []
        message_format = self.irregular.sync_queue[0].message_format
        while self.irregular.sync_queue and len(batch) < room:
            delivery = self.irregular.sync_queue[0]
            if delivery.state is not State.QUEUED or delivery.message_format != message_format:
                break
            self.irregular.sync_queue.popleft()
            if not has_expired(self, delivery):
                batch.append(delivery)
        if not batch:
            return 0
        payloads = [delivery.payload or b"" for delivery in batch]
        tags = [delivery.tag for delivery in batch]
        first_id = self.port.send(tags, payloads, message_format, self.settled_mode, -1, {})
        for i, delivery in enumerate(batch):
            delivery.state = State.SENT
            if self.settled_mode:
                self.deliveries.accept_irregular(self, delivery, False, True)
            else:
                self.irregular.set_delivery_id(delivery, first_id + i)
        return len(batch)

    def _send_or_begin(self, delivery: Irregular) -> None:
        """Sends a delivery that is known by tag, with its payload; a large one as its parts come (protocol 6.12.8)."""
        body = self.deliveries.log.bodies.get(delivery.position)
        if body is not None and self.passage is not None and not body.start:
            self.passage.begin(body, delivery.position, delivery, delivery.message_format)
        else:  # where the beginning has passed through, the payload here is that of an earlier copy, whole
            self._send_again(delivery)

    def _send_again(self, delivery: Irregular) -> None:
        if delivery.state is not State.RELEASED:
            self._resume(delivery)
            return
        assert delivery.payload is not None
        delivery.state = State.SENT
        delivery_id = self.port.redeliver(delivery.tag, delivery.payload, delivery.message_format, delivery.failures)
        self.irregular.set_delivery_id(delivery, delivery_id)

    def _resume(self, delivery: Irregular) -> None:
        resume, delivery.resume = delivery.resume, Resume.NOTHING
        settled = resume is Resume.SETTLED
        payload = delivery.payload if resume is Resume.FILLED else None
        state = MapState.UNDECIDED
        if delivery.state is State.ACCEPTED:
            state = MapState.REJECTED if delivery.rejected else MapState.ACCEPTED
        delivery_id = self.port.resume(delivery.tag, state, payload, delivery.message_format, settled)
        if not settled:
            self.irregular.set_delivery_id(delivery, delivery_id)

    # --------------------------------------------------------------------------------------------------------- settling

    def settle_on_wire(self, start: int, stop: int, first_id: int) -> None:
        """Sends dispositions with settled = true for log positions whose delivery-ids follow each other from `first_id`
        on, less what is settled on the wire already."""
        offset, gone = first_id - start, self.sent.settled_on_wire
        for a, b in gone.missing([(start, stop)]) if gone.starts else ((start, stop),):
            self.port.settle(a + offset, b + offset - 1)

    def settle_positions(self, start: int, stop: int) -> None:
        """Settles log positions, whose tokens have been released (protocol 10.1)."""
        held = self.sent.unsettled.remove(start, stop)
        if not held:
            return
        left: list[Range] = []
        for low, high in held:
            self.deliveries.counters.subscriptions.settled += high - low
            gone = self.sent.settled_on_wire.remove(low, high)
            if not gone:
                left.append((low, high))
            elif gone != [(low, high)]:
                left += IntervalSet(gone).missing([(low, high)])
        for first, end in self.sent.delivery_ids_of(left) if left else ():
            self.port.settle(first, end - 1)  # those that are not settled on the wire already
        if self.sent.rejected.starts:
            self.sent.rejected.remove(start, stop)
        if len(self.sent.positions.runs) > 1:
            self.sent.trim()

    @property
    def undecided(self) -> int:
        """Returns how many deliveries were sent on this link and have no outcome yet."""
        in_log = sum(count(self.owes.overlap(start, stop)) for start, stop in self.sent.unsettled)
        return in_log + sum(delivery.state is State.SENT for delivery in self.irregular.by_delivery_id.values())

    def check_invariants(self) -> None:
        log = self.deliveries.log
        sent = self.sent
        for each in (self.owes, sent.unsettled, sent.settled_on_wire, sent.rejected, self.irregular.skip):
            each.check_invariants()
        for runs in (self.sent.ids, self.sent.positions):
            runs.check_invariants()
        assert self.cursor <= log.end
        assert self.sent.unsettled.within(log.alive), f"unsettled {self.sent.unsettled}, alive {log.alive}"
        assert self.sent.unsettled.overlap(0, self.cursor) == list(self.sent.unsettled), "unsettled, but not sent yet"
        assert self.sent.settled_on_wire.within(self.sent.unsettled)
        assert self.sent.rejected.within(self.sent.unsettled)
        assert not any(self.owes.overlap(start, stop) for start, stop in self.sent.rejected)
        owed = IntervalSet(self.owes.overlap(0, log.end))
        assert owed.within(log.open), f"owes {owed}, open {log.open}"
        taken = IntervalSet(self.sent.unsettled)
        for position in self.irregular.bound:
            taken.add(position, position + 1)
        assert not taken.missing(owed.overlap(0, self.cursor)), "owed, but passed over by the cursor"
        known = [delivery for tags in self.irregular.by_tag.values() for delivery in tags.values()]
        assert all(self.irregular.by_tag.values())
        assert all(self.irregular.find(delivery.tag) is delivery for delivery in known)
        by_delivery_id = {d.delivery_id: d for d in known if d.delivery_id >= 0}
        assert self.irregular.by_delivery_id == by_delivery_id, "a delivery-id of another delivery, or of none"
        assert self.irregular.bound == {d.position: d for d in known if d.position >= 0}
        by_sync = {(d.ingress, d.ingress_position): d for d in known if d.ingress is not None}
        assert by_sync == {(name, at): d for name, held in self.irregular.by_sync.items() for at, d in held.items()}
        assert all(d.ingress is not None and d.state is not State.ACCEPTED for d in known if d.token)
        assert all(self.irregular.bound.get(at) is d for at, d in self.irregular.filled.items())
        if self.passage is not None:
            self.passage.check_invariants()
        assert not (self.handshake.answered and self.handshake.missing), "it was answered before all have joined"
        self.presettled.check_invariants()
