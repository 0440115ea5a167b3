"""The router that a check plays: connections of the client, every frame that it has sent, and what is answered.

The engine `amqp10` answers open, begin, end and close by itself, and judges AMQP's own rules. Nothing else is answered
unless the check says so. `Peer.seen` has the frames as they came, so that a check can judge flags and order.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from amqp10.connection import Connection
from amqp10.errors import DecodeError
from amqp10.events import ConnectionClosed, ConnectionOpened, Event, LinkAttaching, LinkDetached, SessionEnded
from amqp10.frames import FRAME_HEAD_SIZE, parse_frame_header
from amqp10.link import Link
from amqp10.outcomes import DeliveryState, Error
from amqp10.performatives import Attach, Disposition, Flow, Transfer, decode_performative
from amqp10.receiver import ReceiverLink
from amqp10.sasl import server_mechanisms
from amqp10.sender import SenderLink
from amqp10.session import Session
from amqp10.settings import ConnectionSettings
from amqp10.termini import EXPIRE_LINK_DETACH, EXPIRE_NEVER, Source, Target
from amqp10.types import Symbol, ULong
from onceway.base import waits
from onceway.client.bodies import encode_body, read_body
from router.names import EPOCH, GUARANTEE, INCARNATION, MARKS, RESUMED, TERM

P = TypeVar("P")
_AMQP_FRAME: Final = 0


class Violation(Exception):
    """The client has broken a rule of AMQP itself: what the engine says of it."""


class Seen(NamedTuple):
    """A frame of the client."""

    channel: int
    performative: Any
    payload: bytes


@dataclass(slots=True)
class Delivery:
    """What a publisher has sent, its frames joined."""

    id: int
    tag: bytes
    settled: bool
    resume: bool
    payload: bytes = b""
    whole: bool = False

    @property
    def body(self) -> str:
        body = read_body(self.payload)
        return body.decode(errors="replace") if isinstance(body, bytes) else str(body)


class Peer:
    """One connection of the client."""

    def __init__(self, sock: socket.socket, max_frame_size: int) -> None:
        settings = ConnectionSettings(
            container_id="conformance",
            max_frame_size=max_frame_size,
            idle_timeout_s=None,
            properties={Symbol("product"): "onceway", Symbol("router"): "conformance"},
            sasl=server_mechanisms(),
        )
        self.socket = sock
        sock.settimeout(waits.CLIENT_UNDER_TEST.s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.engine = Connection(settings, server=True, now=monotonic())
        self.container = ""
        self.seen: list[Seen] = []
        self.attaching: deque[Attachment] = deque()
        self.detached: dict[Link, LinkDetached] = {}
        self.told: Error | None = None
        """With what the check has detached, or refused, a link."""
        self.lost = False
        self._unread = b""

    def readable(self) -> None:
        """Reads what has come. Raises Violation where the engine refuses it."""
        try:
            data = waits.CLIENT_UNDER_TEST(self.socket.recv(1 << 18))
        except OSError:
            data = b""
        if not data:
            self.lost = True
            self._happened(self.engine.receive_eof(monotonic()))
            return
        self._tap(data)
        self._happened(self.engine.receive_data(data, monotonic()))

    def write(self) -> None:
        now = monotonic()
        deadline = self.engine.next_deadline()
        if deadline is not None and deadline <= now:
            self._happened(self.engine.handle_timer(now))
        data = self.engine.data_to_send()
        if data and not self.lost:
            try:
                waits.CLIENT_UNDER_TEST(self.socket).sendall(data)
            except OSError:
                self.lost = True

    def drop(self) -> None:
        """The connection is lost, without a close: what the client has sent and was not read is lost as well."""
        self.lost = True
        self.socket.close()

    def _happened(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, ConnectionOpened):
                self.container = event.open.container_id
            elif isinstance(event, LinkAttaching):
                self.attaching.append(Attachment(self, event.link, self._attach_of(event.link)))
            elif isinstance(event, LinkDetached):
                self.detached[event.link] = event
            elif isinstance(event, ConnectionClosed | SessionEnded):
                self.lost = self.lost or isinstance(event, ConnectionClosed)
                if event.local and event.error is not None:
                    raise Violation(f"{event.error.condition}: {event.error.description}")
            if isinstance(event, LinkDetached) and event.local and event.error not in (None, self.told):
                raise Violation(f"{event.error.condition}: {event.error.description}")

    def _attach_of(self, link: Link) -> int:
        assert link.remote_attach is not None
        channel, handle = _channel(link), link.remote_attach.handle
        return max(
            number
            for number, (on, performative, _) in enumerate(self.seen)
            if on == channel and isinstance(performative, Attach) and performative.handle == handle
        )

    def _tap(self, data: bytes) -> None:
        """Notes the frames. What cannot be decoded is the engine's to refuse."""
        data = self._unread + data
        read = 0
        try:
            for start, read, channel in pieces(data):
                if start < read:
                    performative, payload = decode_performative(data, start, read)
                    self.seen.append(Seen(channel, performative, data[payload:read]))
        except DecodeError:
            read = len(data)
        self._unread = data[read:]


