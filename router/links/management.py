"""The links of the node `$management` (AMQP management): requests in, answers out.

A request comes on a sending link to `$management`; the router hands it to its `ManagementNode` together with who asks.
One to another router's node goes there as an ASK, and the answer comes back as an ANSWER (protocol 3.4.5).
The answer goes to the request's `reply-to`, as a message of the asking client: so a client can have answers sent
only where it may send to itself. `reply-to` is an address, such as a dynamic node at any router, or the target of
a receiving link from a management node on the same connection. Towards the core such a link is a dynamic node.

A link without an address asks so, too, with messages whose `to` is a node's address: its requests are answered like
those of a link to that node.

What requests mean is not known here (`onceway.operate.node`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

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
from amqp10.sections import MOST_READ, AmqpValue, Glance, Message, Properties
from amqp10.termini import Target
from amqp10.types import Int, Symbol
from router.border import FAILED, Border
from router.core import messages as m
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
    from router.router import Router

MOST_REQUESTS: Final = 16  # of one link, not answered yet
MAX_REQUEST: Final = 64 << 10  # bytes
STARTING: Final = f"{MANAGEMENT}: this router is starting; come again"

_NODES: Final = re.compile(rf"(?:amqp:/)?(?:_local/|_topo/0/([^/]+)/)?{re.escape(MANAGEMENT)}")

Answer = Callable[[bytes], None]


class Request(NamedTuple):
    """What a client asks. Call `answer` once, within a handler of the router, with a message as it is sent: it may be
    long, and is written in parts by whoever makes it (`encoded` does it at once)."""

    who: Identity
    message: Message
    answer: Answer


class ManagementNode(Protocol):
    """Whoever answers for this router."""

    def may_read(self, who: Identity) -> bool:
        """Whether this client may ask at all."""

    def ask(self, request: Request) -> None:
        """Takes a request, and answers it later."""


def managed_router(address: object, config: RouterConfig) -> str | None:
    """The router whose management node has this address: `$management` is ours, `_topo/0/NAME/$management` the one by
    which tools of other routers ask for one of a network. None: it is no management node's. RemoteProtocolError: it is
    that of a router that the network does not have."""
    found = _NODES.fullmatch(address) if isinstance(address, str) else None
    if found is None:
        return None
    name = found[1] or config.name
    if name not in config.routers:
        raise RemoteProtocolError(NOT_FOUND, f"{address!r:.80}: this network has no router {name!r:.60}")
    return name


def answer_to(asked: Message, status: int, text: str, body: Any = None, condition: str | None = None) -> Message:
    """The answer to a request, with a status code of HTTP."""
    properties = asked.properties or Properties()
    correlation = properties.message_id if properties.correlation_id is None else properties.correlation_id
    said = {} if condition is None else {"errorCondition": Symbol(condition)}
    return Message(
        AmqpValue(body),
        properties=Properties(to=properties.reply_to, correlation_id=correlation),
        application_properties={"statusCode": Int(status), "statusDescription": text, **said},
    )


def failed(asked: Message) -> Message:
    """The answer where the request has met an error that nobody expects."""
    return answer_to(asked, 500, FAILED)


def encoded(border: Border, asked: Message, told: Message) -> bytes:
    """An answer as it is sent; that it has failed, where what it says has no form."""
    payload = border.ask(None, told.encode)
    return failed(asked).encode() if payload is None else payload


class OtherRouters:
    """Requests of clients here to the nodes of other routers, and those of their clients to ours (protocol 3.4.5)."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._numbers = count(router.incarnation >> 1)  # far from those of an earlier life
        self._waiting: dict[int, tuple[str, Request]] = {}  # by number: whom was asked

    def ask(self, name: str, request: Request) -> None:
        if name not in self._router.core.up:
            text = f"router {name} is not in session with this one"
            request.answer(answer_to(request.message, 503, text).encode())
            return
        number = next(self._numbers)
        self._waiting[number] = name, request
        user, groups = request.who
        self._router.core.send(name, m.Ask(number, user, list(groups), request.message.encode()))

    def session_ended(self, name: str) -> None:
        for number, (asked, request) in list(self._waiting.items()):
            if asked == name:
                del self._waiting[number]
                text = f"the session with router {name} has ended: what it was asked to do may have been done"
                request.answer(answer_to(request.message, 503, text).encode())

    def on_message(self, sender: str, message: m.Ask | m.Answer) -> None:
        if isinstance(message, m.Ask):
            self._on_ask(sender, message)
        else:
            self._on_answer(sender, message)

    def _on_ask(self, sender: str, message: m.Ask) -> None:
        asked, who = _decoded(message.request), Identity(message.user, tuple(message.groups))
        core, node = self._router.core, self._router.management

        def answer(told: bytes) -> None:
            if sender in core.up:
                core.send(sender, m.Answer(message.number, told))

        if node is None:
            answer(answer_to(asked, 503, STARTING).encode())
        elif not node.may_read(who):
            answer(answer_to(asked, 403, _not_allowed(who), condition=UNAUTHORIZED_ACCESS).encode())
        else:
            node.ask(Request(who, asked, answer))

    def _on_answer(self, sender: str, message: m.Answer) -> None:
        name, request = self._waiting.get(message.number, (None, None))
        if request is not None and name == sender:
            del self._waiting[message.number]
            try:
                Glance(message.answer).before_the_body()
            except DecodeError as error:
                raise m.PeerProtocolError(f"this is no message: {error}") from error
            request.answer(message.answer)


