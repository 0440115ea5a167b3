"""A router and a client's connection, as the connection's links know them.

Names go in one direction: links know a `BaseConnection` and, behind it, a `BaseRouter`. The connection itself
(`router.links.client_connection`) knows links, and `router.router` knows connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from amqp10.connection import Connection
from amqp10.errors import FRAME_SIZE_TOO_SMALL, RESOURCE_LIMIT_EXCEEDED, FrameTooLarge, RemoteProtocolError
from amqp10.link import Link
from amqp10.performatives import Error
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol, ULong
from router.border import Border
from router.config import RouterConfig
from router.core.core import Core
from router.core.holding import Held
from router.links.buffers import Buffers
from router.links.client_log import ClientLog
from router.links.limits import MEMORY, Admission, Bookkeeping
from router.links.management import ManagementNodes
from router.links.offers import Offers
from router.links.passed_by import PassedBy
from router.links.turn import OUTPUT_DELAY_S, Turn
from router.policies import ANONYMOUS, Identity
from router.reporting import Log

OUTPUT_LIMIT: Final = 4 << 20  # bytes waiting in the engine, above which nothing is sent to subscribers


class BaseRouter:
    """One router, as its clients' connections and their links know it."""

    config: RouterConfig
    token: Callable[[], str] | None
    numbers: Iterator[int]
    log: Log
    now: float
    core: Core
    border: Border
    admission: Admission
    bookkeeping: Bookkeeping
    nodes: ManagementNodes
    connections: dict[Any, None]
    made: int
    turn: Turn
    buffers: Buffers
    offers: Offers
    windows: Any
    passed_by: PassedBy

    def enter(self, now: float) -> None: ...
    def leave(self, connection: Any) -> None: ...
    def dismiss(self, connection: Any) -> None: ...

    @property
    def sends_away(self) -> bool:
        raise NotImplementedError


class BaseConnection:
    """A client's connection, as its links know it: what they say to the client, and what the router is to do for
    them."""

    __slots__ = (
        "_outputs", "connection", "container", "core", "held", "limits", "log", "output_paused", "ports", "router",
        "user", "watched", "writes",
    )  # fmt: skip

    def __init__(self, router: BaseRouter, settings: ConnectionSettings, now: float, address: str) -> None:
        """address: host:port of the client, for the log."""
        self.router = router
        self.core = router.core
        self.log = ClientLog(router.log, address)
        self.connection = Connection(settings, server=True, now=now)
        self.connection.context = self
        self.limits = router.config.limits
        self.container = ""
        self.user: str | None = None  # under which it is counted, once admitted
        self.held = Held(router.core.memory.holding)  # from its open on
        self.ports: dict[Any, None] = {}  # its links
        self.watched: dict[Any, None] = {}  # those with an open proof: any frame may be the sign of life
        self.output_paused = False  # the transport's buffer is full
        self.writes = 0  # how often output has been fetched
        self._outputs: dict[Any, None] = {}  # the links that wait for output to drain

    @property
    def config(self) -> RouterConfig:
        return self.router.config

    @property
    def now(self) -> float:
        return self.router.now

    @property
    def identity(self) -> Identity:
        return Identity(self.user or ANONYMOUS, self.connection.handshake.groups)

    def said(self) -> dict[str, Any]:
        """Returns its address, user and container, for the log."""
        open_ = self.connection.remote_open
        return {
            "container": self.container or ("" if open_ is None else open_.container_id),
            "user": self.user or ANONYMOUS,
            "client": self.log.address,
        }

    @property
    def full(self) -> bool:
        return self.output_paused or self.connection.output_size > OUTPUT_LIMIT

    def output_ready(self) -> None:
        """There is output to write now."""
        self.router.turn.dirty[self] = None

    def output_can_wait(self) -> None:
        """Output that is not urgent may be waiting: it is written with the next urgent output, or a little later."""
        turn, now = self.router.turn, self.router.now
        turn.deferred_output.setdefault(self, now)
        if turn.output_due is None:
            turn.output_due = now + OUTPUT_DELAY_S

    def watch(self, port: Any) -> None:
        self.watched[port] = None
        self.router.turn.watching[self] = None

    def unwatch(self, port: Any) -> None:
        self.watched.pop(port, None)
        if not self.watched:
            self.router.turn.watching.pop(self, None)

    def credit_changed(self, port: Any) -> None:
        self.router.turn.credits[port] = None

    def drain(self, port: Any) -> None:
        self.router.turn.draining[port] = None

    def wait_for_output(self, port: Any) -> None:
        self._outputs[port] = None

    def forget(self, port: Any) -> None:
        self._outputs.pop(port, None)

    def attach(self, link: Link, **arguments: Any) -> bool:
        """Answer the peer's attach. False if the link has ended, or the answer exceeds the peer's max-frame-size."""
        if link.detached:
            return False
        try:
            link.attach(**arguments)
        except FrameTooLarge as error:
            self.fail(str(error))
            return False
        assert link.local_attach is not None
        link.local_attach.properties = link.local_attach.unsettled = None  # it is kept as long as the link
        self.log.attached(self.said(), link)
        self.output_ready()
        return True

    def fail(self, reason: str) -> None:
        """An answer exceeds the peer's max-frame-size: close, as that link cannot even be refused."""
        text = f"an answer exceeds your max-frame-size, raise it: {reason}"
        self.close_at_once(Error(Symbol(FRAME_SIZE_TOO_SMALL), text))

    def answer_part(self, link: Link, **arguments: Any) -> None:
        """Answer one part of an unsettled map: attach, then detach, not closed (protocol 7.7)."""
        if self.attach(link, **arguments):
            link.detach(None, closed=False)

    def refuse(self, link: Link, condition: str, description: str, info: Mapping[str, Any]) -> None:
        if link.detached:
            return
        self.log.refused(self.said(), link, condition, description)
        try:
            link.refuse(condition, description, _as_fields(info))
        except FrameTooLarge as error:
            self.fail(str(error))
        self.output_ready()

    def detach(self, link: Link, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        if not link.detached:
            self.log.ended(self.said(), link, condition, description)
            try:
                link.detach(Error(Symbol(condition), description, _as_fields(info)), closed=closed)
            except FrameTooLarge as error:  # it was not answered yet
                self.fail(str(error))
            self.output_ready()

    def close_at_once(self, error: Error) -> None:
        """Its links are lost with this turn, whenever the client answers."""
        self.close(error)
        self.router.turn.failed[self] = None

    def close(self, error: Error | None) -> None:
        if not self.connection.closing:
            self.connection.close(error)
        self.output_ready()

    # --- what its client may take

    def check_room(self, octets: int) -> None:
        """Raises RemoteProtocolError if this connection, or its user, may not take so much more."""
        if not self.core.memory.holding.has_room(self.identity.user, octets, self.held.octets):
            self.router.admission.count_refusal(MEMORY)
            raise RemoteProtocolError(RESOURCE_LIMIT_EXCEEDED, self.no_room())

    def no_room(self) -> str:
        """Returns what the client is told, and the log."""
        user, holding = self.identity.user, self.core.memory.holding
        return (
            f"limit memory_limit: {self.held.octets} octets of this connection, {holding.by_user.get(user, 0)} of user "
            f"{user!r:.60} and {holding.total} of all clients are in use: "
            "use fewer links, names and filters, or raise it"
        )

    def takes(self, link: Link, more: int) -> None: ...
    def end_link(self, port: Any, condition: str, description: str, now: float) -> None: ...


def _as_fields(info: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return {Symbol(key): ULong(value) if type(value) is int else value for key, value in info.items()} or None
