"""A subscription's link between the engine and the core: attach with its maps, transfers out, outcomes in, drain.

Counterpart of `router.publisher_link`.  The expiry policies of contract 10 end here: the core is told that a link was
lost, that it was closed, or that the terminus's own timeout begins to count.  Read `router.client_connection` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from amqp10.events import Dispositions, LinkFlow
from amqp10.sections import with_delivery_count
from amqp10.sender import SenderLink
from router import identity
from router.expiry import STARTS, Loss
from router.negotiation import MAP_STATES, Modes, answer_source, default_outcome, terminal_outcome
from router.ports import MapState, SubscriberAnswer, SubscriberAttach, Term

if TYPE_CHECKING:
    from router.client_connection import ClientConnection

MOST_AT_ONCE = 1_024  # transfers written before the transport has been asked again whether it takes more
PORTION = 4 << 20  # octets, as far as the sizes of those before tell: so much may lie unread beyond the marks


class SubscriberLink:
    """One attached (or attaching) subscription: the core's SubscriberPort."""

    __slots__ = (
        "_allowance",
        "_modes",
        "_size",
        "_write",
        "answered",
        "attach",
        "connection",
        "default_outcome",
        "expiry_policy",
        "gone",
        "link",
    )

    def __init__(self, connection: ClientConnection, link: SenderLink, attach: SubscriberAttach, modes: Modes) -> None:
        assert link.remote_attach is not None
        self.connection = connection
        self.link = link
        self.attach = attach
        self.answered = False
        self.gone = False
        self.default_outcome = default_outcome(link.remote_attach)
        self.expiry_policy = attach.expiry_policy
        self._modes = modes
        self._size = PORTION // MOST_AT_ONCE  # of a transfer, with its frame
        self._allowance = MOST_AT_ONCE
        self._write = connection.writes

    # --- SubscriberPort: what the core says

    def capacity(self) -> int:
        if not self.answered or self.gone:
            return 0
        link, connection = self.link, self.connection
        if connection.full:
            connection.wait_for_output(self)
            return 0
        if self._write != connection.writes:
            self._write = connection.writes
            self._allowance = max(min(MOST_AT_ONCE, PORTION // self._size), 1)
        elif self._allowance <= 0:  # what used it up is still to be written
            connection.wait_for_output(self)
            return 0
        return min(link.capacity(), self._allowance)

    def answer(self, answer: SubscriberAnswer) -> int:
        remote = self.link.remote_attach
        assert remote is not None
        arguments: dict[str, Any] = {
            "source": answer_source(remote, answer),
            "target": remote.target,
            "properties": identity.properties(
                guarantee=self._modes.guarantee, term=answer.term, resumed=answer.resumed, marks=answer.marks
            ),
            "snd_settle_mode": self._modes.snd,
            "rcv_settle_mode": self._modes.rcv,
        }
        self.expiry_policy = answer.expiry_policy
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
        # PROTOCOL 7.7: what exceeds the peer's frame is left for its next attach
        self.answered = self.connection.attach(
            self.link, unsettled=parts[0], incomplete_unsettled=len(parts) > 1, **arguments
        )
        return len(parts[0])

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
        engine = self.connection.connection
        before = engine.output_size
        first_id = self.link.send(
            tags,
            payloads,
            settled=settled,
            message_format=message_format,
            id_hint=position & 0xFFFFFFFF if position >= 0 else None,  # -1: not of the log (pre-settled, a repeat)
            cache=cache,
            position=position,
        )
        size = (engine.output_size - before) // len(tags) + 1
        self._size = size if size > self._size else (3 * self._size + size) // 4
        return first_id

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        self._wrote(1)
        return self.link.resume(
            tag,
            state=None if state is MapState.RECEIVED else MAP_STATES[state],
            payload=payload,
            settled=settled,
            message_format=message_format,
        )

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        self._wrote(1)
        self.link.write_dispositions()  # PROTOCOL 6.4: the old delivery of this tag is settled first
        if not message_format:
            payload = with_delivery_count(payload, delivery_count)
        return self.link.send([tag], [payload], message_format=message_format)

    def settle(self, first_id: int, last_id: int) -> None:
        if not self.link.detached:
            self.link.settle(first_id, last_id)
            self.connection.touch_lazily()

    def part(self) -> None:
        remote = self.link.remote_attach
        assert remote is not None
        self._leave()
        self.connection.answer_part(
            self.link,
            source=remote.source,
            target=remote.target,
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

    def on_flow(self, event: LinkFlow, now: float) -> None:
        if self.gone:
            return
        if self.link.drain:
            self.connection.drain(self)
        if self.answered:
            self.connection.core.subscriber_credit(self, now)

    def on_dispositions(self, event: Dispositions, now: float) -> None:
        if self.gone:
            return
        outcome = terminal_outcome(event.state)
        if outcome is None:
            if not event.settled:
                return  # PROTOCOL 6.4: `received` changes nothing
            outcome = self.default_outcome
        self.connection.core.subscriber_disposition(self, event.first_id, event.last_id, outcome, event.settled, now)

    def lost(self, end: Loss, now: float) -> Term | None:
        """The link is over, and not because the core said so.  A term: the terminus's own timeout is to start later,
        when what its expiry policy names is over too (contract 10, PROTOCOL 8.3)."""
        if self.gone:
            return None
        self._leave()
        expiring = self.expires_with(end)
        term = self.connection.core.detach_subscriber(self, end is Loss.CLOSED, now, expiring)
        return None if expiring or end is Loss.CLOSED or self.expiry_policy == "never" else term

    def expires_with(self, end: Loss) -> bool:
        """3.5.6: does the terminus's own timeout start at this?"""
        return end >= self.starts

    @property
    def starts(self) -> Loss:
        """What must have gone for its own timeout to start."""
        return STARTS[self.expiry_policy]

    # --- helpers

    def drained(self) -> bool:
        """Once per flush: after everything that there was has been sent, use up what is left (2.6.7).  False while
        something may still be sent on this credit."""
        link = self.link
        if self.gone or link.detached or not link.drain:
            return True
        if link.credit and not self.capacity():
            return False  # the session's window or the transport may be what holds it up, not an empty queue
        link.drained()
        self.connection.touch()
        return True

    def _wrote(self, count: int) -> None:
        self._allowance -= count
        if self._allowance <= 0:
            self.connection.wait_for_output(self)
        self.connection.touch()

    def _leave(self) -> None:
        self.gone = True
        self.connection.forget(self)
