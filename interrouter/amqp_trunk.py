"""A trunk as an AMQP connection: one session, a link each way, transfers settled when sent.

    open properties: onceway:network, onceway:router (its name), onceway:incarnation (ulong), onceway:trunk and
    onceway:trunk-newest (the oldest and the newest version that it speaks)

The router that dials begins the session. Each side attaches a sender and answers the other's with CREDIT transfers of
credit, renewed when half is used up. Everything arrives in order or the connection ends; the streams repeat what was
under way. The connection has no idle-time-out: heartbeats are packets, and `Network` watches for silence.

What a read brings is handled in parts of some TRANSFER bytes; what is left waits for the network's flush. While
`Network.admits` no messages, the neighbour's credit is renewed to RESERVE only, which it uses for urgent packets:
heartbeats and acknowledgements do not wait for messages.

Any fault of the neighbour ends in a close with an error. Knows AMQP, and no packets. Read trunk.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from amqp10.connection import Connection
from amqp10.errors import DECODE_ERROR, INVALID_FIELD, NOT_ALLOWED, UNAUTHORIZED_ACCESS, LocalProtocolError
from amqp10.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    SessionBegun,
    SessionEnded,
    SessionFlow,
)
from amqp10.performatives import RCV_FIRST, SND_SETTLED, Error, Open, Source, Target
from amqp10.receiver import ReceiverLink
from amqp10.runs import LinkFlow, Transfers
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol, ULong
from interrouter.outgoing import TRANSFER
from interrouter.packets import MAX_NAME, PacketError
from interrouter.trunk import CREDIT, MAX_TRANSFER, RESERVE, BaseNetwork, Hello, Refused, Trunk
from router import names
from router.versions import Versions

if TYPE_CHECKING:
    from amqp10.session import Session

_TAG: Final = b"\x00"  # deliveries that are settled when sent need no tag of their own
_EVENT: Final = 64  # bytes of a part that any other event counts as


class AmqpTrunk(Trunk):
    """`Trunk` over an `amqp10.Connection`."""

    def __init__(self, network: BaseNetwork, *, dialled: str | None, now: float) -> None:
        super().__init__(network, dialled=dialled, now=now)
        server, hello, login = dialled is None, network.hello, network.login
        self.connection = Connection(
            ConnectionSettings(
                container_id=hello.name,
                hostname=dialled,
                max_frame_size=2 * MAX_TRANSFER,
                channel_max=0,
                handle_max=1,
                idle_timeout_s=None,
                handshake_timeout_s=network.heartbeats.dead_after_s,
                incoming_window=16 * CREDIT,
                max_message_size=MAX_TRANSFER,
                sasl=None if login is None else login.sasl(dialled),
                allow_no_sasl=login is None,
                properties={
                    Symbol(names.NETWORK): hello.network,
                    Symbol(names.ROUTER): hello.name,
                    Symbol(names.INCARNATION): ULong(hello.incarnation),
                    Symbol(names.TRUNK): hello.versions.oldest,
                    Symbol(names.TRUNK_NEWEST): hello.versions.newest,
                },
            ),
            server=server,
            now=now,
        )
        self._sender: SenderLink | None = None
        self._receiver: ReceiverLink | None = None
        self._input: deque[Event] = deque()  # what is not handled of what was received
        if not server:
            self.connection.open()
            self._attach(self.connection.begin())

    def receive_data(self, data: bytes, now: float) -> None:
        self.last_received = now
        self._received(self.connection.receive_data(data, now), len(data), now)

    def receive_eof(self, now: float) -> None:
        self._received(self.connection.receive_eof(now), 0, now)

    @property
    def more(self) -> bool:
        return bool(self._input)

    def go_on(self, now: float) -> None:
        part: list[Event] = []
        left = TRANSFER
        while self._input and left > 0:
            event = self._input.popleft()
            part.append(event)
            left -= _octets(event)
        self.network.work.note_unread(self, bool(self._input))
        self._handle(part, now)

    def data_to_send(self) -> bytes:
        return self.connection.data_to_send()

    def buffers_to_send(self) -> Sequence[bytes | memoryview]:
        return self.connection.buffers_to_send()

    def next_deadline(self) -> float | None:
        return self.connection.next_deadline()

    def handle_timer(self, now: float) -> None:
        self._received(self.connection.handle_timer(now), 0, now)

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def close(self, condition: str | None = None, description: str = "") -> None:
        self.network.work.touch(self)
        self.connection.close(None if condition is None else Error(Symbol(condition), description))

    def _capacity(self) -> int:
        return 0 if self._sender is None or self.connection.closed else self._sender.capacity()

    def _transmit(self, payloads: list[list[bytes | memoryview]]) -> None:
        assert self._sender is not None
        for parts in payloads:
            self._sender.send_settled(_TAG, parts)

    def _received(self, events: list[Event], size: int, now: float) -> None:
        """size: of the bytes that have brought these events."""
        if size <= TRANSFER and not self._input:
            self._handle(events, now)
            return
        for event in events:
            if isinstance(event, Transfers):
                self._input += _single(event)
            else:
                self._input.append(event)
        self.go_on(now)

    def renew_credit(self) -> None:
        link = self._receiver
        if link is None or link.credit > CREDIT // 2:
            return
        if self.network.admits(self):
            link.grant(CREDIT)
        elif link.credit < RESERVE:
            link.grant(RESERVE)
        self.network.work.touch(self)

    def _handle(self, events: list[Event], now: float) -> None:
        network = self.network
        network.work.touch(self)
        for event in events:
            if isinstance(event, Transfers):
                if not self.up:
                    continue  # sent before the trunk was replaced or failed
                self.last_received = now
                # no +=: mypyc knows no attribute of an interpreted base (docs/decisions/compiled.md)
                self.transfers_received = self.transfers_received + len(event.payloads)
                try:
                    network.transfers(self, event.payloads, now)
                except PacketError as error:
                    network.fail(self, DECODE_ERROR, str(error), now)
                if event.link.credit <= CREDIT // 2:
                    self.renew_credit()
            elif isinstance(event, (LinkFlow, SessionFlow)):
                network.work.schedule(self)
            elif isinstance(event, ConnectionOpened):
                others = chain(events, self._input)
                if not any(isinstance(other, ConnectionClosed) for other in others):  # else it refuses us, AMQP 2.4.3
                    self._opened(event.open, now)
            elif isinstance(event, (SessionBegun, LinkAttaching)):
                try:
                    if isinstance(event, LinkAttaching):
                        self._answer(event)
                    elif self.dialled is None:
                        self._attach(event.session)
                except LocalProtocolError as refused:  # the neighbour allows only one link, or only tiny frames
                    network.fail(self, NOT_ALLOWED, str(refused), now)
            elif isinstance(event, LinkAttached):
                pass  # if this is a refusal, LinkDetached follows
            elif isinstance(event, ConnectionClosed):
                network.trunk_lost(self, _reason(event), now)
            elif isinstance(event, (LinkDetached, SessionEnded)):
                if not self.connection.closing:
                    network.fail(self, NOT_ALLOWED, f"a trunk's session or link ended: {_text(event.error)}", now)
            else:  # dispositions of deliveries that are settled already
                network.fail(self, NOT_ALLOWED, f"{type(event).__name__} on a trunk", now)

    def _opened(self, open_: Open, now: float) -> None:
        properties: dict[Any, Any] = dict(open_.properties or {})
        name, incarnation = properties.get(names.ROUTER), properties.get(names.INCARNATION)
        network, oldest = properties.get(names.NETWORK), properties.get(names.TRUNK)
        newest = properties.get(names.TRUNK_NEWEST, oldest)
        if not isinstance(name, str) or not isinstance(network, str) or not isinstance(incarnation, int):
            wanted = f"{names.NETWORK}, {names.ROUTER} and {names.INCARNATION}"
            problem = f"not a router's open: its properties must have {wanted}"
            self.network.fail(self, INVALID_FIELD, problem, now)
        elif not isinstance(oldest, int) or not isinstance(newest, int) or not 0 < oldest <= newest:
            problem = f"{names.TRUNK} {oldest!r:.80} and {names.TRUNK_NEWEST} {newest!r:.80}: no range of versions"
            self.network.fail(self, INVALID_FIELD, problem, now)
        elif not 0 < incarnation < 1 << 64 or len(name.encode()) > MAX_NAME:
            self.network.fail(self, INVALID_FIELD, "an incarnation or a name out of range", now)
        elif self.certified is not None and name not in self.certified:
            named = ", ".join(map(repr, sorted(self.certified))) or "nobody"
            problem = f"router {name!r} is not who its certificate says: that names {named}"
            self.network.fail(self, UNAUTHORIZED_ACCESS, problem, now)
        elif self.dialled is None and self.connection.handshake.user not in (None, name):
            problem = f"router {name!r} has shown that it is {self.connection.handshake.user!r:.80}"
            self.network.fail(self, UNAUTHORIZED_ACCESS, problem, now)
        else:
            try:
                hello = Hello(network, name, int(incarnation), Versions(int(oldest), int(newest)))
                self.network.trunk_opened(self, hello, now)
            except Refused as refusal:
                self.network.fail(self, refusal.condition, refusal.description, now)

    def _attach(self, session: Session) -> None:
        if self._sender is not None:
            session.end(Error(Symbol(NOT_ALLOWED), "a trunk has one session"))
            return
        self._sender = session.sender(f"trunk from {self.network.hello.name}")
        self._sender.attach(
            source=Source(address=self.network.hello.name),
            target=Target(address=names.TRUNK),
            snd_settle_mode=SND_SETTLED,
        )

    def _answer(self, event: LinkAttaching) -> None:
        link = event.link
        if not isinstance(link, ReceiverLink):
            link.refuse(NOT_ALLOWED, "each link of a trunk is attached by its sender")
            return
        attach = link.remote_attach
        link.attach(
            source=attach.source if attach is not None else None,
            target=Target(address=names.TRUNK),
            snd_settle_mode=SND_SETTLED,
            rcv_settle_mode=RCV_FIRST,
            max_message_size=MAX_TRANSFER,
        )
        self._receiver = link
        link.grant(CREDIT)


def _single(event: Transfers) -> list[Transfers]:
    """The run as runs of one transfer."""
    link, first_id, settled, message_format = event.link, event.first_id, event.settled, event.message_format
    return [
        Transfers(link, first_id + n, event.tags[n : n + 1], [payload], settled, message_format)
        for n, payload in enumerate(event.payloads)
    ]


def _octets(event: Event) -> int:
    return sum([len(payload) for payload in event.payloads]) if isinstance(event, Transfers) else _EVENT


def _reason(event: ConnectionClosed) -> str:
    if event.lost:
        return "the connection was lost"
    return _text(event.error) if event.error is not None else "the connection was closed"


def _text(error: Error | None) -> str:
    if error is None:
        return "no error"
    return f"{error.condition}: {error.description}" if error.description else str(error.condition)
