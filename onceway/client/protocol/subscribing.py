"""A recovering subscriber: no delivery is handed on twice, and no outcome is lost (protocol 15).

Every new delivery gets a position, by which the application's outcome names it.  Its tag is held until the network has
settled it (`holdings`).  An accept is journalled, then sent.  After a lost connection the attach's map lists what is
held: null for a complete delivery without outcome, the outcome for a decided one, `received(0, 0)` for one that the
journal knows without its payload.  What the answer does not list is forgotten.  What it lists comes again as a resumed
transfer, and is answered with its outcome.

Everything is kept in runs.  The asyncio side is `onceway.client.subscriber`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Literal

from amqp10.link import Link
from amqp10.outcomes import RELEASED, Accepted, DeliveryState, Modified, Outcome, Rejected, Released, write_state
from amqp10.performatives import RCV_FIRST, Attach
from amqp10.receiver import ReceiverLink
from amqp10.termini import EXPIRE_LINK_DETACH, EXPIRE_NEVER, MOVE, Source, Target
from amqp10.types import ULong
from onceway.client.journal import SubscriberJournal
from onceway.client.protocol.delivery_ids import DeliveryIds
from onceway.client.protocol.events import Arrived, Drained, Gap, Settled
from onceway.client.protocol.holdings import Holdings
from onceway.client.protocol.link import ATTACHED, CLOSED, DETACHING, LONGEST, ClientLink
from onceway.client.protocol.window import Window
from onceway.client.ranges import ranges_of
from router.names import BORN, MARKS, ONLY_NEW, SUBSCRIPTION_BROKEN


class SubscriberLink(ClientLink):
    """Deliveries are `Arrived` events, by run; `decide` takes outcomes by position."""

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
        only_new: bool = False,
        filters: Mapping[str, Any] | None = None,
        **common: Any,
    ) -> None:
        record = journal_part.record
        super().__init__(address, name, record, **common)
        self._part = journal_part
        self._born = record.born
        self._confirmed = bool(record.born)  # an attach with this born has been answered
        self._ever = self._confirmed
        self._fresh = not self._confirmed
        self._only_new = only_new
        self._tried = record.tried
        self._filter = filters
        # With the expiry policy `never` a source's own timeout has no effect (protocol 8.3).
        self._policy = EXPIRE_NEVER if subscription_timeout_s is None else EXPIRE_LINK_DETACH
        self._asked = LONGEST if subscription_timeout_s is None else min(LONGEST, ceil(subscription_timeout_s))
        self._window = Window(credit, credit_bytes)
        self._granting = False  # attached durably: credit may be given
        self._partial = False  # the answer's map was not whole (protocol 7.7)
        self._listed: dict[bytes, bool] = {}  # of such an answer: does the router want an outcome?
        self._gap: str | None = None
        self._marks: dict[tuple[int, str], None] = {}
        self._meanwhile: Mapping[bytes, bytes | None] = {}  # what another process had added, at the last attach
        self._deciding = 0
        self.tells_settled = False  # only tracing, and who closes, want to know
        self._competes = False  # the address is a queue: the last answer said so
        self._ids = DeliveryIds()
        self.holdings = Holdings()
        self.holdings.load(record.unsettled)

    # -- for the owner

    @property
    def deciding(self) -> int:
        """How many outcomes are not durable yet."""
        return self._deciding

    @property
    def owes(self) -> bool:
        """It has stopped, and has decided something that is not settled: if it closes now, only its router knows
        (protocol 15.8)."""
        return self.stopped and bool(self.holdings.accepted or self.holdings.outcomes)

    @property
    def stopped(self) -> bool:
        """It is a consumer of a queue that gives no credit any more."""
        return self._window.stopped

    @property
    def held(self) -> int:
        return len(self.holdings.positions)

    def decide(self, first: int, last: int, state: Outcome, now: float) -> int:
        """The application's outcome of positions first .. last, once for each; durable before it is sent.

        Returns the number that the journal's `durable` must reach.
        """
        assert first <= last < self.holdings.reached, f"no delivery has a position of {first} .. {last}"
        self._window.outstanding -= last - first + 1
        number = 0
        if self.state is not CLOSED:
            live = self.holdings.not_settled(first, last)
            if live != [(first, last)]:
                self._tell_settled(first, last)
            for low, high in live:
                if isinstance(state, Accepted | Rejected):
                    self._part.accept(self.holdings.tags(low, high), write_state(state))
                self._deciding += high - low + 1
                number = self._when_durable(now, self._decided, low, high, state)
            self._give_credit()
        return number

    def taken(self, count: int) -> None:
        """The application took so many settled deliveries, which need no outcome: gives credit for as many others."""
        self._window.outstanding -= count
        self._give_credit()

    def drain(self) -> None:
        """Makes the router send what it holds for us, as far as credit goes; a `Drained` event follows the last of it.

        Waits for an attachment, and for credit where all of it is outstanding.
        """
        self._window.drain_wanted = True
        self._give_credit()

    def _decided(self, now: float, first: int, last: int, state: Outcome) -> None:
        self._deciding -= last - first + 1
        for low, high in self.holdings.not_settled(first, last):
            self.holdings.decide(low, high, state)
            if self.state is ATTACHED:
                self._dispose(low, high, state)
        self._finish_partial()

    def _dispose(self, first: int, last: int, state: Outcome) -> None:
        """Tells the router what of first .. last has a delivery-id on this attachment."""
        link = self.link
        assert isinstance(link, ReceiverLink)
        settle = link.rcv_settle_mode == RCV_FIRST
        told = self._ids.of_positions(first, last)
        for low, high, first_id in told:
            link.dispose(first_id, first_id + high - low, state, settle)
        for delivery_id in self._ids.second_of_positions(first, last):
            link.dispose(delivery_id, delivery_id, state, settle)
        if settle:
            # mode first: the subscriber settles with its outcome; at least once
            for low, high, _ in told:
                self._forget(low, high)

    def stop(self) -> None:
        """Takes back the credit, if it is a consumer of a queue: others get what comes next."""
        if self._competes:
            self._window.stopped = self.tells_settled = True
            self._give_credit()

    # -- what comes

    def transfers(
        self, link: Link, first_id: int, tags: list[bytes], payloads: list[bytes], settled: bool, message_format: int
    ) -> None:
        if link is not self.link or self.state not in (ATTACHED, DETACHING):
            return
        count = len(tags)
        self._window.came(payloads)
        if settled:
            position = self.holdings.pass_by(count)
            self._window.outstanding += count  # until the owner says that they were taken
            self.events.append(Arrived(position, tags, payloads, True, message_format))
            return
        if not self.holdings.positions.keys().isdisjoint(tags) or len(set(tags)) != count:
            self._repeated(first_id, tags, payloads, message_format)
            return
        position = self.holdings.take(tags)
        self._ids.add(first_id, position, count)
        self._window.outstanding += count
        self.events.append(Arrived(position, tags, payloads, False, message_format))

    def _repeated(self, first_id: int, tags: list[bytes], payloads: list[bytes], message_format: int) -> None:
        """A run with tags that are held already: those are not handed on, but answered as before."""
        for delivery_id, (tag, payload) in enumerate(zip(tags, payloads, strict=True), first_id):
            position = self.holdings.positions.get(tag)
            if position is not None and _again(self.holdings.outcomes.get(position)):
                # a released delivery is delivered again as new; the settlement of the old one may arrive a frame later
                self._forget(position, position)
                position = None
            if position is None:
                position = self.holdings.take([tag])
                self._ids.add(delivery_id, position, 1)
                self._window.outstanding += 1
                self.events.append(Arrived(position, [tag], [payload], False, message_format))
                continue
            self._ids.add_again(delivery_id, position)
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
        if link is not self.link or self.state not in (ATTACHED, DETACHING):
            return
        if resume:
            self._window.resuming = max(0, self._window.resuming - 1)
        position = self.holdings.positions.get(tag)
        if position is None:
            if aborted or payload is None:
                if not settled and not aborted:
                    # we no longer hold it: it has to be delivered again, whole
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
            self._ids.add_again(delivery_id, position)
            self._answer(position)
        self._finish_partial()
        self._leave_if_told()

    def _untold(self, answer: Attach | None = None) -> bool:
        """A consumer of a queue that closes before says that it holds nothing: others get what it has accepted
        (protocol 16.6)."""
        return bool(self._leaving and (answer.unsettled if answer is not None else self._window.resuming))

    def _supply(self, position: int, tag: bytes, payload: bytes, message_format: int) -> None:
        """The payload of a delivery that was known without it."""
        if position in self.holdings.wanted:
            del self.holdings.wanted[position]
            self._window.outstanding += 1
            self.events.append(Arrived(position, [tag], [payload], False, message_format))

    def _answer(self, position: int) -> None:
        """Repeats the outcome of a delivery that came again (protocol 15)."""
        outcome = self.holdings.outcome(position)
        if outcome is not None:
            self._dispose(position, position, outcome)

    def disposed(self, link: Link, first_id: int, last_id: int, state: object, settled: bool, now: float) -> None:
        """The router has settled deliveries first_id .. last_id: forget them."""
        if link is not self.link or not settled:
            return
        self._refusals = 0
        for low, high, position in self._ids.positions(first_id, last_id):
            self._settled(position, position + high - low)
        self._finish_partial()

    def _settled(self, first: int, last: int) -> None:
        """The network is done with positions first .. last."""
        self._ids.forget(first, last)
        self._tell_settled(first, last)
        gone = self.holdings.settle(first, last)
        if gone:
            self._part.settle(gone)

    def _forget(self, first: int, last: int) -> None:
        """Positions first .. last are settled by us."""
        self._ids.forget(first, last)
        self._tell_settled(first, last)
        gone = self.holdings.forget(first, last)
        if gone:
            self._part.settle(gone)

    def _tell_settled(self, first: int, last: int) -> None:
        if self.tells_settled:
            self.events.append(Settled(first, last))

    def check_invariants(self) -> None:
        super().check_invariants()
        assert self._born <= self._epoch, "a subscription is born with an epoch of its own"
        held, window = self.holdings, self._window
        held.check_invariants()
        assert window.outstanding >= 0
        assert self._deciding >= 0
        if self.guarantee != "at-most-once":
            undecided = held.undecided + len(held.settled_early)
            in_hand = window.outstanding + self._deciding
            assert undecided >= in_hand, f"{in_hand} deliveries are with the application, {undecided} are known"

    # -- credit

    def _give_credit(self) -> None:
        link = self.link
        if self.state is ATTACHED and self._granting and isinstance(link, ReceiverLink):
            self._window.grant(link)

    def flowed(self, link: Link, now: float) -> None:
        """The router has told its side of the credit."""
        if link is self.link and isinstance(link, ReceiverLink):
            empty = self._window.drained(link)
            if empty is not None:
                self.events.append(Drained(empty))

    def pump(self, now: float) -> None:
        # Only here, after all events of a read: the engine has already taken the whole read off the credit.
        self._give_credit()

    # -- attaching

    def _prepare(self, epoch: int) -> None:
        self._fresh = not self._confirmed
        if self._fresh:
            self._born = epoch
        self._tried = self._tried or epoch
        self.resumed = not self._fresh
        self._part.attach(epoch, self._born)

    def _identity(self) -> dict[str, Any]:
        born = {BORN: ULong(self._born)}
        return born if self._ever or not self._only_new else {**born, ONLY_NEW: ULong(self._tried)}

    def _termini(self) -> tuple[Source, Target]:
        return (
            Source(address=self.address, expiry_policy=self._policy, timeout=self._asked, filter=self._filter),
            Target(address=self.name),
        )

    def _lacking(self, answer: Attach) -> str:
        applied = (answer.source.filter if answer.source is not None else None) or {}
        missing = [str(name) for name in self._filter or () if name not in applied]
        return f"the network does not apply the filters {', '.join(missing)}" if missing else ""

    def _terminus(self, answer: Attach) -> Source | Target | None:
        return answer.source

    def _map(self) -> Mapping[bytes, DeliveryState | None] | None:
        if not self._ever or self.guarantee == "at-most-once":
            return None
        return self.holdings.unsettled_map()

    def _answered(self, link: Link, answer: Attach, now: float) -> None:
        assert answer.source is not None
        self._competes = answer.source.distribution_mode == MOVE
        # a peer without subscription timeouts answers 0
        self.contact.timeout_s = float(answer.source.timeout or 0)
        if self.contact.timeout_s == LONGEST:
            self.contact.timeout_s = 0.0
        told = self._part.attached(self._epoch)
        meanwhile = {tag: outcome for tag, outcome in told.items() if tag not in self._meanwhile}
        self._meanwhile = told
        self._tell_marks(answer)
        self._confirmed = self._ever = True
        self._refusals = 0
        listed = answer.unsettled or {}
        self._partial = answer.incomplete_unsettled
        presented = bool(self.held)
        if presented and not self._partial:
            absent = [tag for tag in self.holdings.positions if tag not in listed]
            self._drop(absent)
        if self._gap is not None:
            self.events.append(Gap(self._gap, len(self.holdings.settled_early)))
            self._gap = None
        if self.holdings.load(meanwhile) and not self._partial:
            # They were not in the map, so the answer does not say which of them are settled: attach again with them.
            self._attach_again()
            return
        if self._partial:
            self._listed = {tag: state is None for tag, state in listed.items() if tag in self.holdings.positions}
        self._window.resuming = len(listed)
        self._granting = False
        self._when_durable(now, self._grant, link)

    def _drop(self, tags: list[bytes]) -> None:
        """What the answer does not list is settled."""
        held = self.holdings.positions
        for first, last in ranges_of(sorted(held[tag] for tag in tags)):
            self._settled(first, last)

    def _grant(self, now: float, link: Link) -> None:
        if link is self.link and self.state is ATTACHED:
            self._granting = True
            self._give_credit()

    def _tell_marks(self, answer: Attach) -> None:
        """Reports a mark that is new: some router knows this subscription only since then (protocol 7.3, 7.6)."""
        told = (answer.properties or {}).get(MARKS) or ()
        marks = {_mark(mark): None for mark in told}
        unseen = [mark for mark in marks if mark not in self._marks]
        if unseen and self._marks and not self._fresh:
            self.events.append(Gap(f"a router knows this subscription only since {unseen[0][0]} us", 0))
        self._marks.update(marks)

    def _finish_partial(self) -> None:
        """The answer's map exceeded our frames; when all of this part is resolved, ask for the rest (protocol 7.7).

        A delivery is resolved when it has our outcome.  Its settlement may depend on other subscribers, which may wait
        for us; it is awaited only where the router wants no outcome.
        """
        if not self._partial or self._window.resuming or self.state is not ATTACHED:
            return
        held = self.holdings.positions
        left = [held[tag] for tag in self._listed if tag in held]
        if left and not any(self._listed.values()):
            return
        if not all(self.holdings.has_outcome(position) for position in left):
            return
        self._partial = False
        self._attach_again()

    def _attach_again(self) -> None:
        assert self.link is not None
        self.state = DETACHING
        self.link.detach(closed=False)

    def _known_by_answer(self) -> bool:
        return True  # protocol 7.2: it comes when all routers have JOINED

    def _void_attachment(self) -> None:
        self._ids = DeliveryIds()
        self._window.lost()
        self._granting = False
        self._partial = False
        self._listed = {}

    def _expired(self, reason: str, now: float) -> None:
        """The network may have given the subscription up: what was published since may be missing."""
        self.contact.forget()
        if self._confirmed:
            self._confirmed = False
            self._gap = reason  # told when it is attached again, with the number of deliveries that this drops

    def _answered_late(self, reason: str, now: float) -> bool:
        return False  # protocol 7.3: routers that do not wait for it any more have answered: broken

    def _broken(self, condition: str, reason: str, now: float) -> bool:
        if condition != SUBSCRIPTION_BROKEN:
            return False
        # protocol 15: the next attach has a new born; the map is kept to recognise repeats
        self._expired(reason, now)
        return True

    def _overtaken(self) -> None:
        # A subscription keeps its born, whatever the epoch.  Before it has one, the later epoch is another's, whose
        # clock may be ahead: it is older all the same (protocol 7.1).
        self._tried = 0

    def _proved(self) -> bool:
        return True  # a subscriber's attach is answered when all routers know of it

    def _write_contact(self, wall_us: int, timeout_s: float) -> None:
        self._part.contact(wall_us, timeout_s)

    def _forget_link(self) -> None:
        self._part.close()


def _again(outcome: Outcome | None) -> bool:
    """It asks for the same delivery once more (protocol 6.4)."""
    return isinstance(outcome, Released) or (isinstance(outcome, Modified) and not outcome.undeliverable_here)


def _mark(mark: Any) -> tuple[int, str]:
    if isinstance(mark, list | tuple) and mark:
        return int(mark[0]), str(mark[1]) if len(mark) > 1 else ""
    return (int(mark), "") if isinstance(mark, int) else (0, str(mark))
