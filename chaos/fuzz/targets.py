"""What is fuzzed, and what must hold whatever comes: no exception, no byte out that is not AMQP, memory in proportion.

The targets here take a stranger's bytes: the engine as server and as client, each with links in place on which
deliveries are under way, and a whole router with its core; other routers' bytes are in peers.py. The two of the engine
are run with a passive owner, who answers nothing while the bytes come: then bytes may be cut anywhere and must cause
the same events and the same answer. The router's owner does what it always does; there the end must leave nothing
behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from amqp10.connection import Connection
from amqp10.events import (
    ConnectionClosed,
    Event,
    LinkAttaching,
    LinkDetached,
    SessionBegun,
)
from amqp10.frames import AMQP_FRAME, AMQP_HEADER, SASL_FRAME, SASL_HEADER, TLS_HEADER, encode_frame, parse_frame_header
from amqp10.link import Link
from amqp10.performatives import Attach, Begin, Disposition, Flow, Open, Performative, Transfer, decode_performative
from amqp10.receiver import ReceiverLink
from amqp10.record import values
from amqp10.runs import Dispositions, LinkFlow, ResumedTransfer, TransferPart, Transfers
from amqp10.sender import SenderLink
from amqp10.serial import difference
from amqp10.session import Session
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from router.config import AddressConfig, Life, RouterConfig
from router.core.reports import of_all
from router.router import Router

Seen: TypeAlias = tuple[Any, ...]

MAX_FRAME: Final = 4096
ROOM: Final = 64 * 1024  # bytes of output or held input that need no explanation
RATIO: Final = 64  # and so many for each byte that came
TEN: Final = [b"%d" % number for number in range(10)]  # delivery-tags


class Broken(AssertionError):
    """Something that must never happen did."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What bytes caused: the events but for dispositions, those without transfers, and the bytes written.

    Runs are taken apart. Transfers and dispositions that alternate may come as two runs, transfers first (pairs.py), so
    their order to each other is not part of what must be the same.
    """

    events: tuple[Seen, ...]
    dispositions: tuple[Seen, ...]
    output: bytes
    closed: bool


def _settings(container: str) -> ConnectionSettings:
    return ConnectionSettings(
        container_id=container,
        idle_timeout_s=None,
        max_frame_size=MAX_FRAME,
        channel_max=7,
        handle_max=15,
        incoming_window=64,
        max_message_size=16 * 1024,
    )


def frame(performative: Performative, channel: int = 0, payload: bytes = b"") -> bytes:
    return encode_frame(AMQP_FRAME, channel, performative.encode() + payload)


def _open_window(**link: Any) -> Flow:
    return Flow(next_incoming_id=0, incoming_window=1000, next_outgoing_id=0, outgoing_window=1000, **link)


def _attaches() -> tuple[Attach, Attach]:
    """The peer's: it sends on handle 0, receives on handle 1."""
    source, target = Source("s"), Target("t")
    sending = Attach("in", 0, False, source=source, target=target, initial_delivery_count=0)
    return sending, Attach("out", 1, True, source=source, target=target)


def server_in_the_middle() -> Connection:
    """Opened, sessions on channels 0 and 1; on each the peer sends on handle 0, receives on handle 1, and ten
    deliveries of ours are unsettled there."""
    connection = Connection(_settings("server"), server=True, now=0.0)
    connection.receive_data(AMQP_HEADER + frame(Open("peer", max_frame_size=2048)), 0.0)
    for channel in (0, 1):
        connection.receive_data(frame(Begin(None, 0, 1000, 1000), channel), 0.0)
        for attach in _attaches():
            for event in connection.receive_data(frame(attach, channel), 0.0):
                _take(event)
        connection.receive_data(frame(_open_window(handle=1, delivery_count=0, link_credit=30), channel), 0.0)
    connection.data_to_send()
    _send(connection, TEN, b"payload")
    connection.data_to_send()
    return connection


