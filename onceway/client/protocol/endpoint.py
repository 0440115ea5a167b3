"""One client: its links, over one connection after another.

`connect` begins a new connection, for which the owner has a socket.  `receive_data` and `data_to_send` move its bytes.
`lost` ends it; the links survive and attach again on the next one.  Each link has a session of its own as long as the
router's channel-max allows, so that its deliveries have consecutive ids.

Links ask from time to time whether the network still knows them (`contact`).  To ask, the endpoint begins a session and
ends it at the answer.  That works with any AMQP peer: the answering begin cannot be older than ours, and a detach that
was sent before it is read before it.  A heartbeat proves less, and so does a flow with echo, because the answer cannot
be told from a flow that was already on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from amqp10.connection import Connection
from amqp10.errors import NOT_ALLOWED
from amqp10.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    SessionBegun,
    SessionEnded,
)
from amqp10.outcomes import Error
from amqp10.runs import Dispositions, LinkFlow, ResumedTransfer, Transfers
from amqp10.session import Session
from amqp10.settings import ConnectionSettings
from onceway.client.journal import Journal, MemoryJournal
from onceway.client.protocol.contact import backoff_s
from onceway.client.protocol.link import ClientLink
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.errors import JournalError, UsageError
from router.names import Guarantee


class Endpoint:
    """A container's links.  After every call the owner writes `data_to_send()` and takes the events of each link."""

    def __init__(self, container: str, journal: Journal, *, wall_us: Callable[[], int], rng: Random) -> None:
        self.container = container
        self.links: list[PublisherLink | SubscriberLink] = []
        self.connection: Connection | None = None
        self.opened = False  # the peer's open has come
        self._journal = journal
        self._wall_us = wall_us
        self._rng = rng
        self._failures = 0  # sessions in succession that the router has ended
        self._again: list[tuple[float, ClientLink]] = []  # links whose session has ended, and when they get a new one
        self._asking: Session | None = None  # the session that asks
        self._asked_at = 0.0
        self._ask_again = False  # a link wanted to ask meanwhile

    # -- links

    def publisher(
        self, address: str, name: str, guarantee: Guarantee, now: float, *, journalled: bool = True
    ) -> PublisherLink:
        self._check_name("publisher", address, name)
        journal = self._journal if journalled else MemoryJournal()
        part = journal.publisher(address, name)
        link = PublisherLink(address, name, journal_part=part, **self._common(guarantee, journal))
        self._add(link, now)
        return link

    def subscriber(
        self,
        address: str,
        name: str,
        guarantee: Guarantee,
        now: float,
        *,
        credit: int,
        credit_bytes: int,
        subscription_timeout_s: float | None,
        only_new: bool = False,
        filters: Mapping[str, Any] | None = None,
    ) -> SubscriberLink:
        self._check_name("subscriber", address, name)
        link = SubscriberLink(
            address,
            name,
            journal_part=self._journal.subscriber(address, name),
            credit=credit,
            credit_bytes=credit_bytes,
            subscription_timeout_s=subscription_timeout_s,
            only_new=only_new,
            filters=filters,
            **self._common(guarantee, self._journal),
        )
        self._add(link, now)
        return link

    def remove(self, link: PublisherLink | SubscriberLink) -> None:
        """Removes a closed link, and ends its session with it."""
        self.links.remove(link)
        self._again = [(at, other) for at, other in self._again if other is not link]
        session = link.take_session()
        if session is not None and not session.ended and not any(other.uses(session) for other in self.links):
            session.end()

    def check_invariants(self) -> None:
        """Raises AssertionError where the state is impossible between two inputs (for simulations and tests)."""
        names = [(link.role, link.address, link.name) for link in self.links]
        assert len(set(names)) == len(names), "two links have one name"
        for link in self.links:
            link.check_invariants()

    def _common(self, guarantee: Guarantee, journal: Journal) -> dict[str, Any]:
        return {"guarantee": guarantee, "journal": journal, "wall_us": self._wall_us, "rng": self._rng}

    def _check_name(self, role: str, address: str, name: str) -> None:
        if any((link.role, link.address, link.name) == (role, address, name) for link in self.links):
            raise UsageError(f"there is a {role} {name!r} of {address!r} on this connection already; name this one")

    def _add(self, link: PublisherLink | SubscriberLink, now: float) -> None:
        self.links.append(link)
        if self.opened:
            self._give_session(link, now)

    # -- the connection

    def connect(self, settings: ConnectionSettings, now: float) -> None:
        assert self.connection is None
        self.connection = Connection(settings, server=False, now=now)
        self.connection.open()
        self.opened = False

    def receive_data(self, data: bytes, now: float) -> ConnectionClosed | None:
        """Returns the connection's end if that is what the bytes brought."""
        assert self.connection is not None
        return self._handle(self.connection.receive_data(data, now), now)

    def receive_eof(self, now: float) -> ConnectionClosed | None:
        assert self.connection is not None
        return self._handle(self.connection.receive_eof(now), now)

    def lost(self, now: float, reason: str) -> None:
        """The connection is gone, with or without ConnectionClosed: links wait for the next one."""
        connection, self.connection, self.opened = self.connection, None, False
        self._again = []
        self._asking, self._ask_again = None, False
        if connection is None:
            return
        for link in self.links:
            link.disconnect(reason)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def data_to_send(self) -> bytes:
        return b"" if self.connection is None else self.connection.data_to_send()

    def durable(self, now: float) -> JournalError | None:
        """Continues what has waited for the journal; if the journal has failed, so has every link."""
        for link in self.links:
            link.durable(now)
        failure = self._journal.failure
        if failure is not None:
            for link in self.links:
                link.fail(failure)
        return failure

    def next_deadline(self) -> float | None:
        deadlines = [link.next_deadline() for link in self.links]
        deadlines += [at for at, _ in self._again]
        if self.connection is not None:
            deadlines.append(self.connection.next_deadline())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def handle_timer(self, now: float) -> ConnectionClosed | None:
        closed = None
        if self.connection is not None:
            closed = self._handle(self.connection.handle_timer(now), now)
        if closed is None:
            due = [link for at, link in self._again if at <= now]
            self._again = [(at, link) for at, link in self._again if at > now]
            for link in due:
                self._give_session(link, now)
        for link in self.links:
            link.handle_timer(now)
        self._ask_if_wanted(now)
        return closed

    # -- events

    def _handle(self, events: list[Event], now: float) -> ConnectionClosed | None:
        closed = None
        for event in events:
            if isinstance(event, Transfers):
                link = event.link.context
                link.transfers(
                    event.link, event.first_id, event.tags, event.payloads, event.settled, event.message_format or 0
                )
            elif isinstance(event, Dispositions):
                link = event.link.context
                link.disposed(event.link, event.first_id, event.last_id, event.state, event.settled, now)
            elif isinstance(event, LinkFlow):
                link = event.link.context
                if isinstance(link, PublisherLink | SubscriberLink):
                    link.flowed(event.link, now)
                    if event.flow.properties and isinstance(link, PublisherLink):
                        link.told(event.link, event.flow.properties)
            elif isinstance(event, ConnectionClosed):
                closed = event
            else:
                self._handle_rare(event, now)
        if events:
            for link in self.links:  # a session's window may have opened
                link.pump(now)
            self._ask_if_wanted(now)
        return closed

    def _handle_rare(self, event: Event, now: float) -> None:
        if isinstance(event, ConnectionOpened):
            self.opened = True
            for link in list(self.links):
                self._give_session(link, now)
        elif isinstance(event, ResumedTransfer):
            event.link.context.resumed_transfer(
                event.link,
                event.delivery_id,
                event.tag,
                event.payload,
                event.settled,
                event.aborted,
                event.resume,
                event.message_format or 0,
            )
        elif isinstance(event, LinkAttached):
            event.link.context.attached(event.link, now)
        elif isinstance(event, LinkDetached):
            if event.link.context is not None:
                event.link.context.detached(event.link, event.closed, event.error, event.local, now)
        elif isinstance(event, LinkAttaching):
            event.link.refuse(NOT_ALLOWED, "this is a client, it has no addresses")
        elif isinstance(event, SessionBegun):
            if event.session is self._asking:
                self._answered(event.session, now)
        elif isinstance(event, SessionEnded):
            self._session_ended(event.session, event.error, now)

    def _session_ended(self, session: Session, error: Error | None, now: float) -> None:
        if session is self._asking:
            self._asking = None
            if self._ask_again:
                self._ask(now)
            return
        reason = "the session ended" if error is None else f"{error.condition} {error.description or ''}".strip()
        for link in self.links:
            if link.uses(session):
                link.disconnect(reason)
                self._failures += 1
                self._again.append((now + backoff_s(self._failures, self._rng), link))

    def _give_session(self, link: ClientLink, now: float) -> None:
        assert self.connection is not None
        if not link.needs_session:
            return
        shared = [
            session
            for session in self.connection.channels.sessions
            if not session.ended and session is not self._asking
        ]
        # One channel is kept for asking.  Links beyond the other channels share sessions: their delivery-ids
        # interleave, which costs speed and nothing else.
        if shared and self._free_channels() < 2:
            session = min(shared, key=lambda candidate: len(candidate.links))
        else:
            session = self.connection.begin()
        link.connect(session, now)

    # -- whether the network is there

    def _ask_if_wanted(self, now: float) -> None:
        wanted = [link for link in self.links if link.asks(now)]
        if not wanted:
            return
        if self._asking is None:
            self._ask(now)
        else:
            self._ask_again = True

    def _ask(self, now: float) -> None:
        connection = self.connection
        assert connection is not None
        self._ask_again = False
        if connection.closing:
            return
        self._asked_at = now
        if self._free_channels():
            self._asking = connection.begin()
            return
        # A router that allows a single session cannot be asked: the time at which something was read has to do.
        for link in self.links:
            link.answered(connection.times.last_read, now)

    def _answered(self, session: Session, now: float) -> None:
        for link in self.links:
            link.answered(self._asked_at, now)
        session.end()

    def _free_channels(self) -> int:
        connection = self.connection
        assert connection is not None
        assert connection.remote_open is not None
        highest = min(connection.settings.channel_max, connection.remote_open.channel_max)
        return highest + 1 - len(connection.channels.sessions)
