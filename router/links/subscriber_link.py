"""A subscription's link between the engine and the core: attach with its maps, transfers out, outcomes in, drain.

Counterpart of `router.links.publisher_link`. The expiry policies of a source (AMQP 3.5.6) are applied here: the core is
told that a link was lost, that it was closed, or that the subscription's timeout begins. Read
`router.links.client_connection` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from amqp10.errors import NOT_IMPLEMENTED
from amqp10.link import LinkSession
from amqp10.outcomes import ACCEPTED
from amqp10.runs import Dispositions, LinkFlow
from amqp10.sections import Glance, header_with_failures, with_failures
from amqp10.sender import SenderLink
from router.core import ports
from router.core.holding import octets_of_text
from router.core.ports import MapState, SubscriberAnswer, SubscriberAttach, Term
from router.links.base import OUTPUT_LIMIT, BaseConnection
from router.links.expiry import expired, with_time_left
from router.links.negotiation import Modes, answer_properties, answer_source
from router.links.outcomes import MAP_STATES, default_outcome, is_unknown, terminal_outcome
from router.links.proof import Proof
from router.reasons import reason_of

if TYPE_CHECKING:
    from router.links.filters import Selection

NOTHING_TO_PROVE: Final = Proof()
MAX_BURST: Final = 1_024  # transfers per write
MAX_BURST_BYTES: Final = 4 << 20  # per write, estimated from earlier sizes: unread output may exceed its mark by this

EXPIRY: Final = 1 << 10  # octets of a pending expiry, about
PART_OUTPUT: Final = 256 << 10  # bytes of output that wait, above which no more of a large delivery is written


class Loss(IntEnum):
    """How a link ended. Each kind implies those before it."""

    CLOSED = 0  # the client detached it with closed = true
    DETACHED = 1
    SESSION = 2
    CONNECTION = 3
    NEVER = 4


EXPIRES_AT: Final = {
    "link-detach": Loss.DETACHED,
    "session-end": Loss.SESSION,
    "connection-close": Loss.CONNECTION,
    "never": Loss.NEVER,
}
"""Expiry policy -> the end at which the subscription's timeout begins (AMQP 3.5.6, protocol 8.3)."""


class PendingExpiry(NamedTuple):
    """A subscription whose link has ended, and whose timeout begins only when its session or connection ends too."""

    attach: SubscriberAttach
    term: Term
    session: LinkSession
    expires_at: Loss


class PendingExpiries:
    """The pending expiries of one connection."""

    __slots__ = ("_by_link", "octets")

    def __init__(self) -> None:
        self._by_link: dict[tuple[str, str], PendingExpiry] = {}  # by link name and address
        self.octets = 0

    def add(self, one: PendingExpiry) -> None:
        """Replaces an earlier expiry of the same link, whose term is no longer the current one."""
        key = one.attach.name, one.attach.address
        if key not in self._by_link:
            self.octets += _octets_of(key)
        self._by_link[key] = one

    def session_ended(self, session: LinkSession) -> list[PendingExpiry]:
        """Removes and returns those whose timeout begins with the end of this session."""
        items = self._by_link.items()
        ended = [key for key, one in items if one.session is session and one.expires_at <= Loss.SESSION]
        self.octets -= sum(map(_octets_of, ended))
        return [self._by_link.pop(key) for key in ended]

    def connection_lost(self) -> list[PendingExpiry]:
        """Removes and returns all: no policy names more than the connection."""
        found, self._by_link, self.octets = self._by_link, {}, 0
        return list(found.values())


def _octets_of(key: tuple[str, str]) -> int:
    return EXPIRY + octets_of_text(key[0]) + octets_of_text(key[1])