def client_in_the_middle() -> Connection:
    """The same from the other side; the peer is the server."""
    connection = Connection(_settings("client"), server=False, now=0.0)
    connection.open()
    for _ in (0, 1):
        session = connection.begin()
        session.receiver("in").attach(source=Source("s"), target=Target("t"))
        session.sender("out").attach(source=Source("s"), target=Target("t"))
    connection.data_to_send()
    connection.receive_data(AMQP_HEADER + frame(Open("peer", max_frame_size=2048)), 0.0)
    for channel in (0, 1):
        connection.receive_data(frame(Begin(channel, 0, 1000, 1000), channel), 0.0)
        connection.receive_data(b"".join(frame(attach, channel) for attach in _attaches()), 0.0)
        connection.receive_data(frame(_open_window(handle=1, delivery_count=0, link_credit=30), channel), 0.0)
    for session in connection.channels.sessions:
        for link in session.links:
            if isinstance(link, ReceiverLink):
                link.grant(30)
    connection.data_to_send()
    _send(connection, TEN, b"payload")
    connection.data_to_send()
    return connection


def client_at_the_start() -> Connection:
    connection = Connection(_settings("client"), server=False, now=0.0)
    connection.open()
    session = connection.begin()
    session.sender("out").attach(source=Source("s"), target=Target("t"))
    connection.data_to_send()
    return connection


ENGINES: Final[dict[str, Callable[[], Connection]]] = {
    "server": server_in_the_middle,
    "client": client_in_the_middle,
    "server-start": lambda: Connection(_settings("server"), server=True, now=0.0),
    "client-start": client_at_the_start,
}


def _take(event: Event) -> None:
    if isinstance(event, LinkAttaching):
        event.link.attach(source=Source("s"), target=Target("t"))
        if isinstance(event.link, ReceiverLink):
            event.link.grant(30)


def _send(connection: Connection, tags: list[bytes], payload: bytes) -> None:
    """On each link that has credit for so many."""
    for session in connection.channels.sessions:
        for link in session.links:
            if isinstance(link, SenderLink) and link.capacity() >= len(tags):
                link.send(tags, [payload] * len(tags))


def feed(connection: Connection, pieces: list[bytes]) -> Observation:
    """With an owner who answers nothing; then the output, and the end."""
    events: list[Event] = []
    total = 0
    for piece in pieces:
        events += connection.receive_data(piece, 1.0)
        total += len(piece)
    if connection.incomplete_size > total * RATIO:
        raise Broken(f"{connection.incomplete_size} bytes are held of {total}")
    output = connection.data_to_send()
    if len(output) > ROOM + total * RATIO:
        raise Broken(f"{len(output)} bytes answer {total}")
    check_output(output)
    closed = connection.closed
    events += connection.receive_eof(2.0)
    if not connection.closed:
        raise Broken("open after eof")
    if connection.incomplete_size:
        raise Broken(f"{connection.incomplete_size} bytes are held after the end")
    _check_order(events)
    return Observation(*_taken_apart(events), output, closed)


def feed_an_owner(connection: Connection, pieces: list[bytes], rng: random.Random) -> None:
    """With an owner who takes what is attached, settles, detaches and ends as chance has it. What must hold: nothing is
    raised, and the output is AMQP."""
    for piece in pieces:
        for event in connection.receive_data(piece, 1.0):
            _act(event, rng)
        if rng.random() < 0.5:
            check_output(connection.data_to_send())
    _send(connection, [b"last"], b"x" * 3000)
    check_output(connection.data_to_send())
    connection.receive_eof(2.0)


def _act(event: Event, rng: random.Random) -> None:
    """What an owner may do after this event, whatever has become of its link since."""
    choice = rng.random()
    if isinstance(event, LinkAttaching):
        if choice < 0.2:
            event.link.refuse("amqp:not-found", "no")
        elif choice < 0.9:
            _take(event)
            if isinstance(event.link, ReceiverLink):
                event.link.part_size = rng.choice((0, 1, 1000))
    elif isinstance(event, Transfers):
        last = event.first_id + len(event.tags) - 1
        event.link.dispose(event.first_id, last, None, choice < 0.5)
        event.link.grant(30)
    elif isinstance(event, TransferPart):
        if not event.more and not event.aborted:
            event.link.dispose(event.delivery_id, event.delivery_id, None, choice < 0.5)
    elif isinstance(event, Dispositions):
        if isinstance(event.link, SenderLink) and not event.settled:
            event.link.settle(event.first_id, event.last_id)
    elif isinstance(event, LinkFlow):
        if isinstance(event.link, SenderLink):
            if event.link.open_delivery is not None:
                if choice < 0.2:
                    event.link.abort()
                else:
                    event.link.add(bytes(min(event.link.part_capacity(), 2000)), more=choice < 0.6)
            elif event.link.capacity() and choice < 0.3:
                event.link.begin(b"tag", bytes(min(event.link.part_capacity(), 2000)))
            count = min(event.link.capacity(), 3)
            if count:
                event.link.send([b"tag"] * count, [bytes(rng.choice((1, 100, 5000)))] * count)
            if event.link.drain:
                event.link.drained()
    elif isinstance(event, SessionBegun) and choice < 0.1:
        event.session.end()
    elif isinstance(event, LinkDetached | ResumedTransfer) and choice < 0.05:
        connection = event.link.session.connection
        assert isinstance(connection, Connection)
        connection.close()