def _decoded(payload: bytes) -> Message:
    try:
        return Message.decode(payload)
    except DecodeError as error:
        raise m.PeerProtocolError(f"this is no message: {error}") from error


def _not_allowed(who: Identity) -> str:
    return f"user {who.user!r:.60} may not read here: neither users nor groups of admin name them"


def check_may_read(connection: ClientConnection) -> None:
    """Raises RemoteProtocolError if this client may not use the management node."""
    router, who = connection.router, connection.identity
    if router.management is None:
        raise RemoteProtocolError(NOT_FOUND, STARTING)
    if not router.management.may_read(who):
        router.admission.count_refusal(POLICIES)
        raise RemoteProtocolError(UNAUTHORIZED_ACCESS, _not_allowed(who))


class ManagementLink(AnonymousLink):
    """A sending link to the management node of the router `asked`. What it publishes are the answers."""

    __slots__ = ("_answers", "_node_of", "_unanswered")

    def __init__(
        self, connection: ClientConnection, link: ReceiverLink, container: str, modes: Modes, asked: str
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

    def _room(self) -> tuple[int, int]:
        return MOST_REQUESTS - self._unanswered, MAX_REQUEST

    # --- answers

    def settle(self, delivery_id: int, state: DeliveryState) -> None:
        """An answer has its outcome, of which nobody is told."""
        self.closed(delivery_id)

    def _ask(self, payload: bytes) -> None:
        connection, router = self.connection, self.connection.router
        check_may_read(connection)
        assert router.management is not None
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

        request = Request(connection.identity, message, answer)
        if self._node_of == router.config.name:
            router.management.ask(request)
        else:
            router.other_routers.ask(self._node_of, request)

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

    def __init__(self, connection: ClientConnection, link: ReceiverLink, attach: PublisherAttach, modes: Modes) -> None:
        super().__init__(connection, link, attach, modes)
        self._nodes: dict[str, _Answers] = {}  # by router

    def _is_request(self, to: Any, payload: bytes) -> bool:
        name = managed_router(to, self.connection.config)
        if name is None:
            return False
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Answers(self, name)
        node.take(payload)
        return True

    def _leave(self, now: float) -> None:
        super()._leave(now)
        for node in self._nodes.values():
            node.detached = True
            node._leave(now)


class _Answers(ManagementLink):
    """What a relay's requests to one node bring. It publishes the answers, whose delivery-ids are its own; credit and
    end of the link are the relay's."""

    __slots__ = ("_relay",)

    def __init__(self, relay: RelayLink, asked: str) -> None:
        super().__init__(relay.connection, relay.link, relay.attach.container, relay._modes, asked)
        self._relay = relay

    def take(self, payload: bytes) -> None:
        messages, size = self._room()
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
        and str(attach.source.address).endswith(MANAGEMENT)
        and target is not None
        and target.address == reply_to
    )
