"""One client's connection in the router: engine events to links, links' output back to the engine.

Owns the `amqp10.Connection` and the ports of its links; turns attaches into ports or refusals, and the end of a link,
session or connection into what the core is told.  Bytes and time come from whoever owns the transport
(`onceway.server`, or a simulator).  Read `router.router` next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from amqp10.connection import Connection
from amqp10.errors import (
    CONNECTION_FORCED,
    DETACH_FORCED,
    FRAME_SIZE_TOO_SMALL,
    RESOURCE_LIMIT_EXCEEDED,
    FrameTooLarge,
    RemoteProtocolError,
)
from amqp10.events import (
    ConnectionClosed,
    ConnectionOpened,
    Dispositions,
    Event,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    LinkFlow,
    ResumedTransfer,
    SessionBegun,
    SessionEnded,
    SessionFlow,
    Transfers,
)
from amqp10.link import Link
from amqp10.performatives import Error
from amqp10.receiver import ReceiverLink
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol, ULong
from router.config import RouterConfig
from router.expiry import Lingerers, Lingering, Loss
from router.limits import ANONYMOUS, LINKS, MAP, MEMORY, UNREAD
from router.memory import ADDRESS_COST
from router.negotiation import MAX_NAME, check_name, read_publisher, read_subscriber, strip
from router.ports import PublisherAttach, SubscriberAttach
from router.proof import STALL
from router.publisher_link import PublisherLink
from router.subscriber_link import SubscriberLink

if TYPE_CHECKING:
    from router.core import Core
    from router.router import Router

SMALL_FRAME: Final = 64 << 10  # octets of one that is not complete which nobody is closed for
OUTPUT_LIMIT: Final = 4 << 20  # octets waiting in the engine above which subscribers get nothing more


class ClientConnection:
    """Bytes and time in, bytes out; `closed` when the transport can be closed after what `data_to_send` has left."""

    __slots__ = (
        "_held",
        "_outputs",
        "connection",
        "container",
        "limits",
        "lingering",
        "output_paused",
        "ports",
        "router",
        "unread",
        "user",
        "watched",
        "writes",
    )

    def __init__(self, router: Router, settings: ConnectionSettings, now: float) -> None:
        self.router = router
        self.connection = Connection(settings, server=True, now=now)
        self.connection.context = self
        self.container = ""
        self.user: str | None = None  # under which it is counted, once it is let in
        self.limits = router.config.limits
        self.unread = 0  # octets that its transport holds while it is paused
        self.ports: dict[PublisherLink | SubscriberLink, None] = {}
        self.watched: dict[PublisherLink, None] = {}  # an open proof: any frame may be the sign of life
        self.lingering = Lingerers()  # lost, and their own timeout has not begun (contract 10)
        self.output_paused = False  # the transport takes nothing more for now
        self.writes = 0  # how often output has been fetched
        self._held = 0  # of the engine's held_size, what the router has counted
        self._outputs: dict[SubscriberLink, None] = {}  # would get more if output had room

    # --- for the owner of the transport

    def receive_data(self, data: bytes, now: float) -> None:
        self.router.enter(now)
        connection = self.connection
        frames = connection.frames_read
        events = connection.receive_data(data, now)
        handlers = _HANDLERS
        urgent = not events
        for event in events:
            kind = event.__class__
            handlers[kind](self, event, now)
            if kind not in _QUIET and not (isinstance(event, LinkFlow) and not event.flow.echo):
                urgent = True
        if self.watched and connection.frames_read != frames:
            for port in list(self.watched):
                port.on_frame(now)
        if connection.held_size + connection.buffered_size != self._held:
            self._count_held(now)
        if urgent:
            self.touch()
        else:
            self.touch_lazily()

    def delayed(self, since: float, now: float) -> None:
        """12: what is read next has waited for us since then, so it may be older than it seems."""
        if now - since > self.config.proof_after_s * STALL:
            for port in self.watched:
                port.proof.stalled(now)

    def receive_eof(self, now: float) -> None:
        self.router.enter(now)
        self._handle(self.connection.receive_eof(now), now)
        self._count_held(now)
        self.touch()

    def handle_timer(self, now: float) -> None:
        self.router.enter(now)
        self._handle(self.connection.handle_timer(now), now)
        self._count_held(now)
        self.touch()

    def next_deadline(self) -> float | None:
        return self.connection.next_deadline()

    def data_to_send(self) -> bytes:
        self.router.lazy.pop(self, None)
        data = self.connection.data_to_send()
        if data:
            self.writes += 1
            for port in self.watched:
                port.proof.written()
        if self._outputs and not self.full:
            self.router.has_room(self)
        return data

    def pause_output(self) -> None:
        """The transport's buffer is above its high-water mark: subscribers here have no capacity until it drains."""
        self.output_paused = True

    def output_waits(self, size: int) -> None:
        """So many octets are in the transport's buffer."""
        if self.output_paused:
            self.router.unread += size - self.unread
            if size > self.limits.unread_output >= self.unread:
                self.router.admission.exceeded(UNREAD)
            self.unread = size
            if self.router.unread > self.config.memory_limit:
                self.router.shed()

    @property
    def reads(self) -> bool:
        """False: it lets too much lie that we answered, so nothing more is read from it until that has gone."""
        return self.unread <= self.limits.unread_output

    def resume_output(self) -> None:
        self.output_paused = False
        self.router.unread -= self.unread
        self.unread = 0
        if self._outputs:
            self.router.has_room(self)

    @property
    def closed(self) -> bool:
        return self.connection.closed

    # --- for the router

    def output_has_room(self, now: float) -> None:
        ports, self._outputs = self._outputs, {}
        for port in ports:
            if not port.gone:
                self.core.subscriber_credit(port, now)

    def close(self, error: Error | None) -> None:
        if not self.connection.closing:
            self.connection.close(error)
        self.touch()

    def lost(self, now: float) -> None:
        """Every link here is over."""
        for port in list(self.ports):
            self._lost(port, Loss.CONNECTION, now)
        self._timeouts_start(self.lingering.connection_lost(), now)

    # --- for the ports

    @property
    def core(self) -> Core:
        return self.router.core

    @property
    def config(self) -> RouterConfig:
        return self.router.config

    @property
    def now(self) -> float:
        return self.router.now

    @property
    def full(self) -> bool:
        return self.output_paused or self.connection.output_size > OUTPUT_LIMIT

    def touch(self) -> None:
        """There is output."""
        self.router.dirty[self] = None

    def touch_lazily(self) -> None:
        """There may be output, and nobody waits for it: it goes out with the next that is urgent, or a little later."""
        self.router.output_later(self)

    def watch(self, port: PublisherLink) -> None:
        self.watched[port] = None
        self.router.watching[self] = None

    def unwatch(self, port: PublisherLink) -> None:
        self.watched.pop(port, None)
        if not self.watched:
            self.router.watching.pop(self, None)

    def credit_changed(self, port: PublisherLink) -> None:
        self.router.credits[port] = None

    def drain(self, port: SubscriberLink) -> None:
        self.router.draining[port] = None

    def wait_for_output(self, port: SubscriberLink) -> None:
        self._outputs[port] = None

    def forget(self, port: SubscriberLink) -> None:
        self._outputs.pop(port, None)

    def attach(self, link: Link, **arguments: Any) -> bool:
        """Answer the peer's attach.  False if the link is over, or the answer does not fit the peer's frames."""
        if link.detached:
            return False
        try:
            link.attach(**arguments)
        except FrameTooLarge as error:
            self.fail(str(error))
            return False
        self.touch()
        return True

    def fail(self, reason: str) -> None:
        """An answer that the peer's frames are too small for: nothing can be said on that link, so close."""
        self.close(Error(Symbol(FRAME_SIZE_TOO_SMALL), f"an answer does not fit your max-frame-size: {reason}"))
        self.router.failed[self] = None

    def answer_part(self, link: Link, **arguments: Any) -> None:
        """PROTOCOL 7.7: the answer to a part of a map: attach, then detach, not closed."""
        if self.attach(link, **arguments):
            link.detach(None, closed=False)

    def refuse(self, link: Link, condition: str, description: str, info: Mapping[str, int]) -> None:
        if link.detached:
            return
        try:
            link.refuse(condition, description, _as_fields(info))
        except FrameTooLarge as error:
            self.fail(str(error))
        self.touch()

    def detach(self, link: Link, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        if not link.detached:
            link.detach(Error(Symbol(condition), description, _as_fields(info)), closed=closed)
            self.touch()

    # --- events

    def _handle(self, events: list[Event], now: float) -> None:
        for event in events:
            _HANDLERS[type(event)](self, event, now)

    def _opened(self, event: ConnectionOpened, now: float) -> None:
        user = self.connection.user or ANONYMOUS
        self.limits = self.router.limits_of(user)
        reason = self.router.admission.opening(self, user)
        if reason is not None:
            self.close(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), reason))
            return
        self.user = user
        try:
            self.container = check_name(event.open.container_id, "open.container-id")
        except RemoteProtocolError as error:
            self.close(Error(Symbol(error.condition), error.description))
            return
        event.open.properties = None  # nothing of it is needed, and it may be large
        event.open.offered_capabilities = event.open.desired_capabilities = ()
        if self.router.stopping:
            self.close(Error(Symbol(CONNECTION_FORCED), "this router is being stopped"))

    def _attaching(self, event: LinkAttaching, now: float) -> None:
        link = event.link
        remote = link.remote_attach
        assert remote is not None
        if self.router.stopping:
            self.refuse(link, DETACH_FORCED, "this router is being stopped", {})
            return
        try:
            self._check_links()
            if isinstance(link, ReceiverLink):
                publisher, modes = read_publisher(remote, self.container, self.config)
                publisher.unsettled_window = self.limits.unsettled_window
                self._check_map(publisher, len(remote.unsettled or ()), now)
                strip(remote)
                sending = PublisherLink(self, link, publisher, modes)
                link.context = sending
                self.ports[sending] = None
                if self.router.windows_closed:
                    self.router.close_window(link.session)
                self.core.attach_publisher(sending, publisher, now)
            else:
                assert isinstance(link, SenderLink)
                subscriber, modes = read_subscriber(remote, self.container, self.config)
                self._check_map(subscriber, len(remote.unsettled or ()), now)
                strip(remote)
                receiving = SubscriberLink(self, link, subscriber, modes)
                link.context = receiving
                self.ports[receiving] = None
                self.core.attach_subscriber(receiving, subscriber, now)
        except RemoteProtocolError as error:
            strip(remote)
            self.refuse(link, error.condition, error.description, {})
            link.name = remote.name = link.name[:MAX_NAME]  # it stays until the peer has answered
            if link.local_attach is not None:
                link.local_attach.name = link.name

    def _check_links(self) -> None:
        admission, limits = self.router.admission, self.limits
        if len(self.ports) >= limits.links:
            admission.exceeded(LINKS)
            raise RemoteProtocolError(
                RESOURCE_LIMIT_EXCEEDED, f"limit links: a connection may have {limits.links} of them"
            )

    def _check_map(self, attach: PublisherAttach | SubscriberAttach, entries: int, now: float) -> None:
        admission, most = self.router.admission, self.limits.unsettled_map
        if entries and entries + self.core.entries_of_parts(attach) > most:
            admission.exceeded(MAP)
            raise RemoteProtocolError(
                RESOURCE_LIMIT_EXCEEDED, f"limit unsettled_map: a map may have {most} entries, all its parts together"
            )
        cost = 1 + entries if attach.address in self.core.addresses else ADDRESS_COST + 1 + entries
        if not self.router.bookkeeping.add(cost, now):
            admission.exceeded(MEMORY)
            raise RemoteProtocolError(
                RESOURCE_LIMIT_EXCEEDED,
                f"limit memory_limit: this router keeps {self.router.bookkeeping.limit} names and deliveries",
            )

    def _transfers(self, event: Transfers, now: float) -> None:
        port = event.link.context
        if port is not None and not port.gone:
            port.on_transfers(event, now)

    def _resumed_transfer(self, event: ResumedTransfer, now: float) -> None:
        port = event.link.context
        if port is not None and not port.gone:
            port.on_resumed_transfer(event, now)

    def _flow(self, event: LinkFlow, now: float) -> None:
        port = event.link.context
        if port is not None and not port.gone:
            port.on_flow(event, now)

    def _dispositions(self, event: Dispositions, now: float) -> None:
        port = event.link.context
        if port is not None and not port.gone:
            port.on_dispositions(event, now)

    def _detached(self, event: LinkDetached, now: float) -> None:
        port = event.link.context
        if event.local:
            self.router.admission.engine_said(event.error)
        if port is not None:
            self._lost(port, Loss.CLOSED if event.closed and not event.local else Loss.DETACHED, now)

    def _session_flow(self, event: SessionFlow, now: float) -> None:
        for link in event.session.links:
            port = link.context
            if isinstance(port, SubscriberLink) and port.answered and not port.gone:
                self.core.subscriber_credit(port, now)

    def _session_ended(self, event: SessionEnded, now: float) -> None:
        for link in event.session.links:
            if link.context is not None:
                self._lost(link.context, Loss.SESSION, now)
        self._timeouts_start(self.lingering.session_ended(event.session), now)

    def _closed(self, event: ConnectionClosed, now: float) -> None:
        if event.local and not event.lost:
            self.router.admission.engine_said(event.error)
        self.router.admission.went(self, self.user)
        self.user = None
        self.resume_output()
        self.lost(now)

    def _begun(self, event: SessionBegun, now: float) -> None:
        begin = event.session.remote_begin
        assert begin is not None
        begin.properties = None
        begin.offered_capabilities = begin.desired_capabilities = ()

    def _nothing(self, event: LinkAttached, now: float) -> None:
        """Answered by the engine; we attach no links of our own to clients."""

    # --- helpers

    def _lost(self, port: PublisherLink | SubscriberLink, end: Loss, now: float) -> None:
        self.ports.pop(port, None)
        if isinstance(port, PublisherLink):
            port.lost(end is Loss.CLOSED, now)
            return
        term = port.lost(end, now)
        if term is not None:
            self.lingering.add(Lingering(port.attach, term, port.link.session, port.starts))

    def _timeouts_start(self, lingering: list[Lingering], now: float) -> None:
        for one in lingering:
            self.core.subscription_expiring(one.attach, one.term, now)

    def _count_held(self, now: float) -> None:
        """Messages of which frames are still to come.  Beyond the limit this connection's largest ones go."""
        router, connection = self.router, self.connection
        self._recount_held()
        if router.held <= router.held_limit:
            return
        router.admission.exceeded(MEMORY)
        holders = [p for p in self.ports if isinstance(p, PublisherLink) and p.link.held_size]
        for port in sorted(holders, key=lambda port: port.link.held_size, reverse=True):
            port.give_up(
                RESOURCE_LIMIT_EXCEEDED,
                f"limit memory_limit: this router holds {router.held_limit} octets of messages that are not complete",
                now,
            )
            self._recount_held()
            if router.held <= router.held_limit:
                return
        if connection.buffered_size > SMALL_FRAME:
            text = f"limit memory_limit: this router holds {router.held_limit} octets of frames that are not complete"
            self.close(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), text))
            connection.stop_reading()
            self._recount_held()

    def _recount_held(self) -> None:
        held = self.connection.held_size + self.connection.buffered_size
        self.router.held += held - self._held
        self._held = held


def _as_fields(info: Mapping[str, int]) -> Mapping[str, ULong] | None:
    return {Symbol(key): ULong(value) for key, value in info.items()} or None


# What the engine says by itself after these can wait: windows. What the core says marks its connections itself.
_QUIET: Final = frozenset((Transfers, Dispositions))

_HANDLERS: Final[dict[type, Callable[[ClientConnection, Any, float], None]]] = {
    ConnectionOpened: ClientConnection._opened,
    ConnectionClosed: ClientConnection._closed,
    SessionBegun: ClientConnection._begun,
    SessionEnded: ClientConnection._session_ended,
    SessionFlow: ClientConnection._session_flow,
    LinkAttaching: ClientConnection._attaching,
    LinkAttached: ClientConnection._nothing,
    LinkFlow: ClientConnection._flow,
    Transfers: ClientConnection._transfers,
    ResumedTransfer: ClientConnection._resumed_transfer,
    Dispositions: ClientConnection._dispositions,
    LinkDetached: ClientConnection._detached,
}