@dataclass(eq=False)
class Attachment:
    """One attach of the client, and what follows on it."""

    peer: Peer
    link: Link
    at: int
    """Of its attach in `peer.seen`."""

    @property
    def attach(self) -> Attach:
        assert self.link.remote_attach is not None
        return self.link.remote_attach

    @property
    def map(self) -> dict[bytes, DeliveryState | None]:
        """The unsettled map, empty where there is none."""
        return dict(self.attach.unsettled or {})

    def brought(self, name: str) -> Any:
        return (self.attach.properties or {}).get(name)

    @property
    def detach(self) -> LinkDetached | None:
        """The client's detach, or its answer to ours."""
        return self.peer.detached.get(self.link)

    @property
    def receiver(self) -> ReceiverLink:
        assert isinstance(self.link, ReceiverLink)
        return self.link

    @property
    def sender(self) -> SenderLink:
        assert isinstance(self.link, SenderLink)
        return self.link

    # -- what has come

    def _seen(self) -> Iterator[Seen]:
        """The frames of its session since its attach, up to the next attach there."""
        channel = _channel(self.link)
        for seen in self.peer.seen[self.at + 1 :]:
            if seen.channel == channel:
                if isinstance(seen.performative, Attach):
                    return
                yield seen

    def frames(self, kind: type[P]) -> list[P]:
        """Those of its session; of flows those of the link."""
        found = [seen.performative for seen in self._seen() if isinstance(seen.performative, kind)]
        return [one for one in found if not (isinstance(one, Flow) and one.handle is None)]

    def deliveries(self) -> list[Delivery]:
        """Whole ones, in their order."""
        found: list[Delivery] = []
        for seen in self._seen():
            transfer = seen.performative
            if not isinstance(transfer, Transfer):
                continue
            if not found or found[-1].whole:
                # the engine has ended the session of a delivery that begins without them
                number, tag = transfer.delivery_id or 0, transfer.delivery_tag or b""
                found.append(Delivery(number, tag, bool(transfer.settled), transfer.resume))
            delivery = found[-1]
            delivery.payload += seen.payload
            delivery.settled |= bool(transfer.settled)
            delivery.whole = not transfer.more
            if transfer.aborted:
                found.pop()
        return [delivery for delivery in found if delivery.whole]

    # -- what is answered

    def answer(
        self,
        *,
        listed: Mapping[bytes, DeliveryState | None] | None = None,
        incomplete: bool = False,
        guarantee: str = "exactly-once",
        rcv_settle_mode: int | None = None,
        credit: int = 0,
    ) -> None:
        """Answers the attach as a router does. listed: of a subscriber's map; None: nothing. credit: of a publisher,
        with a question."""
        remote = self.attach
        epoch = self.brought(EPOCH) or 1
        properties: dict[str, Any] = {GUARANTEE: Symbol(guarantee), TERM: [ULong(epoch), ""]}
        if self.link.is_sender:
            source = remote.source or Source()
            self.link.attach(
                source=Source(address=source.address, expiry_policy=EXPIRE_NEVER, timeout=60, filter=source.filter),
                target=remote.target,
                unsettled=None if remote.unsettled is None else (listed or {}),
                incomplete_unsettled=incomplete,
                properties=_symbols({**properties, RESUMED: remote.unsettled is not None, MARKS: []}),
                snd_settle_mode=0,
                rcv_settle_mode=rcv_settle_mode,
            )
        else:
            incarnation = self.brought(INCARNATION)
            assert isinstance(remote.target, Target)
            self.link.attach(
                source=remote.source,
                target=Target(address=remote.target.address, expiry_policy=EXPIRE_LINK_DETACH, timeout=120),
                unsettled={},
                properties=_symbols({**properties, INCARNATION: ULong(incarnation or 0)}),
                rcv_settle_mode=rcv_settle_mode,
            )
            if credit:
                self.receiver.grant(credit, echo=True)

    def part(self) -> None:
        """Answers a part of a map: attach, and detach without an error."""
        assert isinstance(self.attach.target, Target)
        self.link.attach(
            source=self.attach.source, target=self.attach.target, unsettled={},
            properties=_symbols({GUARANTEE: Symbol("exactly-once")}),
        )  # fmt: skip
        self.link.detach(closed=False)

    def refuse(self, condition: str, info: Mapping[str, Any] | None = None) -> None:
        """Refuses the attach; detaches a link that is attached, closed."""
        error = Error(condition, "as the check has it", None if info is None else _symbols(info))
        self.peer.told = error
        if self.link.attached:
            self.link.detach(error, closed=True)
        else:
            self.link.refuse(condition, "as the check has it", error.info)

    def send(self, tag: bytes, body: str) -> int:
        """A new delivery to a subscriber; its id."""
        return self.sender.send([tag], [encode_body(body.encode())])


def numbers(disposition: Disposition) -> range:
    """The delivery-ids that it is of."""
    last = disposition.first if disposition.last is None else disposition.last
    return range(disposition.first, last + 1)


def pieces(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The whole headers and frames that the octets begin with: where the performative of a frame of AMQP begins, and
    the frame's end, for others that twice; and the channel. DecodeError where there is no frame."""
    offset = 0
    while len(data) - offset >= FRAME_HEAD_SIZE:
        if data[offset : offset + 4] == b"AMQP":
            offset += FRAME_HEAD_SIZE
            yield offset, offset, 0
            continue
        size, doff, frame_type, channel = parse_frame_header(data, offset)
        if len(data) - offset < size:
            return
        start, offset = offset + 4 * doff, offset + size
        yield start if frame_type == _AMQP_FRAME else offset, offset, channel


def _channel(link: Link) -> int | None:
    """On which the client's frames of its session come."""
    assert isinstance(link.session, Session)
    return link.session.remote_channel


def _symbols(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {Symbol(key): value for key, value in properties.items()}
