"""A recovering publisher: it keeps each message until its outcome is durable (protocol 15).

Messages are numbered 0, 1, 2 ... for ever under the publisher's name; the delivery-tag is the number.  A message is
journalled, then sent.  At its outcome it is durably forgotten, then settled and told to the owner.  After a lost
connection the attach's map lists the undecided messages, and they are sent again, in order and before anything new, as
ordinary transfers.  Everything is kept in runs: a run of numbers has a run of delivery-ids.

The asyncio side is `onceway.client.publisher`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise, takewhile
from math import inf
from struct import Struct, pack
from typing import Any, Literal

from amqp10.link import Link
from amqp10.outcomes import ACCEPTED, Accepted, DeliveryState, Modified, Rejected, Released
from amqp10.performatives import Attach
from amqp10.sender import SenderLink
from amqp10.termini import EXPIRE_NEVER, Source, Target
from amqp10.types import ULong
from onceway.client.journal import UNDECIDED, PublisherJournal
from onceway.client.protocol.events import Decided, Undecided, Waits
from onceway.client.protocol.link import ATTACHED, CLOSED, DETACHED, DETACHING, LONGEST, ClientLink
from onceway.client.ranges import ranges_of
from router.names import INCARNATION, PUBLISHER_EXPIRED, PUBLISHER_UNKNOWN, WAITING

PUBLISHER_TIMEOUT_S = 120.0  # where the answer does not say (protocol 12)
_TERMINAL = (Accepted, Rejected, Released, Modified)
_TRIM_ABOVE = 64  # runs of delivery-ids
_SHORT = Struct(">I")
_LONG = Struct(">Q")
_SHORT_END = 1 << 32


def tag_of(sequence: int) -> bytes:
    """The delivery-tag: the number in 4 bytes, in 8 once it is past 2**32.  No two numbers have the same."""
    return _SHORT.pack(sequence) if sequence < _SHORT_END else _LONG.pack(sequence)


def tags_of(first: int, count: int) -> list[bytes]:
    if first + count > _SHORT_END:
        return [tag_of(number) for number in range(first, first + count)]
    packed = pack(f">{count}I", *range(first, first + count))
    return [packed[at : at + 4] for at in range(0, 4 * count, 4)]


class PublisherLink(ClientLink):
    """`put` takes messages, `room` says how many; outcomes are `Decided` events, by range."""

    unknown_absence_s = inf  # the network tells a subscriber that it was absent for too long, but not a publisher
    role: Literal["publisher"] = "publisher"

    def __init__(self, address: str, name: str, *, journal_part: PublisherJournal, **common: Any) -> None:
        record = journal_part.record
        super().__init__(address, name, record, **common)
        self._part = journal_part
        self._incarnation = record.incarnation  # 0: the next attach begins a new one
        self.sequence = record.sequence  # number of the next message
        self._payloads: dict[int, bytes] = dict(record.undecided)  # no outcome yet, ascending
        self._new: deque[tuple[int, int]] = deque()  # runs (first, end) that are durable and not sent yet
        self._resend: deque[tuple[int, int]] = deque()  # undecided runs to be sent again first
        self._mapped = 0  # numbers from here on were put after the current attach was prepared: they are in no map
        self._held = 0  # messages taken and not sent on this attachment yet (in _new, in the journal's hands)
        self._resend_count = 0
        self._ids: list[int] = []  # first delivery-ids of the runs sent on this attachment
        self._sent: list[tuple[int, int]] = []  # (first number, count) of each
        self._deciding = 0  # numbers whose outcome is on its way into the journal
        self._settled_here = False  # an outcome has come on this attachment
        self._show_credit = False

    # -- for the owner

    @property
    def unsettled(self) -> int:
        return len(self._payloads) + self._deciding

    @property
    def incarnation(self) -> int:
        """The epoch of the first attach of this publisher's state (protocol 1); 0 before that."""
        return self._incarnation

    @property
    def undecided(self) -> list[tuple[int, bytes]]:
        return list(self._payloads.items())

    @property
    def room(self) -> int:
        """How many messages can be taken now: credit that no message waits for yet."""
        link = self.link
        if self.state is not ATTACHED or not isinstance(link, SenderLink):
            return 0
        return max(0, link.credit - self._held - self._resend_count)

    def put(self, payloads: list[bytes], now: float) -> int:
        """Takes messages and returns the first one's number; never more than `room` at a time.

        While the link is away they are taken as well: an application was told that there is room in the turn in which
        the connection was lost.  They become durable, and are sent once it is attached.
        """
        assert self.state is not CLOSED
        first = self.sequence
        count = len(payloads)
        self.sequence = first + count
        self._held += count
        self._payloads.update(zip(range(first, first + count), payloads, strict=True))
        if self.guarantee == "at-most-once":
            self._release(now, first, first + count)
            return first
        self._part.publish(first, payloads)
        self._when_durable(now, self._release, first, first + count)
        return first

    def _release(self, now: float, first: int, end: int) -> None:
        """They are durable and may be sent."""
        if self.state is CLOSED or first < self._mapped or self.state in (DETACHED, DETACHING):
            return  # the map of this attach has them, or that of the next one will
        if self._new and self._new[-1][1] == first:
            self._new[-1] = (self._new[-1][0], end)
        else:
            self._new.append((first, end))
        self.pump(now)

    # -- sending

    def pump(self, now: float) -> None:
        link = self.link
        if self.state is not ATTACHED or not isinstance(link, SenderLink):
            return
        while self._resend or self._new:
            capacity = link.capacity()
            if capacity <= 0:
                return
            runs = self._resend or self._new
            first, end = runs[0]
            if end - first > capacity:
                end = first + capacity
                runs[0] = (end, runs[0][1])
            else:
                runs.popleft()
            if runs is self._resend:
                self._resend_count -= end - first
            else:
                self._held -= end - first
            self._transfer(link, first, end)

    def _transfer(self, link: SenderLink, first: int, end: int) -> None:
        payloads = self._payloads
        bodies = [payloads[number] for number in range(first, end)]
        settled = self.guarantee == "at-most-once"
        first_id = link.send(tags_of(first, end - first), bodies, settled=settled)
        if settled:
            for number in range(first, end):
                del payloads[number]
            self.events.append(Decided(first, end - 1, ACCEPTED))
            return
        if self._ids:
            before, count = self._sent[-1]
            if self._ids[-1] + count == first_id and before + count == first:
                self._sent[-1] = (before, count + end - first)
                return
        self._ids.append(first_id)
        self._sent.append((first, end - first))

    # -- outcomes

    def disposed(self, link: Link, first_id: int, last_id: int, state: object, settled: bool, now: float) -> None:
        """The router's disposition of deliveries first_id .. last_id."""
        if link is not self.link or not isinstance(link, SenderLink):
            return
        if not settled and not isinstance(state, _TERMINAL):
            return  # received: not the last word
        self._settled_here = True
        self._refusals = 0
        payloads = self._payloads
        at = max(bisect_right(self._ids, first_id) - 1, 0)
        while at < len(self._ids) and self._ids[at] <= last_id:
            run_id, (first, count) = self._ids[at], self._sent[at]
            low = max(first_id, run_id) - run_id + first
            high = min(last_id, run_id + count - 1) - run_id + first
            at += 1
            # an outcome told twice (accepted, then settled) counts once
            for begin, end in _present(payloads, low, high):
                self._decide(link, begin, end, run_id - first, state, settled, now)
        if len(self._ids) > _TRIM_ABOVE:
            self._trim()

    def _decide(
        self, link: SenderLink, begin: int, end: int, offset: int, state: object, settled: bool, now: float
    ) -> None:
        payloads = self._payloads
        for number in range(begin, end):
            del payloads[number]
        self._deciding += end - begin
        self._part.forget(begin, end - 1, state)
        # protocol 15: forget durably, then settle
        self._when_durable(now, self._forgotten, link, begin, end, offset, state, settled)

    def _forgotten(
        self, now: float, link: SenderLink, begin: int, end: int, offset: int, state: object, settled: bool
    ) -> None:
        self._deciding -= end - begin
        if not settled and link is self.link and not link.detached:
            link.settle(begin + offset, end - 1 + offset)
        self.events.append(Decided(begin, end - 1, state))

    def _trim(self) -> None:
        """Forgets the leading runs in which nothing is undecided."""
        oldest = next(iter(self._payloads), self.sequence)
        done = 0
        while done < len(self._ids) - 1 and self._sent[done][0] + self._sent[done][1] <= oldest:
            done += 1
        if done:
            del self._ids[:done], self._sent[:done]

    def check_invariants(self) -> None:
        super().check_invariants()
        assert self._incarnation <= self._epoch, "an incarnation begins with an epoch of its own"
        undecided = list(self._payloads)
        assert undecided == sorted(undecided), "the undecided are not in order"
        assert not undecided or undecided[-1] < self.sequence, "a number is given twice"
        assert self._resend_count == sum(end - first for first, end in self._resend)
        assert self._deciding >= 0
        assert len(self._ids) == len(self._sent)
        if self.state is ATTACHED:
            # Each number is sent once on an attachment, in order: tags are unique, repeats come before what is new.
            runs = [*((first, first + count) for first, count in self._sent), *self._resend, *self._new]
            assert all(before[1] <= after[0] for before, after in pairwise(runs)), f"sent out of order: {runs}"
            assert self._held >= sum(end - first for first, end in self._new)

    # -- attaching

    def _prepare(self, epoch: int) -> None:
        if not self._incarnation:
            self._incarnation = epoch
            self.resumed = False
        else:
            self.resumed = True
        # What is put from now on may not be durable when the attach is sent.  A map has only what is: the number of a
        # message that is lost with the process is used again.
        self._mapped = self.sequence
        self._new.clear()
        self._held = 0
        self._part.attach(epoch, self._incarnation)

    def _identity(self) -> dict[str, Any]:
        return {INCARNATION: ULong(self._incarnation)}

    def _termini(self) -> tuple[Source, Target]:
        return (
            Source(address=self.name),
            Target(address=self.address, expiry_policy=EXPIRE_NEVER, timeout=LONGEST),
        )

    def _terminus(self, answer: Attach) -> Source | Target | None:
        return answer.target if isinstance(answer.target, Target) else None

    def _map(self) -> Mapping[bytes, DeliveryState | None] | None:
        if not self.resumed or self.guarantee == "at-most-once":
            return None
        return {tag_of(number): None for number in self._in_map()}

    def _in_map(self) -> list[int]:
        return list(takewhile(lambda number: number < self._mapped, self._payloads))

    def _answered(self, link: Link, answer: Attach, now: float) -> None:
        assert isinstance(link, SenderLink)
        granted = answer.target.timeout if isinstance(answer.target, Target) else 0
        self.contact.timeout_s = float(granted) if granted and granted != LONGEST else PUBLISHER_TIMEOUT_S
        # The epoch was journalled after these messages: they are durable by now, and all of them, sent or not, were in
        # the map.
        resend = self._in_map()
        self._resend = _runs(resend)
        self._resend_count = len(resend)
        self._show_credit = True

    def flowed(self, link: Link, now: float) -> None:
        """The router sent a flow: credit has changed."""
        if link is not self.link or not isinstance(link, SenderLink) or self.state is not ATTACHED:
            return
        unknown = self.contact.known_from is None
        if unknown and self._late(link, now):
            return
        had = len(self._ids)
        self.pump(now)
        if len(self._ids) == had and (unknown or (self._show_credit and link.credit > 0)):
            # protocol 5.2: a flow that shows the credit is a sign of life; without it, a publisher that has nothing to
            # send would be claimed only at its next heartbeat
            self._show_credit = False
            link.flow()
        if unknown:
            self.contact.noted = None  # the first answer is news
            self.contact.known(now, now)  # what we have just sent makes our router tell the others of us
        if link.drain and not self._resend and not self._new:
            link.drained()

    def told(self, link: Link, properties: Mapping[str, Any]) -> None:
        if link is self.link and WAITING in properties:
            waiting = properties[WAITING]
            self.events.append(Waits(waiting if isinstance(waiting, Mapping) else None))

    def _known_by_answer(self) -> bool:
        # protocol 5.1: the answer claims nothing, so other routers still count the absence.  That matters only for
        # publications that are in doubt; what is sent from now on is taken only when we are known.
        return not self._payloads

    def _void_attachment(self) -> None:
        self._ids = []
        self._sent = []
        self._resend.clear()
        self._resend_count = 0
        self._settled_here = False
        self._show_credit = False

    def _expired(self, reason: str, now: float) -> None:
        """The network may have forgotten us: undecided publications are reported, not sent again (protocol 15)."""
        undecided = list(self._payloads.items())
        self._incarnation = 0
        self.contact.forget()
        if not undecided:
            return
        for first, end in _runs([number for number, _ in undecided]):
            self._part.forget(first, end - 1, UNDECIDED)
        self._payloads.clear()
        self._new.clear()
        self._held = 0
        self.events.append(Undecided(reason, undecided))

    def _answered_late(self, reason: str, now: float) -> bool:
        # To a network that has forgotten us, what is sent again would be new: a duplicate.
        if not self._payloads:
            return False
        self._expired(reason, now)
        return True

    def _broken(self, condition: str, reason: str, now: float) -> bool:
        if condition not in (PUBLISHER_UNKNOWN, PUBLISHER_EXPIRED):
            return False
        self._expired(reason, now)
        return True

    def _overtaken(self) -> None:
        # protocol 5.5: an incarnation below the known one is refused, whatever its epoch.  With nothing undecided there
        # is no need to keep it: a process without memory, whose clock is behind its last life's, begins another one.
        if not self._payloads:
            self._incarnation = 0

    def _proved(self) -> bool:
        return self._settled_here

    def _write_contact(self, wall_us: int, timeout_s: float) -> None:
        self._part.contact(wall_us, timeout_s)

    def _forget_link(self) -> None:
        self._part.close()


def _present(payloads: dict[int, bytes], low: int, high: int) -> Iterable[tuple[int, int]]:
    """Which of low .. high are undecided, as half-open runs.  Nearly always all of them."""
    numbers = [number for number in range(low, high + 1) if number in payloads]
    return [(low, high + 1)] if len(numbers) == high + 1 - low else _runs(numbers)


def _runs(numbers: Iterable[int]) -> deque[tuple[int, int]]:
    """Ascending numbers as half-open runs."""
    return deque((first, last + 1) for first, last in ranges_of(numbers))
