"""A client's endpoint and a router's side that the test plays by hand, joined in memory."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from amqp10.connection import Connection
from amqp10.events import ConnectionOpened, Event, LinkAttaching, SessionBegun, SessionEnded
from amqp10.link import Link
from amqp10.outcomes import ACCEPTED, DeliveryState, Error, Received
from amqp10.receiver import ReceiverLink
from amqp10.runs import Dispositions, LinkFlow, Transfers
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from amqp10.types import Symbol, ULong
from onceway.client.bodies import encode_body
from onceway.client.journal import Journal, MemoryJournal
from onceway.client.protocol.endpoint import Endpoint
from onceway.client.protocol.events import Arrived, LinkEvent
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.protocol.subscribing import SubscriberLink
from router.names import Guarantee

NEEDED = Received(section_number=0, section_offset=0)


def payload(number: int) -> bytes:
    return encode_body(b"message %d" % number)


class Rig:
    """`client` is the endpoint under test; `router` the connection at the other end; time stands still unless moved."""

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        router_frame: int = 1 << 20,
        client_frame: int = 1 << 20,
        channels: int = 256,
        seed: int = 1,
    ) -> None:
        self.now = 100.0
        self.wall_us = 1_000_000
        self.journal = journal if journal is not None else MemoryJournal()
        self.container = self.journal.open("client", lambda: None)
        self.client = Endpoint(self.container, self.journal, wall_us=lambda: self.wall_us, rng=random.Random(seed))
        self.router: Connection | None = None
        self.router_frame = router_frame
        self.client_frame = client_frame
        self.channels = channels
        self.heard: list[Event] = []  # by the router, but for the plumbing

    # -- links

    def publisher(
        self, guarantee: Guarantee = "exactly-once", address: str = "orders", name: str = "p"
    ) -> PublisherLink:
        link = self.client.publisher(address, name, guarantee, self.now)
        self.run()
        return link

    def subscriber(
        self, guarantee: Guarantee = "exactly-once", address: str = "orders", name: str = "s", credit: int = 100
    ) -> SubscriberLink:
        link = self.client.subscriber(
            address, name, guarantee, self.now, credit=credit, credit_bytes=1 << 30, subscription_timeout_s=None
        )
        self.run()
        return link

    # -- the connection

    def connect(self) -> None:
        assert self.router is None
        settings = ConnectionSettings(container_id="client", max_frame_size=self.client_frame)
        self.client.connect(settings, self.now)
        self.router = Connection(
            ConnectionSettings(container_id="router", max_frame_size=self.router_frame, channel_max=self.channels - 1),
            server=True,
            now=self.now,
        )
        self.run()

    def drop(self) -> None:
        """The connection breaks; what was written and not carried over is lost."""
        self.router = None
        self.heard.clear()
        self.client.lost(self.now, "dropped")

    def reconnect(self) -> None:
        self.drop()
        self.connect()

    def run(self) -> None:
        """Carry bytes both ways until nothing moves."""
        self.client.durable(self.now)
        while self.router is not None and self.client.connection is not None:
            moved = False
            data = self.client.data_to_send()
            if data:
                moved = True
                for event in self.router.receive_data(data, self.now):
                    if not isinstance(event, ConnectionOpened | SessionBegun | SessionEnded):
                        self.heard.append(event)
            data = self.router.data_to_send()
            if data:
                moved = True
                self.client.receive_data(data, self.now)
            self.client.check_invariants()
            if not moved:
                return

    def take(self, kind: type[Any]) -> list[Any]:
        """The events of this kind that the router heard since the last time, in order."""
        taken = [event for event in self.heard if isinstance(event, kind)]
        self.heard = [event for event in self.heard if not isinstance(event, kind)]
        return taken

    # -- the router's side

    def attaching(self) -> Link:
        """The one attach that waits for an answer."""
        (event,) = self.take(LinkAttaching)
        link = event.link
        assert isinstance(link, Link)
        return link

    def answer_publisher(self, *, credit: int = 100, timeout: int = 120, **properties: Any) -> ReceiverLink:
        link = self.attaching()
        assert isinstance(link, ReceiverLink)
        link.attach(
            source=link.remote_attach.source,
            target=Target(address="orders", timeout=timeout),
            unsettled={},
            properties={Symbol("onceway:guarantee"): Symbol("exactly-once"), **properties},
        )
        link.grant(credit)
        self.run()
        return link

    def answer_subscriber(
        self,
        unsettled: Mapping[bytes, DeliveryState | None] | None = None,
        *,
        timeout: int = 60,
        incomplete: bool = False,
        properties: Mapping[str, Any] | None = None,
    ) -> SenderLink:
        link = self.attaching()
        assert isinstance(link, SenderLink)
        assert link.remote_attach is not None
        link.attach(
            source=Source(address="orders", timeout=timeout, expiry_policy="never"),
            target=link.remote_attach.target,
            unsettled=unsettled,
            incomplete_unsettled=incomplete,
            properties={Symbol(key): value for key, value in (properties or {}).items()},
        )
        self.run()
        return link

    def refuse(self, condition: str, info: Mapping[str, Any] | None = None) -> None:
        self.attaching().refuse(condition, "no", info)
        self.run()

    def detach(self, link: Link, condition: str, info: Mapping[str, Any] | None = None) -> None:
        link.detach(Error(condition, "gone", info), closed=True)
        self.run()

    def received(self) -> list[bytes]:
        """Payloads that came to the router since the last time."""
        return [body for event in self.take(Transfers) for body in event.payloads]

    def accept(
        self, link: Link, first: int, last: int, *, settled: bool = False, state: DeliveryState = ACCEPTED
    ) -> None:
        assert isinstance(link, ReceiverLink)
        link.dispose(first, last, state, settled)
        self.run()

    def settled(self) -> list[tuple[int, int]]:
        """What the client has settled, or accepted, as ranges of the router's ids."""
        return [(event.first_id, event.last_id) for event in self.take(Dispositions)]