class SubscriberLink:
    """One attached (or attaching) subscription: the core's SubscriberPort."""

    __slots__ = (
        "_allowance", "_expires", "_modes", "_selection", "_size", "_unheard", "_write", "answered", "attach",
        "connection", "counters", "default_outcome", "expiry_policy", "detached", "link", "paused", "proof", "queue",
    )  # fmt: skip

    def __init__(self, connection: BaseConnection, link: SenderLink, attach: SubscriberAttach, modes: Modes) -> None:
        assert link.remote_attach is not None
        self.connection = connection
        self.link = link
        self.attach = attach
        self.counters = connection.core.counters.of(attach.address).subscriptions
        self.answered = False
        self.detached = False
        self.paused = False  # the router is being drained
        self.proof = NOTHING_TO_PROVE
        kind = connection.config.address(attach.address)
        self.queue = kind.is_queue
        self._expires = kind.expire
        self.default_outcome = default_outcome(link.remote_attach, queue=self.queue)
        self.expiry_policy = attach.expiry_policy
        self._unheard = self.queue and attach.epoch is None and attach.unsettled is not None  # protocol 16.8
        self._modes = modes
        self._selection: Selection | None = None  # its filters, while they count
        self._size = MAX_BURST_BYTES // MAX_BURST  # of a transfer, with its frame
        self._allowance = MAX_BURST
        self._write = connection.writes

    def filtered_by(self, selection: Selection) -> None:
        """Its filters, once it is attached; until it is detached they count towards those of its address."""
        selection.told = self._passed_by_unread
        self._selection = selection
        self.connection.router.admission.filters_attached(self.attach.address, selection, attached=True)

    def _passed_by_unread(self, why: str, own: bool) -> None:
        """A message was passed by, as the filters take too many steps for it, or cannot be asked."""
        self.connection.router.passed_by.note(self, why, own)

    # --- SubscriberPort: what the core says

    def capacity(self) -> int:
        if not self.answered or self.detached or self.paused:
            return 0
        link, connection = self.link, self.connection
        if connection.output_paused or connection.connection.output_size > OUTPUT_LIMIT:
            connection.wait_for_output(self)
            return 0
        if self._write != connection.writes:
            self._write = connection.writes
            self._allowance = max(min(MAX_BURST, MAX_BURST_BYTES // self._size), 1)
        elif self._allowance <= 0:  # the last burst has not been written yet
            connection.wait_for_output(self)
            return 0
        return min(link.capacity(), self._allowance)

    def link_credit(self) -> int:
        return self.link.credit if self.answered and not (self.detached or self.paused) else 0

    def answer(self, answer: SubscriberAnswer) -> int:
        remote = self.link.remote_attach
        assert remote is not None
        arguments: dict[str, Any] = {
            "source": answer_source(remote, answer, self.connection.config.address(self.attach.address)),
            "target": remote.target,
            "properties": answer_properties(
                guarantee=self._modes.guarantee, term=answer.term, resumed=answer.resumed, marks=answer.marks
            ),
            "snd_settle_mode": self._modes.snd,
            "rcv_settle_mode": self._modes.rcv,
        }
        self.expiry_policy = answer.expiry_policy
        if answer.term in answer.marks:  # protocol 7.6: it is told of a gap until it has read that
            self.proof = Proof()
            self.proof.start(self.connection.now, threshold=0)
            self.connection.watch(self)
        if answer.listing is None:
            self.answered = self.connection.attach(self.link, **arguments)
            return 0
        listing = {tag: MAP_STATES[state] for tag, state in answer.listing.items()}
        if self.link.detached:
            return len(listing)
        try:
            parts = self.link.split_unsettled(listing, **arguments) if listing else [listing]
        except ValueError as error:  # not even one entry fits
            self.connection.fail(str(error))
            return len(listing)
        # protocol 7.7: entries that exceed the peer's max-frame-size follow at its next attach
        self.answered = self.connection.attach(
            self.link, unsettled=parts[0], incomplete_unsettled=len(parts) > 1, **arguments
        )
        if self.answered and self._unheard:
            self.link.flow(echo=True)
        return len(parts[0])

    def expired(self, payloads: list[bytes], message_format: int) -> list[int]:
        now_ms = self.connection.core.clock_us() // 1000
        return self.connection.router.border.ask([], expired, payloads, message_format, now_ms)

    def _with_time_left(self, payloads: list[bytes], message_format: int) -> list[bytes]:
        now_ms = self.connection.core.clock_us() // 1000
        return self.connection.router.border.ask(payloads, with_time_left, payloads, message_format, now_ms)

    def send(
        self,
        tags: list[bytes],
        payloads: list[bytes],
        message_format: int,
        settled: bool,
        position: int,
        cache: dict[object, object],
    ) -> int:
        self._wrote(len(tags))
        if self._expires:
            payloads, cache = self._with_time_left(payloads, message_format), {}
        engine = self.connection.connection
        before = engine.output_size
        first_id = self.link.send(
            tags,
            payloads,
            settled=settled,
            message_format=message_format,
            id_hint=position & 0xFFFFFFFF if position >= 0 else None,  # -1: not in the log (settled or a repeat)
            shared=(cache, position),
        )
        size = engine.output_size - before
        counters = self.counters
        counters.delivered_bytes += size
        if settled:
            counters.delivered_settled += len(tags)
        else:
            counters.delivered += len(tags)
        size = size // len(tags) + 1
        self._size = size if size > self._size else (3 * self._size + size) // 4
        return first_id

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        self._wrote(1)
        if not settled:
            self.counters.redelivered += 1
        return self.link.resume(
            tag,
            state=None if state is MapState.RECEIVED else MAP_STATES[state],
            payload=payload,
            settled=settled,
            message_format=message_format,
        )

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        self._wrote(1)
        self.counters.delivered += 1
        self.counters.redelivered += 1
        self.link.write_dispositions()  # protocol 6.4: the old delivery of this tag is settled first
        if not message_format:
            payload = self.connection.router.border.ask(payload, with_failures, payload, delivery_count)
        if self._expires:
            (payload,) = self._with_time_left([payload], message_format)
        return self.link.send([tag], [payload], message_format=message_format)

    def bare_at(self, payload: bytes) -> int:
        return self.connection.router.border.ask(0, _bare_at, payload)

    def begin(
        self, tag: bytes, head: bytes, message_format: int, settled: bool, state: MapState | None, failures: int
    ) -> tuple[int, int]:
        self._wrote(1)
        again = failures > 0 or state is not None
        self.counters.delivered += not settled
        self.counters.delivered_settled += settled
        self.counters.redelivered += again
        if failures:
            self.link.write_dispositions()  # protocol 6.4: the old delivery of this tag is settled first
            begins, taken = self.connection.router.border.ask((b"", 0), header_with_failures, head, failures)
        else:
            begins = head[: self.link.part_capacity()]  # rhea throws on an empty first transfer
            taken = len(begins)
        self.counters.delivered_bytes += taken
        told = None if state is None else MAP_STATES[state]
        delivery_id = self.link.begin(
            tag, begins, settled=settled, message_format=message_format, resume=state is not None, state=told
        )
        return delivery_id, taken

    def part_capacity(self) -> int:
        if self.detached:
            return 0
        if self.connection.output_paused or self.connection.connection.output_size > PART_OUTPUT:
            self.connection.wait_for_output(self)
            return 0
        return self.link.part_capacity()

    def add(self, payload: bytes, *, more: bool) -> None:
        self.counters.delivered_bytes += len(payload)
        self.link.add(payload, more=more)
        self.connection.output_ready()

    def abort(self) -> None:
        if not self.link.detached:
            self.link.abort()
            self.connection.output_ready()

    def settle(self, first_id: int, last_id: int, at_once: bool = False) -> None:
        self.link.dispose(first_id, last_id, None, True)
        if at_once:
            self.link.write_dispositions()
        self.connection.output_can_wait()

    def answer_map_part(self) -> None:
        remote = self.link.remote_attach
        assert remote is not None
        self._mark_detached()
        self.connection.answer_part(
            self.link,
            source=remote.source,
            target=remote.target,
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

    def on_flow(self, event: LinkFlow, now: float) -> None:
        if self.detached:
            return
        if self.link.drain:
            self.connection.drain(self)
        if self.answered:
            if self._unheard and event.flow.delivery_count is not None:
                self._heard(now)
            self.has_room(now)

    def on_frame(self, now: float) -> None:
        """A frame of any kind was read on the connection while the client may not have read that it has a gap."""
        if self.proof.frame(now, self.connection.config.proof_after_s):
            self._heard(now)

    def _heard(self, now: float) -> None:
        self._unheard = self.proof.open = False
        self.connection.unwatch(self)
        self.connection.core.subscriber_heard(self, now)

    def has_room(self, now: float) -> None:
        """More may be sent than before."""
        self.connection.core.subscriber_credit(self, now)

    def on_dispositions(self, event: Dispositions, now: float) -> None:
        if self.detached:
            return
        if self.proof.open:  # it has read what came behind the answer
            self._heard(now)
        accepted = event.state is ACCEPTED
        outcome = ports.ACCEPTED if accepted else terminal_outcome(event.state, queue=self.queue)
        if outcome is None:
            if is_unknown(event.state):  # AMQP 3.4: nobody may take it for one of ours
                text = f"disposition.state: {event.state!r:.80} is no outcome that is known here"
                self.connection.end_link(self, NOT_IMPLEMENTED, text, now)
                return
            if not event.settled:
                return  # protocol 6.4: `received` changes nothing
            outcome = self.default_outcome
        why = b"" if outcome is ports.ACCEPTED else reason_of(event.state)
        self.connection.core.subscriber_disposition(
            self, event.first_id, event.last_id, outcome, event.settled, now, why
        )

    def lost(self, end: Loss, now: float) -> Term | None:
        """The link has ended, and not at the core's request. Returns the term if the subscription's timeout is to begin
        later, when the session or connection named by its expiry policy ends (protocol 8.3)."""
        if self.detached:
            return None
        self._mark_detached()
        expiring = self.expires_with(end)
        term = self.connection.core.detach_subscriber(self, end is Loss.CLOSED, now, expiring)
        return None if expiring or end is Loss.CLOSED or self.expiry_policy == "never" else term

    # --- draining

    @property
    def under_way(self) -> int:
        """How many deliveries have no outcome yet."""
        return self.connection.core.undecided(self)

    def pause(self) -> None:
        """The router is being drained: send nothing more."""
        self.paused = True

    def resume_flow(self) -> None:
        self.paused = False
        self.has_room(self.connection.now)

    # --- expiry

    def expires_with(self, end: Loss) -> bool:
        """Whether the subscription's timeout begins with this end (AMQP 3.5.6)."""
        return end >= self.expires_at

    @property
    def expires_at(self) -> Loss:
        """The end at which the subscription's timeout begins."""
        return EXPIRES_AT[self.expiry_policy]

    # --- helpers

    def drained(self) -> bool:
        """Answer `drain` once everything has been sent: use up the remaining credit (AMQP 2.6.7). Called once per
        flush; False while something may still be sent on this credit."""
        link = self.link
        if self.detached or link.detached or not link.drain:
            return True
        if link.credit and not self.capacity():
            return False  # the session's window or the transport may hold deliveries up
        link.drained()
        self.connection.output_ready()
        return True

    def _wrote(self, count: int) -> None:
        self._allowance -= count
        if self._allowance <= 0:
            self.connection.wait_for_output(self)
        self.connection.router.turn.dirty[self.connection] = None

    def _mark_detached(self) -> None:
        self.detached = True
        self.connection.unwatch(self)
        self.connection.forget(self)
        if self._selection is not None:
            self.connection.router.admission.filters_attached(self.attach.address, self._selection, attached=False)
            self._selection = None


def _bare_at(payload: bytes) -> int:
    return Glance(payload).bare_at()
