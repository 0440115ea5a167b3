"""One client's connection in the router: engine events to links, links' output back to the engine.

What its links know of it is in `router.links.base`. Turns attaches into ports or refusals, and the end of a link,
session or connection into calls of the core. Bytes and time come from the owner of the transport
(`onceway.serve.server`, or the simulator). Read `router.router` next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from amqp10.encoder import encode_value
from amqp10.errors import (
    CONNECTION_FORCED,
    DETACH_FORCED,
    INTERNAL_ERROR,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    DecodeError,
    RemoteProtocolError,
)
from amqp10.events import (
    ConnectionClosed,
    ConnectionOpened,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    SessionBegun,
    SessionEnded,
    SessionFlow,
)
from amqp10.link import Link
from amqp10.performatives import Error, UnreadMap
from amqp10.receiver import ReceiverLink
from amqp10.runs import Dispositions, LinkFlow, ResumedTransfer, TransferPart, Transfers
from amqp10.sasl import Step
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol
from router.border import REFUSED
from router.core.holding import ENTRY, PUBLISHER, Buffered, octets_of_address, octets_of_subscription, octets_of_text
from router.core.map_parts import enter
from router.core.ports import PublisherAttach, SubscriberAttach
from router.links.addresses import Names
from router.links.anonymous import AnonymousLink
from router.links.azure import NODES, AzureNode, AzureSubscriber, adapt
from router.links.base import BaseConnection, BaseRouter
from router.links.browser_link import BrowserLink
from router.links.buffers import SMALL_FRAME
from router.links.filters import Selection, octets_of
from router.links.limits import ADDRESS_COST, CONNECTION, LINKS, MAP, MEMORY, POLICIES, PORT
from router.links.management import managed_router
from router.links.management_link import ManagementLink, RelayLink, check_may_read
from router.links.negotiation import (
    ANONYMOUS_TARGET,
    CBS,
    MAX_NAME,
    Redirected,
    Unauthorized,
    check_allowed,
    check_name,
    negotiate_modes,
    read_publisher,
    read_subscriber,
    strip,
)
from router.links.proof import STALL
from router.links.publisher_link import PublisherLink
from router.links.subscriber_link import Loss, PendingExpiries, PendingExpiry, SubscriberLink
from router.policies import ANONYMOUS, concerning, owned

MOST_PROPERTIES: Final = 1_024  # bytes of the properties in a client's open that are kept; of larger ones none
NO_PROPERTIES: Final = encode_value({})
MOST_REFUSED: Final = 16  # links that are refused and not detached, where clients take more than they may
MAP_PART: Final = 1_024  # entries of an unsettled map that are read at once


class ClientConnection(BaseConnection):
    """Bytes and time in, bytes out. When `closed`, write what `data_to_send` has left and close the transport."""

    __slots__ = (
        "buffered", "named", "number", "pending_expiries", "properties", "scheme", "steps",
    )  # fmt: skip

    def __init__(self, router: BaseRouter, settings: ConnectionSettings, now: float, address: str = "") -> None:
        """address: host:port of the client, for the log."""
        super().__init__(router, settings, now, address)
        self.number = next(router.numbers)
        self.named: tuple[str | None, bytes] | None = None
        self.scheme = "amqp"  # of the listener's URL
        self.properties = NO_PROPERTIES  # of its open, encoded, for who asks the management node
        self.buffered = Buffered()
        self.pending_expiries = PendingExpiries()
        self.steps: Iterator[None] | None = None  # an attach whose map is not read to its end

    # --- for the owner of the transport

    def receive_data(self, data: bytes, now: float) -> None:
        """Call it, and `authenticated`, through `Border.input`."""
        router = self.router
        if router.turn.watching:
            router.enter(now)
        router.now = now
        while self.steps is not None:
            self._go_on()
            if not data:
                return
        connection, core = self.connection, self.core
        reader = connection.reader
        frames = reader.frames
        events: list[Any] = connection.receive_data(data, now)
        urgent = not events or connection.flow_due
        for event in events:
            kind = event.__class__
            core.entered = None
            method = _OF_LINKS.get(kind)
            if method is None:
                _HANDLERS[kind](self, event, now)
                urgent = True
                continue
            port = event.link.context
            if port is not None and not port.detached:
                getattr(port, method)(event, now)
            # other output of the engine is flows, which can wait; the core's output marks its connections itself
            if kind is ResumedTransfer or (kind is LinkFlow and event.flow.echo):
                urgent = True
        core.entered = None
        if self.watched and reader.frames != frames:
            for port in list(self.watched):
                port.on_frame(now)
        if connection.held_size != self.held.of_engine:
            self.count_held()
        if connection.incomplete_size + reader.buffered != self.buffered.incomplete_bytes:
            self._count_incomplete(now)
        if urgent:
            self.output_ready()
        elif self not in self.router.turn.deferred_output:
            self.output_can_wait()

    def authenticated(self, step: Step, now: float) -> None:
        """The result of a step of SASL that was pending; nothing happens if the connection has ended."""
        self.router.enter(now)
        self._handle(self.connection.authenticated(step, now), now)
        self._count_incomplete(now)
        self.output_ready()

    def end_on_error(self, text: str) -> None:
        """Its input has met an error that nobody expects, or is refused."""
        now, connection = self.router.now, self.connection
        connection.stop_reading()
        if connection.remote_open is None:  # it has not learnt who this is
            self.receive_eof(now)
            return
        connection.abandon(Error(Symbol(INTERNAL_ERROR), text))
        self._recount_incomplete()
        self.router.turn.failed[self] = None
        self.output_ready()

    @property
    def without_epochs(self) -> bool:
        """All its links came without epochs. Their client may not bear a close frame with an error: proton stays away
        until it has something to write, and collectd's plugin ends its process."""
        return bool(self.ports) and all(port.attach.epoch is None for port in self.ports)

    def send_away(self, description: str) -> None:
        """For the operator: the client may come back at once."""
        if self.without_epochs:
            self.log.sent_away(self.said(), description)
            self.receive_eof(self.router.now)
            return
        self.close_at_once(Error(Symbol(CONNECTION_FORCED), description))

    def delayed(self, since: float, now: float) -> None:
        """What is read next may have waited since then, so it may be older than it seems (protocol 12)."""
        if now - since > self.config.proof_after_s * STALL:
            for port in self.watched:
                port.proof.stalled(now)

    def receive_eof(self, now: float) -> None:
        self.router.enter(now)
        self._handle(self.connection.receive_eof(now), now)
        self._count_incomplete(now)
        self.output_ready()

    def handle_timer(self, now: float) -> None:
        self.router.enter(now)
        self._handle(self.connection.handle_timer(now), now)
        self._count_incomplete(now)
        self.output_ready()

    def next_deadline(self) -> float | None:
        return self.connection.next_deadline()

    def data_to_send(self) -> bytes:
        return b"".join(self.buffers_to_send())

    def buffers_to_send(self) -> Sequence[bytes | memoryview]:
        self.router.turn.deferred_output.pop(self, None)
        data = self.connection.buffers_to_send()
        if self.connection.held_size != self.held.of_engine:
            self.count_held()
        if data:
            self.writes += 1
            for port in self.watched:
                port.proof.written()
        if self._outputs and not self.full:
            self.router.turn.writable[self] = None
        return data

    def pause_output(self) -> None:
        """The transport's buffer is above its high-water mark: subscribers have no capacity until it drains."""
        self.output_paused = True

    def output_waits(self, size: int) -> None:
        """The transport's buffer holds this many bytes."""
        if self.output_paused:
            self.router.buffers.count_unread(self, size, self.router.now)

    def reads_too_slowly(self) -> None:
        """Of its user, who has the most unread output, it has most, and is dropped for that."""
        self.log.reads_too_slowly(self.said(), self.buffered.unread_bytes)

    def heard(self, now: float) -> None:
        """Input waits to be read, so the client is not silent."""
        self.connection.heard(now)

    @property
    def reads(self) -> bool:
        """False while the client leaves too much output unread: nothing is read from it until that drains. False, too,
        while it is looked at who it is: what it says meanwhile is to wait in its own buffers."""
        return self.buffered.unread_bytes <= self.limits.unread_output and not self.connection.authenticating

    def resume_output(self) -> None:
        self.output_paused = False
        self.router.buffers.count_unread(self, 0, self.router.now)
        if self._outputs:
            self.router.turn.writable[self] = None

    @property
    def more(self) -> bool:
        """What it has sent is handled in parts: give `receive_data` b"" to go on."""
        return self.steps is not None or self.connection.reader.more

    @property
    def closed(self) -> bool:
        return self.connection.closed

    # --- for the router

    def enforce(self, now: float) -> None:
        """The policies have changed: detach the links that they no longer allow."""
        for port in list(self.ports):
            if isinstance(port, AnonymousLink):
                continue  # its next message is looked at
            try:
                self._check_may_keep(port)
            except RemoteProtocolError as error:
                if isinstance(error, Unauthorized):
                    self.router.admission.count_refusal(POLICIES)
                self.end_link(port, error.condition, error.description, now)

    def _check_may_keep(self, port: PublisherLink | SubscriberLink) -> None:
        """Raises RemoteProtocolError where this client could not attach the link now."""
        if isinstance(port, PublisherLink):
            check_allowed(self.config, self.identity, "send", port.attach.address)
            return
        source = port.link.remote_attach.source if port.link.remote_attach is not None else None
        if self._node_at(source) is None:  # else its own address is that of a dynamic node, which nobody asked for
            check_allowed(self.config, self.identity, "receive", port.attach.address)

    def _node_at(self, terminus: object) -> str | None:
        """One of NODES that this is for a client of Azure's, or the router whose management node it is. Raises
        RemoteProtocolError unless this client may ask there."""
        address, who = getattr(terminus, "address", None), self.identity
        if self.connection.handshake.product is not None and address in NODES:
            if self.config.policies is not None and not concerning(self.config.policies, who):
                raise Unauthorized(who, "send", CBS)  # there is nothing here for it
            return str(address)
        managed = managed_router(address, self.config)
        if managed is not None:
            check_may_read(self)
        return managed

    def output_drained(self, now: float) -> None:
        ports, self._outputs = self._outputs, {}
        for port in ports:
            if not port.detached:
                port.has_room(now)

    def reconfigured(self) -> None:
        """The limits may have changed. What open told the client stays with the connection."""
        if self.user is None:
            self.limits = self.config.limits
            return
        self.limits = self.router.offers.limits_of(self.user)
        for port in self.ports:
            publisher = self.core.publishers.get(port) if isinstance(port, PublisherLink) else None
            if publisher is not None:
                publisher.window.most_unsettled = self.limits.unsettled_window or self.config.unsettled_window

    def close_link(self, port: PublisherLink | SubscriberLink, description: str, now: float) -> None:
        """Detach a link for the operator: its client may attach again."""
        self.end_link(port, DETACH_FORCED, description, now)

    def end_link(self, port: PublisherLink | SubscriberLink, condition: str, description: str, now: float) -> None:
        """Detach a link with an error that the core does not know of. Its client may attach again."""
        self._lost(port, Loss.DETACHED, now)
        self.detach(port.link, condition, description, {}, True)

    def lost(self, now: float) -> None:
        """The connection has ended, and every link with it."""
        for port in list(self.ports):
            self._lost(port, Loss.CONNECTION, now)
        self._start_timeouts(self.pending_expiries.connection_lost(), now)

    # --- events

    def _handle(self, events: list[Any], now: float) -> None:
        for event in events:
            self.core.entered = None
            method = _OF_LINKS.get(event.__class__)
            if method is None:
                _HANDLERS[event.__class__](self, event, now)
                continue
            port = event.link.context
            if port is not None and not port.detached:
                getattr(port, method)(event, now)

    def _opened(self, event: ConnectionOpened, now: float) -> None:
        user = self.connection.handshake.user or ANONYMOUS
        self.limits = self.router.offers.limits_of(user)
        suspected = self.router.border.suspects.refuses(None, user, self.log.address, now)
        reason = REFUSED if suspected else self.router.admission.admit(self, user)
        if reason is not None:
            self.close(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), reason))
            return
        self.user = user
        hostname, hostnames = event.open.hostname, self.config.hostnames
        if hostnames and hostname and hostname.lower() not in hostnames:
            text = f"open.hostname: this network is {' or '.join(hostnames[:8])}, not {hostname!r:.80}"
            self.close(Error(Symbol(NOT_FOUND), text))
            return
        try:
            self.container = check_name(owned(user, event.open.container_id), "open.container-id, with the user")
        except RemoteProtocolError as error:
            self.close(Error(Symbol(error.condition), error.description))
            return
        event.open.hostname = None
        event.open.outgoing_locales = event.open.incoming_locales = ()
        try:
            self.check_room(CONNECTION + self.connection.held_size)
        except RemoteProtocolError as error:
            self.close(Error(Symbol(error.condition), error.description))
            return
        self.count_held()
        self.log.connected(self.said())
        said = encode_value(dict(event.open.properties or {}))
        self.properties = said if len(said) <= MOST_PROPERTIES else NO_PROPERTIES
        event.open.properties = None  # as an object it takes more, and may be large
        event.open.offered_capabilities = event.open.desired_capabilities = ()
        if self.router.sends_away:
            self.router.dismiss(self)

    def _attaching(self, event: LinkAttaching, now: float) -> None:
        self.steps = self._attach(event.link)
        self._go_on()

    def _go_on(self) -> None:
        """Takes the next step of the attach that is in hand."""
        assert self.steps is not None
        self.core.entered = None
        if not self.connection.closing and next(self.steps, self) is not self:
            return
        self.steps = None
        self.output_ready()

    def _attach(self, link: Link) -> Iterator[None]:
        """Handles an attach, in as many steps as its map needs."""
        remote = link.remote_attach
        assert remote is not None
        now = self.now
        admission = self.router.admission
        if self._left_by_drain(link):
            return
        self.count_held()  # with what has come before in this turn
        try:
            self._check_links()
            sends = isinstance(link, ReceiverLink)
            terminus = remote.target if sends else remote.source
            if self.connection.handshake.product is None and getattr(terminus, "address", None) == CBS:
                self.connection.write_whole_lists("")
            if self.connection.handshake.product:
                adapt(remote, self.connection.handshake.product)
            means = partial(
                Names(self.router.core, self.config).meant, container=self.container, link=remote.name, sends=sends
            )
            managed = self._node_at(terminus)
            if managed is not None and isinstance(link, ReceiverLink):
                modes = negotiate_modes(remote, "at-least-once", router_sends=False)
                strip(remote)
                self.check_room(PORT)
                link.takes(PORT)
                node = AzureNode if managed in NODES else ManagementLink
                asking = node(self, link, self.container, modes, managed)
                link.context = asking
                self.ports[asking] = None
                asking.open()
            elif isinstance(link, ReceiverLink):
                publisher, modes = read_publisher(
                    remote, self.container, self.config, self.router.token, self.identity, means
                )
                publisher.connection, publisher.unsettled_window = self.number, self.limits.unsettled_window
                link.takes(self._check_attach(publisher, len(remote.unsettled or ()), now))
                if isinstance(remote.unsettled, UnreadMap):
                    yield from self._read_map(remote.unsettled)
                    if link.detached or self._left_by_drain(link):
                        return
                    now = self.now
                strip(remote)
                anonymous = publisher.address == ANONYMOUS_TARGET
                sending = (RelayLink if anonymous else PublisherLink)(self, link, publisher, modes)
                link.context = sending
                self.ports[sending] = None
                self.router.windows.changed(link.session)
                if isinstance(sending, AnonymousLink):
                    sending.open()
                else:
                    self.core.attach_publisher(sending, publisher, now)
            else:
                assert isinstance(link, SenderLink)
                subscriber, modes = read_subscriber(
                    remote, self.container, self.config, self.router.token, self.identity, means,
                    managed=managed is not None,
                )  # fmt: skip
                assert remote.source is not None
                filters = octets_of(remote.source.filter or {})
                self.check_room(filters)
                link.takes(self._check_attach(subscriber, len(remote.unsettled or ()), now) + filters)
                if isinstance(remote.unsettled, UnreadMap):
                    yield from self._read_map(remote.unsettled)
                    yield from _entered(subscriber)
                    if link.detached or self._left_by_drain(link):
                        return
                    now = self.now
                chosen = subscriber.selection
                assert chosen is None or isinstance(chosen, Selection)
                if chosen is not None:
                    admission.check_filters(subscriber, chosen)
                subscriber.selection = self.router.border.judge(chosen)
                subscriber.takes_parts = not subscriber.browses
                strip(remote)
                kind = AzureSubscriber if self.connection.handshake.product else SubscriberLink
                receiving = (BrowserLink if subscriber.browses else kind)(self, link, subscriber, modes)
                link.context = receiving
                self.ports[receiving] = None
                if chosen is not None:
                    receiving.filtered_by(chosen)
                if isinstance(receiving, BrowserLink):
                    receiving.open(now)
                else:
                    self.core.attach_subscriber(receiving, subscriber, now)
        except RemoteProtocolError as error:
            if isinstance(error, Unauthorized):
                admission.count_refusal(POLICIES)
            strip(remote, refused=True)
            self.refuse(link, error.condition, error.description, error.info if isinstance(error, Redirected) else {})
            link.name = remote.name = link.name[:MAX_NAME]  # kept until the peer's detach
            if link.local_attach is not None:
                link.local_attach.name = link.name
            self._check_refused()
        self.count_held()

    def _left_by_drain(self, link: Link) -> bool:
        if not self.router.sends_away:
            return False
        self.refuse(link, DETACH_FORCED, "this router is being drained", {})
        self.router.leave(self)
        return True

    def _read_map(self, unread: UnreadMap) -> Iterator[None]:
        while unread.unread:
            try:
                unread.read(MAP_PART)
            except DecodeError as error:
                self.close_at_once(Error(Symbol(error.condition), error.description))
                self.connection.stop_reading()
            yield None

    def _detached(self, event: LinkDetached, now: float) -> None:
        port = event.link.context
        if event.local:
            self.router.admission.count_engine_error(event.error)
        if port is not None:
            if not port.detached:  # else it was logged before
                self.log.detached(self.said(), event)
            self._lost(port, Loss.CLOSED if event.closed and not event.local else Loss.DETACHED, now)

    def _session_flow(self, event: SessionFlow, now: float) -> None:
        for link in event.session.links:
            port = link.context
            if isinstance(port, SubscriberLink) and port.answered and not port.detached:
                port.has_room(now)

    def _session_ended(self, event: SessionEnded, now: float) -> None:
        for link in event.session.links:
            if link.context is not None:
                self._lost(link.context, Loss.SESSION, now)
        self._start_timeouts(self.pending_expiries.session_ended(event.session), now)
        self.router.made += 1

    def _closed(self, event: ConnectionClosed, now: float) -> None:
        if event.local and not event.lost:
            self.router.admission.count_engine_error(event.error)
        self.log.closed(self.said(), event, admitted=self.user is not None)
        self.router.admission.disconnected(self, self.user)
        self.resume_output()
        self.lost(now)
        self.release()
        self.user = None

    def _begun(self, event: SessionBegun, now: float) -> None:
        begin = event.session.remote_begin
        assert begin is not None
        begin.properties = None
        begin.offered_capabilities = begin.desired_capabilities = ()
        try:
            self.check_room(self.connection.held_size - self.held.of_engine)
        except RemoteProtocolError as error:
            self.close(Error(Symbol(error.condition), error.description))
        self.count_held()

    def _nothing(self, event: LinkAttached, now: float) -> None:
        """The router attaches no links of its own to clients."""

    # --- helpers

    def _lost(self, port: PublisherLink | SubscriberLink, end: Loss, now: float) -> None:
        self.ports.pop(port, None)
        if isinstance(port, PublisherLink):
            port.lost(end is Loss.CLOSED, now)
            return
        term = port.lost(end, now)
        if term is not None:
            self.pending_expiries.add(PendingExpiry(port.attach, term, port.link.session, port.expires_at))
            self.count_held()

    def _start_timeouts(self, pending_expiries: list[PendingExpiry], now: float) -> None:
        self.count_held()
        for one in pending_expiries:
            self.core.subscription_expiring(one.attach, one.term, now)

    def takes(self, link: Link, more: int) -> None:
        """So many octets are kept for this link, or (negative) no more."""
        link.takes(more)
        self.count_held()

    def count_held(self) -> None:
        """What it has made has changed, perhaps."""
        self.held.of_engine = self.connection.held_size
        if self.user is not None and not self.connection.closed:
            self.held.count(self.user, self.octets())

    def release(self) -> None:
        """It has ended."""
        self.held.count(self.identity.user, 0)

    def octets(self) -> int:
        names = octets_of_text(self.container) + octets_of_text(self.user or "")
        return CONNECTION + names + self.connection.held_size + self.pending_expiries.octets

    def check_invariants(self) -> None:
        self.connection.check_invariants()
        waits = self in self.router.turn.dirty or self in self.router.turn.deferred_output
        if self.user is not None and not (self.connection.closed or waits):
            assert self.held.octets == self.octets(), f"{self.held.octets} octets counted, {self.octets()} held"
        else:
            assert self.user is not None or not self.held.octets

    def _check_links(self) -> None:
        """One more link is being attached. Raises RemoteProtocolError if it is one too many."""
        most = self.limits.links
        if len(self.ports) >= most:
            self.router.admission.count_refusal(LINKS)
            raise RemoteProtocolError(RESOURCE_LIMIT_EXCEEDED, f"limit links: a connection may have {most} of them")

    def _check_attach(self, attach: PublisherAttach | SubscriberAttach, entries: int, now: float) -> int:
        """Enters an attach and the entries of its map in the bookkeeping. Returns the octets that the link takes,
        without filters.

        Raises:
            RemoteProtocolError: There are too many entries, all parts of the map together, or too much is kept.
        """
        core, router, most = self.core, self.router, self.limits.unsettled_map
        before = core.memory.map_parts.entries_of(attach) if entries else 0
        if entries and entries + before > most:
            router.admission.count_refusal(MAP)
            raise RemoteProtocolError(
                RESOURCE_LIMIT_EXCEEDED, f"limit unsettled_map: a map may have {most} entries, all its parts together"
            )
        is_new = attach.address not in core.addresses
        octets = PORT + octets_of_text(attach.address) + octets_of_text(attach.name) + ENTRY * (entries + before)
        stays = PUBLISHER + octets_of_subscription((attach.container, attach.name))
        self.check_room(octets + stays + (octets_of_address(attach.address) if is_new else 0))
        cost = ADDRESS_COST + 1 + entries if is_new else 1 + entries
        if not router.bookkeeping.add(cost, now):
            router.admission.count_refusal(MEMORY)
            raise RemoteProtocolError(
                RESOURCE_LIMIT_EXCEEDED,
                f"limit memory_limit: this router keeps {router.bookkeeping.limit} names and deliveries",
            )
        return octets

    def _check_refused(self) -> None:
        """A link that is refused takes something, too, until its client has detached it."""
        holding = self.core.memory.holding
        refused = sum(len(session.links) for session in self.connection.channels.sessions) - len(self.ports)
        if refused > (MOST_REFUSED if holding.full else self.limits.links):
            self.router.admission.count_refusal(MEMORY if holding.full else LINKS)
            text = f"{refused} links were refused and are not detached: detach them"
            if holding.full:
                text = f"{self.no_room()}; {text}"
            self.close(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), text))

    def _count_incomplete(self, now: float) -> None:
        """Count the bytes of incomplete messages. Beyond the router's limit, its largest, or another user's, go."""
        router = self.router
        self._recount_incomplete()
        if router.buffers.has_too_much_incomplete(self, now):
            router.admission.count_refusal(MEMORY)
            self.drop_incomplete(now)

    def drop_incomplete(self, now: float) -> None:
        """Detaches the links of the largest incomplete messages until the router holds less, or closes."""
        router, connection = self.router, self.connection
        holders = [p for p in self.ports if isinstance(p, PublisherLink) and p.link.incomplete_size]
        for port in sorted(holders, key=lambda port: port.link.incomplete_size, reverse=True):
            port.detach_with_error(
                RESOURCE_LIMIT_EXCEEDED,
                f"limit memory_limit: this router holds {router.buffers.incomplete_limit} bytes of incomplete messages",
                now,
            )
            self._recount_incomplete()
            if router.buffers.incomplete.total <= router.buffers.incomplete_limit:
                return
        if connection.reader.buffered > SMALL_FRAME:
            text = f"limit memory_limit: this router holds {router.buffers.incomplete_limit} bytes of incomplete frames"
            self.close(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), text))
            connection.stop_reading()
            self._recount_incomplete()

    def _recount_incomplete(self) -> None:
        self.router.buffers.count_incomplete(self, self.connection.incomplete_size + self.connection.reader.buffered)


def _entered(subscriber: SubscriberAttach) -> Iterator[None]:
    """Enters the map, as the core does where that is short."""
    states = iter((subscriber.unsettled or {}).items())
    subscriber.entered = {}
    while part := list(islice(states, MAP_PART)):
        enter(part, brought_epoch=subscriber.epoch is not None, into=subscriber.entered)
        yield None


_OF_LINKS: Final = {
    LinkFlow: "on_flow",
    Transfers: "on_transfers",
    TransferPart: "on_part",
    ResumedTransfer: "on_resumed_transfer",
    Dispositions: "on_dispositions",
}
"""Events that a link's port takes -> its method."""

_HANDLERS: Final[dict[type, Callable[[ClientConnection, Any, float], None]]] = {
    ConnectionOpened: ClientConnection._opened,
    ConnectionClosed: ClientConnection._closed,
    SessionBegun: ClientConnection._begun,
    SessionEnded: ClientConnection._session_ended,
    SessionFlow: ClientConnection._session_flow,
    LinkAttaching: ClientConnection._attaching,
    LinkAttached: ClientConnection._nothing,
    LinkDetached: ClientConnection._detached,
}