def epoch_of(link: Link) -> int:
    return number_of(link, "onceway:epoch")


def number_of(link: Link, key: str) -> int:
    value = link.remote_attach.properties[key]
    assert isinstance(value, ULong)
    return int(value)


def map_of(link: Link) -> Mapping[bytes, DeliveryState | None] | None:
    return link.remote_attach.unsettled


def kinds(events: list[LinkEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def arrived(link: SubscriberLink) -> list[bytes]:
    """Payloads handed on since the last time."""
    return [body for event in link.take_events() if isinstance(event, Arrived) for body in event.payloads]


def attached_publisher(rig: Rig, *, credit: int = 100) -> tuple[PublisherLink, ReceiverLink]:
    rig.connect()
    publisher = rig.publisher()
    link = rig.answer_publisher(credit=credit)
    publisher.take_events()
    return publisher, link


def put(rig: Rig, publisher: PublisherLink, *numbers: int) -> None:
    publisher.put([payload(number) for number in numbers], rig.now)
    rig.run()


def ask(rig: Rig, publisher: PublisherLink) -> None:
    """It is time to ask the router whether it is there: the question is written."""
    due = publisher.next_deadline()
    assert due is not None
    rig.now = due
    rig.client.handle_timer(rig.now)


def attached_subscriber(rig: Rig, *, credit: int = 100) -> tuple[SubscriberLink, SenderLink]:
    rig.connect()
    subscriber = rig.subscriber(credit=credit)
    link = rig.answer_subscriber()
    subscriber.take_events()
    return subscriber, link


def tag(number: int) -> bytes:
    return b"tag %d" % number


def deliver(rig: Rig, link: SenderLink, *numbers: int, settled: bool = False) -> int:
    first = link.send([tag(number) for number in numbers], [payload(number) for number in numbers], settled=settled)
    rig.run()
    return first


def told(rig: Rig) -> list[tuple[int, int, DeliveryState | None, bool]]:
    """The client's dispositions since the last time."""
    return [(event.first_id, event.last_id, event.state, event.settled) for event in rig.take(Dispositions)]


def credit(rig: Rig) -> list[int | None]:
    return [event.flow.link_credit for event in rig.take(LinkFlow)]
