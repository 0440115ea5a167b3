"""A recovering subscriber (PROTOCOL 15): no delivery is handed on twice, no verdict is lost.

Every new delivery gets a position, 0, 1, 2 ..., by which verdicts name it however often the link is attached again;
its tag is held until the network has settled it, and a tag that is held is never handed on again.  An accept is
journalled, then sent.  After a lost connection the attach's map says what is held: null for what is complete and
undecided, the outcome for what is decided, `received(0, 0)` for what the journal knows without its payload.  What the
answer does not list is forgotten; what it lists comes again as a resumed transfer, and is answered with its verdict.

Runs throughout: segments of tags by position, spans of verdicts, runs of delivery-ids.  The asyncio side is
`onceway.client.subscriber`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

from amqp10.link import Link
from amqp10.outcomes import (
    ACCEPTED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    read_state,
    write_state,
)
from amqp10.performatives import RCV_FIRST, Attach
from amqp10.receiver import ReceiverLink
from amqp10.termini import EXPIRE_NEVER, Source, Target
from amqp10.types import ULong
from onceway.client.journal import SubscriberJournal
from onceway.client.protocol.events import Arrived, Drained, Gap
from onceway.client.protocol.link import DETACHING, LONGEST, ON, OVER, ClientLink
from router.identity import BORN, MARKS
from router.intervals import IntervalSet
from router.ports import SUBSCRIPTION_BROKEN

_FIRST_CREDIT = 256  # before any size is known
NEEDED = Received(section_number=0, section_offset=0)


class _Segment:
    """Tags of consecutive positions."""

    __slots__ = ("front", "live", "position", "tags")

    def __init__(self, position: int, tags: list[bytes]) -> None:
        self.position = position
        self.tags = tags
        self.live = len(tags)  # held
        self.front = 0  # so many at the front are not


class SubscriberLink(ClientLink):
    """`Arrived` runs come; `decide` takes verdicts by position."""

    role: Literal["subscriber"] = "subscriber"

    def __init__(
        self,
        address: str,
        name: str,
        *,
        journal_part: SubscriberJournal,
        credit: int,
        credit_bytes: int,
        subscription_timeout_s: float | None,
        **common: Any,
    ) -> None:
        super().__init__(address, name, **common)
        record = journal_part.record
        self._part = journal_part
        self._epoch = record.epoch
        self._born = record.born
        self._confirmed = bool(record.born)  # an attach with this born has been answered
        self._ever = self._confirmed
        self._fresh = not self._confirmed
        self.timeout_s = record.timeout_s
        self._contact_us = record.contact_us
        self._asked = LONGEST if subscription_timeout_s is None else min(LONGEST, round(subscription_timeout_s))
        self._credit = credit
        self._credit_bytes = credit_bytes
        self._largest = 0.0  # of the payloads lately
        self._outstanding = 0  # handed on and not decided
        self._resuming = 0  # listed in the answer, not resumed yet
        self._granting = False  # attached durably: credit may be given
        self._drain_wanted = False
        self._draining: int | None = None  # asked for: what the router had given up before
        self._partial = False  # the answer's map was not whole (7.7)
        self._listed: dict[bytes, bool] = {}  # of such an answer: does the router want a verdict?
        self._gap: str | None = None
        self._marks: dict[tuple[int, str], None] = {}
        self._meanwhile: Mapping[bytes, bytes | None] = {}  # what another process had added, at the last attach
        self._next = 0  # position
        self._held: dict[bytes, int] = {}  # tag -> position, in order of arrival
        self._segments: list[_Segment] = []
        self._starts: list[int] = []  # positions of the segments
        self._accepted = IntervalSet()  # durably, not settled
        self._verdicts: dict[int, Outcome] = {}  # other than accepted, durable, not settled
        self._wanted: dict[int, None] = {}  # positions without payload
        self._settled_early: dict[int, None] = {}  # settled by the network before they were decided
        self._deciding = 0
        self._ids: list[tuple[int, int, int]] = []  # (first id, position, count) on this attachment
        self._positions: list[tuple[int, int, int]] = []  # the same as (position, first id, count)
        self._also: dict[int, int] = {}  # position -> second id, of a peer that sent a delivery twice on one link
        self._load(record.unsettled)

    def _load(self, unsettled: Mapping[bytes, bytes | None]) -> bool:
        """What the journal knows.  Whether any of it is new here."""
        new = [tag for tag in unsettled if tag not in self._held]
        for tag in unsettled:
            position = self._held.get(tag)
            if position is not None and position not in self._accepted and position not in self._verdicts:
                # in hand here, but another process has decided it: our application's verdict is void
                self._decided_elsewhere(position, unsettled[tag])
        if not new:
            return False
        first = self._take(new)
        for position, tag in enumerate(new, first):
            outcome = unsettled[tag]
            if outcome is None:
                self._wanted[position] = None
            else:
                self._note_outcome(position, outcome)
        return True

    def _note_outcome(self, position: int, outcome: bytes) -> None:
        state = read_state(outcome, 0, len(outcome))[0]
        if isinstance(state, Accepted):
            self._accepted.add(position, position + 1)
        else:
            assert isinstance(state, Rejected | Released | Modified)
            self._verdicts[position] = state

    def _decided_elsewhere(self, position: int, outcome: bytes | None) -> None:
        if outcome is not None:
            self._settled_early[position] = None
            self._wanted.pop(position, None)
            self._note_outcome(position, outcome)

    # -- for the owner

    @property
    def deciding(self) -> int:
        """Verdicts given and not on their way to the router yet."""
        return self._deciding

    @property
    def held(self) -> int:
        return len(self._held)

    def decide(self, first: int, last: int, state: Outcome, now: float) -> int:
        """The application's verdict on positions first .. last, each at most once.  Durable before it is sent.

        Returns the number that the journal's `durable` must reach for it to be safe.
        """
        self._outstanding -= last - first + 1
        number = 0
        if self.state is not OVER:
            for low, high in self._not_settled(first, last):
                if isinstance(state, Accepted | Rejected):
                    self._part.accept(self._tags(low, high), write_state(state))
                self._deciding += high - low + 1
                number = self._when_durable(now, self._decided, low, high, state)
            self._give_credit()
        return number

    def taken(self, count: int) -> None:
        """The application took so many settled deliveries, which want no verdict: credit for as many others."""
        self._outstanding -= count
        self._give_credit()

    def drain(self) -> None:
        """Have the router send what it holds for us, as far as credit goes: `Drained` comes after the last of it.

        Waits for an attachment, and for credit where all of it is outstanding.
        """
        self._drain_wanted = True
        self._give_credit()

    def _not_settled(self, first: int, last: int) -> list[tuple[int, int]]:
        """first .. last without what the network has settled before the verdict (which is void then)."""
        early = self._settled_early
        if not early:
            return [(first, last)]
        hit = [position for position in early if first <= position <= last]
        for position in hit:
            del early[position]
        if not hit:
            return [(first, last)]
        void = set(hit)
        return _ranges([position for position in range(first, last + 1) if position not in void])

    def _decided(self, now: float, first: int, last: int, state: Outcome) -> None:
        self._deciding -= last - first + 1
        for low, high in self._not_settled(first, last):
            if isinstance(state, Accepted):
                self._accepted.add(low, high + 1)
            else:
                for position in range(low, high + 1):
                    self._verdicts[position] = state
            if self.state is ON:
                self._dispose(low, high, state)
        self._finish_partial()

    def _dispose(self, first: int, last: int, state: Outcome) -> None:
        """Tells the router what of first .. last has a delivery-id on this attachment."""
        link = self.link
        assert isinstance(link, ReceiverLink)
        settle = link.rcv_settle_mode == RCV_FIRST
        runs = self._positions
        at = max(bisect_right(runs, first, key=_start) - 1, 0)
        told: list[tuple[int, int]] = []
        while at < len(runs) and runs[at][0] <= last:
            position, first_id, count = runs[at]
            low, high = max(first, position), min(last, position + count - 1)
            if low <= high:
                link.dispose(low - position + first_id, high - position + first_id, state, settle)
                told.append((low, high))
            at += 1
        if self._also:
            for position in [position for position in self._also if first <= position <= last]:
                link.dispose(self._also[position], self._also[position], state, settle)
        if settle:
            # mode first: settled by the one who accepts; at least once
            for low, high in told:
                self._forget(low, high)

    # -- what comes

    def transfers(
        self, link: Link, first_id: int, tags: list[bytes], payloads: list[bytes], settled: bool, message_format: int
    ) -> None:
        if link is not self.link or self.state not in (ON, DETACHING):
            return
        count = len(tags)
        largest = max(map(len, payloads))
        self._largest = largest if largest > self._largest else self._largest + (largest - self._largest) / 16
        if settled:
            position = self._next
            self._next = position + count
            self._outstanding += count  # until the owner says that they were taken
            self.events.append(Arrived(position, tags, payloads, True, message_format))
            return
        if not self._held.keys().isdisjoint(tags) or len(set(tags)) != count:
            self._repeated(first_id, tags, payloads, message_format)
            return
        position = self._take(tags)
        self._map_ids(first_id, position, count)
        self._outstanding += count
        self.events.append(Arrived(position, tags, payloads, False, message_format))

    def _take(self, tags: list[bytes]) -> int:
        position = self._next
        self._next = position + len(tags)
        self._held.update(zip(tags, range(position, self._next), strict=True))
        self._segments.append(_Segment(position, tags))
        self._starts.append(position)
        return position

    def _repeated(self, first_id: int, tags: list[bytes], payloads: list[bytes], message_format: int) -> None:
        """A run in which tags are held already: those are not handed on, but answered as they were before."""
        for delivery_id, (tag, payload) in enumerate(zip(tags, payloads, strict=True), first_id):
            position = self._held.get(tag)
            if position is not None and _again(self._verdicts.get(position)):
                # what was released comes again as new; that the old one is settled may be said a frame later
                self._forget(position, position)
                position = None
            if position is None:
                position = self._take([tag])
                self._map_ids(delivery_id, position, 1)
                self._outstanding += 1
                self.events.append(Arrived(position, [tag], [payload], False, message_format))
                continue
            if self._has_id(position):
                self._also[position] = delivery_id
            else:
                self._map_ids(delivery_id, position, 1)
            self._supply(position, tag, payload, message_format)
            self._answer(position)

    def resumed_transfer(
        self,
        link: Link,
        delivery_id: int,
        tag: bytes,
        payload: bytes | None,
        settled: bool,
        aborted: bool,
        resume: bool,
        message_format: int,
    ) -> None:
        if link is not self.link or self.state not in (ON, DETACHING):
            return
        if resume:
            self._resuming = max(0, self._resuming - 1)
        position = self._held.get(tag)
        if position is None:
            if aborted or payload is None:
                if not settled and not aborted:
                    # nothing of it is here any more: let it come again, whole
                    assert isinstance(link, ReceiverLink)
                    link.dispose(delivery_id, delivery_id, RELEASED, False)
            else:
                self.transfers(link, delivery_id, [tag], [payload], settled, message_format)
            return
        if payload is not None:
            self._supply(position, tag, payload, message_format)
        if settled:
            self._settled(position, position)
        elif not aborted:
            if self._has_id(position):
                self._also[position] = delivery_id
            else:
                self._map_ids(delivery_id, position, 1)
            self._answer(position)
        self._finish_partial()

    def _supply(self, position: int, tag: bytes, payload: bytes, message_format: int) -> None:
        """The payload of a delivery that was known without it."""
        if position in self._wanted:
            del self._wanted[position]
            self._outstanding += 1
            self.events.append(Arrived(position, [tag], [payload], False, message_format))

    def _answer(self, position: int) -> None:
        """A delivery with a verdict came again: the verdict again (PROTOCOL 15)."""
        if position in self._accepted:
            self._dispose(position, position, ACCEPTED)
        elif position in self._verdicts:
            self._dispose(position, position, self._verdicts[position])

    def disposed(self, link: Link, first_id: int, last_id: int, state: object, settled: bool, now: float) -> None:
        """The router has settled deliveries first_id .. last_id: forget them."""
        if link is not self.link or not settled:
            return
        self._refusals = 0
        runs = self._ids
        at = max(bisect_right(runs, first_id, key=_start) - 1, 0)
        while at < len(runs) and runs[at][0] <= last_id:
            run_id, position, count = runs[at]
            low, high = max(first_id, run_id), min(last_id, run_id + count - 1)
            if low <= high:
                self._settled(low - run_id + position, high - run_id + position)
            at += 1
        self._finish_partial()

    def _settled(self, first: int, last: int) -> None:
        """The network is done with positions first .. last; those that nobody has decided get a void verdict."""
        done = self._accepted.remove(first, last + 1)
        if done != [(first, last + 1)]:
            known = {position for start, end in done for position in range(start, end)}
            for tag in self._tags(first, last):
                position = self._held.get(tag, -1)
                if first <= position <= last and position not in known and position not in self._verdicts:
                    self._settled_early[position] = None
                    self._wanted.pop(position, None)
        self._forget(first, last)

    def _forget(self, first: int, last: int) -> None:
        """Positions first .. last are settled: their tags are held no more."""
        gone: list[bytes] = []
        held = self._held
        self._accepted.remove(first, last + 1)
        if self._verdicts:
            for position in [position for position in self._verdicts if first <= position <= last]:
                del self._verdicts[position]
        if self._also:
            for position in [position for position in self._also if first <= position <= last]:
                del self._also[position]
        at = max(bisect_right(self._starts, first) - 1, 0)
        while at < len(self._starts) and self._starts[at] <= last:
            segment = self._segments[at]
            start = segment.position
            low, size = max(first - start, 0), len(segment.tags)
            tags = segment.tags[low : max(last - start + 1, 0)]
            if low == segment.front and segment.live == size - low:  # as a rule: all from here on are held
                deque(map(held.__delitem__, tags), maxlen=0)
                gone += tags
                segment.front += len(tags)
                segment.live -= len(tags)
            else:
                for number, tag in enumerate(tags, start + low):
                    if held.get(tag) == number:
                        del held[tag]
                        gone.append(tag)
                        segment.live -= 1
            if segment.live:
                at += 1
            else:
                del self._segments[at], self._starts[at]
        if gone:
            self._part.settle(gone)

    # -- credit

    def _window(self) -> int:
        if not self._largest:
            return min(self._credit, _FIRST_CREDIT)
        return max(1, min(self._credit, int(self._credit_bytes / self._largest)))

    def _give_credit(self) -> None:
        link = self.link
        if self.state is not ON or not self._granting or not isinstance(link, ReceiverLink):
            return
        window = self._window()
        # new deliveries up to the window, and one transfer for each that will be resumed (PROTOCOL 15)
        want = max(0, window - self._outstanding) + self._resuming
        have = link.credit
        if self._draining is not None:
            return  # 2.6.7: its answer uses up what there is; more would only put that off
        if self._drain_wanted and (want or have > 0):
            self._draining = link.given_up
            link.grant(max(want, have), drain=True)
            return
        if want > have and (want - have >= (window + 3) // 4 or have <= self._resuming):
            link.grant(want)

    def flowed(self, link: Link, now: float) -> None:
        """The router has told its side of the credit: all of it used up is a drain's answer."""
        if link is not self.link or self._draining is None or not isinstance(link, ReceiverLink) or link.credit > 0:
            return
        empty = link.given_up > self._draining
        self._draining = None
        self._drain_wanted = False
        self.events.append(Drained(empty))

    def pump(self, now: float) -> None:
        # Only here, when all that came has been counted: the engine has taken whole reads off the credit already.
        self._give_credit()

    # -- tags and ids

    def _tags(self, first: int, last: int) -> list[bytes]:
        """Of the positions first .. last that are still known (segments with nothing held are gone)."""
        at = max(bisect_right(self._starts, first) - 1, 0)
        if at < len(self._starts):
            segment = self._segments[at]
            start = segment.position
            if start <= first and last < start + len(segment.tags):
                return segment.tags[first - start : last - start + 1]
        tags: list[bytes] = []
        while at < len(self._starts) and self._starts[at] <= last:
            segment = self._segments[at]
            start = segment.position
            tags += segment.tags[max(first - start, 0) : max(last - start + 1, 0)]
            at += 1
        return tags

    def _has_id(self, position: int) -> bool:
        at = bisect_right(self._positions, position, key=_start) - 1
        return at >= 0 and position < self._positions[at][0] + self._positions[at][2]

    def _map_ids(self, first_id: int, position: int, count: int) -> None:
        runs = self._ids
        if runs:
            run_id, before, n = runs[-1]
            if run_id + n == first_id and before + n == position:
                runs[-1] = (run_id, before, n + count)
                at = bisect_right(self._positions, before, key=_start) - 1
                self._positions[at] = (before, run_id, n + count)
                return
        runs.append((first_id, position, count))
        if not self._positions or self._positions[-1][0] < position:
            self._positions.append((position, first_id, count))
        else:
            at = bisect_right(self._positions, position, key=_start)
            self._positions.insert(at, (position, first_id, count))

    # -- attaching

    def _prepare(self, epoch: int) -> None:
        self._fresh = not self._confirmed
        if self._fresh:
            self._born = epoch
        self.resumed = not self._fresh
        self._part.attach(epoch, self._born)

    def _identity(self) -> dict[str, Any]:
        return {BORN: ULong(self._born)}

    def _termini(self) -> tuple[Source, Target]:
        return (
            Source(address=self.address, expiry_policy=EXPIRE_NEVER, timeout=self._asked),
            Target(address=self.name),
        )

    def _terminus(self, answer: Attach) -> Source | Target | None:
        return answer.source

    def _map(self) -> Mapping[bytes, DeliveryState | None] | None:
        if not self._ever or self.guarantee == "at-most-once":
            return None
        accepted = self._accepted
        if not (self._verdicts or self._wanted):
            return {tag: ACCEPTED if position in accepted else None for tag, position in self._held.items()}
        return {
            tag: ACCEPTED
            if position in accepted
            else NEEDED
            if position in self._wanted
            else self._verdicts.get(position)
            for tag, position in self._held.items()
        }

    def _answered(self, link: Link, answer: Attach, now: float) -> None:
        assert answer.source is not None
        # a timeout of 0 is what a peer says that knows nothing of waiting
        self.timeout_s = float(answer.source.timeout or 0)
        if self.timeout_s == LONGEST:
            self.timeout_s = 0.0
        told = self._part.attached(self._epoch)
        meanwhile = {tag: outcome for tag, outcome in told.items() if tag not in self._meanwhile}
        self._meanwhile = told
        self._tell_marks(answer)
        self._confirmed = self._ever = True
        self._refusals = 0
        listed = answer.unsettled or {}
        self._partial = answer.incomplete_unsettled
        presented = bool(self._held)
        if presented and not self._partial:
            absent = [tag for tag in self._held if tag not in listed]
            self._drop(absent)
        if self._gap is not None:
            self.events.append(Gap(self._gap, len(self._settled_early)))
            self._gap = None
        if self._load(meanwhile) and not self._partial:
            # They were not in the map, so that the answer does not say which of them are settled: ask again with them.
            self._attach_again()
            return
        if self._partial:
            self._listed = {tag: state is None for tag, state in listed.items() if tag in self._held}
        self._resuming = len(listed)
        self._granting = False
        self._when_durable(now, self._grant, link)

    def _drop(self, tags: list[bytes]) -> None:
        """What the answer does not list is settled."""
        held = self._held
        for first, last in _ranges([held[tag] for tag in tags]):
            self._settled(first, last)

    def _grant(self, now: float, link: Link) -> None:
        if link is self.link and self.state is ON:
            self._granting = True
            self._give_credit()

    def _tell_marks(self, answer: Attach) -> None:
        """A mark that no earlier answer had: some router knows this subscription only since then (7.3, 7.6)."""
        told = (answer.properties or {}).get(MARKS) or ()
        marks = {_mark(mark): None for mark in told}
        unseen = [mark for mark in marks if mark not in self._marks]
        if unseen and self._marks and not self._fresh:
            self.events.append(Gap(f"a router knows this subscription only since {unseen[0][0]} us", 0))
        self._marks.update(marks)

    def _finish_partial(self) -> None:
        """7.7: the answer's map was too large for our frames; when all of it is resolved, ask for the rest.

        Resolved: it has our verdict. To wait until it is settled would be to wait for subscribers that may wait for us;
        only where the router wanted no verdict there is nothing else to wait for."""
        if not self._partial or self._resuming or self.state is not ON:
            return
        left = [self._held[tag] for tag in self._listed if tag in self._held]
        if left and not any(self._listed.values()):
            return
        if any(position not in self._accepted and position not in self._verdicts for position in left):
            return
        self._partial = False
        self._attach_again()

    def _attach_again(self) -> None:
        assert self.link is not None
        self.state = DETACHING
        self.link.detach(closed=False)

    def _known_by_answer(self) -> bool:
        return True  # 7.2: it comes when all have JOINED

    def _lost(self) -> None:
        self._ids = []
        self._positions = []
        self._also = {}
        self._resuming = 0
        self._granting = False
        self._draining = None
        self._partial = False
        self._listed = {}

    def _expired(self, reason: str, now: float) -> None:
        """Away for longer than the network waits: what was published meanwhile may be missing."""
        self._contact = None
        self._contact_us = 0
        if self._confirmed:
            self._confirmed = False
            self._gap = reason  # told when it has joined again, with what that drops

    def _answered_late(self, reason: str, now: float) -> bool:
        return False  # 7.3: routers that do not wait for it any more have answered that it is broken

    def _broken(self, condition: str, reason: str, now: float) -> bool:
        if condition != SUBSCRIPTION_BROKEN:
            return False
        # PROTOCOL 15: another born only now; the map stays, it keeps repeats away
        self._expired(reason, now)
        return True

    def _overtaken(self) -> None:
        pass  # a subscription goes on with its born, whatever the epoch

    def _proved(self) -> bool:
        return True  # a subscriber's attach is answered when all routers know of it

    def _write_contact(self, wall_us: int, timeout_s: float) -> None:
        self._part.contact(wall_us, timeout_s)

    def _forget_link(self) -> None:
        self._part.close()


def _again(verdict: Outcome | None) -> bool:
    """It asks for the same delivery once more (PROTOCOL 6.4)."""
    return isinstance(verdict, Released) or (isinstance(verdict, Modified) and not verdict.undeliverable_here)


def _start(run: tuple[int, int, int]) -> int:
    return run[0]


def _mark(mark: Any) -> tuple[int, str]:
    if isinstance(mark, list | tuple) and mark:
        return int(mark[0]), str(mark[1]) if len(mark) > 1 else ""
    return (int(mark), "") if isinstance(mark, int) else (0, str(mark))


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Numbers as inclusive ranges."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
