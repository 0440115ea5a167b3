"""Two engines, or an engine and python-qpid-proton, joined in memory: no sockets, no clock but `now`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import amqp10
import amqp10.performatives
from amqp10 import (
    Connection,
    ConnectionSettings,
    Event,
    Link,
    LinkAttaching,
    LinkDetached,
    ReceiverLink,
    SenderLink,
    Session,
    SessionEnded,
)
from amqp10.frames import AMQP_HEADER, encode_frame
from amqp10.performatives import Performative, decode_performative

E = TypeVar("E")


def settings(container_id: str, **fields: Any) -> ConnectionSettings:
    return ConnectionSettings(container_id=container_id, **{"idle_timeout_s": None, **fields})


def accept_link(link: Link) -> None:
    """Answer an attach with the peer's own termini; receivers grant 100."""
    link.attach(source=link.remote_attach.source, target=link.remote_attach.target)
    if isinstance(link, ReceiverLink):
        link.grant(100)


def only(events: list[Any], kind: type[E]) -> E:
    """The one event of this kind."""
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, f"{kind.__name__} {len(found)} times in {events}"
    return found[0]


def detached_with(events: list[Any], condition: str) -> LinkDetached:
    """We have detached a link for this."""
    detached = only(events, LinkDetached)
    assert detached.local
    assert detached.closed
    assert detached.error.condition == condition
    return detached


def ended_with(events: list[object], condition: str) -> SessionEnded:
    """We have ended a session for this."""
    ended = only(events, SessionEnded)
    assert ended.local
    assert ended.error.condition == condition
    return ended


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


class Pair:
    """A client and a server; `pump()` carries bytes until both are silent and returns what the two saw."""

    def __init__(
        self,
        *,
        client: dict[str, Any] | None = None,
        server: dict[str, Any] | None = None,
        on_attaching: Callable[[Link], None] | None = accept_link,
        chunk: int | None = None,
        open: bool = True,  # noqa: A002
    ) -> None:
        self.now = 0.0
        self.client = Connection(settings("client", **(client or {})), server=False, now=self.now)
        self.server = Connection(settings("server", **(server or {})), server=True, now=self.now)
        self.on_attaching = on_attaching
        self.chunk = chunk
        self.sent_by_client = b""
        self.sent_by_server = b""
        if open:
            self.client.open()
            self.pump()

    def pump(self) -> tuple[list[Event], list[Event]]:
        """(events at the client, events at the server)"""
        at_client: list[Event] = []
        at_server: list[Event] = []
        while True:
            from_client = self.client.data_to_send()
            self.sent_by_client += from_client
            at_server += self._feed(self.server, from_client)
            from_server = self.server.data_to_send()
            self.sent_by_server += from_server
            at_client += self._feed(self.client, from_server)
            self.client.check_invariants()
            self.server.check_invariants()
            if not from_client and not from_server:
                return at_client, at_server

    def _feed(self, connection: Connection, data: bytes) -> list[Event]:
        events: list[Event] = []
        step = self.chunk or max(len(data), 1)
        for start in range(0, len(data), step):
            for event in connection.receive_data(data[start : start + step], self.now):
                events.append(event)
                if isinstance(event, LinkAttaching) and self.on_attaching is not None:
                    self.on_attaching(event.link)
        return events

    def begin(self) -> tuple[Session, Session]:
        """A session, as (the client's, the server's)."""
        mine = self.client.begin()
        _, at_server = self.pump()
        return mine, only(at_server, amqp10.SessionBegun).session

    def publishing(
        self, session: Session | None = None, name: str = "link", credit: int = 100, **attach: Any
    ) -> tuple[SenderLink, ReceiverLink]:
        """An attached link on which the client sends: (the client's end, the server's)."""
        sender = (session or self.client.begin()).sender(name)
        sender.attach(source=amqp10.Source("here"), target=amqp10.Target("there"), **attach)
        _, at_server = self.pump()
        link = only(at_server, LinkAttaching).link
        assert isinstance(link, ReceiverLink)
        link.grant(credit)
        self.pump()
        return sender, link

    def subscribing(
        self, session: Session | None = None, name: str = "link", credit: int = 100, **attach: Any
    ) -> tuple[ReceiverLink, SenderLink]:
        """An attached link on which the server sends: (the client's end, the server's)."""
        receiver = (session or self.client.begin()).receiver(name)
        receiver.attach(source=amqp10.Source("there"), target=amqp10.Target("here"), **attach)
        _, at_server = self.pump()
        link = only(at_server, LinkAttaching).link
        assert isinstance(link, SenderLink)
        receiver.grant(credit)
        self.pump()
        return receiver, link


