"""Scripted AMQP clients of every kind of protocol 1, over the real engine, one action at a time.

They do what the protocol asks of such clients and nothing more, so that a schedule can say what happens when. The world
moves their bytes; the checker hears what their applications see. This module has what they have in common; next:
publishers.py, subscribers.py. The library's own clients: real_clients.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from amqp10.connection import Connection
from amqp10.encoder import encode_value
from amqp10.events import ConnectionClosed, Event, LinkDetached, SessionEnded
from amqp10.outcomes import Accepted, Modified, Rejected
from amqp10.performatives import RCV_SECOND
from amqp10.sections import Header, Properties
from amqp10.settings import ConnectionSettings
from router.names import EPOCH

if TYPE_CHECKING:
    from chaos.simulation.world.pipes import Pipe
    from chaos.simulation.world.world import World

ADDRESS = "orders"
LINK = "in"  # of every subscriber
FOREVER = 0xFFFFFFFF

RECOVERING = "recovering"  # brings epochs, presents maps
MEMORY = "memory"  # presents maps, brings no epochs
UNIQUE = "unique"  # publisher: neither, promises unique tags
PLAIN = "plain"  # subscriber: neither, drops repeats by tag
# Our word for a delivery's state -> its form in maps and resumptions. Undecided deliveries have none.
STATES: dict[str, Any] = {
    "accepted": Accepted(), "rejected": Rejected(), "undeliverable": Modified(undeliverable_here=True),
}  # fmt: skip


def body_of(
    mid: tuple[str, int], size: int = 0, ttl_ms: int | None = None, group: str | None = None, priority: int = 4
) -> bytes:
    """A message with one data section, of so many bytes at least."""
    if ttl_ms is not None or priority != 4:
        return encode_value(Header(ttl=ttl_ms, priority=priority)) + body_of(mid, size, group=group)
    if group is not None:
        return encode_value(Properties(group_id=group)) + body_of(mid, size)
    text = f"mid:{mid[0]}:{mid[1]};".encode()
    text += filled(size - len(text))
    if len(text) < 256:
        return b"\x00\x53\x75\xa0" + bytes([len(text)]) + text
    return b"\x00\x53\x75\xb0" + len(text).to_bytes(4, "big") + text


def mid_of(payload: bytes) -> tuple[str, int]:
    start = payload.find(b"mid:") + 4
    assert start >= 4, f"a message of {len(payload)} bytes has no beginning"
    name, seq = payload[start : payload.index(b";", start)].decode().split(":")
    return name, int(seq)


@lru_cache
def filled(size: int) -> bytes:
    """So many bytes, of which no part is like another."""
    return b"".join([b"%d." % at for at in range(0, size, 2)])[: max(size, 0)]


def check_body(payload: bytes) -> None:
    """Nothing is missing in the body of such a message, and nothing is at a wrong place."""
    start = payload.index(b"mid:")
    text = payload[start:]
    size = payload[start - 1] if len(text) < 256 else int.from_bytes(payload[start - 4 : start], "big")
    head = text.index(b";") + 1
    assert text[head:] == filled(size - head), f"a message of {size} bytes comes as one of {len(text)}, or mixed up"


@lru_cache
def settings_of(container: str, frame: int | None) -> ConnectionSettings:
    """frame: its max-frame-size, if not the usual one."""
    sizes: dict[str, Any] = {} if frame is None else {"max_frame_size": frame}
    return ConnectionSettings(container_id=container, idle_timeout_s=None, **sizes)


class Client:
    """What publishers and subscribers share: one connection at a time, one session, one link."""

    address = ADDRESS
    closed = False
    closing = False
    part = 0  # how many entries of its map one attach lists (protocol 7.7); 0: all
    frame: int | None = None  # its max-frame-size
    heard = 0.0  # when it last read something on a link that worked: only that shows that the network knows it

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.epoch = 0
        self.state = "off"  # off | wait | on
        self.conn: Connection | None = None
        self.pipe: Pipe | None = None
        self.link: Any = None
        self.want_fresh = True
        self.rcv = RCV_SECOND
        self.world: World = None  # type: ignore[assignment]  # set by the world
        self.refusals: list[str] = []
        self.parts: list[dict[bytes, Any]] = []  # parts of its map that are still to be sent
        self.arguments: dict[str, Any] = {}  # of its attach

    def connect(self, pipe: Pipe) -> None:
        self.pipe, self.state = pipe, "wait"
        self.conn = Connection(settings_of(self.name, self.frame), server=False, now=self.world.now)
        self.conn.open()
        self.attach(self.conn.begin())
        pipe.send_all(self.conn.data_to_send())

    def attach(self, session: Any) -> None:
        raise NotImplementedError

    def new_link(self, session: Any) -> Any:
        raise NotImplementedError

    def say_attach(self, session: Any, unsettled: dict[bytes, Any] | None, **arguments: Any) -> None:
        """Sends the attach, or the first part of its map. Each part is answered and detached."""
        self.parts, self.arguments = [unsettled or {}], arguments
        if unsettled and self.part and self.kind == RECOVERING:
            entries = [*unsettled.items()]
            self.parts = [dict(entries[i : i + self.part]) for i in range(0, len(entries), self.part)]
        self.say_part(session, None if unsettled is None else self.parts.pop(0))

    def say_part(self, session: Any, unsettled: dict[bytes, Any] | None) -> None:
        if unsettled is None:
            self.parts = []
        self.link = self.new_link(session)
        self.link.attach(unsettled=unsettled, incomplete_unsettled=bool(self.parts), **self.arguments)

    def receive(self, data: bytes) -> None:
        conn = self.conn
        assert conn is not None
        for event in conn.receive_data(data, self.world.now):
            if conn is self.conn:
                self.handle(event)
        if self.state == "on" and self.is_known():
            self.heard = self.world.now
        if conn is self.conn:
            self.flush()

    def is_known(self) -> bool:
        """Whether what it reads shows that the network knows of this attachment."""
        return True

    def flush(self) -> None:
        if self.conn is not None and self.pipe is not None:
            self.pipe.send(self.conn.data_to_send())

    def heartbeat(self) -> None:
        assert self.pipe is not None
        self.pipe.send(b"\x00\x00\x00\x08\x02\x00\x00\x00")

    def was_read(self, pipe: Pipe, kind: str) -> None:
        """The router reads a frame of this kind."""

    def handle(self, event: Event) -> None:
        if isinstance(event, LinkDetached):
            if event.error is None and not event.closed and self.parts and not self.closing:
                self.say_part(event.link.session, self.parts.pop(0))
                return
            condition = str(event.error.condition) if event.error is not None else ""
            info = dict(event.error.info or {}) if event.error is not None else {}
            self.refusals.append(condition)
            self.on_detached(condition, info)
            self.hang_up()
        elif isinstance(event, (ConnectionClosed, SessionEnded)):
            raise AssertionError(f"{self.name}: unexpected {event}")

    def on_detached(self, condition: str, info: dict[Any, Any]) -> None:
        raise NotImplementedError

    def detach(self) -> None:
        """For good."""
        if self.link is not None:
            self.link.detach(None, closed=True)
            self.flush()

    def hang_up(self) -> None:
        """The client's end of the connection is gone."""
        pipe, self.pipe, self.conn, self.link, self.state = self.pipe, None, None, None, "off"
        self.parts = []
        if pipe is not None:
            pipe.client_gone()
        self.disconnected()

    def disconnected(self) -> None:
        pass

    def learn_epoch(self, info: dict[Any, Any]) -> None:
        self.epoch = max(self.epoch, int(info.get(EPOCH, 0)))