def check_output(output: bytes) -> None:
    """Headers and frames, each decodable."""
    offset = 0
    while offset < len(output):
        if output[offset : offset + 8] in (AMQP_HEADER, SASL_HEADER, TLS_HEADER):
            offset += 8
            continue
        size, doff, frame_type, _ = parse_frame_header(output, offset)
        body, stop = offset + 4 * doff, offset + size
        if stop > len(output) or frame_type not in (AMQP_FRAME, SASL_FRAME):
            raise Broken(f"no frame at {offset}: {output[offset : offset + 32]!r}")
        if body < stop:
            performative, payload = decode_performative(output, body, stop)
            if payload != stop and not isinstance(performative, Transfer):
                raise Broken(f"bytes follow {performative}")
            if (
                isinstance(performative, Disposition)
                and performative.last is not None
                and difference(performative.last, performative.first) < 0
            ):
                raise Broken(f"{performative} runs backwards")
        offset = stop


def _check_order(events: list[Event]) -> None:
    closed = [number for number, event in enumerate(events) if isinstance(event, ConnectionClosed)]
    if closed != [len(events) - 1]:
        raise Broken(f"ConnectionClosed is not once and last: {closed} of {len(events)}")


def _taken_apart(events: list[Event]) -> tuple[tuple[Seen, ...], tuple[Seen, ...]]:
    with_transfers: list[Seen] = []
    with_dispositions: list[Seen] = []
    for event in events:
        for seen in _parts(event):
            if seen[0] != "Dispositions":
                with_transfers.append(seen)
            if seen[0] != "Transfers":
                with_dispositions.append(seen)
    return tuple(with_transfers), tuple(with_dispositions)


def _parts(event: Event) -> Iterator[Seen]:
    kind = type(event).__name__
    if isinstance(event, Transfers):
        for index, (tag, payload) in enumerate(zip(event.tags, event.payloads, strict=True)):
            same = (event.settled, event.message_format, event.rcv_settle_mode)
            yield kind, _shown(event.link), event.first_id + index, tag, payload, *same
    elif isinstance(event, Dispositions):
        for delivery_id in range(event.first_id, event.last_id + 1):
            yield kind, _shown(event.link), delivery_id, repr(event.state), event.settled
    else:
        yield kind, *[_shown(value) for value in values(event).values()]


def _shown(value: object) -> object:
    """What must be the same of it in two connections."""
    if isinstance(value, Link):
        return value.session.channel, value.name, value.is_sender, value.remote_handle
    if isinstance(value, Connection | Session):
        return value.channel if isinstance(value, Session) else "connection"
    return value if isinstance(value, bytes) else repr(value)


ADDRESSES: Final = (
    AddressConfig("t", subscription_timeout_s=4.0),
    AddressConfig("s", subscription_timeout_s=4.0, no_subscribers="accept"),
    AddressConfig("*", guarantee="at-least-once", subscription_timeout_s=4.0, no_subscribers="release"),
)