class Wire:
    """The peer of a server connection, as raw frames: what no well-behaved client would send."""

    def __init__(self, *, begun: bool = True, on_attaching: Callable[[Link], None] | None = accept_link, **server: Any):
        self.server = Connection(settings("server", **server), server=True, now=0.0)
        self.on_attaching = on_attaching
        self.events: list[Event] = []
        if begun:
            self.feed(AMQP_HEADER)
            self.send(amqp10.performatives.Open("wire"))
            self.send(amqp10.performatives.Begin(None, 0, 2048, 2048))
            self.read()
            self.events.clear()

    def feed(self, data: bytes) -> list[Event]:
        events = self.server.receive_data(data, 0.0)
        for event in events:
            if isinstance(event, LinkAttaching) and self.on_attaching is not None:
                self.on_attaching(event.link)
        self.events += events
        return events

    def send(self, performative: Performative, payload: bytes = b"", channel: int = 0) -> list[Event]:
        return self.feed(encode_frame(0, channel, performative.encode() + payload))

    def attach_sender(self, name: str = "link", handle: int = 0, credit: int = 100, **fields: Any) -> ReceiverLink:
        fields = {"source": amqp10.Source("here"), "target": amqp10.Target("there"), **fields}
        attach = amqp10.performatives.Attach(name, handle, False, initial_delivery_count=0, **fields)
        link = only(self.send(attach), LinkAttaching).link
        assert isinstance(link, ReceiverLink)
        link.grant(credit)
        self.read()
        return link

    def attach_receiver(self, name: str = "link", handle: int = 0, credit: int = 100, **fields: Any) -> SenderLink:
        fields = {"source": amqp10.Source("there"), "target": amqp10.Target("here"), **fields}
        link = only(self.send(amqp10.performatives.Attach(name, handle, True, **fields)), LinkAttaching).link
        assert isinstance(link, SenderLink)
        if credit:
            self.send(flow(handle=handle, delivery_count=0, link_credit=credit))
        self.read()
        return link

    def read(self) -> list[Any]:
        """The performatives that the server has written since, payloads left out."""
        return [performative for performative, _ in frames(self.server.data_to_send())]


def flow(**fields: Any) -> amqp10.performatives.Flow:
    """With a session part that opens the window."""
    return amqp10.performatives.Flow(
        **{"next_incoming_id": 0, "incoming_window": 2048, "next_outgoing_id": 0, "outgoing_window": 2048, **fields}
    )


def transfer(delivery_id: int, tag: bytes = b"tag", handle: int = 0, **fields: Any) -> amqp10.performatives.Transfer:
    return amqp10.performatives.Transfer(
        handle=handle, delivery_id=delivery_id, delivery_tag=tag, **{"message_format": 0, **fields}
    )


def frames(data: bytes) -> list[tuple[Any, bytes]]:
    """(performative, payload) of each AMQP frame; headers and empty frames are left out."""
    found: list[tuple[Any, bytes]] = []
    offset = 0
    while offset < len(data):
        if data[offset : offset + 4] == b"AMQP":
            offset += 8
            continue
        size = int.from_bytes(data[offset : offset + 4], "big")
        body = offset + data[offset + 4] * 4
        if body < offset + size:
            performative, payload = decode_performative(data, body, offset + size)
            found.append((performative, data[payload : offset + size]))
        offset += size
    return found
