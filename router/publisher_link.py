"""A publisher's link between the engine and the core: attach, credit, proof, transfers in, outcomes out.

The engine's events come in through `on_*`, the core's wishes through the methods of `PublisherPort`.  Decides nothing
about deliveries; what it adds is AMQP: the answering attach, credit from windows (`router.credit`), evidence that the
publisher is there (`router.proof`), the publisher's name in each message (contract 8).  Once `gone`, both sides may
still speak of it and nothing happens.  Read `router.subscriber_link` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from amqp10.errors import RESOURCE_LIMIT_EXCEEDED, DecodeError
from amqp10.events import Dispositions, LinkFlow, ResumedTransfer, Transfers
from amqp10.outcomes import ACCEPTED, RELEASED, DeliveryState, Error, Rejected
from amqp10.performatives import RCV_SECOND
from amqp10.receiver import ReceiverLink
from amqp10.sections import with_message_annotations
from amqp10.types import Symbol, UInt
from router import identity
from router.credit import Credit
from router.limits import MEMORY
from router.negotiation import Modes, answer_target
from router.ports import NOT_RESUMABLE, Outcome, PublisherAttach, Term
from router.proof import Proof

if TYPE_CHECKING:
    from router.client_connection import ClientConnection

_STATES: dict[Outcome, DeliveryState] = {Outcome.ACCEPTED: ACCEPTED, Outcome.RELEASED: RELEASED}


class PublisherLink:
    """One attached (or attaching) publisher: the core's PublisherPort."""

    __slots__ = (
        "_asked",
        "_modes",
        "_publisher",
        "attach",
        "connection",
        "credit",
        "gone",
        "link",
        "proof",
        "proved",
        "withheld",
    )

    def __init__(self, connection: ClientConnection, link: ReceiverLink, attach: PublisherAttach, modes: Modes) -> None:
        self.connection = connection
        self.link = link
        self.attach = attach
        self.credit = Credit(link.delivery_count)
        self.proof = Proof()
        self.proved = False
        self.withheld = True  # no credit: not answered yet, or 5.1 says so
        self.gone = False
        self._asked = False  # the open proof is the answer to a question (5.7), not the first sign of life
        self._modes = modes
        self._publisher = identity.publisher_annotation(attach.container, attach.name)

    # --- PublisherPort: what the core says

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        remote = self.link.remote_attach
        assert remote is not None
        answered = self.connection.attach(
            self.link,
            source=remote.source,
            target=answer_target(remote, self.connection.config),
            unsettled={},
            properties=identity.properties(guarantee=self._modes.guarantee, term=term, incarnation=incarnation),
            snd_settle_mode=self._modes.snd,
            rcv_settle_mode=self._modes.rcv,
            max_message_size=self.connection.connection.settings.max_message_size,
        )
        if not answered:
            return
        # PROTOCOL 5.1: with or without credit, an echo; who answers it has read our attach
        before = self.link.delivery_count
        self.proof.start(self.connection.now, threshold=before, seen=(before,))
        self.link.grant(0, echo=True)
        self.withheld = not credit
        self.connection.watch(self)
        self.connection.credit_changed(self)

    def ready(self) -> None:
        self.withheld = False
        self.connection.credit_changed(self)

    def set_window(self, messages: int, size: int, reason: str) -> None:
        self.credit.window(messages, size)
        self.connection.credit_changed(self)

    def ask(self) -> None:
        if self.link.detached:
            return
        credit = self.credit
        threshold, seen = credit.peak, credit.granted
        more = credit.ask(self.link.delivery_count)
        self.proof.start(self.connection.now, threshold=threshold, seen=seen)
        self.proof.granted(credit.limit)
        self._asked = True
        self.link.grant(more, echo=True)
        self.connection.watch(self)
        self.connection.touch()

    def outcome(self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool) -> None:
        if self.link.detached:
            return
        if outcome is Outcome.REJECTED:
            state = Rejected(
                Error(
                    Symbol(identity.REJECTED),
                    f"rejected by {rejected} subscription{'s' if rejected != 1 else ''}",
                    {Symbol(identity.REJECTED): UInt(rejected)},
                )
            )
            self.link.dispose(first_id, last_id, state, settled)
        else:
            self.link.dispose(first_id, last_id, _STATES[outcome], settled)
        self.proof.outcome(first_id, last_id)
        self.connection.touch()

    def part(self) -> None:
        remote = self.link.remote_attach
        assert remote is not None
        self._leave()
        self.connection.answer_part(
            self.link,
            source=remote.source,
            target=answer_target(remote, self.connection.config),
            unsettled={},
            properties=identity.properties(guarantee=self._modes.guarantee),
            snd_settle_mode=self._modes.snd,
            rcv_settle_mode=self._modes.rcv,
        )

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self._leave()
        self.connection.refuse(self.link, condition, description, info)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self._leave()
        self.connection.detach(self.link, condition, description, info, closed)

    # --- the engine's events

    def on_transfers(self, event: Transfers, now: float) -> None:
        tags, payloads = event.tags, event.payloads
        self.credit.sizes.observe(payloads)
        self._evidence(self.proof.open and self.proof.transfer(self.link.delivery_count), now)
        if self.gone:
            return
        router = self.connection.router
        if router.overfull:
            # PROTOCOL 6.8: windows and credit were taken back at the limit; who brings twice that must come again
            router.admission.exceeded(MEMORY)
            text = f"limit memory_limit: this router holds twice its {router.config.memory_limit} octets of payload"
            self.give_up(RESOURCE_LIMIT_EXCEEDED, text, now)
            return
        error = None
        if not event.message_format:
            try:
                payloads = with_message_annotations(payloads, identity.PUBLISHER_ANNOTATION, self._publisher)
            except DecodeError:
                payloads, error = self._readable(payloads)
                tags = tags[: len(payloads)]
        if tags:
            self.connection.core.transfers(
                self, event.first_id, tags, payloads, event.settled, event.message_format or 0, now
            )
        if error is not None and not self.gone:
            tag = event.tags[len(tags)].hex()
            self.give_up(error.condition, f"delivery {tag} is no message: {error}", now)

    def on_resumed_transfer(self, event: ResumedTransfer, now: float) -> None:
        self._evidence(self.proof.open and self.proof.transfer(self.link.delivery_count), now)
        if self.gone:
            return
        self.connection.credit_changed(self)  # it used one, and may be no message that changes the window
        if event.aborted:
            return
        if event.resume and event.settled:
            # PROTOCOL 6.6: an expected tag that will not come again
            self.connection.core.publisher_settled_tag(self, event.tag, now)
            self._echo_settled(event.delivery_id, event.delivery_id)
        elif event.payload is not None:
            # our answering map was empty, so this is an ordinary repeat, known by its tag at the egresses (15)
            self.on_transfers(
                Transfers(
                    self.link, event.delivery_id, [event.tag], [event.payload], event.settled, event.message_format
                ),
                now,
            )
        else:
            description = f"delivery {event.tag.hex()} is resumed without payload, but our unsettled map was empty"
            self.give_up(NOT_RESUMABLE, description, now)

    def on_flow(self, event: LinkFlow, now: float) -> None:
        proof = self.proof
        self._evidence(proof.open and proof.flow(event.flow.delivery_count, event.flow.link_credit), now)

    def on_dispositions(self, event: Dispositions, now: float) -> None:
        if not event.settled:
            return
        self._evidence(self.proof.open and self.proof.settlement(event.first_id, event.last_id), now)
        if self.gone:
            return
        self.connection.core.publisher_settled(self, event.first_id, event.last_id, now)
        self._echo_settled(event.first_id, event.last_id)

    def on_frame(self, now: float) -> None:
        """A frame of any kind was read on the connection. Who brings epochs answers each echo at once (15), and is not
        taken at a frame that may have lain unread."""
        if self.attach.epoch is None:
            self._evidence(self.proof.frame(now, self.connection.config.proof_after_s), now)

    def lost(self, closed: bool, now: float) -> None:
        """The link is over, and not because the core said so."""
        if not self.gone:
            self._leave()
            self.connection.core.detach_publisher(self, closed, now)

    def give_up(self, condition: str, description: str, now: float) -> None:
        """Detach it for a reason of the links', not the core's."""
        self.connection.core.detach_publisher(self, False, now)
        self.detach(condition, description, {}, True)

    # --- credit

    def grant(self) -> None:
        """Once per flush, after everything that the core knows of has been counted."""
        link = self.link
        if self.withheld or link.detached:
            return
        again = self.credit.ask_again(link.delivery_count)
        credit = again if again is not None else self.credit.change(link.delivery_count)
        if credit is not None:
            link.grant(credit, echo=again is not None)
            self.proof.granted(self.credit.limit)
            self.connection.touch()

    def stop_credit(self) -> None:
        """The router is being stopped: nothing more from here."""
        if not self.withheld and not self.link.detached:
            self.link.grant(0)
            self.connection.touch()
        self.withheld = True

    # --- helpers

    def _evidence(self, proved: bool, now: float) -> None:
        if not proved:
            return
        self.connection.unwatch(self)
        self.credit.answered()
        if self._asked:
            self._asked = False
            self.connection.core.answered(self, now)
            self.connection.credit_changed(self)
        else:
            self.proved = True
            self.connection.core.proved(self, now)

    def _readable(self, payloads: list[bytes]) -> tuple[list[bytes], DecodeError | None]:
        """Those before the first that cannot be read, annotated; and what is wrong with that one."""
        annotated: list[bytes] = []
        for payload in payloads:
            try:
                annotated += with_message_annotations([payload], identity.PUBLISHER_ANNOTATION, self._publisher)
            except DecodeError as error:
                return annotated, error
        return annotated, None

    def _echo_settled(self, first_id: int, last_id: int) -> None:
        # ENGINE.md: rhea as a sender in mode second forgets a delivery only when it hears that we settled it too
        if self._modes.rcv == RCV_SECOND and not self.link.detached:
            self.link.dispose(first_id, last_id, None, True)
            self.connection.touch_lazily()

    def _leave(self) -> None:
        self.gone = True
        self.withheld = True
        self.proof.open = False
        self.connection.unwatch(self)
