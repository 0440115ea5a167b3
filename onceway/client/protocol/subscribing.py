"""A recovering subscriber (PROTOCOL 15): no delivery is handed on twice, no verdict is lost.

Every new delivery gets a position by which verdicts name it, and its tag is held until the network has settled it
(`holdings`).  An accept is journalled, then sent.  After a lost connection the attach's map says what is held: null for
what is complete and undecided, the outcome for what is decided, `received(0, 0)` for what the journal knows without its
payload.  What the answer does not list is forgotten; what it lists comes again as a resumed transfer, and is answered
with its verdict.

Runs throughout.  The asyncio side is `onceway.client.subscriber`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from amqp10.link import Link
from amqp10.outcomes import RELEASED, Accepted, DeliveryState, Modified, Outcome, Rejected, Released, write_state
from amqp10.performatives import RCV_FIRST, Attach
from amqp10.receiver import ReceiverLink
from amqp10.termini import EXPIRE_NEVER, Source, Target
from amqp10.types import ULong
from onceway.client.journal import SubscriberJournal
from onceway.client.protocol.delivery_ids import DeliveryIds
from onceway.client.protocol.events import Arrived, Drained, Gap
from onceway.client.protocol.holdings import Holdings, ranges_of
from onceway.client.protocol.link import DETACHING, LONGEST, ON, OVER, ClientLink
from onceway.client.protocol.window import Window
from router.identity import BORN, MARKS
from router.ports import SUBSCRIPTION_BROKEN


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
        record = journal_part.record
        super().__init__(address, name, record, **common)
        self._part = journal_part
        self._born = record.born
        self._confirmed = bool(record.born)  # an attach with this born has been answered
        self._ever = self._confirmed
        self._fresh = not self._confirmed
        self._asked = LONGEST if subscription_timeout_s is None else min(LONGEST, round(subscription_timeout_s))
        self._window = Window(credit, credit_bytes)
        self._granting = False  # attached durably: credit may be given
        self._partial = False  # the answer's map was not whole (7.7)
        self._listed: dict[bytes, bool] = {}  # of such an answer: does the router want a verdict?
        self._gap: str | None = None
        self._marks: dict[tuple[int, str], None] = {}
        self._meanwhile: Mapping[bytes, bytes | None] = {}  # what another process had added, at the last attach
        self._deciding = 0
        self._ids = DeliveryIds()
        self.holdings = Holdings()
        self.holdings.load(record.unsettled)

    # -- for the owner

    @property
    def deciding(self) -> int:
        """Verdicts given and not on their way to the router yet."""
        return self._deciding

    @property
    def held(self) -> int:
        return len(self.holdings.positions)

    def decide(self, first: int, last: int, state: Outcome, now: float) -> int:
        """The application's verdict on positions first .. last, each at most once.  Durable before it is sent.

        Returns the number that the journal's `durable` must reach for it to be safe.
        """
        self._window.outstanding -= last - first + 1
        number = 0
        if self.state is not OVER:
            for low, high in self.holdings.not_settled(first, last):
                if isinstance(state, Accepted | Rejected):
                    self._part.accept(self.holdings.tags(low, high), write_state(state))
                self._deciding += high - low + 1
                number = self._when_durable(now, self._decided, low, high, state)
            self._give_credit()
        return number

    def taken(self, count: int) -> None:
        """The application took so many settled deliveries, which want no verdict: credit for as many others."""
        self._window.outstanding -= count
        self._give_credit()

    def drain(self) -> None:
        """Have the router send what it holds for us, as far as credit goes: `Drained` comes after the last of it.

        Waits for an attachment, and for credit where all of it is outstanding.
        """
        self._window.drain_wanted = True
        self._give_credit()

    def _decided(self, now: float, first: int, last: int, state: Outcome) -> None:
        self._deciding -= last - first + 1
        for low, high in self.holdings.not_settled(first, last):
            self.holdings.decide(low, high, state)
            if self.state is ON:
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
            # mode first: settled by the one who accepts; at least once
            for low, high, _ in told:
                self._forget(low, high)

    # -- what comes

    def transfers(
        self, link: Link, first_id: int, tags: list[bytes], payloads: list[bytes], settled: bool, message_format: int
    ) -> None:
        if link is not self.link or self.state not in (ON, DETACHING):
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
        """A run in which tags are held already: those are not handed on, but answered as they were before."""
        for delivery_id, (tag, payload) in enumerate(zip(tags, payloads, strict=True), first_id):
            position = self.holdings.positions.get(tag)
            if position is not None and _again(self.holdings.verdicts.get(position)):
                # what was released comes again as new; that the old one is settled may be said a frame later
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
        if link is not self.link or self.state not in (ON, DETACHING):
            return
        if resume:
            self._window.resuming = max(0, self._window.resuming - 1)
        position = self.holdings.positions.get(tag)
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
            self._ids.add_again(delivery_id, position)
            self._answer(position)
        self._finish_partial()

    def _supply(self, position: int, tag: bytes, payload: bytes, message_format: int) -> None:
        """The payload of a delivery that was known without it."""
        if position in self.holdings.wanted:
            del self.holdings.wanted[position]
            self._window.outstanding += 1
            self.events.append(Arrived(position, [tag], [payload], False, message_format))

    def _answer(self, position: int) -> None:
        """A delivery with a verdict came again: the verdict again (PROTOCOL 15)."""
        verdict = self.holdings.verdict(position)
        if verdict is not None:
            self._dispose(position, position, verdict)

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
        gone = self.holdings.settle(first, last)
        if gone:
            self._part.settle(gone)

    def _forget(self, first: int, last: int) -> None:
        """Positions first .. last are settled by us."""
        self._ids.forget(first, last)
        gone = self.holdings.forget(first, last)
        if gone:
            self._part.settle(gone)

    # -- credit

    def _give_credit(self) -> None:
        link = self.link
        if self.state is ON and self._granting and isinstance(link, ReceiverLink):
            self._window.grant(link)

    def flowed(self, link: Link, now: float) -> None:
        """The router has told its side of the credit."""
        if link is self.link and isinstance(link, ReceiverLink):
            empty = self._window.drained(link)
            if empty is not None:
                self.events.append(Drained(empty))

    def pump(self, now: float) -> None:
        # Only here, when all that came has been counted: the engine has taken whole reads off the credit already.
        self._give_credit()

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
        return self.holdings.unsettled_map()

    def _answered(self, link: Link, answer: Attach, now: float) -> None:
        assert answer.source is not None
        # a timeout of 0 is what a peer says that knows nothing of waiting
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
            # They were not in the map, so that the answer does not say which of them are settled: ask again with them.
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
        for first, last in ranges_of([held[tag] for tag in tags]):
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
        if not self._partial or self._window.resuming or self.state is not ON:
            return
        held = self.holdings.positions
        left = [held[tag] for tag in self._listed if tag in held]
        if left and not any(self._listed.values()):
            return
        if not all(self.holdings.has_verdict(position) for position in left):
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
        self._ids = DeliveryIds()
        self._window.lost()
        self._granting = False
        self._partial = False
        self._listed = {}

    def _expired(self, reason: str, now: float) -> None:
        """Away for longer than the network waits: what was published meanwhile may be missing."""
        self.contact.forget()
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


def _mark(mark: Any) -> tuple[int, str]:
    if isinstance(mark, list | tuple) and mark:
        return int(mark[0]), str(mark[1]) if len(mark) > 1 else ""
    return (int(mark), "") if isinstance(mark, int) else (0, str(mark))
