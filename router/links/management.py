"""The node `$management` (AMQP management) of this router, and those of the others.

A request comes on a sending link to `$management`; the router hands it to its `ManagementNode` together with who asks.
One to another router's node goes there as an ASK, and the answer comes back as an ANSWER (protocol 3.4.5).

What requests mean is not known here (`onceway.operate.node`). Read `router.links.management_link` next.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from amqp10.errors import (
    NOT_FOUND,
    UNAUTHORIZED_ACCESS,
    DecodeError,
    RemoteProtocolError,
)
from amqp10.sections import AmqpValue, Glance, Message, Properties
from amqp10.types import Int, Symbol
from router.border import FAILED, Border
from router.config import stripped
from router.core import messages as m
from router.links.negotiation import MANAGEMENT
from router.policies import Identity

if TYPE_CHECKING:
    from router.config import RouterConfig
    from router.core.core import Core

STARTING: Final = f"{MANAGEMENT}: this router is starting; come again"

_NODES: Final = re.compile(rf"(?:_local/|_topo/0/([^/]+)/)?{re.escape(MANAGEMENT)}")

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
    found = _NODES.fullmatch(stripped(address)) if isinstance(address, str) else None
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


class ManagementNodes:
    """The node of this router, and those of the others as far as clients here ask for them (protocol 3.4.5)."""

    def __init__(self, core: Core, incarnation: int) -> None:
        self.own: ManagementNode | None = None  # its owner sets it
        self._core = core
        self._numbers = count(incarnation >> 1)  # far from those of an earlier life
        self._waiting: dict[int, tuple[str, Request]] = {}  # by number: whom was asked

    def ask(self, name: str, request: Request) -> None:
        """A client here asks the node of this router or, by name, of another one."""
        if name == self._core.name:
            assert self.own is not None
            self.own.ask(request)
            return
        if name not in self._core.members.up:
            text = f"router {name} is not in session with this one"
            request.answer(answer_to(request.message, 503, text).encode())
            return
        number = next(self._numbers)
        self._waiting[number] = name, request
        user, groups = request.who
        self._core.post.send(name, m.Ask(number, user, list(groups), request.message.encode()))

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
        core, node = self._core, self.own

        def answer(told: bytes) -> None:
            if sender in core.members.up:
                core.post.send(sender, m.Answer(message.number, told))

        if node is None:
            answer(answer_to(asked, 503, STARTING).encode())
        elif not node.may_read(who):
            answer(answer_to(asked, 403, not_allowed(who), condition=UNAUTHORIZED_ACCESS).encode())
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


def not_allowed(who: Identity) -> str:
    return f"user {who.user!r:.60} may not read here: neither users nor groups of admin name them"
