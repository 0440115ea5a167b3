"""A publisher's link between the engine and the core: attach, credit, proof, transfers in, outcomes out.

The engine's events arrive through `on_*`, the core's commands through the methods of `PublisherPort`. The link decides
nothing about deliveries; it adds what is AMQP: the answering attach, credit from windows (`router.links.credit`),
evidence that the publisher is there (`router.links.proof`), and the message annotation that names the publisher
(protocol 6.1). After `detached` is set, calls from both sides have no effect. Read `router.links.subscriber_link` next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from amqp10.annotations import SectionWalk, with_message_annotations, with_true_annotation
from amqp10.errors import INVALID_FIELD, NOT_FOUND, NOT_IMPLEMENTED, RESOURCE_LIMIT_EXCEEDED, DecodeError
from amqp10.outcomes import ACCEPTED, RELEASED, DeliveryState, Error, Rejected
from amqp10.performatives import RCV_SECOND
from amqp10.receiver import ReceiverLink
from amqp10.runs import Dispositions, LinkFlow, ResumedTransfer, TransferPart, Transfers
from amqp10.sections import without_first_acquirer
from amqp10.types import Symbol, UInt
from router import names
from router.config import AddressConfig, is_dynamic
from router.core import ports
from router.core.ports import Outcome, Part, PublisherAttach, Term, Waiting
from router.links.base import BaseConnection, BaseRouter
from router.links.credit import Credit
from router.links.expiry import with_expiry
from router.links.limits import MEMORY
from router.links.negotiation import Modes, answer_properties, answer_target, publisher_annotation
from router.links.outcomes import is_unknown
from router.links.proof import Proof
from router.names import GONE
from router.policies import is_own
from router.reasons import rejection

DETACH_AT: Final = 2  # times memory_limit: a publisher that sends beyond it is detached


class PublisherLink:
    """One attached (or attaching) publisher: the core's PublisherPort."""

    __slots__ = (
        "_kind", "_modes", "_publisher", "_streams", "_walk", "attach", "connection", "credit", "detached", "held_back",
        "link", "proof",
    )  # fmt: skip

    def __init__(self, connection: BaseConnection, link: ReceiverLink, attach: PublisherAttach, modes: Modes) -> None:
        self.connection = connection
        self.link = link
        self.attach = attach
        self.credit = Credit(link.delivery_count)
        self.proof = Proof()
        self.detached = False
        self._modes = modes
        self._kind = connection.config.address(attach.address)
        self._publisher = publisher_annotation(attach.container, attach.name)
        self._walk = SectionWalk()  # through the large delivery that is coming
        self.held_back = False
        config = connection.config
        joins = config.address(attach.address).type != "topic" or attach.address in dict(config.mqtt_topics).values()
        bounded = connection.connection.settings.window_bytes > 0  # it was connected since the file says so
        self._streams = bounded and config.stream_above > 0 and not joins and modes.guarantee == "exactly-once"

    # --- PublisherPort: what the core says

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        remote = self.link.remote_attach
        assert remote is not None
        waits = self.connection.core.waits_for_a_subscriber(self.attach.address)
        waiting = _on_the_wire(self, Waiting("no-subscribers")) if waits else None
        answered = self.connection.attach(
            self.link,
            source=remote.source,
            target=answer_target(remote, self.connection.config.address(self.attach.address)),
            unsettled={},
            properties=answer_properties(
                guarantee=self._modes.guarantee, term=term, incarnation=incarnation, waiting=waiting
            ),
            snd_settle_mode=self._modes.snd,
            rcv_settle_mode=self._modes.rcv,
            max_message_size=0 if self._streams else self.connection.connection.settings.max_message_size,
        )
        if not answered:
            return
        if self._streams:
            self.link.part_size = self.connection.config.stream_above
            self.link.max_message_size = self.connection.connection.settings.max_message_size  # of what is joined
        # protocol 5.1: a flow with echo, with or without credit; a publisher that answers it has read our attach
        if not self._streams:
            self.link.session.widen_incoming()  # protocol 6.12.3: with the flow below
        before = self.link.delivery_count
        self.proof.start(self.connection.now, threshold=before, seen=(before,))
        self.link.grant(0, echo=True)
        self.credit.withheld = not credit
        self.connection.watch(self)
        self.connection.credit_changed(self)

    def ready(self) -> None:
        self.credit.withheld = False
        self.connection.credit_changed(self)

    def set_window(self, messages: int, size: int, reason: str) -> int:
        credit = self.credit
        credit.window(messages, size)
        self.grant()
        told_each = credit.paused or credit.withheld or self.proof.open
        return 0 if told_each else credit.limit - self.link.delivery_count

    def hold_back(self, held: bool) -> None:
        self.held_back = held
        self.connection.router.windows.changed(self.link.session)

    def waiting(self, waiting: Waiting | None) -> None:
        link = self.link
        if not self.credit.withheld and not link.detached:
            link.flow_properties = {Symbol(names.WAITING): None if waiting is None else _on_the_wire(self, waiting)}
            link.grant(max(link.credit, 0))
            self.connection.output_ready()

    def ask(self) -> None:
        if self.link.detached:
            return
        credit = self.credit
        threshold, seen = credit.highest_limit, credit.granted
        more = credit.ask(self.link.delivery_count)
        self.proof.start(self.connection.now, threshold=threshold, seen=seen, question=True)
        self.proof.granted(credit.limit)
        self.link.grant(more, echo=True)
        self.connection.watch(self)
        self.connection.output_ready()

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        connection = self.connection
        state: DeliveryState = ACCEPTED
        if outcome is not ports.ACCEPTED:
            state = state_of(outcome, rejected, self.attach.address, why, router=connection.router)
        self.link.dispose(first_id, last_id, state, settled)
        if self.proof.open:
            self.proof.outcome(first_id, last_id)
        connection.router.turn.dirty[connection] = None

    def answer_map_part(self) -> None:
        remote = self.link.remote_attach
        assert remote is not None
        self._mark_detached()
        self.connection.answer_part(
            self.link,
            source=remote.source,
            target=answer_target(remote, self.connection.config.address(self.attach.address)),
            unsettled={},
            properties=answer_properties(guarantee=self._modes.guarantee),
            snd_settle_mode=self._modes.snd,
            rcv_settle_mode=self._modes.rcv,
        )

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self._mark_detached()
        self.connection.refuse(self.link, condition, description, info)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self._mark_detached()
        self.connection.detach(self.link, condition, description, info, closed)

    # --- the engine's events

    def on_transfers(self, event: Transfers, now: float) -> None:
        tags, payloads = event.tags, event.payloads
        sizes = self.credit.sizes
        largest = sizes.largest
        sizes.observe(payloads)
        self.credit.messages -= len(tags)  # the core says so only now and then (protocol 6.8.5)
        self.credit.size -= sum(map(len, payloads))
        if sizes.largest > largest:  # the messages that may come before the core looks again may be too much now
            self.connection.core.payload_grew(self)
        if self.proof.open:
            self._evidence(self.proof.transfer(self.link.delivery_count), now)
        if self.detached:
            return
        if self.detach_over_memory(now):
            return
        error = None
        message_format = event.message_format or 0
        try:
            payloads = self._annotated(payloads, message_format, self._kind)
        except DecodeError:
            payloads, error = self._annotate_readable(payloads, message_format)
            tags = tags[: len(payloads)]
        if tags:
            self.connection.core.transfers(self, event.first_id, tags, payloads, event.settled, message_format, now)
        if error is not None and not self.detached:
            tag = event.tags[len(tags)].hex()
            self.detach_with_error(error.condition, f"delivery {tag} is no message: {error}", now)

    def on_part(self, event: TransferPart, now: float) -> None:
        """Of a large delivery (protocol 6.12)."""
        payload, first = event.payload, not event.offset
        if first:
            self.credit.sizes.observe([payload])
            if self.proof.open:
                self._evidence(self.proof.transfer(self.link.delivery_count), now)
            if self.detached or self.detach_over_memory(now):
                return
        if is_unknown(event.state):
            text = f"delivery {event.tag.hex()}: its state is none of AMQP's delivery-states; there are no transactions"
            self.detach_with_error(NOT_IMPLEMENTED, text, now)
            return
        try:
            if first:
                self._walk = SectionWalk()
                payload = self._walk.begin(payload, names.PUBLISHER_ANNOTATION, self._publisher)
                if self._kind.expire:
                    payload = with_expiry([payload], self.connection.core.clock_us() // 1000)[0]
            elif not event.aborted:
                self._walk.go_on(payload, last=not event.more)
        except DecodeError as error:
            text = f"delivery {event.tag.hex()}: {error}; what is before the body has to be in its first bytes"
            self.detach_with_error(error.condition, text, now)
            return
        part = Part(event.delivery_id, event.tag, payload, first, not event.more, event.aborted)
        self.connection.core.part(self, part, now)
        if event.settled and not event.aborted and not event.more:
            self.connection.core.publisher_settled(self, event.delivery_id, event.delivery_id, now)

    def detach_over_memory(self, now: float) -> bool:
        """protocol 6.8: at the limit windows close and credit is withdrawn; at twice the limit publishers are
        detached."""
        router = self.connection.router
        if self.connection.core.memory.payload_bytes < DETACH_AT * router.config.memory_limit:
            return False
        router.admission.count_refusal(MEMORY)
        text = f"limit memory_limit: this router holds twice its {router.config.memory_limit} bytes of payload"
        self.detach_with_error(RESOURCE_LIMIT_EXCEEDED, text, now)
        return True

    def on_resumed_transfer(self, event: ResumedTransfer, now: float) -> None:
        self._evidence(self.proof.open and self.proof.transfer(self.link.delivery_count), now)
        if self.detached:
            return
        if is_unknown(event.state):  # published now, it could not be rolled back
            text = f"delivery {event.tag.hex()}: its state is none of AMQP's delivery-states; there are no transactions"
            self.detach_with_error(NOT_IMPLEMENTED, text, now)
            return
        self.connection.credit_changed(self)  # it used credit, and may not be a message that changes the window
        if event.aborted:
            return
        if event.resume and event.settled:
            # protocol 6.6: an expected tag that will not be sent again
            self.connection.core.publisher_settled_tag(self, event.tag, now)
            if self._modes.rcv == RCV_SECOND:
                self.link.dispose(event.delivery_id, event.delivery_id, None, True)
        elif event.payload is not None:
            # protocol 15: our answering map was empty, so this is an ordinary repeat; egresses know it by its tag
            self.on_transfers(
                Transfers(
                    self.link, event.delivery_id, [event.tag], [event.payload], event.settled, event.message_format
                ),
                now,
            )
        else:
            description = f"delivery {event.tag.hex()} is resumed without payload: send it whole, our map was empty"
            self.detach_with_error(INVALID_FIELD, description, now)

    def on_flow(self, event: LinkFlow, now: float) -> None:
        proof = self.proof
        self._evidence(proof.open and proof.flow(event.flow.delivery_count, event.flow.link_credit), now)

    def on_dispositions(self, event: Dispositions, now: float) -> None:
        if not event.settled:
            return
        if self.proof.open:
            self._evidence(self.proof.settlement(event.first_id, event.last_id), now)
        if self.detached:
            return
        self.connection.core.publisher_settled(self, event.first_id, event.last_id, now)
        if self._modes.rcv == RCV_SECOND:  # rhea as a sender forgets a delivery when the receiver has settled it, too
            self.link.dispose(event.first_id, event.last_id, None, True)

    def on_frame(self, now: float) -> None:
        """A frame of any kind was read on the connection. It proves nothing of a client with epochs, which answers
        every echo at once (protocol 15): the frame may have been unread for long."""
        if self.attach.epoch is None:
            self._evidence(self.proof.frame(now, self.connection.config.proof_after_s), now)

    def lost(self, closed: bool, now: float) -> None:
        """The link has ended, and not at the core's request."""
        if not self.detached:
            self._mark_detached()
            self.connection.core.detach_publisher(self, closed, now)

    def detach_with_error(self, condition: str, description: str, now: float) -> None:
        """Detach for a reason that the core does not know of."""
        self.connection.core.detach_publisher(self, False, now)
        self.detach(condition, description, {}, True)

    # --- credit

    def grant(self) -> None:
        """Grant credit for the window; once per flush, when the core has counted everything."""
        link = self.link
        if self.credit.withheld:
            return
        asks = self.credit.question_limit is not None
        again = self.credit.ask_again(link.delivery_count) if asks else None
        credit = again if again is not None else self.credit.change(link.delivery_count)
        if credit is not None and not link.detached:
            link.grant(credit, echo=again is not None)
            self.proof.granted(self.credit.limit)
            self.connection.output_ready()

    # --- draining

    @property
    def under_way(self) -> int:
        """How many deliveries have no outcome yet."""
        return self.connection.core.without_outcome(self)

    def pause(self) -> None:
        """The router is being drained: credit is withdrawn, except that of an open question."""
        self.credit.pause()
        self.grant()
        self.waiting(Waiting("draining"))

    def resume_flow(self) -> None:
        self.waiting(None)
        self.credit.resume()
        self.connection.credit_changed(self)

    # --- helpers

    def _evidence(self, proved: bool, now: float) -> None:
        if not proved:
            return
        self.connection.unwatch(self)
        self.credit.answered()
        if self.proof.question:
            self.connection.core.question_answered(self, now)
            self.connection.credit_changed(self)
        else:
            self.connection.core.proved(self, now)

    def _annotated(self, payloads: list[bytes], message_format: int, kind: AddressConfig) -> list[bytes]:
        """With what the ingress notes in messages (protocol 6.1.5; 6.4.8). DecodeError if one is none."""
        if message_format:
            return [with_true_annotation(each, names.PUBLISHER_ANNOTATION, self._publisher) for each in payloads]
        payloads = with_message_annotations(payloads, names.PUBLISHER_ANNOTATION, self._publisher)
        if kind.type == "queue":  # and the next router of a message would not know who has had it
            payloads = [without_first_acquirer(each) for each in payloads]
        return with_expiry(payloads, self.connection.core.clock_us() // 1000) if kind.expire else payloads

    def _annotate_readable(self, payloads: list[bytes], message_format: int) -> tuple[list[bytes], DecodeError | None]:
        """The payloads before the first malformed one, annotated; and what is wrong with that one."""
        annotated: list[bytes] = []
        for payload in payloads:
            try:
                annotated += self._annotated([payload], message_format, self._kind)
            except DecodeError as error:
                return annotated, error
        return annotated, None

    def _mark_detached(self) -> None:
        self.detached = True
        self.credit.withheld = True
        self.proof.open = False
        self.connection.unwatch(self)
        if self.held_back:
            self.hold_back(False)


def state_of(outcome: Outcome, rejected: int, address: str, why: bytes = b"", *, router: BaseRouter) -> DeliveryState:
    """What a publisher is told. rejected: by how many subscriptions; why: what the last of them has said."""
    if outcome is ports.ACCEPTED:
        return ACCEPTED
    if outcome is ports.REJECTED:
        queue = router.config.address(address).type == "queue"
        return router.border.ask(rejection(rejected, b"", queue), rejection, rejected, why, queue)
    assert outcome is ports.RELEASED
    if is_dynamic(address):  # a node does not come back
        return Rejected(Error(Symbol(NOT_FOUND), GONE))
    return RELEASED


def _on_the_wire(port: PublisherLink, waiting: Waiting) -> dict[Symbol, object]:
    told: dict[Symbol, object] = {
        Symbol("reason"): Symbol(waiting.reason),
        Symbol("address"): port.attach.address,
        Symbol("count"): UInt(waiting.count),
        # of other users only that they are there: protocol 1.12
        Symbol("subscriptions"): [
            list(each) for each in waiting.subscriptions if is_own(port.connection.identity.user, each[0])
        ],
    }
    if waiting.seconds is not None:
        told[Symbol("seconds")] = UInt(math.ceil(waiting.seconds))
    if waiting.setting:
        told[Symbol("setting")] = waiting.setting
    return told