class Routed:
    """Two routers that are neighbours; a stranger at the first one."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.routers = {name: self._router(name, number) for number, name in enumerate(("a", "b"), 1)}
        self.router = self.routers["a"]
        for name, router in self.routers.items():
            router.peer_up("b" if name == "a" else "a", self.now)
        self._turn()
        self.stranger = self.router.connect(self.now)
        self.out = b""
        self.taken = 0

    def feed(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self.now += 0.001
            self.taken += len(piece)
            self.stranger.receive_data(piece, self.now)
            self._turn()
            for name, router in self.routers.items():
                kept = router.core.memory.payload_bytes
                if max(kept, router.buffers.incomplete_bytes) > self.taken * RATIO:
                    raise Broken(f"{name} keeps {kept} and {router.buffers.incomplete_bytes} bytes of {self.taken}")
            if len(self.out) > ROOM + self.taken * RATIO:
                raise Broken(f"{len(self.out)} bytes answer {self.taken}")
        check_output(self.out)

    def leave(self) -> None:
        """The stranger's transport goes; after a while nothing is left of it anywhere."""
        self.stranger.receive_eof(self.now)
        self._turn()
        self._rest(200.0)
        for name, router in self.routers.items():
            left = {
                "addresses": of_all(router.core)["addresses"],
                "publishers": [*router.core.publishers],
                "subscribers": [*router.core.subscribers],
                "payload": router.core.memory.payload_bytes,
                "incomplete": router.buffers.incomplete_bytes,
                "connections": [*router.connections],
                "parts": bool(router.core.memory.map_parts),
                "watching": [*router.turn.watching],
            }
            found = {what: value for what, value in left.items() if value}
            if found:
                raise Broken(f"left behind at {name}: {found}")

    def status(self) -> dict[str, Any]:
        return {name: router.status() for name, router in self.routers.items()}

    def _router(self, name: str, incarnation: int) -> Router:
        config = RouterConfig(
            name,
            routers=("a", "b"),
            addresses=ADDRESSES,
            max_frame_size=MAX_FRAME,
            max_message_size=16 * 1024,
            memory_limit=1 << 20,
            window_messages=50,
            unsettled_window=50,
        )
        return Router(config, Life(incarnation, self.now, True), wall_us=lambda: int(self.now * 1e6))

    def _rest(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            deadlines = [router.next_deadline() for router in self.routers.values()]
            soonest = min([deadline for deadline in deadlines if deadline is not None], default=end)
            self.now = min(end, max(soonest, self.now + 0.5))
            for router in self.routers.values():
                router.tick(self.now)
            deadline = self.stranger.next_deadline()
            if deadline is not None and deadline <= self.now:
                self.stranger.handle_timer(self.now)
            self._turn()

    def _turn(self) -> None:
        for _ in range(64):
            busy = False
            for name, router in self.routers.items():
                router.flush(self.now)
                for peers, message in router.take_messages():
                    for peer in peers:
                        self.routers[peer].peer_message(name, message, self.now)
                    busy = True
                for connection in router.take_dirty():
                    data = connection.data_to_send()
                    if connection is self.stranger:
                        self.out += data
                    busy = True
                busy = busy or router.wants_flush
            if not busy:
                return
        raise Broken("the routers never come to rest")


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    """In pieces: sometimes of one byte, sometimes larger."""
    longest = rng.choice((1, 8, 64, 512))
    pieces: list[bytes] = []
    start = 0
    while start < len(data):
        stop = start + rng.randint(1, longest)
        pieces.append(data[start:stop])
        start = stop
    return pieces


def frames(data: bytes) -> list[bytes]:
    """Headers and frames as far as they can be told, then the rest."""
    parts: list[bytes] = []
    offset = 0
    while len(data) - offset >= 8:
        size = 8 if data[offset : offset + 4] == b"AMQP" else int.from_bytes(data[offset : offset + 4], "big")
        if not 8 <= size <= len(data) - offset:
            break
        parts.append(data[offset : offset + size])
        offset += size
    if offset < len(data):
        parts.append(data[offset:])
    return parts


def parting(whole: Observation, pieces: Observation) -> str:
    """Where two observations part."""
    for name in ("events", "dispositions"):
        one, other = getattr(whole, name), getattr(pieces, name)
        for number in range(max(len(one), len(other))):
            left = one[number] if number < len(one) else "nothing"
            right = other[number] if number < len(other) else "nothing"
            if left != right:
                return f"{name}[{number}]: as a whole {left}, in pieces {right}"
    if whole.output != pieces.output:
        return f"output: as a whole {whole.output!r}, in pieces {pieces.output!r}"
    return f"closed: as a whole {whole.closed}, in pieces {pieces.closed}"
