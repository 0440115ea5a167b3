"""The links of the node `$management` (AMQP management): requests in, answers out.

A request comes on a sending link to `$management`; the router hands it to its `ManagementNode` together with who asks.
The answer goes to the request's `reply-to`, as a message of the asking client: so a client can have answers sent
only where it may send to itself. `reply-to` is an address, such as a dynamic node at any router, or the target of
a receiving link from `$management` on the same connection. Such a receiving link is towards the core a dynamic node.

What requests mean is not known here (`onceway.amqp_management`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from amqp10.errors import INVALID_FIELD, NOT_FOUND, UNAUTHORIZED_ACCESS, DecodeError, RemoteProtocolError
from amqp10.events import Dispositions, Transfers
from amqp10.outcomes import ACCEPTED, DeliveryState, Error, Rejected
from amqp10.receiver import ReceiverLink
from amqp10.sections import Message
from amqp10.termini import Target
from amqp10.types import Symbol
from router.core.ports import PublisherAttach
from router.links.anonymous import AnonymousLink
from router.links.limits import POLICIES
from router.links.negotiation import MANAGEMENT, Modes
from router.links.subscriber_link import SubscriberLink
from router.policies import Identity

if TYPE_CHECKING:
    from amqp10.performatives import Attach
    from router.config import RouterConfig
    from router.links.client_connection import ClientConnection

MOST_REQUESTS: Final = 16  # of one link, not answered yet
MAX_REQUEST: Final = 64 << 10  # bytes

Answer = Callable[[Message], None]


class Request(NamedTuple):
    """What a client asks. Call `answer` once, within a handler of the router."""

    who: Identity
    message: Message
    answer: Answer


class ManagementNode(Protocol):
    """Whoever answers for this router."""

    def may_read(self, who: Identity) -> bool:
        """Whether this client may ask at all."""

    def ask(self, request: Request) -> None:
        """Takes a request, and answers it later."""


def is_management(address: object, config: RouterConfig) -> bool:
    """Whether an address is the management node of this router: `$management`, or the name by which tools of other
    routers ask for one router of a network. RemoteProtocolError if it is another router's: it answers only its own
    clients."""
    if not isinstance(address, str) or not address.endswith(MANAGEMENT):
        return False
    for name in config.routers:
        if address == f"_topo/0/{name}/{MANAGEMENT}" and name != config.name:
            raise RemoteProtocolError(NOT_FOUND, f"{address}: router {name} answers clients of its own listeners only")
    return address in (MANAGEMENT, f"_topo/0/{config.name}/{MANAGEMENT}")


def check_may_read(connection: ClientConnection) -> None:
    """Raises RemoteProtocolError if this client may not use the management node."""
    router, who = connection.router, connection.identity
    if router.management is None:
        raise RemoteProtocolError(NOT_FOUND, f"{MANAGEMENT}: this router is starting; come again")
    if not router.management.may_read(who):
        router.admission.count_refusal(POLICIES)
        text = f"user {who.user!r:.60} may not read here: neither users nor groups of admin name them"
        raise RemoteProtocolError(UNAUTHORIZED_ACCESS, text)


class ManagementLink(AnonymousLink):
    """A sending link to the management node. What it publishes are the answers."""

    __slots__ = ("_answers", "_unanswered")

    def __init__(self, connection: ClientConnection, link: ReceiverLink, container: str, modes: Modes) -> None:
        super().__init__(connection, link, PublisherAttach(container, link.name, MANAGEMENT), modes)
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

    def _room(self) -> tuple[int, int]:
        return MOST_REQUESTS - self._unanswered, MAX_REQUEST

    # --- answers

    def settle(self, delivery_id: int, state: DeliveryState) -> None:
        """An answer has its outcome, of which nobody is told."""
        self.closed(delivery_id)

    def _ask(self, payload: bytes) -> None:
        connection = self.connection
        node = connection.router.management
        check_may_read(connection)
        assert node is not None
        message = Message.decode(payload)
        reply_to = message.properties.reply_to if message.properties is not None else None
        if not reply_to:
            raise RemoteProtocolError(INVALID_FIELD, "properties.reply-to: is missing: the answer has no place to go")
        address = self._reply_address(reply_to)
        self._unanswered += 1

        def answer(message: Message) -> None:
            self._unanswered -= 1
            if not self.detached:
                self._answer(address, message.encode(), connection.now)

        node.ask(Request(connection.identity, message, answer))

    def _reply_address(self, reply_to: str) -> str:
        for port in self.connection.ports:
            remote = port.link.remote_attach
            if isinstance(port, SubscriberLink) and remote is not None and _receives_at(remote, reply_to):
                return port.attach.address
        return self._allowed(reply_to, "properties.reply-to", settled=False)

    def _answer(self, address: str, payload: bytes, now: float) -> None:
        (payload,) = self._annotated([payload], 0, expires=False)
        delivery_id = self._answers = self._answers + 1 & 0xFFFFFFFF
        self._take(self._port(address, now), (delivery_id, delivery_id.to_bytes(4, "big"), payload, False, 0), now)
        self.connection.credit_changed(self)


def _receives_at(attach: Attach, reply_to: str) -> bool:
    """Whether this receiving link is one from the management node whose target has that name."""
    target: Any = attach.target
    return (
        attach.source is not None
        and str(attach.source.address).endswith(MANAGEMENT)
        and target is not None
        and target.address == reply_to
    )
