"""What a recovering publisher and a recovering subscriber have in common: attaching, again and again.

A link of the client outlives connections.  Each attachment has an epoch above all earlier ones, made durable before
the attach that carries it is sent (PROTOCOL 15); presents what is unsettled, in several attaches where that exceeds a
frame (7.7); and may end by being refused, stolen, detached, or with its connection.  This file knows which of these
are tried again and when.  It does not know what a map means: `publishing` and `subscribing` do; nor what is to be
known of a link's absence: `contact` does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Literal

from amqp10 import errors as conditions
from amqp10.link import Link
from amqp10.outcomes import DeliveryState, Error
from amqp10.performatives import Attach
from amqp10.session import Session
from amqp10.termini import Source, Target
from amqp10.types import ULong
from onceway.client.journal import Journal, PublisherRecord, SubscriberRecord
from onceway.client.protocol.backoff import backoff_s
from onceway.client.protocol.contact import Contact
from onceway.client.protocol.events import Attached, Detached, Failed, LinkEvent, Lost
from onceway.client.protocol.guarantees import MODES, less, offered
from onceway.errors import LinkRefused, LinkStolen, OncewayError
from router.config import Guarantee
from router.identity import EPOCH

LONGEST = 0xFFFFFFFF  # a terminus timeout, s (3.5.3): as long as the address allows
LATER_US = 1 << 20  # how far above a refused epoch the next one may be: about 1 s of clock
SETTLED_IN_S = 5.0  # attached for this long, a link that is stolen was not merely refused late (PROTOCOL 5.3, 5.6)

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
    }
)

AWAY, JOURNALLING, ATTACHING, ON, DETACHING, OVER = "away", "journalling", "attaching", "on", "detaching", "over"


class ClientLink(ABC):
    """Base of PublisherLink and SubscriberLink.  `events` is taken by the owner after every call."""

    role: Literal["publisher", "subscriber"]
    unknown_absence_s = 0.0  # what is assumed where the clock does not say

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
        self.state = AWAY
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
        self._refused_epoch = 0
        self._refusals = 0  # stolen at the attach, since the network last worked with this link
        self._on_at = 0.0
        self._failures = 0
        self._retry_at: float | None = None
        self._parts: list[dict[bytes, DeliveryState | None]] = []  # of the map, still to be sent
        self._attach_at = 0.0  # when the last attach was sent
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._leaving: bool | None = None  # close (True) or detach (False) has been asked for

    # -- what the owner calls

    def connect(self, session: Session, now: float) -> None:
        """A connection is up: attach on this session of it."""
        if self.state is OVER:
            return
        assert self.state is AWAY, self.state
        self._session = session
        self._retry_at = None
        self._begin(now)

    def disconnect(self, reason: str) -> None:
        """The session or connection is gone."""
        if self.state is OVER:
            return
        self._session = None
        self._retry_at = None
        self._away(reason)
        if self._leaving is not None:
            # A detach or close that the network has not seen has the same effect as not coming back.
            self._over(Detached(self._leaving))

    @property
    def away(self) -> bool:
        """It waits for a connection."""
        return self.state is AWAY and self._session is None

    def uses(self, session: Session) -> bool:
        return self._session is session

    def take_session(self) -> Session | None:
        session, self._session = self._session, None
        return session

    def durable(self, now: float) -> None:
        """The journal has got further."""
        waiting, reached = self._waiting, self._journal.durable
        while waiting and waiting[0][0] <= reached:
            _, then, arguments = waiting.popleft()
            then(now, *arguments)

    def fail(self, error: OncewayError) -> None:
        """Nothing more can be done with this link (the journal has failed, the connection is closed)."""
        if self.state is not OVER:
            self._over(Failed(error))

    def leave(self, closed: bool, now: float) -> None:
        """Detach; closed: for good.  `Detached` comes when it is done."""
        if self.state is OVER:
            return
        self._leaving = closed
        if closed:
            self._forget_link()
            self._journal.sync()
        if self.state is ON:
            assert self.link is not None
            self.state = DETACHING
            self.link.detach(closed=closed)
        elif self.state is AWAY or self.state is JOURNALLING:
            self._over(Detached(closed))
        # attaching: the answer decides; detaching: it is under way

    def next_deadline(self) -> float | None:
        if self._retry_at is not None:
            return self._retry_at
        return self.contact.ask_at if self.state is ON else None

    def handle_timer(self, now: float) -> None:
        if self._retry_at is not None and now >= self._retry_at and self._session is not None:
            self._retry_at = None
            self._begin(now)

    def asks(self, now: float) -> bool:
        """Whether the router is to be asked now if it is there."""
        return self.state is ON and self.contact.asks(now)

    def answered(self, asked_at: float, now: float) -> None:
        """The router has answered what it was asked at asked_at, and has not taken this link away before."""
        if self.state is not ON or not self.contact.answered(asked_at):
            return
        if now - self._on_at > SETTLED_IN_S:
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
        # PROTOCOL 15: epoch = max(clock in us, last + 1, refused epoch + 1), durable before the attach is sent
        self._epoch = max(self._wall_us(), self._epoch + 1, self._refused_epoch + 1)
        self.state = JOURNALLING
        self._prepare(self._epoch)
        self._when_durable(now, self._attach, self._epoch, self._session)

    def _attach(self, now: float, epoch: int, session: Session) -> None:
        if self.state is not JOURNALLING or session is not self._session or session.ended or epoch != self._epoch:
            return  # overtaken by a loss
        self.state = ATTACHING
        self._attach_at = now
        # Everything journalled before the epoch is durable by now, so the map holds nothing on its way to be
        # forgotten: what a publisher was told is not in it any more.
        unsettled = self._map()
        link = self._new_link(session)
        if unsettled:
            self._parts = link.split_unsettled(unsettled, **self._arguments())
            self._attach_part(link)
        else:
            self._parts = []
            link.attach(unsettled=unsettled, **self._arguments())

    def _new_link(self, session: Session) -> Link:
        link: Link = session.sender(self.name) if self.role == "publisher" else session.receiver(self.name)
        link.context = self
        self.link = link
        return link

    def _attach_part(self, link: Link) -> None:
        # 7.7: parts are attaches with incomplete-unsettled and one epoch, each answered and detached at once
        part = self._parts.pop(0)
        link.attach(unsettled=part, incomplete_unsettled=bool(self._parts), **self._arguments())

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
        if self._parts:
            return  # a part: its detach follows
        self._retry_at = None
        guarantee = offered(link, answer)
        if less(guarantee, self.guarantee):
            link.detach(closed=True)
            self._over(
                Failed(
                    LinkRefused(
                        f"{self.address}: asked for {self.guarantee}, the network offers {guarantee}",
                        conditions.NOT_IMPLEMENTED,
                    )
                )
            )
            return
        if self._leaving is not None:
            self.state = DETACHING
            link.detach(closed=self._leaving)
            return
        if self._late(link, now):
            return
        self.state = ON
        self._on_at = now
        self._failures = 0
        self.contact.attached()
        known = self._known_by_answer()
        if known:
            self.contact.heard(self._attach_at)
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
                self._over(Detached(leaving))
                return
        elif self.state is ATTACHING and error is None and self._parts and not local:
            assert self._session is not None
            if not self._session.ended:
                self._attach_part(self._new_link(self._session))
            return
        if self.state is OVER:
            return
        was = self.state
        worked = was is ON and (self._proved() or now - self._on_at > SETTLED_IN_S)
        condition = "" if error is None else str(error.condition)
        description = "" if error is None else (error.description or "")
        reason = " ".join(filter(None, (condition, description))) or "detached by the router"
        self._away(reason)
        if self._leaving is not None:
            self._over(Detached(self._leaving))
        elif condition == conditions.STOLEN:
            self._stolen(error, worked, now)
        elif self._broken(condition, reason, now):
            self._begin(now)
        elif condition in _FINAL:
            self._over(
                Failed(LinkRefused(f"{self.role} {self.name} of {self.address}: {reason}", condition, _info(error)))
            )
        elif was is DETACHING:
            self._begin(now)  # our own detach, to attach again at once (7.7)
        else:
            self._retry_at = now + backoff_s(self._failures, self._rng)
            self._failures += 1

    def _stolen(self, error: Error | None, while_attached: bool, now: float) -> None:
        known = _info(error).get(EPOCH)
        if isinstance(known, list | tuple) and known:
            known = known[0]
        if isinstance(known, int):
            # Two lives without memory may be refused for the same epoch by routers that are apart.  Going on from it
            # with the same one they would share an incarnation, and their tags would be each other's repeats.
            self._refused_epoch = max(self._refused_epoch, known + self._rng.randrange(LATER_US))
        # Refused, the network has seen a later epoch than ours: one more attach settles whether that was an older
        # life of ours with a faster clock.  Taken away from a link that worked, or refused again: somebody else is
        # alive under our name, and taking it back would go on for ever.
        if while_attached or self._refusals:
            self._over(
                Failed(
                    LinkStolen(
                        f"{self.role} {self.name} of {self.address} was taken over by another process with the same "
                        "container-id and link name; stop one of them or give it another name",
                        conditions.STOLEN,
                        _info(error),
                    )
                )
            )
            return
        self._refusals += 1
        self._overtaken()
        self._begin(now)

    # -- helpers

    def _when_durable(self, now: float, then: Callable[..., None], *arguments: Any) -> int:
        number = self._journal.sync()
        if not self._waiting and number <= self._journal.durable:
            then(now, *arguments)
        else:
            self._waiting.append((number, then, arguments))
        return number

    def _away(self, reason: str) -> None:
        was_on = self.state is ON
        self.state = AWAY
        self.link = None
        self._parts = []
        self._lost()
        if was_on:
            self.events.append(Lost(reason))

    def _over(self, event: LinkEvent) -> None:
        self.state = OVER
        self.link = None
        self._retry_at = None
        self._parts = []
        self.events.append(event)

    def _note_contact(self, now: float) -> None:
        self._write_contact(self.contact.note(now), self.contact.timeout_s)

    def _late(self, link: Link, now: float) -> bool:
        """The network may have forgotten us while we were attaching: detached, to be attached anew."""
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
        """Send what can be sent now."""

    @abstractmethod
    def _prepare(self, epoch: int) -> None:
        """Write epoch and identity to the journal."""

    @abstractmethod
    def _identity(self) -> dict[str, Any]: ...

    @abstractmethod
    def _termini(self) -> tuple[Source, Target]: ...

    @abstractmethod
    def _terminus(self, answer: Attach) -> Source | Target | None:
        """The peer's side of the answer: null where it refuses."""

    @abstractmethod
    def _map(self) -> Mapping[bytes, DeliveryState | None] | None: ...

    @abstractmethod
    def _answered(self, link: Link, answer: Attach, now: float) -> None: ...

    @abstractmethod
    def _answered_late(self, reason: str, now: float) -> bool:
        """The network knew us when we attached; perhaps no more when it read that.  Whether to attach anew."""

    @abstractmethod
    def _known_by_answer(self) -> bool:
        """Whether who answers the attach has told the whole network of us."""

    @abstractmethod
    def _lost(self) -> None:
        """Whatever was tied to the attachment is void."""

    @abstractmethod
    def _expired(self, reason: str, now: float) -> None: ...

    @abstractmethod
    def _broken(self, condition: str, reason: str, now: float) -> bool:
        """A detach that says the network does not know us any more: handled, and to be attached anew."""

    @abstractmethod
    def _overtaken(self) -> None:
        """The network knows a later epoch; the next attach is made above it."""

    @abstractmethod
    def _proved(self) -> bool:
        """The network has worked with this attachment, so it did take our epoch."""

    @abstractmethod
    def _write_contact(self, wall_us: int, timeout_s: float) -> None: ...

    @abstractmethod
    def _forget_link(self) -> None: ...


def _info(error: Error | None) -> Mapping[Any, Any]:
    return {} if error is None or error.info is None else error.info
