"""What a recovering publisher and a recovering subscriber have in common: attaching, again and again (protocol 15).

A link of the client outlives connections.  Each attachment has an epoch above all earlier ones, durable before the
attach that carries it is sent.  The attach presents what is unsettled, in several parts where that exceeds a frame.
An attachment ends when it is refused, stolen or detached, or with its connection; this module decides whether and when
the link attaches again.  What the unsettled map means is up to `publishing` and `subscribing`; how long the network
waits for a link is in `contact`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, Literal

from amqp10 import errors as conditions
from amqp10.link import Link
from amqp10.outcomes import DeliveryState, Error
from amqp10.performatives import Attach
from amqp10.session import Session
from amqp10.termini import Source, Target
from amqp10.types import ULong
from onceway.client.journal import Journal, PublisherRecord, SubscriberRecord
from onceway.client.protocol.contact import Contact, backoff_s
from onceway.client.protocol.events import Attached, Detached, Failed, LinkEvent, Lost
from onceway.client.protocol.guarantees import MODES, less, offered
from onceway.errors import LinkRefused, LinkStolen, OncewayError
from router.names import EPOCH, STOLEN, SUBSCRIPTION_EXISTS, SUBSCRIPTION_REMOVED, SUBSCRIPTION_UNDECLARED, Guarantee

LONGEST = 0xFFFFFFFF  # a terminus timeout in s (AMQP 3.5.3): as long as the address allows
LATER_US = 1 << 20  # how far above a refused epoch the next one may be: about 1 s of clock
MOST_REFUSALS: Final = 4  # attaches in succession: routers that were apart may each know another earlier life of ours
ESTABLISHED_S = 5.0  # a link that is stolen after so long was not merely refused late (protocol 5.3, 5.6)

# Trying again gives the same answer.
_FINAL = frozenset(
    {
        conditions.NOT_FOUND,
        conditions.UNAUTHORIZED_ACCESS,
        conditions.NOT_ALLOWED,
        conditions.NOT_IMPLEMENTED,
        conditions.INVALID_FIELD,
        conditions.DECODE_ERROR,
        conditions.PRECONDITION_FAILED,
        conditions.MESSAGE_SIZE_EXCEEDED,
        SUBSCRIPTION_EXISTS,
        SUBSCRIPTION_REMOVED,
        SUBSCRIPTION_UNDECLARED,
    }
)

DETACHED: Final = "detached"  # no attachment: waits for a session, or until it is time to try again
JOURNALLING: Final = "journalling"  # the epoch of the next attach is being made durable
ATTACHING: Final = "attaching"  # the attach was sent
ATTACHED: Final = "attached"
DETACHING: Final = "detaching"  # our detach was sent
CLOSED: Final = "closed"  # for good: nothing is tried again


class ClientLink(ABC):
    """Base of PublisherLink and SubscriberLink.  The owner takes `events` after every call."""

    role: Literal["publisher", "subscriber"]
    unknown_absence_s = 0.0  # how long an absence was if the wall clock was set back

    def __init__(
        self,
        address: str,
        name: str,
        record: PublisherRecord | SubscriberRecord,
        *,
        guarantee: Guarantee,
        journal: Journal,
        wall_us: Callable[[], int],
        rng: Random,
    ) -> None:
        self.address = address
        self.name = name
        self.guarantee: Guarantee = guarantee
        self.state = DETACHED
        self.events: list[LinkEvent] = []
        self.resumed = False
        self.link: Link | None = None
        self.contact = Contact(
            record.contact_us, record.timeout_s, wall_us=wall_us, unknown_absence_s=self.unknown_absence_s
        )
        self._journal = journal
        self._wall_us = wall_us
        self._rng = rng
        self._session: Session | None = None
        self._epoch = record.epoch
        self._sent_epoch = record.epoch  # of the last attach
        self._refused_epoch = 0
        self._refusals = 0  # attaches in succession that were refused as stolen
        self._attached_at = 0.0
        self._failures = 0
        self._retry_at: float | None = None
        self._map_parts: list[dict[bytes, DeliveryState | None]] = []  # of the map, still to be sent
        self._attach_sent_at = 0.0  # when the last attach was sent
        self._until_durable: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._leaving: bool | None = None  # close (True) or detach (False) has been asked for

    # -- what the owner calls

    def connect(self, session: Session, now: float) -> None:
        """Attaches on this session of a new connection."""
        if self.state is CLOSED:
            return
        assert self.state is DETACHED, self.state
        self._session = session
        self._retry_at = None
        self._begin(now)

    def disconnect(self, reason: str) -> None:
        """The session or connection is gone."""
        if self.state is CLOSED:
            return
        self._session = None
        self._retry_at = None
        self._lose_attachment(reason)
        if self._leaving is not None:
            # A detach or close that the network has not seen has the same effect as not coming back.
            self._end(Detached(self._leaving))

    @property
    def needs_session(self) -> bool:
        """Whether it waits for a session."""
        return self.state is DETACHED and self._session is None

    def uses(self, session: Session) -> bool:
        return self._session is session

    def take_session(self) -> Session | None:
        session, self._session = self._session, None
        return session

    def durable(self, now: float) -> None:
        """Continues what has waited for the journal."""
        waiting, reached = self._until_durable, self._journal.durable
        while waiting and waiting[0][0] <= reached:
            _, then, arguments = waiting.popleft()
            then(now, *arguments)

    def fail(self, error: OncewayError) -> None:
        """Ends the link with an error: the journal has failed, or the connection is closed."""
        if self.state is not CLOSED:
            self._end(Failed(error))

    def leave(self, closed: bool, now: float) -> None:
        """Detaches, for good if `closed`.  A `Detached` event says when it is done."""
        if self.state is CLOSED:
            return
        self._leaving = closed
        if closed:
            self._forget_link()
            self._journal.sync()
        if self.state is ATTACHED:
            self._leave_if_told()
        elif self.state is DETACHED or self.state is JOURNALLING:
            self._end(Detached(closed))
        # attaching: the answer decides; detaching: it is under way

    def _leave_if_told(self) -> None:
        if self._leaving is not None and self.state is ATTACHED and not self._untold():
            assert self.link is not None
            self.state = DETACHING
            self.link.detach(closed=self._leaving)

    def _untold(self, answer: Attach | None = None) -> bool:
        """Whether the router still has to hear outcomes before the link may leave; by this answer to the attach, or by
        what has come since."""
        return False

    def next_deadline(self) -> float | None:
        if self._retry_at is not None:
            return self._retry_at
        return self.contact.ask_at if self.state is ATTACHED else None

    def handle_timer(self, now: float) -> None:
        if self._retry_at is not None and now >= self._retry_at and self._session is not None:
            self._retry_at = None
            self._begin(now)

    def asks(self, now: float) -> bool:
        """Whether it is time to ask the router."""
        return self.state is ATTACHED and self.contact.asks(now)

    def answered(self, asked_at: float, now: float) -> None:
        """The router has answered the question of asked_at, and has not detached this link before that."""
        if self.state is not ATTACHED or not self.contact.answered(asked_at):
            return
        if now - self._attached_at > ESTABLISHED_S:
            self._refusals = 0
        if self.contact.to_be_noted(now):
            self._note_contact(now)
            self._journal.sync()

    def take_events(self) -> list[LinkEvent]:
        events, self.events = self.events, []
        return events

    # -- attaching

    def _begin(self, now: float) -> None:
        assert self._session is not None
        if self._session.ended:
            return
        self._check_absence(now)
        # protocol 15: epoch = max(clock in us, last + 1, refused epoch + 1), durable before the attach is sent
        self._epoch = max(self._wall_us(), self._epoch + 1, self._refused_epoch + 1)
        self.state = JOURNALLING
        self._prepare(self._epoch)
        self._when_durable(now, self._attach, self._epoch, self._session)

    def _attach(self, now: float, epoch: int, session: Session) -> None:
        if self.state is not JOURNALLING or session is not self._session or session.ended or epoch != self._epoch:
            return  # the session was lost meanwhile
        self.state = ATTACHING
        self._attach_sent_at = now
        self._sent_epoch = epoch
        # Everything written before the epoch is durable by now: the map has no publication that is being forgotten.
        unsettled = self._map()
        link = self._new_link(session)
        if unsettled:
            self._map_parts = link.split_unsettled(unsettled, **self._arguments())
            self._attach_part(link)
        else:
            self._map_parts = []
            link.attach(unsettled=unsettled, **self._arguments())

    def _new_link(self, session: Session) -> Link:
        link: Link = session.sender(self.name) if self.role == "publisher" else session.receiver(self.name)
        link.context = self
        self.link = link
        return link

    def _attach_part(self, link: Link) -> None:
        # protocol 7.7: the parts share an epoch; each but the last says incomplete-unsettled, is answered and detached
        part = self._map_parts.pop(0)
        link.attach(unsettled=part, incomplete_unsettled=bool(self._map_parts), **self._arguments())

    def _arguments(self) -> dict[str, Any]:
        sending, receiving = MODES[self.guarantee]
        source, target = self._termini()
        return {
            "source": source,
            "target": target,
            "properties": {EPOCH: ULong(self._epoch), **self._identity()},
            "snd_settle_mode": sending,
            "rcv_settle_mode": receiving,
        }

    # -- what the engine says

    def attached(self, link: Link, now: float) -> None:
        if link is not self.link or self.state is not ATTACHING:
            return
        answer = link.remote_attach
        assert answer is not None
        if self._terminus(answer) is None:
            return  # refused: the detach that follows says why
        if self._map_parts:
            return  # a part: its detach follows
        self._retry_at = None
        guarantee = offered(link, answer)
        if less(guarantee, self.guarantee):
            lacking = f"asked for {self.guarantee}, the network offers {guarantee}"
        else:
            lacking = self._lacking(answer)
        if lacking:
            link.detach(closed=True)
            self._end(Failed(LinkRefused(f"{self.address}: {lacking}", conditions.NOT_IMPLEMENTED)))
            return
        if self._leaving is not None and not self._untold(answer):
            self.state = DETACHING
            link.detach(closed=self._leaving)
            return
        if self._late(link, now):
            return
        self.state = ATTACHED
        self._attached_at = now
        self._failures = 0
        self.contact.attached()
        known = self._known_by_answer()
        if known:
            self.contact.heard(self._attach_sent_at)
        self._answered(link, answer, now)
        self._note_contact(now)
        if known:
            self.contact.known(now, self.contact.next_question(now))
        self.events.append(Attached(self.resumed, guarantee, self.contact.timeout_s))
        self.pump(now)

    def detached(self, link: Link, closed: bool, error: Error | None, local: bool, now: float) -> None:
        if link is not self.link:
            return
        if self.state is DETACHING:
            leaving = self._leaving
            if leaving is not None:
                self._end(Detached(leaving))
                return
        elif self.state is ATTACHING and error is None and self._map_parts and not local:
            assert self._session is not None
            if not self._session.ended:
                self._attach_part(self._new_link(self._session))
            return
        if self.state is CLOSED:
            return
        was = self.state
        worked = was is ATTACHED and (self._proved() or now - self._attached_at > ESTABLISHED_S)
        condition = "" if error is None else str(error.condition)
        description = "" if error is None else (error.description or "")
        reason = " ".join(filter(None, (condition, description))) or "detached by the router"
        self._lose_attachment(reason)
        if self._leaving is not None:
            self._end(Detached(self._leaving))
        elif condition == STOLEN:
            self._stolen(error, worked, now)
        elif self._broken(condition, reason, now):
            self._begin(now)
        elif condition in _FINAL:
            self._end(
                Failed(LinkRefused(f"{self.role} {self.name} of {self.address}: {reason}", condition, _info(error)))
            )
        elif was is DETACHING:
            self._begin(now)  # our own detach, to attach again at once (protocol 7.7)
        else:
            self._retry_at = now + backoff_s(self._failures, self._rng)
            self._failures += 1

    def _stolen(self, error: Error | None, while_attached: bool, now: float) -> None:
        known = _info(error).get(EPOCH)
        if isinstance(known, list | tuple) and known:
            known = known[0]
        if isinstance(known, int):
            # Two processes without journal may be refused for the same epoch by routers that are partitioned.  If both
            # took the next epoch, they would share an incarnation, and their tags would count as each other's repeats.
            self._refused_epoch = max(self._refused_epoch, known + self._rng.randrange(LATER_US))
        # The network has seen a later epoch.  That may have been an earlier process of ours with a faster clock, so the
        # link attaches again.  If it had worked, or is refused again and again, another process is alive under our
        # name, and the two would take the link from each other for ever.
        if while_attached or self._refusals == MOST_REFUSALS:
            self._end(
                Failed(
                    LinkStolen(
                        f"{self.role} {self.name} of {self.address} was taken over by another process with the same "
                        "container-id and link name; stop one of them or give it another name",
                        STOLEN,
                        _info(error),
                    )
                )
            )
            return
        self._refusals += 1
        self._overtaken()
        self._begin(now)

    # -- helpers

    def check_invariants(self) -> None:
        """Raises AssertionError where the state is impossible between two inputs (for simulations and tests)."""
        attached = self.state in (ATTACHED, DETACHING)
        assert not attached or (self.link is not None and self._session is not None), f"{self.state} without a link"
        if self.state is JOURNALLING:
            assert self._epoch > self._sent_epoch, f"the epoch {self._epoch} does not grow"
        numbers = [number for number, _, _ in self._until_durable]
        assert numbers == sorted(numbers), "the journal's writes are not awaited in their order"

    def _when_durable(self, now: float, then: Callable[..., None], *arguments: Any) -> int:
        number = self._journal.sync()
        if not self._until_durable and number <= self._journal.durable:
            then(now, *arguments)
        else:
            self._until_durable.append((number, then, arguments))
        return number

    def _lose_attachment(self, reason: str) -> None:
        was_attached = self.state is ATTACHED
        self.state = DETACHED
        self.link = None
        self._map_parts = []
        self._void_attachment()
        if was_attached:
            self.events.append(Lost(reason))

    def _end(self, event: LinkEvent) -> None:
        self.state = CLOSED
        self.link = None
        self._retry_at = None
        self._map_parts = []
        self.events.append(event)

    def _note_contact(self, now: float) -> None:
        self._write_contact(self.contact.note(now), self.contact.timeout_s)

    def _late(self, link: Link, now: float) -> bool:
        """Whether the network may have forgotten us while we attached; if so, detaches in order to attach anew."""
        overdue = self.contact.overdue(now)
        if overdue is None or not self._answered_late(overdue, now):
            return False
        self.state = DETACHING
        link.detach(closed=False)
        return True

    def _check_absence(self, now: float) -> None:
        overdue = self.contact.overdue(now)
        if overdue is not None:
            self._expired(overdue, now)
        else:
            self.contact.resume(now)

    # -- what the two kinds differ in

    @abstractmethod
    def pump(self, now: float) -> None:
        """Sends what can be sent now."""

    @abstractmethod
    def _prepare(self, epoch: int) -> None:
        """Writes epoch and identity to the journal."""

    @abstractmethod
    def _identity(self) -> dict[str, Any]: ...

    @abstractmethod
    def _termini(self) -> tuple[Source, Target]: ...

    @abstractmethod
    def _terminus(self, answer: Attach) -> Source | Target | None:
        """The peer's terminus in the answer; None if it refuses."""

    def _lacking(self, answer: Attach) -> str:
        """What was asked for and not given; empty: nothing."""
        return ""

    @abstractmethod
    def _map(self) -> Mapping[bytes, DeliveryState | None] | None: ...

    @abstractmethod
    def _answered(self, link: Link, answer: Attach, now: float) -> None: ...

    @abstractmethod
    def _answered_late(self, reason: str, now: float) -> bool:
        """The network may have forgotten us before it read the attach.  Returns whether to attach anew."""

    @abstractmethod
    def _known_by_answer(self) -> bool:
        """Whether the answer to the attach proves that the whole network knows of us."""

    @abstractmethod
    def _void_attachment(self) -> None:
        """Clears what belonged to the attachment."""

    @abstractmethod
    def _expired(self, reason: str, now: float) -> None: ...

    @abstractmethod
    def _broken(self, condition: str, reason: str, now: float) -> bool:
        """Handles a detach that says that the network has forgotten us.  Returns whether it was one."""

    @abstractmethod
    def _overtaken(self) -> None:
        """The network knows a later epoch; the next attach has one above it."""

    @abstractmethod
    def _proved(self) -> bool:
        """Whether the network has worked with this attachment, and so has accepted our epoch."""

    @abstractmethod
    def _write_contact(self, wall_us: int, timeout_s: float) -> None: ...

    @abstractmethod
    def _forget_link(self) -> None: ...


def _info(error: Error | None) -> Mapping[Any, Any]:
    return {} if error is None or error.info is None else error.info
