"""The links of the node `$management`: requests in, answers out (`router.links.management`).

The answer goes to the request's `reply-to`, as a message of the asking client: so a client can have answers sent
only where it may send to itself. `reply-to` is an address, such as a dynamic node at any router, or the target of
a receiving link from a management node on the same connection. Towards the core such a link is a dynamic node.

A link without an address asks so, too, with messages whose `to` is a node's address: its requests are answered like
those of a link to that node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp10.errors import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    DecodeError,
    RemoteProtocolError,
)
from amqp10.outcomes import ACCEPTED, DeliveryState, Error, Rejected
from amqp10.receiver import ReceiverLink
from amqp10.runs import Dispositions, Transfers
from amqp10.sections import MOST_READ, Message
from amqp10.termini import Target
from amqp10.types import Symbol
from router.core.ports import PublisherAttach
from router.links.anonymous import AnonymousLink
from router.links.base import BaseConnection
from router.links.limits import POLICIES
from router.links.management import STARTING, Request, managed_router, not_allowed
from router.links.negotiation import CBS, MANAGEMENT, Modes
from router.links.subscriber_link import SubscriberLink

if TYPE_CHECKING:
    from amqp10.performatives import Attach

MOST_REQUESTS: Final = 16  # of one link, not answered yet
MAX_REQUEST: Final = 64 << 10  # bytes


def check_may_read(connection: BaseConnection) -> None:
    """Raises RemoteProtocolError if this client may not use the management node."""
    router, who = connection.router, connection.identity
    if router.nodes.own is None:
        raise RemoteProtocolError(NOT_FOUND, STARTING)
    if not router.nodes.own.may_read(who):
        router.admission.count_refusal(POLICIES)
        raise RemoteProtocolError(UNAUTHORIZED_ACCESS, not_allowed(who))


class ManagementLink(AnonymousLink):
    """A sending link to the management node of the router `asked`. What it publishes are the answers."""

    __slots__ = ("_answers", "_node_of", "_unanswered")

    def __init__(
        self, connection: BaseConnection, link: ReceiverLink, container: str, modes: Modes, asked: str
    ) -> None:
        super().__init__(connection, link, PublisherAttach(container, link.name, MANAGEMENT), modes)
        self._node_of = asked
        self._unanswered = 0  # requests without an answer
        self._answers = 0

    def open(self) -> None:
        remote = self.link.remote_attach
        assert remote is not None
        assert isinstance(remote.target, Target)
        self._attach(remote.target, MAX_REQUEST)

    # --- the engine's events

    def on_transfers(self, event: Transfers, now: float) -> None:
        for number, payload in enumerate(event.payloads):
            state: DeliveryState = ACCEPTED
            self.connection.core.entered = None  # what came before is handled
            try:
                self._ask(payload)
            except (RemoteProtocolError, DecodeError) as error:
                description = error.description if isinstance(error, RemoteProtocolError) else str(error)
                state = Rejected(Error(Symbol(error.condition), description))
            if not event.settled:
                delivery_id = (event.first_id + number) & 0xFFFFFFFF
                self.link.dispose(delivery_id, delivery_id, state, True)
        self.connection.output_ready()
        self.connection.credit_changed(self)

    def on_dispositions(self, event: Dispositions, now: float) -> None:
        """Requests are settled as they come."""

    def room(self) -> tuple[int, int]:
        """Answers that nobody has taken yet count as requests."""
        return MOST_REQUESTS - self._unanswered - self.under_way, MAX_REQUEST

    # --- answers

    def settle(self, delivery_id: int, state: DeliveryState) -> None:
        """An answer has its outcome, of which nobody is told."""
        self.closed(delivery_id)
        self.connection.credit_changed(self)

    def _ask(self, payload: bytes) -> None:
        connection = self.connection
        check_may_read(connection)
        message = Message.decode(payload, MOST_READ)
        reply_to = message.properties.reply_to if message.properties is not None else None
        if not reply_to:
            raise RemoteProtocolError(INVALID_FIELD, "properties.reply-to: is missing: the answer has no place to go")
        address = self._reply_address(reply_to)
        self._unanswered += 1

        def answer(told: bytes) -> None:
            self._unanswered -= 1
            if not self.detached:
                self._answer(address, told, connection.now)

        connection.router.nodes.ask(self._node_of, Request(connection.identity, message, answer))

    def _reply_address(self, reply_to: str) -> str:
        for port in self.connection.ports:
            remote = port.link.remote_attach
            if isinstance(port, SubscriberLink) and remote is not None and _receives_at(remote, reply_to):
                return port.attach.address
        return self._allowed(reply_to, "properties.reply-to", settled=False)

    def _answer(self, address: str, payload: bytes, now: float) -> None:
        (payload,) = self._annotated([payload], 0, self.connection.config.address(address))
        delivery_id = self._answers = self._answers + 1 & 0xFFFFFFFF
        self._take(self._port(address, now), (delivery_id, delivery_id.to_bytes(4, "big"), payload, False, 0), now)
        self.connection.credit_changed(self)


class RelayLink(AnonymousLink):
    """A link without an address, of whose messages some are requests to management nodes."""

    __slots__ = ("_nodes",)

    def __init__(self, connection: BaseConnection, link: ReceiverLink, attach: PublisherAttach, modes: Modes) -> None:
        super().__init__(connection, link, attach, modes)
        self._nodes: dict[str, _Answers] = {}  # by router

    def is_request(self, to: Any, payload: bytes) -> bool:
        name = managed_router(to, self.connection.config)
        if name is None:
            return False
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Answers(self, name)
        node.take(payload)
        return True

    def leave(self, now: float) -> None:
        super().leave(now)
        for node in self._nodes.values():
            node.detached = True
            node.leave(now)


class _Answers(ManagementLink):
    """What a relay's requests to one node bring. It publishes the answers, whose delivery-ids are its own; credit and
    end of the link are the relay's."""

    __slots__ = ("_relay",)

    def __init__(self, relay: RelayLink, asked: str) -> None:
        super().__init__(relay.connection, relay.link, relay.attach.container, relay._modes, asked)
        self._relay = relay

    def take(self, payload: bytes) -> None:
        messages, size = self.room()
        if messages <= 0:
            text = f"{MOST_REQUESTS} requests of this link have no answer yet: ask again when one has come"
            raise RemoteProtocolError(RESOURCE_LIMIT_EXCEEDED, text)
        if len(payload) > size:
            raise RemoteProtocolError(MESSAGE_SIZE_EXCEEDED, f"a request has at most {size} bytes")
        self._ask(payload)

    def grant(self) -> None:
        self._close_ended()
        if self.broken is not None:
            self._relay.broken, self.broken = self.broken, None
            self.connection.credit_changed(self._relay)


def _receives_at(attach: Attach, reply_to: str) -> bool:
    """Whether this receiving link is one from the management node whose target has that name."""
    target: Any = attach.target
    return (
        attach.source is not None
        and str(attach.source.address).endswith((MANAGEMENT, CBS))
        and target is not None
        and target.address == reply_to
    )
